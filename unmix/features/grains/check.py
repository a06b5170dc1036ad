"""Verify shares of the mass, by their definition."""

from typing import Any

import numpy as np

from ...commands.verify.derived import DARK
from ...commands.verify.maps import MAP_TOLERANCE


class Masses:
    """The shares of a run, found again; ``solved`` is an `unmix.commands.verify.solved.SolvedScene`."""

    def __init__(self, solved: Any, everything: bool, pixels: int) -> None:
        self.solved = solved

    def wrong(
        self, written: np.ndarray, A: np.ndarray, Y: np.ndarray, line: int, places: np.ndarray, blur: float
    ) -> np.ndarray:
        """See `unmix.features.OwnMap`."""
        mass_of = dict(self.solved.asked["grains"])
        mass = np.array([mass_of[name] for name in self.solved.plain_library.names if name in mass_of])
        expected = np.array([shares_of_mass(a[: len(mass)], mass) for a in A]).reshape(len(A), len(mass)).T
        total = np.abs(A[:, : len(mass)] @ mass)
        limit = MAP_TOLERANCE * mass.max() * len(mass) / np.maximum(total, DARK * mass.max()) + blur
        return ((np.abs(written - expected) > limit) & (total > DARK * mass.max())).any(axis=0)


def shares_of_mass(a: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Return shares of the mass of abundances (p,) whose units have that mass (p,); zeros where all abundances are 0."""
    total = float(a @ mass)
    return a * mass / total if total else np.zeros(len(a))
