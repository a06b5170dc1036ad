"""Count the endmembers of a scene, from its second moment and that of the differences of neighbours, by several criteria.

No single criterion holds. Noise that neighbouring bands share, as in resampled products, is predicted by regression on the other
bands and passes for signal; texture makes the noise that neighbouring pixels show too large. The default compares two that err for
different reasons.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .hysime import directions_above, hysime
from .statistics import Moments

# A component counts if its signal is at least as strong as its noise: their sum is twice the noise.
SIGNAL = 2.0
# Added to both covariances of MNF, relative to the mean power of a band: directions without noise and signal have a ratio of 1 then.
RIDGE = 1e-12


def has_neighbours(moments: Moments) -> bool:
    """Return whether there are enough pairs of neighbours for the covariance of noise."""
    return moments.pairs > len(moments.mean)


def hysime_spatial(moments: Moments) -> int | None:
    """Count as `hysime` does, with the noise that neighbouring pixels do not share; None with too few pairs of them."""
    if not has_neighbours(moments):
        return None
    noise = np.diag(np.diag(moments.differences))
    return directions_above(moments.second, moments.second - noise, noise)


def mnf_ratios(moments: Moments) -> np.ndarray:
    """Return the ratios of variance to noise of the minimum noise fractions (Green et al. 1988), the largest first.

    Returns
    -------
    array (L,), float64
        1 for a component of noise alone. The correlation of neighbours in a component is ``1 - 1 / ratio``.
    """
    L = len(moments.mean)
    floor = RIDGE * float(np.trace(moments.second)) / L * np.eye(L)
    values, vectors = np.linalg.eigh(moments.differences + floor)
    whitener = vectors / np.sqrt(np.maximum(values, np.finfo(float).tiny))
    return np.linalg.eigvalsh(whitener.T @ (moments.covariance + floor) @ whitener)[::-1]


def mnf(moments: Moments) -> int | None:
    """Count the minimum noise fractions with at least as much signal as noise; p endmembers span p − 1 of them."""
    if not has_neighbours(moments):
        return None
    return 1 + int(np.count_nonzero(mnf_ratios(moments) > SIGNAL))


CRITERIA: dict[str, Callable[[Moments], int | None]] = {
    "hysime": hysime,
    "hysime-spatial": hysime_spatial,
    "mnf": mnf,
}
# Two counts agree if the larger is at most this much as large as the smaller. On synthetic scenes with texture they are up to 1.44
# apart, on six real scenes at least 2.1, where MNF counts what is in no pixel's mixture.
AGREE = 1.5


@dataclass(frozen=True)
class Counts:
    """The number of endmembers by each criterion.

    Attributes
    ----------
    by : dict of str to int or None
        By the names of `CRITERIA`; None where the scene does not allow it.
    """

    by: dict[str, int | None]

    @classmethod
    def of(cls, moments: Moments) -> "Counts":
        """Count by all criteria."""
        return cls({name: criterion(moments) for name, criterion in CRITERIA.items()})

    @property
    def auto(self) -> int:
        """The number that is taken where none is given: of the two criteria with spatial noise MNF's if they agree, else the smaller.

        HySime's where they say nothing: without neighbours, or where neighbours are no more alike than other pixels (MNF counts one).
        """
        spatial, components = self.by["hysime-spatial"], self.by["mnf"]
        if spatial is None or components is None or components == 1:
            return self.by["hysime"] or 1
        return min(spatial, components) if self.differ else components

    @property
    def all(self) -> dict[str, int | None]:
        """``by`` with `auto`."""
        return self.by | {"auto": self.auto}

    @property
    def differ(self) -> bool:
        """Whether the two criteria with spatial noise do not agree."""
        spatial, components = self.by["hysime-spatial"] or 1, self.by["mnf"] or 1
        return max(spatial, components) > AGREE * min(spatial, components)

    def __str__(self) -> str:
        return ", ".join(f"{name} {'-' if count is None else count}" for name, count in self.by.items())
