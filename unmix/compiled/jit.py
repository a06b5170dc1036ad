"""Compile functions for the CPU (also called from CUDA code); `cache` keeps the machine code."""

import hashlib
import re
from collections.abc import Callable
from typing import Any

import numba
from numba.core.caching import FunctionCache

from .cache import keep

# Names of functions become file names, which have 255 bytes at most.
LONGEST_NAME = 80


def name_after_cells(function: Callable[..., Any]) -> None:
    """Name a closure after the functions and values in its cells: ``solve_tile_gather_bip_active_set``.

    Machine code is found by a symbol made of name, types and a counter that restarts in every process. Two closures of
    the same name that two processes compiled and kept may have the same symbol, and a third process, which loads both, then
    runs one in place of the other. (Seen with six processes on one machine: maps of another solver.)
    """
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    words = [getattr(cell, "__name__", None) or repr(cell) for cell in cells]
    if words:
        name = re.sub(r"\W+", "_", "_".join([function.__name__, *words]))
        if len(name) > LONGEST_NAME:
            name = f"{function.__name__}_{hashlib.sha256(name.encode()).hexdigest()[:32]}"
        function.__name__ = name
        function.__qualname__ = function.__name__


def compiled(function: Callable[..., Any], allocates: bool = False) -> Any:
    """Compile for the CPU; CUDA kernels may call the function too. It releases the GIL; no fastmath, so NaN stays NaN.

    The caller makes all arrays, and their references are not counted: a tile's functions take thirty, and counting took 20 ns per
    pixel, as much as a pivot. For functions that make arrays use `allocating`.
    """
    name_after_cells(function)
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": allocates}
    return keep(numba.njit(**options)(function), FunctionCache)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile as `compiled` does, into the callers: a call with two structures of thirty arrays each takes 300 loads and stores."""
    name_after_cells(function)
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False, "forceinline": True}
    return keep(numba.njit(**options)(function), FunctionCache)


def allocating(function: Callable[..., Any]) -> Any:
    """Compile as `compiled` does, for a function that makes arrays."""
    return compiled(function, allocates=True)
