"""Successive projections for regression (paper 001): chains of bands, and the regression of every prefix of each.

All from Gram matrices of centred samples, for a thread or a block of a GPU. A chain is a Cholesky factorisation that pivots on
the largest residual: what is left of a band's length beside the chain is what its projection onto the complement is long, and
no data is copied or projected. The regression of a prefix grows by one column, an *add*: validation samples and the target are
further columns of the same factor, so that a row gives the next prefix's prediction. The paper inverts every prefix's matrix
instead, by Gauss-Jordan: a sweep of every index in turn; that stands beside it.
"""

import functools
from typing import Any, NamedTuple

from ...compiled.cooperative import Team

# A band of which less is left beside a chain, of its squared length, is called dependent: rounding has half its digits by then.
DEPENDENT = 1e-12


class Samples(NamedTuple):
    """Calibration and validation samples of a regression, centred by the mean of the former; K bands, V validation samples."""

    gram: Any  # (K, K) XᵀX
    product: Any  # (K,) Xᵀy
    others: Any  # (K, V) validation samples, a band a row
    truth: Any  # (V,) their target


@functools.cache
def subtract_function(team: Team) -> Any:
    """``row[first:] −= Σ_t rows[t, column] rows[t, first:]`` over the first ``count`` rows, four at a time."""
    rank, size = team.rank, team.size

    @team.compile
    def subtract(rows, count, column, first, last):
        row = rows[count]
        for t in range(0, count - 3, 4):
            a, b, c, d = rows[t, column], rows[t + 1, column], rows[t + 2, column], rows[t + 3, column]
            for i in range(first + rank(), last, size()):
                row[i] -= a * rows[t, i] + b * rows[t + 1, i] + c * rows[t + 2, i] + d * rows[t + 3, i]
        for t in range(count - count % 4, count):
            a = rows[t, column]
            for i in range(first + rank(), last, size()):
                row[i] -= a * rows[t, i]

    return subtract


@functools.cache
def chain_function(team: Team) -> Any:
    """``chain(gram, start, order, rows, left, reduction_buffer)``: the bands of a chain, in order; returns how many.

    ``order`` (M,) int32 is filled; ``rows`` (M, K) and ``left`` (K,), float64, are scratch; in ``reduction_buffer`` a
    team compares.
    """
    rank, size, sync, best = team.rank, team.size, team.sync, team.best
    subtract = subtract_function(team)

    @team.compile
    def chain(gram, start, order, rows, left, reduction_buffer):
        K, most = gram.shape[0], order.shape[0]
        for i in range(rank(), K, size()):
            left[i] = gram[i, i]
        sync()
        j = start
        for m in range(most):
            if not left[j] > 0.0:  # it is constant
                return m
            root = left[j] ** 0.5
            sync()
            for i in range(rank(), K, size()):
                rows[m, i] = gram[j, i]
            subtract(rows, m, j, 0, K)
            value, index = 0.0, -1
            for i in range(rank(), K, size()):
                rows[m, i] /= root
                rest = left[i] - rows[m, i] * rows[m, i]
                left[i] = (
                    rest if i != j and rest > DEPENDENT * gram[i, i] else -1.0
                )  # a mixture of the chain is out of it
                if left[i] > value:
                    value, index = left[i], i
            if rank() == 0:
                order[m] = j
            sync()
            j = best(value, index, reduction_buffer)
            if j < 0:
                return m + 1
        return most

    return chain


@functools.cache
def prefixes_function(team: Team) -> Any:
    """``prefixes(samples, order, count, rows, errors, squares, reduction_buffer)``: squared errors of every prefix of a chain, by adds.

    ``squares`` (M,) gets the sum of squared validation errors after 1, 2, … of the ``count`` bands in ``order``. ``rows``
    (M, M + V + 1) and ``errors`` (V,) are scratch. Returns how many prefixes there are: one that is singular ends them.
    """
    rank, size, sync, total = team.rank, team.size, team.sync, team.total
    subtract = subtract_function(team)

    @team.compile
    def prefixes(samples, order, count, rows, errors, squares, reduction_buffer):
        V = samples.truth.shape[0]
        last = count + V + 1
        for v in range(rank(), V, size()):
            errors[v] = samples.truth[v]
        for m in range(count):
            j = order[m]
            for i in range(m + rank(), last, size()):
                if i < count:
                    rows[m, i] = samples.gram[j, order[i]]
                elif i < count + V:
                    rows[m, i] = samples.others[j, i - count]
                else:
                    rows[m, i] = samples.product[j]
            subtract(rows, m, m, m, last)
            sync()
            pivot = rows[m, m]
            if not pivot > 1e-15 * samples.gram[j, j]:
                return m
            root = pivot**0.5
            sync()
            for i in range(m + rank(), last, size()):
                rows[m, i] /= root
            sync()
            along = rows[m, last - 1]
            part = 0.0
            for v in range(rank(), V, size()):
                errors[v] -= along * rows[m, count + v]
                part += errors[v] * errors[v]
            found = total(part, reduction_buffer)
            if rank() == 0:
                squares[m] = found
        sync()
        return count

    return prefixes


@functools.cache
def inversion_function(team: Team) -> Any:
    """``invert(A, n, column)``: the first n rows and columns of A become their inverse by Gauss-Jordan; False where a pivot is 0.

    Paper 001, Algorithms 2 and 3, in place: a sweep of every index in turn, without pivoting. ``column`` (n,) is scratch.
    """
    rank, size, sync = team.rank, team.size, team.sync

    @team.compile
    def invert(A, n, column):
        for k in range(n):
            pivot = A[k, k]
            if pivot == 0.0 or pivot != pivot:
                return False
            for i in range(rank(), n, size()):
                column[i] = A[i, k] / pivot
            sync()
            for i in range(n):
                if i != k:
                    share = column[i]
                    for j in range(rank(), n, size()):
                        A[i, j] -= share * A[k, j]
            sync()
            for j in range(rank(), n, size()):
                A[k, j] = A[k, j] / pivot if j != k else 1.0 / pivot
                if j != k:
                    A[j, k] = -column[j]
            sync()
        return True

    return invert


@functools.cache
def inverted_function(team: Team) -> Any:
    """``inverted(samples, order, n, A, column, weights, reduction_buffer)``: the squared error of one prefix.

    It has n bands and is found by `inversion_function`.
    """
    rank, size, sync, total = team.rank, team.size, team.sync, team.total
    invert = inversion_function(team)

    @team.compile
    def inverted(samples, order, n, A, column, weights, reduction_buffer):
        for i in range(n):
            for j in range(rank(), n, size()):
                A[i, j] = samples.gram[order[i], order[j]]
        sync()
        if not invert(A, n, column):
            return float("inf")
        for i in range(rank(), n, size()):
            weights[i] = 0.0
            for j in range(n):
                weights[i] += A[j, i] * samples.product[order[j]]
        sync()
        part = 0.0
        for v in range(rank(), samples.truth.shape[0], size()):
            error = samples.truth[v]
            for i in range(n):
                error -= weights[i] * samples.others[order[i], v]
            part += error * error
        return total(part, reduction_buffer)

    return inverted
