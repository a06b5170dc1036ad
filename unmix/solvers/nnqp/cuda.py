"""Multiplicative steps on a GPU: a block of threads a system, from the same source as the CPU's."""

import functools
from typing import Any

import numpy as np
from numba import cuda

from ...compiled.cuda import cuda_kernel
from ...compiled.cuda_block import BLOCK, SIMULATED
from .cpu import alive, parts_of
from .updates import Dense, Sparse, updates_function

# A block has the system to itself, and a step waits for its slowest thread: the more threads the better, to the most there are.
THREADS = 4 if SIMULATED else 1024
REGISTERS = 64  # as many as a thread of so many may have


@functools.cache
def dense_kernel() -> Any:
    """The kernel for a dense Q: Q, h, x, places alive and their numbers, scratch, systems to go on with, steps, costs."""
    update, buffer_size = updates_function(BLOCK, "dense"), 2 * THREADS

    @functools.partial(cuda_kernel, registers=REGISTERS)
    def advance_dense(values, H, X, alive, k, plus, minus, todo, count, cost):
        reduction_buffer = cuda.shared.array(buffer_size, np.float64)
        own = cuda.blockIdx.x
        for s in range(own, todo.shape[0], cuda.gridDim.x):
            i = todo[s]
            found = update(Dense(values), H[i], X[i], alive[i], k[i], plus[own], minus[own], count, reduction_buffer)
            if cuda.threadIdx.x == 0:
                cost[s] = found

    return advance_dense


@functools.cache
def sparse_kernel() -> Any:
    """The same for a sparse Q, which is three arrays."""
    update, buffer_size = updates_function(BLOCK, "sparse"), 2 * THREADS

    @functools.partial(cuda_kernel, registers=REGISTERS)
    def advance_sparse(starts, columns, values, H, X, alive, k, plus, minus, todo, count, cost):
        reduction_buffer = cuda.shared.array(buffer_size, np.float64)
        own = cuda.blockIdx.x
        for s in range(own, todo.shape[0], cuda.gridDim.x):
            i = todo[s]
            Q = Sparse(starts, columns, values)
            found = update(Q, H[i], X[i], alive[i], k[i], plus[own], minus[own], count, reduction_buffer)
            if cuda.threadIdx.x == 0:
                cost[s] = found

    return advance_sparse


KERNELS = {"dense": dense_kernel, "sparse": sparse_kernel}


class CudaEngine:
    """Steps on a GPU; as `unmix.solvers.nnqp.cpu.CpuEngine`."""

    def __init__(self, Q: Any, H: np.ndarray) -> None:
        kind, arrays = parts_of(Q)
        self.arrays = [cuda.to_device(np.array(part, copy=True)) for part in arrays]
        self.H = cuda.to_device(H)
        self.blocks = min(len(H), 4 if SIMULATED else 132 * 2)
        self.scratch = [cuda.device_array((self.blocks, H.shape[1]), np.float64) for _ in range(2)]
        self.kernel = KERNELS[kind]()

    def advance(self, X: np.ndarray, todo: np.ndarray, count: int) -> np.ndarray:
        """See `unmix.solvers.nnqp.cpu.CpuEngine.advance`."""
        places, k = np.zeros(X.shape, np.int64), np.zeros(len(X), np.int64)
        for i in todo:
            found = alive(X[i])
            places[i, : len(found)], k[i] = found, len(found)
        cost = cuda.device_array(len(todo), np.float64)
        there = cuda.to_device(X)
        self.kernel[min(self.blocks, len(todo)), THREADS](
            *self.arrays, self.H, there, cuda.to_device(places), cuda.to_device(k), *self.scratch,
            cuda.to_device(np.asarray(todo, np.int64)), count, cost,
        )  # fmt: skip
        there.copy_to_host(X)
        return np.asarray(cost.copy_to_host())

    def close(self) -> None:
        """Nothing is held but memory."""
