"""The access to a scene that extraction algorithms have: passes over all pixels, each of which reads the file, and single spectra."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..compiled.jit import allocating
from ..compiled.simd import WIDE
from ..io.cube import Bands, Cube, bytes_per_line, spectra
from ..solvers.pixels.gather import gather_function
from .statistics import each_line, projected, stored_of

Visit = Callable[[int, np.ndarray], None]


@dataclass
class Passes:
    """A scene as extraction algorithms see it.

    Attributes
    ----------
    cube, bands, nodata, budget, threads
        As in `unmix.endmembers.count_endmembers`.
    made : int
        Number of passes over the file so far.
    """

    cube: Cube
    bands: Bands
    nodata: float | None
    budget: int
    threads: int
    made: int = 0

    def project(self, U: np.ndarray, shift: np.ndarray, visit: Visit) -> None:
        """Pass ``Uᵀy − shift`` of all pixels to ``visit``, block by block; see `unmix.endmembers.statistics.projected`."""
        self.made += 1
        projected(self.cube, self.bands, self.nodata, self.budget, self.threads, U, shift, visit)

    def squares(self, mean: np.ndarray, visit: Visit) -> None:
        """Pass ``|y − mean|²`` of all pixels to ``visit``, block by block, NaN where masked."""
        self.each_pixel(mean, np.empty(0), visit)

    def along(self, mean: np.ndarray, direction: np.ndarray, visit: Visit) -> None:
        """Pass ``directionᵀ(y − mean)`` of all pixels to ``visit``, block by block, NaN where masked."""
        self.each_pixel(mean, direction, visit)

    def each_pixel(self, mean: np.ndarray, direction: np.ndarray, visit: Visit) -> None:
        """Pass one number for each pixel to ``visit``, in one pass; an empty ``direction`` means the square."""
        self.made += 1
        stored, number_of = stored_of(self.bands, self.nodata), line_numbers(self.cube.interleave)

        def one_line(raw: np.ndarray, line: int, out: np.ndarray) -> None:
            number_of(raw, line, self.cube.samples, stored, mean, direction, out)

        each_line(self.cube, self.budget, self.threads, (), one_line, visit)

    def spectrum(self, place: int) -> np.ndarray:
        """Return the scaled spectrum of pixel ``place``, ``line * samples + sample``; array (L,), float64."""
        line, sample = divmod(place, self.cube.samples)
        return self.spectra(line)[sample]

    def spectra(self, line: int) -> np.ndarray:
        """Return the scaled spectra of a line; array (samples, L), float64."""
        raw = self.cube.read(slice(line, line + 1), np.empty(bytes_per_line(self.cube), np.uint8))
        return spectra(raw, self.cube.interleave, self.bands)


@functools.cache
def line_numbers(interleave: str) -> Any:
    """Return the compiled function that computes a number for each pixel of a line: ``directionᵀ(y − mean)``, or ``|y − mean|²``."""
    gather, width = gather_function(interleave, WIDE), WIDE.width

    @allocating
    def number_line(raw, line, samples, stored, mean, direction, out):
        L = mean.shape[0]
        Y, missing, size = np.empty((L, width)), np.empty((1, width)), np.empty((1, width))
        for first in range(0, samples, width):
            count = min(width, samples - first)
            gather(raw, line, first, count, stored, Y, missing, size, size)
            for s in range(count):
                total = 0.0
                for b in range(L):
                    centred = Y[b, s] - mean[b]
                    total += centred * (direction[b] if direction.shape[0] > 0 else centred)
                out[first + s] = total if missing[0, s] == 0.0 else np.nan
        return 0

    return number_line
