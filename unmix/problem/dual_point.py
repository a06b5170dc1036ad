"""Find the direction by which a residual is moved to a point of the dual problem, for the duality gap of dependent endmembers."""

import numpy as np

from ..certificate import blur_of

# The least product of a spectrum of length 1 with a vector of length 1 that counts as positive.
LEAST_SLOPE = 1e-9


def slopes_of_dual(E: np.ndarray, norms: np.ndarray, is_penalised: bool) -> np.ndarray:
    """Return ``e_jᵀc``, (p,), for endmembers E (L, p) of lengths norms (p,); c has length 1 and a positive product with all.

    c points to the point of the hull of the unit endmembers that is nearest to zero: no e_jᵀc/|e_j| is below its distance. Columns that
    make that point zero, as a background of either sign does, are left out: c is orthogonal to them, and their entries are −1/(σ|e_j|),
    σ the least singular value above 0 of these columns at unit length. (Under a penalty all are zeros then, since its dual points are
    others.) Whichever columns are left out, the point is one of the dual problem.
    """
    unit, slopes, least = E / norms, np.zeros(len(norms)), 1.0
    held = slopes > 0.0
    while not held.all():
        basis, least = column_space(unit[:, held])
        rest = unit - basis @ (basis.T @ unit)
        shares, nearest = nearest_of_hull(rest[:, ~held])
        slopes = rest.T @ nearest * norms
        if np.all(slopes[~held] > LEAST_SLOPE * norms[~held]):
            break
        held[np.flatnonzero(~held)[shares > LEAST_SLOPE]] = True
    else:
        least = column_space(unit)[1]
    if held.any() and is_penalised:
        return np.zeros(len(norms))
    return np.where(held, -1.0 / (least * norms), slopes)


def nearest_of_hull(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the shares (k,) of columns (L, k) in the point of their hull nearest to 0, and its direction (L,): 0 if it is 0."""
    from scipy.optimize import nnls  # slow to import, and seldom needed

    k = columns.shape[1]
    shares = nnls(np.vstack([columns, np.ones(k)]), np.append(np.zeros(len(columns)), 1.0), maxiter=30 * k)[0]
    nearest = columns @ shares
    length = np.linalg.norm(nearest)
    return shares, nearest / length if length > LEAST_SLOPE else np.zeros(len(columns))


def column_space(columns: np.ndarray) -> tuple[np.ndarray, float]:
    """Return a basis (L, r) of unit columns (L, k), and the least of their singular values above rounding."""
    basis, values, _ = np.linalg.svd(columns, full_matrices=False)
    values = values[values > blur_of(len(columns)) * max(1, columns.shape[1])]
    return basis[:, : len(values)], float(values.min(initial=1.0))
