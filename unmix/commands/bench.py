"""`bench`: time this machine unmixing a cube, and the copy that bounds it: the same reads, transfers and writes, no arithmetic."""

import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..io import bytes_per_line
from ..io.remote import located
from ..library import fit, load_parts
from ..methods import WITHOUT_METHOD, choose
from ..options import Options
from ..pipeline import Seconds
from ..problem import plan_problem
from ..runs.executor import LocalExecutor
from ..runs.files.output_set import Outputs
from ..scene import ReadOptions, open_scene


def bench(
    cube: str | os.PathLike[str],
    endmembers: str | os.PathLike[str],
    *,
    method: str = WITHOUT_METHOD,
    solver: str | None = None,
    devices: Sequence[str] = ("auto",),
    out_dir: str | os.PathLike[str] | None = None,
    memory: str | int = "1G",
    gpu_memory: str | int = "1G",
    threads: int | None = None,
    streams: Sequence[int] = (4,),
    repeats: int = 3,
    **reading: Any,
) -> list[dict[str, Any]]:
    """Time a scene on each device, in turn with the copy that bounds it, in one process and after one warm-up run of each.

    Parameters
    ----------
    cube, endmembers : path-like
        As for `unmix.run`; extraction is not timed.
    method, solver, memory, gpu_memory, threads
        As for `unmix.run`.
    devices : sequence of str
    out_dir : path-like, optional
        Where maps are written, and removed again; default is the system's temporary folder. Choose one on the disk, or in the
        memory, that is to be measured.
    streams : sequence of int
        Numbers of blocks in flight; each number is timed.
    repeats : int
        Runs of each; the medians are returned.
    **reading
        The fields of `unmix.ReadOptions`.

    Returns
    -------
    list of dict
        For each device and number of streams: ``device``, ``streams``, ``in_flight`` (blocks; fewer than ``streams`` if the
        scene has no more), ``pixels``, ``bytes_read``, and for ``copy`` and ``run`` the medians in seconds of the stages and
        of the total (`unmix.pipeline.Seconds`), ``gigabytes_per_second`` read, ``pixels_per_second`` and ``hidden``; ``ratio``,
        the median over pairs of the time of the run to that of the copy.

    Raises
    ------
    UnmixError
        As for `unmix.run`.
    """
    given = open_scene(cube, ReadOptions(**reading))
    scene = given.cube
    library = fit(load_parts(located(endmembers)), scene, given.bands.index)
    method_spec, solver_spec = choose(method, solver)
    problem = plan_problem(library, method_spec, solver_spec, given)
    pixels, size = scene.lines * scene.samples, scene.lines * bytes_per_line(scene)
    timings = []
    for name in devices:
        for count in streams:
            options = Options(
                method, solver, device=name, memory=memory, gpu_memory=gpu_memory, threads=threads, streams=count
            )
            times: dict[bool, list[Seconds]] = {False: [], True: []}  # of the copy and of the run
            executor = LocalExecutor(options)
            machine = executor.machine
            try:
                block_plan = executor.plan(scene, problem)
                with tempfile.TemporaryDirectory(prefix="unmix-bench-", dir=out_dir) as folder:
                    for turn in range(repeats + 1):
                        for machine.solves in (False, True):
                            outputs = Outputs(Path(folder), scene.stem)
                            try:
                                for map_name, bands in options.maps(*problem.E.shape).items():
                                    outputs.raster(map_name, scene.lines, scene.samples, bands)
                                _, seconds = executor.solve(scene, problem, block_plan, outputs, None)
                            finally:
                                outputs.abandon()
                            if turn > 0:
                                times[machine.solves].append(seconds)
            finally:
                executor.close()
            ratio = statistics.median(run.total / copy.total for run, copy in zip(times[True], times[False]))
            timings.append({
                "device": machine.name, "method": method_spec.name, "solver": solver_spec.name, "endmembers": len(library.names),
                "streams": count, "in_flight": block_plan.slots, "lines_per_block": block_plan.lines_per_block,
                "interleave": scene.interleave, "pixels": pixels, "bytes_read": size,
                "copy": medians(times[False], pixels, size), "run": medians(times[True], pixels, size),
                "ratio": round(ratio, 3),
            })  # fmt: skip
    return timings


def medians(runs: list[Seconds], pixels: int, size: int) -> dict[str, Any]:
    """Return the medians of every stage, and the rates that follow from the median of the total."""
    seconds = {name: statistics.median(asdict(run)[name] for run in runs) for name in asdict(runs[0])}
    hidden = [run.hidden() for run in runs]
    shares = [share for share in hidden if share is not None]
    return {
        **{name: round(value, 5) for name, value in seconds.items()},
        "gigabytes_per_second": round(size / seconds["total"] / 1e9, 3),
        "pixels_per_second": round(pixels / seconds["total"]),
        "hidden": statistics.median(shares) if shares else None,
    }
