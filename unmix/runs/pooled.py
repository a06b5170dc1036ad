"""Pool the noise of a scene's pixels: a residual of few bands shows a pixel's own noise badly.

Squared residuals over their degrees of freedom d are spread more than χ² over d where the noise itself differs between
pixels. That spread, of logarithms, gives the degrees of freedom d₀ that the noise of the scene, s₀², is worth beside a
pixel's own: its variance is ``(d₀ s₀² + |r|²) / (d₀ + d)``, and deviations are those of Student's t with d₀ + d
degrees of freedom (Smyth 2004).
"""

from typing import Any, NamedTuple

import numpy as np

from ..arrays.mixtures import numbered, solve_pixels
from ..problem import Problem, plan_problem
from .look import Sample

# Fewest pixels that are pooled; and the largest d₀, for equal noise in all pixels.
FEWEST_PIXELS, MOST_FREE = 32, 1e6
# The part of a normal distribution that is below one deviation; the distance of its quartiles, in deviations.
ONE_DEVIATION, QUARTILES = 0.8413447460685429, 1.3489795003921634
# A pixel whose residual is so large in at most this share by chance lacks a spectrum: its own noise is taken.
LACKING = 1e-3


class Pooled(NamedTuple):
    """The noise that a scene's pixels share: ``variance`` of a band, worth ``free`` degrees of freedom."""

    variance: float = 0.0
    free: float = 0.0

    @classmethod
    def of_run(cls, given: Any) -> "Pooled":
        """Return the noise that a run's pixels share, none where it is given; by the residuals of a sample."""
        problem = given.problem
        if problem.noise is not None or problem.steps:
            return cls()
        return pooled(Sample.read(problem.scene(given.cube)), problem)

    def variances(self, squares: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the noise variance of pixels and its degrees of freedom, (n,) both; ``squares``: see `of_squares`."""
        # By the numbers of `beside`; a pixel without a degree of freedom has variance 0.
        found, free = np.zeros(len(squares)), self.free + own
        for k in np.unique(own[free > 0]):
            base, divisor, largest, *_ = self.beside(float(k))
            some, lone = own == k, max(float(k), 1.0)
            is_lacking = squares[some] > largest
            found[some] = np.maximum((base + squares[some]) / divisor, np.where(is_lacking, squares[some] / lone, 0.0))
        return found, free

    def beside(self, own: float) -> tuple[float, float, float, float, float]:
        """Return five numbers that turn a squared residual with ``own`` degrees of freedom into a variance of noise."""
        # The number to add, the divisor of the sum, the largest square that is noise, and by how much a deviation is
        # larger than if noise were known; and ``own``.
        from scipy.special import chdtri, stdtrit

        largest = float(chdtri(own, LACKING)) * self.variance if own > 0 and self.free > 0 else np.inf
        factor = float(stdtrit(self.free + own, ONE_DEVIATION))
        return self.free * self.variance, self.free + own, largest, factor, own


def pooled(sample: Sample, problem: Problem) -> Pooled:
    """Return the noise of a sample of a scene, by the residuals of its pixels at their optimum."""
    E, shade = problem.endmembers.matrix, int(problem.constraint.has_shade)
    dark = E[:, -1] if shade else np.zeros(len(E))  # of which a pixel has what the others lack to one
    given = E[:, : E.shape[1] - shade] - dark[:, None]
    plain = plan_problem(numbered(np.ascontiguousarray(given)), problem.method, problem.solver, warns=False)
    best = solve_pixels(np.ascontiguousarray(sample.Y - dark), plain, given.shape[1], "cpu", None)
    A = np.column_stack([best.abundances, 1 - best.abundances.sum(axis=-1)]) if shade else best.abundances
    own = len(E) - problem.lost - problem.constraint.free(A).sum(axis=1) + problem.constraint.equations
    some = best.valid & (own > 0) & (best.rmse > 0)
    return of_squares(np.square(best.rmse[some]) * len(E), own[some].astype(float))


def of_squares(squares: np.ndarray, own: np.ndarray) -> Pooled:
    """Return the noise of pixels by their squared residuals (N,) of ``own`` (N,) degrees of freedom."""
    if len(squares) < FEWEST_PIXELS:
        return Pooled()
    from scipy.special import digamma, gammaincinv

    # By quartiles, since pixels that lack a spectrum have larger residuals.
    low, middle, high = (2 * gammaincinv(own / 2, share) for share in (0.25, 0.5, 0.75))
    logs = np.log(squares / middle)
    first, median, third = np.percentile(logs, (25, 50, 75))
    spread = ((third - first) ** 2 - float(np.mean(np.log(high / low) ** 2))) / QUARTILES**2
    if spread <= 1 / MOST_FREE:
        return Pooled(float(np.exp(median)), MOST_FREE)
    free = min(MOST_FREE, 2 * inverse_of_trigamma(spread))
    return Pooled(float(np.exp(median + digamma(free / 2) - np.log(free / 2))), free)


def inverse_of_trigamma(value: float) -> float:
    """Return x whose trigamma is a value above 0, by Newton's steps (Smyth 2004, appendix)."""
    from scipy.special import polygamma

    x = 0.5 + 1.0 / value
    for _ in range(50):
        of_x = float(polygamma(1, x))
        x += of_x * (1 - of_x / value) / float(polygamma(2, x))
    return x
