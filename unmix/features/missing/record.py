"""Record the pixels that no mixture of the endmembers explains: their number, places, and the spectrum that explains them."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...runs.record.fit import percent

# Pixels are concentrated where this share of them lies within this part of a scene's lines, or of its samples.
MOSTLY, NARROW = 0.8, 1 / 3


@dataclass(frozen=True)
class Candidate:
    """A spectrum of a library that explains the pixels: with it among the endmembers they have this ``misfit`` in the median.

    ``share`` is its part of the median pixel, of spectra at unit length; ``source`` names its library.
    """

    name: str
    source: str
    misfit: float
    share: float


@dataclass(frozen=True)
class Missing:
    """Pixels of a sample that have a spectrum in common which no mixture of the endmembers has; see `unmix.features.missing.search`.

    Attributes
    ----------
    pixels, looked_at : int
        Their number, and that of the sample.
    misfit, misfit_of_others : float
        Relative RMSE of nonnegative mixtures, whatever they sum to: the median of these pixels (the 256 worst), and that of the
        pixels that are not among them by mixtures of any sign.
    lines, samples : (first, last) or None
        Where most of them lie, from 0 within the part that is read; None where they are scattered.
    of_lines : list of int
        How many lie in each sixteenth of the lines.
    spectrum, unexplained : list of float
        For each band: the mean of these pixels at unit length, and of what the endmembers leave of it.
    candidates : list of Candidate
        Spectra of the library that explain them, the most likely first; empty where none does.
    searched : int
        The number of spectra that could have been named; 0 where there was no library.
    """

    pixels: int
    looked_at: int
    misfit: float
    misfit_of_others: float
    lines: tuple[int, int] | None
    samples: tuple[int, int] | None
    of_lines: list[int]
    spectrum: list[float]
    unexplained: list[float]
    candidates: list[Candidate]
    searched: int

    @property
    def share(self) -> float:
        """The share of the sample that these pixels are."""
        return self.pixels / self.looked_at

    @property
    def said(self) -> str:
        """How many pixels there are, where they lie and what they look like, in words."""
        places = [("lines", self.lines), ("samples", self.samples)]
        where = " and ".join(f"{word} {a}–{b}" for word, (a, b) in ((w, at) for w, at in places if at is not None))
        begin = f"{percent(self.share)} of the pixels, {f'mostly {where}' if where else 'scattered over the scene'},"
        if self.candidates:
            first = self.candidates[0]
            return (
                f"{begin} look like {first.name} ({first.source}): with it their median misfit falls from {percent(self.misfit)} to "
                f"{percent(first.misfit)}"
            )
        of_others = f", {percent(self.misfit_of_others)} of the others" if self.pixels < self.looked_at else ""
        unknown = f"none of {self.searched} other spectra explains it"
        searched = unknown if self.searched else "a library in `names` may say which it is"
        misfit = f"median misfit {percent(self.misfit)}{of_others}"
        return f"{begin} share a spectrum that no mixture of the endmembers has ({misfit}): {searched}"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it for ``run.json``, six digits of each number of a band."""
        rounded = {
            name: [float(f"{value:.5e}") for value in getattr(self, name)] for name in ("spectrum", "unexplained")
        }
        places = {name: None if (at := getattr(self, name)) is None else list(at) for name in ("lines", "samples")}
        return asdict(self) | rounded | places | {"said": self.said}


def mostly_within(places: np.ndarray, size: int) -> tuple[int, int] | None:
    """Return the first and last of the shortest range with most of the places, of lines or samples; None where it is not narrow."""
    ordered = np.sort(places)
    most = max(1, int(np.ceil(MOSTLY * len(ordered))))
    lengths = ordered[most - 1 :] - ordered[: len(ordered) - most + 1]
    first = int(lengths.argmin())
    if lengths[first] + 1 > NARROW * size:
        return None
    return int(ordered[first]), int(ordered[first + most - 1])
