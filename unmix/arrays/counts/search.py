"""Search for the most likely mixture of spectra of counts, and bound how far its cost is above the least."""

import numpy as np
from scipy.special import xlogy

from ...certificate import UNIT_ROUNDOFF
from ..nnls import nnls

# Outer steps: each is a weighted NNLS, which finds the support, and Newton's steps on that.
MOST_STEPS, NEWTON_STEPS = 100, 4
# Updates of Richardson and Lucy that begin, of even shares.
FIRST_UPDATES = 4
# The largest violation of a condition, of the counts of its spectrum, of a pixel that is done; less than `CERTIFIED`.
MOST_VIOLATION = 2e-11
# A band's share of the mean below which its weight 1/μ is held.
LEAST_MEAN = 1e-9
# Products of two spectra, over the bands, that are held to make the Hessians of many pixels by one product of matrices.
MOST_PRODUCTS = 2**21
# Halvings of a step that does not lower the cost.
MOST_HALVINGS = 30
# A share of a pixel's counts and cost by which two costs may differ by rounding.
SAME_COST = 1e-13
# The share of an abundance's curvature that a step of Newton's adds to it.
ADDED_CURVATURE = 1e-3


def solutions(H: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the solutions (n, p) of linear systems with matrices (n, p, p); 0 for one that LAPACK gives up on."""
    try:
        return np.asarray(np.linalg.solve(H, right[..., None])[..., 0])
    except np.linalg.LinAlgError:
        if len(H) == 1:
            return np.zeros(right.shape)
        half = len(H) // 2
        return np.concatenate([solutions(H[:half], right[:half]), solutions(H[half:], right[half:])])


class CountSearch:
    """The search for the optimum of some pixels.

    Parameters
    ----------
    Y : array (n, L), float64
    E : array (L, p), float64
    b : array (n, L), float64
    threads : int or None

    Attributes
    ----------
    x : array (n, p), float64
    gap : array (n,), float64
    steps : array (n,), int32
    """

    def __init__(self, Y: np.ndarray, E: np.ndarray, b: np.ndarray, threads: int | None) -> None:
        self.Y, self.E, self.b, self.threads = Y, E, b, threads
        self.sums, self.total = E.sum(axis=0), Y.sum(axis=1)
        self.x = np.outer(self.total, 1.0 / (E.shape[1] * self.sums))
        self.gap, self.violation, self.steps = np.zeros(len(Y)), np.zeros(len(Y)), np.zeros(len(Y), np.int32)

    def run(self, least_gap: float) -> None:
        """Search until the gap of every pixel is a small enough share of its counts."""
        todo = np.flatnonzero(self.total > 0)
        for _ in range(FIRST_UPDATES):
            self.x[todo] *= self.ratios(todo, self.x[todo])[0] / self.sums
        for number in range(MOST_STEPS):
            todo = self.open(todo, least_gap)
            if not len(todo):
                break
            A, B, weights = self.by_newton(todo) if number % 2 else self.by_scoring(todo)
            batch = nnls(A, B, weights=weights, start=self.x[todo], threads=self.threads)
            self.move(todo, batch.x - self.x[todo])
            self.steps[todo] += 1
            for _ in range(NEWTON_STEPS):
                todo = self.open(todo, least_gap)
                self.move(todo, self.newton(todo))
        self.open(todo, least_gap)

    def open(self, which: np.ndarray, least_gap: float) -> np.ndarray:
        """Measure the gaps of some pixels and their violations of optimality; return the pixels that are not done."""
        self.gap[which], self.violation[which] = self.measures(which, self.x[which])
        is_done = (self.gap[which] <= least_gap * self.total[which]) & (self.violation[which] <= MOST_VIOLATION)
        return which[~is_done]

    def violations(self, x: np.ndarray, along: np.ndarray) -> np.ndarray:
        """Return by how much slopes (n, p) violate the conditions of an optimum; ``along`` is ``Eᵀ(y/μ)`` (n, p)."""
        slope = self.sums - along
        return np.where(x > 0, np.abs(slope), np.maximum(-slope, 0.0))

    def by_scoring(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return matrix, right-hand sides and weights of a step of Fisher's scoring, over all x ≥ 0."""
        mean = self.x[which] @ self.E.T + self.b[which]
        mean = np.maximum(mean, LEAST_MEAN * mean.mean(axis=1, keepdims=True))
        return self.E, self.Y[which] - self.b[which], 1.0 / mean

    def by_newton(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return matrix, right-hand sides and weights of a Newton step over all x ≥ 0."""
        x = self.x[which]
        along, _, weights = self.ratios(which, x)
        curvature = weights @ np.square(self.E)
        # For few counts, whose Hessian is far from scoring's matrix. A row for each abundance has its slope, and keeps
        # the step finite where the Hessian is singular.
        held = ADDED_CURVATURE * np.maximum(curvature, curvature.mean(axis=1, keepdims=True))
        goal = x - (self.sums - along) / held
        A = np.vstack([self.E, np.eye(self.E.shape[1])])
        return A, np.hstack([x @ self.E.T, goal]), np.hstack([weights, held])

    def ratios(self, which: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return ``Eᵀ(y/μ)`` (n, p), and y/μ and y/μ² (n, L), of some pixels."""
        mean, counts = x @ self.E.T + self.b[which], self.Y[which]
        divisor = np.where(counts > 0, mean, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):  # a mixture tried may have nothing where there are counts
            ratio = counts / divisor
            return ratio @ self.E, ratio, ratio / divisor

    def costs(self, which: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return the costs of some pixels, infinite where a band with counts has none."""
        mean = x @ self.E.T + self.b[which]
        return np.asarray((mean - xlogy(self.Y[which], mean)).sum(axis=1))

    def measures(self, which: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds (n,) of costs above the least, and the largest violations (n,) as shares of spectra's sums."""
        b, total = self.b[which], self.total[which]
        along, ratio, _ = self.ratios(which, x)
        with np.errstate(divide="ignore", invalid="ignore"):
            of_background = (b * ratio).sum(axis=1)
            s = np.minimum((self.sums / along).min(axis=1), total / of_background)
            s = np.where(np.isposinf(s), 1.0, s)
            excess = x @ self.sums - total - total * np.log(s) + s * of_background
            violation = (self.violations(x, along) / self.sums).max(axis=1)
        gap = np.where(np.isnan(excess), np.inf, np.maximum(excess, 0.0))
        return gap, np.where(np.isnan(violation), np.inf, violation)

    def move(self, which: np.ndarray, step: np.ndarray) -> None:
        """Move pixels, in place, by the first of a step's halves that lowers the cost; `open` must be called before."""
        before, left = self.costs(which, self.x[which]), np.arange(len(which))
        size = 1.0
        for _ in range(MOST_HALVINGS):
            moved = np.maximum(self.x[which[left]] + size * step[left], 0.0)
            costs = self.costs(which[left], moved)
            is_lower = costs < before[left]
            if size == 1.0:  # near the optimum costs differ by rounding, and gaps do not
                gap, violation = self.measures(which, moved)
                is_nearer = (gap < self.gap[which]) | (violation < self.violation[which])
                is_lower |= is_nearer & (costs <= before[left] + SAME_COST * (self.total[which] + np.abs(before)))
            self.x[which[left[is_lower]]] = moved[is_lower]
            left, size = left[~is_lower], 0.5 * size
            if not len(left):
                return

    def proof(self) -> tuple[np.ndarray, np.ndarray]:
        """Return κ and δ of all pixels; see `unmix.Poisson`. Where there are no counts, 0 is the only optimum."""
        (L, p), x, every = self.E.shape, self.x, np.arange(len(self.x))
        along, _, weights = self.ratios(every, x)
        v = self.violations(x, along)
        has_counts = self.total > 0
        share = np.divide(self.gap, self.total, out=np.zeros(len(x)), where=has_counts)
        kappa = np.maximum((v / self.sums).max(axis=1), share)
        rounding = UNIT_ROUNDOFF * (L + 2 * p + 8) * (self.sums + along)
        lengths = np.sqrt(np.square(v + rounding).sum(axis=1))
        H = self.hessians(weights)
        doubt = UNIT_ROUNDOFF * (2 * L + 4 * p + 20 + 10 * p) * np.trace(H, axis1=1, axis2=2)
        is_finite = np.isfinite(H).all(axis=(1, 2))
        least = np.full(len(x), -1.0)
        least[is_finite] = np.linalg.eigvalsh(H[is_finite])[:, 0] - doubt[is_finite]
        with np.errstate(divide="ignore", invalid="ignore"):
            sigma = np.sqrt(np.where(least > 0, least, np.nan))
            q = lengths / sigma
            shift = q / np.sqrt(np.where(self.Y > 0, self.Y, np.inf).min(axis=1))
            delta = np.where(shift < 1.0, q / (1.0 - shift) / sigma, np.inf)
        return np.where(has_counts, kappa, 0.0), np.where(has_counts, delta, 0.0)

    def hessians(self, weights: np.ndarray) -> np.ndarray:
        """Return the Hessians (n, p, p) of pixels with weights y/μ² (n, L)."""
        L, p = self.E.shape
        if L * p * p <= MOST_PRODUCTS:
            return np.asarray((weights @ (self.E[:, :, None] * self.E[:, None, :]).reshape(L, -1)).reshape(-1, p, p))
        return np.stack([(self.E.T * w) @ self.E for w in weights])

    def newton(self, which: np.ndarray) -> np.ndarray:
        """Return Newton's steps (n, p) on the supports of some pixels; 0 where they cannot be computed."""
        x, p = self.x[which], self.E.shape[1]
        along, _, weights = self.ratios(which, x)
        H = self.hessians(weights)
        support = x > 0
        size = np.sqrt(np.maximum(H.diagonal(axis1=1, axis2=2), 1e-300))
        H = np.where(support[:, :, None] & support[:, None, :], H / size[:, :, None] / size[:, None, :], 0.0)
        H += np.eye(p) * np.where(support, 1e-14, 1.0)[:, None, :]
        downhill = np.where(support, (along - self.sums) / size, 0.0)
        step = solutions(H, downhill) / size
        return np.where(support & np.isfinite(step), step, 0.0)
