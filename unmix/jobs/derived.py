"""Maps that are made of the float64 abundances of some lines, before these are rounded for their own map."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..io import Cube
from ..io.window import Window
from ..library import ClassSums
from ..options import Options
from ..problem import Problem
from .monte_carlo import MonteCarlo
from .uncertainty import Uncertainty


class DerivedMap(Protocol):
    """The interface of such a map: names of its bands, what it is, and its values.

    ``of(first, raw, abundance, masked)`` returns the values of n lines, float32 (n, bands, samples), −9999 where masked. ``first`` is
    the number of the first line, ``raw`` has the stored values, ``abundance`` is (n, p, samples) float64, ``masked`` (n, samples) bool.
    """

    @property
    def bands(self) -> tuple[str, ...]: ...
    @property
    def description(self) -> str: ...
    def of(self, first: int, raw: np.ndarray, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class Fractions:
    """Sums by class, shade and brightness."""

    sums: ClassSums

    @property
    def bands(self) -> tuple[str, ...]:
        """The classes, shade and brightness."""
        return self.sums.bands

    @property
    def description(self) -> str:
        """What the map is."""
        return "shade-normalized sums by class" if self.sums.normalized else "sums by class"

    def of(self, first: int, raw: np.ndarray, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """See `DerivedMap`."""
        return self.sums.fractions(abundance, masked)


@dataclass(frozen=True)
class Models:
    """The spectrum of each class in a pixel's model."""

    sums: ClassSums

    @property
    def bands(self) -> tuple[str, ...]:
        """The classes."""
        return self.sums.names

    @property
    def description(self) -> str:
        """What the map is."""
        return "endmember of each class, from 1 (0 is none),"

    def of(self, first: int, raw: np.ndarray, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """See `DerivedMap`."""
        return self.sums.models(abundance, masked)


Make = Callable[[Problem, Options, ClassSums | None, tuple[int, int]], DerivedMap]


def models(problem: Problem, options: Options, sums: ClassSums | None, origin: tuple[int, int]) -> DerivedMap:
    """Return the map of models."""
    assert sums is not None
    return Models(sums)


def fractions(problem: Problem, options: Options, sums: ClassSums | None, origin: tuple[int, int]) -> DerivedMap:
    """Return the map of sums by class."""
    assert sums is not None
    return Fractions(sums)


def deviations(problem: Problem, options: Options, sums: ClassSums | None, origin: tuple[int, int]) -> DerivedMap:
    """Return the map of standard deviations."""
    return Uncertainty(problem, sums)


def scatter(problem: Problem, options: Options, sums: ClassSums | None, origin: tuple[int, int]) -> DerivedMap:
    """Return the map of means and standard deviations over draws."""
    assert sums is not None and options.draw_choice is not None
    return MonteCarlo(problem, sums, options.draw_choice, origin)


# The maps by their names; `unmix.options.Options.derived` says which are wanted.
DERIVED: dict[str, Make] = {"model": models, "fraction": fractions, "sigma": deviations, "montecarlo": scatter}


def derived_maps(problem: Problem, options: Options, scene: Cube) -> dict[str, DerivedMap]:
    """Return the derived maps that the options ask for, by their names.

    Raises
    ------
    LibraryError
        Where sums by class are wanted, and the endmembers have no classes.
    MethodError
        See `MonteCarlo`.
    """
    sums = options.sums(problem.endmembers)
    origin = scene.origin if isinstance(scene, Window) else (0, 0)
    return {name: DERIVED[name](problem, options, sums, origin) for name in options.derived}
