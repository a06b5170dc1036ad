"""The CUDA driver: a thread a pixel, from the same functions as the CPU; any p, and the simulator.

A thread's scratch lies in global memory with the thread as the last index, so that a warp's accesses are coalesced and
p is not a compile-time constant; its size is bounded by the number of threads, which stride over the block.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
from numba import cuda  # the one import of the CUDA target: numba-cuda stands behind this name

from .jit import keep
from .pixel import Plan, Work
from .tile import Results, Stored, Tile, tile_solver

THREADS_PER_BLOCK = 64

# Small blocks are what a small scene has; the warning says nothing to a user.
numba.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0


def cuda_kernel(function: Callable[..., Any]) -> Any:
    """Compile for CUDA and keep the code on disk; plain Python in the simulator (``NUMBA_ENABLE_CUDASIM=1``)."""
    kernel = cuda.jit(function)
    if numba.config.ENABLE_CUDASIM:
        return kernel
    from numba.cuda.dispatcher import CUDACache

    return keep(kernel, CUDACache)


class Scratch(NamedTuple):
    """Global memory of T threads."""

    pixels: Any  # (L, T) float64
    vectors: Any  # (9, p, T) float64
    squares: Any  # (3, p, p, T) float64
    scalars: Any  # (5, T) float64
    members: Any  # (2, p, T) int64
    counts: Any  # (2, T) int64


def scratch_shapes(L: int, p: int, threads: int) -> Scratch:
    """The shapes of the scratch arrays for ``threads`` threads."""
    return Scratch(
        (L, threads), (9, p, threads), (3, p, p, threads), (5, threads), (2, p, threads), (2, threads)
    )  # fmt: skip


def scratch_bytes(L: int, p: int) -> int:
    """Bytes of scratch a thread."""
    return 8 * (L + 9 * p + 3 * p * p + 5 + 2 * p + 2)


@functools.cache
def block_kernel(interleave: str, solver: str) -> Any:
    """The kernel that solves a block: arguments are raw, then the fields of Stored, Plan, Results and Scratch."""
    solve_tile = tile_solver(interleave, solver)

    @cuda_kernel
    def solve_block(
        raw, bands, gain, offset, nodata, E, Q, R, G, inverse, norms, curvature, sum_to_one, nonnegative,
        abundance, rmse, kappa, delta, steps, state, residual,
        pixels, vectors, squares, scalars, members, counts,
    ):  # fmt: skip
        lines, samples = rmse.shape
        t = cuda.grid(1)  # type: ignore[call-arg, var-annotated]
        threads = cuda.gridsize(1)
        stored = Stored(bands, gain, offset, nodata)
        plan = Plan(E, Q, R, G, inverse, norms, curvature, sum_to_one, nonnegative)
        results = Results(abundance, rmse, kappa, delta, steps, state, residual)
        work = Work(
            vectors[0, :, t], vectors[1, :, t], vectors[2, :, t], vectors[3, :, t], vectors[4, :, t], vectors[5, :, t],
            squares[0, :, :, t], squares[1, :, :, t], squares[2, :, :, t], members[0, :, t], members[1, :, t],
        )  # fmt: skip
        tile = Tile(
            pixels[:, t : t + 1], vectors[6, :, t : t + 1], vectors[7, :, t : t + 1], vectors[8, :, t : t + 1],
            scalars[0, t : t + 1], scalars[1, t : t + 1], scalars[2, t : t + 1], scalars[3, t : t + 1],
            scalars[4, t : t + 1], counts[0, t : t + 1],
        )  # fmt: skip
        for n in range(t, lines * samples, threads):
            solve_tile(raw, n // samples, n % samples, 1, stored, plan, tile, work, results, counts[1, t : t + 1])

    return solve_block
