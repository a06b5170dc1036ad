"""Solve blocks on a GPU with one thread per pixel, by the same functions as on the CPU; for any p, and in the
simulator.

A thread's scratch lies in global memory with the thread as the last index, so that a warp's accesses are coalesced and
p need not be a compile-time constant. The number of threads, which stride over the block, bounds its size.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numba import float64

from ...compiled.cuda import cuda, cuda_kernel, multiprocessors, on_gpu, to_gpu
from ...compiled.jit import ONE
from ...settings.models import MOST_SPECTRA
from .gather import Stored
from .mesma.search import Best, best_shapes
from .scalar import Plan, Work
from .tile import SWEPT, Results, Tile, tile_rows, tile_solver

THREADS_PER_BLOCK = 64


class BlockScratch(NamedTuple):
    """Global memory of T threads for the solvers of one pixel."""

    vectors: Any  # (6, p, T) float64
    squares: Any  # (3, p, p, T) float64: for solvers that do not sweep
    members: Any  # (2, p, T) int64


def shapes_of_thread(p: int, solver: str, threads: int) -> BlockScratch:
    """Return the shapes of the scratch arrays for ``threads`` threads."""
    q = 0 if solver in SWEPT else p
    return BlockScratch((6, p, threads), (3, q, q, threads), (2, p, threads))


def scratch_bytes(L: int, p: int, solver: str) -> int:
    """Return the bytes of scratch per thread, its tile included."""
    return 8 * sum(math.prod(shape) for shape in shapes_of_thread(p, solver, 1)) + tile_bytes(L, p, solver)


def tile_bytes(L: int, p: int, solver: str) -> int:
    """Return the bytes of a tile one pixel wide."""
    return 8 * sum(tile_rows(L, p, solver))


def tile_starts(L: int, p: int, solver: str) -> tuple[int, ...]:
    """Return the rows where the fields of a tile begin in a thread's column of scratch, and where the last ends."""
    return tuple(int(n) for n in np.cumsum((0, *tile_rows(L, p, solver))))


@on_gpu
def tile_of(column, o):
    """Return the tile in one thread's column of scratch; its fields begin at the rows ``o``."""
    return Tile(
        column[o[0] : o[1]],
        column[o[1] : o[2]],
        column[o[2] : o[3]],
        column[o[3] : o[4]],
        column[o[4] : o[5]],
        column[o[5] : o[6]],
        column[o[6] : o[7]],
        column[o[7] : o[8]],
        column[o[8] : o[9]],
        column[o[9] : o[10]],
        column[o[10] : o[11]],
        column[o[11] : o[12]],
        column[o[12] : o[13]],
        column[o[13] : o[14]],
        column[o[14] : o[15]],
        column[o[15] : o[16]],
        column[o[16] : o[17]],
        column[o[17] : o[18]],
    )


@on_gpu
def work_of_thread(scratch, t, n):
    """Return the work area of thread t, whichever pixel n it solves."""
    vectors, squares, members = scratch.vectors, scratch.squares, scratch.members
    return Work(
        vectors[0, :, t],
        vectors[1, :, t],
        vectors[2, :, t],
        vectors[3, :, t],
        vectors[4, :, t],
        vectors[5, :, t],
        squares[0, :, :, t],
        squares[1, :, :, t],
        squares[2, :, :, t],
        members[0, :, t],
        members[1, :, t],
    )


@on_gpu
def best_of_thread(best, t, n):
    """Return thread t's part of a `unmix.solvers.pixels.mesma.search.Best`."""
    return Best(
        best.error[:, t : t + 1],
        best.second[:, t : t + 1],
        best.limit[:, t : t + 1],
        best.summed[:, t : t + 1],
        best.spectra[:, :, t : t + 1],
        best.place[:, t : t + 1],
        best.abundances[:, :, t : t + 1],
        cuda.local.array((MOST_SPECTRA, 1), float64),
        best.square[:, t : t + 1],
        best.found[:, t : t + 1],
        best.over[:, t : t + 1],
        best.duals[:, t : t + 1],
    )


# Makers of a thread's ``work`` in `block_kernel`, by solver; `work_of_thread` for the others.
WORK = {"mesma": best_of_thread}
# The most registers of a thread of `block_kernel`, for solvers whose loops wait for memory unless more warps are at
# work.
REGISTERS = {"mesma": 64}


@functools.cache
def block_kernel(interleave: str, solver: str) -> Any:
    """Return the kernel that solves and certifies a block, one thread per pixel."""
    # Its arguments are the block as stored, Stored, Plan and Results, the tiles (rows of a tile, T) with their
    # tile_starts, and a BlockScratch, or a Best for "mesma".
    solve_tile = tile_solver(interleave, solver, ONE, False)
    work_of = WORK.get(solver, work_of_thread)

    def solve_block(raw, stored, plan, results, tiles, starts, scratch):
        lines, samples = results.rmse.shape
        t = cuda.grid(1)
        tile = tile_of(tiles[:, t : t + 1], starts)
        for n in range(t, lines * samples, cuda.gridsize(1)):
            solve_tile(raw, n // samples, n % samples, 1, stored, plan, tile, work_of(scratch, t, n), 0, results)

    return cuda_kernel(solve_block, REGISTERS.get(solver))


class GeneralSolver:
    """A solver of blocks on a GPU, by `block_kernel`, for any problem.

    Every such class has: ``serves`` (whether it can solve a problem), ``scratch_bytes`` (GPU memory needed beside the
    blocks, for blocks of a number of pixels), a constructor that allocates that memory, ``launch``, which enqueues a
    block, ``countable``, whether `unmix.solvers.pixels.cuda_totals` can count its results, and ``path``, the search
    where it is not the problem's own.
    """

    countable = True
    path: str | None = None

    # Threads per multiprocessor: more than are resident at once would only take memory.
    MOST_THREADS = 2048

    def __init__(self, problem: Any, pixels: int) -> None:
        L, p = problem.E.shape
        threads = self.threads(pixels)
        self.kernel = block_kernel(problem.interleave, problem.pixel)
        self.stored, self.plan = to_gpu(Stored(*problem.stored())), to_gpu(Plan(*problem.plan()))
        self.starts = tile_starts(L, p, problem.pixel)
        self.tiles = cuda.device_array((self.starts[-1], threads), np.float64)
        self.scratch = self.new_scratch(problem, threads)
        self.grid = threads // THREADS_PER_BLOCK

    @staticmethod
    def new_scratch(problem: Any, threads: int) -> Any:
        """Allocate the scratch of all threads, beside their tiles."""
        shapes = zip(shapes_of_thread(problem.E.shape[1], problem.pixel, threads), (np.float64, np.float64, np.int64))
        return BlockScratch(*(cuda.device_array(shape, kind) for shape, kind in shapes))

    @classmethod
    def threads(cls, pixels: int) -> int:
        """Return the number of threads: one per pixel, in whole blocks of threads, up to what the GPU holds at once."""
        return min(-(-pixels // THREADS_PER_BLOCK) * THREADS_PER_BLOCK, multiprocessors() * cls.MOST_THREADS)

    @staticmethod
    def serves(problem: Any, samples: int) -> bool:
        """Return whether this class can solve the problem: always."""
        return True

    @classmethod
    def scratch_bytes(cls, problem: Any, pixels: int) -> int:
        """Return the bytes of GPU memory needed beside the blocks."""
        return cls.threads(pixels) * scratch_bytes(*problem.E.shape, problem.pixel)

    def launch(self, raw: Any, results: dict[str, Any], stream: Any) -> None:
        """Enqueue the solution of a block that is on the GPU."""
        self.kernel[self.grid, THREADS_PER_BLOCK, stream](
            raw, self.stored, self.plan, Results(**results), self.tiles, self.starts, self.scratch
        )


class ModelsSolver(GeneralSolver):
    """A solver of blocks for MESMA, with the threads that its registers let be at work at once."""

    countable = False  # of its maps the host makes others
    MOST_THREADS = 1024

    @staticmethod
    def new_scratch(problem: Any, threads: int) -> Any:
        """Allocate the scratch of all threads."""
        return Best(*(cuda.device_array(shape, kind) for shape, kind in best_shapes(problem.models.most, threads)))

    @classmethod
    def scratch_bytes(cls, problem: Any, pixels: int) -> int:
        """Return the bytes of GPU memory needed beside the blocks."""
        best = sum(math.prod(shape) * np.dtype(kind).itemsize for shape, kind in best_shapes(problem.models.most, 1))
        tables = sum(values.nbytes for values in problem.models if isinstance(values, np.ndarray))
        return cls.threads(pixels) * (best + tile_bytes(*problem.E.shape, "mesma")) + tables
