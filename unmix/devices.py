"""Where blocks are solved: `Cpu` and `Cuda`, behind one interface. Nobody else sees a stream or pinned memory."""

import contextlib
import ctypes
import functools
import importlib.util
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from .blocks import Layout, cores
from .errors import DeviceError, MethodError
from .problem import Problem

log = logging.getLogger("unmix")


@dataclass(frozen=True)
class Line:
    """What one line of a block is: its samples, its stored bytes, and whether its residual is wanted.

    ``real`` is the type of abundances, RMSE and residual: float32 for files, float64 for arrays in Python; ``dtype`` that
    of the stored values.
    """

    samples: int
    stored_bytes: int
    residual: bool = False
    real: Any = np.float32
    dtype: Any = np.float64

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

    def part(self, start: int, stop: int, layout: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Stored values and results of some lines of the block."""
        assert self.raw is not None and self.results is not None
        raw = self.raw[:, start:stop] if layout == "bsq" else self.raw[start:stop]
        return raw, {name: values[start:stop] for name, values in self.results.items()}


class Device(Protocol):
    """Solves blocks.

    ``fit`` cuts them to the device's own memory and ``open`` makes the slots, once a run; ``submit`` starts a block;
    ``wait`` ends with its answers (with none, where ``solves`` was set False to time all the rest); ``stages`` says what
    the device's own clock measured, by `unmix.pipeline.Seconds`' names; ``close`` lets go of everything.
    """

    name: str
    solves: bool

    def fit(self, problem: Problem, line: Line, layout: Layout, memory: int) -> Layout: ...
    def open(self, problem: Problem, line: Line, layout: Layout) -> list[Slot]: ...
    def submit(self, slot: Slot) -> None: ...
    def wait(self, slot: Slot) -> None: ...
    def stages(self) -> dict[str, float]: ...
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
    solves = True
    # Ranges a thread: enough that the last to finish is not waited for long.
    SHARES = 4

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or cores()
        self.pool = ThreadPoolExecutor(self.threads, "solve")

    def fit(self, problem: Problem, line: Line, layout: Layout, memory: int) -> Layout:
        """As it is: a CPU has no memory of its own."""
        return layout

    def open(self, problem: Problem, line: Line, layout: Layout) -> list[Slot]:
        from .solvers.cpu import Plan, Results, Stored, solve_range

        self.solve = functools.partial(solve_range, problem.layout, problem.pixel)
        self.stored = Stored(*problem.stored())
        self.plan = Plan(*problem.plan())
        slots = new_slots(np.empty, problem, line, layout)
        with saying(f"compiling for {np.dtype(line.dtype)} {problem.layout}; the code is kept, so this is done once"):
            results = Results(**{name: values[:0] for name, values in slots[0].full.items()})
            self.solve(0, 0, np.empty((0, 0, 0), line.dtype), self.stored, self.plan, results)
        return slots

    def submit(self, slot: Slot) -> None:
        from .solvers.cpu import Results, tiles_in

        assert slot.raw is not None and slot.results is not None
        results = Results(**slot.results)
        tiles = tiles_in(*slot.results["rmse"].shape)
        step = max(1, -(-tiles // (self.threads * self.SHARES)))
        slot.ticket = []
        for start in range(0, tiles if self.solves else 0, step):
            stop = min(start + step, tiles)
            slot.ticket.append(self.pool.submit(self.solve, start, stop, slot.raw, self.stored, self.plan, results))

    def wait(self, slot: Slot) -> None:
        for future in slot.ticket:
            future.result()

    def stages(self) -> dict[str, float]:
        """Nothing: what is seen from outside is right."""
        return {}

    def close(self) -> None:
        self.pool.shutdown()


class Cuda:
    """One GPU: each slot has a stream and pinned memory, so that copies and kernels of different blocks overlap.

    Parameters
    ----------
    index : int
        Which GPU, from 0.
    """

    solves = True

    def __init__(self, index: int) -> None:
        self.name = f"cuda:{index}"
        try:
            from .solvers.cuda import cuda

            self.cuda = cuda
            self.gpu = cuda.gpus[index]
            with self.gpu:
                cuda.current_context()
        except Exception as error:  # whatever a driver throws, the user gets one line
            raise DeviceError(f"cuda:{index}: cannot be used: {first_line(error)}; try --device cpu") from None

    def open(self, problem: Problem, line: Line, layout: Layout) -> list[Slot]:
        solver = self.solver_for(problem)
        need = self.bytes_needed(problem, line, layout)
        try:
            with self.gpu:
                slots = new_slots(self.pinned, problem, line, layout)
                # One scratch for all slots: kernels of different blocks wait for each other, copies do not.
                self.solver = solver(problem, layout.lines_per_block * line.samples)
                self.compute = self.cuda.stream()
                self.spent = {"copying": 0.0, "solving": 0.0}
                self.mirrors = {id(slot): Mirror(self.cuda, slot) for slot in slots}
        except Exception as error:
            raise DeviceError(
                f"{self.name}: no room for {need >> 20} MiB: {first_line(error)}; lower --gpu-memory"
            ) from None
        log.info(f"{self.name}: {max(1, need >> 20)} MiB of GPU memory, {solver.__name__.lower()} solver")
        return slots

    def solver_for(self, problem: Problem) -> Any:
        """The class that solves blocks: the fast path where it is right, else the general one."""
        from .solvers.cuda import General

        if simulated():  # which has no warp operations
            return General
        from .solvers.warps import Warps

        with self.gpu:
            return Warps if Warps.serves(problem) else General

    def bytes_needed(self, problem: Problem, line: Line, layout: Layout) -> int:
        """GPU memory of a run that is cut so."""
        blocks = layout.lines_per_block * line.bytes_in_flight(problem) * layout.slots
        scratch = self.solver_for(problem).scratch_bytes(problem, layout.lines_per_block * line.samples)
        return int(blocks + scratch)

    def fit(self, problem: Problem, line: Line, layout: Layout, memory: int) -> Layout:
        """Cut blocks smaller, or have fewer in flight, until the run fits ``memory`` bytes of the GPU.

        Raises
        ------
        MethodError
            Where not even one line does.
        """
        while (need := self.bytes_needed(problem, line, layout)) > memory:
            if layout.lines_per_block > 1:
                fewer = max(1, min(layout.lines_per_block - 1, layout.lines_per_block * memory // need))
                layout = Layout(layout.lines, fewer, layout.slots)
            elif layout.slots > 1:
                layout = Layout(layout.lines, 1, layout.slots - 1)
            else:
                raise MethodError(f"--gpu-memory {memory} bytes is too small: one line of this scene needs {need}")
        return layout

    def pinned(self, shape: Any, kind: Any) -> np.ndarray:
        size = int(np.prod(shape))
        if size == 0:
            return np.empty(shape, kind)
        return self.cuda.pinned_array(size, dtype=kind).reshape(shape)

    def submit(self, slot: Slot) -> None:
        mirror = self.mirrors[id(slot)]
        assert slot.raw is not None and slot.results is not None
        try:
            with self.gpu:
                raw, results = mirror.views(slot)
                began, uploaded, started, solved, download, finished = mirror.events
                began.record(mirror.stream)
                raw.copy_to_device(slot.raw, stream=mirror.stream)
                uploaded.record(mirror.stream)
                uploaded.wait(self.compute)
                started.record(self.compute)
                if self.solves:
                    self.solver.launch(raw, results, self.compute)
                solved.record(self.compute)
                solved.wait(mirror.stream)
                download.record(mirror.stream)
                for name, values in results.items():
                    if values.size:
                        values.copy_to_host(slot.results[name], stream=mirror.stream)
                finished.record(mirror.stream)
        except Exception as error:
            raise DeviceError(f"{self.name}: failed: {first_line(error)}") from error

    def wait(self, slot: Slot) -> None:
        try:
            with self.gpu:
                mirror = self.mirrors[id(slot)]
                began, uploaded, started, solved, download, finished = mirror.events
                finished.synchronize()
                if not simulated():  # which has no clock
                    for stage, first, last in (
                        ("copying", began, uploaded),
                        ("solving", started, solved),
                        ("copying", download, finished),
                    ):
                        self.spent[stage] += float(self.cuda.event_elapsed_time(first, last)) / 1e3
        except Exception as error:
            raise DeviceError(f"{self.name}: failed: {first_line(error)}") from error

    def stages(self) -> dict[str, float]:
        """Copying and solving, from events."""
        return {} if simulated() else dict(self.spent)

    def close(self) -> None:
        self.mirrors = {}
        self.solver = None


class Mirror:
    """The GPU's copy of a slot, with its stream and the events that order it."""

    def __init__(self, cuda: Any, slot: Slot) -> None:
        self.buffer = cuda.device_array(slot.buffer.shape, np.uint8)
        self.full = {name: cuda.device_array(values.shape, values.dtype) for name, values in slot.full.items()}
        self.stream = cuda.stream()
        # Upload began and ended, kernels began and ended, download began and ended.
        self.events = [cuda.event() for _ in range(6)]
        self.made: dict[tuple[int, ...], tuple[Any, dict[str, Any]]] = {}

    def views(self, slot: Slot) -> tuple[Any, dict[str, Any]]:
        """Device arrays of the size of the block that is in the slot; made once, since each takes 30 µs to make."""
        assert slot.raw is not None and slot.results is not None
        shape = slot.raw.shape
        if shape not in self.made:
            raw = self.buffer[: slot.raw.nbytes].view(slot.raw.dtype).reshape(shape)
            self.made[shape] = raw, {name: self.full[name][: len(values)] for name, values in slot.results.items()}
        return self.made[shape]


@contextlib.contextmanager
def saying(text: str) -> Iterator[None]:
    """Say what takes so long, once it has taken a second."""
    timer = threading.Timer(1.0, log.info, [text])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


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
