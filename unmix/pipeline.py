"""Reader, device, writer, each at its own pace: blocks go round in a few buffers, in order, and nothing is copied."""

import contextlib
import functools
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

SlotT = TypeVar("SlotT")
SolvedT = TypeVar("SolvedT", contravariant=True)


class Worker(Protocol[SolvedT]):
    """What solves a block: ``submit`` starts it, ``wait`` returns when its answers are in the slot."""

    def submit(self, slot: SolvedT) -> None: ...
    def wait(self, slot: SolvedT) -> None: ...


@dataclass
class Seconds:
    """Time spent in each stage; the last three overlap, so that their sum may exceed ``total``, which is theirs."""

    compiling: float = 0.0
    reading: float = 0.0
    solving: float = 0.0
    writing: float = 0.0
    total: float = 0.0


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
        Fills a slot with a block's stored values; runs on a thread of its own.
    worker : Worker
        Solves; is called from this thread.
    finish : callable
        Writes a slot's answers; runs on a thread of its own.
    seconds : Seconds
        Added to.
    """

    def timed(stage: str, call: Callable[[], None]) -> None:
        start = time.perf_counter()
        call()
        setattr(seconds, stage, getattr(seconds, stage) + time.perf_counter() - start)

    began = time.perf_counter()
    todo = deque(blocks)
    free = deque(slots)
    reading: deque[tuple[SlotT, Future[None]]] = deque()
    solving: deque[tuple[SlotT, float]] = deque()
    idle_since = 0.0
    writing: deque[tuple[SlotT, Future[None]]] = deque()
    with ThreadPoolExecutor(1, "read") as reader, ThreadPoolExecutor(1, "write") as writer:
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
    seconds.total += time.perf_counter() - began
