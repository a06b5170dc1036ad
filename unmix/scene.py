"""How a scene is read: which file, lines, samples, pixels and bands, and what its stored values mean."""

import logging
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from .errors import CubeError, MethodError
from .io import Bands, Cube, as_stored, bytes_per_line, missing, open_cube, spectra
from .io.cube import counted, ranges
from .io.window import Window
from .library import Endmembers

log = logging.getLogger("unmix")

# The 98th percentile of |y| over the largest |e|: dark scenes reach 0.1, so no tighter.
SCALE_RANGE = (0.02, 50.0)
SAMPLE = 100_000
# Enough to tell a scale by: all of `SAMPLE` took a third of a run of 400 000 pixels on a GPU.
FEW = 10_000
# Of a file in chunks so many are looked at, at least, unless they are more than that many bytes; three at least.
FEWEST_PLACES, MOST_READ = 16, 256 * 2**20
# A scene is taken for reflectance where most bands are mostly below this; a band that is mostly above it is none.
BRIGHTEST = 1.2
# No line of a scene has more bytes.
LONGEST_LINE = 2**30


@dataclass(frozen=True)
class ReadOptions:
    """What a user may say about how to read a scene; whatever is left out is as the file has it.

    Attributes
    ----------
    scale : float, optional
        Divides stored values, in place of everything that the file says about scale.
    nodata : float, optional
        The stored value that means no data.
    bands : str
        ``good`` (those that the file's bbl calls good), ``all``, ``auto`` (good ones that are neither dead, constant nor
        out of physical range on a sample of pixels), or a list such as ``1-50,60`` (from 1, inclusive).
    ignore_nm : str, optional
        Wavelengths to leave out, in nm: ``1350-1420,1800-1950``.
    lines, samples : str, optional
        The part of the scene to read, ``A:B``, from 0, without B; either may be left out.
    mask : str, optional
        A raster of the scene's size, or of the part's; pixels where it is 0 or has no data are left out. ``FILE:BAND`` names
        a band other than the first.
    dataset, wavelengths : str, optional
        See `unmix.io.open_cube`; wavelengths may stand in a file.
    """

    scale: float | None = None
    nodata: float | None = None
    bands: str = "good"
    ignore_nm: str | None = None
    lines: str | None = None
    samples: str | None = None
    mask: str | None = None
    dataset: str | None = None
    wavelengths: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """What differs from the defaults, for ``run.json``; files by their whole paths."""
        there = asdict(self.with_absolute_paths())
        return {f.name: there[f.name] for f in fields(self) if there[f.name] != f.default}

    def with_absolute_paths(self) -> "ReadOptions":
        """The same for a process that stands in another folder: mask and wavelengths by their whole paths."""
        whole: dict[str, Any] = {}
        if self.mask is not None:
            path, band = mask_of(self.mask)
            whole["mask"] = f"{path.absolute()}:{band + 1}"
        if self.wavelengths is not None and os.path.isfile(self.wavelengths):  # or it is a name within the cube's file
            whole["wavelengths"] = os.path.abspath(self.wavelengths)
        return replace(self, **whole)


def open_scene(path: str | os.PathLike[str], reading: ReadOptions = ReadOptions()) -> tuple[Cube, Bands, float | None]:
    """Open a cube and decide how to read it; warns of what opening found.

    Parameters
    ----------
    path : path-like
    reading : ReadOptions

    Returns
    -------
    Cube
        The scene, or the part of it that is to be read.
    Bands
    float or None
        The nodata value as the cube's type holds it.

    Raises
    ------
    CubeError
        See `open_cube`; where the mask has another size, or no band is left.
    MethodError
        Where an option does not fit the cube.
    """
    cube, nodata = open_part(path, reading)
    bands = choose_bands(cube, "good" if reading.bands == "auto" else reading.bands, reading.scale, reading.ignore_nm)
    if reading.bands == "auto":
        found = survey(cube, bands, nodata)
        kept = np.setdiff1d(bands.index, [band for bands_of in found.faults().values() for band in bands_of])
        if len(kept) == 0:
            raise CubeError(f"{cube.path}: no band is neither dead, constant nor out of range; use `bands` all")
        for what, some in found.faults().items():
            if some:
                log.info(f"{cube.path}: {counted(len(some), 'band')} left out ({what}): {ranges(some)}")
        bands = bands.only(np.isin(bands.index, kept))
    silent = bands.index[bands.gain == 0]
    if len(silent):
        raise CubeError(
            f"{cube.path}: the gain of bands {ranges(silent.tolist())} is 0, so that they say nothing; leave them out with `bands`, or "
            "give `scale`"
        )
    return cube, bands, nodata


def open_part(path: str | os.PathLike[str], reading: ReadOptions) -> tuple[Cube, float | None]:
    """The lines, samples and pixels of a scene that are to be read, and its nodata value; see `open_scene`."""
    cube = open_cube(path, reading.dataset, reading.wavelengths)
    if bytes_per_line(cube) > LONGEST_LINE:
        raise CubeError(f"{cube.path}: a line of it is {bytes_per_line(cube)} bytes; is it laid out another way?")
    problems = list(cube.problems)
    nodata = cube.nodata if reading.nodata is None else as_stored(reading.nodata, cube.dtype, "`nodata`", problems)
    for problem in problems:
        log.warning(problem)
    if reading.lines is reading.samples is reading.mask is None:
        return cube, nodata
    lines = parse_range("`lines`", reading.lines, cube.lines)
    samples = parse_range("`samples`", reading.samples, cube.samples)
    mask = None
    if reading.mask is not None:
        file, band = mask_of(reading.mask)
        mask = open_cube(file), band
    part = Window(cube, lines, samples, nodata, mask)
    for problem in part.problems[len(cube.problems) :]:
        log.warning(problem)
    return part, part.nodata


def parse_range(option: str, text: str | None, count: int) -> slice:
    """``A:B`` as a slice; `MethodError` where it is none, or empty, or beyond ``count``."""
    if text is None:
        return slice(0, count)
    first, colon, last = text.partition(":")
    if not colon or not all(
        word == "" or (word.isascii() and word.isdigit() and len(word) < 12) for word in (first, last)
    ):
        raise MethodError(f"{option} {text}: write A:B, from 0 and without B, such as 100:200, 100: or :200")
    begin, end = int(first or 0), int(last or count)
    if not 0 <= begin < end <= count:
        raise MethodError(f"{option} {text}: the scene has {count} (0:{count})")
    return slice(begin, end)


def mask_of(text: str) -> tuple[Path, int]:
    """``FILE`` or ``FILE:BAND`` as the file, and the band from 0."""
    file, _, band = text.rpartition(":")
    if file and band.isascii() and band.isdigit() and len(band) < 8 and not Path(text).exists():
        if int(band) < 1:
            raise MethodError(f"`mask` {text}: bands count from 1")
        return Path(file), int(band) - 1
    return Path(text), 0


def choose_bands(cube: Cube, which: str, scale: float | None, ignore_nm: str | None = None) -> Bands:
    """The bands in use, with their gains and offsets; see `ReadOptions` for the arguments.

    Raises
    ------
    MethodError
        Where the list is no list of bands of this cube, or the scale is not positive.
    CubeError
        Where no band is left.
    """
    if which == "good":
        index = np.arange(cube.bands) if cube.good_bands is None else np.flatnonzero(cube.good_bands)
        if len(index) == 0:
            raise CubeError(f"{cube.path}: the header's bbl calls no band good; use `bands` all")
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
    """Places from 0 of a list such as ``1-50,60`` (from 1, inclusive), ascending, each once."""
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
    """Which bands have their centre in one of the stretches ``A-B,…`` in nm; bool array (bands,)."""
    if cube.wavelengths is None:
        raise MethodError(f"`ignore_nm`: {cube.path} has no wavelengths; use `bands`")
    out = np.zeros(cube.bands, bool)
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            low, high = float(first), float(last)
        except ValueError:
            low, high = np.nan, np.nan
        if not (dash and 0 <= low <= high < np.inf):
            raise MethodError(f"`ignore_nm` '{text}': write stretches in nm, such as 1350-1420,1800-1950")
        these = (cube.wavelengths >= low) & (cube.wavelengths <= high)
        if not these.any():
            log.warning(f"`ignore_nm` {part.strip()}: no band of {cube.path} lies there ({cube.wavelengths.min():g} to "
                        f"{cube.wavelengths.max():g} nm)")  # fmt: skip
        out |= these
    return out


def sampled(cube: Cube, most: int = SAMPLE) -> Iterator[np.ndarray]:
    """At most so many pixels, evenly spread over the scene, as stored, some at a time.

    Whole chunks of the file are read, because each line of one costs all of it: some of them over the whole scene, and some
    lines of each.
    """
    together = min(cube.lines_together, cube.lines)
    chunks = -(-cube.lines // together)
    wanted = min(cube.lines, max(FEWEST_PLACES, most // cube.samples))
    read = min(chunks, max(FEWEST_PLACES, wanted // together))
    read = min(read, max(3, MOST_READ // (together * bytes_per_line(cube))))
    apart = max(1, -(-cube.samples * wanted // most))
    buffer = np.empty(together * bytes_per_line(cube), np.uint8)
    for chunk in np.unique(((np.arange(read) + 0.5) * chunks / read).astype(int)):
        first = int(chunk) * together
        last = min(first + together, cube.lines)
        raw = cube.read(slice(first, last), buffer)
        every = max(1, -(-(last - first) * read // wanted))
        lines = slice((last - first - 1) % every // 2, None, every)
        part = raw[:, lines] if cube.interleave == "bsq" else raw[lines]
        step = max(1, 2048 // max(1, part.shape[1 if cube.interleave == "bsq" else 0])) * apart
        for begin in range(0, cube.samples, step):  # in pieces: they become float64
            some = slice(begin, begin + step, apart)
            yield part[:, some] if cube.interleave == "bip" else part[..., some]


@dataclass
class Survey:
    """What a sample of a scene's pixels shows of its bands; arrays are (L,), for the bands in use.

    Attributes
    ----------
    index : array, int64
        Places of the bands, from 0.
    pixels, masked, partly : int
        Seen; without a value in any band; in some.
    missing, negative, bright : arrays, int64
        How many of the other pixels miss the band, are below 0, are above `BRIGHTEST`.
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
        """The bands (from 0) that no run should use, by what is wrong with them."""
        seen = self.pixels - self.masked
        there = np.maximum(1, seen - self.missing)
        dead = (self.missing == seen) if seen else np.zeros(len(self.index), bool)
        constant = ~dead & (self.low == self.high) & (seen > 1)
        bright = self.bright > there / 2
        reflectance = bright.sum() <= 0.2 * len(self.index)
        out = ~dead & ~constant & ((self.negative > there / 2) | (bright & reflectance))
        found = {"dead": dead, "constant": constant, "out of physical range": out}
        return {what: self.index[which].tolist() for what, which in found.items()}


def survey(cube: Cube, bands: Bands, nodata: float | None) -> Survey:
    """Look at the sample that `sampled` gives."""
    L = len(bands.index)
    counts = np.zeros((3, L), np.int64)
    low, high = np.full(L, np.inf), np.full(L, -np.inf)
    pixels = masked = partly = 0
    for part in sampled(cube):
        Y = spectra(part, cube.interleave, bands)
        gone = missing(part, cube.interleave, bands, nodata, each=True)
        whole = gone.all(axis=1)
        pixels, masked = pixels + len(Y), masked + int(whole.sum())
        partly += int((gone.any(axis=1) & ~whole).sum())
        Y, gone = Y[~whole], gone[~whole]
        counts += np.stack([gone, ~gone & (Y < 0), ~gone & (Y > BRIGHTEST)]).sum(axis=1)
        low = np.minimum(low, np.where(gone, np.inf, Y).min(axis=0, initial=np.inf))
        high = np.maximum(high, np.where(gone, -np.inf, Y).max(axis=0, initial=-np.inf))
    return Survey(bands.index, pixels, masked, partly, counts[0], counts[1], counts[2], low, high)


def lengths_of(cube: Cube, bands: Bands, nodata: float | None, most: int) -> np.ndarray:
    """|y| of the pixels of a sample that have values in all bands; float64."""
    lengths = [np.empty(0)]
    for part in sampled(cube, most):
        good = ~missing(part, cube.interleave, bands, nodata)
        with np.errstate(over="ignore"):
            lengths.append(np.sqrt(np.square(spectra(part, cube.interleave, bands)[good]).sum(axis=1)))
    return np.concatenate(lengths)


def scale_fault(cube: Cube, endmembers: Endmembers, bands: Bands, nodata: float | None) -> str | None:
    """What is wrong with the sizes of pixels and endmembers, or None; see `check_scale`.

    Raises
    ------
    CubeError
        Where all values of the sample are 0: whatever is found for it would be an optimum.
    """
    found = lengths_of(cube, bands, nodata, FEW)
    if not found.any():
        found = lengths_of(cube, bands, nodata, SAMPLE)
    if len(found) == 0:
        log.warning(f"{cube.path}: no pixel of the sample has values in all bands; the scale was not checked")
    if len(found) and not found.any():
        raise CubeError(
            f"{cube.path}: all values of the {len(found)} pixels looked at are 0; there is nothing to unmix"
        )
    if not np.all(np.isfinite(found)):
        return f"{cube.path}: its values are too large for float64; divide them with `scale`"
    size = float(np.percentile(found, 98)) if len(found) else np.nan
    largest = float(np.sqrt(np.square(endmembers.matrix).sum(axis=0)).max())
    if not size > 0 or SCALE_RANGE[0] <= size / largest <= SCALE_RANGE[1]:
        return None
    gain = float(np.median(np.abs(bands.gain)))
    together = 10.0 ** np.round(np.log10(size / largest)) / gain
    return (
        f"{cube.path}: pixels are {size / largest:.3g} times as large as the endmembers of {endmembers.source} "
        f"(|y| {size:.3g}, |e| {largest:.3g}; stored values are divided by {1 / gain:g}); `scale` {together:g} brings them together, "
        f"`scale` {1 / gain:g} if this is meant"
    )


def check_scale(cube: Cube, endmembers: Endmembers, bands: Bands, nodata: float | None, meant: bool = False) -> None:
    """Compare the sizes of pixels and endmembers on a sample of the scene; where the scale is ``meant`` (given), only warn.

    Raises
    ------
    CubeError
        Where the 98th percentile of |y| over the largest |e| is outside 0.02 to 50: most likely one is in 0-10000 and
        the other in 0-1. Also where there is no signal at all.
    """
    fault = scale_fault(cube, endmembers, bands, nodata)
    if fault and not meant:
        raise CubeError(fault)
    if fault:
        log.warning(fault)
