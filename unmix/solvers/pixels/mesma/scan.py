"""Look at all models of one or two given spectra and one of a class, and find the two that take most off the squared error."""

import functools
from typing import Any

from ....compiled.jit import inlined
from ....compiled.simd import Width
from .tables import ALPHA, BETA, FALL_1, FALL_2, FIRST, ROW, SECOND, SLACK, THIRD

REJECTED_MERIT = -1e300  # of a model outside the limits


@functools.cache
def merit_functions(ops: Width) -> tuple[Any, Any]:
    """Return ``merit_exact`` and ``merit_within``: what a model takes off the squared error, `REJECTED_MERIT` where limits reject it.

    The first is for the limits ``exact``: where the fractions of a model sum to more than one, it is that of the face of the sum. (If
    they sum to less, that face is no optimum: its fractions are those of the free sum less ``λ G⁻¹1``, λ >= 0.) ``slack`` and the
    ``falls`` of the fractions are of `unmix.solvers.pixels.mesma.tables`.
    """
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

    return merit_exact, merit_within


@functools.cache
def merit_function(ops: Width) -> Any:
    """Return ``merit``, which is that of `merit_functions` that the models ask for."""
    merit_exact, merit_within = merit_functions(ops)

    @inlined
    def merit(models, gained, f_i, f_j, f_m, total, slack, falls):
        if models.exact:
            return merit_exact(models, gained, f_i, f_j, f_m, total, slack, falls)
        return merit_within(models, gained, f_i, f_j, f_m, total, slack, falls)

    return merit


@inlined
def falls_of_two(models, i, j):
    """Return by how much the fractions of two spectra fall where their sum is lowered by one, and that of the second again."""
    fall = models.fall[i, j]
    return 1.0 - fall, fall, fall


@inlined
def falls_of_three(first, second):
    """Return by how much the fractions of three spectra fall where their sum is lowered by one, given those of two."""
    return first, second, 1.0 - first - second


@functools.cache
def pair_function(ops: Width) -> Any:
    """Return ``pair``, which returns t and the fractions of a model of two spectra; ``u_i`` and ``u_j`` are their products."""

    @inlined
    def pair(models, i, j, u_i, u_j):
        t = (u_j - u_i * models.rho[i, j]) * models.scale[i, j]
        x = t * models.scale[i, j]
        return t, (u_i - x * models.rho[i, j]) * models.weights[i], x * models.weights[j]

    return pair


@functools.cache
def needs_function(ops: Width) -> Any:
    """Return ``needs``: what t² has to reach, where the spectra before take ``along`` off |y|².

    Less a part of |y|², since t may be rounded otherwise where models are looked at one by one.
    """
    load = ops.load

    @inlined
    def needs(best, along, k):
        return load(best.square, 0) * (1.0 - 1e-12) - along - load(best.limit, k)

    return needs


@functools.cache
def scans(ops: Width) -> tuple[Any, Any]:
    """Return ``scan_twos(models, best, i, start, stop)`` and ``scan_threes(models, best, i, j, start, stop)``.

    They return whether a model of the given spectra and one of ``start`` to ``stop`` reaches what is needed in some lane; if so,
    ``most``, ``next_most``, ``which`` and ``needed`` of `Best` are set.
    """
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
