"""Find the rivals of a pixel's chosen model: models whose RMSE is nearly as small."""

import functools
from typing import Any, NamedTuple

import numpy as np

from ....compiled.jit import WIDE, compiled, inlined
from .loops import LARGEST_ERROR, MOST_SPECTRA, loops_function, scan_scratch
from .search import fit_model, is_another
from .solution import SAME_ABUNDANCE

# Columns of each class, and of shade: mean, standard deviation, least and largest fraction of the models that count.
MEAN, DEVIATION, LEAST_FRACTION, LARGEST_FRACTION = range(4)
NUMBERS = ("mean", "deviation", "least", "largest")


class Rivals(NamedTuple):
    """The chosen models of w pixels, and what is found beside them; classes are in the order of the map."""

    kind: Any  # (p,) int64: the class of each spectrum, in the order of the tables
    normalized: bool  # whether fractions are divided by the sum of the classes
    size: Any  # (w,) int64: spectra of the chosen model
    spectra: Any  # (4, 3, w) int64: its spectra, by place in the tables, the same in all four rows
    abundances: Any  # (4, 3, w)
    bound: Any  # (w,) the largest squared error of a model that counts
    own: Any  # (w,) squared error of the chosen model
    runner: Any  # (w,) squared error of the best other model with as many spectra
    count: Any  # (w,) models that count
    present: Any  # (classes + 1, w) models that count and have a spectrum of the class
    sums: Any  # (classes + 1, 4, w) of the fractions in these: mean, sum of squared deviations, least and largest
    # Fields of a `Best` that `loops_function` reads.
    limit: Any  # (4, w)
    u: Any  # (p, w)
    less: Any  # (p, w)
    square: Any  # (1, w)
    most: Any  # (1, w)
    next_most: Any  # (1, w)
    which: Any  # (1, w)
    needed: Any  # (1, w)
    x: Any  # (3, w)
    pixels: Any  # (L, w) where residuals have a limit; else (0, w)


def new_rivals(kind: np.ndarray, classes: int, normalized: bool, limited_bands: int) -> Rivals:
    """Allocate the scratch of a tile, for spectra of these classes."""
    w, n = WIDE.width, MOST_SPECTRA
    return Rivals(
        kind,
        normalized,
        np.empty(w, np.int64),
        np.empty((n + 1, n, w), np.int64),
        np.empty((n + 1, n, w)),
        *(np.empty(w) for _ in range(4)),
        np.empty((classes + 1, w)),
        np.empty((classes + 1, 4, w)),
        *scan_scratch(len(kind)),
        np.empty((n, w)),
        np.empty((limited_bands, w)),
    )


@inlined
def add_fraction(rivals, s, kind, fraction):
    """Add a fraction of a model that counts: mean and sum of squared deviations from it, by Welford's rule."""
    rivals.present[kind, s] += 1.0
    off = fraction - rivals.sums[kind, MEAN, s]
    rivals.sums[kind, MEAN, s] += off / rivals.present[kind, s]
    rivals.sums[kind, DEVIATION, s] += off * (fraction - rivals.sums[kind, MEAN, s])
    rivals.sums[kind, LEAST_FRACTION, s] = min(rivals.sums[kind, LEAST_FRACTION, s], fraction)
    rivals.sums[kind, LARGEST_FRACTION, s] = max(rivals.sums[kind, LARGEST_FRACTION, s], fraction)


@inlined
def tally(models, rivals, s, k, i, j, m, t_j, t_m, error):
    """Tally a model of the first k of spectra i, j and m, whose squared ``error`` is below the limit."""
    allowed, error, _ = fit_model(models, rivals, s, k, i, j, m, t_j, t_m, error)
    least, total = np.inf, 0.0
    for c in range(k):
        least, total = min(least, rivals.x[c, s]), total + rivals.x[c, s]
    # Under the limits ``exact`` a mixture with a fraction of 0 is one of fewer spectra, which counts there.
    if not allowed or (models.exact and not least > SAME_ABUNDANCE * total):
        return
    if k == rivals.size[s]:
        if not is_another(rivals, s, k, i, j, m):
            rivals.own[s] = min(rivals.own[s], error)
        elif error < rivals.runner[s]:
            rivals.runner[s] = error
            rivals.limit[k, s] = max(error, min(above(rivals.bound[s]), LARGEST_ERROR))
    if error > rivals.bound[s] or (rivals.normalized and not total > 0.0):
        return
    scale = 1.0 / total if rivals.normalized else 1.0
    rivals.count[s] += 1.0
    for c in range(k):
        at = i if c == 0 else (j if c == 1 else m)
        add_fraction(rivals, s, rivals.kind[at], rivals.x[c, s] * scale)
    add_fraction(rivals, s, rivals.present.shape[0] - 1, 1.0 - total)


@inlined
def above(bound):
    """Return a limit a little above ``bound``, so that a squared error equal to it counts."""
    return bound * (1.0 + 1e-12) + 1e-300


@compiled
def products_of(Y, E, U, squares):
    """Write the products of pixels (N, L) and spectra (L, p) to ``U`` (N, p), and |y|² to ``squares`` (N,)."""
    # A product of matrices would round differently for another cut into blocks.
    L, p = E.shape
    for n in range(Y.shape[0]):
        squares[n] = 0.0
        for j in range(p):
            U[n, j] = 0.0
        for b in range(L):
            y = Y[n, b]
            squares[n] += y * y
            for j in range(p):
                U[n, j] += y * E[b, j]


@functools.cache
def rivals_function() -> Any:
    """Return ``find``, which writes the next best RMSE's excess, the models that count, and `NUMBERS` of each class."""
    # Y (N, L) and U (N, p), at unit length in the tables' order; bounds (N,) are largest squared errors that count;
    # sizes (N,) are −1 without a model; spectra and abundances (N, 3); out (N, 2 + 4 (classes + 1)), NaN for none.
    look, width, n = loops_function(WIDE, tally), WIDE.width, MOST_SPECTRA

    @compiled
    def begin(models, Y, U, squares, bounds, sizes, spectra, abundances, rivals, pixel, s):
        k = sizes[pixel]
        rivals.size[s], rivals.square[0, s], rivals.bound[s] = k, squares[pixel], bounds[pixel]
        rivals.own[s] = rivals.runner[s] = np.inf
        rivals.count[s] = 0.0
        for kind in range(rivals.present.shape[0]):
            rivals.present[kind, s] = rivals.sums[kind, MEAN, s] = rivals.sums[kind, DEVIATION, s] = 0.0
            rivals.sums[kind, LEAST_FRACTION, s], rivals.sums[kind, LARGEST_FRACTION, s] = np.inf, -np.inf
        for size in range(n + 1):
            most = min(models.most_error, LARGEST_ERROR)
            rivals.limit[size, s] = most if size == k else min(above(bounds[pixel]), most)
            for c in range(n):
                rivals.spectra[size, c, s], rivals.abundances[size, c, s] = spectra[pixel, c], abundances[pixel, c]
        for j in range(U.shape[1]):
            rivals.u[j, s] = U[pixel, j]
        for b in range(models.spectra.shape[0]):
            rivals.pixels[b, s] = Y[pixel, b]
        if models.exact and squares[pixel] <= bounds[pixel] and not rivals.normalized:  # shade alone
            rivals.count[s] = 1.0
            add_fraction(rivals, s, rivals.present.shape[0] - 1, 1.0)

    @compiled
    def end(rivals, s, bands, out):
        has_rival = rivals.runner[s] < np.inf and rivals.own[s] < np.inf
        gap = (rivals.runner[s] / bands) ** 0.5 - (rivals.own[s] / bands) ** 0.5
        count = rivals.count[s]
        out[0], out[1] = max(gap, 0.0) if has_rival else np.nan, count
        for kind in range(rivals.present.shape[0]):
            at, lacks = 2 + 4 * kind, rivals.present[kind, s] < count
            least, largest = rivals.sums[kind, LEAST_FRACTION, s], rivals.sums[kind, LARGEST_FRACTION, s]
            # Models without the class have a fraction of 0.
            mean, share = rivals.sums[kind, MEAN, s], rivals.present[kind, s] / count
            out[at + MEAN] = mean * share
            out[at + DEVIATION] = (rivals.sums[kind, DEVIATION, s] / count + mean * mean * share * (1.0 - share)) ** 0.5
            out[at + LEAST_FRACTION] = min(least, 0.0) if lacks else least
            out[at + LARGEST_FRACTION] = max(largest, 0.0) if lacks else largest
            if not count > 0.0:
                for number in range(4):
                    out[at + number] = np.nan

    @compiled
    def find(models, Y, U, squares, bounds, sizes, spectra, abundances, rivals, bands, out):
        for first in range(0, len(U), width):
            pixels = min(width, len(U) - first)
            for s in range(width):  # lanes without a pixel repeat the last one
                pixel = first + min(s, pixels - 1)
                begin(models, Y, U, squares, bounds, sizes, spectra, abundances, rivals, pixel, s)
            look(models, rivals, pixels)
            for s in range(pixels):
                end(rivals, s, bands, out[first + s])

    return find
