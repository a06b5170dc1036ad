"""Choose the threads that solve a batch of systems: those of the CPU or of a GPU."""

from ..blocks import cores
from ..compiled.thread_groups import CpuGroups, CudaGroups
from ..devices import Device


def groups_on(
    machine: Device, threads: int | None, block: int, at_once: int, registers: int | None = None
) -> CpuGroups | CudaGroups:
    """Return a device's groups of threads, by default of all cores; the other arguments are those of `CudaGroups`."""
    return CpuGroups(threads or cores()) if machine.name == "cpu" else CudaGroups(block, at_once, registers)
