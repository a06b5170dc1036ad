"""Update rules of non-negative matrix factorisation for an entry and for a pixel, one source for CPU and GPU.

Pixels ``x ≈ E a``. With ``q = x / (E a)`` (Kullback-Leibler) or ``q = x`` (Frobenius) each abundance becomes
``a_k ← a_k (Eᵀq)_k / d_k``, with ``d = Eᵀ1`` or ``d = EᵀE a``; then, with a new quotient, E likewise from all pixels
(Lee and Seung 2001; Arun Kumar et al., whose equation 2 lacks the quotient).
"""

import numpy as np

from ...compiled.jit import compiled

# Replaces divisors of 0, and smaller models: float32's machine epsilon, as in scikit-learn, with which results are
# compared.
LEAST_DIVISOR = 1.1920929e-07
# Entries up to this become zero.
VANISHED = 2.2e-16
# Most steps of Newton's method for the multiplier of the sum; it converges from one side, and quadratically.
TURNS = 60


@compiled
def renew(entry, numerator, denominator):
    """Return an entry after a step, in float32."""
    new = entry * (numerator / (denominator if denominator > np.float32(0.0) else np.float32(LEAST_DIVISOR)))
    return new if new > np.float32(VANISHED) else np.float32(0.0)


@compiled
def part_of_tile(multiplier, shift, a, up, down, divergence):
    """Return an abundance and its slope for the multiplier ``multiplier − shift`` of the sum."""
    if divergence:
        numerator, denominator = a * up, (down - shift) + multiplier
        return (numerator / denominator, -numerator / (denominator * denominator)) if numerator > 0.0 else (0.0, 0.0)
    weight = a / max(down, LEAST_DIVISOR)
    part = weight * (up - multiplier)
    return (part, -weight) if part > 0.0 else (0.0, 0.0)


@compiled
def column_on_simplex(a, up, down, divergence):
    """Update a pixel's abundances ``a`` (p,) in place by a step that keeps Σa = 1; a pixel of zeros stays as it is."""
    p = a.shape[0]
    # The step minimises the same majorant as without the sum, under the sum, so the loss does not rise; μ is the
    # multiplier of the sum. Kullback-Leibler: a_k ← a_k up_k / (down_k + μ); Frobenius: a_k ← a_k max(up_k − μ, 0) /
    # down_k. Newton's method begins left of the root, where one term alone reaches 1; μ is measured from that term's
    # −down_k, otherwise an abundance of 1e-20 that has to grow would be lost in the rounding of μ.
    start, multiplier, shift = -1e300, 0.0, 0.0
    for k in range(p):
        share, numerator, denominator = float(a[k]), float(up[k]), float(down[k])
        if share > 0.0 and (numerator > 0.0 or not divergence):
            least = max(denominator, LEAST_DIVISOR)
            bound = share * numerator - denominator if divergence else numerator - least / share
            if bound > start:
                start = bound
                multiplier, shift = (share * numerator, denominator) if divergence else (bound, 0.0)
    if start == -1e300:
        return
    total = 0.0
    for _ in range(TURNS):
        total, slope = 0.0, 0.0
        for k in range(p):
            new, derivative = part_of_tile(multiplier, shift, float(a[k]), float(up[k]), float(down[k]), divergence)
            total += new
            slope += derivative
        if not total - 1.0 > 1e-12 or not slope < 0.0:
            break
        multiplier -= (total - 1.0) / slope
    for k in range(p):
        new, _ = part_of_tile(multiplier, shift, float(a[k]), float(up[k]), float(down[k]), divergence)
        a[k] = new / total


LOSSES = {"kl": True, "frobenius": False}


def padded_rank(n: int, to: int) -> int:
    """Return ``n`` rounded up to a multiple of ``to``."""
    return -(-n // to) * to
