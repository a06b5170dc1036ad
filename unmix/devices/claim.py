"""A GPU for each process of a host: who comes first takes the first that is free."""

import contextlib
import ctypes
import fcntl
import functools
import os
import tempfile
from pathlib import Path
from typing import IO

from ..errors import OutputError
from ..io.opening import open_there
from .cuda import simulated

HELD: list[IO[str]] = []  # locked until the process ends


@functools.cache
def claim_gpu(count: int) -> int:
    """The index of a GPU that no other process of ours on this host has claimed; where all are taken, one to share.

    Known by its UUID: two jobs of a cluster may each see another GPU as number 0.
    """
    for index in range(count):
        path = Path(tempfile.gettempdir()) / f"unmix-{os.getuid()}-{uuid_of(index)}.claim"
        with contextlib.suppress(OSError, OutputError), contextlib.ExitStack() as unless_locked:
            file = unless_locked.enter_context(open_there(path, "a"))
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                continue  # planted by another user, who may hold it for ever
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            HELD.append(file)
            unless_locked.pop_all()
            return index
    return os.getpid() % count


def uuid_of(index: int) -> str:
    """What the driver calls a GPU on every machine."""
    if simulated():
        return f"simulated{index}"
    driver = ctypes.CDLL("libcuda.so.1")
    device, found = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), index) or driver.cuDeviceGetUuid(found, device):
        return str(index)
    return bytes(found).hex()
