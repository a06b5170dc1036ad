"""Derive class fractions over all models that fit a pixel nearly as well as the chosen one."""

import math
from typing import Any

import numpy as np

from ...io.fields import NODATA
from ...library.classes import SHADE, each_once
from ...maps.derived.models import ChosenModels, MapOfModels
from ...solvers.pixels.mesma.rivals import NUMBERS, new_rivals, rivals_function


class ModelSpread(MapOfModels):
    """Mean, deviation, least and largest fraction of each class over these models, and the gap to the next best."""

    @property
    def bands(self) -> tuple[str, ...]:
        """The names of the bands."""
        kinds = each_once((*self.sums.names, SHADE))
        return ("gap to the next model", "models", *(f"{kind} {number}" for kind in kinds for number in NUMBERS))

    @property
    def description(self) -> str:
        """Description of the map."""
        which = "all models" if math.isinf(self.within) else f"models within {self.within:g} of the RMSE"
        return f"how many {which}, and class fractions over them,"

    def values(self, chosen: ChosenModels) -> np.ndarray:
        """See `MapOfModels`."""
        models, (Y, A, used, sizes, U, squares, bounds) = self.problem.models, chosen
        spectra_of = np.argsort(~used, axis=1, kind="stable")[:, :3]
        spectra_of = np.pad(spectra_of, ((0, 0), (0, max(0, 3 - spectra_of.shape[1]))))
        amounts, out = np.take_along_axis(A, spectra_of, axis=1), np.empty((len(A), len(self.bands)))
        rivals = new_rivals(self.kind, len(self.sums.names), self.sums.normalized, len(models.spectra))
        find = rivals_function()
        find(models, Y, U, squares, bounds, sizes, spectra_of, amounts, rivals, float(Y.shape[1]), out)
        return np.nan_to_num(out, nan=NODATA)


def made(given: Any) -> ModelSpread:
    """Return the map of a run."""
    return ModelSpread(given.problem, given.sums, given.options.rmse_within)
