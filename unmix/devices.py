"""Where blocks are solved: `Cpu` and `Cuda`, behind one interface. Nobody else sees a stream or pinned memory."""

import ctypes
import importlib.util
import logging
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from .blocks import Layout
from .errors import DeviceError, MethodError
from .problem import Problem

log = logging.getLogger("unmix")


@dataclass(frozen=True)
class Line:
    """What one line of a block is: its samples, its stored bytes, and whether its residual is wanted.

    ``real`` is the type of abundances, RMSE and residual: float32 for files, float64 for arrays in Python.
    """

    samples: int
    stored_bytes: int
    residual: bool = False
    real: Any = np.float32

    def results(self, lines: int, problem: Problem) -> dict[str, tuple[Any, tuple[int, ...]]]:
        """Type and shape of every result of a block; the fields of `unmix.solvers.tile.Results` in order."""
        L, p = problem.E.shape
        plane = (lines, self.samples)
        return {
            "abundance": (self.real, (lines, p, self.samples)),
            "rmse": (self.real, plane),
            "kappa": (np.float64, plane),
            "delta": (np.float64, plane),
            "steps": (np.int32, plane),
            "state": (np.uint8, plane),
            "residual": (self.real, (lines if self.residual else 0, L, self.samples)),
        }

    def bytes_in_flight(self, problem: Problem) -> int:
        """Bytes of one line in a slot, stored values and results."""
        shapes = self.results(1, problem).values()
        return self.stored_bytes + sum(int(np.prod(shape)) * np.dtype(kind).itemsize for kind, shape in shapes)


@dataclass
class Slot:
    """Buffers of one block in flight.

    Attributes
    ----------
    buffer : array, uint8
        Stored bytes.
    full : dict of arrays
        Results for the largest block, by name.
    lines : slice
        The block that is in it.
    raw : array
        Its stored values, in the cube's layout.
    results : dict of arrays
        The part of ``full`` that belongs to it.
    ticket : object
        What the device waits for.
    """

    buffer: np.ndarray
    full: dict[str, np.ndarray]
    lines: slice = field(default_factory=lambda: slice(0, 0))
    raw: np.ndarray | None = None
    results: dict[str, np.ndarray] | None = None
    ticket: Any = None

    def hold(self, lines: slice, raw: np.ndarray) -> None:
        """Say which block is in the buffer."""
        n = lines.stop - lines.start
        self.lines, self.raw = lines, raw
        self.results = {name: values[:n] for name, values in self.full.items()}


class Device(Protocol):
    """Solves blocks: ``open`` makes the slots, once a run; ``submit`` starts a block; ``wait`` ends with its answers.

    ``close`` lets go of everything.
    """

    name: str

    def open(self, problem: Problem, line: Line, layout: Layout) -> list[Slot]: ...
    def submit(self, slot: Slot) -> None: ...
    def wait(self, slot: Slot) -> None: ...
    def close(self) -> None: ...


def new_slots(allocate: Callable[[Any, Any], np.ndarray], problem: Problem, line: Line, layout: Layout) -> list[Slot]:
    """The slots of a run, from an allocator of ``(shape, dtype)``."""
    n = layout.lines_per_block
    return [
        Slot(
            allocate(n * line.stored_bytes, np.uint8),
            {name: allocate(shape, kind) for name, (kind, shape) in line.results(n, problem).items()},
        )
        for _ in range(layout.slots)
    ]


class Cpu:
    """All cores, or ``threads`` of them: ranges of tiles on a thread pool, in code that holds no GIL."""

    name = "cpu"
    # Ranges a thread: enough that the last to finish is not waited for long.
    SHARES = 4

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or len(os.sched_getaffinity(0))
        self.pool = ThreadPoolExecutor(self.threads, "solve")

    def open(self, problem: Problem, line: Line, layout: Layout) -> list[Slot]:
        from .solvers.cpu import Plan, Stored, range_solver

        self.solve = range_solver(problem.layout, problem.solver.pixel)
        self.stored = Stored(*problem.stored())
        self.plan = Plan(*problem.plan())
        return new_slots(np.empty, problem, line, layout)

    def submit(self, slot: Slot) -> None:
        from .solvers.cpu import Results, tiles_in

        assert slot.raw is not None and slot.results is not None
        results = Results(**slot.results)
        tiles = tiles_in(*slot.results["rmse"].shape)
        step = max(1, -(-tiles // (self.threads * self.SHARES)))
        futures: list[Future[None]] = [
            self.pool.submit(self.solve, start, min(start + step, tiles), slot.raw, self.stored, self.plan, results)
            for start in range(0, tiles, step)
        ]
        slot.ticket = futures

    def wait(self, slot: Slot) -> None:
        for future in slot.ticket:
            future.result()

    def close(self) -> None:
        self.pool.shutdown()


class Cuda:
    """One GPU: each slot has a stream and pinned memory, so that copies and kernels of different blocks overlap.

    Parameters
    ----------
    index : int
        Which GPU, from 0.
    memory : int
        Bytes of GPU memory that a run may hold; see `scratch_threads`.
    """

    def __init__(self, index: int, memory: int) -> None:
        self.name = f"cuda:{index}"
        self.memory = memory
        try:
            from .solvers.cuda import cuda

            self.cuda = cuda
            self.gpu = cuda.gpus[index]
            with self.gpu:
                cuda.current_context()
        except Exception as error:  # whatever a driver throws, the user gets one line
            raise DeviceError(f"cuda:{index}: cannot be used: {first_line(error)}; try --device cpu") from None

    def open(self, problem: Problem, line: Line, layout: Layout) -> list[Slot]:
        from .solvers.cuda import Scratch, block_kernel, scratch_shapes

        self.kernel = block_kernel(problem.layout, problem.solver.pixel)
        L, p = problem.E.shape
        blocks = layout.lines_per_block * line.bytes_in_flight(problem) * layout.slots
        threads = self.scratch_threads(L, p, layout.lines_per_block * line.samples, self.memory - blocks)
        self.grid = threads // self.block_size()
        try:
            with self.gpu:
                slots = new_slots(self.pinned, problem, line, layout)
                self.constants = [self.to_device(value) for value in (*problem.stored(), *problem.plan())]
                kinds = Scratch(float, float, float, float, np.int64, np.int64)
                # One scratch for all slots: kernels of different streams wait for each other, copies do not.
                self.scratch = [
                    self.cuda.device_array(shape, kind) for shape, kind in zip(scratch_shapes(L, p, threads), kinds)
                ]
                self.compute = self.cuda.stream()
                self.mirrors = {id(slot): Mirror(self.cuda, slot) for slot in slots}
        except Exception as error:
            raise DeviceError(
                f"{self.name}: no room for {blocks >> 20} MiB of blocks and "
                f"{threads} threads: {first_line(error)}; lower --gpu-memory"
            ) from None
        return slots

    def block_size(self) -> int:
        from .solvers.cuda import THREADS_PER_BLOCK

        return THREADS_PER_BLOCK

    def scratch_threads(self, L: int, p: int, pixels: int, memory: int) -> int:
        """How many threads run: one a pixel where their scratch fits ``memory``, at least one block of threads."""
        from .solvers.cuda import scratch_bytes

        size = self.block_size()
        wanted = -(-pixels // size) * size
        fitting = max(memory, 0) // scratch_bytes(L, p) // size * size
        if fitting < size:
            raise MethodError(
                f"--gpu-memory {self.memory} bytes is too small: {p} endmembers need "
                f"{size * scratch_bytes(L, p)} bytes of scratch beside the blocks"
            )
        return int(min(wanted, fitting, 132 * 2048))

    def pinned(self, shape: Any, kind: Any) -> np.ndarray:
        size = int(np.prod(shape))
        if size == 0:
            return np.empty(shape, kind)
        return self.cuda.pinned_array(size, dtype=kind).reshape(shape)

    def to_device(self, value: Any) -> Any:
        return self.cuda.to_device(value) if isinstance(value, np.ndarray) else value

    def submit(self, slot: Slot) -> None:
        mirror = self.mirrors[id(slot)]
        assert slot.raw is not None and slot.results is not None
        try:
            with self.gpu:
                raw, results = mirror.views(slot)
                raw.copy_to_device(slot.raw, stream=mirror.stream)
                mirror.uploaded.record(mirror.stream)
                mirror.uploaded.wait(self.compute)
                self.kernel[self.grid, self.block_size(), self.compute](
                    raw, *self.constants, *results.values(), *self.scratch
                )
                mirror.solved.record(self.compute)
                mirror.solved.wait(mirror.stream)
                for name, values in results.items():
                    if values.size:
                        values.copy_to_host(slot.results[name], stream=mirror.stream)
                mirror.finished.record(mirror.stream)
        except Exception as error:
            raise DeviceError(f"{self.name}: failed: {first_line(error)}") from error

    def wait(self, slot: Slot) -> None:
        try:
            with self.gpu:
                self.mirrors[id(slot)].finished.synchronize()
        except Exception as error:
            raise DeviceError(f"{self.name}: failed: {first_line(error)}") from error

    def close(self) -> None:
        self.mirrors = {}
        self.scratch = []
        self.constants = []


class Mirror:
    """The GPU's copy of a slot, with its stream and the events that order it."""

    def __init__(self, cuda: Any, slot: Slot) -> None:
        self.buffer = cuda.device_array(slot.buffer.shape, np.uint8)
        self.full = {name: cuda.device_array(values.shape, values.dtype) for name, values in slot.full.items()}
        self.stream = cuda.stream()
        self.uploaded, self.solved, self.finished = cuda.event(), cuda.event(), cuda.event()

    def views(self, slot: Slot) -> tuple[Any, dict[str, Any]]:
        """Device arrays of the size of the block that is in the slot."""
        assert slot.raw is not None and slot.results is not None
        raw = self.buffer[: slot.raw.nbytes].view(slot.raw.dtype).reshape(slot.raw.shape)
        results = {name: self.full[name][: len(values)] for name, values in slot.results.items()}
        return raw, results


def first_line(error: BaseException) -> str:
    """The first line of an error's message that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" :")]
    return lines[0] if lines else type(error).__name__


def simulated() -> bool:
    """Whether CUDA's simulator stands in for a GPU."""
    return os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


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


def choose_device(name: str, threads: int | None, gpu_memory: int) -> Device:
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
        if gpus and importlib.util.find_spec("numba_cuda"):
            return Cuda(0, gpu_memory)
        reason = "no CUDA GPU" if not gpus else "a GPU, but not numba-cuda (pip install 'unmix[cuda12]' or [cuda13])"
        log.info(f"device: the CPU ({reason})")
        return Cpu(threads)
    kind, _, index = name.partition(":")
    if kind != "cuda" or (index and not index.isdigit()):
        raise MethodError(f"unknown device '{name}'; use auto, cpu, cuda or cuda:K")
    gpus = count_gpus()
    if int(index or 0) >= gpus:
        raise DeviceError(f"{name}: {'no CUDA GPU' if gpus == 0 else f'only {gpus} GPUs'} here; use --device cpu")
    if not importlib.util.find_spec("numba_cuda"):
        raise DeviceError(f"{name}: numba-cuda is not installed; pip install 'unmix[cuda12]' or 'unmix[cuda13]'")
    return Cuda(int(index or 0), gpu_memory)
