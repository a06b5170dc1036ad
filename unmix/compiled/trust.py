"""Whose files may be run: nobody else may write to a file of compiled code, to its folder, or to any folder on the path."""

import contextlib
import os
import stat
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
NOBODY = 65534  # stands for all users whom a container or a network file system does not know


def trusted_users() -> frozenset[int]:
    """Return root, this user and whoever installed unmix: they can change the program itself, so their code may be run."""
    return frozenset({0, os.geteuid(), os.stat(PACKAGE).st_uid} - {NOBODY})


def safe_folder(folder: Path, make: bool = False) -> Path | None:
    """Return the real path of a folder, if nobody but `trusted_users` can write to it or replace it, or any folder on
    the path.

    Every folder must belong to one of them and be writable by nobody else. A sticky one like /tmp, where all may write
    but only owners delete, is accepted on the way if the next one is not such a folder. Links must be theirs, and are
    followed first: what counts is the path that they lead to. With ``make``, missing folders are made, for this user
    alone. `OSError` where one cannot be made.
    """
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
    """Return the content of a file of compiled code; nothing where it is not there, or anybody else may have written
    it.

    The file itself is looked at, too: since its folder was, a program that tidies up may have removed that, and another
    user may have made it again.
    """
    with contextlib.suppress(OSError):
        if safe_folder(path.parent) is not None:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                return file.read() if is_trusted(os.fstat(file.fileno())) else b""
    return b""
