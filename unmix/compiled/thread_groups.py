"""Distribute a range of systems over groups of threads: a thread of the CPU, or a block of a GPU.

A problem is one function, ``body(start, stop, step, group, arguments, scratch, reduction_buffer)``, compiled for a
`Team`. It works on the systems ``range(start, stop, step)`` with the ``group``-th part of each scratch array;
``arguments``, a NamedTuple, is the same for all. So one driver serves every problem on the CPU, and one on a GPU.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from .jit import ALONE, Team, as_writable

Body = Callable[..., Any]
# An array with a part for each group: its shape, with None for the axis of the groups, and its type.
ScratchArray = tuple[tuple[int | None, ...], Any]
# Ranges per thread of the CPU: enough that threads do not wait long for the last one.
SHARES = 4


def arrays_for(groups: int, scratch: Sequence[ScratchArray], allocate: Callable[..., Any]) -> tuple[Any, ...]:
    """Allocate scratch for ``groups`` groups."""
    return tuple(allocate(tuple(groups if n is None else n for n in shape), kind) for shape, kind in scratch)


class CpuGroups:
    """A pool of threads, each of them a group.

    Parameters
    ----------
    threads : int
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.pool = ThreadPoolExecutor(threads, "systems")

    def put(self, values: Any) -> Any:
        """Return an array in the memory of the groups, which is the CPU's own; anything else as it is."""
        return as_writable(values) if isinstance(values, np.ndarray) else values

    def get(self, values: Any, out: np.ndarray) -> None:
        """Copy an array that the groups filled to ``out``; on the CPU it is ``out`` itself."""

    def run(
        self,
        make_body: Callable[[Team], Body],
        count: int,
        arguments: Any,
        scratch: Sequence[ScratchArray],
        each: bool = False,
    ) -> None:
        """Run a body on the systems 0 to ``count`` - 1; ``each`` makes every system a task, because it takes long."""
        body = make_body(ALONE)
        step = 1 if each else max(1, -(-count // (SHARES * self.threads)))

        def work(first: int) -> None:
            arrays = arrays_for(1, scratch, np.empty)
            body(first, min(first + step, count), 1, 0, arguments, arrays, np.empty(2))

        for task in [self.pool.submit(work, first) for first in range(0, count, step)]:
            task.result()

    def close(self) -> None:
        """Shut the thread pool down."""
        self.pool.shutdown()


class CudaGroups:
    """Blocks of threads of the current GPU, as many as it holds at once or memory allows.

    Parameters
    ----------
    threads : int
        Threads per block.
    at_once : int
        Blocks per multiprocessor; more would wait for the same memory.
    registers : int, optional
        Largest number of registers per thread.

    Attributes
    ----------
    stream
        The stream that systems are solved in; at first the default one.
    """

    stream: Any

    def __init__(self, threads: int, at_once: int, registers: int | None = None) -> None:
        from .cuda import SIMULATED

        self.threads = 4 if SIMULATED else threads
        self.at_once, self.registers, self.stream = at_once, registers, 0
        self.held: dict[Any, tuple[Any, ...]] = {}

    def put(self, values: Any) -> Any:
        """Copy an array, or the arrays of a NamedTuple, to the GPU; return numbers as they are."""
        from .cuda import to_gpu

        return to_gpu(values)

    def get(self, values: Any, out: np.ndarray) -> None:
        """Copy an array from the GPU."""
        values.copy_to_host(out)

    def run(
        self,
        make_body: Callable[[Team], Body],
        count: int,
        arguments: Any,
        scratch: Sequence[ScratchArray],
        each: bool = False,
    ) -> None:
        """See `CpuGroups.run`."""
        from .cuda import MOST_SCRATCH, cuda, group_kernel, multiprocessors
        from .warp import team_of

        bytes_of_group = sum(
            math.prod(n for n in shape if n is not None) * np.dtype(kind).itemsize for shape, kind in scratch
        )
        most = self.at_once * multiprocessors()
        groups = max(1, min(count, most, MOST_SCRATCH // max(1, bytes_of_group)))
        shapes = tuple(scratch), groups
        if make_body not in self.held or self.held[make_body][0] != shapes:
            self.held[make_body] = shapes, arrays_for(groups, scratch, cuda.device_array)
        kernel = group_kernel(make_body, team_of(self.threads), self.threads, self.registers)
        kernel[groups, self.threads, self.stream](count, arguments, self.held[make_body][1])

    def close(self) -> None:
        """Release the scratch."""
        self.held = {}
