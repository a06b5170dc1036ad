"""A cluster worker's task: unmix a scene as `unmix.run` does, and report progress to the process that asked."""

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from distributed import get_worker
from distributed.worker import WORKER_ANY_RUNNING

from ..._version import build
from ...devices import claim_gpu, count_gpus, kind_of
from ...errors import DeviceError, OutputError, UnmixError
from ...options import Options
from ...outputs.lock import BEAT, STALE, SceneHeld
from ...pipeline import JobProgress
from ...runs import Executor, unmix_scene

log = logging.getLogger("unmix")
# Determined on import, when the worker's code is loaded: if the sources change later, the worker still runs what it
# loaded.
BUILD = build()
# One scene at a time in a process: it uses all threads and the whole device.
ALONE = threading.Lock()
Result = dict[str, Any] | UnmixError | MemoryError


class SceneStopped(UnmixError):
    """The batch has ended, or the scheduler gave the scene to another worker."""


class LogTeller(logging.Handler):
    """A handler of the log that hands records on."""

    def __init__(self, tell: Callable[[str, Any], None]) -> None:
        super().__init__()
        self.tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        """Hand on level and text."""
        self.tell("log", [record.levelno, record.getMessage()])


@dataclass(frozen=True)
class Asked:
    """A batch's settings for each worker: options, command line, message topic, log level, folder, process, version."""

    options: Options
    command: Sequence[str] | None
    topic: str
    level: int
    folder: str
    process: tuple[str, int]
    version: str = BUILD


def this_process() -> tuple[str, int]:
    """Return host and number of this process."""
    return socket.gethostname(), os.getpid()


def kind_here(asked: Asked) -> str:
    """Return this worker's kind of device, "cpu" or "cuda"; raise `DeviceError` if it has another version of unmix."""
    if asked.version != BUILD:
        raise DeviceError(f"has unmix {BUILD}, but this is {asked.version}; install one version")
    return kind_of(asked.options.device)


def unmix_on_worker(asked: Asked, number: int, cube: Path, address: str) -> tuple[str, Result]:
    """Unmix a scene given to the worker at ``address``; return this worker's address and the report or the error."""
    worker = get_worker()
    key = worker.get_current_task()

    def tell(kind: str, what: Any) -> None:
        worker.log_event(asked.topic, [number, kind, what])

    def go_on() -> None:
        state = worker.state.tasks.get(key)
        if worker.status not in WORKER_ANY_RUNNING or state is None or state.state != "executing":
            raise SceneStopped("stopped")

    def report(step: JobProgress) -> None:
        go_on()
        tell("progress", list(astuple(step)))

    try:
        kind = kind_here(asked)
        with (
            ALONE,
            contextlib.chdir(asked.folder),
            contextlib.ExitStack() as stack,
        ):  # relative names begin in the folder
            go_on()
            if asked.process != this_process():
                teller = LogTeller(tell)
                log.setLevel(asked.level)
                log.addHandler(teller)
                stack.callback(log.removeHandler, teller)
            device, threads = asked.options.device, asked.options.threads or int(worker.state.nthreads)
            if device in ("auto", "cuda") and kind == "cuda":
                device = f"cuda:{claim_gpu(count_gpus())}"
            options = replace(asked.options, device=device, threads=threads)
            # Whoever held the lock of a scene that was given on to another host renews it no more.
            until = time.monotonic() + (STALE + BEAT if worker.address != address else 0.0)
            return worker.address, unmix_when_free(cube, options, report, asked.command, until)
    except (UnmixError, MemoryError) as error:
        return worker.address, error
    except OSError as error:
        why = f"{error.filename or cube}: {error.strerror or error} (on {worker.address})"
        return worker.address, OutputError(f"{why}; all machines must see the same folders")


def unmix_when_free(
    cube: Path, options: Options, report: Callable[[JobProgress], None], command: Sequence[str] | None, until: float
) -> dict[str, Any]:
    """Unmix a scene and return its report; wait up to ``until`` for a lock that may be a dead worker's."""
    while True:
        executor = Executor(options)
        try:
            return unmix_scene(cube, options, executor, report, command)
        except SceneHeld:
            if time.monotonic() > until:
                raise
            time.sleep(1.0)
        finally:
            executor.close()
