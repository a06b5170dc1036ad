"""Find the direction that moves a residual to a feasible point of the dual, for the gap of dependent endmembers.

It is c, of length 1, which points to the point of the hull of the unit endmembers that is nearest to zero: no
e_jᵀc/|e_j| is below its distance. Columns that make that point zero, as a background of either sign does, are left out:
c is orthogonal to them, and their slopes are −1/(σ|e_j|), σ the least singular value above 0 of these columns at unit
length. Whichever columns are left out, the point is one of the dual problem. All slopes are 0 where columns are
left out and there is a penalty, whose dual points are others, or no such σ.
"""

import numpy as np

from ..certificate import blur_of

# The least product of a spectrum of length 1 with a vector of length 1 that counts as positive.
LEAST_SLOPE = 1e-9
# Products that the rank of columns may need in exact arithmetic: half a second.
MOST_PRODUCTS = 10**6


def slopes_of_dual(E: np.ndarray, norms: np.ndarray, is_penalised: bool) -> np.ndarray:
    """Return ``e_jᵀc`` (p,) of endmembers E (L, p) of lengths norms (p,), −1/(σ|e_j|) of columns that are left out."""
    unit, slopes, least = E / norms, np.zeros(len(norms)), 1.0
    held = slopes > 0.0
    while not held.all():
        basis, least = column_space(E[:, held], unit[:, held])
        rest = unit - basis @ (basis.T @ unit)
        shares, nearest = nearest_of_hull(rest[:, ~held])
        slopes = rest.T @ nearest * norms
        if np.all(slopes[~held] > LEAST_SLOPE * norms[~held]):
            break
        held[np.flatnonzero(~held)[shares > LEAST_SLOPE]] = True
    else:
        least = column_space(E, unit)[1]
    if held.any() and (is_penalised or least == 0.0):
        return np.zeros(len(norms))
    return np.where(held, -1.0 / (least * norms), slopes)


def nearest_of_hull(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the shares (k,) of columns (L, k) in their hull's point nearest to 0, and its direction (L,) or 0."""
    from scipy.optimize import nnls  # slow to import, and seldom needed

    k = columns.shape[1]
    shares = nnls(np.vstack([columns, np.ones(k)]), np.append(np.zeros(len(columns)), 1.0), maxiter=30 * k)[0]
    nearest = columns @ shares
    length = np.linalg.norm(nearest)
    return shares, nearest / length if length > LEAST_SLOPE else np.zeros(len(columns))


def column_space(columns: np.ndarray, unit: np.ndarray) -> tuple[np.ndarray, float]:
    """Return a basis (L, r) of columns (L, k), and the least singular value above 0 of the ``unit`` columns (L, k)."""
    basis, values, _ = np.linalg.svd(unit, full_matrices=False)
    rounding = blur_of(len(unit)) * max(1, unit.shape[1])
    values = values[values > rounding]
    # The value is 0 for x and a rounded −x/3: their mixture has the size of a rounding, and in exact arithmetic the
    # optimum takes 1e16 of it.
    is_full = len(values) == min(unit.shape) or exact_rank(columns) == len(values)
    return basis[:, : len(values)], float(values.min(initial=1.0) - 0.5 * rounding) if is_full else 0.0


def exact_rank(columns: np.ndarray) -> int:
    """Return the rank of columns (L, k) in exact arithmetic; -1 where there are too many of them for that."""
    if columns.size * columns.shape[1] > MOST_PRODUCTS:
        return -1
    ratios = [[value.as_integer_ratio() for value in column] for column in columns.T.tolist()]
    whole = max(below for column in ratios for _, below in column)  # a power of two, as each of them is
    rows = [[above * (whole // below) for above, below in column] for column in ratios]
    rank, previous = 0, 1
    while rows := [
        row for row in rows if any(row)
    ]:  # fraction-free elimination (Bareiss): each quotient is a whole number
        pivot, rank = rows.pop(0), rank + 1
        at = next(b for b, value in enumerate(pivot) if value)
        rows = [[(pivot[at] * value - row[at] * above) // previous for value, above in zip(row, pivot)] for row in rows]
        previous = pivot[at]
    return rank
