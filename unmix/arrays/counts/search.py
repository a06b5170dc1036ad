"""Search for the most likely mixture of spectra of counts, and bound how far its cost is above the least."""

import numpy as np
from scipy.special import xlogy

from ..nnls import nnls

# Outer steps: each is a weighted NNLS, which finds the support, and Newton's steps on that.
MOST_STEPS, NEWTON_STEPS = 100, 4
# Updates of Richardson and Lucy that begin, of even shares.
FIRST_UPDATES = 4
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


class Search:
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
        self.gap, self.steps = np.zeros(len(Y)), np.zeros(len(Y), np.int32)

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
        """Compute the gaps of some pixels; return those whose gap is too large."""
        self.gap[which] = self.gaps(which, self.x[which])
        return which[~(self.gap[which] <= least_gap * self.total[which])]

    def by_scoring(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return matrix, right-hand sides and weights of a step of Fisher's scoring, over all x ≥ 0."""
        mean = self.x[which] @ self.E.T + self.b[which]
        mean = np.maximum(mean, LEAST_MEAN * mean.mean(axis=1, keepdims=True))
        return self.E, self.Y[which] - self.b[which], 1.0 / mean

    def by_newton(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return those of a step of Newton's, over all x ≥ 0: for few counts, whose Hessian is far from what scoring takes it for.

        A row for each abundance has the slope, and keeps the step finite where the Hessian is singular.
        """
        x = self.x[which]
        along, _, weights = self.ratios(which, x)
        curvature = weights @ np.square(self.E)
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

    def gaps(self, which: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return what the costs of some pixels are above the least at most; see `poisson`."""
        b, total = self.b[which], self.total[which]
        along, ratio, _ = self.ratios(which, x)
        with np.errstate(divide="ignore", invalid="ignore"):
            of_background = (b * ratio).sum(axis=1)
            s = np.minimum((self.sums / along).min(axis=1), total / of_background)
            s = np.where(np.isposinf(s), 1.0, s)
            excess = x @ self.sums - total - total * np.log(s) + s * of_background
        return np.where(np.isnan(excess), np.inf, np.maximum(excess, 0.0))

    def move(self, which: np.ndarray, step: np.ndarray) -> None:
        """Go a step, or the first of its halves that lowers a pixel's cost, in place; abundances stay at least 0."""
        before, left = self.costs(which, self.x[which]), np.arange(len(which))
        size = 1.0
        for _ in range(MOST_HALVINGS):
            moved = np.maximum(self.x[which[left]] + size * step[left], 0.0)
            costs = self.costs(which[left], moved)
            is_lower = costs < before[left]
            if size == 1.0:  # near the optimum costs differ by rounding, and gaps do not
                is_nearer = self.gaps(which[left], moved) < self.gaps(which[left], self.x[which[left]])
                is_lower |= is_nearer & (costs <= before[left] + SAME_COST * (self.total[which] + np.abs(before)))
            self.x[which[left[is_lower]]] = moved[is_lower]
            left, size = left[~is_lower], 0.5 * size
            if not len(left):
                return

    def newton(self, which: np.ndarray) -> np.ndarray:
        """Return Newton's steps (n, p) on the supports of some pixels; 0 where they cannot be computed."""
        x, p = self.x[which], self.E.shape[1]
        along, _, weights = self.ratios(which, x)
        if len(self.E) * p * p <= MOST_PRODUCTS:
            H = (weights @ (self.E[:, :, None] * self.E[:, None, :]).reshape(len(self.E), -1)).reshape(-1, p, p)
        else:
            H = np.stack([(self.E.T * w) @ self.E for w in weights])
        support = x > 0
        size = np.sqrt(np.maximum(H.diagonal(axis1=1, axis2=2), 1e-300))
        H = np.where(support[:, :, None] & support[:, None, :], H / size[:, :, None] / size[:, None, :], 0.0)
        H += np.eye(p) * np.where(support, 1e-14, 1.0)[:, None, :]
        downhill = np.where(support, (along - self.sums) / size, 0.0)
        step = solutions(H, downhill) / size
        return np.where(support & np.isfinite(step), step, 0.0)
