"""Successive projections for regression (de Paula et al. 2013): chains of bands, and the regression of every prefix of each.

All is computed from Gram matrices of centred samples, for a CPU thread or a GPU block. A chain is a Cholesky factorisation that pivots
on the largest residual, which is the length of a band's projection onto the complement of the chain; no data is copied or projected.
The regression of a prefix grows by one column, an *add*: validation samples and the target are further columns of the same factor, so
that a row gives the next prefix's prediction. The paper instead inverts every prefix's matrix by Gauss-Jordan, a sweep of every index
in turn (`inverted_function`).
"""

import functools
from typing import Any, NamedTuple

from ...compiled.cooperative import Team

# Share of a dependent band's squared length that the chain leaves, at most: rounding has taken half the digits by then.
DEPENDENT_BAND = 1e-12


class Samples(NamedTuple):
    """Calibration and validation samples, centred by the mean of the calibration samples; K bands, V validation samples."""

    gram: Any  # (K, K) XᵀX
    product: Any  # (K,) Xᵀy
    others: Any  # (K, V) validation samples, a band a row
    truth: Any  # (V,) their target


@functools.cache
def subtract_function(team: Team) -> Any:
    """Return ``subtract``: ``rows[count, i] −= Σ_t rows[t, column] rows[t, i]``, t < count, first ≤ i < last; four t at a time."""
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
    """Return ``chain(gram, start, order, rows, left, reduction_buffer)``: it finds the bands of a chain and returns how many.

    ``gram`` is (K, K); ``start`` is the first band. The bands are written in order into ``order`` (M,), int32. ``rows`` (M, K) and
    ``left`` (K,), float64, are scratch, and ``reduction_buffer`` is the team's.
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
            if not left[j] > 0.0:  # the first band is constant
                return m
            root = left[j] ** 0.5
            sync()
            for i in range(rank(), K, size()):
                rows[m, i] = gram[j, i]
            subtract(rows, m, j, 0, K)
            value, index = 0.0, -1
            for i in range(rank(), K, size()):
                rows[m, i] /= root
                residual = left[i] - rows[m, i] * rows[m, i]
                # A band that depends on the chain can no longer be chosen.
                left[i] = residual if i != j and residual > DEPENDENT_BAND * gram[i, i] else -1.0
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
    """Return ``prefixes(samples, order, count, rows, errors, squares, reduction_buffer)``: squared errors of every prefix, by adds.

    ``squares`` (M,) is filled with the sums of squared validation errors of the first 1, 2, … of the ``count`` bands in ``order``.
    ``rows`` (M, M + V + 1) and ``errors`` (V,) are scratch. The function returns how many prefixes it solved: it stops at the first
    singular one.
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
            coefficient = rows[m, last - 1]
            own_square = 0.0
            for v in range(rank(), V, size()):
                errors[v] -= coefficient * rows[m, count + v]
                own_square += errors[v] * errors[v]
            square = total(own_square, reduction_buffer)
            if rank() == 0:
                squares[m] = square
        sync()
        return count

    return prefixes


@functools.cache
def inversion_function(team: Team) -> Any:
    """Return ``invert(A, n, column)``: it inverts the leading n x n part of A by Gauss-Jordan; False if a pivot is 0 or NaN.

    De Paula et al. 2013, Algorithms 2 and 3, in place: a sweep of every index in turn, without pivoting. ``column`` (n,) is scratch.
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
    """Return ``inverted(samples, order, n, A, column, weights, reduction_buffer)``: the squared error of the prefix of n bands.

    The regression is solved with `inversion_function`; the error is infinite if the matrix is singular.
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
        own_square = 0.0
        for v in range(rank(), samples.truth.shape[0], size()):
            error = samples.truth[v]
            for i in range(n):
                error -= weights[i] * samples.others[order[i], v]
            own_square += error * error
        return total(own_square, reduction_buffer)

    return inverted
