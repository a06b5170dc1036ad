"""Open files for writing safely in folders that other users may write to as well.

Another user may have planted a link, symbolic or hard, under the name of an output, so that we overwrite a file of ours. So whatever
has the name of a new file is unlinked before the file is created, and an existing file is opened only where it is a regular file
without a second name.
"""

import os
import stat
from pathlib import Path
from typing import IO, Any

from ..errors import OutputError
from .remote import is_remote, located
from .remote.path import ZARR


def parted(spec: str | os.PathLike[str]) -> tuple[Path, str]:
    """Split ``FILE:NAME`` into the file and the name, empty where there is none.

    Names of files, and what follows, may have colons too: the first cut that leaves a file is the one, else the last.
    """
    text = os.fspath(spec)
    if is_remote(text):
        folder, slash, name = text.rpartition("/")
        file, _, name = name.partition(":")
        return located(folder + slash + file), name
    cuts = [place for place, letter in enumerate(text) if letter == ":"]
    if os.path.exists(text) or not cuts:
        return Path(text), ""
    ends = (place for place in cuts if os.path.isfile(text[:place]) or text[:place].endswith(ZARR))
    cut = next(ends, cuts[-1])
    return (Path(text[:cut]), text[cut + 1 :]) if cut else (Path(text), "")


def open_new(path: str | os.PathLike[str], mode: str = "wb", **how: Any) -> IO[Any]:
    """Open a new, empty file; a file or link of that name is unlinked first, and the target of a link is left alone.

    Parameters
    ----------
    path : path-like
    mode, **how
        As for `open`.

    Raises
    ------
    OSError
        Where it cannot be created, or what has its name cannot be unlinked.
    """
    Path(path).unlink(missing_ok=True)
    return open(path, mode, opener=lambda name, flags: os.open(name, flags | os.O_EXCL | os.O_NOFOLLOW, 0o666), **how)


def write_new(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write a new file, text as UTF-8; errors as of `open_new`."""
    with open_new(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def open_there(path: str | os.PathLike[str], mode: str, **how: Any) -> IO[Any]:
    """Open a file that may exist already, with a mode such as "a" or "r+b".

    Raises
    ------
    OutputError
        Where that name is a link, or anything else but a regular file without a second name.
    OSError
        Where it cannot be opened.
    """
    if os.path.islink(path):
        raise OutputError(f"{path}: is a link; unmix does not write through it: remove it")

    def opener(name: str, flags: int) -> int:
        # Without O_NONBLOCK opening a pipe of that name would block; for a regular file it makes no difference.
        descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            os.close(descriptor)
            raise OutputError(f"{path}: is not a regular file, or has a second name (a hard link); remove it")
        return descriptor

    return open(path, mode, opener=opener, **how)


def open_named(path: str | os.PathLike[str], mode: str, **how: Any) -> IO[Any]:
    """Open a file that the user named, with a mode such as "a"; follow a link only if this user or root owns it.

    Raises
    ------
    OutputError
        Where it is a link that another user owns.
    OSError
        Where it cannot be opened.
    """
    if not os.path.islink(path):
        return open(path, mode, opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o666), **how)
    if os.lstat(path).st_uid not in (0, os.geteuid()):
        raise OutputError(f"{path}: is a link that another user made; name another file")
    return open(path, mode, **how)
