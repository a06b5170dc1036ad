"""Derive maps over all models that fit a pixel nearly as well as the chosen one."""

import math
from typing import NamedTuple

import numpy as np

from ...io import spectra
from ...library import ClassSums
from ...problem import Problem
from .solved import map_of_solved, squares_of_residuals

LARGEST_RMSE = 1e140  # its square is a number


class ChosenModels(NamedTuple):
    """Pixels with their chosen models; spectra are in the order of the tables."""

    Y: np.ndarray  # (n, L)
    A: np.ndarray  # (n, p) abundances
    used: np.ndarray  # (n, p) bool: which of them are of the model
    sizes: np.ndarray  # (n,) int64: the number of spectra of the model; −1 for a pixel without a model
    U: np.ndarray  # (n, p) products of the pixels and the spectra at unit length
    squares: np.ndarray  # (n,) |y|²
    bounds: np.ndarray  # (n,) the largest squared error of models that count; −1 for a pixel without a model


class MapOfModels:
    """A map of `unmix.maps.derived` for MESMA, of what fits nearly as well as the chosen model.

    Parameters
    ----------
    problem : Problem
        Of the method "mesma".
    sums : ClassSums
    within : float
        Models, or mixtures, count if their RMSE is at most this much larger than the chosen model's; infinite for
        all that the limits allow.
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
        raise NotImplementedError

    def values(self, chosen: ChosenModels) -> np.ndarray:
        """Return the bands (n, bands) of pixels."""
        raise NotImplementedError

    def of(self, first: int, raw: np.ndarray, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """See `unmix.maps.derived.table.DerivedMap`."""
        Y = spectra(raw, self.problem.interleave, self.problem.bands)
        return map_of_solved(
            len(self.bands), abundance, masked, lambda places, A: self.values(self.chosen(Y[places], A))
        )

    def chosen(self, Y: np.ndarray, A: np.ndarray) -> ChosenModels:
        """Return pixels (n, L) with the abundances (n, p) of their models, in the order of the library."""
        from ...solvers.pixels.mesma.rivals import SAME_ABUNDANCE, products_of
        from ...solvers.pixels.mesma.search import SAME_ERROR

        E, models = self.problem.E, self.problem.models
        squares, errors, U = np.empty(len(A)), np.empty(len(A)), np.empty(A.shape)
        products_of(Y, np.ascontiguousarray(E[:, models.order]), U, squares)
        U /= models.lengths
        squares_of_residuals(Y, E, A, errors)
        A = A[:, models.order]
        is_exact = self.mesma.limits == "exact"
        used = np.abs(A) > (SAME_ABUNDANCE * A.sum(axis=1, keepdims=True) if is_exact else 0.0)
        sizes = np.count_nonzero(used, axis=1)
        is_shade_alone = (squares < models.most_error) & is_exact
        sizes[(sizes == 0) & ~is_shade_alone] = -1
        reach = min(self.within, LARGEST_RMSE) * math.sqrt(len(E))
        bounds = np.square(np.sqrt(errors) + reach) + SAME_ERROR * squares
        bounds = np.where(sizes < 0, -1.0, np.minimum(bounds, models.most_error))
        return ChosenModels(Y, A, used, sizes, U, squares, bounds)
