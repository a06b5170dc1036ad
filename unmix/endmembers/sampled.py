"""A sample of a scene's directions, their weights, and the subspaces in which cones of spectra are fitted to them."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from .cloud import Cloud
from .directions import FEWEST_PAIRS, Directions, noise_of_directions, sampled_directions, signal_axes
from .fitted import Fitted, Weighed, fitted
from .passes import WORTH_A_GUESS, Passes
from .statistics import Moments

# Where pixels leave the cone by less than this share of their noise, spectra do not vary within a material: its edges
# are the spectra. On scenes of synthetic mixtures with noise alone the share was 0.2 to 1 (up to 2 at 30 dB), on all 48
# with variability 1.2 to 4, on real ones 2.6 and 6.
SHARP = 1.0
# Neighbours whose differences have more than this share of the variance of all pixels are no more alike than others,
# and tell no noise.
ALIKE_NEIGHBOURS = 0.3
# A spectrum with fewer near-pure pixels keeps its own direction.
FEWEST_NEAR_PURE = 3
# Axes that are found together; a larger number of endmembers has its own. What else a spectrum holds is noise.
AXES = 32


@dataclass
class Sampled:
    """A sample of directions and their weights.

    Attributes
    ----------
    sample : Directions
    moments : Moments, optional
        Of all pixels, where they are known.
    """

    sample: Directions
    moments: Moments | None = None
    found: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)  # what `seen` returns
    seeing: Any = field(default_factory=threading.Lock)  # while a thread looks for it

    @classmethod
    def of(cls, passes: Passes, moments: Moments | None = None) -> "Sampled":
        """Read the sample, one pass at most, once for all that look at it."""
        if passes.sampled is None:
            passes.sampled = cls(sampled_directions(passes))
            passes.made += 1
            # only where brightness varies are axes needed
            if passes.threads >= WORTH_A_GUESS and passes.sampled.tells_noise:
                pool = ThreadPoolExecutor(1, "axes")
                pool.submit(passes.sampled.seen, 1)
                pool.shutdown(wait=False)
        sampled: Sampled = passes.sampled
        sampled.moments = sampled.moments or moments
        return sampled

    @cached_property
    def noise(self) -> np.ndarray:
        """The variance of the noise of each direction, (n,)."""
        return noise_of_directions(self.sample)

    @cached_property
    def weights(self) -> np.ndarray:
        """The weight of each direction (n,), of mean 1: the inverse of the standard deviation of its noise."""
        weights = self.noise**-0.5
        return np.asarray(weights / weights.mean() if len(weights) else weights)

    @property
    def tells_noise(self) -> bool:
        """Whether the sample has enough neighbours to tell noise."""
        return bool(self.sample.follows.sum() >= FEWEST_PAIRS)

    @cached_property
    def cloud(self) -> Cloud:
        """The spectra, in which corners are looked for."""
        return Cloud(self.sample.spectra, self.moments)

    def seen(self, p: int) -> tuple[np.ndarray, np.ndarray]:
        """Return at least p axes (L, k) with the most signal beside noise, and the directions' components (n, k)."""
        together = min(self.sample.spectra.shape[1], max(p, AXES))
        with self.seeing:
            if together not in self.found:
                noise, vectors = signal_axes(self.sample, self.weights, together)
                axes = np.linalg.qr(noise @ vectors)[0]
                self.found[together] = axes, self.within(axes)
        return self.found[together]

    def weighed(self, p: int) -> tuple[Weighed, np.ndarray]:
        """Return the directions in the subspace of p dimensions, and its axes (L, p)."""
        axes, T = self.seen(p)
        T = np.ascontiguousarray(T[:, :p])
        return Weighed(T, outside_of(T), self.weights), axes[:, :p]

    def fitted(self, U: np.ndarray) -> Fitted | None:
        """Return the unweighted fit of the directions to the cone of U (L, p) in all bands; None if U is dependent."""
        return fitted_in(U, self.within)

    def nearly_fitted(self, U: np.ndarray, before: Fitted | None = None) -> Fitted | None:
        """Return about `fitted`, from components (n, k) in `seen`'s axes, U (k, p); ``before`` fits similar spectra."""
        T = self.seen(U.shape[1])[1]
        return fitted_in(U, lambda basis: T @ basis, before)

    def within(self, axes: np.ndarray) -> np.ndarray:
        """Return the directions in the subspace of some axes (L, p)."""
        T = (axes.T @ self.sample.units.T).T  # in this order BLAS reads the directions at the speed of memory
        return np.ascontiguousarray(T)

    def is_sharp(self, one: Fitted) -> bool:
        """Return whether directions leave a cone, within the subspace, by less than their noise there."""
        alike = self.noise.mean() <= ALIKE_NEIGHBOURS * self.sample.units.var(axis=0).sum()
        noise = self.noise.mean() * len(one.W) / self.sample.spectra.shape[1]
        return bool(self.tells_noise and alike and np.square(one.R).sum(axis=1).mean() < SHARP**2 * noise)


def outside_of(T: np.ndarray) -> np.ndarray:
    """Return the squared length (n,) that directions with the components T (n, p) have outside of these."""
    return np.maximum(1.0 - np.einsum("ij,ij->i", T, T), 0.0)


def fitted_in(U: np.ndarray, within: Callable[[np.ndarray], np.ndarray], before: Fitted | None = None) -> Fitted | None:
    """Return the fit to the cone of U (L, p); ``within`` projects directions to a basis (L, p); None if dependent."""
    basis, W = np.linalg.qr(U)
    if np.linalg.cond(W) > 1e12:
        return None
    T = np.ascontiguousarray(within(basis))
    return fitted(Weighed(T, outside_of(T), np.ones(len(T))), W, None if before is None else before.A)


@dataclass(frozen=True)
class Means:
    """Endmembers as the mean directions of near-pure pixels.

    Attributes
    ----------
    spectra : array (L, p), float64
        Their spectra, of the median brightness of these pixels.
    purest : list of list of int
        The near-pure pixels of each, the purest first.
    pixels : int
        Pixels of the sample.
    """

    spectra: np.ndarray
    purest: list[list[int]]
    pixels: int

    @property
    def places(self) -> list[int]:
        """The pixel that holds most of each."""
        return [some[0] for some in self.purest]

    def to_dict(self) -> dict[str, Any]:
        """Return the entry for ``run.json``."""
        return {"pixels": self.pixels, "near_pure": [len(some) for some in self.purest]}


def near_pure(
    sample: Directions, directions: np.ndarray, fractions: np.ndarray, least: float, keeps_direction: bool = False
) -> tuple[np.ndarray, list[list[int]]]:
    """Return spectra (L, p) of the pixels with fractions (n, p) of at least ``least``, and these, purest first."""
    spectra, purest = [], []
    for direction, share in zip(directions.T, fractions.T):
        near = np.argsort(-share, kind="stable")[: max(1, int((share >= least).sum()))]
        if keeps_direction or len(near) < FEWEST_NEAR_PURE:
            spectra.append(direction * np.median(sample.lengths[near]))
        else:
            spectra.append(mean_of(sample.spectra[np.sort(near)]))
        purest.append([int(place) for place in sample.places[near]])
    return np.ascontiguousarray(np.stack(spectra, axis=1)), purest


def mean_of(Y: np.ndarray) -> np.ndarray:
    """Return the mean direction of some pixels (n, L), as long as their median."""
    lengths = np.linalg.norm(Y, axis=1)
    direction = (Y / lengths[:, None]).mean(axis=0)
    found: np.ndarray = direction / np.linalg.norm(direction) * np.median(lengths)
    return found
