"""From the sensor's geometry to the map: a table that says for every place on the map which pixel of the swath lies there."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import CubeError
from .read import brief

# A place beyond this is none, whatever the table is made of.
LARGEST = 2.0**31


@dataclass(frozen=True)
class Placement:
    """A geographic lookup table (GLT).

    Attributes
    ----------
    line, sample : datasets (lines, samples), int
        The pixel of the swath at each place of the map, counted from 1; 0 is fill, a negative one was put there to fill a
        gap and is a pixel all the same.
    fields : dict of str
        Map information of the placed maps, as an ENVI header has it.
    begin : (int, int)
        Line and sample where the part of the swath that was read begins.
    """

    line: Any
    sample: Any
    fields: dict[str, str]
    begin: tuple[int, int] = (0, 0)

    @property
    def shape(self) -> tuple[int, int]:
        """Lines and samples of the map."""
        return tuple(self.line.shape)

    def size(self) -> dict[str, int]:
        """The same by name, for ``run.json``."""
        return {"lines": int(self.shape[0]), "samples": int(self.shape[1])}

    def moved(self, line: int, sample: int) -> "Placement":
        """The same for a part of the swath that begins there."""
        return replace(self, begin=(self.begin[0] + line, self.begin[1] + sample))

    def place(self, swath: np.ndarray, lines: slice, fill: float) -> np.ndarray:
        """Some lines of a placed map.

        Parameters
        ----------
        swath : array (lines, bands, samples)
            A map in the sensor's geometry.
        lines : slice
            Of the placed map.
        fill : float
            Where no pixel lies.

        Returns
        -------
        array (n, bands, samples), of the type of ``swath``

        Raises
        ------
        CubeError
            Where the table cannot be read.
        """
        y, x, there = self.look_up(lines, swath.shape[0], swath.shape[2])
        placed = np.full((*y.shape, swath.shape[1]), fill, swath.dtype)
        placed[there] = swath[y[there], :, x[there]]
        return placed.transpose(0, 2, 1)

    def look_up(self, lines: slice, height: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Line and sample of the pixel at each place of some lines of the map, and whether there is one; arrays (n, samples).

        The swath, or what was read of it, has ``height`` lines of ``width``.
        """
        try:
            tables = (table[lines] for table in (self.line, self.sample))
            y, x = (np.abs(np.where(np.abs(table) < LARGEST, table, 0).astype(np.int64)) for table in tables)
        except Exception as error:  # h5py has many words for a damaged file
            raise CubeError(
                f"lookup table, lines {lines.start + 1} to {lines.stop}: cannot be read: {brief(error)}"
            ) from None
        there = (y > 0) & (x > 0)
        y, x = y - 1 - self.begin[0], x - 1 - self.begin[1]
        return y, x, there & (y >= 0) & (y < height) & (x >= 0) & (x < width)
