"""Search for the abundances of a whole scene with a spatial prior, strip by strip, until the duality gap is proved.

The arrays of a scene in a search for abundances with a spatial prior, and the costs of differences between neighbours.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...blocks import cores
from ...certificate import UNIT_ROUNDOFF
from ...errors import CubeError, MethodError
from ...methods import LARGEST_THRESHOLD
from ...problem.factors import gram_matrix
from ...solvers.spatial.lines import LASTING, CpuSweeps, PassStep
from ...solvers.spatial.pixel import PixelProgramme
from ..gpu import gpu_of, guarded

# The ratio of the Gram matrix's eigenvalues, for columns of length 1, up to which spectra may depend on each other.
DEPENDENT_RATIO = 1e-9


@dataclass(frozen=True)
class Prior:
    """The cost of a difference between the abundances of neighbours.

    Attributes
    ----------
    kind : {"tv", "laplacian"}
        ``λ |a_i − a_j|`` or ``½ λ (a_i − a_j)²``, added up over endmembers and pairs of neighbours.
    weight : float
        λ.
    """

    kind: str
    weight: float

    @property
    def smooth(self) -> bool:
        """Whether differences cost their squares."""
        return self.kind == "laplacian"


def prior_of(tv: float | None = None, laplacian: float | None = None) -> Prior:
    """Return the prior of which one weight is given; `MethodError` if there are both or none, or it is out of range."""
    if (tv is None) == (laplacian is None):
        raise MethodError("name one of `tv` and `laplacian`")
    name, weight = ("laplacian", laplacian) if tv is None else ("tv", tv)
    assert weight is not None
    if not 0 < weight < LARGEST_THRESHOLD:
        raise MethodError(f"`{name}` {weight:g}: must be above 0, and below {LARGEST_THRESHOLD:g}")
    return Prior(name, float(weight))


@dataclass
class Field:
    """The arrays of a scene that outlast a pass, as `unmix.solvers.spatial.lines.Strip` has them; in memory or in a file.

    Attributes
    ----------
    arrays : dict
        By the names of `LASTING`.
    half_squares : float
        ``½ Σ |y|²``.
    """

    arrays: dict[str, np.ndarray]
    half_squares: float = 0.0

    @staticmethod
    def layout(lines: int, samples: int, p: int, q: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of each array."""
        pixels, all_, edges = (lines, samples), (lines, p, samples), (lines, q, samples)
        shapes = (all_, pixels, pixels, pixels, all_, edges, edges, all_, all_)
        return dict(zip(LASTING, shapes))

    @classmethod
    def in_memory(cls, lines: int, samples: int, p: int, q: int) -> "Field":
        """Return a field of zeros."""
        return cls({name: np.zeros(shape) for name, shape in cls.layout(lines, samples, p, q).items()})

    def fill(self, first: int, Y: np.ndarray, valid: np.ndarray, E: np.ndarray, l1: np.ndarray | float) -> None:
        """Take pixels of some lines, (n, S, L), of which ``valid`` (n, S) have values in all bands."""
        n = len(Y)
        near = np.where(valid[..., None], Y, 0.0)
        F = near @ E - l1 * valid[..., None]
        self.arrays["F"][first : first + n] = F.transpose(0, 2, 1)
        with np.errstate(over="ignore"):  # which a search refuses
            squares = np.square(near).sum(axis=2)
        self.arrays["lengths"][first : first + n] = np.where(valid, np.sqrt(squares), -1.0)
        self.half_squares += 0.5 * float(squares.sum())

    def is_finite(self) -> bool:
        """Return whether a search may go on from the iterate."""
        return all(bool(np.isfinite(line).all()) for name in ("a", "W", "U", "V", "x") for line in self.arrays[name])

    def rounding(self, plan: PixelProgramme) -> float:
        """Return what no gap is below, for rounding, where abundances are about as they are."""
        sizes = (plan.lengths @ np.abs(a) * (y >= 0) for a, y in zip(self.arrays["a"], self.arrays["lengths"]))
        longest = float(plan.lengths.max()) if plan.sum_to_one else 0.0
        return (
            ROUNDINGS_OF_GAP
            * plan.roundings
            * math.fsum(float(one @ np.maximum(2 * one, one + longest)) for one in sizes)
        )

    def begin(self, plan: PixelProgramme) -> None:
        """Set the iterate to the abundances without the prior, which ``x`` holds, and to the duals of their nonnegativity."""
        for F, a, x, V in zip(*(self.arrays[name] for name in ("F", "a", "x", "V"))):
            a[:] = x
            slope = F - plan.gram @ a
            V[:] = np.minimum(slope - slope.max(axis=0) if plan.sum_to_one else slope, 0.0)

    def connect(self, cost: float, across: np.ndarray | float = 1.0, down: np.ndarray | float = 1.0) -> None:
        """Set the costs of edges, where both pixels have values; ``across`` and ``down`` (lines, S) are their weights."""
        there = self.arrays["lengths"] >= 0
        self.arrays["across"][:, :-1] = (
            cost * (there[:, 1:] & there[:, :-1]) * np.broadcast_to(across, there.shape)[:, :-1]
        )
        self.arrays["W"][..., -1], self.arrays["U"][-1] = 0.0, 0.0  # no step changes these
        self.arrays["down"][:-1] = cost * (there[1:] & there[:-1]) * np.broadcast_to(down, there.shape)[:-1]


def feasible(a: np.ndarray, sum_to_one: bool) -> np.ndarray:
    """Return abundances (lines, p, S) of an iterate: its positive parts, divided by their sum if they must sum to one."""
    A = np.maximum(a, 0.0)
    return A / A.sum(axis=1, keepdims=True) if sum_to_one else A


def programme_of(E: np.ndarray, sum_to_one: bool) -> PixelProgramme:
    """Return what the programmes of all pixels share; `MethodError` if no bound exists, since some mixture of spectra is zero."""
    gram = gram_matrix(E)
    G = gram + float(np.mean(np.diag(gram))) if sum_to_one else gram
    L, p = E.shape
    ray = np.ones(p)
    if not sum_to_one and (gram @ ray).min() <= 0:
        ray = np.linalg.lstsq(gram, np.ones(p), rcond=1e-10)[0]
    duals = gram @ ray
    if not sum_to_one and not duals.min() > 0:
        raise MethodError(
            "some mixture of the endmembers is zero, so that no cost is bounded from below: leave spectra out, or use fcls"
        )
    roundings = UNIT_ROUNDOFF * (L + 2.0 * p + 10.0)
    lengths = np.sqrt(np.diag(gram))
    size = np.sqrt(np.diag(G))
    values = np.linalg.eigvalsh(G / np.multiply.outer(size, size)) if size.all() else np.zeros(1)
    dependent = bool(values[0] <= DEPENDENT_RATIO * values[-1])
    return PixelProgramme(G, gram, size, 1e-12, sum_to_one, lengths, ray, duals, dependent, roundings)


log = logging.getLogger("unmix")

# The duality gap, relative to the cost, at which the search ends; and at which it gives up proving more.
PROVEN = 1e-6
MOST_STEPS = 20_000
# Steps of a pass, after which the iterate is the new anchor and the weight of duals against abundances is set anew: a share of those
# made before, a multiple of 16, within these limits. A strip needs the largest number, and one, of lines more on either side.
FEWEST_STEPS_OF_PASS, MOST_STEPS_OF_PASS, SHARE_OF_PASS = 32, 128, 1 / 16
# Share of a pass in the weight's logarithm.
WEIGHT_OF_PASS = 0.4
# The share of ``½ Σ |y|²`` below which a cost is rounding: maps of float32 change residuals by 1e-7 of the pixels.
SMALLEST_COST = 1e-8
# A cost is ``½ Σ |y|²`` less terms of that size, each with up to so many times the rounding of an entry of ``Eᵀy``.
ROUNDINGS_OF_COST = 8.0
# A gap pays for the rounding of each dual, three terms, and again for the largest where the bound is made feasible.
ROUNDINGS_OF_GAP = 4.0
# The gap is measured after the first pass, and when there are this times more steps than at the last time.
MEASURED_AGAIN = 1.2
# |∇|² ≤ 8 in two dimensions, and 1 for the nonnegativity.
NORM = 3.0


@dataclass(frozen=True)
class Spatial:
    """Abundances of the least cost ``½ Σ|y − E a|² + l1 Σa + λ Σ|a_i − a_j|``, or with half of the squares of differences.

    Attributes
    ----------
    kind : str
    weight : float
        λ.
    objective : float
        The cost.
    gap : float
        The largest share of the objective by which it may be above the optimum, rounding included; 1 where all of it may be.
    steps : int
    proved : bool
        Whether the search came to the gap that was asked for, as a share of the objective or of 1e-8 of ``½ Σ|y|²``, if that is more,
        or of 1e6 roundings: without noise hardly any cost is left, and the last of it is rounding.
    abundances : array (lines, samples, p), float64
        −9999 where a pixel has no value in some band; empty for a scene on disk.
    """

    kind: str
    weight: float
    objective: float
    gap: float
    steps: int
    proved: bool
    abundances: np.ndarray = field(default_factory=lambda: np.empty(0))


class System:
    """The linear system of a step, for any weight of duals against abundances."""

    def __init__(self, gram: np.ndarray, sum_to_one: bool) -> None:
        self.values, self.vectors = np.linalg.eigh(gram)
        self.sum_to_one = sum_to_one

    def steps(self, weight: float, smooth: bool, before: int = 0) -> list[PassStep]:
        """Return the steps of a pass; ``before`` is the number of those that were made."""
        count = min(max(FEWEST_STEPS_OF_PASS, int(before * SHARE_OF_PASS) // 16 * 16), MOST_STEPS_OF_PASS)
        tau, sigma = 1.0 / (NORM * weight), weight / NORM
        N = (self.vectors / (np.maximum(self.values, 0.0) + 1.0 / tau)) @ self.vectors.T
        offset = np.zeros(len(N))
        if self.sum_to_one:  # on which N projects
            row = N.sum(axis=1)
            N, offset = N - np.multiply.outer(row, row) / row.sum(), row / row.sum()
        anchors = [1.0 / (k + 2.0) for k in range(count - 1)] + [-1.0]
        return [PassStep(np.ascontiguousarray(N), offset, tau, sigma, anchor, smooth) for anchor in anchors]


@dataclass
class PassTotals:
    """Sums over the lines of a pass."""

    costs: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    moved: list[np.ndarray] = field(default_factory=list)


def search(
    values: Field, E: np.ndarray, prior: Prior, sum_to_one: bool, *, proven: float = PROVEN, most: int = MOST_STEPS,
    budget: int | None = None, device: str = "cpu", threads: int | None = None,
    said: Callable[[int, float, float], None] | None = None, start: bool = True,
) -> Spatial:  # fmt: skip
    """Search from the field's iterate until the gap is proved; the field then has the abundances, as `feasible` makes them.

    Parameters
    ----------
    values : Field
        Its correlations and edges are known.
    E : array (L, p), float64
    prior : Prior
    sum_to_one : bool
    proven, most
        The gap and the number of steps at which the search ends.
    budget : int, optional
        Bytes for the arrays of a strip; None is all lines at once.
    device, threads
        See `spatial`.
    said : callable, optional
        Is told steps, objective and gap each time that they are measured.
    start : bool
        Whether to begin at the abundances without the prior; else at the iterate.
    """
    if not math.isfinite(values.half_squares):
        raise CubeError("the pixels are so bright that the sum of their squares is no number: divide them (`scale`)")
    plan, gpu = programme_of(E, sum_to_one), gpu_of(device)
    system = System(plan.gram, sum_to_one)
    with guarded(gpu), closing(sweeps_of(gpu, threads)) as sweeps:
        passes = ScenePasses(values, sweeps, plan, prior.smooth, budget)
        objective, gap, share, steps, due = np.inf, np.inf, np.inf, 0, 0.0
        weight = 1.0
        if start:
            passes.run([], True)
            passes.bring_back()
            values.begin(plan)
            passes.forget()
        smallest = max(SMALLEST_COST * values.half_squares, values.rounding(plan) / PROVEN)
        costs = math.fsum(float(np.square(values.arrays[one]).sum()) for one in ("across", "down"))
        size = float(np.sqrt(np.square(values.arrays["a"]).sum()))
        if costs > 0 and size > 0:
            weight = 0.5 * math.sqrt(costs * values.arrays["W"].shape[1]) / size
        while share > proven and steps < most:
            of_pass = system.steps(weight, prior.smooth, steps)
            steps += len(of_pass)
            measured = steps >= min(due, most)
            totals = passes.run(of_pass, measured)
            near, far = (math.fsum(column) for column in np.concatenate(totals.moved).T)
            if near > 0 and far > 0:
                weight = math.exp((1 - WEIGHT_OF_PASS) * math.log(weight) + WEIGHT_OF_PASS * 0.5 * math.log(far / near))
            if measured:
                objective = math.fsum([values.half_squares, *totals.costs])
                above, rounding = math.fsum(totals.gaps), ROUNDINGS_OF_COST * plan.roundings * values.half_squares
                objective, gap, share = cost_and_gap(objective, above, smallest, rounding)
                due = steps * MEASURED_AGAIN
                if said is not None:
                    said(steps, objective, gap)
        passes.bring_back()
    return Spatial(prior.kind, prior.weight, objective, gap, steps, share <= proven)


def cost_and_gap(objective: float, above: float, smallest: float, rounding: float) -> tuple[float, float, float]:
    """Return the cost, the gap as a share of it, and as one of ``smallest``, below which a cost is rounding, if that is more.

    The cost is known to within ``rounding``; none is below 0.
    """
    if not (math.isfinite(objective) and math.isfinite(above)):
        return objective, math.inf, math.inf
    least, size = objective - rounding, max(objective, smallest)
    gap = above / least if least > above else 0.0 if above == 0 else 1.0
    return max(objective, 0.0), gap, above / size if size > 0 else 0.0 if above == 0 else math.inf


def warn_of_gap(found: Spatial, source: object, proven: float = PROVEN) -> None:
    """Log a warning where the search ended before the duality gap was ``proven``."""
    if not found.proved:
        log.warning(
            f"{source}: `{found.kind}` {found.weight:g} is not at its optimum: after {found.steps} steps the duality gap is "
            f"{found.gap:.1e} of the cost, and not {proven:g}"
        )


def sweeps_of(gpu: Any, threads: int | None) -> Any:
    """Return what runs the passes: of this CPU, or of a GPU."""
    if gpu is None:
        return CpuSweeps(threads or cores())
    from ...solvers.spatial.cuda import CudaSweeps

    return CudaSweeps()


class ScenePasses:
    """Runs passes over strips of lines; the iterates are the same for all strips.

    A strip begins and ends `MOST_STEPS_OF_PASS` + 1 lines beyond those that it is for: what is wrong beyond it reaches a line
    farther with each step.

    Parameters
    ----------
    values : Field
    sweeps : CpuSweeps or CudaSweeps
    plan : Programme
    smooth : bool
    budget : int or None
    """

    def __init__(self, values: Field, sweeps: Any, plan: PixelProgramme, smooth: bool, budget: int | None) -> None:
        self.values, self.sweeps, self.plan, self.smooth = values, sweeps, plan, smooth
        arrays, self.halo = values.arrays, MOST_STEPS_OF_PASS + 1
        self.lines = len(arrays["F"])
        scratch = 8 * (4 * arrays["a"][0].size + 2 * arrays["W"][0].size)
        self.line_bytes = sum(array[0].nbytes for array in arrays.values()) + scratch
        room = sweeps.room(budget)
        rows = self.lines if room is None else int(room // self.line_bytes)
        self.rows = self.lines if rows >= self.lines else max(1, rows - 2 * self.halo)
        self.held: Any = None

    def run(self, steps: list[PassStep], measured: bool) -> PassTotals:
        """Make a pass over all lines, and add up what is asked for."""
        totals = PassTotals()
        if self.rows >= self.lines:
            if self.held is None:
                self.held = self.sweeps.hold(self.values.arrays)
            self.work(self.held, steps, measured, slice(0, self.lines), totals)
            return totals
        # New values of lines that strips to come still need as they were.
        waiting: deque[tuple[slice, Mapping[str, np.ndarray]]] = deque()
        for first in range(0, self.lines, self.rows):
            stop = min(first + self.rows, self.lines)
            begin, end = max(0, first - self.halo), min(self.lines, stop + self.halo)
            part = {name: array[begin:end].copy() for name, array in self.values.arrays.items()}
            while waiting and waiting[0][0].stop <= begin:
                self.store(*waiting.popleft())
            own = slice(first - begin, stop - begin)
            strip = self.sweeps.hold(part)
            self.work(strip, steps, measured, own, totals)
            self.sweeps.release(strip, part)
            waiting.append((slice(first, stop), {name: part[name][own].copy() for name in ("a", "W", "U", "V", "x")}))
        while waiting:
            self.store(*waiting.popleft())
        return totals

    def work(self, strip: Any, steps: list[PassStep], measured: bool, own: slice, totals: PassTotals) -> None:
        """Make the steps on a strip, and add up those lines that are its own."""
        if steps:
            self.sweeps.iterate(strip, steps)
            totals.moved.append(self.sweeps.moved(strip)[own])
        if measured:
            costs, gaps = self.sweeps.measure(strip, self.plan, self.smooth)
            totals.costs += costs[own].tolist()
            totals.gaps += gaps[own].tolist()

    def store(self, lines: slice, part: Mapping[str, np.ndarray]) -> None:
        """Write lines of a strip to the field."""
        for name, array in part.items():
            self.values.arrays[name][lines] = array

    def bring_back(self) -> None:
        """Bring the field up to date with the strip that is held."""
        if self.held is not None:
            self.sweeps.release(self.held, self.values.arrays)

    def forget(self) -> None:
        """Let the next pass begin at the field's iterate."""
        self.held = None
