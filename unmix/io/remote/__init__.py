"""Read scenes from object stores and web servers, and upload finished outputs; `RemotePath` stands for a `Path`."""

import os
import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from .path import DOCUMENT, VERSIONS, RemotePath, files_named, sizes_in_folder

# URLs that can be read match with one slash, too, because `Path` merges two; other URLs match, so that none becomes a
# folder ``gs:``.
URL = re.compile(r"(s3|https?):/|[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def is_remote(name: str | os.PathLike[str]) -> bool:
    """Return whether a name is a URL, also of a kind that cannot be read (s3, https and http can be)."""
    return isinstance(name, RemotePath) or URL.match(os.fspath(name)) is not None


def located(name: str | os.PathLike[str]) -> Path:
    """Return a local `Path`, or the `RemotePath` of a URL; `MethodError` for a URL with a query or password."""
    if isinstance(name, RemotePath) or not is_remote(name):
        return Path(name) if isinstance(name, str) else name if isinstance(name, Path) else Path(os.fspath(name))
    return RemotePath.of(os.fspath(name))


def document_of(name: str | os.PathLike[str]) -> tuple[Path, str] | None:
    """Return a document that may name a scene's files, and the name in it after ``#`` or ""; None for other files."""
    found = DOCUMENT.fullmatch(os.fspath(name))
    return None if found is None or os.path.isdir(name) else (located(found[1]), found[2] or "")


def leads_elsewhere(name: str | os.PathLike[str]) -> bool:
    """Return whether ``FILE`` or ``FILE:NAME`` may lead to a server: a URL, or a document that names files."""
    text = os.fspath(name)
    return is_remote(name) or any(document_of(one) is not None for one in (text, text.rpartition(":")[0]))


def is_file(name: str | os.PathLike[str]) -> bool:
    """Return whether a name leads to a file on this machine, or is a URL."""
    return is_remote(name) or os.path.isfile(name)


def exists(path: Path) -> bool:
    """Return whether a file exists, here or on its server; False for a name that no system takes."""
    return path.exists() if isinstance(path, RemotePath) else os.path.exists(path)


def fetched(path: Path, stretches: Callable[[], Iterable[tuple[int, int]]]) -> AbstractContextManager[None]:
    """Return a context in which stretches ``(offset, bytes)`` of a file are in memory, if it is remote."""
    return path.pages.holding(stretches()) if isinstance(path, RemotePath) else nullcontext()


def absolute(name: str | os.PathLike[str]) -> str:
    """Return the absolute path of a file on this machine, or a URL as it is."""
    return str(located(name)) if is_remote(name) else os.path.abspath(name)
