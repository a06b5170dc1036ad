"""Name compiled code after the contents of all the source files that may be compiled into it."""

import functools
import hashlib
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numba

PACKAGE = Path(__file__).parents[2]
IMPORTS = re.compile(r"^ *from (\.+)([\w.]*) import (?:\(([^)]*)\)|(.*))", re.MULTILINE)


State = tuple[int, int, int]


def _state_of(status: os.stat_result) -> State:
    """Return what changes when a file is written or replaced: its time, its size and its inode."""
    return status.st_mtime_ns, status.st_size, status.st_ino


def _states_in(folder: str, within: frozenset[str] = frozenset()) -> dict[Path, State]:
    """Return the states of all Python files in a folder and those below it; links that lead round are not followed twice.

    There are none where the package is in a zip file, or installed without its sources.
    """
    states: dict[Path, State] = {}
    real = os.path.realpath(folder)
    if real in within or not os.path.isdir(folder):
        return states
    for entry in os.scandir(folder):
        if entry.is_dir() and entry.name != "__pycache__":
            states |= _states_in(entry.path, within | {real})
        elif entry.name.endswith(".py") and entry.is_file():
            states[Path(entry.path)] = _state_of(entry.stat())
    return states


# All files of this package as they are when this one is imported, before any function is compiled: 4 ms.
STATES = _states_in(str(PACKAGE))


def changed_since_start(files: Iterable[Path]) -> bool:
    """Return whether one of these, or a file that it imports, was written since `STATES` were looked at.

    A long process whose package is updated would keep the code that it has imported under the name of the sources that it finds now,
    and the processes of the new version would run it.
    """
    try:
        return any(
            _state_of(os.stat(source)) != STATES[source]
            for source in {source for file in files for source in sources_of(file)}
            if source.is_relative_to(PACKAGE)
        )
    except (OSError, KeyError):
        return True


@functools.cache
def _imported(source: Path) -> tuple[Path, ...]:
    """Return the files of this package that a file imports, at any place in it."""
    imported = []
    for dots, name, in_parentheses, on_line in IMPORTS.findall(source.read_text(encoding="utf-8")):
        target = source.parents[len(dots) - 1].joinpath(*name.split("."))
        below = [word.split()[0] for word in (in_parentheses or on_line).split(",") if word.strip()]
        files = [target.with_suffix(".py"), target / "__init__.py", *(target / f"{word}.py" for word in below)]
        imported += [file for file in files if file in STATES]
    return tuple(imported)


def sources_of(source: Path) -> list[Path]:
    """Return a file of this package with all that it imports, directly or not; for another file, the whole package."""
    if not source.is_relative_to(PACKAGE):
        return [source, *sorted(STATES)]
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
def key_of(*sources: Path) -> str:
    """Return a hash of all that may be compiled into a function of some files; an edit in `nmf` keeps the code of `pixels`."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted({path for source in sources for path in sources_of(source)}):
        digest.update(path.name.encode() + _digest_of(path))
    return digest.hexdigest()[:16]


def files_of(function: Callable[..., Any]) -> list[Path]:
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
