"""Derive class fractions over all models that fit a pixel nearly as well as the chosen one, and over all their mixtures."""

import logging
import math
from typing import NamedTuple

import numpy as np

from ...io import spectra
from ...io.fields import NODATA
from ...library import ClassSums
from ...library.classes import SHADE, each_once
from ...methods.fit_limit import FitLimit
from ...problem import Problem
from .ranges import bands_of_ranges, stored_ranges
from .solved import map_of_solved, squares_of_residuals

log = logging.getLogger("unmix")
LARGEST_RMSE = 1e140  # its square is a number


class Chosen(NamedTuple):
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
        Models, or mixtures, count if their RMSE is at most this much larger than that of the chosen model; infinite for all that
        the limits allow.
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

    def values(self, chosen: Chosen) -> np.ndarray:
        """Return the bands (n, bands) of pixels."""
        raise NotImplementedError

    def of(self, first: int, raw: np.ndarray, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """See `unmix.maps.derived.table.DerivedMap`."""
        Y = spectra(raw, self.problem.interleave, self.problem.bands)
        return map_of_solved(
            len(self.bands), abundance, masked, lambda places, A: self.values(self.chosen(Y[places], A))
        )

    def chosen(self, Y: np.ndarray, A: np.ndarray) -> Chosen:
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
        return Chosen(Y, A, used, sizes, U, squares, bounds)


class ModelSpread(MapOfModels):
    """Mean, standard deviation, least and largest fraction of each class over these models, and the gap to the next best."""

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

    def values(self, chosen: Chosen) -> np.ndarray:
        """See `MapOfModels`."""
        from ...solvers.pixels.mesma.rivals import new_rivals, rivals_function

        models, (Y, A, used, sizes, U, squares, bounds) = self.problem.models, chosen
        spectra_of = np.argsort(~used, axis=1, kind="stable")[:, :3]
        spectra_of = np.pad(spectra_of, ((0, 0), (0, max(0, 3 - spectra_of.shape[1]))))
        amounts, out = np.take_along_axis(A, spectra_of, axis=1), np.empty((len(A), len(self.bands)))
        rivals = new_rivals(self.kind, len(self.sums.names), self.sums.normalized, len(models.spectra))
        find = rivals_function()
        find(models, Y, U, squares, bounds, sizes, spectra_of, amounts, rivals, float(Y.shape[1]), out)
        return np.nan_to_num(out, nan=NODATA)


class ModelRanges(MapOfModels):
    """The least and the largest fraction of each class over all mixtures of all models; under the limits "exact".

    Parameters
    ----------
    problem, sums
        See `MapOfModels`.
    limit : FitLimit
    step : float, optional
        Of the integers that the map is stored as.
    """

    def __init__(self, problem: Problem, sums: ClassSums, limit: FitLimit, step: float | None = None) -> None:
        assert limit.within is not None
        from ...solvers.pixels.mesma.tables import count_refused

        super().__init__(problem, sums, limit.within)
        self.limit, self.step = limit, step
        refused = count_refused(problem.models)
        if refused:
            log.warning(
                f"{problem.endmembers.source}: the mixtures of {refused} models are not in `ranges`, for their spectra are too alike; "
                "prune the library"
            )

    @property
    def bands(self) -> tuple[str, ...]:
        """The names of the bands."""
        return bands_of_ranges(self.sums.names)

    @property
    def description(self) -> str:
        """Description of the map."""
        return f"ranges over the mixtures of all models: {self.limit.words},"

    def values(self, chosen: Chosen) -> np.ndarray:
        """See `MapOfModels`."""
        from ...solvers.pixels.mesma.ranges import new_reach, ranges_function, without_limits

        k = len(self.sums.names)
        fractions = np.stack([chosen.A[:, self.kind == c].sum(axis=1) for c in range(k)], axis=1)
        if self.sums.normalized:
            with np.errstate(divide="ignore", invalid="ignore"):
                fractions /= fractions.sum(axis=1, keepdims=True)
        lower, upper = np.empty(fractions.shape), np.empty(fractions.shape)
        ranges_function()(
            without_limits(self.problem.models), chosen.U, chosen.squares, chosen.bounds, fractions,
            new_reach(self.kind, k, self.sums.normalized), lower, upper,
        )  # fmt: skip
        if self.sums.normalized:  # a pixel without light: shade alone fits, and any fractions near it
            dark = ~np.isfinite(fractions).all(axis=1) & (chosen.squares <= chosen.bounds)
            lower[dark], upper[dark] = 0.0, 1.0
        return stored_ranges(lower, upper, self.step)
