"""A Dask cluster as `unmix.runs.executor.Executor`: workers get a scene in units of lines, and write these to their place."""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any

import numpy as np
from distributed import Client, Future, KilledWorker
from distributed import wait as wait_for

from ..._version import build
from ...blocks import BlockPlan, plan_blocks
from ...devices import Job
from ...errors import DeviceError, UnmixError
from ...io import Cube, Scene, bytes_per_line
from ...library import Endmembers
from ...options import Options
from ...pipeline import Seconds
from ...problem import Problem
from ...runs.executor import Progress, step_of
from ...runs.files.output_set import Outputs
from ...runs.stream import line_of
from ...scene.sample import warn_of_fill
from ...settings import settings_of
from ...summary import Summary
from ..runs import in_runs
from . import worker
from .connection import dashboard_of
from .scheduling import LOOK, UNITS_A_WORKER, WorkerPool

log = logging.getLogger("unmix")
FETCH_SECONDS = 5.0  # seconds that a result may take to arrive before it is asked for again
MOST_SCENES = 64  # at a time, each in a thread


class ClusterExecutor:
    """The workers of a Dask cluster; they take any number of scenes at a time, each from a thread of the caller.

    Parameters
    ----------
    client : Client
    options : Options
        Of all scenes; every worker must have the device, all of the same kind.
    unit_bytes : int
        About how many stored bytes of a scene are a unit, which goes to one worker.
    patience : float
        Seconds to wait for a worker when there is none.

    Raises
    ------
    DeviceError
        Where workers have no such device, their devices differ in kind, or they have another version of unmix.
    """

    own_device = "cpu"  # this machine may have no other

    def __init__(self, client: Client, options: Options, unit_bytes: int, patience: float) -> None:
        self.client, self.unit_bytes = client, unit_bytes
        self.pool = WorkerPool(client, patience)
        try:
            self.pool.wait()
            self.name = self.common_device_kind(options.device)
            device = self.name if options.device == "auto" else options.device
            # Workers get absolute paths, and no library: its spectra are in the problem; and no part in all runs looks at theirs.
            of_all_runs: dict[str, Any] = {
                name: None for one in in_runs().values() if one.is_always for name in settings_of(one.settings)
            }
            reading = options.reading.with_absolute_paths()
            library = None if options.endmembers is None else Endmembers((), np.empty((0, 0)), None)
            self.options = replace(
                options,
                device=device,
                reading=reading,
                endmembers=library,
                select=None,
                complete=False,
                classes=None,
                library_scale=None,
                across_gaps=False,
                **of_all_runs,
            )
        except BaseException:
            self.pool.stop()
            raise
        count = len(self.pool.workers)
        link = dashboard_of(client)
        log.info(f"{count} worker{'s' * (count != 1)}, {self.name}" + (f"; dashboard: {link}" if link else ""))

    def expect(self, work: Job) -> None:
        """Do nothing: the workers have their devices."""

    def common_device_kind(self, device: str) -> str:
        """Return the kind of device that all workers have; raise `DeviceError` where it or their version of unmix differs."""
        answers = self.describe_workers(device)
        for address, answer in answers.items():
            if isinstance(answer, DeviceError):
                raise DeviceError(f"{address}: {answer}")
            if isinstance(answer, UnmixError):
                raise answer
            if isinstance(answer, BaseException):
                raise DeviceError(f"{address}: cannot run unmix: {type(answer).__name__}: {answer}")
            if answer[0] != build():
                raise DeviceError(f"{address}: has unmix {answer[0]}, but this is {build()}; install one version")
        kinds = sorted({kind for _, kind in answers.values()})
        if len(kinds) > 1:
            raise DeviceError(
                "some workers have a GPU and some have none, and maps must come from one kind; name `device` cpu or cuda"
            )
        return kinds[0]

    def describe_workers(self, device: str) -> dict[str, Any]:
        """Return each worker's version and device, or its error, by address; wait neither for a lost scheduler nor for lost workers."""
        answers: dict[str, Any] = {}

        def ask() -> None:
            with contextlib.suppress(Exception):  # if the scheduler is lost, `WorkerPool.watch` notices
                answers.update(self.client.run(worker.describe, device, on_error="return"))

        asking = threading.Thread(target=ask, name="describe", daemon=True)
        asking.start()
        while asking.is_alive():
            self.pool.check()
            asking.join(LOOK)
        alive = {address: answer for address, answer in answers.items() if not isinstance(answer, OSError)}
        if not alive:
            raise self.pool.lost()
        return alive

    @property
    def scenes_at_once(self) -> int:
        """Return how many scenes keep every worker busy, even small ones of which some are just beginning or ending."""
        return min(MOST_SCENES, UNITS_A_WORKER * max(1, len(self.pool.workers)) + 1)

    def task(self, scene: Cube, problem: Problem | None = None, outputs: Outputs | None = None) -> worker.SceneTask:
        """Return the task of a scene, as workers take it."""
        rasters = outputs.rasters if outputs is not None else {}
        lock = (str(outputs.lock.path.absolute()), outputs.lock.key) if outputs is not None else ("", "")
        maps = {
            name: worker.MapFile(
                str(raster.path.absolute()), raster.lines, raster.samples, raster.bands, raster.map_type
            )
            for name, raster in rasters.items()
        }
        return worker.SceneTask(scene.named or str(scene.path.absolute()), self.options, problem, maps, lock)

    def submit(self, address: str, call: Callable[..., Any], *arguments: Any) -> Future:
        """Submit a call to the worker at ``address``; if that dies, Dask gives it to another."""
        with self.pool.asking():
            return self.client.submit(call, *arguments, workers=[address], allow_other_workers=True, pure=False)

    def wait_for_any(self, running: dict[Future, Any]) -> list[Future]:
        """Return the futures that are done; wait for the first for `LOOK` seconds at most."""
        self.pool.check()
        done: list[Future] = []
        with contextlib.suppress(TimeoutError), self.pool.asking(TimeoutError):
            done = list(wait_for(list(running), timeout=LOOK, return_when="FIRST_COMPLETED").done)
        return done

    def result_of(self, future: Future, address: str, work: str) -> Any:
        """Return the result of a worker, or None where its device failed and another worker is to try.

        Raises
        ------
        DeviceError
            Where every worker that took the work died, or the work failed with an error that is not of `unmix.errors`.
        UnmixError
            Where the work failed on the worker with such an error.
        """
        result = None
        while result is None:  # a worker may die before its result is fetched: then another computes it again
            self.pool.check()
            with contextlib.suppress(TimeoutError), self.pool.asking(TimeoutError):
                error = future.exception(timeout=LOOK)
                if isinstance(error, CancelledError):
                    raise error
                if error is not None:
                    break
                result = future.result(timeout=FETCH_SECONDS)
        if result is not None:
            return result
        if isinstance(error, KilledWorker):
            last = error.last_worker.address
            raise DeviceError(
                f"{work}: every worker that took it died, the last was {last}; out of memory? lower `memory`"
            )
        if isinstance(error, DeviceError):
            log.warning(f"{error}; {address} gets no more work")
            self.pool.drop(address)
            return None
        if isinstance(error, UnmixError):
            raise error
        raise DeviceError(f"{work}: a worker failed: {type(error).__name__}: {error}")

    def path(self, problem: Problem, samples: int) -> str | None:
        """Return None: each worker decides by its GPU how pixels are searched."""
        return None

    def extract(self, scene: Scene) -> tuple[Endmembers, int]:
        """Extract the endmembers on a worker; see `unmix.features.cluster.worker.extract_endmembers`."""
        warn_of_fill(scene.to_extract_from())  # as the extraction does; workers log errors only
        task = self.task(scene.cube)
        while True:
            address = self.pool.acquire(True)
            assert address is not None
            future = self.submit(address, worker.extract_endmembers, task)
            try:
                while not self.wait_for_any({future: address}):
                    pass
                result = self.result_of(future, address, f"{scene.cube.path}: endmembers")
            finally:
                future.release()
                self.pool.release(address)
            if result is not None:
                return result

    def plan(self, scene: Cube, problem: Problem) -> BlockPlan:
        """Cut the scene into units of whole chunks and about `unit_bytes`; into one if each worker would inflate the whole file."""
        line = line_of(scene, problem, self.options).bytes_in_flight(problem)
        plan_blocks(scene.lines, line, self.options.budget, 1)  # raises here, not on a worker, if `memory` is too small
        lines = max(1, self.unit_bytes // bytes_per_line(scene))
        lines += -lines % min(scene.lines_together, scene.lines)
        inflated = getattr(scene, "scratch", None) is not None
        return BlockPlan(scene.lines, scene.lines if inflated else min(lines, scene.lines), UNITS_A_WORKER)

    def solve(
        self, scene: Cube, problem: Problem, block_plan: BlockPlan, outputs: Outputs, progress: Progress | None
    ) -> tuple[Summary, Seconds]:
        """Give units to the workers, and enter their results into the journal in the order of lines."""
        began, seconds = time.perf_counter(), Seconds()
        summary = outputs.summary(problem.E.shape[1], len(problem.E))
        task = self.task(scene, problem, outputs)
        waiting, running, arrived = deque(block_plan), dict[Future, tuple[slice, str]](), dict[int, worker.WorkUnit]()
        reached = block_plan.first
        try:
            while waiting or running:
                while waiting and (address := self.pool.acquire(not running)) is not None:
                    lines = waiting.popleft()
                    future = self.submit(address, worker.solve_work_unit, task, lines.start, lines.stop)
                    running[future] = lines, address
                for future in self.wait_for_any(running):
                    lines, address = running[future]
                    unit = self.result_of(future, address, f"{scene.path}: lines {lines.start} to {lines.stop}")
                    self.pool.release(running.pop(future)[1])
                    if unit is None:
                        waiting.appendleft(lines)
                    else:
                        arrived[lines.start] = unit
                while reached in arrived:
                    reached = self.enter_unit(arrived.pop(reached), outputs, summary, seconds)
                    if progress is not None:
                        progress(step_of(scene, reached, f"{len(self.pool.workers)} x {self.name}", block_plan.first))
        finally:
            for future, (_, address) in running.items():
                future.release()  # a worker that has begun finishes its unit, and the result is dropped
                self.pool.release(address)
        seconds.total = time.perf_counter() - began
        return summary, seconds

    @staticmethod
    def enter_unit(unit: worker.WorkUnit, outputs: Outputs, summary: Summary, seconds: Seconds) -> int:
        """Enter a unit into the journal, and return the line after it."""
        for name, checks in unit.checks.items():
            outputs.rasters[name].checks[unit.lines] = checks
        summary.merge(unit.summary)
        seconds.add(unit.seconds)
        outputs.done(unit.lines, summary.to_dict())
        return int(unit.lines.stop)
