"""Chains and prefixes on a GPU: a block of threads a chain, or (by inversions) a block a prefix."""

import functools
from typing import Any

import numpy as np
from numba import cuda

from ...compiled.cuda import cuda_kernel
from ...compiled.cuda_block import BLOCK, MOST_SCRATCH, SIMULATED
from .projections import Samples, chain_function, inverted_function, prefixes_function

THREADS = 4 if SIMULATED else 128
MOST_BLOCKS = 4 if SIMULATED else 132 * 8


@functools.cache
def chains_kernel() -> Any:
    """The kernel of phase 1."""
    chain, buffer_size = chain_function(BLOCK), 2 * THREADS

    @cuda_kernel
    def all_chains(gram, orders, counts, rows, left):
        reduction_buffer = cuda.shared.array(buffer_size, np.float64)
        own = cuda.blockIdx.x
        for start in range(own, gram.shape[0], cuda.gridDim.x):
            made = chain(gram, start, orders[start], rows[own], left[own], reduction_buffer)
            if cuda.threadIdx.x == 0:
                counts[start] = made
            cuda.syncthreads()

    return all_chains


@functools.cache
def prefixes_kernel() -> Any:
    """The kernel of phase 2 by adds."""
    prefixes, buffer_size = prefixes_function(BLOCK), 2 * THREADS

    @cuda_kernel
    def all_prefixes(gram, product, others, truth, orders, counts, squares, rows, errors, found):
        reduction_buffer = cuda.shared.array(buffer_size, np.float64)
        own = cuda.blockIdx.x
        for c in range(own, orders.shape[0], cuda.gridDim.x):
            samples = Samples(gram, product, others, truth)
            made = prefixes(samples, orders[c], counts[c], rows[own], errors[own], found[own], reduction_buffer)
            cuda.syncthreads()
            for m in range(cuda.threadIdx.x, squares.shape[1], cuda.blockDim.x):
                squares[c, m] += found[own, m] if m < made else np.inf
            cuda.syncthreads()

    return all_prefixes


@functools.cache
def inversions_kernel() -> Any:
    """The kernel of phase 2 by inversions, the longest prefixes first."""
    inverted, buffer_size = inverted_function(BLOCK), 2 * THREADS

    @cuda_kernel
    def all_inversions(gram, product, others, truth, orders, counts, squares, A, column, weights):
        reduction_buffer = cuda.shared.array(buffer_size, np.float64)
        own = cuda.blockIdx.x
        chains, most = squares.shape
        for n in range(own, chains * most, cuda.gridDim.x):
            c, m = n % chains, most - 1 - n // chains
            found = np.inf
            if m < counts[c]:
                samples = Samples(gram, product, others, truth)
                found = inverted(samples, orders[c], m + 1, A[own], column[own], weights[own], reduction_buffer)
            if cuda.threadIdx.x == 0:
                squares[c, m] += found
            cuda.syncthreads()

    return all_inversions


def scratch(most: int, *shapes: tuple[int, ...]) -> tuple[int, list[Any]]:
    """How many blocks, and scratch of these shapes for each."""
    own = 8 * sum(int(np.prod(shape)) for shape in shapes)
    blocks = max(1, min(most, MOST_BLOCKS, MOST_SCRATCH // own))
    return blocks, [cuda.device_array((blocks, *shape), np.float64) for shape in shapes]


class CudaEngine:
    """As `unmix.solvers.bands.cpu.CpuEngine`."""

    name = "cuda"

    def chains(self, gram: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        """See `unmix.solvers.bands.cpu.CpuEngine.chains`."""
        K = len(gram)
        orders, counts = cuda.to_device(np.full((K, most), -1, np.int32)), cuda.device_array(K, np.int32)
        blocks, own = scratch(K, (most, K), (K,))
        chains_kernel()[blocks, THREADS](cuda.to_device(gram), orders, counts, *own)
        return orders.copy_to_host(), counts.copy_to_host()

    def regress(self, samples: Samples, orders: np.ndarray, counts: np.ndarray, squares: np.ndarray, how: str) -> None:
        """See `unmix.solvers.bands.cpu.CpuEngine.regress`."""
        most, V = squares.shape[1], len(samples.truth)
        there = [cuda.to_device(np.ascontiguousarray(part)) for part in (*samples, orders, counts, squares)]
        if how == "sequential":
            blocks, own = scratch(len(orders), (most, most + V + 1), (V,), (most,))
            prefixes_kernel()[blocks, THREADS](*there, *own)
        else:
            blocks, own = scratch(len(orders) * most, (most, most), (most,), (most,))
            inversions_kernel()[blocks, THREADS](*there, *own)
        there[-1].copy_to_host(squares)

    def close(self) -> None:
        """Nothing is held but memory."""
