"""Compute the digests of outputs: of files, of images by their lines, of a run's record.

Remove, flush, measure and digest outputs that are folders, as a map in Zarr is, as a whole.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..io.formats.written_by import DOCUMENT, WORDS
from ..io.opening import open_plain, open_there

# Bytes of the document of a store that are read.
LONGEST_DOCUMENT = 2**24


def record_digest(report: dict[str, Any]) -> str:
    """Return the SHA-256 of a run's record (`finite`) without its digest, the same before writing and after reading."""
    content = {key: value for key, value in report.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def digest_of(checks: np.ndarray) -> str:
    """Return the digest of an image from the CRC-32 of its lines, (lines,) uint32."""
    return hashlib.sha256(checks.astype("<u4").tobytes()).hexdigest()


def line_checks(lines: np.ndarray) -> np.ndarray:
    """Return the CRC-32 of each line of an array (lines, ...), as (lines,) uint32."""
    return np.array([zlib.crc32(np.ascontiguousarray(line).data) for line in lines], np.uint32)


def digest_within(file: IO[bytes]) -> str:
    """Return the SHA-256 of an open file."""
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file; `OSError` where it cannot be read, or is a pipe."""
    with open_plain(path) as file:
        return digest_within(file)


def image_digest_within(file: IO[bytes], lines: int) -> str:
    """Return the digest of an open image, read line by line; of no lines if it is too small for ``lines``."""
    size = os.fstat(file.fileno()).st_size
    if not 0 < lines <= size:
        return digest_of(np.zeros(0, np.uint32))
    checks = np.zeros(lines, np.uint32)
    file.seek(0)
    for i in range(lines):
        checks[i] = zlib.crc32(file.read(size // lines))
    if file.read(1):
        checks[-1] ^= 1
    return digest_of(checks)


def is_tree(path: Path) -> bool:
    """Return whether a path leads to a folder itself, not to a link to one."""
    return path.is_dir() and not path.is_symlink()


def files_of_tree(folder: Path) -> list[Path]:
    """Return all files in a folder and the folders in it, sorted; links are not followed."""
    return sorted(Path(place, name) for place, _, names in os.walk(folder) for name in names)


def tree_size(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(os.lstat(file).st_size for file in files_of_tree(folder))


def tree_digest(folder: Path) -> str:
    """Return a digest of the names and contents of all files in a folder; `OutputError` where one is a link."""
    digests = {}
    for path in files_of_tree(folder):
        with open_there(path, "rb") as file:
            digests[path.relative_to(folder).as_posix()] = digest_within(file)
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()


def flush_tree(folder: Path) -> None:
    """Flush all files in a folder, and the folders."""
    for path in [*files_of_tree(folder), *(Path(place) for place, _, _ in os.walk(folder))]:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_own(folder: int, name: str) -> bytes:
    """Return the content of a file in an open folder; `OSError` where it is not one that this user alone made there."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        # A hard link could bring a mark of another folder here.
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or status.st_uid != os.geteuid():
            raise OSError(errno.EPERM, "is not a file that only this user made", name)
        return file.read(LONGEST_DOCUMENT)


def is_own_store(folder: int) -> bool:
    """Return whether an open folder is a Zarr store that this user's unmix wrote."""
    try:
        return re.search(WORDS, json.loads(read_own(folder, DOCUMENT))["attributes"]["title"].encode()) is not None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def opened_folder(path: str | Path, within: int | None = None) -> int:
    """Return the descriptor of a folder; `OSError` where it is none, or a link."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=within)


def discard(path: str | Path, within: int | None = None) -> None:
    """Remove a file, link or store that unmix wrote, or anything in our own open folder ``within`` (a descriptor)."""
    try:
        os.unlink(path, dir_fd=within)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):  # which Linux and macOS say of a folder
        if not stat.S_ISDIR(os.stat(path, dir_fd=within, follow_symlinks=False).st_mode):
            raise
        with contextlib.suppress(FileNotFoundError):
            # Others may have given the name to their folder: only an own store is removed.
            remove_tree(path, lambda folder: within is not None or is_own_store(folder), within)


def remove_tree(path: str | Path, is_ours: Callable[[int], bool], within: int | None = None, last: str = "") -> None:
    """Remove a folder, the file ``last`` in it last; `OSError` if ``is_ours`` denies its descriptor."""
    # The folder is emptied by its descriptor: another folder that gets its name meanwhile is not changed.
    folder = opened_folder(path, within)
    try:
        if not is_ours(folder):
            raise OSError(errno.EEXIST, "is a folder that unmix did not make; move it away", os.fspath(path))
        empty(folder, last)
        os.rmdir(path, dir_fd=within)
    finally:
        os.close(folder)


def empty(folder: int, last: str = "") -> None:
    """Remove all that is in an open folder that is ours, the file ``last`` after the others."""
    for name in sorted(os.listdir(folder), key=lambda name: name == last):
        with contextlib.suppress(OSError):
            discard(name, within=folder)
