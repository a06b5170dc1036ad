"""Compose a run's browse image: three maps as red, green and blue, clear where pixels are masked."""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import MethodError
from ..io.fields import NODATA
from .colours import colour_of
from .png import png

LONGEST_SIDE = 1024  # of a browse image, in pixels


def thinned(lines: int, samples: int, most: int = LONGEST_SIDE) -> tuple[slice, slice]:
    """Return every k-th line and sample, from the middle of the first k, so that neither side has more than ``most``."""
    step = max(1, -(-max(lines, samples) // most))
    return slice((min(step, lines) - 1) // 2, lines, step), slice((min(step, samples) - 1) // 2, samples, step)


def bands_shown(names: Sequence[str], sums: Sequence[float], rgb: str | None = None) -> list[int]:
    """Return the numbers of the bands that are shown as red, green and blue: those of ``rgb``, or with the three largest ``sums``.

    ``names`` are the endmembers or classes; ``rgb`` is one to three of them, separated by commas. `MethodError` where there is no such
    name, or there are more than three.
    """
    if rgb is None:
        order = sorted(range(len(names)), key=lambda j: -sums[j])
        return order[:3] if len(names) >= 3 else order[:1]
    wanted = [word.strip() for word in rgb.split(",")]
    for word in wanted:
        if word not in names:
            some = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
            raise MethodError(f"`rgb` {rgb}: there is no '{word}'; there are {some}")
    if len(wanted) > 3:
        raise MethodError(f"`rgb` {rgb}: name at most three, for red, green and blue")
    return [list(names).index(word) for word in wanted]


def of_shares(values: np.ndarray, masked: np.ndarray) -> bytes:
    """Return one to three maps (n, h, w) as red, green and blue, as a PNG file; pixels are clear where ``masked`` (h, w).

    0 is dark and 1 bright, and what is beyond is clipped; one map alone is grey.
    """
    n, h, w = values.shape
    image = np.zeros((h, w, 4), np.uint8)
    shares = np.round(255 * np.clip(np.nan_to_num(values), 0, 1)).astype(np.uint8)
    image[..., : 3 if n == 1 else n] = np.moveaxis(shares, 0, -1)
    image[..., 3] = 255
    image[masked] = 0
    return png(image)


def of_largest(numbers: np.ndarray, shares: np.ndarray, masked: np.ndarray) -> bytes:
    """Return the endmember with the largest share by its colour, as bright as its share; arrays (h, w); numbers count from 1."""
    colours = np.array([colour_of(j) for j in range(int(numbers.max(initial=0)) + 1)])
    bright = colours[np.maximum(numbers, 0).astype(int)] * np.clip(np.nan_to_num(shares), 0, 1)[..., None]
    image = np.concatenate([np.round(bright), np.full((*masked.shape, 1), 255.0)], axis=-1).astype(np.uint8)
    image[masked] = 0
    return png(image)


def picture(read: Callable[[str, Sequence[int]], np.ndarray], maps: Container[str], bands: Sequence[int]) -> bytes:
    """Return the picture of a run.

    ``read(name, bands)`` returns some bands of a map, (n, h, w), as thin as the picture. Of the run's ``maps`` sums by class are shown
    where there are any, and where only the largest abundances were written, these; ``bands`` as of `bands_shown`.
    """
    masked = read("rmse", [0])[0] == NODATA
    if "index" in maps:
        return of_largest(read("index", [0])[0], read("abundance", [0])[0], masked)
    shown = read("fraction" if "fraction" in maps else "abundance", bands)
    return of_shares(shown, masked | (shown == NODATA).any(axis=0))


def browse_of(maps: Mapping[str, Any], bands: Sequence[int]) -> bytes:
    """Return the browse image of a run, at most `LONGEST_SIDE` pixels wide and high: of larger scenes every k-th line and sample.

    ``maps`` are the run's, (lines, bands, samples), or what can be sliced like them; ``bands`` as of `bands_shown`.
    """
    lines, _, samples = maps["rmse"].shape
    rows, columns = thinned(lines, samples)
    return picture(lambda name, some: np.stack([maps[name][rows, b, columns] for b in some]), maps, bands)
