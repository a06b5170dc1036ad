"""Where blocks are solved: `Cpu` and `Cuda`, behind one interface."""

import ctypes
import importlib.util
import logging

from ..errors import DeviceError, MethodError
from .cpu import Cpu
from .cuda import Cuda, simulated
from .slots import Device, Line, Slot

log = logging.getLogger("unmix")


def count_gpus() -> int:
    """How many CUDA GPUs the driver sees; asked without importing the CUDA target, which takes a second."""
    if simulated():
        return 1
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def choose_device(name: str, threads: int | None = None) -> Device:
    """The device of that name; ``auto`` is the first GPU, or else the CPU, and says so.

    Raises
    ------
    MethodError
        Where the name is none.
    DeviceError
        Where a GPU was named that is not there, or the CUDA extra is not installed.
    """
    if name == "cpu":
        return Cpu(threads)
    if name == "auto":
        gpus = count_gpus()
        reason = "no CUDA GPU" if not gpus else "a GPU, but not numba-cuda (pip install 'unmix[cuda12]' or [cuda13])"
        if gpus and importlib.util.find_spec("numba_cuda"):
            try:
                return Cuda(0)
            except DeviceError as error:
                reason = str(error)
        log.info(f"device: the CPU ({reason})")
        return Cpu(threads)
    kind, _, index = name.partition(":")
    if kind != "cuda" or not (index.isascii() and (index or "0").isdigit() and len(index) < 4):
        raise MethodError(f"unknown device '{name}'; use auto, cpu, cuda or cuda:K")
    gpus = count_gpus()
    if int(index or 0) >= gpus:
        raise DeviceError(f"{name}: {'no CUDA GPU' if gpus == 0 else f'only {gpus} GPUs'} here; use --device cpu")
    if not importlib.util.find_spec("numba_cuda"):
        raise DeviceError(f"{name}: numba-cuda is not installed; pip install 'unmix[cuda12]' or 'unmix[cuda13]'")
    return Cuda(int(index or 0))


def is_gpu(name: str, threads: int | None = None) -> bool:
    """Whether the device of that name is a GPU; raises as `choose_device`."""
    machine = choose_device(name, threads)
    machine.close()
    return machine.name != "cpu"


__all__ = ["Cpu", "Cuda", "Device", "Line", "Slot", "choose_device", "count_gpus", "is_gpu", "simulated"]
