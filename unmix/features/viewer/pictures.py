"""Read as much of a cube as a picture shows: every k-th line and sample of a part."""

from typing import NamedTuple

import numpy as np

from ...io import Cube, Scene, bytes_per_line, read_lines
from ...io.cube import by_pixel
from ...pages.colours import VIRIDIS, ramp

# Bytes of the lines that are read for one picture: their number is what follows.
PICTURE_BYTES = 192 * 2**20
# Pixels of a picture along its longest side.
LONGEST_SIDE = 700
# Shares of a picture's values, in percent, between which its colours are spread.
STRETCH = 2.0, 98.0
# Wavelengths, nm, that are shown as red, green and blue, and how far from these a band may be.
COLOURS, FARTHEST = (650.0, 550.0, 470.0), 60.0


class Part(NamedTuple):
    """Lines and samples of a scene, first and end of each."""

    top: int
    bottom: int
    left: int
    right: int


class Layer(NamedTuple):
    """The bands of a cube that a picture shows: one in colours of a ramp, or three as red, green and blue."""

    name: str
    cube: Cube
    bands: tuple[int, ...]
    nodata: float | None  # as stored, in force


def colours_of(scene: Scene) -> tuple[int, ...]:
    """Return the bands of the cube that are shown as red, green and blue, or one where it has fewer than three."""
    used, waves = scene.bands.index, scene.wavelengths
    if len(used) < 3:
        return (int(used[0]),)
    if waves is not None:
        near = [int(np.abs(waves - wave).argmin()) for wave in COLOURS]
        if all(abs(waves[b] - wave) <= FARTHEST for b, wave in zip(near, COLOURS)):
            return tuple(int(used[b]) for b in near)
    return tuple(int(used[round(share * (len(used) - 1))]) for share in (0.75, 0.5, 0.25))


def whole(cube: Cube) -> Part:
    """Return all of a cube."""
    return Part(0, cube.lines, 0, cube.samples)


def values_of(layer: Layer, part: Part) -> np.ndarray:
    """Return the values of every k-th line and sample of a part, (h, w, bands) float32; NaN where there is none."""
    cube = layer.cube
    most_lines = max(1, min(LONGEST_SIDE, PICTURE_BYTES // bytes_per_line(cube)))
    rows = np.arange(part.top, part.bottom)[:: max(1, -(-(part.bottom - part.top) // most_lines))]
    columns = slice(part.left, part.right, max(1, -(-(part.right - part.left) // LONGEST_SIDE)))
    picture = np.empty((len(rows), len(range(*columns.indices(cube.samples))), len(layer.bands)), np.float32)
    together = cube.lines_together
    for block in np.unique(rows // together):  # lines that are stored in one piece are read once
        places = np.flatnonzero(rows // together == block)
        first = int(rows[places[0]])
        raw = by_pixel(read_lines(cube, slice(first, int(rows[places[-1]]) + 1)), cube.interleave)
        picture[places] = raw[rows[places] - first, columns][..., list(layer.bands)]
    absent = ~np.isfinite(picture)
    if layer.nodata is not None:
        absent |= picture == np.float32(layer.nodata)
    picture[absent] = np.nan
    return picture


def ends_of(values: np.ndarray) -> np.ndarray:
    """Return the values between which the colours of each band are spread, (2, bands)."""
    ends = np.zeros((2, values.shape[2]))
    for b in range(values.shape[2]):
        known = values[..., b][np.isfinite(values[..., b])]
        low, high = np.percentile(known, STRETCH) if known.size else (0.0, 1.0)
        ends[:, b] = (low, high) if high > low else (low, low + 1.0)
    return ends


def coloured(values: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return a picture as Bokeh draws it: uint32 (h, w), of red, green, blue and opacity from the lowest byte up."""
    shares = np.clip((values - ends[0]) / (ends[1] - ends[0]), 0.0, 1.0)
    absent = np.isnan(shares).any(axis=2)
    bytes_ = np.empty((*absent.shape, 4), np.uint8)
    levels = np.round(254 * np.nan_to_num(shares)).astype(np.uint8)
    bytes_[..., :3] = ramp(VIRIDIS)[levels[..., 0]][..., :3] if levels.shape[2] == 1 else levels
    bytes_[..., 3] = np.where(absent, 0, 255)
    return np.ascontiguousarray(bytes_).view("<u4")[..., 0]
