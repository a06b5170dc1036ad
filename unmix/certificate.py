"""The proof: how far each pixel is from its optimum, from the pixel, the endmembers and the abundances alone.

Nothing here knows how the abundances were found. κ is the largest violation of the optimality conditions, relative to
the sizes of what it is made of; δ bounds the distance of the abundances from the optimum.
"""

from dataclasses import dataclass, field

import numpy as np

from .solvers.jit import compiled

# What a pixel is; `gather` decides.
SOLVED, PARTLY, MASKED = 0, 1, 2
# Places that a report names.
MOST_FAILURES = 100
# Up to here a pixel is certified. Solvers reach 1e-14; 1e-6 lets wrong supports through with abundances off by 1e-2.
CERTIFIED = 1e-10


@compiled
def certify(E, norms, curvature, sum_to_one, nonnegative, Y, A, W, rows, length, square, rmse, kappa, delta):
    """Certify a tile of w pixels: fills rmse, kappa and delta.

    With residual ``r = y − E a`` and dual ``w = Eᵀr``: ``λ = aᵀw / Σa`` for the sum to one, else 0; ``v_j = w_j − λ``,
    where a_j = 0 under a ≥ 0 only its positive part. ``κ = max_j |v_j| / (|e_j| s)``, with ``s = |y|``, for the sum to
    one at least the longest endmember; and no less than max(−a_j) and |Σa − 1| where these are constrained.
    ``δ = |v|₂ / σ_min(E)²``: f is σ²-strongly convex, hence ``σ²|a − a*|² ≤ vᵀ(a* − a)``.

    Parameters
    ----------
    E : array (L, p), float64
        Endmembers, in the units of Y.
    norms : array (p,), float64
        |e_j|.
    curvature : float
        σ_min(E)²; 0 where E has no full column rank, and δ is infinite.
    sum_to_one, nonnegative : bool
        The constraints.
    Y, A : arrays (L, w) and (p, w), float64
        Pixels and abundances, one pixel a column.
    W : array (p, w), float64
        Scratch: the duals.
    rows : array (4, w), float64
        Scratch: residuals.
    length, square : arrays (w,), float64
        Scratch.
    rmse, kappa, delta : arrays (w,), float64
        Results; rmse is ``sqrt(|y − E a|² / L)``.
    """
    L, w = Y.shape
    p = A.shape[0]
    for s in range(w):
        length[s] = 0.0
        square[s] = 0.0
    for j in range(p):
        for s in range(w):
            W[j, s] = 0.0
    r = rows  # the residual of four bands: W is loaded and stored a quarter as often as with one
    for b in range(0, L, 4):
        n = min(4, L - b)
        for i in range(4):
            for s in range(w):
                r[i, s] = Y[b + i, s] if i < n else 0.0
            for s in range(w):
                length[s] += r[i, s] * r[i, s]
        for j in range(p):
            e0 = E[b, j]
            e1 = E[b + 1, j] if n > 1 else 0.0
            e2 = E[b + 2, j] if n > 2 else 0.0
            e3 = E[b + 3, j] if n > 3 else 0.0
            for s in range(w):
                a = A[j, s]
                r[0, s] -= e0 * a
                r[1, s] -= e1 * a
                r[2, s] -= e2 * a
                r[3, s] -= e3 * a
        for j in range(p):
            e0 = E[b, j]
            e1 = E[b + 1, j] if n > 1 else 0.0
            e2 = E[b + 2, j] if n > 2 else 0.0
            e3 = E[b + 3, j] if n > 3 else 0.0
            for s in range(w):
                W[j, s] = (((W[j, s] + e0 * r[0, s]) + e1 * r[1, s]) + e2 * r[2, s]) + e3 * r[3, s]
        for i in range(4):
            for s in range(w):
                square[s] += r[i, s] * r[i, s]
    longest = 0.0
    for j in range(p):
        longest = max(longest, norms[j])
    for s in range(w):
        rmse[s] = (square[s] / L) ** 0.5
        scale = length[s] ** 0.5
        multiplier = 0.0
        worst = 0.0
        if sum_to_one:
            scale = max(scale, longest)
            total = 0.0
            for j in range(p):
                total += A[j, s]
                multiplier += A[j, s] * W[j, s]
            multiplier = multiplier / total if total != 0.0 else 0.0
            worst = abs(total - 1.0)
        violation = 0.0
        for j in range(p):
            v = W[j, s] - multiplier
            if nonnegative:
                worst = max(worst, -A[j, s])
                if A[j, s] <= 0.0:
                    v = max(v, 0.0)
            violation += v * v
            if v != 0.0:
                worst = max(worst, abs(v) / (norms[j] * scale)) if scale > 0.0 else np.inf
        # A NaN compares with nothing, and an overflow divides everything to zero: neither may pass.
        sound = violation - violation == 0.0 and scale - scale == 0.0
        kappa[s] = worst if sound else np.inf
        delta[s] = violation**0.5 / curvature if curvature > 0.0 else np.inf


@compiled
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
                    total += abundance[line, j, s]
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
    of_lines : list of array
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
        self.solved += solved
        self.masked += masked
        self.partly_nodata += partly
        self.failed += failed
        self.certified = self.solved - self.failed
        if failed:
            wrong = (state == SOLVED) & ~(kappa <= CERTIFIED)
            for line, sample in np.argwhere(wrong)[: MOST_FAILURES - len(self.failures)]:
                self.failures.append((first_line + int(line), int(sample)))
        self.worst_kappa = max(self.worst_kappa, kappa_)
        self.worst_delta = max(self.worst_delta, delta_)
        self.add_steps([int(count) for count in counts])
        self.add_sums(list(sums))

    def merge(self, part: "Summary") -> None:
        """Add what was counted of the lines that follow."""
        for name in ("solved", "masked", "partly_nodata", "certified", "failed", "rescued"):
            setattr(self, name, getattr(self, name) + getattr(part, name))
        self.worst_kappa = max(self.worst_kappa, part.worst_kappa)
        self.worst_delta = max(self.worst_delta, part.worst_delta)
        self.failures += part.failures[: MOST_FAILURES - len(self.failures)]
        self.add_steps(part.steps)
        self.add_sums(part.of_lines)
        self.of_lines = []

    def add_steps(self, counts: list[int]) -> None:
        """Add a histogram to ``steps``."""
        self.steps += [0] * (len(counts) - len(self.steps))
        for i, count in enumerate(counts):
            self.steps[i] += count

    def add_sums(self, of_lines: list[np.ndarray]) -> None:
        """Add to ``sums`` line by line, so that it does not depend on how the scene was cut."""
        self.of_lines += of_lines
        for line in of_lines:
            self.sums = line.copy() if self.sums is None else self.sums + line
