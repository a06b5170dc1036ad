"""Which bands of a cube are used, by their numbers, their wavelengths and the windows that tie them."""

import logging

import numpy as np

from ..errors import CubeError, MethodError
from ..io import Bands, Cube, counted

log = logging.getLogger("unmix")

# Where water vapour absorbs all light, in nm.
WATER = "1310-1490,1770-2050"


def choose_bands(
    cube: Cube, which: str, scale: float | None, ignore_nm: str | None = None, only_nm: str | None = None,
    offset: float | None = None,
) -> Bands:  # fmt: skip
    """Choose the bands in use, with their gains and offsets; see `ReadOptions` for the arguments.

    Raises
    ------
    MethodError
        If a list of bands is malformed or does not fit the cube, ``ignore_nm`` or ``only_nm`` leaves no band, the scale is not
        above 0, or the offset is not finite.
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
            log.warning(f"{option} {low:g}-{high:g}: no band of {cube.path} is in this range ({cube.wavelengths.min():g} to "
                        f"{cube.wavelengths.max():g} nm)")  # fmt: skip
        found |= inside
    return found


def first_bands(cube: Cube, bands: Bands, text: str) -> np.ndarray:
    """Return for each band in use the place, among these, of the first band of its window; −1 outside of all windows; array (L,).

    Raises
    ------
    MethodError
        Where the cube has no wavelengths, or a window is malformed, has fewer than two bands in use, or shares one with another.
    """
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
