"""Sum the evidence of a pixel's models, and their fractions: one source for vectors of a CPU and threads of a GPU."""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...compiled.jit import WIDE, Width, compiled, inlined
from ...solvers.pixels.mesma.optimum import by_size, constraint_function, optimum_function
from ...solvers.pixels.mesma.tables import FALLS, SLACK
from .models import STEP_SUM, STEPS, WITH_SHADE, WITHOUT_SHADE

# Models that are less likely than the best by more than exp of minus this add nothing.
UNLIKELY = 60.0
# Every so many models of a set it is looked whether enough of them share the weight; the limit of excess then.
LOOK, SETTLED = 256, -1e300
# The share of |y|² that is rounding, and the least variance.
ROUNDED_SHARE, LEAST_VARIANCE = 1e-15, 1e-280
# For each set and for models with and without shade: evidence, its square over models, mean and square of the sum, and
# then mean and square of each fraction.
EVIDENCE, SQUARES, TOTAL, TOTAL_SQUARE, SUMS = range(5)


class AverageWork(NamedTuple):
    """Scratch of a tile of w pixels, and its answers; k is the most spectra of a model, of S sets of C classes."""

    F: Any  # (p, w) products of spectra and pixel
    a: Any  # (k, w) the optimum of a model
    sums: Any  # (2 (SUMS + 2 k), w) of a set
    totals: Any  # (SUMS + 2 C, w) of all sets, as sums of a set, with those of classes in place of fractions
    evidence: Any  # (2 S, w) of each set, with and without shade, before the prior


def work_shapes(p: int, classes: int, sizes: Sequence[int], width: int) -> tuple[tuple[int, int], ...]:
    """Return the shapes of `AverageWork`."""
    k = max(sizes)
    return tuple((n, width) for n in (p, k, 2 * (SUMS + 2 * k), SUMS + 2 * classes, 2 * len(sizes)))


def exponential(ops: Width) -> Any:
    """Return ``exp (−y)`` for y of at least 0."""
    if ops.width == 1:

        @inlined
        def exp_of_minus(y):
            return math.exp(-y) if y > 0.0 else 1.0

        return exp_of_minus
    from ...compiled import exponentials

    return exponentials.exp_of_minus


@functools.cache
def least_function(ops: Width, size: int) -> Any:
    """Return ``least``, which returns the least χ² of the mixtures of set s and their model, unless ``best`` is less."""
    select, broadcast, any_lane = ops.select, ops.broadcast, ops.any_lane
    optimum, constrain = optimum_function(ops, size), constraint_function(ops, size)

    @compiled
    def least(table, work, s, square, best, which):
        k = size if size > 0 else table.sizes[s]
        at, place, stride = table.numbers_at[s], table.spectra_at[s], table.stride[s]
        for m in range(table.begin[s], table.begin[s + 1]):
            total, saved = optimum(table, work.F, work.a, at, place, k)
            error, over = square - saved, total - 1.0
            if any_lane(error < best):
                if table.shade:
                    over = select(over > 0.0, over, broadcast(0.0))
                lowest, more = constrain(table, work.a, at, k, over)
                error = select(lowest >= 0.0, error + more, broadcast(np.inf))
                which = select(error < best, broadcast(float(m)), which)
                best = select(error < best, error, best)
            at, place = at + stride, place + k
        return select(best > 0.0, best, broadcast(0.0)), which

    return least


@functools.cache
def adding_function(ops: Width, size: int) -> Any:
    """Return ``add``, which adds the two samples of a model with optimum ``work.a`` to ``sums`` from row ``first`` on."""
    load, store, select, broadcast, fma = ops.load, ops.store, ops.select, ops.broadcast, ops.fma
    any_lane, exp_of_minus = ops.any_lane, exponential(ops)

    @inlined
    def add(table, work, at, head, n, first, excess, limit, total, sigma, shaded):
        k = size if size > 0 else n
        step, variances = head + STEPS + (0 if shaded else k), head + STEPS + 2 * k
        low, high = broadcast(0.0), broadcast(0.0)  # the least fraction, forwards and backwards
        for i in range(k):
            value, change = load(work.a, i), sigma * table.more[step + i]
            forwards, backwards = value + change, value - change
            low = select(forwards < low, forwards, low)
            high = select(backwards < high, backwards, high)
        likely = excess < limit
        is_low, is_high = (low >= 0.0) & likely, (high >= 0.0) & likely
        moved = sigma * table.more[head + STEP_SUM]
        if shaded:
            is_low, is_high = is_low & (total + moved <= 1.0), is_high & (total - moved <= 1.0)
        is_any = is_low | is_high
        if any_lane(is_any):
            # Where neither sample is cut off, the optimum stands for both, and the normal distribution for their spread.
            is_whole, none = is_low & is_high, broadcast(0.0)
            way = select(is_whole, none, select(is_low, sigma, none - sigma))
            spread = select(is_whole, sigma * sigma, none)
            weight = exp_of_minus(excess + UNLIKELY) * table.more[head + (WITH_SHADE if shaded else WITHOUT_SHADE)]
            weight = select(is_any, weight, none) * select(is_whole, broadcast(1.0), broadcast(0.5))
            store(work.sums, first + EVIDENCE, load(work.sums, first + EVIDENCE) + weight)
            store(work.sums, first + SQUARES, fma(weight, weight, load(work.sums, first + SQUARES)))
            if shaded:
                value = fma(way, broadcast(table.more[head + STEP_SUM]), total)
                square = fma(value, value, spread * (1.0 / table.numbers[at + SLACK]))
                store(work.sums, first + TOTAL, fma(weight, value, load(work.sums, first + TOTAL)))
                store(work.sums, first + TOTAL_SQUARE, fma(weight, square, load(work.sums, first + TOTAL_SQUARE)))
            for i in range(k):
                value, variance = fma(way, broadcast(table.more[step + i]), load(work.a, i)), table.more[variances + i]
                if not shaded:
                    variance -= table.numbers[at + FALLS + i] ** 2 / table.numbers[at + SLACK]
                square = fma(value, value, spread * variance)
                row = first + SUMS + 2 * i
                store(work.sums, row, fma(weight, value, load(work.sums, row)))
                store(work.sums, row + 1, fma(weight, square, load(work.sums, row + 1)))

    return add


@functools.cache
def set_function(ops: Width, size: int) -> Any:
    """Return ``add_set``, which sums all models of set s; ``scale`` is 1/2σ², ``square`` |y|², ``best`` its least χ²."""
    load, store, select, broadcast = ops.load, ops.store, ops.select, ops.broadcast
    fma, any_lane = ops.fma, ops.any_lane
    optimum, constrain, add = (
        function(ops, size) for function in (optimum_function, constraint_function, adding_function)
    )

    @compiled
    def add_set(table, work, s, square, sigma, scale, best):
        k = size if size > 0 else table.sizes[s]
        rows, stride, more_stride, head = SUMS + 2 * k, table.stride[s], STEPS + 3 * k, table.more_at[s]
        for row in range(2 * rows):
            store(work.sums, row, broadcast(0.0))
        at, place, count = table.numbers_at[s], table.spectra_at[s], table.begin[s + 1] - table.begin[s]
        limit, seen = broadcast(UNLIKELY), broadcast(float(count))
        for m in range(count):
            if m % LOOK == LOOK - 1 and table.enough < np.inf:
                weight = fma(load(work.sums, EVIDENCE), sigma, load(work.sums, rows + EVIDENCE))
                both = fma(load(work.sums, SQUARES), sigma * sigma, load(work.sums, rows + SQUARES))
                ends = (weight * weight >= both * table.enough) & (weight > 0.0) & (limit > 0.0)
                seen = select(ends, broadcast(float(m)), seen)
                limit = select(ends, broadcast(SETTLED), limit)
                if not any_lane(limit > 0.0):
                    break
            total, saved = optimum(table, work.F, work.a, at, place, k)
            # Counted from the best; the optimum of a model that is cut off may be better.
            excess = (square - saved - best) * scale
            if any_lane(excess < limit):
                if table.shade:
                    add(table, work, at, head, k, 0, excess, limit, total, sigma, True)
                _, more = constrain(table, work.a, at, k, total - 1.0)
                excess = fma(more, scale, excess)
                if any_lane(excess < limit):
                    add(table, work, at, head, k, rows, excess, limit, broadcast(1.0), sigma, False)
            at, place, head = at + stride, place + k, head + more_stride
        return float(count) / seen

    return add_set


@functools.cache
def pixel_function(ops: Width) -> Any:
    """Return ``average``, which fills `AverageWork` for pixels with products F, and returns χ², σ and the best model."""
    # The variance is the noise's or, where that is ``lacking`` times as much, the misfit of the best mixture, a band;
    # and ``alike`` times as much, where misfits are alike in bands.
    load, store, select, broadcast, root = ops.load, ops.store, ops.select, ops.broadcast, ops.root
    least, add_set = by_size(least_function, ops), by_size(set_function, ops)

    @compiled
    def average(table, work, prior, square, noise, bands):
        best, which = square if table.shade else broadcast(1e300), broadcast(-1.0)
        for s in range(table.sizes.shape[0]):
            best, which = least(table.sizes[s], table, work, s, square, best, which)
        (variance, lacking, alike), misfit = noise, best * (1.0 / bands)
        both = select(misfit > variance * lacking, misfit, broadcast(variance)) * alike
        both = both + square * ROUNDED_SHARE + LEAST_VARIANCE
        sigma, scale = root(both), broadcast(0.5) / both
        for row in range(work.totals.shape[0]):
            store(work.totals, row, broadcast(0.0))
        for s in range(table.sizes.shape[0]):
            k = table.sizes[s]
            share = add_set(k, table, work, s, square, sigma, scale, best)
            volume = share  # times σ for each dimension
            for _ in range(k - 1):
                volume = volume * sigma
            for part in (1, 0):  # without shade; and with it, one dimension more
                first, factor = part * (SUMS + 2 * k), volume * prior[s, part]
                if part == 1:
                    store(work.sums, first + TOTAL, load(work.sums, first))
                    store(work.sums, first + TOTAL_SQUARE, load(work.sums, first))
                store(work.evidence, 2 * s + part, load(work.sums, first) * volume)
                for n in range(SUMS):
                    more = load(work.sums, first + n) * factor
                    more = more * factor * float(table.repeats[s]) if n == SQUARES else more
                    store(work.totals, n, load(work.totals, n) + more)
                for i in range(k):
                    row = SUMS + 2 * table.classes[s, i]
                    for n in range(2):
                        more = load(work.sums, first + SUMS + 2 * i + n) * factor
                        store(work.totals, row + n, load(work.totals, row + n) + more)
                volume = volume * sigma
        return best, sigma, which

    return average


@functools.cache
def cpu_function() -> Any:
    """Return ``find``, which averages pixels (N, L) and writes totals, evidence, and χ², σ and the number of the best model (N, 3)."""
    average, load, store, width = pixel_function(WIDE), WIDE.load, WIDE.store, WIDE.width

    @compiled
    def find(table, Y, E, prior, noise, work, squares, totals, evidence, fits):
        L, p = E.shape
        for first in range(0, Y.shape[0], width):
            count = min(width, Y.shape[0] - first)
            for s in range(width):  # lanes without a pixel repeat the last one
                n = first + min(s, count - 1)
                squares[0, s] = 0.0
                for j in range(p):
                    work.F[j, s] = 0.0
                for b in range(L):
                    y = Y[n, b]
                    squares[0, s] += y * y
                    for j in range(p):
                        work.F[j, s] += y * E[b, j]
            best, sigma, which = average(table, work, prior, load(squares, 0), noise, float(L))
            store(squares, 1, best)
            store(squares, 2, sigma)
            store(squares, 3, which)
            for s in range(count):
                for row in range(totals.shape[1]):
                    totals[first + s, row] = work.totals[row, s]
                for row in range(evidence.shape[1]):
                    evidence[first + s, row] = work.evidence[row, s]
                for row in range(3):
                    fits[first + s, row] = squares[1 + row, s]

    return find
