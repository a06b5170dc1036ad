"""Reader, device, writer, each at its own pace: blocks go round in a few buffers, in order, and nothing is copied."""

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

# Blocks that are read at a time: the threads that read pieces find the next block's when one runs out.
READING = 2
# How long a thread may hold Python's lock while others wait, in seconds: all that is heavy runs without it, and what is left
# should not wait for 5 ms, Python's own. (10 million pixels through an H200: 0.38 s and 0.35, the bare copy 0.23 and 0.21.)
HANDOVER = 1e-4
SlotT = TypeVar("SlotT")
SolvedT = TypeVar("SolvedT", contravariant=True)


class Worker(Protocol[SolvedT]):
    """What solves a block: ``submit`` starts it, ``wait`` returns when its answers are in the slot."""

    def submit(self, slot: SolvedT) -> None: ...
    def wait(self, slot: SolvedT) -> None: ...


@dataclass(frozen=True)
class Step:
    """How far a job is, for who watches it.

    Attributes
    ----------
    done, total : int
        Lines of a scene, or steps of a factorisation.
    pixels, bytes : int
        That one of these holds, and that are read for it.
    device : str
        What works on it.
    first : int
        What an earlier run had done.
    """

    done: int
    total: int
    pixels: int = 0
    bytes: int = 0
    device: str = ""
    first: int = 0


@dataclass
class Seconds:
    """Time spent in each stage; all but the first overlap, so that their sum may exceed ``total``, which is theirs.

    ``copying`` is to and from a GPU, both ways added; 0 on a CPU.
    """

    compiling: float = 0.0
    reading: float = 0.0
    copying: float = 0.0
    solving: float = 0.0
    writing: float = 0.0
    total: float = 0.0

    def settle(self, measured: dict[str, float]) -> None:
        """Take what a device has measured by its own clock in place of what was seen from outside."""
        for stage, value in measured.items():
            setattr(self, stage, value)

    def add(self, other: "Seconds") -> None:
        """Add the stages of another, which ran beside; ``total`` stays one's own."""
        for stage in ("compiling", "reading", "copying", "solving", "writing"):
            setattr(self, stage, getattr(self, stage) + getattr(other, stage))

    def hidden(self) -> float | None:
        """How much of the shorter stages ran behind the longest: 1 where ``total`` is no more than that, 0 where all ran
        one after the other; None where there is nothing to hide."""
        stages = (self.reading, self.copying, self.solving, self.writing)
        shorter = sum(stages) - max(stages)
        if shorter <= 0:
            return None
        return round(min(1.0, max(0.0, (sum(stages) - self.total) / shorter)), 3)


class BusyTimer:
    """The time in which at least one thread was within."""

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
) -> None:
    """Pass every block through read, worker and finish; each stage sees the blocks in order.

    Parameters
    ----------
    blocks : iterable of slice
        Lines of each block.
    slots : list
        Buffers; as many blocks are in flight.
    read : callable
        Fills a slot with a block's stored values; runs on threads of its own, for two blocks at a time.
    worker : Worker
        Solves; is called from this thread.
    finish : callable
        Writes a slot's answers; runs on a thread of its own.
    seconds : Seconds
        Added to.
    """

    stages = {"reading": BusyTimer(), "writing": BusyTimer()}

    def timed(stage: str, call: Callable[[], None]) -> None:
        with stages[stage]:
            call()

    began = time.perf_counter()
    patience = sys.getswitchinterval()
    sys.setswitchinterval(min(patience, HANDOVER))
    todo = deque(blocks)
    free = deque(slots)
    reading: deque[tuple[SlotT, Future[None]]] = deque()
    solving: deque[tuple[SlotT, float]] = deque()
    idle_since = 0.0
    writing: deque[tuple[SlotT, Future[None]]] = deque()
    with ThreadPoolExecutor(READING, "read") as reader, ThreadPoolExecutor(1, "write") as writer:
        try:
            while todo or reading or solving or writing:
                while todo and free:
                    slot, lines = free.popleft(), todo.popleft()
                    reading.append((slot, reader.submit(timed, "reading", functools.partial(read, slot, lines))))
                if reading and (reading[0][1].done() or not (solving or writing)):
                    slot, done = reading.popleft()
                    done.result()
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
                    slot, done = writing.popleft()
                    done.result()
                    free.append(slot)
                while writing and writing[0][1].done():
                    slot, done = writing.popleft()
                    done.result()
                    free.append(slot)
        except BaseException:
            reader.shutdown(cancel_futures=True)
            writer.shutdown(cancel_futures=True)
            for slot, _ in solving:  # their buffers must not be let go of while threads or the GPU write to them
                with contextlib.suppress(Exception):
                    worker.wait(slot)
            raise
        finally:
            sys.setswitchinterval(patience)
    for stage, busy in stages.items():
        setattr(seconds, stage, getattr(seconds, stage) + busy.seconds)
    seconds.total += time.perf_counter() - began
