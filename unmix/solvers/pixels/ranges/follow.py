"""Follow the optima of ``½|y − E a|² − μ cᵀa`` from μ = 0, the best mixture, to the μ where the misfit reaches a limit.

On a support the optimum is linear in μ, until an abundance, or the dual of another endmember, is 0: the critical lines of Markowitz
(1952). The misfit grows by ``½κ`` for each unit of μ², κ = cᵀ da/dμ, so the end is found without a search.
Another module proves the end (`unmix.solvers.pixels.ranges.proof`): a path that goes wrong costs time, but no bound is wrong.

Columns have unit length here. A support's inverse is that of its Gram matrix, under a constraint on the sum bordered by the lengths.
"""

from typing import Any, NamedTuple

import numpy as np

from ....compiled.jit import compiled
from ....compiled.simd import WIDE, aligned_zeros
from ..rows import by_vectors, vectors_of

_load, _store, _fma, _select = WIDE.load, WIDE.store, WIDE.fma, WIDE.select
_broadcast, _any_lane, _width = WIDE.broadcast, WIDE.any_lane, WIDE.width
_lanes_of, _first_of, _largest_of = WIDE.lanes_of, WIDE.first_of, WIDE.largest_of

# The most endmembers of a support, and events on a path.
MOST_MEMBERS, MOST_EVENTS = 64, 400
# The squared share of an entering column that lies outside of the support's span, at least: below it the inverse loses its digits.
LEAST_PIVOT = 1e-9
# By how much the end of a path stays below the limit, as a share of the way from the best misfit and of the limit: rounding.
SHORT_OF_WAY, SHORT_OF_LIMIT = 1e-9, 1e-13
# Growth of the misfit, or of a dual, below this share of its terms is rounding: the quantity does not change.
NO_GROWTH = 1e-11
# Corrections of the end of a path by its residual; each gains as many digits as the inverse has.
CORRECTIONS = 3
# How a path ends: at the limit; where the quantity cannot change further, below it; or nowhere, and another search has to.
REACHED, EXHAUSTED, LOST = 0, 1, 2


class Lines(NamedTuple):
    """Constants that all pixels share; p endmembers, shade among them, in c vectors, float64."""

    U: Any  # (p c, w) the Gram matrix at unit length, as vectors
    unit: Any  # (L, p) the spectra at unit length
    spectra: Any  # (p c', w) the same, as c' vectors each
    norms: Any  # (p,)
    ones: Any  # (c, w) 1 / norms, the coefficients of the sum
    has_sum: int  # 1 where abundances, with shade, sum to one


class Scratch(NamedTuple):
    """Scratch of one pixel, float64; m = MOST_MEMBERS + 1 rows, the first that of the sum."""

    y: Any  # (2 c', w) the pixel, and its residual
    f: Any  # (c, w) Eᵀy at unit length
    c: Any  # (c, w) the quantity, of abundances at unit length
    outside: Any  # (c, w) 1 beside the support, 0 within and beyond the last endmember
    duals: Any  # (2 c, w) of all endmembers, and their change with μ
    best: Any  # (m, m) the inverse of the best mixture's support
    inverse: Any  # (m, m)
    column: Any  # (2, m)
    values: Any  # (2, m) abundances of the members, and their change; the multiplier first
    members: Any  # (2, m) int64: of the best mixture, and of the path; the first is unused


def lines_of(E: np.ndarray, has_sum: bool) -> Lines:
    """Return what pixels share for spectra (L, p), shade among them as a column of zeros."""
    norms = np.sqrt(np.square(E).sum(axis=0))
    norms[norms == 0.0] = norms.max()  # shade: any length will do
    unit = E / norms
    return Lines(
        by_vectors(unit.T @ unit), unit, by_vectors(unit.T), norms, by_vectors(1.0 / norms[None]), int(has_sum)
    )


def new_scratch(L: int, p: int) -> Scratch:
    """Allocate the scratch for L bands and p endmembers."""
    c, m = vectors_of(p), MOST_MEMBERS + 1
    vectors = (aligned_zeros(n, _width) for n in (2 * vectors_of(L), c, c, c, 2 * c))
    return Scratch(*vectors, *np.zeros((2, m, m)), *np.zeros((2, 2, m)), np.zeros((2, m), np.int64))


@compiled
def enter(lines, inverse, members, size, j, column):
    """Border the inverse of ``size`` rows by endmember j; return whether it is independent enough."""
    U, c = lines.U, lines.ones.shape[0]
    block, lane = j // _width, j % _width
    for i in range(size):
        column[0, i] = lines.ones[block, lane] if i == 0 else U[members[i] * c + block, lane]
    if size == 1 and lines.has_sum == 1:  # the border alone has no inverse
        one, square = column[0, 0], U[j * c + block, lane]
        inverse[0, 0], inverse[0, 1], inverse[1, 0], inverse[1, 1] = -square / one**2, 1.0 / one, 1.0 / one, 0.0
        members[1] = j
        return True
    pivot, first = U[j * c + block, lane], 1 - lines.has_sum
    for i in range(first, size):
        total = 0.0
        for k in range(first, size):
            total += inverse[i, k] * column[0, k]
        column[1, i] = total
        pivot -= total * column[0, i]
    if not pivot > LEAST_PIVOT:
        return False
    for i in range(first, size):
        share = column[1, i] / pivot
        for k in range(first, size):
            inverse[i, k] += share * column[1, k]
        inverse[i, size] = inverse[size, i] = -share
    inverse[size, size] = 1.0 / pivot
    members[size] = j
    return True


@compiled
def leave(lines, inverse, members, size, q):
    """Take row q out of the inverse of ``size`` rows; the last takes its place."""
    first, pivot = 1 - lines.has_sum, inverse[q, q]
    for i in range(first, size):
        if i != q:
            share = inverse[i, q] / pivot
            for k in range(first, size):
                if k != q:
                    inverse[i, k] -= share * inverse[q, k]
    last = size - 1
    for k in range(first, size):
        inverse[q, k] = inverse[last, k]
    for i in range(first, size):
        inverse[i, q] = inverse[i, last]
    members[q] = members[last]


@compiled
def begin(lines, scratch, a):
    """Find the inverse of the support of the abundances a (p,); return its rows, with that of the sum, and 0 if that failed."""
    size = 1
    for j in range(len(a)):
        if a[j] > 0.0:
            if size > MOST_MEMBERS or not enter(lines, scratch.best, scratch.members[0], size, j, scratch.column):
                return 0
            size += 1
    return size if size > 1 or lines.has_sum == 0 else 0


@compiled
def find_values(lines, scratch, members, size, mu):
    """Compute the members' abundances at μ and their change, and the same of the duals of all.

    Return the growth κ of the misfit: 0 where no member has to do with the quantity, −1 where all that it is is rounding.
    """
    c, first, inverse, values, column = (
        lines.ones.shape[0],
        1 - lines.has_sum,
        scratch.inverse,
        scratch.values,
        scratch.column,
    )
    for i in range(first, size):
        if i == 0:
            column[0, 0], column[1, 0] = 1.0, 0.0
        else:
            block, lane = members[i] // _width, members[i] % _width
            column[1, i] = scratch.c[block, lane]
            column[0, i] = scratch.f[block, lane] + mu * column[1, i]
    values[0, 0], values[1, 0] = 0.0, 0.0
    growth, terms = 0.0, 0.0
    for i in range(first, size, 2):  # two rows at a time: a sum waits for its last addition
        j = min(i + 1, size - 1)
        value0, change0, value1, change1, size0, size1 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for k in range(first, size):
            h0, h1, change = inverse[i, k], inverse[j, k], column[1, k]
            value0, value1 = value0 + h0 * column[0, k], value1 + h1 * column[0, k]
            change0, change1 = change0 + h0 * change, change1 + h1 * change
            size0, size1 = size0 + abs(h0 * change), size1 + abs(h1 * change)
        values[0, i], values[1, i], values[0, j], values[1, j] = value0, change0, value1, change1
        growth, terms = growth + change0 * column[1, i], terms + size0 * abs(column[1, i])
        if j > i:
            growth, terms = growth + change1 * column[1, j], terms + size1 * abs(column[1, j])
    for b in range(c):
        ones = _load(lines.ones, b)
        change = _load(scratch.c, b)
        value = _fma(_broadcast(mu), change, _load(scratch.f, b))
        value = _fma(_broadcast(-values[0, 0]), ones, value)
        change = _fma(_broadcast(-values[1, 0]), ones, change)
        for i in range(1, size):
            row = _load(lines.U, members[i] * c + b)
            value = _fma(_broadcast(-values[0, i]), row, value)
            change = _fma(_broadcast(-values[1, i]), row, change)
        _store(scratch.duals, b, value)
        _store(scratch.duals, c + b, change)
    return growth if growth > NO_GROWTH * terms else (-1.0 if terms > 0.0 else 0.0)


@compiled
def correct(lines, scratch, members, size, mu, growth, limit):
    """Correct the members' abundances by the residual of the pixel's bands, and μ so that the misfit is the limit; return μ."""
    c, first, values, column = scratch.y.shape[0] // 2, 1 - lines.has_sum, scratch.values, scratch.column
    for _ in range(CORRECTIONS):
        square = _broadcast(0.0)
        for b in range(c):
            r = _load(scratch.y, b)
            for i in range(1, size):
                r = _fma(_broadcast(-values[0, i]), _load(lines.spectra, members[i] * c + b), r)
            _store(scratch.y, c + b, r)
            square = _fma(r, r, square)
        misfit = 0.5 * sum_of(square, scratch.duals)
        for i in range(first, size):
            if i == 0:
                column[0, 0] = 1.0
                for k in range(1, size):
                    column[0, 0] -= values[0, k] * lines.ones[members[k] // _width, members[k] % _width]
                continue
            block, lane = members[i] // _width, members[i] % _width
            dual = _broadcast(0.0)
            for b in range(c):
                dual = _fma(_load(lines.spectra, members[i] * c + b), _load(scratch.y, c + b), dual)
            rest = sum_of(dual, scratch.duals) + mu * scratch.c[block, lane]
            column[0, i] = rest - values[0, 0] * lines.ones[block, lane]
        moved = np.sqrt(max(mu * mu + 2.0 * (limit - misfit) / growth, 0.0)) - mu
        for i in range(first, size):
            value = moved * values[1, i]
            for k in range(first, size):
                value += scratch.inverse[i, k] * column[0, k]
            values[0, i] += value
        mu += moved
    return mu


@compiled
def sum_of(vector, duals):
    """Return the sum of a vector's lanes; ``duals`` is scratch."""
    _store(duals, 0, vector)
    total = 0.0
    for lane in range(_width):
        total += duals[0, lane]
    return total


@compiled
def next_entering(lines, scratch):
    """Return how far μ may grow until a dual is 0, and whose it is; −1 for none. A rise that is rounding of its terms is none."""
    c, nothing, zero = scratch.outside.shape[0], _broadcast(-np.inf), _broadcast(0.0)
    change_of_sum = _broadcast(abs(scratch.values[1, 0]))
    best = nothing
    for b in range(c):
        value, change, own = _load(scratch.duals, b), _load(scratch.duals, c + b), _load(scratch.c, b)
        terms = _fma(change_of_sum, _load(lines.ones, b), _select(own < 0.0, zero - own, own))
        rises = (change > terms * NO_GROWTH) & (_load(scratch.outside, b) > 0.0)
        distance = _select(value > 0.0, zero, value) / _select(rises, change, _broadcast(1.0))
        distance = _select(rises, distance, nothing)  # minus how far
        _store(scratch.duals, b, distance)
        best = _select(distance > best, distance, best)
    if not _any_lane(best > -np.inf):
        return np.inf, -1
    largest = _largest_of(best)
    for b in range(c):
        lanes = _lanes_of(_load(scratch.duals, b) == _broadcast(largest))
        if lanes != 0:
            return -largest, b * _width + _first_of(lanes)
    return np.inf, -1


@compiled
def next_leaving(values, size):
    """Return how far μ may grow until an abundance is 0, and the row; −1 for none."""
    least, row = np.inf, -1
    for i in range(1, size):
        if values[1, i] < 0.0:
            distance = max(values[0, i], 0.0) / -values[1, i]
            if distance < least:
                least, row = distance, i
    return least, row


@compiled
def follow(lines, scratch, rows, misfit, limit):
    """Follow the path of one quantity; return how it ends, μ there, and the rows of its support."""
    members, inverse, has_sum = scratch.members[1], scratch.inverse, lines.has_sum
    for i in range(rows):
        members[i] = scratch.members[0, i]
        for k in range(rows):
            inverse[i, k] = scratch.best[i, k]
    for b in range(scratch.outside.shape[0]):
        _store(scratch.outside, b, _select(_load(lines.ones, b) > 0.0, _broadcast(1.0), _broadcast(0.0)))
    for i in range(1, rows):
        scratch.outside[members[i] // _width, members[i] % _width] = 0.0
    mu, left, size = 0.0, limit - misfit, rows
    for _ in range(MOST_EVENTS):
        growth = find_values(lines, scratch, members, size, mu)
        entering, j = next_entering(lines, scratch)
        leaving, q = next_leaving(scratch.values, size) if growth >= 0.0 else (np.inf, -1)
        distance = min(entering, leaving)
        if growth > 0.0:
            end = np.sqrt(mu * mu + 2.0 * left / growth)
            if end - mu <= distance:
                find_values(lines, scratch, members, size, end)
                return REACHED, correct(lines, scratch, members, size, end, growth, limit), size
            left -= 0.5 * growth * distance * (2.0 * mu + distance)
        if j < 0 and q < 0:
            return EXHAUSTED, mu, size
        mu += distance
        if leaving <= entering:
            if size <= 1 + has_sum:
                return LOST, mu, size
            scratch.outside[members[q] // _width, members[q] % _width] = 1.0
            leave(lines, inverse, members, size, q)
            size -= 1
        else:
            if size > MOST_MEMBERS or not enter(lines, inverse, members, size, j, scratch.column):
                return LOST, mu, size
            scratch.outside[j // _width, j % _width] = 0.0
            size += 1
    return LOST, mu, size
