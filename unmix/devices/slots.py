"""What a block is while it is in flight: its line, its buffers, and what a device does with them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..blocks import BlockPlan
from ..problem import Problem


@dataclass(frozen=True)
class Line:
    """What one line of a block is: its samples, its stored bytes, and whether its residual is wanted.

    ``real`` is the type of abundances, RMSE and residual: float32 for files, float64 for arrays in Python; ``dtype`` that
    of the stored values. ``home`` names the results that always come back from a GPU. With ``counted`` it may add up what
    `unmix.summary.Summary` wants: a block without a pixel whose δ is above that, or that is not certified, leaves the other
    results behind.
    """

    samples: int
    stored_bytes: int
    residual: bool = False
    real: Any = np.float32
    dtype: Any = np.float64
    home: tuple[str, ...] = ("abundance", "rmse", "relative", "kappa", "delta", "steps", "state", "residual")
    counted: float | None = None

    def results(self, lines: int, problem: Problem) -> dict[str, tuple[Any, tuple[int, ...]]]:
        """Type and shape of every result of a block; the fields of `unmix.solvers.pixels.tile.Results` in order."""
        L, p = problem.E.shape
        plane = (lines, self.samples)
        return {
            "abundance": (self.real, (lines, p, self.samples)),
            "rmse": (self.real, plane),
            "relative": (np.float32, plane),
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
    counts : Counts or None
        What was added up where the block was solved, lines with doubtful pixels among them, of which the host has all results;
        None where the host is to count.
    """

    buffer: np.ndarray
    full: dict[str, np.ndarray]
    lines: slice = field(default_factory=lambda: slice(0, 0))
    raw: np.ndarray | None = None
    results: dict[str, np.ndarray] | None = None
    ticket: Any = None
    counts: Any = None

    def hold(self, lines: slice, raw: np.ndarray) -> None:
        """Say which block is in the buffer."""
        n = lines.stop - lines.start
        self.lines, self.raw = lines, raw
        self.results = {name: values[:n] for name, values in self.full.items()}

    def part(self, start: int, stop: int, interleave: str) -> tuple[np.ndarray, dict[str, np.ndarray], Any]:
        """Stored values, results and counts of some lines of the block."""
        assert self.raw is not None and self.results is not None
        raw = self.raw[:, start:stop] if interleave == "bsq" else self.raw[start:stop]
        counts = None if self.counts is None else type(self.counts)(*(values[start:stop] for values in self.counts))
        return raw, {name: values[start:stop] for name, values in self.results.items()}, counts


class Device(Protocol):
    """Solves blocks.

    ``fit`` cuts them to the device's own memory and ``open`` makes the slots, once a run; ``submit`` starts a block;
    ``wait`` ends with its answers (with none, where ``solves`` was set False to time all the rest); ``stages`` says what
    the device's own clock measured since the last call, by `unmix.pipeline.Seconds`' names; ``close`` lets go of everything.
    ``count`` devices work side by side.
    """

    name: str
    solves: bool

    @property
    def count(self) -> int: ...

    def fit(self, problem: Problem, line: Line, block_plan: BlockPlan, memory: int) -> BlockPlan: ...
    def open(self, problem: Problem, line: Line, block_plan: BlockPlan) -> list[Slot]: ...
    def submit(self, slot: Slot) -> None: ...
    def wait(self, slot: Slot) -> None: ...
    def stages(self) -> dict[str, float]: ...
    def close(self) -> None: ...


Allocate = Callable[[Any, Any], np.ndarray]


def new_slots(
    allocate: Allocate, problem: Problem, line: Line, block_plan: BlockPlan, away: Allocate | None = None
) -> list[Slot]:
    """The slots of a run, from an allocator of ``(shape, dtype)``; ``away`` is for results that seldom come home."""
    n = block_plan.lines_per_block
    shapes = line.results(n, problem)
    return [
        Slot(
            allocate(n * line.stored_bytes, np.uint8),
            {
                name: (allocate if name in line.home or away is None else away)(shape, kind)
                for name, (kind, shape) in shapes.items()
            },
        )
        for _ in range(block_plan.slots)
    ]
