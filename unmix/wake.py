"""Start a GPU's driver while Python imports: that takes 0.25 s, and no Python. This module imports nothing that is slow."""

import atexit
import contextlib
import ctypes
import os
import threading


def wake(device: str, uses_it: bool = True) -> None:
    """Begin to make the context of the GPU that ``device`` names first, on a thread; nothing is reported, and no GPU is
    no error.

    Parameters
    ----------
    device : str
        As `unmix.Options.device`.
    uses_it : bool
        Whether the process surely works on the GPU. One that may find all its scenes done starts the driver alone:
        where a GPU serves one process at a time, a context would keep another from it.
    """
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
