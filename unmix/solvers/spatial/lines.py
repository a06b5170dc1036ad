"""Steps of the search for abundances with a spatial prior, on lines of a scene: the primal-dual hybrid gradient, Halpern-anchored.

The cost is ``Σ ½ |y − Ea|² + l1 Σa + Σ_e φ_e(a_i − a_j)`` over a ≥ 0 (and Σa = 1), e the pairs of neighbours. It is the saddle point of
``½ |y − Ea|² + ⟨W, ∇a⟩ + ⟨V, a⟩`` over all a (with Σa = 1), W in the domain of the conjugates of φ and V ≤ 0. A step solves one linear
system of p unknowns for each pixel, with the same matrix N, and clips (Chambolle and Pock 2011). Each pass reflects its steps and
draws them back to where it began, less and less (Lu and Yang 2024).

Arrays are (lines, p, samples), float64. An edge belongs to the pixel on its left, or above it.

Passes of the search over lines of a scene, by threads of the CPU.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ...compiled.jit import compiled
from .pixel import PixelProgramme, PixelScratch, gap_of_pixel, settle


class Strip(NamedTuple):
    """Lines of a scene, with all that a pass changes; q of the p endmembers have edges."""

    F: Any  # (n, p, S) Eᵀy, less l1
    lengths: Any  # (n, S) |y|; below 0 for a pixel without values
    across: Any  # (n, S) cost of a difference from the pixel on the right, 0 where there is none
    down: Any  # (n, S) of that from the pixel below
    a: Any  # (n, p, S)
    W: Any  # (n, q, S) duals of edges to the right
    U: Any  # (n, q, S) of edges down
    V: Any  # (n, p, S) duals of a ≥ 0
    x: Any  # (n, p, S) the programme's optima of the last measurement, where the next begins
    ahead: Any  # (n, p, S) 2 a⁺ − a, a⁺ the abundances of a step
    a0: Any  # (n, p, S), with the next three: where the pass began
    W0: Any
    U0: Any
    V0: Any


class PassStep(NamedTuple):
    """Numbers of one step."""

    N: Any  # (p, p)
    offset: Any  # (p,) added to all abundances: that of Σa = 1
    tau: float
    sigma: float
    anchor: float  # share of where the pass began, in the next iterate; below 0: the step is taken as it is, and is the pass's last
    smooth: bool  # whether φ is ``½ c (a_i − a_j)²``; else it is ``c |a_i − a_j|``


@compiled
def charge(W, U, line, j, sample, others_above):
    """Return what the edges of a pixel charge for endmember j: ``(∇ᵀW)_j``; edges from above count if ``others_above``."""
    total = -W[line, j, sample] - U[line, j, sample]
    if sample > 0:
        total += W[line, j, sample - 1]
    if others_above:
        total += U[line - 1, j, sample]
    return total


@compiled
def move_lines(first, stop, strip, step, right):
    """Compute ``ahead`` for lines ``first`` to ``stop``; ``right`` (p, S) is scratch."""
    p, S = right.shape
    q = strip.W.shape[1]
    each = 1.0 / step.tau
    for line in range(first, stop):
        F, V, a, ahead = strip.F[line], strip.V[line], strip.a[line], strip.ahead[line]
        for j in range(p):
            for s in range(S):
                right[j, s] = F[j, s] - V[j, s] + each * a[j, s]
            if j < q:
                W, U = strip.W[line, j], strip.U[line, j]
                for s in range(S):
                    right[j, s] += W[s] + U[s]
                for s in range(1, S):
                    right[j, s] -= W[s - 1]
                if line > 0:
                    above = strip.U[line - 1, j]
                    for s in range(S):
                        right[j, s] -= above[s]
        for j in range(p):
            out, offset = ahead[j], 2.0 * step.offset[j]
            for s in range(S):
                out[s] = offset - a[j, s]
            i = 0
            while i + 4 <= p:
                m0, m1, m2, m3 = (
                    2.0 * step.N[j, i],
                    2.0 * step.N[j, i + 1],
                    2.0 * step.N[j, i + 2],
                    2.0 * step.N[j, i + 3],
                )
                r0, r1, r2, r3 = right[i], right[i + 1], right[i + 2], right[i + 3]
                for s in range(S):
                    out[s] += m0 * r0[s] + m1 * r1[s] + m2 * r2[s] + m3 * r3[s]
                i += 4
            for rest in range(i, p):
                m, r = 2.0 * step.N[j, rest], right[rest]
                for s in range(S):
                    out[s] += m * r[s]


@compiled
def next_dual(value, slope, cost, step):
    """Return the dual of an edge after a step along ``slope``."""
    moved = value + step.sigma * slope
    if step.smooth:
        return moved * cost / (cost + step.sigma) if cost > 0.0 else 0.0
    return min(max(moved, -cost), cost)


@compiled
def anchored(old, new, origin, step):
    """Return the next iterate of a dual: the reflected step, drawn back to where the pass began."""
    if step.anchor < 0.0:
        return new
    return (1.0 - step.anchor) * (2.0 * new - old) + step.anchor * origin


@compiled
def next_abundance(old, ahead, origin, step):
    """Return the next iterate of an abundance, as `anchored` of a dual; ``ahead`` is the reflected step."""
    if step.anchor < 0.0:
        return 0.5 * (old + ahead)
    return (1.0 - step.anchor) * ahead + step.anchor * origin


@compiled
def charge_lines(first, stop, strip, step):
    """Step the duals and set the next abundances of lines ``first`` to ``stop``, from ``ahead``."""
    n, p, S = strip.F.shape
    q = strip.W.shape[1]
    for line in range(first, stop):
        for j in range(p):
            a, ahead, a0 = strip.a[line, j], strip.ahead[line, j], strip.a0[line, j]
            V, V0 = strip.V[line, j], strip.V0[line, j]
            for s in range(S):
                V[s] = anchored(V[s], min(V[s] + step.sigma * ahead[s], 0.0), V0[s], step)
            for s in range(S):
                a[s] = next_abundance(a[s], ahead[s], a0[s], step)
            if j < q:
                W, W0, across = strip.W[line, j], strip.W0[line, j], strip.across[line]
                for s in range(S - 1):
                    W[s] = anchored(W[s], next_dual(W[s], ahead[s + 1] - ahead[s], across[s], step), W0[s], step)
                if line + 1 < n:
                    U, U0, down, below = strip.U[line, j], strip.U0[line, j], strip.down[line], strip.ahead[line + 1, j]
                    for s in range(S):
                        U[s] = anchored(U[s], next_dual(U[s], below[s] - ahead[s], down[s], step), U0[s], step)


@compiled
def share_of(a, sum_to_one):
    """Return the factor that makes the positive parts of a pixel's iterate feasible."""
    if not sum_to_one:
        return 1.0
    total = 0.0
    for j in range(a.shape[0]):
        total += max(a[j], 0.0)
    return 1.0 / total if total > 0.0 else 0.0


@compiled
def edge_cost(difference, cost, smooth):
    """Return φ of a difference."""
    return 0.5 * cost * difference * difference if smooth else cost * abs(difference)


@compiled
def edge_gap(difference, dual, cost, smooth):
    """Return what φ of a difference and the conjugate of φ of its dual exceed their product by."""
    if cost <= 0.0:
        return 0.0
    if smooth:
        return 0.5 * (cost * difference - dual) ** 2 / cost
    return cost * abs(difference) - dual * difference


@compiled
def measure_pixel(plan, strip, line, s, smooth, k, work, feasible):
    """Return a pixel's cost less ``½ |y|²``, its share of the gap, and the size of its support for the next pixel.

    ``feasible`` (p,) is scratch. The edges to the right and down are the pixel's.
    """
    n, p, S = strip.F.shape
    q = strip.W.shape[1]
    a = strip.a[line, :, s]
    factor = share_of(a, plan.sum_to_one)
    cost, gap, total = 0.0, 0.0, 0.0
    for j in range(p):
        feasible[j] = factor * max(a[j], 0.0)
        work.a[j] = strip.x[line, j, s]
        total += work.a[j]
    right = share_of(strip.a[line, :, s + 1], plan.sum_to_one) if s + 1 < S else 0.0
    below = share_of(strip.a[line + 1, :, s], plan.sum_to_one) if line + 1 < n else 0.0
    for j in range(q):
        if s + 1 < S:
            step = right * max(strip.a[line, j, s + 1], 0.0) - feasible[j]
            cost += edge_cost(step, strip.across[line, s], smooth)
            gap += edge_gap(step, strip.W[line, j, s], strip.across[line, s], smooth)
        if line + 1 < n:
            step = below * max(strip.a[line + 1, j, s], 0.0) - feasible[j]
            cost += edge_cost(step, strip.down[line, s], smooth)
            gap += edge_gap(step, strip.U[line, j, s], strip.down[line, s], smooth)
    scale = strip.lengths[line, s]
    if scale < 0.0:
        return cost, gap, k
    lift = plan.G[0, 0] - plan.gram[0, 0]
    for j in range(p):
        h = strip.F[line, j, s] + lift
        work.f[j] = h - charge(strip.W, strip.U, line, j, s, line > 0) if j < q else h
        work.a[j] = work.a[j] / total if plan.sum_to_one and total > 0.0 else work.a[j]
        fitted = 0.0
        for i in range(p):
            fitted += plan.gram[j, i] * feasible[i]
        cost += feasible[j] * (0.5 * fitted - strip.F[line, j, s])
    k = settle(plan, work, k, scale)
    for j in range(p):
        strip.x[line, j, s] = work.a[j]
        work.f[j] -= lift
    return cost, gap + gap_of_pixel(plan, work.f, work.a, feasible, scale), k


@compiled
def measure_lines(first, stop, plan, strip, smooth, work, feasible, costs, gaps):
    """Add up costs, less ``½ |y|²``, and gaps of lines ``first`` to ``stop`` in ``costs`` and ``gaps``, (n,)."""
    for line in range(first, stop):
        k, cost, gap = 0, 0.0, 0.0
        for s in range(strip.F.shape[2]):
            of_pixel, above, k = measure_pixel(plan, strip, line, s, smooth, k, work, feasible)
            cost += of_pixel
            gap += above
        costs[line] = cost
        gaps[line] = gap


@compiled
def moved_of(strip, line, j, s):
    """Return the squares of how far an abundance, and the duals of its pixel and edges, are from where the pass began."""
    far = (strip.V[line, j, s] - strip.V0[line, j, s]) ** 2
    if j < strip.W.shape[1]:
        far += (strip.W[line, j, s] - strip.W0[line, j, s]) ** 2
        far += (strip.U[line, j, s] - strip.U0[line, j, s]) ** 2
    return (strip.a[line, j, s] - strip.a0[line, j, s]) ** 2, far


@compiled
def moved_lines(first, stop, strip, moved):
    """Add up in ``moved`` (n, 2) the squares of how far a, and the duals, of some lines are from where the pass began."""
    _, p, S = strip.F.shape
    for line in range(first, stop):
        near, far = 0.0, 0.0
        for j in range(p):
            for s in range(S):
                of_abundance, of_duals = moved_of(strip, line, j, s)
                near += of_abundance
                far += of_duals
        moved[line, 0] = near
        moved[line, 1] = far


# The arrays of a `Strip` that outlast a pass; the others are scratch.
LASTING = ("F", "lengths", "across", "down", "a", "W", "U", "V", "x")
# Tasks for each thread: enough that none waits long for the last one.
TASKS_PER_THREAD = 4


def scratch_of(p: int) -> PixelScratch:
    """Allocate the scratch of one pixel."""
    vectors = (np.zeros(p) for _ in range(5))
    return PixelScratch(*vectors, np.zeros((p, p)), *(np.zeros(p, np.int64) for _ in range(2)))


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

    def iterate(self, strip: Strip, steps: Sequence[PassStep]) -> None:
        """Make the steps of a pass."""
        n, p, S = strip.F.shape
        for name in "aWUV":
            np.copyto(getattr(strip, f"{name}0"), getattr(strip, name))

        def move(first: int, stop: int, step: PassStep) -> None:
            move_lines(first, stop, strip, step, np.empty((p, S)))

        for step in steps:
            self.each(move, n, step)
            self.each(charge_lines, n, strip, step)

    def measure(self, strip: Strip, plan: PixelProgramme, smooth: bool) -> tuple[np.ndarray, np.ndarray]:
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
