"""Find stored values that no header declares: fill, one value in every band of many pixels; swapped bytes."""

import logging
from collections import Counter

import numpy as np

from ..io import Scene, by_pixel

log = logging.getLogger("unmix")

# A value is named as fill where more than this share of the pixels looked at hold it in every band.
LEAST_SHARE = 0.005
# With fewer bands in use a grey pixel of three colours would count.
FEWEST_BANDS = 4
# Pixels of a scene that are enough to look at, and the fewest lines that these are taken from.
ENOUGH_PIXELS, FEWEST_LINES = 10_000, 16
# Words that mark a message, so that it is logged once for a scene.
UNDECLARED = "in every band, and no header says that this means no data"
SATURATED = "in some bands, as saturated ones, or fill, do"
SWAPPED = "are smooth along the bands only with the bytes of each value swapped"
# By which part of it numbers are a little below the largest: hardly any pixel holds those where that is where a
# detector saturates, so many times fewer. The fewest pixels that hold it; the share from which on it is fill of bands.
A_LITTLE_LESS, MANY_TIMES, FEWEST_AT_TOP, MOST_AT_TOP = 0.02, 3, 20, 0.5
# Pixels of an ENVI cube that are looked at for that, and fewest; fewest bands; how many times as rough they are as they are.
SOME_PIXELS, FEWEST_PIXELS, FEWEST_OF_AXIS, ROUGHER = 200, 20, 10, 3.0


class ConstantPixels:
    """Count, among some pixels of a scene, the pixels with one and the same stored value in all bands in use.

    Attributes
    ----------
    pixels : int
        Number of pixels looked at.
    declared : int
        Number of these that hold the nodata value in every band.
    counts : Counter of float to int
        Numbers of these that hold another value in every band, by the value, as stored.
    saturated : int
        Number of these that hold the largest number of a type of 16 bits in some bands.
    """

    def __init__(self, scene: Scene) -> None:
        cube, bands, nodata = scene
        self.cube, self.index, self.nodata = cube, bands.index, nodata
        self.pixels, self.declared, self.counts = 0, 0, Counter[float]()
        largest = float(np.iinfo(cube.dtype).max) if cube.dtype.kind in "iu" and cube.dtype.itemsize == 2 else None
        self.saturated, self.largest = 0, None if largest == nodata else largest
        self.counts_declared = (
            getattr(cube, "blank", None) != nodata
        )  # else masks write it into pixels that they leave out
        self.some: list[np.ndarray] = []
        self.top, self.at_top, self.below = -np.inf, 0, 0
        self.tops: list[np.ndarray] = []
        lines = min(cube.lines, max(FEWEST_LINES, ENOUGH_PIXELS // cube.samples))
        self.line_step, self.sample_step = cube.lines // lines, -(-cube.samples * lines // ENOUGH_PIXELS)

    def look(self, raw: np.ndarray, lines: slice) -> None:
        """Add evenly spread pixels of a block of lines; ``raw`` is as from `unmix.io.cube.Cube.read`."""
        first = -lines.start % self.line_step
        self.count(by_pixel(raw, self.cube.interleave)[first :: self.line_step, :: self.sample_step])

    def add(self, raw: np.ndarray) -> np.ndarray:
        """Add all pixels of a part of the scene, as stored; return which are constant, bool array (pixels,)."""
        return self.count(by_pixel(raw, self.cube.interleave))

    def count(self, values: np.ndarray) -> np.ndarray:
        """Count stored pixels (n, samples, bands); return which are constant over the bands, bool (pixels,)."""
        if len(self.index) < FEWEST_BANDS:
            return np.zeros(values.shape[0] * values.shape[1], bool)
        first = values[..., self.index[0]]
        # Two bands rule out nearly every pixel before all are compared.
        constant = np.isfinite(first) & (first == values[..., self.index[len(self.index) // 2]])
        some = values[constant][:, self.index]
        constant[constant] = (some == some[:, :1]).all(axis=1)
        self.pixels += first.size
        if (lacking := SOME_PIXELS - sum(map(len, self.some))) > 0:
            self.some.append(values[~constant][:lacking, self.index])
        if values.dtype.kind in "iu" and values.dtype.itemsize > 1:
            self.look_at_top(values[..., self.index].reshape(-1, len(self.index))[~constant.ravel()])
        if self.largest is not None and (is_largest := values == int(self.largest)).any():
            is_largest = is_largest[..., self.index]
            self.saturated += int((is_largest.any(axis=2) & ~is_largest.all(axis=2)).sum())
        for value, count in zip(*np.unique(first[constant], return_counts=True)):
            if float(value) == self.nodata:
                self.declared += int(count) * self.counts_declared
            else:
                self.counts[float(value)] += int(count)
        return constant.ravel()

    def look_at_top(self, Y: np.ndarray) -> None:
        """Count the pixels (n, L) that hold the largest number seen so far, and those that hold a little less."""
        if not Y.size or (top := int(Y.max())) < self.top:
            return
        if top > self.top:
            self.top, self.at_top, self.below, self.tops = top, 0, 0, []
        highest = Y.max(axis=1)
        self.at_top += int((highest == top).sum())
        self.below += int(((highest < top) & (highest >= (1 - A_LITTLE_LESS) * top)).sum())
        self.tops.append(Y[highest == top][:FEWEST_AT_TOP])

    def message(self) -> str | None:
        """Return a sentence with each fill value, its share and the option to leave it out; None without one."""
        found = [(value, n) for value, n in self.counts.most_common() if n > LEAST_SHARE * self.pixels]
        if not found or sum(n for _, n in found) + self.declared == self.pixels:  # no other pixel would be left
            return None
        values = [self.as_typed(value) for value, _ in found]
        each = [f"{100 * n / self.pixels:.2g} %" for _, n in found]
        shares = f"{each[0]} of the {self.pixels} pixels looked at hold {values[0]}"
        shares += "".join(f", {share} hold {text}" for share, text in zip(each[1:], values[1:]))
        if self.declared:
            advice = (
                f"the file's nodata value {self.nodata:g} is in use too, so set these pixels to it, or leave them out "
                "with `mask`"
            )
        else:
            advice = f"`nodata` {values[0]} leaves them out, and pixels with it in single bands" + (
                ", `mask` the others" if len(found) > 1 else "; `mask_out` a raster keeps these"
            )
        return f"{shares} {UNDECLARED}; {advice}"

    def as_typed(self, value: float) -> str:
        """Return the shortest text that stands for a stored value of the scene's type."""
        if self.cube.dtype.kind != "f":
            return str(int(value))
        return str(self.cube.dtype.type(value)).removesuffix(".0")

    def said_of_saturated(self) -> str | None:
        """Return a sentence about pixels with the largest number of their type in some bands; None without any."""
        least = max(FEWEST_AT_TOP, LEAST_SHARE * self.pixels, MANY_TIMES * self.below)
        if least < self.at_top < MOST_AT_TOP * self.pixels and self.top not in (self.largest, self.nodata):
            # Of saturated spectra hardly two are equal, of a scene of a few classes most are.
            tops = np.concatenate(self.tops)
            return None if 2 * len(np.unique(tops, axis=0)) < len(tops) else self.said_of(self.at_top, self.top)
        if self.largest is None:
            return None
        whole = self.counts[self.largest]  # saturated in all bands, where they are too few for fill
        saturated = self.saturated + whole * (whole <= LEAST_SHARE * self.pixels)
        if not saturated:
            return None
        return self.said_of(saturated, self.largest)

    def said_of(self, count: int, largest: float) -> str:
        """Return the sentence about so many saturated pixels, and the options that leave them, or their bands, out."""
        hold = f"{count} of the {self.pixels} pixels looked at hold {largest:.0f} {SATURATED}"
        return f"{hold}; `valid_max` {largest - 1:.0f} leaves these pixels out, `bands` without those bands keeps them"

    def said_of_bytes(self) -> str | None:
        """Return a sentence where a header's byte order is wrong, as far as spectra are smooth; None elsewhere."""
        Y = np.concatenate([np.empty((0, len(self.index)), self.cube.dtype), *self.some])
        few = len(Y) < FEWEST_PIXELS or len(self.index) < FEWEST_OF_AXIS
        # Of real numbers a few huge ones decide the range.
        if few or self.cube.dtype.itemsize == 1 or self.cube.dtype.kind == "f" or self.cube.format != "ENVI":
            return None
        is_rough = roughness(Y) > ROUGHER * roughness(Y.byteswap())
        return f"spectra {SWAPPED}; is its byte order right?" if is_rough else None

    def said(self) -> dict[str, str]:
        """Return all messages, by the words that mark them; of swapped bytes no other is true."""
        if (swapped := self.said_of_bytes()) is not None:
            return {SWAPPED: swapped}
        found = {UNDECLARED: self.message(), SATURATED: self.said_of_saturated()}
        return {known: message for known, message in found.items() if message}

    def warn(self) -> None:
        """Log the messages, where there are some, once for each scene: later passes over it find the same."""
        for known, message in self.said().items():
            if not any(known in problem for problem in self.cube.problems):
                self.cube.problems.append(f"{self.cube.path}: {message}")
                log.warning(self.cube.problems[-1])


def roughness(Y: np.ndarray) -> float:
    """Return how far neighbouring bands of pixels (N, L) are apart, over the range of all: the median; inf for none."""
    Y = Y.astype(float)
    with np.errstate(invalid="ignore"):
        found = np.abs(np.diff(Y, axis=1)).sum(axis=1) / np.ptp(Y, axis=1)
    return float(np.median(np.where(np.isfinite(found), found, np.inf)))
