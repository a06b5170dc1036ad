"""Compile functions for the CPU (also called from CUDA code), and the operations that they use; `cache` keeps the code.

The same source serves several widths of vectors of float64, with one lane per pixel: the operations are a `Width`.
`WIDE` is for a CPU: `LANES` neighbouring pixels are one Numba value, an LLVM vector, which stays in registers whatever
the loops around it look like. (LLVM's own loop vectoriser must assume that scratch arrays overlap: the same solver ran
at half the speed.) `ONE` is a plain float64: for a thread of a GPU, and the simulator. Where a vector holds the numbers
of one pixel, a GPU's is a warp (`unmix.compiled.warp`). Arithmetic and comparisons are Python's operators; a float
combined with a vector stands for all its lanes. Sums of products use `fma`, whose rounding does not depend on how a
compiler transforms the code around it.

The same source also serves one thread of the CPU and a block of threads of a GPU that solve a system: a `Team`. Vectors
are divided by stride, ``for i in range(rank(), n, size())``, so that an element always belongs to the same thread;
``sync`` makes what the others wrote visible, ``total`` sums over the team, ``best`` finds the largest value. On the CPU
rank is 0 and size 1, and the rest does nothing. `counted` numbers the threads for which something holds.
"""

import functools
import hashlib
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite.binding import get_host_cpu_name
from numba.core import cgutils, types
from numba.core.caching import FunctionCache
from numba.extending import intrinsic

from .cache import keep
from .parts import Function, new_function
from .vectors import (
    LANES,
    TALL,
    any_lane_wide,
    broadcast_wide,
    fetch_block_wide,
    fetch_wide,
    first_of_wide,
    fma_wide,
    lanes_of_wide,
    largest_of_wide,
    load_wide,
    select_wide,
    sqrt_wide,
    store_wide,
    total_wide,
)

# Where the machine code of functions is, by the types of their arguments.
ADDRESSES: dict[Any, Any] = {}
# Names of functions become file names, which have 255 bytes at most.
LONGEST_NAME = 80


def name_after_cells(function: Callable[..., Any]) -> None:
    """Name a closure after the functions and values in its cells: ``solve_tile_gather_bip_active_set``."""
    # Machine code is found by a symbol of name, types and a counter that restarts in every process. Two closures of one
    # name that two processes kept may share a symbol, and a third process runs one for the other. (Seen with six
    # processes on one machine: maps of another solver.)
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    words = [getattr(cell, "__name__", None) or repr(cell) for cell in cells]
    if words:
        name = re.sub(r"\W+", "_", "_".join([function.__name__, *words]))
        if len(name) > LONGEST_NAME:
            name = f"{function.__name__}_{hashlib.sha256(name.encode()).hexdigest()[:32]}"
        function.__name__ = name
        function.__qualname__ = function.__name__


def kept(function: Callable[..., Any], **options: Any) -> Any:
    """Compile with Numba's options, without the GIL, and keep the code; plain Python where Numba's JIT is disabled."""
    name_after_cells(function)
    if numba.config.DISABLE_JIT:
        return function
    return keep(new_function(function, nogil=True, error_model="numpy", **options), FunctionCache)


def compiled(function: Callable[..., Any], allocates: bool = False) -> Any:
    """Compile for the CPU, and for CUDA kernels to call; without the GIL or fastmath, so that NaN stays NaN."""
    # Callers make all arrays, and references are not counted: a tile's functions take thirty, and counting took 20 ns
    # per pixel, as much as a pivot. Functions that make arrays use `allocating`. Numba compiles `min`, `max` and `int`
    # for each caller, 16 ms each: functions that every first run compiles type the condition.
    return kept(function, _nrt=allocates)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile as `compiled` does, but inline the function into its callers."""
    # A call with two structures of thirty arrays each takes 300 loads and stores.
    return kept(function, _nrt=False, forceinline=True)


def allocating(function: Callable[..., Any]) -> Any:
    """Compile as `compiled` does, for a function that makes arrays."""
    return compiled(function, allocates=True)


@functools.cache
def bare_of(function: Any) -> Any:
    """Return a compiled function without the wrapper for calls from Python."""
    # Taking a `Table` apart in the wrapper took as long as searching it.
    options = function.targetoptions | {"no_cpython_wrapper": True}
    return keep(Function(function.py_func, targetoptions=options), FunctionCache, "bare")


def address_of(function: Any, arguments: tuple[Any, ...], bare: bool = True) -> Any:
    """Return the address, in this process, of a function's code for arguments of these types; compile if needed.

    Code that is not ``bare`` is that which Python calls.
    """
    if numba.config.DISABLE_JIT:
        return function
    asked = function, alike(arguments), bare
    if asked not in ADDRESSES:
        kinds, code = tuple(map(numba.typeof, arguments)), bare_of(function) if bare else function
        if kinds not in code.overloads:
            code.compile(kinds)
        result = code.overloads[kinds]
        ADDRESSES[asked] = result.library.get_pointer_to_function(result.fndesc.llvm_func_name)
    return ADDRESSES[asked]


def alike(value: Any) -> Any:
    """Return a key that is equal for values of the same Numba type."""
    # Numba's own answer takes 1 ms for structures of thirty arrays.
    if isinstance(value, tuple):
        return type(value), *map(alike, value)
    if isinstance(value, np.ndarray):
        flags = value.flags
        return value.dtype, value.ndim, flags.c_contiguous, flags.f_contiguous, flags["W"], flags["A"]
    return type(value), isinstance(value, int) and value >= 2**63


def build_call(typingctx: Any, address: Any, arguments: Any) -> Any:
    """Build `call_at` as a Numba intrinsic by Numba's calling convention, which passes on an error of the function."""
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
    """Call the function at an address from `address_of`, which returns nothing, with arguments of the same types."""
    # The compiler knows only the address, so a search is compiled once, not for each stored type (3.8 s became 1.3).
    address(*arguments)


class Memory:
    """The memory of an array, as one that may be written to."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values  # which keep it
        given = values.__array_interface__
        self.__array_interface__ = given | {"data": (given["data"][0], False)}


def as_writable(values: np.ndarray) -> np.ndarray:
    """Return an array that counts as writable, for code that writes nothing and was compiled for writable arrays."""
    # For read-only arrays Numba would compile the code once more, for seconds.
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
    """Return the C-ordered array of this type and shape that has these bytes (uint8), for code that makes no arrays."""
    return values.view(kind).reshape(shape)


if not numba.config.DISABLE_JIT:
    call_at = intrinsic(build_call)  # type: ignore[assignment]
    array_of = intrinsic(build_array)  # type: ignore[assignment]


def rounding_of() -> str:
    """Return what rounding depends on: the processor, and the versions of the packages that compute."""
    return f"{get_host_cpu_name()}, numba {numba.__version__}, numpy {np.__version__}"


# Bytes of a processor's cache line.
CACHE_LINE = 64


def aligned_zeros(rows: int, width: int) -> np.ndarray:
    """Return zeros (rows, width), float64, that begin at a cache line: a vector across two lines costs twice."""
    raw = np.zeros(8 * rows * width + CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE
    return raw[start : start + 8 * rows * width].view(np.float64).reshape(rows, width)


class Width(NamedTuple):
    """The number of pixels of a tile, and the operations on their vectors; X is an array (n, width) of float64."""

    width: int
    tall: int  # pixels, and bands, of a transposed block
    fetch: Any  # (raw, i, j, k) -> width stored values from raw[i, j, k] on
    fetch_block: Any  # (raw, i, j, k, Y, row, lane): a block of raw, transposed, into Y
    load: Any  # (X, i) -> row i of X
    store: Any  # (X, i, value)
    fma: Any  # (a, b, c) -> a b + c
    select: Any  # (mask, a, b) -> a where mask, else b
    any_lane: Any  # (mask) -> bool
    lanes_of: Any  # (mask) -> the lanes in which it is true, as the bits of an integer
    first_of: Any  # (lanes) -> the first of them, of at least one
    largest_of: Any  # (a) -> the largest of all lanes
    broadcast: Any  # (number) -> the number in every lane
    root: Any  # (a) -> square root
    total: Any  # (a) -> the sum of all lanes
    compile: Callable[..., Any]  # compiles functions that use these


@compiled
def fetch_one(raw, i, j, k):
    """See `Width`."""
    return float(raw[i, j, k])


@compiled
def fetch_block_one(raw, i, j, k, Y, row, lane):
    """See `Width`."""
    Y[row, lane] = float(raw[i, j, k])


@compiled
def load_one(X, i):
    """See `Width`."""
    return X[i, 0]


@compiled
def store_one(X, i, value):
    """See `Width`."""
    X[i, 0] = value


@compiled
def fma_one(a, b, c):
    """See `Width`; the compiler for GPUs fuses it into one instruction."""
    return a * b + c


@compiled
def select_one(mask, a, b):
    """See `Width`."""
    return a if mask else b


@compiled
def any_lane_one(mask):
    """See `Width`."""
    return mask


@compiled
def lanes_of_one(mask):
    """See `Width`."""
    return 1 if mask else 0


@compiled
def first_of_one(lanes):
    """See `Width`."""
    return 0


@compiled
def largest_of_one(a):
    """See `Width`."""
    return a


@compiled
def total_one(a):
    """See `Width`."""
    return a


@compiled
def broadcast_one(value):
    """See `Width`."""
    return float(value)


@compiled
def root_one(a):
    """See `Width`."""
    return math.sqrt(a)


ONE = Width(
    1,
    1,
    fetch_one,
    fetch_block_one,
    load_one,
    store_one,
    fma_one,
    select_one,
    any_lane_one,
    lanes_of_one,
    first_of_one,
    largest_of_one,
    broadcast_one,
    root_one,
    total_one,
    compiled,
)
# Vectors exist in compiled code only.
WIDE = (
    ONE
    if numba.config.DISABLE_JIT
    else Width(
        LANES,
        TALL,
        fetch_wide,
        fetch_block_wide,
        load_wide,
        store_wide,
        fma_wide,
        select_wide,
        any_lane_wide,
        lanes_of_wide,
        first_of_wide,
        largest_of_wide,
        broadcast_wide,
        sqrt_wide,
        total_wide,
        compiled,
    )
)


class Team(NamedTuple):
    """The operations that functions of a system are built from; ``compile`` compiles such a function for the team."""

    name: str
    compile: Callable[..., Any]
    rank: Any
    size: Any
    sync: Any
    total: Any
    best: Any
    counted: Any


def summing(function: Callable[..., Any]) -> Any:
    """Compile as `compiled`, but add in any order, four to eight times as fast; results may differ by machine."""
    return kept(function, _nrt=False, fastmath={"reassoc", "contract"})


@summing
def first(*_):
    """Return the rank of the only thread."""
    return 0


@summing
def alone(*_):
    """Return the size of a team of one."""
    return 1


@summing
def nothing(*_):
    """Do nothing: there is no other thread to wait for."""
    return None


@summing
def itself(value, reduction_buffer):
    """Return the sum over one thread."""
    return value


@summing
def only(value, index, reduction_buffer):
    """Return the index of the largest value of one thread."""
    return index


@summing
def one_or_none(holds, reduction_buffer):
    """Return for how many threads before this one it holds, and for how many in all."""
    return 0, 1 if holds else 0


ALONE = Team("alone", summing, first, alone, nothing, itself, only, one_or_none)
