"""Who of a cluster takes the next unit, and whether the cluster is still there."""

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

from ...errors import DeviceError, UnmixError

# Units that a worker has at a time: one to work on, and one to go on with at once.
EACH = 2
# How long to wait for a worker when there is none, and between two looks, in seconds.
PATIENCE, LOOK = 600, 0.5
# How long workers may be none but those whose devices failed, in seconds: one may just be starting again.
GRACE = 30.0
# After how long a scheduler that says nothing is lost, in seconds.
FROZEN = 30.0


class ClusterLost(DeviceError):
    """The scheduler, or every worker, is gone; what was done is kept (exit 5)."""


class Stopping(UnmixError):
    """The archive is to stop."""


class WorkerPool:
    """Who takes the next unit: the worker that has the fewest, and no more than `EACH`.

    A thread of its own asks the scheduler who is there, twice a second; nobody else waits for an answer with a lock in hand.

    Parameters
    ----------
    client : distributed.Client
    patience : float
        Seconds to wait for a worker when there is none.
    """

    def __init__(self, client: Any, patience: float) -> None:
        self.client, self.patience = client, patience
        self.changed = threading.Condition()
        self.taken: dict[str, int] = {}
        self.broken: set[str] = set()
        self.workers: list[str] = []
        self.over = threading.Event()
        self.gone: ClusterLost | None = None
        self.seen = time.monotonic()
        self.lookout = threading.Thread(target=self.watch, name="lookout", daemon=True)
        self.lookout.start()

    def watch(self) -> None:
        """Look until all is over."""
        while not self.over.is_set() and self.gone is None:
            try:
                with self.asking():
                    scheduler: Any = self.client.scheduler
                    there = self.client.sync(scheduler.ncores, workers=None, callback_timeout=FROZEN)
                self.note(set(there))
            except ClusterLost as lost:
                with self.changed:
                    self.gone = lost
                    self.changed.notify_all()
            self.over.wait(LOOK)

    def note(self, there: set[str]) -> None:
        """These workers are there."""
        with self.changed:
            self.broken &= there  # one that was started again may work
            self.workers = sorted(there - self.broken)
            now = time.monotonic()
            if self.workers:
                self.seen = now
                self.changed.notify_all()
            elif now - self.seen >= (min(self.patience, GRACE) if there else self.patience):
                what = "no worker is left whose device works" if there else f"no worker for {self.patience:.0f} s"
                raise ClusterLost(f"{what}; what is done is kept, and the same command goes on")

    def check(self) -> None:
        """Raise where all is to stop, or the cluster is gone."""
        if self.over.is_set():
            raise Stopping("stopped")
        if self.gone is not None:
            raise self.gone
        if self.client.status != "running":
            raise self.lost()

    @contextlib.contextmanager
    def asking(self, *but: type[Exception]) -> Iterator[None]:
        """The cluster is asked for something: whatever is thrown where its other end is gone, ``but`` these, becomes one error."""
        try:
            yield
        except but:
            raise
        except (CancelledError, OSError, RuntimeError, TimeoutError) as error:
            raise self.lost() from error

    def lost(self) -> ClusterLost:
        """The error of a scheduler that is gone."""
        where = self.client.scheduler.address if self.client.scheduler is not None else "the cluster"
        return ClusterLost(
            f"{where}: the scheduler does not answer any more; what is done is kept, and the same command goes on"
        )

    def acquire(self, waiting: bool) -> str | None:
        """A place with a worker, by its address; None where there is none and ``waiting`` is not asked for."""
        with self.changed:
            while True:
                self.check()
                address = min(self.workers, key=lambda one: self.taken.get(one, 0), default=None)
                if address is not None and self.taken.get(address, 0) < EACH:
                    self.taken[address] = self.taken.get(address, 0) + 1
                    return address
                if not waiting:
                    return None
                self.changed.wait(LOOK)

    def release(self, address: str) -> None:
        """It is free again."""
        with self.changed:
            self.taken[address] -= 1
            self.changed.notify_all()

    def drop(self, address: str) -> None:
        """That worker's device does not work."""
        with self.changed:
            self.broken.add(address)
            self.workers = [one for one in self.workers if one != address]

    def wait(self) -> None:
        """Until there is a worker."""
        with self.changed:
            while not self.workers:
                self.check()
                self.changed.wait(LOOK)

    def stop(self) -> None:
        """Let everybody who waits, or asks, stop."""
        self.over.set()
