"""A lock with a heartbeat, so that two runs never write the same scene, on one host or on several.

The lock is a file that names host and process. On one host it is held by the system's lock (flock), which ends with its
process; other hosts see over a network only its modification time, which is renewed as long as the run lives. A lock
that was not renewed for ten minutes is taken over; the run that lost it notices before it renames its outputs.
"""

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from pathlib import Path
from typing import IO, Self

from ..errors import OutputError
from ..io.opening import close_late, open_there
from .atomic import signals_held

BEAT, STALE = 30.0, 600.0  # seconds: between renewals, and until a lock may be taken over


class SceneHeld(OutputError):
    """Another run holds the scene."""


# The locks that this process holds.
HELD: "set[Lock]" = set()


class Lock:
    """A lock on a scene, held from construction to `release`.

    Parameters
    ----------
    path : Path
        The lock's file, which is created.

    Raises
    ------
    OutputError
        Where another run holds the lock (the message gives host and process), or ``path`` is a link.
    OSError
        Where the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.key = uuid.uuid4().hex  # different for each holder
        self.over = threading.Event()
        self.heart = threading.Thread(target=self.beat, name="heartbeat", daemon=True)
        with signals_held():  # whole, since from then on a signal releases it
            self.file = self.take()
            HELD.add(self)
        self.heart.start()

    def take(self) -> IO[str]:
        """Open and lock the file, and write host, process and key into it."""
        while True:
            file = open_there(self.path, "a+")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                    self.refuse_if_held(file, elsewhere=True)
                    self.sign(file)
                    return file
            except FileNotFoundError:
                pass
            except BlockingIOError:
                self.refuse_if_held(file, elsewhere=False)
                self.take_away(file)  # its holder has stopped renewing it
            except BaseException:
                file.close()
                raise
            file.close()  # its holder deleted it between our opening and our locking

    def sign(self, file: IO[str]) -> None:
        """Write host, process and key into the file, which is deleted where the disk has no room for that."""
        try:
            file.truncate(0)
            file.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "key": self.key}))
            file.flush()
        except OSError:
            self.path.unlink(missing_ok=True)
            raise

    def take_away(self, file: IO[str]) -> None:
        """Delete a lock file that nobody renews, one run at a time: another may already have made a new one."""
        turn = self.path.with_name(self.path.name + ".turn")
        with open_there(turn, "a") as turn_file, contextlib.suppress(FileNotFoundError):
            fcntl.flock(turn_file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                self.path.unlink()
            turn.unlink()

    def refuse_if_held(self, file: IO[str], elsewhere: bool) -> None:
        """Raise `SceneHeld` if the lock was renewed within `STALE`; with ``elsewhere``, only if by another host."""
        file.seek(0)
        try:
            holder = json.loads(file.read(4096))
            host, process = str(holder["host"]), int(holder["pid"])
        except (ValueError, KeyError, TypeError):
            host, process = "", 0
        age = time.time() - os.fstat(file.fileno()).st_mtime
        this_host = not host or host == socket.gethostname()
        if (elsewhere and this_host) or age > STALE:
            return
        who = f" (process {process} on {host})" if host else ""
        raise SceneHeld(f"{self.path}: another run{who} holds this scene; wait until it ends")

    def beat(self) -> None:
        """Renew the file's modification time until `release`."""
        while not self.over.wait(BEAT):
            with contextlib.suppress(OSError):
                os.utime(self.file.fileno())

    @property
    def ours(self) -> bool:
        """Whether this run still holds the lock."""
        try:
            return not self.file.closed and os.path.samestat(os.fstat(self.file.fileno()), os.stat(self.path))
        except OSError:
            return False

    def check(self) -> None:
        """Raise `OutputError` if another run took the scene over."""
        if not self.ours:
            raise OutputError(
                f"{self.path}: another run took this scene over, since this one did not renew its lock for ten minutes"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Delete the lock file, unless another run holds it by now, and close it."""
        if self.file.closed:
            return
        HELD.discard(self)
        self.over.set()
        with contextlib.suppress(OSError, OutputError):
            self.check()
            self.path.unlink()
        close_late(self.file)


def release_all() -> None:
    """Release all locks as the process ends: a signal may come before the block that would release a new lock."""
    for lock in list(HELD):
        lock.release()
