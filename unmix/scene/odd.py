"""Find odd pixels: stripes, and fewer than one in a thousand, alone among neighbours, with values that no others have.

One of them would decide where endmembers are extracted, how many there are, and which method fits: a dead pixel, a hot
one, −9999 that no header declares.
"""

from typing import NamedTuple

import numpy as np

from ..io import Scene, by_pixel
from .sample import placed
from .stripes import Stripes

# Of so many pixels one may be odd. A pixel is, where a value lies beyond all but this share of a sample, by more than
# so many times what that share spans; its fill is one value in every band.
PIXELS_AN_ODD_ONE, BEYOND = 1000, 3.0
# Pixels whose ranks are left out at either end of a small sample, pixels of a sample, and the fewest that tell.
FEWEST_BEYOND, SAMPLE, FEWEST_PIXELS = 3, 2000, 50
# Bands that are looked at, with fewer none: a spike in one does not decide, and all would take as long as the sums
# themselves.
BANDS = 4
# Bands from which on one value in all of them is no grey, but fill.
COLOURS = 8
# Most places that are kept before those of clusters are dropped.
MOST_PLACES = 100_000


class Usual(NamedTuple):
    """The usual values of some bands, all (k,): the least, the largest, and below which a negative pixel is odd."""

    low: np.ndarray
    high: np.ndarray
    floor: np.ndarray

    def leaves(self, values: np.ndarray) -> np.ndarray:
        """Return which pixels (n,) have a value beyond them in a band, or are negative in all bands, as few are."""
        beyond = ((values < self.low) | (values > self.high)).any(axis=1)
        return np.asarray(beyond | (values < self.floor).all(axis=1))


def usual_values(values: np.ndarray) -> Usual:
    """Return the usual values of the columns of a sample (n, k)."""
    tail = max(1 / PIXELS_AN_ODD_ONE, min(0.5, FEWEST_BEYOND / len(values)))
    low, middle, high = np.quantile(values, [tail, 0.5, 1 - tail], axis=0)
    span = np.maximum(high - middle, middle - low)
    span = np.where(span > 0, BEYOND * span, np.inf)  # where nearly all are alike, nothing is far
    return Usual(low - span, high + span, np.minimum(low, 0.0))


def is_odd(Y: np.ndarray) -> np.ndarray:
    """Return which pixels (N,) of a sample (N, L) are odd: at most one in a thousand, or one."""
    if len(Y) < FEWEST_PIXELS or Y.shape[1] < BANDS:
        return np.zeros(len(Y), bool)
    found = [usual_values(Y).leaves(Y), (Y[:, :1] == Y).all(axis=1) & (Y.shape[1] >= COLOURS)]
    few = [one if one.sum() <= most_of(len(Y)) else np.zeros(len(Y), bool) for one in found]
    return few[0] | few[1]


def most_of(pixels: int) -> int:
    """Return how many of some pixels may be odd."""
    return max(1, pixels // PIXELS_AN_ODD_ONE)


class OddPixels:
    """The odd pixels of a scene, found while its blocks pass; ``look`` is given each."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.index = scene, scene.bands.index
        self.some = np.unique(np.linspace(0, len(self.index) - 1, min(BANDS, len(self.index))).astype(int))
        self.beyond: list[np.ndarray] = []
        self.constant: list[np.ndarray] = []
        parts = [
            by_pixel(part, scene.cube.interleave)[..., self.index[self.some]].reshape(-1, len(self.some))
            for part, _, _ in placed(scene.cube, SAMPLE)
        ]
        sample = np.concatenate([part[~self.is_missing(part)] for part in parts])
        tells = len(sample) >= FEWEST_PIXELS and len(self.some) == BANDS
        self.usual = usual_values(sample) if tells else None
        self.stripes = Stripes(scene.cube, BANDS)

    def is_missing(self, values: np.ndarray) -> np.ndarray:
        """Return which pixels (n,) have no value in one of some bands (n, k)."""
        missing = ~np.isfinite(values).all(axis=1)
        return missing if self.scene.nodata is None else missing | (values == self.scene.nodata).any(axis=1)

    def look(self, raw: np.ndarray, lines: slice) -> None:
        """Look at a block of lines, as from `unmix.io.cube.Cube.read`."""
        if self.usual is None:
            return
        stored = by_pixel(raw, self.scene.cube.interleave)
        # One copy: bands of pixels that lie together are read from memory once.
        bands = np.ascontiguousarray(np.moveaxis(stored[..., self.index[self.some]], 2, 0))
        self.stripes.look(bands, lines.start)
        flat, usual = bands.reshape(len(bands), -1), self.usual
        # Ranges rule out nearly all blocks; values one by one took a tenth of an extraction.
        least, largest = np.fmin.reduce(flat, axis=1), np.fmax.reduce(flat, axis=1)
        first = lines.start * self.scene.cube.samples
        if (least < usual.low).any() or (largest > usual.high).any() or (least < usual.floor).all():
            self.keep(self.beyond, first, flat, usual.leaves(flat.T))
        alike = bands[0] == bands[BANDS // 2]
        if len(self.index) >= COLOURS and alike.any():  # in fewer bands grey is a colour
            some = stored[alike][:, self.index]
            alike[alike] = (some == some[:, :1]).all(axis=1)
            self.keep(self.constant, first, flat, alike)

    def keep(self, places: list[np.ndarray], first: int, flat: np.ndarray, which: np.ndarray) -> None:
        """Keep the places of the pixels ``which`` that have values in some bands (k, n), as far as these are few."""
        found = np.flatnonzero(which)[: MOST_PLACES - sum(map(len, places))]
        places.append(first + found[~self.is_missing(flat[:, found].T)])

    def found(self, valid: int) -> np.ndarray:
        """Return the places ``line * samples + sample``, ascending, of the odd ones among so many valid pixels."""
        beyond, constant = (
            np.unique(np.concatenate([np.empty(0, np.int64), *one])) for one in (self.beyond, self.constant)
        )
        constant = constant if len(constant) <= most_of(valid) else constant[:0]
        sample = beyond % self.scene.cube.samples
        near = np.zeros(len(beyond), bool)
        for down in (-1, 0, 1):
            for across in (-1, 0, 1):
                inside = (
                    (sample + across >= 0) & (sample + across < self.scene.cube.samples) & ((down, across) != (0, 0))
                )
                near |= inside & np.isin(beyond + down * self.scene.cube.samples + across, beyond)
        # Odd pixels that touch are an object, however bright.
        beyond = beyond[~near & ~np.isin(beyond, constant)]
        beyond = beyond if len(beyond) <= most_of(valid) else beyond[:0]
        return np.union1d(np.union1d(beyond, constant), self.stripes.places(self.scene.nodata))
