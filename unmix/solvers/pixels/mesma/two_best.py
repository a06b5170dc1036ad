"""Look at all models of a pixel in a lane that is a thread of its own: find the two of each size that fit best.

The threads of a warp wait for each other, so a model that one of 32 considers in full costs all of them as much as a
dozen that they compare. A thread therefore only notes the two models that take most off the squared error, in
registers, and considers these when it has seen all. Eight spectra are held in registers, too: what is read from memory
for them serves all models of a pair.
"""

import functools
from typing import Any

import numpy as np
from numba import uint32, uint64

from ....compiled.jit import ONE, compiled, inlined
from .loops import falls_of_three, falls_of_two, merit_functions, needs_function, pair_function, single_models
from .solution import SAME_ABUNDANCE
from .tables import ALPHA, AT_ONCE, BETA, FALL_1, FALL_2, FIRST, ROW, SECOND, SLACK, THIRD

# The least that a model may take off the squared error: models that the limits reject have less
# (`scan.REJECTED_MERIT`).
LEAST_GAIN = -1e290
_pair, _needs, _fma = pair_function(ONE), needs_function(ONE), ONE.fma


@inlined
def eight(values, first, last):
    """Return eight values of a pixel from ``first`` on; the last is repeated."""
    return (
        values[first, 0],
        values[min(first + 1, last), 0],
        values[min(first + 2, last), 0],
        values[min(first + 3, last), 0],
        values[min(first + 4, last), 0],
        values[min(first + 5, last), 0],
        values[min(first + 6, last), 0],
        values[min(first + 7, last), 0],
    )


@inlined
def less_of(u_m, u_i, rho, m, last):
    """Return eight values less their part along a spectrum, whose products with all others are ``rho``."""
    return (
        u_m[0] - u_i * rho[m],
        u_m[1] - u_i * rho[min(m + uint32(1), last)],
        u_m[2] - u_i * rho[min(m + uint32(2), last)],
        u_m[3] - u_i * rho[min(m + uint32(3), last)],
        u_m[4] - u_i * rho[min(m + uint32(4), last)],
        u_m[5] - u_i * rho[min(m + uint32(5), last)],
        u_m[6] - u_i * rho[min(m + uint32(6), last)],
        u_m[7] - u_i * rho[min(m + uint32(7), last)],
    )


@inlined
def least_gain(best, k):
    """Return what a model of k spectra has to take off |y|²."""
    return max(_needs(best, 0.0, k), LEAST_GAIN)


@inlined
def none_noted(best, k):
    """Return two places without a model, as `note` does: their first and second spectra are the same."""
    none, gain = uint32(0), least_gain(best, k)
    return gain, none, none, none, gain, none, none, none, 0.0, 0.0, 0.0


@inlined
def share_of(i, one, two, three, a, b, c):
    """Return the fraction of spectrum i in a model of three spectra; 0 if it is none of them."""
    return a if i == one else (b if i == two else (c if i == three else 0.0))


@inlined
def note(models, best, k, i, j, m, gain, f_i, f_j, f_m, noted):
    """Return ``noted``, the two best models that differ, after one more: gain and spectra of second and best."""
    # Three spectra each, and the fractions of the best. A model of two repeats the second as its third, fraction 0. One
    # whose fractions are the best's to SAME_ABUNDANCE is not another model.
    next_gain, next_i, next_j, next_m, most, i1, j1, m1, a, b, c = noted
    over, falls, angle = f_i + f_j + f_m - 1.0, falls_of_two(models, i, j), models.scale[i, j]
    if k > 2:
        at = ROW * (models.place[i, j] + m)
        falls = falls_of_three(models.triples[at + FALL_1], models.triples[at + FALL_2])
        angle = models.triples[at + ALPHA]
    if not angle > 0.0:  # refused, since its spectra are too alike
        return noted
    if models.exact and over > 0.0:  # the optimum on the face of the sum of one
        f_i, f_j, f_m = f_i - over * falls[0], f_j - over * falls[1], f_m - over * falls[2] if k > 2 else 0.0
    off = max(abs(f_i - share_of(i, i1, j1, m1, a, b, c)), abs(f_j - share_of(j, i1, j1, m1, a, b, c)))
    off = max(off, abs(f_m - share_of(m, i1, j1, m1, a, b, c)) if k > 2 else 0.0)
    off = max(off, max(abs(a - share_of(i1, i, j, m, f_i, f_j, f_m)), abs(b - share_of(j1, i, j, m, f_i, f_j, f_m))))
    off = max(off, abs(c - share_of(m1, i, j, m, f_i, f_j, f_m)) if k > 2 else 0.0)
    if gain > most:
        if off > SAME_ABUNDANCE or i1 == j1:
            return most, i1, j1, m1, gain, i, j, m, f_i, f_j, f_m
        return next_gain, next_i, next_j, next_m, gain, i, j, m, f_i, f_j, f_m
    if off > SAME_ABUNDANCE:
        return gain, i, j, m, most, i1, j1, m1, a, b, c
    return noted


@inlined
def flag_lane(is_set, c):
    """Return bit c, or 0."""
    return uint32(1 << c) if is_set else uint32(0)


@inlined
def lowest(flags):
    """Return the number of the lowest bit of eight that is set."""
    bit = flags & (~flags + uint32(1))
    return (
        flag_lane(bit & uint32(0b10101010) != 0, 0)
        + flag_lane(bit & uint32(0b11001100) != 0, 1)
        + flag_lane(bit & uint32(0b11110000) != 0, 2)
    )


@inlined
def up_to(j, last):
    """Return bits for the eight spectra from j on, set for spectra that are not after the last."""
    return uint32(0xFF) if last - j >= uint32(7) else uint32((2 << (last - j)) - 1)


@functools.cache
def merits_function(exact: bool) -> tuple[Any, Any, Any, Any]:
    """Return ``merit_of_two``, ``merit_of_three``, ``hits_of_two`` and ``hits_of_three`` for the limits."""
    # merit_of: the squared error that the last spectrum saves, and the fractions; hits_of: bits, set for those of eight
    # models that save more than `needed`.
    merit = merit_functions(ONE)[0 if exact else 1]

    @inlined
    def merit_of_two(models, i, j, u_i, u_j):
        t, f_i, f_j = _pair(models, i, j, u_i, u_j)
        return merit(models, t * t, f_i, f_j, f_j, f_i + f_j, models.slack[i, j], falls_of_two(models, i, j)), f_i, f_j

    @inlined
    def merit_of_three(models, at, less, t_j, g_i, g_j):
        triples = models.triples
        t = _fma(less, triples[at], t_j * triples[at + uint64(BETA)])
        f_i, f_j = _fma(t, triples[at + uint64(FIRST)], g_i), _fma(t, triples[at + uint64(SECOND)], g_j)
        f_m = t * triples[at + uint64(THIRD)]
        falls = falls_of_three(triples[at + uint64(FALL_1)], triples[at + uint64(FALL_2)])
        value = merit(models, t * t, f_i, f_j, f_m, f_i + f_j + f_m, triples[at + uint64(SLACK)], falls)
        return value, f_i, f_j, f_m

    @inlined
    def hit_of_two(models, i, j, c, last, u_i, u_j, needed):
        return flag_lane(merit_of_two(models, i, min(j + uint32(c), last), u_i, u_j)[0] > needed, c)

    @inlined
    def hits_of_two(models, i, j, last, u_i, u_j, needed):
        return (
            hit_of_two(models, i, j, 0, last, u_i, u_j[0], needed)
            | hit_of_two(models, i, j, 1, last, u_i, u_j[1], needed)
            | hit_of_two(models, i, j, 2, last, u_i, u_j[2], needed)
            | hit_of_two(models, i, j, 3, last, u_i, u_j[3], needed)
            | hit_of_two(models, i, j, 4, last, u_i, u_j[4], needed)
            | hit_of_two(models, i, j, 5, last, u_i, u_j[5], needed)
            | hit_of_two(models, i, j, 6, last, u_i, u_j[6], needed)
            | hit_of_two(models, i, j, 7, last, u_i, u_j[7], needed)
        )

    @inlined
    def hit_of_three(models, place, c, less, t_j, g_i, g_j, needed):
        return flag_lane(merit_of_three(models, place + uint64(ROW * c), less, t_j, g_i, g_j)[0] > needed, c)

    @inlined
    def hits_of_three(models, place, less, t_j, g_i, g_j, needed):
        return (
            hit_of_three(models, place, 0, less[0], t_j, g_i, g_j, needed)
            | hit_of_three(models, place, 1, less[1], t_j, g_i, g_j, needed)
            | hit_of_three(models, place, 2, less[2], t_j, g_i, g_j, needed)
            | hit_of_three(models, place, 3, less[3], t_j, g_i, g_j, needed)
            | hit_of_three(models, place, 4, less[4], t_j, g_i, g_j, needed)
            | hit_of_three(models, place, 5, less[5], t_j, g_i, g_j, needed)
            | hit_of_three(models, place, 6, less[6], t_j, g_i, g_j, needed)
            | hit_of_three(models, place, 7, less[7], t_j, g_i, g_j, needed)
        )

    return merit_of_two, merit_of_three, hits_of_two, hits_of_three


@functools.cache
def eights_function(keep: Any, exact: bool) -> tuple[Any, Any]:
    """Return ``seconds`` and ``thirds``, which look at the models whose last spectrum is one of eight."""
    merit_of_two, merit_of_three, hits_of_two, hits_of_three = merits_function(exact)

    @inlined
    def seconds(models, best, start, stop, j, last, found):
        """Look at the models of one of ``start`` to ``stop`` and one of eight from j on."""
        u_j, inside = eight(best.u, j, last), up_to(j, last)
        i, after = uint32(start), uint32(stop)
        while i < after:
            u_i = best.u[i, 0]
            along = u_i * u_i
            hits = hits_of_two(models, i, j, last, u_i, u_j, found[0] - along) & inside
            while hits != uint32(0):
                at = uint32(j + lowest(hits))
                value, f_i, f_j = merit_of_two(models, i, at, u_i, best.u[at, 0])
                if along + value > found[0]:
                    found = keep(models, best, 2, i, at, at, along + value, f_i, f_j, 0.0, found)
                hits &= hits - uint32(1)
            i = uint32(i + uint32(1))
        return found

    @inlined
    def thirds(models, best, i, start, stop, m, last, u_m, found):
        """Look at the models of i, one of ``start`` to ``stop``, and one of eight from m on."""
        u_i, rho, inside = best.u[i, 0], models.rho[i], up_to(m, last)
        less = less_of(u_m, u_i, rho, m, last)
        j, after = uint32(start), uint32(stop)
        while j < after:
            t_j, g_i, g_j = _pair(models, i, j, u_i, best.u[j, 0])
            along, place = u_i * u_i + t_j * t_j, uint64(ROW * (models.place[i, j] + m))
            hits = hits_of_three(models, place, less, t_j, g_i, g_j, found[0] - along) & inside
            while hits != uint32(0):
                c = lowest(hits)
                at = uint32(m + c)
                row, rest = place + uint64(ROW) * c, best.u[at, 0] - u_i * rho[at]
                value, f_i, f_j, f_m = merit_of_three(models, row, rest, t_j, g_i, g_j)
                if along + value > found[0]:
                    found = keep(models, best, 3, i, j, at, along + value, f_i, f_j, f_m, found)
                hits &= hits - uint32(1)
            j = uint32(j + uint32(1))
        return found

    return seconds, thirds


@functools.cache
def every_model(keep: Any, exact: bool) -> tuple[Any, Any]:
    """Return ``every_two`` and ``every_three``, which pass the models that save more than ``found[0]`` to ``keep``."""
    # They call keep(models, best, k, i, j, m, gain, f_i, f_j, f_m, found) and return its last result.
    seconds, thirds = eights_function(keep, exact)

    @compiled
    def every_two(models, best, found):
        begin = models.begin
        classes = begin.shape[0] - 1
        for first in range(classes):
            for second in range(first + 1, classes):
                is_set = models.sets[first, second, second] > 0
                for j in range(begin[second], begin[second + 1] if is_set else begin[second], AT_ONCE):
                    last = uint32(begin[second + 1] - 1)
                    found = seconds(models, best, begin[first], begin[first + 1], uint32(j), last, found)
        return found

    @compiled
    def every_three(models, best, found):
        begin = models.begin
        classes = begin.shape[0] - 1
        for first in range(classes):
            for second in range(first + 1, classes):
                for third in range(second + 1, classes):
                    is_set = models.sets[first, second, third] > 0
                    for m in range(begin[third], begin[third + 1] if is_set else begin[third], AT_ONCE):
                        last = uint32(begin[third + 1] - 1)
                        u_m = eight(best.u, uint32(m), last)
                        for i in range(begin[first], begin[first + 1]):
                            found = thirds(
                                models, best, uint32(i), begin[second], begin[second + 1], uint32(m), last, u_m, found
                            )
        return found

    return every_two, every_three


@functools.cache
def look_function(consider: Any, exact: bool) -> Any:
    """Return ``look(models, best, count)``, which considers the two best models of each size of one pixel."""
    # All models that reach the limit are considered where these two do not settle the best and the next: another limit
    # rejects one, or rounding decides.
    ones, two, three = single_models(consider)
    note_twos, note_threes = every_model(note, exact)

    @inlined
    def keep(models, best, k, i, j, m, gain, f_i, f_j, f_m, found):
        if k == 2:
            two(models, best, 0, i, j)
        else:
            three(models, best, 0, i, j, m)
        return (least_gain(best, k),)

    all_twos, all_threes = every_model(keep, exact)

    @inlined
    def is_settled(best, k, has_second):
        return best.error[k, 0] < np.inf and (best.second[k, 0] < np.inf or not has_second)

    @compiled
    def look_at_twos(models, best):
        _, next_i, next_j, _, _, i, j, _, _, _, _ = note_twos(models, best, none_noted(best, 2))
        for one, other in ((i, j), (next_i, next_j)):
            if one != other:
                two(models, best, 0, one, other)
        if i != j and not is_settled(best, 2, next_i != next_j):
            all_twos(models, best, (least_gain(best, 2),))

    @compiled
    def look_at_threes(models, best):
        _, next_i, next_j, next_m, _, i, j, m, _, _, _ = note_threes(models, best, none_noted(best, 3))
        for one, other, third in ((i, j, m), (next_i, next_j, next_m)):
            if one != other:
                three(models, best, 0, one, other, third)
        if i != j and not is_settled(best, 3, next_i != next_j):
            all_threes(models, best, (least_gain(best, 3),))

    @compiled
    def look(models, best, count):
        if exact or models.fewest <= 1:
            ones(models, best, 0)
        if models.most >= 2 and (exact or models.fewest <= 2):
            look_at_twos(models, best)
        if models.most >= 3:
            look_at_threes(models, best)

    return look


@functools.cache
def two_best_function(consider: Any) -> Any:
    """Return ``look(models, best, count)`` for one pixel, in place of `loops_function`'s."""
    # Of models that fit equally well, which are not proved, it may take another: it goes by eight last spectra first.
    look_exact, look_within = look_function(consider, True), look_function(consider, False)

    @compiled
    def look(models, best, count):
        if models.exact:
            look_exact(models, best, count)
        else:
            look_within(models, best, count)

    return look
