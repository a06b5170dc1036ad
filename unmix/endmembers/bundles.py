"""Bundles: several spectra of each material from parts of a scene, and how often each is found (Somers et al. 2012)."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..library.spectra import angles_between
from .nfindr import Simplex, components, exchanged_from, spanning_and_seeded
from .passes import Passes
from .statistics import Moments
from .vca import Points

# A material is found in a part of the scene where its spectrum there is nearer to it than this share of its angle to
# the nearest other.
FOUND = 0.5


class EveryOther(Points):
    """Every n-th projected pixel: ``first``, ``first + every``, and so on; the others are as if they were masked."""

    def __init__(self, points: Points, first: int, every: int) -> None:
        self.pixels, self.d, self.points, self.first, self.every = points.pixels, points.d, points, first, every
        self.threads, self.pool = points.threads, points.pool

    def parts(self) -> Iterator[tuple[int, Callable[[], np.ndarray]]]:
        """See `Points.parts`."""
        for begun, part in self.points.parts():
            yield begun, functools.partial(self.own, begun, part)

    def own(self, begun: int, part: Callable[[], np.ndarray]) -> np.ndarray:
        """Return some rows, those of others as NaN."""
        rows, some = part(), slice((self.first - begun) % self.every, None, self.every)
        own = np.full(rows.shape, np.nan)
        own[some] = rows[some]
        return own

    def row(self, n: int) -> np.ndarray:
        """See `Points.row`."""
        return self.points.row(n)


@dataclass(frozen=True)
class Bundles:
    """The pixels of each material: those of the whole scene, and of each part of it.

    Attributes
    ----------
    simplex : Simplex
        Of the whole scene.
    parts : list of lists of int
        Of each part the pixels of its largest simplex, in the order in which they were found; empty where it has none.
    """

    simplex: Simplex
    parts: list[list[int]]


def bundles(moments: Moments, p: int, seed: int, budget: int, passes: Passes, subsets: int) -> Bundles | list[int]:
    """Find the largest simplices of a scene and its parts, with the arguments of `nfindr`; pixels if there is none."""
    begin = spanning_and_seeded(p, seed)
    with components(moments, p, budget, passes) as (points, constant):
        whole = exchanged_from(points, constant, p, begin)
        if not isinstance(whole, Simplex):
            return whole
        # A part is every n-th pixel, in the components of the whole scene.
        found = [exchanged_from(EveryOther(points, k, subsets), constant, p, begin) for k in range(subsets)]
        return Bundles(whole, [one.places if isinstance(one, Simplex) else [] for one in found])


def grouped(whole: np.ndarray, parts: list[np.ndarray]) -> tuple[list[list[tuple[int, int]]], list[dict[str, Any]]]:
    """Assign spectra of parts (L, p) to the whole scene's; return (part, column) pairs and how often each was found."""
    from scipy.optimize import linear_sum_assignment

    p = whole.shape[1]
    apart = angles_between(whole, whole)
    np.fill_diagonal(apart, np.inf)
    groups: list[list[tuple[int, int]]] = [[] for _ in range(p)]
    angles: list[list[float]] = [[] for _ in range(p)]
    for number, E in enumerate(parts):
        table = angles_between(whole, E)
        for k, j in zip(*linear_sum_assignment(table)):
            groups[k].append((number, int(j)))
            angles[k].append(float(table[k, j]))
    limits = FOUND * apart.min(axis=1)
    # ``found`` is the share of parts that found it, ``angle`` the median angle of theirs to it in degrees.
    consensus = [
        {"found": float(np.mean([angle < limits[k] for angle in some])), "angle": float(np.degrees(np.median(some)))}
        if some
        else {"found": 0.0, "angle": None}
        for k, some in enumerate(angles)
    ]
    return groups, consensus
