"""Place maps in sensor geometry on a map grid, by a lookup table of the swath pixel of every grid cell."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import CubeError, brief

SMALLEST_FILL = 2.0**31  # no swath has as many lines or samples


@dataclass(frozen=True)
class Placement:
    """A geographic lookup table (GLT).

    Attributes
    ----------
    line, sample : datasets (lines, samples), int
        Line and sample of the swath pixel at each cell of the map, from 1. 0 means no pixel; a negative number marks a
        pixel that the provider used to fill a gap, and is used like a positive one.
    fields : dict of str
        Map information of the placed maps, as fields of an ENVI header.
    begin : (int, int)
        Line and sample, from 0, at which the part of the swath that was read begins.
    """

    line: Any
    sample: Any
    fields: dict[str, str]
    begin: tuple[int, int] = (0, 0)

    @property
    def shape(self) -> tuple[int, int]:
        """Return the lines and samples of the map."""
        return tuple(self.line.shape)

    def size(self) -> dict[str, int]:
        """Return the lines and samples of the map by name, for ``run.json``."""
        return {"lines": int(self.shape[0]), "samples": int(self.shape[1])}

    def moved(self, line: int, sample: int) -> "Placement":
        """Return the placement of a part of the swath that begins that many lines and samples later."""
        return replace(self, begin=(self.begin[0] + line, self.begin[1] + sample))

    def place(self, swath: np.ndarray, lines: slice, fill: float) -> np.ndarray:
        """Return lines (n, bands, samples) of the placed map of a swath (lines, bands, samples); else ``fill``."""
        y, x, has_pixel = self.look_up(lines, swath.shape[0], swath.shape[2])
        placed = np.full((*y.shape, swath.shape[1]), fill, swath.dtype)
        placed[has_pixel] = swath[y[has_pixel], :, x[has_pixel]]
        return placed.transpose(0, 2, 1)

    def look_up(self, lines: slice, height: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return each map cell's line and sample in the swath read, and whether it has a pixel, all (n, samples)."""
        try:
            tables = (table[lines] for table in (self.line, self.sample))
            y, x = (np.abs(np.where(np.abs(table) < SMALLEST_FILL, table, 0).astype(np.int64)) for table in tables)
        except Exception as error:  # h5py raises many kinds of errors for a damaged file
            raise CubeError(
                f"lookup table, lines {lines.start + 1} to {lines.stop}: cannot be read: {brief(error)}"
            ) from None
        has_pixel = (y > 0) & (x > 0)
        y, x = y - 1 - self.begin[0], x - 1 - self.begin[1]
        return y, x, has_pixel & (y >= 0) & (y < height) & (x >= 0) & (x < width)
