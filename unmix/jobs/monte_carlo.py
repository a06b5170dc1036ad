"""How sums by class scatter over random draws of spectra and noise (Monte Carlo), as EMIT's fractional cover has it.

A draw is a set of spectra, as even over the classes as can be, common to all pixels, and noise that is a pixel's own. Each is solved
exactly by the method of the run. A pixel's noise depends on seed, line, sample and draw alone (`unmix.compiled.philox`), so the bytes
of the map depend neither on blocks nor on threads, and a part of a scene has the values of the whole.

Abundances depend on a pixel y through Eᵀy alone. So noise of covariance Σ need not be drawn for L bands: with an orthonormal basis Q of
the draw's k spectra, ``Q C z`` serves, C the Cholesky factor of ``Qᵀ Σ Q`` and z k normal numbers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..compiled.jit import compiled
from ..compiled.philox import normals
from ..errors import MethodError
from ..io import spectra
from ..io.cube import Bands
from ..io.export import NODATA
from ..library import ClassSums
from ..methods import DrawChoice
from ..problem import Problem, plan_problem
from .uncertainty import residual_noise

# Pixels that are solved at a time.
TOGETHER = 4096
Solve = Callable[[np.ndarray, Problem], np.ndarray]


def solve_exactly(Y: np.ndarray, problem: Problem) -> np.ndarray:
    """Return the abundances (N, p) of pixels (N, L)."""
    from ..arrays.pixels import solve_pixels

    return solve_pixels(Y, problem, len(problem.endmembers.names), "cpu", 1).abundances


@compiled
def add_noise(
    Y: Any, F: Any, size: Any, seed: int, draw: int, lines: Any, samples: Any, words: Any, z: Any, out: Any
) -> None:
    """Write pixels (N, L) with noise ``size F z``: F is (L, k), ``size`` (N,), z the normal numbers of the pixel's draw.

    ``words``, (6,) uint64, and ``z``, (k,) float64, are scratch.
    """
    L, k = F.shape
    for n in range(Y.shape[0]):
        normals(seed, draw, lines[n], samples[n], words, z)
        for b in range(L):
            value = 0.0
            for j in range(k):
                value += F[b, j] * z[j]
            out[n, b] = Y[n, b] + size[n] * value


def class_even(sums: ClassSums, count: int, random: np.random.Generator) -> np.ndarray:
    """Return the sorted numbers of ``count`` spectra: one of each class in turn, classes and spectra in random order."""
    piles = [list(random.permutation(members)) for members in sums.members]
    order = random.permutation(len(piles))
    chosen: list[int] = []
    while len(chosen) < count:
        for c in order:
            if piles[c] and len(chosen) < count:
                chosen.append(int(piles[c].pop()))
    return np.sort(chosen)


class MonteCarlo:
    """Mean and standard deviation of each sum by class over draws; a map of `unmix.jobs.derived`.

    Parameters
    ----------
    problem : Problem
        With the noise of its bands, or None to take it, white, from each pixel's residual.
    sums : ClassSums
    choice : DrawChoice
    origin : (int, int)
        Line and sample of the scene at which the part that is read begins.

    Raises
    ------
    MethodError
        If more spectra are to be drawn than there are, or fewer than classes.
    """

    def __init__(self, problem: Problem, sums: ClassSums, choice: DrawChoice, origin: tuple[int, int]) -> None:
        self.problem, self.sums, self.choice, self.origin = problem, sums, choice, origin
        self.materials = len(problem.endmembers.names) - problem.endmembers.has_shade
        count = choice.spectra or self.materials
        if not len(sums.names) <= count <= self.materials:
            raise MethodError(
                f"`draw_spectra` {count}: must be from {len(sums.names)}, one of each class, to {self.materials}, all spectra"
            )
        random = np.random.Generator(np.random.PCG64(choice.seed))
        self.subsets = [
            np.arange(self.materials) if count == self.materials else class_even(sums, count, random)
            for _ in range(choice.draws)
        ]
        problems: dict[bytes, Problem] = {}
        for subset in self.subsets:
            if subset.tobytes() not in problems:
                problems[subset.tobytes()] = self.problem_of(subset)
        self.problems = [problems[subset.tobytes()] for subset in self.subsets]
        self.bases = [self.basis(one) for one in self.problems]

    @property
    def bands(self) -> tuple[str, ...]:
        """The names of the bands."""
        return (*(f"mean of {name}" for name in self.sums.bands), *(f"deviation of {name}" for name in self.sums.bands))

    @property
    def description(self) -> str:
        """What the map is; a standard deviation over n draws is itself known to 1 in √(2 (n − 1))."""
        n, spectra_drawn = self.choice.draws, len(self.subsets[0])
        return (
            f"means and standard deviations of sums by class over {n} draws of {spectra_drawn} spectra and noise, "
            f"the deviations to {100 / np.sqrt(2 * (n - 1)):.0f} %"
        )

    def problem_of(self, subset: np.ndarray) -> Problem:
        """Return the problem with some of the spectra, for pixels in float64."""
        L = len(self.problem.endmembers.matrix)
        bands = Bands(np.arange(L), np.ones(L), np.zeros(L))
        given = self.problem.endmembers
        drawn = given.take(subset.tolist())
        drawn = drawn.with_shade(given.matrix[:, -1]) if given.has_shade else drawn
        return plan_problem(drawn, self.problem.method, self.problem.solver, bands, None, "bip", warns=False)

    def basis(self, problem: Problem) -> np.ndarray:
        """Return the factor (L, k) by which normal numbers become noise, of 1 or of the given standard deviations."""
        Q = np.linalg.qr(problem.endmembers.matrix)[0]
        if not self.choice.has_noise:
            return np.zeros((len(Q), 1))
        if self.problem.noise is None:
            return np.ascontiguousarray(Q)
        weighted = Q * self.problem.noise[:, None]
        return np.ascontiguousarray(Q @ np.linalg.cholesky(weighted.T @ weighted))

    def of(self, first: int, raw: np.ndarray, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """Return the map of some lines; see `unmix.jobs.derived.DerivedMap`."""
        n, p, samples = abundance.shape
        out = np.full((n * samples, len(self.bands)), NODATA, np.float32)
        A = np.ascontiguousarray(abundance.transpose(0, 2, 1)).reshape(-1, p)
        solved = np.flatnonzero(~masked.ravel())
        Y = spectra(raw, self.problem.interleave, self.problem.bands)
        for begin in range(0, len(solved), TOGETHER):
            places = solved[begin : begin + TOGETHER]
            lines, across = self.origin[0] + first + places // samples, self.origin[1] + places % samples
            out[places] = self.of_pixels(np.ascontiguousarray(Y[places]), A[places], lines, across)
        return np.ascontiguousarray(out.reshape(n, samples, -1).transpose(0, 2, 1))

    def of_pixels(
        self, Y: np.ndarray, A: np.ndarray, lines: np.ndarray, across: np.ndarray, solve: Solve = solve_exactly
    ) -> np.ndarray:
        """Return the bands of pixels (N, L) with abundances (N, p), whose places in the scene are given."""
        size, drawn = np.ones(len(Y)), np.empty_like(Y)
        if self.problem.noise is None:
            residual_noise(Y, self.problem.endmembers.matrix, A, int(self.problem.method.sum_to_one), size)
        count = np.zeros((len(Y), 1))
        mean = spread = np.zeros((len(Y), len(self.sums.bands)))
        for draw, (problem, F, subset) in enumerate(zip(self.problems, self.bases, self.subsets)):
            words, z = np.empty(6, np.uint64), np.empty(F.shape[1])
            add_noise(Y, F, size, self.choice.seed, draw, lines, across, words, z, drawn)
            answer = solve(drawn, problem)
            full = np.zeros((len(Y), len(self.problem.endmembers.names)))
            full[:, subset] = answer[:, : len(subset)]
            if self.problem.endmembers.has_shade:
                full[:, -1] = answer[:, -1]
            values = self.sums.values(full.T[None])[0].T
            known = np.isfinite(values).all(axis=1, keepdims=True)
            count = count + known
            change = np.where(known, values - mean, 0.0)  # Welford (1962): no difference of large sums
            mean = mean + change / np.maximum(count, 1)
            spread = spread + np.where(known, change * (values - mean), 0.0)
        deviation = np.sqrt(spread / np.maximum(count - 1, 1))
        values = np.hstack([np.where(count > 0, mean, NODATA), np.where(count > 1, deviation, NODATA)])
        with np.errstate(over="ignore"):
            return values.astype(np.float32)
