"""Name compiled code after the contents of all the source files that may be compiled into it."""

import functools
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

PACKAGE = Path(__file__).parents[2]
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


def sources_of(source: Path) -> list[Path]:
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
