"""Keep compiled code on disk, for CPU and GPU, where nobody else can put code of theirs in its place.

Numba's own cache has eight faults that affect a program run from cron. Beside each, what this one does:

* it looks at the function's file alone, so callers of an edited function stay stale: a folder is named after a hash of
all sources;
* it fails at import where it finds no folder to write to: here code is then compiled without a cache, or loaded from a
common folder;
* it may confuse closures of one name that several processes compiled: here they are named after their cells (`jit`);
* two processes at once may both write data file number 1: here a file is named after what is in it, and there is no
index;
* it runs whatever code it finds: here nobody else may write to the file, its folder, or any folder on the path;
* a file that a power failure cut off ends every later run: here it is on the disk before it has its name, and has a
digest;
* it keeps the code of every version for ever: here it is removed where no process has looked for it in 90 days;
* it keeps old code for new sources, where the sources change while a process runs: here such a process keeps nothing.
"""

import contextlib
import functools
import hashlib
import logging
import os
import pickle
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numba
from numba.core import event
from numba.core.caching import FunctionCache
from numba.core.runtime import rtsys

from .._version import source_of
from .parts import SETTINGS, fields_in
from .trust import PACKAGE, is_trusted, read_trusted, safe_folder

log = logging.getLogger("unmix")
IMPORTS = re.compile(r"^ *from (\.+)([\w.]*) import (?:\(([^)]*)\)|(.*))", re.MULTILINE)
DIGEST_BYTES = 32
MOST_DAYS_UNUSED = 90  # without a process that loads code from a folder
KEY, CODE = re.compile("[0-9a-f]{16}"), (".nbc", ".nbi")  # a folder's name; suffixes of code, and of indices of old
SECONDS_BEFORE_MESSAGE, SECONDS_BETWEEN_MESSAGES = 1.0, 5.0  # of compiling


def _state_of(status: os.stat_result) -> tuple[int, int, int]:
    """Return the facts that change when a file is written or replaced: time, size and inode."""
    return status.st_mtime_ns, status.st_size, status.st_ino


def _states(folder: str, above: frozenset[int] = frozenset()) -> dict[Path, tuple[int, int, int]]:
    """Return the states of the sources in a folder; none where it is in a zip file, or installed without them."""
    states, inode = dict[Path, tuple[int, int, int]](), os.stat(folder).st_ino if os.path.isdir(folder) else 0
    for entry in os.scandir(folder) if inode and inode not in above else ():  # a link may lead round
        if entry.name.endswith(".py") and entry.is_file():
            states[Path(entry.path)] = _state_of(entry.stat())
        elif entry.is_dir() and entry.name != "__pycache__":
            states |= _states(entry.path, above | {inode})
    return states


# The sources as they are when this module is imported, before any function is compiled: 4 ms.
STATES = _states(str(PACKAGE))


@functools.cache
def _imported(source: Path) -> list[Path]:
    """Return the package's files that one of them imports, anywhere in it; for any other file, the whole package."""
    if source not in STATES:
        return list(STATES)
    files = []
    for dots, name, in_parentheses, on_line in IMPORTS.findall(source_of(str(source))[0].decode()):
        target = source.parents[len(dots) - 1].joinpath(*name.split("."))
        below = [word.split()[0] for word in (in_parentheses or on_line).split(",") if word.strip()]
        files += [target.with_suffix(".py"), target / "__init__.py", *(target / f"{word}.py" for word in below)]
    return [file for file in files if file in STATES]


@functools.cache
def sources_of(*files: Path) -> list[Path]:
    """Return files with all of this package that they import, directly or not."""
    sources, todo = set(files), list(files)
    while todo:
        new = set(_imported(todo.pop())) - sources
        sources |= new
        todo += new
    return sorted(sources, key=str)  # paths compare their parts, which takes 20 ms a run


@functools.cache
def _digest_of(source: Path) -> bytes:
    return hashlib.sha256(source_of(str(source))[0]).digest()


def key_of(sources: Iterable[Path]) -> str:
    """Return a hash of the sources that may be compiled into a function; an edit elsewhere keeps its code."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sources:
        digest.update(path.name.encode() + _digest_of(path))
    return digest.hexdigest()[:16]


def files_of(function: Callable[..., Any]) -> list[Path]:
    """Return the files of a function and of all functions in its cells, at any depth, which may come from elsewhere."""
    functions = [function]
    for each in functions:  # which grows
        cells = (cell.cell_contents for cell in each.__closure__ or ())
        functions += {cell.py_func for cell in cells if hasattr(cell, "py_func")} - set(functions)
    return sorted({Path(each.__code__.co_filename).absolute() for each in functions})


def given_folder() -> Path | None:
    """Return ``$UNMIX_CACHE_DIR`` as an absolute path; None where it is unset or empty."""
    given = os.environ.get("UNMIX_CACHE_DIR")
    with contextlib.suppress(OSError):  # relative to a folder that is there no more
        return Path(given).absolute() if given else None  # absolute, since the working directory may change
    return None


@functools.cache
def cache_folder() -> Path | None:
    """Return the folder for compiled code; None where no folder is safe to write to, and nothing is kept."""
    if not STATES:  # without its sources code has no name
        return None
    # Anybody else who can write to this folder, or to one on its path, could make us run their code.
    home = Path(os.path.expanduser("~/.cache/unmix"))
    candidates = [given_folder(), Path(os.environ.get("XDG_CACHE_HOME", ""), "unmix"), home]
    with contextlib.suppress(FileNotFoundError):  # no folder at all is writable
        candidates.append(Path(tempfile.gettempdir(), f"unmix-{os.getuid()}"))
    for candidate in candidates:
        # A relative one, of an empty variable, would be in whatever folder the process was started in.
        if candidate is not None and candidate.is_absolute():
            with contextlib.suppress(OSError):
                folder = safe_folder(candidate, make=True)
                if folder is not None and os.stat(folder).st_uid == os.geteuid():
                    tempfile.TemporaryFile(dir=folder).close()
                    return folder
    return None


@functools.cache
def common_folder() -> Path | None:
    """Return ``$UNMIX_CACHE_DIR`` if it is not ours, but all code in it that can be read may be loaded; None else."""
    with contextlib.suppress(OSError):
        given = safe_folder(given_folder() or Path(os.devnull))
        if given is not None and given != cache_folder():
            # Folders of other versions may be unreadable.
            readable = [folder for folder in given.iterdir() if os.access(folder, os.R_OK | os.X_OK)]
            files = [file for folder in readable for file in folder.glob("*.nbc")]
            if all(map(safe_folder, readable)) and all(is_trusted(os.lstat(file)) for file in files):
                return given
    return None


def why_not_used() -> str | None:
    """Return why ``$UNMIX_CACHE_DIR`` is not used; None where it is used, or not set."""
    given = given_folder()
    if given is None or cache_folder() == Path(os.path.realpath(given)) or common_folder() is not None:
        return None
    return f"UNMIX_CACHE_DIR={given}: others may write there or to something in it, or it cannot be written or read"


@functools.cache
def remove_unused(cache: Path) -> None:
    """Remove code unused for `MOST_DAYS_UNUSED` days from a cache, once a process, and nothing else that lies there."""
    given = given_folder()
    # A cache that UNMIX_CACHE_DIR names may be for all users, whose processes leave no trace.
    if given is not None and cache == Path(os.path.realpath(given)):
        return
    for folder in [path for path in cache.iterdir() if KEY.fullmatch(path.name) and not path.is_symlink()]:
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > MOST_DAYS_UNUSED * 86400.0:
                for path in [*sorted(folder.rglob("*"), reverse=True), folder]:  # a folder after what is in it
                    with contextlib.suppress(OSError):
                        (path.unlink if path.suffix in CODE else path.rmdir)()


class CompileWatch(event.Listener):
    """Measure Numba's compile time (``seconds``) and, after a second in all, log that it compiles and how far it is.

    ``functions`` counts all compiled functions, ``lost`` has a reason for each piece of code that could not be kept.
    Compilations hold Numba's lock, and those of called functions are nested. Numba reports the start and end of CPU
    compilations, also after an error. Only the cache reports kernels: it is asked for each before the compilation and
    gets the code after it, but hears nothing of a kernel that fails to compile.
    """

    def __init__(self) -> None:
        self.depth, self.functions, self.seconds, self.since = 0, 0, 0.0, -1.0
        self.timer, self.said, self.at = threading.Timer(0.0, self.say), False, 0.0
        self.lost: list[str] = []

    def on_start(self, event: Any) -> None:
        """Count a compilation that starts."""
        self.depth += 1
        if self.depth == 1:
            self.begin()

    def on_end(self, event: Any) -> None:
        """Count a compilation that ends."""
        self.depth, self.functions = self.depth - 1, self.functions + 1
        if self.depth == 0:
            self.end()

    def begin(self) -> None:
        """Note that compiling starts."""
        self.timer.cancel()
        self.since = time.perf_counter()
        self.wait(self.seconds)

    def wait(self, seconds: float) -> None:
        """Have the next message logged when it is time; ``seconds`` are those of compiling so far."""
        self.timer = threading.Timer(max(0.0, (self.at if self.said else SECONDS_BEFORE_MESSAGE) - seconds), self.say)
        self.timer.daemon = True
        self.timer.start()

    def end(self) -> None:
        """Note that compiling ends, if it has started."""
        self.timer.cancel()
        if self.since >= 0.0:
            self.seconds += time.perf_counter() - self.since
            self.since = -1.0

    def lose(self, why: str) -> None:
        """Note that code could not be kept, and warn once."""
        if not self.lost:
            log.warning(f"{why}: what is compiled is not kept")
        self.lost.append(why)

    def say(self) -> None:
        """Log what takes so long, or how far it is; wait for the next message."""
        seconds = self.seconds + (time.perf_counter() - self.since if self.since >= 0.0 else 0.0)
        if not self.said:
            self.explain()
        elif self.since >= 0.0:
            log.info(f"{self.functions} functions are compiled after {seconds:.0f} s")
        self.said, self.at = True, seconds + SECONDS_BETWEEN_MESSAGES
        if self.since >= 0.0:
            self.wait(seconds)

    def explain(self) -> None:
        """Log what takes long, and whether it is done once."""
        advice = "the code is kept on disk, so this is done once"
        if not cache_folder():
            # Another UNMIX_CACHE_DIR would lose what an administrator has compiled.
            variable = "XDG_CACHE_HOME" if common_folder() else "UNMIX_CACHE_DIR"
            advice = (
                f"each run does this again, since no folder for the code is private to you; set {variable} to one that "
                "is"
            )
        log.info(f"compiling for this type of data and this task, up to some 100 functions; {advice}")


WATCH = CompileWatch()
event.register("numba:compile", WATCH)


def write(path: Path, content: bytes) -> None:
    """Write a file of compiled code, which is there as a whole or not at all; `OSError` where it cannot be written."""
    if safe_folder(path.parent, make=True) is None:
        raise PermissionError("others may write there")
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(hashlib.sha256(content).digest() + content)
            file.flush()
            os.fsync(descriptor)
        os.replace(name, path)
    except BaseException:  # Ctrl-C too: nobody would remove it later
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


class CodeStore:
    """The machine code of ``function``, a file for each signature and processor, as ``dumps`` pickles it.

    A file has the name of what is in it, and says again what that is. It gets the name in one step, so there is nothing
    to lock.
    """

    def __init__(self, function: Callable[..., Any], dumps: Callable[[Any], bytes]) -> None:
        self.function, self.dumps = function, dumps

    @functools.cached_property
    def sources(self) -> str | None:
        """Return the key of the function's sources; None where they differ from the sources that this process runs."""
        # After an update of the package a long process would keep its code under the key of the new sources. Computed
        # when first used: a run has a hundred compiled functions and calls ten; all keys took 0.1 s.
        with contextlib.suppress(OSError):  # one is there no more
            sources = sources_of(*files_of(self.function))
            key = key_of(sources)  # before the states are compared
            own = {path: (source_of(str(path))[1], os.stat(path)) for path in sources if path.is_relative_to(PACKAGE)}
            if all(_state_of(status) == STATES.get(path) for path, both in own.items() for status in both):
                return key
        return None

    def path_of(self, key: Any) -> tuple[Path, str]:
        """Return the path within a cache of the file for a key, and what the file says that it holds."""
        code = self.function.__code__
        file = Path(code.co_filename).absolute()
        # The same in every installation, so that all of a version can load what one has kept.
        place = file.relative_to(PACKAGE) if file.is_relative_to(PACKAGE) else file
        python = f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}"
        held = repr((self.sources, str(place), code.co_firstlineno, self.function.__qualname__, python, key))
        name = f"{self.function.__name__}.{hashlib.sha256(held.encode()).hexdigest()[:32]}.nbc"
        return Path(self.sources or "", name), held

    def load(self, key: Any) -> Any:
        """Return the object that was saved under a key, or None if it is missing, or not as it was written."""
        if self.sources is None:
            return None
        path, held = self.path_of(key)
        for folder in (cache_folder(), given_folder()):
            content = read_trusted(folder / path) if folder is not None else b""
            if hashlib.sha256(content[DIGEST_BYTES:]).digest() == content[:DIGEST_BYTES]:
                found, data = pickle.loads(content[DIGEST_BYTES:])
                if found == held:
                    with contextlib.suppress(OSError):
                        os.utime((folder / path).parent)  # it is in use, see `remove_unused`
                    return data
        return None

    def save(self, key: Any, data: Any) -> None:
        """Save an object under a key, for this user alone; note where it cannot be written, as on a full disk."""
        own, (path, held) = cache_folder(), self.path_of(key)
        if self.sources is None:
            WATCH.lose("unmix was updated while this process ran")
        elif own is not None:
            try:
                write(own / path, self.dumps((held, data)))
                remove_unused(own)
            except OSError as error:
                WATCH.lose(f"{(own / path).parent}: {error.strerror or error}")


@functools.cache
def _kept(cache_class: type) -> type:
    """Return a Numba cache class that keeps code in a `CodeStore`; keys of closures are the same in every process."""
    for_cpu = issubclass(cache_class, FunctionCache)

    class Form(cache_class._impl_class):  # type: ignore[name-defined, misc]
        """The form of code in a file; it is its own locator, without a place, as the store finds the folder later."""

        def __init__(self, function: Callable[..., Any]) -> None:
            self._locator, self._filename_base = self, function.__name__
            self._py_file, self._lineno = function.__code__.co_filename, function.__code__.co_firstlineno

        def get_cache_path(self) -> str:
            return os.devnull

        def get_source_stamp(self) -> str:
            return ""

        def ensure_cache_path(self) -> None:
            pass

    class Kept(cache_class):  # type: ignore[misc]
        _impl_class = Form

        def __init__(self, function: Callable[..., Any], form: str = "") -> None:
            super().__init__(function)
            self.form = form
            # Numba loads and saves through this alone.
            self._cache_file = CodeStore(function, self._cache_file._dump)  # type: ignore[has-type]

        def _index_key(self, sig: Any, codegen: Any) -> Any:
            # Numba's key hashes the pickled cells of a closure, and a pickled dispatcher holds a random id, so it never
            # matches. Our name holds the cells, and our folder is keyed by the sources behind them.
            settings = tuple(f"{name}={getattr(numba.config, name, None)}" for name in SETTINGS)
            key = self.form, str(sig), tuple(sorted(fields_in(sig))), settings, codegen.magic_tuple(), numba.__version__
            if for_cpu:
                return key
            # Kernels are pickled in the form of one version of numba-cuda, which Numba's version does not tell.
            version = getattr(sys.modules.get("numba_cuda"), "__version__", None)
            return *key, getattr(self, "_launch_config_key", None), version

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            # Numba imports what it needs to compile first, which takes half a second; machine code needs memory
            # management alone.
            if for_cpu:
                rtsys.initialize(target_context)
            try:
                found = self._load_overload(sig, target_context)
            except Exception as error:  # whatever another program has left under that name may fail in any way
                log.debug(f"compiling again: {self._py_func.__qualname__}: {type(error).__name__}: {error}")
                found = None
            if found is None and not for_cpu:
                WATCH.begin()
            return found

        def save_overload(self, sig: Any, data: Any) -> None:
            if not for_cpu:
                WATCH.end()
            super().save_overload(sig, data)

    return Kept


def keep(dispatcher: Any, cache_class: type, form: str = "") -> Any:
    """Give ``dispatcher`` a cache on disk, if it compiles, and return it; ``form`` separates its several forms."""
    if hasattr(dispatcher, "_cache"):  # not plain Python, nor the simulator
        dispatcher._cache = _kept(cache_class)(dispatcher.py_func, form)
    return dispatcher
