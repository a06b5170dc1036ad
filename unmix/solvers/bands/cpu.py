"""Chains and prefixes on the CPU: a chain a thread at a time, without the GIL."""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ...compiled.cooperative import ALONE, summing
from .projections import Samples, chain_function, inverted_function, prefixes_function


@functools.cache
def chains_range() -> Any:
    """The compiled function of a range of chains."""
    chain = chain_function(ALONE)

    @summing
    def some_chains(first, last, gram, orders, counts, rows, left, reduction_buffer):
        for start in range(first, last):
            counts[start] = chain(gram, start, orders[start], rows, left, reduction_buffer)

    return some_chains


@functools.cache
def prefixes_range() -> Any:
    """The compiled function of the prefixes of a range of chains; squared errors are added."""
    prefixes = prefixes_function(ALONE)

    @summing
    def some_prefixes(first, last, samples, orders, counts, squares, rows, errors, own, reduction_buffer):
        for c in range(first, last):
            made = prefixes(samples, orders[c], counts[c], rows, errors, own, reduction_buffer)
            for m in range(squares.shape[1]):
                squares[c, m] += own[m] if m < made else np.inf

    return some_prefixes


@functools.cache
def inversions_range() -> Any:
    """As `prefixes_range`, by inversions."""
    inverted = inverted_function(ALONE)

    @summing
    def some_inversions(first, last, samples, orders, counts, squares, A, column, weights, reduction_buffer):
        for c in range(first, last):
            for m in range(squares.shape[1]):
                if m < counts[c]:
                    squares[c, m] += inverted(samples, orders[c], m + 1, A, column, weights, reduction_buffer)
                else:
                    squares[c, m] = np.inf

    return some_inversions


class CpuEngine:
    """Chains and their regressions on a pool of threads."""

    name = "cpu"

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.pool = ThreadPoolExecutor(threads, "chains")

    def spread(self, n: int, work: Callable[[int, int], None]) -> None:
        """``work(first, last)`` for ranges of ``n`` chains."""
        step = max(1, -(-n // (8 * self.threads)))
        for task in [self.pool.submit(work, first, min(first + step, n)) for first in range(0, n, step)]:
            task.result()

    def chains(self, gram: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        """A chain from every band.

        Parameters
        ----------
        gram : array (K, K), float64
        most : int
            Bands of a chain.

        Returns
        -------
        orders : array (K, most), int32
        counts : array (K,), int32
            How many of them there are: what is left is dependent.
        """
        K = len(gram)
        orders, counts = np.full((K, most), -1, np.int32), np.zeros(K, np.int32)

        def work(first: int, last: int) -> None:
            chains_range()(first, last, gram, orders, counts, np.empty((most, K)), np.empty(K), np.empty(2))

        self.spread(K, work)
        return orders, counts

    def regress(self, samples: Samples, orders: np.ndarray, counts: np.ndarray, squares: np.ndarray, how: str) -> None:
        """Add every prefix's sum of squared validation errors to ``squares``, (chains, most); infinite where there is none.

        ``how`` is a key of `unmix.arrays.bands.REGRESSIONS`.
        """
        most, V = squares.shape[1], len(samples.truth)

        def work(first: int, last: int) -> None:
            if how == "sequential":
                scratch = np.empty((most, most + V + 1)), np.empty(V), np.empty(most), np.empty(2)
                prefixes_range()(first, last, samples, orders, counts, squares, *scratch)
            else:
                inversions = np.empty((most, most)), np.empty(most), np.empty(most), np.empty(2)
                inversions_range()(first, last, samples, orders, counts, squares, *inversions)

        self.spread(len(orders), work)

    def close(self) -> None:
        """Let the threads go."""
        self.pool.shutdown()
