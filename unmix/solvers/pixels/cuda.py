"""The CUDA driver: a thread a pixel, from the same functions as the CPU; any p, and the simulator.

A thread's scratch lies in global memory with the thread as the last index, so that a warp's accesses are coalesced and
p is not a compile-time constant; its size is bounded by the number of threads, which stride over the block.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from ...compiled.cuda import cuda, cuda_kernel, on_gpu
from ...compiled.cuda_block import multiprocessors
from ...compiled.simd import ONE
from .scalar import Plan, Work
from .tile import SWEPT, Given, Results, Stored, Tile, tile_rows, tile_solver

THREADS_PER_BLOCK = 64


class Scratch(NamedTuple):
    """Global memory of T threads for the solvers of one pixel."""

    vectors: Any  # (6, p, T) float64
    squares: Any  # (3, p, p, T) float64: for solvers that do not sweep
    members: Any  # (2, p, T) int64


class Answers(NamedTuple):
    """What a kernel that ran before found, for a block of N pixels; in place of `Scratch` for the solver ``given``."""

    X: Any  # (N, p) float64
    steps: Any  # (N,) int32


def scratch_shapes(p: int, solver: str, threads: int) -> Scratch:
    """The shapes of the scratch arrays for ``threads`` threads."""
    q = 0 if solver in SWEPT else p
    return Scratch((6, p, threads), (3, q, q, threads), (2, p, threads))


def scratch_bytes(L: int, p: int, solver: str) -> int:
    """Bytes of scratch a thread, its tile included."""
    return 8 * sum(math.prod(shape) for shape in scratch_shapes(p, solver, 1)) + tile_bytes(L, p, solver)


def tile_bytes(L: int, p: int, solver: str) -> int:
    """Bytes of a tile one pixel wide."""
    return 8 * sum(tile_rows(L, p, solver in SWEPT))


def tile_starts(L: int, p: int, solver: str) -> tuple[int, ...]:
    """Where the fields of a tile begin in the scratch of a thread, and where the last ends."""
    return tuple(int(n) for n in np.cumsum((0, *tile_rows(L, p, solver in SWEPT))))


def to_gpu(fields: Any) -> Any:
    """Copy the arrays of a NamedTuple to the GPU; numbers stay as they are."""
    return type(fields)(*(cuda.to_device(value) if isinstance(value, np.ndarray) else value for value in fields))


@on_gpu
def tile_of(own, o):
    """A tile in one thread's column of scratch; its fields begin at the rows ``o``."""
    return Tile(
        own[o[0] : o[1]], own[o[1] : o[2]], own[o[2] : o[3]], own[o[3] : o[4]], own[o[4] : o[5]], own[o[5] : o[6]],
        own[o[6] : o[7]], own[o[7] : o[8]], own[o[8] : o[9]], own[o[9] : o[10]], own[o[10] : o[11]],
        own[o[11] : o[12]], own[o[12] : o[13]], own[o[13] : o[14]], own[o[14] : o[15]],
    )  # fmt: skip


@on_gpu
def work_of_thread(scratch, t, n):
    """The work area of thread t, whichever pixel it solves."""
    vectors, squares, members = scratch.vectors, scratch.squares, scratch.members
    return Work(
        vectors[0, :, t], vectors[1, :, t], vectors[2, :, t], vectors[3, :, t], vectors[4, :, t], vectors[5, :, t],
        squares[0, :, :, t], squares[1, :, :, t], squares[2, :, :, t], members[0, :, t], members[1, :, t],
    )  # fmt: skip


@on_gpu
def answer_of_pixel(answers, t, n):
    """The answer of pixel n, whichever thread certifies it."""
    return Given(answers.X[n], answers.steps[n : n + 1])


@functools.cache
def block_kernel(interleave: str, solver: str) -> Any:
    """The kernel that solves and certifies a block, a thread a pixel.

    Its arguments are the block as stored, `Stored`, `Plan` and `Results`, the tiles (rows of a tile, T) with their `tile_starts`, and
    a `Scratch`, or `Answers` for the solver ``given``.
    """
    solve_tile = tile_solver(interleave, solver, ONE)
    work_of = answer_of_pixel if solver == "given" else work_of_thread

    @cuda_kernel
    def solve_block(raw, stored, plan, results, tiles, starts, scratch):
        lines, samples = results.rmse.shape
        t = cuda.grid(1)
        tile = tile_of(tiles[:, t : t + 1], starts)
        for n in range(t, lines * samples, cuda.gridsize(1)):
            solve_tile(raw, n // samples, n % samples, 1, stored, plan, tile, work_of(scratch, t, n), results)

    return solve_block


class GeneralSolver:
    """This kernel as a solver of blocks on a GPU, for any problem.

    Every such class has: ``serves`` (whether it is right for a problem), ``scratch_bytes`` (GPU memory beside the
    blocks, for a block of so many pixels), a constructor that takes that memory, ``launch``, which enqueues a block, and
    ``countable``, the class that adds up its answers on the GPU, or None.
    """

    countable = None

    # More threads than a GPU holds at once would only take memory.
    MOST_THREADS = 2048

    def __init__(self, problem: Any, pixels: int) -> None:
        L, p = problem.E.shape
        threads = self.threads(pixels)
        self.kernel = block_kernel(problem.interleave, problem.pixel)
        self.stored, self.plan = to_gpu(Stored(*problem.stored())), to_gpu(Plan(*problem.plan()))
        self.starts = tile_starts(L, p, problem.pixel)
        self.tiles = cuda.device_array((self.starts[-1], threads), np.float64)
        shapes = zip(scratch_shapes(p, problem.pixel, threads), (np.float64, np.float64, np.int64))
        self.scratch = Scratch(*(cuda.device_array(shape, kind) for shape, kind in shapes))
        self.grid = threads // THREADS_PER_BLOCK

    @classmethod
    def threads(cls, pixels: int) -> int:
        """One a pixel, in whole blocks of threads, as far as the GPU holds them."""
        return min(-(-pixels // THREADS_PER_BLOCK) * THREADS_PER_BLOCK, multiprocessors() * cls.MOST_THREADS)

    @staticmethod
    def serves(problem: Any) -> bool:
        """Whether this path is right for the problem: always."""
        return True

    @classmethod
    def scratch_bytes(cls, problem: Any, pixels: int) -> int:
        """GPU memory beside the blocks."""
        return cls.threads(pixels) * scratch_bytes(*problem.E.shape, problem.pixel)

    def launch(self, raw: Any, results: dict[str, Any], stream: Any) -> None:
        """Solve a block that is on the GPU."""
        self.kernel[self.grid, THREADS_PER_BLOCK, stream](
            raw, self.stored, self.plan, Results(**results), self.tiles, self.starts, self.scratch
        )
