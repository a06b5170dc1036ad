"""Define what is made of abundances: fractions and their scale (`normalize`), sums by class, and the standard deviations of both."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

NODATA = -9999.0
# Above this condition of a support's spectra the deviations of its abundances are not known to 1e-4.
WORST_CONDITION = 1e6


def weights_of(E: np.ndarray, kind: str, has_shade: bool = False) -> np.ndarray:
    """Return the factors of the abundances in sums, (p,): 1 for shares of the area; for ``kind`` "length" the spectrum's length, for
    "max" the 95th percentile of its absolute values.

    Shade, the last of the columns of E (L, p), takes no part.
    """
    w = np.ones(E.shape[1])
    if kind == "length":
        w = np.linalg.norm(E, axis=0)
    elif kind == "max":
        w = np.percentile(np.abs(E), 95.0, axis=0)
    w[len(w) - has_shade :] = 0.0
    return w


def fractions(A: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``f = w a / Σ w a`` of abundances (N, p), 0 where the sum is not above 0, and the sum, the scale (N,)."""
    scale = A @ w
    lit = scale[:, None] > 0
    return np.divide(A * w, scale[:, None], out=np.zeros(A.shape), where=lit), scale


def from_fractions(F: np.ndarray, scale: np.ndarray, w: np.ndarray, has_shade: bool = False) -> np.ndarray:
    """Return the abundances (N, p) of fractions and scale; 0 where the weight is 0, and for shade what the others lack to one."""
    A = np.divide(F * scale[:, None], w, out=np.zeros(F.shape), where=w > 0)
    if has_shade:
        A[:, -1] = 1.0 - A[:, :-1].sum(axis=1)
    return A


class Classes(NamedTuple):
    """Sums of abundances by class.

    Attributes
    ----------
    names : tuple of str
        In the order of their first spectra.
    members : tuple of lists of int
        The spectra of each, from 0; shade is in none.
    w : array (p,), float64
        Factors of the abundances in sums; 0 for shade.
    normalized : bool
        Whether sums are divided by the sum of all.
    """

    names: tuple[str, ...]
    members: tuple[list[int], ...]
    w: np.ndarray
    normalized: bool

    @classmethod
    def of(cls, kinds: Sequence[str], w: np.ndarray, normalized: bool) -> "Classes":
        """Return the sums for the class of each spectrum; further spectra are shade."""
        names = tuple(dict.fromkeys(kinds))
        return cls(names, tuple([j for j, kind in enumerate(kinds) if kind == name] for name in names), w, normalized)

    def sums(self, A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the sums (N, classes) of abundances (N, p), NaN where there is nothing to divide by, and the sum of all, (N,)."""
        sums = np.stack([(A * self.w)[:, some].sum(axis=1) for some in self.members], axis=1)
        total = sums.sum(axis=1)
        if self.normalized:
            sums = np.divide(sums, total[:, None], out=np.full(sums.shape, np.nan), where=total[:, None] > 0)
        return sums, total


def covariance(
    E: np.ndarray, y: np.ndarray, a: np.ndarray, noise: np.ndarray | None, sum_to_one: bool, nonnegative: bool
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Return how noise moves the abundances of a pixel, by least squares on the directions that its support leaves free.

    Parameters
    ----------
    E, y, a : arrays (L, p), (L,) and (p,), float64
    noise : array (L,), optional
        The standard deviation of each band; default is that of the residual, the same in all bands: NaN where there is none, whatever
        the pixel, since its support has as many free abundances as there are bands.
    sum_to_one, nonnegative : bool
        The constraints.

    Returns
    -------
    F : array (k,), int
        The support.
    C : array (k, k), or None
        The covariance of its abundances; None where its spectra are alike.
    alone : array (p,), float64
        The deviation of every other abundance, by least squares on the support and that spectrum; NaN where that is nearly in the
        support's span.
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
