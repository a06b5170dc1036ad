"""The end of a quantity of one pixel: where its path leads, and the bound and the value that follow from that.

Where no ``(c − t w)ᵀa`` is above B, the fraction ``cᵀa / wᵀa`` is at most ``t + B / s``, s the least ``wᵀa``. The fraction at the end
of a path is the next t (Dinkelbach 1967), until it does not change: B is then rounding.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import uint32

from ....certificate import UNIT_ROUNDOFF
from ....compiled.jit import Team, Width, compiled
from .follow import LOST, REACHED, SHORT_OF_LIMIT, SHORT_OF_WAY, path_functions
from .support import places_of

# Paths for one end of a fraction, at most, and the change of a fraction at which they end.
MOST_PATHS, LEAST_CHANGE = 20, 1e-12
# The rows of ``ends``: μ, ρ, t, how the path ended; the quantity and the weights there, and of the best mixture.
MU, RHO, SHARE, HOW, VALUE, TOTAL, START, START_TOTAL = range(8)
ENDS = 8


class EndPixels(NamedTuple):
    """Some pixels, n, float64."""

    Y: Any  # (n, L)
    F: Any  # Eᵀy at unit length, as `unmix.features.ranges.solver.correlations` has it; on a GPU (n c, w), c vectors for each pixel
    best: Any  # (n, P) their best mixtures
    misfits: Any  # (n,) ½|y − E a|² of these
    rho: Any  # (n,) the largest misfit of a mixture that fits


class PathOfPixel(NamedTuple):
    """The functions that follow the paths of a pixel."""

    begin: Any  # (lines, pixels, n, path) take pixel n, whose ``path.f`` is there already; returns the rows of its best mixture
    find_end: Any  # (lines, pixels, n, rows, signed, is_fraction, path, X, ends, s): see `end_functions`


@functools.cache
def end_functions(ops: Width, team: Team) -> PathOfPixel:
    """Return the functions that find the end of a path.

    ``find_end`` follows the path of pixel n in the quantity ``signed`` (2 c, w), with the weights of a fraction after it, and writes
    the end's abundances into ``X[:, s]``, and `ENDS` numbers into ``ends[:, s]``.
    """
    load, store, fma, broadcast, total = ops.load, ops.store, ops.fma, ops.broadcast, ops.total
    (get, put, _), rank, ranks, sync, sum_up = places_of(ops), team.rank, team.size, team.sync, team.total
    begin_path, follow = path_functions(ops, team)
    width = ops.width

    @ops.compile
    def begin(lines, pixels, n, path):
        L, P = pixels.Y.shape[1], pixels.best.shape[1]
        for b in range(rank(), path.y.shape[0] // 2 * width, ranks()):
            put(path.y, b, pixels.Y[n, b] if b < L else 0.0)
        for j in range(rank(), path.best.shape[0] * width, ranks()):
            put(path.best, j, pixels.best[n, j] if j < P else 0.0)
        sync()
        return begin_path(lines, path)

    @ops.compile
    def along(lines, path, signed, share, rows, misfit, limit):
        """Follow the path in ``signed[0] − share · signed[1]``; return how it ends, μ and the rows there, and its two sums."""
        c, has_sum, values, members = lines.ones.shape[0], lines.has_sum == 1, path.values, path.members[1]
        for b in range(c):
            store(path.c, b, (load(signed, b) - broadcast(share) * load(signed, c + b)) * load(lines.ones, b))
        sync()
        how, mu, size = LOST, 1.0, 0
        if rows > 0 and limit > misfit:
            how, mu, size = follow(lines, path, rows, misfit, limit)
        size = size if how != LOST else 0
        whole = 0.0
        for k in range(1 + rank(), size, ranks()):
            a = max(get(values, k), 0.0) / lines.norms[uint32(members[uint32(k)])]
            put(values, k, a)
            whole += a
        # An ill-conditioned inverse misses the sum of one: abundances are divided by their sum, so that the end is a mixture.
        whole = sum_up(whole, values)
        value, weight = 0.0, 0.0
        for k in range(1 + rank(), size, ranks()):
            a = get(values, k) / whole if has_sum and whole > 0.0 else get(values, k)
            put(values, k, a)
            value += get(signed, members[uint32(k)]) * a
            weight += get(signed, c * width + members[uint32(k)]) * a
        return how, mu, size, sum_up(value, values), sum_up(weight, values)

    @ops.compile
    def find_end(lines, pixels, n, rows, signed, is_fraction, path, X, ends, s):
        start, weight = broadcast(0.0), broadcast(0.0)
        for b in range(lines.ones.shape[0]):
            start = fma(load(path.best, b), load(signed, b), start)
            weight = fma(load(path.best, b), load(signed, lines.ones.shape[0] + b), weight)
        first, divisor = total(start), total(weight)
        misfit, rho = pixels.misfits[n], pixels.rho[n]
        limit = rho - (rho - misfit) * SHORT_OF_WAY - rho * SHORT_OF_LIMIT
        share = first / divisor if is_fraction and divisor != 0.0 else 0.0
        how, mu, size, value, whole = LOST, 1.0, 0, 0.0, 0.0
        for paths in range(MOST_PATHS if is_fraction else 1):
            if paths > 0:
                change = value / whole - share if whole != 0.0 else 0.0
                if how == LOST or not abs(change) > LEAST_CHANGE:
                    break
                share += change
            how, mu, size, value, whole = along(lines, path, signed, share, rows, misfit, limit)
        for j in range(rank(), X.shape[0], ranks()):
            X[j, s] = 0.0
        sync()
        for k in range(1 + rank(), size, ranks()):
            X[path.members[1, k], s] = get(path.values, k)
        if rank() == 0:
            ends[MU, s], ends[RHO, s], ends[SHARE, s], ends[HOW, s] = mu if how == REACHED else 1.0, rho, share, how
            ends[VALUE, s], ends[TOTAL, s], ends[START, s], ends[START_TOTAL, s] = value, whole, first, divisor
        sync()

    return PathOfPixel(begin, find_end)


@compiled
def share_of_way(ends, found, s, misfit):
    """Return the share of the way from the best mixture to the path's end on which mixtures fit, as misfits are convex; 0 if lost."""
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
    """Bound a signed fraction as `bound_of_sum` does; its divisor is at least ``least``. NaN where that of the best mixture is 0."""
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
