"""`match`: for every pixel of a scene the nearest spectrum of a library."""

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ...blocks import cores, parse_size
from ...endmembers.statistics import walk
from ...errors import CubeError, LibraryError, MethodError
from ...io import Cube
from ...io.cube import by_pixel, missing, spectra
from ...io.fields import NODATA
from ...io.opening import open_new, write_new
from ...io.remote import located
from ...library import Comparable, Endmembers, load_parts, prepared
from ...maps.plain_map import header_of, new_files, put_lines, table_text
from ...outputs.names import folder_for, inputs_of
from ...outputs.ours import is_by_unmix
from ...pages.colours import MOST_CLASSES, fields_of_classes
from ...scene import ReadOptions, open_scene

log = logging.getLogger("unmix")

IMAGE, TABLE, CLASSES = "_match", "_match.csv", "_match_class"
BANDS = ("nearest spectrum", "distance", "distance of the next")


def match(
    cube: str | os.PathLike[str], endmembers: str | os.PathLike[str], *, distance: str = "sam", continuum: bool = False,
    max_distance: float | None = None, class_map: bool = False, select: str | None = None, library_scale: float | None = None,
    across_gaps: bool = False,
    out_dir: str | os.PathLike[str] | None = None, overwrite: bool = False, memory: str | int = "1G", threads: int | None = None,
    **reading: Any,
) -> dict[str, Any]:  # fmt: skip
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
        Also write STEM_match_class, an ENVI Classification with the names and colours of the spectra that a pixel is nearest to.
    select, library_scale, across_gaps
        See `unmix.load_library`.
    out_dir, overwrite, memory, threads, **reading
        See `unmix.mnf`.

    Returns
    -------
    dict
        ``files``; ``spectra``: for each library spectrum that can be compared ``number`` (from 1), ``name``, ``class``, and
        ``pixels``, the count of pixels nearest to it; ``none``: the count of pixels with values but no match.

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
    counts = np.zeros(len(library.names) + 1, np.int64)
    folder = folder_for(out_dir, scene.path)
    endings = [f"{IMAGE}.img", f"{IMAGE}.hdr", TABLE, *[f"{CLASSES}.img", f"{CLASSES}.hdr"] * class_map]

    def one_line(pixels: np.ndarray) -> np.ndarray:
        good = ~missing(pixels, "bip", bands, nodata)
        rows = np.full((*good.shape, len(BANDS)), np.nan)
        if good.any():
            rows[good] = nearest_two(library, spectra(pixels, "bip", bands)[good], unit, max_distance)
        return rows.reshape(-1, len(BANDS))

    with new_files(scene, folder, endings, overwrite, inputs_of(library=endmembers)) as files:
        with open_new(files[f"{IMAGE}.img"]) as file, ThreadPoolExecutor(threads or cores()) as pool:
            beside = 8 * scene.samples * (len(library.names) + 3 * len(bands.index))
            for _, raw in walk(scene, parse_size(str(memory)), beside):
                pixels = by_pixel(raw, scene.interleave)
                for rows in pool.map(one_line, (pixels[k : k + 1] for k in range(len(pixels)))):
                    counts[:] += np.bincount(rows[~np.isnan(rows[:, 0]), 0].astype(int), minlength=len(counts))
                    put_lines(scene, file, rows)
        if not counts[1:].any() and counts[0]:
            log.warning(f"{scene.path}: no pixel gets a name: all spectra are farther than `max_distance`, or pixels have no "
                        "absorptions or values above 0 in the bands in use")  # fmt: skip
        if not counts.any():
            raise CubeError(f"{scene.path}: all {scene.lines * scene.samples} pixels are masked as nodata")
        fields = {
            "band names": list(BANDS), "data ignore value": f"{NODATA:g}", "unmix library": Path(endmembers).name,
            "library spectra": library.names,
        }  # fmt: skip
        write_new(files[f"{IMAGE}.hdr"], header_of(scene, f"nearest spectra ({distance})", "f4", len(BANDS), fields))
        if class_map:
            write_classes(scene, files, library.names, counts)
        head = ("number", "name", "class", "pixels")
        found = list(zip(range(1, len(counts)), library.names, library.kinds, counts[1:].tolist()))
        write_new(files[TABLE], table_text(head, found))
    if not class_map:  # one of an older map would not be of this
        for old in (folder / f"{scene.stem}{CLASSES}{ending}" for ending in (".img", ".hdr")):
            if old.exists() and is_by_unmix(old):
                old.unlink()
    written = [str(folder / (scene.stem + ending)) for ending in endings]
    return {"files": written, "none": int(counts[0]), "spectra": [dict(zip(head, row)) for row in found]}


def write_classes(scene: Cube, files: dict[str, Path], names: Sequence[str], counts: np.ndarray) -> None:
    """Write the classification of the image of numbers that was just written: its classes are the spectra that pixels are nearest to.

    Raises
    ------
    MethodError
        Where these are more than a byte can number.
    """
    found = np.flatnonzero(counts[1:])
    if len(found) > MOST_CLASSES:
        raise MethodError(
            f"`class_map` has room for {MOST_CLASSES} spectra, but pixels are nearest to {len(found)}; choose some with `select`, or "
            "set `max_distance`"
        )
    classes = np.zeros(len(counts), np.uint8)
    classes[found + 1] = np.arange(1, len(found) + 1)
    shape = scene.lines, len(BANDS), scene.samples
    numbers = np.memmap(files[f"{IMAGE}.img"], "<f4", "r", shape=shape)
    with open_new(files[f"{CLASSES}.img"]) as file:
        for line in numbers[:, 0]:
            known = np.nan_to_num(np.where(line == np.float32(NODATA), 0, line)).astype(int)
            file.write(classes[known].tobytes())
    fields = {"band names": ["class"], **fields_of_classes([names[int(j)] for j in found])}
    write_new(files[f"{CLASSES}.hdr"], header_of(scene, "nearest spectra", "u1", 1, fields))


def nearest_two(library: Comparable, Y: np.ndarray, unit: float, most: float | None) -> np.ndarray:
    """Return number, distance and distance of the next spectrum (n, 3) for spectra in rows (n, L); 0 and −1 without a match."""
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
