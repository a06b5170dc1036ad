"""Keep solvers of arrays on a GPU for callers that come again, and make failures of the GPU one line."""

import contextlib
import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from ...devices.cuda import Cuda, first_line
from ...errors import DeviceError, MethodError, UnmixError
from .held import Held
from .kinds import OnGpu

# The most solvers that are held, each with its scratch, for callers that come again.
MOST_HELD = 8
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


def held(key: Hashable, make: Callable[[], Held]) -> Held:
    """Return the solver that is held under a key, made if need be; the one that was not used for longest gives way."""
    if key in SHELF:
        SHELF.move_to_end(key)
    else:
        SHELF[key] = make()
        while len(SHELF) > MOST_HELD:
            SHELF.popitem(last=False)[1].close()
    return SHELF[key]


def gpu_for(kind: OnGpu, array: Any, device: str | None) -> int:
    """Return the GPU that holds an array; `MethodError` where ``device`` names another one."""
    index = kind.gpu(array)
    assert index is not None
    if device not in (None, "auto", "cuda", f"cuda:{index}"):
        raise MethodError(f"`device` {device}: the arrays are on cuda:{index}; leave it out, or copy them to the host")
    return index
