"""The two maps that `compare` compares: a run's, or a raster that no run wrote."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...blocks import BlockPlan
from ...errors import InputError, OutputError
from ...io import Cube, bytes_per_line, open_cube
from ...io.cube import band_names, by_pixel, read_blocks
from ...io.formats.zarr import is_store
from ...io.window import Window
from ...library import Endmembers, load
from ...maps.map_type import decoded
from ...outputs.run_record import normalize_of
from ...runs.files.finished import FinishedRun
from ...settings.maps import MAPS, ORTHO

BLOCK_BYTES = 2**24  # of each map that are read at a time
# The option `ranges` that goes with each map.
RANGES_OF = {"abundance": "each", "fraction": "class"}
# Names of the maps that can be compared.
COMPARED = tuple(name + placed for placed in ("", ORTHO) for name, what in MAPS.items() if what.is_share)
# Suffixes of a truth's files, as `unmix synth` writes them.
MAP, SPECTRA = "_abundance", "_endmembers.csv"


@dataclass(frozen=True)
class Side:
    """One of two maps that are compared.

    Attributes
    ----------
    path : Path
        The run or file that the user named.
    cube : Cube
        The map.
    names : list of str
        The names of its bands: endmembers, or classes.
    spectra : Endmembers or None
        The spectra of the endmembers; None if they are not known, or the bands are classes.
    is_by_class : bool
        Whether the bands are classes.
    report : dict
        The record of the run; empty for a map that no run wrote.
    is_placed : bool
        Whether a lookup table placed the map, so that its lines are not those of the scene.
    first : tuple of int
        The line and sample of the map at which the compared part begins.
    ranges : Cube or None
        The run's proved ranges of these endmembers, or classes, if it has them.
    nodata : float or None
        The stored value that stands for no data, where it is not the cube's own.
    scale : float
        The divisor of stored values.
    seen : list of float
        The least and the largest value that was read so far.
    """

    path: Path
    cube: Cube
    names: list[str]
    spectra: Endmembers | None
    report: dict[str, Any]
    is_by_class: bool = False
    is_placed: bool = False
    first: tuple[int, int] = (0, 0)
    ranges: Cube | None = None
    nodata: float | None = None
    scale: float = 1.0
    seen: list[float] = field(default_factory=lambda: [np.inf, -np.inf])

    def read_as(self, nodata: float | None, scale: float) -> "Side":
        """Return the map with another value for no data and a scale, if no run wrote it; a run's knows its own."""
        return self if self.report else replace(self, nodata=nodata, scale=scale)

    def values_of(self, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the values of some lines (n, samples, bands), float64, and which pixels have values in all bands (n, samples)."""
        stored = by_pixel(raw, self.cube.interleave).astype(float)
        present = np.isfinite(stored).all(axis=2)
        nodata = self.cube.nodata if self.nodata is None else self.nodata
        if nodata is not None:
            present &= (stored != nodata).all(axis=2)
        values = stored / self.scale
        if present.any():
            some = values[present]
            self.seen[:] = [min(self.seen[0], float(some.min())), max(self.seen[1], float(some.max()))]
        return values, present

    @property
    def begins(self) -> list[int]:
        """The line and sample of the scene at which the map begins; a map that no run wrote covers the whole scene."""
        return list(self.report.get("begins", [0, 0]))

    def cut(self, lines: slice, samples: slice) -> "Side":
        """Return a part of the map, given by lines and samples of the scene."""
        line, sample = self.begins
        down = slice(lines.start - line, lines.stop - line)
        across = slice(samples.start - sample, samples.stop - sample)
        cube, *ranges = (Window(one, down, across, one.nodata) for one in (self.cube, self.ranges) if one is not None)
        return replace(self, cube=cube, first=(down.start, across.start), ranges=ranges[0] if ranges else None)


def begins_of(report: dict[str, Any]) -> list[int]:
    """Return the line and sample of the scene at which a run begins; older records have them only among the reading options."""
    if "origin" in report:
        return [int(at) for at in report["origin"]]
    reading = report.get("reading", {})
    return [int(str(reading.get(name) or "0").partition(":")[0] or 0) for name in ("lines", "samples")]


def kind_named(*paths: Path) -> str | None:
    """Return the kind of map that files are named after; None if they are named after none or several."""
    kinds = {
        name for path in paths for name in COMPARED if Path(path.name.removesuffix(".zip")).stem.endswith("_" + name)
    }
    return kinds.pop() if len(kinds) == 1 else None


def shared_part(one: Side, other: Side) -> tuple[Side, Side]:
    """Return the pixels of a scene that two maps of it share.

    Maps of one size are taken to cover the same pixels, unless both are of runs that begin at different places. Maps of other sizes are
    parts of one scene if both runs recorded the same digest of it, or if one map has the size of the whole scene of the other.

    Raises
    ------
    InputError
        Where the maps are of other sizes, or have no pixel in common.
    """
    sizes = [(side.cube.lines, side.cube.samples) for side in (one, other)]
    are_runs = bool(one.report) and bool(other.report)
    if sizes[0] == sizes[1] and (one.begins == other.begins or not are_runs):
        return one, other
    wholes = [side.report.get("whole") for side in (one, other)]
    if are_runs:
        of_one_scene = one.report["scene"] is not None and one.report["scene"] == other.report["scene"]
    else:  # one of the two is the size of the whole scene of the other
        of_one_scene = wholes[0] == list(sizes[1]) or wholes[1] == list(sizes[0])
    if not of_one_scene or one.is_placed or other.is_placed:
        raise InputError(
            f"{other.path}: has {sizes[1][0]} lines of {sizes[1][1]} samples, but {one.path} {sizes[0][0]} of {sizes[0][1]}"
            + (", and they are not known to be of one scene" if are_runs else "")
        )
    ends = [(side.begins[0] + size[0], side.begins[1] + size[1]) for side, size in zip((one, other), sizes)]
    lines, samples = (
        slice(max(one.begins[axis], other.begins[axis]), min(ends[0][axis], ends[1][axis])) for axis in (0, 1)
    )
    if lines.start >= lines.stop or samples.start >= samples.stop:
        raise InputError(
            f"{other.path}: is of another part of the scene, from line and sample {other.begins}, than {one.path}, from {one.begins}"
        )
    return one.cut(lines, samples), other.cut(lines, samples)


def side_of(path: Path, kind: str | None, likely: str | None = None) -> Side:
    """Open one of the two maps of `compare`. If ``kind`` is None, a run's is the ``likely`` one, if the run has it."""
    if path.is_dir() and not is_store(path):
        raise OutputError(f"{path}: is a folder; name a run or a map")
    try:
        run = FinishedRun.of(path)
    except OutputError as error:
        try:
            cube = decoded(open_cube(path))
        except (InputError, OSError):
            raise error from None
        spectra = cube.path.with_name(cube.path.stem.removesuffix(MAP) + SPECTRA)
        return Side(path, cube, band_names(cube), load(spectra) if spectra.exists() else None, {})
    with run.believing():
        return side_of_run(path, run, kind or (likely if likely and run.has(likely) else None))


def side_of_run(path: Path, run: FinishedRun, kind: str | None) -> Side:
    """Open a map of a run."""
    name = kind or ("abundance" if run.has("abundance") else "fraction")
    if not run.has(name):
        raise OutputError(f"{run.stem}: the run wrote no {name}")
    if name.startswith("abundance") and run.has("index"):
        raise OutputError(
            f"{run.stem}: has the largest abundances of each pixel only (`top`), which are of other endmembers each"
        )
    cube, pixels = run.open(name), run.report["pixels"]
    report = {
        "begins": begins_of(run.report),
        "whole": run.report.get("whole"),
        "scene": run.report.get("identity", {}).get("data"),
        "bands_used": list(run.report["bands_used"]),
        "normalize": normalize_of(run.report),
        "pixels": {key: int(count) for key, count in pixels.items()},
    }
    kind, is_placed = name.removesuffix(ORTHO), name.endswith(ORTHO)
    spectra = run.endmembers() if kind == "abundance" else None
    if spectra is not None and len(spectra.names) != cube.bands:
        raise ValueError(f"{cube.bands} maps of abundances, but {len(spectra.names)} endmembers")
    has_ranges = not is_placed and run.has("range") and run.report.get("asked", {}).get("ranges") == RANGES_OF[kind]
    ranges = run.open("range") if has_ranges else None
    names = run.band_names(kind, cube.bands)
    return Side(path, cube, names, spectra, report, kind == "fraction", is_placed, ranges=ranges)


def blocks_of(one: Side, other: Side) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield first line, values of both maps (n, samples, bands) float64, and which pixels of each have values (n, samples) bool."""
    cubes = one.cube, other.cube
    step = max(1, BLOCK_BYTES // max(map(bytes_per_line, cubes)), *(cube.lines_together for cube in cubes))
    blocks = BlockPlan(cubes[0].lines, step, 1)
    for (lines, a), (_, b) in zip(*(read_blocks(cube, blocks) for cube in cubes)):
        (A, in_a), (B, in_b) = one.values_of(a), other.values_of(b)
        yield lines.start, A, B, in_a, in_b
