"""Measure how long a process compiles, and tell its user why it takes so long."""

import logging
import threading
import time
from typing import Any

from numba.core import event

from .folders import cache_folder, common_folder

log = logging.getLogger("unmix")
# Seconds of compiling after which a message tells the user why it takes so long.
SECONDS_BEFORE_MESSAGE = 1.0
# How long a command compiles that finds nothing compiled. Seconds of one core: `nmf` 9, `check` 14, `run` 17, and 22 with a
# library of 498 spectra; `count`, with 2, ends before it would matter.
USUALLY = "which takes 10 to 25 s, longer where other programs use the processor"


class Watch(event.Listener):
    """Measure the time that Numba compiles, and log once why it takes long, after a second in all.

    Compilations hold Numba's lock, and those of called functions are nested. Numba tells of those for the CPU, where they begin and
    where they end, also by an error. Of kernels nobody tells but the cache, which is asked for each before and gets it after; of one
    that fails to compile it hears no more.
    """

    def __init__(self) -> None:
        self.depth, self.seconds, self.since = 0, 0.0, -1.0
        self.said = False
        self.timer: threading.Timer | None = None
        self.lost: list[str] = []

    def on_start(self, event: Any) -> None:
        """Note that Numba says that a compilation starts."""
        self.depth += 1
        if self.depth == 1:
            self.begin()

    def on_end(self, event: Any) -> None:
        """Note that Numba says that a compilation ends."""
        self.depth -= 1
        if self.depth == 0:
            self.end()

    def begin(self) -> None:
        """Note that compiling starts."""
        self.stop_timer()
        self.since = time.perf_counter()
        if not self.said:
            self.timer = threading.Timer(max(0.0, SECONDS_BEFORE_MESSAGE - self.seconds), self.say)
            self.timer.daemon = True
            self.timer.start()

    def end(self) -> None:
        """Note that compiling ends, if it has started."""
        self.stop_timer()
        if self.since >= 0.0:
            self.seconds += time.perf_counter() - self.since
            self.since = -1.0

    def stop_timer(self) -> None:
        """Log nothing of a compilation that is over."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def lose(self, why: str) -> None:
        """Note that code could not be kept, and warn once."""
        if not self.lost:
            log.warning(f"{why}: what is compiled is not kept")
        self.lost.append(why)

    def say(self) -> None:
        """Log what takes so long."""
        self.said = True
        advice = "the code is kept on disk, so this is done once"
        if not cache_folder():
            # Another UNMIX_CACHE_DIR would lose what an administrator has compiled.
            variable = "XDG_CACHE_HOME" if common_folder() else "UNMIX_CACHE_DIR"
            advice = f"each run does this again, since no folder for the code is private to you; set {variable} to one that is"
        log.info(f"compiling for this type of data and this task, {USUALLY}; {advice}")


WATCH = Watch()
event.register("numba:compile", WATCH)


def unkept() -> list[str]:
    """Return why code that this process compiled could not be kept, once for each piece; nothing where all was."""
    return WATCH.lost


def seconds_compiling() -> float:
    """Return how long this process has compiled so far."""
    return WATCH.seconds
