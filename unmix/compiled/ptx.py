"""Instructions of a GPU that Numba has no name for: the matrix product of a warp, wide loads, a quick reciprocal."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import float64, types, uint32
from numba.cuda.extending import intrinsic

Codegen = Callable[[Any, Any, Any, Any], Any]


def assembly(text: str, results: str, arguments: str, returned: Any) -> Codegen:
    """How a call becomes one piece of PTX.

    ``results`` and ``arguments`` have a letter for each operand: ``d`` float64, ``r`` uint32, ``l`` an address.
    """
    kinds = {"d": ir.DoubleType(), "r": ir.IntType(32), "l": ir.IntType(64)}
    out = ir.LiteralStructType([kinds[k] for k in results]) if len(results) > 1 else kinds[results]
    signature = ir.FunctionType(out, [kinds[k] for k in arguments])
    constraints = ",".join([*(f"={k}" for k in results), *arguments])

    def codegen(context: Any, builder: Any, _: Any, values: Any) -> Any:
        found = builder.call(ir.InlineAsm(signature, text, constraints), values)
        if len(results) == 1:
            return found
        return context.make_tuple(builder, returned, [builder.extract_value(found, i) for i in range(len(results))])

    return codegen


@intrinsic
def multiply(typing, a0, a1, b, c0, c1, c2, c3):
    """``C + A B`` by the 32 lanes of a warp: A (16, 4), B (4, 8), C (16, 8), float64 (PTX mma.m16n8k4, from sm_90).

    Lane ``4 g + q`` holds A[g, q], A[g + 8, q]; B[q, g]; C[g, 2q], C[g, 2q + 1], C[g + 8, 2q], C[g + 8, 2q + 1]. A row of
    C depends on its row of A and on B alone, not on its place.
    """
    returned = types.UniTuple(float64, 4)
    text = "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {$0,$1,$2,$3}, {$4,$5}, {$6}, {$7,$8,$9,$10};"
    return returned(*[float64] * 7), assembly(text, "dddd", "ddddddd", returned)


@intrinsic
def multiply_half(typing, a, b, c0, c1):
    """As `multiply` for its first eight rows (PTX mma.m8n8k4, from sm_80)."""
    returned = types.UniTuple(float64, 2)
    text = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {$0,$1}, {$2}, {$3}, {$4,$5};"
    return returned(*[float64] * 4), assembly(text, "dd", "dddd", returned)


@intrinsic
def load_words(typing, address):
    """Four uint32 from an address that 16 divides; not kept in the first cache, since nobody reads them twice soon."""
    returned = types.UniTuple(uint32, 4)
    text = "ld.global.nc.L1::no_allocate.v4.u32 {$0,$1,$2,$3}, [$4];"
    return returned(types.int64), assembly(text, "rrrr", "l", returned)


@intrinsic
def load_pair(typing, address):
    """Two float64 from an address that 16 divides."""
    returned = types.UniTuple(float64, 2)
    return returned(types.int64), assembly("ld.global.nc.v2.f64 {$0,$1}, [$2];", "dd", "l", returned)


@intrinsic
def load_double(typing, address):
    """One float64 from an address."""
    return float64(types.int64), assembly("ld.global.nc.f64 $0, [$1];", "d", "l", float64)


@intrinsic
def rough_reciprocal(typing, x):
    """``1/x`` to 20 bits."""
    return float64(float64), assembly("rcp.approx.ftz.f64 $0, $1;", "d", "d", float64)
