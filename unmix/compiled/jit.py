"""How this package compiles: a decorator for functions of the CPU (and called from CUDA), and a cache for both.

Numba's own cache has five holes that a program run from cron falls into, and this file closes them:

* it looks at the file of the function alone, so an edited callee leaves its callers stale: our cache folder is named
  after a hash of the sources of all that the function's module imports, whose code may be compiled into it;
* it fails at import where neither the install nor HOME is writable: we look for a folder that is, and otherwise compile
  without keeping;
* closures of one name, compiled in several processes, may be taken for each other: ours are named after their cells;
* two processes that compile different signatures at once may both take data file number 1, and one of them then loads
  the other's machine code: saving holds a file lock;
* it runs what it finds, whoever put it there: our folder is nobody else's to write, on the whole way to it.
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
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
MOST_LINKS = 40  # as many as Linux follows
_SETTING = threading.RLock()
PACKAGE = Path(__file__).parents[1]
IMPORTS = re.compile(r"^ *from (\.+)([\w.]*) import (?:\(([^)]*)\)|(.*))", re.MULTILINE)


@functools.cache
def _imported(source: Path) -> tuple[Path, ...]:
    """The files of this package that a file imports, wherever in it."""
    found = []
    for dots, name, several, one in IMPORTS.findall(source.read_text()):
        target = source.parents[len(dots) - 1].joinpath(*name.split("."))
        below = [word.split()[0] for word in (several or one).split(",") if word.strip()]
        files = [target.with_suffix(".py"), target / "__init__.py", *(target / f"{word}.py" for word in below)]
        found += [file for file in files if file.is_file()]
    return tuple(found)


def _sources_of(source: Path) -> list[Path]:
    """A file of this package and all that it imports, and what these do; of another file, all of the package."""
    if not source.is_relative_to(PACKAGE):
        return [source, *sorted(PACKAGE.rglob("*.py"))]
    found, todo = {source}, [source]
    while todo:
        new = set(_imported(todo.pop())) - found
        found |= new
        todo += new
    return sorted(found)


@functools.cache
def _digest_of(source: Path) -> bytes:
    return hashlib.sha256(source.read_bytes()).digest()


@functools.cache
def _key_of(*sources: Path) -> str:
    """A hash of all that may be compiled into a function of some files: an edit in `nmf` leaves the code of `pixels` as it is."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted({path for source in sources for path in _sources_of(source)}):
        digest.update(path.name.encode() + _digest_of(path))
    return digest.hexdigest()[:16]


def _is_private(folder: Path) -> bool:
    """Whether nobody but us and root can put anything into ``folder``, or another folder in its place; what is missing is made.

    Every folder on the way is root's or ours and written to by nobody else. One like /tmp, where all may write but only owners
    take away (sticky), may be root's too, if what follows in it is ours alone. Links are followed where root or we made them in a
    folder that nobody else writes to.

    Raises
    ------
    OSError
        Where a folder cannot be looked at or made.
    """
    us, here, links = os.geteuid(), Path("/"), 0
    status = before = os.lstat(here)
    todo = list(reversed(folder.absolute().parts[1:]))
    while True:
        if status.st_uid not in (0, us) or not stat.S_ISDIR(status.st_mode):
            return False
        if status.st_mode & OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
            return False
        if before.st_mode & OTHERS_WRITE and not _is_ours_alone(status):
            return False
        if not todo:
            return _is_ours_alone(status)
        name = todo.pop()
        if name == "..":  # of a link; what comes before it is no link any more
            here, before = here.parent, os.lstat(here.parent.parent)
            status = os.lstat(here)
            continue
        if not os.path.lexists(here / name):
            os.mkdir(here / name, 0o700)
        before, status = status, os.lstat(here / name)
        if not stat.S_ISLNK(status.st_mode):
            here /= name
            continue
        links += 1
        if links > MOST_LINKS or status.st_uid not in (0, us) or before.st_mode & OTHERS_WRITE:
            return False
        target = Path(os.readlink(here / name))
        here = Path("/") if target.is_absolute() else here
        todo += reversed(target.parts[target.is_absolute() :])
        status, before = os.lstat(here), os.lstat(here.parent)


def _is_ours_alone(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _holds_ours(folder: Path) -> bool:
    """Whether all that lies in a folder are folders and plain files of ours: Numba runs what it loads from there."""
    for entry in os.scandir(folder):
        status = entry.stat(follow_symlinks=False)
        is_folder = stat.S_ISDIR(status.st_mode)
        if status.st_uid != os.geteuid() or not (is_folder or stat.S_ISREG(status.st_mode)):
            return False
        if is_folder and not _holds_ours(Path(entry.path)):
            return False
    return True


def _usable(folder: Path) -> bool:
    """Whether ``folder``, which is made, is ours alone to write, now and later: compiled code is loaded from it and run."""
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
    """The folder for compiled code of some files, or None where no folder can be written safely: then nothing is kept.

    Tried in order: ``$UNMIX_CACHE_DIR``, ``$XDG_CACHE_HOME/unmix``, ``~/.cache/unmix``, a private folder in the
    system's temporary directory. Whoever can write there, or to a folder on the way, could let us run what they like.
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
        leaf = place.absolute() / _key_of(*sources, Path(__file__))  # wherever we may go later
        if _usable(leaf):
            return str(leaf)
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


def _files_of(function: Callable[..., Any]) -> list[Path]:
    """The files of a function and of those that it was made from: those of `unmix.compiled.thread_groups` stand elsewhere."""
    cells = (cell.cell_contents for cell in function.__closure__ or ())
    handed = (cell.py_func for cell in cells if hasattr(cell, "py_func"))
    return sorted({Path(each.__code__.co_filename).absolute() for each in (function, *handed)})


def keep(dispatcher: Any, cache_class: type) -> Any:
    """Give ``dispatcher`` a disk cache, where there is a folder for it and something compiled to keep."""
    if not hasattr(dispatcher, "_cache"):  # plain Python, or the simulator
        return dispatcher
    with _SETTING:  # threads define functions, too; one that finds no folder set would keep its code where it stands
        folder = cache_folder(*_files_of(dispatcher.py_func))
        if folder is None:
            return dispatcher
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, folder
        try:
            cache = _safe(cache_class)(dispatcher.py_func)
            if Path(cache.cache_path).is_relative_to(folder):  # else Numba could not write there, and took another
                dispatcher._cache = cache
        except RuntimeError:  # nor to any other: nothing is kept
            pass
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
