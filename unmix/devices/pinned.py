"""Page-locked memory of the host, which a GPU copies to and from at the speed of the bus and while kernels run."""

import contextlib
import logging
import math
import mmap
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ..blocks import cores, once_a_process

log = logging.getLogger("unmix")
PAGE, LARGE_PAGE = mmap.PAGESIZE, 2 * 2**20
# Bytes from which an array is allocated in large pages, touched by several threads, and only then locked: 0.016 s for
# 256 MiB where the driver's own allocation takes 0.09 (H100 with 16 cores, Linux 6.18).
LARGE = 4 * 2**20
MOST_THREADS = 16


class PinnedMemory:
    """Page-locked arrays, kept for the next run until it wants others.

    Parameters
    ----------
    cuda : module
        ``numba.cuda``.
    """

    def __init__(self, cuda: Any) -> None:
        self.cuda = cuda
        self.used: list[tuple[np.ndarray, Any]] = []  # bytes, and what keeps them locked
        self.spare: list[tuple[np.ndarray, Any]] = []

    def array(self, shape: Any, kind: Any) -> np.ndarray:
        """Return an array of any content."""
        size = math.prod(shape if isinstance(shape, tuple) else (shape,)) * np.dtype(kind).itemsize
        if size < LARGE:
            values: np.ndarray = self.cuda.pinned_array(shape, dtype=kind) if size else np.empty(shape, kind)
            return values
        place = next((k for k, (block, _) in enumerate(self.spare) if block.size == size), None)
        if place is None:
            self.spare = []  # before more is allocated: a run is bounded by its own memory
        self.used.append(locked(self.cuda, size) if place is None else self.spare.pop(place))
        return self.used[-1][0].view(kind).reshape(shape)

    def keep(self) -> None:
        """Keep all arrays, which nobody uses any more, for the next run."""
        self.spare, self.used = self.used, []

    def close(self) -> None:
        """Free all arrays that nobody uses any more."""
        self.spare, self.used = [], []


@once_a_process
def touching() -> ThreadPoolExecutor:
    """Return the pool of threads that touch pages: to start sixteen takes longer than that."""
    return ThreadPoolExecutor(min(MOST_THREADS, cores()), "touch")


def locked(cuda: Any, size: int) -> tuple[np.ndarray, Any]:
    """Return ``size`` bytes of page-locked memory, and the object that keeps them locked."""
    pages = new_pages(math.ceil(size / PAGE) * PAGE)
    share = math.ceil(pages.size / MOST_THREADS / PAGE) * PAGE

    def touch(start: int) -> None:
        pages[start : start + share : PAGE] = 0

    list(touching().map(touch, range(0, pages.size, share)))
    try:
        return pages[:size], cuda.current_context().mempin(pages, pages.ctypes.data, pages.nbytes)
    except Exception as error:  # a system where memory that is there cannot be locked
        log.debug(f"memory is allocated by the driver: {error}")
        return cuda.pinned_array(size, dtype=np.uint8), None


def new_pages(size: int) -> np.ndarray:
    """Return memory (size,) of its own pages, large ones where the system has them, that child processes do not get."""
    area = mmap.mmap(-1, size + LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # A child process (`unmix.io.probe`) that got locked pages would copy them at once.
    for advice in ("MADV_HUGEPAGE", "MADV_DONTFORK"):
        with contextlib.suppress(OSError, AttributeError):  # a system that does not know it
            area.madvise(getattr(mmap, advice))
    values = np.frombuffer(area, np.uint8)
    first = -values.ctypes.data % LARGE_PAGE
    return values[first : first + size]
