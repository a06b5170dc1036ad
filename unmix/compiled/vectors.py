"""LLVM vectors as values of Numba's: `LANES` numbers of type float64, and the operations on them.

Vectors exist in compiled code only. `unmix.compiled.jit` gives the operations their names.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.core.typeconv import Conversion
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, lower_cast, models, register_model

LANES = 16
# Bands, and pixels, of the square block of a BIP cube that is transposed at a time.
TALL = 8
DOUBLES = ir.VectorType(ir.DoubleType(), LANES)
BITS = ir.VectorType(ir.IntType(1), LANES)


class Doubles(types.Type):
    """The Numba type of a vector with a float64 per lane."""

    def __init__(self) -> None:
        super().__init__(name=f"float64x{LANES}")

    def can_convert_from(self, typingctx: Any, other: Any) -> Any:
        """Allow a number, which stands for all lanes."""
        return Conversion.safe if isinstance(other, types.Number) else None


class Bits(types.Type):
    """The Numba type of a vector with a boolean per lane."""

    def __init__(self) -> None:
        super().__init__(name=f"bool x{LANES}")


doubles, bits = Doubles(), Bits()


@register_model(Doubles)
class DoublesModel(models.PrimitiveModel):
    """Its representation: an LLVM vector of doubles."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, DOUBLES)


@register_model(Bits)
class BitsModel(models.PrimitiveModel):
    """Its representation: an LLVM vector of bits."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, BITS)


def all_lanes(builder: Any, value: Any) -> Any:
    """Return a vector with a scalar in every lane."""
    first = builder.insert_element(ir.Constant(DOUBLES, ir.Undefined), value, ir.IntType(32)(0))
    same = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(DOUBLES, ir.Undefined), same)


@lower_cast(types.Number, Doubles)
def number_to_doubles(context: Any, builder: Any, kind: Any, to: Any, value: Any) -> Any:
    """Convert a number to a vector; see `all_lanes`."""
    return all_lanes(builder, context.cast(builder, value, kind, types.float64))


def define(function: Any, result: Any, build: Callable[[Any, Any, Any], Any], operand: Any = doubles) -> None:
    """Define a Python operator for two vectors, or a vector and a number."""

    @infer_global(function)
    class Typing(AbstractTemplate):
        """The type of the operator's result."""

        def generic(self, args: Any, kws: Any) -> Any:
            others = [arg for arg in args if arg is not operand]
            if len(args) == 2 and len(others) < 2 and all(isinstance(arg, types.Number) for arg in others):
                return numba.core.typing.signature(result, operand, operand)
            return None

    @lower_builtin(function, type(operand), type(operand))
    def lowered(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return build(builder, *args)


def instruction(name: str, *how: str) -> Callable[[Any, Any, Any], Any]:
    """Return a function that builds the LLVM instruction."""
    return lambda builder, a, b: getattr(builder, name)(*how, a, b)


for function, name in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    define(function, doubles, instruction(name))
for function, sign in (
    (operator.lt, "<"),
    (operator.le, "<="),
    (operator.gt, ">"),
    (operator.ge, ">="),
    (operator.eq, "=="),
):
    define(function, bits, instruction("fcmp_ordered", sign))  # false where either side is NaN
define(operator.and_, bits, instruction("and_"), bits)
define(operator.or_, bits, instruction("or_"), bits)


def check_order(*arrays: Any) -> None:
    """Raise `TypingError` at compile time for arrays not in C order; addresses are computed from shapes alone."""
    for array in arrays:
        if array.layout != "C":
            raise TypingError(f"vectors can only be loaded from arrays in C order, not from {array}")


def address(context: Any, builder: Any, kind: Any, array: Any, row: Any) -> Any:
    """Return the address of row ``row`` of an array (n, LANES), as a pointer to a vector."""
    data = context.make_array(kind)(context, builder, array).data
    start = builder.gep(data, [builder.mul(row, row.type(LANES))])
    return builder.bitcast(start, DOUBLES.as_pointer())


@intrinsic
def load_wide(typingctx, array, row):
    """Return row ``row`` of a C-ordered float64 array (n, LANES)."""
    check_order(array)

    def build(context, builder, signature, args):
        pointer = address(context, builder, signature.args[0], *args)
        return builder.load(pointer, align=8)

    return doubles(array, types.intp), build


@intrinsic
def store_wide(typingctx, array, row, value):
    """Store ``value`` in row ``row`` of a C-ordered float64 array (n, LANES)."""
    check_order(array)

    def build(context, builder, signature, args):
        builder.store(args[2], address(context, builder, signature.args[0], *args[:2]), align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, doubles), build


def of_operands(signature: Any, build: Callable[..., Any]) -> tuple[Any, Any]:
    """Return an intrinsic of Numba whose value ``build(builder, *operands)`` makes."""
    return signature, lambda context, builder, signature, operands: build(builder, *operands)


def by_llvm(name: str, operands: int) -> tuple[Any, Any]:
    """Return an intrinsic that is LLVM's of ``operands`` vectors."""

    def build(builder: Any, *values: Any) -> Any:
        kind = ir.FunctionType(DOUBLES, [DOUBLES] * operands)
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{LANES}f64"), values)

    return of_operands(doubles(*[doubles] * operands), build)


@intrinsic
def fma_wide(typingctx, a, b, c):
    """Return ``a b + c``, rounded once."""
    return by_llvm("fma", 3)


@intrinsic
def sqrt_wide(typingctx, a):
    """Return the square root."""
    return by_llvm("sqrt", 1)


@intrinsic
def select_wide(typingctx, mask, a, b):
    """Return ``a`` where ``mask`` is true, else ``b``."""
    return of_operands(doubles(bits, doubles, doubles), lambda builder, *operands: builder.select(*operands))


def as_integer(builder: Any, mask: Any) -> Any:
    """Return the lanes in which ``mask`` is true, as the bits of an integer of so many."""
    return builder.bitcast(mask, ir.IntType(LANES))


@intrinsic
def any_lane_wide(typingctx, mask):
    """Return whether any lane of ``mask`` is true."""
    none = ir.IntType(LANES)(0)
    return of_operands(
        types.boolean(bits), lambda builder, mask: builder.icmp_unsigned("!=", as_integer(builder, mask), none)
    )


@intrinsic
def lanes_of_wide(typingctx, mask):
    """Return the lanes in which ``mask`` is true, as the bits of an integer."""
    return of_operands(types.int64(bits), lambda builder, mask: builder.zext(as_integer(builder, mask), ir.IntType(64)))


@intrinsic
def first_of_wide(typingctx, lanes):
    """Return the place of the lowest bit of an integer that is not 0."""
    return of_operands(types.int64(types.int64), lambda builder, lanes: builder.cttz(lanes, ir.IntType(1)(1)))


def reduced(builder: Any, value: Any, join: Callable[[Any, Any], Any]) -> Any:
    """Return one number of all lanes of a vector: its halves are joined until a lane is left."""
    size = LANES
    while size > 1:
        size //= 2
        kind = ir.VectorType(ir.IntType(32), size)
        low, high = (
            builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), ir.Constant(kind, list(half)))
            for half in (range(size), range(size, 2 * size))
        )
        value = join(low, high)
    return builder.extract_element(value, ir.IntType(32)(0))


def larger(builder: Any, a: Any, b: Any) -> Any:
    """Return the larger of two vectors in each lane."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@intrinsic
def largest_of_wide(typingctx, a):
    """Return the largest value of all lanes; no lane may be NaN."""
    return of_operands(
        types.float64(doubles), lambda builder, a: reduced(builder, a, functools.partial(larger, builder))
    )


@intrinsic
def total_wide(typingctx, a):
    """Return the sum of all lanes."""
    return of_operands(types.float64(doubles), lambda builder, a: reduced(builder, a, builder.fadd))


@intrinsic
def broadcast_wide(typingctx, value):
    """Return a vector with a number in all lanes."""
    return of_operands(doubles(types.float64), all_lanes)


def stored_vector(context: Any, builder: Any, kind: Any, array: Any, at: Any, size: int) -> Any:
    """Return ``size`` values along the last axis of a C-ordered array (·, ·, ·) of any type, from index ``at`` (3,)."""
    structure = context.make_array(kind)(context, builder, array)
    shape = cgutils.unpack_tuple(builder, structure.shape, 3)
    flat = builder.add(builder.mul(builder.add(builder.mul(at[0], shape[1]), at[1]), shape[2]), at[2])
    item = context.get_data_type(kind.dtype)
    pointer = builder.bitcast(builder.gep(structure.data, [flat]), ir.VectorType(item, size).as_pointer())
    return builder.load(pointer, align=context.get_abi_sizeof(item))


def as_doubles(builder: Any, kind: Any, value: Any, size: int) -> Any:
    """Return a vector of stored values converted to float64."""
    to = ir.VectorType(ir.DoubleType(), size)
    if isinstance(kind, types.Float):
        return value if kind.bitwidth == 64 else builder.fpext(value, to)
    return builder.sitofp(value, to) if kind.signed else builder.uitofp(value, to)


@intrinsic
def fetch_wide(typingctx, raw, i, j, k):
    """Return `LANES` stored values along the last axis of a cube, from ``raw[i, j, k]``."""
    check_order(raw)

    def build(context, builder, signature, args):
        value = stored_vector(context, builder, raw, args[0], args[1:], LANES)
        return as_doubles(builder, raw.dtype, value, LANES)

    return doubles(raw, types.intp, types.intp, types.intp), build


@intrinsic
def fetch_block_wide(typingctx, raw, i, j, k, Y, row, lane):
    """Transpose `TALL` x `TALL` values of the last two axes, from ``raw[i, j, k]``, into ``Y[row:, lane:]``."""
    check_order(raw, Y)

    def build(context, builder, signature, args):
        array, i, j, k, to, row, lane = args
        count = ir.IntType(64)
        rows = [
            stored_vector(context, builder, raw, array, (i, builder.add(j, count(s)), k), TALL) for s in range(TALL)
        ]
        half = TALL // 2
        # 24 shuffles for 64 values of 16 bits, before the conversion to float64.
        low = [n // 2 + (n % 2) * TALL for n in range(TALL)]
        masks = [ir.Constant(ir.VectorType(ir.IntType(32), TALL), [n + offset for n in low]) for offset in (0, half)]
        for _ in range(TALL.bit_length() - 1):
            rows = [builder.shuffle_vector(rows[n], rows[n + half], mask) for n in range(half) for mask in masks]
        data = context.make_array(Y)(context, builder, to).data
        for s, values in enumerate(rows):
            place = builder.add(builder.mul(builder.add(row, count(s)), count(LANES)), lane)
            value = as_doubles(builder, raw.dtype, values, TALL)
            builder.store(value, builder.bitcast(builder.gep(data, [place]), value.type.as_pointer()), align=8)
        return context.get_dummy_value()

    index = types.intp
    return types.void(raw, index, index, index, Y, index, index), build
