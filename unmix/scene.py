"""How a scene is read: the file, the lines, samples, pixels and bands in use, and the meaning of stored values."""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from .errors import CubeError, MethodError
from .io import Bands, Cube, as_stored, bytes_per_line, missing, open_cube, spectra
from .io.cube import band_names, counted, ranges
from .io.window import Mask, Window
from .library import Endmembers

log = logging.getLogger("unmix")

# Accepted range of the 98th percentile of |y| divided by the largest |e|; dark scenes reach 0.1, so it is not tighter.
SCALE_RANGE = (0.02, 50.0)
# Pixels of a sample of the scene.
SAMPLE = 100_000
# Pixels that are enough to check the scale: all of `SAMPLE` took a third of a run of 400 000 pixels on a GPU.
FEW = 10_000
# From a chunked file a sample reads at least `FEWEST_PLACES` chunks, fewer if those are more than `MOST_READ` bytes, but never under 3.
FEWEST_PLACES, MOST_READ = 16, 256 * 2**20
# A scene is taken to be reflectance if most bands are mostly below this value; a band that is mostly above it is then faulty.
BRIGHTEST = 1.2
# Where water vapour absorbs all light, in nm.
WATER = "1310-1490,1770-2050"
# Most bytes that a line of a scene may have.
LONGEST_LINE = 2**30


@dataclass(frozen=True)
class ReadOptions:
    """How to read a scene; for what is left out, the file's own metadata is used.

    Attributes
    ----------
    scale : float, optional
        Stored values are divided by it; replaces every scale factor, gain and offset in the file.
    nodata : float, optional
        The stored value that means no data.
    bands : str
        ``good`` (those marked good in the file's bad band list, bbl), ``all``, ``auto`` (the good ones that are not dead, constant or
        out of physical range on a sample of pixels), or a list such as ``1-50,60`` (from 1, inclusive).
    ignore_nm : str, optional
        Wavelengths to leave out, in nm: ``1350-1420,1800-1950``; ``water`` is `WATER`, where the atmosphere absorbs all light.
    lines, samples : str, optional
        The part of the scene to read, ``A:B``, counted from 0, B excluded; A or B may be left out.
    mask : str, optional
        A raster of the size of the scene or of the part to read; pixels where it is 0 or nodata are left out. ``FILE:BAND`` uses
        another band than the first: its number, from 1, or its name.
    mask_out : sequence of str
        Rasters like ``mask`` that flag the pixels to leave out: those where one of them is not 0.
    dataset, wavelengths : str, optional
        See `unmix.io.open_cube`; ``wavelengths`` may be the path of a file.
    """

    scale: float | None = None
    nodata: float | None = None
    bands: str = "good"
    ignore_nm: str | None = None
    lines: str | None = None
    samples: str | None = None
    mask: str | None = None
    mask_out: Sequence[str] = ()
    dataset: str | None = None
    wavelengths: str | None = None

    def __post_init__(self) -> None:
        given = (self.mask_out,) if isinstance(self.mask_out, str) else tuple(self.mask_out)
        object.__setattr__(self, "mask_out", given)
        if isinstance(self.nodata, str):  # nan, from a record
            object.__setattr__(self, "nodata", float(self.nodata))

    @property
    def masks(self) -> list[tuple[str, bool]]:
        """The masks, and of each whether it flags the pixels to leave out."""
        kept = [] if self.mask is None else [(self.mask, False)]
        return kept + [(mask, True) for mask in self.mask_out]

    def to_dict(self) -> dict[str, Any]:
        """Return the options that differ from the defaults, with absolute paths, for ``run.json``."""
        values = asdict(self.with_absolute_paths())
        return {f.name: values[f.name] for f in fields(self) if values[f.name] != f.default}

    def with_absolute_paths(self) -> "ReadOptions":
        """Return the options with the paths of mask and wavelengths absolute, for a process in another working directory."""
        absolute: dict[str, Any] = {}
        if self.mask is not None:
            absolute["mask"] = absolute_mask(self.mask)
        absolute["mask_out"] = tuple(map(absolute_mask, self.mask_out))
        if self.wavelengths is not None and os.path.isfile(self.wavelengths):  # else a name inside the cube's file
            absolute["wavelengths"] = os.path.abspath(self.wavelengths)
        return replace(self, **absolute)


def open_scene(path: str | os.PathLike[str], reading: ReadOptions = ReadOptions()) -> tuple[Cube, Bands, float | None]:
    """Open a cube and decide how to read it; problems found while opening are logged as warnings.

    Parameters
    ----------
    path : path-like
    reading : ReadOptions

    Returns
    -------
    Cube
        The scene, or the part of it that is to be read.
    Bands
        The bands in use, with gain and offset.
    float or None
        The nodata value, as the cube's data type represents it.

    Raises
    ------
    CubeError
        See `open_cube`; if the mask has another size, no band is left, or the gain of a band is 0.
    MethodError
        If an option does not fit the cube.
    """
    cube, nodata = open_part(path, reading)
    bands = choose_bands(cube, "good" if reading.bands == "auto" else reading.bands, reading.scale, reading.ignore_nm)
    if reading.bands == "auto":
        faults = survey(cube, bands, nodata).faults()
        kept = np.setdiff1d(bands.index, [band for numbers in faults.values() for band in numbers])
        if len(kept) == 0:
            raise CubeError(
                f"{cube.path}: all bands in use are dead, constant or out of physical range; set `bands` to all to use them anyway"
            )
        for fault, numbers in faults.items():
            if numbers:
                log.info(f"{cube.path}: {counted(len(numbers), 'band')} left out ({fault}): {ranges(numbers)}")
        bands = bands.only(np.isin(bands.index, kept))
    zero_gain = bands.index[bands.gain == 0]
    if len(zero_gain):
        raise CubeError(
            f"{cube.path}: the gain of bands {ranges(zero_gain.tolist())} is 0, so all their values would be equal; leave them "
            "out with `bands`, or set `scale`"
        )
    return cube, bands, nodata


def open_part(path: str | os.PathLike[str], reading: ReadOptions) -> tuple[Cube, float | None]:
    """Open the part of a scene that lines, samples and mask select; return it and its nodata value; see `open_scene`."""
    cube = open_cube(path, reading.dataset, reading.wavelengths)
    if bytes_per_line(cube) > LONGEST_LINE:
        raise CubeError(
            f"{cube.path}: one line has {bytes_per_line(cube)} bytes, more than any scene; are "
            " lines, samples, bands and interleave right?"
        )
    problems = list(cube.problems)
    nodata = cube.nodata if reading.nodata is None else as_stored(reading.nodata, cube.dtype, "`nodata`", problems)
    for problem in problems:
        log.warning(problem)
    if reading.lines is reading.samples is None and not reading.masks:
        return cube, nodata
    lines = parse_range("`lines`", reading.lines, cube.lines)
    samples = parse_range("`samples`", reading.samples, cube.samples)
    part = Window(cube, lines, samples, nodata, [open_mask(text, flags_bad) for text, flags_bad in reading.masks])
    for problem in part.problems[len(cube.problems) :]:
        log.warning(problem)
    return part, part.nodata


def parse_range(option: str, text: str | None, count: int) -> slice:
    """Return ``A:B`` as a slice; `MethodError` if it is malformed, empty, or beyond ``count``."""
    if text is None:
        return slice(0, count)
    first, colon, last = text.partition(":")
    if not colon or not all(
        word == "" or (word.isascii() and word.isdigit() and len(word) < 12) for word in (first, last)
    ):
        raise MethodError(f"{option} {text}: write A:B, counted from 0 and B excluded, such as 100:200, 100: or :200")
    begin, end = int(first or 0), int(last or count)
    if not 0 <= begin < end <= count:
        raise MethodError(f"{option} {text}: the scene has {count} (0:{count})")
    return slice(begin, end)


def mask_of(text: str) -> tuple[Path, str]:
    """Split ``FILE`` or ``FILE:BAND`` into the file and the band's number, from 1, or name."""
    cuts = [place for place, letter in enumerate(text) if letter == ":"]
    if not text:
        raise MethodError("`mask`: name a file")
    if Path(text).exists() or not cuts or os.sep in text[cuts[-1] :] or not text[cuts[-1] + 1 :]:
        return Path(text), "1"
    # Names of files and of bands may have colons: the first cut that leaves a file is the one.
    cut = next((place for place in cuts if Path(text[:place]).is_file()), cuts[-1])
    return Path(text[:cut]), text[cut + 1 :]


def absolute_mask(text: str) -> str:
    """Return ``FILE:BAND`` with the file's absolute path."""
    path, band = mask_of(text)
    return f"{path.absolute()}:{band}"


def open_mask(text: str, flags_bad: bool) -> Mask:
    """Open ``FILE`` or ``FILE:BAND``; see `ReadOptions`.

    Raises
    ------
    MethodError
        If the band is 0, or no band of the file.
    """
    option = "`mask_out`" if flags_bad else "`mask`"
    path, band = mask_of(text)
    cube = open_cube(path)
    if band.isascii() and band.isdigit() and len(band) < 8:
        if int(band) < 1:
            raise MethodError(f"{option} {text}: bands count from 1")
        return Mask(cube, int(band) - 1, flags_bad)
    names = [name.casefold() for name in band_names(cube)]
    if band.casefold() not in names:
        raise MethodError(f"{option} {text}: {path} has no band '{band}'; it has {', '.join(band_names(cube)[:12])}")
    return Mask(cube, names.index(band.casefold()), flags_bad)


def choose_bands(cube: Cube, which: str, scale: float | None, ignore_nm: str | None = None) -> Bands:
    """Choose the bands in use, with their gains and offsets; see `ReadOptions` for the arguments.

    Raises
    ------
    MethodError
        If a list of bands is malformed or does not fit the cube, no band is left by ``ignore_nm``, or the scale is not positive.
    CubeError
        If the file marks no band as good.
    """
    if which == "good":
        index = np.arange(cube.bands) if cube.good_bands is None else np.flatnonzero(cube.good_bands)
        if len(index) == 0:
            raise CubeError(
                f"{cube.path}: the header's bad band list (bbl) marks no band as good; set `bands` to all to use them anyway"
            )
    elif which == "all":
        index = np.arange(cube.bands)
    else:
        index = parse_bands(which, cube.bands)
    if ignore_nm is not None:
        index = index[~ignored(cube, ignore_nm)[index]]
        if len(index) == 0:
            raise MethodError(f"`ignore_nm` {ignore_nm}: leaves no band")
    gain = np.ones(cube.bands) if cube.gain is None else cube.gain
    offset = np.zeros(cube.bands) if cube.offset is None else cube.offset
    if scale is not None:
        if not (np.isfinite(scale) and scale > 0 and np.isfinite(1.0 / scale)):
            raise MethodError(f"`scale` {scale} must be above 0; stored values are divided by it")
        gain, offset = np.full(cube.bands, 1.0 / scale), np.zeros(cube.bands)
    return Bands(
        index.astype(np.int64), np.ascontiguousarray(gain[index], float), np.ascontiguousarray(offset[index], float)
    )


def parse_bands(text: str, bands: int) -> np.ndarray:
    """Return the bands, from 0, of a list such as ``1-50,60`` (from 1, inclusive), ascending and without repetition."""
    index: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in (first, last or first)):
            raise MethodError(f"`bands` '{text}': write good, all, auto, or numbers from 1 such as 1-50,60")
        low, high = int(first), int(last or first)
        if not 1 <= low <= high <= bands:
            raise MethodError(f"`bands` '{part.strip()}': the cube has bands 1 to {bands}")
        index |= set(range(low - 1, high))
    return np.array(sorted(index))


def ignored(cube: Cube, text: str) -> np.ndarray:
    """Return the mask of bands whose centre is in one of the ranges ``A-B,…`` in nm; bool array (bands,)."""
    if cube.wavelengths is None:
        raise MethodError(f"`ignore_nm`: {cube.path} has no wavelengths; use `bands`")
    left_out = np.zeros(cube.bands, bool)
    for part in ",".join(WATER if part.strip().lower() == "water" else part for part in text.split(",")).split(","):
        first, dash, last = part.strip().partition("-")
        try:
            low, high = float(first), float(last)
        except ValueError:
            low, high = np.nan, np.nan
        if not (dash and 0 <= low <= high < np.inf):
            raise MethodError(f"`ignore_nm` '{text}': write water, or ranges in nm such as 1350-1420,1800-1950")
        inside = (cube.wavelengths >= low) & (cube.wavelengths <= high)
        if not inside.any() and part not in WATER:
            log.warning(f"`ignore_nm` {part.strip()}: no band of {cube.path} is in this range ({cube.wavelengths.min():g} to "
                        f"{cube.wavelengths.max():g} nm)")  # fmt: skip
        left_out |= inside
    return left_out


def sampled(cube: Cube, most: int = SAMPLE) -> Iterator[np.ndarray]:
    """Yield at most ``most`` pixels, evenly spread over the scene, as stored, in pieces.

    Reading one line of a chunk costs as much as the whole chunk, so chunks spread over the scene are read, and some lines of each are
    taken.
    """
    chunk_lines = min(cube.lines_together, cube.lines)
    chunks = -(-cube.lines // chunk_lines)
    wanted = min(cube.lines, max(FEWEST_PLACES, most // cube.samples))
    chunks_read = min(chunks, max(FEWEST_PLACES, wanted // chunk_lines))
    chunks_read = min(chunks_read, max(3, MOST_READ // (chunk_lines * bytes_per_line(cube))))
    sample_step = max(1, -(-cube.samples * wanted // most))
    buffer = np.empty(chunk_lines * bytes_per_line(cube), np.uint8)
    for chunk in np.unique(((np.arange(chunks_read) + 0.5) * chunks / chunks_read).astype(int)):
        first = int(chunk) * chunk_lines
        last = min(first + chunk_lines, cube.lines)
        raw = cube.read(slice(first, last), buffer)
        line_step = max(1, -(-(last - first) * chunks_read // wanted))
        lines = slice((last - first - 1) % line_step // 2, None, line_step)
        part = raw[:, lines] if cube.interleave == "bsq" else raw[lines]
        step = max(1, 2048 // max(1, part.shape[1 if cube.interleave == "bsq" else 0])) * sample_step
        for begin in range(0, cube.samples, step):  # in pieces, because the caller makes float64 of them
            columns = slice(begin, begin + step, sample_step)
            yield part[:, columns] if cube.interleave == "bip" else part[..., columns]


@dataclass
class Survey:
    """Statistics of the bands in use on a sample of a scene's pixels; arrays are (L,).

    Attributes
    ----------
    index : array, int64
        The bands, from 0.
    pixels, masked, partly : int
        Pixels in the sample; those with no value in any band; those with values in some bands only.
    missing, negative, bright : arrays, int64
        Numbers of the pixels not masked that have no value in the band, one below 0, or one above `BRIGHTEST`.
    low, high : arrays, float64
        Smallest and largest value, scaled.
    """

    index: np.ndarray
    pixels: int
    masked: int
    partly: int
    missing: np.ndarray
    negative: np.ndarray
    bright: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def faults(self) -> dict[str, list[int]]:
        """Return the bands (from 0) that should not be used, by fault."""
        unmasked = self.pixels - self.masked
        present = np.maximum(1, unmasked - self.missing)
        dead = (self.missing == unmasked) if unmasked else np.zeros(len(self.index), bool)
        constant = ~dead & (self.low == self.high) & (unmasked > 1)
        bright = self.bright > present / 2
        reflectance = bright.sum() <= 0.2 * len(self.index)
        out_of_range = ~dead & ~constant & ((self.negative > present / 2) | (bright & reflectance))
        masks = {"dead": dead, "constant": constant, "out of physical range": out_of_range}
        return {fault: self.index[mask].tolist() for fault, mask in masks.items()}


def survey(cube: Cube, bands: Bands, nodata: float | None) -> Survey:
    """Collect statistics of the bands in use on a sample of pixels; see `Survey`."""
    L = len(bands.index)
    counts = np.zeros((3, L), np.int64)
    low, high = np.full(L, np.inf), np.full(L, -np.inf)
    pixels = masked = partly = 0
    for part in sampled(cube):
        Y = spectra(part, cube.interleave, bands)
        absent = missing(part, cube.interleave, bands, nodata, each=True)
        masked_here = absent.all(axis=1)
        pixels, masked = pixels + len(Y), masked + int(masked_here.sum())
        partly += int((absent.any(axis=1) & ~masked_here).sum())
        Y, absent = Y[~masked_here], absent[~masked_here]
        counts += np.stack([absent, ~absent & (Y < 0), ~absent & (Y > BRIGHTEST)]).sum(axis=1)
        low = np.minimum(low, np.where(absent, np.inf, Y).min(axis=0, initial=np.inf))
        high = np.maximum(high, np.where(absent, -np.inf, Y).max(axis=0, initial=-np.inf))
    return Survey(bands.index, pixels, masked, partly, counts[0], counts[1], counts[2], low, high)


def lengths_of(cube: Cube, bands: Bands, nodata: float | None, most: int) -> np.ndarray:
    """Return |y| of the pixels of a sample that have values in all bands; array, float64."""
    lengths = [np.empty(0)]
    for part in sampled(cube, most):
        good = ~missing(part, cube.interleave, bands, nodata)
        with np.errstate(over="ignore"):
            lengths.append(np.sqrt(np.square(spectra(part, cube.interleave, bands)[good]).sum(axis=1)))
    return np.concatenate(lengths)


def scale_fault(cube: Cube, endmembers: Endmembers, bands: Bands, nodata: float | None) -> str | None:
    """Return a message if the sizes of pixels and endmembers do not match, else None; see `check_scale`.

    Raises
    ------
    CubeError
        If all values of the sample are 0: every solution would then be certified as optimal.
    """
    lengths = lengths_of(cube, bands, nodata, FEW)
    if not lengths.any():
        lengths = lengths_of(cube, bands, nodata, SAMPLE)
    if len(lengths) == 0:
        log.warning(f"{cube.path}: no pixel of the sample has values in all bands; the scale was not checked")
    if len(lengths) and not lengths.any():
        raise CubeError(
            f"{cube.path}: all values of the {len(lengths)} pixels looked at are 0; there is nothing to unmix"
        )
    if not np.all(np.isfinite(lengths)):
        return f"{cube.path}: its values are too large for float64; divide them with `scale`"
    size = float(np.percentile(lengths, 98)) if len(lengths) else np.nan
    largest = float(np.sqrt(np.square(endmembers.matrix).sum(axis=0)).max())
    if not size > 0 or SCALE_RANGE[0] <= size / largest <= SCALE_RANGE[1]:
        return None
    gain = float(np.median(np.abs(bands.gain)))
    matching_scale = 10.0 ** np.round(np.log10(size / largest)) / gain
    return (
        f"{cube.path}: pixels are {size / largest:.3g} times as large as the endmembers of {endmembers.source} "
        f"(|y| {size:.3g}, |e| {largest:.3g}; stored values are divided by {1 / gain:g}); `scale` {matching_scale:g} "
        f"brings them together, `scale` {1 / gain:g} keeps them if this is intended"
    )


def check_scale(cube: Cube, endmembers: Endmembers, bands: Bands, nodata: float | None, meant: bool = False) -> None:
    """Compare the sizes of pixels and endmembers on a sample of the scene; if the user gave the scale (``meant``), only warn.

    Raises
    ------
    CubeError
        If the 98th percentile of |y| divided by the largest |e| is outside 0.02 to 50: most likely one is in 0-10000 and
        the other in 0-1. Also if all values are 0.
    """
    fault = scale_fault(cube, endmembers, bands, nodata)
    if fault and not meant:
        raise CubeError(f"{fault}; `library_scale` scales the library instead")
    if fault:
        log.warning(fault)
