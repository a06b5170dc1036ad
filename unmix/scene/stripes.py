"""Find stripes: columns of a scene, or lines, that stand out from those beside them, as by a detector that is off."""

import logging

import numpy as np

from ..errors import say_once
from ..io import Cube

# A column is a stripe where it is above, or below, columns on both of its sides in this share of the lines that are
# looked at, in half of the bands. By chance it is in a third; in 30 real scenes no column or line is above 0.6. `ACROSS`
# lines are looked at, and `FEWEST_ACROSS` of them must have values. Neighbours are one or two columns apart, since a
# stripe may be two wide. Lines likewise.
STANDS_OUT, ACROSS, FEWEST_ACROSS = 0.75, 48, 24
# By how many columns the neighbours on both sides are apart.
NEIGHBOURS = ((1, 1), (1, 2), (2, 1))
# Columns that are compared at a time, which bounds the memory that a scene of many lines takes.
TOGETHER = 4096
# The largest share of the columns, or lines, that are left out: more are no exception.
MOST_STRIPES = 0.05


class Stripes:
    """The stripes of a scene in some bands, found while its blocks pass in any order; ``look`` is given each."""

    def __init__(self, cube: Cube, bands: int) -> None:
        self.cube = cube
        self.lines, self.samples = (
            np.unique(np.linspace(0, n - 1, min(n, ACROSS)).astype(int)) for n in (cube.lines, cube.samples)
        )
        # As stored: a scene may have a hundred thousand lines. Lines that no block brings are equal, and no stripes.
        self.of_columns = np.zeros((bands, len(self.lines), cube.samples), cube.dtype)
        self.of_lines = np.zeros((bands, len(self.samples), cube.lines), cube.dtype)

    def look(self, bands: np.ndarray, first: int) -> None:
        """Look at lines from ``first`` on in the bands (k, n, samples), as stored."""
        here = np.flatnonzero((self.lines >= first) & (self.lines < first + bands.shape[1]))
        self.of_columns[:, here] = bands[:, self.lines[here] - first]
        self.of_lines[:, :, first : first + bands.shape[1]] = bands[:, :, self.samples].transpose(0, 2, 1)

    def places(self, missing: float | None) -> np.ndarray:
        """Return the places ``line * samples + sample`` of all pixels of stripes; say where stripes are too many."""
        lines, samples = np.arange(self.cube.lines), np.arange(self.cube.samples)
        found = [np.empty(0, np.int64)]
        for values, what in ((self.of_columns, "columns"), (self.of_lines, "lines")):
            some = standing_out(values, missing)
            if some.sum() <= MOST_STRIPES * len(some):
                of_line, of_column = (lines, samples[some]) if what == "columns" else (lines[some], samples)
                found.append(np.add.outer(of_line * len(samples), of_column).ravel())
            else:
                say_once(
                    f"{self.cube.path}: {some.sum()} of {len(some)} {what} are above, or below, both neighbours in "
                    "most places, as stripes are: endmembers may be stripes; destripe the scene",
                    logging.WARNING,
                )
        return np.unique(np.concatenate(found))


def standing_out(values: np.ndarray, missing: float | None = None) -> np.ndarray:
    """Return which columns (m,) of values (bands, lines, m), NaN or ``missing`` without one, are stripes."""
    found = np.zeros(values.shape[2], bool)
    for before, after in NEIGHBOURS:
        for first in range(before, len(found) - after, TOGETHER):
            part = values[..., first - before : first + TOGETHER + after].astype(float)
            part[part == missing] = np.nan
            left, middle, right = part[..., : -before - after], part[..., before:-after], part[..., before + after :]
            valid = np.isfinite(left + middle + right).sum(axis=1)
            beyond = np.stack([(middle > left) & (middle > right), (middle < left) & (middle < right)])
            is_out = (beyond.sum(axis=2) > STANDS_OUT * valid) & (valid >= FEWEST_ACROSS)
            found[first : first + TOGETHER][: middle.shape[2]] |= (2 * is_out.sum(axis=1) >= len(values)).any(axis=0)
    return found
