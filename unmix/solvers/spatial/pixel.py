"""The quadratic programme of a pixel, solved from a start, and the pixel's share of the duality gap; for CPU and CUDA alike.

A pixel's programme is ``min ½ aᵀGa − hᵀa`` over a ≥ 0, and Σa = 1 if asked; h is ``Eᵀy`` less what neighbours charge.
"""

from typing import Any, NamedTuple

from ...compiled.jit import compiled
from ..pixels.inverse_update import add_column, remove_column
from ..pixels.scalar import FREE, PASSIVE, descend, lawson_hanson

# The most exchanges of dependent spectra in a pixel; the dual, relative to |e_j||y|, above which there is one (where supports nearly
# depend on each other rounding is larger than a search's tolerance); the smallest share in a mixture of others to leave by.
MOST_EXCHANGES, LEAST_EXCHANGED_DUAL, SMALLEST_SHARE = 8, 1e-9, 1e-9


class PixelProgramme(NamedTuple):
    """Data that all pixels share; float64 unless stated."""

    G: Any  # (p, p); with Σa = 1 plus a constant, which changes no optimum and makes all columns differ from 0
    gram: Any  # (p, p) = EᵀE
    norms: Any  # (p,) the roots of G's diagonal
    dual_tolerance: float  # a dual below this, relative to ``norms`` and a pixel's length, is zero
    sum_to_one: bool
    lengths: Any  # (p,) |e_j|
    ray: Any  # (p,) c > 0 with Gc > 0, along which all duals become feasible; with Σa = 1 the multiplier does that
    ray_duals: Any  # (p,) Gc
    dependent: (
        bool  # whether some spectra may be mixtures of others, so that a charge can make one take another's place
    )
    roundings: float  # the relative rounding of an entry of ``Eᵀy`` or of Ga


class PixelScratch(NamedTuple):
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
    for _ in range(MOST_EXCHANGES):
        if plan.dependent:
            k = anew(plan, work, k)
        k, multiplier, _, _ = descend(plan, work, k, -1)
        k, _ = lawson_hanson(plan, work, k, multiplier, scale)
        if not plan.dependent:
            break
        k = exchange_index(plan, work, k, scale)
        if work.x[0] == 0.0:
            break
    return k


@compiled
def anew(plan, work, k):
    """Compute the inverse on the support again, which has lost digits where spectra nearly depend on each other; returns its size."""
    kept = 0
    for i in range(k):
        j = work.support[i]
        more = add_column(plan.G, work.H, work.support, kept, j, work.u)
        if more == kept:
            work.a[j] = 0.0
            work.state[j] = FREE
        kept = more
    return kept


@compiled
def exchange_index(plan, work, k, scale):
    """Let the cheapest mixture of spectra that the support depends on take their place; returns k, and 0 in ``work.x[0]`` if none is.

    Along ``e_j − Σ u_i e_i = 0`` the fit stays and the cost falls by the dual of j, until an abundance of the support is 0.
    """
    k, multiplier, _, _ = descend(plan, work, anew(plan, work, k), -1)
    p, best, largest = work.f.shape[0], -1, 0.0
    for j in range(p):
        if work.state[j] == PASSIVE:
            continue
        dual = work.f[j] - multiplier
        for i in range(k):
            dual -= plan.G[j, work.support[i]] * work.a[work.support[i]]
        if dual > LEAST_EXCHANGED_DUAL * plan.norms[j] * scale and dual > largest:
            best, largest = j, dual
    work.x[0] = 0.0
    if best < 0:
        return k
    more = add_column(plan.G, work.H, work.support, k, best, work.u)
    if more > k:  # it does not depend on them
        work.a[best], work.x[0] = 0.0, 1.0
        work.state[best] = PASSIVE
        return more
    leaving, reach = -1, 0.0
    for i in range(k):
        if work.u[i] > SMALLEST_SHARE and (leaving < 0 or work.a[work.support[i]] < reach * work.u[i]):
            leaving, reach = i, work.a[work.support[i]] / work.u[i]
    if leaving < 0:
        return k
    for i in range(k):
        work.a[work.support[i]] = max(work.a[work.support[i]] - reach * work.u[i], 0.0)
    column = work.support[leaving]
    work.a[column], work.a[best] = 0.0, reach
    work.state[column] = FREE
    k = remove_column(work.H, work.support, k, leaving, work.u)
    more = add_column(plan.G, work.H, work.support, k, best, work.u)
    work.state[best] = PASSIVE if more > k else FREE
    work.x[0] = 1.0
    return more


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
