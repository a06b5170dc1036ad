"""Passes of the search over lines of a scene on the current GPU; the arithmetic of pixels and edges is that of the CPU."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numba import float64

from ...compiled.cuda import cuda, cuda_kernel, to_gpu
from ...compiled.cuda import total as block_total
from .lines import (
    LASTING,
    PassStep,
    Strip,
    anchored,
    charge,
    measure_pixel,
    moved_of,
    next_abundance,
    next_dual,
    scratch_arrays,
)
from .pixel import PixelProgramme, PixelScratch

# Threads of a block. In `move` a block takes some samples of a line, as many as its shared memory holds the right sides of, and each of
# its rows of threads every so many endmembers, `ENDMEMBERS` at a time.
THREADS, SHARED_BYTES, ENDMEMBERS = 256, 48 * 1024, 4
# The share of a GPU's free memory that a strip may take, and the bytes of scratch of pixels that are measured.
SHARE_OF_GPU, MOST_SCRATCH = 0.7, 2**30


def samples_of_block(p: int) -> int:
    """Return how many samples of a line a block of `move` takes: a power of 2, at most 32."""
    samples = 32
    while samples > 1 and samples * p * 8 > SHARED_BYTES:
        samples //= 2
    return samples


@functools.cache
def move_kernel() -> Any:
    """Return the kernel that computes ``ahead``, as `unmix.solvers.spatial.lines.move_lines`; blocks are (samples, rows) of threads."""

    @cuda_kernel
    def move(strip, step):
        right = cuda.shared.array(0, float64)
        p, S, q = strip.F.shape[1], strip.F.shape[2], strip.W.shape[1]
        line, lane, row = cuda.blockIdx.x, cuda.threadIdx.x, cuda.threadIdx.y
        width, rows = cuda.blockDim.x, cuda.blockDim.y
        s = cuda.blockIdx.y * width + lane
        if s < S:
            for j in range(row, p, rows):
                value = strip.F[line, j, s] - strip.V[line, j, s] + strip.a[line, j, s] / step.tau
                if j < q:
                    value -= charge(strip.W, strip.U, line, j, s, line > 0)
                right[j * width + lane] = value
        cuda.syncthreads()
        if s < S:
            for j in range(row, p, ENDMEMBERS * rows):
                j1, j2, j3 = min(j + rows, p - 1), min(j + 2 * rows, p - 1), min(j + 3 * rows, p - 1)
                x0, x1, x2, x3 = step.offset[j], step.offset[j1], step.offset[j2], step.offset[j3]
                for i in range(p):
                    value = right[i * width + lane]
                    x0 += step.N[j, i] * value
                    x1 += step.N[j1, i] * value
                    x2 += step.N[j2, i] * value
                    x3 += step.N[j3, i] * value
                strip.ahead[line, j, s] = 2.0 * x0 - strip.a[line, j, s]
                if j + rows < p:
                    strip.ahead[line, j1, s] = 2.0 * x1 - strip.a[line, j1, s]
                if j + 2 * rows < p:
                    strip.ahead[line, j2, s] = 2.0 * x2 - strip.a[line, j2, s]
                if j + 3 * rows < p:
                    strip.ahead[line, j3, s] = 2.0 * x3 - strip.a[line, j3, s]

    return move


@functools.cache
def charge_kernel() -> Any:
    """Return the kernel that steps duals and abundances, as `unmix.solvers.spatial.lines.charge_lines`; a thread for each sample."""

    @cuda_kernel
    def charge_edges(strip, step):
        n, _, S = strip.F.shape
        line, j = cuda.blockIdx.x, cuda.blockIdx.y
        for s in range(cuda.threadIdx.x, S, cuda.blockDim.x):
            ahead = strip.ahead[line, j, s]
            V = strip.V[line, j, s]
            strip.V[line, j, s] = anchored(V, min(V + step.sigma * ahead, 0.0), strip.V0[line, j, s], step)
            strip.a[line, j, s] = next_abundance(strip.a[line, j, s], ahead, strip.a0[line, j, s], step)
            if j < strip.W.shape[1]:
                if s + 1 < S:
                    W = strip.W[line, j, s]
                    new = next_dual(W, strip.ahead[line, j, s + 1] - ahead, strip.across[line, s], step)
                    strip.W[line, j, s] = anchored(W, new, strip.W0[line, j, s], step)
                if line + 1 < n:
                    U = strip.U[line, j, s]
                    new = next_dual(U, strip.ahead[line + 1, j, s] - ahead, strip.down[line, s], step)
                    strip.U[line, j, s] = anchored(U, new, strip.U0[line, j, s], step)

    return charge_edges


@functools.cache
def measure_kernel() -> Any:
    """Return the kernel that measures pixels, as `unmix.solvers.spatial.lines.measure_pixel`; each thread has its own scratch."""

    @cuda_kernel
    def measure(plan, strip, smooth, vectors, matrices, integers, out):
        n, _, S = strip.F.shape
        t = cuda.grid(1)
        if t < vectors.shape[2]:
            work = PixelScratch(
                vectors[0, :, t], vectors[1, :, t], vectors[2, :, t], vectors[3, :, t], vectors[4, :, t], matrices[:, :, t],
                integers[0, :, t], integers[1, :, t],
            )  # fmt: skip
            for pixel in range(t, n * S, cuda.gridsize(1)):
                line, s = pixel // S, pixel % S
                cost, gap, _ = measure_pixel(plan, strip, line, s, smooth, 0, work, vectors[5, :, t])
                out[0, line, s] = cost
                out[1, line, s] = gap

    return measure


@functools.cache
def moved_kernel() -> Any:
    """Return the kernel that adds up over endmembers how far a pixel's abundances and duals are from where the pass began."""

    @cuda_kernel
    def moved(strip, out):
        _, p, S = strip.F.shape
        line = cuda.blockIdx.x
        for s in range(cuda.threadIdx.x, S, cuda.blockDim.x):
            near, far = 0.0, 0.0
            for j in range(p):
                of_abundance, of_duals = moved_of(strip, line, j, s)
                near += of_abundance
                far += of_duals
            out[0, line, s] = near
            out[1, line, s] = far

    return moved


@functools.cache
def lines_kernel() -> Any:
    """Return the kernel that adds up values (2, n, S) of each line, in an order that depends on S alone; a block for each sum."""

    @cuda_kernel
    def add_lines(values, sums):
        line, which, t = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
        own_sum = 0.0
        for s in range(t, values.shape[2], THREADS):
            own_sum += values[which, line, s]
        all_sums = block_total(own_sum, cuda.shared.array(THREADS, float64))
        if t == 0:
            sums[which, line] = all_sums

    return add_lines


class CudaSweeps:
    """Runs passes on strips in the memory of the current GPU; see `unmix.solvers.spatial.lines.CpuSweeps`."""

    def __init__(self) -> None:
        self.scratch: dict[str, Any] = {}

    def room(self, budget: int | None) -> int | None:
        """Return the bytes that a strip may take, beside the scratch of pixels."""
        free = int(cuda.current_context().get_memory_info().free)
        return max(0, int(free * SHARE_OF_GPU) - MOST_SCRATCH)

    def hold(self, lasting: Mapping[str, np.ndarray]) -> Strip:
        """Copy the arrays to the GPU."""
        if not self.scratch or self.scratch["ahead"].shape != lasting["a"].shape:
            self.scratch = {}
            self.scratch = scratch_arrays(lasting, lambda array: cuda.device_array(array.shape, array.dtype))
        return Strip(**{name: to_gpu(np.asarray(lasting[name])) for name in LASTING}, **self.scratch)

    def release(self, strip: Strip, lasting: Mapping[str, np.ndarray]) -> None:
        """Copy what passes change from the GPU."""
        for name in ("a", "W", "U", "V", "x"):
            getattr(strip, name).copy_to_host(lasting[name])

    def iterate(self, strip: Strip, steps: Sequence[PassStep]) -> None:
        """Make the steps of a pass."""
        n, p, S = strip.F.shape
        for name in "aWUV":
            getattr(strip, f"{name}0").copy_to_device(getattr(strip, name))
        N, offset = to_gpu(steps[0].N), to_gpu(steps[0].offset)
        width = samples_of_block(p)
        blocks, threads = (n, -(-S // width)), (width, min(THREADS // width, p))
        move, charge_edges = move_kernel(), charge_kernel()
        for step in steps:
            step = step._replace(N=N, offset=offset)
            move[blocks, threads, 0, width * p * 8](strip, step)
            charge_edges[(n, p), min(THREADS, S)](strip, step)

    def measure(self, strip: Strip, plan: PixelProgramme, smooth: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the cost, less ``½ |y|²``, and the duality gap of each line, (n,) each."""
        n, p, S = strip.F.shape
        most = max(THREADS, MOST_SCRATCH // (8 * p * (p + 8)) // THREADS * THREADS)
        count = min(most, -(-n * S // THREADS) * THREADS)
        vectors, matrices, integers = (
            cuda.device_array(shape, kind)
            for shape, kind in (((6, p, count), float), ((p, p, count), float), ((2, p, count), np.int64))
        )
        out = cuda.device_array((2, n, S))
        measure_kernel()[count // THREADS, THREADS](to_gpu(plan), strip, smooth, vectors, matrices, integers, out)
        costs, gaps = self.of_lines(out)
        return costs, gaps

    def moved(self, strip: Strip) -> np.ndarray:
        """Return the squares of how far each line's abundances and duals are from where the pass began, (n, 2)."""
        n, _, S = strip.F.shape
        out = cuda.device_array((2, n, S))
        moved_kernel()[n, min(THREADS, S)](strip, out)
        return np.ascontiguousarray(self.of_lines(out).T)

    def of_lines(self, values: Any) -> np.ndarray:
        """Return the sums of values (2, n, S) over samples, (2, n)."""
        sums = cuda.device_array(values.shape[:2])
        lines_kernel()[(values.shape[1], 2), THREADS](values, sums)
        return np.asarray(sums.copy_to_host())

    def close(self) -> None:
        """Release the memory."""
        self.scratch = {}
