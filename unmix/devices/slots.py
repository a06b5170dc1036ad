"""Blocks in flight: the layout of a line, the buffers, and the interface of a device."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..blocks import BlockPlan
from ..certificate import NODATA
from ..library.fractions import Normalization
from ..problem import Problem


@dataclass(frozen=True)
class Line:
    """One line of a block: number of samples, number of stored bytes, and whether the residual is wanted.

    ``real`` is the type of abundances, RMSE and residual: float32 for files, float64 for arrays in Python; ``dtype`` is
    the stored values' type. ``home`` names the results that are always copied back from a GPU. ``counted`` is the δ
    above which a GPU that computes the `unmix.summary.Summary` itself copies back the other results of a block, too, as
    it does where κ is not certified; None if the host computes it. Such a GPU also quantizes: ``steps`` has the step
    and offset of results that are stored as integers (`unmix.steps`), by name. ``normalization`` turns abundances into
    fractions, if it is given: they are float64 then, and a GPU that computes the summary makes the fractions.
    ``in_scene`` says whether it is a line of a scene, and no list of pixels: the answers of a list depend on its order,
    to the byte, only where spectra are nearly dependent.
    """

    samples: int
    stored_bytes: int
    residual: bool = False
    real: Any = np.float32
    dtype: Any = np.float64
    home: tuple[str, ...] = ("abundance", "rmse", "relative", "kappa", "delta", "steps", "state", "residual")
    counted: float | None = None
    steps: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    normalization: Normalization | None = None
    in_scene: bool = True

    def results(self, lines: int, problem: Problem) -> dict[str, tuple[Any, tuple[int, ...]]]:
        """Return type and shape of every result of a block: the fields of `Results` (`unmix.solvers.pixels.tile`)."""
        L, p = problem.E.shape
        plane = (lines, self.samples)
        return {
            "abundance": (self.real if self.normalization is None else np.float64, (lines, p, self.samples)),
            "rmse": (self.real, plane),
            "relative": (np.float32, plane),
            "kappa": (np.float64, plane),
            "delta": (np.float64, plane),
            "steps": (np.int32, plane),
            "state": (np.uint8, plane),
            "residual": (self.real, (lines if self.residual else 0, L, self.samples)),
        }

    def integers(self, lines: int, problem: Problem) -> dict[str, tuple[Any, tuple[int, ...]]]:
        """Return type and shape of the integers of a block, by the names of their results."""
        shapes = self.results(lines, problem)
        return {name: (np.uint16, shapes[name][1]) for name in self.steps}

    def fractions(self, lines: int, problem: Problem) -> dict[str, tuple[Any, tuple[int, ...]]]:
        """Return type and shape of what takes the place of results of a block, where a device makes fractions."""
        if self.normalization is None:
            return {}
        plane = (lines, self.samples)
        return {
            "abundance": (np.float32, (lines, problem.E.shape[1], self.samples)),
            "scale": (np.float32, plane),
            "delta": (np.float64, plane),
        }

    def bytes_in_flight(self, problem: Problem) -> int:
        """Return the bytes of one line in a slot, stored values and results together."""
        made = (self.results(1, problem), self.integers(1, problem), self.fractions(1, problem))
        arrays = [array for some in made for array in some.values()]
        return self.stored_bytes + sum(int(np.prod(shape)) * np.dtype(kind).itemsize for kind, shape in arrays)


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
        The lines of the block in it.
    raw : array
        The block's stored values, in the cube's layout.
    results : dict of arrays
        The part of ``full`` that belongs to the block.
    ticket : object
        Handed to ``wait``: the work that the device waits for.
    counts : CountsOnGpu or None
        Counts by the GPU that solved the block; the host recounts lines with pixels that it solves again, for which it
        has all results. None where the host counts everything.
    integers : dict of arrays
        Results as the integers that are stored, where the device made them, by name.
    fractions : dict of arrays
        Fractions as ``abundance``, their scale and ``delta``, where the device made them.
    """

    buffer: np.ndarray
    full: dict[str, np.ndarray]
    lines: slice = field(default_factory=lambda: slice(0, 0))
    raw: np.ndarray | None = None
    results: dict[str, np.ndarray] | None = None
    ticket: Any = None
    counts: Any = None
    integers: dict[str, np.ndarray] = field(default_factory=dict)
    fractions: dict[str, np.ndarray] = field(default_factory=dict)

    def hold(self, lines: slice, raw: np.ndarray) -> None:
        """Set the block that is in the buffer: its lines and stored values."""
        n = lines.stop - lines.start
        self.lines, self.raw = lines, raw
        self.results = first_lines(self.full, n)

    def part(self, start: int, stop: int, interleave: str) -> tuple[np.ndarray, dict[str, np.ndarray], Any]:
        """Return stored values, results and counts of lines ``start`` to ``stop`` of the block."""
        assert self.raw is not None and self.results is not None
        raw = self.raw[:, start:stop] if interleave == "bsq" else self.raw[start:stop]
        counts = None if self.counts is None else type(self.counts)(*(values[start:stop] for values in self.counts))
        return raw, {name: values[start:stop] for name, values in self.results.items()}, counts


def simulated() -> bool:
    """Return whether Numba's CUDA simulator replaces the GPU."""
    return os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


class Device(Protocol):
    """Interface of a device that solves blocks.

    ``fit`` reduces blocks to the device's own memory and ``open`` makes the slots, once per run; ``submit`` starts a
    block; ``wait`` returns when its results are there (none if ``solves`` was set to False, to time everything else);
    ``stages`` returns the seconds that the device's own clock measured since the last call, by the names of
    `unmix.pipeline.Seconds`; ``close`` releases everything. ``count`` is the number of devices that work in parallel;
    ``path`` returns how pixels are searched, for lines of that many samples: an entry of
    `unmix.solvers.pixels.tile.SEARCH`.
    """

    name: str
    solves: bool

    @property
    def count(self) -> int: ...

    def path(self, problem: Problem, samples: int) -> str: ...
    def fit(self, problem: Problem, line: Line, block_plan: BlockPlan, memory: int) -> BlockPlan: ...
    def open(self, problem: Problem, line: Line, block_plan: BlockPlan) -> list[Slot]: ...
    def submit(self, slot: Slot) -> None: ...
    def wait(self, slot: Slot) -> None: ...
    def stages(self) -> dict[str, float]: ...
    def close(self) -> None: ...


def first_lines(arrays: dict[str, Any], lines: int) -> dict[str, Any]:
    """Return the first lines of each array."""
    return {name: values[:lines] for name, values in arrays.items()}


Allocate = Callable[[Any, Any], np.ndarray]


def new_slots(
    allocate: Allocate, problem: Problem, line: Line, block_plan: BlockPlan, away: Allocate | None = None
) -> list[Slot]:
    """Return the slots of a run; ``allocate(shape, dtype)`` makes arrays, ``away`` those seldom copied back."""
    n, seldom = block_plan.lines_per_block, away or allocate

    def results() -> dict[str, np.ndarray]:
        shapes = line.results(n, problem).items()
        return {name: (allocate if name in line.home else seldom)(shape, kind) for name, (kind, shape) in shapes}

    return [Slot(allocate(n * line.stored_bytes, np.uint8), results()) for _ in range(block_plan.slots)]


def put(
    results: dict[str, np.ndarray],
    solved: np.ndarray,
    answer: Mapping[str, Any],
    residual: np.ndarray,
    length: np.ndarray,
) -> None:
    """Write answers (m, ...) and residuals (m, L) to the results of the m pixels ``solved``, bool (n, samples)."""
    line, sample = np.nonzero(solved)
    results["abundance"][line, :, sample] = answer["abundances"]
    for name in ("rmse", "kappa", "delta", "steps"):
        results[name][solved] = answer[name]
    results["relative"][solved] = np.divide(answer["rmse"], length, out=np.full(len(line), -1.0), where=length > 0)
    if results["residual"].size:
        results["residual"][line, :, sample] = residual


def forget(results: dict[str, np.ndarray], lost: np.ndarray) -> None:
    """Reset the results of some pixels, bool (n, samples), to nodata."""
    line, sample = np.nonzero(lost)
    for name in ("rmse", "kappa", "delta", "steps"):
        results[name][lost] = NODATA
    results["relative"][lost] = -1.0
    results["abundance"][line, :, sample] = NODATA
    if results["residual"].size:
        results["residual"][line, :, sample] = NODATA
