"""Outputs that are folders, as a map in Zarr is: removed, flushed, measured and digested as a whole, as files are."""

import contextlib
import hashlib
import json
import os
import shutil
from pathlib import Path

from ..io.formats.written_by import STORE
from ..io.opening import open_there
from .digests import digest_within


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
