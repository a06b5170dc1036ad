"""Find the folders that compiled code may be loaded from: nobody may write there who could not run programs as this user anyway."""

import contextlib
import functools
import os
import stat
import tempfile
from pathlib import Path
from typing import IO

from .sources import PACKAGE, STATES, key_of

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
MOST_LINKS = 40  # Linux follows as many
# The user that stands for all whom a container or a network file system does not know: nobody in particular.
NOBODY = 65534


def _leads_safely(folder: Path, owners: frozenset[int], make: bool) -> bool:
    """Return whether nobody but ``owners`` can write to ``folder`` or replace it, or any folder on the path to it.

    Every folder must belong to one of them and be writable by nobody else. A sticky one like /tmp, where all may write but only owners
    delete, is accepted if the next one is not such a folder. Links are followed where one of the owners made them in a folder that
    nobody else may write to. With ``make``, missing folders are made.

    Raises
    ------
    OSError
        Where a folder cannot be examined or made.
    """
    reached, links = Path("/"), 0
    status = parent_status = os.lstat(reached)
    todo = list(reversed(folder.absolute().parts[1:]))
    while True:
        if status.st_uid not in owners or not stat.S_ISDIR(status.st_mode):
            return False
        if status.st_mode & OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
            return False
        if parent_status.st_mode & OTHERS_WRITE and status.st_mode & OTHERS_WRITE:
            return False
        if not todo:
            return not status.st_mode & OTHERS_WRITE
        name = todo.pop()
        if name == "..":  # from a link's target; all links before it are resolved
            reached, parent_status = reached.parent, os.lstat(reached.parent.parent)
            status = os.lstat(reached)
            continue
        if make and not os.path.lexists(reached / name):
            with contextlib.suppress(FileExistsError):  # another process or thread has made it by now
                os.mkdir(reached / name, 0o700)
        parent_status, status = status, os.lstat(reached / name)
        if not stat.S_ISLNK(status.st_mode):
            reached /= name
            continue
        links += 1
        if links > MOST_LINKS or status.st_uid not in owners or parent_status.st_mode & OTHERS_WRITE:
            return False
        target = Path(os.readlink(reached / name))
        reached = Path("/") if target.is_absolute() else reached
        todo += reversed(target.parts[target.is_absolute() :])
        status, parent_status = os.lstat(reached), os.lstat(reached.parent)


def _holds_only(folder: Path, owners: frozenset[int], closed: bool) -> bool:
    """Return whether a folder holds only folders and plain files of ``owners``: Numba runs the code that it loads from there.

    Unless the folder is ``closed`` to all others, they may not write to any of these.
    """
    for entry in os.scandir(folder):
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:  # another process has renamed it
            continue
        is_folder = stat.S_ISDIR(status.st_mode)
        if status.st_uid not in owners or not (is_folder or stat.S_ISREG(status.st_mode)):
            return False
        if not closed and status.st_mode & OTHERS_WRITE:
            return False
        if is_folder and not _holds_only(Path(entry.path), owners, closed):
            return False
    return True


def usable(folder: Path) -> bool:
    """Make ``folder`` and return whether it is this user's, and only this user and root can write to it, now and later."""
    user = os.geteuid()
    try:
        if not _leads_safely(folder, frozenset({0, user}), make=True):
            return False
        status = os.stat(folder)
        if status.st_uid != user or not _holds_only(folder, frozenset({user}), closed=not status.st_mode & 0o077):
            return False
        probe, name = tempfile.mkstemp(dir=folder)
        os.close(probe)
        os.unlink(name)
    except OSError:
        return False
    return True


def trusted_users() -> frozenset[int]:
    """Return root, this user and whoever installed unmix: they can change the program itself, so their code may be run."""
    return frozenset({0, os.geteuid(), os.stat(PACKAGE).st_uid} - {NOBODY})


def trusted(folder: Path, whole: bool = True) -> bool:
    """Return whether code may be loaded from a folder that is there already, though it need not be ours.

    Only `trusted_users` may be able to write to it and, where the ``whole`` of it is asked for, to anything in it.
    """
    owners = trusted_users()
    try:
        return _leads_safely(folder, owners, make=False) and (not whole or _holds_only(folder, owners, closed=False))
    except OSError:
        return False


def open_trusted(path: Path) -> IO[bytes] | None:
    """Open a file of compiled code; None where it is not there, or anybody but `trusted_users` may have written it.

    Its folder was looked at when the process began. Since then a program that tidies up the temporary folder may have removed it, and
    another user may have made it again.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_uid in trusted_users() and not status.st_mode & OTHERS_WRITE:
        return open(descriptor, "rb")
    os.close(descriptor)
    return None


def given_folder() -> Path | None:
    """Return ``$UNMIX_CACHE_DIR``; empty counts as unset, since it would mean whatever folder the process was started in."""
    given = os.environ.get("UNMIX_CACHE_DIR")
    try:
        return Path(given).absolute() if given else None  # absolute, since the working directory may change
    except OSError:  # relative to a folder that is there no more
        return None


@functools.cache
def cache_folder(*sources: Path) -> str | None:
    """Return the folder for compiled code of some files, or None where no folder can be written safely: then nothing is kept.

    Without files the folder is that of none; whether there is one says whether any code can be kept.

    Tried in order: ``$UNMIX_CACHE_DIR``, ``$XDG_CACHE_HOME/unmix``, ``~/.cache/unmix``, a private folder in the
    system's temporary directory. Anybody who can write there, or to a folder on the path, could make us run their code.
    """
    if not STATES:  # without its sources code has no name
        return None
    candidates = [given_folder(), Path(os.environ.get("XDG_CACHE_HOME", ""), "unmix")]
    with contextlib.suppress(RuntimeError):  # no HOME and no passwd entry
        candidates.append(Path.home() / ".cache" / "unmix")
    with contextlib.suppress(FileNotFoundError):  # no folder at all is writable
        candidates.append(Path(tempfile.gettempdir(), f"unmix-{os.getuid()}"))
    for candidate in candidates:
        # A relative one, of an empty variable, would be in whatever folder the process was started in.
        if (
            candidate is not None
            and candidate.is_absolute()
            and usable(folder := candidate / key_of(*sources, Path(__file__)))
        ):
            with contextlib.suppress(OSError):
                os.utime(folder)  # it is in use, see `tidy`
            return str(folder)
    return None


@functools.cache
def common_folder() -> str | None:
    """Return ``$UNMIX_CACHE_DIR`` if it is not ours, but all code in it that can be read may be loaded; None else."""
    given = given_folder()
    if given is None or _is_ours(given) or not trusted(given, whole=False):
        return None
    try:
        # Those of other versions may be closed to us.
        readable = [folder for folder in given.iterdir() if os.access(folder, os.R_OK | os.X_OK)]
    except OSError:
        return None
    return str(given) if all(map(trusted, readable)) else None


def why_not_used() -> str | None:
    """Return why ``$UNMIX_CACHE_DIR`` is neither ours nor one that code is loaded from; None where it is, or is not set."""
    given = given_folder()
    if given is None or _is_ours(given) or common_folder() is not None:
        return None
    return f"UNMIX_CACHE_DIR={given}: others may write there or to something in it, or it cannot be written or read"


def make_private(folder: Path) -> None:
    """Make a folder that only this user can use, and those on the way to it; `OSError` where it cannot be made.

    `os.makedirs` gives a mode to the last alone, and with a umask of 002 others of the group could write to the rest.
    """
    if not folder.is_dir():
        make_private(folder.parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)


def _is_ours(given: Path) -> bool:
    """Return whether code is kept in a folder."""
    own = cache_folder()
    return own is not None and Path(own).is_relative_to(given)


@functools.cache
def shared_folder(*sources: Path) -> str | None:
    """Return the folder in ``$UNMIX_CACHE_DIR`` whose code of some files an administrator compiled for all users, or None."""
    given = given_folder()
    if given is None or not STATES:
        return None
    folder = given / key_of(*sources, Path(__file__))
    return str(folder) if str(folder) != cache_folder(*sources) and trusted(folder) else None
