"""Read a part of a cube: some lines, samples and pixels that a mask keeps; or with its bands changed (`Changed`).

What is laid over a scene, a mask or a cube of weights, has its size and lies where it does (`begin_within`).
"""

import contextlib
import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..errors import CubeError
from ..later import later
from .cube import Bands, Cube, as_stored, by_pixel, cut, missing, place_for, read_blocks, read_lines, spectra
from .formats.header import geotransform, leading_number

refuse_elsewhere, why_not_laid = (later(__package__, f"ground:{name}") for name in ("refuse_elsewhere", "why_not_laid"))
# Bytes of the buffer for lines that cannot be read straight into their place in memory; a chunk of the file may need
# more.
PIECE = 16 * 2**20
# Whole numbers without a nodata value have none to spare for masked pixels, so they are read as the next wider type.
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


class Mask(NamedTuple):
    """A raster that says which pixels are left out."""

    cube: Cube
    band: int  # from 0
    # The option that named it. By "mask_out" pixels are left out where it is anything but 0, by others where it is 0 or
    # nodata; by "extract_mask" only of the extraction of endmembers.
    option: str = "mask"

    def values(self, lines: slice, samples: slice) -> np.ndarray:
        """Return the stored values of some lines and samples, (n, samples)."""
        return by_pixel(read_lines(self.cube, lines), self.cube.interleave)[:, samples, self.band]

    def keeps(self, lines: slice, samples: slice) -> np.ndarray:
        """Return which pixels of some lines and samples it keeps, bool array (n, samples)."""
        values = self.values(lines, samples)
        if self.option == "mask_out":
            return values == 0
        keep = np.isfinite(values) & (values != 0)
        nodata = as_stored(self.cube.nodata, self.cube.dtype, self.cube.path, [])
        return keep if nodata is None else keep & (values != nodata)


class Scene(NamedTuple):
    """A cube to be read, its bands in use, and its nodata value as stored; see `unmix.scene.open_scene`."""

    cube: Cube
    bands: Bands
    nodata: float | None

    @property
    def pixels(self) -> int:
        """Number of its pixels, masked ones too."""
        return self.cube.lines * self.cube.samples

    @property
    def wavelengths(self) -> np.ndarray | None:
        """Wavelengths of the bands in use, (L,), nm."""
        return None if self.cube.wavelengths is None else self.cube.wavelengths[self.bands.index]

    @property
    def fwhm(self) -> np.ndarray | None:
        """Widths of the bands in use, (L,), nm."""
        return None if self.cube.fwhm is None else self.cube.fwhm[self.bands.index]

    def spectra(self, raw: np.ndarray) -> np.ndarray:
        """Return the spectra of stored values, (pixels, L); see `unmix.io.cube.spectra`."""
        return spectra(raw, self.cube.interleave, self.bands)

    def less(self, spectrum: np.ndarray) -> "Scene":
        """Return the scene minus a spectrum (L,), rounded once, so that small differences of large values last."""
        return self._replace(bands=replace(self.bands, offset=self.bands.offset - spectrum))

    def missing(self, raw: np.ndarray, each: bool = False) -> np.ndarray:
        """Return which stored pixels are masked, or with ``each`` which of their bands; see `unmix.io.cube.missing`."""
        return missing(raw, self.cube.interleave, self.bands, self.nodata, each)

    def read(self, line: int, samples: Any = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Return the spectra (n, L) of some pixels of a line, and which of them are masked, (n,)."""
        raw = read_lines(self.cube, slice(line, line + 1))
        part = raw[:, samples] if self.cube.interleave == "bip" else raw[..., samples]
        return self.spectra(part), self.missing(part)

    def to_extract_from(self) -> "Scene":
        """Return the scene with the pixels alone that endmembers are extracted from; see `Window.for_extraction`."""
        return self._replace(cube=self.cube.for_extraction()) if isinstance(self.cube, Window) else self

    def unchanged(self) -> "Scene":
        """Return the scene as it is before any bands are changed."""
        return self.cube.source if isinstance(self.cube, Changed) else self


class Window(Cube):
    """A part of a cube.

    Parameters
    ----------
    cube : Cube
        The whole scene.
    lines, samples : slice
        The part to read.
    nodata : float or None
        The nodata value in force, as stored. Masked pixels are set to it, or to NaN; whole numbers without a nodata
        value are read as the next wider type.
    masks : sequence of Mask
        Rasters of the size of the scene, or of the part.

    Raises
    ------
    CubeError
        Where a mask has another size, or lies elsewhere.
    """

    def __init__(
        self, cube: Cube, lines: slice, samples: slice, nodata: float | None, masks: Sequence[Mask] = ()
    ) -> None:
        vars(self).update(vars(cube))
        self.cube, self.first, self.across = cube, lines.start, samples
        self.lines, self.samples, self.nodata = lines.stop - lines.start, samples.stop - samples.start, nodata
        self.fields = shifted(cube.fields, lines.start, samples.start)
        self.origin = lines.start, samples.start
        lost = [
            key
            for key in ("map info", "geo points", "rpc info")
            if cube.fields.get(key, "").strip() and key not in self.fields
        ]
        if lost:
            said = [f"{cube.path}: '{key}' is not moved to a part of it, whose maps have none" for key in lost]
            self.problems = [*cube.problems, *said]
        self.beside = [*cube.beside]
        self.placement = cube.placement and cube.placement.moved(lines.start, samples.start)
        self.blank = float("nan")
        self.masks = tuple(masks)
        self.begins = [begin_within(mask.cube, self, "mask") for mask in masks]
        self.has_blanks = self.is_for_extraction = False
        if masks:
            self.set_blank()

    def set_blank(self) -> None:
        """Set the value of masked pixels, and a type that can hold it."""
        self.has_blanks = True
        if self.dtype.kind != "f" and self.nodata is not None:
            self.blank = self.nodata
        elif self.dtype.kind != "f":
            self.dtype = WIDER[self.dtype]
            if self.dtype.kind != "f":
                self.nodata = self.blank = float(np.iinfo(self.dtype).min)

    def read(self, lines: slice, out: np.ndarray) -> np.ndarray:
        """Read whole lines as stored; see `unmix.io.cube.Cube.read`."""
        in_scene = slice(lines.start + self.first, lines.stop + self.first)
        if self.samples == self.cube.samples and self.dtype == self.cube.dtype:
            filled = self.cube.read(in_scene, out)
        else:
            filled = place_for(self, lines, out)
            self.read_part(in_scene, filled)
        if self.has_blanks:
            masked = ~self.kept(lines)
            by_pixel(filled, self.interleave)[masked] = self.blank
        return filled

    def read_part(self, lines: slice, filled: np.ndarray) -> None:
        """Read whole lines of the scene, a few at a time, and copy the samples of this part, in its type."""
        for block, raw in read_blocks(self.cube, cut(self.cube, PIECE, lines)):
            within = slice(block.start - lines.start, block.stop - lines.start)
            if self.interleave == "bsq":
                filled[:, within] = raw[..., self.across]
            else:
                filled[within] = raw[:, self.across] if self.interleave == "bip" else raw[..., self.across]

    def kept(self, lines: slice) -> np.ndarray:
        """Return the pixels that all masks in force keep; bool array (n, samples)."""
        keep = np.ones((lines.stop - lines.start, self.samples), bool)
        for mask, (line, sample) in zip(self.masks, self.begins):
            if mask.option == "extract_mask" and not self.is_for_extraction:
                continue
            keep &= mask.keeps(slice(lines.start + line, lines.stop + line), slice(sample, sample + self.samples))
        return keep

    def for_extraction(self) -> "Window":
        """Return the pixels that endmembers are extracted from."""
        part = copy.copy(self)
        part.is_for_extraction = True
        return part

    def storage(self) -> dict[str, Any]:
        """Return how the file stores the scene; see `unmix.io.cube.Cube.storage`."""
        return self.cube.storage()

    def expect(self, lines: slice) -> None:
        """Announce that these lines will be read soon; see `unmix.io.cube.Cube.expect`."""
        self.cube.expect(slice(lines.start + self.first, lines.stop + self.first))


class Changed(Window):
    """A scene whose bands in use are scaled and changed, pixel by pixel; read as float64, missing values as NaN.

    Parameters
    ----------
    source : Scene
        A scene whose cube is a `Window`, with L bands in use.
    is_left : array (L,), bool
        Which of these have values after the change.
    """

    # The end of a message that names a spectrum with nothing left after the change.
    refusal = "has no value in the bands that are left; leave it out with `select`"

    def __init__(self, source: Scene, is_left: np.ndarray) -> None:
        vars(self).update(vars(source.cube))
        self.source, self.is_left = source, is_left
        self.dtype, self.nodata, self.gain, self.offset = np.dtype(np.float64), None, None, None

    def for_extraction(self) -> "Changed":
        """Return the pixels that endmembers are extracted from, changed."""
        part = copy.copy(self)
        part.is_for_extraction, part.source = True, self.source.to_extract_from()
        return part

    def change(self, values: np.ndarray) -> np.ndarray:
        """Return changed values of the bands left, from scaled values of the bands in use (L, n); missing is NaN."""
        raise NotImplementedError

    def change_library(self, values: np.ndarray) -> np.ndarray:
        """Return spectra of a library (L, p), changed; as `change` does, unless they were measured otherwise."""
        return self.change(values)

    @property
    def changed_bands(self) -> Bands:
        """The bands that are left, whose values need no scaling."""
        return Bands.of(self.source.bands.index[self.is_left])

    def read(self, lines: slice, out: np.ndarray) -> np.ndarray:
        """Read whole lines; bands that are not left are NaN. See `unmix.io.cube.Cube.read`."""
        filled = place_for(self, lines, out)
        filled[...] = np.nan
        left = self.source.bands.index[self.is_left]
        for block, raw in read_blocks(self.source.cube, cut(self, PIECE, lines)):
            Y = self.source.spectra(raw)
            Y[self.source.missing(raw, each=True)] = np.nan
            changed = self.change(Y.T).T.reshape(-1, self.samples, len(left))
            by_pixel(filled, self.interleave)[block.start - lines.start : block.stop - lines.start, :, left] = changed
        return filled


class Tied(Changed):
    """A scene whose bands are, in some windows, less the window's first band.

    Parameters
    ----------
    source : Scene
        A `Window` with L bands in use.
    first : array (L,), int64
        The place among these of the band that is subtracted from each; −1 for none. A band that is subtracted is left
        out.
    """

    def __init__(self, source: Scene, first: np.ndarray) -> None:
        super().__init__(source, ~np.isin(np.arange(len(first)), first))
        self.first_band = first

    def change(self, values: np.ndarray) -> np.ndarray:
        """Return values (L, n) minus those of the first bands of their windows, for the bands that are left."""
        less = np.where(self.first_band[:, None] >= 0, values[self.first_band], 0.0)
        return np.ascontiguousarray((values - less)[self.is_left])


def shifted(fields: dict[str, str], lines: int, samples: int) -> dict[str, str]:
    """Return the header fields of a part that begins ``lines`` and ``samples`` later; its place on the map stays."""
    fields = dict(fields)
    if lines == samples == 0:
        return fields
    if "map info" in fields:
        words = moved(fields["map info"].split(","), lines, samples)
        del fields["map info"]
        fields |= {"map info": ",".join(words)} if words is not None else {}
    points = [leading_number(word) for word in fields.pop("geo points", "").split(",") if word.strip()]
    if points and len(points) % 4 == 0 and None not in points:  # sample, line, latitude, longitude of each
        apart = [number - (samples, lines, 0, 0)[k % 4] for k, number in enumerate(points) if number is not None]
        fields["geo points"] = ", ".join(f"{number:.15g}" for number in apart)
    fields.pop("rpc info", None)
    for key, by in (("x start", samples), ("y start", lines)):
        with contextlib.suppress(KeyError, ValueError):
            fields[key] = f"{float(fields[key]) + by:.15g}"
    return fields


def moved(words: list[str], lines: int, samples: int) -> list[str] | None:
    """Return the map info entries of a part that begins ``lines`` and ``samples`` later; None if not understood."""
    transform = geotransform(",".join(words))
    if transform is None:
        return None
    _, a, b, _, d, e = transform
    tie = [leading_number(word) or 0.0 for word in words[:5]]
    # On a turned map the coordinates move: GDAL counts the tie point's pixel along the map's axes, not the scene's.
    if b == d == 0:
        changed = {1: tie[1] - samples, 2: tie[2] - lines}
    else:
        changed = {3: tie[3] + a * samples + b * lines, 4: tie[4] + d * samples + e * lines}
    return [f" {changed[i]:.15g}" if i in changed else word for i, word in enumerate(words)]


def size_of_whole(cube: Cube) -> tuple[int, int]:
    """Return lines and samples of the whole scene, even where only a part is read."""
    whole = cube.cube if isinstance(cube, Window) else cube
    return whole.lines, whole.samples


def origin_of(cube: Cube) -> tuple[int, int]:
    """Return line and sample of the whole scene at which the part that is read begins."""
    return cube.origin if isinstance(cube, Window) else (0, 0)


def begin_within(raster: Cube, part: Cube, what: str) -> tuple[int, int]:
    """Return the line and sample where ``part`` begins in a raster of the size of the whole scene or of the part."""
    whole = part.cube if isinstance(part, Window) else part
    is_whole = (raster.lines, raster.samples) == (whole.lines, whole.samples)
    if not is_whole and (raster.lines, raster.samples) != (part.lines, part.samples):
        raise CubeError(
            f"{raster.path}: the {what} has {raster.lines} lines of {raster.samples} samples, the scene {whole.lines} of "
            f"{whole.samples}, {why_not_laid(raster, whole)}; bring it to the scene's grid, as gdalwarp does"
        )
    refuse_elsewhere(raster, whole if is_whole else part, what)
    return origin_of(part) if is_whole else (0, 0)
