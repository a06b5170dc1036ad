"""Solve a range of tiles per call on the CPU, without the GIL, so that a plain thread pool keeps all cores busy.

Not `prange`: its threading layer is unsafe under several Python threads and counts threads of its own; calls that
release the GIL need neither, and obey ``--threads`` to the letter.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...certificate import Face, face_shapes
from ...compiled.jit import WIDE, address_of, aligned_zeros, array_of, call_at, compiled
from ...features.runs import search_file
from .gather import Block, Stored, block_maker, gather_block
from .scalar import Plan, Work
from .supports.pivots import BY_SUPPORT, new_table
from .tile import SEARCH, Results, Tile, prepare_function, proof_of, residual_writer, search_of, tile_rows, write_tile
from .working_set import new_working_set

# Neighbouring pixels of a line whose searches may start from one another; a thread takes whole runs. The first starts
# from nothing, and the next three tell whether another search is faster: with half as many pixels both cost twice as
# much. Longer runs would leave threads without work in small scenes.
RUN = 8 * WIDE.width


def new_work(plan: Plan, solver: str, in_scene: bool = True) -> Any:
    """Allocate what a solver needs beside a tile; see `range_solver`."""
    L, p = plan.E.shape
    if solver in BY_SUPPORT:
        return new_table(
            BY_SUPPORT[solver].most_pivoted if in_scene else np.inf,
            plan.U,
            plan.weights,
            plan.dual_tolerance,
            plan.sum_to_one,
            WIDE.width,
        )
    if solver == "mesma":
        from .mesma.search import Best, best_shapes

        return Best(*(np.empty(shape, kind) for shape, kind in best_shapes(plan.models.most, WIDE.width)))
    if solver == "working_set":
        return new_working_set(p, WIDE.width)
    if solver not in SEARCH:
        return search_file(solver).new_work(L, p, plan)
    vectors, squares, members = np.empty((6, p)), np.empty((3, p, p)), np.empty((2, p), np.int64)
    return Work(*vectors, *squares, *members)


def new_tile(L: int, p: int, solver: str) -> Tile:
    """Allocate the scratch of one tile."""
    rows = tile_rows(L, p, solver)
    return Tile(*(aligned_zeros(n, WIDE.width) for n in rows))


def new_face(p: int) -> Face:
    """Allocate the scratch of the bound on a face."""
    return Face(*(np.empty(shape, kind) for shape, kind in face_shapes(p)))


class ResultRows(NamedTuple):
    """`Results` of a block as bytes where their type varies, so that `solve_runs` is compiled once for all types."""

    abundance: Any  # (bytes,) uint8, as rmse and residual are
    rmse: Any
    residual: Any
    shape: Any  # of abundances: n, p and samples
    residuals: Any  # the shape of the residual: 0 or n, L and samples
    relative: Any  # (n, samples), as all below
    kappa: Any
    delta: Any
    steps: Any
    state: Any


def outputs_of(results: Results) -> ResultRows:
    """Return results, which are in C order, as `ResultRows` that share their memory."""
    some = results.abundance, results.rmse, results.residual
    assert all(values.flags["C"] for values in some), "a copy would be written to"
    flat = (values.reshape(-1).view(np.uint8) for values in some)
    return ResultRows(*flat, results.abundance.shape, results.residual.shape, *results[2:-1])


@functools.cache
def bytes_writer(kind: Any, real: Any, has_residual: bool) -> Any:
    """Return ``write(E, tile, outputs, line, first, count)`` for types of abundances, and of RMSE and residual."""
    write_residual = residual_writer(WIDE) if has_residual else leave_residual

    @compiled
    def write_bytes(E, tile, outputs, line, first, count):
        n, _, samples = outputs.shape
        abundance = array_of(outputs.abundance, outputs.shape, kind)
        rmse = array_of(outputs.rmse, (1, n, samples), real)
        residual = array_of(outputs.residual, outputs.residuals, real)
        results = Results(
            abundance, rmse[0], outputs.relative, outputs.kappa, outputs.delta, outputs.steps, outputs.state, residual
        )
        write_tile(tile, results, line, first, count, E.shape[0])
        write_residual(E, tile, results, line, first, count)

    return write_bytes


@compiled
def leave_residual(E, tile, results, line, first, count):
    """Do nothing, in place of the function of `residual_writer`."""


class Stages(NamedTuple):
    """Addresses of the compiled functions of a tile's stages; most solvers share ``prepare`` and ``prove``."""

    prepare: Any
    search: Any
    prove: Any
    write: Any = 0  # of `bytes_writer`, once the types of results are known


@compiled
def solve_runs(start, stop, left, block, stored, outputs, stages, plan, tile, work, face):
    """Solve runs ``start`` to ``stop`` of a `Block`; set ``left[r]`` for the r-th of them if another search has to."""
    samples, width = outputs.shape[2], tile.Y.shape[1]
    runs_of_line = (samples + RUN - 1) // RUN
    for r in range(start, stop):
        line, begin = r // runs_of_line, r % runs_of_line * RUN
        for first in range(begin, begin + RUN if begin + RUN < samples else samples, width):
            count = width if width < samples - first else samples - first
            tile.begins[0, 0] = 1.0 if first == begin else 0.0
            gather_block(block, line, first, count, stored, tile.Y, tile.missing, tile.length, tile.size)
            call_at(stages.prepare, (plan, tile))
            call_at(stages.search, (plan, tile, work, count))
            if tile.begins[0, 0] < 0.0:
                left[r - start] = True
                break
            call_at(stages.prove, (plan, tile, face, count))
            call_at(stages.write, (plan.E, tile, outputs, line, first, count))


class TileSearch:
    """A compiled solver of `unmix.solvers.pixels.tile.SEARCH`, with idle scratch, kept for its table of supports."""

    def __init__(self, solver: str, plan: Plan, in_scene: bool = True) -> None:
        self.solver, self.plan, self.in_scene = solver, plan, in_scene
        tile, work, face = scratch = self.new_scratch()
        self.idle = [scratch]
        self.stages = Stages(
            address_of(prepare_function(WIDE), (plan, tile)),
            address_of(search_of(solver, WIDE), (plan, tile, work, 0)),
            address_of(proof_of(solver, WIDE, True), (plan, tile, face, 0)),
        )
        self.stages_by_kinds = dict[Any, Stages]()

    def new_scratch(self) -> tuple[Tile, Any, Face]:
        """Allocate the scratch of one thread."""
        L, p = self.plan.E.shape
        work = new_work(self.plan, self.solver, self.in_scene)
        return new_tile(L, p, self.solver), work, new_face(p)

    def stages_for(self, outputs: ResultRows, results: Results, tile: Tile) -> Stages:
        """Return the stages with the writer for the types of these results; its address is looked up once."""
        has_residual = len(results.residual) > 0
        kinds = has_residual, *((values.dtype.type, values.flags["C"]) for values in results)
        if kinds not in self.stages_by_kinds:
            write = bytes_writer(results.abundance.dtype.type, results.rmse.dtype.type, has_residual)
            address = address_of(write, (self.plan.E, tile, outputs, 0, 0, 0))
            self.stages_by_kinds[kinds] = self.stages._replace(write=address)
        return self.stages_by_kinds[kinds]

    def solve(self, start: int, stop: int, block: Block, stored: Stored, results: Results) -> np.ndarray:
        """Solve runs ``start`` to ``stop``; return which of them are left to another search, (stop − start,) bool."""
        try:
            scratch = self.idle.pop()
        except IndexError:
            scratch = self.new_scratch()
        left, outputs = np.zeros(stop - start, bool), outputs_of(results)
        stages = self.stages_for(outputs, results, scratch[0])
        solve_runs(start, stop, left, block, stored, outputs, stages, self.plan, *scratch)
        self.idle.append(scratch)
        return left


def range_solver(
    interleave: str, solver: str, stored: Stored, plan: Plan, in_scene: bool = True, compiles_all: bool = False
) -> Callable[[int, int, np.ndarray, Results], None]:
    """Return ``solve(start, stop, raw, results)``, which solves runs of a stored block, counted along lines."""
    # Runs that a search by support leaves are solved by BY_SUPPORT's `other`, compiled when it is needed, or at the
    # first call. Only runs in a scene are left: it depends on where runs begin, and the two searches round differently.
    block_of, search = block_maker(interleave, stored), TileSearch(solver, plan, in_scene)
    kept, lock = list[TileSearch](), threading.Lock()

    def other() -> TileSearch:
        with lock:
            if not kept:
                kept.append(TileSearch(BY_SUPPORT[solver].other, plan))
        return kept[0]

    def solve(start: int, stop: int, raw: np.ndarray, results: Results) -> None:
        block = block_of(raw)
        left = search.solve(start, stop, block, stored, results)
        if compiles_all and solver in BY_SUPPORT:
            other().solve(start, start, block, stored, results)
        edges = np.flatnonzero(np.diff(left, prepend=False, append=False))
        for first, after in edges.reshape(-1, 2).tolist():
            other().solve(start + first, start + after, block, stored, results)

    return solve


def path_of_solver(problem: Any) -> str:
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
