"""A Dask cluster as `unmix.jobs.run.Executor`: a scene goes to it in units of lines, each written in place by one worker."""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any

from distributed import Client, Future, KilledWorker
from distributed import wait as wait_for

from ..._version import build
from ...blocks import BlockPlan, plan_blocks
from ...errors import DeviceError, UnmixError
from ...io import Bands, Cube, bytes_per_line
from ...library import Endmembers
from ...options import Options
from ...outputs.output_set import Outputs
from ...pipeline import Seconds
from ...problem import Problem
from ...summary import Summary
from ..executor import Progress, step_of
from ..stream_lines import line_of
from . import worker
from .connection import dashboard_of
from .scheduling import EACH, LOOK, WorkerPool

log = logging.getLogger("unmix")
FETCHING = 5.0  # how long an answer may take to arrive before it is asked for again, in seconds
MOST_SCENES = 64


class ClusterExecutor:
    """Workers of a Dask cluster; any number of scenes at a time, each in a thread of the caller's.

    Parameters
    ----------
    client : Client
    options : Options
        Of all scenes; the device is one that every worker has, all of them of one kind.
    unit_bytes : int
        About so many stored bytes are a worker.
    patience : float
        Seconds to wait for a worker when there is none.

    Raises
    ------
    DeviceError
        Where workers have no such device, differ in its kind, or have another version of unmix.
    """

    def __init__(self, client: Client, options: Options, unit_bytes: int, patience: float) -> None:
        self.client, self.unit_bytes = client, unit_bytes
        self.pool = WorkerPool(client, patience)
        try:
            self.pool.wait()
            self.name = self.agree(options.device)
            device = self.name if options.device == "auto" else options.device
            # What workers are asked: by paths that hold in any folder, and without the library, which is in the problem.
            reading = options.reading.with_absolute_paths()
            self.options = replace(options, device=device, reading=reading, endmembers=None, select=None)
        except BaseException:
            self.pool.stop()
            raise
        count = len(self.pool.workers)
        link = dashboard_of(client)
        log.info(f"{count} worker{'s' * (count != 1)}, {self.name}" + (f"; dashboard: {link}" if link else ""))

    def agree(self, device: str) -> str:
        """The kind of device that all workers have."""
        answers = self.described(device)
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

    def described(self, device: str) -> dict[str, Any]:
        """What each worker says of itself; waits for no scheduler that is lost, nor for workers that are gone."""
        found: dict[str, Any] = {}

        def ask() -> None:
            with contextlib.suppress(Exception):  # if it is more than that nobody is there, the lookout finds out
                found.update(self.client.run(worker.describe, device, on_error="return"))

        asking = threading.Thread(target=ask, name="describe", daemon=True)
        asking.start()
        while asking.is_alive():
            self.pool.check()
            asking.join(LOOK)
        alive = {address: answer for address, answer in found.items() if not isinstance(answer, OSError)}
        if not alive:
            raise self.pool.lost()
        return alive

    @property
    def scenes_at_once(self) -> int:
        """Enough that small scenes keep every worker busy while others begin and end."""
        return min(MOST_SCENES, EACH * max(1, len(self.pool.workers)) + 1)

    def task(self, scene: Cube, problem: Problem | None = None, outputs: Outputs | None = None) -> worker.SceneTask:
        """What workers need to know of a scene."""
        rasters = outputs.rasters if outputs is not None else {}
        lock = (str(outputs.lock.path.absolute()), outputs.lock.key) if outputs is not None else ("", "")
        maps = {
            name: worker.MapFile(str(one.path.absolute()), one.lines, one.samples, one.bands)
            for name, one in rasters.items()
        }
        return worker.SceneTask(str(scene.path.absolute()), self.options, problem, maps, lock)

    def submit(self, place: str, call: Callable[..., Any], *words: Any) -> Future:
        """Let a worker begin with that, or another one if it dies."""
        with self.pool.asking():
            return self.client.submit(call, *words, workers=[place], allow_other_workers=True, pure=False)

    def some(self, running: dict[Future, Any]) -> list[Future]:
        """Those that ended; waits for one for a while."""
        self.pool.check()
        done: list[Future] = []
        with contextlib.suppress(TimeoutError), self.pool.asking(TimeoutError):
            done = list(wait_for(list(running), timeout=LOOK, return_when="FIRST_COMPLETED").done)
        return done

    def answer(self, future: Future, place: str, what: str) -> Any:
        """What a worker found; None where its device failed and another is to try."""
        found = None
        while found is None:  # a worker may die with the answer in hand: then another makes it again
            self.pool.check()
            with contextlib.suppress(TimeoutError), self.pool.asking(TimeoutError):
                error = future.exception(timeout=LOOK)
                if isinstance(error, CancelledError):
                    raise error
                if error is not None:
                    break
                found = future.result(timeout=FETCHING)
        if found is not None:
            return found
        if isinstance(error, KilledWorker):
            last = error.last_worker.address
            raise DeviceError(
                f"{what}: every worker that took it died, the last was {last}; out of memory? lower `memory`"
            )
        if isinstance(error, DeviceError):
            log.warning(f"{error}; {place} gets no more")
            self.pool.drop(place)
            return None
        if isinstance(error, UnmixError):
            raise error
        raise DeviceError(f"{what}: a worker failed: {type(error).__name__}: {error}")

    def extract(self, scene: Cube, used: Bands, nodata: float | None) -> tuple[Endmembers, int]:
        """See `unmix.jobs.distributed.worker.extract_endmembers`."""
        task = self.task(scene)
        while True:
            place = self.pool.acquire(True)
            assert place is not None
            future = self.submit(place, worker.extract_endmembers, task)
            try:
                while not self.some({future: place}):
                    pass
                found = self.answer(future, place, f"{scene.path}: endmembers")
            finally:
                future.release()
                self.pool.release(place)
            if found is not None:
                return found

    def plan(self, scene: Cube, problem: Problem) -> BlockPlan:
        """Units in place of blocks: whole chunks, of about so many bytes; all of a file that each worker would inflate."""
        line = line_of(scene, self.options).bytes_in_flight(problem)
        plan_blocks(scene.lines, line, self.options.budget, 1)  # a budget that a worker could not keep to is said here
        lines = max(1, self.unit_bytes // bytes_per_line(scene))
        lines += -lines % min(scene.lines_together, scene.lines)
        inflated = getattr(scene, "scratch", None) is not None
        return BlockPlan(scene.lines, scene.lines if inflated else min(lines, scene.lines), EACH)

    def solve(
        self,
        scene: Cube,
        problem: Problem,
        block_plan: BlockPlan,
        outputs: Outputs,
        progress: Progress | None,
    ) -> tuple[Summary, Seconds]:
        """Units to the workers, and what they answer to the journal, in order."""
        began, summary, seconds = time.perf_counter(), outputs.summary(), Seconds()
        task = self.task(scene, problem, outputs)
        todo, running, arrived = deque(block_plan), dict[Future, tuple[slice, str]](), dict[int, worker.WorkUnit]()
        reached = block_plan.first
        try:
            while todo or running:
                while todo and (place := self.pool.acquire(not running)) is not None:
                    lines = todo.popleft()
                    running[self.submit(place, worker.solve_work_unit, task, lines.start, lines.stop)] = lines, place
                for future in self.some(running):
                    lines, place = running[future]
                    found = self.answer(future, place, f"{scene.path}: lines {lines.start} to {lines.stop}")
                    self.pool.release(running.pop(future)[1])
                    if found is None:
                        todo.appendleft(lines)
                    else:
                        arrived[lines.start] = found
                while reached in arrived:
                    reached = self.note(arrived.pop(reached), outputs, summary, seconds)
                    if progress is not None:
                        progress(step_of(scene, reached, f"{len(self.pool.workers)} x {self.name}", block_plan.first))
        finally:
            for future, (_, place) in running.items():
                future.release()  # who has begun with it ends it, and nobody asks
                self.pool.release(place)
        seconds.total = time.perf_counter() - began
        return summary, seconds

    @staticmethod
    def note(found: worker.WorkUnit, outputs: Outputs, summary: Summary, seconds: Seconds) -> int:
        """Enter a unit into the journal; returns the line after it."""
        for name, checks in found.checks.items():
            outputs.rasters[name].checks[found.lines] = checks
        summary.merge(found.summary)
        seconds.add(found.seconds)
        outputs.done(found.lines, summary.to_dict())
        return int(found.lines.stop)
