"""A range of systems, shared out over groups of threads: a thread of the CPU, a block of a GPU's, or a single thread of a GPU.

A problem is one function, ``body(start, stop, step, group, arguments, scratch, reduction_buffer)``, made for a `Team`. It takes the
systems ``range(start, stop, step)``, the ``group``-th part of each scratch array, and what all share from ``arguments``, a NamedTuple.
So one driver serves every problem on the CPU, and one on a GPU.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from .cooperative import ALONE, Team

Body = Callable[..., Any]
# An array of each group's own: its shape, with None for the axis of the groups, and its type.
ScratchArray = tuple[tuple[int | None, ...], Any]
# Ranges a thread of the CPU: enough that the last to finish is not waited for long.
SHARES = 4


def arrays_for(groups: int, scratch: Sequence[ScratchArray], allocate: Callable[..., Any]) -> tuple[Any, ...]:
    """Allocate scratch for so many groups."""
    return tuple(allocate(tuple(groups if n is None else n for n in shape), kind) for shape, kind in scratch)


class CpuGroups:
    """A pool of threads, each of them a group.

    Parameters
    ----------
    threads : int
    """

    name = "cpu"

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.pool = ThreadPoolExecutor(threads, "systems")

    def put(self, values: Any) -> Any:
        """Return an array where the groups can use it; here, as it is."""
        return values

    def get(self, values: Any, out: np.ndarray) -> None:
        """Copy an array that the groups filled; here it is ``out`` itself."""

    def run(
        self, make_body: Callable[[Team], Body], count: int, arguments: Any, scratch: Sequence[ScratchArray],
        single: bool = False, each: bool = False,
    ) -> None:  # fmt: skip
        """Let the groups work on systems 0 to ``count``.

        Parameters
        ----------
        make_body : callable
            The body for a team; cached.
        count : int
        arguments : NamedTuple
            Arrays made by `put`, and numbers.
        scratch : sequence
            Arrays of each group's own.
        single : bool
            On a GPU, let a single thread be a group, and not a block.
        each : bool
            Each system takes long: make it a task of its own.
        """
        body = make_body(ALONE)
        step = 1 if each else max(1, -(-count // (SHARES * self.threads)))

        def work(first: int) -> None:
            own = arrays_for(1, scratch, np.empty)
            body(first, min(first + step, count), 1, 0, arguments, own, np.empty(2))

        for task in [self.pool.submit(work, first) for first in range(0, count, step)]:
            task.result()

    def close(self) -> None:
        """Let the threads go."""
        self.pool.shutdown()


class CudaGroups:
    """Blocks of threads of the GPU at hand, as many as it holds at once or memory allows.

    Parameters
    ----------
    threads : int
        Of a block.
    at_once : int
        Blocks a multiprocessor; more would wait for the same memory.
    registers : int, optional
        Bound on those of a thread.
    """

    name = "cuda"

    def __init__(self, threads: int, at_once: int, registers: int | None = None) -> None:
        from .cuda_block import SIMULATED

        self.threads = 4 if SIMULATED else threads
        self.at_once, self.registers = at_once, registers
        self.held: dict[Any, tuple[Any, ...]] = {}

    def put(self, values: Any) -> Any:
        """Copy an array to the GPU, and each of a NamedTuple's."""
        from .cuda import cuda

        if isinstance(values, tuple):
            return type(values)(*map(self.put, values))
        return cuda.to_device(np.ascontiguousarray(values)) if isinstance(values, np.ndarray) else values

    def get(self, values: Any, out: np.ndarray) -> None:
        """Copy an array from the GPU."""
        values.copy_to_host(out)

    def run(
        self, make_body: Callable[[Team], Body], count: int, arguments: Any, scratch: Sequence[ScratchArray],
        single: bool = False, each: bool = False,
    ) -> None:  # fmt: skip
        """See `CpuGroups.run`."""
        from .cuda import cuda
        from .cuda_block import MOST_SCRATCH, SINGLE, group_kernel, multiprocessors

        threads = min(self.threads, SINGLE) if single else self.threads
        own = sum(math.prod(n for n in shape if n is not None) * np.dtype(kind).itemsize for shape, kind in scratch)
        most = self.at_once * multiprocessors() * (threads if single else 1)
        groups = max(1, min(count, most, MOST_SCRATCH // max(1, own)))
        blocks = -(-groups // threads) if single else groups
        key = make_body, single
        shapes = tuple(scratch), blocks * threads if single else groups
        if key not in self.held or self.held[key][0] != shapes:
            self.held[key] = shapes, arrays_for(shapes[1], scratch, cuda.device_array)
        kernel = group_kernel(make_body, single, self.threads, self.registers)
        kernel[blocks, threads](count, arguments, self.held[key][1])

    def close(self) -> None:
        """Let go of the scratch."""
        self.held = {}
