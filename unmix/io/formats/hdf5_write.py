"""Write HDF5 files so that an error of the disk becomes an exception and does not crash the process.

HDF5 writes much of a file when it is closed, and where that fails its library leaves objects behind that h5py closes
once more: the process dies of SIGSEGV (at 11 of 50 places at which a write failed). So it writes through a file object
that accepts every write. After the first error, writes are held in memory, so that HDF5 can read back what it wrote and
close normally; then the error is raised.
"""

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ..write import write_all


class Target(io.RawIOBase):
    """A file object that hides errors of writing from HDF5; `check` raises the first one.

    Parameters
    ----------
    path : Path
        The file, which is new: a file or link of that name is unlinked first.

    Raises
    ------
    OSError
        Where it cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error: OSError | None = None
        path.unlink(missing_ok=True)
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        self.place = self.size = 0
        self.held: list[tuple[int, bytes]] = []  # (offset, bytes) written since the first error, in order

    def check(self) -> None:
        """Raise the first error, if there was one."""
        if self.error is not None:
            raise self.error

    def note(self, error: OSError) -> None:
        """Keep the first error."""
        if self.error is None:
            self.error = OSError(error.errno, error.strerror or str(error), str(self.path))

    def write(self, data: Any) -> int:
        """Write all bytes, or hold them in memory after an error; see `io.RawIOBase`."""
        values = np.frombuffer(data, np.uint8)
        try:
            if self.error is None:
                write_all(self.descriptor, values, self.place)
        except OSError as error:
            self.note(error)
        if self.error is not None:
            self.held.append((self.place, values.tobytes()))
        self.place += len(values)
        self.size = max(self.size, self.place)
        return len(values)

    def readinto(self, out: Any) -> int:
        """Read what was written, zeros where nothing was; see `io.RawIOBase`."""
        view = memoryview(out).cast("B")
        view[:] = bytes(len(view))
        with contextlib.suppress(OSError):
            os.preadv(self.descriptor, [view], self.place)
        for place, data in self.held:
            first, last = max(place, self.place), min(place + len(data), self.place + len(view))
            if first < last:
                view[first - self.place : last - self.place] = data[first - place : last - place]
        self.place += len(view)
        return len(view)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position; see `io.RawIOBase`."""
        self.place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.place, os.SEEK_END: self.size}[whence]
        return self.place

    def tell(self) -> int:
        """Return the position; see `io.RawIOBase`."""
        return self.place

    def truncate(self, size: int | None = None) -> int:
        """Cut or lengthen the file; see `io.RawIOBase`."""
        self.size = self.place if size is None else size
        try:
            os.ftruncate(self.descriptor, self.size)
        except OSError as error:
            self.note(error)
        return self.size

    def finish(self) -> None:
        """Flush to disk, close the file, and raise the first error."""
        try:
            if self.error is None:
                os.fsync(self.descriptor)
        except OSError as error:
            self.note(error)
        with contextlib.suppress(OSError):
            os.close(self.descriptor)
        self.check()


@contextlib.contextmanager
def new_hdf5(path: Path, **settings: Any) -> Iterator[tuple[h5py.File, Target]]:
    """Open an HDF5 file for writing; call the target's `check` often, to stop soon after an error of the disk."""
    target = Target(path)
    try:
        with h5py.File(target, "w", **settings) as file:
            yield file, target
    except BaseException:
        with contextlib.suppress(OSError):
            target.finish()
        target.check()  # the error of the disk is the cause of what HDF5 raised
        raise
    target.finish()
