"""`qr` for the pixels of a scene on a GPU: a block of threads a pixel searches, then a thread a pixel certifies and writes.

The first kernel leaves abundances in float64 in the GPU's memory, and the second is the general one
(`unmix.solvers.pixels.cuda`) with the answer given, so that the certificate sees what was found before it is rounded to float32.
"""

import functools
import math
from typing import Any

import numpy as np
from numba import cuda

from ...compiled.cuda import cuda_kernel
from ...compiled.cuda_block import BLOCK, SIMULATED
from ...compiled.simd import ONE
from ..nnls.lawson_hanson_qr import Matrix, Scratch, nnls_function, scratch_shapes
from .scalar import Plan
from .tile import SWEPT, Given, Results, Stored, Tile, tile_rows, tile_solver

# Of a block that searches; pixels have some hundred bands, and supports of some dozen.
THREADS = 4 if SIMULATED else 64
MOST_BLOCKS = 132 * 16
# Of a block that certifies, and all of them together.
THREADS_PER_BLOCK, MOST_THREADS = 64, 132 * 256


def of_bip(raw, line, sample, band):
    """The stored value of a band of a pixel, where all bands of a pixel lie together."""
    return float(raw[line, sample, band])


def of_bil(raw, line, sample, band):
    """The same, where all samples of a line's band lie together."""
    return float(raw[line, band, sample])


def of_bsq(raw, line, sample, band):
    """The same, where all lines of a band lie together."""
    return float(raw[band, line, sample])


VALUE = {"bip": of_bip, "bil": of_bil, "bsq": of_bsq}


@functools.cache
def search_kernel(interleave: str) -> Any:
    """The kernel that searches: raw, the fields of Stored, E, its transpose, G, norms, scratch, pixels, x and steps."""
    nnls, total, value = nnls_function(BLOCK), BLOCK.total, cuda.jit(VALUE[interleave], device=True)
    buffer_size = 2 * THREADS

    @cuda_kernel
    def search_block(
        raw, bands, gain, offset, nodata, shift, E, columns, G, norms,
        Q, R, along, x, y, goal, order, left, column, dual, start, state, pixels, X, steps, samples,
    ):  # fmt: skip
        reduction_buffer = cuda.shared.array(buffer_size, np.float64)
        own, t = cuda.blockIdx.x, cuda.threadIdx.x
        work = Scratch(
            Q[own], R[own], along[own], x[own], y[own], goal[own], order[own], left[own], column[own], dual[own],
            start[own], state[own],
        )  # fmt: skip
        for i in range(own, X.shape[0], cuda.gridDim.x):
            missing = 0.0
            for k in range(t, bands.shape[0], cuda.blockDim.x):
                stored = value(raw, i // samples, i % samples, bands[k])
                if stored == nodata or stored - stored != 0.0:
                    missing = 1.0
                pixels[own, k] = stored * gain[k] + offset[k]
            cuda.syncthreads()
            if total(missing, reduction_buffer) > 0.0:  # it is masked: what stands there will not be looked at
                for k in range(t, bands.shape[0], cuda.blockDim.x):
                    pixels[own, k] = 0.0
                cuda.syncthreads()
            taken = nnls(Matrix(E, columns, G, norms), pixels[own], work, reduction_buffer, X[i])
            if t == 0:
                steps[i] = taken

    return search_block


@functools.cache
def finish_kernel(interleave: str) -> Any:
    """The kernel that certifies and writes: as `unmix.solvers.pixels.cuda.block_kernel`, with x and steps in place of a search."""
    solve_tile = tile_solver(interleave, "given", ONE)

    @cuda_kernel
    def finish_block(
        raw, bands, gain, offset, nodata, shift,
        E, Q, R, buffer_size, U, G, inverse, norms, weights, sizes, slopes, curvature, dual_tolerance, lift, lifts, sum_to_one,
        nonnegative, columns,
        abundance, rmse, relative, kappa, delta, steps, state, residual,
        starts, scratch, X, taken,
    ):  # fmt: skip
        lines, samples = rmse.shape
        t = cuda.grid(1)
        stored = Stored(bands, gain, offset, nodata, shift)
        plan = Plan(
            E, Q, R, buffer_size, U, G, inverse, norms, weights, sizes, slopes, curvature, dual_tolerance, lift, lifts, sum_to_one,
            nonnegative, columns,
        )  # fmt: skip
        results = Results(abundance, rmse, relative, kappa, delta, steps, state, residual)
        own, o = scratch[:, t : t + 1], starts
        tile = Tile(
            own[o[0] : o[1]], own[o[1] : o[2]], own[o[2] : o[3]], own[o[3] : o[4]], own[o[4] : o[5]], own[o[5] : o[6]],
            own[o[6] : o[7]], own[o[7] : o[8]], own[o[8] : o[9]], own[o[9] : o[10]], own[o[10] : o[11]],
            own[o[11] : o[12]], own[o[12] : o[13]], own[o[13] : o[14]], own[o[14] : o[15]],
        )  # fmt: skip
        for n in range(t, lines * samples, cuda.gridsize(1)):
            solve_tile(raw, n // samples, n % samples, 1, stored, plan, tile, Given(X[n], taken[n : n + 1]), results)

    return finish_block


class QrSolver:
    """These kernels as a solver of blocks; see `unmix.solvers.pixels.cuda.GeneralSolver` for what such a class has."""

    countable = None

    def __init__(self, problem: Any, pixels: int) -> None:
        L, p = problem.E.shape
        self.stored = [cuda.to_device(value) if isinstance(value, np.ndarray) else value for value in problem.stored()]
        self.plan = [cuda.to_device(value) if isinstance(value, np.ndarray) else value for value in problem.plan()]
        plan = Plan(*self.plan)
        self.matrix = plan.E, plan.columns, plan.G, plan.norms
        self.blocks, self.threads = self.sizes(problem, pixels)
        self.scratch = [cuda.device_array((self.blocks, *shape), kind) for shape, kind in scratch_shapes(L, p)]
        self.pixels = cuda.device_array((self.blocks, L), np.float64)
        self.X, self.steps = cuda.device_array((pixels, p), np.float64), cuda.device_array(pixels, np.int32)
        rows = tile_rows(L, p, problem.pixel in SWEPT)
        self.starts = tuple(int(n) for n in np.cumsum((0, *rows)))
        self.tiles = cuda.device_array((sum(rows), self.threads), np.float64)
        self.search, self.finish = search_kernel(problem.interleave), finish_kernel(problem.interleave)

    @staticmethod
    def serves(problem: Any) -> bool:
        """Whether this path is right for the problem."""
        return problem.pixel == "qr"

    @staticmethod
    def sizes(problem: Any, pixels: int) -> tuple[int, int]:
        """Blocks that search, and threads that certify."""
        own = sum(math.prod(shape) * np.dtype(kind).itemsize for shape, kind in scratch_shapes(*problem.E.shape))
        blocks = max(1, min(pixels, 4 if SIMULATED else MOST_BLOCKS, 2**29 // own))
        rows = sum(tile_rows(*problem.E.shape, False))
        threads = max(
            1,
            min(
                -(-pixels // THREADS_PER_BLOCK),
                MOST_THREADS // THREADS_PER_BLOCK,
                2**29 // (8 * rows * THREADS_PER_BLOCK),
            ),
        )
        return blocks, threads * THREADS_PER_BLOCK

    @classmethod
    def scratch_bytes(cls, problem: Any, pixels: int) -> int:
        """GPU memory beside the blocks of the scene."""
        L, p = problem.E.shape
        blocks, threads = cls.sizes(problem, pixels)
        own = sum(math.prod(shape) * np.dtype(kind).itemsize for shape, kind in scratch_shapes(L, p))
        return blocks * (own + 8 * L) + 8 * threads * sum(tile_rows(L, p, False)) + pixels * (8 * p + 4)

    def launch(self, raw: Any, results: dict[str, Any], stream: Any) -> None:
        """Solve a block that is on the GPU."""
        lines, samples = results["rmse"].shape
        n = lines * samples
        X, steps = self.X[:n], self.steps[:n]
        self.search[min(self.blocks, n), THREADS, stream](
            raw, *self.stored, *self.matrix, *self.scratch, self.pixels, X, steps, samples
        )
        self.finish[self.threads // THREADS_PER_BLOCK, THREADS_PER_BLOCK, stream](
            raw, *self.stored, *self.plan, *results.values(), self.starts, self.tiles, X, steps
        )
