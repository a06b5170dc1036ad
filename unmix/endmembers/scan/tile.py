"""A tile of a sum of products ``y yᵀ`` that stays in registers: some of its rows by 16 columns."""

from typing import Any

import numba
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...compiled.jit import WIDE
from ...compiled.vectors import DOUBLES, LANES, address

# Rows of a tile: as many sums as fit in the registers of a processor with AVX-512, or without. No result depends on it,
# since each sum is a chain of its own. (224 bands, Zen 4, a pixel: with 8 rows 0.93 us, 4 0.97, 2 1.04; without AVX-512
# 1.65, 2.67, 0.99. OpenBLAS took 1.3 and 2.3.)
ROWS = 1 if WIDE.width == 1 else 8 if binding.get_host_cpu_features().get("avx512f") else 2


def build_tile(typingctx: Any, panels: Any, row: Any, lane: Any, column: Any, count: Any, sums: Any, at: Any) -> Any:
    """Build `add_tile` as Numba asks for an intrinsic."""

    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        panels_, row_, lane_, column_, count_, sums_, at_ = given
        fma = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(DOUBLES, [DOUBLES] * 3), f"llvm.fma.v{LANES}f64"
        )
        values = context.make_array(panels)(context, builder, panels_).data
        undefined = ir.Constant(DOUBLES, ir.Undefined)
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        places = [address(context, builder, sums, sums_, builder.add(at_, at_.type(r))) for r in range(ROWS)]
        kept = [cgutils.alloca_once(builder, DOUBLES) for _ in range(ROWS)]
        for place, into in zip(places, kept):
            builder.store(builder.load(place, align=8), into)
        with cgutils.for_range(builder, count_) as loop:
            y = builder.load(address(context, builder, panels, panels_, builder.add(column_, loop.index)), align=8)
            first = builder.add(builder.mul(builder.add(row_, loop.index), row_.type(LANES)), lane_)
            for r, into in enumerate(kept):
                entry = builder.load(builder.gep(values, [builder.add(first, first.type(r))]))
                vector = builder.insert_element(undefined, entry, ir.IntType(32)(0))
                vector = builder.shuffle_vector(vector, undefined, everywhere)
                builder.store(builder.call(fma, [vector, y, builder.load(into)]), into)
        for place, into in zip(places, kept):
            builder.store(builder.load(into), place, align=8)
        return context.get_dummy_value()

    whole = types.intp
    return types.void(panels, whole, whole, whole, whole, sums, whole), build


def add_tile(panels, row, lane, column, count, sums, at):
    """Add products of `ROWS` bands and a panel, of ``count`` pixels in order, to rows of ``sums`` from ``at`` on."""
    # Compiled: sums[at + r] += panels[row + s, lane + r] * panels[column + s] for each of `ROWS` values of r.
    for s in range(count):
        sums[at, 0] = WIDE.fma(panels[row + s, lane], panels[column + s, 0], sums[at, 0])


if not numba.config.DISABLE_JIT:
    add_tile = intrinsic(build_tile)  # type: ignore[assignment]
