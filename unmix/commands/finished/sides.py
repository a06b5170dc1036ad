"""The two maps that `compare` compares: a run's, or a raster that no run wrote."""

import contextlib
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError, LibraryError, MethodError, OutputError, brief, say_once
from ...features.runs import own_maps
from ...io import (
    Cube,
    Mask,
    Window,
    as_stored,
    band_names,
    both_places,
    by_pixel,
    bytes_per_line,
    is_one_system,
    open_cube,
    read_lines,
    read_small,
    refuse_elsewhere,
)
from ...io.formats.header import words
from ...io.formats.matlab import open_matlab
from ...io.formats.zarr import is_store
from ...library import Endmembers, load
from ...library.table import read_rows
from ...maps.raster import decoded_values
from ...outputs.names import normalize_of
from ...runs.files.finished import FinishedRun
from ...scene import open_mask
from ...settings.maps import MAPS, ORTHO
from .array_maps import is_array, open_array_map, tables_in
from .grids import LEAST_COVERED, LEAST_OVERLAP, Averages, averages, is_one_grid, pixel_area

log = logging.getLogger("unmix")
# Bytes of a table with the names of classes.
LONGEST_LEGEND = 2**20
# Maps whose bands are named in the record.
NAMED = ("abundance", "fraction")
# Names of the maps that can be compared.
COMPARED = tuple(name + placed for placed in ("", ORTHO) for name, what in MAPS.items() if what.is_share)
# Maps of one band of values, which can be compared where they are named.
OF_ONE_BAND = tuple(
    name + placed
    for placed in ("", ORTHO)
    for name, what in MAPS.items()
    if len(what.bands) == 1 and not what.names_things
)
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
    sigma : Cube or None
        The run's standard deviations of the same, if it has them.
    nodata : float or None
        The stored value that stands for no data, where it is not the cube's own.
    scale : float
        The divisor of stored values.
    offset : float
        The number added to them after that.
    sums : array (bands, classes) or None
        1 where a band of the map is of a class, whose bands are added up; float64.
    grid : Averages or None
        How the map is averaged onto the pixels of the other.
    mask : Mask or None
        A raster of the map's size, by which pixels are left out; averaged pixels are, where it keeps less than
        half.
    codes : array (bands,) or None
        Of a raster of classes, the number of each class; its bands are 1 where a pixel is of the class, and 0
        elsewhere.
    whole : Side or None
        The map that this one is a part of.
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
    sigma: Cube | None = None
    nodata: float | None = None
    scale: float = 1.0
    offset: float = 0.0
    sums: np.ndarray | None = None
    grid: Averages | None = None
    mask: Mask | None = None
    codes: np.ndarray | None = None
    whole: "Side | None" = None

    def read_as(self, nodata: float | None, scale: float, offset: float) -> "Side":
        """Return the map with another nodata value, scale and offset; a run's map knows its own and is unchanged."""
        if self.report:
            return self
        problems = list[str]()
        stored = as_stored(nodata, self.cube.dtype, "`nodata`", problems)
        for problem in problems:
            log.warning(problem)
        return replace(self, nodata=stored, scale=scale, offset=offset)

    @property
    def size(self) -> tuple[int, int]:
        """The lines and samples that are compared."""
        if self.grid is not None:
            return self.grid.rows.shape[0], self.grid.columns.shape[0]
        return self.cube.lines, self.cube.samples

    @property
    def nodata_in_force(self) -> float | None:
        """The stored value that stands for no data."""
        return self.cube.nodata if self.nodata is None else self.nodata

    def beside(self, cube: Cube) -> "Side":
        """Return another map of the run, of the same pixels, as it is stored."""
        return replace(self, cube=cube, names=band_names(cube), sums=None)

    def lines_of(self, size: int) -> int:
        """Return how many of the compared lines are read from ``size`` bytes."""
        lines = self.size[0] * max(size // bytes_per_line(self.cube), self.cube.lines_together) // self.cube.lines
        return max(1, lines)

    def stored(self, lines: slice) -> tuple[np.ndarray, np.ndarray]:
        """Return the values of lines of the map (n, samples, bands), float64, and which pixels have all bands."""
        stored = by_pixel(read_lines(self.cube, lines), self.cube.interleave).astype(float)
        present = np.isfinite(stored).all(axis=2)
        if self.nodata_in_force is not None:
            present &= (stored != self.nodata_in_force).all(axis=2)
        if self.codes is not None:
            return self.by_code(stored, present)
        values = stored / self.scale + self.offset
        return values if self.sums is None else np.where(present[..., None], values, 0.0) @ self.sums, present

    def by_code(self, stored: np.ndarray, present: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return whether pixels are of each class, from numbers (n, samples, 1), and whether of any; 0 is none."""
        present &= stored[..., 0] != 0
        shares = (stored == self.codes) & present[..., None]
        unknown = present & ~shares.any(axis=2)
        if unknown.any():
            raise InputError(f"{self.path}: has a class {stored[..., 0][unknown][0]:g}, which its legend does not name")
        return shares.astype(float), present

    def read(self, lines: slice) -> tuple[np.ndarray, np.ndarray]:
        """Return the values of compared lines, and which pixels have them; see `stored`."""
        return self.stored(lines) if self.grid is None else self.grid.read(lines, self.stored, len(self.names))

    def kept(self, lines: slice) -> np.ndarray:
        """Return which compared pixels of some lines the mask keeps, bool (n, samples)."""
        mask = self.mask
        if mask is None:
            return np.ones((lines.stop - lines.start, self.size[1]), bool)
        samples = slice(self.first[1], self.first[1] + self.cube.samples)

        def share(some: slice) -> tuple[np.ndarray, np.ndarray]:
            keep = mask.keeps(slice(some.start + self.first[0], some.stop + self.first[0]), samples)
            return keep[..., None].astype(float), np.ones(keep.shape, bool)

        values = share(lines)[0] if self.grid is None else self.grid.read(lines, share, 1)[0]
        return np.asarray(values[..., 0] >= LEAST_COVERED)

    @property
    def begins(self) -> list[int]:
        """The line and sample of the scene at which the map begins; a map that no run wrote covers the whole scene."""
        return list(self.report.get("begins", [0, 0]))

    def cut(self, lines: slice, samples: slice) -> "Side":
        """Return a part of the map, given by lines and samples of the scene."""
        line, sample = self.begins
        down = slice(lines.start - line, lines.stop - line)
        across = slice(samples.start - sample, samples.stop - sample)
        cubes: dict[str, Any] = {
            name: Window(cube, down, across, cube.nodata)
            for name, cube in (("cube", self.cube), ("ranges", self.ranges), ("sigma", self.sigma))
            if cube is not None
        }
        return replace(self, first=(down.start, across.start), whole=self, **cubes)

    def by_class(self) -> "Side":
        """Return the map with the bands of each class added up; a raster's bands without classes are classes."""
        classes = self.spectra.classes if self.spectra is not None else None
        if self.is_by_class or (classes is None and not self.report):
            return replace(self, is_by_class=True, spectra=None)
        if classes is None or len(classes) != len(self.names):
            raise MethodError(
                f"{self.path}: `by` class: its endmembers have no classes; their library needs a column named class"
            )
        names = list(dict.fromkeys(classes))
        sums = np.equal.outer(np.array(classes), np.array(names)).astype(float)
        return replace(self, names=names, sums=sums, spectra=None, is_by_class=True, ranges=None, sigma=None)


def with_classes(side: Side, legend: Path | None) -> Side:
    """Return a raster of classes, by ``legend`` or its header, with a band for each class; others unchanged."""
    names = words(side.cube.fields, "class names")
    if side.report or side.cube.bands != 1 or not (names or legend):
        return side
    if legend is None:
        numbered = {k: name for k, name in enumerate(names or ()) if k}
    else:
        rows = read_rows(legend, read_small(legend, LONGEST_LEGEND))
        numbered = {int(row[0]): row[1] for _, row in rows if len(row) > 1 and row[0].isdecimal() and int(row[0])}
        if not numbered:
            raise InputError(f"{legend}: has no rows that begin with the number of a class and its name")
    return replace(side, codes=np.array([*numbered]), names=[*numbered.values()], spectra=None)


def begins_of(report: dict[str, Any]) -> list[int]:
    """Return the line and sample of the scene at which a run begins; older records have them in ``reading``."""
    if "origin" in report:
        return [int(at) for at in report["origin"]]
    reading = report.get("reading", {})
    return [int(str(reading.get(name) or "0").partition(":")[0] or 0) for name in ("lines", "samples")]


def kind_named(path: Path) -> str | None:
    """Return the kind of map that a file is named after; None where its name ends in no map's."""
    stem = Path(path.name.removesuffix(".zip")).stem
    return next((name for name in COMPARED + OF_ONE_BAND if stem.endswith("_" + name)), None)


def shared_part(one: Side, other: Side) -> tuple[Side, Side]:
    """Return two maps cut or averaged to the pixels of a scene that they share; `InputError` if there are none."""
    # Maps of one size cover the same pixels, unless both are of runs that begin at different places, or their map infos
    # place them elsewhere. Others are parts of one scene if both runs recorded its digest, or if one map has the size
    # of the whole scene of the other. Else the map with the smaller pixels is averaged by area onto the other's.
    sizes = [(side.cube.lines, side.cube.samples) for side in (one, other)]
    are_runs = bool(one.report) and bool(other.report)
    if sizes[0] == sizes[1] and (one.begins == other.begins or not are_runs):
        if not is_one_system(one.cube, other.cube):
            return elsewhere(one, other)
        return (one, other) if is_one_grid(one.cube, other.cube) else on_one_grid(one, other) or elsewhere(one, other)
    wholes = [side.report.get("whole") for side in (one, other)]
    if are_runs:
        of_one_scene = one.report["scene"] is not None and one.report["scene"] == other.report["scene"]
    else:  # one of the two is the size of the whole scene of the other
        of_one_scene = wholes[0] == list(sizes[1]) or wholes[1] == list(sizes[0])
    if not of_one_scene or one.is_placed or other.is_placed:
        averaged = on_one_grid(one, other)
        if averaged is None:
            raise InputError(
                f"{other.path}: has {sizes[1][0]} lines of {sizes[1][1]} samples, but {one.path} {sizes[0][0]} of "
                f"{sizes[0][1]}"
                + (", and they are not known to be of one scene" if are_runs else "")
                + ", nor have both map infos of one place, by which pixels could be averaged"
            )
        return averaged
    ends = [(side.begins[0] + size[0], side.begins[1] + size[1]) for side, size in zip((one, other), sizes)]
    lines, samples = (
        slice(max(one.begins[axis], other.begins[axis]), min(ends[0][axis], ends[1][axis])) for axis in (0, 1)
    )
    if lines.start >= lines.stop or samples.start >= samples.stop:
        raise InputError(
            f"{other.path}: is of another part of the scene, from line and sample {other.begins}, than {one.path}, "
            f"from {one.begins}"
        )
    return one.cut(lines, samples), other.cut(lines, samples)


def on_one_grid(one: Side, other: Side) -> tuple[Side, Side] | None:
    """Return two maps, that with smaller pixels averaged onto the other's; None if they share no place."""
    areas = pixel_area(one.cube), pixel_area(other.cube)
    fine, coarse = (other, one) if areas[0] >= areas[1] else (one, other)
    if min(areas) > 0 and not is_one_system(one.cube, other.cube):
        raise InputError(
            f"{other.path}: is in another coordinate system than {one.path}; bring it to that one first, as gdalwarp "
            "does"
        )
    grid = averages(fine.cube, coarse.cube) if min(areas) > 0 else None
    if grid is None:
        return None
    said = "on the same grid as" if grid.crops else "averaged by area onto the pixels of"
    log.info(f"{fine.path}: {said} {coarse.path}")
    if fine.codes is not None:  # a pixel that is labelled in part may be of any classes
        grid = replace(grid, least=1.0 - LEAST_OVERLAP)
    if not grid.crops and (fine.ranges is not None or fine.sigma is not None):
        log.info(f"{fine.path}: deviations and ranges of averages are not known, and left out")
        coarse = replace(coarse, sigma=None)  # alone it would be taken for the deviation of the difference
        fine = replace(fine, ranges=None, sigma=None)
    fine = replace(fine, grid=grid)
    return (coarse, fine) if fine.path is other.path else (fine, coarse)


def elsewhere(one: Side, other: Side) -> tuple[Side, Side]:
    """Return two maps of one size as they are, with a warning that they are of two places."""
    places = both_places(other.cube, one.cube)
    log.warning(
        f"{other.path}: its map info is of another place than that of {one.path}{': it ' * bool(places)}{places}; "
        "pixels of the same "
        "line and sample are compared"
    )
    return one, other


def masked(sides: tuple[Side, Side], mask: str) -> tuple[Side, Side]:
    """Return two maps without the pixels that ``FILE`` or ``FILE:BAND``, of the size of either or both, leaves out."""
    raster = open_mask(mask, "mask")
    size = raster.cube.lines, raster.cube.samples
    if size not in [(side.cube.lines, side.cube.samples) for side in sides]:
        raise InputError(f"{mask}: the mask has {size[0]} lines of {size[1]} samples, which neither map has")
    is_of = [(side.cube.lines, side.cube.samples) == size for side in sides]
    if all(is_of) and all(side.report for side in sides) and sides[0].begins != sides[1].begins:
        raise InputError(f"{mask}: both maps have its size, but are of other parts of the scene; give runs of one part")
    if all(is_of) and not is_one_grid(sides[0].cube, sides[1].cube):
        is_of = [is_one_grid(raster.cube, side.cube) for side in sides]
        if all(is_of) or not any(is_of):
            raise InputError(
                f"{mask}: both maps have its size, but on other grids; which of them it is of, its map info has to say"
            )
    for side, has_mask in zip(sides, is_of):
        if has_mask:
            refuse_elsewhere(raster.cube, side.cube, "mask")
    one, other = (replace(side, mask=raster) if has_mask else side for side, has_mask in zip(sides, is_of))
    return one, other


def side_of(
    path: Path,
    kind: str | None,
    likely: str | None = None,
    dataset: str | None = None,
    size: tuple[int, int] | None = None,
) -> Side:
    """Open one of the two maps of `compare`; without ``kind``, a run's is the ``likely`` one if the run has it."""
    # ``dataset`` names the map in a file of several; ``size`` is for arrays, and MATLAB tables (bands, pixels), that do
    # not say their own.
    if path.is_dir() and not is_store(path):
        raise OutputError(f"{path}: is a folder; name a run or a map")
    try:
        run = FinishedRun.of(path)
    except OutputError as error:
        is_matlab = path.suffix.lower() == ".mat"
        try:
            if is_array(path):
                cube: Cube = open_array_map(path, size)
            else:
                cube = decoded_values(open_matlab(path, dataset, size=size) if is_matlab else open_cube(path, dataset))
        except (InputError, OSError) as why:
            is_there = path.exists() or is_array(path)
            raise OutputError(f"{error}; nor is it a raster: {brief(why)}") if is_there else error from None
        beside = cube.path.with_name(cube.path.stem.removesuffix(MAP) + SPECTRA)
        spectra = load(beside) if beside.exists() else None
        if is_matlab and spectra is None and has_tables_beside(path, cube.lines * cube.samples):
            with contextlib.suppress(LibraryError):  # benchmarks keep spectra and names beside abundances
                own = load(path)
                spectra = own if len(own.names) == cube.bands else None
        names = list(spectra.names) if is_matlab and spectra is not None else band_names(cube)
        return Side(path, cube, names, spectra, {})
    likely = likely or run.asked(kind, COMPARED + OF_ONE_BAND)
    with run.believing():
        return side_of_run(
            path, run, kind or (likely if likely in OF_ONE_BAND or (likely and run.has(likely)) else None)
        )


def has_tables_beside(path: Path, pixels: int) -> bool:
    """Return whether a MATLAB file holds a table that is not of so many pixels, as spectra beside a map are."""
    return any(pixels not in shape for shape in tables_in(path))


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
        "warnings": run.report.get("warnings"),
        "pixels": {key: int(count) for key, count in pixels.items()},
    }
    kind, is_placed = name.removesuffix(ORTHO), name.endswith(ORTHO)
    spectra = run.endmembers() if kind == "abundance" else None
    if spectra is not None and len(spectra.names) != cube.bands:
        raise ValueError(f"{cube.bands} maps of abundances, but {len(spectra.names)} endmembers")
    own = {name: one for name, one in own_maps().items() if run.has(name) and not is_placed}
    if run.has("average"):
        say_once(f"{run.stem}: averages and their deviations are not compared, but the best models", logging.WARNING)
    ranges = [name for name, one in own.items() if one.bounds(run.report.get("asked", {})) == kind]
    # Deviations are of sums where there are any.
    has_sigma = kind in NAMED and (kind == "fraction") == run.has("fraction")
    deviations = [name for name, one in own.items() if one.is_deviation]
    if deviations and kind == "abundance" and not has_sigma:
        say_once(f"{run.stem}: has deviations of the sums by class: compare these by `map` fraction", logging.WARNING)
    sigma = deviations * has_sigma
    beside: dict[str, Any] = {
        what: run.open(found[0]) for what, found in (("ranges", ranges), ("sigma", sigma)) if found
    }
    names = run.band_names(kind, cube.bands) if kind in NAMED else band_names(cube)
    return Side(path, cube, names, spectra, report, kind == "fraction", is_placed, **beside)
