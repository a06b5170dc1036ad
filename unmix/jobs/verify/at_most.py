"""Check pixels with at most K endmembers against their definition: no addition and no exchange lowers the misfit."""

import numpy as np
from scipy.optimize import nnls

from ...arrays.pixels import solve

# As in `unmix.solvers.pixels.at_most`, with as much room between as rounding may take: the least dual, relative to |e_j| and |y|, of an
# endmember that is missing; by how much an exchange has to lower the squared misfit, as a share of |y|²; and the squared distance from
# the others' span, as a share of |e_j|², from which on an endmember may join them.
LEAST_DUAL, LEAST_FALL, TOO_NEAR = 1e-11, 2e-12, 2e-8
# Additions and exchanges for each endmember that a pixel may have.
MOVES_FOR_EACH = 20


def answers(Y: np.ndarray, E: np.ndarray, most: int, written: np.ndarray, complete: np.ndarray) -> np.ndarray:
    """Return what pixels should have: nnls on the support that was written, if nothing betters it.

    Else, and where not all was written, nnls on the support that our own search finds, bettered by what is found here, if anything is.

    Parameters
    ----------
    Y : array (n, L), float64
    E : array (L, p), float64
    most : int
        The most endmembers of a pixel.
    written : array (n, p)
        The abundances, or fractions, that were written.
    complete : array (n,), bool
        Whether these are all that are not 0.

    Returns
    -------
    array (n, p), float64
    """
    sizes = np.linalg.norm(E, axis=0)
    found, unit = np.zeros((len(Y), E.shape[1])), E / sizes
    again = solve(Y, E, method="nnls", at_most=most).abundances if len(Y) else found
    for i, y in enumerate(Y):
        length = float(np.linalg.norm(y))
        support = np.flatnonzero(written[i] > 0)
        if length == 0.0:
            continue
        y = y / length
        is_whole = complete[i] and len(support) <= most
        a, moved = best_move(y, unit, support, most) if is_whole else (found[i], support)
        if moved is not None:
            moved = np.flatnonzero(again[i])
        for _ in range(MOVES_FOR_EACH * most):
            if moved is None:
                break
            a, moved = best_move(y, unit, moved, most)
        found[i] = a * length / sizes
    return found


def best_move(y: np.ndarray, E: np.ndarray, members: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the optimum over some members, and those after the best addition or exchange; None where nothing lowers the misfit."""
    a, left = optimum(y, E, members)
    support = np.flatnonzero(a)
    if len(support) < len(members):
        return a, support
    _, duals, distances = around(y, E, support)
    missing = duals > LEAST_DUAL
    falls = np.where(missing & (distances > TOO_NEAR), duals**2 / np.maximum(distances, TOO_NEAR), 0.0)
    if len(support) < most and falls.any():
        return a, np.append(support, falls.argmax())
    best, moved = left - LEAST_FALL, None
    for k in range(len(support) if len(support) == most or missing.any() else 0):
        rest = np.delete(support, k)
        square, duals, distances = around(y, E, rest)
        may = (duals > 0) & (distances > TOO_NEAR)
        may[support[k]] = False
        least = np.where(may, square - duals**2 / np.where(may, distances, 1.0), np.inf)  # with abundances of any sign
        for j in np.argsort(least, kind="stable"):
            if not least[j] < best:
                break
            tried = np.append(rest, j)
            square = optimum(y, E, tried)[1]
            if square < best:
                best, moved = square, tried
    return a, moved


def optimum(y: np.ndarray, E: np.ndarray, members: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the nonnegative optimum (p,) over some columns, and its squared misfit."""
    a = np.zeros(E.shape[1])
    a[members] = nnls(E[:, members], y, maxiter=100 * len(members))[0] if len(members) else 0.0
    return a, float(np.square(y - E @ a).sum())


def around(y: np.ndarray, E: np.ndarray, members: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the squared residual of least squares on some columns, and all columns' duals and squared distances from their span."""
    Q = np.linalg.qr(E[:, members])[0]
    r = y - Q @ (Q.T @ y)
    r -= Q @ (Q.T @ r)
    distances = 1.0 - np.square(Q.T @ E).sum(axis=0)
    distances[members] = 0.0
    duals = E.T @ r
    duals[members] = 0.0
    return float(r @ r), duals, distances
