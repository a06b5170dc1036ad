"""Solve quadratic programmes on a given support, dense or sparse, and find directions in which they are unbounded."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse
import scipy.sparse.csgraph
import scipy.sparse.linalg

# Most unknowns of a singular dense system that is solved by its singular values: 1 s.
LARGEST_SINGULAR_SYSTEM = 1000
# Most entries, and most products, of the reordered band of a sparse system that is factored: 1 GB, 10 s.
MOST_IN_BAND, MOST_PRODUCTS = 2**27, 2**35
# Most steps of conjugate gradients for a sparse system with a wider band.
MOST_GRADIENTS = 2000
# To find directions d with Qd = 0: the addend to the diagonal, relative to its largest entry; the number of solves; and
# the share of
# |Q||d| up to which Qd counts as zero: the rounding of long sums, and no more.
RIDGE, SOLVES, FLAT = 1e-8, 3, 1e-12
# Entries of a linear programme's answer, and its cost relative to h, count as zero up to this: a hundred times its
# tolerance.
PROGRAMME_ROUNDING = 1e-8
Solve = Callable[[np.ndarray], np.ndarray]


def solve_support(Q: Any, h: np.ndarray, P: np.ndarray, near: np.ndarray) -> tuple[np.ndarray | None, bool]:
    """Return the optimum (len(P),) on the support P without x ≥ 0, or None, and whether it was found by a factor."""
    if len(P) == 0:
        return np.zeros(0), True
    matrix = Q[P][:, P]
    try:
        solve = cholesky_solver(matrix)
    except scipy.linalg.LinAlgError:
        if scipy.sparse.issparse(matrix) or len(P) > LARGEST_SINGULAR_SYSTEM:
            return None, False
        return np.asarray(scipy.linalg.lstsq(matrix, -h[P], check_finite=False)[0]), False
    if solve is None:
        return conjugate_gradients(matrix, -h[P], near[P]), False
    x = solve(-h[P])
    return x + solve(-h[P] - matrix @ x), True


def cholesky_solver(matrix: Any) -> Solve | None:
    """Return a solver of a symmetric matrix by its Cholesky factor; None if it is sparse and its band is too wide."""
    if not scipy.sparse.issparse(matrix):
        factor = scipy.linalg.cho_factor(matrix, check_finite=False)
        return lambda right: np.asarray(scipy.linalg.cho_solve(factor, right, check_finite=False))
    order = scipy.sparse.csgraph.reverse_cuthill_mckee(matrix.tocsr(), symmetric_mode=True)
    entries = matrix[order][:, order].tocoo()
    below = entries.row >= entries.col
    row, column, n = entries.row[below], entries.col[below], matrix.shape[0]
    width = int((row - column).max(initial=0)) + 1
    if width * n > MOST_IN_BAND or width * width * n > MOST_PRODUCTS:
        return None
    band = np.zeros((width, n))
    band[row - column, column] = entries.data[below]
    band = scipy.linalg.cholesky_banded(band, overwrite_ab=True, lower=True, check_finite=False)

    def solve(right: np.ndarray) -> np.ndarray:
        x = np.empty(n)
        x[order] = scipy.linalg.cho_solve_banded((band, True), right[order], check_finite=False)
        return x

    return solve


def conjugate_gradients(matrix: Any, right: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Solve with a sparse symmetric matrix by conjugate gradients from ``near``, preconditioned by the diagonal."""
    jacobi = scipy.sparse.diags(1.0 / matrix.diagonal())
    with np.errstate(all="ignore"):  # a singular matrix may overflow; the result is then not certified
        x, _ = scipy.sparse.linalg.cg(matrix, right, x0=near, rtol=1e-13, maxiter=MOST_GRADIENTS, M=jacobi)
    return np.asarray(x)


def descent_direction(Q: Any, h: np.ndarray, x: np.ndarray) -> np.ndarray | None:
    """Return a unit direction d ≥ 0 (n,) of unbounded descent, ``Qd = 0`` and ``hᵀd < 0``; None if x shows none."""
    P = np.flatnonzero(x > 0)
    if len(P) == 0 or not np.isfinite(x).all():
        return None
    matrix = Q[P][:, P]
    ridge = RIDGE * float(matrix.diagonal().max())
    eye = scipy.sparse.identity(len(P), format="csr") if scipy.sparse.issparse(matrix) else np.eye(len(P))
    try:
        solve = cholesky_solver(matrix + ridge * eye)
    except scipy.linalg.LinAlgError:
        return None
    part = x[P] / np.linalg.norm(x[P])
    # Iterates of an unbounded programme grow along their part in the null space of Q: multiplication by (Q + εI)⁻¹ ε
    # leaves it unchanged, and shrinks the rest.
    for _ in range(SOLVES):
        part = ridge * (
            solve(part) if solve is not None else conjugate_gradients(matrix + ridge * eye, part, part / ridge)
        )
    direction = np.zeros_like(x)
    direction[P] = np.maximum(part, 0.0)
    return way_down(Q, h, direction)


def recession_direction(Q: Any, h: np.ndarray) -> np.ndarray | None:
    """Return such a direction as `descent_direction`, by a linear programme; None if there is none."""
    lengths = np.sqrt(Q.diagonal())
    by_length = scipy.sparse.diags(1.0 / lengths)
    unit = (by_length @ Q @ by_length).tocsr() if scipy.sparse.issparse(Q) else Q / np.outer(lengths, lengths)
    slopes = h / lengths
    # Minimise hᵀd over Qd = 0 and 0 ≤ d ≤ 1, at unit lengths: it costs as much as a dense solve or more.
    found = scipy.optimize.linprog(
        slopes / np.abs(slopes).max(),
        A_eq=unit,
        b_eq=np.zeros(len(h)),
        bounds=(0.0, 1.0),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if found.x is None or not found.fun < -PROGRAMME_ROUNDING:
        return None
    P = np.flatnonzero(found.x > PROGRAMME_ROUNDING)
    part = found.x[P]
    if len(P) <= LARGEST_SINGULAR_SYSTEM:  # to the last digit: the projection onto the null space
        matrix = unit[P][:, P]
        values, vectors = np.linalg.eigh(matrix.toarray() if scipy.sparse.issparse(matrix) else matrix)
        flat = vectors[:, values <= FLAT * len(P)]
        part = flat @ (flat.T @ part)
    direction = np.zeros_like(h)
    direction[P] = np.maximum(part, 0.0) / lengths[P]
    return way_down(Q, h, direction)


def way_down(Q: Any, h: np.ndarray, direction: np.ndarray) -> np.ndarray | None:
    """Return a direction at length 1, if ``Qd`` is zero to rounding and ``hᵀd`` is negative; else None."""
    length = float(np.linalg.norm(direction))
    if not 0.0 < length < np.inf:
        return None
    direction = direction / length
    flat = np.abs(Q @ direction) <= FLAT * float((abs(Q) @ direction).max())
    falls = h @ direction < -1e-9 * float(np.abs(h) @ direction)
    return direction if flat.all() and falls else None
