"""Find the least and the largest fraction of each class over the mixtures of all models that fit a pixel.

The mixtures of a model, ``x = x* + D z`` with ``|z|² <= room``, fill an ellipsoid around its unconstrained optimum, of
which the limits ``exact`` leave the part with x >= 0 and a sum of at most one. A fraction is extreme inside of a face
of that part, and is then extreme on the whole plane of the face. The face of a spectrum whose fraction is 0 belongs to
a smaller model, which is looked at as well. So each model has two planes, of a free sum and of a sum of one, on which
extremes have closed forms; one counts if it is inside.
"""

import functools
from typing import Any, NamedTuple

import numpy as np

from ...certificate import UNIT_ROUNDOFF
from ...compiled.jit import WIDE, compiled, inlined
from ...solvers.pixels.mesma.loops import LARGEST_ERROR, MOST_SPECTRA, loops_function, scan_scratch
from ...solvers.pixels.mesma.rivals import above
from ...solvers.pixels.mesma.solution import solution_of
from ...solvers.pixels.mesma.tables import Models

# By how much a fraction may be beyond a limit, and ends are moved outwards, for the rounding of mixtures;
# `roundings_of` adds to it where spectra of a model are alike, or dark.
LARGEST_ROUNDING = 1e-9
# The share of the length of a fraction's row of D below which it does not change on a plane.
SMALLEST_CHANGE = 1e-12


class Reach(NamedTuple):
    """The ranges of w pixels as far as models were looked at, and scratch; classes are in the order of the map."""

    kind: Any  # (p,) int64: the class of each spectrum, in the order of the tables
    normalized: bool  # whether fractions are divided by their sum
    bound: Any  # (w,) the largest squared error of a mixture that fits
    lower: Any  # (classes, w) the least fraction so far
    upper: Any  # (classes, w) the largest
    D: Any  # (3, 3) the change of each of a model's fractions with each of its Gram-Schmidt coefficients
    a: Any  # (3,) the change of their sum
    g: Any  # (3,) the change of a quantity
    free: Any  # (3,) the fractions of the unconstrained optimum
    x: Any  # (3,) fractions of a mixture
    at: Any  # (3,) int64: the classes of the model's spectra
    # Fields of a `Best` that `loops_function` reads.
    limit: Any  # (4, w)
    u: Any  # (p, w)
    less: Any  # (p, w)
    square: Any  # (1, w)
    most: Any  # (1, w)
    next_most: Any  # (1, w)
    which: Any  # (1, w)
    needed: Any  # (1, w)


def new_reach(kind: np.ndarray, classes: int, normalized: bool) -> Reach:
    """Allocate the scratch of a tile, for spectra of these classes."""
    w, n = WIDE.width, MOST_SPECTRA
    return Reach(
        kind,
        normalized,
        np.empty(w),
        np.empty((classes, w)),
        np.empty((classes, w)),
        np.empty((n, n)),
        *(np.empty(n) for _ in range(4)),
        np.empty(n, np.int64),
        *scan_scratch(len(kind)),
    )


def without_limits(models: Models) -> Models:
    """Return models that none is rejected of: where an optimum breaks a limit, other mixtures of its model may not."""
    far = 1e300
    return models._replace(
        exact=False, fewest=1, lowest=-far, highest=far, least_shade=-far, most_shade=far, most_error=far
    )


@inlined
def add_value(reach, s, c, value, rounding):
    """Add a fraction of class c that a mixture has, to ``rounding``."""
    reach.lower[c, s] = min(reach.lower[c, s], value - rounding)
    reach.upper[c, s] = max(reach.upper[c, s], value + rounding)


@inlined
def length_of(g):
    """Return the length of a vector (3,)."""
    return (g[0] * g[0] + g[1] * g[1] + g[2] * g[2]) ** 0.5


@inlined
def write_plane(models, reach, s, k, i, j, m, t_j, t_m):
    """Write D, the change of the sum, and the optimum of a model of k spectra; return the sum of its fractions."""
    D, a, free = reach.D, reach.a, reach.free
    for q in range(3):
        t = (1.0 if q == 0 else 0.0, 1.0 if q == 1 else 0.0, 1.0 if q == 2 else 0.0)
        D[0, q], D[1, q], D[2, q] = solution_of(models, k, i, j, m, t[0], t[1], t[2])
        a[q] = D[0, q] + D[1, q] + D[2, q]
    free[0], free[1], free[2] = solution_of(models, k, i, j, m, reach.u[i, s], t_j, t_m)
    reach.at[0], reach.at[1], reach.at[2] = reach.kind[i], reach.kind[j], reach.kind[m]
    return free[0] + free[1] + free[2]


@inlined
def roundings_of(models, reach, s, k, i, j, m):
    """Return bounds of the rounding of a model's Gram-Schmidt coefficients, and of its mixtures' fractions."""
    # A product of unit spectrum and pixel is off by some (L + 16) units of rounding of |y|, which elimination magnifies
    # by D at most. D is made of differences such as 1 − ρ², whose relative rounding grows with its square.
    lengths, magnified = models.lengths, 0.0
    for q in range(3):
        magnified += (reach.D[0, q] * lengths[i]) ** 2
        magnified += (reach.D[1, q] * lengths[j]) ** 2 if k > 1 else 0.0
        magnified += (reach.D[2, q] * lengths[m]) ** 2 if k > 2 else 0.0
    of_coefficients = 2.0 * (models.bands + 16.0) * UNIT_ROUNDOFF * (reach.square[0, s] * magnified) ** 0.5
    return of_coefficients, LARGEST_ROUNDING + 16.0 * UNIT_ROUNDOFF * magnified


@inlined
def quotients_of(reach, c, total, room):
    """Return the two t at which ``(x_c − t Σx)² = room |D_c − t a|²``, and the factor of t² in that equation."""
    # There a plane of mixtures with the share t of spectrum c touches the ellipsoid. They are its least and largest
    # share where the factor is above 0; else, where the ellipsoid has mixtures of sum 0, one of them may be.
    D, a = reach.D, reach.a
    x, along, square, sums = reach.free[c], 0.0, 0.0, 0.0
    for q in range(3):
        along, square, sums = along + D[c, q] * a[q], square + D[c, q] * D[c, q], sums + a[q] * a[q]
    first, mixed, last = total * total - room * sums, x * total - room * along, x * x - room * square
    root = max(mixed * mixed - first * last, 0.0) ** 0.5
    half = mixed + root if mixed >= 0.0 else mixed - root
    return half / first, last / half, first


@inlined
def fractions_of(reach, c, total, room):
    """Return bounds of the c-th spectrum's fraction in the ellipsoid; of quotients 0 and 1 if the sum may be 0."""
    if reach.normalized:
        one, other, first = quotients_of(reach, c, total, room)
        return (min(one, other), max(one, other)) if first > 0.0 and total > 0.0 else (0.0, 1.0)
    half = room**0.5 * length_of(reach.D[c])
    return reach.free[c] - half, reach.free[c] + half


@inlined
def may_widen(reach, s, k, total, room, rounding):
    """Return whether a model may widen the range of a class, as far as its ellipsoid says."""
    lower, upper, at = reach.lower, reach.upper, reach.at
    for c in range(lower.shape[0]):
        if lower[c, s] > 0.0 and c != at[0] and (k < 2 or c != at[1]) and (k < 3 or c != at[2]):
            return True
    for c in range(k):
        least, largest = fractions_of(reach, c, total, room)
        if max(least - rounding, 0.0) < lower[at[c], s] or min(largest + rounding, 1.0) > upper[at[c], s]:
            return True
    return False


@inlined
def move(reach, k, along, size, slack):
    """Move ``x`` by ``size`` along a change of the coefficients (3,); return whether it is inside, to ``slack``."""
    D, x = reach.D, reach.x
    total, least = 0.0, 0.0
    for c in range(k):
        x[c] += size * (D[c, 0] * along[0] + D[c, 1] * along[1] + D[c, 2] * along[2])
        total, least = total + x[c], min(least, x[c])
    return least >= -slack and total <= 1.0 + slack


@inlined
def share_of(reach, c):
    """Return the fraction of the c-th spectrum of the mixture in ``x``."""
    total = reach.x[0] + reach.x[1] + reach.x[2]
    return reach.x[c] / total if reach.normalized else reach.x[c]


@inlined
def begin_plane(reach, k, missing, sums, slack):
    """Write a plane's optimum to ``x``; return whether it is inside. The sum lacks ``missing``; ``sums`` is |a|²."""
    for c in range(3):
        reach.x[c] = reach.free[c]
    return move(reach, k, reach.a, missing / sums, slack)


@inlined
def look_at_plane(reach, s, k, total, room, is_held, rounding, slack):
    """Add the extremes on one plane of a model of k spectra: of a free sum, or of a sum held at one."""
    D, a, g = reach.D, reach.a, reach.g
    sums = a[0] * a[0] + a[1] * a[1] + a[2] * a[2]
    missing = 1.0 - total if is_held else 0.0
    room -= missing * missing / sums
    if not room >= 0.0:
        return
    if begin_plane(reach, k, missing, sums, slack) and (
        reach.x[0] + reach.x[1] + reach.x[2] > 0.0 or not reach.normalized
    ):
        for c in range(reach.lower.shape[0]):  # those of the classes that the model lacks are 0
            value, is_own = 0.0, False
            for own in range(k):
                value, is_own = (share_of(reach, own), True) if reach.at[own] == c else (value, is_own)
            add_value(reach, s, c, value, rounding if is_own else 0.0)
    if k == 1 and (is_held or reach.normalized):
        return
    for c in range(k):
        one, other = 0.0, 0.0
        if reach.normalized and not is_held:
            one, other, _ = quotients_of(reach, c, total, room)
        for turn in range(4 if reach.normalized and not is_held else 2):
            quotient = one if turn < 2 else other
            along = 0.0
            for q in range(3):
                g[q] = D[c, q] - quotient * a[q]
                along += g[q] * a[q]
            for q in range(3):
                g[q] -= along / sums * a[q] if is_held else 0.0
            length = length_of(g)
            if length > SMALLEST_CHANGE * length_of(D[c]):
                begin_plane(reach, k, missing, sums, slack)
                if move(reach, k, g, (1.0 if turn % 2 else -1.0) * room**0.5 / length, slack):
                    add_value(reach, s, reach.at[c], share_of(reach, c), rounding)


@inlined
def widen(models, reach, s, k, i, j, m, t_j, t_m, error):
    """Widen a pixel's ranges by the mixtures of a model of k spectra whose least squared error is below the limit."""
    total = write_plane(models, reach, s, k, i, j, m, t_j, t_m)
    of_coefficients, rounding = roundings_of(models, reach, s, k, i, j, m)
    room = (max(reach.bound[s] - error, 0.0) ** 0.5 + of_coefficients) ** 2
    if may_widen(reach, s, k, total, room, rounding):
        steepest = max(length_of(reach.D[0]), max(length_of(reach.D[1]), length_of(reach.D[2])))
        slack = rounding + steepest * of_coefficients
        look_at_plane(reach, s, k, total, room, False, rounding, slack)
        look_at_plane(reach, s, k, total, room, True, rounding, slack)


@functools.cache
def ranges_function() -> Any:
    """Return ``find``: it writes the ends of N pixels' fractions to ``lower`` and ``upper`` (N, classes)."""
    look, width = loops_function(WIDE, widen), WIDE.width

    @compiled
    def begin(U, squares, bounds, chosen, reach, pixel, s):
        reach.square[0, s], reach.bound[s] = squares[pixel], bounds[pixel]
        for size in range(reach.limit.shape[0]):
            reach.limit[size, s] = min(above(bounds[pixel]), LARGEST_ERROR)
        for c in range(chosen.shape[1]):
            reach.lower[c, s] = reach.upper[c, s] = chosen[pixel, c]
            if squares[pixel] <= bounds[pixel]:  # shade alone, near which quotients are any
                add_value(reach, s, c, 0.0, 0.0)
                add_value(reach, s, c, 1.0 if reach.normalized else 0.0, 0.0)
        for j in range(U.shape[1]):
            reach.u[j, s] = U[pixel, j]

    @compiled
    def find(models, U, squares, bounds, chosen, reach, lower, upper):
        # U, (N, p), are products of pixels and unit spectra, in the order of the tables. Of each pixel: |y|², the
        # largest squared error that fits, negative without a model, and the model's fractions, not finite for want of
        # light.
        for first in range(0, len(U), width):
            pixels = min(width, len(U) - first)
            for s in range(width):  # lanes without a pixel repeat the last one
                begin(U, squares, bounds, chosen, reach, first + min(s, pixels - 1), s)
            look(models, reach, pixels)
            for s in range(pixels):
                n = first + s
                for c in range(lower.shape[1]):
                    has_range = bounds[n] >= 0.0 and np.isfinite(chosen[n, c])
                    lower[n, c] = max(reach.lower[c, s], 0.0) if has_range else np.nan
                    upper[n, c] = min(reach.upper[c, s], 1.0) if has_range else np.nan

    return find
