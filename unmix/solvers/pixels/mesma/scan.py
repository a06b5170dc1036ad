"""Look at all models of one or two given spectra and one of a class, and find the two that take most off the squared error.

Vectors look at all lanes of a tile with selections, since some lane always has to go on; a lane that is a thread of its own leaves a
model as soon as its error is too large, whatever its fractions are: on a GPU that is the fate of most.
"""

import functools
from typing import Any

from numba import uint32, uint64

from ....compiled.jit import inlined
from ....compiled.simd import Width
from .tables import ALPHA, BETA, FIRST, SECOND, SLACK, THIRD

REJECTED_MERIT = -1e300  # of a model outside the limits


@functools.cache
def merit_function(ops: Width) -> Any:
    """Return ``merit``: what a model takes off the squared error, `REJECTED_MERIT` where the limits reject it.

    Under the limits ``exact``, where its fractions sum to more than one, it is that of the face of the sum, if that is feasible. (If
    they sum to less, that face is no optimum: its fractions are those of the free sum less ``λ G⁻¹1``, λ >= 0.)
    """
    select = ops.select

    @inlined
    def merit(models, gained, f_i, f_j, f_m, total, slack):
        nothing = gained * 0.0 + REJECTED_MERIT
        if models.exact:
            over = total - 1.0
            inside = (f_i >= 0.0) & (f_j >= 0.0) & (f_m >= 0.0)
            return select(over > 0.0, gained - over * over * slack, select(inside, gained, nothing))
        lowest, highest, shade = models.lowest, models.highest, 1.0 - total
        inside = (f_i >= lowest) & (f_i <= highest) & (f_j >= lowest) & (f_j <= highest)
        inside = (
            inside & (f_m >= lowest) & (f_m <= highest) & (shade >= models.least_shade) & (shade <= models.most_shade)
        )
        return select(inside, gained, nothing)

    return merit


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


def scans(ops: Width) -> tuple[Any, Any]:
    """Return ``scan_twos(models, best, i, start, stop)`` and ``scan_threes(models, best, i, j, start, stop)``.

    They return whether a model of the given spectra and one of ``start`` to ``stop`` reaches what is needed in some lane; if so,
    ``most``, ``next_most``, ``which`` and ``needed`` of `Best` are set.
    """
    return scans_by_branches(ops) if ops.width == 1 else scans_by_selections(ops)


@functools.cache
def scans_by_selections(ops: Width) -> tuple[Any, Any]:
    """Return `scans` that look at all lanes of a vector alike."""
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
            value = merit(models, t * t, f_i, f_j, f_j, f_i + f_j, models.slack[i, j])
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
            t = fma(load(less, m), broadcast(triples[6 * (at + m) + ALPHA]), t_j * triples[6 * (at + m) + BETA])
            f_i = fma(t, broadcast(triples[6 * (at + m) + FIRST]), g_i)
            f_j = fma(t, broadcast(triples[6 * (at + m) + SECOND]), g_j)
            f_m = t * triples[6 * (at + m) + THIRD]
            value = merit(models, t * t, f_i, f_j, f_m, f_i + f_j + f_m, triples[6 * (at + m) + SLACK])
            next_most = larger(next_most, select(value > most, most, value))
            which = select(value > most, broadcast(float(m)), which)
            most = larger(value, most)
        return keep_found(best, most, next_most, which, needed)

    return scan_twos, scan_threes


@functools.cache
def scans_by_branches(ops: Width) -> tuple[Any, Any]:
    """Return `scans` of a lane alone.

    Few models have a merit that is needed, so the rest is behind a branch. Indices are unsigned and run along, because the test of a
    signed one for being negative and products of 64 bits made two of three instructions.
    """
    fma, merit, pair, needs = ops.fma, merit_function(ops), pair_function(ops), needs_function(ops)

    @inlined
    def keep(best, most, next_most, which, needed):
        best.most[0, 0], best.next_most[0, 0], best.which[0, 0], best.needed[0, 0] = most, next_most, which, needed
        return True

    @inlined
    def scan_twos(models, best, i, start, stop):
        u, rho, scale, slack, weights = best.u, models.rho[i], models.scale[i], models.slack[i], models.weights
        u_i, w_i = u[i, 0], weights[i]
        needed = needs(best, u_i * u_i, 2)
        most, next_most, which = REJECTED_MERIT, REJECTED_MERIT, uint32(0)
        j, last = uint32(start), uint32(stop)
        while j < last:
            t = (u[j, 0] - u_i * rho[j]) * scale[j]
            x = t * scale[j]
            f_i, f_j = (u_i - x * rho[j]) * w_i, x * weights[j]
            value = merit(models, t * t, f_i, f_j, f_j, f_i + f_j, slack[j])
            if value >= needed and value > next_most:
                next_most = min(value, most)
                which = j if value > most else which
                most = max(value, most)
            j = uint32(j + uint32(1))
        return most >= needed and keep(best, most, next_most, which, needed)

    @inlined
    def scan_threes(models, best, i, j, start, stop):
        less, triples, place = best.less, models.triples, models.place[i, j] + start
        u_i = best.u[i, 0]
        t_j, g_i, g_j = pair(models, i, j, u_i, best.u[j, 0])
        needed = needs(best, u_i * u_i + t_j * t_j, 3)
        most, next_most, which = REJECTED_MERIT, REJECTED_MERIT, uint32(0)
        m, last, at = uint32(start), uint32(stop), uint64(6 * place)
        while m < last:
            t = fma(less[m, 0], triples[at], t_j * triples[at + uint64(BETA)])
            f_i, f_j = fma(t, triples[at + uint64(FIRST)], g_i), fma(t, triples[at + uint64(SECOND)], g_j)
            f_m = t * triples[at + uint64(THIRD)]
            value = merit(models, t * t, f_i, f_j, f_m, f_i + f_j + f_m, triples[at + uint64(SLACK)])
            if value >= needed and value > next_most:
                next_most = min(value, most)
                which = m if value > most else which
                most = max(value, most)
            m, at = uint32(m + uint32(1)), at + uint64(6)
        return most >= needed and keep(best, most, next_most, which, needed)

    return scan_twos, scan_threes
