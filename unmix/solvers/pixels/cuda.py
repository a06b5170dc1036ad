"""The CUDA driver: a thread a pixel, from the same functions as the CPU; any p, and the simulator.

A thread's scratch lies in global memory with the thread as the last index, so that a warp's accesses are coalesced and
p is not a compile-time constant; its size is bounded by the number of threads, which stride over the block.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from ...compiled.cuda import cuda, cuda_kernel
from ...compiled.simd import ONE
from .scalar import Plan, Work
from .tile import SWEPT, Results, Stored, Tile, tile_rows, tile_solver

THREADS_PER_BLOCK = 64


class Scratch(NamedTuple):
    """Global memory of T threads."""

    tile: Any  # (rows of a tile, T) float64, field by field
    vectors: Any  # (6, p, T) float64
    squares: Any  # (3, p, p, T) float64: for solvers that do not sweep
    members: Any  # (2, p, T) int64


def scratch_shapes(L: int, p: int, solver: str, threads: int) -> Scratch:
    """The shapes of the scratch arrays for ``threads`` threads."""
    swept = solver in SWEPT
    q = 0 if swept else p
    return Scratch((sum(tile_rows(L, p, swept)), threads), (6, p, threads), (3, q, q, threads), (2, p, threads))


def scratch_bytes(L: int, p: int, solver: str) -> int:
    """Bytes of scratch a thread."""
    return 8 * sum(math.prod(shape) for shape in scratch_shapes(L, p, solver, 1))


@functools.cache
def block_kernel(interleave: str, solver: str) -> Any:
    """The kernel that solves a block: arguments are raw, then the fields of Stored, Plan, Results and Scratch."""
    solve_tile = tile_solver(interleave, solver, ONE)

    @cuda_kernel
    def solve_block(
        raw, bands, gain, offset, nodata, shift,
        E, Q, R, packed_index, U, G, inverse, norms, weights, sizes, slopes, curvature, dual_tolerance, lift, lifts, sum_to_one,
        nonnegative, columns,
        abundance, rmse, relative, kappa, delta, steps, state, residual,
        starts, scratch, vectors, squares, members,
    ):  # fmt: skip
        lines, samples = rmse.shape
        t = cuda.grid(1)
        threads = cuda.gridsize(1)
        stored = Stored(bands, gain, offset, nodata, shift)
        plan = Plan(
            E, Q, R, packed_index, U, G, inverse, norms, weights, sizes, slopes, curvature, dual_tolerance, lift, lifts, sum_to_one,
            nonnegative, columns,
        )  # fmt: skip
        results = Results(abundance, rmse, relative, kappa, delta, steps, state, residual)
        work = Work(
            vectors[0, :, t], vectors[1, :, t], vectors[2, :, t], vectors[3, :, t], vectors[4, :, t], vectors[5, :, t],
            squares[0, :, :, t], squares[1, :, :, t], squares[2, :, :, t], members[0, :, t], members[1, :, t],
        )  # fmt: skip
        own, o = scratch[:, t : t + 1], starts
        tile = Tile(
            own[o[0] : o[1]], own[o[1] : o[2]], own[o[2] : o[3]], own[o[3] : o[4]], own[o[4] : o[5]], own[o[5] : o[6]],
            own[o[6] : o[7]], own[o[7] : o[8]], own[o[8] : o[9]], own[o[9] : o[10]], own[o[10] : o[11]],
            own[o[11] : o[12]], own[o[12] : o[13]], own[o[13] : o[14]], own[o[14] : o[15]],
        )  # fmt: skip
        for n in range(t, lines * samples, threads):
            solve_tile(raw, n // samples, n % samples, 1, stored, plan, tile, work, results)

    return solve_block


class GeneralSolver:
    """This kernel as a solver of blocks on a GPU, for any problem.

    Every such class has: ``serves`` (whether it is right for a problem), ``scratch_bytes`` (GPU memory beside the
    blocks, for a block of so many pixels), a constructor that takes that memory, ``launch``, which enqueues a block, and
    ``countable``, the class that adds up its answers on the GPU, or None.
    """

    countable = None

    # More threads than a GPU holds at once would only take memory: 132 multiprocessors of 2048 threads on an H100.
    MOST_THREADS = 132 * 2048

    def __init__(self, problem: Any, pixels: int) -> None:
        L, p = problem.E.shape
        threads = self.threads(pixels)
        self.kernel = block_kernel(problem.interleave, problem.pixel)
        self.constants = [
            cuda.to_device(value) if isinstance(value, np.ndarray) else value
            for value in (*problem.stored(), *problem.plan())
        ]
        # Where the fields of a tile begin in the scratch of a thread.
        self.starts = tuple(int(n) for n in np.cumsum((0, *tile_rows(L, p, problem.pixel in SWEPT))))
        kinds = Scratch(float, float, float, np.int64)
        shapes = scratch_shapes(L, p, problem.pixel, threads)
        self.scratch = [cuda.device_array(shape, kind) for shape, kind in zip(shapes, kinds)]
        self.grid = threads // THREADS_PER_BLOCK

    @classmethod
    def threads(cls, pixels: int) -> int:
        """One a pixel, in whole blocks of threads, as far as the GPU holds them."""
        return min(-(-pixels // THREADS_PER_BLOCK) * THREADS_PER_BLOCK, cls.MOST_THREADS)

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
            raw, *self.constants, *results.values(), self.starts, *self.scratch
        )
