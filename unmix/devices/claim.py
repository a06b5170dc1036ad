"""Give each process of a host a GPU of its own: the first that no other process has claimed."""

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
    """Return the index of a GPU that no other process of this user on this host has claimed; if all are claimed, one to share.

    Claims go by UUID: two jobs of a cluster may each see a different GPU as number 0.
    """
    for index in range(count):
        with contextlib.suppress(OSError, OutputError), contextlib.ExitStack() as unless_locked:
            path = Path(tempfile.gettempdir()) / f"unmix-{os.getuid()}-{uuid_of(index)}.claim"
            file = unless_locked.enter_context(open_there(path, "a"))
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                continue  # another user's file, who may keep it locked forever
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            HELD.append(file)
            unless_locked.pop_all()
            return index
    return os.getpid() % count


def uuid_of(index: int) -> str:
    """Return the UUID of a GPU, or its index as text if the driver gives none."""
    if simulated():
        return f"simulated{index}"
    driver = ctypes.CDLL("libcuda.so.1")
    device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), index) or driver.cuDeviceGetUuid(uuid, device):
        return str(index)
    return bytes(uuid).hex()
