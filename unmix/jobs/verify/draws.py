"""Verify means and deviations over draws: the same draws of some pixels, solved by scipy."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...io import Bands
from ...library import ClassSums, Endmembers
from ...methods import DrawChoice, Method, choose
from ...problem import Problem, plan_problem
from ..monte_carlo import MonteCarlo

# Systems that are solved again in a line, some seconds' work.
MOST_SYSTEMS = 500
TOLERANCE = 1e-5


def wrong_draws(
    written: np.ndarray, library: Endmembers, report: dict[str, Any], method: Method, A: np.ndarray, Y: np.ndarray,
    places: tuple[int, np.ndarray], solve: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:  # fmt: skip
    """Return which pixels of a line have other means or deviations than their draws, (n,) bool; only the first are looked at.

    Parameters
    ----------
    written : array (bands, n), float32
    library : Endmembers
        What the run wrote.
    report : dict
        The run's record.
    method : Method
    A, Y : arrays (n, p) and (n, L), float64
        Abundances that were solved again, and the pixels.
    places : (int, array (n,))
        Line and samples of the pixels, in the scene.
    solve : callable
        Returns abundances (n, p) from pixels (n, L) and spectra (L, p).
    """
    asked = report["asked"]
    choice = DrawChoice(**asked["draws"])
    library = replace(library, has_shade=method.has_shade)
    L = len(library.matrix)
    bands = Bands(np.arange(L), np.ones(L), np.zeros(L))
    problem = plan_problem(library, method, choose(method.name)[1], bands, None, "bip", warns=False)
    problem = problem if asked.get("noise") is None else replace(problem, noise=np.array(asked["noise"]))
    draws = MonteCarlo(problem, ClassSums.of(library, asked["shade_normalize"]), choice, (0, 0))
    count = min(len(A), max(1, MOST_SYSTEMS // choice.draws))

    def solve_again(drawn: np.ndarray, drawn_problem: Problem) -> np.ndarray:
        return solve(drawn, drawn_problem.endmembers.matrix)

    line, samples = places
    expected = draws.of_pixels(
        np.ascontiguousarray(Y[:count]),
        np.ascontiguousarray(A[:count]),
        np.full(count, line),
        samples[:count],
        solve_again,
    )
    wrong = np.zeros(len(A), bool)
    wrong[:count] = (np.abs(written[:, :count].T - expected) > TOLERANCE * np.maximum(1, np.abs(expected))).any(axis=1)
    return wrong
