"""Every breakpoint of sparse regression over a ≥ 0, in double-double: from the λ where all abundances are 0 down to λ = 0.

On a support the optimum is ``a = u − λ v`` with ``u = (EᵀE)⁻¹Eᵀy`` and ``v = (EᵀE)⁻¹w``, until an abundance or the dual of another
endmember becomes 0 (Osborne, Presnell and Turlach 2000). Where several do at one λ, their order is a problem of its own: as λ falls by
t the abundances become ``a + t d``, where d minimises ``½ |E d|² − wᵀd`` over the endmembers whose dual is 0, non-negative where a is
0. With 106 bits a tie is told from two breakpoints that are near each other, also of spectra that are alike to 1e-8.
"""

from typing import Any, NamedTuple

import numpy as np

from ...compiled.double_double import OPERATION_ROUNDING, add_double, divide, less_product, product_function
from ...compiled.jit import WIDE, compiled
from .active_set_extended import back_substitute, find_duals, solve_extended
from .scalar import BARRED, FREE, PASSIVE

# Squared share of a dependent column outside the support's span, at most: 1e6 roundings of a pivot.
DEPENDENT_COLUMN = 1e-24
# Below this share of the first λ a breakpoint is λ = 0; an abundance below this share of the terms that it is a difference of is 0.
NOTHING_LEFT = 1e-22
# Duals count as zero up to this many times the bound of their rounding.
CUSHION = 16.0


class Ray(NamedTuple):
    """Scratch of one path, float64 but the last; pairs are double-doubles."""

    w: Any  # (p,) the weights of the penalty
    a: Any  # (p, 2) abundances at the present λ
    d: Any  # (p, 2) their change as λ falls, 0 outside of the support
    slopes: Any  # (2, p) the change of the duals as λ falls, first and second halves
    tied: Any  # (p,) uint8: 1 where abundance and dual are both 0


def products_of_library(E: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return Eᵀy in double-double, (p, 2), for endmembers (L, p) and a pixel (L,)."""
    Y = np.zeros((len(y), WIDE.width))
    Y[:, 0] = y
    high, low = np.empty((2, E.shape[1], WIDE.width))
    product_function()(E, Y, high, low)
    return np.column_stack([high[:, 0], low[:, 0]])


@compiled
def find_slopes(exact, ray):
    """Compute ``ray.slopes = w − EᵀE d``; return the bound of their rounding over |e_j|, less w's."""
    high, low = ray.slopes
    p, reach = high.shape[0], 0.0
    for j in range(p):
        high[j], low[j] = ray.w[j], 0.0
        reach += exact.norms[j] * abs(ray.d[j, 0])
    for m in range(p):
        if ray.d[m, 0] != 0.0:
            for j in range(p):
                high[j], low[j] = less_product(
                    high[j], low[j], exact.high[m, j], exact.low[m, j], ray.d[m, 0], ray.d[m, 1]
                )
    return reach


@compiled
def solve_both(exact, work, ray):
    """Solve u and v on the passive columns, into ``work.x`` and ``work.s``; return their number, or −1 if they depend on each other."""
    k = solve_extended(exact, work)
    for i in range(k):
        j = work.support[i]
        if not work.T[i, i, 0] ** 2 > DEPENDENT_COLUMN * exact.high[j, j]:
            return -1
        work.s[j, 0], work.s[j, 1] = ray.w[j], 0.0
    back_substitute(work.T, work.s, work.support, k)
    return k


@compiled
def keep_direction(work, ray, k):
    """Move ``ray.d`` towards ``work.s``, as far as tied columns stay non-negative; return the column that stops it, or −1."""
    leaving, reach = -1, 1.0
    largest = 0.0
    for i in range(k):
        largest = max(largest, abs(work.s[work.support[i], 0]))
    for i in range(k):
        j = work.support[i]
        if ray.tied[j] and work.s[j, 0] <= NOTHING_LEFT * largest:
            distance = ray.d[j, 0] - work.s[j, 0]
            share = ray.d[j, 0] / distance if distance > 0.0 else 0.0
            if leaving < 0 or share < reach:
                leaving, reach = j, share
    for i in range(k):
        j = work.support[i]
        if leaving < 0:
            ray.d[j, 0], ray.d[j, 1] = work.s[j, 0], work.s[j, 1]
        else:
            ray.d[j, 0] += reach * (work.s[j, 0] - ray.d[j, 0])
            ray.d[j, 1] = 0.0
    return leaving


@compiled
def choose_direction(exact, work, ray, unit):
    """Find the support below a breakpoint, and leave u, v and the slopes of duals there; returns the support's size, or −1.

    ``ray.a`` and ``ray.tied`` are of the breakpoint. Lawson-Hanson over the tied columns, those in use being free.
    """
    p = ray.w.shape[0]
    for j in range(p):
        ray.d[j, 0], ray.d[j, 1] = 0.0, 0.0
        work.state[j] = PASSIVE if ray.a[j, 0] > 0.0 else FREE
    k = solve_both(exact, work, ray)
    keep_direction(work, ray, k)
    steps = 0
    while k >= 0 and steps < 12 * p + 40:
        reach = find_slopes(exact, ray)
        entered, largest = -1, 0.0
        for j in range(p):
            rate = ray.slopes[0, j] / exact.norms[j]
            noise = CUSHION * unit * (ray.w[j] / exact.norms[j] + reach)
            if ray.tied[j] and work.state[j] == FREE and rate > noise and rate > largest:
                entered, largest = j, rate
        if entered < 0:
            return k
        steps += 1
        work.state[entered] = PASSIVE
        k = solve_both(exact, work, ray)
        if k < 0:
            work.state[entered] = BARRED
            k = solve_both(exact, work, ray)
            continue
        for j in range(p):
            if work.state[j] == BARRED:
                work.state[j] = FREE
        leaving = keep_direction(work, ray, k)
        while leaving >= 0:
            steps += 1
            work.state[leaving] = FREE
            ray.d[leaving, 0], ray.d[leaving, 1] = 0.0, 0.0
            k = solve_both(exact, work, ray)
            leaving = keep_direction(work, ray, k)
    return -1


@compiled
def fall(exact, work, ray, k, high, low, first, size, unit):
    """Lower λ (``high + low``) to the next breakpoint; return it, with the abundances and ties there in ``ray``.

    ``k`` is the size of the support, ``first`` the λ that the path began with, ``size`` is |y|.
    """
    p = ray.w.shape[0]
    shortest, event = first, -1
    reach = find_duals(exact, work, k)  # f − EᵀE u
    lean = find_slopes(exact, ray)
    step_high, step_low = high, low
    for j in range(p):
        passive = work.state[j] == PASSIVE
        if passive:
            rate_high, rate_low = -ray.d[j, 0], -ray.d[j, 1]
            value_high, value_low = ray.a[j, 0], ray.a[j, 1]
            falls = rate_high > 0.0 and value_high > 0.0
        else:
            rate_high, rate_low = ray.slopes[0, j], ray.slopes[1, j]
            value_high, value_low = less_product(work.w[0, j], work.w[1, j], high, low, rate_high, rate_low)
            value_high, value_low = -value_high, -value_low
            noise = CUSHION * unit * (ray.w[j] + exact.norms[j] * lean)
            falls = not ray.tied[j] and rate_high > noise
        if falls:
            at_high, at_low = divide(value_high, value_low, rate_high, rate_low)
            if at_high < shortest:
                shortest, event, step_high, step_low = at_high, j, at_high, at_low
    high, low = add_double(high, low, -step_high, -step_low)
    if event < 0 or not high > NOTHING_LEFT * first:
        high, low, event = 0.0, 0.0, -1
    largest = 0.0
    for j in range(p):
        largest = max(largest, abs(work.x[j, 0]) + high * abs(ray.d[j, 0]))
    for j in range(p):
        passive = work.state[j] == PASSIVE
        ray.tied[j] = 0
        if passive:
            ray.a[j, 0], ray.a[j, 1] = less_product(work.x[j, 0], work.x[j, 1], high, low, ray.d[j, 0], ray.d[j, 1])
        if not passive or j == event or ray.a[j, 0] <= NOTHING_LEFT * largest:
            ray.a[j, 0], ray.a[j, 1] = 0.0, 0.0
            dual, _ = less_product(work.w[0, j], work.w[1, j], high, low, ray.slopes[0, j], ray.slopes[1, j])
            noise = unit * (size + reach + high * (ray.w[j] / exact.norms[j] + lean))
            ray.tied[j] = passive or j == event or dual >= -CUSHION * noise * exact.norms[j]
    return high, low


@compiled
def breakpoints_of_pixel(exact, work, ray, size, lambdas, abundances):
    """Fill in the breakpoints of a path, λ descending, and the abundances there; return their number.

    Parameters
    ----------
    exact : unmix.solvers.pixels.active_set_extended.Exact
        Without the sum to one.
    work : unmix.solvers.pixels.active_set_extended.ExtendedWork
        ``f`` is Eᵀy.
    ray : Ray
        ``w`` are weights, above 0.
    size : float
        |y|.
    lambdas, abundances : arrays (most,) and (most, p), float64
        Two breakpoints with the same λ in float64 are one.

    Returns
    -------
    int
        −1 where there are more than fit, or the support became dependent.
    """
    L, p = exact.E.shape
    unit = (float(L * L) + 16.0 * (p + 4.0)) * OPERATION_ROUNDING
    high, low = 0.0, 0.0
    for j in range(p):
        ray.a[j, 0], ray.a[j, 1] = 0.0, 0.0
        at_high, at_low = divide(work.f[j, 0], work.f[j, 1], ray.w[j], 0.0)
        if at_high > high or (at_high == high and at_low > low):
            high, low = at_high, at_low
    first, count = high, 1
    lambdas[0] = high
    for j in range(p):
        abundances[0, j] = 0.0
        dual, _ = less_product(work.f[j, 0], work.f[j, 1], high, low, ray.w[j], 0.0)
        ray.tied[j] = dual >= -CUSHION * unit * (size * exact.norms[j] + high * ray.w[j])
    while high > 0.0:
        k = choose_direction(exact, work, ray, unit)
        if k < 0:
            return -1
        high, low = fall(exact, work, ray, k, high, low, first, size, unit)
        if high < lambdas[count - 1]:
            count += 1
        if count > lambdas.shape[0]:
            return -1
        lambdas[count - 1] = high
        for j in range(p):
            abundances[count - 1, j] = ray.a[j, 0]
    return count
