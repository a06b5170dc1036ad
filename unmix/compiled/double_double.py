"""Double-double arithmetic: a number is the sum of two float64, the second at most half an ulp of the first.

It has 106 bits (Dekker 1971; Hida, Li and Bailey 2001). A sum costs 20 operations of float64 and a product 9. These
functions serve the dozen endmembers of a pixel; sums over bands use `product_function`, sixteen pixels at a time
(Ogita, Rump and Oishi 2005).
"""

import functools
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .jit import WIDE, compiled
from .vectors import fma_wide

# Relative rounding error of one operation, at most. The error of a scalar product of L terms by `product_function` is
# at most L² times this, relative to the product of the vectors' lengths (Ogita, Rump and Oishi 2005, Proposition 5.5).
OPERATION_ROUNDING = 2.0**-104


def split_product_error(a: float, b: float) -> float:
    """Return ``a b − fl(a b)`` exactly, by splitting into halves of 26 bits (Dekker 1971)."""
    product = a * b
    scaled = 134217729.0 * a
    high_a = scaled - (scaled - a)
    low_a = a - high_a
    scaled = 134217729.0 * b
    high_b = scaled - (scaled - b)
    low_b = b - high_b
    return ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b


@intrinsic
def fused_product_error(typingctx, a, b):
    """Return ``a b − fl(a b)`` exactly, by one fused multiplication and subtraction."""

    def build(context, builder, signature, args):
        double = ir.DoubleType()
        kind = ir.FunctionType(double, [double] * 3)
        fma = cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.f64")
        return builder.call(fma, [args[0], args[1], builder.fneg(builder.fmul(*args))])

    return types.float64(types.float64, types.float64), build


product_error: Any = split_product_error if numba.config.DISABLE_JIT else fused_product_error


@compiled
def two_sum(a, b):
    """Return ``a + b`` exactly, as a double-double (Knuth)."""
    total = a + b
    rounded_b = total - a
    return total, (a - (total - rounded_b)) + (b - rounded_b)


@compiled
def quick_sum(a, b):
    """Return ``a + b`` exactly, as a double-double, where |a| ≥ |b|."""
    total = a + b
    return total, b - (total - a)


@compiled
def add_double(ah, al, bh, bl):
    """Return ``a + b``."""
    high, low = two_sum(ah, bh)
    middle, lowest = two_sum(al, bl)
    high, low = quick_sum(high, low + middle)
    return quick_sum(high, low + lowest)


@compiled
def multiply(ah, al, bh, bl):
    """Return ``a b``."""
    high = ah * bh
    return quick_sum(high, product_error(ah, bh) + (ah * bl + al * bh))


@compiled
def less_product(ch, cl, ah, al, bh, bl):
    """Return ``c − a b``."""
    high, low = multiply(ah, al, bh, bl)
    return add_double(ch, cl, -high, -low)


@compiled
def divide(ah, al, bh, bl):
    """Return ``a / b``."""
    first = ah / bh
    high, low = less_product(ah, al, bh, bl, first, 0.0)
    second = high / bh
    high, low = less_product(high, low, bh, bl, second, 0.0)
    first, second = quick_sum(first, second)
    return add_double(first, second, high / bh, 0.0)


@compiled
def root_of(ah, al):
    """Return the square root of a number above 0."""
    first = ah**0.5
    remainder, _ = less_product(ah, al, first, 0.0, first, 0.0)
    return quick_sum(first, remainder / (2.0 * first))


@functools.cache
def product_function() -> Any:
    """Return ``product(M, Y, high, low)``: ``MᵀY`` (p, width) in double-double, M (L, p) and Y (L, width) float64."""
    load, store, broadcast = WIDE.load, WIDE.store, WIDE.broadcast

    @compiled
    def error_wide(a, b, product):
        return fma_wide(a, b, broadcast(0.0) - product)

    @compiled
    def error_one(a, b, product):
        return product_error(a, b)

    error = error_one if numba.config.DISABLE_JIT else error_wide

    @compiled
    def product(M, Y, high, low):
        L, p = M.shape
        for j in range(p):
            total, rest = broadcast(0.0), broadcast(0.0)
            for b in range(L):
                m, y = broadcast(M[b, j]), load(Y, b)
                term = m * y
                after = total + term
                back = after - total
                rest = rest + (((total - (after - back)) + (term - back)) + error(m, y, term))
                total = after
            after = total + rest
            store(low, j, rest - (after - total))
            store(high, j, after)

    return product
