"""Solve pixels that have weights or allowed endmembers of their own, or whose noise is that of counts."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays.own import solve_each
from ..certificate import PARTLY, SOLVED
from ..devices.slots import forget, put
from ..io import spectra
from ..maps.derived.noise import AllowedCube, NoiseCube, WeightsCube
from ..problem import Problem
from ..problem.steps import of_mean_square_one


@dataclass
class OwnPixels:
    """What pixels have of their own.

    Attributes
    ----------
    weights : NoiseCube or WeightsCube or None
        By which the bands of each pixel are weighted.
    allowed : AllowedCube or None
        Which endmembers each pixel may have.
    background : array (L,) or None
        Counts that are there in any case: the pixels are counts then, whose noise is Poisson's.
    lost : dict
        How many pixels have no answer, by the reason.
    """

    weights: NoiseCube | WeightsCube | None = None
    allowed: AllowedCube | None = None
    background: np.ndarray | None = None
    lost: dict[str, list[int]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(one is not None for one in (self.weights, self.allowed, self.background))

    def lose(self, state: np.ndarray, which: Any, reason: str) -> None:
        """Leave pixels out that would be solved, for a reason."""
        out = (state == SOLVED) & np.asarray(which).reshape(state.shape)
        state[out] = PARTLY
        self.lost.setdefault(reason, []).append(int(out.sum()))

    def messages(self) -> list[str]:
        """Return why pixels have no answer, one sentence a reason."""
        return [
            f"{sum(counts)} pixels {reason}; their results are -9999"
            for reason, counts in self.lost.items()
            if any(counts)
        ]

    def solve(
        self, problem: Problem, first: int, raw: np.ndarray, results: dict[str, np.ndarray], threads: int
    ) -> None:
        """Solve the pixels of some lines again, with all that they have of their own, in place.

        Their answers without it are where the searches begin. Pixels of which it is not known are left without results.

        Parameters
        ----------
        problem : Problem
        first : int
            The number of the first line.
        raw : array
            The stored values of n lines, in ``problem.interleave``.
        results : dict of arrays
            The arrays of `unmix.devices.Line.results`, float64.
        threads : int
            CPU threads.
        """
        state = results["state"]
        n = len(state)
        # Counts with their background, which the problem's bands are without.
        bands = problem.bands if self.background is None else problem.plain[0]
        before, Y, E = state.copy(), spectra(raw, problem.interleave, bands), problem.endmembers.matrix
        rows: dict[str, np.ndarray] = {}
        factors = np.ones((1, 1))
        if self.weights is not None:
            factors = self.weights.factors(first, n)
            self.lose(
                state,
                ~np.isfinite(factors).all(axis=1),
                f"have no {self.weights.what} in some band, or such that differ more than 1e9 times",
            )
        if self.allowed is not None:
            rows["allowed"], known = self.allowed.read(first, n)
            self.lose(state, ~known, "have no value in the cube of allowed endmembers")
            self.lose(state, ~rows["allowed"].any(axis=1), "are allowed no endmember")
            if problem.constraint.has_shade:  # which comes last
                rows["allowed"] = np.column_stack([rows["allowed"], np.ones(len(Y), bool)])
        if self.background is not None:
            is_dark = ~(E.any(axis=1) | (self.background > 0))
            self.lose(state, (Y < 0).any(axis=1), "have negative counts")
            self.lose(state, (Y[:, is_dark] > 0).any(axis=1), "have counts in a band in which no endmember has any")
        solved = state == SOLVED
        line, sample = np.nonzero(solved)
        y, rows = Y[solved.ravel()], {name: values[solved.ravel()] for name, values in rows.items()}
        if self.weights is not None:
            factors = of_mean_square_one(factors[solved.ravel()])
            rows["weights"] = np.square(factors)
        if self.background is not None:
            answer, y = counted(y, line, E, self.background, threads), y - self.background
        else:
            has_sum = problem.constraint.sum_to_one or problem.constraint.has_shade
            answer = solve_each(y, E, has_sum, rows | {"start": results["abundance"][line, :, sample]}, "cpu", threads)
        put(results, solved, answer, y - answer["abundances"] @ E.T, np.sqrt(np.square(factors * y).mean(axis=1)))
        forget(results, (before == SOLVED) & ~solved)


def counted(Y: np.ndarray, line: np.ndarray, E: np.ndarray, background: np.ndarray, threads: int) -> dict[str, Any]:
    """Return the answers of `solve_each` for pixels of counts (n, L) of some lines (n,), ascending.

    Each line alone: products of many pixels round by their number, and maps must not depend on blocks.
    """
    from ..arrays.counts import poisson  # which imports much of scipy

    def of_line(y: np.ndarray) -> dict[str, Any]:
        found = poisson(y, E, background=background, threads=threads)
        rmse = np.sqrt(np.square(y - background - found.x @ E.T).mean(axis=1))
        return {"abundances": found.x, "rmse": rmse, "kappa": found.kappa, "delta": found.delta, "steps": found.steps}

    parts = [of_line(some) for some in np.split(Y, np.flatnonzero(np.diff(line)) + 1)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
