"""A part of a cube: some lines, some samples, and of these the pixels that a mask lets through."""

import contextlib
from typing import Any

import numpy as np

from ..errors import CubeError
from .cube import Cube, as_stored, by_pixel, bytes_per_line, place_for
from .formats.header import geotransform, leading_number

# What is read beside its place in memory is read in pieces of so many bytes (or a chunk of the file).
PIECE = 16 * 2**20
# Where a type has no value to spare for the pixels that a mask takes out, they are read as the next that has.
WIDER = {
    np.dtype(narrow): np.dtype(wide)
    for narrow, wide in (
        ("u1", "i2"),
        ("i2", "i4"),
        ("u2", "i4"),
        ("i4", "i8"),
        ("u4", "i8"),
        ("i8", "f8"),
        ("u8", "f8"),
    )
}


class Window:
    """A part of a cube; a `unmix.io.cube.Cube` itself.

    Parameters
    ----------
    cube : Cube
        The whole scene.
    lines, samples : slice
        What of it to read.
    nodata : float or None
        In force, as stored. Pixels that the mask takes out hold it, or NaN; whole numbers without a nodata value are read
        as the next wider type.
    mask : (Cube, int), optional
        A raster of the size of the scene, or of the part, and its band: 0 and no data take a pixel out.

    Raises
    ------
    CubeError
        Where the mask has another size, or no such band.
    """

    def __init__(
        self, cube: Cube, lines: slice, samples: slice, nodata: float | None, mask: tuple[Cube, int] | None = None
    ) -> None:
        self.cube, self.first, self.across = cube, lines.start, samples
        self.path, self.stem, self.format = cube.path, cube.stem, cube.format
        self.lines, self.samples, self.bands = lines.stop - lines.start, samples.stop - samples.start, cube.bands
        self.interleave, self.problems = cube.interleave, cube.problems
        self.lines_together = cube.lines_together
        self.wavelengths, self.fwhm, self.good_bands = cube.wavelengths, cube.fwhm, cube.good_bands
        self.gain, self.offset = cube.gain, cube.offset
        self.fields = shifted(cube.fields, lines.start, samples.start)
        self.origin = lines.start, samples.start
        if "map info" in cube.fields and "map info" not in self.fields:
            self.problems = [
                *cube.problems,
                f"{cube.path}: its map info is not understood, and a part of it has no map",
            ]
        self.beside = [*cube.beside]
        self.placement = cube.placement and cube.placement.moved(lines.start, samples.start)
        self.dtype, self.nodata = cube.dtype, nodata
        self.blank = float("nan")
        self.mask: tuple[Cube, int] | None = None
        self.begin = (0, 0)
        if mask is not None:
            self.take_mask(*mask)

    def take_mask(self, mask: Cube, band: int) -> None:
        """Decide where the mask begins, and what stands in the pixels that it takes out."""
        if band >= mask.bands:
            raise CubeError(f"{mask.path}: has {mask.bands} bands; `mask` asks for band {band + 1}")
        if (mask.lines, mask.samples) == (self.cube.lines, self.cube.samples):
            self.begin = self.first, self.across.start
        elif (mask.lines, mask.samples) != (self.lines, self.samples):
            raise CubeError(
                f"{mask.path}: the mask has {mask.lines} lines of {mask.samples} samples, the scene {self.cube.lines} of "
                f"{self.cube.samples}"
            )
        self.mask = mask, band
        if self.dtype.kind != "f" and self.nodata is not None:
            self.blank = self.nodata
        elif self.dtype.kind != "f":
            self.dtype = WIDER[self.dtype]
            if self.dtype.kind != "f":
                self.nodata = self.blank = float(np.iinfo(self.dtype).min)

    def read(self, lines: slice, out: np.ndarray) -> np.ndarray:
        """Read whole lines as stored; see `unmix.io.cube.Cube.read`."""
        there = slice(lines.start + self.first, lines.stop + self.first)
        if self.samples == self.cube.samples and self.dtype == self.cube.dtype:
            filled = self.cube.read(there, out)
        else:
            filled = place_for(self, lines, out)
            self.read_beside(there, filled)
        if self.mask is not None:
            gone = ~self.let_through(lines)
            by_pixel(filled, self.interleave)[gone] = self.blank
        return filled

    def read_beside(self, lines: slice, filled: np.ndarray) -> None:
        """Read whole lines of the scene a piece at a time, and take what is wanted of them."""
        together = max(min(self.lines_together, lines.stop - lines.start), PIECE // bytes_per_line(self.cube), 1)
        buffer = np.empty(min(together, lines.stop - lines.start) * bytes_per_line(self.cube), np.uint8)
        for first in range(lines.start, lines.stop, together):
            last = min(first + together, lines.stop)
            raw = self.cube.read(slice(first, last), buffer)
            place = slice(first - lines.start, last - lines.start)
            if self.interleave == "bsq":
                filled[:, place] = raw[..., self.across]
            else:
                filled[place] = raw[:, self.across] if self.interleave == "bip" else raw[..., self.across]

    def let_through(self, lines: slice) -> np.ndarray:
        """Which pixels the mask leaves in; bool array (n, samples)."""
        assert self.mask is not None
        mask, band = self.mask
        there = slice(lines.start + self.begin[0], lines.stop + self.begin[0])
        raw = mask.read(there, np.empty((lines.stop - lines.start) * bytes_per_line(mask), np.uint8))
        values = by_pixel(raw, mask.interleave)[..., band]
        values = values[:, self.begin[1] : self.begin[1] + self.samples]
        through = np.isfinite(values) & (values != 0)
        nodata = as_stored(mask.nodata, mask.dtype, mask.path, [])
        return through if nodata is None else through & (values != nodata)

    def storage(self) -> dict[str, Any]:
        """How the file stores the scene; see `unmix.io.cube.Cube.storage`."""
        return self.cube.storage()

    def expect(self, lines: slice) -> None:
        """Say that these lines will be read soon; see `unmix.io.cube.Cube.expect`."""
        self.cube.expect(slice(lines.start + self.first, lines.stop + self.first))


def shifted(fields: dict[str, str], lines: int, samples: int) -> dict[str, str]:
    """Header fields for a part that begins so many lines and samples later: the tie point stays where it is on the map."""
    fields = dict(fields)
    if "map info" in fields:
        words = fields["map info"].split(",")
        own = moved(words, lines, samples)
        del fields["map info"]
        fields |= {"map info": ",".join(own)} if own is not None else {}
    for key, by in (("x start", samples), ("y start", lines)):
        with contextlib.suppress(KeyError, ValueError):
            fields[key] = f"{float(fields[key]) + by:.15g}"
    return fields


def moved(words: list[str], lines: int, samples: int) -> list[str] | None:
    """The words of a map info for a part, None where they are none; the tie point's pixel is counted from where the part begins.

    On a turned map the pixel stays and its place moves: GDAL looks for the pixel along the map's axes, not the scene's.
    """
    transform = geotransform(",".join(words))
    if transform is None:
        return None
    _, a, b, _, d, e = transform
    tie = [leading_number(word) or 0.0 for word in words[:5]]
    if b == d == 0:
        places = {1: tie[1] - samples, 2: tie[2] - lines}
    else:
        places = {3: tie[3] + a * samples + b * lines, 4: tie[4] + d * samples + e * lines}
    return [f" {places[i]:.15g}" if i in places else word for i, word in enumerate(words)]
