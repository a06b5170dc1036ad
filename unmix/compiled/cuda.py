"""Compile kernels and their functions for a GPU, and define the `Team` of a block's threads, which solve one system."""

import functools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import cuda, int32, uint32  # the one import of the CUDA target: numba-cuda stands behind this name

from .cache import keep
from .jit import Team, name_after_cells

ALL_LANES = 0xFFFFFFFF
# A small scene fills few blocks; Numba's warning about that does not help a user.
numba.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0


def cuda_kernel(function: Callable[..., Any], registers: int | None = None) -> Any:
    """Return a compiled kernel, with at most ``registers`` a thread, kept on disk; plain Python in the simulator."""
    name_after_cells(function)
    if numba.config.ENABLE_CUDASIM:
        return cuda.jit(function)
    kernel = cuda.jit(function, max_registers=registers)
    from numba.cuda.dispatcher import CUDACache

    return keep(kernel, CUDACache)


def on_gpu(function: Callable[..., Any]) -> Any:
    """Return a compiled function for kernels to call, inlined into its caller."""
    name_after_cells(function)
    inlined = {} if numba.config.ENABLE_CUDASIM else {"forceinline": True}
    return cuda.jit(function, device=True, **inlined)


def to_gpu(values: Any) -> Any:
    """Copy an array, or the arrays of a NamedTuple, to the GPU; return numbers as they are."""
    if isinstance(values, tuple):
        return type(values)(*map(to_gpu, values))
    return cuda.to_device(np.ascontiguousarray(values)) if isinstance(values, np.ndarray) else values


def columns_of(matrix: Any, first: int, count: int) -> Any:
    """Return ``matrix[:, first : first + count]`` of a C-contiguous matrix on the GPU."""
    if numba.config.ENABLE_CUDASIM:
        return matrix[:, first : first + count]
    # Numba's own slice lists every piece of contiguous memory, a row each, in Python: 0.1 s for 65 536 rows.
    size = matrix.dtype.itemsize
    place = {
        "shape": (matrix.shape[0], count),
        "strides": (matrix.shape[1] * size, size),
        "typestr": matrix.dtype.str,
        "version": 3,
        "data": (int(matrix.__cuda_array_interface__["data"][0]) + first * size, False),
    }
    return cuda.from_cuda_array_interface(place, owner=matrix)


SIMULATED = bool(numba.config.ENABLE_CUDASIM)
WARP = 32
# The most GPU memory for the scratch of all blocks, in bytes.
MOST_SCRATCH = 8 * 2**30


def multiprocessors() -> int:
    """Return the number of multiprocessors of the current GPU; 1 in the simulator."""
    return 1 if SIMULATED else int(cuda.get_current_device().MULTIPROCESSOR_COUNT)


def called_on_gpu(function: Any) -> Any:
    """Return a compiled function for kernels to call; the compiler decides whether to inline it."""
    return cuda.jit(function, device=True)


@called_on_gpu
def rank() -> Any:
    """Return the number of the thread in its block."""
    return cuda.threadIdx.x


@called_on_gpu
def sync():
    """Wait for all threads of the block."""
    cuda.syncthreads()


def total_by_tree(value, reduction_buffer):
    """Return the sum over a block, by halving; for the simulator, which has no shuffles."""
    t = cuda.threadIdx.x
    reduction_buffer[t] = value
    cuda.syncthreads()
    half = cuda.blockDim.x // 2
    while half > 0:
        if t < half:
            reduction_buffer[t] += reduction_buffer[t + half]
        cuda.syncthreads()
        half //= 2
    result = reduction_buffer[0]
    cuda.syncthreads()
    return result


def total_by_warps(value, reduction_buffer):
    """Return the sum over a block: in each warp by shuffles, then over the warps."""
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(ALL_LANES, value, step)
    t = cuda.threadIdx.x
    if t % WARP == 0:
        reduction_buffer[t // WARP] = value
    cuda.syncthreads()
    result = 0.0
    for w in range(cuda.blockDim.x // WARP):
        result += reduction_buffer[w]
    cuda.syncthreads()
    return result


def best_by_tree(value, index, reduction_buffer):
    """Return the index of a block's largest value, the smallest of equal ones; −1 where no thread has one."""
    t, n = cuda.threadIdx.x, cuda.blockDim.x
    reduction_buffer[t], reduction_buffer[n + t] = value, index
    cuda.syncthreads()
    half = n // 2
    while half > 0:
        if t < half:
            index_a, index_b = reduction_buffer[n + t], reduction_buffer[n + t + half]
            value_a, value_b = reduction_buffer[t], reduction_buffer[t + half]
            if index_b >= 0 and (index_a < 0 or value_b > value_a or (value_b == value_a and index_b < index_a)):
                reduction_buffer[t], reduction_buffer[n + t] = value_b, index_b
        cuda.syncthreads()
        half //= 2
    result = int(reduction_buffer[n])
    cuda.syncthreads()
    return result


def counted_by_thread(holds, reduction_buffer):
    """Return the count of true ``holds`` in the threads before this one, and in all; for the simulator."""
    reduction_buffer[cuda.threadIdx.x] = 1.0 if holds else 0.0
    cuda.syncthreads()
    before, count = 0, 0
    for t in range(cuda.blockDim.x):
        before += int(reduction_buffer[t]) if t < cuda.threadIdx.x else 0
        count += int(reduction_buffer[t])
    cuda.syncthreads()
    return before, count


def counted_by_warps(holds, reduction_buffer):
    """Return the count of true ``holds`` in the threads before this one, and in all, by a vote in each warp."""
    t = cuda.threadIdx.x
    voted = uint32(cuda.ballot_sync(ALL_LANES, holds))
    before, count = int(cuda.popc(uint32(voted & uint32((1 << (t % WARP)) - 1)))), 0
    if t % WARP == 0:
        reduction_buffer[t // WARP] = cuda.popc(voted)
    cuda.syncthreads()
    for w in range(cuda.blockDim.x // WARP):
        before += int(reduction_buffer[w]) if w < t // WARP else 0
        count += int(reduction_buffer[w])
    cuda.syncthreads()
    return before, count


total = called_on_gpu(total_by_tree if SIMULATED else total_by_warps)
best = called_on_gpu(best_by_tree)
counted = called_on_gpu(counted_by_thread if SIMULATED else counted_by_warps)


@functools.cache
def block_team(threads: int) -> Team:
    """Return the team of a block of ``threads``, a multiple of 32."""

    @called_on_gpu
    def size() -> Any:
        """Return the number of threads of the block."""
        # A constant, since a loop whose step is not known divides: 60 elements then take some hundred instructions.
        return int32(threads)

    return Team(f"block of {threads}", called_on_gpu, rank, size, sync, total, best, counted)


@functools.cache
def group_kernel(make_body: Callable[[Team], Any], team: Team, threads: int, registers: int | None) -> Any:
    """Return the kernel whose blocks, each a team, stride over systems; it takes their count, arguments and scratch."""
    body, buffer_size = make_body(team), 2 * threads

    def blocks_of_threads(count, arguments, scratch):
        reduction_buffer = cuda.shared.array(buffer_size, np.float64)
        body(cuda.blockIdx.x, count, cuda.gridDim.x, cuda.blockIdx.x, arguments, scratch, reduction_buffer)

    return cuda_kernel(blocks_of_threads, registers=registers)
