"""`match`: for every pixel of a scene the nearest spectrum of a library."""

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ...blocks import parse_size, workers_for
from ...endmembers.statistics import walk
from ...errors import LibraryError, MethodError
from ...io import NODATA, Cube, by_pixel, located, missing, spectra
from ...library import Endmembers, load_parts, prepared
from ...library.matching import AMBIGUOUS, Comparable
from ...maps.plain_map import NewMaps, new_maps, put_lines, refuse_masked, table_text
from ...outputs.names import inputs_of
from ...pages import MOST_CLASSES, fields_of_classes
from ...pages.parts import percent
from ...scene import ReadOptions, open_scene
from ...scene.sample import warn_of_sample
from .match_page import POOR, Matched, match_page

log = logging.getLogger("unmix")

IMAGE, TABLE, CLASSES, PAGE = "match", "_match.csv", "match_class", "_match_report.html"
# The name of the class of all spectra that have none of their own.
OTHERS = "others"
BANDS = ("nearest spectrum", "distance", "distance of the next")


def match(
    cube: str | os.PathLike[str],
    endmembers: str | os.PathLike[str],
    *,
    distance: str = "sam",
    continuum: bool = False,
    max_distance: float | None = None,
    class_map: bool = False,
    report: bool = False,
    select: str | None = None,
    library_scale: float | None = None,
    across_gaps: bool = False,
    out_dir: str | os.PathLike[str] | None = None,
    format: str = "envi",
    overwrite: bool = False,
    memory: str | int = "1G",
    threads: int | None = None,
    **reading: Any,
) -> dict[str, Any]:
    """Write for every pixel the nearest spectrum of a library, its distance, and the distance of the next one.

    Parameters
    ----------
    cube : path-like
    endmembers : path-like
        The library, which is resampled to the bands in use; spectra with less than half of them are left out.
    distance : {"sam", "sid"}
        The spectral angle, in degrees, or the spectral information divergence.
    continuum : bool
        Compare spectra divided by their continua.
    max_distance : float, optional
        Pixels farther than that from all spectra have the number 0.
    class_map : bool
        Also write STEM_match_class, a classification with the names and colours of the spectra that a pixel is nearest
        to.
    report : bool
        Also write STEM_match_report.html: the map in colours, how near and how clear matches are, and spectra beside
        their pixels.
    select, library_scale, across_gaps
        See `unmix.load_library`.
    out_dir, format, overwrite, memory, threads, **reading
        See `unmix.mnf`.

    Returns
    -------
    dict
        ``files``; ``spectra``: for each library spectrum that can be compared ``number`` (from 1), ``name``, ``class``,
        ``pixels``, the count of pixels nearest to it, and ``mean_distance``, theirs, None where there are none;
        ``none``: the count of pixels with values but no match; ``unclear``: the count of matched pixels to which the
        next spectrum is at most 10 % farther.

    Raises
    ------
    MethodError
        For an unknown measure, or a continuum without wavelengths.
    LibraryError
        Where the library cannot be read, or none of its spectra can be compared.
    CubeError, OutputError
        As in `unmix.mnf`; and where all pixels are masked.
    """
    given = open_scene(cube, ReadOptions(**reading))
    warn_of_sample(given)
    scene, bands, nodata = given
    if max_distance is not None and not max_distance > 0:
        raise MethodError(f"`max_distance` {max_distance:g}: must be above 0")
    waves, spectrum = given.wavelengths, np.ones((len(bands.index), 1))
    channels = Endmembers(("pixels",), spectrum, waves, None, str(scene.path), fwhm=given.fwhm)
    parts = prepared(load_parts(located(endmembers)), located(endmembers), None, library_scale, select, across_gaps)
    library = Comparable.of(channels, parts, distance, continuum)
    if waves is None and any(part.wavelengths is not None for part in parts):
        log.warning(
            f"{scene.path}: has no wavelengths, so the library's channels are taken to be its bands in their order"
        )
    if not library.names:
        raise LibraryError(f"{endmembers}: none of its spectra has half of the bands in use of {scene.path}")
    unit = 180.0 / np.pi if distance == "sam" else 1.0
    tally = Tally(len(library.names), len(bands.index) if report else 0)
    maps, tables = [IMAGE, *[CLASSES] * class_map], [TABLE, *[PAGE] * report]
    unasked = [*[CLASSES] * (not class_map), *[PAGE] * (not report)]

    def one_line(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        good = ~missing(pixels, "bip", bands, nodata).ravel()
        rows, Y = np.full((len(good), len(BANDS)), np.nan), spectra(pixels, "bip", bands)[good]
        if good.any():
            rows[good] = nearest_two(library, Y, unit, max_distance)
        return rows, rows[good], Y

    with new_maps(scene, out_dir, format, overwrite, maps, tables, inputs_of(library=endmembers), unasked) as out:
        with out.open(IMAGE) as file, ThreadPoolExecutor(workers_for(threads)) as pool:
            beside = 8 * scene.samples * (len(library.names) + 3 * len(bands.index))
            for _, raw in walk(scene, parse_size(str(memory)), beside):
                pixels = by_pixel(raw, scene.interleave)
                for rows, known, Y in pool.map(one_line, (pixels[k : k + 1] for k in range(len(pixels)))):
                    tally.add(known, Y)
                    put_lines(scene, file, rows)
        warn(scene, tally)
        refuse_masked(scene, int(tally.counts.sum()))
        fields = {
            "band names": list(BANDS),
            "data ignore value": f"{NODATA:g}",
            "unmix library": Path(endmembers).name,
            "library spectra": library.names,
        }
        out.describe(IMAGE, f"nearest spectra ({distance})", "f4", len(BANDS), fields)
        if class_map:
            write_classes(out, library.names, tally.counts)
        found = tally.of_each(library)
        out.write(TABLE, table_text(tuple(found[0]), [tuple(one.values()) for one in found]))
        if report:
            where = scene.stem, Path(endmembers).name
            image, degrees = numbers_of(out), ", degrees" * (distance == "sam")
            page = Matched(*where, found, int(tally.counts[0]), tally.unclear, library, tally.means, image, degrees)
            out.write(PAGE, match_page(page))
    return {"files": out.files, "none": int(tally.counts[0]), "unclear": tally.unclear, "spectra": found}


def warn(scene: Cube, tally: "Tally") -> None:
    """Warn where no pixel gets a name, or most names are unclear."""
    named = int(tally.counts[1:].sum())
    if not named and tally.counts[0]:
        log.warning(
            f"{scene.path}: no pixel gets a name: all spectra are farther than `max_distance`, or pixels have no "
            "absorptions or values above 0 in the bands in use"
        )
    if tally.unclear > POOR * named:
        log.warning(
            f"{scene.path}: to {percent(tally.unclear / named)} of the pixels with a name another spectrum is at most "
            "10 % farther: "
            "`select`, `continuum`, `only_nm` and `max_distance` make names fewer and clearer"
        )


class Tally:
    """Pixels by the spectrum that they are nearest to, number 0 being none.

    Parameters
    ----------
    count : int
        Spectra.
    bands : int
        The number of bands of each pixel; 0 if the means of pixels are not wanted.
    """

    def __init__(self, count: int, bands: int) -> None:
        self.counts, self.distances, self.unclear = np.zeros(count + 1, np.int64), np.zeros(count + 1), 0
        self.sums = np.zeros((count + 1, bands))

    def add(self, rows: np.ndarray, Y: np.ndarray) -> None:
        """Add pixels: what `nearest_two` says of them (n, 3), and the pixels (n, L)."""
        number, least, following = rows[:, 0].astype(int), rows[:, 1], rows[:, 2]
        self.counts += np.bincount(number, minlength=len(self.counts))
        self.distances += np.bincount(number, least, len(self.counts))
        self.unclear += int(((number > 0) & (following >= 0) & (following <= AMBIGUOUS * least)).sum())
        if self.sums.size:
            np.add.at(self.sums, number, Y)

    @property
    def means(self) -> np.ndarray:
        """The means of the pixels of each spectrum, (count + 1, L); NaN where there are none."""
        counts = self.counts[:, None]
        return np.divide(self.sums, counts, out=np.full(self.sums.shape, np.nan), where=counts > 0)

    def of_each(self, library: Comparable) -> list[dict[str, Any]]:
        """Return what was found of each spectrum of the library."""
        numbered = zip(library.names, library.kinds, self.counts[1:].tolist(), self.distances[1:].tolist())
        return [
            {
                "number": k,
                "name": name,
                "class": kind,
                "pixels": pixels,
                "mean_distance": total / pixels if pixels else None,
            }
            for k, (name, kind, pixels, total) in enumerate(numbered, 1)
        ]


def numbers_of(out: NewMaps) -> np.ndarray:
    """Return the image of numbers and distances that was just written, (lines, 3, samples)."""
    shape = out.scene.lines, len(BANDS), out.scene.samples
    return np.memmap(out.parts[f"_{IMAGE}.img"], "<f4", "r", shape=shape)


def write_classes(out: NewMaps, names: Sequence[str], counts: np.ndarray) -> None:
    """Write the classification of the image of numbers that was just written: its classes are the nearest spectra."""
    found = np.flatnonzero(counts[1:])
    classes, own = np.zeros(len(counts), np.uint8), [names[int(j)] for j in found]
    classes[found + 1] = np.minimum(np.arange(1, len(found) + 1), MOST_CLASSES)
    # A byte numbers no more: the spectra with the fewest pixels are one class.
    if len(found) > MOST_CLASSES:
        common = np.sort(found[np.argsort(-counts[found + 1], kind="stable")[: MOST_CLASSES - 1]])
        classes[found + 1] = MOST_CLASSES
        classes[common + 1] = np.arange(1, MOST_CLASSES)
        own = [*(names[int(j)] for j in common), OTHERS]
        rest = int(counts[1:].sum() - counts[common + 1].sum())
        log.warning(
            f"{out.scene.path}: pixels are nearest to {len(found)} spectra, but `class_map` has {MOST_CLASSES} "
            "classes: those of the "
            f"fewest pixels, {rest} in all, are one; choose some with `select`, or set `max_distance`"
        )
    with out.open(CLASSES) as file:
        for line in numbers_of(out)[:, 0]:
            known = np.nan_to_num(np.where(line == np.float32(NODATA), 0, line)).astype(int)
            file.write(classes[known].tobytes())
    fields = {"band names": ["class"], "data ignore value": "0"} | fields_of_classes(own)
    out.describe(CLASSES, "nearest spectra", "u1", 1, fields)


def nearest_two(library: Comparable, Y: np.ndarray, unit: float, most: float | None) -> np.ndarray:
    """Return number (0 without a match), distance and next distance (n, 3) for spectra (n, L); −1 for no distance."""
    distances = library.distances(Y.T) * unit
    distances[np.isnan(distances)] = np.inf
    first = distances.argmin(axis=0)
    at = np.arange(len(Y))
    least = distances[first, at]
    distances[first, at] = np.inf
    following = distances.min(axis=0)
    has = np.isfinite(least) & (True if most is None else least <= most)
    rows = np.stack([np.where(has, first + 1, 0), least, following], axis=1)
    rows[~np.isfinite(rows)] = -1.0
    return rows
