"""How this package compiles: a decorator for functions of the CPU (and called from CUDA), and a cache for both.

Numba's own cache has four holes that a program run from cron falls into, and this file closes them:

* it looks at the file of the function alone, so an edited callee leaves its callers stale: our cache folder is named
  after a hash of all solver sources;
* it fails at import where neither the install nor HOME is writable: we look for a folder that is, and otherwise compile
  without keeping;
* closures of one name, compiled in several processes, may be taken for each other: ours are named after their cells;
* two processes that compile different signatures at once may both take data file number 1, and one of them then loads
  the other's machine code: saving holds a file lock.
"""

import contextlib
import fcntl
import functools
import hashlib
import logging
import os
import re
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba.core import event
from numba.core.caching import FunctionCache

log = logging.getLogger("unmix")
# Seconds of compiling, from which on it is said what takes so long.
PATIENCE = 1.0
# A name becomes a file's name, and these have 255 bytes at most.
LONGEST_NAME = 80
_SETTING = threading.RLock()


def _sources_hash() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    package = Path(__file__).parent
    for path in [*sorted(package.glob("*.py")), package.parent / "certificate.py", package.parent / "rescue.py"]:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _usable(folder: Path) -> bool:
    """Whether ``folder`` is ours alone to write: compiled code is loaded from it and run."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.stat()
        probe, name = tempfile.mkstemp(dir=folder)
        os.close(probe)
        os.unlink(name)
    except OSError:
        return False
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@functools.cache
def cache_folder() -> str | None:
    """The folder that holds compiled code, or None where no folder can be written safely.

    Tried in order: ``$UNMIX_CACHE_DIR``, ``$XDG_CACHE_HOME/unmix``, ``~/.cache/unmix``, a private folder in the
    system's temporary directory.
    """
    places = []
    if "UNMIX_CACHE_DIR" in os.environ:
        places.append(Path(os.environ["UNMIX_CACHE_DIR"]))
    if "XDG_CACHE_HOME" in os.environ:
        places.append(Path(os.environ["XDG_CACHE_HOME"], "unmix"))
    with contextlib.suppress(RuntimeError):  # no HOME and no passwd entry
        places.append(Path.home() / ".cache" / "unmix")
    places.append(Path(tempfile.gettempdir(), f"unmix-{os.getuid()}"))
    for place in places:
        if _usable(place / _sources_hash()):
            return str(place / _sources_hash())
    return None


class Watch(event.Listener):
    """Counts the time that Numba compiles, and says once that it does, when that has taken a second in all.

    Compilations hold a lock of Numba's; within one there are those of what it calls.
    """

    def __init__(self) -> None:
        self.depth, self.seconds, self.since = 0, 0.0, 0.0
        self.said = False
        self.timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
        """Something is compiled from here on."""
        self.depth += 1
        if self.depth > 1:
            return
        self.since = time.perf_counter()
        if not self.said:
            self.timer = threading.Timer(max(0.0, PATIENCE - self.seconds), self.say)
            self.timer.daemon = True
            self.timer.start()

    def on_end(self, event: Any) -> None:
        """It is done."""
        self.depth -= 1
        if self.depth > 0:
            return
        self.seconds += time.perf_counter() - self.since
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def say(self) -> None:
        """Say what takes so long."""
        self.said = True
        kept = (
            "the code is kept, so this is done once"
            if cache_folder()
            else "there is no folder where the code can be kept"
        )
        log.info(f"compiling for this type of data and this task; {kept}")


WATCH = Watch()
event.register("numba:compile", WATCH)


def seconds_compiling() -> float:
    """Return how long this process has compiled so far."""
    return WATCH.seconds


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def name_after_cells(function: Callable[..., Any]) -> None:
    """Name a closure after what it was made from: ``solve_tile_gather_bip_active_set``.

    Machine code is looked up by a symbol of name, types and a counter that begins anew in every process. Two closures of
    one name that two processes compiled and kept may have the same symbol, and a third process, which loads both, then
    runs one in place of the other. (Seen: six processes on one machine, maps of another solver.)
    """
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    words = [getattr(cell, "__name__", None) or repr(cell) for cell in cells]
    if words:
        name = re.sub(r"\W+", "_", "_".join([function.__name__, *words]))
        if len(name) > LONGEST_NAME:
            name = f"{function.__name__}_{hashlib.sha256(name.encode()).hexdigest()[:32]}"
        function.__name__ = name
        function.__qualname__ = function.__name__


def _safe(cache_class: type) -> type:
    """A Numba cache class with locked saves, and with keys that closures have again in the next process."""

    class SafeCache(cache_class):  # type: ignore[misc]
        def _index_key(self, sig: Any, codegen: Any) -> Any:
            # Numba hashes a closure's cells by pickling them, and a pickled dispatcher holds a random id: never a hit.
            # The name says what it was made from, and the folder is keyed by the sources that names stand for.
            return (str(sig), codegen.magic_tuple(), self._py_func.__qualname__, self._extra_key())

        def _extra_key(self) -> Any:
            return getattr(self, "_launch_config_key", None)

        def save_overload(self, sig: Any, data: Any) -> None:
            with contextlib.suppress(OSError), _locked(self._cache_path):  # a full disk costs the cache, not the run
                super().save_overload(sig, data)

    return SafeCache


def keep(dispatcher: Any, cache_class: type) -> Any:
    """Give ``dispatcher`` a disk cache, where there is a folder for it and something compiled to keep."""
    folder = cache_folder()
    if folder is not None and hasattr(dispatcher, "_cache"):
        with (
            _SETTING
        ):  # threads define functions, too; one that finds no folder set would keep its code where it stands
            before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, folder
            try:
                dispatcher._cache = _safe(cache_class)(dispatcher.py_func)
            finally:
                numba.config.CACHE_DIR = before
    return dispatcher


def compiled(function: Callable[..., Any], allocates: bool = False) -> Any:
    """Compile for the CPU; may also be called from a CUDA kernel. Releases the GIL; no fastmath, so NaN stays NaN.

    Arrays are made by the caller, and not counted: a tile's functions take thirty, and counting references to them took 20 ns a pixel,
    as much as a pivot. A function that makes arrays of its own is `allocating`.
    """
    name_after_cells(function)
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": allocates}
    return keep(numba.njit(**options)(function), FunctionCache)


def allocating(function: Callable[..., Any]) -> Any:
    """`compiled`, for a function that makes arrays."""
    return compiled(function, allocates=True)
