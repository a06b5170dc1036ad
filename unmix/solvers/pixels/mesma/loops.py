"""Go through all models of a tile's pixels, and hand on the models whose squared error is below a pixel's limit."""

import functools
from typing import Any

import numpy as np

from ....compiled.jit import compiled, inlined
from ....compiled.simd import ONE, WIDE, Width
from .scan import falls_of_three, falls_of_two, merit_function, pair_function, scans
from .tables import ALPHA, BETA, FALL_1, FALL_2, FIRST, ROW, SECOND, SLACK, THIRD

_merit, _pair = merit_function(ONE), pair_function(ONE)
# The most spectra of a model.
MOST_SPECTRA = 3
# Largest limit of a model. With a larger one, models that the limits reject (merit `scan.REJECTED_MERIT`) would pass the scan, which
# does not say then which they are.
LARGEST_ERROR = 1e290


def scan_scratch(p: int) -> tuple[np.ndarray, ...]:
    """Allocate what the loops use of a tile of pixels: from ``limit`` to ``needed`` of `unmix.solvers.pixels.mesma.rivals.Rivals`."""
    w = WIDE.width
    return (
        np.empty((MOST_SPECTRA + 1, w)), np.empty((p, w)), np.empty((p, w)), *(np.empty((1, w)) for _ in range(5)),
    )  # fmt: skip


@functools.cache
def single_models(consider: Any) -> tuple[Any, Any, Any]:
    """Return functions that look at a model of one pixel alone, and hand it to ``consider`` if its merit is enough.

    ``consider_ones(models, best, s)`` looks at all models of one spectrum, ``consider_two(models, best, s, i, j)`` and
    ``consider_three(models, best, s, i, j, m)`` at one of two or three.
    """

    @compiled
    def consider_ones(models, best, s):
        """Consider all models of one spectrum."""
        for c in range(models.begin.shape[0] - 1):
            for i in range(models.begin[c], models.begin[c + 1] if models.sets[c, c, c] > 0 else models.begin[c]):
                error = max(best.square[0, s] - best.u[i, s] * best.u[i, s], 0.0)
                if error < best.limit[1, s]:
                    consider(models, best, s, 1, i, 0, 0, 0.0, 0.0, error)

    @inlined
    def consider_two(models, best, s, i, j):
        """Consider a model of two spectra, if its merit is enough."""
        first = best.u[i, s]
        rest = best.square[0, s] - first * first
        t, f_i, f_j = _pair(models, i, j, first, best.u[j, s])
        gained = _merit(models, t * t, f_i, f_j, f_j, f_i + f_j, models.slack[i, j], falls_of_two(models, i, j))
        if rest - gained < best.limit[2, s] and models.scale[i, j] > 0.0:
            consider(models, best, s, 2, i, j, 0, t, 0.0, max(rest - t * t, 0.0))

    @inlined
    def consider_three(models, best, s, i, j, m):
        """Consider a model of three spectra, if its merit is enough."""
        first = best.u[i, s]
        t_j, g_i, g_j = _pair(models, i, j, first, best.u[j, s])
        rest = best.square[0, s] - first * first - t_j * t_j
        triples, at = models.triples, ROW * (models.place[i, j] + m)
        less = best.u[m, s] - first * models.rho[i, m]
        t = triples[at + ALPHA] * less + triples[at + BETA] * t_j
        f_i, f_j, f_m = g_i + triples[at + FIRST] * t, g_j + triples[at + SECOND] * t, triples[at + THIRD] * t
        falls = falls_of_three(triples[at + FALL_1], triples[at + FALL_2])
        gained = _merit(models, t * t, f_i, f_j, f_m, f_i + f_j + f_m, triples[at + SLACK], falls)
        if rest - gained < best.limit[3, s] and triples[at + ALPHA] > 0.0:
            consider(models, best, s, 3, i, j, m, t_j, t, max(rest - t * t, 0.0))

    return consider_ones, consider_two, consider_three


@functools.cache
def loops_function(ops: Width, consider: Any) -> Any:
    """Return ``look(models, best, count)``, which calls ``consider`` with the models of the first ``count`` pixels of a tile.

    The models of a pair of spectra (or of one) and a class are looked at for all pixels of a tile at once (`scan`). The best of them,
    where it is below a pixel's limit, is then considered, and the others where the next is below it as well. Class sets come in
    order, then spectra in the order of the library.

    Parameters
    ----------
    ops : Width
    consider : compiled function
        ``consider(models, best, s, k, i, j, m, t_j, t_m, error)``, for pixel s and a model of k of the spectra i, j and m, with its
        squared error and the Gram-Schmidt coefficients of the second and third. It may lower or raise ``best.limit[k, s]``.
        ``best`` has the fields of `unmix.solvers.pixels.mesma.search.Best` from ``u`` to ``x``, and ``limit``.
    """
    load, store = ops.load, ops.store
    scan_twos, scan_threes = scans(ops)
    consider_ones, consider_two, consider_three = single_models(consider)

    @compiled
    def search_twos(models, best, count, i, start, stop):
        if scan_twos(models, best, i, start, stop):
            for s in range(count):
                if best.most[0, s] >= best.needed[0, s]:
                    first = int(best.which[0, s])
                    consider_two(models, best, s, i, first)
                    for j in range(start, stop if best.next_most[0, s] >= best.needed[0, s] else start):
                        if j != first:
                            consider_two(models, best, s, i, j)

    @compiled
    def search_threes(models, best, count, i, j, start, stop):
        if scan_threes(models, best, i, j, start, stop):
            for s in range(count):
                if best.most[0, s] >= best.needed[0, s]:
                    first = int(best.which[0, s])
                    consider_three(models, best, s, i, j, first)
                    for m in range(start, stop if best.next_most[0, s] >= best.needed[0, s] else start):
                        if m != first:
                            consider_three(models, best, s, i, j, m)

    @compiled
    def search_pairs(models, best, count):
        begin = models.begin
        classes = begin.shape[0] - 1
        for first in range(classes):
            for second in range(first + 1, classes):
                is_set = models.sets[first, second, second] > 0
                for i in range(begin[first], begin[first + 1] if is_set else begin[first]):
                    search_twos(models, best, count, i, begin[second], begin[second + 1])

    @compiled
    def search_triples(models, best, count):
        begin = models.begin
        classes = begin.shape[0] - 1
        for first in range(classes):
            for second in range(first + 1, classes):
                for third in range(second + 1, classes):
                    start, stop = begin[third], begin[third + 1]
                    is_set = models.sets[first, second, third] > 0
                    for i in range(begin[first], begin[first + 1] if is_set else begin[first]):
                        for m in range(start, stop):
                            store(best.less, m, load(best.u, m) - load(best.u, i) * models.rho[i, m])
                        for j in range(begin[second], begin[second + 1]):
                            search_threes(models, best, count, i, j, start, stop)

    @compiled
    def look(models, best, count):
        if models.exact or models.fewest <= 1:
            for s in range(count):
                consider_ones(models, best, s)
        if models.most >= 2 and (models.exact or models.fewest <= 2):
            search_pairs(models, best, count)
        if models.most >= 3:
            search_triples(models, best, count)

    return look
