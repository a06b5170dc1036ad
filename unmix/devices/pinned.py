"""Page-locked memory of the host, which a GPU copies to and from at the speed of the bus and while kernels run."""

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ..blocks import cores

PAGE = 4096
# Bytes from which an array is allocated by NumPy, in large pages, touched by several threads, and only then locked: 0.018 s for
# 256 MiB where the driver's own allocation takes 0.10 (H100 with 16 cores, Linux 6.18).
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

    def release(self) -> None:
        """Take back all arrays, none of which is used any more."""
        self.spare, self.used = self.used, []


def locked(cuda: Any, size: int) -> tuple[np.ndarray, Any]:
    """Return so many bytes of page-locked memory, and the object that keeps them locked."""
    block = np.empty(size + 2 * PAGE, np.uint8)
    first = -block.ctypes.data % PAGE
    pages = block[first : first + math.ceil(size / PAGE) * PAGE]  # whole pages, which nothing else can lie in
    share = math.ceil(pages.size / MOST_THREADS / PAGE) * PAGE

    def touch(start: int) -> None:
        pages[start : start + share : PAGE] = 0

    with ThreadPoolExecutor(min(MOST_THREADS, cores())) as pool:
        list(pool.map(touch, range(0, pages.size, share)))
    try:
        return pages[:size], cuda.current_context().mempin(block, pages.ctypes.data, pages.nbytes)
    except Exception:  # a system where memory that is there cannot be locked
        return cuda.pinned_array(size, dtype=np.uint8), None
