"""What every format offers the pipeline: a `Cube`."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..blocks import block_shape
from ..errors import CubeError
from .formats.header import words
from .placement import Placement

INTERLEAVES = ("bip", "bil", "bsq")
# Every whole number up to here is a float64.
LARGEST_WHOLE = 2**53


@dataclass(frozen=True)
class Kind:
    """How one kind of file holds a cube, in a few words: a row of docs/formats.md, and what `unmix info` calls it.

    Attributes
    ----------
    name : str
    cube : str
        Where the values are, their axes and types.
    axis : str
        Where wavelengths, FWHM and good bands are.
    place : str
        Where the map is.
    fill : str
        Where nodata and scale are.
    """

    name: str
    cube: str
    axis: str
    place: str
    fill: str


@dataclass(frozen=True)
class Bands:
    """The bands that a run uses, and how their stored values become a spectrum.

    Attributes
    ----------
    index : array (L,), int64
        Places in the file, from 0.
    gain, offset : arrays (L,), float64
        ``y = stored * gain + offset``; gains, offsets and the scale factor of the file in one.
    """

    index: np.ndarray
    gain: np.ndarray
    offset: np.ndarray

    def only(self, which: np.ndarray) -> "Bands":
        """Those of a bool array (L,)."""
        return Bands(self.index[which], self.gain[which], self.offset[which])


class Cube(Protocol):
    """A hyperspectral scene on disk, opened but not read.

    ``wavelengths`` and ``fwhm`` are arrays (bands,) in nanometres, ``good_bands`` is a bool array (bands,), ``gain``
    and ``offset`` are arrays (bands,); each of these and ``nodata`` may be None. ``fields`` holds raw header text that
    outputs copy verbatim (map information). ``problems`` are warnings from opening. ``format`` names what the file was
    recognised as, and ``lines_together`` how many lines are best read together (of one chunk, say). ``placement`` says where
    pixels lie on a map, where the scene is in the sensor's geometry and the file knows; ``origin`` is the line and sample of
    the file where a part begins. ``beside`` are the files that were read besides ``path``: headers, metadata.
    """

    path: Path
    stem: str
    format: str
    lines_together: int
    lines: int
    samples: int
    bands: int
    dtype: np.dtype
    interleave: str
    wavelengths: np.ndarray | None
    fwhm: np.ndarray | None
    good_bands: np.ndarray | None
    gain: np.ndarray | None
    offset: np.ndarray | None
    nodata: float | None
    fields: dict[str, str]
    problems: list[str]
    placement: Placement | None
    origin: tuple[int, int]

    @property
    def beside(self) -> list[Path]: ...

    def read(self, lines: slice, out: np.ndarray) -> np.ndarray:
        """Read whole lines as stored.

        Parameters
        ----------
        lines : slice
            Lines to read.
        out : array, uint8
            Buffer that is filled; at least ``bytes_per_line`` a line.

        Returns
        -------
        array
            The part of ``out`` that was filled, in native byte order: (n, samples, bands) for bip, (n, bands, samples)
            for bil, (bands, n, samples) for bsq.
        """
        ...

    def expect(self, lines: slice) -> None:
        """Say that these lines will be read soon, so that the disk begins while a GPU is made ready."""
        ...

    def storage(self) -> dict[str, Any]:
        """How the file stores it, for `unmix info`."""
        ...


@dataclass(eq=False, kw_only=True)
class CubeMetadata:
    """What a file may say of its values and its place, what was made of it, and what was read besides; the fields are `Cube`'s."""

    wavelengths: np.ndarray | None = None
    fwhm: np.ndarray | None = None
    good_bands: np.ndarray | None = None
    gain: np.ndarray | None = None
    offset: np.ndarray | None = None
    nodata: float | None = None
    fields: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    placement: Placement | None = None
    origin: tuple[int, int] = (0, 0)
    beside: list[Path] = field(default_factory=list)


def bytes_per_line(cube: Cube) -> int:
    """Stored bytes of one line of all bands."""
    return cube.samples * cube.bands * cube.dtype.itemsize


def by_pixel(raw: np.ndarray, interleave: str) -> np.ndarray:
    """What `Cube.read` returned as (lines, samples, bands); a view."""
    return raw.transpose({"bip": (0, 1, 2), "bil": (0, 2, 1), "bsq": (1, 2, 0)}[interleave])


def place_for(cube: Cube, lines: slice, out: np.ndarray) -> np.ndarray:
    """The part of a buffer that some lines of a cube fill, in its type and shape."""
    shape = block_shape(cube.interleave, lines.stop - lines.start, cube.samples, cube.bands)
    return out[: math.prod(shape) * cube.dtype.itemsize].view(cube.dtype).reshape(shape)


def exact(cube: Cube, stored: np.ndarray) -> np.ndarray:
    """Return stored values as they are; every format ends its reading here.

    Raises
    ------
    CubeError
        Where a whole number of 64 bits has no float64 of its own: its last bits would be lost without a word.
    """
    if stored.dtype.kind == "f" or stored.dtype.itemsize < 8 or stored.size == 0:
        return stored
    if int(stored.max()) <= LARGEST_WHOLE and int(stored.min()) >= -LARGEST_WHOLE:
        return stored
    large = stored[(stored > LARGEST_WHOLE) | (stored < -LARGEST_WHOLE if stored.dtype.kind == "i" else False)]
    rounded = large.astype(np.float64)
    top = 2.0 ** (63 if stored.dtype.kind == "i" else 64)  # itself no such number any more
    lost = (rounded >= top) | (np.where(rounded < top, rounded, 0).astype(stored.dtype) != large)
    if lost.any():
        raise CubeError(
            f"{cube.path}: holds {int(large[lost][0])}, a whole number above 2**53 that float64 would round; store it as another type, "
            "such as float64, or scaled"
        )
    return stored


def spectra(raw: np.ndarray, interleave: str, bands: Bands) -> np.ndarray:
    """Stored values as spectra.

    Parameters
    ----------
    raw : array
        What `Cube.read` returned.
    interleave : str
        bip, bil or bsq.
    bands : Bands
        What to use.

    Returns
    -------
    array (pixels, L), float64
        Scaled; pixels in the order of the lines.
    """
    values = by_pixel(raw, interleave)[:, :, bands.index].astype(np.float64)
    return (values * bands.gain + bands.offset).reshape(-1, len(bands.index))


def missing(raw: np.ndarray, interleave: str, bands: Bands, nodata: float | None, each: bool = False) -> np.ndarray:
    """Which pixels miss a used band: equal to nodata as stored, NaN or infinite; bool array (pixels,).

    With ``each``, which bands each pixel misses: bool array (pixels, L).
    """
    values = by_pixel(raw, interleave)[:, :, bands.index].astype(np.float64)
    bad = ~np.isfinite(values)
    if nodata is not None:
        bad |= values == nodata
    return bad.reshape(-1, len(bands.index)) if each else bad.any(axis=2).ravel()


def as_stored(value: float | None, dtype: np.dtype, source: Path | str, problems: list[str]) -> float | None:
    """The nodata value as the file's type holds it: -1.23e34 is another number in float32."""
    if value is None or not np.isfinite(value):
        return None  # NaN and infinities are nodata anyway
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return float(dtype.type(value))
    limits = np.iinfo(dtype)
    if not (limits.min <= value <= limits.max and value == int(value)):
        problems.append(f"{source}: nodata value {value:g} cannot occur in {dtype}; no pixel is masked by it")
        return None
    return value


def band_names(cube: Cube) -> list[str]:
    """The names of a cube's bands: its own, or its wavelengths, or their numbers."""
    own = words(cube.fields, "band names")
    if own is not None and len(own) == cube.bands:
        return own
    if cube.wavelengths is not None:
        return [f"{wave:g} nm" for wave in cube.wavelengths]
    return [f"Band {b + 1}" for b in range(cube.bands)]


def counted(count: int, what: str) -> str:
    """Return a number of things: 1 band, 2 bands."""
    return f"{count} {what}" + "s" * (count != 1)


def bands_named(places: list[int]) -> str:
    """Return bands at places from 0 as people count them: band 431; bands 1-3,7."""
    return f"band{'s' * (len(places) != 1)} {ranges(places)}"


def ranges(numbers: list[int]) -> str:
    """Places from 0 as a list from 1: 1-3,7."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{a + 1}" if a == b else f"{a + 1}-{b + 1}" for a, b in found)
