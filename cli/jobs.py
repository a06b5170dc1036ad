"""Unmix several scenes at a time, each in a process of its own (`run --jobs`).

One extracts while another solves and a third writes. Threads of one process would share Python's lock, which small
scenes hold most of their time. A process that dies costs its scene alone.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Generator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from unmix.blocks import cores
from unmix.errors import OutputError, UnmixError
from unmix.wake import wake

from . import start
from .main import release_locks, unexpected
from .progress import Board

Result = dict[str, Any] | UnmixError | MemoryError
log = logging.getLogger("unmix")
# Seconds that a process may take to clean up (it takes 0.2) before it is killed; seconds to wait for its death then.
CLEANING_UP, DYING = 5.0, 2.0


class SceneProcess:
    """A process that unmixes about ``scenes`` scenes, one after the other, with ``settings`` of `unmix.run`."""

    cube = Path()

    def __init__(self, settings: dict[str, Any], command: Sequence[str], scenes: int) -> None:
        self.device = settings.get("device")
        self.pipe, its_end = Pipe()
        with its_end:
            number = its_end.fileno()
            call = [sys.executable, "-P", "-m", "unmix_cli.jobs", str(number)]  # -P: nothing of the working directory
            self.process = subprocess.Popen(call, stdin=subprocess.DEVNULL, pass_fds=[number])
        self.tell((settings, list(command), scenes, log.getEffectiveLevel()))

    def tell(self, what: Any) -> None:
        """Send something; if the process has died, `hear` will notice."""
        with contextlib.suppress(OSError):
            self.pipe.send(what)

    def begin(self, cube: Path) -> None:
        """Have it unmix a scene."""
        self.cube = cube
        self.tell(cube)

    def hear(self) -> tuple[str, Any]:
        """Return what the process says: "log", "progress", "result", or "lost" with an error where it has died."""
        try:
            heard: tuple[str, Any] = self.pipe.recv()
            return heard
        except (EOFError, OSError):
            code = self.process.wait()
            how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
            return "lost", OutputError(
                f"{self.cube}: its process ended by {how}; if memory was short, lower --jobs; the same command goes on"
            )

    def end(self, deadline: float | None = None) -> None:
        """Stop the process, which cleans up first; kill it at the deadline, or if a further signal came."""
        deadline = time.monotonic() + CLEANING_UP if deadline is None else deadline
        self.process.terminate()
        while self.process.poll() is None and time.monotonic() < deadline + DYING:
            if time.monotonic() > deadline or start.SignalState.again:
                # A later run goes on from what is left. A process that a hung disk holds cannot be killed: it is left
                # alone.
                self.process.kill()
                deadline = min(deadline, time.monotonic())
            time.sleep(0.01)
        self.pipe.close()


def side_by_side(
    cubes: Sequence[Path], jobs: int, settings: dict[str, Any], command: Sequence[str], board: Board
) -> Generator[tuple[Path, Result]]:
    """Yield each scene with its report or its error, in the order in which they end."""
    todo, workers, most, said = deque(cubes), list[SceneProcess](), 1, set[str]()
    jobs = min(jobs, len(cubes))
    devices, scenes = devices_in(settings.get("device", "auto")), -(-len(cubes) // jobs)
    settings = settings | {"threads": settings.get("threads") or max(1, cores() // jobs)}
    try:
        while todo or workers:
            while todo and len(workers) < most:
                used = [worker.device for worker in workers]
                device = min(devices, key=used.count)
                workers.append(SceneProcess(settings | {"device": device}, command, scenes))
                workers[-1].begin(todo.popleft())
            for pipe in wait([worker.pipe for worker in workers]):
                worker = next(worker for worker in workers if worker.pipe is pipe)
                kind, told = worker.hear()
                if kind == "log":
                    level, text = told
                    if level > logging.INFO or text not in said:  # each process logs this once
                        log.log(level, text)
                    said.add(text)
                    continue
                # The first process has solved a block: the others find the code that it compiled.
                most = jobs
                if kind == "progress":
                    report = board.scene(worker.cube)
                    if report is not None:
                        report(told)
                    continue
                yield worker.cube, told
                if kind == "result" and todo:
                    worker.begin(todo.popleft())
                else:
                    workers.remove(worker)
                    worker.end()
    finally:
        for worker in workers:
            worker.process.terminate()  # all, before one is waited for
        deadline = time.monotonic() + CLEANING_UP
        for worker in workers:
            worker.end(deadline)


def devices_in(name: str) -> list[str]:
    """Return the devices that jobs share: each of several GPUs that are named."""
    from unmix.devices import count_gpus, gpus_named, kind_of

    if not name.startswith("cuda:") or kind_of(name) != "cuda":
        return [name]
    return [f"cuda:{index}" for index in gpus_named(name) or range(count_gpus())]


class Teller(logging.Handler):
    """A handler of the log that hands records on to the command."""

    def __init__(self, tell: Any) -> None:
        super().__init__()
        self.tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        """Hand on level and text."""
        self.tell("log", (record.levelno, record.getMessage()))


def work(pipe: Connection) -> None:
    """Unmix the scenes that a command names, until it names none or has ended."""
    lock = threading.Lock()  # a timer tells of compiling

    def tell(kind: str, what: Any) -> None:
        with lock:
            pipe.send((kind, what))

    settings, command, scenes, level = pipe.recv()
    wake(settings["device"])
    from unmix import run
    from unmix.devices import expect_scenes

    expect_scenes(scenes)
    log.setLevel(level)
    log.addHandler(Teller(tell))
    while True:
        cube = pipe.recv()
        try:
            result: Result = run(cube, progress=lambda step: tell("progress", step), command=command, **settings)
        except (UnmixError, MemoryError) as error:
            result = error
        except Exception as error:
            log.debug(traceback.format_exc())
            result = UnmixError(f"{cube}: {unexpected(error)}")
        tell("result", result)


def serve() -> None:
    """Be a `SceneProcess`'s process; it ends in the same way as a command that a signal stops."""
    start.prepare()
    start.handle_signals()
    try:
        start.begin_work()
        work(Connection(int(sys.argv[1])))
    except (EOFError, BrokenPipeError, start.Stopped):  # the command has ended, or stops
        pass
    finally:
        start.end_work()
        release_locks()
    os._exit(0)


if __name__ == "__main__":
    serve()
