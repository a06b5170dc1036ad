"""Kernels that are held ready for arrays on a GPU: enqueued in the caller's stream, and nothing is waited for.

A small batch is copied on the GPU to arrays that are always the same, for which all launches were recorded once: a call
is then a copy, a replay and a copy. A large one is read and written where it is, launch by launch.

Keep solvers of arrays on a GPU for callers that come again, and make failures of the GPU one line.
"""

import contextlib
import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...compiled.cuda import cuda
from ...devices.cuda import Cuda, line_of_error, simulated
from ...errors import DeviceError, MethodError, UnmixError
from .kinds import Argument, OnGpu, layout, numbas, part_of_buffer

# The most solvers that are held for callers that come again, and the most bytes of GPU memory that all but the last one
# may take.
MOST_HELD, MOST_BYTES = 8, 2**31
LOCK, SHELF = threading.RLock(), OrderedDict[Hashable, "Held"]()


@functools.cache
def opened(index: int) -> Cuda:
    """Return a GPU, which stays open."""
    return Cuda(index)


@contextlib.contextmanager
def on(index: int) -> Iterator[Cuda]:
    """Make a GPU this thread's, and its failures `DeviceError`; one caller at a time enqueues."""
    device = opened(index)
    try:
        with LOCK, device.gpu:
            yield device
    except UnmixError:
        raise
    except Exception as error:
        raise DeviceError(f"{device.name}: failed: {line_of_error(error)}") from error


def held(gpu: Cuda, key: Hashable, make: Callable[[], "Held"]) -> "Held":
    """Return the solver that is held under a key, made if need be; solvers that were not used for longest give way."""
    if key in SHELF:
        SHELF.move_to_end(key)
        return SHELF[key]
    free = free_memory(gpu)
    made = SHELF[key] = make()
    made.gpu = gpu.gpu
    made.bytes = max(0, free - free_memory(gpu))
    while len(SHELF) > MOST_HELD or (len(SHELF) > 1 and sum(one.bytes for one in SHELF.values()) > MOST_BYTES):
        SHELF.popitem(last=False)[1].close()
    return made


def free_memory(gpu: Cuda) -> int:
    """Return the bytes of a GPU that are free; 0 in the simulator."""
    return 0 if simulated() else int(gpu.cuda.current_context().get_memory_info().free)


def gpu_for(kind: OnGpu, array: Any, device: str | None) -> int:
    """Return the GPU that holds an array; `MethodError` where ``device`` names another one."""
    index = kind.gpu(array)
    assert index is not None
    if device not in (None, "auto", "cuda", f"cuda:{index}"):
        raise MethodError(f"`device` {device}: the arrays are on cuda:{index}; leave it out, or copy them to the host")
    return index


# Most bytes of arguments and answers that are copied for a recorded call: 32 MiB take a GPU of 2022 some 25 µs.
MOST_COPIED = 2**25
# A function that enqueues the work of a call. It takes arguments and answers, arrays on the GPU by name, and the
# stream.
Enqueue = Callable[[Mapping[str, Any], Mapping[str, Any], Any], None]


class Shape(NamedTuple):
    """One array: its shape and the name of its type."""

    shape: tuple[int, ...]
    kind: str


class Held:
    """A solver for arguments of certain shapes, in one stream.

    Parameters
    ----------
    enqueue : callable
    arguments, answers : dict of Shape
        By name.
    stream : int
        The caller's.

    Attributes
    ----------
    bytes : int
        Memory of the GPU that it takes.
    gpu
        That GPU, of numba.
    """

    bytes = 0
    gpu: Any = contextlib.nullcontext()

    def __init__(
        self, enqueue: Enqueue, arguments: Mapping[str, Shape], answers: Mapping[str, Shape], stream: int
    ) -> None:
        self.enqueue = enqueue
        self.stream = cuda.external_stream(stream) if stream else cuda.default_stream()
        self.parts, self.size = layout([(name, *one) for name, one in answers.items()])
        taken, size = layout([(name, *one) for name, one in arguments.items()])
        self.graph: Any = None
        if size + self.size <= MOST_COPIED and not simulated():
            from cuda.bindings import driver

            self.driver, self.handle = driver, driver.CUstream(stream)
            self.taken, self.given = (cuda.to_device(np.zeros(max(1, n), np.uint8)) for n in (size, self.size))
            self.source, first = (int(array.__cuda_array_interface__["data"][0]) for array in (self.given, self.taken))
            self.to = {part.name: first + part.begin for part in taken}
            self.record(
                *(
                    {part.name: part_of_buffer(own, part) for part in parts}
                    for own, parts in ((self.taken, taken), (self.given, self.parts))
                )
            )

    def record(self, arguments: Mapping[str, Any], answers: Mapping[str, Any]) -> None:
        """Record the launches for arrays of its own, after running them once on zeros."""
        from ...compiled.cuda_graph import CudaGraph

        aside: Any = cuda.stream()
        self.enqueue(arguments, answers, aside)
        aside.synchronize()
        self.graph = CudaGraph(aside, lambda: self.enqueue(arguments, answers, aside))

    def __call__(self, arguments: Mapping[str, Argument], kind: OnGpu, index: int) -> dict[str, Any]:
        """Enqueue a call; return the answers, in arrays of a kind."""
        buffer = kind.allocate(max(256, self.size), index)
        if self.graph is None:
            given, whole = {name: numbas(one.array) for name, one in arguments.items()}, numbas(buffer)
            self.enqueue(given, {part.name: part_of_buffer(whole, part) for part in self.parts}, self.stream)
        else:
            for name, one in arguments.items():
                self.copy(self.to[name], one.address, one.size)
            self.graph.replay(self.handle)
            self.copy(kind.address(buffer), self.source, self.size)
        return kind.finish(kind.parts(buffer, self.parts), self.stream)

    def copy(self, to: int, source: int, count: int) -> None:
        """Enqueue a copy of bytes on the GPU."""
        if count:
            self.graph.done(self.driver.cuMemcpyDtoDAsync(to, source, count, self.handle))

    def close(self) -> None:
        """Release the record, when nothing of it runs."""
        if self.graph is not None:
            with contextlib.suppress(Exception), self.gpu:
                cuda.synchronize()
                self.graph.close()
