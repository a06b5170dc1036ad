"""Give Numba's dispatchers a cache that is safe to use from many processes at once, and that survives a power failure."""

import contextlib
import fcntl
import functools
import hashlib
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache, NullCache
from numba.core.runtime import rtsys

from .folders import cache_folder, shared_folder
from .sources import files_of
from .watch import WATCH

log = logging.getLogger("unmix")


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _locator_in(folder: str) -> type:
    """Return the class that tells Numba to keep the code of any function in ``folder``."""

    class Locator:
        """As Numba's locators; the folder is named after the contents of all sources, so what lies in it is never out of date."""

        def __init__(self, function: Callable[..., Any]) -> None:
            self._py_file = inspect.getfile(function)  # Numba names it in a warning
            self.line = function.__code__.co_firstlineno
            path = Path(self._py_file).absolute()
            self.path = os.path.join(
                folder, f"{path.parent.name}_{hashlib.sha1(str(path.parent).encode()).hexdigest()}"
            )

        @classmethod
        def from_function(cls, function: Callable[..., Any], file: str) -> "Locator":
            return cls(function)

        def ensure_cache_path(self) -> None:
            os.makedirs(self.path, exist_ok=True)

        def get_cache_path(self) -> str:
            return self.path

        def get_source_stamp(self) -> str:
            return ""

        def get_disambiguator(self) -> str:
            return str(self.line)

    return Locator


def _safe(cache_class: type, folder: str, shared: Any = None) -> type:
    """Return a Numba cache class that keeps code in ``folder``, and loads from the cache ``shared`` what is not there.

    Its saves are locked and flushed to the disk, and its keys of closures are the same in the next process.
    """
    for_cpu = issubclass(cache_class, FunctionCache)

    class Kept(cache_class._impl_class):  # type: ignore[name-defined, misc]
        _locator_classes = (_locator_in(folder),)

    class SafeCache(cache_class):  # type: ignore[misc]
        _impl_class = Kept

        def _index_key(self, sig: Any, codegen: Any) -> Any:
            # Numba's key hashes the pickled cells of a closure, and a pickled dispatcher holds a random id, so it never matches.
            # Our name holds the cells, and our folder is keyed by the sources behind them.
            return (str(sig), codegen.magic_tuple(), self._py_func.__qualname__, self._extra_key())

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            found = self._find(sig, target_context)
            if found is None and not for_cpu:
                WATCH.begin()
            return found

        def _find(self, sig: Any, target_context: Any) -> Any:
            # Numba imports what it needs to compile first, which takes half a second; machine code needs memory management alone.
            if for_cpu:
                rtsys.initialize(target_context)
            # Reading and unpickling may fail in any way: a power failure cut the file off, or another program wrote it.
            try:
                found = self._load_overload(sig, target_context)
            except Exception as error:
                log.debug(f"compiling again: {self._cache_path}: {type(error).__name__}: {error}")
                self._forget()
                found = None
            return shared._find(sig, target_context) if found is None and shared is not None else found

        def _forget(self) -> None:
            """Drop what is kept of this function: its index, or a file that this names, cannot be read."""
            with contextlib.suppress(OSError), _locked(self._cache_path):
                self.flush()

        def _extra_key(self) -> Any:
            if for_cpu:
                return None
            # Kernels are pickled in the form of one version of numba-cuda, which Numba's version does not tell.
            version = getattr(sys.modules.get("numba_cuda"), "__version__", None)
            return getattr(self, "_launch_config_key", None), version

        def save_overload(self, sig: Any, data: Any) -> None:
            if not for_cpu:
                WATCH.end()
            with contextlib.suppress(OSError), _locked(self._cache_path):  # on a full disk, run without the cache
                super().save_overload(sig, data)
                self._flush_to_disk()

        def _flush_to_disk(self) -> None:
            for path in Path(self._cache_path).glob(f"{self._impl.filename_base}.*"):
                with open(path, "rb") as file:
                    os.fsync(file.fileno())

    return SafeCache


class Unkept(NullCache):
    """The cache of a kernel for which there is no folder: it only lets the time be measured."""

    def load_overload(self, sig: Any, target_context: Any) -> None:
        """Find nothing, so that Numba compiles now."""
        WATCH.begin()

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep nothing; it is compiled."""
        WATCH.end()


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
    files = files_of(function)
    folders = [folder for folder in (cache_folder(*files), shared_folder(*files)) if folder is not None]
    cache = None
    for folder in reversed(folders):
        cache = _safe(cache_class, folder, cache)(function)
        if not Path(cache.cache_path).is_relative_to(folder):  # NUMBA_CACHE_LOCATOR_CLASSES names another place
            return None
    return cache


def keep(dispatcher: Any, cache_class: type) -> Any:
    """Give ``dispatcher`` a cache on disk, if there is a folder for it and it compiles at all; return it."""
    if not hasattr(dispatcher, "_cache"):  # plain Python, or the simulator
        return dispatcher
    if issubclass(cache_class, FunctionCache):
        dispatcher._cache = CacheWhenUsed(dispatcher, cache_class)
    else:  # numba-cuda asks what class it is
        dispatcher._cache = cache_of(dispatcher.py_func, cache_class) or Unkept()
    return dispatcher
