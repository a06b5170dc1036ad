"""Go through all models of a tile's pixels, in one loop for a CPU's vectors and a GPU's threads."""

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import uint64

from ....compiled.jit import Width, compiled, inlined
from .tables import FIRST, LAST, SECOND, SLACK

# The most spectra of a model.
MOST_SPECTRA = 3


class Scan(NamedTuple):
    """What the loop reads of w pixels, and the model that it hands on."""

    limit: Any  # (4, w) squared error that a model of each size has to be below
    u: Any  # (p, w) Eᵀy, in the order of the tables
    square: Any  # (1, w) |y|²
    error: Any  # (1, w) squared error of the model; infinite where it is not handed on
    x: Any  # (3, w) its abundances
    spectra: Any  # (3, w) int64: its spectra
    pixels: Any  # (L, w) where residuals have a limit; else it may have no rows


def new_scan(p: int, w: int, L: int, empty: Any = np.empty) -> Scan:
    """Allocate this for w pixels by ``empty(shape, type)``; L may be 0 where residuals have no limit."""
    n, real = MOST_SPECTRA, np.float64
    return Scan(
        empty((n + 1, w), real), empty((p, w), real), empty((1, w), real), empty((1, w), real), empty((n, w), real),
        empty((n, w), np.int64), empty((L, w), real),
    )  # fmt: skip


@inlined
def has_run_of_residuals(models, scan, s, k):
    """Return whether the residual of the model that is handed on is too large in `models.run` bands after each other."""
    run = 0
    for b in range(models.spectra.shape[0]):
        r = scan.pixels[b, s]
        for c in range(k):
            r -= models.spectra[b, scan.spectra[c, s]] * scan.x[c, s]
        run = run + 1 if abs(r) >= models.most_residual else 0
        if run >= models.run:
            return True
    return False


@functools.cache
def limits_function(ops: Width) -> Any:
    """Return ``within(models, k, gain, x, slack, ones)``: the lanes whose limits allow a model, what it takes off |y|², its abundances.

    Under the limits ``exact`` abundances that sum to more than one are moved along ``ones``, G⁻¹1, to the optimum on the face of the
    sum. (Where they sum to less, that face is no optimum: its abundances are those of the free sum less ``λ G⁻¹1``, λ >= 0.)
    """
    select, broadcast, fma = ops.select, ops.broadcast, ops.fma

    @inlined
    def within(models, k, gain, x, slack, ones):
        x_i, x_j, x_m = x
        missing = 1.0 - (x_i + x_j + x_m)
        if models.exact:
            missing = select(missing < 0.0, missing, broadcast(0.0))
            less = missing * slack
            x_i, x_j = fma(less, broadcast(ones[0]), x_i), fma(less, broadcast(ones[1]), x_j)
            x_m = fma(less, broadcast(ones[2]), x_m)
            return (x_i >= 0.0) & (x_j >= 0.0) & (x_m >= 0.0), gain - missing * less, (x_i, x_j, x_m)
        lowest, highest = models.lowest, models.highest
        inside = (x_m >= lowest) & (x_m <= highest) & (missing >= models.least_shade) & (missing <= models.most_shade)
        if k > 1:
            inside = inside & (x_i >= lowest) & (x_i <= highest)
        if k > 2:
            inside = inside & (x_j >= lowest) & (x_j <= highest)
        return inside, gain, x

    return within


@functools.cache
def loops_function(ops: Width, consider: Any) -> Any:
    """Return ``look(models, scan, best, count)``, which calls ``consider`` with the models of the first ``count`` pixels of a tile.

    Sizes ascend, class sets come in order, then spectra in the order of the library.

    Parameters
    ----------
    ops : Width
    consider : compiled function
        ``consider(models, scan, best, s, k)``, for pixel s and a model of k spectra, in `Scan`, whose squared error is below the limit.
        It may lower or raise ``scan.limit[k, s]``; what ``best`` is, is its own.
    """
    load, store, select, broadcast, any_lane, fma = (
        ops.load,
        ops.store,
        ops.select,
        ops.broadcast,
        ops.any_lane,
        ops.fma,
    )
    within = limits_function(ops)

    @inlined
    def hand_on(models, scan, best, count, k, i, j, m):
        for s in range(count):
            if scan.error[0, s] < scan.limit[k, s]:
                scan.spectra[0, s], scan.spectra[1, s], scan.spectra[2, s] = i, j, m
                last, scan.x[2, s] = scan.x[2, s], 0.0
                scan.spectra[k - 1, s], scan.x[k - 1, s] = m, last
                scan.error[0, s] = max(scan.error[0, s], 0.0)
                if not has_run_of_residuals(models, scan, s, k):
                    consider(models, scan, best, s, k)

    @inlined
    def look_at_last(models, scan, best, count, k, i, j, start, stop):
        """Look at the models of one of ``start`` to ``stop`` and the spectra before it: none, i, or i and j."""
        rows, place = models.rows, models.place
        u_i, u_j, x_i, x_j = load(scan.u, i), load(scan.u, j), broadcast(0.0), broadcast(0.0)
        gained, of_i, of_j = 0.0 - load(scan.square, 0), 0.0, 0.0
        if k > 1:
            last = rows[i, LAST]
            t = u_i * last
            x_i, gained, of_i = t * last, fma(t, t, gained), last * last
        if k > 2:
            row = place[i, i] + j
            first, last = rows[row, FIRST], rows[row, LAST]
            t = fma(u_j, broadcast(last), u_i * first)
            x_i, x_j, gained = fma(t, broadcast(first), x_i), t * last, fma(t, t, gained)
            of_i, of_j = of_i + (first + last) * first, (first + last) * last
        needed, begin = 0.0 - load(scan.limit, k), place[i, j] if k > 1 else 0
        for m in range(start, stop):
            row = uint64(begin + m)  # a signed index might be negative, which costs three instructions for each number
            first, second, last = rows[row, FIRST], rows[row, SECOND], rows[row, LAST]
            t = fma(load(scan.u, m), broadcast(last), fma(u_j, broadcast(second), u_i * first))
            along = first + second + last
            x = fma(t, broadcast(first), x_i), fma(t, broadcast(second), x_j), t * last
            ones = of_i + along * first, of_j + along * second, along * last
            inside, gain, x = within(models, k, fma(t, t, gained), x, rows[row, SLACK], ones)
            inside = inside & (gain > needed)
            if any_lane(inside):
                store(scan.error, 0, select(inside, 0.0 - gain, broadcast(np.inf)))
                store(scan.x, 0, x[0])
                store(scan.x, 1, x[1])
                store(scan.x, 2, x[2])
                hand_on(models, scan, best, count, k, i, j, m)
                needed = 0.0 - load(scan.limit, k)

    @compiled
    def look(models, scan, best, count):
        begin = models.begin
        for q in range(models.sets.shape[0]):
            k, a, b, c = int(models.sets[q, 0]), models.sets[q, 1], models.sets[q, 2], models.sets[q, 3]
            for i in range(begin[a], begin[a + 1] if k > 1 else begin[a] + 1):
                for j in range(begin[b] if k > 2 else i, begin[b + 1] if k > 2 else i + 1):
                    look_at_last(models, scan, best, count, k, i, j, begin[c], begin[c + 1])

    return look
