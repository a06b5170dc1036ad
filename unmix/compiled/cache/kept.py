"""Give Numba's dispatchers a cache that is safe to use from many processes at once, and that survives a power failure."""

import contextlib
import functools
import hashlib
import inspect
import logging
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import types
from numba.core.caching import FunctionCache, NullCache
from numba.core.runtime import rtsys

from .folders import cache_folder, make_private, open_trusted, shared_folder
from .sources import PACKAGE, changed_since_start, files_of
from .tidy import remove_unused
from .watch import WATCH

log = logging.getLogger("unmix")
DIGEST = 32  # bytes
SETTINGS = (
    "BOUNDSCHECK", "CUDA_DEBUGINFO_DEFAULT", "DEBUGINFO_DEFAULT", "DEBUG_NRT", "DISABLE_INTEL_SVML", "ENABLE_AVX", "ENABLE_PROFILING",
    "EXTEND_VARIABLE_LIFETIMES", "JIT_COVERAGE", "LLVM_REFPRUNE_FLAGS", "LLVM_REFPRUNE_PASS", "LOOP_VECTORIZE", "NRT_STATS", "OPT",
    "SLP_VECTORIZE",
)  # fmt: skip


class Store:
    """The machine code of a function, a file for each signature and processor.

    Numba has an index of numbered files, which must agree. Here a file has the name of what is in it, and says again what that is.
    It is on the disk before it gets that name, in one step, so there is nothing to lock, and one that was cut off is found out.

    Parameters
    ----------
    folder : str
    base : str
        What the names of the files begin with.
    dumps : callable
        Turns an object into bytes that `pickle` reads.
    """

    def __init__(self, folder: str, base: str, dumps: Callable[[Any], bytes]) -> None:
        self.folder, self.base, self.dumps = folder, base, dumps

    def path_of(self, key: Any) -> Path:
        """Return the file for a key."""
        return Path(self.folder, f"{self.base}.{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}.nbc")

    def load(self, key: Any) -> Any:
        """Return what was saved under a key, or None where it is not there, or not as it was written."""
        file = open_trusted(self.path_of(key))
        if file is None:
            return None
        with file:
            content = file.read()
        if hashlib.sha256(content[DIGEST:]).digest() != content[:DIGEST]:
            return None
        kept, data = pickle.loads(content[DIGEST:])
        return data if kept == repr(key) else None

    def save(self, key: Any, data: Any) -> None:
        """Save an object under a key, for this user alone; `OSError` where it cannot be written."""
        content = self.dumps((repr(key), data))
        make_private(Path(self.folder))
        descriptor, name = tempfile.mkstemp(dir=self.folder)
        try:
            with open(descriptor, "wb") as file:
                file.write(hashlib.sha256(content).digest() + content)
                file.flush()
                os.fsync(descriptor)
            os.replace(name, self.path_of(key))
        except BaseException:  # Ctrl-C too: nobody would remove it later
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


def _locator_in(folder: str) -> type:
    """Return the class that tells Numba to keep the code of any function in ``folder``."""

    class Locator:
        """As Numba's locators; the folder is named after the contents of all sources, so what lies in it is never out of date."""

        def __init__(self, function: Callable[..., Any]) -> None:
            self._py_file = inspect.getfile(function)  # Numba names it in a warning
            self.line = function.__code__.co_firstlineno
            path = Path(self._py_file).absolute()
            # The same in every installation, so that all of a version can load what one has kept.
            place = path.relative_to(PACKAGE) if path.is_relative_to(PACKAGE) else path
            self.path = os.path.join(folder, f"{path.stem}_{hashlib.sha256(str(place).encode()).hexdigest()[:16]}")

        @classmethod
        def from_function(cls, function: Callable[..., Any], file: str) -> "Locator":
            return cls(function)

        def ensure_cache_path(self) -> None:
            make_private(Path(self.path))

        def get_cache_path(self) -> str:
            return self.path

        def get_source_stamp(self) -> str:
            return ""

        def get_disambiguator(self) -> str:
            return str(self.line)

    return Locator


def fields_in(sig: Any) -> set[tuple[str, ...]]:
    """Return name and fields of every NamedTuple type in a signature, at any depth.

    Machine code holds their numbers, Numba's names of these types only the class, and its file need not be one that the function's
    file imports.
    """
    fields = {(sig.instance_class.__qualname__, *sig.fields)} if isinstance(sig, types.BaseNamedTuple) else set()
    inner = sig if isinstance(sig, tuple) else getattr(sig, "types", ())
    return fields.union(*map(fields_in, inner))


def settings() -> tuple[str, ...]:
    """Return those settings of Numba's (``NUMBA_…``) that change machine code, such as checks of bounds for who looks for a fault."""
    return tuple(f"{name}={getattr(numba.config, name, None)}" for name in SETTINGS)


def _safe(cache_class: type, folder: str, shared: Any = None) -> type:
    """Return a Numba cache class that keeps code in ``folder``, and loads missing code from the cache ``shared``.

    Its keys of closures are the same in the next process.
    """
    for_cpu = issubclass(cache_class, FunctionCache)

    class Kept(cache_class._impl_class):  # type: ignore[name-defined, misc]
        _locator_classes = (_locator_in(folder),)

    class SafeCache(cache_class):  # type: ignore[misc]
        _impl_class = Kept

        def __init__(self, function: Callable[..., Any]) -> None:
            super().__init__(function)
            # Numba loads and saves through this alone.
            dumps = self._cache_file._dump  # type: ignore[has-type]
            self._cache_file = Store(self._cache_path, self._impl.filename_base, dumps)

        def _index_key(self, sig: Any, codegen: Any) -> Any:
            # Numba's key hashes the pickled cells of a closure, and a pickled dispatcher holds a random id, so it never matches.
            # Our name holds the cells, and our folder is keyed by the sources behind them.
            about = str(sig), tuple(sorted(fields_in(sig))), settings(), codegen.magic_tuple()
            return (*about, self._py_func.__qualname__, numba.__version__, self._extra_key())

        def _extra_key(self) -> Any:
            if for_cpu:
                return None
            # Kernels are pickled in the form of one version of numba-cuda, which Numba's version does not tell.
            version = getattr(sys.modules.get("numba_cuda"), "__version__", None)
            return getattr(self, "_launch_config_key", None), version

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            found = self.find(sig, target_context)
            if found is None and not for_cpu:
                WATCH.begin()
            return found

        def find(self, sig: Any, target_context: Any) -> Any:
            # Numba imports what it needs to compile first, which takes half a second; machine code needs memory management alone.
            if for_cpu:
                rtsys.initialize(target_context)
            # Whatever another program has left under that name may fail in any way.
            try:
                found = self._load_overload(sig, target_context)
            except Exception as error:
                log.debug(f"compiling again: {self._cache_path}: {type(error).__name__}: {error}")
                found = None
            return shared.find(sig, target_context) if found is None and shared is not None else found

        def save_overload(self, sig: Any, data: Any) -> None:
            if not for_cpu:
                WATCH.end()
            try:
                super().save_overload(sig, data)
                remove_unused(Path(folder).parent)
            except OSError as error:  # on a full disk, run without the cache
                WATCH.lose(f"{self._cache_path}: {error.strerror or error}")

    return SafeCache


class Unkept(NullCache):
    """The cache of a function whose code is not kept: it lets the time of kernels be measured, and says why.

    Parameters
    ----------
    for_cpu : bool
    why : str, optional
        The reason, where it is not that there is no folder, which `Watch.say` tells.
    """

    def __init__(self, for_cpu: bool, why: str = "") -> None:
        self.for_cpu, self.why = for_cpu, why

    def load_overload(self, sig: Any, target_context: Any) -> None:
        """Find nothing, so that Numba compiles now."""
        if not self.for_cpu:
            WATCH.begin()

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep nothing; it is compiled."""
        if not self.for_cpu:
            WATCH.end()
        if self.why:
            WATCH.lose(self.why)


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
        return cache_of(self.dispatcher.py_func, self.cache_class)

    def __getattr__(self, name: str) -> Any:  # whatever the dispatcher asks of its cache
        return getattr(self.found, name)


def cache_of(function: Callable[..., Any], cache_class: type) -> Any:
    """Return the cache on disk of a function, or one that keeps nothing."""
    files, for_cpu = files_of(function), issubclass(cache_class, FunctionCache)
    own, shared = cache_folder(*files), shared_folder(*files)
    if changed_since_start(files):  # asked after the sources were read for the names of the folders
        return Unkept(for_cpu, "unmix was updated while this process ran")
    common = None if shared is None else _cache_in(shared, function, cache_class)
    cache = common if own is None else _cache_in(own, function, cache_class, common)
    if cache is None and own is not None:
        return Unkept(for_cpu, "NUMBA_CACHE_LOCATOR_CLASSES names another place")
    return cache or Unkept(for_cpu)


def _cache_in(folder: str, function: Callable[..., Any], cache_class: type, shared: Any = None) -> Any:
    """Return the cache of a function in a folder, which also loads from ``shared``; None where Numba is told another place."""
    try:
        cache = _safe(cache_class, folder, shared)(function)
    except RuntimeError:  # NUMBA_CACHE_LOCATOR_CLASSES names none that there is
        return None
    return cache if Path(cache.cache_path).is_relative_to(folder) else None


def keep(dispatcher: Any, cache_class: type) -> Any:
    """Give ``dispatcher`` a cache on disk, if there is a folder for it and it compiles at all; return it."""
    if not hasattr(dispatcher, "_cache"):  # plain Python, or the simulator
        return dispatcher
    if issubclass(cache_class, FunctionCache):
        dispatcher._cache = CacheWhenUsed(dispatcher, cache_class)
    else:  # numba-cuda asks what class it is
        dispatcher._cache = cache_of(dispatcher.py_func, cache_class)
    return dispatcher
