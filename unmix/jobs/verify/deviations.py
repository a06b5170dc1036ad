"""Verify standard deviations: those of some pixels again, by least squares on the directions that their support leaves free."""

from dataclasses import replace
from typing import Any

import numpy as np

from ...library import ClassSums, Endmembers
from ...library.fractions import Normalization
from ...methods import Method

# Abundances below this may belong to the support of one solution, and not to that of another.
CLEAR = 1e-6
DEVIATION_TOLERANCE = 1e-4
# Above this condition of a support its deviations are not known to the tolerance.
ALIKE = 1e6
# A residual below this share of the pixel may be the rounding of maps to float32: it tells no noise.
EXACT = 1e-6


def deviations(
    E: np.ndarray, a: np.ndarray, y: np.ndarray, noise: np.ndarray | None, method: Method
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Return the columns of the support of a pixel, the covariance of their abundances, and the deviation of every other one, (p,).

    The covariance is None where they are alike. The others' deviations are those of least squares on the support and the one spectrum
    more, NaN where that is nearly in the support's span.
    """
    F = np.flatnonzero(a) if method.nonnegative else np.arange(len(a))
    k, held = len(F), int(method.sum_to_one)
    # An orthonormal basis of the directions in which the abundances may move.
    Z = np.linalg.svd(np.ones((1, k)))[2][1:].T if held else np.eye(k)
    span = E[:, F] @ Z
    M = Z @ np.linalg.lstsq(span, np.eye(len(E)), rcond=None)[0]
    r = y - E @ a
    weights = np.sqrt(r @ r / max(1, len(E) - k + held)) * np.ones(len(E)) if noise is None else noise
    more = E - E[:, F[:1]] if held else E
    rest = more - span @ np.linalg.lstsq(span, more, rcond=None)[0]
    squares = np.square(rest).sum(axis=0)
    known = squares > np.square(E).sum(axis=0) / ALIKE
    alone = np.divide(
        np.linalg.norm(rest * weights[:, None], axis=0), squares, out=np.full(len(a), np.nan), where=known
    )
    C = (M * weights) @ (M * weights).T
    return F, C if not span.size or np.linalg.cond(span) <= ALIKE else None, alone


def wrong_deviations(
    written: np.ndarray,
    library: Endmembers,
    report: dict[str, Any],
    method: Method,
    A: np.ndarray,
    Y: np.ndarray,
    each: np.ndarray | None = None,
    shares: Normalization | None = None,
) -> np.ndarray:
    """Return which pixels have other standard deviations than they should, (n,) bool.

    Parameters
    ----------
    written : array (bands, n), float32
    library : Endmembers
        What the run wrote.
    report : dict
        The run's record.
    method : Method
    A, Y : arrays (n, p) and (n, L), float64
        Abundances that were solved again, and the pixels.
    each : array (n, L), float64, optional
        The noise of each pixel; NaN where it is missing.
    shares : Normalization, optional
        How fractions are made, where the deviations are of these.
    """
    asked, E = report["asked"], library.matrix
    noise = None if asked.get("noise") is None or each is not None else np.array(asked["noise"])
    library = replace(library, has_shade=method.has_shade)
    sums = None if asked.get("by") is None else ClassSums.of(library, asked["shade_normalize"]).weighted(shares)
    if sums is None and shares is not None:
        sums = ClassSums.of_each(library.names, shares, method.has_shade)
    shade, w = sums is not None and sums.has_shade, np.ones(len(E.T)) if shares is None else shares.weights
    wrong = np.zeros(len(A), bool)
    for n, (a, y) in enumerate(zip(A, Y)):
        if method.nonnegative and a[a > 0].min(initial=1.0) < CLEAR:
            continue
        if each is not None and not np.isfinite(each[n]).all():
            wrong[n] = np.any(written[:, n] != -9999)
            continue
        F, C, alone = deviations(E, a, y, noise if each is None else each[n], method)
        if sums is not None and sums.normalized and not a[: len(a) - method.has_shade].sum() > 0:
            wrong[n] = np.any(written[: len(sums.names), n] != -9999)
            continue
        if C is None or (noise is None and each is None and np.linalg.norm(y - E @ a) <= EXACT * np.linalg.norm(y)):
            continue
        if sums is None:
            found, expected = written[F, n], np.sqrt(np.diag(C))
        else:
            B = np.array([[w[j] * (j in some) for j in F] for some in sums.members])
            seen, total = B.any(axis=1), (w * a)[: len(a) - method.has_shade].sum()
            brightness = B.sum(axis=0)
            J = (B - np.outer(B @ a[F] / total, brightness)) / total if sums.normalized and total > 0 else B
            found = np.append(written[: len(B), n], written[len(B) + shade, n])
            expected = np.sqrt(np.maximum(np.append(np.diag(J @ C @ J.T), brightness @ C @ brightness), 0.0))
            for c in np.flatnonzero(~seen):  # as if one of its spectra were there, at nearly 0
                expected[c] = (w * alone)[list(sums.members[c])].max() / (total if sums.normalized else 1.0)
            found, expected = found[~np.isnan(expected)], expected[~np.isnan(expected)]
        wrong[n] = np.any(np.abs(found - expected) > DEVIATION_TOLERANCE * expected + 1e-7 * np.abs(a).max(initial=0.0))
    return wrong
