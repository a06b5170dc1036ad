"""The CPU driver: a range of tiles a call, without the GIL, so that a plain thread pool keeps all cores busy.

Not `prange`: its threading layer is unsafe under several Python threads and counts threads of its own; calls that
release the GIL need neither, and obey ``--threads`` to the letter.
"""

import functools
from typing import Any

import numpy as np

from .jit import compiled
from .pixel import Plan, Work
from .tile import WIDTH, Results, Stored, Tile, tile_solver


@compiled
def new_work(p):
    return Work(
        np.empty(p), np.empty(p), np.empty(p), np.empty(p), np.empty(p), np.empty(p),
        np.empty((p, p)), np.empty((p, p)), np.empty((p, p)), np.empty(p, np.int64), np.empty(p, np.int64),
    )  # fmt: skip


@compiled
def new_tile(L, p, w):
    return Tile(
        np.empty((L, w)), np.empty((p, w)), np.empty((p, w)), np.empty((p, w)), np.empty((p, w)), np.empty((p, w)),
        np.empty((4, w)), np.empty(w), np.empty(w), np.empty(w), np.empty(w), np.empty(w), np.empty(w, np.int64), np.empty(w, np.int64),
    )  # fmt: skip


@functools.cache
def range_solver(interleave: str, solver: str) -> Any:
    """The compiled function that solves tiles ``start`` to ``stop`` of a block, counted along its lines.

    Its arguments are plain tuples of arrays in the order of `Stored`, `Plan` and `Results`, and ``raw``, the block as
    stored: (lines, samples, bands), (lines, bands, samples) or (bands, lines, samples).
    """
    solve_tile = tile_solver(interleave, solver)

    @compiled
    def solve_range(start, stop, raw, stored, plan, results):
        L, p = plan.E.shape
        samples = results.rmse.shape[1]
        across = (samples + WIDTH - 1) // WIDTH
        work = new_work(p)
        tile = new_tile(L, p, WIDTH)
        narrow = new_tile(L, p, samples - (across - 1) * WIDTH)  # the last of a line
        steps = np.empty(WIDTH, np.int64)
        for t in range(start, stop):
            line = t // across
            first = (t - line * across) * WIDTH
            if samples - first >= WIDTH:
                solve_tile(raw, line, first, WIDTH, stored, plan, tile, work, results, steps)
            else:
                solve_tile(raw, line, first, samples - first, stored, plan, narrow, work, results, steps)

    return solve_range


def tiles_in(lines: int, samples: int) -> int:
    """How many tiles a block of ``lines`` has."""
    return lines * -(-samples // WIDTH)


__all__ = ["Plan", "Results", "Stored", "range_solver", "tiles_in"]
