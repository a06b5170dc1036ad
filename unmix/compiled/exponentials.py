"""Exponentials and logarithms of a CPU's vectors (`unmix.compiled.jit.WIDE`): LLVM's own call libm for each lane."""

import math

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from .jit import WIDE, compiled
from .vectors import DOUBLES, LANES, by_llvm, doubles

fma, select, broadcast = WIDE.fma, WIDE.select, WIDE.broadcast
# exp (−y) = 2^−k exp (−r) with a whole k; below exp (−700) it is that.
LARGEST_EXPONENT, LOG2_E = 700.0, 1.4426950408889634
# A number that is added and subtracted to round to whole ones; the parts of log 2, the first with zeros at its end.
TO_WHOLE, LN2, REST_OF_LN2 = 1.5 * 2.0**52, 0.6931471803691238, 1.9082149292705877e-10
# (−1)ⁿ / n!, the highest first: with |r| up to ½ log 2 the series ends below rounding.
SERIES = np.array([(-1) ** n / math.factorial(n) for n in range(13, -1, -1)])


@intrinsic
def power_wide(typingctx, k):
    """Return 2^k of whole numbers from −1022 to 1023."""

    def build(context, builder, signature, args):
        # Vectors of AVX2 cannot be made whole numbers at once; the lowest bits of k + 1023 + `TO_WHOLE` are k + 1023.
        kind = ir.VectorType(ir.IntType(64), LANES)
        shifted = builder.fadd(args[0], ir.Constant(DOUBLES, [TO_WHOLE + 1023.0] * LANES))
        whole = builder.bitcast(shifted, kind)
        return builder.bitcast(builder.shl(whole, ir.Constant(kind, [52] * LANES)), DOUBLES)

    return doubles(doubles), build


@intrinsic
def log_wide(typingctx, x):
    """Return natural logarithms."""
    return by_llvm("log", 1)


@compiled
def power_one(k):
    """See `power_wide`."""
    return math.ldexp(1.0, int(k))


@compiled
def log_one(x):
    """See `log_wide`."""
    return np.log(x)


power, log = (power_one, log_one) if WIDE.width == 1 else (power_wide, log_wide)


@compiled
def exp_of_minus(y):
    """Return exp (−y), for y of at least 0."""
    y = select(y < LARGEST_EXPONENT, y, broadcast(LARGEST_EXPONENT))
    k = (y * LOG2_E + TO_WHOLE) - TO_WHOLE
    r = fma(k, broadcast(-REST_OF_LN2), fma(k, broadcast(-LN2), y))
    series = broadcast(SERIES[0])
    for n in range(1, SERIES.shape[0]):
        series = fma(series, r, broadcast(SERIES[n]))
    return series * power(broadcast(0.0) - k)


__all__ = ["exp_of_minus", "log"]
