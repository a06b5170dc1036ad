"""What a worker of a cluster does with a scene: its endmembers, or a unit of its lines, written to their place.

A unit leaves nothing behind but its lines in the scene's `.part` files, flushed; they are the same bytes whoever writes them,
and however often. So a retry is harmless, and so is a worker that was taken for dead.
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
from ...options import Options
from ...outputs.lock import holds
from ...outputs.raster import Raster
from ...pipeline import Seconds
from ...problem import Problem
from ...scene import open_part, open_scene
from ...summary import Summary
from ..executor import extract
from ..stream_lines import block_plan_of, line_of, solve_lines

log = logging.getLogger("unmix")
# Asked for when this is imported, as all of a worker's code is: sources that are changed under it later are not what it runs.
BUILD = build()
Call = TypeVar("Call", bound=Callable[..., Any])


@dataclass(frozen=True)
class MapFile:
    """A map under way: its file, and its size."""

    path: str
    lines: int
    samples: int
    bands: int


@dataclass(frozen=True)
class SceneTask:
    """What a worker needs to know of a scene.

    Attributes
    ----------
    cube : str
        Its whole path, on a file system that all see.
    options : Options
        Without a library: the endmembers are in the problem.
    problem : Problem or None
        Factored once for all workers, whose libraries may round otherwise; None while endmembers are wanted.
    rasters : dict of MapFile
        The maps under way.
    lock : (str, str)
        The path and the key of the lock that the run holds: another for every scene and run.
    version : str
        Of the unmix that asks.
    """

    cube: str
    options: Options
    problem: Problem | None
    rasters: dict[str, MapFile]
    lock: tuple[str, str]
    version: str = BUILD


@dataclass(frozen=True)
class WorkUnit:
    """Lines that are written and flushed: what they add up to, the CRC-32 of each by the raster's name, the time they took."""

    lines: slice
    summary: Summary
    checks: dict[str, np.ndarray]
    seconds: Seconds


class WorkerState:
    """What a worker's process keeps: its device, and the scene that it works on, with the device's buffers for it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # one unit at a time: it uses all threads and the whole device
        self.chosen: tuple[str, int] | None = None
        self.machine: Device | None = None
        self.key = ""
        self.open: Any = ()

    def take(self, device: str, threads: int) -> Device:
        """The device of that name; ``cuda`` is a GPU of this process's own, where there is one for it."""
        if self.machine is None or self.chosen != (device, threads):
            self.clear()
            gpus = count_gpus() if device == "cuda" else 0
            self.machine = choose_device(f"cuda:{claim_gpu(gpus)}" if gpus else device, threads)
            self.chosen = device, threads
        return self.machine

    def place(self, task: SceneTask, threads: int) -> tuple[Device, Cube, BlockPlan, list[Slot]]:
        """The scene of a task, open, with slots on the device."""
        assert task.problem is not None
        machine = self.take(task.options.device, threads)
        if self.key != task.lock[1]:
            self.key, self.open = "", ()  # lets go of the last scene's buffers
            scene, _ = open_part(task.cube, task.options.reading)  # the bands are in the problem
            block_plan = block_plan_of(scene, task.problem, task.options, machine)
            self.open = (scene, block_plan, machine.open(task.problem, line_of(scene, task.options), block_plan))
            self.key = task.lock[1]
        return machine, *self.open

    def clear(self) -> None:
        """Let go of the device: it failed, or another is wanted."""
        machine, self.machine, self.key, self.open = self.machine, None, "", ()
        if machine is not None:
            machine.close()


WORKER = WorkerState()


def threads_of(options: Options) -> int:
    """As many as were asked for, or as this worker was given."""
    from distributed import get_worker

    return options.threads or int(get_worker().state.nthreads)


def in_one_line(call: Call) -> Call:
    """What goes wrong on a worker, as an error of ours that says on which."""

    @functools.wraps(call)
    def called(task: SceneTask, *rest: Any) -> Any:
        log.setLevel(logging.ERROR)  # what is to be said of a scene, who asks has said
        here = f" (on {socket.gethostname()}, process {os.getpid()})"
        try:
            if task.version != BUILD:
                raise DeviceError(f"a worker has unmix {BUILD}, but {task.version} asks; install one version")
            with WORKER.lock:
                try:
                    return call(task, *rest)
                except DeviceError:
                    WORKER.clear()  # with the lock in hand: the next unit may be waiting for it
                    raise
        except UnmixError as error:
            raise type(error)(str(error) + here) from None
        except MemoryError:
            raise OutputError(f"{task.cube}: not enough memory{here}; lower `memory`") from None
        except OSError as error:
            what = error.strerror or str(error)
            raise OutputError(f"{error.filename or task.cube}: {what}{here}") from None

    return called  # type: ignore[return-value]


def describe(device: str) -> tuple[str, str]:
    """Version and kind of device, "cpu" or "cuda", of this worker, which may be at work; raises where it has none."""
    return BUILD, kind_of(device)


@in_one_line
def extract_endmembers(task: SceneTask) -> tuple[Endmembers, int]:
    """The endmembers of a scene, and passes over its file."""
    scene, used, nodata = open_scene(task.cube, task.options.reading)
    return extract(scene, used, nodata, task.options, threads_of(task.options))


@in_one_line
def solve_work_unit(task: SceneTask, first: int, stop: int) -> WorkUnit:
    """Solve these lines, and write them to their place."""
    machine, scene, block_plan, slots = WORKER.place(task, threads_of(task.options))
    assert task.problem is not None
    summary, seconds = Summary(), Seconds()
    with opened(task) as rasters:
        some = replace(block_plan, first=first, lines=stop)
        solve_lines(
            scene,
            task.problem,
            some,
            slots,
            rasters,
            machine,
            task.options,
            lambda _, part: summary.append(part),
            seconds,
        )
        for raster in rasters.values():
            os.fsync(raster.file.fileno())
        return WorkUnit(
            slice(first, stop), summary, {name: raster.checks[first:stop] for name, raster in rasters.items()}, seconds
        )


@contextlib.contextmanager
def opened(task: SceneTask) -> Iterator[dict[str, Raster]]:
    """The maps under way, to be written to, if they are still this run's."""
    with contextlib.ExitStack() as stack:
        rasters = {}
        for name, one in task.rasters.items():
            rasters[name] = Raster(Path(one.path), one.lines, one.samples, one.bands, np.empty(0, np.uint32))
            stack.callback(rasters[name].file.close)
        # Looked at when they are open: a later run begins with new files.
        if not holds(Path(task.lock[0]), task.lock[1]):
            raise OutputError(f"{task.cube}: another run holds it by now")
        yield rasters
