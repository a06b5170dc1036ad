"""Grow all chains of bands and regress on every prefix of each, by groups of threads of a CPU or a GPU."""

import functools
from typing import Any, NamedTuple

import numpy as np

from ...compiled.cooperative import Team
from ...compiled.thread_groups import CpuGroups, CudaGroups
from .projections import Samples, chain_function, inverted_function, prefixes_function

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
    """Return the body that regresses on each chain's prefixes, band by band.

    Scratch: rows (most, most + V + 1), errors (V,) and sums of squared errors (most,).
    """
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


@functools.cache
def inversions_body(team: Team) -> Any:
    """Return the body that inverts a matrix for each prefix, the longest first; scratch: A (most, most), a column, weights (most,)."""
    inverted, rank, sync = inverted_function(team), team.rank, team.sync

    @team.compile
    def inversions(start, stop, step, group, arguments, scratch, reduction_buffer):
        A, column, weights = scratch[0][group], scratch[1][group], scratch[2][group]
        chains, most = arguments.squares.shape
        for n in range(start, stop, step):
            c, m = n % chains, most - 1 - n // chains
            square = np.inf
            if m < arguments.counts[c]:
                square = inverted(arguments.samples, arguments.orders[c], m + 1, A, column, weights, reduction_buffer)
            if rank() == 0:
                arguments.squares[c, m] += square
            sync()

    return inversions


class ChainEngine:
    """Grows chains and regresses on their prefixes.

    Parameters
    ----------
    groups : CpuGroups or CudaGroups
    """

    def __init__(self, groups: CpuGroups | CudaGroups) -> None:
        self.groups = groups

    def chains(self, gram: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Grow a chain from every band.

        Parameters
        ----------
        gram : array (K, K), float64
        most : int
            The most bands of a chain.

        Returns
        -------
        orders : array (K, most), int32
            The bands of each chain; -1 after its end.
        counts : array (K,), int32
            The number of bands of each chain: it ends early if all other bands are linearly dependent on it.
        """
        K = len(gram)
        orders, counts = np.full((K, most), -1, np.int32), np.zeros(K, np.int32)
        arguments = self.groups.put(Chains(gram, orders, counts))
        self.groups.run(chains_body, K, arguments, (((None, most, K), float), ((None, K), float)))
        self.groups.get(arguments.orders, orders)
        self.groups.get(arguments.counts, counts)
        return orders, counts

    def regress(self, samples: Samples, orders: np.ndarray, counts: np.ndarray, squares: np.ndarray, how: str) -> None:
        """Add every prefix's sum of squared validation errors to ``squares``, (chains, most); infinity if a chain is shorter.

        ``how`` is a key of `unmix.features.bands.arrays.REGRESSIONS`.
        """
        chains, most = squares.shape
        V = len(samples.truth)
        arguments = self.groups.put(Prefixes(samples, orders, counts, squares))
        if how == "sequential":
            scratch = ((None, most, most + V + 1), float), ((None, V), float), ((None, most), float)
            self.groups.run(prefixes_body, chains, arguments, scratch)
        else:
            scratch = ((None, most, most), float), ((None, most), float), ((None, most), float)
            self.groups.run(inversions_body, chains * most, arguments, scratch)
        self.groups.get(arguments.squares, squares)

    def close(self) -> None:
        """Release threads or memory."""
        self.groups.close()
