"""Start a GPU's driver while Python imports, which takes 0.25 s without Python; this module imports nothing slow."""

import atexit
import contextlib
import ctypes
import os
import threading


def wake(device: str, uses_it: bool = True) -> None:
    """Begin to make the context of ``device``'s first GPU on a thread; nothing is reported, even without a GPU."""
    # Without ``uses_it``, only the driver starts: where a GPU serves one process at a time, a context would keep
    # another from it.
    if device == "cpu" or os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0"):
        return
    digits = device.partition(":")[2].partition(",")[0]
    thread = threading.Thread(
        target=make_context, args=(int(digits) if digits.isdecimal() else 0, uses_it), daemon=True
    )
    thread.start()
    atexit.register(thread.join)  # a process that ends within the driver may hang


def make_context(index: int, uses_it: bool = True) -> None:
    """Start the driver, and make the primary context of a GPU, which numba-cuda then finds."""
    gpu, context = ctypes.c_int(), ctypes.c_void_p()
    with contextlib.suppress(OSError, AttributeError, ctypes.ArgumentError):
        driver = ctypes.CDLL("libcuda.so.1")
        if driver.cuInit(0) == 0 and uses_it and driver.cuDeviceGet(ctypes.byref(gpu), index) == 0:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), gpu)
