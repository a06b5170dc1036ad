"""Endmembers as the edges of the smallest cone: the starts of the search, and the means of near-pure pixels."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...errors import CubeError
from ..cloud import Cloud
from ..directions import MOST_PIXELS
from ..fitted import Weighed, fitted
from ..passes import Passes
from ..sampled import Means, Sampled, near_pure
from ..statistics import Moments
from .smallest import cost_of, narrowed

# Random parts of the sample from whose pixels the search begins, and the part of the pixels that is in each. With all
# pixels alone it ended in another minimum in one of ten synthetic scenes.
PARTS, PIXELS_A_PART = 8, 20
# Rounds of the search: the most directions, the most steps, and the number of distinct cones that go on to the next
# round. On 48 synthetic scenes (of the families that constants are chosen on) six and two cones, and 60 steps, cost no
# less, and took 1.6 times as long. Steps that go on to the minimum (L-BFGS, a third of the time) lead to edges without
# pixels: that they are slow keeps edges.
ROUNDS = ((512, 10, 4), (2048, 20, 1), (MOST_PIXELS, 30, 1))
# To count, fewer parts do: with 1, 2 or 4 as many counts of 50 synthetic scenes were right (26, 26, 27).
PARTS_TO_COUNT = 1
# Two cones are one where no edge is further (radians) from the other's nearest.
ALIKE = 0.02
# A pixel is near-pure where its fraction of an edge is above this. One mean of them: further rounds draw spectra
# inwards where few pixels are pure.
NEAR_PURE = 0.75
# Directions of a sample are the same up to this: a rounding of values in float32.
ROUNDING_OF_DIRECTIONS = 1e-7
# `map`, or the map of a pool of threads.
Apply = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


@dataclass(frozen=True)
class Cone(Means):
    """Endmembers as the edges of a cone: the means of their near-pure pixels or, of a sharp cone, the edges.

    Attributes
    ----------
    cost : float
        The value that the cone minimises (`unmix.endmembers.auto.smallest`).
    sharp : bool
        Whether pixels leave the cone by less than their noise.
    """

    cost: float
    sharp: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the entry for ``run.json``."""
        return super().to_dict() | {"cost": self.cost, "sharp": self.sharp}


def cone(moments: Moments | None, p: int, seed: int, budget: int, passes: Passes) -> Cone | list[int]:
    """Find p endmembers, with the arguments of `vca`; return fewer than p pixels where directions are not distinct."""
    sampled = Sampled.of(passes)
    if len(sampled.sample.places) == 0:
        raise CubeError(f"{passes.scenes[0].cube.path}: no pixel of the sample is above 0; use `extract` nfindr")
    data, axes = sampled.weighed(p)
    with ThreadPoolExecutor(passes.threads, "cone") as pool:
        begins = starts(data.T, sampled.sample.lengths, p, seed, PARTS, pool.map)
        edges = search(data, begins, ROUNDS, pool.map) if begins else None
    if edges is None:
        rank = int(np.linalg.matrix_rank(data.T, tol=ROUNDING_OF_DIRECTIONS * np.sqrt(len(data.T))))
        return [int(place) for place in sampled.sample.places[: min(rank, p - 1)]]
    return endmembers_of(sampled, data, axes, edges)


def quick_cone(sampled: Sampled, p: int, seed: int = 0) -> np.ndarray | None:
    """Return the edges (k, p), in `Sampled.seen`'s axes, of a cone from fewer starts; None if there is no cone."""
    data, _ = sampled.weighed(p)
    begins = starts(data.T, sampled.sample.lengths, p, seed, PARTS_TO_COUNT, map)
    if not begins:
        return None
    W = search(data, begins, ROUNDS[:-1], map)
    rest = np.zeros((sampled.seen(p)[1].shape[1] - p, p))
    return np.vstack([W / np.linalg.norm(W, axis=0), rest])


def search(data: Weighed, begins: list[list[int]], rounds: Sequence[tuple[int, int, int]], apply: Apply) -> np.ndarray:
    """Return the edges (p, p) of the cone of least cost to which some rounds lead from several sets of directions."""
    ways = [data.T[some].T for some in begins]
    for pixels_used, steps, kept in rounds:
        thin = data.some(-(-len(data.T) // pixels_used))
        thin.tiles  # noqa: B018 (once for all ways)
        found = apply(partial(narrowed, thin, most=steps), ways)
        ways = distinct([one.W for one in sorted(found, key=cost_of)], kept)
    return ways[0]


def distinct(ways: list[np.ndarray], most: int) -> list[np.ndarray]:
    """Return the first cones (p, p) of a list that differ from those before, at most ``most``."""
    found: list[np.ndarray] = []
    for W in ways:
        if len(found) < most and all((W.T @ V).max(axis=1).min() < np.cos(ALIKE) for V in found):
            found.append(W)
    return found


def starts(T: np.ndarray, lengths: np.ndarray, p: int, seed: int, parts: int, apply: Apply) -> list[list[int]]:
    """Return sets of p independent rows of T (n, p), each the corners of a largest simplex of some of the rows."""
    n = len(T)
    random = np.random.Generator(np.random.PCG64(seed))
    size = max(n // PIXELS_A_PART, 10 * p)
    some_rows = [np.sort(random.choice(n, size, replace=False)) for _ in range(parts if size < n else 0)]
    found: list[list[int]] = []

    def corners_of(part: np.ndarray) -> list[list[int]]:
        # Directions; directions in perspective, in which mixtures are exact; and pixels with their lengths, in which
        # the noise of dark pixels is small.
        clouds = (T[part], in_perspective(T[part]), T[part] * lengths[part, None])
        # Of all rows also the pixels that SPA picks.
        of_all = [Cloud(rows).corners(p)[0 if len(part) == n else -1 :] for rows in clouds]
        return [sorted(int(part[k]) for k in places) for each in of_all for places in each]

    for some in itertools.chain.from_iterable(apply(corners_of, [np.arange(n), *some_rows])):
        if len(set(some)) == p and some not in found and np.linalg.cond(T[some]) < 1e10:
            found.append(some)
    return found


def in_perspective(T: np.ndarray) -> np.ndarray:
    """Return directions divided by their part along the mean one, NaN where that is not above 0."""
    middle = T.mean(axis=0)
    along = T @ (middle / np.linalg.norm(middle))
    return T / np.where(along > 0, along, np.nan)[:, None]


def endmembers_of(sampled: Sampled, data: Weighed, axes: np.ndarray, W: np.ndarray) -> Cone:
    """Return the endmembers of a cone: the means of each edge's near-pure pixels, or the edges of a sharp cone."""
    sample, one = sampled.sample, fitted(data, W)
    order = np.argsort(-one.fractions.sum(axis=0), kind="stable")
    sharp = sampled.is_sharp(one)
    spectra, purest = near_pure(sample, axes @ W[:, order], one.fractions[:, order], NEAR_PURE, sharp)
    return Cone(spectra, purest, len(sample.places), cost_of(one), sharp)
