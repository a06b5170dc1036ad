"""`bench`: time this machine unmixing a cube, and the copy that bounds it: the same reads, transfers and writes, no arithmetic."""

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from unmix.blocks import LARGEST_BLOCK, BlockPlan
from unmix.io import Scene, bytes_per_line, cut, located, read_blocks
from unmix.library import fit, load_parts
from unmix.methods import WITHOUT_METHOD, choose
from unmix.options import Options
from unmix.pipeline import Seconds
from unmix.problem import Problem, plan_problem
from unmix.runs.executor import Executor
from unmix.runs.files.output_set import Outputs
from unmix.runs.scene_run import work_of
from unmix.scene import ReadOptions, open_scene


def bench(
    cube: str | os.PathLike[str],
    endmembers: str | os.PathLike[str] | None = None,
    *,
    count: int | str | None = None,
    extract: str | None = None,
    method: str = WITHOUT_METHOD,
    solver: str | None = None,
    devices: Sequence[str] = ("auto",),
    out_dir: str | os.PathLike[str] | None = None,
    memory: str | int = "1G",
    gpu_memory: str | int = "4G",
    threads: int | None = None,
    streams: Sequence[int] = (4,),
    repeats: int = 3,
    **reading: Any,
) -> list[dict[str, Any]]:
    """Time a scene on each device, in turn with the copy that bounds it, in one process and after one warm-up run of
    each.

    Parameters
    ----------
    cube, endmembers : path-like
        As for `unmix.run`. Without ``endmembers`` they are extracted in every run, and a copy reads the file as often
        as that.
    count, extract, method, solver, memory, gpu_memory, threads
        As for `unmix.run`.
    devices : sequence of str
    out_dir : path-like, optional
        Where maps are written, and removed again; default is the system's temporary folder. Choose one on the disk, or
        in the memory, that is to be measured.
    streams : sequence of int
        Numbers of blocks in flight; each number is timed.
    repeats : int
        Runs of each; the medians are returned.
    **reading
        The fields of `unmix.ReadOptions`.

    Returns
    -------
    list of dict
        For each device and number of streams: ``device``, ``streams``, ``in_flight`` (blocks; fewer than ``streams`` if
        the scene has no more), ``pixels``, ``bytes_read``, and for ``copy`` and ``run`` the medians in seconds of
        ``extracting``, of the stages (`unmix.pipeline.Seconds`) and of all, ``gigabytes_per_second`` read,
        ``pixels_per_second`` and ``hidden``; ``ratio``, the median over pairs of the time of the run to that of the
        copy.

    Raises
    ------
    UnmixError
        As for `unmix.run`.
    """
    given = open_scene(cube, ReadOptions(**reading))
    scene = given.cube
    method_spec, solver_spec = choose(method, solver)
    pixels, size = scene.lines * scene.samples, scene.lines * bytes_per_line(scene)
    library = None if endmembers is None else fit(load_parts(located(endmembers)), scene, given.bands.index)
    timings = []
    for name in devices:
        for slots in streams:
            options = Options(
                method=method,
                solver=solver,
                endmembers=endmembers,
                count=count,
                extract=extract or (None if library is not None else "auto"),
                device=name,
                memory=memory,
                gpu_memory=gpu_memory,
                threads=threads,
                streams=slots,
            )
            executor = Executor(options)
            executor.expect(work_of(given, options, library))
            try:
                found, passes = (library, 0) if library is not None else executor.extract(given)
                problem = plan_problem(found, method_spec, solver_spec, given)
                block_plan = executor.plan(scene, problem)
                times: dict[bool, list[Times]] = {False: [], True: []}  # of the copy and of the run
                with tempfile.TemporaryDirectory(prefix="unmix-bench-", dir=out_dir) as folder:
                    for turn in range(repeats + 1):
                        for executor.machine.solves in (False, True):
                            outputs = Outputs(Path(folder), scene.stem)
                            one = timed(executor, given, problem, block_plan, passes, outputs)
                            if turn > 0:
                                times[executor.machine.solves].append(one)
            finally:
                executor.close()
            ratio = statistics.median(run.total / copy.total for run, copy in zip(times[True], times[False]))
            timings.append(
                {
                    "device": executor.name,
                    "method": method_spec.name,
                    "solver": solver_spec.name,
                    "endmembers": len(found.names),
                    "extract": None if library is not None else options.extract,
                    "passes": passes,
                    "streams": slots,
                    "in_flight": block_plan.slots,
                    "lines_per_block": block_plan.lines_per_block,
                    "interleave": scene.interleave,
                    "pixels": pixels,
                    "bytes_read": size,
                    "copy": medians(times[False], pixels, size),
                    "run": medians(times[True], pixels, size),
                    "ratio": round(ratio, 3),
                }
            )
    return timings


class Times(NamedTuple):
    """Seconds of a turn: of its extraction, and of its stages."""

    extracting: float
    stages: Seconds

    @property
    def total(self) -> float:
        """The seconds of both."""
        return self.extracting + self.stages.total


def timed(
    executor: Executor, given: Scene, problem: Problem, block_plan: BlockPlan, passes: int, outputs: Outputs
) -> Times:
    """Extract, if the file was read for that (``passes``), and solve; or, where the device does not solve, read and write as much."""
    began, scene = time.perf_counter(), given.cube
    if passes and executor.machine.solves:
        executor.extract(given)
    else:
        for _ in range(passes):
            for _ in read_blocks(scene, cut(scene, LARGEST_BLOCK)):
                pass
    extracting = time.perf_counter() - began
    try:
        for name, bands in executor.options.maps(*problem.E.shape).items():
            outputs.raster(name, scene.lines, scene.samples, bands)
        return Times(extracting, executor.solve(scene, problem, block_plan, outputs, None)[1])
    finally:
        outputs.abandon()


def medians(runs: list[Times], pixels: int, size: int) -> dict[str, Any]:
    """Return the medians of every stage, and the rates that follow from the median of the total."""
    stages = [asdict(run.stages) | {"extracting": run.extracting, "total": run.total} for run in runs]
    seconds = {name: statistics.median(one[name] for one in stages) for name in stages[0]}
    hidden = [run.stages.hidden() for run in runs]
    shares = [share for share in hidden if share is not None]
    return {
        **{name: round(value, 5) for name, value in seconds.items()},
        "gigabytes_per_second": round(size / seconds["total"] / 1e9, 3),
        "pixels_per_second": round(pixels / seconds["total"]),
        "hidden": statistics.median(shares) if shares else None,
    }
