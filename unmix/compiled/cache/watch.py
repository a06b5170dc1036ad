"""Measure how long a process compiles, and tell its user why it takes so long."""

import logging
import os
import threading
import time
from typing import Any

from numba.core import event

from .folders import cache_folder

log = logging.getLogger("unmix")
# Seconds of compiling after which a message tells the user why it takes so long.
PATIENCE = 1.0


class Watch(event.Listener):
    """Measure the time that Numba compiles, and log once why it takes long, after a second in all.

    Compilations hold Numba's lock; those of called functions are nested. Numba tells of those for the CPU; of kernels nobody tells
    but the cache, which is asked for each before and gets it after.
    """

    def __init__(self) -> None:
        self.depth, self.seconds, self.since = 0, 0.0, 0.0
        self.said = False
        self.timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
        """Note that Numba says that a compilation starts."""
        self.begin()

    def on_end(self, event: Any) -> None:
        """Note that Numba says that a compilation ends."""
        self.end()

    def begin(self) -> None:
        """Note that a compilation starts."""
        self.depth += 1
        if self.depth > 1:
            return
        self.since = time.perf_counter()
        if not self.said:
            self.timer = threading.Timer(max(0.0, PATIENCE - self.seconds), self.say)
            self.timer.daemon = True
            self.timer.start()

    def end(self) -> None:
        """Note that a compilation ends."""
        if self.depth == 0:  # numba-cuda may take what it was given for out of date, and compile what we did not miss
            return
        self.depth -= 1
        if self.depth > 0:
            return
        self.seconds += time.perf_counter() - self.since
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def say(self) -> None:
        """Log what takes so long."""
        self.said = True
        advice = "the code is kept on disk, so this is done once"
        if not cache_folder():
            given = os.environ.get("UNMIX_CACHE_DIR")
            why = (
                f"{given} is no folder that you alone can write to"
                if given
                else "there is no private folder for the code"
            )
            advice = f"each run does this again, since {why}; set UNMIX_CACHE_DIR to a folder that is private"
        log.info(f"compiling for this type of data and this task; {advice}")


WATCH = Watch()
event.register("numba:compile", WATCH)


def seconds_compiling() -> float:
    """Return how long this process has compiled so far."""
    return WATCH.seconds
