"""Record the pixels that no mixture explains: their number, their places, and the spectrum that explains them."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...runs.record.fit import in_percent
from ...summary import POOR

# Pixels are concentrated where this share of them lies within this part of a scene's lines, or of its samples; else
# their largest patch of neighbours in the sample is named, if it holds this share of them.
MOSTLY, NARROW, LEAST_OF_PATCH = 0.8, 1 / 3, 0.05
# Candidates whose median misfits differ by less are equal.
MOST_RATIO_OF_EQUAL = 1.1
# Where more than this share lacks a spectrum, the library is of another unit or scene rather than short of one.
NEARLY_ALL = 0.9


@dataclass(frozen=True)
class MissingCandidate:
    """A spectrum of a library that explains the pixels: as an endmember it makes their median misfit ``misfit``.

    ``share`` is its part of the median pixel, of spectra at unit length; ``source`` names its library.
    """

    name: str
    source: str
    misfit: float
    share: float


@dataclass(frozen=True)
class Missing:
    """Pixels of a sample that share a spectrum that no mixture has; see `unmix.features.missing.scene`.

    Attributes
    ----------
    pixels, looked_at : int
        Their number, and the number in the sample.
    misfit, misfit_of_others : float
        Relative RMSE of nonnegative mixtures, whatever they sum to: the median of these pixels (the 256 worst), and
        the median of the pixels that are not among them by mixtures of any sign.
    lines, samples : (first, last) or None
        Where most of them lie, from 0 within the part that is read, or their largest patch of neighbours in the
        sample; None where they are scattered.
    of_lines : list of int
        How many lie in each sixteenth of the lines.
    spectrum, unexplained : list of float
        For each band: the mean of these pixels at unit length, and of what the endmembers leave of it.
    candidates : list of MissingCandidate
        Spectra of the library that explain them, the most likely first; empty where none does.
    searched : int
        The number of spectra that could have been named; 0 where there was no library.
    patch : int
        The number of them in the largest patch, where ``lines`` and ``samples`` are its own; else 0.
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
    candidates: list[MissingCandidate]
    searched: int
    patch: int = 0

    @property
    def share(self) -> float:
        """The share of the sample that these pixels are."""
        return self.pixels / self.looked_at

    @property
    def is_clear(self) -> bool:
        """Whether it is another material, rather than a variety of one: it is named, or these pixels fit poorly."""
        return bool(self.candidates) or self.misfit > float(POOR)

    @property
    def said(self) -> str:
        """How many pixels there are, where they lie and what they look like, in words."""
        ranges = [("lines", self.lines), ("samples", self.samples)]
        where = ", ".join(f"{word} {a}–{b}" for word, (a, b) in ((w, at) for w, at in ranges if at is not None))
        where = f"{'largest patch' if self.patch else 'mostly'} {where}" if where else "scattered over the scene"
        word = "is" if self.is_clear else "may be"
        begin = f"something {word} missing in {in_percent(self.share)} of {self.looked_at} pixels"
        misfit = f"misfit {in_percent(self.misfit)}"
        if self.share > NEARLY_ALL and not self.candidates:
            return f"{begin}: {misfit}; first check units, wavelengths and library"
        begin = f"{begin}, {where}"
        if self.candidates:
            first, *others = self.candidates
            is_alike = others and others[0].misfit <= MOST_RATIO_OF_EQUAL * first.misfit
            names = f"{first.name}, or {others[0].name}" if is_alike else first.name
            return f"{begin}: like {names} ({first.source}); {misfit}, with it {in_percent(first.misfit)}"
        advice = (
            f"no other of {self.searched} spectra explains it as half of these pixels or more; it may be less of them"
            if self.searched
            else "try `names`"
        )
        return f"{begin}: {misfit}, others {in_percent(self.misfit_of_others)}; {advice}"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it for ``run.json``, six digits of each number of a band."""
        rounded = {
            name: [float(f"{value:.5e}") for value in getattr(self, name)] for name in ("spectrum", "unexplained")
        }
        places = {name: None if (at := getattr(self, name)) is None else list(at) for name in ("lines", "samples")}
        return asdict(self) | rounded | places | {"is_clear": self.is_clear, "said": self.said}


def mostly_within(places: np.ndarray, size: int, sampled: np.ndarray) -> tuple[int, int] | None:
    """Return first and last of the shortest range with most places, midway to others ``sampled``; None if not narrow."""
    ordered = np.sort(places)
    most = max(1, int(np.ceil(MOSTLY * len(ordered))))
    lengths = ordered[most - 1 :] - ordered[: len(ordered) - most + 1]
    first = int(lengths.argmin())
    if lengths[first] + 1 > NARROW * size:
        return None
    known = np.unique(sampled)
    i, j = np.searchsorted(known, ordered[[first, first + most - 1]])
    return int(known[max(i - 1, 0)] + known[i] + 1) // 2, int(known[j] + known[min(j + 1, len(known) - 1)]) // 2


def groups_of(there: np.ndarray) -> np.ndarray:
    """Return a number for each group of neighbours in a bool array (n, m), int64; 0 where the array is False."""
    # By hand: to import `scipy.ndimage` takes 0.25 s, as long as to solve ten million pixels.
    found = np.where(there, np.arange(1, there.size + 1).reshape(there.shape), 0)
    while True:
        before, wide = found, np.pad(found, 1)
        tall = np.maximum(np.maximum(wide[:-2], wide[1:-1]), wide[2:])
        found = np.maximum(np.maximum(tall[:, :-2], tall[:, 1:-1]), tall[:, 2:]) * there
        if (found == before).all():
            return found


def spacing_of(places: np.ndarray) -> int:
    """Return the distance of a line's sampled pixels (n,), or of their pairs where they come in pairs."""
    steps = np.diff(places)
    in_pairs = len(steps) > 1 and steps.min() == 1 < steps.max()
    return int(np.median(np.diff(places[::2]))) if in_pairs else int(steps.min(initial=places[-1] + 1))


def largest_group(
    looked_at: tuple[np.ndarray, np.ndarray], lines: np.ndarray, samples: np.ndarray
) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Return line and sample ranges and size of the largest group of neighbours in a sample; ``looked_at`` 2 x (N,)."""
    every, across = np.unique(looked_at[0]), np.unique(looked_at[1][looked_at[0] == looked_at[0][0]])
    rows, columns = np.searchsorted(every, lines), samples // spacing_of(across)
    there = np.zeros((len(every), int(columns.max()) + 1), bool)
    there[rows, columns] = True
    of_pixel = groups_of(there)[rows, columns]
    among = of_pixel == np.bincount(of_pixel).argmax()
    first, last = ((int(place[among].min()), int(place[among].max())) for place in (lines, samples))
    return first, last, int(among.sum())
