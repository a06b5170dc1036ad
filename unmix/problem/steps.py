"""Steps that change bands and endmembers before pixels are solved, and undo the change in the results."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..certificate import NODATA, SOLVED
from ..io import Bands
from ..library import Endmembers


class Step:
    """A change of bands (L) and endmembers (L, p); `undo` takes it out of results, which by default do not show it."""

    def apply(self, bands: Bands, endmembers: Endmembers) -> tuple[Bands, Endmembers]:
        """Return bands and endmembers with the change."""
        raise NotImplementedError

    def undo(self, results: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the results of some lines (`unmix.devices.Line`), float64, as of the bands before."""
        return results

    def undo_sums(self, sums: np.ndarray) -> np.ndarray:
        """Return Σ r², Σ r and Σ y² of some pixels for each band, (3, L), as of the bands before."""
        return sums


def applied(steps: Sequence[Step], bands: Bands, endmembers: Endmembers) -> tuple[Bands, Endmembers]:
    """Return bands and endmembers after all steps, one after the other."""
    for step in steps:
        bands, endmembers = step.apply(bands, endmembers)
    return bands, endmembers


@dataclass(frozen=True)
class LessShade(Step):
    """Subtract shade (L,) from pixels and endmembers: shade is then zero, no model needs it, and residuals stay."""

    shade: np.ndarray

    def apply(self, bands: Bands, endmembers: Endmembers) -> tuple[Bands, Endmembers]:
        """See `Step.apply`."""
        matrix = np.ascontiguousarray(endmembers.matrix - self.shade[:, None])
        return Bands(bands.index, bands.gain, bands.offset - self.shade), replace(endmembers, matrix=matrix)


@dataclass(frozen=True)
class LessBackground(Step):
    """Take a background (L,) off the pixels, and none off the endmembers; residuals stay."""

    background: np.ndarray

    def apply(self, bands: Bands, endmembers: Endmembers) -> tuple[Bands, Endmembers]:
        """See `Step.apply`."""
        return Bands(bands.index, bands.gain, bands.offset - self.background), endmembers


def of_mean_square_one(weights: np.ndarray) -> np.ndarray:
    """Return weights (..., L) of bands, above 0, over their quadratic mean."""
    weights = weights / weights.max(axis=-1, keepdims=True)
    return np.asarray(weights / np.sqrt(np.square(weights).mean(axis=-1, keepdims=True)))


@dataclass(frozen=True)
class Weights(Step):
    """Multiply pixels and endmembers with weights (L,) of quadratic mean 1."""

    weights: np.ndarray

    def apply(self, bands: Bands, endmembers: Endmembers) -> tuple[Bands, Endmembers]:
        """See `Step.apply`."""
        matrix = np.ascontiguousarray(endmembers.matrix * self.weights[:, None])
        gain, offset = bands.gain * self.weights, bands.offset * self.weights
        return Bands(bands.index, gain, offset), replace(endmembers, matrix=matrix)

    def undo(self, results: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the results with residuals without the weights; RMSE and certificate are of the bands with them."""
        if not results["residual"].size:
            return results
        plain = results["residual"] / self.weights[:, None]
        return results | {"residual": np.where(results["state"][:, None] == SOLVED, plain, NODATA)}

    def undo_sums(self, sums: np.ndarray) -> np.ndarray:
        """See `Step.undo_sums`."""
        return sums / np.stack([self.weights**2, self.weights, self.weights**2])
