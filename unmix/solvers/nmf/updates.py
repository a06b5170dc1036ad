"""What a step of non-negative matrix factorisation does to a pixel and to an entry: one source for CPU and GPU.

Pixels ``x ≈ E a``. With ``q = x / (E a)`` (Kullback-Leibler) or ``q = x`` (Frobenius) each abundance becomes
``a_k ← a_k (Eᵀq)_k / d_k``, with ``d = Eᵀ1`` or ``d = EᵀE a``; then, with a fresh quotient, E likewise from all pixels (Lee and
Seung 2001; paper 002, whose equation 2 has lost its quotient).
"""

from typing import Any

import numpy as np

from ...compiled.jit import compiled

# As in scikit-learn, with which we are compared: nothing is divided by less, float32's own rounding.
LEAST = 1.1920929e-07
# Below this an entry is zero.
VANISHED = 2.2e-16
# Of Newton's for the multiplier of the sum; it converges from one side, and quadratically.
TURNS = 60


@compiled
def renew(entry, numerator, denominator):
    """An entry after a step, in float32."""
    new = entry * (numerator / (denominator if denominator > np.float32(0.0) else np.float32(LEAST)))
    return new if new > np.float32(VANISHED) else np.float32(0.0)


@compiled
def part_of(multiplier, shift, a, up, down, divergence):
    """An abundance for a multiplier of the sum, less ``shift``, and its slope."""
    if divergence:
        grown, below = a * up, (down - shift) + multiplier
        return (grown / below, -grown / (below * below)) if grown > 0.0 else (0.0, 0.0)
    weight = a / max(down, LEAST)
    part = weight * (up - multiplier)
    return (part, -weight) if part > 0.0 else (0.0, 0.0)


@compiled
def on_simplex(a, up, down, divergence):
    """A pixel's abundances after a step that keeps Σa = 1: the minimum of the same majorant under the sum, by its multiplier μ.

    Kullback-Leibler: ``a_k ← a_k up_k / (down_k + μ)``; Frobenius: ``a_k ← a_k max(up_k − μ, 0) / down_k``. So the loss does not rise.
    Newton begins left of the root, where one term alone reaches 1; μ counts from that term's −down_k, or an abundance of 1e-20 that is
    to grow would be lost in its rounding. A pixel of zeros stays as it is.
    """
    p = a.shape[0]
    start, multiplier, shift = -1e300, 0.0, 0.0
    for k in range(p):
        own, rise, below = float(a[k]), float(up[k]), float(down[k])
        if own > 0.0 and (rise > 0.0 or not divergence):
            least = own * rise - below if divergence else rise - max(below, LEAST) / own
            if least > start:
                start = least
                multiplier, shift = (own * rise, below) if divergence else (least, 0.0)
    if start == -1e300:
        return
    total = 0.0
    for _ in range(TURNS):
        total, slope = 0.0, 0.0
        for k in range(p):
            part, fall = part_of(multiplier, shift, float(a[k]), float(up[k]), float(down[k]), divergence)
            total += part
            slope += fall
        if not total - 1.0 > 1e-12 or not slope < 0.0:
            break
        multiplier -= (total - 1.0) / slope
    for k in range(p):
        part, _ = part_of(multiplier, shift, float(a[k]), float(up[k]), float(down[k]), divergence)
        a[k] = part / total


LOSSES = {"kl": True, "frobenius": False}


def padded(n: int, to: int) -> int:
    """``n`` rounded up to a multiple."""
    return -(-n // to) * to


__all__: list[Any] = ["LEAST", "LOSSES", "VANISHED", "on_simplex", "padded", "renew"]
