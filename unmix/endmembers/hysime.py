"""HySime: how many endmembers a scene has (Bioucas-Dias and Nascimento 2008), from the second moment alone."""

import numpy as np

from .statistics import Moments

# Ridge of the regressions, relative to the mean power of a band: noise-free data has rank p.
RIDGE = 1e-10


def noise_regression(second: np.ndarray) -> np.ndarray:
    """Coefficients of each band's regression on all others.

    Parameters
    ----------
    second : array (L, L), float64
        Second moment of the pixels.

    Returns
    -------
    array (L, L), float64
        Column i predicts band i; its diagonal is zero.
    """
    L = len(second)
    inverse = np.linalg.inv(second + RIDGE * np.trace(second) / L * np.eye(L))
    # The i-th column of the inverse is the regression of band i on the others, up to its own entry and sign.
    coefficients = -inverse / np.diag(inverse)
    np.fill_diagonal(coefficients, 0.0)
    return coefficients


def hysime(moments: Moments) -> int:
    """The number of signal dimensions that carry more signal than noise.

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
    rest = np.eye(L) - B
    noise = np.diag(np.diag(rest.T @ second @ rest))
    signal = B.T @ second @ B
    _, vectors = np.linalg.eigh(signal)
    noise += np.trace(signal) / L / 1e5 * np.eye(L)  # as in the authors' code: a floor for noise-free data
    power = np.einsum("bi,bc,ci->i", vectors, second, vectors)
    noise_power = np.einsum("bi,bc,ci->i", vectors, noise, vectors)
    return max(1, int(np.count_nonzero(power > 2 * noise_power)))
