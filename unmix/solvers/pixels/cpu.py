"""Solve a range of tiles per call on the CPU, without the GIL, so that a plain thread pool keeps all cores busy.

Not `prange`: its threading layer is unsafe under several Python threads and counts threads of its own; calls that
release the GIL need neither, and obey ``--threads`` to the letter.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...certificate import Face, face_shapes
from ...compiled.jit import address_of, call_at, compiled
from ...compiled.simd import WIDE, aligned_zeros
from ..nnls.lawson_hanson_qr import Own, Scratch, scratch_shapes
from .at_most import new_search
from .gather import gather_function
from .scalar import Plan, Work
from .supports.table import BY_SUPPORT, LEFT, LEFT_SINCE, new_table
from .tile import SEARCH, Results, Stored, Tile, prepare_function, proof_of, tile_rows, writer
from .working_set import new_working_set

# Neighbouring pixels of a line whose searches may start from one another; a thread takes whole runs. 64 starts from nothing cost a
# fifth of a search at 25 endmembers, 16 of them more than half.
RUN = 4 * WIDE.width


def new_work(plan: Plan, solver: str) -> Any:
    """Allocate what a solver needs beside a tile."""
    L, p = plan.E.shape
    if solver in BY_SUPPORT:
        return new_table(plan.U, plan.weights, plan.dual_tolerance, plan.sum_to_one, WIDE.width)
    if solver == "qr":
        scratch = Scratch(*(np.empty(shape, kind) for shape, kind in scratch_shapes(L, p)))
        return Own(scratch, np.empty(2), np.empty(L), np.empty(p))
    if solver == "mesma":
        from .mesma.search import Best, best_shapes

        return Best(*(np.empty(shape, kind) for shape, kind in best_shapes(p, WIDE.width, L)))
    if solver == "working_set":
        return new_working_set(p, WIDE.width)
    if solver == "at_most":
        return new_search(L, p, plan.models, new_face(plan.models))
    vectors, squares, members = np.empty((6, p)), np.empty((3, p, p)), np.empty((2, p), np.int64)
    return Work(*vectors, *squares, *members)


def new_tile(L: int, p: int, solver: str) -> Tile:
    """Allocate the scratch of one tile."""
    rows = tile_rows(L, p, solver)
    return Tile(*(aligned_zeros(n, WIDE.width) for n in rows))


def new_face(p: int) -> Face:
    """Allocate the scratch of the bound on a face."""
    return Face(*(np.empty(shape, kind) for shape, kind in face_shapes(p)))


@functools.cache
def runs_solver(interleave: str) -> Any:
    """Return the compiled function behind `range_solver`; it takes its scratch, and the addresses of a solver's `Stages`."""
    gather, write, width = gather_function(interleave, WIDE), writer(WIDE), WIDE.width

    @compiled
    def solve_runs(start, stop, raw, stored, results, stages, plan, tile, work, face):
        samples = results.rmse.shape[1]
        runs_of_line = (samples + RUN - 1) // RUN
        for r in range(start, stop):
            line, begin = r // runs_of_line, r % runs_of_line * RUN
            for first in range(begin, min(begin + RUN, samples), width):
                count = min(width, samples - first)
                tile.begins[0, 0] = 1.0 if first == begin else 0.0
                gather(raw, line, first, count, stored, tile.Y, tile.missing, tile.length, tile.size)
                call_at(stages.prepare, (plan, tile))
                call_at(stages.search, (plan, tile, work, count))
                call_at(stages.prove, (plan, tile, face, count))
                write(plan.E, tile, results, line, first, count)

    return solve_runs


class Stages(NamedTuple):
    """Addresses of the functions from a tile's pixels to certified abundances, which are compiled apart: most solvers share two."""

    prepare: Any
    search: Any
    prove: Any


class Search:
    """A solver of `unmix.solvers.pixels.tile.SEARCH`, compiled, and the scratch of threads, which is kept for its table of supports."""

    def __init__(self, solver: str, plan: Plan) -> None:
        self.solver, self.plan = solver, plan
        tile, work, face = scratch = self.new_scratch()
        self.idle = [scratch]
        self.stages = Stages(
            address_of(prepare_function(WIDE), (plan, tile)),
            address_of(SEARCH[solver](WIDE), (plan, tile, work, 0)),
            address_of(proof_of(solver, WIDE, True), (plan, tile, face, 0)),
        )

    def new_scratch(self) -> tuple[Tile, Any, Face]:
        """Allocate the scratch of one thread."""
        L, p = self.plan.E.shape
        work = new_work(self.plan, self.solver)
        return new_tile(L, p, self.solver), work, new_face(p)

    def solve(self, solve_runs: Any, start: int, stop: int, *block: Any) -> int:
        """Solve runs ``start`` to ``stop``; return how many of their pixels are left to another search."""
        try:
            scratch = self.idle.pop()
        except IndexError:
            scratch = self.new_scratch()
        solve_runs(start, stop, *block, self.stages, self.plan, *scratch)
        left = 0
        if self.solver in BY_SUPPORT:
            used = scratch[1].used
            left, used[LEFT_SINCE] = int(used[LEFT_SINCE]), 0
        self.idle.append(scratch)
        return left


def range_solver(
    interleave: str, solver: str, stored: Stored, plan: Plan
) -> Callable[[int, int, np.ndarray, Results], None]:
    """Return ``solve(start, stop, raw, results)``: it solves runs ``start`` to ``stop`` of a block, counted along its lines.

    ``raw`` is the block as stored: (lines, samples, bands), (lines, bands, samples) or (bands, lines, samples). Runs of which a search
    by support leaves a pixel are solved again as a whole by the search that `BY_SUPPORT` names, which is compiled when it is needed.
    """
    solve_runs, search = runs_solver(interleave), Search(solver, plan)
    other = functools.cache(lambda: Search(BY_SUPPORT[solver].other, plan))

    def solve(start: int, stop: int, raw: np.ndarray, results: Results) -> None:
        if search.solve(solve_runs, start, stop, raw, stored, results) == 0:
            return
        runs_of_line = runs_in(1, results.steps.shape[1])
        for r in range(start, stop):
            first = r % runs_of_line * RUN
            if np.any(results.steps[r // runs_of_line, first : first + RUN] == LEFT):
                other().solve(solve_runs, r, r + 1, raw, stored, results)

    return solve


def path_of(problem: Any) -> str:
    """Return the entry of `unmix.solvers.pixels.tile.SEARCH` that solves a problem on the CPU."""
    if problem.pixel != "active_set":
        return str(problem.pixel)
    p = problem.E.shape[1]
    for path, support in BY_SUPPORT.items():
        if p <= support.most:
            return path if WIDE.width > 1 else support.other  # vectors exist in compiled code only
    return "working_set"


def runs_in(lines: int, samples: int) -> int:
    """Return the number of runs in a block of ``lines`` times ``samples`` pixels."""
    return lines * -(-samples // RUN)


__all__ = ["Plan", "Results", "Stored", "range_solver", "runs_in"]
