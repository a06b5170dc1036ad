"""Choose the bands, lines and samples to read: by numbers, wavelengths, windows that tie bands, or a box on the map."""

import logging
from collections import Counter
from typing import Any

import numpy as np

from ..errors import CubeError, MethodError
from ..io import Bands, Cube, Window, counted, cut
from ..io.formats.header import centres_of, geotransform
from ..io.window import PIECE

log = logging.getLogger("unmix")

# Where water vapour absorbs all light, in nm.
WATER = "1310-1490,1770-2050"


def choose_bands(
    cube: Cube,
    which: str,
    scale: float | None,
    ignore_nm: str | None = None,
    only_nm: str | None = None,
    offset: float | None = None,
) -> Bands:
    """Choose the bands in use, with their gains and offsets; see `ReadOptions` for the arguments."""
    if which == "good":
        index = np.arange(cube.bands) if cube.good_bands is None else np.flatnonzero(cube.good_bands)
        if len(index) == 0:
            raise CubeError(
                f"{cube.path}: the header's bad band list (bbl) marks no band as good; set `bands` to all to use them "
                "anyway"
            )
    elif which == "all":
        index = np.arange(cube.bands)
    else:
        index = parse_bands(which, cube.bands)
    for option, text in (("`only_nm`", only_nm), ("`ignore_nm`", ignore_nm)):
        if text is not None:
            index = index[within(cube, option, text)[index] == (option == "`only_nm`")]
            if len(index) == 0:
                raise MethodError(f"{option} {text}: leaves no band")
    gain = np.ones(cube.bands) if cube.gain is None else cube.gain
    offsets = np.zeros(cube.bands) if cube.offset is None else cube.offset
    if scale is not None:
        if not (np.isfinite(scale) and scale > 0 and np.isfinite(1.0 / scale)):
            raise MethodError(f"`scale` {scale} must be above 0; stored values are divided by it")
        gain, offsets = np.full(cube.bands, 1.0 / scale), np.zeros(cube.bands)
    if offset is not None:
        if not np.isfinite(offset):
            raise MethodError(f"`offset` {offset} must be finite; it is added to the values that `scale` divides")
        offsets = np.full(cube.bands, float(offset))
    return Bands(
        index.astype(np.int64), np.ascontiguousarray(gain[index], float), np.ascontiguousarray(offsets[index], float)
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


def within(cube: Cube, option: str, text: str) -> np.ndarray:
    """Return the mask of bands whose centre is in one of the ranges ``A-B,…`` in nm; bool array (bands,)."""
    if cube.wavelengths is None:
        raise MethodError(f"{option}: {cube.path} has no wavelengths; use `bands`")
    found = np.zeros(cube.bands, bool)
    water = windows_of(option, WATER)
    has_water = option == "`ignore_nm`"
    parts = (WATER if has_water and part.strip().lower() == "water" else part for part in text.split(","))
    for low, high in windows_of(option, ",".join(parts)):
        inside = (cube.wavelengths >= low) & (cube.wavelengths <= high)
        if not inside.any() and (low, high) not in water:
            log.warning(
                f"{option} {low:g}-{high:g}: no band of {cube.path} is in this range ({cube.wavelengths.min():g} to "
                f"{cube.wavelengths.max():g} nm)"
            )
        found |= inside
    return found


def first_bands(cube: Cube, bands: Bands, text: str) -> np.ndarray:
    """Return, for each band in use (L,), the index of its window's first band; −1 for these and outside of windows."""
    first = np.full(len(bands.index), -1)
    if cube.wavelengths is None:
        raise MethodError(f"`tie`: {cube.path} has no wavelengths")
    waves = cube.wavelengths[bands.index]
    for low, high in windows_of("`tie`", text):
        inside = np.flatnonzero((waves >= low) & (waves <= high))
        if len(inside) < 2:
            raise MethodError(
                f"`tie` {low:g}-{high:g}: {counted(len(inside), 'band')} in use in this window; it needs two"
            )
        if (first[inside] >= 0).any():
            raise MethodError(f"`tie` {low:g}-{high:g}: shares bands with another window")
        first[inside] = inside[np.argmin(waves[inside])]
    place = np.arange(len(first))
    return np.where(first == place, -1, first)


def windows_of(option: str, text: str) -> list[tuple[float, float]]:
    """Return the ranges of ``A-B,…`` in nm; `MethodError` if it is malformed."""
    windows = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            low, high = float(first), float(last)
        except ValueError:
            low, high = np.nan, np.nan
        if not (dash and 0 <= low <= high < np.inf):
            water = "water, or " if option == "`ignore_nm`" else ""
            raise MethodError(f"{option} '{text}': write {water}ranges in nm such as 1350-1420,1800-1950")
        windows.append((low, high))
    return windows


# Lines of a lookup table that are read at a time.
TABLE_LINES = 1024
# Most values of a mask whose pixels are counted: those of a legend, not numbers of regions.
MOST_VALUES = 12


def part_of(cube: Cube, lines: str | None, samples: str | None, bbox: str | None) -> tuple[slice, slice]:
    """Return the lines and samples to read, by ``lines`` and ``samples`` or by ``bbox`` (`unmix.scene.ReadOptions`)."""
    if bbox is None:
        return parse_range("`lines`", lines, cube.lines), parse_range("`samples`", samples, cube.samples)
    if lines is not None or samples is not None:
        raise MethodError("`bbox` contradicts `lines` and `samples`")
    return in_box(cube, bbox)


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


def in_box(cube: Cube, text: str) -> tuple[slice, slice]:
    """Return the lines and samples around all pixels whose centres are in the box ``W,S,E,N``, in map units."""
    west, south, east, north = box_of(text)
    fields = cube.fields if cube.placement is None else cube.placement.fields
    transform = geotransform(fields.get("map info", ""))
    if transform is None:
        raise MethodError(f"`bbox`: {cube.path} has no place on a map; use `lines` and `samples`")
    rows, columns = (cube.lines, cube.samples) if cube.placement is None else cube.placement.shape
    axes = centres_of(transform, rows, columns) if cube.placement is None else None
    if axes is not None:  # 0.4 s in place of 2 to 4 for 50 million pixels
        y, x = axes
        down, across = np.flatnonzero((y >= south) & (y <= north)), np.flatnonzero((x >= west) & (x <= east))
        is_there = len(down) and len(across)
        corners = [np.array([down[at], across[at]]) for at in (0, -1)] if is_there else []
    else:
        corners = corners_of(cube, transform, (rows, columns), (west, south, east, north))
    if not len(corners):
        raise MethodError(f"`bbox` {text}: no pixel is in it; {extent_of(transform, rows, columns)}")
    (first_line, first_sample), (last_line, last_sample) = np.min(corners, axis=0), np.max(corners, axis=0)
    return slice(int(first_line), int(last_line) + 1), slice(int(first_sample), int(last_sample) + 1)


def corners_of(
    cube: Cube, transform: tuple[float, ...], size: tuple[int, int], box: tuple[float, float, float, float]
) -> list[np.ndarray]:
    """Return least and largest line and sample of the pixels in a box, for some rows of the map after the other."""
    (rows, columns), (west, south, east, north) = size, box
    x0, x_column, x_row, y0, y_column, y_row = transform
    found: list[np.ndarray] = []
    for first in range(0, rows, TABLE_LINES):
        row, column = np.mgrid[first : min(first + TABLE_LINES, rows), :columns]
        x = x0 + x_column * (column + 0.5) + x_row * (row + 0.5)
        y = y0 + y_column * (column + 0.5) + y_row * (row + 0.5)
        is_in = (x >= west) & (x <= east) & (y >= south) & (y <= north)
        if cube.placement is not None and is_in.any():
            part = slice(first, min(first + TABLE_LINES, rows))
            row, column, has_pixel = cube.placement.look_up(part, cube.lines, cube.samples)
            is_in &= has_pixel
        if is_in.any():
            places = np.stack([row[is_in], column[is_in]], axis=1)
            found += [places.min(axis=0), places.max(axis=0)]
    return found


def box_of(text: str) -> tuple[float, float, float, float]:
    """Return ``W,S,E,N`` as numbers; `MethodError` where it is malformed."""
    try:
        west, south, east, north = (float(word) for word in text.split(","))
    except ValueError:
        west = south = east = north = np.nan
    if not (west <= east and south <= north and all(map(np.isfinite, (west, south, east, north)))):
        raise MethodError(
            f"`bbox` {text}: write W,S,E,N in the units of the map, west below east and south below north"
        )
    return west, south, east, north


def extent_of(transform: tuple[float, ...], rows: int, columns: int) -> str:
    """Return where a map lies, for a message."""
    x0, x_column, x_row, y0, y_column, y_row = transform
    x = [x0 + x_column * column + x_row * row for row in (0, rows) for column in (0, columns)]
    y = [y0 + y_column * column + y_row * row for row in (0, rows) for column in (0, columns)]
    return f"the map is from {min(x):.10g},{min(y):.10g} to {max(x):.10g},{max(y):.10g}"


def values_of_masks(part: Window) -> list[dict[str, Any]]:
    """Return file and option of each mask of whole numbers, and its pixels by value; of many values some."""
    counts = [Counter[int]() for _ in part.masks]
    for lines in cut(part, PIECE):
        for mask, (line, sample), count in zip(part.masks, part.begins, counts):
            if mask.cube.dtype.kind != "f" and len(count) <= MOST_VALUES:
                values = mask.values(slice(lines.start + line, lines.stop + line), slice(sample, sample + part.samples))
                count.update(dict(zip(*(each.tolist() for each in np.unique(values, return_counts=True)))))
    return [
        {
            "file": mask.cube.path.name,
            "option": mask.option,
            "values": {str(value): count[value] for value in sorted(count)},
        }
        for mask, count in zip(part.masks, counts)
        if count
    ]
