"""The one door to files in folders that other users may write to as well: to make, reopen, read and map them.

Another user may have planted a link, symbolic or hard, under the name of an output, so that we overwrite a file of ours
or publish it as a map, or a pipe, for which we would wait. So whatever has the name of a new file is unlinked before
the file is created, an existing file is gone on from only where it is a regular file without a second name, and a file
that is open is mapped and converted by its descriptor: its name may lead to another file by then.
tests/house/test_doors.py lists all other places that open files.
"""

import errno
import logging
import math
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..errors import CubeError, OutputError
from .remote import is_remote, located
from .remote.path import ZARR, RemotePath

log = logging.getLogger("unmix")
# Bytes of the longest header that is read.
LONGEST_HEADER = 64 * 2**20
# Where a shell names the pipes that it hands over.
HANDED_OVER = Path("/dev/fd")


def parted(spec: str | os.PathLike[str]) -> tuple[Path, str]:
    """Split ``FILE:NAME`` at the first colon that leaves a file, else the last; the name is "" without a colon."""
    text = os.fspath(spec)
    if is_remote(text):
        folder, slash, name = text.rpartition("/")
        file, _, name = name.partition(":")
        return located(folder + slash + file), name
    cuts = [place for place, letter in enumerate(text) if letter == ":"]
    if os.path.exists(text) or not cuts:
        return Path(text), ""
    # Names of files, and what follows them, may have colons too.
    ends = (place for place in cuts if os.path.isfile(text[:place]) or text[:place].endswith(ZARR))
    cut = next(ends, cuts[-1])
    return (Path(text[:cut]), text[cut + 1 :]) if cut else (Path(text), "")


def open_new(path: str | os.PathLike[str], mode: str = "w+b", **how: Any) -> IO[Any]:
    """Open a new, empty file; unlink a file or link of that name first, and leave a link's target alone."""
    Path(path).unlink(missing_ok=True)
    return open(path, mode, opener=lambda name, flags: os.open(name, flags | os.O_EXCL | os.O_NOFOLLOW, 0o666), **how)


def write_new(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write a new file, text as UTF-8; errors as of `open_new`."""
    with open_new(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def open_there(path: str | os.PathLike[str], mode: str, **how: Any) -> IO[Any]:
    """Open a file that may exist ("a", "r+b"); `OutputError` for links and all but regular files with one name."""
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


def open_plain(path: str | os.PathLike[str], buffering: int = -1) -> IO[bytes]:
    """Open a regular file for reading, through links, too; `OSError` where it cannot be, or is a pipe or a device."""
    if isinstance(path, RemotePath):
        return path.open("rb", buffering)
    # Without O_NONBLOCK opening a pipe would wait for somebody to write to it.
    file: IO[bytes] = open(  # noqa: SIM115
        path, "rb", buffering, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
    )
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "is no regular file", os.fspath(path))
    return file


def read_plain(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a regular file (see `open_plain`) or of a pipe from the shell, ``<(find …)``."""
    is_handed_over = Path(path).parent == HANDED_OVER
    with open(path, "rb") if is_handed_over else open_plain(path) as file:
        return file.read()


def why_no_file(path: Path) -> str:
    """Return why a path that is no regular file cannot be read; for a remote path, in the server's words."""
    try:
        path.stat()
    except FileNotFoundError as error:
        return str(error.strerror) if isinstance(path, RemotePath) else "no such file"
    except OSError:
        return "no such file"
    return "is not a regular file"


def read_small(path: Path, longest: int = LONGEST_HEADER) -> bytes:
    """Return the bytes of a header or table; `CubeError` where it is not regular, too large or unreadable."""
    try:
        if not path.is_file():  # reading a pipe could block for ever, and a device never end
            raise CubeError(f"{path}: {why_no_file(path)}")
        with open_plain(path) as file:
            raw = file.read(min(path.stat().st_size, longest) + 1)  # read() allocates all of it at once
    except OSError as error:
        raise CubeError(f"{path}: cannot be read: {error.strerror}") from None
    if len(raw) > longest:
        raise CubeError(f"{path}: is larger than {longest >> 20} MiB; it cannot be a header or a table of spectra")
    return raw


def close_late(file: IO[Any]) -> None:
    """Close a file whose content is flushed or not needed; warn of an error, which network file systems report late."""
    try:
        file.close()
    except OSError as error:
        log.warning(f"{file.name}: closing it failed ({error.strerror}), after all that is needed of it was flushed")


def mapped(file: IO[bytes], kind: Any, shape: Sequence[int], begin: int = 0, mode: Any = "r") -> np.ndarray:
    """Return a memory map (shape) of an open file from byte ``begin`` on; it outlasts the file object."""
    if os.fstat(file.fileno()).st_size < begin + math.prod(shape) * np.dtype(kind).itemsize:
        raise OutputError(f"{file.name}: is shorter than it was when it was written; another program changed it")
    return np.memmap(file, kind, mode, begin, tuple(shape))


def path_of(file: IO[bytes]) -> Path:
    """Return a path to an open file itself, even if its own path is replaced, for libraries that open by name."""
    by_process = Path(f"/proc/self/fd/{file.fileno()}")
    return by_process if by_process.exists() else Path(f"/dev/fd/{file.fileno()}")


def open_named(path: str | os.PathLike[str], mode: str, **how: Any) -> IO[Any]:
    """Open a file that the user named, with a mode such as "a"; follow a link only if this user or root owns it."""
    is_link = os.path.islink(path)
    if is_link and os.lstat(path).st_uid not in (0, os.geteuid()):
        raise OutputError(f"{path}: is a link that another user made; name another file")
    # Without O_NONBLOCK opening a pipe that nobody reads would block; for a regular file it makes no difference.
    more = os.O_NONBLOCK if is_link else os.O_NONBLOCK | os.O_NOFOLLOW
    return open(path, mode, opener=lambda name, flags: os.open(name, flags | more, 0o666), **how)
