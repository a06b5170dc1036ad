"""The quadratic programme of a pixel, solved from a start, and the pixel's share of the duality gap; for CPU and CUDA alike.

A pixel's programme is ``min ½ aᵀGa − hᵀa`` over a ≥ 0, and Σa = 1 if asked; h is ``Eᵀy`` less what neighbours charge.
"""

from typing import Any, NamedTuple

from ...compiled.jit import compiled
from ..pixels.inverse_update import add_column, remove_column
from ..pixels.scalar import FREE, PASSIVE, descend, lawson_hanson


class Programme(NamedTuple):
    """Data that all pixels share; float64 unless stated."""

    G: Any  # (p, p); with Σa = 1 plus a constant, which changes no optimum and makes all columns differ from 0
    gram: Any  # (p, p) = EᵀE
    norms: Any  # (p,) the roots of G's diagonal
    dual_tolerance: float  # a dual below this, relative to ``norms`` and a pixel's length, is zero
    sum_to_one: bool
    lengths: Any  # (p,) |e_j|
    ray: Any  # (p,) c > 0 with Gc > 0, along which all duals become feasible; with Σa = 1 the multiplier does that
    ray_duals: Any  # (p,) Gc
    roundings: float  # the relative rounding of an entry of ``Eᵀy`` or of Ga


class Scratch(NamedTuple):
    """Scratch of one pixel; the support and its inverse serve as the next pixel's start."""

    f: Any  # (p,) h
    a: Any  # (p,)
    x: Any  # (p,)
    s: Any  # (p,)
    u: Any  # (p,)
    H: Any  # (p, p)
    support: Any  # (p,) int64
    state: Any  # (p,) int64


@compiled
def settle(plan, work, k, scale):
    """Solve a pixel's programme from the feasible start in ``work.a``; returns the size of its support.

    ``work.support[:k]`` and ``work.H`` are of any earlier pixel: neighbours' supports differ little.

    Parameters
    ----------
    plan : Programme
    work : Scratch
        ``f`` is h, ``a`` the start, which becomes the optimum.
    k : int
    scale : float
        Length of the pixel.
    """
    p = work.f.shape[0]
    for j in range(p):
        work.state[j] = FREE
    i = 0
    while i < k:
        if work.a[work.support[i]] > 0.0:
            work.state[work.support[i]] = PASSIVE
            i += 1
        else:
            k = remove_column(work.H, work.support, k, i, work.u)
    best = 0
    for j in range(p):
        if work.a[j] > 0.0 and work.state[j] == FREE:
            more = add_column(plan.G, work.H, work.support, k, j, work.u)
            if more > k:
                work.state[j] = PASSIVE
            else:
                work.a[j] = 0.0
            k = more
        if plan.G[j, j] - 2.0 * work.f[j] < plan.G[best, best] - 2.0 * work.f[best]:
            best = j
    if plan.sum_to_one and k == 0:
        work.a[best] = 1.0
        work.state[best] = PASSIVE
        k = add_column(plan.G, work.H, work.support, 0, best, work.u)
    k, multiplier, _, _ = descend(plan, work, k, -1)
    k, _ = lawson_hanson(plan, work, k, multiplier, scale)
    return k


@compiled
def gap_of_pixel(plan, h, x, a, scale):
    """Return by how much ``½ aᵀGa − hᵀa`` is at most above the pixel's minimum, rounding included.

    For nonnegative abundances any x with ``Gx − h ≥ 0`` bounds the minimum by ``−½ xᵀGx``, so x moves along the ray until that
    holds; with Σa = 1 the smallest dual μ does: the bound is ``μ − ½ xᵀGx``. The difference is
    ``½ (a − x)ᵀG(a − x) + aᵀ(Gx − h − μ)``, a sum of terms that are not negative.

    Parameters
    ----------
    plan : Programme
    h : array (p,)
    x : array (p,)
        The programme's optimum, as nearly as it is known; it is changed.
    a : array (p,)
        Feasible.
    scale : float
        ``|y|``.
    """
    p = h.shape[0]
    lowest, shift = 1e300, 0.0
    for j in range(p):
        dual, size = -h[j], abs(h[j])
        for i in range(p):
            dual += plan.gram[j, i] * x[i]
            size += abs(plan.gram[j, i] * x[i])
        rounding = plan.roundings * (size + plan.lengths[j] * scale)
        lowest = min(lowest, dual - rounding)
        if not plan.sum_to_one:
            shift = max(shift, (rounding - dual) / plan.ray_duals[j])
    multiplier = lowest if plan.sum_to_one else 0.0
    for j in range(p):
        x[j] += shift * plan.ray[j]
    gap = 0.0
    for j in range(p):
        dual, curved, size = -h[j] - multiplier, 0.0, abs(h[j])
        for i in range(p):
            dual += plan.gram[j, i] * x[i]
            curved += plan.gram[j, i] * (a[i] - x[i])
            size += abs(plan.gram[j, i] * x[i])
        rounding = plan.roundings * (size + plan.lengths[j] * scale)
        gap += 0.5 * (a[j] - x[j]) * curved + a[j] * (max(dual, 0.0) + rounding)
    return max(gap, 0.0)
