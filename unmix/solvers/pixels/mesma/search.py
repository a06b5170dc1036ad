"""Find the best models of a tile's pixels, choose among their sizes, and prove the optimum."""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from ....certificate import UNDERFLOW, UNIT_ROUNDOFF
from ....compiled.jit import Width, compiled, inlined
from .optimum import by_size, constraint_function, optimum_function
from .tables import FALLS

# Two models whose squared errors differ by less than this share of |y|² are not told apart: the rounding of an error is
# some 1e-14 of it, and more where spectra of a model are alike.
SAME_ERROR = 1e-11
# Abundances that differ by less are not of different models.
SAME_ABUNDANCE = 1e-6
# By how much a further spectrum has to lower χ²: its abundance is then two deviations of noise above 0. On families of
# 5 to 40 spectra a class RMSE of fractions were within 7 % of the best number from 0 to 6. More than three spectra have
# so many models that one of them often fits noise: three deviations.
FEW_SPECTRA, NOISE_GAIN, NOISE_GAIN_OF_MANY = 3, 4.0, 9.0


class Best(NamedTuple):
    """The best models so far of each size up to K, of w pixels; slot K + 1 has the model that is compared with them."""

    error: Any  # (K + 1, w) squared error of the best; infinite without one
    second: Any  # (K + 1, w) squared error of the second best
    limit: Any  # (K + 1, w) the limit of a model's error
    summed: Any  # (K + 1, w) 1 where the sum is held at one
    spectra: Any  # (K + 2, K, w) int64: columns of the library
    place: Any  # (K + 1, w) int64: where a model's numbers begin
    abundances: Any  # (K + 2, K, w)
    a: Any  # (K, w) abundances of a model of all pixels
    square: Any  # (1, w) |y|²
    found: Any  # (1, w) squared error of that model
    over: Any  # (1, w) by how much its sum was above one
    duals: Any  # (K, w)


def best_shapes(most: int, width: int) -> tuple[tuple[tuple[int, ...], Any], ...]:
    """Return shape and type of each field of `Best` for models of at most so many spectra."""
    level, slots, model, one = (most + 1, width), (most + 2, most, width), (most, width), (1, width)
    shapes = *[level] * 4, slots, level, slots, model, one, one, one, model
    return tuple(
        (shape, np.int64 if name in ("spectra", "place") else np.float64) for name, shape in zip(Best._fields, shapes)
    )


@inlined
def set_limits(models, best, s):
    """Set the limits of squared errors: the largest allowed, the second best, and the best face of fewer spectra."""
    # The last includes SAME_ERROR: a model that fits as well must be known, or the choice would pass for proved.
    limit = models.most_error
    for k in range(best.limit.shape[0]):
        best.limit[k, s] = min(limit, best.second[k, s])
        limit = min(limit, best.error[k, s] + SAME_ERROR * best.square[0, s]) if models.exact else limit


@inlined
def difference(best, s, slot, k, other, m):
    """Return the largest difference of an abundance between the models of two slots, of k and m spectra."""
    largest, a, spectra = 0.0, best.abundances, best.spectra
    for c in range(k):
        left = a[slot, c, s]
        for d in range(m):
            left -= a[other, d, s] if spectra[other, d, s] == spectra[slot, c, s] else 0.0
        largest = max(largest, abs(left))
    for d in range(m):
        left = a[other, d, s]
        for c in range(k):
            left = 0.0 if spectra[other, d, s] == spectra[slot, c, s] else left
        largest = max(largest, abs(left))
    return largest


@inlined
def residual_in(E, Y, best, s, slot, k, b):
    """Return the residual of a slot's model of k spectra in band b."""
    r = Y[b, s]
    for c in range(k):
        r -= E[b, best.spectra[slot, c, s]] * best.abundances[slot, c, s]
    return r


@inlined
def has_run_of_residuals(models, E, Y, best, s, slot, k):
    """Return whether the residual of a slot's model is too large in `models.run` bands after each other."""
    run = 0
    for b in range(E.shape[0] if models.most_residual < np.inf else 0):
        run = run + 1 if abs(residual_in(E, Y, best, s, slot, k, b)) >= models.most_residual else 0
        if run >= models.run:
            return True
    return False


@compiled
def compare_model(models, E, Y, best, s, k, at, place):
    """Compare a model of k spectra, whose squared error is below the limit, with the best of pixel s."""
    new, error = best.error.shape[0], best.found[0, s]
    for c in range(k):
        best.spectra[new, c, s], best.abundances[new, c, s] = models.spectra[place + c], best.a[c, s]
    if has_run_of_residuals(models, E, Y, best, s, new, k):
        return
    # The same spectra and one more with an abundance of 1e-17 are no other model: a spectrum of the library as pixel
    # has many such.
    other = not best.error[k, s] < np.inf or difference(best, s, new, k, k, k) > SAME_ABUNDANCE
    if error < best.error[k, s]:
        best.second[k, s] = best.error[k, s] if other else best.second[k, s]
        best.error[k, s], best.place[k, s] = error, at
        best.summed[k, s] = 1.0 if best.over[0, s] > 0.0 else 0.0
        for c in range(k):
            best.spectra[k, c, s], best.abundances[k, c, s] = best.spectra[new, c, s], best.abundances[new, c, s]
    elif other:
        best.second[k, s] = error
    set_limits(models, best, s)


@functools.cache
def size_function(ops: Width, size: int) -> Any:
    """Return ``look``, which goes through the models of one size for all pixels at once."""
    load, store, select, broadcast, any_lane = ops.load, ops.store, ops.select, ops.broadcast, ops.any_lane
    optimum, constrain = optimum_function(ops, size), constraint_function(ops, size)

    @inlined
    def fit(models, F, best, k, at, place, square):
        """Write abundances to ``best.a``; return the squared error, infinite outside the limits."""
        (total, saved), none = optimum(models, F, best.a, at, place, k), broadcast(0.0)
        error = select(square > saved, square - saved, none)
        if models.exact:
            over = select(total > 1.0, total - 1.0, none)
            store(best.over, 0, over)
            lowest, more = constrain(models, best.a, at, k, over)
            return select(lowest >= 0.0, error + more, broadcast(np.inf))
        shade = 1.0 - total
        outside = select(shade < models.least_shade, models.least_shade - shade, shade - models.most_shade)
        for i in range(k):
            value = load(best.a, i)
            below, above = models.lowest - value, value - models.highest
            outside = select(below > outside, below, outside)
            outside = select(above > outside, above, outside)
        return select(outside > 0.0, broadcast(np.inf), error)

    @compiled
    def look(models, E, Y, F, best, count, n):
        k = size if size > 0 else models.sizes[n]
        at, place, square, numbers = (
            models.numbers_at[n],
            models.spectra_at[n],
            load(best.square, 0),
            models.stride[n],
        )
        for _ in range(models.begin[n], models.begin[n + 1]):
            error = fit(models, F, best, k, at, place, square)
            if any_lane(error < load(best.limit, k)):
                store(best.found, 0, error)
                for s in range(count):
                    if best.found[0, s] < best.limit[k, s]:
                        compare_model(models, E, Y, best, s, k, at, place)
            at, place = at + numbers, place + k

    return look


@functools.cache
def search_function(ops: Width) -> Any:
    """Return ``search``, which finds the best models of the first ``count`` pixels of a tile, from F = EᵀY."""
    look = by_size(size_function, ops)

    @compiled
    def search(models, E, Y, F, best, count):
        for s in range(count):
            for k in range(best.error.shape[0]):
                best.error[k, s] = best.second[k, s] = np.inf
                best.summed[k, s] = best.over[0, s] = 0.0
            if models.exact and best.square[0, s] < models.most_error:
                best.error[0, s] = best.square[0, s]  # shade alone
            set_limits(models, best, s)
        for n in range(models.sizes.shape[0]):
            look(models.sizes[n], models, E, Y, F, best, count, n)

    return search


@compiled
def choose_level(models, best, s):
    """Return the number of spectra of the model after fusion (−1 for none), and the second best's squared error."""
    # A level is kept where it improves the RMSE of the one before by at least `fusion`, or χ² by more than noise does,
    # whose variance is that of the least residual; the best of these is chosen.
    # Under the limits "exact" the faces of fewer spectra are models of every level.
    chosen, size, level_kept, level_before = -1, -1, 0, 0
    least = kept = preceding = second = error = others = variance = np.inf
    for k in range(0 if models.exact else models.fewest, models.most + 1):
        variance = min(variance, best.error[k, s] / max(models.bands - models.most, 1.0))
    for k in range(models.most + 1):
        if not models.exact:
            size, error, others = k, best.error[k, s], best.second[k, s]
        elif best.error[k, s] < np.inf:
            # A spectrum more with an abundance of 1e-17 is no other model.
            is_other = size >= 0 and difference(best, s, k, k, size, size) > SAME_ABUNDANCE
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
            many = max(k - max(level, FEW_SPECTRA), 0)
            gain = NOISE_GAIN * (k - level - many) + NOISE_GAIN_OF_MANY * many
            left = reference * reference - gain * variance / models.bands
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
    # distance of the abundances to the model's optimum, by the trace of the inverse of its Gram matrix at unit length.
    if k <= 0:
        return 0.0, 0.0
    lengths, a, spectra, w = models.lengths, best.abundances, best.spectra, best.place[k, s] + FALLS + k
    total, weighted, sizes, shortest, trace = 0.0, 0.0, 0.0, np.inf, 0.0
    for c in range(k):
        length = lengths[spectra[k, c, s]]
        total += a[k, c, s]
        weighted += a[k, c, s] * best.duals[c, s]
        sizes += abs(a[k, c, s]) * length
        shortest = min(shortest, length)
        for d in range(c + 1):
            trace += (models.numbers[w + d] * lengths[spectra[k, d, s]]) ** 2
        w += c + 1
    held = best.summed[k, s] > 0.0
    multiplier = weighted / total if held else 0.0
    rounding = (r_norm * (L + 2.0) + (y_norm + sizes) * (k + 2.0)) * UNIT_ROUNDOFF
    largest, squares = 0.0, UNDERFLOW
    for c in range(k):
        dual = abs(best.duals[c, s] - multiplier) / lengths[spectra[k, c, s]]
        largest = max(largest, dual)
        squares += (dual + rounding) ** 2
    off = abs(total - 1.0) if held else 0.0
    kappa = max(largest / y_norm if y_norm > 0.0 else largest, off)
    return kappa, math.sqrt(squares) * 1.01 * trace / shortest + off + 4.0 * k * UNIT_ROUNDOFF * total * (
        1.0 if held else 0.0
    )


@compiled
def write_duals(E, tile, best, s, k):
    """Write the abundances and duals of the model of k spectra that was found; return its squared error."""
    left = 0.0
    for b in range(E.shape[0]):
        left += residual_in(E, tile.Y, best, s, k, k, b) ** 2
    for c in range(k):
        j, dual = best.spectra[k, c, s], 0.0
        for b in range(E.shape[0]):
            dual += E[b, j] * residual_in(E, tile.Y, best, s, k, k, b)
        tile.A[j, s], best.duals[c, s] = best.abundances[k, c, s], dual
    return left


def models_function(ops: Width) -> Any:
    """Return the search of `unmix.solvers.pixels.tile.by_models`."""
    width, find = ops.width, search_function(ops)

    @compiled
    def search(plan, tile, best, count):
        models = plan.models
        for s in range(width):
            best.square[0, s] = tile.length[0, s] * tile.length[0, s]
            for j in range(tile.A.shape[0]):
                tile.A[j, s] = 0.0
        find(models, plan.E, tile.Y, tile.F, best, count)
        for s in range(count):
            k, second = choose_level(models, best, s)
            tile.steps[0, s] = max(k, 0)
            length = tile.length[0, s]
            left = write_duals(plan.E, tile, best, s, k) if k > 0 else length * length
            kappa, delta = prove(models, best, s, k, plan.E.shape[0], length, left**0.5)
            error = best.error[k, s] if k >= 0 else 0.0
            tile.rmse[0, s], tile.kappa[0, s] = (left / plan.E.shape[0]) ** 0.5, kappa
            tile.delta[0, s] = delta if k < 0 or second - error > SAME_ERROR * length * length else np.inf

    return search
