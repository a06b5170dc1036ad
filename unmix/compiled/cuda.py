"""Compile kernels and their functions for a GPU."""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import cuda  # the one import of the CUDA target: numba-cuda stands behind this name

from .cache import keep
from .jit import name_after_cells

ALL_LANES = 0xFFFFFFFF

# A small scene fills few blocks; Numba's warning about that does not help a user.
numba.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0

__all__ = ["ALL_LANES", "columns_of", "cuda", "cuda_kernel", "on_gpu", "to_gpu"]


def cuda_kernel(function: Callable[..., Any], registers: int | None = None) -> Any:
    """Compile for CUDA and keep the code on disk; plain Python in the simulator (``NUMBA_ENABLE_CUDASIM=1``).

    ``registers`` is the largest number of registers per thread.
    """
    name_after_cells(function)
    if numba.config.ENABLE_CUDASIM:
        return cuda.jit(function)
    kernel = cuda.jit(function, max_registers=registers)
    from numba.cuda.dispatcher import CUDACache

    return keep(kernel, CUDACache)


def on_gpu(function: Callable[..., Any]) -> Any:
    """Compile a function that kernels call; it is inlined into its caller."""
    name_after_cells(function)
    inlined = {} if numba.config.ENABLE_CUDASIM else {"forceinline": True}
    return cuda.jit(function, device=True, **inlined)


def to_gpu(values: Any) -> Any:
    """Copy an array, or the arrays of a NamedTuple, to the GPU; return numbers as they are."""
    if isinstance(values, tuple):
        return type(values)(*map(to_gpu, values))
    return cuda.to_device(np.ascontiguousarray(values)) if isinstance(values, np.ndarray) else values


def columns_of(matrix: Any, first: int, count: int) -> Any:
    """Return ``matrix[:, first : first + count]`` of a C-contiguous matrix on the GPU.

    Numba's own slice lists every piece of contiguous memory, a row each, in Python: 0.1 s for 65 536 rows.
    """
    if numba.config.ENABLE_CUDASIM:
        return matrix[:, first : first + count]
    size = matrix.dtype.itemsize
    place = {
        "shape": (matrix.shape[0], count), "strides": (matrix.shape[1] * size, size), "typestr": matrix.dtype.str, "version": 3,
        "data": (int(matrix.__cuda_array_interface__["data"][0]) + first * size, False),
    }  # fmt: skip
    return cuda.from_cuda_array_interface(place, owner=matrix)
