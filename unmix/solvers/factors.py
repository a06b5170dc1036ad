"""What a step of non-negative matrix factorisation does to a pixel and to an entry: one source for CPU and GPU.

Pixels ``x ≈ E a``. With ``q = x / (E a)`` (Kullback-Leibler) or ``q = x`` (Frobenius) each abundance becomes
``a_k ← a_k (Eᵀq)_k / d_k``, with ``d = Eᵀ1`` or ``d = EᵀE a``; then, with a fresh quotient, E likewise from all pixels (Lee and
Seung 2001; paper 002, whose equation 2 has lost its quotient).
"""

from typing import Any

import numpy as np

from .jit import compiled

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
def total_at(multiplier, a, up, down, divergence):
    """Σa for a multiplier, and its slope, both of what `on_simplex` makes."""
    total, slope = 0.0, 0.0
    for k in range(a.shape[0]):
        grown = float(a[k]) * float(up[k])
        if grown > 0.0 or not divergence:
            if divergence:
                part = grown / (float(down[k]) + multiplier)
                total += part
                slope -= part / (float(down[k]) + multiplier)
            else:
                weight = float(a[k]) / max(float(down[k]), LEAST)
                part = weight * (float(up[k]) - multiplier)
                if part > 0.0:
                    total += part
                    slope -= weight
    return total, slope


@compiled
def on_simplex(a, up, down, divergence):
    """A pixel's abundances after a step that keeps Σa = 1: the minimum of the same majorant under the sum, by its multiplier μ.

    Kullback-Leibler: ``a_k ← a_k up_k / (down_k + μ)``; Frobenius: ``a_k ← a_k max(up_k − μ, 0) / down_k``. So the cost does not rise.
    A pixel of zeros stays as it is.
    """
    p = a.shape[0]
    multiplier, best = -1e300, 0.0
    for k in range(p):
        # Left of the root, where one term alone reaches 1.
        if a[k] > 0.0:
            grown = float(a[k]) * float(up[k])
            least = grown - float(down[k]) if divergence else float(up[k]) - max(float(down[k]), LEAST) / float(a[k])
            if (grown > 0.0 or not divergence) and least > multiplier:
                multiplier = least
            best = max(best, float(a[k]))
    if multiplier == -1e300:
        return
    for _ in range(TURNS):
        total, slope = total_at(multiplier, a, up, down, divergence)
        if not total - 1.0 > 1e-12 or not slope < 0.0:
            break
        multiplier -= (total - 1.0) / slope
    total, _ = total_at(multiplier, a, up, down, divergence)
    for k in range(p):
        if divergence:
            new = float(a[k]) * float(up[k]) / (float(down[k]) + multiplier) if a[k] > 0.0 and up[k] > 0.0 else 0.0
        else:
            new = float(a[k]) * max(float(up[k]) - multiplier, 0.0) / max(float(down[k]), LEAST)
        a[k] = new / total


LOSSES = {"kl": True, "frobenius": False}


def padded(n: int, to: int) -> int:
    """``n`` rounded up to a multiple."""
    return -(-n // to) * to


__all__: list[Any] = ["LEAST", "LOSSES", "VANISHED", "on_simplex", "padded", "renew"]
