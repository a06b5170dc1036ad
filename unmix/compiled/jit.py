"""Compile functions for the CPU (also called from CUDA code), and keep the machine code of CPU and GPU on disk.

Numba's own cache has five faults that affect a program run from cron, which this file avoids:

* it checks only the file of the function, so callers of an edited function stay stale: our cache folder is named
  after a hash of the sources of all that the function's module imports, whose code may be compiled into it;
* it fails at import where neither the installation nor HOME is writable: we look for a folder that is, and otherwise compile
  without a cache;
* closures of the same name, compiled in several processes, may be confused: ours are named after their cells;
* two processes that compile different signatures at once may both write data file number 1, and one of them then loads
  the other's machine code: saving holds a file lock;
* it runs whatever code it finds there: nobody else may write to our folder, nor to any folder on the path to it.
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
from numba.core.caching import FunctionCache, NullCache
from numba.core.runtime import rtsys

log = logging.getLogger("unmix")
# Seconds of compiling after which a message tells the user why it takes so long.
PATIENCE = 1.0
# Names of functions become file names, which have 255 bytes at most.
LONGEST_NAME = 80
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
MOST_LINKS = 40  # Linux follows as many
_SETTING = threading.RLock()
PACKAGE = Path(__file__).parents[1]
IMPORTS = re.compile(r"^ *from (\.+)([\w.]*) import (?:\(([^)]*)\)|(.*))", re.MULTILINE)


@functools.cache
def _package() -> frozenset[Path]:
    """Return all files of this package; to ask the system for each file that an import may mean took 15 ms."""
    return frozenset(PACKAGE.rglob("*.py"))


@functools.cache
def _imported(source: Path) -> tuple[Path, ...]:
    """Return the files of this package that a file imports, at any place in it."""
    imported = []
    for dots, name, in_parentheses, on_line in IMPORTS.findall(source.read_text()):
        target = source.parents[len(dots) - 1].joinpath(*name.split("."))
        below = [word.split()[0] for word in (in_parentheses or on_line).split(",") if word.strip()]
        files = [target.with_suffix(".py"), target / "__init__.py", *(target / f"{word}.py" for word in below)]
        imported += [file for file in files if file in _package()]
    return tuple(imported)


def _sources_of(source: Path) -> list[Path]:
    """Return a file of this package with all that it imports, directly or not; for another file, the whole package."""
    if not source.is_relative_to(PACKAGE):
        return [source, *sorted(PACKAGE.rglob("*.py"))]
    sources, todo = {source}, [source]
    while todo:
        new = set(_imported(todo.pop())) - sources
        sources |= new
        todo += new
    return sorted(sources)


@functools.cache
def _digest_of(source: Path) -> bytes:
    return hashlib.sha256(source.read_bytes()).digest()


@functools.cache
def _key_of(*sources: Path) -> str:
    """Return a hash of all that may be compiled into a function of some files; an edit in `nmf` keeps the code of `pixels`."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted({path for source in sources for path in _sources_of(source)}):
        digest.update(path.name.encode() + _digest_of(path))
    return digest.hexdigest()[:16]


def _is_private(folder: Path) -> bool:
    """Return whether only this user and root can write to ``folder`` or replace it; missing folders on the path are made.

    Every folder on the path must belong to root or this user, and be writable by nobody else. A sticky one like /tmp, where all may
    write but only owners delete, is accepted if the next folder is this user's alone. Links are followed where root or this user
    made them in a folder that nobody else may write to.

    Raises
    ------
    OSError
        Where a folder cannot be examined or made.
    """
    user, reached, links = os.geteuid(), Path("/"), 0
    status = parent_status = os.lstat(reached)
    todo = list(reversed(folder.absolute().parts[1:]))
    while True:
        if status.st_uid not in (0, user) or not stat.S_ISDIR(status.st_mode):
            return False
        if status.st_mode & OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
            return False
        if parent_status.st_mode & OTHERS_WRITE and not _is_ours_alone(status):
            return False
        if not todo:
            return _is_ours_alone(status)
        name = todo.pop()
        if name == "..":  # from a link's target; all links before it are resolved
            reached, parent_status = reached.parent, os.lstat(reached.parent.parent)
            status = os.lstat(reached)
            continue
        if not os.path.lexists(reached / name):
            os.mkdir(reached / name, 0o700)
        parent_status, status = status, os.lstat(reached / name)
        if not stat.S_ISLNK(status.st_mode):
            reached /= name
            continue
        links += 1
        if links > MOST_LINKS or status.st_uid not in (0, user) or parent_status.st_mode & OTHERS_WRITE:
            return False
        target = Path(os.readlink(reached / name))
        reached = Path("/") if target.is_absolute() else reached
        todo += reversed(target.parts[target.is_absolute() :])
        status, parent_status = os.lstat(reached), os.lstat(reached.parent)


def _is_ours_alone(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _holds_ours(folder: Path) -> bool:
    """Return whether a folder holds only folders and plain files of this user: Numba runs the code that it loads from there."""
    for entry in os.scandir(folder):
        status = entry.stat(follow_symlinks=False)
        is_folder = stat.S_ISDIR(status.st_mode)
        if status.st_uid != os.geteuid() or not (is_folder or stat.S_ISREG(status.st_mode)):
            return False
        if is_folder and not _holds_ours(Path(entry.path)):
            return False
    return True


def _usable(folder: Path) -> bool:
    """Make ``folder`` and return whether only this user can write to it, now and later: compiled code is loaded from it."""
    try:
        if not _is_private(folder) or not _holds_ours(folder):
            return False
        probe, name = tempfile.mkstemp(dir=folder)
        os.close(probe)
        os.unlink(name)
    except OSError:
        return False
    return True


@functools.cache
def cache_folder(*sources: Path) -> str | None:
    """Return the folder for compiled code of some files, or None where no folder can be written safely: then nothing is kept.

    Tried in order: ``$UNMIX_CACHE_DIR``, ``$XDG_CACHE_HOME/unmix``, ``~/.cache/unmix``, a private folder in the
    system's temporary directory. Anybody who can write there, or to a folder on the path, could make us run their code.
    """
    candidates = [Path(os.environ.get("XDG_CACHE_HOME", ""), "unmix")]
    with contextlib.suppress(RuntimeError):  # no HOME and no passwd entry
        candidates.append(Path.home() / ".cache" / "unmix")
    with contextlib.suppress(FileNotFoundError):  # no folder at all is writable
        candidates.append(Path(tempfile.gettempdir(), f"unmix-{os.getuid()}"))
    # An empty variable counts as unset. It, or a relative path, would put the folder into whatever folder the process was started in.
    candidates = [candidate for candidate in candidates if candidate.is_absolute()]
    if os.environ.get("UNMIX_CACHE_DIR"):
        candidates.insert(0, Path(os.environ["UNMIX_CACHE_DIR"]))
    for candidate in candidates:
        folder = candidate.absolute() / _key_of(
            *sources, Path(__file__)
        )  # absolute, since the working directory may change
        if _usable(folder):
            return str(folder)
    return None


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
                f"others may write to {given}, or on the path to it"
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


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


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


def _safe(cache_class: type) -> type:
    """Return a Numba cache class with locked saves, and with keys of closures that are the same in the next process."""

    class SafeCache(cache_class):  # type: ignore[misc]
        def _index_key(self, sig: Any, codegen: Any) -> Any:
            # Numba's key hashes the pickled cells of a closure, and a pickled dispatcher holds a random id, so it never matches.
            # Our name holds the cells, and our folder is keyed by the sources behind them.
            return (str(sig), codegen.magic_tuple(), self._py_func.__qualname__, self._extra_key())

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            # Numba imports what it needs to compile first, which takes half a second; machine code needs memory management alone.
            if issubclass(cache_class, FunctionCache):
                rtsys.initialize(target_context)
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)

        def _extra_key(self) -> Any:
            return getattr(self, "_launch_config_key", None)

        def save_overload(self, sig: Any, data: Any) -> None:
            with contextlib.suppress(OSError), _locked(self._cache_path):  # on a full disk, run without the cache
                super().save_overload(sig, data)

    return SafeCache


def _files_of(function: Callable[..., Any]) -> list[Path]:
    """Return the files of a function and of all functions in its cells, at any depth: they may have been handed over from elsewhere."""
    files, seen, todo = set(), {function}, [function]
    while todo:
        each = todo.pop()
        files.add(Path(each.__code__.co_filename).absolute())
        cells = (cell.cell_contents for cell in each.__closure__ or ())
        handed = {cell.py_func for cell in cells if hasattr(cell, "py_func")} - seen
        seen |= handed
        todo += handed
    return sorted(files)


class CacheWhenUsed:
    """The cache of a dispatcher, which is looked for when the dispatcher first loads or saves code.

    A run has a hundred compiled functions, of which it calls ten; the others are compiled into these. To find the folders of all took
    0.1 s.
    """

    def __init__(self, dispatcher: Any, cache_class: type) -> None:
        self.dispatcher, self.cache_class = dispatcher, cache_class

    @functools.cached_property
    def found(self) -> Any:
        """The cache on disk, or one that keeps nothing."""
        return cache_of(self.dispatcher.py_func, self.cache_class) or NullCache()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.found, name)


def cache_of(function: Callable[..., Any], cache_class: type) -> Any:
    """Return the cache on disk of a function, or None where there is no folder for it."""
    with _SETTING:  # CACHE_DIR is global, and another thread may look now
        folder = cache_folder(*_files_of(function))
        if folder is None:
            return None
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, folder
        try:
            cache = _safe(cache_class)(function)
        except RuntimeError:  # it found no folder at all: nothing is kept
            return None
        finally:
            numba.config.CACHE_DIR = before
    # Else Numba could not write there, and chose another.
    return cache if Path(cache.cache_path).is_relative_to(folder) else None


def keep(dispatcher: Any, cache_class: type) -> Any:
    """Give ``dispatcher`` a cache on disk, if there is a folder for it and it compiles at all; return it."""
    if not hasattr(dispatcher, "_cache"):  # plain Python, or the simulator
        return dispatcher
    if issubclass(cache_class, FunctionCache):
        dispatcher._cache = CacheWhenUsed(dispatcher, cache_class)
    else:  # numba-cuda asks what class it is
        dispatcher._cache = cache_of(dispatcher.py_func, cache_class) or dispatcher._cache
    return dispatcher


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
