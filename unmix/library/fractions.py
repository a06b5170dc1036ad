"""Convert abundances to fractions, abundances times weights over their sum (`normalize`), and back; bound errors."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..certificate import DARK
from ..quotients import LEAST_SCALE, ROUNDOFF

# The words for fractions, by the kind of normalization.
DESCRIPTIONS = {
    "sum": "fractions of the area",
    "length": "fractions of spectra of unit length",
    "max": "fractions of spectra whose maximum is 1",
}
# The maximum of a spectrum is this percentile of its absolute values: a spike, or a noisy band, cannot move it.
MAXIMUM = 95.0


@dataclass(frozen=True)
class Normalization:
    """How fractions are made of abundances a: ``f_j = w_j a_j / s``, with the scale ``s = Σ w_k a_k``.

    Attributes
    ----------
    kind : {"sum", "length", "max"}
        "sum": w is 1, so that a fraction is a share of the area, where the brightness of the spectra is right.
        "length": w_j is the length of spectrum j over the bands in use, so that a fraction is a share of spectra of
        unit length. "max": w_j is its maximum, but for the highest twentieth of its bands.
    weights : array (p,), float64
        w; 0 for shade, which takes no part.
    has_shade : bool
        Whether the last abundance is shade: what the others lack to one.
    """

    kind: str
    weights: np.ndarray
    has_shade: bool = False

    @classmethod
    def of(cls, kind: str, matrix: np.ndarray, has_shade: bool = False) -> "Normalization | None":
        """Return the normalization for spectra (L, p), neither weighted by band nor shifted; None for "none"."""
        if kind == "none":
            return None
        materials = matrix.T[: matrix.shape[1] - has_shade].tolist()
        sizes: dict[str, Callable[[list[float]], float]] = {
            "sum": lambda _: 1.0,
            "length": lambda spectrum: math.hypot(*spectrum),
            "max": lambda spectrum: float(np.percentile(np.abs(spectrum), MAXIMUM)),
        }
        weights = [sizes[kind](spectrum) for spectrum in materials]
        return cls(kind, np.array(weights + [0.0] * has_shade), has_shade)

    @property
    def shares(self) -> tuple[np.ndarray, float, float]:
        """The weights, and bounds of their length and of the largest of them."""
        above = 1 + (len(self.weights) + 12.0) * ROUNDOFF
        return self.weights, math.hypot(*self.weights) * above, float(self.weights.max(initial=0.0)) * above

    @property
    def description(self) -> str:
        """Description of the fractions."""
        return DESCRIPTIONS[self.kind]

    def of_abundances(self, A: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
        """Return fractions, of A's shape, and scale, without that axis; fractions are 0 where the scale is 0."""
        A = np.moveaxis(A, axis, 0)
        scale, fractions = np.zeros(A.shape[1:]), np.empty(A.shape)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            # In the order of the endmembers, so that the sum rounds the same for any block.
            for j, w in enumerate(self.weights):
                fractions[j] = w * A[j]
                scale += fractions[j]
            fractions = np.divide(fractions, scale, out=np.zeros(A.shape), where=scale > 0)
        return np.moveaxis(fractions, 0, axis), scale

    def back(self, fractions: np.ndarray, scale: np.ndarray, axis: int) -> np.ndarray:
        """Return the abundances for fractions and scale; 0 for a material of weight 0, whose own is not known."""
        F = np.moveaxis(np.asarray(fractions, float), axis, -1) * scale[..., None]
        A = np.divide(F, self.weights, out=np.zeros(F.shape), where=self.weights > 0)
        if self.has_shade:
            A[..., -1] = 1.0 - A[..., :-1].sum(axis=-1)
        return np.moveaxis(A, -1, axis)

    def bound(
        self, fractions: np.ndarray, scale: np.ndarray, dark: np.ndarray, delta: np.ndarray, axis: int
    ) -> np.ndarray:
        """Bound the distance of fractions from the optimum's, for abundances within ``delta`` of the optimum."""
        # With d = a* − a, f* − f = (W d − f wᵀd) / (s + wᵀd), and so |f* − f| ≤ δ (max w + |f||w|) / (s − |w|δ) where
        # s > |w|δ, plus the rounding of f; else it is infinite. A pixel whose abundances are all 0 (`dark`) has no
        # fractions near those of a neighbour: its bound is 0 where that is proved, else infinite.
        w, F = self.weights, np.moveaxis(fractions, axis, 0)
        rounding, lengths = (len(w) + 12.0) * ROUNDOFF, np.zeros(scale.shape)
        for f in F:
            lengths += f * f
        lengths = np.sqrt(lengths) * (1 + rounding)
        _, length, most = self.shares
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            left = scale * (1 - rounding) - length * delta * (1 + rounding)
            far = delta * ((most + lengths * length) * (1 + rounding)) / left * (1 + rounding) + rounding * lengths
            known = (scale > LEAST_SCALE) & (scale < np.inf) & (delta >= 0) & (left > 0) & (far < np.inf)
        far = np.where(known, far, np.inf)
        return np.where(dark, np.where((delta >= 0) & (delta <= DARK), 0.0, np.inf), far)

    def replaced(
        self, A: np.ndarray, delta: np.ndarray, solved: np.ndarray, axis: int, nodata: float
    ) -> tuple[Any, Any, Any]:
        """Return fractions, scale and the fractions' bound for abundances and δ, ``nodata`` where not ``solved``."""
        fractions, scale = self.of_abundances(A, axis)
        dark = ~(np.moveaxis(A, axis, -1)[..., self.weights > 0] != 0).any(axis=-1)
        far = self.bound(fractions, scale, dark, delta, axis)
        fractions = np.where(np.expand_dims(solved, axis), fractions, nodata)
        return fractions, np.where(solved, scale, nodata), np.where(solved, far, nodata)
