"""The scenes and runs that are looked at: their layers, and what is known of a pixel or a region.

Read as much of a cube as a picture shows: every k-th line and sample of a part.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import CubeError, UnmixError
from ...io import NODATA, Cube, Scene, band_names, by_pixel, bytes_per_line, cut, read_blocks, read_lines
from ...library import Endmembers
from ...pages.pictures import VIRIDIS, ramp
from ...pages.pixels import Pixel, RunModel
from ...runs.files.finished import FinishedRun
from ...scene import ReadOptions, open_scene
from ...settings.maps import MAPS

# Bytes of the lines that are read for one picture: their number is what follows.
PICTURE_BYTES = 192 * 2**20
# Pixels of a picture along its longest side.
LONGEST_SIDE = 700
# Shares of a picture's values, in percent, between which its colours are spread.
STRETCH = 2.0, 98.0
# Wavelengths, nm, that are shown as red, green and blue, and how far from these a band may be.
COLOURS, FARTHEST = (650.0, 550.0, 470.0), 60.0


class PictureArea(NamedTuple):
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


def whole_scene(cube: Cube) -> PictureArea:
    """Return all of a cube."""
    return PictureArea(0, cube.lines, 0, cube.samples)


def values_of_layer(layer: Layer, part: PictureArea) -> np.ndarray:
    """Return values (h, w, bands), float32, of every k-th line and sample of a part; NaN for pixels without values."""
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


def ends_of_picture(values: np.ndarray) -> np.ndarray:
    """Return the values between which the colours of each band are spread, (2, bands)."""
    ends = np.zeros((2, values.shape[2]))
    for b in range(values.shape[2]):
        known = values[..., b][np.isfinite(values[..., b])]
        low, high = np.percentile(known, STRETCH) if known.size else (0.0, 1.0)
        ends[:, b] = (low, high) if high > low else (low, low + 1.0)
    return ends


def coloured_picture(values: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return a picture as Bokeh draws it: uint32 (h, w), of red, green, blue and opacity from the lowest byte up."""
    shares = np.clip((values - ends[0]) / (ends[1] - ends[0]), 0.0, 1.0)
    absent = np.isnan(shares).any(axis=2)
    bytes_ = np.empty((*absent.shape, 4), np.uint8)
    levels = np.round(254 * np.nan_to_num(shares)).astype(np.uint8)
    bytes_[..., :3] = ramp(VIRIDIS)[levels[..., 0]][..., :3] if levels.shape[2] == 1 else levels
    bytes_[..., 3] = np.where(absent, 0, 255)
    return np.ascontiguousarray(bytes_).view("<u4")[..., 0]


# Values of one map that are listed for a pixel; and the map that is a spectrum and is not listed.
MOST_LISTED, SPECTRUM = 12, "residual"
# Bands of a map that are offered as layers.
MOST_LAYERS = 300
# Bytes of a region's lines that are read at a time.
BLOCK_BYTES = 2**24


@dataclass(frozen=True)
class Facts:
    """The facts about a pixel.

    Attributes
    ----------
    waves : array (L,)
        Wavelengths, nm, or numbers of bands from 1.
    spectra : dict of str to array (L,)
        The measured spectrum, and of a run the modelled one and what is left; in the unit of the scaled cube. NaN where
        a band has no value.
    rows : list of (str, str)
        The abundances, largest first, and other numbers, each with a name.
    said : str
        Why there is less.
    """

    waves: np.ndarray
    spectra: dict[str, np.ndarray]
    rows: list[tuple[str, str]] = field(default_factory=list)
    said: str = ""


class Source:
    """A scene, or a finished run with its scene where that is still there.

    Parameters
    ----------
    path : Path
        A cube, or the beginning of the names of a run's outputs.
    reading : ReadOptions
        How the cube is read; of a run it is as the run read it.
    cube : path-like, optional
        The scene of a run, where it is not where the run read it.

    Attributes
    ----------
    layers : list of Layer
        The scene in colours first, where there is one, then each band of each map, then each band of the scene.
    lines, samples : int
    said : str
        Why the pixels of a run have no model; empty where they have one.

    Raises
    ------
    CubeError, OutputError
        Where neither can be opened.
    """

    def __init__(self, path: Path, reading: ReadOptions, cube: str | os.PathLike[str] | None = None) -> None:
        self.path, self.said = path, ""
        self.run = FinishedRun.of_source(path, cube)
        self.model: RunModel | None = None
        self.scene: Scene | None = None
        self.layers = list[Layer]()
        if self.run is None:
            self.scene = open_scene(path, reading)
        else:
            self.open_run(self.run)
        if self.scene is not None:
            names = band_names(self.scene.cube)
            self.layers.insert(0, Layer("scene", self.scene.cube, colours_of(self.scene), self.scene.nodata))
            some = self.scene.bands.index[:MOST_LAYERS]
            self.layers += [
                Layer(f"band {b + 1}: {names[b]}", self.scene.cube, (int(b),), self.scene.nodata) for b in some
            ]
        first = self.layers[0].cube
        self.lines, self.samples = first.lines, first.samples

    def open_run(self, run: FinishedRun) -> None:
        """Open the maps of a run and, if it is still there, its scene."""
        with run.believing():
            try:
                self.model = RunModel(run)
                self.scene = self.model.scene.unchanged()
            except (UnmixError, ValueError, OSError) as error:
                self.said = f"no models of pixels: {error}"
                self.scene = scene_of(run)
            for name in MAPS:
                if run.has(name):
                    cube = run.open(name)
                    names = band_names(cube) if cube.bands > 1 else [""]
                    self.layers += [
                        Layer(f"{name}: {band}" if band else name, cube, (b,), cube.nodata)
                        for b, band in enumerate(names[:MOST_LAYERS])
                    ]
        if not self.layers:
            raise CubeError(f"{run.stem}: the run left no map")

    @property
    def waves(self) -> np.ndarray:
        """The wavelengths of the scene's bands in use, nm, or their numbers, (L,); empty without a scene."""
        if self.scene is None:
            return np.zeros(0)
        waves = self.scene.wavelengths
        return self.scene.bands.index + 1.0 if waves is None else waves

    def facts(self, line: int, sample: int) -> Facts:
        """Return what is known of a pixel; where a file cannot be read, why."""
        try:
            return self.read_facts(line, sample)
        except (UnmixError, OSError) as error:
            return Facts(self.waves, {}, [], str(error))

    def read_facts(self, line: int, sample: int) -> Facts:
        """Return what is known of a pixel; `UnmixError` or `OSError` where a file cannot be read."""
        rows = self.values_at(line, sample) if self.run is not None else []
        if self.scene is None:
            return Facts(self.waves, {}, rows, self.said)
        raw = read_lines(self.scene.cube, slice(line, line + 1))
        measured = np.where(self.scene.missing(raw, each=True), np.nan, self.scene.spectra(raw))[sample]
        spectra, said = {"measured": measured}, self.said
        if self.model is not None:
            try:
                _, modelled, _ = self.model.of(Pixel("", line, sample))
                spectra |= {"modelled": modelled, "residual": measured - modelled}
            except (ValueError, UnmixError) as error:
                said = str(error)
        return Facts(self.waves, spectra, rows, said)

    def values_at(self, line: int, sample: int) -> list[tuple[str, str]]:
        """Return the values of all maps at a pixel, abundances first and by size, in words."""
        found = list[tuple[str, str]]()
        cubes = {
            layer.name.partition(":")[0]: layer.cube for layer in self.layers if not layer.name.startswith("band ")
        }
        for name, cube in cubes.items():
            if name in ("scene", SPECTRUM):
                continue
            values = by_pixel(read_lines(cube, slice(line, line + 1)), cube.interleave)[0, sample]
            if np.all(values == (NODATA if cube.nodata is None else cube.nodata)):
                continue
            names = band_names(cube) if cube.bands > 1 else [name]
            order = np.argsort(-np.abs(values)) if MAPS[name].is_share else np.arange(len(values))
            title = "" if cube.bands == 1 or name == "abundance" else f"{name} "
            found += [(f"{title}{names[b]}", f"{values[b]:.4g}") for b in order[:MOST_LISTED]]
        return found

    def mean_of(self, across: np.ndarray, down: np.ndarray) -> tuple[np.ndarray, int]:
        """Return the mean spectrum (L,) of pixels with centres in a polygon, NaN without any, and their number."""
        if self.scene is None:
            raise CubeError(self.said)
        cube = self.scene.cube
        # Corners, (n,), are in samples and lines from the upper left corner of the scene.
        top, bottom = (int(np.clip(edge, 0, cube.lines)) for edge in (np.floor(down.min()), np.ceil(down.max())))
        total, count = np.zeros(len(self.waves)), 0
        for lines, raw in (
            read_blocks(cube, cut(cube, BLOCK_BYTES, slice(top, max(bottom, top + 1)))) if bottom > top else ()
        ):
            inside = inside_polygon(
                np.arange(cube.samples) + 0.5, np.arange(lines.start, lines.stop) + 0.5, across, down
            )
            taken = inside.ravel() & ~self.scene.missing(raw)
            total += self.scene.spectra(raw)[taken].sum(axis=0)
            count += int(taken.sum())
        return (total / count if count else np.full(len(total), np.nan)), count

    def as_library(self, names: list[str], spectra: list[np.ndarray]) -> Endmembers:
        """Return spectra of the scene, (L,) each, as a library."""
        waves = None if self.scene is None else self.scene.wavelengths
        return Endmembers(tuple(names), np.column_stack(spectra), waves, source=str(self.path))


def scene_of(run: FinishedRun) -> Scene | None:
    """Return the scene of a run whose pixels have no model, if it is still there and as it was."""
    try:
        path = run.input()
        scene = open_scene(path, run.reading(path))
    except (UnmixError, OSError):
        return None
    return scene.unchanged() if run.is_of(scene.cube) else None


def inside_polygon(x: np.ndarray, y: np.ndarray, across: np.ndarray, down: np.ndarray) -> np.ndarray:
    """Return which points of a grid are inside a polygon by the rule of even and odd; bool (len(y), len(x))."""
    inside = np.zeros((len(y), len(x)), bool)
    for x0, y0, x1, y1 in zip(across, down, np.roll(across, -1), np.roll(down, -1)):
        crosses = (y0 > y) != (y1 > y)
        with np.errstate(divide="ignore", invalid="ignore"):
            at = x0 + (y - y0) * (x1 - x0) / (y1 - y0)
        inside ^= crosses[:, None] & (x < np.where(crosses, at, 0.0)[:, None])
    return inside
