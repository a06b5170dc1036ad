"""Build a library from a scene: the spectra of pixels that a table names, or of regions in a raster or of polygons."""

import contextlib
import json
import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CubeError, LibraryError, MethodError, brief
from ..io import (
    Cube,
    Scene,
    begin_within,
    by_pixel,
    counted,
    cut,
    located,
    open_cube,
    origin_of,
    parted,
    read_blocks,
    read_lines,
)
from ..io.formats.header import read_small, words
from ..io.polygons import LONGITUDE_LATITUDE, pixels_inside
from ..io.systems import self_contained
from ..io.vectors import features_by_gdal, start_of
from ..library import Endmembers
from ..library.spectra import make
from ..library.table import cells_of
from ..problem import some_of

log = logging.getLogger("unmix")
# Spectra of a library, unless fewer are asked for.
MOST_SPECTRA = 10_000
# Features that pixels are found by.
SHAPES = ("Polygon", "MultiPolygon", "Point", "MultiPoint")
# The column, or property, with a class where none is named.
CLASS = "class"
# Bytes of a table or of polygons.
LONGEST_FILE = 64 * 2**20


@dataclass(frozen=True)
class Regions:
    """Pixels of a scene by class: ``numbers`` (lines, samples), int32, of their regions; and the regions' classes.

    Regions count from 1, 0 is none; lines and samples are of the part of the scene that is read.
    """

    numbers: np.ndarray
    classes: tuple[str, ...]


def read_file(path: Path) -> bytes:
    """Return the content of a small file; `LibraryError` where it cannot be read."""
    try:
        return read_small(path, LONGEST_FILE)
    except CubeError as error:
        raise LibraryError(str(error)) from None


def pixels_of_table(path: Path, scene: Cube, column: str) -> Regions:
    """Return the pixels of a CSV table of line, sample (from 0, in the whole scene) and their class, ``column``."""
    rows = cells_of(path, read_file(path), ("line", "sample", column), "a table of pixels")
    numbers = np.zeros((scene.lines, scene.samples), np.int32)
    first_line, first_sample = origin_of(scene)
    kinds: dict[str, int] = {}
    for r, cells in rows:
        if not all(cell.isascii() and cell.isdigit() and len(cell) < 10 for cell in cells[:2]):
            raise LibraryError(
                f"{path}: row {r}: line and sample are whole numbers from 0, not '{cells[0]}', '{cells[1]}'"
            )
        line, sample = int(cells[0]) - first_line, int(cells[1]) - first_sample
        if not (0 <= line < scene.lines and 0 <= sample < scene.samples):
            raise LibraryError(
                f"{path}: row {r}: line {cells[0]}, sample {cells[1]} is outside of what is read of {scene.path}"
            )
        kind = kinds.setdefault(cells[2] or "none", len(kinds) + 1)
        if numbers[line, sample] not in (0, kind):
            raise LibraryError(f"{path}: row {r}: line {cells[0]}, sample {cells[1]} has another class in a row before")
        numbers[line, sample] = kind
    return Regions(numbers, tuple(kinds))


def regions_of_raster(path: Path, scene: Cube, _: str) -> Regions:
    """Return the classes of a raster of whole numbers, of the scene's size or its part's; 0 and nodata are none."""
    raster = open_cube(path)
    if raster.bands > 1:
        raise CubeError(f"{path}: has {raster.bands} bands; a raster of classes has one")
    first_line, first_sample = begin_within(raster, scene, "raster of classes")
    numbers = np.zeros((scene.lines, scene.samples), np.int32)
    for line in range(scene.lines):
        at = line + first_line
        raw = read_lines(raster, slice(at, at + 1))
        values = by_pixel(raw, raster.interleave)[0, first_sample : first_sample + scene.samples, 0].astype(float)
        values = np.where(np.isfinite(values) & (values != raster.nodata), values, 0)
        if np.any((values != np.round(values)) | (values < 0) | (values > 65535)):
            raise CubeError(f"{path}: line {at}: classes are whole numbers from 0 to 65535")
        numbers[line] = values
    # Names are those of an ENVI Classification, with classes without a pixel last; else ``class 1`` and so on.
    names = words(raster.fields, "class names") or []
    present = [int(number) for number in np.unique(numbers) if number]
    dense = np.searchsorted(present, numbers) + 1 if present else numbers
    classes = [names[number] if number < len(names) else f"class {number}" for number in present]
    classes += [name for name in names[1:] if name not in classes]
    return Regions(np.where(numbers > 0, dense, 0).astype(np.int32), tuple(classes))


def shapes_of(
    path: Path, columns: Sequence[str | None], kinds: tuple[str, ...] = SHAPES
) -> tuple[list[tuple[Any, tuple[str, ...]]], str]:
    """Return a file's geometries (of shapely) with their properties ``columns``, and its coordinate system."""
    # A GeoJSON, or a file that GDAL reads, ``FILE:LAYER`` if it has several layers; ``kinds`` are the types wanted.
    path, layer = parted(path)
    raw = read_file(path)
    if start_of(raw) is not None:
        every, system = features_by_gdal(path, raw, layer, LONGEST_FILE)
    elif layer:
        raise LibraryError(f"{path}: is no file of layers, so it has no '{layer}'")
    else:
        every, system = features_of_geojson(path, raw)
    shapes = [(shape, own) for shape, own in every if shape and shape.geom_type in kinds]
    wanted = "polygons or points" if "Point" in kinds else "polygons"
    if not shapes:
        raise LibraryError(f"{path}: has no {wanted}")
    if len(shapes) < len(every):
        log.warning(f"{path}: {counted(len(every) - len(shapes), 'feature')} left out, for they are no {wanted}")
    names = zip(*(column_of(path, [own for _, own in shapes], column) for column in columns))
    return [(shape, name) for (shape, _), name in zip(shapes, names)], system


def features_of_geojson(path: Path, raw: bytes) -> tuple[list[tuple[Any, dict[str, Any]]], str]:
    """Return the geometries of a GeoJSON with all their properties, and its coordinate system."""
    try:
        from shapely.geometry import shape
    except ImportError:
        raise CubeError(f"{path}: polygons need shapely: pip install 'unmix[geo]'") from None
    every, features = list[tuple[Any, dict[str, Any]]](), list[Any]()
    try:
        document = json.loads(raw)
        features = document["features"] if document["type"] == "FeatureCollection" else [document]
        for feature in features:
            made = shape(feature["geometry"]) if feature["geometry"] else None
            every.append((made, dict(feature.get("properties") or {})))
    except Exception as error:  # whatever shapely raises for coordinates that are none
        at = f" (feature {len(every) + 1})" if features else ""
        to = "; ogr2ogr makes a GeoPackage of KML and GML" if raw.lstrip()[:1] == b"<" else ""
        raise LibraryError(f"{path}: is no GeoJSON of features: {brief(error)}{at}{to}") from None
    crs = document.get("crs") or {"properties": {"name": LONGITUDE_LATITUDE}}
    with contextlib.suppress(KeyError, TypeError):
        crs = crs["properties"]["name"]
    if not (system := self_contained(crs if isinstance(crs, str) else "")):
        raise LibraryError(
            f"{path}: names its coordinate system (crs) '{str(crs)[:80]}', which is not asked for; name a code, such "
            "as EPSG:32633"
        )
    return every, system


def column_of(path: Path, properties: list[dict[str, Any]], column: str | None) -> list[str]:
    """Return the property ``column`` of each feature, in any case, or else a likely one or numbers."""
    # Without such a property: the only one that all have; by default (`CLASS` or None), the only text; if None, the
    # only text that differs from feature to feature, else numbers. If one was named: `LibraryError`.
    known = list(dict.fromkeys(key for own in properties for key in own))
    whole = [key for key in known if all(own.get(key) is not None for own in properties)]
    if column in whole:
        return [str(own[column]) for own in properties]
    alike = [key for key in whole if key.lower() == (column or "").lower()]
    texts = [key for key in whole if column in (None, CLASS) and all(isinstance(own[key], str) for own in properties)]
    names = [key for key in texts if column is None and len({own[key] for own in properties}) == len(properties)]
    found = next((some[0] for some in (alike, whole, texts, names) if len(some) == 1 and column not in known), None)
    if column is not None and found is None:
        raise LibraryError(
            f"{path}: a feature has no property '{column}' (`column`); it has {', '.join(known) or 'none'}"
        )
    others = f"; `column` may be {some_of(known)}" if known else ""
    said = "numbered from 1" + others if found is None else f"named by '{found}'"
    log.log(logging.INFO if found else logging.WARNING, f"{path}: features are {said}")
    return [str(n if found is None else own[found]) for n, own in enumerate(properties, 1)]


def regions_of_polygons(path: Path, scene: Cube, column: str) -> Regions:
    """Return the pixels whose centres are in a file's polygons, or that hold its points; ``column`` is the class."""
    shapes, system = shapes_of(path, [column])
    kinds: dict[str, int] = {}
    numbers = [kinds.setdefault(name, len(kinds) + 1) for _, (name,) in shapes]
    return Regions(pixels_inside([shape for shape, _ in shapes], numbers, system, scene), tuple(kinds))


# Readers of pixels, by the options of the command.
SOURCES = {"pixels": pixels_of_table, "raster": regions_of_raster, "polygons": regions_of_polygons}


def build_library(
    scene: Scene,
    kind: str,
    path: str | os.PathLike[str],
    *,
    column: str = CLASS,
    mean: bool = False,
    most: int | None = None,
    deviation: bool = False,
) -> tuple[list[Endmembers], dict[str, int]]:
    """Return libraries of the chosen pixels, or of classes' means and deviations (n − 1), and the pixels by class."""
    # ``kind`` of file: pixels, a CSV table; raster, of classes; or polygons, GeoJSON. ``most`` pixels of each class are
    # evenly spread over it, line by line.
    regions = SOURCES[kind](located(path), scene.cube, column)
    numbers, left_out = regions.numbers.copy(), 0
    for line, samples, _, masked in lines_of(scene, numbers > 0):
        left_out += int(masked.sum())
        numbers[line, samples[masked]] = 0
    if left_out:
        log.warning(f"{path}: {counted(left_out, 'pixel')} without a value in every band left out")
    counts = np.bincount(numbers.ravel(), minlength=len(regions.classes) + 1)[1:]
    empty = [name for name, count in zip(regions.classes, counts) if count == 0]
    if empty and counts.any():
        log.warning(f"{path}: no pixel with values is of {some_of(empty)}")
    chosen = numbers > 0
    if most is not None:
        ordered = (
            np.argsort(numbers, axis=None, kind="stable")[-int(counts.sum()) :] if counts.any() else np.zeros(0, int)
        )
        chosen = np.zeros(numbers.shape, bool)
        for inside in np.split(ordered, np.cumsum(counts)[:-1]):
            few = np.linspace(0, len(inside) - 1, min(most, len(inside))).round().astype(int)
            chosen.ravel()[inside[few]] = True
    by_class = mean or deviation
    if not by_class and chosen.sum() > MOST_SPECTRA:
        raise MethodError(f"{path}: {chosen.sum()} pixels are more than {MOST_SPECTRA} spectra; use `mean` or `most`")
    total, count = np.zeros((2, len(regions.classes), len(scene.bands.index))), np.zeros(len(regions.classes), np.int64)
    rows, places = [], []
    for line, samples, Y, _ in lines_of(scene, chosen):
        if by_class:
            for sums, values in zip(total, (Y, np.square(Y))):
                np.add.at(sums, regions.numbers[line, samples] - 1, values)
            np.add.at(count, regions.numbers[line, samples] - 1, 1)
        else:
            rows.append(Y)
            places += [(line, int(sample)) for sample in samples]
    first, source, waves, fwhm = origin_of(scene.cube), Path(scene.cube.path), scene.wavelengths, scene.fwhm
    if not (count.any() if by_class else places):
        raise LibraryError(f"{path}: names no pixel of {source} that has values")
    if by_class:
        kept = np.flatnonzero(count)
        kinds, n = [regions.classes[c] for c in kept], count[kept, None]
        means = total[0, kept] / n
        spread = np.sqrt(np.maximum(total[1, kept] - n * np.square(means), 0.0) / np.maximum(n - 1, 1))
        asked = [spectra for spectra, is_asked in ((means, mean), (spread, deviation)) if is_asked]
        of_kinds = Counter[str]()
        for kind, number in zip(kinds, count[kept].tolist()):
            of_kinds[kind] += number
        return [make(kinds, spectra.T, waves, source, None, kinds, fwhm) for spectra in asked], dict(of_kinds)
    order = sorted(range(len(places)), key=lambda n: (regions.numbers[places[n]], places[n]))
    kinds = [regions.classes[regions.numbers[places[n]] - 1] for n in order]
    pixels = tuple((places[n][0] + first[0], places[n][1] + first[1]) for n in order)
    names = [f"{kind} {line}_{sample}" for kind, (line, sample) in zip(kinds, pixels)]
    library = make(names, np.concatenate(rows)[order].T, waves, source, pixels, kinds, fwhm)
    return [library], dict(Counter(kinds))


def lines_of(scene: Scene, chosen: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield for each line with chosen pixels its number, their samples, spectra (n, L), and which are masked."""
    for lines, raw in read_blocks(scene.cube, (lines for lines in cut(scene.cube) if chosen[lines].any())):
        for at, line in enumerate(range(lines.start, lines.stop)):
            samples = np.flatnonzero(chosen[line])
            if len(samples):
                one = raw[:, at : at + 1] if scene.cube.interleave == "bsq" else raw[at : at + 1]
                Y, masked = scene.spectra(one), scene.missing(one)
                yield line, samples, Y[samples], masked[samples]
