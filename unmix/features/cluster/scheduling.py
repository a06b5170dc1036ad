"""Spread scenes over a cluster's workers, at most two to each; notice the loss of the scheduler or all workers."""

import contextlib
import logging
import os
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from distributed import Client, Future, KilledWorker
from distributed import wait as wait_for

from ...errors import DeviceError, UnmixError, brief
from ...options import Options
from ...pipeline import JobProgress
from .connection import LOOK, in_time
from .worker import Asked, Result, kind_here, this_process, unmix_on_worker

log = logging.getLogger("unmix")
# Seconds for which all workers may be ones whose devices failed: one may just be restarting; and after which a
# scheduler that does not answer is taken for lost.
GRACE, FROZEN = 30.0, 30.0
KEPT = "finished lines are kept, and the same command continues after them"


class Workers:
    """The workers of a cluster with sound devices; ``patience`` is the wait, in seconds, while there is none."""

    def __init__(self, client: Client, patience: float) -> None:
        self.client, self.patience = client, patience
        self.broken: set[str] = set()  # workers whose device failed
        self.last_seen = time.monotonic()

    def present(self) -> set[str]:
        """Return the connected workers whose device has not failed; `DeviceError` where there is none for too long."""
        with self.asking():
            everyone = set(self.client.nthreads(callback_timeout=FROZEN))
        self.broken &= everyone  # forget workers that left: one restarted at the same address may work
        now = time.monotonic()
        if everyone > self.broken:
            self.last_seen = now
        elif now - self.last_seen >= (min(self.patience, GRACE) if everyone else self.patience):
            fault = "no worker is left whose device works" if everyone else f"no worker for {self.patience:.0f} s"
            raise DeviceError(f"{fault}; {KEPT}")
        return everyone - self.broken

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Turn the errors that a call to a lost scheduler may raise into one `DeviceError`."""
        address = self.client.scheduler.address if self.client.scheduler is not None else "the cluster"
        lost = DeviceError(f"{address}: the scheduler does not answer any more; {KEPT}")
        if self.client.status != "running":
            raise lost
        try:
            yield
        except (CancelledError, OSError, RuntimeError, TimeoutError) as error:
            raise lost from error

    def kind(self, asked: Asked) -> str:
        """Wait for workers and return their common kind of device; raise where it or their version of unmix differs."""
        while not self.present():
            time.sleep(LOOK)
        with self.asking():
            answers = in_time(FROZEN, lambda: self.client.run(kind_here, asked, on_error="return"))
        for address, answer in answers.items():
            if isinstance(answer, UnmixError):
                raise type(answer)(f"{address}: {answer}")
            if isinstance(answer, BaseException):
                raise DeviceError(f"{address}: cannot run unmix: {type(answer).__name__}: {answer}")
        if len(set(answers.values())) > 1:
            raise DeviceError(
                "some workers have a GPU and some have none, and maps must come from one kind; name `device` cpu or "
                "cuda"
            )
        return str(next(iter(answers.values())))


def spread_scenes(
    client: Client,
    cubes: Sequence[Path],
    options: Options,
    patience: float,
    watch: Any,
    command: Sequence[str] | None,
) -> Iterator[tuple[Path, Result]]:
    """Yield each scene with its report or its error as it ends; a worker has two at most."""
    workers, topic = Workers(client, patience), f"unmix-{uuid.uuid4().hex}"
    asked = Asked(options, command, topic, log.getEffectiveLevel(), os.getcwd(), this_process())
    kind, link = workers.kind(asked), ""
    with contextlib.suppress(KeyError, ValueError):  # the scheduler has no dashboard
        link = f"; dashboard: {client.dashboard_link}" if client.dashboard_link else ""
    log.info(f"workers: {len(workers.present())}, {kind}{link}")
    reports, said = dict[int, Any](), set[str]()

    def hear(event: tuple[float, Any]) -> None:
        number, kind, what = event[1]
        if kind == "progress" and reports[number] is not None:
            reports[number](JobProgress(*what))
        elif kind == "log" and (what[0] > logging.INFO or what[1] not in said):  # what each process says once
            said.add(what[1])
            log.log(*what)

    listener = ThreadPoolExecutor(
        1, "progress"
    )  # what it calls may take its time, and Dask's own thread has more to do
    client.subscribe_topic(topic, lambda event: listener.submit(hear, event))
    todo, running = deque(enumerate(cubes)), dict[Future, tuple[int, str]]()
    try:
        while todo or running:
            present, held = workers.present(), Counter(address for _, address in running.values())
            # A worker has its next scene before it ends one, but for the last scenes, which all workers share.
            most = 2 if len(todo) > len(present) else 1
            free = sorted((held[one], one) for one in present if held[one] < most)
            for _, address in free[: len(todo)]:
                number, cube = todo.popleft()
                if number not in reports:
                    reports[number] = None if watch is None else watch.scene(cube)
                with workers.asking():
                    future = client.submit(
                        unmix_on_worker,
                        asked,
                        number,
                        cube,
                        address,
                        workers=[address],
                        allow_other_workers=True,
                        pure=False,
                    )
                running[future] = number, address
            for future in done_of(running, workers):
                number = running.pop(future)[0]
                address, result = outcome_of(future, cubes[number], workers)
                if isinstance(result, DeviceError) and address:
                    log.warning(f"{address}: {result}; it gets no more work")
                    workers.broken.add(address)
                    todo.appendleft((number, cubes[number]))
                else:
                    yield cubes[number], result
    finally:
        with contextlib.suppress(Exception):
            client.unsubscribe_topic(topic)
            client.cancel(list(running))  # workers notice after the block that they are at, and keep what is done
        listener.shutdown()


def done_of(running: dict[Future, tuple[int, str]], workers: Workers) -> list[Future]:
    """Return the scenes that are done; wait for the first for `LOOK` seconds at most."""
    if not running:
        time.sleep(LOOK)
        return []
    with workers.asking(), contextlib.suppress(TimeoutError):
        return list(wait_for(list(running), timeout=LOOK, return_when="FIRST_COMPLETED").done)
    return []


def outcome_of(future: Future, cube: Path, workers: Workers) -> tuple[str, Result]:
    """Return which worker ended a scene, "" where none did, and its report or error."""
    if future.status != "error":
        with workers.asking():
            ended: tuple[str, Result] = future.result(timeout=FROZEN)
            return ended
    error = future.exception()
    if isinstance(error, KilledWorker):
        last = error.last_worker.address
        return "", DeviceError(
            f"{cube}: every worker that took it died, the last was {last}; out of memory? lower `memory`"
        )
    return "", DeviceError(f"{cube}: a worker failed: {type(error).__name__}: {brief(str(error))}")
