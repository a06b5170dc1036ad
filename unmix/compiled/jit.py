"""Compile functions for the CPU (also called from CUDA code); `cache` keeps the machine code."""

import functools
import hashlib
import re
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core import cgutils, types
from numba.core.caching import FunctionCache
from numba.extending import intrinsic

from .cache import keep
from .parts import Function, new_function

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


def kept(function: Callable[..., Any], **options: Any) -> Any:
    """Compile with Numba's options, without the GIL, and keep the machine code; plain Python where nothing is compiled."""
    name_after_cells(function)
    if numba.config.DISABLE_JIT:
        return function
    return keep(new_function(function, nogil=True, error_model="numpy", **options), FunctionCache)


def compiled(function: Callable[..., Any], allocates: bool = False) -> Any:
    """Compile for the CPU; CUDA kernels may call the function too. It releases the GIL; no fastmath, so NaN stays NaN.

    The caller makes all arrays, and their references are not counted: a tile's functions take thirty, and counting took 20 ns per
    pixel, as much as a pivot. For functions that make arrays use `allocating`.
    """
    return kept(function, _nrt=allocates)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile as `compiled` does, into the callers: a call with two structures of thirty arrays each takes 300 loads and stores."""
    return kept(function, _nrt=False, forceinline=True)


def allocating(function: Callable[..., Any]) -> Any:
    """Compile as `compiled` does, for a function that makes arrays."""
    return compiled(function, allocates=True)


@functools.cache
def bare_of(function: Any) -> Any:
    """Return a compiled function that nobody can call from Python: to take a `Table` apart took as long as to search it."""
    options = function.targetoptions | {"no_cpython_wrapper": True}
    return keep(Function(function.py_func, targetoptions=options), FunctionCache, "bare")


def address_of(function: Any, arguments: tuple[Any, ...]) -> Any:
    """Return where the machine code of a compiled function is, for arguments of these types; it is compiled if need be.

    The address is of this process. Where nothing is compiled, it is the function itself.
    """
    if numba.config.DISABLE_JIT:
        return function
    kinds, bare = tuple(map(numba.typeof, arguments)), bare_of(function)
    if kinds not in bare.overloads:
        bare.compile(kinds)
    result = bare.overloads[kinds]
    return result.library.get_pointer_to_function(result.fndesc.llvm_func_name)


def build_call(typingctx: Any, address: Any, arguments: Any) -> Any:
    """Build `call_at` as Numba asks for an intrinsic: by Numba's own convention, which hands on an error of the function called."""
    kinds = arguments.types

    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        code = context.call_conv.get_function_type(types.none, kinds).as_pointer()
        values = [builder.extract_value(given[1], k) for k in range(len(kinds))]
        status, _ = context.call_conv.call_function(
            builder, builder.inttoptr(given[0], code), types.none, kinds, values
        )
        with builder.if_then(status.is_error, likely=False):
            context.call_conv.return_status_propagate(builder, status)
        return context.get_dummy_value()

    return types.none(address, arguments), build


def call_at(address: Any, arguments: tuple[Any, ...]) -> None:
    """Call the function without a result that `address_of` found, with arguments of exactly the types that it was found for.

    The compiler knows only the address, so that a search is compiled once, and not for each stored type of a cube (3.8 s each became
    1.3 s).
    """
    address(*arguments)


class Memory:
    """The memory of an array, as one that may be written to."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values  # which keep it
        given = values.__array_interface__
        self.__array_interface__ = given | {"data": (given["data"][0], False)}


def as_writable(values: np.ndarray) -> np.ndarray:
    """Return an array that code which writes nothing may take: for read-only ones Numba would compile it once more, for seconds."""
    return values if values.flags["W"] else np.asarray(Memory(values))


def build_array(typingctx: Any, values: Any, shape: Any, kind: Any) -> Any:
    """Build `array_of` as Numba asks for an intrinsic: no reference is counted, and nothing is checked."""
    from numba.np.arrayobj import populate_array  # slow to import, and not needed to load code

    result = types.Array(kind.dtype, 3, "C")

    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        item = context.get_data_type(kind.dtype)
        size = context.get_constant(types.intp, context.get_abi_sizeof(item))
        shapes = cgutils.unpack_tuple(builder, given[1], 3)
        strides = [size]
        for length in (shapes[2], shapes[1]):
            strides.insert(0, builder.mul(strides[0], length))
        data = context.make_array(values)(context, builder, given[0]).data
        array = context.make_array(result)(context, builder)
        populate_array(array, builder.bitcast(data, item.as_pointer()), shapes, strides, size, None)
        return array._getvalue()

    return result(values, shape, kind), build


def array_of(values: Any, shape: tuple[int, int, int], kind: Any) -> Any:
    """Return the array of this type and shape, in C order, whose bytes (uint8) are given; it is for code that makes no arrays."""
    return values.view(kind).reshape(shape)


if not numba.config.DISABLE_JIT:
    call_at = intrinsic(build_call)  # type: ignore[assignment]
    array_of = intrinsic(build_array)  # type: ignore[assignment]
