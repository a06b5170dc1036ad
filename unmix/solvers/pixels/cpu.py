"""Solve a range of tiles per call on the CPU, without the GIL, so that a plain thread pool keeps all cores busy.

Not `prange`: its threading layer is unsafe under several Python threads and counts threads of its own; calls that
release the GIL need neither, and obey ``--threads`` to the letter.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...certificate import Face, face_shapes
from ...compiled.jit import address_of, call_at, compiled
from ...compiled.simd import WIDE
from ..nnls.lawson_hanson_qr import Own, Scratch, scratch_shapes
from .at_most import new_search
from .gather import gather_function
from .mesma.search import Best, best_shapes
from .scalar import Plan, Work
from .tile import Results, Stored, Tile, answer_function, tile_rows, writer
from .working_set import MOST_AT_ONCE, new_working_set


def new_work(L: int, p: int, solver: str, at_most: int = 0) -> Any:
    """Allocate the scratch of one pixel; ``at_most`` is the number of endmembers that it may have, for the solver of that name."""
    if solver == "qr":
        scratch = Scratch(*(np.empty(shape, kind) for shape, kind in scratch_shapes(L, p)))
        return Own(scratch, np.empty(2), np.empty(L), np.empty(p))
    if solver == "mesma":
        return Best(*(np.empty(shape, kind) for shape, kind in best_shapes(p, WIDE.width, L)))
    if solver == "working_set":
        return new_working_set(p, WIDE.width)
    if solver == "at_most":
        return new_search(L, p, at_most, new_face(at_most))
    vectors, squares, members = np.empty((6, p)), np.empty((3, p, p)), np.empty((2, p), np.int64)
    return Work(*vectors, *squares, *members)


def new_tile(L: int, p: int, solver: str) -> Tile:
    """Allocate the scratch of one tile."""
    rows = tile_rows(L, p, solver)
    return Tile(*(np.empty((n, WIDE.width)) for n in rows))


def new_face(p: int) -> Face:
    """Allocate the scratch of the bound on a face."""
    return Face(*(np.empty(shape, kind) for shape, kind in face_shapes(p)))


@functools.cache
def tiles_solver(interleave: str) -> Any:
    """Return the compiled function behind `range_solver`; it takes its scratch, and the address of a solver's `answer_function`."""
    gather, write, width = gather_function(interleave, WIDE), writer(WIDE), WIDE.width

    @compiled
    def solve_tiles(start, stop, raw, stored, results, answer, plan, tile, work, face):
        samples = results.rmse.shape[1]
        tiles_per_line = (samples + width - 1) // width
        for t in range(start, stop):
            line, first = t // tiles_per_line, t % tiles_per_line * width
            count = min(width, samples - first)
            gather(raw, line, first, count, stored, tile.Y, tile.missing, tile.length, tile.size)
            call_at(answer, (plan, tile, work, face, count))
            write(plan.E, tile, results, line, first, count)

    return solve_tiles


def range_solver(
    interleave: str, solver: str, stored: Stored, plan: Plan
) -> Callable[[int, int, np.ndarray, Results], None]:
    """Return ``solve(start, stop, raw, results)``: it solves tiles ``start`` to ``stop`` of a block, counted along its lines.

    ``raw`` is the block as stored: (lines, samples, bands), (lines, bands, samples) or (bands, lines, samples).
    """
    L, p = plan.E.shape
    at_most = plan.models if solver == "at_most" else 0

    def scratch() -> tuple[Tile, Any, Face]:
        return new_tile(L, p, solver), new_work(L, p, solver, at_most), new_face(p)

    solve_tiles = tiles_solver(interleave)
    answer = address_of(answer_function(solver, WIDE, True), (plan, *scratch(), 0))

    def solve(start: int, stop: int, raw: np.ndarray, results: Results) -> None:
        solve_tiles(start, stop, raw, stored, results, answer, plan, *scratch())

    return solve


def path_of(problem: Any) -> str:
    """Return the entry of `unmix.solvers.pixels.tile.SEARCH` that solves a problem on the CPU."""
    many = problem.pixel == "active_set" and problem.E.shape[1] > MOST_AT_ONCE
    return "working_set" if many else str(problem.pixel)


def tiles_in(lines: int, samples: int) -> int:
    """Return the number of tiles in a block of ``lines`` times ``samples`` pixels."""
    return lines * -(-samples // WIDE.width)


__all__ = ["Plan", "Results", "Stored", "range_solver", "tiles_in"]
