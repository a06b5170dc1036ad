"""Batches of systems on the CPU: a range of right-hand sides a call, each solved and certified, without the GIL."""

import functools
from typing import Any

import numpy as np

from ...certificate import certify_function
from ...compiled.cooperative import ALONE
from ...compiled.jit import compiled
from ...compiled.simd import ONE
from .lawson_hanson_qr import Matrix, Scratch, layout_function, nnls_function, scratch_shapes


def new_scratch(m: int, n: int) -> Scratch:
    """Scratch of one system."""
    return Scratch(*(np.empty(shape, kind) for shape, kind in scratch_shapes(m, n)))


@functools.cache
def systems_solver() -> Any:
    """The compiled function behind `solve_systems`."""
    lay_out, nnls, certify = layout_function(ALONE), nnls_function(ALONE), certify_function(ONE)

    @compiled
    def solve_range(
        start, stop, rows, columns, gram, norms, curvature, B, work, reduction_buffer, pixel, answer, dual, X, rmse, kappa, delta, steps
    ):  # fmt: skip
        each = rows.shape[0] > 1
        for i in range(start, stop):
            a = i if each else 0
            if each:
                lay_out(rows[a], columns, norms)
            steps[i] = nnls(Matrix(rows[a], columns, gram, norms), B[i], work, reduction_buffer, X[i])
            for k in range(B.shape[1]):
                pixel[k, 0] = B[i, k]
            for j in range(X.shape[1]):
                answer[j, 0] = X[i, j]
            delta[i, 0] = np.inf
            certify(
                rows[a], norms, norms[:0], curvature, False, True, pixel, answer, dual,
                rmse[i : i + 1], kappa[i : i + 1], delta[i : i + 1]
            )  # fmt: skip

    return solve_range


def solve_systems(start: int, stop: int, shared: "Shared", B: np.ndarray, answers: dict[str, np.ndarray]) -> None:
    """Solve and certify right-hand sides ``start`` to ``stop``.

    Parameters
    ----------
    start, stop : int
    shared : Shared
    B : array (N, m), float64
    answers : dict of arrays
        ``x`` (N, n), ``rmse``, ``kappa`` and ``delta`` (N, 1) float64, ``steps`` (N,) int32; filled.
    """
    m, n = shared.rows.shape[1:]
    ordered = (answers[name] for name in ("x", "rmse", "kappa", "delta", "steps"))
    own = (np.empty((n, m)), np.empty(n)) if shared.each else (shared.columns, shared.norms)
    scratch = new_scratch(m, n), np.empty(2), np.empty((m, 1)), np.empty((n, 1)), np.empty((n, 1))
    systems_solver()(start, stop, shared.rows, own[0], shared.gram, own[1], shared.curvature, B, *scratch, *ordered)


def laid_out(A: np.ndarray) -> np.ndarray:
    """An array of three axes in float64 whose strides are what its shape says, also where an axis has length 1.

    (To a GPU such a one goes as a whole; any other one element by element: 0.7 s for 2 MiB.)
    """
    usual = (8 * A.shape[1] * A.shape[2], 8 * A.shape[2], 8)
    return A if A.dtype == np.float64 and A.strides == usual else np.array(A, np.float64, order="C", copy=True)


class Shared:
    """The matrix of a batch, or one for each system, laid out for the solver.

    Parameters
    ----------
    A : array (m, n), or (N, m, n)
    gram : bool
        Whether the systems share AᵀA; else each product with Aᵀ is made anew. Pays from a few systems on.

    Attributes
    ----------
    rows : array (1 or N, m, n), float64
    each : bool
        Whether each system has its own.
    columns, norms : arrays (n, m) and (n,)
        The transpose, and the lengths of the columns; empty where each system has its own, which is laid out as it is met.
    gram : array (n, n) or (0, 0)
    curvature : float
        No more than σ_min(A)²; 0 where rounding cannot tell it from 0 (cond(A) above 1e6 or so), or each system has its own A: δ
        is infinite then.
    """

    def __init__(self, A: np.ndarray, gram: bool) -> None:
        self.rows = laid_out(A if A.ndim == 3 else A[None])
        self.each = A.ndim == 3 and len(A) > 1
        _, m, n = self.rows.shape
        one = np.empty((0, 0)) if self.each else self.rows[0]
        self.columns = np.ascontiguousarray(one.T)
        self.norms = np.sqrt(np.square(one).sum(axis=0))
        product = self.columns @ one if not self.each and (gram or n <= m) else np.empty((0, 0))
        self.gram = product if gram else np.empty((0, 0))
        self.curvature = 0.0
        if not self.each and n <= m:  # of AᵀA, less all that rounding may have added: an SVD takes ten times as long
            values = np.linalg.eigvalsh(product)
            self.curvature = max(0.0, float(values[0] - m * 2.3e-16 * np.trace(product)))
