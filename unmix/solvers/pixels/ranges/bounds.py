"""Bound quantities of pixels: the ends of their paths (`follow`), and the proof of these (`proof`), sixteen pixels side by side.

Where no ``(c − t w)ᵀa`` is above B, the fraction ``cᵀa / wᵀa`` is at most ``t + B / s``, s the least ``wᵀa``. The fraction at the end
of a path is the next t (Dinkelbach 1967), until it does not change: B is then rounding.
"""

from typing import Any, NamedTuple

import numpy as np

from ....compiled.jit import compiled
from ....compiled.simd import WIDE
from ..rows import UNIT_ROUNDOFF
from . import follow, proof

_load, _store, _width = WIDE.load, WIDE.store, WIDE.width
_begin, _follow, _prove_tile = follow.begin, follow.follow, proof.prove_tile
REACHED, LOST = follow.REACHED, follow.LOST
SHORT_OF_WAY, SHORT_OF_LIMIT = follow.SHORT_OF_WAY, follow.SHORT_OF_LIMIT
# Paths for one end of a fraction, at most, and the change of a fraction at which they end.
MOST_PATHS, LEAST_CHANGE = 20, 1e-12
# The ends of a quantity: that of most, and that of least, which is the most of its negative.
UPWARDS, DOWNWARDS = 0, 1


class Pixels(NamedTuple):
    """Some pixels, n, float64."""

    Y: Any  # (n, L)
    F: Any  # (⌈n / w⌉ c w, w) Eᵀy at unit length, as `unmix.solvers.pixels.rows` has it
    best: Any  # (n, P) their best mixtures
    misfits: Any  # (n,) ½|y − E a|² of these
    rho: Any  # (n,) the largest misfit of a mixture that fits


class Scratch(NamedTuple):
    """Scratch of a thread, float64."""

    path: Any  # of `follow`
    tile: Any  # of `proof`
    signed: Any  # (2, P) the quantity and the weights with the sign of an end
    lanes: Any  # (4, w) by pixel: t, μ, how the path ended, and the least sum of weights


def new_scratch(L: int, P: int) -> Scratch:
    """Allocate the scratch for L bands and P endmembers."""
    return Scratch(follow.new_scratch(L, P), proof.new_scratch(L, P), np.empty((2, P)), np.empty((4, _width)))


@compiled
def sum_of(a, c):
    """Return ``cᵀa``."""
    total = 0.0
    for j in range(len(c)):
        total += c[j] * a[j]
    return total


@compiled
def follow_path(lines, pixels, n, s, scratch):
    """Follow the path of pixel n, lane s, in ``signed[0] − t signed[1]``; leave its end in the tile. Return its two sums there."""
    path, tile, lanes, signed = scratch.path, scratch.tile, scratch.lanes, scratch.signed
    for j in range(signed.shape[1]):
        path.c[j // _width, j % _width] = (signed[0, j] - lanes[0, s] * signed[1, j]) / lines.norms[j]
        tile.X[j, s] = 0.0
    rows, misfit, rho = _begin(lines, path, pixels.best[n]), pixels.misfits[n], pixels.rho[n]
    limit = rho - (rho - misfit) * SHORT_OF_WAY - rho * SHORT_OF_LIMIT
    how, mu, size = LOST, 1.0, 0
    if rows > 0 and limit > misfit:
        how, mu, size = _follow(lines, path, rows, misfit, limit)
    lanes[1, s], lanes[2, s] = mu if how == REACHED else 1.0, how
    value, total, whole = 0.0, 0.0, 0.0
    for k in range(1, size if how != LOST else 0):
        whole += max(path.values[0, k], 0.0) / lines.norms[path.members[1, k]]
    # An ill-conditioned inverse misses the sum of one: abundances are divided by their sum, so that the end is a mixture.
    scale = 1.0 / whole if lines.has_sum == 1 and whole > 0.0 else 1.0
    for k in range(1, size if how != LOST else 0):
        j = path.members[1, k]
        a = max(path.values[0, k], 0.0) / lines.norms[j] * scale
        tile.X[j, s] = a
        value, total = value + signed[0, j] * a, total + signed[1, j] * a
    return value, total


@compiled
def find_ends(lines, mixtures, pixels, first, count, is_fraction, scratch):
    """Follow the paths of a tile, for fractions until these do not change, and compute bounds and misfits there."""
    tile, lanes, path = scratch.tile, scratch.lanes, scratch.path
    c = lines.ones.shape[0]
    for s in range(_width):
        n = first + min(s, count - 1)
        for b in range(c):
            _store(path.f, b, _load(pixels.F, (n // _width * c + b) * _width + n % _width))
        for b in range(pixels.Y.shape[1]):
            path.y[b // _width, b % _width] = pixels.Y[n, b]
        value, total = follow_path(lines, pixels, n, s, scratch)
        for _ in range(MOST_PATHS - 1 if is_fraction else 0):
            change = value / total - lanes[0, s] if total != 0.0 else 0.0
            if lanes[2, s] == LOST or not abs(change) > LEAST_CHANGE:
                break
            lanes[0, s] += change
            value, total = follow_path(lines, pixels, n, s, scratch)
        tile.given[0, s], tile.given[1, s], tile.given[2, s] = lanes[1, s], pixels.rho[n], lanes[0, s]
    _prove_tile(mixtures, scratch.signed[0], scratch.signed[1], tile)


@compiled
def share_of_way(pixels, n, s, scratch):
    """Return how far from the best mixture to the end of the path one fits, as a share: misfits are convex; 0 if the path is lost."""
    misfit, rho, start = scratch.tile.found[1, s], pixels.rho[n], pixels.misfits[n]
    if scratch.lanes[2, s] == LOST:
        return 0.0
    return (rho - start) / (misfit - start) if misfit > rho else 1.0


@compiled
def bound_sums(lines, mixtures, pixels, first, count, most, scratch, proved, reached):
    """Bound ``signed[0]ᵀa`` of a tile, which no mixture at all has more of than ``most``: infinite where the path is lost."""
    scratch.lanes[0, :] = 0.0
    find_ends(lines, mixtures, pixels, first, count, False, scratch)
    for s in range(count):
        n = first + s
        bound = scratch.tile.found[0, s] if scratch.lanes[2, s] == REACHED else np.inf
        start, end = sum_of(pixels.best[n], scratch.signed[0]), sum_of(scratch.tile.X[:, s], scratch.signed[0])
        end = start + max(share_of_way(pixels, n, s, scratch) * (end - start), 0.0)
        proved[n] = min(bound, most)
        reached[n] = min(end, proved[n])


@compiled
def bound_fractions(lines, mixtures, pixels, first, count, sign, scratch, proved, reached):
    """Bound ``sign · cᵀa / wᵀa`` of a tile; both are NaN where the best mixture has no divisor."""
    lanes, signed, X = scratch.lanes, scratch.signed, scratch.tile.X
    for s in range(_width):
        a = pixels.best[first + min(s, count - 1)]
        total = sum_of(a, signed[1])
        lanes[0, s] = sum_of(a, signed[0]) / total if total != 0.0 else 0.0
    find_ends(lines, mixtures, pixels, first, count, True, scratch)
    for s in range(count):
        n, t = first + s, lanes[0, s]
        a, share = pixels.best[n], share_of_way(pixels, n, s, scratch)
        total = sum_of(a, signed[1])
        if total == 0.0:
            proved[n] = reached[n] = np.nan
            continue
        best = sum_of(a, signed[0]) / total
        value = sum_of(a, signed[0]) + share * (sum_of(X[:, s], signed[0]) - sum_of(a, signed[0]))
        end = value / (total + share * (sum_of(X[:, s], signed[1]) - total))
        bound = np.inf
        if lanes[2, s] == REACHED and lanes[3, s] > 0.0:
            bound = sign * t + max(scratch.tile.found[0, s], 0.0) / lanes[3, s] + 4.0 * UNIT_ROUNDOFF * (1.0 + t)
        highest = 1.0 if sign > 0.0 else 0.0
        proved[n] = min(max(bound, sign * best), highest)
        reached[n] = min(max(sign * end, sign * best), proved[n])


@compiled
def bound(lines, mixtures, pixels, quantities, weights, most, scratch, found):
    """Bound quantities of n pixels from both sides.

    Parameters
    ----------
    lines : unmix.solvers.pixels.ranges.follow.Lines
    mixtures : unmix.solvers.pixels.ranges.proof.Mixtures
    pixels : Pixels
    quantities : array (k, P), float64
        c.
    weights : array (P,) or (0,), float64
        w, for fractions.
    most : array (k,), float64
        The largest ``cᵀa`` of any mixture, whether it fits or not.
    scratch : Scratch
    found : array (2, 2, n, k), float64
        First axis: the bounds that are proved, then the values that mixtures reach; second: `UPWARDS`, then `DOWNWARDS` with the other
        sign.
    """
    signed, is_fraction = scratch.signed, len(weights) > 0
    for first in range(0, len(pixels.Y), _width):
        count = min(_width, len(pixels.Y) - first)
        for s in range(_width):
            for b in range(pixels.Y.shape[1]):
                scratch.tile.Y[b, s] = pixels.Y[first + min(s, count - 1), b]
        if is_fraction:
            least, other = found[0, DOWNWARDS, :, 0], found[1, DOWNWARDS, :, 0]
            for j in range(len(weights)):
                signed[0, j], signed[1, j] = -weights[j], 0.0
            bound_sums(lines, mixtures, pixels, first, count, 0.0, scratch, least, other)
            for s in range(_width):
                scratch.lanes[3, s] = -least[first + min(s, count - 1)]
        for q in range(len(quantities)):
            for side in range(2):
                sign = 1.0 if side == UPWARDS else -1.0
                for j in range(quantities.shape[1]):
                    signed[0, j] = sign * quantities[q, j] * (weights[j] if is_fraction else 1.0)
                    signed[1, j] = sign * weights[j] if is_fraction else 0.0
                proved, reached = found[0, side, :, q], found[1, side, :, q]
                if is_fraction:
                    bound_fractions(lines, mixtures, pixels, first, count, sign, scratch, proved, reached)
                else:
                    highest = most[q] if side == UPWARDS else 0.0
                    bound_sums(lines, mixtures, pixels, first, count, highest, scratch, proved, reached)
