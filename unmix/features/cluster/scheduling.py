"""Choose the worker that takes the next unit, and notice when the scheduler or every worker is lost."""

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

from ...errors import DeviceError, UnmixError

# Units that a worker has at a time: one to work on, and one to start as soon as that is done.
UNITS_A_WORKER = 2
# Seconds to wait for a first worker, and between two looks at the scheduler.
WORKER_SECONDS, LOOK = 600, 0.5
# Seconds for which all workers may be ones whose devices failed: one may just be restarting.
GRACE = 30.0
# Seconds after which a scheduler that does not answer is taken for lost.
FROZEN = 30.0


class ClusterLost(DeviceError):
    """The scheduler, or every worker, is lost; finished lines are kept (exit 5)."""


class Stopping(UnmixError):
    """The batch was stopped while a scene waited for the cluster."""


class WorkerPool:
    """The workers of a cluster: the next unit goes to the one with the fewest units, and none has more than `UNITS_A_WORKER`.

    A thread of its own asks the scheduler twice a second which workers it has, so that no other thread waits for the answer
    while it holds the lock.

    Parameters
    ----------
    client : distributed.Client
    patience : float
        Seconds to wait for a worker when there is none.
    """

    def __init__(self, client: Any, patience: float) -> None:
        self.client, self.patience = client, patience
        self.changed = threading.Condition()
        self.units_held: dict[str, int] = {}  # by the address of the worker
        self.broken: set[str] = set()  # workers whose device failed
        self.workers: list[str] = []
        self.stopped = threading.Event()
        self.loss: ClusterLost | None = None
        self.last_seen = time.monotonic()
        self.watcher = threading.Thread(target=self.watch, name="watch workers", daemon=True)
        self.watcher.start()

    def watch(self) -> None:
        """Ask the scheduler for its workers until the pool is stopped or the cluster is lost."""
        while not self.stopped.is_set() and self.loss is None:
            try:
                with self.asking():
                    scheduler: Any = self.client.scheduler
                    present = self.client.sync(scheduler.ncores, workers=None, callback_timeout=FROZEN)
                self.note(set(present))
            except ClusterLost as lost:
                with self.changed:
                    self.loss = lost
                    self.changed.notify_all()
            self.stopped.wait(LOOK)

    def note(self, present: set[str]) -> None:
        """Take over which workers the scheduler has.

        Raises
        ------
        ClusterLost
            Where there has been no worker for too long, or none whose device works.
        """
        with self.changed:
            self.broken &= present  # forget those that left: one restarted at the same address may work
            self.workers = sorted(present - self.broken)
            now = time.monotonic()
            if self.workers:
                self.last_seen = now
                self.changed.notify_all()
            elif now - self.last_seen >= (min(self.patience, GRACE) if present else self.patience):
                fault = "no worker is left whose device works" if present else f"no worker for {self.patience:.0f} s"
                raise ClusterLost(f"{fault}; finished lines are kept, and the same command continues after them")

    def check(self) -> None:
        """Raise `Stopping` where the pool was stopped, and `ClusterLost` where the cluster is lost."""
        if self.stopped.is_set():
            raise Stopping("stopped")
        if self.loss is not None:
            raise self.loss
        if self.client.status != "running":
            raise self.lost()

    @contextlib.contextmanager
    def asking(self, *but: type[Exception]) -> Iterator[None]:
        """Turn the errors that a call to a lost scheduler may raise into one `ClusterLost`; those of the types ``but`` pass."""
        try:
            yield
        except but:
            raise
        except (CancelledError, OSError, RuntimeError, TimeoutError) as error:
            raise self.lost() from error

    def lost(self) -> ClusterLost:
        """Return the error of a scheduler that is lost."""
        address = self.client.scheduler.address if self.client.scheduler is not None else "the cluster"
        return ClusterLost(
            f"{address}: the scheduler does not answer any more; finished lines are kept, and the same command continues after them"
        )

    def acquire(self, waiting: bool) -> str | None:
        """Reserve a place for a unit at a worker, and return its address; where none is free, wait for one or return None."""
        with self.changed:
            while True:
                self.check()
                address = min(self.workers, key=lambda worker: self.units_held.get(worker, 0), default=None)
                if address is not None and self.units_held.get(address, 0) < UNITS_A_WORKER:
                    self.units_held[address] = self.units_held.get(address, 0) + 1
                    return address
                if not waiting:
                    return None
                self.changed.wait(LOOK)

    def release(self, address: str) -> None:
        """Give back a place at that worker."""
        with self.changed:
            self.units_held[address] -= 1
            self.changed.notify_all()

    def drop(self, address: str) -> None:
        """Give no more units to that worker: its device failed."""
        with self.changed:
            self.broken.add(address)
            self.workers = [worker for worker in self.workers if worker != address]

    def wait(self) -> None:
        """Wait until there is a worker."""
        with self.changed:
            while not self.workers:
                self.check()
                self.changed.wait(LOOK)

    def stop(self) -> None:
        """Stop the pool: every thread that waits for it, or asks it for a place, gets `Stopping`."""
        self.stopped.set()
