"""Solve pixels that this process holds, as a run solves those of a scene: by the same searches, in blocks."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..blocks import BlockPlan, cores
from ..certificate import MOST_DELTA
from ..devices import Line, Slot, choose_device
from ..library import Endmembers
from ..methods import choose
from ..pipeline import Seconds, stream
from ..problem import Problem, plan_problem
from ..rescue import rescue
from .shown import Shown

# Most pixels of a block.
PIXELS_PER_BLOCK = 16384


@dataclass(frozen=True, repr=False)
class Solution(Shown):
    """Abundances and their certificate, in arrays of the kind of the pixels.

    Attributes
    ----------
    abundances : array (..., p), float64
        For pcls shade is one less their sum.
    rmse : array (...), float64
        ``sqrt(|y − E a|² / L)``.
    kappa, delta : arrays (...), float64
        See `unmix.certificate`; a pixel is certified where κ ≤ 1e-10 and δ ≤ 1e-4, and no abundance is further than δ
        from the optimum.
    steps : array (...), int32
        Columns that entered or left.
    valid : array (...), bool
        False where a band of a pixel was NaN, infinite or masked (but with a weight of 0), all its weights were 0, or
        one was masked; its results are NaN, ``steps`` −1.
    scale : array (...), float64, or None
        The divisor of the abundances, with ``normalize``; ``abundances`` and ``delta`` are those of fractions then.
    smooth : tensor (...), bool, or None
        Where torch records: the pixels whose abundances have derivatives.
    """

    abundances: np.ndarray
    rmse: np.ndarray
    kappa: np.ndarray
    delta: np.ndarray
    steps: np.ndarray
    valid: np.ndarray
    scale: np.ndarray | None = None
    smooth: Any = None


def numbered(E: np.ndarray) -> Endmembers:
    """Return endmembers (L, p) that are named by their numbers."""
    return Endmembers(tuple(f"endmember {j + 1}" for j in range(E.shape[1])), E, None, source="E")


def solved(A: np.ndarray, Y: np.ndarray, method: str, threads: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the exact mixtures (n, p) of spectra A (L, p) in pixels (n, L), and the lengths (n,) of residuals."""
    # The search of a run, which is compiled anyway: the batches of `unmix.nnls` take 15 s of compiling more.
    problem = plan_problem(numbered(np.ascontiguousarray(A)), *choose(method), warns=False)
    x = solve_pixels(np.ascontiguousarray(Y), problem, A.shape[1], "cpu", threads).abundances
    return x, np.linalg.norm(Y - x @ A.T, axis=1)


def solve_pixels(Y: np.ndarray, problem: Problem, p: int, device: str, threads: int | None) -> Solution:
    """Solve pixels (..., L) for the first p abundances of a problem."""
    L = Y.shape[-1]
    pixels = Y.reshape(-1, L)
    chunk = min(max(1, len(pixels)), PIXELS_PER_BLOCK)
    line = Line(chunk, chunk * L * Y.dtype.itemsize, real=np.float64, dtype=Y.dtype, in_scene=False)
    answers = {name: np.empty(len(pixels)) for name in ("rmse", "kappa", "delta")}
    answers |= {"steps": np.empty(len(pixels), np.int32), "state": np.empty(len(pixels), np.uint8)}
    answers["abundance"] = np.empty((len(pixels), problem.E.shape[1]))

    def read(slot: Slot, which: slice) -> None:
        part = pixels[which.start * chunk : (which.start + 1) * chunk]
        raw = slot.buffer.view(Y.dtype).reshape(1, chunk, L)
        raw[0, : len(part)] = part
        raw[0, len(part) :] = 0
        slot.hold(which, raw)

    def finish(slot: Slot) -> None:
        assert slot.results is not None and slot.raw is not None
        if problem.is_rescued:
            rescue(problem, slot.raw, slot.results, MOST_DELTA, threads or cores())
        first = slot.lines.start * chunk
        for name, values in answers.items():
            part = values[first : first + chunk]
            part[:] = slot.results[name][0].T[: len(part)]

    machine = choose_device(device, threads)
    try:
        blocks = -(-len(pixels) // chunk)
        block_plan = BlockPlan(blocks, 1, min(2, max(1, blocks)))
        slots = machine.open(problem, line, block_plan)
        if blocks == 1:  # nothing overlaps: without the threads of a stream 1000 pixels of 9 bands take 2 ms for 4
            read(slots[0], slice(0, 1))
            machine.submit(slots[0])
            machine.wait(slots[0])
            finish(slots[0])
        else:
            stream(block_plan, slots, read, machine, finish, Seconds())
    finally:
        machine.close()
    shape, unsolved = Y.shape[:-1], answers.pop("state") != 0
    for values in answers.values() if unsolved.any() else ():
        values[unsolved] = np.nan if values.dtype.kind == "f" else -1
    abundance = answers.pop("abundance")
    planes = {name: values.reshape(shape) for name, values in answers.items()}
    return Solution(abundance[:, :p].reshape(*shape, p), valid=~unsolved.reshape(shape), **planes)
