"""Derive class fractions over all models that fit a pixel nearly as well as the chosen one."""

import math

import numpy as np

from ...io import spectra
from ...io.export import NODATA
from ...library import ClassSums
from ...library.classes import SHADE, each_once
from ...problem import Problem
from .uncertainty import map_of_solved, squares_of_residuals

LARGEST_RMSE = 1e140  # its square is a number


class ModelSpread:
    """Mean, standard deviation, least and largest fraction of each class over these models, and the gap to the next best.

    Parameters
    ----------
    problem : Problem
        Of the method "mesma".
    sums : ClassSums
    within : float
        A model counts if its RMSE is at most this much larger than that of the chosen one; infinite for all that the limits allow.
    """

    def __init__(self, problem: Problem, sums: ClassSums, within: float) -> None:
        assert problem.mesma is not None
        self.problem, self.sums, self.mesma, self.within = problem, sums, problem.mesma, within
        kind = np.empty(len(problem.models.order), np.int64)
        for c, members in enumerate(sums.members):
            kind[np.isin(problem.models.order, members)] = c
        self.kind = kind

    @property
    def bands(self) -> tuple[str, ...]:
        """The names of the bands."""
        from ...solvers.pixels.mesma.rivals import NUMBERS

        kinds = each_once((*self.sums.names, SHADE))
        return ("gap to the next model", "models", *(f"{kind} {number}" for kind in kinds for number in NUMBERS))

    @property
    def description(self) -> str:
        """Description of the map."""
        which = "all models" if math.isinf(self.within) else f"models within {self.within:g} of the RMSE"
        return f"how many {which}, and class fractions over them,"

    def of(self, first: int, raw: np.ndarray, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """See `DerivedMap`."""
        from ...solvers.pixels.mesma.rivals import SAME_ABUNDANCE, new_rivals, products_of, rivals_function
        from ...solvers.pixels.mesma.search import SAME_ERROR

        problem, models = self.problem, self.problem.models
        Y = spectra(raw, problem.interleave, problem.bands)
        L, find = len(problem.E), rivals_function()
        E = np.ascontiguousarray(problem.E[:, models.order])

        def values(places: np.ndarray, A: np.ndarray) -> np.ndarray:
            y = Y[places]
            squares, errors, out = np.empty(len(A)), np.empty(len(A)), np.empty((len(A), len(self.bands)))
            U = np.empty(A.shape)
            products_of(y, E, U, squares)
            squares_of_residuals(y, problem.E, A, errors)
            A = A[:, models.order]  # in which classes and their spectra ascend
            is_exact = self.mesma.limits == "exact"
            used = np.abs(A) > (SAME_ABUNDANCE * A.sum(axis=1, keepdims=True) if is_exact else 0.0)
            sizes = np.count_nonzero(used, axis=1)
            is_shade_alone = (squares < models.most_error) & is_exact
            sizes[(sizes == 0) & ~is_shade_alone] = -1
            reach = min(self.within, LARGEST_RMSE) * math.sqrt(L)
            bounds = np.square(np.sqrt(errors) + reach) + SAME_ERROR * squares
            bounds = np.where(sizes < 0, -1.0, np.minimum(bounds, models.most_error))
            chosen = np.argsort(~used, axis=1, kind="stable")[:, :3]
            chosen = np.pad(chosen, ((0, 0), (0, max(0, 3 - chosen.shape[1]))))
            rivals = new_rivals(self.kind, len(self.sums.names), self.sums.normalized, len(models.spectra))
            U /= models.lengths
            amounts = np.take_along_axis(A, chosen, axis=1)
            find(models, y, U, squares, bounds, sizes, chosen, amounts, rivals, float(L), out)
            return np.nan_to_num(out, nan=NODATA)

        return map_of_solved(len(self.bands), abundance, masked, values)
