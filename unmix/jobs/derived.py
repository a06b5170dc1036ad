"""Maps that are made of the float64 abundances of some lines, before these are rounded for their own map."""

import colorsys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..blocks import cores
from ..errors import MethodError
from ..io import Cube, spectra
from ..io.export import NODATA
from ..io.window import Window
from ..library import ClassSums
from ..options import Options
from ..problem import Problem, Weighting
from .monte_carlo import MonteCarlo
from .uncertainty import Uncertainty, squares_of_residuals

# Threads that finish a block's lines, derive maps and write them; more would wait for Python's lock longer than they work
# (`unmix.io.read`).
MOST_WRITERS = 4
# Classes of a map of bytes.
MOST_CLASSES = 255
# Okabe and Ito 2008, but for black.
COLOURS = ((230, 159, 0), (0, 158, 115), (86, 180, 233), (240, 228, 66), (0, 114, 178), (213, 94, 0), (204, 121, 167))


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


@dataclass(frozen=True)
class Classes:
    """The class with the largest sum."""

    sums: ClassSums

    @property
    def bands(self) -> tuple[str, ...]:
        """The one band."""
        return ("class",)

    @property
    def description(self) -> str:
        """What the map is."""
        return "class of the largest sum, 0 where none is above 0,"

    def of(self, first: int, raw: np.ndarray, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """See `DerivedMap`; uint8, from 1, the first of equal ones, 0 where masked."""
        return self.sums.largest(abundance, masked)


@dataclass(frozen=True)
class Unweighted:
    """The RMSE of the bands as they are, where they have weights."""

    weighting: Weighting
    interleave: str

    @property
    def bands(self) -> tuple[str, ...]:
        """The one band."""
        return ("rmse",)

    @property
    def description(self) -> str:
        """What the map is."""
        return "RMSE of the bands without their weights"

    def of(self, first: int, raw: np.ndarray, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """See `DerivedMap`."""
        n, p, samples = abundance.shape
        E, solved = self.weighting.endmembers.matrix, np.flatnonzero(~masked.ravel())
        A = np.ascontiguousarray(abundance.transpose(0, 2, 1)).reshape(-1, p)[solved]
        squares, out = np.empty(len(solved)), np.full(n * samples, NODATA, np.float32)
        squares_of_residuals(spectra(raw, self.interleave, self.weighting.bands)[solved], E, A, squares)
        out[solved] = np.sqrt(squares / len(E))
        return out.reshape(n, 1, samples)


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
    threads = max(1, (options.threads or cores()) // MOST_WRITERS)
    return MonteCarlo(problem, sums, options.draw_choice, origin, threads)


def classes(problem: Problem, options: Options, sums: ClassSums | None, origin: tuple[int, int]) -> DerivedMap:
    """Return the map of classes."""
    assert sums is not None
    if len(sums.names) > MOST_CLASSES:
        raise MethodError(f"`class_map` has room for {MOST_CLASSES} classes, but the library has {len(sums.names)}")
    return Classes(sums)


def unweighted(problem: Problem, options: Options, sums: ClassSums | None, origin: tuple[int, int]) -> DerivedMap:
    """Return the map of the RMSE without weights."""
    assert problem.weighting is not None
    return Unweighted(problem.weighting, problem.interleave)


# The maps by their names; `unmix.options.Options.derived` says which are wanted.
DERIVED: dict[str, Make] = {
    "model": models,
    "fraction": fractions,
    "sigma": deviations,
    "montecarlo": scatter,
    "class": classes,
    "unweighted": unweighted,
}


def header_fields(one: DerivedMap) -> dict[str, str | list[str]]:
    """Return the fields of a map's header; those of a classification name and colour its classes."""
    fields: dict[str, str | list[str]] = {"description": one.description, "band names": list(one.bands)}
    if isinstance(one, Classes):
        names = ["unclassified", *one.sums.names]
        colours = [number for c in range(len(names)) for number in colour_of(c)]
        fields |= {"file type": "ENVI Classification", "classes": str(len(names)), "class names": names}
        fields |= {"class lookup": [str(number) for number in colours]}
    return fields


def colour_of(number: int) -> tuple[int, int, int]:
    """Return the colour of a class: black for 0, then those that most people with colour blindness tell apart, then hues far apart."""
    if number <= len(COLOURS):
        return ((0, 0, 0), *COLOURS)[number]
    red, green, blue = colorsys.hsv_to_rgb(number * 0.618034 % 1.0, 0.65, 0.9)
    return round(255 * red), round(255 * green), round(255 * blue)


def derived_maps(problem: Problem, options: Options, scene: Cube) -> dict[str, DerivedMap]:
    """Return the derived maps that the options ask for, by their names.

    Raises
    ------
    LibraryError
        Where sums by class are wanted, and the endmembers have no classes.
    MethodError
        Where a map of classes has no room for them.
    """
    sums = options.sums(problem.endmembers)
    origin = scene.origin if isinstance(scene, Window) else (0, 0)
    return {name: DERIVED[name](problem, options, sums, origin) for name in options.derived}
