"""Define the abundances of a pixel with at most K endmembers: an optimum whose misfit no addition and no exchange lowers."""

import numpy as np

from .abundances import nnls

# The least dual of an endmember that is missing, relative to |e_j| and |y|; by how much an exchange has to lower the
# squared misfit, as a share of |y|²; the squared distance from the others' span from which on an endmember may join
# them, as a share of |e_j|². Each leaves room for the rounding of a search that has limits of its own.
LEAST_DUAL, LEAST_FALL, TOO_NEAR = 1e-11, 2e-12, 2e-8


def best_move(y: np.ndarray, E: np.ndarray, members: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the optimum over some members, and those after the best addition or exchange.

    Parameters
    ----------
    y, E : arrays (L,) and (L, p), float64
        Pixel and endmembers of length 1.
    members : array of int
        The endmembers that the pixel may have so far.
    most : int
        The most endmembers that it may have.

    Returns
    -------
    a : array (p,), float64
        The non-negative optimum over the members.
    moved : array of int, or None
        The members after the best move; None where no move lowers the misfit.
    """
    a, left = optimum_of_support(y, E, members)
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
            square = optimum_of_support(y, E, tried)[1]
            if square < best:
                best, moved = square, tried
    return a, moved


def optimum_of_support(y: np.ndarray, E: np.ndarray, members: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the non-negative optimum (p,) over some columns, and its squared misfit."""
    a = np.zeros(E.shape[1])
    a[members] = nnls(E[:, members], y) if len(members) else 0.0
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
