"""Define the most likely mixture of spectra of counts: by scipy's least squares, again and again with weights of the last mean."""

import numpy as np
from scipy.optimize import nnls as lawson_hanson

# Steps, and halvings of one that does not lower the cost.
MOST_STEPS, MOST_HALVINGS = 500, 40
# Steps after the violation is small.
MOST_SETTLED = 6
# A mean, as a share of that of all bands, below which its weight is held.
LEAST_MEAN = 1e-9
# A violation of an optimality condition, of the counts of its spectrum, at which the search ends.
DONE = 1e-11


def cost(E: np.ndarray, y: np.ndarray, b: np.ndarray, a: np.ndarray) -> float:
    """Return ``Σ (μ − y log μ)``, ``μ = E a + b``: infinite where counts are in a band of which the mean is 0."""
    mean = E @ a + b
    has = y > 0
    return float(mean.sum() - (y[has] * np.log(mean[has])).sum()) if (mean[has] > 0).all() else np.inf


def poisson(E: np.ndarray, y: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Minimise `cost` over a ≥ 0.

    Parameters
    ----------
    E : array (L, p), float64
        Spectra at least 0, none of zeros.
    y, b : arrays (L,), float64
        Counts, and those that are there in any case.

    Returns
    -------
    array (p,), float64
    """
    sums, p = E.sum(axis=0), E.shape[1]
    a = np.full(p, y.sum() / p) / sums
    if y.sum() == 0:
        return np.zeros(p)
    settled = 0
    for step in range(MOST_STEPS):
        mean = np.maximum(E @ a + b, LEAST_MEAN * (E @ a + b).mean())
        slope = sums - E.T @ (y / mean)
        if (np.where(a > 0, np.abs(slope), np.maximum(-slope, 0)) / sums).max() <= DONE:
            settled += 1  # then some Newton's steps more: beside a large background a small violation is a large step
            if settled > MOST_SETTLED:
                break
        # By turns the curvature that is expected, 1/μ, which finds the support, and on that Newton's step.
        if step % 2 == 0:
            root = 1 / np.sqrt(mean)
            wanted = lawson_hanson(E * root[:, None], (y - b) * root, maxiter=100 * p)[0]
        else:
            on = a > 0
            H = (E[:, on].T * (y / mean**2)) @ E[:, on]
            wanted = a.copy()
            wanted[on] = np.maximum(a[on] - np.linalg.lstsq(H, slope[on], rcond=None)[0], 0)
        size, before = 1.0, cost(E, y, b, a)
        for _ in range(MOST_HALVINGS):
            if cost(E, y, b, a + size * (wanted - a)) <= before + 1e-14 * (abs(before) + y.sum()):
                break
            size *= 0.5
        a = a + size * (wanted - a)
    return np.asarray(a)
