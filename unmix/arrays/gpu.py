"""The GPU that solves problems beside those of blocks: which it is, and its failures.

Choose the threads that solve a batch of systems: those of the CPU or of a GPU.
"""

import contextlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from ..blocks import cores
from ..compiled.thread_groups import CpuGroups, CudaGroups
from ..devices import Cuda, Device, Several, choose_device, simulated
from ..devices.cuda import line_of_error
from ..errors import DeviceError


class OneGpu:
    """A GPU that solves problems beside those of blocks."""

    def __init__(self, device: Cuda) -> None:
        self.device, self.name = device, device.name

    @cached_property
    def cuda(self) -> Any:
        """Numba's module."""
        from ..compiled.cuda import cuda

        return cuda

    def free_memory(self) -> int:
        """Return the bytes that are free."""
        return int(self.cuda.current_context().get_memory_info().free)


def gpu_of(name: str) -> OneGpu | None:
    """Return the GPU of a device's name, the first of several; None for a CPU, and for GPUs before 2020, which the CPU outruns here."""
    device = choose_device(name)
    device = device.gpus[0] if isinstance(device, Several) else device
    if not isinstance(device, Cuda) or simulated():
        return None
    from ..solvers.pixels.cuda_fast.driver import FastSolver

    with device.gpu:
        return OneGpu(device) if FastSolver.is_capable() else None


@contextlib.contextmanager
def guarded(gpu: OneGpu | None) -> Iterator[None]:
    """Make a GPU the current one of this thread, and its failures `DeviceError`."""
    if gpu is None:
        yield
        return
    try:
        with gpu.device.gpu:
            yield
    except Exception as error:
        raise DeviceError(f"{gpu.name}: failed: {line_of_error(error)}; use `device` cpu") from error


def groups_on(
    machine: Device, threads: int | None, block: int, at_once: int, registers: int | None = None
) -> CpuGroups | CudaGroups:
    """Return the groups of threads of a device of `unmix.devices.one_device`; by default all cores of a CPU.

    ``block``, ``at_once`` and ``registers`` are the arguments of `CudaGroups`, for a GPU.
    """
    return CpuGroups(threads or cores()) if machine.name == "cpu" else CudaGroups(block, at_once, registers)
