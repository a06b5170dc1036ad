"""Define the standard deviations that noise gives the abundances of a pixel, and their sums by class."""

import numpy as np

from .fractions import Classes

# Above this condition of a support's spectra the deviations of its abundances are not known to 1e-4.
WORST_CONDITION = 1e6


def covariance(
    E: np.ndarray, y: np.ndarray, a: np.ndarray, noise: np.ndarray | None, sum_to_one: bool, nonnegative: bool
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Return how noise moves the abundances of a pixel, by least squares on the directions that its support leaves
    free.

    Parameters
    ----------
    E, y, a : arrays (L, p), (L,) and (p,), float64
    noise : array (L,), optional
        The standard deviation of each band; default is that of the residual, the same in all bands: NaN where there is
        none, whatever the pixel, since its support has as many free abundances as there are bands.
    sum_to_one, nonnegative : bool
        The constraints.

    Returns
    -------
    F : array (k,), int
        The support.
    C : array (k, k), or None
        The covariance of its abundances; None where its spectra are alike.
    alone : array (p,), float64
        The deviation of every other abundance, by least squares on the support and that spectrum; NaN where that is
        nearly in the support's span.
    """
    F = np.flatnonzero(a) if nonnegative else np.arange(len(a))
    k, held = len(F), int(sum_to_one)
    # An orthonormal basis of the directions in which the abundances may move.
    Z = np.linalg.svd(np.ones((1, k)))[2][1:].T if held else np.eye(k)
    span = E[:, F] @ Z
    M = Z @ np.linalg.lstsq(span, np.eye(len(E)), rcond=None)[0]
    r = y - E @ a
    free = len(E) - k + held
    sigma = noise if noise is not None else np.full(len(E), np.sqrt(r @ r / free) if free > 0 else np.nan)
    more = E - E[:, F[:1]] if held else E
    rest = more - span @ np.linalg.lstsq(span, more, rcond=None)[0]
    squares = np.square(rest).sum(axis=0)
    known = squares > np.square(E).sum(axis=0) / WORST_CONDITION
    alone = np.full(len(a), np.nan)
    np.divide(np.linalg.norm(rest * sigma[:, None], axis=0), squares, out=alone, where=known)
    C = (M * sigma) @ (M * sigma).T
    return F, C if not span.size or np.linalg.cond(span) <= WORST_CONDITION else None, alone


def deviations_of_sums(
    classes: Classes, a: np.ndarray, F: np.ndarray, C: np.ndarray, alone: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return the standard deviation of each class's sum of a pixel, to first order, and that of the sum of all.

    A class of which no spectrum is in the support has the largest deviation that one of its spectra has alone.

    Parameters
    ----------
    classes : Classes
    a : array (p,), float64
    F, C, alone
        As from `covariance`.
    """
    B = np.array([[classes.w[j] * (j in some) for j in F] for some in classes.members])
    of_all, total = B.sum(axis=0), float(classes.w @ a)
    J = (B - np.outer(B @ a[F] / total, of_all)) / total if classes.normalized and total > 0 else B
    found = np.sqrt(np.maximum(np.diag(J @ C @ J.T), 0.0))
    for c in np.flatnonzero(~B.any(axis=1)):
        found[c] = (classes.w * alone)[classes.members[c]].max() / (total if classes.normalized else 1.0)
    return found, float(np.sqrt(max(of_all @ C @ of_all, 0.0)))
