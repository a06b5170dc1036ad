"""Define κ and δ of a pixel, and duality gaps: how far abundances are from the optimum, from spectra and answer alone."""

import numpy as np

# The rounding of one operation of float64, and a little more.
UNIT = 1.01 * 2.0**-53


def of_pixel(
    E: np.ndarray, y: np.ndarray, a: np.ndarray, sum_to_one: bool, nonnegative: bool, gaps: bool = True
) -> tuple[float, float, float]:
    """Return RMSE, κ with the duality gap, and δ with the rounding of float64 that it allows for (docs/methods.md).

    Under Σa = 1 all three are of spectra less their mean, which changes nothing where the sum is one.

    Parameters
    ----------
    E, y, a : arrays (L, p), (L,) and (p,), float64
        Endmembers, a pixel, and the abundances that are judged.
    sum_to_one, nonnegative : bool
        The constraints.
    gaps : bool
        Whether κ is at least the duality gap, as it is of runs.
    """
    L, p = E.shape
    sizes = np.linalg.norm(E, axis=0)
    smallest = np.linalg.svd(E, compute_uv=False)[-1]
    if sum_to_one:
        mean = E.mean(axis=1)
        E, y = E - mean[:, None], y - mean
        sizes = np.linalg.norm(E, axis=0)
        # On vectors that sum to 0, by an orthonormal basis of these.
        basis = np.linalg.svd(np.ones((1, p)))[2][1:].T
        smallest = np.linalg.svd(E @ basis, compute_uv=False)[-1] if p > 1 else np.inf
    r = y - E @ a
    w = E.T @ r
    multiplier = (a @ w / a.sum() if nonnegative else w.mean()) if sum_to_one else 0.0
    v = w - multiplier
    lengths = np.linalg.norm(y) + np.sum(np.abs(a) * sizes)
    over = abs(a.sum() - 1) if sum_to_one else 0.0
    apart = over + p * UNIT * np.abs(a).sum() if sum_to_one else 0.0
    rho = (UNIT * ((L + 2) * np.linalg.norm(r) + (np.count_nonzero(a) + 2) * lengths) + apart * sizes.max()) * sizes
    most = np.abs(v) + rho
    if nonnegative:
        most = np.where(a > 0, most, np.maximum(v + rho, 0))
        v = np.where(a > 0, v, np.maximum(v, 0))
    delta = np.linalg.norm(most) / smallest**2 + apart if not nonnegative or a.min() >= 0 else np.inf
    gap = np.linalg.norm(most) * min(delta, np.linalg.norm(most) / smallest**2)
    if sum_to_one and nonnegative:
        gap = min(gap, max(0, (w - multiplier + rho).max()) + a @ most)
    elif nonnegative and np.all(E.T @ r + rho <= 0):  # r is a point of the dual problem
        gap = min(gap, a @ most)
    scale = max(np.linalg.norm(y), sizes.max()) if sum_to_one else np.linalg.norm(y)
    scale = scale if nonnegative else max(scale, np.abs(a) @ sizes)
    kappa = 0.0
    if scale > 0:
        kappa = np.max(np.abs(v) / (sizes.max() if sum_to_one else sizes)) / scale
        kappa = max(kappa, 200 * gap / scale**2 if gaps else 0.0)
    kappa = max(kappa, np.max(-a)) if nonnegative else kappa
    return np.sqrt(np.mean(r**2)), max(kappa, over / max(1, np.abs(a).sum())), delta


def gap(
    E: np.ndarray, y: np.ndarray, a: np.ndarray, sum_to_one: bool = False, penalty: np.ndarray | float = 0.0
) -> float:
    """Return the duality gap of abundances a ≥ 0 over ½|y|², in extended precision: no others cost less by more than this.

    Parameters
    ----------
    E : array (L, p), float64
        Without a constraint on the sum, positive: the dual point is the residual less a constant in every band.
    y, a : arrays (L,) and (p,), float64
    sum_to_one : bool
    penalty : array (p,) or float
        Costs of the abundances (`l1`).
    """
    E, y, a = (values.astype(np.longdouble) for values in (E, y, a))
    v = E.T @ (y - E @ a) - penalty
    if sum_to_one:
        return float((v.max() - a @ v) / (0.5 * (y @ y)))
    u = np.full(len(y), max((v / E.sum(axis=0)).max(), 0))
    return float((-a @ v + u @ (E @ a) + 0.5 * u @ u) / (0.5 * (y @ y)))
