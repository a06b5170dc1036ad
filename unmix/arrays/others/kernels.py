"""Kernels that bring arrays of others into the form that solvers take, and answers into that which callers get."""

import functools
from typing import Any

import numpy as np
from numba import uint32

from ...certificate import SOLVED
from ...compiled.cuda import cuda, cuda_kernel, multiprocessors
from ...errors import InputError

# Threads of a block, and blocks per multiprocessor.
THREADS, BLOCKS = 128, 16


def launched(kernel: Any, stream: Any) -> Any:
    """Return a kernel whose threads stride over elements, ready to be called."""
    return kernel[BLOCKS * multiprocessors(), THREADS, stream]


@functools.cache
def convert_kernel() -> Any:
    """Return the kernel that copies rows (N, k) of any strides and type to float64 in C order."""

    @cuda_kernel
    def convert(rows, out):
        width = out.shape[1]
        for at in range(cuda.grid(1), out.shape[0] * width, cuda.gridsize(1)):
            out[at // width, at % width] = rows[at // width, at % width]

    return convert


def converted(array: Any) -> Any:
    """Return a copy of a GPU's array of one, two or three axes in float64 and C order."""
    shape = tuple(array.shape)
    if array.ndim != 2 and not array.is_c_contiguous():
        raise InputError("an array of numba that has not two axes must be in C order")
    rows = array if array.ndim == 2 else array.reshape(-1, shape[-1])
    out = cuda.device_array(rows.shape, np.float64)
    launched(convert_kernel(), 0)(rows, out)
    return out.reshape(shape)


@functools.cache
def give_kernel() -> Any:
    """Return the kernel that copies a block's results to answers: abundances (1, p', N) to (N, p), the rest to (N,)."""

    @cuda_kernel
    def give(abundance, rmse, kappa, delta, steps, state, abundances, to_rmse, to_kappa, to_delta, to_steps, valid):
        n, p = abundances.shape
        # Neighbouring threads write neighbouring numbers.
        for at in range(cuda.grid(1), n * p, cuda.gridsize(1)):
            i = uint32(at) // uint32(p)
            j = uint32(at) - i * uint32(p)
            abundances[i, j] = abundance[0, j, i] if state[0, i] == SOLVED else np.nan
        for i in range(cuda.grid(1), n, cuda.gridsize(1)):
            valid[i] = state[0, i] == SOLVED
            to_rmse[i] = rmse[0, i] if valid[i] else np.nan
            to_kappa[i], to_delta[i] = (kappa[0, i], delta[0, i]) if valid[i] else (np.nan, np.nan)
            to_steps[i] = steps[0, i] if valid[i] else -1

    return give


@functools.cache
def prepare_kernel() -> Any:
    """Return the kernel that prepares systems (`unmix.solvers.nnls.systems.Systems`), a block of threads for each."""

    # Shapes: B, right (N, m); weights (N, m), (1, m) or (1, 0); roots (N, m) or (1, 0); allowed, start (N, n), (1, n)
    # or (1, 0); dictionary (N,) or (0,). NaN, of a bad weight or matrix number, keeps a system from being certified.
    @cuda_kernel
    def prepare(B, weights, allowed, start, dictionary, matrices, right, roots, to_allowed, to_start, which):
        (N, m), t, step = right.shape, int(cuda.threadIdx.x), int(cuda.blockDim.x)
        for i in range(cuda.blockIdx.x, N, cuda.gridDim.x):
            number = dictionary[i] if dictionary.shape[0] > 0 else (i if matrices > 1 else 0)
            exists = 0 <= number < matrices
            if t == 0:
                which[i] = number if exists else 0
            for k in range(t, m, step):
                root = 1.0
                if weights.shape[1] > 0:
                    root = weights[min(i, weights.shape[0] - 1), k] ** 0.5
                    roots[i, k] = root
                right[i, k] = B[i, k] * root if exists else np.nan
            for j in range(t, to_allowed.shape[1], step):
                to_allowed[i, j] = 1 if allowed[min(i, allowed.shape[0] - 1), j] else 0
            for j in range(t, to_start.shape[1], step):
                to_start[i, j] = 1 if start[min(i, start.shape[0] - 1), j] > 0 else 0

    return prepare
