"""Decide whose files may be run: nobody else may write to a file of code, its folder, or any folder on the path."""

import contextlib
import os
import stat
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
NOBODY = 65534  # stands for all users whom a container or a network file system does not know


def trusted_users() -> frozenset[int]:
    """Return root, this user and the owner of unmix, who can change the program itself, so that their code may run."""
    return frozenset({0, os.geteuid(), os.stat(PACKAGE).st_uid} - {NOBODY})


def safe_folder(folder: Path, make: bool = False) -> Path | None:
    """Return a folder's real path if only `trusted_users` can write to it or replace it, or any folder on the path."""
    # Every folder must belong to a trusted user and be writable by nobody else; a sticky one like /tmp may be on the
    # way if the next one is not such a folder. Links must be theirs, and the path that they lead to counts.
    users, others_before = trusted_users(), 0
    if any(os.path.islink(place) and os.lstat(place).st_uid not in users for place in (folder, *folder.parents)):
        return None
    real = Path(os.path.realpath(folder))
    for place in (*reversed(real.parents), real):
        if make and not os.path.lexists(place):
            with contextlib.suppress(FileExistsError):  # another process or thread has made it by now
                os.mkdir(place, 0o700)
        status = os.lstat(place)
        others = status.st_mode & OTHERS_WRITE
        unsafe = others and (others_before or not status.st_mode & stat.S_ISVTX)
        if unsafe or status.st_uid not in users or not stat.S_ISDIR(status.st_mode):
            return None
        others_before = others
    return None if others_before else real


def is_trusted(status: os.stat_result) -> bool:
    """Return whether the status is of a plain file that nobody but `trusted_users` can write to."""
    return stat.S_ISREG(status.st_mode) and status.st_uid in trusted_users() and not status.st_mode & OTHERS_WRITE


def read_trusted(path: Path) -> bytes:
    """Return the content of a file of compiled code; empty where it is missing, or others may have written it."""
    with contextlib.suppress(OSError):
        if safe_folder(path.parent) is not None:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                # Another user may have made the file again, since a program that tidies up removed its folder.
                return file.read() if is_trusted(os.fstat(file.fileno())) else b""
    return b""
