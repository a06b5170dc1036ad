"""Collaborative sparse regression on a GPU: search pixels from their correlations, and add up what a pass needs (`rows.add_pixels`).

A block of a warp takes pixels in turn, always the same number of blocks, each with sums of its own: no order depends on the GPU.
"""

import functools
import math
from typing import Any

import numpy as np
from numba import float64, int32

from ....compiled.cuda import cuda, cuda_kernel, to_gpu
from ....compiled.cuda_block import SIMULATED, multiprocessors
from ....compiled.simd import WIDE
from ..cuda_fast.driver import LARGER_PRODUCT, FastSolver
from ..rows import (
    DUAL_ERRORS,
    EXPLAINED,
    EXPLAINED_ERROR,
    EXPLAINED_TERMS,
    FREEDOM,
    LEFT,
    UNIT_ROUNDOFF,
    Regression,
    from_vectors,
    vectors_of,
)
from .driver import library_of
from .search import MOST_MEMBERS, STAGES, Found, search_kernel, stages_for
from .tableau import WARP

# Blocks that add up abundances and curvatures, at most, and the most bytes of their matrices.
MOST_SUMMING, MOST_MATRIX_BYTES = 2 if SIMULATED else 1024, 2**28
# Pixels whose duals a block adds up.
PIXELS_OF_DUALS = 256
WIDTH = WIDE.width


@functools.cache
def take_kernel() -> Any:
    """Return the kernel that copies the correlations ``used`` (k,) of n pixels to ``a`` (n, k), and their lengths to ``scale``."""

    @cuda_kernel
    def take_block(F, c, squares, used, a, scale):
        k = a.shape[1]
        for entry in range(cuda.grid(1), a.shape[0] * k, cuda.gridsize(1)):
            n, i = entry // k, entry % k
            j = used[i]
            a[n, i] = F[(n // WIDTH * c + j // WIDTH) * WIDTH + n % WIDTH, j % WIDTH]
            if i == 0:
                scale[n] = squares[n] ** 0.5

    return take_block


@functools.cache
def duals_kernel() -> Any:
    """Return the kernel that computes ``Σ max(w_j, 0)²``, a row of ``parts`` for each `PIXELS_OF_DUALS` pixels; a lane for each j.

    Its arguments are the correlations, `Found`, the Gram matrix's rows of the k endmembers in use (k, p), the pixels and ``parts``.
    """

    @cuda_kernel
    def duals_block(F, found, G, pixels, parts):
        c, part = (G.shape[1] + WIDTH - 1) // WIDTH, cuda.blockIdx.x
        j = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
        if j >= G.shape[1]:
            return
        total = 0.0
        for n in range(part * PIXELS_OF_DUALS, min((part + 1) * PIXELS_OF_DUALS, pixels)):
            w = F[(n // WIDTH * c + j // WIDTH) * WIDTH + n % WIDTH, j % WIDTH]
            for i in range(found.count[n]):
                member = found.members[n, i]
                w -= found.a[n, member] * G[member, j]
            total += w * w if w > 0.0 else 0.0
        parts[part, j] = total

    return duals_block


@functools.cache
def sums_kernel() -> Any:
    """Return the kernel that adds pixels to a block's ``totals`` (6,), ``rows`` (k,) and ``curvature`` (k, k), a row for each block.

    Its arguments are the correlations, c, |y|² (n,), `Found`, what is in use — numbers, roots of η, lengths (k,), G and K (k, k) —,
    ``every`` as in `unmix.solvers.pixels.rows.add_pixels`, the roundings, the sums, and scratch (k, k) for each block.
    """

    @cuda_kernel
    def sums_block(F, c, squares, found, used, roots, norms, G, K, every, roundings, totals, rows, curvature, scratch):
        members = cuda.shared.array(MOST_MEMBERS, int32)
        slopes = cuda.shared.array(MOST_MEMBERS, float64)
        shares = cuda.shared.array(MOST_MEMBERS, float64)
        lanes = cuda.shared.array((4, WARP), float64)
        block, lane, threads = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
        inverse = scratch[block]
        for n in range(block, squares.shape[0], cuda.gridDim.x):
            size = found.count[n]
            fitted, explained, terms, reach = 0.0, 0.0, 0.0, 0.0
            for i in range(lane, size, threads):
                member = found.members[n, i]
                x, j = found.a[n, member], used[member]
                f = F[(n // WIDTH * c + j // WIDTH) * WIDTH + n % WIDTH, j % WIDTH]
                w = f
                for m in range(size):
                    other = found.members[n, m]
                    w -= found.a[n, other] * G[member, other]
                members[i], slopes[i] = member, w / roots[member]
                rows[block, member] += x * x
                fitted, explained = fitted + x * f, explained + x * w
                terms, reach = terms + abs(x * w), reach + norms[member] * x
            lanes[0, lane], lanes[1, lane], lanes[2, lane], lanes[3, lane] = fitted, explained, terms, reach
            cuda.syncthreads()
            if lane == 0:
                for other in range(1, threads):
                    fitted, explained = fitted + lanes[0, other], explained + lanes[1, other]
                    terms, reach = terms + lanes[2, other], reach + lanes[3, other]
                rounding = UNIT_ROUNDOFF * ((roundings + size + 2.0) * squares[n] ** 0.5 + (size + WARP + 6.0) * reach)
                totals[block, LEFT] += squares[n] - fitted - explained
                totals[block, EXPLAINED] += explained
                totals[block, DUAL_ERRORS] += rounding * rounding
                totals[block, EXPLAINED_ERROR] += rounding * reach
                totals[block, EXPLAINED_TERMS] += terms
            if n % every == 0:
                # The inverse of K on the support, pivot by pivot, as in `rows.invert`.
                for i in range(size):
                    for m in range(lane, size, threads):
                        inverse[i, m] = K[members[i], members[m]]
                cuda.syncthreads()
                for q in range(size):
                    scale = 1.0 / inverse[q, q]
                    for i in range(lane, size, threads):
                        shares[i] = inverse[i, q]
                    cuda.syncthreads()
                    for m in range(lane, size, threads):
                        row = scale if m == q else inverse[q, m] * scale
                        for i in range(size):
                            value = 0.0 if m == q else inverse[i, m]
                            inverse[i, m] = value - shares[i] * row if i != q else row
                    cuda.syncthreads()
                for i in range(size):
                    for m in range(lane, size, threads):
                        value = (1.0 if i == m else 0.0) - inverse[i, m]
                        curvature[block, members[i], members[m]] += every * value * slopes[i] * slopes[m]
                if lane == 0:
                    for i in range(size):
                        totals[block, FREEDOM] += every * (1.0 - inverse[i, i])
            cuda.syncthreads()

    return sums_block


@functools.cache
def total_kernel() -> Any:
    """Return the kernel that adds up the rows of ``parts`` (m, n) into ``out`` (n,)."""

    @cuda_kernel
    def total_block(parts, out):
        for entry in range(cuda.grid(1), parts.shape[1], cuda.gridsize(1)):
            total = 0.0
            for part in range(parts.shape[0]):
                total += parts[part, entry]
            out[entry] = total

    return total_block


def total_of(parts: Any) -> np.ndarray:
    """Return the sum of the first axis of an array on the GPU, flat."""
    count = math.prod(parts.shape[1:])
    out = cuda.device_array(count, np.float64)
    total_kernel()[-(-count // 128), 128](parts.reshape((parts.shape[0], count)), out)
    return np.asarray(out.copy_to_host())


@functools.cache
def fill_kernel() -> Any:
    """Return the kernel that sets all entries of an array (n,) to 0."""

    @cuda_kernel
    def fill_block(values):
        for entry in range(cuda.grid(1), values.shape[0], cuda.gridsize(1)):
            values[entry] = 0.0

    return fill_block


class RowsOnGpu:
    """A pass over pixels whose correlations are on the current GPU.

    Parameters
    ----------
    shared : Regression
        Constants that all pixels share; k of p endmembers are in use.
    p : int
    most : int
        The most pixels that are searched at a time.
    """

    def __init__(self, shared: Regression, p: int, most: int) -> None:
        k = len(shared.used)
        self.k, self.p, self.c, self.roundings = k, p, vectors_of(p), shared.roundings
        gram = from_vectors(shared.gram, k, p)
        K = from_vectors(shared.K, k, k)
        if k == 0:  # no pixel has any, but arrays on a GPU have some entries
            shared, gram, K = (
                shared._replace(used=np.zeros(1, int), roots=np.ones(1), norms=np.ones(1)),
                np.zeros((1, p)),
                np.eye(1),
            )
        own = gram[:, shared.used]
        self.gram, *self.shared = map(to_gpu, (gram, shared.used, shared.roots, shared.norms, own, K))
        rows = len(K)
        self.blocks = max(1, min(MOST_SUMMING, MOST_MATRIX_BYTES // (16 * rows * rows)))
        shapes = (self.blocks, 6), (self.blocks, rows), (self.blocks, rows, rows), (self.blocks, rows, rows)
        self.totals, self.rows, self.curvature, self.scratch = (
            cuda.device_array(shape, np.float64) for shape in shapes
        )
        reals = (most, rows), (most,), (most, STAGES[-2].most + 1)
        a, scale, kept = (cuda.device_array(shape, np.float64) for shape in reals)
        members, count, steps = (cuda.device_array(shape, np.int32) for shape in ((most, MOST_MEMBERS), most, most))
        self.found = Found(a, scale, members, count, steps, kept)

    @staticmethod
    def serves() -> bool:
        """Return whether the current GPU has what the search needs."""
        return FastSolver.is_capable()

    def found_of(self, n: int) -> Found:
        """Return the results of the first n pixels."""
        return Found(*(values[:n] for values in self.found))

    def search(self, problem: Any, F: Any, squares: Any) -> None:
        """Find the abundances of n pixels with the correlations F and |y|² (n,).

        ``problem`` (`unmix.problem.Problem`) is that of a pixel with the k endmembers and their costs; its Gram matrix alone is used.
        """
        n, warps = len(squares), multiprocessors()
        found = self.found_of(n)
        take_kernel()[32 * warps, 128](F, self.c, squares, self.shared[0], found.a, found.scale)
        if self.k == 0:
            fill_kernel()[warps, 128](found.count)
            return
        library, (stages, whole) = to_gpu(library_of(problem)), stages_for(self.k)
        half = cuda.get_current_device().compute_capability < LARGER_PRODUCT
        for stage in stages:
            blocks = stage.warps * warps
            tableaux = cuda.device_array((blocks, *stage.shape) if stage == STAGES[-1] else (1, 1, 1), np.float64)
            search_kernel(False, stage, whole, stage == stages[0], half)[blocks, WARP](library, found, n, tableaux)

    def take(self, X: np.ndarray) -> None:
        """Take the abundances X (n, k) ≥ 0 of pixels in place of those that a search finds."""
        support = X > 0
        members = np.zeros((len(X), MOST_MEMBERS), np.int32)
        for n, row in enumerate(support):
            members[n, : row.sum()] = np.flatnonzero(row)
        for there, here in ((self.found.a, X), (self.found.members, members), (self.found.count, support.sum(axis=1))):
            there[: len(X)].copy_to_device(np.ascontiguousarray(here, there.dtype))

    def abundances(self, n: int) -> np.ndarray:
        """Return the abundances (n, k) of the pixels that were searched last."""
        return np.asarray(self.found.a[:n].copy_to_host()[:, : self.k])

    def sums(self, F: Any, squares: Any, every: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the sums of n pixels as `unmix.solvers.pixels.rows.Totals` has them, but (p,) duals and (k, k) curvatures."""
        n, k, threads = len(squares), self.k, 4 if SIMULATED else WARP
        found, parts = self.found_of(n), cuda.device_array((-(-n // PIXELS_OF_DUALS), self.p), np.float64)
        grid = len(parts), -(-self.p // threads)
        duals_kernel()[grid, threads](F, found, self.gram, n, parts)
        for values in (self.totals, self.rows, self.curvature):
            fill_kernel()[1 if SIMULATED else 1024, threads](values.reshape(math.prod(values.shape)))
        sums_kernel()[self.blocks, threads](
            F, self.c, squares, found, *self.shared, every, self.roundings, self.totals, self.rows, self.curvature, self.scratch
        )  # fmt: skip
        curvature = total_of(self.curvature)[: k * k].reshape(k, k)
        return total_of(self.totals), total_of(self.rows)[:k], total_of(parts), curvature
