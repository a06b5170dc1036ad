"""A `Cube`: the class by which every format hands a scene to the pipeline."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..blocks import BlockPlan, block_shape
from ..errors import CubeError, brief
from .formats.header import words
from .read import ScratchFile

if TYPE_CHECKING:
    from .placement import Placement

INTERLEAVES = ("bip", "bil", "bsq")
# float64 represents every whole number up to this one exactly.
LARGEST_WHOLE = 2**53


@dataclass(frozen=True)
class Kind:
    """A short description of how one kind of file holds a cube: a row of docs/formats.md; `unmix info` shows its name.

    Attributes
    ----------
    name : str
    cube : str
        Where the values are, their axes and types.
    axis : str
        Where wavelengths, FWHM and good bands are.
    place : str
        Where the map information is.
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
        Band numbers in the file, from 0.
    gain, offset : arrays (L,), float64
        ``y = stored * gain + offset``; they combine the gains, offsets and scale factor of the file.
    """

    index: np.ndarray
    gain: np.ndarray
    offset: np.ndarray

    @classmethod
    def of(cls, index: np.ndarray) -> "Bands":
        """Return bands whose values are as stored."""
        return cls(index, np.ones(len(index)), np.zeros(len(index)))

    def only(self, which: np.ndarray) -> "Bands":
        """Return some of the bands: where ``which`` (L,), bool, is true, or at these places."""
        return Bands(self.index[which], self.gain[which], self.offset[which])


class Screen(NamedTuple):
    """Stored numbers that are missing values beside ``nodata``: ``misses`` finds them; they are read as ``blank``."""

    misses: Callable[[np.ndarray], np.ndarray]
    blank: float


@dataclass(eq=False)
class Cube:
    """A hyperspectral scene on disk, opened but not read.

    ``wavelengths`` and ``fwhm`` are arrays (bands,) in nanometres, ``good_bands`` is a bool array (bands,), ``gain``
    and ``offset`` are arrays (bands,); each of these and ``nodata`` may be None. ``fields`` holds raw header text that
    outputs copy verbatim (map information). ``problems`` are warnings from opening. ``format`` is the name of the
    file's format, and ``lines_together`` the number of lines that are best read at once (those of one chunk, for
    example). ``placement`` maps the pixels of a scene in the sensor's geometry, where the file has a lookup table;
    ``origin`` is the line and sample of the file at which a window begins. ``beside`` lists the files that were read
    besides ``path``: headers, metadata, wavelengths. ``named`` is the name that opens the cube again, where that is not
    ``path``.

    Where lines cannot be read one by one, a ``scratch`` file has the cube, as BSQ. A ``screen`` tells what is no value
    beside nodata, a ``mask`` of one band is 0 where the file says that a pixel has no value.
    """

    path: Path
    stem: str
    format: str
    lines: int
    samples: int
    bands: int
    dtype: np.dtype
    interleave: str
    _: KW_ONLY
    lines_together: int = 1
    scratch: ScratchFile | None = None
    screen: Screen | None = None
    wavelengths: np.ndarray | None = None
    fwhm: np.ndarray | None = None
    good_bands: np.ndarray | None = None
    gain: np.ndarray | None = None
    offset: np.ndarray | None = None
    nodata: float | None = None
    fields: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    # Dimensions of the bands in which pixels have no noise, since a background was taken out of them.
    lost = 0
    placement: "Placement | None" = None
    origin: tuple[int, int] = (0, 0)
    beside: list[Path] = field(default_factory=list)
    named: str = ""
    mask: "Cube | None" = None

    @property
    def sidecars(self) -> list[Path]:
        """Files that a library opened beside it of its own accord."""
        return []

    def read(self, lines: slice, out: np.ndarray) -> np.ndarray:
        """Read whole lines as stored into ``out``, uint8; return the filled part in native byte order."""
        filled = place_for(self, lines, out)
        try:
            if self.scratch is not None:
                self.scratch.read_bsq(self.path, self.lines, lines, filled)
            else:
                self.fill(lines, filled)
        except CubeError:
            raise
        except Exception as error:  # libraries raise many kinds of errors for a damaged file
            place = f"lines {lines.start + 1} to {lines.stop}"
            raise CubeError(f"{self.path}: {place} cannot be read: {brief(error)}") from None
        return self.screened(filled)

    def screened(self, filled: np.ndarray) -> np.ndarray:
        """Return stored values, blank where the screen tells that there is none, checked by `exact`."""
        if self.screen is not None:
            filled[self.screen.misses(filled)] = self.screen.blank
        return exact(self, filled)

    def fill(self, lines: slice, filled: np.ndarray) -> None:
        """Fill an array with whole lines as stored."""
        raise NotImplementedError

    def expect(self, lines: slice) -> None:
        """Announce that these lines will be read soon, so that the disk can start while a GPU is made ready."""

    def storage(self) -> dict[str, Any]:
        """Return how the file stores the cube, for `unmix info`."""
        raise NotImplementedError


def bytes_per_line(cube: Cube) -> int:
    """Return the stored bytes of one line of all bands."""
    return cube.samples * cube.bands * cube.dtype.itemsize


def by_pixel(raw: np.ndarray, interleave: str) -> np.ndarray:
    """Return a view (lines, samples, bands) of what `Cube.read` returned."""
    return raw.transpose({"bip": (0, 1, 2), "bil": (0, 2, 1), "bsq": (1, 2, 0)}[interleave])


def place_for(cube: Cube, lines: slice, out: np.ndarray) -> np.ndarray:
    """Return the part of a buffer that some lines of a cube fill, as a view in the cube's dtype and stored shape."""
    shape = block_shape(cube.interleave, lines.stop - lines.start, cube.samples, cube.bands)
    return out[: math.prod(shape) * cube.dtype.itemsize].view(cube.dtype).reshape(shape)


def exact(cube: Cube, stored: np.ndarray) -> np.ndarray:
    """Return stored values unchanged, or raise `CubeError` where float64 would round a 64-bit integer."""
    if stored.dtype.kind == "f" or stored.dtype.itemsize < 8 or stored.size == 0:
        return stored
    if int(stored.max()) <= LARGEST_WHOLE and int(stored.min()) >= -LARGEST_WHOLE:
        return stored
    large = stored[(stored > LARGEST_WHOLE) | (stored < -LARGEST_WHOLE if stored.dtype.kind == "i" else False)]
    rounded = large.astype(np.float64)
    top = 2.0 ** (63 if stored.dtype.kind == "i" else 64)  # one above the largest number of this type
    lost = (rounded >= top) | (np.where(rounded < top, rounded, 0).astype(stored.dtype) != large)
    if lost.any():
        raise CubeError(
            f"{cube.path}: holds {int(large[lost][0])}, a whole number above 2**53 that float64 would round; store the "
            "cube "
            "as another type, such as float64, or scaled"
        )
    return stored


def floats(raw: np.ndarray, interleave: str, bands: Bands) -> np.ndarray:
    """Return the stored values of the bands in use, (lines, samples, L), as float64."""
    with np.errstate(
        invalid="ignore"
    ):  # said of NaN with certain bits (signalling), which damaged files hold; they are NaN as any other
        return used(raw, interleave, bands).astype(np.float64, order="C")


def used(raw: np.ndarray, interleave: str, bands: Bands) -> np.ndarray:
    """Return the stored values of the bands in use, (lines, samples, L): a view where these are neighbours."""
    index, values = bands.index, by_pixel(raw, interleave)
    are_neighbours = len(index) > 0 and bool((np.diff(index) == 1).all())
    return values[:, :, index[0] : index[-1] + 1] if are_neighbours else np.asarray(values[:, :, index])


def spectra(raw: np.ndarray, interleave: str, bands: Bands) -> np.ndarray:
    """Convert stored values, as from `Cube.read`, to scaled spectra (pixels, L) float64, line by line."""
    values = floats(raw, interleave, bands)
    values *= bands.gain
    values += bands.offset
    return values.reshape(-1, len(bands.index))


def missing(raw: np.ndarray, interleave: str, bands: Bands, nodata: float | None, each: bool = False) -> np.ndarray:
    """Return whether a used band is nodata, NaN or infinite: bool (pixels,), with ``each`` by band (pixels, L)."""
    values = used(raw, interleave, bands)
    if values.dtype.kind in "iu":
        bad = np.zeros(values.shape, bool) if nodata is None else values == nodata
    else:
        values = floats(raw, interleave, bands)
        bad = ~np.isfinite(values) if nodata is None else ~np.isfinite(values) | (values == nodata)
    return bad.reshape(-1, len(bands.index)) if each else bad.any(axis=2).ravel()


def read_lines(cube: Cube, lines: slice) -> np.ndarray:
    """Return whole lines as stored, in an array of their own; see `Cube.read`."""
    return cube.read(lines, np.empty((lines.stop - lines.start) * bytes_per_line(cube), np.uint8))


def cut(cube: Cube, most_bytes: int = 0, lines: slice | None = None) -> BlockPlan:
    """Cut lines of a cube into blocks of at most ``most_bytes`` as stored, but at least `Cube.lines_together`."""
    lines = lines or slice(0, cube.lines)
    together = max(cube.lines_together, most_bytes // bytes_per_line(cube))
    return BlockPlan(lines.stop, max(1, min(together, lines.stop - lines.start)), 1, lines.start)


def read_blocks(cube: Cube, blocks: Iterable[slice]) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield the lines and the stored values of each block; the next block overwrites the array."""
    buffer = np.empty(0, np.uint8)
    for lines in blocks:
        size = (lines.stop - lines.start) * bytes_per_line(cube)
        buffer = buffer if len(buffer) >= size else np.empty(size, np.uint8)
        yield lines, cube.read(lines, buffer)


# The largest numbers of float32 and float64, which headers round, and how near to one, as a share, a text means it.
LARGEST_REALS = tuple(float(np.finfo(kind).max) for kind in (np.float32, np.float64))
NEAR_LARGEST = 1e-5


def as_stored(value: float | None, dtype: np.dtype, source: Path | str, problems: list[str]) -> float | None:
    """Return the nodata value rounded to the stored type; None where no stored value can equal it."""
    if value is None or not np.isfinite(value):
        return None  # NaN and infinities always count as missing
    if dtype.kind == "f":
        largest = next((m for m in LARGEST_REALS if abs(abs(value) - m) < NEAR_LARGEST * m), None)
        with np.errstate(over="ignore"):
            # -1.23e34, say, is another number in float32.
            return float(dtype.type(value)) if largest is None else math.copysign(largest, value)
    limits = np.iinfo(dtype)
    if not (limits.min <= value <= limits.max and value == int(value)):
        problems.append(f"{source}: nodata value {value:g} cannot occur in {dtype}; it masks no pixel")
        return None
    return value


def band_names(cube: Cube) -> list[str]:
    """Return the names of a cube's bands: those of its header, or else its wavelengths, or else the band numbers."""
    names = words(cube.fields, "band names")
    if names is not None and len(names) == cube.bands:
        return names
    if cube.wavelengths is not None:
        return [f"{wave:g} nm" for wave in cube.wavelengths]
    return [f"Band {b + 1}" for b in range(cube.bands)]


def counted(count: int, what: str) -> str:
    """Return a count with its noun, in the plural where needed: 1 band, 2 bands."""
    return f"{count} {what}" + "s" * (count != 1)


def bands_named(places: list[int]) -> str:
    """Return band indices (from 0) as text that counts from 1: band 431; bands 1-3,7."""
    return f"band{'s' * (len(places) != 1)} {in_ranges(places)}"


def in_ranges(numbers: list[int]) -> str:
    """Return indices (from 0) as a text of ranges that counts from 1: 1-3,7."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first + 1}" if first == last else f"{first + 1}-{last + 1}" for first, last in runs)
