"""Who works on a scene: a lock with a heartbeat, so that two runs never write one scene, on one host or on several.

The lock is a file with host and process in it. On one host the system's own lock (flock) holds it, and lets go when its process dies;
what another host sees of it over a network is its time, which is renewed as long as the run lives. One without a beat for ten
minutes is taken over, and the run that lost it finds out before it takes names.
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
from typing import IO

from ..errors import OutputError
from ..io.opening import open_there

BEAT, STALE = 30.0, 600.0


class Lock:
    """Held from construction to `release`.

    Parameters
    ----------
    path : Path
        The lock's file; made.

    Raises
    ------
    OutputError
        Where another run holds it; with its host and process. Where its name is a link's.
    OSError
        Where the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.key = uuid.uuid4().hex  # another for each holder
        self.file = self.take()
        self.over = threading.Event()
        self.heart = threading.Thread(target=self.beat, name="heartbeat", daemon=True)
        self.heart.start()

    def take(self) -> IO[str]:
        """Open and lock the file, and write who we are into it."""
        while True:
            file = open_there(self.path, "a+")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                    self.refuse_if_held(file, elsewhere=True)
                    file.truncate(0)
                    file.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "key": self.key}))
                    file.flush()
                    return file
            except FileNotFoundError:
                pass
            except BlockingIOError:
                self.refuse_if_held(file, elsewhere=False)
                self.take_away(file)  # its holder does not beat any more
            except BaseException:
                file.close()
                raise
            file.close()  # its holder took the name away between our opening and our locking

    def take_away(self, file: IO[str]) -> None:
        """Remove a file that nobody renews, one taker at a time: another may have made a new one of that name by now."""
        turn = self.path.with_name(self.path.name + ".turn")
        with open_there(turn, "a") as ours, contextlib.suppress(FileNotFoundError):
            fcntl.flock(ours, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                self.path.unlink()
            turn.unlink()

    def refuse_if_held(self, file: IO[str], elsewhere: bool) -> None:
        """`OutputError` where somebody's beat is young; ``elsewhere``: on another host than ours."""
        file.seek(0)
        try:
            holder = json.loads(file.read(4096))
            host, process = str(holder["host"]), int(holder["pid"])
        except (ValueError, KeyError, TypeError):
            host, process = "", 0
        age = time.time() - os.fstat(file.fileno()).st_mtime
        ours = not host or host == socket.gethostname()
        if (elsewhere and ours) or age > STALE:
            return
        who = f" (process {process} on {host})" if host else ""
        raise OutputError(f"{self.path}: another run{who} holds this scene; wait for it")

    def beat(self) -> None:
        """Renew the file's time until the end."""
        while not self.over.wait(BEAT):
            with contextlib.suppress(OSError):
                os.utime(self.file.fileno())

    @property
    def ours(self) -> bool:
        """Whether the scene is still ours."""
        try:
            return not self.file.closed and os.path.samestat(os.fstat(self.file.fileno()), os.stat(self.path))
        except OSError:
            return False

    def check(self) -> None:
        """Raise `OutputError` where another run took the scene over."""
        if not self.ours:
            raise OutputError(
                f"{self.path}: another run took this scene over, since this one did not beat for ten minutes"
            )

    def release(self) -> None:
        """Take the file away, unless it is another's by now, and let go."""
        if self.file.closed:
            return
        self.over.set()
        with contextlib.suppress(OSError, OutputError):
            self.check()
            self.path.unlink()
        self.file.close()


def holds(path: Path, key: str) -> bool:
    """Whether the lock of that key is still the one that stands there, seen from any host."""
    try:
        return bool(json.loads(path.read_text())["key"] == key)
    except (OSError, ValueError, KeyError, TypeError):
        return False
