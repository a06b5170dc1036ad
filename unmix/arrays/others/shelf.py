"""Keep solvers of arrays on a GPU for callers that come again, and make failures of the GPU one line."""

import contextlib
import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from ...devices.cuda import Cuda, first_line, simulated
from ...errors import DeviceError, MethodError, UnmixError
from .held import Held
from .kinds import OnGpu

# The most solvers that are held for callers that come again, and the most bytes of GPU memory that all but the last one may take.
MOST_HELD, MOST_BYTES = 8, 2**31
LOCK, SHELF = threading.RLock(), OrderedDict[Hashable, Held]()


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
        raise DeviceError(f"{device.name}: failed: {first_line(error)}") from error


def held(gpu: Cuda, key: Hashable, make: Callable[[], Held]) -> Held:
    """Return the solver that is held under a key, made if need be; those that were not used for longest give way."""
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
