"""What a quadratic programme comes to on a support: a symmetric system, dense or sparse; and whether it has a bottom there."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.csgraph
import scipy.sparse.linalg

# Up to this size a singular dense support is solved by its singular values: 1 s.
SINGULAR = 1000
# A sparse support is factored where its band, put in order, has at most so many entries, and takes so many products: 1 GB, 10 s.
MOST_IN_BAND, MOST_PRODUCTS = 2**27, 2**35
# Steps of conjugate gradients for a sparse support with a wider band.
MOST_GRADIENTS = 2000
# What is added to Q's largest diagonal entry, relative to it, to find directions in which it is flat; how often it is solved then; and
# the part of |Q||d| up to which Qd counts as zero: rounding of long sums, and no more.
RIDGE, TIMES, FLAT = 1e-8, 3, 1e-12
Solve = Callable[[np.ndarray], np.ndarray]


def of_support(Q: Any, h: np.ndarray, P: np.ndarray, near: np.ndarray) -> tuple[np.ndarray | None, bool]:
    """Return the optimum on the places P, without a sign (None where Q is singular there), and whether it was factored."""
    if len(P) == 0:
        return np.zeros(0), True
    own = Q[P][:, P]
    try:
        solve = factored(own)
    except scipy.linalg.LinAlgError:
        if scipy.sparse.issparse(own) or len(P) > SINGULAR:
            return None, False
        return np.asarray(scipy.linalg.lstsq(own, -h[P], check_finite=False)[0]), False
    if solve is None:
        return by_gradients(own, -h[P], near[P]), False
    found = solve(-h[P])
    return found + solve(-h[P] - own @ found), True


def factored(own: Any) -> Solve | None:
    """Return what solves with a symmetric matrix by its Cholesky factor; None where it is sparse, and would fill up.

    Raises
    ------
    scipy.linalg.LinAlgError
        Where it is not positive definite.
    """
    if not scipy.sparse.issparse(own):
        factor = scipy.linalg.cho_factor(own, check_finite=False)
        return lambda right: np.asarray(scipy.linalg.cho_solve(factor, right, check_finite=False))
    order = scipy.sparse.csgraph.reverse_cuthill_mckee(own.tocsr(), symmetric_mode=True)
    entries = own[order][:, order].tocoo()
    below = entries.row >= entries.col
    row, column, n = entries.row[below], entries.col[below], own.shape[0]
    width = int((row - column).max(initial=0)) + 1
    if width * n > MOST_IN_BAND or width * width * n > MOST_PRODUCTS:
        return None
    band = np.zeros((width, n))
    band[row - column, column] = entries.data[below]
    band = scipy.linalg.cholesky_banded(band, overwrite_ab=True, lower=True, check_finite=False)

    def solve(right: np.ndarray) -> np.ndarray:
        found = np.empty(n)
        found[order] = scipy.linalg.cho_solve_banded((band, True), right[order], check_finite=False)
        return found

    return solve


def by_gradients(own: Any, right: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Return what conjugate gradients come to, scaled by the diagonal."""
    jacobi = scipy.sparse.diags(1.0 / own.diagonal())
    with np.errstate(all="ignore"):  # a singular support, which certifies nothing
        found, _ = scipy.sparse.linalg.cg(own, right, x0=near, rtol=1e-13, maxiter=MOST_GRADIENTS, M=jacobi)
    return np.asarray(found)


def way_down(Q: Any, h: np.ndarray, x: np.ndarray) -> np.ndarray | None:
    """Return a direction ``d ≥ 0`` with ``Qd = 0`` and ``hᵀd < 0``, along which the cost falls for ever; None where x shows none.

    Iterates of an unbounded programme go along such a direction; what of them Q does not see is that of x on which
    ``(Q + εI)⁻¹ ε`` does nothing.

    Returns
    -------
    array (n,), float64, or None
        Of length 1; ``Qd`` is zero to rounding.
    """
    P = np.flatnonzero(x > 0)
    if len(P) == 0 or not np.isfinite(x).all():
        return None
    own = Q[P][:, P]
    ridge = RIDGE * float(own.diagonal().max())
    eye = scipy.sparse.identity(len(P), format="csr") if scipy.sparse.issparse(own) else np.eye(len(P))
    try:
        solve = factored(own + ridge * eye)
    except scipy.linalg.LinAlgError:
        return None
    part = x[P] / np.linalg.norm(x[P])
    for _ in range(TIMES):
        part = ridge * (solve(part) if solve is not None else by_gradients(own + ridge * eye, part, part / ridge))
    direction = np.zeros_like(x)
    direction[P] = np.maximum(part, 0.0)
    length = float(np.linalg.norm(direction))
    if not 0.0 < length < np.inf:
        return None
    direction /= length
    seen = np.abs(Q @ direction) <= FLAT * float((abs(Q) @ direction).max())
    falls = h @ direction < -1e-9 * float(np.abs(h) @ direction)
    return direction if seen.all() and falls else None
