"""Steps of non-negative matrix factorisation on a GPU, one kernel for both updates: a thread has a factor's row.

The updates of A and of E are the same with the factors exchanged: the thread that owns row ``f`` of one factor goes
through all rows ``g`` of the other and adds up ``q g``, where ``q = x / (f·g)`` and x is the cube's value for that pair
of rows. Rows of the other factor and a tile of the cube are staged in shared memory; nothing of the cube's size is
written. A step is recorded once (`unmix.compiled.cuda_graph`), and replayed.
"""

import functools
import math
from typing import Any

import numpy as np
from numba import cuda, float32, float64

from ...compiled.cuda import SIMULATED, cuda_kernel, multiprocessors
from ...compiled.cuda import total as block_total
from ...compiled.cuda_graph import CudaGraph
from ...errors import MethodError
from .updates import LEAST_DIVISOR, LOSSES, column_on_simplex, renew

# Rows of a warp, one per thread; warps of a block; rows of the other factor that are staged at a time.
OWNED, WARPS = (2, 1) if SIMULATED else (32, 4)
MET = 16
THREADS = OWNED * WARPS
PLAIN = 4 if SIMULATED else 128  # threads per block of the kernels with little work per thread
ROW_THREADS = 4 if SIMULATED else 32  # the same if a thread does a whole row: rows are few, and many blocks are wanted
MOST_ENDMEMBERS = 256  # so that the rows fit into the shared memory of a block
ADDING = 4 if SIMULATED else 1024  # threads per block of the kernel that adds up over all pixels
# Blocks per multiprocessor: as many as an H100 holds at once at 116 registers per thread (a step of the benchmark: 74
# µs; with twice as many 79, with half as many 99).
BLOCKS_AT_ONCE = 4


@functools.cache
def meeting_kernel(p: int, divergence: bool, owners_are_pixels: bool) -> Any:
    """Return the numerators' kernel: X (pixels, bands), own (p, owners), other (p, others), sums (parts, p, owners)."""
    tile, rows, shares = (WARPS, MET, OWNED + 1), (WARPS, MET, p), (WARPS, p, OWNED)
    # Loads of a lane, as compile-time constants, so that all of them are in flight at once.
    of_tile, of_rows = MET, -(-p * MET // OWNED)
    least = np.float32(LEAST_DIVISOR)

    @cuda_kernel
    def meet_all(X, own, other, sums):
        x = cuda.shared.array(tile, float32)  # one line each: the simulator tells shared arrays apart by their line
        g = cuda.shared.array(rows, float32)
        warp_sums = cuda.shared.array(shares, float32)
        f, s, row = cuda.local.array(p, float32), cuda.local.array(p, float32), cuda.local.array(p, float32)
        w, lane = cuda.threadIdx.x // OWNED, cuda.threadIdx.x % OWNED
        owners, others = own.shape[1], other.shape[1]
        first = cuda.blockIdx.x * OWNED
        for k in range(p):
            f[k] = own[k, first + lane] if first + lane < owners else float32(0.0)
            s[k] = float32(0.0)
        stride = cuda.gridDim.y * WARPS * MET
        for start in range(cuda.blockIdx.y * WARPS * MET, others, stride):
            at = start + w * MET
            for trip in range(of_tile):
                t = trip * OWNED + lane
                i, j = (t // MET, t % MET) if owners_are_pixels else (t % OWNED, t // OWNED)
                value = float32(0.0)
                if first + i < owners and at + j < others:
                    value = X[first + i, at + j] if owners_are_pixels else X[at + j, first + i]
                x[w, j, i] = value
            for trip in range(of_rows):
                t = trip * OWNED + lane
                if t < p * MET:
                    g[w, t % MET, t // MET] = other[t // MET, at + t % MET] if at + t % MET < others else float32(0.0)
            cuda.syncthreads()
            for j in range(MET):
                q = x[w, j, lane]
                for k in range(p):
                    row[k] = g[w, j, k]
                if divergence:
                    model = float32(0.0)
                    for k in range(p):
                        model += f[k] * row[k]
                    q = q / max(model, least)
                for k in range(p):
                    s[k] += q * row[k]
            cuda.syncthreads()
        for k in range(p):
            warp_sums[w, k, lane] = s[k]
        cuda.syncthreads()
        for t in range(cuda.threadIdx.x, p * OWNED, THREADS):
            k, i = t // OWNED, t % OWNED
            if first + i < owners:
                total = float32(0.0)
                for v in range(WARPS):
                    total += warp_sums[v, k, i]
                sums[cuda.blockIdx.y, k, first + i] = total

    return meet_all


@functools.cache
def renew_kernel(p: int, divergence: bool, sum_to_one: bool) -> Any:
    """Return the kernel that updates an owner's row from numerators (slices, p, owners) and ``below`` (p, p)."""

    @cuda_kernel
    def renew_rows(factor, sums, below):
        up, down, own = cuda.local.array(p, float32), cuda.local.array(p, float32), cuda.local.array(p, float32)
        for i in range(cuda.grid(1), factor.shape[1], cuda.gridsize(1)):
            for k in range(p):
                own[k] = factor[k, i]
            for k in range(p):
                up[k] = float32(0.0)
                for s in range(sums.shape[0]):
                    up[k] += sums[s, k, i]
                down[k] = float32(0.0)
                if divergence:
                    down[k] = float32(below[0, k])
                else:
                    for j in range(p):
                        down[k] += own[j] * float32(below[j, k])
            if sum_to_one:
                column_on_simplex(own, up, down, divergence)
            else:
                for k in range(p):
                    own[k] = renew(own[k], up[k], down[k])
            for k in range(p):
                factor[k, i] = own[k]

    return renew_rows


@functools.cache
def entries_kernel() -> Any:
    """Return `renew_kernel` with a thread an entry, for a divergence without Σa = 1: entries are independent."""

    @cuda_kernel
    def renew_entries(factor, sums, below):
        p, n = factor.shape
        for t in range(cuda.grid(1), p * n, cuda.gridsize(1)):
            k, i = t // n, t % n
            up = float32(0.0)
            for s in range(sums.shape[0]):
                up += sums[s, k, i]
            factor[k, i] = renew(factor[k, i], up, float32(below[0, k]))

    return renew_entries


@functools.cache
def collect_kernel() -> Any:
    """Return the kernel that adds up slices of numerators, onto those of earlier blocks unless ``fresh``."""

    @cuda_kernel
    def collect(sums, total, fresh):
        _, p, n = sums.shape
        for t in range(cuda.grid(1), p * n, cuda.gridsize(1)):
            k, i = t // n, t % n
            value = float32(0.0) if fresh else total[0, k, i]
            for s in range(sums.shape[0]):
                value += sums[s, k, i]
            total[0, k, i] = value

    return collect


@functools.cache
def products_kernel(divergence: bool) -> Any:
    """Return the kernel of ``below``: a factor's row sums (in row 0) or Gram matrix, added to it unless ``fresh``."""

    @cuda_kernel
    def multiply_rows(factor, below, fresh):
        j, k, t = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
        own_sum = 0.0
        for i in range(t, factor.shape[1], ADDING):
            own_sum += float64(factor[k, i]) if divergence else float64(factor[j, i]) * float64(factor[k, i])
        all_sums = block_total(own_sum, cuda.shared.array(ADDING, float64))
        if t == 0:
            below[j, k] = all_sums + (0.0 if fresh else below[j, k])

    return multiply_rows


@functools.cache
def cost_kernel(p: int, divergence: bool) -> Any:
    """Return the kernel of each pixel's loss and number of values above 0 with a model of 0, (pixels, 2)."""

    @cuda_kernel
    def cost_of(X, A, E, cost):
        own = cuda.local.array(p, float32)
        for n in range(cuda.grid(1), X.shape[0], cuda.gridsize(1)):
            for k in range(p):
                own[k] = A[k, n]
            loss, missed = 0.0, 0.0
            for b in range(X.shape[1]):
                m = float32(0.0)
                for k in range(p):
                    m += own[k] * E[k, b]
                x, model = float64(X[n, b]), float64(m)
                if not divergence:
                    loss += 0.5 * (x - model) * (x - model)
                else:
                    loss += model - x
                    if x > 0.0:
                        loss += x * math.log(x / max(model, LEAST_DIVISOR))
                        missed += 1.0 if model <= 0.0 else 0.0
            cost[n, 0], cost[n, 1] = loss, missed

    return cost_of


class HeldFactors:
    """A block of pixels and abundances on the GPU."""

    def __init__(self, X: Any, A: Any, pixels: int) -> None:
        self.X, self.A, self.pixels = X, A, pixels
        self.recording: CudaGraph | None = None


class CudaEngine:
    """The steps of a factorisation on a GPU; see `unmix.features.nmf.cpu.CpuEngine`."""

    name = "cuda"

    def __init__(self, L: int, p: int, most: int, loss: str, sum_to_one: bool) -> None:
        if p > MOST_ENDMEMBERS:
            raise MethodError(f"{p} endmembers: a GPU factorises with at most {MOST_ENDMEMBERS}; use `device` cpu")
        self.L, self.p, self.divergence = L, p, LOSSES[loss]
        self.spectra = cuda.device_array((p, L), np.float32)
        self.below_pixels, self.below_bands = (cuda.device_array((p, p), np.float64) for _ in range(2))
        self.total = cuda.device_array((1, p, L), np.float32)
        self.meet_pixels, self.meet_bands = (meeting_kernel(p, self.divergence, side) for side in (True, False))
        free = (entries_kernel(), p) if self.divergence else (renew_kernel(p, False, False), 1)
        # A kernel, and its number of threads per row of a factor.
        self.renew_pixels = (renew_kernel(p, self.divergence, True), 1) if sum_to_one else free
        self.renew_bands = free
        self.products, self.collect = products_kernel(self.divergence), collect_kernel()
        self.pixel_slices, self.band_slices = self.slices(most, L), self.slices(L, most)
        self.pixel_sums = cuda.device_array((self.pixel_slices, p, most), np.float32)
        self.band_sums = cuda.device_array((self.band_slices, p, L), np.float32)
        self.stream = cuda.stream()

    @staticmethod
    def slices(owners: int, others: int) -> int:
        """Return into how many slices the other factor is cut, so that there are enough blocks."""
        return max(1, min(-(-others // (WARPS * MET)), BLOCKS_AT_ONCE * multiprocessors() // -(-owners // OWNED)))

    def shape(self, pixels: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the shapes of a block's arrays of pixels and abundances."""
        return (pixels, self.L), (pixels, self.p)

    def begin(self, E: np.ndarray) -> None:
        """Set the endmembers, (L, p)."""
        self.spectra.copy_to_device(np.ascontiguousarray(E.T, np.float32))
        self.multiply_rows(self.spectra, self.below_pixels, True)

    @property
    def E(self) -> np.ndarray:
        """The endmembers, (L, p), float32."""
        self.stream.synchronize()
        return np.ascontiguousarray(self.spectra.copy_to_host().T)

    def hold(self, X: np.ndarray, A: np.ndarray) -> HeldFactors:
        """Copy a block's pixels and abundances to the GPU; returns what `steps` takes."""
        return HeldFactors(cuda.to_device(X), cuda.to_device(np.ascontiguousarray(A.T)), len(X))

    def multiply_rows(self, factor: Any, below: Any, fresh: bool) -> None:
        """Compute the sums or the Gram matrix of a factor, from which denominators are made."""
        self.products[(1 if self.divergence else self.p, self.p), ADDING, self.stream](factor, below, fresh)

    def renew(self, launch: tuple[Any, int], factor: Any, sums: Any, below: Any) -> None:
        """Renew a factor from its numerators; ``launch`` is a kernel and its threads per row."""
        kernel, threads_of_row = launch
        threads = PLAIN if threads_of_row > 1 else ROW_THREADS
        kernel[-(-threads_of_row * factor.shape[1] // threads), threads, self.stream](factor, sums, below)

    def enqueue(self, block: HeldFactors, fresh: bool, turn: bool) -> None:
        """Enqueue the kernels of a step."""
        tall, wide = -(-block.pixels // OWNED), -(-self.L // OWNED)
        self.meet_pixels[(tall, self.pixel_slices), THREADS, self.stream](
            block.X, block.A, self.spectra, self.pixel_sums
        )
        self.renew(self.renew_pixels, block.A, self.pixel_sums, self.below_pixels)
        self.multiply_rows(block.A, self.below_bands, fresh)
        self.meet_bands[(wide, self.band_slices), THREADS, self.stream](block.X, self.spectra, block.A, self.band_sums)
        self.collect[-(-self.p * self.L // PLAIN), PLAIN, self.stream](self.band_sums, self.total, fresh)
        if turn:
            self.renew(self.renew_bands, self.spectra, self.total, self.below_bands)
            self.multiply_rows(self.spectra, self.below_pixels, True)

    def steps(self, block: HeldFactors, count: int, fresh: bool = True, turn: bool = True) -> None:
        """Make ``count`` steps on a block of all pixels, or one on a block of several (first: fresh, last: turn)."""
        if block.recording is None:
            self.enqueue(block, fresh, turn)
            count -= 1
            self.stream.synchronize()
            if count and not SIMULATED:
                block.recording = CudaGraph(self.stream, lambda: self.enqueue(block, fresh, turn))
        for _ in range(count):
            self.enqueue(block, fresh, turn) if block.recording is None else block.recording.replay()
        self.stream.synchronize()

    def cost(self, block: HeldFactors) -> np.ndarray:
        """Return a block's current loss; see `unmix.features.nmf.cpu.CpuEngine.cost`."""
        losses = cuda.device_array((block.pixels, 2), np.float64)
        self.stream.synchronize()
        cost_kernel(self.p, self.divergence)[-(-block.pixels // PLAIN), PLAIN](block.X, block.A, self.spectra, losses)
        return np.asarray(losses.copy_to_host().sum(axis=0))

    def fetch(self, block: HeldFactors, A: np.ndarray) -> None:
        """Copy a block's abundances into A, and release the recorded step."""
        self.stream.synchronize()
        A[:] = block.A.copy_to_host().T
        if block.recording is not None:
            block.recording.close()

    def close(self) -> None:
        """Do nothing: only memory is held, which is freed with the arrays."""
