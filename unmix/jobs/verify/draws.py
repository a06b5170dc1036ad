"""Verify means and deviations over draws: the same draws of some pixels, solved by scipy."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays.pixels import all_bands, solve_pixels
from ...certificate import MOST_DELTA
from ...library import ClassSums, Endmembers
from ...library.fractions import Normalization
from ...methods import DrawChoice, Method, choose
from ...problem import Problem, plan_problem
from ..derived.monte_carlo import MonteCarlo, plan_draws

# Systems that are solved again, a minute's work, unless all pixels are asked for.
MOST_SYSTEMS = 20_000
# Relative, and absolute: abundances of two solvers differ by 1e-9, and their deviations may be no larger.
RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE = 1e-5, 2e-7


class DrawCheck:
    """The draws of a run, made again.

    Parameters
    ----------
    library : Endmembers
        What the run wrote.
    report : dict
        The run's record.
    method : Method
    everything : bool
        Look at all pixels.
    shares : Normalization, optional
        How fractions are made, where sums are of these.
    """

    def __init__(
        self,
        library: Endmembers,
        report: dict[str, Any],
        method: Method,
        everything: bool,
        shares: Normalization | None = None,
    ) -> None:
        asked = report["asked"]
        choice = DrawChoice(**asked["draws"])
        library = replace(library, has_shade=method.has_shade)
        bands = all_bands(len(library.matrix))
        problem = plan_problem(library, method, choose(method.name)[1], bands, None, "bip", warns=False)
        problem = problem if asked.get("noise") is None else replace(problem, noise=np.array(asked["noise"]))
        sums = ClassSums.of(library, asked["shade_normalize"]).weighted(shares)
        problem = replace(problem, draws=plan_draws(problem, sums, choice, 2**62))
        self.map = MonteCarlo(problem, sums, choice, (0, 0))
        self.left = 2**62 if everything else max(choice.draws, MOST_SYSTEMS)

    def wrong(
        self, written: np.ndarray, A: np.ndarray, Y: np.ndarray, lines: np.ndarray, samples: np.ndarray,
        solve: Callable[[np.ndarray, np.ndarray], np.ndarray], blur: float = 0.0,
    ) -> np.ndarray:  # fmt: skip
        """Return which pixels have other means or deviations than their draws, (n,) bool; as many are looked at as time is left for.

        Pixels are passed over of which a draw has no unique abundances, as with equal spectra of two classes.

        Parameters
        ----------
        written : array (bands, n), float32
        A, Y : arrays (n, p) and (n, L), float64
            Abundances that were solved again, and the pixels.
        lines, samples : arrays (n,)
            Their places in the scene.
        solve : callable
            Returns abundances (n, p) from pixels (n, L) and spectra (L, p).
        blur : float
            By how much what is written may be off, because it is stored in steps.
        """
        wrong = np.zeros(len(A), bool)
        count = min(len(A), self.left // self.map.choice.draws)
        if not count:
            return wrong
        self.left -= count * self.map.choice.draws
        some = np.linspace(0, len(A) - 1, count).round().astype(int)
        clear = np.ones(count, bool)

        def solve_again(drawn: np.ndarray, problem: Problem) -> np.ndarray:
            clear[:] &= solve_pixels(drawn, problem, len(problem.endmembers.names), "cpu", None).delta <= MOST_DELTA
            return solve(drawn, problem.endmembers.matrix)

        Y, A = np.ascontiguousarray(Y[some]), np.ascontiguousarray(A[some])
        expected = self.map.of_pixels(Y, A, lines[some], samples[some], solve_again)
        off = np.abs(written[:, some].T - expected)
        wrong[some] = clear & ~(off <= RELATIVE_TOLERANCE * np.abs(expected) + ABSOLUTE_TOLERANCE + blur).all(axis=1)
        return wrong
