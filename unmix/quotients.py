"""Turn the abundances of pixels into fractions, and bound how far these are from those of the optimum."""

import numpy as np

from .certificate import DARK, NODATA, SOLVED
from .compiled.jit import compiled

# A unit of roundoff of float64; the roundings of w, of products, of their sum and of the quotient are each one or two
# of them.
ROUNDOFF = 2.0**-53
# A sum below this may have lost products to underflow: nothing is proved of its fractions.
LEAST_SCALE = 1e-250


@compiled
def divide_pixel(A, delta, state, line, s, weights, length, most, fractions, scales, far):
    """Write one pixel's fractions, scale and the δ of the fractions; `NODATA` if it is not solved."""
    # `unmix.library.fractions.Normalization` has the proof; the arithmetic is the same, in the same order. ``length``
    # and ``most`` bound the length of the weights and the largest.
    p = A.shape[1]
    if state[line, s] != SOLVED:
        for j in range(p):
            fractions[line, j, s] = NODATA
        scales[line, s], far[line, s] = NODATA, NODATA
        return
    rounding = (p + 12.0) * ROUNDOFF
    scale, is_dark = 0.0, True
    for j in range(p):
        scale += weights[j] * A[line, j, s]
        is_dark = is_dark and (A[line, j, s] == 0.0 or weights[j] == 0.0)
    squares = 0.0
    for j in range(p):
        fraction = weights[j] * A[line, j, s] / scale if scale > 0.0 else 0.0
        squares += fraction * fraction
        fractions[line, j, s] = fraction
    scales[line, s] = scale
    d = delta[line, s]
    if is_dark:
        far[line, s] = 0.0 if d >= 0.0 and d <= DARK else np.inf
        return
    lengths = squares**0.5 * (1.0 + rounding)
    left = scale * (1.0 - rounding) - length * d * (1.0 + rounding)
    bound = d * ((most + lengths * length) * (1.0 + rounding)) / left * (1.0 + rounding) + rounding * lengths
    known = scale > LEAST_SCALE and scale < np.inf and d >= 0.0 and left > 0.0 and bound < np.inf
    far[line, s] = bound if known else np.inf


@compiled
def divide_all(A, delta, state, weights, length, most, fractions, scales, far):
    """Do what `divide_pixel` says for all pixels of a block."""
    for line in range(state.shape[0]):
        for s in range(state.shape[1]):
            divide_pixel(A, delta, state, line, s, weights, length, most, fractions, scales, far)
