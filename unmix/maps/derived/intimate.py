"""The map of intimate mixtures, whose single-scattering albedo is unmixed: the RMSE of the reflectance."""

from dataclasses import dataclass

import numpy as np

from ...io import spectra
from ...problem import Problem
from ...scene.albedo import Geometry
from ...settings.maps import MAPS
from .solved import map_of_solved


@dataclass(frozen=True)
class ReflectanceMap:
    """The RMSE of the reflectance that the modelled albedo has."""

    problem: Problem
    geometry: Geometry
    bands = MAPS["reflectance"].bands
    description = "RMSE of the reflectance"

    def of(self, first: int, raw: np.ndarray, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """See `unmix.maps.derived.table.DerivedMap`."""
        bands, endmembers = self.problem.plain
        Y = spectra(raw, self.problem.interleave, bands)

        def values(places: np.ndarray, A: np.ndarray) -> np.ndarray:
            off = self.geometry.reflectance(Y[places]) - self.geometry.reflectance(A @ endmembers.matrix.T)
            return np.sqrt(np.square(off).mean(axis=1, keepdims=True))

        return map_of_solved(1, abundance, masked, values)
