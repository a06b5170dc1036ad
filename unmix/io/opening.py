"""How files are opened for writing in folders that others may write to as well.

A name there may have been planted: as a link, symbolic or hard, to a file of ours that is to be overwritten. So a new file is made
anew, after whatever has its name was unlinked, and one that is to be there already is opened only where it is a plain file with
that one name.
"""

import os
import stat
from pathlib import Path
from typing import IO, Any

from ..errors import OutputError


def open_new(path: str | os.PathLike[str], mode: str = "wb", **how: Any) -> IO[Any]:
    """Open a new, empty file; what had its name is unlinked, and not what a link leads to.

    Parameters
    ----------
    path : path-like
    mode, **how
        As for `open`.

    Raises
    ------
    OSError
        Where it cannot be made, or what has its name cannot be unlinked.
    """
    Path(path).unlink(missing_ok=True)
    return open(path, mode, opener=lambda name, flags: os.open(name, flags | os.O_EXCL | os.O_NOFOLLOW, 0o666), **how)


def make_new(path: str | os.PathLike[str]) -> None:
    """Make a new, empty file for a library that opens it by its name; errors as of `open_new`."""
    open_new(path).close()


def write_new(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write a new file, text as UTF-8; errors as of `open_new`."""
    with open_new(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def open_there(path: str | os.PathLike[str], mode: str, **how: Any) -> IO[Any]:
    """Open a file to write to what may be there already, with a mode such as "a" or "r+b".

    Raises
    ------
    OutputError
        Where a link or anything else but a plain file has that name.
    OSError
        Where it cannot be opened.
    """
    if os.path.islink(path):
        raise OutputError(f"{path}: is a link, and what it leads to is not to be written to; remove it")

    def opener(name: str, flags: int) -> int:
        # Without O_NONBLOCK a pipe of that name would be waited for; a plain file knows no difference.
        descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            os.close(descriptor)
            raise OutputError(f"{path}: is no plain file, or has another name, too (a hard link); remove it")
        return descriptor

    return open(path, mode, opener=opener, **how)


def open_named(path: str | os.PathLike[str], mode: str, **how: Any) -> IO[Any]:
    """Open a file that the user named, with a mode such as "a"; a link is followed where it is the user's own, or the system's.

    Raises
    ------
    OutputError
        Where it is a link that another user made.
    OSError
        Where it cannot be opened.
    """
    if not os.path.islink(path):
        return open(path, mode, opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o666), **how)
    if os.lstat(path).st_uid not in (0, os.geteuid()):
        raise OutputError(f"{path}: is a link that another user made; name another file")
    return open(path, mode, **how)
