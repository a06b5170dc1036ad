"""The proof: how far each pixel is from its optimum, from the pixel, the endmembers and the abundances alone.

Nothing here knows how the abundances were found. κ is the largest violation of the optimality conditions, relative to
the sizes of what it is made of; δ bounds the distance of the abundances from the optimum.
"""

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .solvers.jit import allocating, compiled
from .solvers.lanes import Width

# What a pixel is; `gather` decides.
SOLVED, PARTLY, MASKED = 0, 1, 2
# Places that a report names.
MOST_FAILURES = 100
# Up to here a pixel is certified. Solvers reach 1e-14; 1e-6 lets wrong supports through with abundances off by 1e-2.
CERTIFIED = 1e-10
# A pixel is solved again, too, where its abundances may be this far from the optimum, whatever κ says: near to
# collinear endmembers hide large errors behind a small κ.
FARTHEST = 1e-6


@functools.cache
def certify_function(ops: Width) -> Any:
    """``certify``, which certifies a tile: it fills rmse, kappa and delta.

    With residual ``r = y − E a`` and dual ``w = Eᵀr``: ``λ = aᵀw / Σa`` for the sum to one, else 0; ``v_j = w_j − λ``,
    where a_j = 0 under a ≥ 0 only its positive part. ``κ = max_j |v_j| / (|e_j| s)``, with ``s = |y|``, for the sum
    to one at least the longest endmember; and no less than max(−a_j) and |Σa − 1| where these are constrained.
    ``δ = |v|₂ / σ_min(E)²``: f is σ²-strongly convex, hence ``σ²|a − a*|² ≤ vᵀ(a* − a)``.

    Parameters
    ----------
    ops : Width
        How many pixels stand side by side, ``width``; what follows are the arguments of ``certify``, in order.
    E : array (L, p), float64
        Endmembers, in the units of Y.
    norms : array (p,), float64
        |e_j|.
    curvature : float
        σ_min(E)²; 0 where E has no full column rank, and δ is infinite.
    sum_to_one, nonnegative : bool
        The constraints.
    Y, A : arrays (L, width) and (p, width), float64
        Pixels and abundances, one pixel a column.
    W : array (p, width), float64
        Scratch: the duals.
    rmse, kappa, delta : arrays (1, width), float64
        Results; rmse is ``sqrt(|y − E a|² / L)``.
    """
    load, store, fma, select, splat, root = ops.load, ops.store, ops.fma, ops.select, ops.splat, ops.root

    @compiled
    def verdict(norms, curvature, sum_to_one, nonnegative, A, W, length, kappa, delta):
        zero, one, endless = splat(0.0), splat(1.0), splat(np.inf)
        p = A.shape[0]
        size, multiplier, worst, longest = root(length), zero, zero, 0.0
        if sum_to_one:
            total = zero
            for j in range(p):
                total = total + load(A, j)
                multiplier = fma(load(A, j), load(W, j), multiplier)
                longest = max(longest, norms[j])
            size = select(size > longest, size, splat(longest))
            multiplier = select(total == 0.0, zero, multiplier / select(total == 0.0, one, total))
            over = total - 1.0
            worst = select(over > 0.0, over, zero - over)
        violation, steepest = zero, zero
        for j in range(p):
            a, v = load(A, j), load(W, j) - multiplier
            if nonnegative:
                worst = select(zero - a > worst, zero - a, worst)
                v = select((a <= 0.0) & (v < 0.0), zero, v)
            violation = fma(v, v, violation)
            steep = select(v < 0.0, zero - v, v) * splat(1.0 / norms[j])
            steepest = select(steep > steepest, steep, steepest)
        relative = select(size > 0.0, steepest / select(size > 0.0, size, one), endless)
        relative = select(steepest > 0.0, relative, zero)
        worst = select(relative > worst, relative, worst)
        # A NaN compares with nothing, and an overflow divides everything to zero: neither may pass.
        sound = (violation - violation == 0.0) & (size - size == 0.0)
        store(kappa, 0, select(sound, worst, endless))
        store(delta, 0, root(violation) / splat(curvature) if curvature > 0.0 else endless)

    @compiled
    def certify(E, norms, curvature, sum_to_one, nonnegative, Y, A, W, rmse, kappa, delta):
        L, p = E.shape
        for j in range(p):
            store(W, j, splat(0.0))
        length, square = splat(0.0), splat(0.0)
        for b in range(0, L, 4):  # four bands a turn: A and W are loaded and stored a quarter as often
            b1, b2, b3 = min(b + 1, L - 1), min(b + 2, L - 1), min(b + 3, L - 1)
            in1, in2, in3 = 1.0 * (b + 1 < L), 1.0 * (b + 2 < L), 1.0 * (b + 3 < L)
            r0, r1, r2, r3 = load(Y, b), load(Y, b1) * in1, load(Y, b2) * in2, load(Y, b3) * in3
            length = fma(r3, r3, fma(r2, r2, fma(r1, r1, fma(r0, r0, length))))
            for j in range(p):
                a = load(A, j)
                r0 = fma(splat(-E[b, j]), a, r0)
                r1 = fma(splat(-E[b1, j] * in1), a, r1)
                r2 = fma(splat(-E[b2, j] * in2), a, r2)
                r3 = fma(splat(-E[b3, j] * in3), a, r3)
            for j in range(p):
                w = fma(splat(E[b, j]), r0, load(W, j))
                w = fma(splat(E[b1, j]), r1, w)
                w = fma(splat(E[b2, j]), r2, w)
                store(W, j, fma(splat(E[b3, j]), r3, w))
            square = fma(r3, r3, fma(r2, r2, fma(r1, r1, fma(r0, r0, square))))
        store(rmse, 0, root(square / float(L)))
        verdict(norms, curvature, sum_to_one, nonnegative, A, W, length, kappa, delta)

    return certify


@allocating
def tally(state, kappa, delta, steps, abundance, certified):
    """What `Summary` wants to know of a block, in one pass that holds no lock.

    Parameters
    ----------
    state, kappa, delta, steps : arrays (n, samples)
    abundance : array (n, p, samples)
    certified : float
        The largest κ that counts as certified.

    Returns
    -------
    solved, masked, partly, failed : int
    worst_kappa, worst_delta : float
        0 where nothing is solved; NaN counts as infinite.
    counts : array of int64
        How many solved pixels took 0, 1, 2, … steps.
    sums : array (n, p), float64
        Of the abundances of each line's solved pixels.
    """
    n, p, samples = abundance.shape
    solved, masked, failed = 0, 0, 0
    worst_kappa, worst_delta = 0.0, 0.0
    most = -1
    for line in range(n):
        for s in range(samples):
            if state[line, s] == SOLVED:
                solved += 1
                failed += not kappa[line, s] <= certified
                worst_kappa = max(worst_kappa, kappa[line, s] if kappa[line, s] == kappa[line, s] else np.inf)
                worst_delta = max(worst_delta, delta[line, s] if delta[line, s] == delta[line, s] else np.inf)
                most = max(most, steps[line, s])
            elif state[line, s] == MASKED:
                masked += 1
    counts = np.zeros(most + 1, np.int64)
    sums = np.zeros((n, p))
    for line in range(n):
        for s in range(samples):
            if state[line, s] == SOLVED:
                counts[steps[line, s]] += 1
        for j in range(p):
            total = 0.0
            for s in range(samples):
                if state[line, s] == SOLVED:
                    total += float(abundance[line, j, s])
            sums[line, j] = total
    return solved, masked, n * samples - solved - masked, failed, worst_kappa, worst_delta, counts, sums


@dataclass
class Summary:
    """What a run adds up over its pixels, block by block in order.

    Attributes
    ----------
    solved, masked, partly_nodata : int
        Pixels; masked ones are nodata in all used bands, partly_nodata in some. Neither kind is solved.
    certified, failed, rescued : int
        Pixels with κ ≤ 1e-10; with more; and those that an exact solver missed and the safe path solved.
    worst_kappa, worst_delta : float
    failures : list of (line, sample)
        The first hundred that failed.
    steps : list of int
        How many pixels took 0, 1, 2, … steps.
    sums : array (p,), float64
        Sum of each endmember's abundances, for the default bands of the map.
    of_lines : list of array (n, p)
        The same of each line, until the next `merge`.
    """

    solved: int = 0
    masked: int = 0
    partly_nodata: int = 0
    certified: int = 0
    failed: int = 0
    rescued: int = 0
    worst_kappa: float = 0.0
    worst_delta: float = 0.0
    failures: list[tuple[int, int]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    sums: np.ndarray | None = None
    of_lines: list[np.ndarray] = field(default_factory=list)

    def add(
        self,
        first_line: int,
        state: np.ndarray,
        kappa: np.ndarray,
        delta: np.ndarray,
        steps: np.ndarray,
        abundance: np.ndarray,
    ) -> None:
        """Count one block: arrays (lines, samples), abundance (lines, p, samples)."""
        solved, masked, partly, failed, kappa_, delta_, counts, sums = tally(
            state, kappa, delta, steps, abundance, CERTIFIED
        )
        self.take(solved, masked, partly, failed, kappa_, delta_, counts, sums)
        if failed:
            wrong = (state == SOLVED) & ~(kappa <= CERTIFIED)
            for line, sample in np.argwhere(wrong)[: MOST_FAILURES - len(self.failures)]:
                self.failures.append((first_line + int(line), int(sample)))

    def take(
        self,
        solved: int,
        masked: int,
        partly: int,
        failed: int,
        worst_kappa: float,
        worst_delta: float,
        steps: np.ndarray,
        sums: np.ndarray,
    ) -> None:
        """Add what was counted of one block, with the sums (n, p) of its lines."""
        self.solved += int(solved)
        self.masked += int(masked)
        self.partly_nodata += int(partly)
        self.failed += int(failed)
        self.certified = self.solved - self.failed
        self.worst_kappa = max(self.worst_kappa, float(worst_kappa))
        self.worst_delta = max(self.worst_delta, float(worst_delta))
        self.add_steps([int(count) for count in np.trim_zeros(steps, "b")])
        self.add_sums([sums])

    def take_from_gpu(self, counts: Any, pixels: int) -> None:
        """Add an `unmix.solvers.counts.Counts` of so many pixels; none of them failed."""
        solved, masked, failed, _ = (int(total) for total in counts.pixels.sum(axis=0))
        kappa, delta = counts.worst.max(axis=0)
        steps = counts.steps.sum(axis=0)
        self.take(solved, masked, pixels - solved - masked, failed, kappa, delta, steps, counts.sums)

    def merge(self, part: "Summary") -> None:
        """Add what was counted of the lines that follow, and forget which line had which sums."""
        self.append(part)
        self.of_lines = []

    def append(self, part: "Summary") -> None:
        """Add what was counted of the lines that follow."""
        for name in ("solved", "masked", "partly_nodata", "certified", "failed", "rescued"):
            setattr(self, name, getattr(self, name) + getattr(part, name))
        self.worst_kappa = max(self.worst_kappa, part.worst_kappa)
        self.worst_delta = max(self.worst_delta, part.worst_delta)
        self.failures += part.failures[: MOST_FAILURES - len(self.failures)]
        self.add_steps(part.steps)
        self.add_sums(part.of_lines)

    def said(self) -> dict[str, Any]:
        """All of it, for a journal."""
        return {
            **{
                name: value
                for name, value in vars(self).items()
                if name not in ("sums", "of_lines", "failures", "steps")
            },
            "steps": {str(taken): pixels for taken, pixels in enumerate(self.steps) if pixels},
            "failures": [list(place) for place in self.failures],
            "sums": None if self.sums is None else [float(value) for value in self.sums],
        }

    @classmethod
    def heard(cls, said: dict[str, Any]) -> "Summary":
        """What `said` said."""
        sums = None if said["sums"] is None else np.array(said["sums"])
        failures = [(line, sample) for line, sample in said["failures"]]
        steps = [0] * (1 + max(map(int, said["steps"]), default=-1))
        for taken, pixels in said["steps"].items():
            steps[int(taken)] = pixels
        return cls(**said | {"sums": sums, "failures": failures, "steps": steps})

    def add_steps(self, counts: list[int]) -> None:
        """Add a histogram to ``steps``."""
        self.steps += [0] * (len(counts) - len(self.steps))
        for i, count in enumerate(counts):
            self.steps[i] += count

    def add_sums(self, blocks: list[np.ndarray]) -> None:
        """Add to ``sums`` line by line, so that it does not depend on how the scene was cut (but for its last bits on a GPU,
        which adds up a line in another order than the host does where a pixel is looked at twice)."""
        self.of_lines += blocks
        for lines in blocks:
            # One after the other, which a sum along an axis need not be; in one call, as 10 000 lines of Python cost 30 ms.
            own = lines if self.sums is None else np.vstack([self.sums, lines])
            self.sums = np.add.accumulate(own, axis=0)[-1] if len(own) else self.sums
