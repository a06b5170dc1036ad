"""Read means of 3 x 3 pixels: where noise is strong and neighbours are alike, extreme pixels are mostly noise."""

import numpy as np

from ..io import Scene
from ..io.cube import by_pixel, cut, place_for, read_lines
from ..io.window import PIECE, Changed
from .counts import mnf, noise_power
from .plane import Plane
from .statistics import Moments

# The share of neighbours' differences that is noise, not texture, from which on means are taken; of a scene whose
# brightness does not vary, the share of all variance: noise is in the models of its simplices. Of 101 scenes, Samson,
# Jasper Ridge, toy at 20 dB and EELS at 50 and 200 counts lie beyond these, with 0.48 to 0.79 of the error of single
# pixels; Moffett and synthetic ones of 20 to 27 dB have 0.8 to 1.14.
LEAST_OF_DIFFERENCES, LEAST_OF_FLAT = 0.4, 0.75


class Averaged(Changed):
    """A scene of means of each pixel and its neighbours, up to eight, that are not missing; missing ones stay so."""

    def __init__(self, source: Scene) -> None:
        super().__init__(source, np.ones(len(source.bands.index), bool))

    def read(self, lines: slice, out: np.ndarray) -> np.ndarray:
        """Read whole lines; see `unmix.io.window.Changed.read`."""
        filled = place_for(self, lines, out)
        filled[...] = np.nan
        for block in cut(self, PIECE, lines):
            wider = slice(max(0, block.start - 1), min(self.lines, block.stop + 1))
            raw = read_lines(self.source.cube, wider)
            Y, is_missing = self.source.spectra(raw), self.source.missing(raw)
            Y[is_missing] = 0.0
            shape, first = (-1, self.samples, Y.shape[1]), block.start - wider.start
            own = slice(first, first + block.stop - block.start)
            total, count = around(Y.reshape(shape)), around((~is_missing).astype(float).reshape(-1, self.samples, 1))
            mean = total[own] / np.maximum(count[own], 1.0)
            mean[is_missing.reshape(shape[:2])[own]] = np.nan
            at = slice(block.start - lines.start, block.stop - lines.start)
            by_pixel(filled, self.interleave)[at, :, self.source.bands.index] = mean
        return filled


def around(values: np.ndarray) -> np.ndarray:
    """Return the sums (n, m, k) of values (n, m, k) and their neighbours; the same bits for any block of lines."""
    for axis in (0, 1):  # three terms: running sums would depend on where a block begins
        wide = np.pad(values, [(int(k == axis),) * 2 for k in range(3)])
        before, here, after = (wide.take(range(k, k + values.shape[axis]), axis) for k in range(3))
        values = before + here + after
    return values


def is_noisy(moments: Moments, p: int) -> bool:
    """Return whether p endmembers are nearer to extreme means than to extreme pixels of a scene."""
    power, L = noise_power(moments), len(moments.mean)
    if power["regression"] is None or power["spatial"] is None or moments.pixels <= 2 * L or mnf(moments) in (None, 1):
        return False
    # A regression on all other bands fits noise, too.
    noise = power["regression"] / (1.0 - L / moments.pixels)
    # Pixels in no order differ from their neighbours, too: only a regression tells that from noise.
    if noise <= LEAST_OF_DIFFERENCES * power["spatial"]:
        return False
    return not Plane(moments).is_flat(p) or power["spatial"] > LEAST_OF_FLAT * float(np.trace(moments.covariance))


def averaged(scene: Scene) -> Scene:
    """Return a scene of means of 3 x 3 pixels."""
    changed = Averaged(scene)
    return Scene(changed, changed.changed_bands, None)
