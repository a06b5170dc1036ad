"""Compile functions for the CPU (also called from CUDA code), and measure how long that takes; `cache` keeps the machine code."""

import hashlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import numba
from numba.core import event
from numba.core.caching import FunctionCache

from .cache import cache_folder, keep

log = logging.getLogger("unmix")
# Seconds of compiling after which a message tells the user why it takes so long.
PATIENCE = 1.0
# Names of functions become file names, which have 255 bytes at most.
LONGEST_NAME = 80


class Watch(event.Listener):
    """Measure the time that Numba compiles, and log once why it takes long, after a second in all.

    Compilations hold Numba's lock; those of called functions are nested.
    """

    def __init__(self) -> None:
        self.depth, self.seconds, self.since = 0, 0.0, 0.0
        self.said = False
        self.timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
        """Note that a compilation starts."""
        self.depth += 1
        if self.depth > 1:
            return
        self.since = time.perf_counter()
        if not self.said:
            self.timer = threading.Timer(max(0.0, PATIENCE - self.seconds), self.say)
            self.timer.daemon = True
            self.timer.start()

    def on_end(self, event: Any) -> None:
        """Note that a compilation ends."""
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


def name_after_cells(function: Callable[..., Any]) -> None:
    """Name a closure after the functions and values in its cells: ``solve_tile_gather_bip_active_set``.

    Machine code is found by a symbol made of name, types and a counter that restarts in every process. Two closures of
    the same name that two processes compiled and kept may have the same symbol, and a third process, which loads both, then
    runs one in place of the other. (Seen with six processes on one machine: maps of another solver.)
    """
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    words = [getattr(cell, "__name__", None) or repr(cell) for cell in cells]
    if words:
        name = re.sub(r"\W+", "_", "_".join([function.__name__, *words]))
        if len(name) > LONGEST_NAME:
            name = f"{function.__name__}_{hashlib.sha256(name.encode()).hexdigest()[:32]}"
        function.__name__ = name
        function.__qualname__ = function.__name__


def compiled(function: Callable[..., Any], allocates: bool = False) -> Any:
    """Compile for the CPU; CUDA kernels may call the function too. It releases the GIL; no fastmath, so NaN stays NaN.

    The caller makes all arrays, and their references are not counted: a tile's functions take thirty, and counting took 20 ns per
    pixel, as much as a pivot. For functions that make arrays use `allocating`.
    """
    name_after_cells(function)
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": allocates}
    return keep(numba.njit(**options)(function), FunctionCache)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile as `compiled` does, into the callers: a call with two structures of thirty arrays each takes 300 loads and stores."""
    name_after_cells(function)
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False, "forceinline": True}
    return keep(numba.njit(**options)(function), FunctionCache)


def allocating(function: Callable[..., Any]) -> Any:
    """Compile as `compiled` does, for a function that makes arrays."""
    return compiled(function, allocates=True)
