"""Read, solve and write blocks concurrently and in order: a few buffers are reused, and nothing is copied."""

import contextlib
import functools
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

# Blocks that are read at a time: threads that have read the pieces of one block continue with those of the next.
READING = 2
# The same of a file on a server, so that some are fetched while others are inflated. (265 MB of gzip in HDF5 over 1
# Gbit/s took 3.1 s, with 2 at a time 4.1 s, the download alone 2.5 s.)
FETCHING = 3
# Seconds that a thread may hold Python's global lock while others wait. Heavy work runs without the lock, and the rest
# should not wait for Python's default of 5 ms. (10 million pixels through an H200: 0.38 s and 0.35, the bare copy 0.23
# and 0.21.)
HANDOVER = 1e-4
SlotT = TypeVar("SlotT")
SolvedT = TypeVar("SolvedT", contravariant=True)


class Worker(Protocol[SolvedT]):
    """Solves blocks: ``submit`` starts a block, ``wait`` returns when its results are in the slot."""

    def submit(self, slot: SolvedT) -> None: ...
    def wait(self, slot: SolvedT) -> None: ...


@dataclass(frozen=True)
class JobProgress:
    """The progress of a job.

    Attributes
    ----------
    done, total : int
        Lines of a scene, or steps of a factorisation: finished, and in all.
    pixels, bytes : int
        Pixels in one of these, and bytes that are read for it.
    device : str
        The device at work.
    first : int
        How many an earlier run, which this one resumes, had finished.
    """

    done: int
    total: int
    pixels: int = 0
    bytes: int = 0
    device: str = ""
    first: int = 0


@dataclass
class Seconds:
    """Seconds of each stage; all but ``compiling`` overlap, so their sum may exceed ``total``, their elapsed time.

    ``copying`` is the sum of transfers to and from a GPU; 0 on a CPU.
    """

    compiling: float = 0.0
    reading: float = 0.0
    copying: float = 0.0
    solving: float = 0.0
    writing: float = 0.0
    total: float = 0.0

    def settle(self, measured: dict[str, float]) -> None:
        """Replace times of stages measured from outside by times that a device took with its own clock."""
        for stage, value in measured.items():
            setattr(self, stage, value)

    def hidden(self) -> float | None:
        """Return the share of the shorter stages that overlapped with the longest, 0 to 1; None without any."""
        stages = (self.reading, self.copying, self.solving, self.writing)
        shorter = sum(stages) - max(stages)
        if shorter <= 0:
            return None
        return round(min(1.0, max(0.0, (sum(stages) - self.total) / shorter)), 3)


class BusyTimer:
    """Context manager that measures the time during which at least one thread is inside it."""

    def __init__(self) -> None:
        self.seconds, self.inside, self.since = 0.0, 0, 0.0
        self.lock = threading.Lock()

    def __enter__(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.since = time.perf_counter()
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self.seconds += time.perf_counter() - self.since


def stream(
    blocks: Iterable[slice],
    slots: list[SlotT],
    read: Callable[[SlotT, slice], None],
    worker: Worker[SlotT],
    finish: Callable[[SlotT], None],
    seconds: Seconds,
    readers: int = READING,
) -> None:
    """Pass every block through read, worker and finish; each stage sees the blocks in order."""
    # As many blocks are in flight as ``slots``. ``read`` runs on ``readers`` threads, ``worker`` on the calling one,
    # ``finish`` on one of its own.

    stages = {"reading": BusyTimer(), "writing": BusyTimer()}

    def timed(stage: str, call: Callable[[], None]) -> None:
        with stages[stage]:
            call()

    started = time.perf_counter()
    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(min(switch_interval, HANDOVER))
    pending = deque(blocks)
    free = deque(slots)
    reading: deque[tuple[SlotT, Future[None]]] = deque()
    solving: deque[tuple[SlotT, float]] = deque()
    idle_since = 0.0
    writing: deque[tuple[SlotT, Future[None]]] = deque()
    with ThreadPoolExecutor(readers, "read") as reader, ThreadPoolExecutor(1, "write") as writer:
        try:
            while pending or reading or solving or writing:
                while pending and free:
                    slot, lines = free.popleft(), pending.popleft()
                    reading.append((slot, reader.submit(timed, "reading", functools.partial(read, slot, lines))))
                if reading and (reading[0][1].done() or not (solving or writing)):
                    slot, future = reading.popleft()
                    future.result()
                    since = time.perf_counter()
                    worker.submit(slot)
                    solving.append((slot, since))
                elif solving:
                    slot, since = solving[0]
                    worker.wait(slot)
                    solving.popleft()
                    now = time.perf_counter()
                    seconds.solving += now - max(since, idle_since)
                    idle_since = now
                    writing.append((slot, writer.submit(timed, "writing", functools.partial(finish, slot))))
                else:
                    slot, future = writing.popleft()
                    future.result()
                    free.append(slot)
                while writing and writing[0][1].done():
                    slot, future = writing.popleft()
                    future.result()
                    free.append(slot)
        except BaseException:
            reader.shutdown(cancel_futures=True)
            writer.shutdown(cancel_futures=True)
            for slot, _ in solving:  # their buffers must not be freed while threads or the GPU write to them
                with contextlib.suppress(Exception):
                    worker.wait(slot)
            raise
        finally:
            sys.setswitchinterval(switch_interval)
    for stage, busy in stages.items():
        setattr(seconds, stage, getattr(seconds, stage) + busy.seconds)
    seconds.total += time.perf_counter() - started
