"""Unmix lines of a finished run again, by its record, and compare them with its maps."""

import logging
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..._version import build
from ...errors import CubeError
from ...features.runs import in_runs, searches
from ...io import Changed
from ...io.opening import write_new
from ...library import Endmembers
from ...maps.raster import MapType, encoded, map_type
from ...methods import Extraction, choose
from ...options import OF_EXTRACTION, Options
from ...outputs import normalize_of
from ...outputs.json_text import finite
from ...pipeline import Seconds
from ...runs.executor import Executor, extract
from ...runs.files.finished import FinishedRun, refuse_server
from ...runs.record.report import computed_by, counted
from ...runs.scene_run import SceneRun
from ...runs.stream import line_of, solve_lines
from ...scene import ReadOptions, open_scene
from ...settings import names_where, settings_of
from ...settings.maps import map_named
from ...settings.run import RunSettings
from ...summary import Summary
from .verdict import Maps, Verdict

log = logging.getLogger("unmix")
# Lines that are unmixed again at least, spread over the scene.
FEWEST_LINES = 8
# Largest difference of a value computed elsewhere, as a share of the largest in its line and band.
ELSEWHERE = 1e-4
# Largest such difference where values are rounding: of amounts, and of spectra whose largest value is 1.
NEAR_ZERO = 1e-12
# By which part numbers of an extraction may differ: its sums of products depend on the threads of BLAS.
LARGEST_CHANGE = 1e-6
# Options of a run that do not hold once its endmembers are known.
OF_LIBRARY = (
    "endmembers",
    "count",
    "extract",
    "select",
    "complete",
    "classes",
    "library_scale",
    "across_gaps",
    "rgb",
    "ortho",
    *OF_EXTRACTION,
)


class Compared:
    """Compare lines with those of a written map, in the place of a `unmix.maps.raster.Raster` that a run fills."""

    def __init__(self, maps: Maps, name: str, kind: MapType, verdict: Verdict, spared: int, largest: float) -> None:
        self.maps, self.name, self.map_type, self.verdict, self.spared = maps, name, kind, verdict, spared
        # Where a line has only pixels of zeros, all of its values are rounding, by the spectra's ``largest`` value.
        self.least = max(NEAR_ZERO * (largest if map_named(name).has_unit else 1.0), 2.0 * kind.step)

    def write(self, lines: slice, values: np.ndarray, checks: Any = None) -> None:
        """Compare values (n, bands, samples)."""
        self.write_stored(lines, encoded(values, self.map_type, lambda: self.name))

    def write_stored(self, lines: slice, stored: np.ndarray, checks: Any = None) -> None:
        """Compare values as they are stored."""
        values = self.map_type.decode(stored) if self.map_type.step else stored
        for line, found in zip(range(lines.start, lines.stop), values):
            written = self.maps.line(self.name, line).astype(float)
            self.compare(line, written, found.reshape(written.shape[::-1]).T.astype(float))

    def compare(self, line: int, written: np.ndarray, found: np.ndarray) -> None:
        """Compare a line of (samples, bands)."""
        verdict, blank = self.verdict, self.map_type.blank if self.map_type.dtype == np.uint8 else -9999.0
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.where((written == found) | (np.isnan(written) & np.isnan(found)), 0.0, np.abs(written - found))
            wrong = ~(apart == 0)
            if not verdict.same_bytes:
                size = np.where(np.isfinite(found) & (found != blank), np.abs(found), 0.0).max(axis=0, initial=1e-300)
                # No two machines agree on certificates, nor on which of equal things is named.
                is_near = (
                    (apart <= np.maximum(ELSEWHERE * size, self.least))
                    | map_named(self.name).names_things
                    | (self.name == "certificate")
                )
                wrong = ~is_near | ((written == blank) != (found == blank))
        places = np.flatnonzero(wrong.any(axis=1))
        with self.maps.lock:
            difference = apart / np.maximum(1.0, np.abs(found))
            verdict.largest_difference = max(verdict.largest_difference, float(np.nanmax(difference, initial=0.0)))
            self.spared -= len(places)
            if self.spared < 0:
                verdict.accuse(
                    self.maps.run.stem, line, places, f"its {self.name} does not match the cube, unmixed again"
                )


def options_again(run: FinishedRun, path: Path, reading: ReadOptions, library: Endmembers, folder: Path) -> Options:
    """Return a run's options with the endmembers it wrote and its record's numbers; files are in ``folder``."""
    report, own, features = run.report, settings_of(RunSettings), in_runs()
    asked, given = report["asked"], report["options"]
    mine = {
        name: given[name] for name in own if name in given and own[name].affects != "nothing" and name not in OF_LIBRARY
    }
    for feature in features.values():
        for name in names_where(feature.settings, is_path=True):
            refuse_server(mine.get(name), path)
    has_shade = choose(report["method"], report["solver"])[0].constraint.has_shade or asked.get("shade") is not None
    spectra = library.take(range(len(library.names) - has_shade))
    spectra.write(folder / "endmembers.csv", None, None)
    if asked.get("shade") is not None:
        shade = library.take([len(library.names) - 1])
        shade.write(folder / "shade.csv", None, None)
        mine["shade"] = str(folder / "shade.csv")
    for name in ("noise", "weights", "background"):
        if isinstance(asked.get(name), list) and mine.get(name) not in ("noise", "auto"):
            write_new(folder / name, "".join(f"{value!r}\n" for value in asked[name]))
            mine[name] = str(folder / name)
        elif isinstance(asked.get(name), dict):
            mine[name] = run.beside(name, path)
    return Options.of(
        **mine | {"method": report["method"], "solver": report["solver"], "normalize": normalize_of(report)},
        **{name: given[name] for name in given if name not in own} | vars(reading) | {"extract_mask": None},
        endmembers=str(folder / "endmembers.csv"),
        library_scale=1.0,
        out_dir=folder,
        device="cpu" if report["device"] == "cpu" else "auto",
    )


def compare_lines(maps: Maps, path: Path, library: Endmembers, sample: int | None, verdict: Verdict) -> None:
    """Unmix some or all lines of a run again and compare; with all, also the record's numbers and the extraction."""
    level = log.level
    with tempfile.TemporaryDirectory() as folder:
        log.setLevel(logging.ERROR)  # the run has said all that is to be said of the scene
        try:
            options = options_again(maps.run, path, maps.run.reading(path), library, Path(folder))
            executor = Executor(options)
            try:
                again = SceneRun(path, options, executor, None, None, [])
                take_recorded(maps.run.report["asked"], again)
                unmix_again(maps, again, executor, sample, verdict)
            finally:
                executor.close()
        finally:
            log.setLevel(level)


def take_recorded(asked: dict[str, Any], again: SceneRun) -> None:
    """Take over what a run had beside its scene; `CubeError` where a cube beside it is another than the run read."""
    again.keeping = {}  # what was kept is in the library
    if isinstance(asked.get("weights"), list):  # which to make of mean square one again would round
        again.inputs.weights = np.array(asked["weights"])
    found = finite(again.inputs.request())
    if isinstance(asked.get("noise"), dict) and found.get("noise") != asked["noise"]:
        raise CubeError(f"{again.options.noise}: is not the cube of noise that the run read")


def unmix_again(maps: Maps, again: SceneRun, executor: Executor, sample: int | None, verdict: Verdict) -> None:
    """Solve lines of a run that is set up again; see `compare_lines`."""
    cube, options, report = again.cube, again.options, maps.run.report
    endmembers, _ = again.find_endmembers(None)
    plan = again.plan(endmembers)
    problem = again.regression.smooth(again.regression.penalise(plan.problem), cube, options)
    block_plan = executor.plan(cube, problem)
    here = build(), computed_by(executor.name), executor.path(problem, cube.samples)
    there = report["unmix"], report.get("computed_by"), report.get("path")
    verdict.same_bytes = here == there and not isinstance(cube, Changed)  # what was written is changed back, and rounds
    spared = 0 if verdict.same_bytes else report["pixels"]["fit_certified"] + report["pixels"]["failed"]
    kinds = {name: map_type(name, options, problem) for name in plan.maps}
    compared: Any = {
        name: Compared(maps, name, kind, verdict, spared, float(np.abs(endmembers.matrix).max()))
        for name, kind in kinds.items()
    }
    summary, machine = Summary(), executor.machine
    slots = machine.open(problem, line_of(cube, problem, options), block_plan)

    def done(_: slice, part: Summary) -> None:
        summary.merge(part)

    for part in lines_again(cube.lines, cube.samples, sample):
        piece = replace(block_plan, first=part.start, lines=part.stop)
        solve_lines(cube, problem, piece, slots, compared, machine, options, done, Seconds())
        verdict.lines += part.stop - part.start
    if sample is None and verdict.same_bytes:
        for name, number in finite(numbers_again(again, summary, report["fit"]["faint_part"])).items():
            if number != report[name]:
                verdict.faults.append(
                    f"{maps.run.stem}_run.json: {name}: is {report[name]}, but unmixed again {number}"
                )
        check_extraction(maps, again, executor, endmembers, verdict)


def numbers_again(again: SceneRun, summary: Summary, faint: float | None) -> dict[str, Any]:
    """Return the entries of a record that all lines, unmixed again, determine."""
    joint = again.regression.neighbours
    numbers = {"spatial": joint.about()} if joint else counted(summary, again.scene.pixels, faint)
    for name in searches().keys() & again.parts.keys():
        numbers |= again.parts[name].entry(summary)
    return numbers


def lines_again(lines: int, samples: int, sample: int | None) -> list[slice]:
    """Return all lines, or some spread over the scene that hold about so many pixels."""
    count = lines if sample is None else max(FEWEST_LINES, -(-sample // samples))
    if count >= lines:
        return [slice(0, lines)]
    return [slice(line, line + 1) for line in np.unique(np.linspace(0, lines - 1, count).astype(int)).tolist()]


def alike(found: Any, recorded: Any) -> bool:
    """Return whether two values of JSON are equal, real numbers to `LARGEST_CHANGE`."""
    if isinstance(found, dict) and isinstance(recorded, dict):
        return found.keys() == recorded.keys() and all(alike(found[key], recorded[key]) for key in found)
    if isinstance(found, list) and isinstance(recorded, list):
        return len(found) == len(recorded) and all(map(alike, found, recorded))
    if isinstance(found, float) and isinstance(recorded, float | int):
        return abs(found - recorded) <= LARGEST_CHANGE * max(1.0, abs(found))
    return bool(found == recorded)


def check_extraction(maps: Maps, again: SceneRun, executor: Executor, endmembers: Endmembers, verdict: Verdict) -> None:
    """Check that each endmember that a run extracted is found when they are extracted again."""
    asked, options = maps.run.report["asked"], again.options
    if asked["endmembers"] is not None:
        return
    how = {name: asked[name] for name in ("extract", "seed", *OF_EXTRACTION) if name in asked}
    extraction = Extraction("auto" if asked["count"] is None else asked["count"], **how)
    asking: Any = SimpleNamespace(extraction=extraction, budget=options.budget, gpu_budget=options.gpu_budget)
    path = maps.run.input()
    scene = open_scene(path, maps.run.reading(path), True)
    found = extract(scene, asking, options.threads, executor.machine)[0]
    said = {"pixels": found.pixels and [list(pixel) for pixel in found.pixels]}
    said |= finite({name: getattr(found, name) for name in ("simplex", "quality", "counted")})
    for name in said if len(found.names) == len(endmembers.names) else ():
        recorded = maps.run.report["endmembers"][name]
        if not alike(said[name], recorded[: len(found.names)] if name == "pixels" and recorded else recorded):
            verdict.faults.append(f"{maps.run.stem}_run.json: {name} of the endmembers is not what is found again")
    for name, column in zip(endmembers.names, endmembers.matrix.T):
        if not (np.abs(found.matrix - column[:, None]).max(axis=0) <= LARGEST_CHANGE * np.abs(column).max()).any():
            verdict.faults.append(f"{maps.run.stem}_endmembers: {name} is not what is extracted again")
