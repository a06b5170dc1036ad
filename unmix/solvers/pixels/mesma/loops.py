"""Go through all models of a tile's pixels, and hand on the models whose squared error is below a pixel's limit.

Look at all models of one or two given spectra and one of a class, and find the two that take most off the squared
error.
"""

import functools
from typing import Any

from ....compiled.jit import ONE, Width, compiled, inlined
from .tables import ALPHA, BETA, FALL_1, FALL_2, FIRST, ROW, SECOND, SLACK, THIRD

REJECTED_MERIT = -1e300  # of a model outside the limits


@functools.cache
def merit_function(ops: Width) -> Any:
    """Return ``merit``, which returns a model's saved squared error, or `REJECTED_MERIT` outside of the limits."""
    # merit_exact: where the fractions sum to more than one, the merit is taken on the face of the sum. (If they sum to
    # less, that face is no optimum: its fractions are those of the free sum less λ G⁻¹1, λ >= 0.)
    select = ops.select

    @inlined
    def merit_exact(models, gained, f_i, f_j, f_m, total, slack, falls):
        over, zero = total - 1.0, gained * 0.0
        over = select(over > 0.0, over, zero)
        inside = (f_i - over * falls[0] >= 0.0) & (f_j - over * falls[1] >= 0.0) & (f_m - over * falls[2] >= 0.0)
        return select(inside, gained - over * over * slack, zero + REJECTED_MERIT)

    @inlined
    def merit_within(models, gained, f_i, f_j, f_m, total, slack, falls):
        lowest, highest, shade = models.lowest, models.highest, 1.0 - total
        inside = (f_i >= lowest) & (f_i <= highest) & (f_j >= lowest) & (f_j <= highest)
        inside = (
            inside & (f_m >= lowest) & (f_m <= highest) & (shade >= models.least_shade) & (shade <= models.most_shade)
        )
        return select(inside, gained, gained * 0.0 + REJECTED_MERIT)

    @inlined
    def merit(models, gained, f_i, f_j, f_m, total, slack, falls):
        if models.exact:
            return merit_exact(models, gained, f_i, f_j, f_m, total, slack, falls)
        return merit_within(models, gained, f_i, f_j, f_m, total, slack, falls)

    return merit


@inlined
def falls_of_two(models, i, j):
    """Return how far the fractions of two spectra fall if their sum is lowered by one, with the second's repeated."""
    fall = models.fall[i, j]
    return 1.0 - fall, fall, fall


@inlined
def falls_of_three(first, second):
    """Return by how much the fractions of three spectra fall where their sum is lowered by one, given those of two."""
    return first, second, 1.0 - first - second


@functools.cache
def pair_function(ops: Width) -> Any:
    """Return ``pair``, which returns t and fractions of a model of two spectra, from their products with the pixel."""

    @inlined
    def pair(models, i, j, u_i, u_j):
        t = (u_j - u_i * models.rho[i, j]) * models.scale[i, j]
        x = t * models.scale[i, j]
        return t, (u_i - x * models.rho[i, j]) * models.weights[i], x * models.weights[j]

    return pair


@functools.cache
def needs_function(ops: Width) -> Any:
    """Return ``needs``, which returns the least t² that counts, after the spectra before saved ``along`` of |y|²."""
    # A part of |y|² is subtracted, since t may be rounded otherwise where models are looked at one by one.
    load = ops.load

    @inlined
    def needs(best, along, k):
        return load(best.square, 0) * (1.0 - 1e-12) - along - load(best.limit, k)

    return needs


@functools.cache
def scans(ops: Width) -> tuple[Any, Any]:
    """Return ``scan_twos`` and ``scan_threes``, which return whether a model with a last spectrum in a range counts."""
    # If one does in some lane, they set most, next_most, which and needed of Best.
    load, store, select, broadcast, any_lane, fma = (
        ops.load,
        ops.store,
        ops.select,
        ops.broadcast,
        ops.any_lane,
        ops.fma,
    )
    merit, pair, needs = merit_function(ops), pair_function(ops), needs_function(ops)

    @inlined
    def larger(a, b):
        return select(a > b, a, b)

    @inlined
    def keep_found(best, most, next_most, which, needed):
        found = any_lane(most >= needed)
        if found:
            store(best.most, 0, most)
            store(best.next_most, 0, next_most)
            store(best.which, 0, which)
            store(best.needed, 0, needed)
        return found

    @inlined
    def scan_twos(models, best, i, start, stop):
        u_i = load(best.u, i)
        needed = needs(best, u_i * u_i, 2)
        most, next_most, which = broadcast(REJECTED_MERIT), broadcast(REJECTED_MERIT), broadcast(0.0)
        for j in range(start, stop):
            t, f_i, f_j = pair(models, i, j, u_i, load(best.u, j))
            value = merit(models, t * t, f_i, f_j, f_j, f_i + f_j, models.slack[i, j], falls_of_two(models, i, j))
            next_most = larger(next_most, select(value > most, most, value))
            which = select(value > most, broadcast(float(j)), which)
            most = larger(value, most)
        return keep_found(best, most, next_most, which, needed)

    @inlined
    def scan_threes(models, best, i, j, start, stop):
        less, triples, at = best.less, models.triples, models.place[i, j]
        u_i = load(best.u, i)
        t_j, g_i, g_j = pair(models, i, j, u_i, load(best.u, j))
        needed = needs(best, u_i * u_i + t_j * t_j, 3)
        most, next_most, which = broadcast(REJECTED_MERIT), broadcast(REJECTED_MERIT), broadcast(0.0)
        for m in range(start, stop):
            row = ROW * (at + m)
            t = fma(load(less, m), broadcast(triples[row + ALPHA]), t_j * triples[row + BETA])
            f_i = fma(t, broadcast(triples[row + FIRST]), g_i)
            f_j = fma(t, broadcast(triples[row + SECOND]), g_j)
            f_m = t * triples[row + THIRD]
            falls = falls_of_three(triples[row + FALL_1], triples[row + FALL_2])
            value = merit(models, t * t, f_i, f_j, f_m, f_i + f_j + f_m, triples[row + SLACK], falls)
            next_most = larger(next_most, select(value > most, most, value))
            which = select(value > most, broadcast(float(m)), which)
            most = larger(value, most)
        return keep_found(best, most, next_most, which, needed)

    return scan_twos, scan_threes


_merit, _pair = merit_function(ONE), pair_function(ONE)
# The most spectra of a model.
MOST_SPECTRA = 3


@functools.cache
def single_models(consider: Any) -> tuple[Any, Any, Any]:
    """Return ``consider_ones``, ``consider_two`` and ``consider_three``, which consider a pixel's models that count."""

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
    """Return ``look(models, best, count)``, which calls ``consider`` with models of a tile's first pixels."""
    # A pair of spectra (or one) and a class are scanned for all pixels at once; the best model is considered if it is
    # below a pixel's limit, and the others where the next best is, too. Order: class sets, then spectra in the library.
    # consider(models, best, s, k, i, j, m, t_j, t_m, error) may change best.limit[k, s]; t are of Gram-Schmidt.
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
