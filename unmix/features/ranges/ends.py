"""The end of a quantity of a pixel: the optimum of ``½|y − E a|² − μ cᵀa`` at the misfit's limit, and its bound.

On a support the optimum is linear in μ, and its misfit in s = μ² with the slope ``κ/2``, κ = cᵀH c, H the inverse of
the support's Gram matrix: so the s at which the misfit is the limit is known, and right if the support there is the
same. Else the search goes on from there, between the nearest s on both sides (Markowitz 1952 follows the path from
support to support, which takes longer code). Another module proves the end (`unmix.features.ranges.proof`): a search
that goes wrong costs time, but no bound is wrong.

Where no ``(c − t w)ᵀa`` is above B, the fraction ``cᵀa / wᵀa`` is at most ``t + B / s``, s the least ``wᵀa``. The
fraction at an end is the next t (Dinkelbach 1967), until it does not change: B is then rounding.
"""

from typing import Any, NamedTuple

import numpy as np

from ...certificate import UNIT_ROUNDOFF
from ...compiled.jit import WIDE, compiled
from ...problem import Problem
from ...solvers.pixels.inverse_update import add_column
from ...solvers.pixels.scalar import FREE, PASSIVE, STEPS_PER_ENDMEMBER, Work, descend, lawson_hanson
from . import proof

_width = WIDE.width
_prove_tile = proof.prove_end_function(WIDE)
# The most supports of one search, and searches for one end of a fraction; the change of a fraction at which these end.
MOST_SUPPORTS, MOST_TURNS, LEAST_CHANGE = 100, 20, 1e-12
# By how much an end stays below the limit, as a share of the way from the best misfit and of the limit: rounding.
SHORT_OF_WAY, SHORT_OF_LIMIT = 1e-9, 1e-13
# How near to the limit a misfit is, as a share of that way, where the search ends.
LARGEST_MISS = 1e-10
# Growth of the misfit below this share of its terms is rounding: the quantity does not change.
NO_GROWTH = 1e-11
# By how much s grows where the quantity cannot change on the support at hand.
FURTHER = 16.0
# Corrections of an end by the residual of its bands; each gains as many digits as H has.
CORRECTIONS = 3
# How a search ends: at the limit; where the quantity cannot change further, below it; or nowhere, and another search
# has to.
REACHED, EXHAUSTED, LOST = 0, 1, 2
# The rows of ``ends``: μ, ρ, t, how the search ended; the quantity and the weights there, and of the best mixture.
MU, RHO, SHARE, HOW, VALUE, TOTAL, START, START_TOTAL = range(8)
ENDS = 8
# The ends of a quantity: its most, and its least, which is the most of its negative.
UPWARDS, DOWNWARDS = 0, 1


class SearchedEndmembers(NamedTuple):
    """P endmembers of L bands for the search, float64; with a sum, less their mean, and a constant band in G."""

    G: Any  # (P, P)
    norms: Any  # (P,)
    dual_tolerance: float
    sum_to_one: bool
    columns: Any  # (P, L)
    shift: Any  # (L,) the mean, zeros without a sum
    lift: float  # added to each Eᵀy by the constant band


class EndPixels(NamedTuple):
    """Some pixels, n, float64."""

    Y: Any  # (n, L)
    best: Any  # (n, P) their best mixtures
    misfits: Any  # (n,) ½|y − E a|² of these
    rho: Any  # (n,) the largest misfit of a mixture that fits


class EndScratch(NamedTuple):
    """Scratch of a thread, float64."""

    work: Work  # of the search
    first: Any  # (P, P) H of the best mixture's support
    support: Any  # (P,) int64, that support
    best: Any  # (P,) the best mixture
    y: Any  # (L,) the pixel, less ``shift``
    r: Any  # (L,) its residual
    F: Any  # (w, P) Eᵀy of the pixels of a tile
    d: Any  # (P,) the quantity, or c − t w
    signed: Any  # (2, P) the quantity and the weights with the sign of an end
    tile: Any  # of `proof`; what is given are ends
    least: Any  # (w,) by pixel: the least sum of weights


def as_searched(problem: Problem) -> SearchedEndmembers:
    """Return the endmembers of a problem."""
    shift = problem.shift if len(problem.shift) else np.zeros(len(problem.E))
    columns = np.ascontiguousarray(problem.E.T)
    return SearchedEndmembers(
        problem.G,
        problem.norms,
        problem.dual_tolerance,
        problem.constraint.sum_to_one,
        columns,
        shift,
        problem.height**2,
    )


def new_end_scratch(L: int, P: int) -> EndScratch:
    """Allocate the scratch for L bands and P endmembers."""
    work = Work(*np.empty((6, P)), *np.empty((3, P, P)), *np.zeros((2, P), np.int64))
    return EndScratch(
        work,
        np.empty((P, P)),
        np.zeros(P, np.int64),
        np.empty(P),
        *np.empty((2, L)),
        np.empty((_width, P)),
        np.empty(P),
        np.empty((2, P)),
        proof.new_scratch(L, P, ENDS),
        np.empty(_width),
    )


@compiled
def correlate(given, y, f):
    """Compute ``f = Eᵀy`` of a pixel (L,)."""
    for j in range(len(f)):
        total, column = given.lift, given.columns[j]
        for b in range(len(y)):
            total += column[b] * (y[b] - given.shift[b])
        f[j] = total


@compiled
def take_pixel(given, y, best, scratch):
    """Take a pixel and its best mixture; return the size of its support, −1 where that has no inverse."""
    k = 0
    for b in range(len(y)):
        scratch.y[b] = y[b] - given.shift[b]
    for j in range(len(best)):
        scratch.best[j] = best[j]
        if best[j] > 0.0:
            size = add_column(given.G, scratch.first, scratch.support, k, j, scratch.work.u)
            if size == k:
                return -1
            k = size
    return k


@compiled
def growth_of(given, scratch, k):
    """Return κ on a support of k, 0 where it is rounding, and the growth of the sum's multiplier with μ."""
    H, support, s = scratch.work.H, scratch.work.support, scratch.work.s
    growth, terms, along, ones = 0.0, 0.0, 0.0, 0.0
    for i in range(k):
        s[i], own = 0.0, scratch.d[support[i]]
        for m in range(k):
            part = H[i, m] * scratch.d[support[m]]
            s[i] += part
            ones += H[i, m]
            terms += abs(part * own)
        growth += s[i] * own
        along += s[i]
    multiplier = along / ones if given.sum_to_one and ones > 0.0 else 0.0
    growth -= multiplier * along
    return (growth if growth > NO_GROWTH * terms else 0.0), multiplier


@compiled
def misfit_of(given, scratch, k):
    """Compute the residual of the abundances on a support of k; return ½|r|²."""
    work, r = scratch.work, scratch.r
    for b in range(len(r)):
        r[b] = scratch.y[b]
    for i in range(k):
        a, column = work.a[work.support[i]], given.columns[work.support[i]]
        for b in range(len(r)):
            r[b] -= a * column[b]
    square = 0.0
    for b in range(len(r)):
        square += r[b] * r[b]
    return 0.5 * square


@compiled
def optimum_at(given, scratch, f, mu, k, scale):
    """Move from the optimum at hand, on a support of k, to that at μ, for ``f = Eᵀy``; return its size, −1 if lost."""
    work = scratch.work
    for j in range(len(f)):
        work.f[j] = f[j] + mu * scratch.d[j]
        if work.state[j] != PASSIVE:
            work.state[j] = FREE
    k, multiplier, _, _ = descend(given, work, k, -1)
    k, steps = lawson_hanson(given, work, k, multiplier, scale)
    return k if steps < STEPS_PER_ENDMEMBER * len(f) else -1  # else rounding drives it round in circles


@compiled
def correct_end(given, scratch, mu, k):
    """Correct the abundances of a support of k by the residual of the pixel's bands."""
    work = scratch.work
    for _ in range(CORRECTIONS):
        misfit_of(given, scratch, k)
        mean, missing, spread = 0.0, 1.0, 0.0
        for i in range(k):
            j, total = work.support[i], 0.0
            for b in range(len(scratch.r)):
                total += given.columns[j, b] * scratch.r[b]
            work.u[i] = total + mu * scratch.d[j]
            mean += work.u[i] / k
            missing -= work.a[j]
        for i in range(k):  # a constant changes nothing where the sum is held
            work.u[i] -= mean if given.sum_to_one else 0.0
        for i in range(k):
            work.x[i], work.s[i] = 0.0, 0.0
            for m in range(k):
                work.x[i] += work.H[i, m] * work.u[m]
                work.s[i] += work.H[i, m]
            missing -= work.x[i]
            spread += work.s[i]
        for i in range(k):
            share = missing / spread * work.s[i] if given.sum_to_one else 0.0
            work.a[work.support[i]] = max(work.a[work.support[i]] + work.x[i] + share, 0.0)


@compiled
def search_end(given, scratch, f, size, misfit, limit, bright):
    """Search the s = μ² where the misfit is the limit, from the best mixture; return how the search ends, and μ."""
    work, d, p = scratch.work, scratch.d, len(scratch.d)
    for j in range(p):
        work.a[j], work.state[j] = scratch.best[j], FREE
    for i in range(size):
        work.support[i], work.state[scratch.support[i]] = scratch.support[i], PASSIVE
        for m in range(size):
            work.H[i, m] = scratch.first[i, m]
    k, way, alone, largest = size, limit - misfit, 0.0, 0.0
    for j in range(p):
        alone, largest = max(alone, d[j] * d[j] / given.G[j, j]), max(largest, abs(d[j]))
    growth, _ = growth_of(given, scratch, k)
    growth = growth if growth > 0.0 else alone
    if not growth > 0.0 or size < 0:
        return (LOST if size < 0 else EXHAUSTED), 1.0
    near, far, s = 0.0, np.inf, 2.0 * way / growth
    for _ in range(MOST_SUPPORTS):
        k = optimum_at(given, scratch, f, s**0.5, k, bright + s**0.5 * alone**0.5)
        if k < 0:
            return LOST, 1.0
        off = limit - misfit_of(given, scratch, k)
        if abs(off) <= LARGEST_MISS * way or far - near <= 4.0 * UNIT_ROUNDOFF * s:
            correct_end(given, scratch, s**0.5, k)
            return REACHED, s**0.5
        near, far = (s, far) if off > 0.0 else (near, s)
        growth, multiplier = growth_of(given, scratch, k)
        beyond = s + 2.0 * off / growth if growth > 0.0 else FURTHER * s
        if growth == 0.0 and far == np.inf:
            rises = False
            for j in range(p):
                rises = rises or (work.state[j] != PASSIVE and d[j] - multiplier > NO_GROWTH * largest)
            if not rises:
                return EXHAUSTED, s**0.5
        s = beyond if near < beyond < far else (0.5 * (near + far) if far < np.inf else FURTHER * s)
    return LOST, 1.0


@compiled
def find_end(given, pixels, n, size, is_fraction, scratch, ends, s):
    """Find the end of pixel n in ``signed``; write its abundances and `ENDS` numbers into lane s of the tile."""
    (c, w), work, p = scratch.signed, scratch.work, len(scratch.best)
    first, divisor, bright = 0.0, 0.0, 0.0
    for j in range(p):
        first, divisor = first + c[j] * scratch.best[j], divisor + w[j] * scratch.best[j]
    for b in range(len(scratch.y)):
        bright += scratch.y[b] * scratch.y[b]
    misfit, rho = pixels.misfits[n], pixels.rho[n]
    limit = rho - (rho - misfit) * SHORT_OF_WAY - rho * SHORT_OF_LIMIT
    share = first / divisor if is_fraction and divisor != 0.0 else 0.0
    how, mu, value, whole = LOST, 1.0, 0.0, 0.0
    for turn in range(MOST_TURNS if is_fraction else 1):
        if turn > 0:
            change = value / whole - share if whole != 0.0 else 0.0
            if how == LOST or not abs(change) > LEAST_CHANGE:
                break
            share += change
        for j in range(p):
            scratch.d[j] = c[j] - share * w[j]
        how, mu = LOST, 1.0
        if limit > misfit:
            how, mu = search_end(given, scratch, scratch.F[s], size, misfit, limit, bright**0.5)
        total, value, whole = 0.0, 0.0, 0.0
        for j in range(p):
            total += work.a[j]
        for j in range(p):  # an ill-conditioned inverse misses the sum of one
            a = work.a[j] / total if given.sum_to_one and total > 0.0 else work.a[j]
            scratch.tile.X[j, s] = a if how != LOST else 0.0
            value, whole = value + c[j] * a, whole + w[j] * a
    ends[MU, s], ends[RHO, s], ends[SHARE, s], ends[HOW, s] = mu if how == REACHED else 1.0, rho, share, how
    ends[VALUE, s], ends[TOTAL, s], ends[START, s], ends[START_TOTAL, s] = value, whole, first, divisor


@compiled
def share_of_way(ends, found, s, misfit):
    """Return the share of the path from the best mixture on which mixtures fit, as misfits are convex; 0 if lost."""
    if ends[HOW, s] == LOST:
        return 0.0
    return (ends[RHO, s] - misfit) / (found[1, s] - misfit) if found[1, s] > ends[RHO, s] else 1.0


@compiled
def bound_of_sum(ends, found, s, misfit, most):
    """Return an upper bound of the quantity, at most ``most``, and the largest value that was found."""
    start = ends[START, s]
    proved = min(found[0, s] if ends[HOW, s] == REACHED else np.inf, most)
    end = start + max(share_of_way(ends, found, s, misfit) * (ends[VALUE, s] - start), 0.0)
    return proved, min(end, proved)


@compiled
def bound_of_fraction(ends, found, s, misfit, sign, least):
    """Bound a signed fraction, with a divisor of at least ``least``, as `bound_of_sum` does; NaN if the best's is 0."""
    t, start, divisor = ends[SHARE, s], ends[START, s], ends[START_TOTAL, s]
    if divisor == 0.0:
        return np.nan, np.nan
    best, share = start / divisor, share_of_way(ends, found, s, misfit)
    end = (start + share * (ends[VALUE, s] - start)) / (divisor + share * (ends[TOTAL, s] - divisor))
    # The weights have the sign too, so that t and the fractions at both mixtures have none.
    bound = np.inf
    if ends[HOW, s] == REACHED and least > 0.0:
        bound = sign * t + max(found[0, s], 0.0) / least + 4.0 * UNIT_ROUNDOFF * (1.0 + t)
    proved = min(max(bound, sign * best), 1.0 if sign > 0.0 else 0.0)
    return proved, min(max(sign * end, sign * best), proved)


@compiled
def bound_of_end(ends, found, s, misfit, is_fraction, sign, most, least):
    """Return `bound_of_fraction`, or else `bound_of_sum`."""
    if is_fraction:
        return bound_of_fraction(ends, found, s, misfit, sign, least)
    return bound_of_sum(ends, found, s, misfit, most)


@compiled
def bound_tile(given, mixtures, pixels, first, count, is_fraction, sign, most, scratch, proved, reached):
    """Bound the quantity of a tile that ``signed`` holds, or its fraction, as `bound_of_end` does."""
    tile = scratch.tile
    ends = tile.given
    for s in range(count):
        size = take_pixel(given, pixels.Y[first + s], pixels.best[first + s], scratch)
        find_end(given, pixels, first + s, size, is_fraction, scratch, ends, s)
    for s in range(count, _width):  # lanes without a pixel repeat the last one
        for j in range(tile.X.shape[0]):
            tile.X[j, s] = tile.X[j, count - 1]
        for row in range(ENDS):
            ends[row, s] = ends[row, count - 1]
    _prove_tile(mixtures, scratch.signed[0], scratch.signed[1], tile)
    for s in range(count):
        n = first + s
        proved[n], reached[n] = bound_of_end(
            ends, tile.found, s, pixels.misfits[n], is_fraction, sign, most, scratch.least[s]
        )


@compiled
def bound(given, mixtures, pixels, quantities, weights, most, scratch, found):
    """Write to ``found`` (2, 2, n, k) the proved, then the reached bounds of quantities c (k, P) of n pixels."""
    # weights, (P,) or (0,), are w of fractions; most, (k,), is the largest cᵀa of any mixture, whether it fits or not.
    # found's second axis is `UPWARDS`, then `DOWNWARDS` with the other sign.
    numbers, is_fraction = scratch.signed, len(weights) > 0
    for first in range(0, len(pixels.Y), _width):
        count = min(_width, len(pixels.Y) - first)
        for s in range(_width):
            for b in range(pixels.Y.shape[1]):
                scratch.tile.Y[b, s] = pixels.Y[first + min(s, count - 1), b]
            correlate(given, pixels.Y[first + min(s, count - 1)], scratch.F[s])
        if is_fraction:
            least, other = found[0, DOWNWARDS, :, 0], found[1, DOWNWARDS, :, 0]
            for j in range(len(weights)):
                numbers[0, j], numbers[1, j] = -weights[j], 0.0
            bound_tile(given, mixtures, pixels, first, count, False, 1.0, 0.0, scratch, least, other)
            for s in range(_width):
                scratch.least[s] = -least[first + min(s, count - 1)]
        for q in range(len(quantities)):
            for side in range(2):
                sign = 1.0 if side == UPWARDS else -1.0
                for j in range(quantities.shape[1]):
                    numbers[0, j] = sign * quantities[q, j] * (weights[j] if is_fraction else 1.0)
                    numbers[1, j] = sign * weights[j] if is_fraction else 0.0
                proved, reached = found[0, side, :, q], found[1, side, :, q]
                highest = most[q] if side == UPWARDS else 0.0
                bound_tile(given, mixtures, pixels, first, count, is_fraction, sign, highest, scratch, proved, reached)
