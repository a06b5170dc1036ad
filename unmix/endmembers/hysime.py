"""HySime (Bioucas-Dias and Nascimento 2008): estimate the number of endmembers from the second moment alone."""

import numpy as np

from .statistics import Moments

# Ridge of the regressions, relative to the mean power of a band: without it noise-free data, which has rank p, could not be inverted.
RIDGE = 1e-10


def noise_regression(second: np.ndarray) -> np.ndarray:
    """Return the coefficients of the regression of each band on all others.

    Parameters
    ----------
    second : array (L, L), float64
        Second moment of the pixels.

    Returns
    -------
    array (L, L), float64
        Column i predicts band i; the diagonal is zero.
    """
    L = len(second)
    inverse = np.linalg.inv(second + RIDGE * np.trace(second) / L * np.eye(L))
    # Column i of the inverse, divided by its diagonal entry and negated, is the regression of band i on the others.
    coefficients = -inverse / np.diag(inverse)
    np.fill_diagonal(coefficients, 0.0)
    return coefficients


def hysime(moments: Moments) -> int:
    """Estimate the number of endmembers: the signal dimensions that carry more signal than noise.

    With noise ``n = y − Bᵀy`` from the regressions B, signal ``x = Bᵀy``, and the eigenvectors of the signal's second
    moment, a direction counts where its power in y is more than twice its power in n (eq. 26 of the paper).

    Parameters
    ----------
    moments : Moments
        Of the scene.

    Returns
    -------
    int
        At least 1.
    """
    second = moments.second
    L = len(second)
    if L == 1:
        return 1
    B = noise_regression(second)
    residual = np.eye(L) - B
    return directions_above(second, B.T @ second @ B, np.diag(np.diag(residual.T @ second @ residual)))


def directions_above(second: np.ndarray, signal: np.ndarray, noise: np.ndarray) -> int:
    """Return how many eigenvectors of the signal's second moment have more than twice the power of noise; at least 1.

    Parameters
    ----------
    second, signal, noise : arrays (L, L), float64
        Second moments of the pixels, of the signal and of the noise in them.
    """
    L = len(second)
    _, vectors = np.linalg.eigh(signal)
    noise = noise + np.trace(signal) / L / 1e5 * np.eye(L)  # as in the authors' code: a floor for noise-free data
    power = np.einsum("bi,bc,ci->i", vectors, second, vectors)
    noise_power = np.einsum("bi,bc,ci->i", vectors, noise, vectors)
    return max(1, int(np.count_nonzero(power > 2 * noise_power)))
