"""Multiplicative steps for batches of ``min ½ xᵀQx + hᵀx``, x ≥ 0: a thread a system on the CPU, without the GIL."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy.sparse

from ...compiled.cooperative import ALONE
from .updates import Dense, Sparse, updates_function


def parts_of(Q: Any) -> tuple[str, tuple[np.ndarray, ...]]:
    """The kind of a matrix (`unmix.solvers.nnqp.updates.PARTS`), and the arrays that it is made of."""
    if scipy.sparse.issparse(Q):
        return "sparse", (Q.indptr.astype(np.int64), Q.indices.astype(np.int64), Q.data)
    return "dense", (np.ascontiguousarray(Q, np.float64),)


KINDS = {"dense": Dense, "sparse": Sparse}


def alive(x: np.ndarray) -> np.ndarray:
    """The places of a system where something is left, int64."""
    return np.flatnonzero(x > 0.0)


class CpuEngine:
    """Steps on a pool of threads.

    Parameters
    ----------
    Q : array (n, n) or scipy.sparse CSR, float64
        Symmetric.
    H : array (N, n), float64
    threads : int
    """

    def __init__(self, Q: Any, H: np.ndarray, threads: int) -> None:
        kind, arrays = parts_of(Q)
        self.Q, self.H = KINDS[kind](*arrays), H
        self.update = updates_function(ALONE, kind)
        self.pool = ThreadPoolExecutor(threads, "quadratic")

    def advance(self, X: np.ndarray, todo: np.ndarray, count: int) -> np.ndarray:
        """Make steps, in place.

        Parameters
        ----------
        X : array (N, n), float64
        todo : array of int
            The systems to go on with.
        count : int

        Returns
        -------
        array (len(todo),), float64
            The cost before the last step.
        """

        def one(i: int) -> float:
            places = alive(X[i])
            scratch = np.empty((2, len(places)))
            return float(self.update(self.Q, self.H[i], X[i], places, len(places), *scratch, count, np.empty(2)))

        return np.fromiter(self.pool.map(one, todo), float, len(todo))

    def close(self) -> None:
        """Let the threads go."""
        self.pool.shutdown()
