"""Successive projections for regression (de Paula et al. 2013): chains of bands, and regressions on their prefixes.

All is computed from Gram matrices of centred samples, by groups of threads of a CPU or a GPU. A chain is a Cholesky
factorisation that pivots on the largest residual, which is the length of a band's projection onto the complement of the
chain; no data is copied or projected. The regression of a prefix grows by one column, an *add*: validation samples and
the target are further columns of the same factor, so that a row gives the next prefix's prediction. The paper instead
inverts every prefix's matrix by Gauss-Jordan.
"""

import functools
from typing import Any, NamedTuple

import numpy as np

from ...compiled.jit import Team
from ...compiled.thread_groups import CpuGroups, CudaGroups

# Share of a dependent band's squared length that the chain leaves, at most: rounding has taken half the digits by then.
DEPENDENT_BAND = 1e-12


class Samples(NamedTuple):
    """Calibration and validation samples less the calibration samples' mean; K bands, V validation samples."""

    gram: Any  # (K, K) XᵀX
    product: Any  # (K,) Xᵀy
    others: Any  # (K, V) validation samples, a band a row
    truth: Any  # (V,) their target


@functools.cache
def subtract_function(team: Team) -> Any:
    """Return ``subtract``: ``rows[count, i] −= Σ_t rows[t, column] rows[t, i]``, t < count, first ≤ i < last."""
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
    """Return ``chain``, which writes the chain that begins at ``start`` into ``order`` (M,) and returns its length."""
    rank, size, sync, best = team.rank, team.size, team.sync, team.best
    subtract = subtract_function(team)

    @team.compile
    def chain(gram, start, order, rows, left, reduction_buffer):
        # gram is (K, K); rows (M, K) and left (K,), float64, are scratch.
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
    """Return ``prefixes``: it writes the Σ squared validation errors of prefixes, by adds, and returns their number."""
    rank, size, sync, total = team.rank, team.size, team.sync, team.total
    subtract = subtract_function(team)

    @team.compile
    def prefixes(samples, order, count, rows, errors, squares, reduction_buffer):
        # rows (M, M + V + 1) and errors (V,) are scratch; the first singular prefix ends the loop.
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


# Threads of a GPU's block, and blocks per multiprocessor.
THREADS, BLOCKS_AT_ONCE = 128, 8


class Chains(NamedTuple):
    """All chains: the Gram matrix (K, K), their orders (K, most) int32 and how many bands each has, (K,) int32."""

    gram: Any
    orders: Any
    counts: Any


class Prefixes(NamedTuple):
    """All prefixes: the samples, the chains' orders and counts, and the sums of squared errors (chains, most)."""

    samples: Samples
    orders: Any
    counts: Any
    squares: Any


@functools.cache
def chains_body(team: Team) -> Any:
    """Return the body that grows a chain from each band; scratch: rows (most, K) and residuals of the bands (K,)."""
    chain, rank, sync = chain_function(team), team.rank, team.sync

    @team.compile
    def chains(start, stop, step, group, arguments, scratch, reduction_buffer):
        rows, left = scratch
        for band in range(start, stop, step):
            count = chain(arguments.gram, band, arguments.orders[band], rows[group], left[group], reduction_buffer)
            if rank() == 0:
                arguments.counts[band] = count
            sync()

    return chains


@functools.cache
def prefixes_body(team: Team) -> Any:
    """Return the body that regresses on each chain's prefixes by adds; scratch (most, most + V + 1), (V,), (most,)."""
    prefixes, rank, size, sync = prefixes_function(team), team.rank, team.size, team.sync

    @team.compile
    def all_prefixes(start, stop, step, group, arguments, scratch, reduction_buffer):
        rows, errors, squares = scratch[0][group], scratch[1][group], scratch[2][group]
        for c in range(start, stop, step):
            count = prefixes(
                arguments.samples, arguments.orders[c], arguments.counts[c], rows, errors, squares, reduction_buffer
            )
            sync()
            for m in range(rank(), arguments.squares.shape[1], size()):
                arguments.squares[c, m] += squares[m] if m < count else np.inf
            sync()

    return all_prefixes


class ChainEngine:
    """Grows chains and regresses on their prefixes.

    Parameters
    ----------
    groups : CpuGroups or CudaGroups
    """

    def __init__(self, groups: CpuGroups | CudaGroups) -> None:
        self.groups = groups

    def chains(self, gram: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a chain from each band: orders (K, most) int32, −1 after the chain's end, and lengths (K,) int32."""
        K = len(gram)
        orders, counts = np.full((K, most), -1, np.int32), np.zeros(K, np.int32)
        arguments = self.groups.put(Chains(gram, orders, counts))
        self.groups.run(chains_body, K, arguments, (((None, most, K), float), ((None, K), float)))
        self.groups.get(arguments.orders, orders)
        self.groups.get(arguments.counts, counts)
        return orders, counts

    def regress(self, samples: Samples, orders: np.ndarray, counts: np.ndarray, squares: np.ndarray) -> None:
        """Add each prefix's Σ squared validation errors to ``squares`` (chains, most); infinity after a chain's end."""
        chains, most = squares.shape
        V = len(samples.truth)
        arguments = self.groups.put(Prefixes(samples, orders, counts, squares))
        scratch = ((None, most, most + V + 1), float), ((None, V), float), ((None, most), float)
        self.groups.run(prefixes_body, chains, arguments, scratch)
        self.groups.get(arguments.squares, squares)

    def close(self) -> None:
        """Release threads or memory."""
        self.groups.close()
