"""Define GPU instructions that Numba lacks: matrix products of a warp, wide loads, an approximate reciprocal."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import float64, int32, types, uint32
from numba.cuda.extending import intrinsic

Codegen = Callable[[Any, Any, Any, Any], Any]


def assembly(text: str, results: str, arguments: str, returned: Any, stays: bool = False) -> Codegen:
    """Return the code generator for a piece of PTX; operands are d (float64), r (32 bits) and l (address)."""
    kinds = {"d": ir.DoubleType(), "r": ir.IntType(32), "l": ir.IntType(64)}
    out = ir.LiteralStructType([kinds[k] for k in results]) if len(results) > 1 else kinds[results]
    signature = ir.FunctionType(out, [kinds[k] for k in arguments])
    constraints = ",".join([*(f"={k}" for k in results), *arguments])

    def codegen(context: Any, builder: Any, _: Any, values: Any) -> Any:
        # The compiler may not move an instruction that `stays`.
        result = builder.call(ir.InlineAsm(signature, text, constraints, stays), values)
        if len(results) == 1:
            return result
        return context.make_tuple(builder, returned, [builder.extract_value(result, i) for i in range(len(results))])

    return codegen


@intrinsic
def multiply_matrices(typing, a0, a1, b, c0, c1, c2, c3):
    """Return ``C + A B`` by the 32 lanes of a warp: A (16, 4), B (4, 8), C (16, 8) float64 (PTX mma.m16n8k4, sm_90)."""
    returned = types.UniTuple(float64, 4)
    # Lane 4 g + q holds A[g, q], A[g + 8, q]; B[q, g]; C[g, 2q], C[g, 2q + 1], C[g + 8, 2q], C[g + 8, 2q + 1]. A row of
    # C depends on its row of A and on B alone, not on its position.
    text = "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {$0,$1,$2,$3}, {$4,$5}, {$6}, {$7,$8,$9,$10};"
    return returned(*[float64] * 7), assembly(text, "dddd", "ddddddd", returned)


@intrinsic
def multiply_twice(typing, a0, a1, a2, a3, b0, b1, c0, c1, c2, c3):
    """Return ``C + A B`` as `multiply_matrices`, for A (16, 8) and B (8, 8) (PTX mma.m16n8k8, sm_90)."""
    returned = types.UniTuple(float64, 4)
    # Lane 4 g + q also holds A[g, q + 4], A[g + 8, q + 4] and B[q + 4, g].
    text = "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};"
    return returned(*[float64] * 10), assembly(text, "dddd", "dddddddddd", returned)


@intrinsic
def multiply_half(typing, a, b, c0, c1):
    """Return the first eight rows of `multiply_matrices` (PTX mma.m8n8k4, from sm_80)."""
    returned = types.UniTuple(float64, 2)
    text = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {$0,$1}, {$2}, {$3}, {$4,$5};"
    return returned(*[float64] * 4), assembly(text, "dd", "dddd", returned)


@intrinsic
def load_words(typing, address):
    """Load four uint32 from a multiple of 16 bytes, past the L1 cache: they are not read again soon."""
    returned = types.UniTuple(uint32, 4)
    text = "ld.global.nc.L1::no_allocate.v4.u32 {$0,$1,$2,$3}, [$4];"
    return returned(types.int64), assembly(text, "rrrr", "l", returned)


@intrinsic
def load_pair(typing, address):
    """Load two float64 from a multiple of 16 bytes."""
    returned = types.UniTuple(float64, 2)
    return returned(types.int64), assembly("ld.global.nc.v2.f64 {$0,$1}, [$2];", "dd", "l", returned)


@intrinsic
def load_double(typing, address):
    """Load one float64 from an address."""
    return float64(types.int64), assembly("ld.global.nc.f64 $0, [$1];", "d", "l", float64)


@intrinsic
def rough_reciprocal(typing, x):
    """Return ``1/x`` to 20 bits."""
    return float64(float64), assembly("rcp.approx.ftz.f64 $0, $1;", "d", "d", float64)


@intrinsic
def largest_of_warp(typing, value):
    """Return the largest int32 of a warp's lanes, in all of them (PTX redux.sync, from sm_80)."""
    return int32(types.int32), assembly("redux.sync.max.s32 $0, $1, 0xffffffff;", "r", "r", int32, True)
