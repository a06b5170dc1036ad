"""Compute the digests of outputs: of files, of images by their lines, of a run's record.

Outputs that are folders, as a map in Zarr is: removed, flushed, measured and digested as a whole, as files are.
"""

import contextlib
import hashlib
import json
import os
import shutil
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..io.formats.written_by import STORE
from ..io.opening import open_plain, open_there


def record_digest(report: dict[str, Any]) -> str:
    """Return the SHA-256 of a run's record, `finite`, without the digest itself; the same before it is written and after it is read."""
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


def image_digest_within(file: IO[bytes], lines: int, begin: int = 0, line: int | None = None) -> str:
    """Return the digest of an image in an open file, read line by line; that of no lines where it cannot have ``lines``.

    The image begins at the byte ``begin``; a line has ``line`` bytes, by default so many that the image ends with the file.
    """
    size = os.fstat(file.fileno()).st_size - begin
    if not 0 < lines <= size:
        return digest_of(np.zeros(0, np.uint32))
    checks = np.zeros(lines, np.uint32)
    file.seek(begin)
    for i in range(lines):
        checks[i] = zlib.crc32(file.read(line or size // lines))
    if line is None and file.read(1):
        checks[-1] ^= 1
    return digest_of(checks)


def is_tree(path: Path) -> bool:
    """Return whether a name is that of a folder itself, not of a link to one."""
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


def discard(path: str | Path, within: int | None = None) -> None:
    """Remove a file, a link or a store's folder, if there is one; ``within`` is the descriptor of a workplace, which is emptied.

    Raises
    ------
    OSError
        Where it is another folder: no output has its name, and it is not ours.
    """
    try:
        os.unlink(path, dir_fd=within)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):  # which Linux and macOS say of a folder
        if within is None and STORE not in Path(path).suffixes:
            raise
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path, dir_fd=within)
