"""The devices that solve blocks: `Cpu`, `Cuda` and `Several` GPUs, behind one interface."""

import contextlib
import ctypes
import functools
import importlib.util
import logging
import re
from collections.abc import Iterator

from ..blocks import cores
from ..errors import DeviceError, MethodError
from .claim import claim_gpu
from .cpu import Cpu
from .cuda import Cuda, simulated
from .several import Several
from .slots import Device, Line, Slot
from .worth import START, Work

log = logging.getLogger("unmix")
# Scenes of this process, which share the start of a GPU.
SCENES = [1]


def count_gpus() -> int:
    """Return how many CUDA GPUs the driver sees, without importing Numba's CUDA target, which takes a second."""
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


def choose_device(name: str, threads: int | None = None, work: Work | None = None) -> Device:
    """Return the device of that name; ``auto`` takes the first GPU, or the CPU where no GPU is there or its start does not pay.

    Parameters
    ----------
    name : str
    threads : int, optional
        Of the CPU; default is all.
    work : Work, optional
        The job, which ``auto`` weighs (`unmix.devices.worth`); without it a GPU always pays.

    Raises
    ------
    MethodError
        Where there is no device of that name.
    DeviceError
        Where a GPU was named that this machine does not have, or numba-cuda is not installed.
    """
    if kind_of(name) == "cpu":
        if name == "auto":
            say_why(why_no_gpu())
        return Cpu(threads)
    if name == "auto":
        if work is not None and (why := why_not_worth(work, threads)):
            say_why(why)
            return Cpu(threads)
        try:
            return Cuda(0)
        except DeviceError as error:
            say_why(str(error))
            return Cpu(threads)
    devices = [Cuda(index) for index in gpus_named(name) or range(count_gpus())]
    return devices[0] if len(devices) == 1 else Several(devices)


@functools.cache
def say_why(reason: str) -> None:
    """Log once why the CPU is used; an archive has thousands of scenes."""
    log.info(f"device: the CPU ({reason})")


def expect_scenes(count: int) -> None:
    """Say how many scenes this process will solve: together they may be worth a GPU's start."""
    SCENES[0] = max(1, count)


def why_not_worth(work: Work, threads: int | None) -> str:
    """Return why the start of a GPU does not pay; an empty text where it does. The simulator has no start."""
    saved = SCENES[0] * work.saved(threads or cores())
    pays = saved > START or simulated()
    log.debug(
        f"device: a GPU saves {saved:.2g} s, its start takes {START:g} s: {'a GPU' if pays else 'the CPU'} is used"
    )
    return "" if pays else "a GPU would take longer to start than it saves; `device` cuda takes it all the same"


def kind_of(name: str) -> str:
    """Return "cpu" or "cuda", which `choose_device` would try, without using a GPU; raise the same errors."""
    if name in ("cpu", "auto"):
        return "cpu" if name == "cpu" or why_no_gpu() else "cuda"
    wanted, gpus = gpus_named(name), count_gpus()
    if gpus == 0 or max(wanted, default=0) >= gpus:
        raise DeviceError(f"{name}: {'no CUDA GPU' if gpus == 0 else f'only {gpus} GPUs'} here; use `device` cpu")
    if not importlib.util.find_spec("numba_cuda"):
        raise DeviceError(f"{name}: numba-cuda is not installed; pip install 'unmix[cuda12]' or 'unmix[cuda13]'")
    return "cuda"


def why_no_gpu() -> str:
    """Return why ``auto`` means the CPU; an empty text where it means a GPU."""
    if not count_gpus():
        return "no CUDA GPU found"
    missing = not importlib.util.find_spec("numba_cuda")
    return "numba-cuda is not installed for the GPU: pip install 'unmix[cuda12]' or 'unmix[cuda13]'" if missing else ""


def gpus_named(name: str) -> list[int]:
    """Return the indices of the GPUs in ``cuda``, ``cuda:K`` or ``cuda:K,L``; an empty list for ``cuda:all``.

    Raises
    ------
    MethodError
        Where the name is none of these, or names a GPU twice.
    """
    kind, colon, which = name.partition(":")
    words = which.split(",") if colon else ["0"]
    if kind != "cuda" or not (which == "all" or all(re.fullmatch("[0-9]{1,3}", word) for word in words)):
        raise MethodError(f"unknown device '{name}'; use auto, cpu, cuda, cuda:K, cuda:K,L or cuda:all")
    wanted = [] if which == "all" else [int(word) for word in words]
    if len(set(wanted)) < len(wanted):
        raise MethodError(f"`device` {name}: names a GPU twice; name each once")
    return wanted


@contextlib.contextmanager
def one_device(name: str, threads: int | None = None) -> Iterator[Device]:
    """Yield the device of that name; if it is a GPU, it is this thread's current CUDA device until the end.

    Raises
    ------
    MethodError
        Where there is no device of that name, or it names several GPUs.
    DeviceError
        As `choose_device`.
    """
    device = choose_device(name, threads)
    try:
        if isinstance(device, Several):
            raise MethodError(f"`device` {name}: this works on one GPU; name one, such as cuda:0")
        with device.gpu if isinstance(device, Cuda) else contextlib.nullcontext():
            yield device
    finally:
        device.close()


__all__ = [
    "Cpu",
    "Cuda",
    "Device",
    "Line",
    "Several",
    "Slot",
    "Work",
    "choose_device",
    "claim_gpu",
    "count_gpus",
    "expect_scenes",
    "kind_of",
    "one_device",
    "simulated",
]
