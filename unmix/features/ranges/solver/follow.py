"""Follow the optima of ``½|y − E a|² − μ cᵀa`` from μ = 0, the best mixture, to the μ where the misfit reaches a limit.

On a support the optimum is linear in μ, until an abundance, or the dual of another endmember, is 0: the critical lines of Markowitz
(1952). The misfit grows by ``½κ`` for each unit of μ², κ = cᵀ da/dμ, so the end is found without a search.
Another module proves the end (`unmix.features.ranges.solver.proof`): a path that goes wrong costs time, but no bound is wrong.

Columns have unit length here. A support's inverse is that of its Gram matrix, under a constraint on the sum bordered by the lengths.
A vector (`unmix.compiled.jit`) holds numbers of one pixel: of endmembers, bands or rows of the inverse. The same code serves a thread
of a CPU and a warp of a GPU.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numba import uint32

from ....compiled.jit import Team, Width, aligned_zeros
from .correlations import by_vectors, vectors_of
from .support import places_of, update_functions

# The most endmembers of a support, and events on a path.
MOST_MEMBERS, MOST_EVENTS = 64, 400
# By how much the end of a path stays below the limit, as a share of the way from the best misfit and of the limit: rounding.
SHORT_OF_WAY, SHORT_OF_LIMIT = 1e-9, 1e-13
# Growth of the misfit, or of a dual, below this share of its terms is rounding: the quantity does not change.
NO_GROWTH = 1e-11
# Corrections of the end of a path by its residual; each gains as many digits as the inverse has.
CORRECTIONS = 3
# An abundance below 0 by this share of the largest leaves the support of the end, and the most that do: events, no rounding,
# that the values missed before they were corrected.
LEAST_NEGATIVE, MOST_LATE = 1e-9, 4
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


class PathScratch(NamedTuple):
    """Scratch of one pixel, float64; m = MOST_MEMBERS + 1 rows of the inverse, the first that of the sum, in d vectors."""

    y: Any  # (2 c', w) the pixel, and its residual
    f: Any  # (c, w) Eᵀy at unit length; after `Path.begin` the duals of the best mixture
    best: Any  # (c, w) the best mixture
    c: Any  # (c, w) the quantity, of abundances at unit length
    outside: Any  # (c, w) 1 beside the support, 0 within and beyond the last endmember
    duals: Any  # (3 c, w) of all endmembers, their change with μ, and how far μ may grow
    first: Any  # (m d, w) the inverse of the best mixture's support
    inverse: Any  # (m d, w); entries of a vector beyond the support are 0
    column: Any  # (2 d, w)
    values: Any  # (2 d, w) abundances of the members, and their change; the multiplier first
    members: Any  # (2, m) int64: of the best mixture, and of the path; the first is unused


def lines_of(E: np.ndarray, has_sum: bool, width: int) -> Lines:
    """Return what pixels share for spectra (L, p), shade among them as a column of zeros, by vectors of ``width``."""
    norms = np.sqrt(np.square(E).sum(axis=0))
    norms[norms == 0.0] = norms.max()  # shade: any length will do
    unit = E / norms
    gram, spectra, ones = (by_vectors(M, width) for M in (unit.T @ unit, unit.T, 1.0 / norms[None]))
    return Lines(gram, unit, spectra, norms, ones, int(has_sum))


def scratch_rows(L: int, p: int, width: int) -> tuple[int, ...]:
    """Return the vectors of each array of `PathScratch`, for L bands and p endmembers; the last is an array of (2, m)."""
    c, m = vectors_of(p, width), MOST_MEMBERS + 1
    d = vectors_of(m, width)
    return 2 * vectors_of(L, width), c, c, c, c, 3 * c, m * d, m * d, 2 * d, 2 * d


def new_scratch(L: int, p: int, width: int) -> PathScratch:
    """Allocate the scratch for L bands and p endmembers."""
    vectors = (aligned_zeros(rows, width) for rows in scratch_rows(L, p, width))
    return PathScratch(*vectors, np.zeros((2, MOST_MEMBERS + 1), np.int64))


@functools.cache
def changes_function(ops: Width, team: Team) -> Any:
    """Return ``find_changes(lines, scratch, members, size)``.

    It computes by how much the members' abundances and the duals of all change with μ, and returns the growth κ of the misfit: 0 where
    no member has to do with the quantity, −1 where all that it is is rounding.
    """
    load, store, fma, select, broadcast, total = ops.load, ops.store, ops.fma, ops.select, ops.broadcast, ops.total
    (get, put, count), rank, ranks, sync, width = places_of(ops), team.rank, team.size, team.sync, ops.width

    @ops.compile
    def find_changes(lines, scratch, members, size):
        c, zero = lines.ones.shape[0], broadcast(0.0)
        column, values, duals = scratch.column, scratch.values, scratch.duals
        d = column.shape[0] // 2
        for i in range(rank(), count(size) * width, ranks()):
            put(column, i, get(scratch.c, members[uint32(i)]) if 0 < i < size else 0.0)
        sync()
        growths, sizes = zero, zero
        for b in range(count(size)):
            change, most = zero, zero
            for k in range(1, size):
                h, own = load(scratch.inverse, k * d + b), get(column, k)
                change = fma(broadcast(own), h, change)
                most = fma(broadcast(abs(own)), select(h < 0.0, zero - h, h), most)
            store(values, d + b, change)
            own = load(column, b)
            growths, sizes = fma(change, own, growths), fma(most, select(own < 0.0, zero - own, own), sizes)
        growth, terms = total(growths), total(sizes)
        sync()
        for b in range(0, c, 2):
            e = min(b + 1, c - 1)
            share = broadcast(-get(values, d * width))
            change0, change1 = (
                fma(share, load(lines.ones, b), load(scratch.c, b)),
                fma(share, load(lines.ones, e), load(scratch.c, e)),
            )
            for i in range(1, size):
                share, row = broadcast(-get(values, d * width + i)), members[uint32(i)] * c
                change0, change1 = (
                    fma(share, load(lines.U, row + b), change0),
                    fma(share, load(lines.U, row + e), change1),
                )
            store(duals, c + b, change0)
            store(duals, c + e, change1)
        return growth if growth > NO_GROWTH * terms else (-1.0 if terms > 0.0 else 0.0)

    return find_changes


@functools.cache
def correct_function(ops: Width, team: Team) -> Any:
    """Return ``correct(lines, scratch, members, size, mu, growth, limit)``.

    It corrects the members' abundances by the residual of the pixel's bands, and μ so that the misfit is the limit, and returns μ.
    """
    load, store, fma, broadcast, total = ops.load, ops.store, ops.fma, ops.broadcast, ops.total
    (get, put, count), rank, sync = places_of(ops), team.rank, team.sync

    @ops.compile
    def correct(lines, scratch, members, size, mu, growth, limit):
        c, values, column = scratch.y.shape[0] // 2, scratch.values, scratch.column
        d = column.shape[0] // 2
        for _ in range(CORRECTIONS):
            square = broadcast(0.0)
            for b in range(c):
                r = load(scratch.y, b)
                for i in range(1, size):
                    r = fma(broadcast(-get(values, i)), load(lines.spectra, members[uint32(i)] * c + b), r)
                store(scratch.y, c + b, r)
                square = fma(r, r, square)
            misfit = 0.5 * total(square)
            rest = 1.0 if lines.has_sum == 1 else 0.0
            for i in range(1, size):
                one = get(lines.ones, members[uint32(i)])
                rest -= get(values, i) * one if lines.has_sum == 1 else 0.0
                dual = broadcast(0.0)
                for b in range(c):
                    dual = fma(load(lines.spectra, members[uint32(i)] * c + b), load(scratch.y, c + b), dual)
                left = total(dual) + mu * get(scratch.c, members[uint32(i)]) - get(values, 0) * one
                if rank() == 0:
                    put(column, i, left)
            if rank() == 0:
                put(column, 0, rest)
            sync()
            moved = math.sqrt(max(mu * mu + 2.0 * (limit - misfit) / growth, 0.0)) - mu
            for b in range(count(size)):
                value = fma(broadcast(moved), load(values, d + b), load(values, b))
                for k in range(size):
                    value = fma(broadcast(get(column, k)), load(scratch.inverse, k * d + b), value)
                store(values, b, value)
            sync()
            mu += moved
        return mu

    return correct


@functools.cache
def event_functions(ops: Width, team: Team) -> tuple[Any, Any, Any]:
    """Return ``next_entering(lines, scratch)``, ``next_leaving(values, size)`` and ``negative(values, size)``.

    The first two return how far μ may grow until a dual, or an abundance, is 0, and whose it is, an endmember or a row; −1 for none.
    The third returns the row of an abundance that should have left, or −1.
    """
    load, store, fma, select, broadcast = ops.load, ops.store, ops.fma, ops.select, ops.broadcast
    any_lane, lanes_of, first_of, largest_of = ops.any_lane, ops.lanes_of, ops.first_of, ops.largest_of
    get, rank, ranks, sync, best_of, width = places_of(ops).get, team.rank, team.size, team.sync, team.best, ops.width

    @ops.compile
    def next_entering(lines, scratch):
        """A rise that is rounding of its terms is none."""
        c, nothing, zero = scratch.outside.shape[0], broadcast(-np.inf), broadcast(0.0)
        change_of_sum = broadcast(abs(get(scratch.values, scratch.values.shape[0] // 2 * width)))
        best = nothing
        for b in range(c):
            value, change, own = load(scratch.duals, b), load(scratch.duals, c + b), load(scratch.c, b)
            terms = fma(change_of_sum, load(lines.ones, b), select(own < 0.0, zero - own, own))
            rises = (change > terms * NO_GROWTH) & (load(scratch.outside, b) > 0.0)
            distance = select(value > 0.0, zero, value) / select(rises, change, broadcast(1.0))
            distance = select(rises, distance, nothing)  # minus how far
            store(scratch.duals, 2 * c + b, distance)
            best = select(distance > best, distance, best)
        if not any_lane(best > -np.inf):
            return np.inf, -1
        largest = largest_of(best)
        for b in range(c):
            lanes = lanes_of(load(scratch.duals, 2 * c + b) == broadcast(largest))
            if lanes != 0:
                return -largest, b * width + first_of(lanes)
        return np.inf, -1

    @ops.compile
    def next_leaving(values, size):
        best, row, d = -np.inf, -1, values.shape[0] // 2
        for i in range(1 + rank(), size, ranks()):
            change = get(values, d * width + i)
            if change < 0.0:
                distance = max(get(values, i), 0.0) / change  # minus how far
                if distance > best:
                    best, row = distance, i
        row, distance = best_of(best, row, values), np.inf
        if row >= 0:
            distance = max(get(values, row), 0.0) / -get(values, d * width + row)
        sync()
        return distance, row

    @ops.compile
    def negative(values, size):
        most, least, high, low = -np.inf, -np.inf, -1, -1
        for i in range(1 + rank(), size, ranks()):
            value = get(values, i)
            if value > most:
                most, high = value, i
            if -value > least:
                least, low = -value, i
        high, low = best_of(most, high, values), best_of(least, low, values)
        leaves = low >= 0 and get(values, low) < -LEAST_NEGATIVE * get(values, high)
        sync()
        return low if leaves else -1

    return next_entering, next_leaving, negative


class FollowedPath(NamedTuple):
    """The functions of a path."""

    begin: Any  # (lines, scratch) from the best mixture: the rows of its support, with that of the sum, and 0 if it has no inverse
    follow: Any  # (lines, scratch, rows, misfit, limit) how the path ends, μ there, and the rows of its support


@functools.cache
def start_functions(ops: Width, team: Team) -> tuple[Any, Any]:
    """Return ``begin(lines, scratch)``, as `FollowedPath` has it, and ``start(lines, scratch, rows)``, which begins a path there."""
    load, store, fma, select, broadcast, sum_up = ops.load, ops.store, ops.fma, ops.select, ops.broadcast, team.total
    (get, put, count), rank, ranks, sync, width = places_of(ops), team.rank, team.size, team.sync, ops.width
    enter, _ = update_functions(ops, team)

    @ops.compile
    def find_duals(lines, scratch, rows):
        """Compute the best mixture's duals from ``f``; those of its support are 0 but for rounding."""
        c, f, members = lines.ones.shape[0], scratch.f, scratch.members[0]
        for b in range(c):
            dual = load(f, b)
            for i in range(1, rows):
                share = -get(scratch.best, members[uint32(i)]) * lines.norms[uint32(members[uint32(i)])]
                dual = fma(broadcast(share), load(lines.U, members[uint32(i)] * c + b), dual)
            store(f, b, dual)
        sync()

    @ops.compile
    def begin(lines, scratch):
        size = 1
        store(scratch.first, 0, broadcast(0.0))
        for j in range(scratch.best.shape[0] * width):
            if get(scratch.best, j) > 0.0:
                if size > MOST_MEMBERS or not enter(lines, scratch.first, scratch.members[0], size, j, scratch.column):
                    return 0
                size += 1
        find_duals(lines, scratch, size)
        return size if size > 1 or lines.has_sum == 0 else 0

    @ops.compile
    def start(lines, scratch, rows):
        c, d, members, values = lines.ones.shape[0], scratch.column.shape[0] // 2, scratch.members, scratch.values
        for i in range(rows):
            for b in range(i * d, i * d + count(rows)):
                store(scratch.inverse, b, load(scratch.first, b))
        for b in range(c):
            store(scratch.outside, b, select(load(lines.ones, b) > 0.0, broadcast(1.0), broadcast(0.0)))
        sync()
        slopes, squares = 0.0, 0.0
        for i in range(1 + rank(), rows, ranks()):
            j = members[0, i]
            members[1, i] = j
            put(scratch.outside, j, 0.0)
            put(values, i, get(scratch.best, j) * lines.norms[uint32(j)])
            one = get(lines.ones, j)
            slopes, squares = slopes + get(scratch.f, j) * one, squares + one * one
        multiplier = 0.0  # of the sum: the duals of the support are its multiples
        if lines.has_sum == 1:
            multiplier = sum_up(slopes, values) / sum_up(squares, values)
        if rank() == 0:
            put(values, 0, multiplier)
        for b in range(c):
            store(scratch.duals, b, fma(broadcast(-multiplier), load(lines.ones, b), load(scratch.f, b)))
        sync()

    return begin, start


@functools.cache
def path_functions(ops: Width, team: Team) -> FollowedPath:
    """Return the functions that follow the path of one quantity."""
    load, store, fma, broadcast = ops.load, ops.store, ops.fma, ops.broadcast
    (get, put, count), rank, sync = places_of(ops), team.rank, team.sync
    (enter, leave), find_changes, correct = (
        update_functions(ops, team),
        changes_function(ops, team),
        correct_function(ops, team),
    )
    (next_entering, next_leaving, negative), (begin, start) = event_functions(ops, team), start_functions(ops, team)

    @ops.compile
    def advance(scratch, size, distance):
        """Let μ grow."""
        c, d, step = scratch.duals.shape[0] // 3, scratch.values.shape[0] // 2, broadcast(distance)
        for b in range(c):
            store(scratch.duals, b, fma(step, load(scratch.duals, c + b), load(scratch.duals, b)))
        for b in range(count(size)):
            store(scratch.values, b, fma(step, load(scratch.values, d + b), load(scratch.values, b)))
        sync()

    @ops.compile
    def take_out(scratch, members, size, q):
        """Take row q out of the support of ``size`` rows; its dual is 0."""
        if rank() == 0:
            put(scratch.outside, members[uint32(q)], 1.0)
            put(scratch.duals, members[uint32(q)], 0.0)
            put(scratch.values, q, get(scratch.values, size - 1))
        sync()
        leave(scratch.inverse, members, size, q, scratch.column)

    @ops.compile
    def follow(lines, scratch, rows, misfit, limit):
        """The end is near where the values say; from there on they are corrected, and what should have left does."""
        members, has_sum = scratch.members[1], lines.has_sum
        start(lines, scratch, rows)
        mu, left, size, late = 0.0, limit - misfit, rows, 0
        for _ in range(MOST_EVENTS):
            growth, distance = find_changes(lines, scratch, members, size), 0.0
            j, q = -1, -1
            if late == 0:
                entering, j = next_entering(lines, scratch)
                leaving, q = next_leaving(scratch.values, size) if growth >= 0.0 else (np.inf, -1)
                distance = min(entering, leaving)
                q = q if leaving <= entering else -1
                end = math.sqrt(max(mu * mu + 2.0 * left / growth, 0.0)) if growth > 0.0 else np.inf
                if end - mu <= distance:
                    late, distance = 1, end - mu
                if distance == np.inf:
                    return EXHAUSTED, mu, size
                left -= 0.5 * growth * distance * (2.0 * mu + distance) if growth > 0.0 else 0.0
                mu += distance
                advance(scratch, size, distance)
            if late > 0:
                if not growth > 0.0:
                    return LOST, mu, size
                mu = correct(lines, scratch, members, size, mu, growth, limit)
                q = negative(scratch.values, size)
                if q < 0 or size <= 1 + has_sum or late > MOST_LATE:
                    return REACHED, mu, size
                late += 1
            if q >= 0:
                if size <= 1 + has_sum:
                    return LOST, mu, size
                take_out(scratch, members, size, q)
                size -= 1
            else:
                if size > MOST_MEMBERS or not enter(lines, scratch.inverse, members, size, j, scratch.column):
                    return LOST, mu, size
                if rank() == 0:
                    put(scratch.outside, j, 0.0)
                    put(scratch.values, size, 0.0)
                sync()
                size += 1
        return LOST, mu, size

    return FollowedPath(begin, follow)
