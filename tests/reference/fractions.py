"""Define what is made of abundances: fractions and their scale (`normalize`), and sums by class.

Define reflectance of single-scattering albedo, and its inverse by a search for the root (Hapke 1981).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

NODATA = -9999.0


def weights_of(E: np.ndarray, kind: str, has_shade: bool = False) -> np.ndarray:
    """Return the factors of the abundances in sums, (p,): 1 for shares of the area; for ``kind`` "length" the
    spectrum's length, for "max" the 95th percentile of its absolute values.

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


# The widest albedo that is searched: below 0 it is that of noise.
LEAST_ALBEDO = -20.0


def reflectance(w: float, incidence: float, emission: float) -> float:
    """Return reflectance relative to a white surface, of cosines of the angles: isotropic scattering, without an opposition effect."""
    gamma = np.sqrt(1.0 - w)
    return float(w / ((1.0 + 2.0 * incidence * gamma) * (1.0 + 2.0 * emission * gamma)))


def albedo(value: float, incidence: float, emission: float) -> float:
    """Return the albedo at most 1 whose reflectance is that value; NaN if no albedo has it."""
    if not value <= 1.0 or reflectance(LEAST_ALBEDO, incidence, emission) > value:
        return np.nan
    return float(
        brentq(lambda w: reflectance(w, incidence, emission) - value, LEAST_ALBEDO, 1.0, xtol=1e-15, rtol=1e-15)
    )
