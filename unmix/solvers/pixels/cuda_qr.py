"""Solve the pixels of a scene with `qr` on a GPU: a block of threads solves each pixel, then one thread certifies and writes it.

The first kernel leaves abundances in float64 in the GPU's memory. The second is the general one (`unmix.solvers.pixels.cuda`) with the
answer given, so that abundances are certified before they are rounded to float32.
"""

import functools
import math
from typing import Any

import numpy as np

from ...compiled.cuda import SIMULATED, cuda, cuda_kernel, multiprocessors
from ...compiled.warp import team_of
from ..nnls.lawson_hanson_qr import Matrix, SystemScratch, nnls_function, scratch_shapes
from ..nnls.systems import scratch_of_group
from .cuda import THREADS_PER_BLOCK, Answers, block_kernel, tile_bytes, tile_starts, to_gpu
from .gather import LAYOUTS, Stored
from .scalar import Plan
from .tile import Results

# Threads of a block that searches: pixels have some hundred bands, and supports of some dozen endmembers.
THREADS = 4 if SIMULATED else 64
# Blocks that search and threads that certify, per multiprocessor; and the bytes that either may take.
BLOCKS_AT_ONCE, THREADS_AT_ONCE, MOST_MEMORY = 16, 256, 2**29


@functools.cache
def search_kernel(interleave: str) -> Any:
    """Return the kernel that finds the abundances, one block of threads per pixel.

    Its arguments are the block as stored, `Stored`, `Plan`, a `Scratch` and a pixel (blocks, L) for each block of threads, `Answers`,
    and the number of samples of a line.
    """
    team, value = team_of(THREADS), LAYOUTS[interleave][0]
    nnls, total = nnls_function(team), team.total
    buffer_size = 2 * THREADS

    @cuda_kernel
    def search_block(raw, stored, plan, scratch, pixels, answers, samples):
        reduction_buffer = cuda.shared.array(buffer_size, np.float64)
        block, t = cuda.blockIdx.x, cuda.threadIdx.x
        pixel, work = pixels[block], scratch_of_group(scratch, block)
        L = stored.bands.shape[0]
        for n in range(block, answers.X.shape[0], cuda.gridDim.x):
            missing = 0.0
            for k in range(t, L, cuda.blockDim.x):
                number = float(value(raw, n // samples, n % samples, stored.bands[k]))
                if number == stored.nodata or number - number != 0.0:
                    missing = 1.0
                pixel[k] = number * stored.gain[k] + stored.offset[k]
            cuda.syncthreads()
            if total(missing, reduction_buffer) > 0.0:  # the pixel is masked: its answer is not used
                for k in range(t, L, cuda.blockDim.x):
                    pixel[k] = 0.0
                cuda.syncthreads()
            none = plan.norms[:0]
            matrix = Matrix(plan.E, plan.columns, plan.G, plan.norms, none)
            steps = nnls(matrix, pixel, none, work, reduction_buffer, answers.X[n])
            if t == 0:
                answers.steps[n] = steps

    return search_block


class QrSolver:
    """These kernels as a solver of blocks; see `unmix.solvers.pixels.cuda.GeneralSolver` for the interface."""

    countable = False  # its steps have another bound
    path: str | None = None

    def __init__(self, problem: Any, pixels: int) -> None:
        L, p = problem.E.shape
        self.stored, self.plan = to_gpu(Stored(*problem.stored())), to_gpu(Plan(*problem.plan()))
        self.blocks, self.threads = self.sizes(problem, pixels)
        self.scratch = SystemScratch(
            *(cuda.device_array((self.blocks, *shape), kind) for shape, kind in scratch_shapes(L, p))
        )
        self.pixels = cuda.device_array((self.blocks, L), np.float64)
        self.answers = Answers(cuda.device_array((pixels, p), np.float64), cuda.device_array(pixels, np.int32))
        self.starts = tile_starts(L, p, problem.pixel)
        self.tiles = cuda.device_array((self.starts[-1], self.threads), np.float64)
        self.search, self.finish = search_kernel(problem.interleave), block_kernel(problem.interleave, "given")

    @staticmethod
    def serves(problem: Any, samples: int) -> bool:
        """Return whether this class can solve the problem."""
        return problem.pixel == "qr"

    @staticmethod
    def sizes(problem: Any, pixels: int) -> tuple[int, int]:
        """Return the number of blocks that search, and of threads that certify."""
        L, p = problem.E.shape
        blocks = min(pixels, BLOCKS_AT_ONCE * multiprocessors(), MOST_MEMORY // QrSolver.bytes_of_block(L, p))
        groups = min(
            -(-pixels // THREADS_PER_BLOCK),
            THREADS_AT_ONCE * multiprocessors() // THREADS_PER_BLOCK,
            MOST_MEMORY // (tile_bytes(L, p, problem.pixel) * THREADS_PER_BLOCK),
        )
        return max(1, blocks), max(1, groups) * THREADS_PER_BLOCK

    @staticmethod
    def bytes_of_block(L: int, p: int) -> int:
        """Return the bytes of scratch of a block of threads that searches."""
        return sum(math.prod(shape) * np.dtype(kind).itemsize for shape, kind in scratch_shapes(L, p)) + 8 * L

    @classmethod
    def scratch_bytes(cls, problem: Any, pixels: int) -> int:
        """Return the bytes of GPU memory needed beside the blocks of the scene."""
        L, p = problem.E.shape
        blocks, threads = cls.sizes(problem, pixels)
        return blocks * cls.bytes_of_block(L, p) + threads * tile_bytes(L, p, problem.pixel) + pixels * (8 * p + 4)

    def launch(self, raw: Any, results: dict[str, Any], stream: Any) -> None:
        """Enqueue the solution of a block that is on the GPU."""
        lines, samples = results["rmse"].shape
        n = lines * samples
        answers = Answers(*(values[:n] for values in self.answers))
        self.search[min(self.blocks, n), THREADS, stream](
            raw, self.stored, self.plan, self.scratch, self.pixels, answers, samples
        )
        self.finish[self.threads // THREADS_PER_BLOCK, THREADS_PER_BLOCK, stream](
            raw, self.stored, self.plan, Results(**results), self.tiles, self.starts, answers
        )
