"""`run`: from a cube on disk to certified abundance maps on disk."""

import functools
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .._version import build
from ..blocks import LARGEST_BLOCK, SMALLEST_BLOCK, BlockPlan
from ..devices import Device, choose_device
from ..endmembers import extract_endmembers
from ..errors import CubeError, MethodError
from ..io import Bands, Cube, bytes_per_line
from ..io.export import NODATA
from ..io.identity import Watch
from ..io.placement import Placement
from ..library import Endmembers, fit, load_parts
from ..library import select as choose_spectra
from ..options import Options
from ..outputs.atomic import finite
from ..outputs.completed import CompletedRun
from ..outputs.judgement import collected_warnings
from ..outputs.names import ORTHO, RECORD, inputs_of, of_a_run, refuse_inputs, suffixes_of
from ..outputs.output_set import Outputs
from ..outputs.report import input_of, map_headers, plan_only, report_of
from ..pipeline import Seconds, Step
from ..problem import Problem, plan_problem
from ..scene import check_scale, open_scene
from ..summary import Summary
from .stream_lines import block_plan_of, line_of, solve_lines

log = logging.getLogger("unmix")
Progress = Callable[[Step], None]


def run(
    cube: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    command: Sequence[str] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Unmix a scene: abundances, RMSE and endmembers beside it, every pixel with its certificate.

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
        What ``STEM_run.json`` holds.

    Raises
    ------
    UnmixError
        See `unmix.errors`; nothing is left under a final name then. What was done stays to go on from, and the same call does.
    """
    chosen = Options.of(**options)
    alone = LocalExecutor(chosen)
    try:
        return unmix_scene(cube, chosen, alone, progress, command)
    finally:
        alone.close()


class Executor(Protocol):
    """Who does the work on a scene: this process (`LocalExecutor`), or a cluster (`unmix.jobs.distributed.executor.ClusterExecutor`).

    ``name`` is the device's; ``extract`` finds endmembers and says how often it passed over the file; ``plan`` cuts the scene
    before anything is written; ``solve`` fills the rasters of ``outputs`` from the layout's first line on.
    """

    @property
    def name(self) -> str: ...
    def extract(self, scene: Cube, used: Bands, nodata: float | None) -> tuple[Endmembers, int]: ...
    def plan(self, scene: Cube, problem: Problem) -> BlockPlan: ...
    def solve(
        self,
        scene: Cube,
        problem: Problem,
        block_plan: BlockPlan,
        outputs: Outputs,
        progress: Progress | None,
    ) -> tuple[Summary, Seconds]: ...


class LocalExecutor:
    """This process on its own device, which is looked for when it is first needed: the scene's first bytes are on their way by then.

    Parameters
    ----------
    options : Options
    """

    def __init__(self, options: Options) -> None:
        self.options = options

    @functools.cached_property
    def machine(self) -> Device:
        """The device."""
        return choose_device(self.options.device, self.options.threads)

    @property
    def name(self) -> str:
        return self.machine.name

    def extract(self, scene: Cube, used: Bands, nodata: float | None) -> tuple[Endmembers, int]:
        """See `unmix.endmembers.extract_endmembers`."""
        return extract(scene, used, nodata, self.options, self.options.threads)

    def plan(self, scene: Cube, problem: Problem) -> BlockPlan:
        """See `block_plan_of`."""
        return block_plan_of(scene, problem, self.options, self.machine)

    def solve(
        self,
        scene: Cube,
        problem: Problem,
        block_plan: BlockPlan,
        outputs: Outputs,
        progress: Progress | None,
    ) -> tuple[Summary, Seconds]:
        """See `solve_lines`."""
        began = time.perf_counter()
        slots = self.machine.open(problem, line_of(scene, self.options), block_plan)
        seconds = Seconds(compiling=time.perf_counter() - began)
        summary = outputs.summary()

        def done(lines: slice, part: Summary) -> None:
            summary.merge(part)
            outputs.done(lines, summary.to_dict())
            if progress is not None:
                progress(step_of(scene, lines.stop, self.name, block_plan.first))

        solve_lines(scene, problem, block_plan, slots, outputs.rasters, self.machine, self.options, done, seconds)
        return summary, seconds

    def close(self) -> None:
        """Let go of the device."""
        if "machine" in vars(self):
            self.machine.close()


def extract(
    scene: Cube, used: Bands, nodata: float | None, options: Options, threads: int | None
) -> tuple[Endmembers, int]:
    """The endmembers that the options ask to extract, and passes over the file."""
    wanted = "auto" if options.count is None else options.count
    return extract_endmembers(scene, used, nodata, wanted, options.extract, options.seed, options.budget, threads)


def unmix_scene(
    cube: str | os.PathLike[str],
    options: Options,
    workers: Executor,
    progress: Progress | None = None,
    command: Sequence[str] | None = None,
) -> dict[str, Any]:
    """What `run` does, by whoever does the work."""
    with collected_warnings() as warnings:
        return unmix_collecting(cube, options, workers, progress, command, warnings)


def unmix_collecting(
    cube: str | os.PathLike[str],
    options: Options,
    workers: Executor,
    progress: Progress | None,
    command: Sequence[str] | None,
    warnings: list[str],
) -> dict[str, Any]:
    """`unmix_scene`, with the list that its warnings come to."""
    scene, used, missing_value = open_scene(cube, options.reading)
    if options.ortho and scene.placement is None:
        raise MethodError(f"`ortho`: {scene.path} has no lookup table to place its pixels on a map; EMIT's files have")
    folder = Path(options.out_dir) if options.out_dir is not None else scene.path.parent
    refuse_to_replace(scene, options, folder)
    watch = Watch(scene)
    library = None if options.endmembers is None else library_on(options.endmembers, options.select, scene, used)
    if options.dry_run:
        return plan_only(scene, options, workers.name, used, folder, library)
    if options.overwrite or not os.path.exists(folder / (scene.stem + RECORD)):
        scene.expect(slice(0, min(scene.lines, -(-min(options.budget, LARGEST_BLOCK) // bytes_per_line(scene)))))
    request = options.request(library, workers.name)
    wanted = CompletedRun(request, watch.identity)
    if options.skip_existing and wanted.is_done(folder, scene.stem):
        return {"input": input_of(scene), "skipped": True}
    with Outputs(
        folder, scene.stem, options.form, suffixes_of(options.maps(1, 1), options.form, options.ortho), watch
    ) as outputs:
        identity = finite({"unmix": build(), "asked": request, "input": watch.identity})
        resume = outputs.look_back(identity, options.overwrite)
        if resume is not None and resume.finishing is not None:
            return outputs.publish(resume.finishing, resume.replaced)
        if resume is None and outputs.are_there(options.overwrite, options.skip_existing, wanted):
            return {"input": input_of(scene), "skipped": True}
        found, passes, began = library, 1, time.perf_counter()
        if resume is not None:
            outputs.refuse_existing(options.overwrite or options.skip_existing)
            log.info(f"{scene.path}: goes on from line {resume.lines} of {scene.lines}")
            say_if_touched(scene, resume.about)
            assert resume.about is not None
            found, passes = library or Endmembers.from_dict(resume.about["endmembers"]), resume.about["passes"]
            warnings[:0] = [text for text in resume.about.get("warnings", []) if text not in warnings]
        if found is None:
            found, passes = workers.extract(scene, used, missing_value)
            passes += 1
        extracting = time.perf_counter() - began
        problem = plan_problem(found, options.method_spec, options.solver_spec, used, missing_value, scene.interleave)
        block_plan = replace(workers.plan(scene, problem), first=resume.lines if resume is not None else 0)
        if library is not None and resume is None:
            check_scale(scene, found, used, missing_value, options.reading.scale is not None)
        maps = options.maps(*problem.E.shape)
        shapes = {name: [scene.lines, scene.samples, bands] for name, bands in maps.items()}
        own = None if library is not None else found.to_dict()
        outputs.begin(
            identity,
            {"endmembers": own, "passes": passes, "rasters": shapes, "warnings": warnings, "modified": modified(scene)},
        )
        summary, seconds = fill(outputs, scene, problem, block_plan, workers, options, progress)
        report = report_of(scene, problem, workers.name, summary, seconds, block_plan, options, passes, command)
        report["seconds"] = {"extracting": round(extracting, 4), **report["seconds"]}
        report |= {
            "asked": request,
            "identity": watch.identity,
            "resumed_from": block_plan.first,
            "format": options.format,
            "top": options.top,
            "warnings": warnings,
        }
        report |= {"placed": scene.placement.size()} if options.ortho and scene.placement else {}
        assert summary.sums is not None
        how = f"{problem.method.name} ({problem.solver.name})"
        map_headers(outputs, scene, found.names, how, summary.sums, used)
        found.write(*(outputs.part(ending) for ending in ("_endmembers.csv", "_endmembers.sli", "_endmembers.hdr")))
        outputs.finish(report)
    return finite(report)


def refuse_to_replace(scene: Cube, options: Options, folder: Path) -> None:
    """`MethodError` where an output would be a file that is read: of the cube, its mask or the library."""
    library = None if isinstance(options.endmembers, Endmembers) else options.endmembers
    suffixes = suffixes_of(options.maps(1, 1), options.form, options.ortho)
    refuse_inputs(of_a_run(folder, scene.stem, suffixes), inputs_of(scene, library=library))


def modified(scene: Cube) -> int:
    """When the scene's data was last written to, in ns."""
    return scene.path.stat().st_mtime_ns


def say_if_touched(scene: Cube, about: dict[str, Any] | None) -> None:
    """Warn where the data was written to since the run began: its identity looks at blocks of a large file, not at every byte."""
    if about is not None and about.get("modified") not in (None, modified(scene)):
        log.warning(
            f"{scene.path}: was written to, or copied, since the unfinished run began; what was looked at of it is the same. If its "
            "values changed, begin anew with `overwrite`"
        )


def library_on(
    endmembers: str | os.PathLike[str] | Endmembers, select: str | None, scene: Cube, used: Bands
) -> Endmembers:
    """The chosen spectra of a library on the bands in use."""
    parts = [endmembers] if isinstance(endmembers, Endmembers) else load_parts(Path(endmembers))
    return fit(parts if select is None else choose_spectra(parts, select), scene, used.index)


def step_of(scene: Cube, line: int, device: str, first: int) -> Step:
    """All lines before ``line`` are done, those from ``first`` on by this run."""
    return Step(line, scene.lines, scene.samples, bytes_per_line(scene), device, first)


def fill(
    outputs: Outputs, scene: Cube, problem: Problem, block_plan: BlockPlan, workers: Executor, options: Options,
    progress: Progress | None,
) -> tuple[Summary, Seconds]:  # fmt: skip
    """Begin the maps, or go on with them, and let the workers fill them."""
    maps = options.maps(*problem.E.shape)
    bands = sum(maps.values())
    # Work files stand beside what they become until all is made.
    again = bands if outputs.form.convert else 0
    placed = int(np.prod(scene.placement.shape)) if options.ortho and scene.placement is not None else 0
    outputs.check_space(4 * (scene.lines * scene.samples + placed) * (bands + again) + 2**20)
    for name, count in maps.items():
        outputs.raster(name, scene.lines, scene.samples, count)
    summary, seconds = workers.solve(scene, problem, block_plan, outputs, progress)
    if options.ortho and scene.placement is not None:
        for name, count in maps.items():
            place_map(scene.placement, outputs, name, count, options.budget)
    if summary.solved == 0:
        outputs.journal.remove()  # there is nothing to go on from
        raise CubeError(f"{scene.path}: all {summary.masked + summary.partly_nodata} pixels are masked as nodata")
    return summary, seconds


def place_map(placement: Placement, outputs: Outputs, name: str, bands: int, memory: int) -> None:
    """Make ``STEM_name_ortho`` from the finished ``STEM_name``, some lines at a time."""
    source = outputs.rasters[name]
    swath = np.memmap(source.path, np.dtype("<f4"), "r", shape=(source.lines, source.bands, source.samples))
    lines, samples = placement.shape
    target = outputs.raster(name + ORTHO, lines, samples, bands)
    line_of_map = samples * (12 * bands + 40)  # gathered, turned round, with its places
    if line_of_map > max(memory, SMALLEST_BLOCK):
        raise MethodError(f"`memory` {memory} bytes is too small: one line of the map needs {line_of_map}")
    step = max(1, min(lines, memory // line_of_map))
    for line in range(0, lines, step):
        part = slice(line, min(line + step, lines))
        target.write(part, placement.place(swath, part, NODATA))
