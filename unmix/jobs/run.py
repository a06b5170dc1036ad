"""`run`: unmix a cube on disk into certified abundance maps on disk."""

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .._version import build
from ..blocks import LARGEST_BLOCK, SMALLEST_BLOCK, BlockPlan
from ..errors import CubeError, LibraryError, MethodError
from ..io import Cube, bytes_per_line
from ..io.identity import Watch, files_of, modified, warn_if_touched
from ..io.placement import Placement
from ..io.remote import is_remote
from ..io.window import Tied
from ..library import Endmembers
from ..methods import ModelChoice
from ..options import Options
from ..outputs.atomic import finite
from ..outputs.completed import CompletedRun
from ..outputs.decide import Fresh, Publish, Resume, Skip, decide
from ..outputs.journal import ResumeState
from ..outputs.judgement import collected_warnings
from ..outputs.map_type import ORTHO, map_type, type_of
from ..outputs.names import (
    LIBRARY,
    RECORD,
    file_of,
    folder_for,
    inputs_of,
    of_a_run,
    refuse_inputs,
    suffixes_of,
)
from ..outputs.output_set import Outputs
from ..outputs.report import input_of, map_headers, origin_of_maps, plan_only, report_of
from ..pictures.browse import bands_shown, browse_of
from ..pipeline import Seconds
from ..problem import Problem, Weighting, less_shade, plan_problem
from ..scene import open_scene
from ..scene.sample import check_scale
from ..summary import Summary
from .derived import DerivedMap, derived_maps, header_fields
from .derived.noise import NoiseCube, noise_of, read_bands
from .executor import Executor, LocalExecutor, Progress
from .inputs import fit_shade, library_of, refuse_each, refuse_units, refuse_weights

if TYPE_CHECKING:
    from .sparse.penalty import Penalty
    from .sparse.rows import Rows

log = logging.getLogger("unmix")
# Maps of more bytes are announced.
LARGE = 10**9


def run(
    cube: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    command: Sequence[str] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Unmix a scene: write abundances, RMSE and endmembers beside it, and certify every pixel.

    Parameters
    ----------
    cube : path-like
        The scene (ENVI: header or data file).
    progress : callable, optional
        Called with an `unmix.pipeline.Step` after every block of lines.
    command : sequence of str, optional
        The command line, for ``run.json``.
    **options
        The fields of `unmix.Options`, such as ``method="nnls"`` or ``endmembers="library.csv"``, and of `unmix.ReadOptions`, such
        as ``bands="1-50,60"`` or ``lines="100:200"``.

    Returns
    -------
    dict
        The contents of ``STEM_run.json``.

    Raises
    ------
    UnmixError
        See `unmix.errors`; no output has its final name then. Finished lines are kept, and the same call continues after them.
    """
    chosen = Options.of(**options)
    executor = LocalExecutor(chosen)
    try:
        return unmix_scene(cube, chosen, executor, progress, command)
    finally:
        executor.close()


def unmix_scene(
    cube: str | os.PathLike[str],
    options: Options,
    executor: Executor,
    progress: Progress | None = None,
    command: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Unmix a scene as `run` does, with the given executor."""
    with collected_warnings() as warnings:

        def scene_run(options: Options) -> SceneRun:
            return SceneRun(cube, options, executor, progress, command, warnings)

        if options.out_dir is None or not is_remote(options.out_dir):
            return scene_run(options).run()
        from .upload import unmix_and_upload

        return unmix_and_upload(scene_run, options)


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

    Raises
    ------
    UnmixError
        Where the scene, its mask or the library cannot be read, or an output would replace one of them.
    """

    def __init__(
        self, cube: str | os.PathLike[str], options: Options, executor: Executor, progress: Progress | None,
        command: Sequence[str] | None, warnings: list[str],
    ) -> None:  # fmt: skip
        self.given, options = options, options.for_scene(cube)
        self.options, self.executor, self.progress, self.command, self.warnings = (
            options, executor, progress, command, warnings
        )  # fmt: skip
        self.scene, self.used, self.nodata = open_scene(cube, options.reading, True)
        scene = self.scene
        if options.ortho and scene.placement is None:
            raise MethodError(
                f"`ortho`: {scene.path} has no lookup table to place its pixels on a map; only EMIT's files have one"
            )
        self.folder = folder_for(options.out_dir, scene.path)
        self.suffixes = suffixes_of(
            [*options.maps(1, 1), *options.derived], options.form, options.ortho, options.browse
        )
        library = None if isinstance(options.endmembers, Endmembers) else options.endmembers
        table = file_of(options.classes) if options.classes and ":" in options.classes else None
        noise = None if options.noise in ("auto", "none") else options.noise
        weights = None if options.weights == "noise" else options.weights
        tables = {"classes": table, "noise": noise, "weights": weights, "l1_weights": options.l1_weights}
        inputs = inputs_of(scene, library=library, **tables) + inputs_of(library=options.shade)
        outputs = of_a_run(self.folder, scene.stem, self.suffixes)
        refuse_inputs(outputs, inputs)
        self.noise = None if noise is None else noise_of(noise, scene, self.used, options.reading)
        of_noise = files_of(self.noise.part) if isinstance(self.noise, NoiseCube) else []
        refuse_inputs(outputs, [("noise", path) for path in of_noise])
        self.watch = Watch(scene, of_noise)
        self.library = None if options.endmembers is None else library_of(options, scene, self.used)
        self.classes = None if self.library is None else options.sums(self.library)
        self.weights = None if weights is None else read_bands(weights, self.used, scene.bands, "weights")
        if isinstance(self.noise, NoiseCube):
            refuse_each(self.noise, options)
        elif options.weights == "noise" and self.noise is not None:
            self.weights = self.noise.min() / self.noise
        if self.weights is not None:
            refuse_weights(self.weights, weights or noise)
            self.weights = self.weights / self.weights.max()
            self.weights = self.weights / np.sqrt(np.square(self.weights).mean())
        self.penalty: Penalty | None = None
        self.rows: Rows | None = None
        if options.l1 is not None or options.l21 is not None:
            from .sparse import penalty, rows  # with what these need, 50 ms

            self.penalty = None if options.l1 is None else penalty.Penalty.of(options.l1, options.l1_weights)
            self.rows = None if options.l21 is None else rows.Rows(options.l21)
        if options.choice is not None and self.library is not None:
            refuse_units(options.choice, self.library)
        self.shade = None if options.shade is None else fit_shade(options.shade, options, scene, self.used)

    def run(self) -> dict[str, Any]:
        """Unmix the scene, or resume, publish or skip it as its existing outputs require; return the report."""
        scene, options = self.scene, self.options
        if options.dry_run:
            problem, _, bands = (None, {}, {}) if self.library is None else self.plan(self.library)
            if self.rows is not None:
                log.info(
                    f"{scene.path}: `l21` keeps fewer endmembers than these, which it finds in some 10 to 20 passes more"
                )
            return plan_only(scene, options, self.executor.name, self.used, self.folder, problem, bands)
        completed = self.asked()
        if options.overwrite or not os.path.exists(self.folder / (scene.stem + RECORD)):
            scene.expect(slice(0, min(scene.lines, -(-min(options.budget, LARGEST_BLOCK) // bytes_per_line(scene)))))
        skipped = {"input": input_of(scene), "skipped": True}
        if options.skip_existing and completed.is_done(self.folder, scene.stem):
            return skipped
        with Outputs(self.folder, scene.stem, options.form, self.suffixes, self.watch) as outputs:
            self.outputs = outputs
            identity = finite({"unmix": build(), "asked": self.request, "input": self.watch.identity})
            match decide(outputs, identity, completed, options.overwrite, options.skip_existing):
                case Skip():
                    return skipped
                case Publish(resume):
                    return outputs.publish(resume.finishing or [], resume.replaced)
                case Resume(resume):
                    return self.unmix(identity, resume)
                case Fresh():
                    return self.unmix(identity, None)

    def asked(self) -> CompletedRun:
        """Compose the request of this run, and return what a finished run must have to be skipped."""
        self.request = self.options.request(self.library, self.executor.name)
        if self.noise is not None:
            self.request |= {"noise": self.noise.identity if isinstance(self.noise, NoiseCube) else self.noise.tolist()}
        self.request |= {} if self.weights is None else {"weights": self.weights.tolist()}
        self.request |= {} if self.penalty is None else {"l1": self.penalty.to_dict()}
        self.request |= {} if self.rows is None else {"l21": self.rows.l21}
        self.request |= {} if self.shade is None else {"shade": self.shade.digest()}
        self.request |= {} if self.classes is None else {"classes": self.classes.to_list()}
        return CompletedRun(self.request, self.watch.identity)

    def unmix(self, identity: dict[str, Any], resume: ResumeState | None) -> dict[str, Any]:
        """Find endmembers, plan and solve, from the first line or from the line where an earlier run was cut off; return the report."""
        scene, options, outputs = self.scene, self.options, self.outputs
        began = time.perf_counter()
        endmembers, passes = self.find_endmembers(resume)
        if self.library is not None and resume is None:
            check_scale(scene, endmembers, self.used, self.nodata, options.reading.scale is not None)
        if self.rows is not None:
            if options.rgb is not None:  # a wrong name is an error before all the work
                bands_shown(names_shown(endmembers, options), [], options.rgb)
            endmembers, passes = self.keep_rows(endmembers, resume, passes)
            options = self.options
        extracting = time.perf_counter() - began
        problem, derived, maps = self.plan(endmembers)
        first = resume.lines if resume is not None else 0
        classes = options.sums(problem.endmembers)
        names = names_shown(problem.endmembers, options)
        block_plan = replace(self.executor.plan(scene, problem), first=first)
        if self.penalty is not None:
            problem = self.penalise(problem, resume)
        about = {
            "endmembers": None if self.library is not None else endmembers.to_dict(),
            "passes": passes,
            "rasters": {name: [scene.lines, scene.samples, bands] for name, bands in maps.items()},
            "warnings": self.warnings,
            "l1": None if self.penalty is None else {"l1": self.penalty.l1, "chosen_by": self.penalty.chosen_by},
            "l21": None if self.rows is None else self.rows.to_dict(),
            "modified": modified(scene),
        }
        outputs.begin(identity, about)
        summary, seconds = self.fill(problem, block_plan, maps)
        report = report_of(
            scene, problem, self.used, self.executor.name, summary, seconds, block_plan, options, passes, self.command
        )
        report["seconds"] = {"extracting": round(extracting, 4), **report["seconds"]}
        report |= {
            "asked": self.request, "identity": self.watch.identity, "resumed_from": first, "format": options.format,
            "options": self.given.repeatable(), "top": options.top, "warnings": self.warnings, "by": options.by,
            "path": self.executor.path(problem, scene.samples),
        }  # fmt: skip
        report |= {"placed": scene.placement.size()} if options.ortho and scene.placement else {}
        assert summary.sums is not None
        report |= (
            {} if options.choice is None else {"without_spectrum": without_spectrum(scene, options.choice, summary)}
        )
        report |= {} if self.penalty is None else {"l1": self.penalty.about(problem, scene, summary)}
        report |= {} if self.rows is None else {"l21": self.rows.about()}
        report |= {} if classes is None else {"classes": classes.means(summary.sums / max(1, summary.solved))}
        description = f"{problem.method.name} ({problem.solver.name})"
        further = {name: header_fields(one) for name, one in derived.items()}
        written = self.as_given(problem, endmembers)
        how = problem.method.name, problem.solver.name
        origin = origin_of_maps(scene, self.watch.identity, written, how, options.repeatable(), options.tags)
        map_headers(outputs, scene, problem.endmembers.names, description, summary.sums, self.used, further, origin)
        if options.browse:
            totals = summary.sums.tolist() if classes is None else [one["mean"] for one in classes.means(summary.sums)]
            shown = bands_shown(names, totals, options.rgb)
            outputs.write_browse(browse_of(outputs.values(), shown))
            report["browse"] = None if options.top else [names[j] for j in shown]
        written.write(*map(outputs.part, LIBRARY))
        outputs.finish(report)
        return finite(report)

    def plan(self, endmembers: Endmembers) -> tuple[Problem, dict[str, DerivedMap], dict[str, int]]:
        """Return the problem, the derived maps, and the number of bands of each map."""
        options = self.options
        given, used, weighting, ridge = endmembers, self.used, None, None
        if self.shade is not None and options.choice is not None:
            used, given = less_shade(self.shade.matrix[:, 0], used, endmembers)
            same = [name for name, column in zip(given.names, given.matrix.T) if not column.any()]
            if same:
                raise LibraryError(f"{given.source}: {same[0]} is the spectrum of `shade`; leave it out (`select`)")
        elif self.shade is not None:
            given = endmembers.with_shade(self.shade.matrix[:, 0])
        if self.weights is not None:
            plain = given.with_shade() if options.method_spec.has_shade else given
            weighting = Weighting(self.weights, used, plain)
            used, given = weighting.weighted()
        if self.rows is not None and self.rows.found is not None:
            ridge = self.rows.ridge(used, given)
            used, given = ridge.raised()
        problem = plan_problem(
            given, options.method_spec, options.solver_spec, used, self.nodata, self.scene.interleave, options.choice
        )
        if self.penalty is not None:
            self.penalty.refuse_other_count(problem)
        noise = self.noise if self.noise is None or self.weights is None else self.noise * self.weights
        problem = replace(problem, noise=noise, weighting=weighting, ridge=ridge)
        sums, choice = options.sums(problem.endmembers), options.draw_choice
        if sums is not None and choice is not None:
            from .derived.monte_carlo import plan_draws

            problem = replace(problem, draws=plan_draws(problem, sums, choice, options.budget))
        if options.rgb is not None:  # a wrong name is an error before all the work
            bands_shown(names_shown(problem.endmembers, options), [], options.rgb)
        derived = derived_maps(problem, options, self.scene)
        bands = options.maps(len(self.used.index), problem.E.shape[1]) | {
            name: len(one.bands) for name, one in derived.items()
        }
        return problem, derived, bands

    def penalise(self, problem: Problem, resume: ResumeState | None) -> Problem:
        """Return the problem with the penalty, whose λ is chosen here unless the user, or an earlier run, has."""
        assert self.penalty is not None
        before = None if resume is None or resume.about is None else resume.about.get("l1")
        if before is not None:
            self.penalty = replace(self.penalty, **before)
        elif isinstance(self.penalty.l1, str):
            noise = None if self.noise is None else float(np.square(np.asarray(problem.noise)).sum())
            options = self.options
            self.penalty = self.penalty.chosen(problem, self.scene, noise, options.budget, options.threads)
        return self.penalty.put_on(problem)

    def keep_rows(self, library: Endmembers, resume: ResumeState | None, passes: int) -> tuple[Endmembers, int]:
        """Return the endmembers that the penalty on rows leaves, found here or by an earlier run, and how often the file was read."""
        assert self.rows is not None
        before = None if resume is None or resume.about is None else resume.about.get("l21")
        if before is not None:
            self.rows = self.rows.from_dict(before)
        else:
            noise = None if self.noise is None else float(np.square(np.asarray(self.noise)).sum())
            options = self.options
            self.rows = self.rows.of_scene(
                library, self.scene, self.used, self.nodata, noise, options.budget, options.threads
            )
            passes += self.rows.passes
        kept, options = self.rows.kept(library), self.options
        asked = set() if options.rgb is None else {name.strip() for name in options.rgb.split(",")}
        gone = sorted(asked - set(names_shown(kept, options)))
        if gone:
            log.warning(f"{self.scene.path}: `rgb`: `l21` keeps no {gone[0]}; shown are the largest")
            self.options = replace(options, rgb=None)
        return kept, passes

    def as_given(self, problem: Problem, endmembers: Endmembers) -> Endmembers:
        """Return the spectra that the user gave or had extracted, shade included, before ties, weights or shade change them."""
        scene, options = self.scene, self.options
        if isinstance(scene, Tied) and options.endmembers is not None:
            part = scene.part
            given = library_of(options, part, scene.used)
            shade = None if options.shade is None else fit_shade(options.shade, options, part, scene.used).matrix[:, 0]
            has_shade = options.method_spec.has_shade or shade is not None
            given = given if self.rows is None else self.rows.kept(given)
            return given.with_shade(shade) if has_shade else given
        if problem.weighting is not None:
            return problem.weighting.endmembers
        if problem.ridge is not None:
            return problem.ridge.endmembers
        if problem.choice is not None and self.shade is not None:
            return endmembers.with_shade(self.shade.matrix[:, 0])
        return problem.endmembers

    def find_endmembers(self, resume: ResumeState | None) -> tuple[Endmembers, int]:
        """Return the library's, the earlier run's or newly extracted endmembers, and how often the file is read in all."""
        if resume is None:
            if self.library is not None:
                return self.library, 1
            endmembers, passes = self.executor.extract(self.scene, self.used, self.nodata)
            return endmembers, passes + 1
        about = resume.about
        assert about is not None
        log.info(f"{self.scene.path}: goes on from line {resume.lines} of {self.scene.lines}")
        warn_if_touched(self.scene, about)
        self.warnings[:0] = [text for text in about.get("warnings", []) if text not in self.warnings]
        return self.library or Endmembers.from_dict(about["endmembers"]), about["passes"]

    def fill(self, problem: Problem, block_plan: BlockPlan, maps: dict[str, int]) -> tuple[Summary, Seconds]:
        """Begin or continue the maps, and let the executor fill them; raise `CubeError` where every pixel is masked."""
        scene, options, outputs = self.scene, self.options, self.outputs
        placement = scene.placement if options.ortho else None
        pixel = sum(type_of(name, options.quantize).dtype.itemsize * count for name, count in maps.items())  # bytes
        size = scene.lines * scene.samples * pixel
        if size > LARGE and options.top is None and maps.get("abundance", 0) > sum(maps.values()) / 2:
            log.info(
                f"{scene.path}: writes {size / 1e9:.1f} GB, {maps['abundance']} abundances a pixel; `top` writes the largest only"
            )
        # Work files and the files converted from them are on disk together until all are made.
        times = 2 if outputs.form.convert else 1
        placed = int(np.prod(placement.shape)) if placement is not None else 0
        outputs.check_space((scene.lines * scene.samples + placed) * pixel * times + 2**20)
        for name, count in maps.items():
            outputs.raster(name, scene.lines, scene.samples, count, map_type(name, options, problem))
        summary, seconds = self.executor.solve(scene, problem, block_plan, outputs, self.progress)
        lost = sum(self.noise.lost) if isinstance(self.noise, NoiseCube) else 0
        if lost:
            log.warning(f"{scene.path}: {lost} pixels have no noise in some band; their standard deviations are -9999")
        if placement is not None:
            for name, count in maps.items():
                place_map(placement, outputs, name, count, options.budget)
        if summary.solved == 0:
            outputs.journal.remove()  # there is nothing to resume
            raise CubeError(f"{scene.path}: all {summary.masked + summary.partly_nodata} pixels are masked as nodata")
        return summary, seconds


def names_shown(endmembers: Endmembers, options: Options) -> Sequence[str]:
    """Return the names of what a browse image may show: the classes where there are sums by class, else the endmembers."""
    classes = options.sums(endmembers)
    return endmembers.names if classes is None else classes.names


def without_spectrum(scene: Cube, choice: ModelChoice, summary: Summary) -> int:
    """Return how many pixels have no spectrum, and warn of them where limits may be why."""
    none = int(summary.steps[0]) if len(summary.steps) else 0
    if none and choice.largest_rmse < float("inf"):
        log.warning(
            f"{scene.path}: {none} of {summary.solved} pixels have no spectrum: no model is within the limits, or shade alone is best"
        )
    return none


def place_map(placement: Placement, outputs: Outputs, name: str, bands: int, memory: int) -> None:
    """Make ``STEM_name_ortho`` from the finished ``STEM_name``, some lines at a time."""
    source = outputs.rasters[name]
    swath = source.stored()
    lines, samples = placement.shape
    target = outputs.raster(name + ORTHO, lines, samples, bands, source.map_type)
    bytes_of_line = samples * (12 * bands + 40)  # values gathered and transposed, and the indices of their pixels
    if bytes_of_line > max(memory, SMALLEST_BLOCK):
        raise MethodError(f"`memory` {memory} bytes is too small: one line of the map needs {bytes_of_line}")
    step = max(1, min(lines, memory // bytes_of_line))
    for line in range(0, lines, step):
        part = slice(line, min(line + step, lines))
        target.write_stored(part, placement.place(swath, part, source.map_type.blank))
