"""Define the standard deviations that noise gives the abundances of a pixel, and their sums by class."""

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, polygamma
from scipy.stats import chi2, norm, t

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


def pooled_by_definition(squares, own):
    """Return the function of a squared residual and its degrees of freedom that is the noise, of a scene's pixels (N,)."""
    own, squares = np.asarray(own, float), np.asarray(squares, float)
    some = (own > 0) & (squares > 0)
    own, squares = own[some], squares[some]
    s0, d0 = 0.0, 0.0
    if len(own) >= 32:
        logs = np.log(squares / chi2.ppf(0.5, own))
        width = lambda q: q[1] - q[0]  # noqa: E731
        expected = np.mean([width(np.log(chi2.ppf((0.25, 0.75), d))) ** 2 for d in own])
        spread = (width(np.percentile(logs, (25, 75))) ** 2 - expected) / width(norm.ppf((0.25, 0.75))) ** 2
        d0 = 1e6 if spread <= 1e-6 else min(1e6, 2 * brentq(lambda x: polygamma(1, x) - spread, 1e-8, 1e9))
        s0 = np.exp(np.median(logs)) * (1 if d0 == 1e6 else np.exp(digamma(d0 / 2) - np.log(d0 / 2)))

    def noise(square, d):
        if d + d0 <= 0:
            return None
        is_noise = not (d > 0 and d0 > 0 and square > chi2.isf(1e-3, d) * s0)
        moderated = (d0 * s0 + square) / (d0 + d)
        return t.ppf(norm.cdf(1), d + d0) * np.sqrt(moderated if is_noise else max(moderated, square / d))

    return noise


def without_unsure(a: np.ndarray, C: np.ndarray) -> np.ndarray:
    """Return abundances (k,) of covariance C as they are if those below two of their deviations are none."""
    unsure = a < 2 * np.sqrt(np.diag(C))
    if unsure.all() or not unsure.any():
        return a
    found = a - C[:, unsure] @ np.linalg.lstsq(C[np.ix_(unsure, unsure)], a[unsure], rcond=1e-12)[0]
    return np.where(unsure, 0.0, found)
