"""Find the best models of a tile's pixels, choose among their sizes, and prove the optimum."""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from ....certificate import UNDERFLOW, UNIT_ROUNDOFF
from ....compiled.jit import Width, compiled, inlined
from .loops import MOST_SPECTRA, Scan, loops_function, new_scan
from .tables import FIRST, LAST, SECOND, row_of_model

# Two models whose squared errors differ by less than this share of |y|² are not told apart: the rounding of an error is some 1e-14 of
# it, and more where spectra of a model are alike.
SAME_ERROR = 1e-11
# Abundances that differ by less are not of different models.
SAME_ABUNDANCE = 1e-6
# A sum of abundances that is nearer to one may be held there.
NEAR_ONE = 1e-12


class Best(NamedTuple):
    """The best models so far of each size, of w pixels."""

    scan: Scan
    error: Any  # (4, w) squared; infinite where there is none
    second: Any  # (4, w) squared error of the second best
    spectra: Any  # (4, 3, w) int64, in the order of the tables
    abundances: Any  # (4, 3, w)
    duals: Any  # (3, w) of the spectra of the chosen model


def new_best(p: int, width: int, L: int, empty: Any = np.empty) -> Best:
    """Allocate the scratch of w pixels by ``empty(shape, type)``; L may be 0 where residuals have no limit."""
    levels, models = (MOST_SPECTRA + 1, width), (MOST_SPECTRA + 1, MOST_SPECTRA, width)
    return Best(
        new_scan(p, width, L, empty), empty(levels, np.float64), empty(levels, np.float64), empty(models, np.int64),
        empty(models, np.float64), empty((MOST_SPECTRA, width), np.float64),
    )  # fmt: skip


@inlined
def set_limits(models, scan, best, s):
    """Set the limits of squared errors: the largest allowed, that of the second best, and that of the best face of fewer spectra.

    The latter with what counts as the same: a model that fits as well must be known, or the choice would pass for proved.
    """
    limit = models.most_error
    for k in range(scan.limit.shape[0]):
        scan.limit[k, s] = min(limit, best.second[k, s])
        limit = min(limit, best.error[k, s] + SAME_ERROR * scan.square[0, s]) if models.exact else limit


@inlined
def exceeds(x, spectra, k, others, other_spectra, m, s):
    """Return whether an abundance of a model of k spectra differs from that of the same spectrum in a model of m."""
    for c in range(k):
        left = x[c, s]
        for d in range(m):
            left -= others[d, s] if other_spectra[d, s] == spectra[c, s] else 0.0
        if abs(left) > SAME_ABUNDANCE:
            return True
    return False


@inlined
def are_other_mixtures(x, spectra, k, others, other_spectra, m, s):
    """Return whether two models of pixel s are different mixtures: a spectrum more with an abundance of 1e-17 makes no other model."""
    return exceeds(x, spectra, k, others, other_spectra, m, s) or exceeds(others, other_spectra, m, x, spectra, k, s)


@inlined
def consider(models, scan, best, s, k):
    """Compare a model of k spectra, whose squared error is below the limit, with the best of pixel s."""
    error, x, spectra = scan.error[0, s], best.abundances[k], best.spectra[k]
    # The same spectra and one more with an abundance of 1e-17 are no other model: a spectrum of the library as pixel has many such.
    other = not best.error[k, s] < np.inf or are_other_mixtures(scan.x, scan.spectra, k, x, spectra, k, s)
    if error < best.error[k, s]:
        best.second[k, s] = best.error[k, s] if other else best.second[k, s]
        best.error[k, s] = error
        for c in range(k):
            x[c, s], spectra[c, s] = scan.x[c, s], scan.spectra[c, s]
    elif other:
        best.second[k, s] = error
    set_limits(models, scan, best, s)


@functools.cache
def search_function(ops: Width) -> Any:
    """Return ``search(models, best, count)``, which finds the best models of the first ``count`` pixels of a tile."""
    look = loops_function(ops, consider)

    @compiled
    def search(models, best, count):
        for s in range(count):
            for k in range(best.error.shape[0]):
                best.error[k, s] = best.second[k, s] = np.inf
            if models.exact and best.scan.square[0, s] < models.most_error:
                best.error[0, s] = best.scan.square[0, s]  # shade alone
            set_limits(models, best.scan, best, s)
        look(models, best.scan, best, count)

    return search


@compiled
def choose_level(models, best, s):
    """Return the number of spectra of the model that fusion leaves (−1 if there is none), and the squared error of the second best.

    A level is kept where it betters the RMSE of the one before by at least ``fusion``; of those that are kept the best is chosen. Under
    the limits ``exact`` the faces of fewer spectra are models of every level.
    """
    chosen, least, kept, preceding, second = -1, np.inf, np.inf, np.inf, np.inf
    size, error, others = -1, np.inf, np.inf
    for k in range(models.most + 1):
        if not models.exact:
            size, error, others = k, best.error[k, s], best.second[k, s]
        elif best.error[k, s] < np.inf:
            a, spectra = best.abundances, best.spectra
            is_other = size >= 0 and are_other_mixtures(a[k], spectra[k], k, a[size], spectra[size], size, s)
            if best.error[k, s] < error:
                others = min(error if is_other else others, best.second[k, s])
                size, error = k, best.error[k, s]
            else:
                others = min(others, best.error[k, s] if is_other else best.second[k, s])
        if k < models.fewest:
            continue
        rmse = math.sqrt(error / models.bands)
        reference = kept if models.against_kept else preceding
        if rmse < np.inf and (reference == np.inf or reference - rmse >= models.fusion):
            kept = rmse
            if rmse < least:
                chosen, least, second = size, rmse, others
        preceding = rmse
    return chosen, second


@inlined
def prove(models, best, s, k, L, y_norm, r_norm):
    """Return κ and δ of the model of k spectra that was found.

    κ is the largest dual of its spectra (less the multiplier of a sum held at one) over lengths and |y|; δ bounds the distance of the
    abundances to the optimum of the model, by the trace of the inverse of its Gram matrix.
    """
    if k <= 0:
        return 0.0, 0.0
    a, spectra, lengths = best.abundances[k], best.spectra[k], models.lengths
    total, weighted, sizes, shortest = 0.0, 0.0, 0.0, np.inf
    for c in range(k):
        total += a[c, s]
        weighted += a[c, s] * best.duals[c, s]
        sizes += abs(a[c, s]) * lengths[spectra[c, s]]
        shortest = min(shortest, lengths[spectra[c, s]])
    held = models.exact and weighted > 0.0 and total > 1.0 - NEAR_ONE
    multiplier, off = (weighted / total, abs(total - 1.0)) if held else (0.0, 0.0)
    rounding = (r_norm * (L + 2.0) + (y_norm + sizes) * (k + 2.0)) * UNIT_ROUNDOFF
    largest, squares, trace = 0.0, UNDERFLOW, 0.0
    for c in range(k):
        dual = abs(best.duals[c, s] - multiplier) / lengths[spectra[c, s]]
        largest = max(largest, dual)
        squares += (dual + rounding) ** 2
        row = row_of_model(models, c + 1, spectra[0, s], spectra[min(1, c), s], spectra[c, s])
        trace += (models.rows[row, LAST] * lengths[spectra[c, s]]) ** 2
        trace += (models.rows[row, FIRST] * lengths[spectra[0, s]]) ** 2
        trace += (models.rows[row, SECOND] * lengths[spectra[min(1, k - 1), s]]) ** 2
    kappa = max(largest / y_norm if y_norm > 0.0 else largest, off)
    slack = off + (4.0 * k * UNIT_ROUNDOFF * total if held else 0.0)
    return kappa, math.sqrt(squares) * 1.01 * trace / shortest + slack


@inlined
def write_duals(models, E, tile, best, s, k):
    """Write the abundances of the model of k spectra that was found to the tile, and its duals; return its squared error."""
    a, spectra, order = best.abundances[k], best.spectra[k], models.order
    i, j, m = order[spectra[0, s]], order[spectra[min(1, k - 1), s]], order[spectra[k - 1, s]]
    x_i, x_j, x_m = a[0, s], a[1, s] if k > 1 else 0.0, a[2, s] if k > 2 else 0.0
    left, w_i, w_j, w_m = 0.0, 0.0, 0.0, 0.0
    for b in range(E.shape[0]):  # a loop over spectra in it took 4 µs a pixel
        e_i, e_j, e_m = E[b, i], E[b, j], E[b, m]
        r = tile.Y[b, s] - e_i * x_i - e_j * x_j - e_m * x_m
        left += r * r
        w_i, w_j, w_m = w_i + e_i * r, w_j + e_j * r, w_m + e_m * r
    best.duals[0, s], best.duals[1, s], best.duals[2, s] = w_i, w_j, w_m
    for c in range(k):
        tile.A[order[spectra[c, s]], s] = a[c, s]
    return left


def models_function(ops: Width) -> Any:
    """Return the search of `unmix.solvers.pixels.tile.by_models`."""
    load, store, broadcast, search_models = ops.load, ops.store, ops.broadcast, search_function(ops)

    @compiled
    def search(plan, tile, best, count):
        models, L = plan.models, plan.E.shape[0]
        length = load(tile.length, 0)
        store(best.scan.square, 0, length * length)
        for j in range(plan.E.shape[1]):
            store(best.scan.u, j, load(tile.F, models.order[j]))
            store(tile.A, j, broadcast(0.0))
        for b in range(models.spectra.shape[0]):
            store(best.scan.pixels, b, load(tile.Y, b))
        search_models(models, best, count)
        for s in range(count):
            k, second = choose_level(models, best, s)
            square = best.scan.square[0, s]
            left = write_duals(models, plan.E, tile, best, s, k) if k > 0 else square
            kappa, delta = prove(models, best, s, k, L, tile.length[0, s], left**0.5)
            error = best.error[k, s] if k >= 0 else 0.0
            tile.steps[0, s], tile.rmse[0, s], tile.kappa[0, s] = max(k, 0), (left / L) ** 0.5, kappa
            tile.delta[0, s] = delta if k < 0 or second - error > SAME_ERROR * square else np.inf

    return search
