"""Maps that are made of the float64 abundances of some lines, before these are rounded for their own map.

The map of intimate mixtures, whose single-scattering albedo is unmixed: the RMSE of the reflectance.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ...blocks import cores
from ...errors import MethodError
from ...features.runs import own_maps
from ...io import Cube, origin_of, read_lines, spectra
from ...options import Options
from ...pages.pictures import MOST_CLASSES, fields_of_classes
from ...problem import Problem
from ...scene import geometry_of
from ...settings.maps import MAPS
from .solved import map_of_solved, squares_of_residuals

if TYPE_CHECKING:
    from ...scene.albedo import Geometry


@dataclass(frozen=True)
class ReflectanceMap:
    """The RMSE of the reflectance that the modelled albedo has."""

    problem: Problem
    geometry: "Geometry"
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


# Threads that finish a block's lines, derive maps and write them; more would wait for Python's lock longer than they
# work (`unmix.io.read`).
MOST_WRITERS = 4


def threads_of_a_writer(options: Options) -> int:
    """Return how many threads may work for each of the threads that write."""
    return max(1, (options.threads or cores()) // MOST_WRITERS)


class DerivedMap(Protocol):
    """The interface of such a map: names of its bands, what it is, and its values.

    ``of(first, raw, abundance, masked)`` returns the values of n lines, float32 (n, bands, samples), −9999 where
    masked. ``first`` is the number of the first line, ``raw`` has the stored values, ``abundance`` is (n, p, samples)
    float64, ``masked`` (n, samples) bool.
    """

    @property
    def bands(self) -> tuple[str, ...]: ...
    @property
    def description(self) -> str: ...
    def of(self, first: int, raw: np.ndarray, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class MapOfSums:
    """A map that sums by class make from abundances alone."""

    bands: tuple[str, ...]
    description: str
    values: Callable[[np.ndarray, np.ndarray], np.ndarray]  # of abundance and masked
    fields: dict[str, str | list[str]] = field(default_factory=dict)  # further ones of its header

    def of(self, first: int, raw: np.ndarray, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """See `DerivedMap`."""
        return self.values(abundance, masked)


class AmountsOfFree:
    """The amounts of spectra of any sign that were taken out of pixels and library."""

    description = "amounts of free spectra"

    def __init__(self, given: "GivenLines") -> None:
        cube: Any = given.cube  # `unmix.scene.free.Freed`
        self.scene = cube
        whole, names = given.options.library_of(cube.source), given.problem.endmembers.names
        self.E = np.ascontiguousarray(
            whole.matrix[:, [whole.names.index(name) for name in names if name in whole.names]]
        )
        self.bands: tuple[str, ...] = tuple(cube.free.names)

    def of(self, first: int, raw: np.ndarray, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """See `DerivedMap`."""
        source = self.scene.source
        Y = source.spectra(read_lines(source.cube, slice(first, first + len(abundance))))

        def values(places: np.ndarray, A: np.ndarray) -> np.ndarray:
            return np.asarray(self.scene.amounts(Y[places], self.E, A[:, : self.E.shape[1]]))

        return map_of_solved(len(self.bands), abundance, masked, values)


@dataclass(frozen=True)
class Unweighted:
    """The RMSE of the bands as they are, where they have weights."""

    problem: Problem
    bands = MAPS["unweighted"].bands
    description = "RMSE of the bands without their weights"

    def of(self, first: int, raw: np.ndarray, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """See `DerivedMap`."""
        bands, endmembers = self.problem.plain
        Y, E = spectra(raw, self.problem.interleave, bands), endmembers.matrix

        def values(places: np.ndarray, A: np.ndarray) -> np.ndarray:
            squares = np.empty(len(A))
            squares_of_residuals(Y[places], E, A, squares)
            return np.sqrt(squares[:, None] / len(E))

        return map_of_solved(1, abundance, masked, values)


class GivenLines(NamedTuple):
    """The arguments of a map's maker.

    ``origin`` is the line and sample at which the part that is read begins; ``device`` the name of that which solves
    the scene.
    """

    problem: Problem
    options: Options
    sums: Any  # ClassSums; None without sums by class
    origin: tuple[int, int]
    device: str
    cube: Cube

    @property
    def threads(self) -> int:
        """How many threads may work for it."""
        return threads_of_a_writer(self.options)


def lines_of_fractions(given: GivenLines) -> DerivedMap:
    """Return the map of sums by class."""
    what = "shade-normalized sums by class" if given.sums.normalized else "sums by class"
    normalization = given.problem.normalization
    what = what if normalization is None else f"sums by class of {normalization.description}"
    return MapOfSums(given.sums.bands, what, given.sums.fractions)


def lines_of_reflectance(given: GivenLines) -> DerivedMap:
    """Return the map of the RMSE of reflectance, where albedo is unmixed."""
    albedo = given.options.reading.albedo
    assert albedo is not None
    return ReflectanceMap(given.problem, geometry_of(albedo))


def classes(given: GivenLines) -> DerivedMap:
    """Return the map of classes, whose header names and colours them."""
    sums = given.sums
    if len(sums.names) > MOST_CLASSES:
        raise MethodError(f"`class_map` has room for {MOST_CLASSES} classes, but the library has {len(sums.names)}")
    tints = given.problem.plain[1].colors
    own = [next((tints[j] for j in members if tints[j]), "") for members in sums.members] if tints else None
    fields = fields_of_classes(sums.names, own)
    return MapOfSums(("class",), "class of the largest sum, 0 where none is above 0,", sums.largest, fields)


# The maps by their names; `unmix.options.Options.derived` says which are wanted.
DERIVED: dict[str, Callable[[GivenLines], DerivedMap]] = {
    "model": lambda given: MapOfSums(
        given.sums.names, "endmember of each class, from 1 (0 is none),", given.sums.models
    ),
    "fraction": lines_of_fractions,
    **{name: one.made for name, one in own_maps().items()},
    "class": classes,
    "unweighted": lambda given: Unweighted(given.problem),
    "free": AmountsOfFree,
    "reflectance": lines_of_reflectance,
}


def header_fields(one: DerivedMap) -> dict[str, str | list[str]]:
    """Return the fields of a map's header."""
    further = one.fields if isinstance(one, MapOfSums) else {}
    return {"description": one.description, "band names": list(one.bands), **further}


def derived_maps(problem: Problem, options: Options, scene: Cube, device: str = "cpu") -> dict[str, DerivedMap]:
    """Return the derived maps that the options ask for, by their names."""
    sums = options.sums(problem.endmembers, problem.normalization)
    given = GivenLines(problem, options, sums, origin_of(scene), device, scene)
    return {name: DERIVED[name](given) for name in options.derived}
