"""Solve blocks on a GPU: slots with pinned memory and a stream each, which only this module uses."""

import atexit
import contextlib
import functools
import logging
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from ..blocks import BlockPlan, block_shape
from ..errors import DeviceError, MethodError
from ..problem import Problem
from ..summary import DOUBTFUL
from .pinned import PinnedMemory
from .slots import Line, Slot, first_lines, new_slots, simulated

log = logging.getLogger("unmix")
HELD: list[Any] = []  # kept by `leave_to_the_end`
# Calls of blocks are recorded as graphs where a slot has at least this many blocks: recording takes 0.07 to 0.14 s,
# as long as the calls of ten blocks (H100).
WORTH_RECORDING = 2


class Cuda:
    """One GPU: each slot has a stream and pinned memory, so that copies and kernels of different blocks overlap.

    Parameters
    ----------
    index : int
        The GPU's number, from 0.
    """

    solves = True
    count = 1
    device_slots: dict[int, "DeviceSlot"]

    def __init__(self, index: int) -> None:
        self.name = f"cuda:{index}"
        self.device_slots = {}
        try:
            from ..compiled.cuda import cuda

            self.cuda, self.pinned = cuda, PinnedMemory(cuda)
            self.gpu = cuda.gpus[index]
            with self.gpu:
                cuda.current_context()
            leave_to_the_end(index)
        except Exception as error:  # whatever the driver raises, the user gets one line
            raise DeviceError(f"cuda:{index}: cannot be used: {line_of_error(error)}; try `device` cpu") from None

    @property
    def free(self) -> int:
        """Bytes of its memory that nobody uses now."""
        with self.gpu:
            return int(min(self.cuda.current_context().get_memory_info().free, 2**62))  # infinite in the simulator

    def open(self, problem: Problem, line: Line, block_plan: BlockPlan) -> list[Slot]:
        self.end_run()  # ends an earlier run
        solver, (L, p) = self.solver_for(problem, line.samples), problem.E.shape
        need = self.bytes_needed(problem, line, block_plan)
        try:
            with self.gpu:
                limit = self.limit_of_counts(problem, line)
                seldom = None if limit is None else np.empty
                slots = new_slots(self.pinned.array, problem, line, block_plan, seldom)
                # One scratch for all slots: kernels of different blocks run one after the other, copies overlap.
                self.solver = solver(problem, block_plan.lines_per_block * line.samples)
                self.compute = self.cuda.stream()
                self.spent = {"copying": 0.0, "solving": 0.0}
                self.counter: Any = None
                if limit is not None:
                    from ..solvers.pixels.cuda_totals.totals import Counter

                    shares = None if line.normalization is None else line.normalization.shares
                    self.counter = Counter(p, line.samples, limit, L if line.residual else 0, line.steps, shares)
                self.device_slots = {id(slot): DeviceSlot(self, slot, problem, line) for slot in slots}
                if len(block_plan) > WORTH_RECORDING * block_plan.slots and not simulated():
                    self.record(slots, problem, line, block_plan)
        except Exception as error:
            raise DeviceError(
                f"{self.name}: a run with {need >> 20} MiB of GPU memory cannot be prepared: {line_of_error(error)}; "
                "lower `gpu_memory`"
            ) from None
        log.info(f"{self.name}: {max(1, need >> 20)} MiB of GPU memory, {solver.__name__.lower()} solver")
        return slots

    def record(self, slots: list[Slot], problem: Problem, line: Line, block_plan: BlockPlan) -> None:
        """Record the calls of a full block in each slot, after running the kernels once on what the buffers hold."""
        bands = line.stored_bytes // (line.samples * np.dtype(line.dtype).itemsize)
        shape = block_shape(problem.interleave, block_plan.lines_per_block, line.samples, bands)
        for slot in slots:
            slot.hold(slice(0, block_plan.lines_per_block), slot.buffer.view(line.dtype).reshape(shape))
        try:
            for call in self.device_slots[id(slots[0])].calls(slots[0], self):
                call()
            self.cuda.synchronize()
            for slot in slots:
                self.device_slots[id(slot)].record(slot, self)
        except Exception as error:  # a real failure will show in the first block
            log.debug(f"{self.name}: blocks are not recorded: {line_of_error(error)}")

    def solver_for(self, problem: Problem, samples: int) -> Any:
        """Return the first class that can solve blocks with lines of ``samples``."""
        from ..solvers.pixels.cuda import GeneralSolver, ModelsSolver

        if problem.pixel == "mesma":
            return ModelsSolver
        from ..solvers.pixels.cuda_fast.driver import FastSolver
        from ..solvers.pixels.cuda_many.driver import ManySolver

        with self.gpu:
            for solver in (FastSolver, ManySolver):
                if solver.serves(problem, samples):
                    return solver
            return GeneralSolver

    def limit_of_counts(self, problem: Problem, line: Line) -> float | None:
        """Return the δ above which a pixel is doubtful, where the GPU counts its results; None where the host does."""
        if line.counted is None or not counts_here() or not self.solver_for(problem, line.samples).countable:
            return None
        # With an inexact solver, or duplicates, the host would count nearly every line again.
        return line.counted if problem.solver.exact and not problem.has_duplicates else None

    def path(self, problem: Problem, samples: int) -> str:
        """Return how pixels are searched."""
        return self.solver_for(problem, samples).path or problem.pixel

    def bytes_needed(self, problem: Problem, line: Line, block_plan: BlockPlan) -> int:
        """Return the bytes of GPU memory that a run with this block plan needs."""
        blocks = block_plan.lines_per_block * line.bytes_in_flight(problem) * block_plan.slots
        scratch = self.solver_for(problem, line.samples).scratch_bytes(
            problem, block_plan.lines_per_block * line.samples
        )
        if self.limit_of_counts(problem, line) is not None:
            from ..solvers.pixels.cuda_totals.totals import count_shapes

            fields = count_shapes(block_plan.lines_per_block, problem.E.shape[1])
            blocks += block_plan.slots * sum(math.prod(shape) * np.dtype(kind).itemsize for kind, shape in fields)
        return int(blocks + scratch)

    def fit(self, problem: Problem, line: Line, block_plan: BlockPlan, memory: int) -> BlockPlan:
        """Return a plan with smaller blocks, or fewer slots, that fits ``memory`` bytes; `MethodError` if none does."""
        while (need := self.bytes_needed(problem, line, block_plan)) > memory:
            if block_plan.lines_per_block > 1:
                fewer = max(1, min(block_plan.lines_per_block - 1, block_plan.lines_per_block * memory // need))
                block_plan = BlockPlan(block_plan.lines, fewer, block_plan.slots)
            elif block_plan.slots > 1:
                block_plan = BlockPlan(block_plan.lines, 1, block_plan.slots - 1)
            else:
                raise MethodError(f"`gpu_memory` {memory} bytes is too small: one line of this scene needs {need}")
        return block_plan

    def submit(self, slot: Slot) -> None:
        device_slot = self.device_slots[id(slot)]
        assert slot.raw is not None and slot.results is not None
        try:
            with self.gpu:
                upload, solve, download = device_slot.stages(slot, self)
                began, uploaded, started, solved, download_began, finished = device_slot.events
                began.record(device_slot.stream)
                upload()
                uploaded.record(device_slot.stream)
                uploaded.wait(self.compute)
                started.record(self.compute)
                solve()
                solved.record(self.compute)
                solved.wait(device_slot.stream)
                download_began.record(device_slot.stream)
                download()
                finished.record(device_slot.stream)
                device_slot.hand_over(slot)
        except Exception as error:
            raise DeviceError(f"{self.name}: failed: {line_of_error(error)}") from error

    def wait(self, slot: Slot) -> None:
        try:
            with self.gpu:
                device_slot = self.device_slots[id(slot)]
                began, uploaded, started, solved, download_began, finished = device_slot.events
                finished.synchronize()
                if not simulated():  # the simulator has no clock
                    for stage, first, last in (
                        ("copying", began, uploaded),
                        ("solving", started, solved),
                        ("copying", download_began, finished),
                    ):
                        self.spent[stage] += float(self.cuda.event_elapsed_time(first, last)) / 1e3
                if slot.counts is not None and self.solves and slot.counts.pixels[:, DOUBTFUL].any():
                    # Some pixel is to be solved again, and its line counted again, by the host, which needs all
                    # results.
                    device_slot.bring_rest(slot)
        except Exception as error:
            raise DeviceError(f"{self.name}: failed: {line_of_error(error)}") from error

    def stages(self) -> dict[str, float]:
        """Return the seconds of copying and solving since the last call, from CUDA events."""
        spent, self.spent = self.spent, {"copying": 0.0, "solving": 0.0}
        return {} if simulated() else spent

    def end_run(self) -> None:
        """Release the slots; their page-locked memory is kept."""
        for device_slot in self.device_slots.values():
            with contextlib.suppress(Exception), self.gpu:  # after a failure of the GPU nothing can be released
                self.cuda.synchronize()
                device_slot.close()
        self.device_slots = {}
        self.solver = None
        with contextlib.suppress(Exception), self.gpu:  # the driver unlocks memory that is not kept
            self.pinned.keep()

    def close(self) -> None:
        self.end_run()
        with contextlib.suppress(Exception), self.gpu:
            self.pinned.close()


Stages = tuple[Callable[[], None], ...]


class Mirror(NamedTuple):
    """Arrays of a GPU, by name, and those of the host that they are copied to."""

    there: dict[str, Any]
    home: dict[str, np.ndarray]

    def bring(self, names: Iterable[str], lines: int, stream: Any) -> None:
        """Enqueue the download of the first lines of these arrays."""
        for name in names:
            target = self.home[name][:lines]
            if target.size:
                self.there[name][:lines].copy_to_host(target, stream=stream)


class DeviceSlot:
    """The GPU's copy of a slot, with its stream and events.

    It mirrors results and, where the GPU counts, what the GPU makes of the results: counts, integers and fractions.
    """

    def __init__(self, device: Cuda, slot: Slot, problem: Problem, line: Line) -> None:
        cuda, self.home = device.cuda, line.home

        def mirror(shapes: dict[str, Any], home: dict[str, np.ndarray] | None = None) -> Mirror:
            there = {name: cuda.device_array(shape, kind) for name, (kind, shape) in shapes.items()}
            pinned = device.pinned.array
            return Mirror(there, home or {name: pinned(shape, kind) for name, (kind, shape) in shapes.items()})

        n = len(slot.full["rmse"])
        self.buffer = cuda.device_array(slot.buffer.shape, np.uint8)
        self.full = mirror(line.results(n, problem), slot.full)
        counts: dict[str, Any] = {}
        if device.counter is not None:
            from ..solvers.pixels.cuda_totals.totals import count_shapes

            counts = count_shapes(n, problem.E.shape[1])._asdict()
        made = line.fractions(n, problem) if counts else {}
        self.counts, self.integers = mirror(counts), mirror(line.integers(n, problem) if counts else {})
        self.fractions = mirror(made)
        if made:  # the abundances themselves stay on the GPU
            self.home = tuple(name for name in self.home if name not in made)
        self.home_fractions = [name for name in made if name in (*line.home, "scale")]  # always copied back
        self.stream = cuda.stream()
        # Begin and end of upload, kernels and download.
        self.events = [cuda.event() for _ in range(6)]
        self.made: dict[Any, Stages] = {}
        self.recorded: list[Any] = []

    def stages(self, slot: Slot, device: Cuda) -> Stages:
        """Return functions that enqueue upload, kernels and download of the block in the slot."""
        case = self.case_of(slot)
        if case not in self.made:
            self.made[case] = self.calls(slot, device)
        return self.made[case]

    def record(self, slot: Slot, device: Cuda) -> None:
        """Record the stages as CUDA graphs, each replayed with one call, for blocks of this size."""
        from ..compiled.cuda_graph import CudaGraph

        streams = self.stream, device.compute, self.stream
        recorded = [CudaGraph(*pair) for pair in zip(streams, self.calls(slot, device))]
        self.recorded += recorded
        self.made[self.case_of(slot)] = tuple(recording.replay for recording in recorded)

    @staticmethod
    def case_of(slot: Slot) -> tuple[Any, ...]:
        """Return the shape and address of the stored values, which the calls depend on."""
        assert slot.raw is not None
        return slot.raw.shape, slot.raw.ctypes.data

    def close(self) -> None:
        """Wait for the stream and release the recordings."""
        self.stream.synchronize()
        for recording in self.recorded:
            recording.close()

    def calls(self, slot: Slot, device: Cuda) -> Stages:
        """Return the stages as plain functions; see `stages`."""
        assert slot.raw is not None
        n, source = slot.lines.stop - slot.lines.start, slot.raw
        raw = self.buffer[: source.nbytes].view(source.dtype).reshape(source.shape)
        results, integers, fractions = (first_lines(one.there, n) for one in (self.full, self.integers, self.fractions))
        counts = counts_in(first_lines(self.counts.there, n))
        home = [name for name in results if counts is None or name in self.home]

        def upload() -> None:
            raw.copy_to_device(source, stream=self.stream)

        def solve() -> None:
            if device.solves:
                device.solver.launch(raw, results, device.compute)
            if device.solves and counts is not None:
                device.counter.launch(results, counts, integers, fractions, device.compute)

        def download() -> None:
            self.full.bring(home, n, self.stream)
            self.fractions.bring(self.home_fractions, n, self.stream)
            for one in (self.counts, self.integers):
                one.bring(one.home, n, self.stream)

        return upload, solve, download

    def hand_over(self, slot: Slot) -> None:
        """Give the slot what the GPU makes of the results of its block."""
        n = slot.lines.stop - slot.lines.start
        slot.counts = counts_in(first_lines(self.counts.home, n))
        slot.integers, slot.fractions = first_lines(self.integers.home, n), first_lines(self.fractions.home, n)

    def bring_rest(self, slot: Slot) -> None:
        """Copy back what is only needed where the host counts lines again, and wait for it."""
        n = slot.lines.stop - slot.lines.start
        for one, home in ((self.full, self.home), (self.fractions, self.home_fractions)):
            one.bring([name for name in one.home if name not in home], n, self.stream)
        self.stream.synchronize()


def counts_in(arrays: dict[str, Any]) -> Any:
    """Return arrays as `CountsOnGpu`; None where the GPU does not count."""
    if not arrays:
        return None
    from ..solvers.pixels.cuda_totals.totals import CountsOnGpu

    return CountsOnGpu(**arrays)


@functools.cache
def leave_to_the_end(index: int) -> None:
    """Free nothing of that GPU when the process ends; the system does."""
    if simulated():
        return
    from ..compiled.cuda import cuda

    # Code that two GPUs of a process run is one library of the driver, which numba-cuda 0.30 unloads once for each:
    # seen as "double free or corruption" and segmentation faults after the work (exit codes 134, 139).
    def hold() -> None:
        with cuda.gpus[index]:
            HELD.append(cuda.defer_cleanup())
            HELD[-1].__enter__()

    atexit.register(hold)  # run before numba's own, since the last registered runs first


def line_of_error(error: BaseException) -> str:
    """Return the first line of an error's message that is not empty."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" :")]
    return lines[0] if lines else type(error).__name__


def counts_here() -> bool:
    """Return whether this is a GPU; in the simulator a line takes half a second to count."""
    return not simulated()
