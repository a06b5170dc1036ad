"""Shares of the mass of intimate mixtures: the table of grains, and the map."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError
from ...io import read_small
from ...library.table import cells_of
from ...maps.derived.solved import map_of_solved
from ...maps.derived.table import MapOfSums

# Bytes of a table of grains.
LONGEST_FILE = 2**20
# Columns of that table.
COLUMNS = "name", "density", "diameter"


@dataclass(frozen=True)
class MassMap:
    """Shares of the mass, ``a_j m_j / Σ a_k m_k``, of abundances (shares of the cross-section); 0 where all are 0.

    Attributes
    ----------
    mass : array (p,), float64
        The mass of a unit of cross-section of each endmember: its density times the diameter of its grains. Shade has
        none.
    """

    mass: np.ndarray

    def __call__(self, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """Return the map of abundances (n, p, samples); see `unmix.maps.derived.table.MapOfSums`."""

        def values(_: np.ndarray, A: np.ndarray) -> np.ndarray:
            masses = A[:, : len(self.mass)] * self.mass
            total = masses.sum(axis=1, keepdims=True)
            return np.divide(masses, total, out=np.zeros_like(masses), where=total != 0)

        return map_of_solved(len(self.mass), abundance, masked, values)


def mass_of(path: str | os.PathLike[str], names: Sequence[str]) -> np.ndarray:
    """Return each endmember's mass of a unit of cross-section, (p,), from a CSV table: density times diameter."""
    table = Path(path)
    rows = cells_of(table, read_small(table, LONGEST_FILE), COLUMNS, "a table of grains")
    found = dict[str, float]()
    for r, (name, *numbers) in rows:
        try:
            density, diameter = map(float, numbers)
        except ValueError:
            density = diameter = np.nan
        if not (0 < density < np.inf and 0 < diameter < np.inf):
            raise InputError(
                f"{path}: row {r}: density and diameter are numbers above 0, not '{numbers[0]}', '{numbers[1]}'"
            )
        if name in found:
            raise InputError(f"{path}: row {r}: {name} is named twice")
        found[name] = density * diameter
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(f"{path}: has no row for {missing[0]}; each endmember needs its density and diameter")
    return np.array([found[name] for name in names])


def made(given: Any) -> MapOfSums:
    """Return the map of a run."""
    names = given.problem.endmembers.names
    names = names[: len(names) - given.problem.constraint.has_shade]
    return MapOfSums(names, "shares of the mass", MassMap(mass_of(given.options.grains, names)))
