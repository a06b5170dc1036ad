"""Endmembers as the edges of the smallest cone: where the search begins, and the near-pure pixels of which each spectrum is the
mean."""

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...errors import CubeError
from ..nfindr import Simplex, exchanged_from
from ..passes import Passes
from ..sisal import Enclosing, sisal
from ..statistics import Moments
from ..vca import Points, principal
from .directions import FEWEST_PAIRS, MOST_PIXELS, Directions, noise_of_directions, sampled_directions, signal_axes
from .smallest import Fitted, Weighed, cost_of, distance_and_lonely_edges, fitted, narrowed

# Random parts of the sample from whose pixels the search begins, and the part of the pixels that is in each. With all pixels alone
# it ended in another minimum in one of ten synthetic scenes.
PARTS, PIXELS_A_PART = 8, 20
# Rounds of the search: the most directions, the most steps, and the number of distinct cones that go on to the next round.
ROUNDS = ((512, 10, 6), (2048, 20, 2), (MOST_PIXELS, 60, 1))
# To count, fewer parts do: with 2, 4 or 8 the counts of 46 of 48 synthetic scenes were the same. The search ends
# after this many counts that are no better than the best: after 1, it ended too early on two of 48 scenes; after 8, where it does now.
PARTS_TO_COUNT, NO_BETTER = 2, 2
# Two cones are one where no edge is further (radians) from the other's nearest.
ALIKE = 0.02
# A pixel is near-pure where its fraction of an edge is above this. One mean of them: further rounds draw spectra inwards where
# few pixels are pure.
NEAR_PURE = 0.75
# Directions of a sample are the same up to this: a rounding of values in float32.
ROUNDING_OF_DIRECTIONS = 1e-7
# Where pixels leave the cone by less than this share of their noise, spectra do not vary within a material: its edges are the spectra.
# On scenes of synthetic mixtures with noise alone the share was 0.2 to 1 (up to 2 at 30 dB), on all 48 with variability 1.2 to 4, on
# real ones 2.6 and 6.
SHARP = 1.0
# Neighbours whose differences have more than this share of the variance of all pixels are no more alike than others, and tell no noise.
ALIKE_NEIGHBOURS = 0.3
# The brightness of a scene does not vary where its pixels leave a plane, of the dimensions that the materials span, by at most so
# many times their noise: half of what neighbours differ by across the plane, and what is left of a pixel outside of these dimensions.
# With both, 80 of 84 flat synthetic scenes of 25 to 50 dB are flat, none of 68 whose brightness or spectra vary, and no real one.
FLAT_BESIDE_NEIGHBOURS, FLAT_BESIDE_REST = 1.25, 3.0
# Directions among which the strongest one is left out of noise, since it may be another material. And the factor by which a direction
# that holds more than noise is stronger than the strongest direction of noise alone (Marčenko and Pastur 1967).
STRONGEST, ABOVE_NOISE = 10, 1.15
# An edge with fewer near-pure pixels keeps its own direction.
FEWEST_NEAR_PURE = 3


@dataclass(frozen=True)
class Cone:
    """Endmembers that are the edges of a cone.

    Attributes
    ----------
    spectra : array (L, p), float64
        Their spectra, of the brightness of their near-pure pixels: the mean directions of these, or, of a sharp cone, its edges.
    places : list of int
        The pixel that holds most of each.
    purest : list of list of int
        The near-pure pixels of each, the purest first.
    cost : float
        The value that the cone minimises (`unmix.endmembers.cone.smallest`).
    pixels : int
        Pixels of the sample.
    near_pure : list of int
        The number of near-pure pixels of each.
    sharp : bool
        Whether pixels leave the cone by less than their noise.
    """

    spectra: np.ndarray
    places: list[int]
    purest: list[list[int]]
    cost: float
    pixels: int
    near_pure: list[int]
    sharp: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the entry for ``run.json``."""
        return {"cost": self.cost, "pixels": self.pixels, "near_pure": self.near_pure, "sharp": self.sharp}


def cone(moments: Moments | None, p: int, seed: int, budget: int, passes: Passes) -> Cone | Enclosing | list[int]:
    """Find p endmembers; the arguments are those of `unmix.endmembers.vca.vca`.

    A sample of the pixels is read, one pass at most, and held: `MOST_PIXELS` spectra. Where the brightness of the scene does not
    vary, the smallest simplex around the pixels is taken (`unmix.endmembers.sisal`): it needs no pure ones, and knows areas. A list of
    fewer pixels than p where there are no more distinct directions; `CubeError` where no pixel of the sample has a direction.
    """
    view = View.of(passes)
    if len(view.sample.places) == 0:
        raise CubeError(f"{passes.scenes[0].cube.path}: no pixel of the sample is above 0; use `extract` nfindr")
    data, axes = view.weighed(p)
    if moments is not None and view.is_plane(axes):
        found = sisal(moments, p, seed, budget, passes)
        return replace(found, is_flat=True) if isinstance(found, Enclosing) else found
    begins = starts(data.T, view.sample.lengths, p, seed, PARTS)
    if not begins:
        rank = int(np.linalg.matrix_rank(data.T, tol=ROUNDING_OF_DIRECTIONS * np.sqrt(len(data.T))))
        return [int(place) for place in view.sample.places[: min(rank, p - 1)]]
    return endmembers_of(view, data, axes, search(data, begins, ROUNDS, passes.threads))


class View(NamedTuple):
    """A sample of directions and their weights."""

    sample: Directions
    noise: np.ndarray  # (n,) its variance
    weights: np.ndarray  # (n,) of mean 1: squared distances count by the inverse of the noise's deviation

    @classmethod
    def of(cls, passes: Passes) -> "View":
        """Read the sample: one pass at most."""
        sample = sampled_directions(passes)
        passes.made += 1
        noise = noise_of_directions(sample)
        weights = noise**-0.5
        return cls(sample, noise, weights / weights.mean())

    def is_sharp(self, one: Fitted) -> bool:
        """Return whether directions leave a cone, within the subspace, by less than their noise there."""
        enough = self.sample.follows.sum() >= FEWEST_PAIRS
        alike = self.noise.mean() <= ALIKE_NEIGHBOURS * self.sample.units.var(axis=0).sum()
        noise = self.noise.mean() * len(one.W) / self.sample.spectra.shape[1]
        return bool(enough and alike and np.square(one.R).sum(axis=1).mean() < SHARP**2 * noise)

    def is_flat(self, axes: np.ndarray) -> bool:
        """Return whether the pixels lie on a plane of the subspace with these axes (L, p) that misses zero, but for noise.

        There is a w with ``wᵀy = 1`` for all of them then: amounts of any endmembers on the plane sum to one.
        """
        Y, follows = self.sample.spectra, np.flatnonzero(self.sample.follows)
        if len(follows) < FEWEST_PAIRS or axes.shape[1] >= len(axes):
            return False
        Z = Y @ axes
        w = np.linalg.lstsq(Z, np.ones(len(Z)), rcond=None)[0]
        across = Z @ w
        _, rest = self.powers_beside(axes)
        beside = 0.5 * np.square(across[follows] - across[follows - 1]).mean()
        noise = min(FLAT_BESIDE_NEIGHBOURS**2 * beside, FLAT_BESIDE_REST**2 * rest * float(w @ w))
        return bool(np.square(across - 1.0).mean() <= max(noise, ROUNDING_OF_DIRECTIONS**2))

    def is_plane(self, axes: np.ndarray) -> bool:
        """Return whether `is_flat` holds for these axes, and each of them holds more than noise: a further corner would not."""
        p = axes.shape[1]
        if p < 2 or not self.is_flat(axes):
            return False
        strongest, rest = self.powers_beside(self.weighed(p - 1)[1])
        edge = (1.0 + np.sqrt(self.sample.spectra.shape[1] / len(self.sample.spectra))) ** 2
        return bool(strongest > ABOVE_NOISE * edge * rest)

    def powers_beside(self, axes: np.ndarray) -> tuple[float, float]:
        """Return the largest mean square of what is left of the pixels in one direction outside of a subspace, and that of noise."""
        Y = self.sample.spectra
        R = Y - (Y @ axes) @ axes.T
        powers = np.maximum(np.linalg.eigvalsh(R.T @ R / len(Y))[axes.shape[1] :], 0.0)
        weak = powers[: max(1, len(powers) - -(-len(powers) // STRONGEST))]
        return float(powers[-1]), float(weak.mean())

    def weighed(self, p: int) -> tuple[Weighed, np.ndarray]:
        """Return the directions in the subspace of p dimensions, and its axes (L, p)."""
        axes = signal_axes(self.sample, self.weights, min(p, self.sample.spectra.shape[1]))
        T = self.sample.units @ axes
        return Weighed(T, np.maximum(1.0 - np.square(T).sum(axis=1), 0.0), self.weights), axes

    def value_of(self, p: int, seed: int, threads: int) -> float:
        """Return the value by which a cone of p edges is compared, infinite where there are fewer directions."""
        data, _ = self.weighed(p)
        begins = starts(data.T, self.sample.lengths, p, seed, PARTS_TO_COUNT)
        if not begins:
            return np.inf
        return distance_and_lonely_edges(fitted(data, search(data, begins, ROUNDS[:-1], threads)))


def count(passes: Passes, most: int, others: Iterable[int] = (), seed: int = 0) -> dict[str, int | None]:
    """Count the endmembers from a sample of directions, at most ``most``, by two criteria.

    ``plane``: that of ``others``, which count dimensions, in as many of which the pixels of a scene whose brightness does not vary lie
    on a plane, None where brightness varies; of several the one that most of them say, the least of these. ``cone``: the edges of the
    cone with the least value of `distance_and_lonely_edges`, see `count_edges`. Both are None where the sample has too few neighbours
    to tell noise.
    """
    view = View.of(passes)
    if view.sample.follows.sum() < FEWEST_PAIRS:
        return {"plane": None, "cone": None}
    most = min(most, *view.sample.spectra.shape)
    said = Counter(p for p in others if p <= most)
    flat = [p for p in sorted(said) if p > 1 and view.is_flat(view.weighed(p)[1])]
    plane = max(flat, key=said.__getitem__, default=None)
    return {"plane": plane, "cone": count_edges(view, most, said, seed, passes)}


def count_edges(view: View, most: int, others: Iterable[int], seed: int, passes: Passes) -> int:
    """Return the number of edges of the best cone.

    Cones of 1, 2, 3… edges are searched until `NO_BETTER` in a row are no better, and cones of as many as ``others`` say.
    """
    values: dict[int, float] = {}
    for p in range(1, most + 1):
        values[p] = view.value_of(p, seed, passes.threads)
        best = min(values, key=values.__getitem__)
        if p - best >= NO_BETTER:
            break
    for p in others:
        if p not in values:
            values[p] = view.value_of(p, seed, passes.threads)
    return min(values, key=values.__getitem__)


def search(data: Weighed, begins: list[list[int]], rounds: Sequence[tuple[int, int, int]], threads: int) -> np.ndarray:
    """Return the edges (p, p) of the cone of least cost to which some rounds lead from several sets of directions."""
    ways = [data.T[some].T for some in begins]
    with ThreadPoolExecutor(threads) as pool:
        for pixels_used, steps, kept in rounds:
            thin = data.some(-(-len(data.T) // pixels_used))
            ways = list(pool.map(partial(narrowed, thin, most=steps), ways))
            ways = distinct(sorted(ways, key=partial(cost_of, thin)), kept)
    return ways[0]


def distinct(ways: list[np.ndarray], most: int) -> list[np.ndarray]:
    """Return the first cones (p, p) of a list that differ from those before, at most ``most``."""
    found: list[np.ndarray] = []
    for W in ways:
        if len(found) < most and all((W.T @ V).max(axis=1).min() < np.cos(ALIKE) for V in found):
            found.append(W)
    return found


def starts(T: np.ndarray, lengths: np.ndarray, p: int, seed: int, parts: int) -> list[list[int]]:
    """Return sets of p rows of T (n, p) whose directions are independent, each the corners of a largest simplex of some of the rows.

    Simplices of directions, of directions in perspective along their mean, and of the pixels with their lengths: the noise of dark
    pixels is small in the last, their mixtures are exact in the second. Of all rows also those that SPA picks.
    """
    n = len(T)
    random = np.random.Generator(np.random.PCG64(seed))
    size = max(n // PIXELS_A_PART, 10 * p)
    some_rows = [np.sort(random.choice(n, size, replace=False)) for _ in range(parts if size < n else 0)]
    found: list[list[int]] = []
    for part in [np.arange(n), *some_rows]:
        for rows in (T[part], in_perspective(T[part]), T[part] * lengths[part, None]):
            for places in corners_of(rows, p)[0 if len(part) == n else -1 :]:
                some = sorted(int(part[k]) for k in places)
                if len(set(some)) == p and some not in found and np.linalg.cond(T[some]) < 1e10:
                    found.append(some)
    return found


def corners_of(rows: np.ndarray, p: int) -> list[list[int]]:
    """Return the rows (n, p) that SPA picks in their p − 1 principal components, and those to which exchanges lead from there."""
    if p == 1:
        return [[int(np.argmax(np.square(rows).sum(axis=1)))]]
    valid = np.flatnonzero(np.isfinite(rows).all(axis=1))
    centred = rows[valid] - rows[valid].mean(axis=0)
    covariance = centred.T @ centred / max(1, len(valid))
    points = Points(len(valid), p - 1, 8 * len(valid) * p)
    points.put(0, centred @ principal(covariance, p - 1))
    first: list[list[int]] = []

    def begin(_: Points, __: float, spanning: list[int]) -> list[list[int]]:
        first.append(spanning)
        return [spanning]

    simplex = exchanged_from(points, float(np.sqrt(np.trace(covariance))), p, begin)
    picked = [*first, simplex.places] if isinstance(simplex, Simplex) else first
    return [[int(valid[k]) for k in some] for some in picked]


def in_perspective(T: np.ndarray) -> np.ndarray:
    """Return directions divided by their part along the mean one, NaN where that is not above 0."""
    middle = T.mean(axis=0)
    along = T @ (middle / np.linalg.norm(middle))
    return T / np.where(along > 0, along, np.nan)[:, None]


def mean_of(Y: np.ndarray) -> np.ndarray:
    """Return the mean direction of some pixels (n, L), as long as their median."""
    lengths = np.linalg.norm(Y, axis=1)
    direction = (Y / lengths[:, None]).mean(axis=0)
    found: np.ndarray = direction / np.linalg.norm(direction) * np.median(lengths)
    return found


def endmembers_of(view: View, data: Weighed, axes: np.ndarray, W: np.ndarray) -> Cone:
    """Return the endmembers of a cone: of each edge the mean direction of its near-pure pixels, or the edge where the cone is sharp."""
    sample, one = view.sample, fitted(data, W)
    sharp, fractions = view.is_sharp(one), one.fractions
    order = np.argsort(-fractions.sum(axis=0), kind="stable")
    spectra, purest = [], []
    for j in order:
        by_purity = np.argsort(-fractions[:, j], kind="stable")
        near = by_purity[: max(1, int((fractions[:, j] >= NEAR_PURE).sum()))]
        edge = axes @ W[:, j] * np.median(sample.lengths[near])
        has_mean = not sharp and len(near) >= FEWEST_NEAR_PURE
        spectra.append(mean_of(sample.spectra[np.sort(near)]) if has_mean else edge)
        purest.append([int(place) for place in sample.places[near]])
    matrix = np.ascontiguousarray(np.stack(spectra, axis=1))
    places = [some[0] for some in purest]
    return Cone(matrix, places, purest, cost_of(data, W), len(sample.places), [len(some) for some in purest], sharp)
