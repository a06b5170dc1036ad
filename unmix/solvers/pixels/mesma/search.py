"""Find the best models of a tile's pixels, choose among their sizes, and prove the optimum."""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from ....certificate import UNDERFLOW, UNIT_ROUNDOFF
from ....compiled.jit import Width, compiled, inlined
from .loops import MOST_SPECTRA, loops_function
from .solution import SAME_ABUNDANCE, ones_of, solution_of

# Two models whose squared errors differ by less than this share of |y|² are not told apart: the rounding of an error is
# some 1e-14 of it, and more where spectra of a model are alike.
SAME_ERROR = 1e-11
# By how much a further spectrum has to lower χ²: its abundance is then two deviations of noise above 0. On families of
# 5 to 40 spectra a class RMSE of fractions were within 7 % of the best number from 0 to 6.
NOISE_GAIN = 4.0


class Best(NamedTuple):
    """The best models so far of each size, of w pixels."""

    error: Any  # (4, w) squared; infinite where there is none
    second: Any  # (4, w) squared error of the second best
    limit: Any  # (4, w) the limit of a model's error
    spectra: Any  # (4, 3, w) int64, in the order of the tables
    abundances: Any  # (4, 3, w)
    summed: Any  # (4, w) 1 where the sum is held at one
    u: Any  # (p, w)
    less: Any  # (p, w) u less its part along the first spectrum
    square: Any  # (1, w) |y|²
    most: Any  # (1, w) the largest merit of a class
    next_most: Any  # (1, w) the next
    which: Any  # (1, w) the spectrum with the largest
    needed: Any  # (1, w) the least merit that counts
    x: Any  # (3, w) abundances of a model
    duals: Any  # (p, w)
    pixels: Any  # (L, w), set where residuals have a limit; else it may have no rows


def best_shapes(p: int, width: int, L: int) -> tuple[tuple[tuple[int, ...], Any], ...]:
    """Return shape and type of each field of `Best`; L may be 0 where residuals have no limit."""
    n = MOST_SPECTRA
    levels, models, spectra, one = (n + 1, width), (n + 1, n, width), (p, width), (1, width)
    shapes = (
        *[levels] * 3,
        models,
        models,
        levels,
        spectra,
        spectra,
        *[one] * 5,
        (n, width),
        spectra,
        (L, width),
    )
    return tuple((shape, np.int64 if name == "spectra" else np.float64) for name, shape in zip(Best._fields, shapes))


@inlined
def set_limits(models, best, s):
    """Set the limits of squared errors: the largest allowed, the second best, and the best face of fewer spectra."""
    # The last includes SAME_ERROR: a model that fits as well must be known, or the choice would pass for proved.
    limit = models.most_error
    for k in range(best.limit.shape[0]):
        best.limit[k, s] = min(limit, best.second[k, s])
        limit = min(limit, best.error[k, s] + SAME_ERROR * best.square[0, s]) if models.exact else limit


@inlined
def is_another(best, s, k, i, j, m):
    """Return whether the abundances in ``best.x`` are those of another model than the best of k spectra."""
    largest, x = 0.0, best.x
    for c in range(k):
        at, left = i if c == 0 else (j if c == 1 else m), x[c, s]
        for d in range(k):
            left -= best.abundances[k, d, s] if best.spectra[k, d, s] == at else 0.0
        largest = max(largest, abs(left))
    for d in range(k):
        at = best.spectra[k, d, s]
        is_shared = at == i or (k > 1 and at == j) or (k > 2 and at == m)
        largest = max(largest, 0.0 if is_shared else abs(best.abundances[k, d, s]))
    return largest > SAME_ABUNDANCE


@inlined
def has_run_of_residuals(models, best, s, k, i, j, m):
    """Return whether the residual of the model in ``best.x`` is too large in `models.run` bands after each other."""
    run, x, spectra = 0, best.x, models.spectra
    for b in range(spectra.shape[0]):
        r = best.pixels[b, s] - spectra[b, i] * x[0, s]
        if k > 1:
            r -= spectra[b, j] * x[1, s]
        if k > 2:
            r -= spectra[b, m] * x[2, s]
        run = run + 1 if abs(r) >= models.most_residual else 0
        if run >= models.run:
            return True
    return False


@inlined
def fit_model(models, best, s, k, i, j, m, t_j, t_m, error):
    """Write abundances of a model of k spectra; return if it is allowed, squared error, and 1 if its sum is held."""
    x = best.x
    x[0, s], x[1, s], x[2, s] = solution_of(models, k, i, j, m, best.u[i, s], t_j, t_m)
    total, least, most = 0.0, np.inf, -np.inf
    for c in range(k):
        total += x[c, s]
        least, most = min(least, x[c, s]), max(most, x[c, s])
    if not models.exact:
        shade = 1.0 - total
        allowed = least >= models.lowest and most <= models.highest
        allowed = allowed and models.least_shade <= shade <= models.most_shade
        return allowed and not has_run_of_residuals(models, best, s, k, i, j, m), error, 0.0
    if total <= 1.0:
        return least >= 0.0, error, 0.0
    # On the face of the sum: the optimum of the same spectra, moved along the vector of ones.
    s_i, s_j, s_m = ones_of(models, k, i, j, m)
    missing, rate = 1.0 - total, s_i + s_j + s_m
    error += missing * missing / rate
    x[0, s] += missing / rate * s_i
    x[1, s] += missing / rate * s_j
    x[2, s] += missing / rate * s_m
    least = np.inf
    for c in range(k):
        least = min(least, x[c, s])
    return least >= 0.0 and error < best.limit[k, s], error, 1.0


@inlined
def consider(models, best, s, k, i, j, m, t_j, t_m, error):
    """Compare a model of k spectra, whose squared error is below the limit, with the best of pixel s."""
    allowed, error, held = fit_model(models, best, s, k, i, j, m, t_j, t_m, error)
    if not allowed:
        return
    x = best.x
    # The same spectra and one more with an abundance of 1e-17 are no other model: a spectrum of the library as pixel
    # has many such.
    other = not best.error[k, s] < np.inf or is_another(best, s, k, i, j, m)
    if error < best.error[k, s]:
        best.second[k, s] = best.error[k, s] if other else best.second[k, s]
        best.error[k, s], best.summed[k, s] = error, held
        best.spectra[k, 0, s], best.spectra[k, 1, s], best.spectra[k, 2, s] = i, j, m
        for c in range(k):
            best.abundances[k, c, s] = x[c, s]
    elif other:
        best.second[k, s] = error
    set_limits(models, best, s)


@functools.cache
def search_function(ops: Width) -> Any:
    """Return ``search(models, best, count)``, which finds the best models of the first ``count`` pixels of a tile."""
    look = loops_function(ops, consider)

    @compiled
    def search(models, best, count):
        for s in range(count):
            for k in range(best.error.shape[0]):
                best.error[k, s] = best.second[k, s] = np.inf
                best.summed[k, s] = 0.0
            if models.exact and best.square[0, s] < models.most_error:
                best.error[0, s] = best.square[0, s]  # shade alone
            set_limits(models, best, s)
        look(models, best, count)

    return search


@inlined
def difference_of_errors(best, s, k, m):
    """Return the largest difference of an abundance between the best models of two sizes."""
    largest = 0.0
    for c in range(k):
        left = best.abundances[k, c, s]
        for d in range(m):
            left -= best.abundances[m, d, s] if best.spectra[m, d, s] == best.spectra[k, c, s] else 0.0
        largest = max(largest, abs(left))
    for d in range(m):
        left = best.abundances[m, d, s]
        for c in range(k):
            left = 0.0 if best.spectra[m, d, s] == best.spectra[k, c, s] else left
        largest = max(largest, abs(left))
    return largest


@compiled
def choose_level(models, best, s):
    """Return the number of spectra of the model after fusion (−1 for none), and the second best's squared error."""
    # A level is kept where it improves the RMSE of the one before by at least `fusion`, or χ² by more than noise does,
    # whose variance is that of the least residual; the best of these is chosen.
    # Under the limits "exact" the faces of fewer spectra are models of every level.
    chosen, least, kept, preceding, second = -1, np.inf, np.inf, np.inf, np.inf
    size, error, others, variance = -1, np.inf, np.inf, np.inf
    level_kept = level_before = 0
    for k in range(0 if models.exact else models.fewest, models.most + 1):
        variance = min(variance, best.error[k, s] / max(models.bands - models.most, 1.0))
    for k in range(models.most + 1):
        if not models.exact:
            size, error, others = k, best.error[k, s], best.second[k, s]
        elif best.error[k, s] < np.inf:
            # A spectrum more with an abundance of 1e-17 is no other model.
            is_other = size >= 0 and difference_of_errors(best, s, k, size) > SAME_ABUNDANCE
            if best.error[k, s] < error:
                others = min(error if is_other else others, best.second[k, s])
                size, error = k, best.error[k, s]
            else:
                others = min(others, best.error[k, s] if is_other else best.second[k, s])
        if k < models.fewest:
            continue
        rmse = math.sqrt(error / models.bands)
        reference, level = (kept, level_kept) if models.against_kept else (preceding, level_before)
        needed = models.fusion
        if models.fusion < 0.0 and reference < np.inf:
            left = reference * reference - NOISE_GAIN * (k - level) * variance / models.bands
            needed = reference - math.sqrt(max(left, 0.0))
        if rmse < np.inf and (reference == np.inf or reference - rmse >= needed):
            kept, level_kept = rmse, k
            if rmse < least:
                chosen, least, second = size, rmse, others
        preceding, level_before = rmse, k
    return chosen, second


@compiled
def prove(models, best, s, k, L, y_norm, r_norm):
    """Return κ and δ of the model of k spectra that was found."""
    # κ is the largest dual of its spectra (less their mean if their sum is held) over lengths and |y|; δ bounds the
    # distance of the abundances to the model's optimum, by the trace of the inverse of its Gram matrix.
    if k <= 0:
        return 0.0, 0.0
    lengths, rho = models.lengths, models.rho
    a, spectra = best.abundances, best.spectra
    total, weighted, sizes, shortest = 0.0, 0.0, 0.0, np.inf
    for c in range(k):
        at = spectra[k, c, s]
        total += a[k, c, s]
        weighted += a[k, c, s] * best.duals[at, s]
        sizes += abs(a[k, c, s]) * lengths[at]
        shortest = min(shortest, lengths[at])
    held = best.summed[k, s] > 0.0
    multiplier = weighted / total if held else 0.0
    rounding = (r_norm * (L + 2.0) + (y_norm + sizes) * (k + 2.0)) * UNIT_ROUNDOFF
    largest, squares = 0.0, UNDERFLOW
    for c in range(k):
        at = spectra[k, c, s]
        dual = abs(best.duals[at, s] - multiplier) / lengths[at]
        largest = max(largest, dual)
        squares += (dual + rounding) ** 2
    trace = 1.0
    if k == 2:
        trace = 2.0 / (1.0 - rho[spectra[k, 0, s], spectra[k, 1, s]] ** 2)
    elif k == 3:
        i, j, m = spectra[k, 0, s], spectra[k, 1, s], spectra[k, 2, s]
        x, y, z = rho[i, j], rho[i, m], rho[j, m]
        determinant = 1.0 - x * x - y * y - z * z + 2.0 * x * y * z
        trace = (3.0 - x * x - y * y - z * z) / determinant if determinant > 0.0 else np.inf
    off = abs(total - 1.0) if held else 0.0
    kappa = max(largest / y_norm if y_norm > 0.0 else largest, off)
    return kappa, math.sqrt(squares) * 1.01 * trace / shortest + off + 4.0 * k * UNIT_ROUNDOFF * total * (
        1.0 if held else 0.0
    )


@compiled
def write_duals(models, E, tile, best, s, k):
    """Write the abundances and duals of the model of k spectra that was found; return its squared error."""
    a, spectra = best.abundances, best.spectra
    i, j, m = spectra[k, 0, s], spectra[k, min(1, k - 1), s], spectra[k, k - 1, s]
    x_i, x_j, x_m = a[k, 0, s], a[k, 1, s] if k > 1 else 0.0, a[k, 2, s] if k > 2 else 0.0
    of_i, of_j, of_m = models.order[i], models.order[j], models.order[m]
    left, w_i, w_j, w_m = 0.0, 0.0, 0.0, 0.0
    for b in range(E.shape[0]):
        e_i, e_j, e_m = E[b, of_i], E[b, of_j], E[b, of_m]
        r = tile.Y[b, s] - e_i * x_i - e_j * x_j - e_m * x_m
        left += r * r
        w_i += e_i * r
        w_j += e_j * r
        w_m += e_m * r
    tile.A[of_i, s], best.duals[i, s] = x_i, w_i
    if k > 1:
        tile.A[of_j, s], best.duals[j, s] = x_j, w_j
    if k > 2:
        tile.A[of_m, s], best.duals[m, s] = x_m, w_m
    return left


def models_function(ops: Width) -> Any:
    """Return the search of `unmix.solvers.pixels.tile.by_models`."""
    width, search_models = ops.width, search_function(ops)

    @compiled
    def search(plan, tile, best, count):
        models = plan.models
        p = tile.A.shape[0]
        for s in range(width):
            best.square[0, s] = tile.length[0, s] * tile.length[0, s]
            for j in range(p):
                best.u[j, s] = tile.F[models.order[j], s] / models.lengths[j]
                tile.A[j, s] = 0.0
            for b in range(models.spectra.shape[0]):
                best.pixels[b, s] = tile.Y[b, s]
        search_models(models, best, count)
        for s in range(count):
            k, second = choose_level(models, best, s)
            tile.steps[0, s] = max(k, 0)
            length = tile.length[0, s]
            left = length * length
            if k > 0:
                left = write_duals(models, plan.E, tile, best, s, k)
            kappa, delta = prove(models, best, s, k, plan.E.shape[0], length, left**0.5)
            error = best.error[k, s] if k >= 0 else 0.0
            tile.rmse[0, s], tile.kappa[0, s] = (left / plan.E.shape[0]) ** 0.5, kappa
            tile.delta[0, s] = delta if k < 0 or second - error > SAME_ERROR * length * length else np.inf

    return search
