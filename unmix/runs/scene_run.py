"""The run of one scene, from opening it to its record."""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .._version import build
from ..arrays.mixtures import solved
from ..blocks import LARGEST_BLOCK
from ..devices import Job
from ..errors import MethodError, as_options, say_once
from ..features.runs import asked, own_maps
from ..io import Cube, Scene, bytes_per_line, modified, warn_if_touched
from ..library import DESCRIPTIONS, Endmembers, Normalization
from ..maps.derived import DerivedMap, derived_maps, header_fields
from ..methods import ModelChoice
from ..options import Options
from ..outputs import LIBRARY, RECORD, believing, finite, folder_for, of_a_run, parse_record, suffixes_of
from ..pages.pictures import bands_shown, browse_of
from ..problem import Problem, plan_problem
from ..scene import check_scale, open_scene, unit_of_library, warn_of_fill
from ..summary import Summary
from .executor import Executor, Progress, fill
from .files.completed import CompletedRun
from .files.decide import decide
from .files.journal import ResumeState
from .files.output_set import BEGIN_ANEW, Outputs
from .inputs import Inputs
from .look import Look, has_both_signs, has_look, sample_of, usable
from .penalties.regression import Regression
from .record.judgement import suspects_sum
from .record.misfit import said_of_few
from .record.noise import judge_noise
from .record.report import input_of, map_headers, origin_of_maps, plan_only, report_of
from .sum_to_one import constant_in_scene, cost_in_scene

log = logging.getLogger("unmix")
# Keys of a record whose values are sentences.
SAID = ("warnings", "said")


@dataclass(frozen=True)
class ScenePlan:
    """Problem to solve, maps derived from abundances, and the number of bands of each map that is written."""

    problem: Problem
    derived: dict[str, DerivedMap]
    maps: dict[str, int]


def said_of_answer(options: Options) -> str:
    """Return the message about the choices of a run without a method."""
    if options.normalize == "none":
        return (
            f"without `method`: {options.method}, whose abundances need not sum to one; those of `method` fcls and "
            "pcls are shares"
        )
    answer = f"without `method`: {options.method}, {DESCRIPTIONS[str(options.normalize)]}"
    if options.endmembers is not None:
        return f"{answer}, whatever a pixel's brightness"
    return f"{answer} of endmembers by {options.extract}, whatever a pixel's brightness; fcls where that does not vary"


def work_of(scene: Scene, options: Options, library: Endmembers | None) -> Job:
    """Return what is known of the run of a scene before it begins."""
    names, count = None if library is None else len(library.names), options.count
    p = int(count) if names is None and count not in (None, "auto") else names
    is_plain = options.solver_spec.pixel in ("active_set", "direct") and not (
        options.needs_float64 or options.mesma or any(not one.is_always for one in asked(options).values())
    )
    return Job(scene.pixels, len(scene.bands.index), p, library is None, is_plain)


class SceneRun:
    """The run of one scene: open it, decide what to do with existing outputs, find endmembers, plan, solve, report.

    Parameters
    ----------
    cube : path-like
    options : Options
    executor : Executor
    progress : callable or None
    command : sequence of str or None
        The command line, for the report.
    warnings : list of str
        Collects the warnings that are logged during the run, for the report.
    target : Path, optional
        Where the outputs are uploaded to from ``options.out_dir``: no input may lie there under the name of one.

    Raises
    ------
    UnmixError
        Where the scene, its mask or the library cannot be read, or an output would replace one of them.
    """

    def __init__(
        self,
        cube: str | os.PathLike[str],
        options: Options,
        executor: Executor,
        progress: Progress | None,
        command: Sequence[str] | None,
        warnings: list[str],
        target: Path | None = None,
    ) -> None:
        self.began = time.perf_counter()
        self.given, self.repeatable, options = options, options.repeatable(), options.for_scene(cube)
        self.options, self.executor, self.progress, self.command, self.warnings = (
            options,
            executor,
            progress,
            command,
            warnings,
        )
        self.scene, self.is_flat = open_scene(cube, options.reading, True), False
        self.cube = self.scene.cube
        if options.ortho and self.cube.placement is None:
            raise MethodError(
                f"`ortho`: {self.cube.path} has no lookup table to place its pixels on a map; only EMIT's files have "
                "one"
            )
        self.folder = folder_for(options.out_dir, self.cube.path)
        self.suffixes = suffixes_of(
            [*options.maps(1, 1), *options.derived], options.form, options.ortho, options.browse
        )
        places = [self.folder] if target is None else [self.folder, target]
        outputs = [path for place in places for path in of_a_run(place, self.cube.stem, self.suffixes)]
        self.inputs = Inputs(self.scene, options, outputs)
        if self.inputs.library is not None and not options.mesma:
            given = options.library_scale, options.reading.scale
            unit = unit_of_library(self.scene, self.inputs.library, given)
            if unit is not None:
                self.given = replace(self.given, library_scale=unit)
                self.options = options = self.given.for_scene(cube)
                self.repeatable, self.inputs = self.given.repeatable(), Inputs(self.scene, options, outputs)
        self.regression = Regression(options)
        self.parts = {name: one.begin(options) for name, one in asked(options).items()}
        for part in self.parts.values():
            part.read(self.scene, self.inputs.library)
        self.keeping = {name: part for name, part in self.parts.items() if part.keeps}
        executor.expect(work_of(self.scene, options, self.inputs.library))

    def run(self) -> dict[str, Any]:
        """Unmix the scene, or resume, publish or skip it as its existing outputs require; return the report."""
        cube, options = self.cube, self.options
        if "method" in self.given.left_open and (options.normalize != "none" or options.of_whole_scene):
            say_once(said_of_answer(options))
        if options.dry_run:
            return self.plan_only()
        completed = self.asked()
        if options.overwrite or not os.path.exists(self.folder / (cube.stem + RECORD)):
            cube.expect(slice(0, min(cube.lines, -(-min(options.budget, LARGEST_BLOCK) // bytes_per_line(cube)))))
        skipped = {"input": input_of(cube), "skipped": True}
        if options.skip_existing and completed.is_done(self.folder, cube.stem):
            return skipped
        with Outputs(self.folder, cube.stem, options.form, self.suffixes, self.inputs.watch) as outputs:
            self.outputs = outputs
            identity = finite({"unmix": build(), "asked": self.request, "input": self.inputs.watch.identity})
            decision = decide(outputs, identity, completed, options.overwrite, options.skip_existing)
            if decision == "skip":
                return skipped
            if decision == "publish" and (resume := outputs.resume) is not None:
                outputs.publish(resume.finishing or [], resume.replaced, resume.sealed)
                return parse_record(resume.sealed[self.cube.stem + RECORD].content)
            return self.unmix(identity, outputs.resume)

    def plan_only(self) -> dict[str, Any]:
        """Return the plan of the run."""
        library = self.inputs.library
        plan = None if library is None else self.plan(library)
        for name, part in self.keeping.items():
            log.info(f"{self.cube.path}: `{name}` {part.before}")
        problem, maps = (None, {}) if plan is None else (plan.problem, plan.maps)
        outputs = [self.folder / (self.cube.stem + suffix) for suffix in self.suffixes]
        return plan_only(self.scene, self.options, self.executor.name, outputs, problem, maps)

    def asked(self) -> CompletedRun:
        """Compose this run's request; return the request and input that a finished run must match to be skipped."""
        own = self.options.request(self.inputs.library, self.executor.name)
        if self.given.is_open:
            own["method"] = "left open"
        self.request = own | self.inputs.request() | self.regression.request()
        for part in self.parts.values():
            self.request |= part.request()
        return CompletedRun(self.request, self.inputs.watch.identity, input_of(self.cube)["modified"])

    def unmix(self, identity: dict[str, Any], resume: ResumeState | None) -> dict[str, Any]:
        """Find endmembers, plan, and solve from the first line or where an earlier run stopped; return the report."""
        began = time.perf_counter()
        endmembers, passes = self.find_endmembers(resume)
        self.decide_method(endmembers)
        extracting = time.perf_counter() - began
        cube, options, outputs = self.cube, self.options, self.outputs
        plan = self.plan(endmembers)
        block_plan = replace(self.executor.plan(cube, plan.problem), first=resume.lines if resume is not None else 0)
        problem = self.regression.penalise(plan.problem)
        problem = self.regression.smooth(problem, cube, options)
        passes += self.regression.neighbours is not None
        about = {
            "endmembers": None if self.inputs.library is not None else endmembers.to_dict(),
            "passes": passes,
            "rasters": {name: [cube.lines, cube.samples, bands] for name, bands in plan.maps.items()},
            "warnings": self.warnings,
            "modified": modified(cube),
        }
        chosen = {name: state for name, part in self.parts.items() if (state := part.state())}
        outputs.begin(identity, about | {"features": chosen, "spatial": self.regression.neighbours is not None})
        summary, seconds = fill(cube, problem, block_plan, plan.maps, outputs, options, self.executor, self.progress)
        # Its compression is a third of the time between the last block and the end.
        with ThreadPoolExecutor(1, "browse") as pool:
            browse = pool.submit(self.write_browse, problem, summary) if options.browse else None
            may_cost = problem.constraint.may_cost_fit or problem.method.is_by_models
            look, both_signs = self.look(problem, summary)
            cost = cost_in_scene(cube, problem) if may_cost and suspects_sum(summary) else None
            is_plain = not problem.steps and not both_signs and options.likelihood != "poisson"
            if problem.constraint.is_cone and not may_cost and self.inputs.library is not None and is_plain:
                cost = constant_in_scene(cube, problem)
        report = report_of(
            self.scene,
            problem,
            self.executor.name,
            summary,
            seconds,
            block_plan,
            options,
            passes,
            self.command,
            cost,
            look,
            max((part.lacking for part in self.parts.values()), default=0.0),
            self.is_flat,
            both_signs,
        )
        for said in (part.said for part in self.parts.values() if part.said):
            log.warning(f"{cube.stem}: {said}")
        report |= {"resumed_from": block_plan.first} | self.further_report(problem, summary)
        if not problem.mesma:
            report |= self.of_noise(problem, plan.derived, summary, look)
        for part in self.parts.values():
            report |= part.of_maps(plan.derived, outputs.rasters, cube.path)
        report = self.regression.proved(report)
        written = self.inputs.as_given(endmembers, self.kept)
        self.write_headers(problem, summary, plan.derived, written)
        if browse is not None:
            report["browse"] = browse.result()
        written.write(*map(outputs.part, LIBRARY))
        elapsed = time.perf_counter() - self.began
        report["seconds"] = {"extracting": round(extracting, 4), **report["seconds"], "elapsed": round(elapsed, 4)}
        if self.command is not None:
            report = in_options(report)
        outputs.finish(report)
        return finite(report)

    def find_endmembers(self, resume: ResumeState | None) -> tuple[Endmembers, int]:
        """Return the library's, the earlier run's or extracted endmembers, and the passes over the file so far."""
        cube, options, library = self.cube, self.options, self.inputs.library
        if resume is not None:
            about = resume.about
            assert about is not None
            log.info(f"{cube.path}: goes on from line {resume.lines} of {cube.lines}")
            warn_if_touched(cube, about)
            self.warnings[:0] = [text for text in about.get("warnings", []) if text not in self.warnings]
            with believing(self.outputs.journal.path, BEGIN_ANEW):
                for name, part in self.parts.items():
                    part.resume(about["features"].get(name, {}))
                endmembers, passes = library or Endmembers.from_dict(about["endmembers"]), about["passes"]
        elif library is not None:
            endmembers, passes = library, 1
            if library.pixels is not None and "method" in options.left_open:
                log.info(
                    f"{cube.path}: its endmembers are of pixels: fractions are of the area; `method` nnls with "
                    "`normalize` length has those of a run without endmembers"
                )
            if options.likelihood == "poisson":  # abundances of counts are in any unit
                warn_of_fill(self.scene)
            else:
                check_scale(self.scene, endmembers, options.reading.scale is not None)
        else:
            endmembers, passes = self.executor.extract(self.scene)
            endmembers, passes = self.inputs.possible(endmembers), passes + 1
        if self.keeping and resume is None:
            refuse_names(endmembers, options)
            problem = self.problem_of(endmembers, warns=False)[0]
            passes += sum(part.keep(endmembers, problem, cube, options) for part in self.keeping.values())
        if resume is None or library is not None:
            endmembers = self.kept(endmembers)
        self.drop_colours(endmembers)
        return endmembers, passes

    def decide_method(self, endmembers: Endmembers) -> None:
        """Take the method that extracted endmembers call for, where it was left open."""
        if not self.given.is_open:
            return
        self.is_flat = is_flat = bool((endmembers.simplex or {}).get("flat"))
        path = self.cube.path
        self.given = self.given.decided(is_flat)
        self.options = replace(self.given.for_scene(path), rgb=self.options.rgb)
        if is_flat:
            log.info(
                f"{path}: its brightness does not vary, but for noise: {self.given.method} of the corners of a simplex"
            )

    def kept(self, endmembers: Endmembers) -> Endmembers:
        """Return the endmembers that features leave."""
        for part in self.keeping.values():
            endmembers = part.kept(endmembers)
        return endmembers

    def drop_colours(self, endmembers: Endmembers) -> None:
        """Drop the names of a browse image where a feature has not kept all of them."""
        options = self.options
        asked = set() if options.rgb is None or not self.keeping else {name.strip() for name in options.rgb.split(",")}
        gone = sorted(asked - set(names_shown(endmembers, options)))
        if gone:
            log.warning(
                f"{self.cube.path}: `rgb`: `{next(iter(self.keeping))}` keeps no {gone[0]}; shown are the largest"
            )
            self.options = replace(options, rgb=None)

    def problem_of(self, endmembers: Endmembers, warns: bool = True) -> tuple[Problem, Endmembers]:
        """Return the problem with these endmembers, and these as they enter it."""
        options, (scene, given) = self.options, self.inputs.with_shade(endmembers)
        steps = self.inputs.steps
        problem = plan_problem(given, options.method_spec, options.solver_spec, scene, options.mesma, warns, steps)
        return replace(problem, noise=self.inputs.noise_of_problem(), lost=self.scene.cube.lost), given

    def plan(self, endmembers: Endmembers) -> ScenePlan:
        """Return the problem with these endmembers and its outputs."""
        options, inputs = self.options, self.inputs
        problem, given = self.problem_of(endmembers)
        shares = Normalization.of(str(options.normalize), problem.plain[1].matrix, problem.constraint.has_shade)
        problem = replace(problem, own=inputs.counted(given), normalization=shares)
        for part in self.parts.values():
            problem = part.plan(problem)
        refuse_names(problem.endmembers, options)
        derived = derived_maps(problem, options, self.cube)
        maps = options.maps(len(self.scene.bands.index), problem.E.shape[1])
        return ScenePlan(problem, derived, maps | {name: len(one.bands) for name, one in derived.items()})

    def look(self, problem: Problem, summary: Summary) -> tuple[Look | None, bool]:
        """Return the unconstrained look at a sample, which features share, and whether values have both signs."""
        E = problem.endmembers.matrix
        sample = usable(sample_of(self.cube, problem, summary), E)
        if sample is None:
            return None, False
        both_signs = not self.options.reading.changes and has_both_signs(sample.Y)
        if not has_look(problem):
            return None, both_signs
        rmse = None
        if not problem.steps:  # else RMSE and spectra are of different units
            rmse = self.outputs.rasters["rmse"].stored()[sample.lines, 0, sample.samples].astype(np.float64)
        elif not problem.constraint.has_shade:  # of the spectra as they are searched
            rmse = solved(E, sample.Y, problem.method.name)[1] / np.sqrt(len(E))
        look = Look.at(sample, E, rmse, problem.lost)
        if (
            not self.options.of_whole_scene and not both_signs
        ):  # smoothed abundances leave what a pixel's own would explain
            for part in self.parts.values():
                part.look(sample, look, self.scene, self.inputs.library, self.inputs.steps)
        return look, both_signs

    def further_report(self, problem: Problem, summary: Summary) -> dict[str, Any]:
        """Return the record's entries that `unmix.runs.record.report.report_of` lacks: the request and its results."""
        cube, options = self.cube, self.options
        report: dict[str, Any] = {
            "asked": self.request,
            "identity": self.inputs.watch.identity,
            "format": options.format,
            "options": self.repeatable,
            "top": options.top,
            "warnings": self.warnings,
            "by": options.by,
            "path": self.executor.path(problem, cube.samples),
        }
        if options.ortho and cube.placement:
            report["placed"] = cube.placement.size()
        if options.mesma:
            report["without_spectrum"] = without_spectrum(cube, options.mesma, summary)
        report |= self.regression.of_report(problem, cube, summary)
        for part in self.parts.values():
            report |= part.entry(summary)
        classes = options.sums(problem.endmembers)
        if classes is not None:
            assert summary.sums is not None
            report["classes"] = classes.means(summary.sums / max(1, summary.solved))
        return report

    def write_headers(
        self, problem: Problem, summary: Summary, derived: dict[str, DerivedMap], written: Endmembers
    ) -> None:
        """Write what the headers of the maps say."""
        cube, options, method, solver = self.cube, self.options, problem.method.name, problem.solver.name
        further = {name: header_fields(one) for name, one in derived.items()}
        origin = origin_of_maps(
            cube, self.inputs.watch.identity, written, (method, solver), options.repeatable(), options.tags
        )
        names = problem.endmembers.names
        assert summary.sums is not None
        what = "abundances" if problem.normalization is None else problem.normalization.description
        map_headers(self.outputs, self.scene, names, f"{method} ({solver})", summary.sums, further, origin, what)

    def of_noise(
        self, problem: Problem, derived: Mapping[str, DerivedMap], summary: Summary, look: Look | None
    ) -> dict[str, Any]:
        """Return the record's entries on what noise does; log what is to be said of it."""
        options, report = self.options, dict[str, Any]()
        words = {name: one.of_noise(options) for name, one in own_maps().items() if name in derived}
        maps = {
            name: self.outputs.rasters[name].stored()[:, -1] for name, said in words.items() if said and name in derived
        }
        lacks, warnings = judge_noise(problem, maps, words, summary.solved)
        if by_noise := " and ".join(filter(None, words.values())):
            if look is not None and look.misfit is not None:
                warnings = [*warnings, *look.misfit.said_of_results(by_noise, options.noise == "auto")]
            elif has_look(problem):
                Y = sample_of(self.cube, problem, summary).Y
                warnings = [*warnings, *said_of_few(Y, problem.endmembers.matrix, by_noise)]
        said = [(logging.WARNING, sentence) for sentence in warnings]
        for part in self.parts.values():
            entry, own = part.judge(problem, maps, lacks, said, summary)
            report, said = report | entry, [*own, *said]
        for level, sentence in said:
            log.log(level, f"{self.cube.stem}: {sentence}")
        return report

    def write_browse(self, problem: Problem, summary: Summary) -> list[str] | None:
        """Write the browse image; return the names of what it shows, None where pixels have their own."""
        classes, names = self.options.sums(problem.endmembers), names_shown(problem.endmembers, self.options)
        assert summary.sums is not None
        totals = summary.sums.tolist() if classes is None else [one["mean"] for one in classes.means(summary.sums)]
        shown = bands_shown(names, totals, self.options.rgb)
        self.outputs.write_browse(browse_of(self.outputs.values(), shown))
        return None if self.options.top else [names[j] for j in shown]


def in_options(value: Any, is_said: bool = False) -> Any:
    """Return a record whose sentences name options as a command line has them: its reader typed these."""
    if isinstance(value, dict):
        return {key: in_options(one, is_said or key in SAID) for key, one in value.items()}
    if is_said and isinstance(value, list):
        return [in_options(one, True) for one in value]
    return as_options(value) if is_said and isinstance(value, str) else value


def names_shown(endmembers: Endmembers, options: Options) -> Sequence[str]:
    """Return the names for a browse image: of the classes if there are sums by class, else of the endmembers."""
    classes = options.sums(endmembers)
    return endmembers.names if classes is None else classes.names


def refuse_names(endmembers: Endmembers, options: Options) -> None:
    """Raise `MethodError` if `rgb` names something that does not exist; checked before the work."""
    if options.rgb is not None:
        bands_shown(names_shown(endmembers, options), [], options.rgb)


def without_spectrum(cube: Cube, choice: ModelChoice, summary: Summary) -> int:
    """Return how many pixels have no spectrum, and warn of them where limits may be why."""
    none = int(summary.steps[0]) if len(summary.steps) else 0
    if none and choice.largest_rmse < float("inf"):
        log.warning(
            f"{cube.path}: {none} of {summary.solved} pixels have no spectrum: no model is within the limits, or shade "
            "alone is best: their shade is 1"
        )
    return none
