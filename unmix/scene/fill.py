"""Find fill values that no header declares: one stored value in every band of many pixels."""

import logging
from collections import Counter

import numpy as np

from ..io import Scene
from ..io.cube import by_pixel

log = logging.getLogger("unmix")

# A value is named as fill where more than this share of the pixels looked at hold it in every band.
LEAST_SHARE = 0.005
# With fewer bands in use a grey pixel of three colours would count.
FEWEST_BANDS = 4
# Pixels of a scene that are enough to look at, and the fewest lines that these are taken from.
ENOUGH_PIXELS, FEWEST_LINES = 10_000, 16
# The words by which a message is known, so that one scene is told of once.
UNDECLARED = "in every band, and no header says that this means no data"
SATURATED = "in some bands, as saturated ones do"


class ConstantPixels:
    """Count, over some pixels of a scene, those that hold one and the same stored value in all bands in use.

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
        lines = min(cube.lines, max(FEWEST_LINES, ENOUGH_PIXELS // cube.samples))
        self.line_step, self.sample_step = cube.lines // lines, -(-cube.samples * lines // ENOUGH_PIXELS)

    def look(self, raw: np.ndarray, lines: slice) -> None:
        """Add some pixels, evenly spread, of a block of a pass over the scene; ``raw`` as `unmix.io.cube.Cube.read` returns it."""
        first = -lines.start % self.line_step
        self.count(by_pixel(raw, self.cube.interleave)[first :: self.line_step, :: self.sample_step])

    def add(self, raw: np.ndarray) -> np.ndarray:
        """Add all pixels of a part of the scene, as stored; return which are constant, bool array (pixels,)."""
        return self.count(by_pixel(raw, self.cube.interleave))

    def count(self, values: np.ndarray) -> np.ndarray:
        """Count pixels; ``values`` are (n, samples, bands), as stored. Return which are constant, bool array (pixels,)."""
        if len(self.index) < FEWEST_BANDS:
            return np.zeros(values.shape[0] * values.shape[1], bool)
        first = values[..., self.index[0]]
        # Two bands rule out nearly every pixel before all are compared.
        constant = np.isfinite(first) & (first == values[..., self.index[len(self.index) // 2]])
        some = values[constant][:, self.index]
        constant[constant] = (some == some[:, :1]).all(axis=1)
        self.pixels += first.size
        if self.largest is not None and (is_largest := values == int(self.largest)).any():
            is_largest = is_largest[..., self.index]
            self.saturated += int((is_largest.any(axis=2) & ~is_largest.all(axis=2)).sum())
        for value, count in zip(*np.unique(first[constant], return_counts=True)):
            if float(value) == self.nodata:
                self.declared += int(count) * self.counts_declared
            else:
                self.counts[float(value)] += int(count)
        return constant.ravel()

    def message(self) -> str | None:
        """Return a sentence that names each fill value, its share and how to leave it out; None where there is no such value."""
        found = [(value, n) for value, n in self.counts.most_common() if n > LEAST_SHARE * self.pixels]
        if not found or sum(n for _, n in found) + self.declared == self.pixels:  # no other pixel would be left
            return None
        values = [self.as_typed(value) for value, _ in found]
        each = [f"{100 * n / self.pixels:.2g} %" for _, n in found]
        shares = f"{each[0]} of the {self.pixels} pixels looked at hold {values[0]}"
        shares += "".join(f", {share} hold {text}" for share, text in zip(each[1:], values[1:]))
        if self.declared:
            advice = f"the file's nodata value {self.nodata:g} is in use too, so set these pixels to it, or leave them out with `mask`"
        else:
            advice = f"`nodata` {values[0]} leaves them out" + (", `mask` the others" if len(found) > 1 else "")
        return f"{shares} {UNDECLARED}; {advice}"

    def as_typed(self, value: float) -> str:
        """Return the shortest text that stands for a stored value of the scene's type."""
        if self.cube.dtype.kind != "f":
            return str(int(value))
        return str(self.cube.dtype.type(value)).removesuffix(".0")

    def said_of_saturated(self) -> str | None:
        """Return a sentence about pixels that hold the largest number of their type in some bands; None where there are none."""
        if not self.saturated or self.largest is None:
            return None
        hold = f"{self.saturated} of the {self.pixels} pixels looked at hold {self.largest:.0f} {SATURATED}"
        return f"{hold}; `valid_max` {self.largest - 1:.0f} leaves them out"

    def warn(self) -> None:
        """Log the messages, where there are some, once for each scene: later passes over it find the same."""
        for known, message in ((UNDECLARED, self.message()), (SATURATED, self.said_of_saturated())):
            if message and not any(known in problem for problem in self.cube.problems):
                self.cube.problems.append(f"{self.cube.path}: {message}")
                log.warning(self.cube.problems[-1])
