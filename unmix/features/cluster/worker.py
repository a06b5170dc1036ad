"""The work of a cluster's worker on a scene: extract its endmembers, or solve a unit of its lines and write them to their place.

A unit changes nothing but its lines in the scene's `.part` files, and flushes them. They are the same bytes whichever worker
writes them, and however often. So a retry is harmless, and so is a worker that was taken for dead and goes on.
"""

import contextlib
import functools
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..._version import build
from ...blocks import BlockPlan
from ...devices import Device, Slot, choose_device, claim_gpu, count_gpus, kind_of
from ...errors import DeviceError, OutputError, UnmixError
from ...io import Cube
from ...library import Endmembers
from ...maps.raster import MapType, Raster
from ...options import Options
from ...outputs.lock import holds
from ...pipeline import Seconds
from ...problem import Problem
from ...runs.executor import extract
from ...runs.stream import block_plan_of, line_of, solve_lines
from ...scene import open_pixels, open_scene
from ...summary import Summary

log = logging.getLogger("unmix")
# Determined on import, when the worker's code is loaded: if the sources change later, the worker still runs what it loaded.
BUILD = build()
Call = TypeVar("Call", bound=Callable[..., Any])


@dataclass(frozen=True)
class MapFile:
    """A map that is being written: its file, its size, and how its values are stored."""

    path: str
    lines: int
    samples: int
    bands: int
    map_type: MapType


@dataclass(frozen=True)
class SceneTask:
    """Task of a worker: a scene and its settings.

    Attributes
    ----------
    cube : str
        The name that opens the scene, with its absolute path, on a file system that all workers see.
    options : Options
        Without a library: the endmembers are in the problem.
    problem : Problem or None
        Factored once for all workers, whose linear algebra libraries may round differently; None to extract endmembers.
    rasters : dict of MapFile
        The maps that are being written.
    lock : (str, str)
        The path and the key of the lock that the run holds; every scene and every run has another key.
    version : str
        Version of the unmix that sends the task.
    """

    cube: str
    options: Options
    problem: Problem | None
    rasters: dict[str, MapFile]
    lock: tuple[str, str]
    version: str = BUILD


@dataclass(frozen=True)
class WorkUnit:
    """Lines that are written and flushed: their summary, the CRC-32 of each line by the raster's name, the time they took."""

    lines: slice
    summary: Summary
    checks: dict[str, np.ndarray]
    seconds: Seconds


class WorkerState:
    """State that a worker's process keeps between units: its device, and the last scene with the device's buffers for it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # one unit at a time: it uses all threads and the whole device
        self.chosen: tuple[str, int] | None = None
        self.machine: Device | None = None
        self.key = ""  # key of the lock of the run whose scene is open
        self.open: Any = ()  # that scene, its plan, and slots on the device

    def device_of(self, device: str, threads: int) -> Device:
        """Return the device of that name, opened once; ``cuda`` is a GPU that no other worker has claimed, as long as there is one."""
        if self.machine is None or self.chosen != (device, threads):
            self.close_device()
            gpus = count_gpus() if device == "cuda" else 0
            self.machine = choose_device(f"cuda:{claim_gpu(gpus)}" if gpus else device, threads)
            self.chosen = device, threads
        return self.machine

    def place(self, task: SceneTask, threads: int) -> tuple[Device, Cube, BlockPlan, list[Slot]]:
        """Return the device, and the scene of a task, opened, with its plan and slots on the device."""
        assert task.problem is not None
        machine = self.device_of(task.options.device, threads)
        if self.key != task.lock[1]:
            self.key, self.open = "", ()  # releases the last scene's buffers
            scene = open_pixels(task.cube, task.options.reading)  # the bands are in the problem
            block_plan = block_plan_of(scene, task.problem, task.options, machine)
            line = line_of(scene, task.problem, task.options)
            self.open = scene, block_plan, machine.open(task.problem, line, block_plan)
            self.key = task.lock[1]
        return machine, *self.open

    def close_device(self) -> None:
        """Close the device and the scene on it: it failed, or another device is wanted."""
        machine, self.machine, self.key, self.open = self.machine, None, "", ()
        if machine is not None:
            machine.close()


WORKER = WorkerState()


def threads_of(options: Options) -> int:
    """Return the number of threads that the options ask for, or else that Dask gave this worker."""
    from distributed import get_worker

    return options.threads or int(get_worker().state.nthreads)


def worker_task(call: Call) -> Call:
    """Wrap work on a task: one call at a time in this process, and every error one of `unmix.errors` that names this worker."""

    @functools.wraps(call)
    def called(task: SceneTask, *rest: Any) -> Any:
        log.setLevel(logging.ERROR)  # the process that sent the task has logged its warnings about the scene already
        on_worker = f" (on {socket.gethostname()}, process {os.getpid()})"
        try:
            if task.version != BUILD:
                raise DeviceError(
                    f"a worker has unmix {BUILD}, but unmix {task.version} asks for work; install one version"
                )
            with WORKER.lock:
                try:
                    return call(task, *rest)
                except DeviceError:
                    WORKER.close_device()  # while the lock is held: the next unit may be waiting to use the device
                    raise
        except UnmixError as error:
            raise type(error)(str(error) + on_worker) from None
        except MemoryError:
            raise OutputError(f"{task.cube}: not enough memory{on_worker}; lower `memory`") from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise OutputError(f"{error.filename or task.cube}: {reason}{on_worker}") from None

    return called  # type: ignore[return-value]


def describe(device: str) -> tuple[str, str]:
    """Return this worker's version of unmix and its kind of device, "cpu" or "cuda"; works while a unit is solved, too.

    Raises
    ------
    MethodError, DeviceError
        As `unmix.devices.kind_of`, where there is no such device.
    """
    return BUILD, kind_of(device)


@worker_task
def extract_endmembers(task: SceneTask) -> tuple[Endmembers, int]:
    """Extract the endmembers of a scene; return them and how often its file was read."""
    return extract(open_scene(task.cube, task.options.reading, True), task.options, threads_of(task.options))


@worker_task
def solve_work_unit(task: SceneTask, first: int, stop: int) -> WorkUnit:
    """Solve the lines from ``first`` up to ``stop``, and write them to their place in the maps, flushed."""
    machine, scene, block_plan, slots = WORKER.place(task, threads_of(task.options))
    assert task.problem is not None
    summary, seconds = Summary(), Seconds()
    with opened_scene(task) as rasters:
        unit_plan = replace(block_plan, first=first, lines=stop)

        def done(_: slice, part: Summary) -> None:
            summary.append(part)

        solve_lines(scene, task.problem, unit_plan, slots, rasters, machine, task.options, done, seconds)
        for raster in rasters.values():
            os.fsync(raster.file.fileno())
        return WorkUnit(
            slice(first, stop), summary, {name: raster.checks[first:stop] for name, raster in rasters.items()}, seconds
        )


@contextlib.contextmanager
def opened_scene(task: SceneTask) -> Iterator[dict[str, Raster]]:
    """Open the maps of a task for writing.

    Raises
    ------
    OutputError
        Where the run that sent the task no longer holds the scene's lock.
    """
    with contextlib.ExitStack() as stack:
        rasters = {}
        for name, file in task.rasters.items():
            rasters[name] = Raster(
                Path(file.path), file.lines, file.samples, file.bands, np.empty(0, np.uint32), file.map_type
            )
            stack.callback(rasters[name].file.close)
        # Checked after they are opened: a later run makes new files, so these stay the old ones even if it starts now.
        if not holds(Path(task.lock[0]), task.lock[1]):
            raise OutputError(f"{task.cube}: another run holds its lock by now")
        yield rasters
