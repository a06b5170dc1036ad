"""Passes of the search over lines of a scene, by threads of the CPU."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from .lines import Step, Strip, charge_lines, measure_lines, move_lines, moved_lines
from .pixel import Programme, Scratch

# The arrays of a `Strip` that outlast a pass; the others are scratch.
LASTING = ("F", "lengths", "across", "down", "a", "W", "U", "V", "x")
# Tasks for each thread: enough that none waits long for the last one.
TASKS_PER_THREAD = 4


def scratch_of(p: int) -> Scratch:
    """Allocate the scratch of one pixel."""
    vectors = (np.zeros(p) for _ in range(5))
    return Scratch(*vectors, np.zeros((p, p)), *(np.zeros(p, np.int64) for _ in range(2)))


def scratch_arrays(lasting: Mapping[str, Any], like: Callable[[Any], Any]) -> dict[str, Any]:
    """Allocate the scratch of a strip with these arrays; ``like`` makes an array as another."""
    return {"ahead": like(lasting["a"])} | {f"{name}0": like(lasting[name]) for name in "aWUV"}


class CpuSweeps:
    """Runs passes on strips in the memory of this machine.

    Parameters
    ----------
    threads : int
    """

    def __init__(self, threads: int) -> None:
        self.threads, self.pool = threads, ThreadPoolExecutor(threads, "spatial")
        self.scratch: dict[str, Any] = {}

    def room(self, budget: int | None) -> int | None:
        """Return the bytes that a strip may take, None where all lines may be held."""
        return budget

    def each(self, work: Callable[..., None], lines: int, *arguments: Any) -> None:
        """Call ``work(first, stop, …)`` for parts of the lines, and wait for all."""
        count = min(lines, TASKS_PER_THREAD * self.threads)
        ends = [lines * k // count for k in range(count + 1)]
        for task in [self.pool.submit(work, first, stop, *arguments) for first, stop in pairwise(ends)]:
            task.result()

    def hold(self, lasting: Mapping[str, np.ndarray]) -> Strip:
        """Return the strip of these arrays, which it changes in place."""
        if not self.scratch or self.scratch["ahead"].shape != lasting["a"].shape:
            self.scratch = scratch_arrays(lasting, np.empty_like)
        return Strip(**{name: np.asarray(lasting[name]) for name in LASTING}, **self.scratch)

    def release(self, strip: Strip, lasting: Mapping[str, np.ndarray]) -> None:
        """Bring the arrays up to date; here they are."""

    def iterate(self, strip: Strip, steps: Sequence[Step]) -> None:
        """Make the steps of a pass."""
        n, p, S = strip.F.shape
        for name in "aWUV":
            np.copyto(getattr(strip, f"{name}0"), getattr(strip, name))

        def move(first: int, stop: int, step: Step) -> None:
            move_lines(first, stop, strip, step, np.empty((p, S)))

        for step in steps:
            self.each(move, n, step)
            self.each(charge_lines, n, strip, step)

    def measure(self, strip: Strip, plan: Programme, smooth: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the cost, less ``½ |y|²``, and the duality gap of each line, (n,) each."""
        n, p, _ = strip.F.shape
        costs, gaps = np.empty(n), np.empty(n)

        def measure(first: int, stop: int) -> None:
            measure_lines(first, stop, plan, strip, smooth, scratch_of(p), np.empty(p), costs, gaps)

        self.each(measure, n)
        return costs, gaps

    def moved(self, strip: Strip) -> np.ndarray:
        """Return the squares of how far each line's abundances and duals are from where the pass began, (n, 2)."""
        moved = np.empty((len(strip.F), 2))
        self.each(moved_lines, len(moved), strip, moved)
        return moved

    def close(self) -> None:
        """Stop the threads."""
        self.pool.shutdown()
        self.scratch = {}
