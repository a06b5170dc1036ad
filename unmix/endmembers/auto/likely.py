"""Endmembers of a scene whose brightness does not vary, as the corners of the most likely simplex.

Pixels are mixtures and white noise, whose variance σ² is what the principal components beyond those of the simplex
have. With the components z of a pixel, c of the corners, barycentric coordinates b, and t = b / s, where s is the
deviation that noise gives to b, the density of a pixel is

    Σ_k π_k N(z; c_k, σ²) + (1 − Σ π) / V · exp(−e / 2) · Π_j [(1 − w_j) Φ(t_j) + w_j φ(t_j) / ((p − 1) s_j)].

A pixel is pure with probability π. Otherwise each material is absent, so that the pixel is on a facet (w φ), or has any
amount (Φ), in the volume V of the simplex. A pixel beyond a sharp corner is near to all facets there, yet far from the
simplex: e is by how much the squared distance to the simplex, over σ², is above Σ min(t, 0)². V is of a simplex whose
covariance is larger by the noise's, so that a simplex thinner than the noise has a volume.

Corners, π and w are those under which a sample of the pixels is most likely, by turns: shares by expectation and
maximisation, corners by L-BFGS. So all pixels on edges and facets tell where the corners are, whether or not a pixel is
pure, and noise does not push them outwards.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..quality import use_of
from ..statistics import Moments
from ..vca import Points, principal_of
from .density import Density, Pixels, Shares

# Pixels with which all starts are tried; of twice these and more, every n-th is taken with which the best goes on: with
# 10 000 the mean error of 40 flat scenes was 0.0270, as with 4000; 0.0271 with 2500.
FEW_PIXELS, ENOUGH_PIXELS = 1500, 4096
# The noise is as many times as strong as it is, in turn: with little noise a search ends where it begins. A stronger
# noise is left out where it gives a barycentric coordinate a deviation above the second; more than 64 times where its
# variance is then above the third: of 24 starts 10 % away from a simplex without noise, 20 led to it, 9 with at most 64
# times.
NOISES, MOST_BLURRED, FAINT = (32768.0, 4096.0, 512.0, 64.0, 8.0, 1.0), 0.1, 64e-6
# Most turns at each noise, steps of L-BFGS and of shares in each. A turn is the last one that gains less than this of
# the log likelihood of a pixel: the first from each start, the second from the best.
TURNS, STEPS, STEPS_OF_SHARES, GAINS = 10, 20, 3, (1e-3, 1e-4)
# From a start, and from the best, L-BFGS ends where a step gains less than this part of the log likelihood.
LEAST_GAIN, LEAST_GAIN_OF_BEST = 1e-5, 2e-9
# Most steps of shares to compare simplices that were found by others; one that changes the value by less than the
# second is the last.
STEPS_TO_SETTLE, LEAST_CHANGE = 20, 1e-5
# Two starts have come to one simplex where no component of a corner differs by more than this. In 13 of 16 flat scenes
# all three did at the first noise, and went the same way from there on, but for 0.08 in one of them.
ALIKE = 0.01
# Shares at the start.
PURE, ABSENT = 0.5, 0.2
# The least variance of noise, in units of the components': a scene without noise has only its rounding.
LEAST_NOISE = 1e-9


@dataclass(frozen=True)
class Likely:
    """The most likely simplex.

    Attributes
    ----------
    spectra : array (L, p), float64
        Its corners.
    value : float
        The mean over the pixels of −log of their density, for components divided by their root mean square.
    shares : Shares
        Of pure pixels, and of pixels without a material.
    blur : array (p,), float64
        The deviations that noise gives to barycentric coordinates.
    use : dict
        How the sample uses it (`unmix.endmembers.quality.use_of`).
    """

    spectra: np.ndarray
    value: float
    shares: Shares
    blur: np.ndarray
    use: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the entry for ``run.json``."""
        return {"likelihood": self.value, **{name: share.tolist() for name, share in self.shares._asdict().items()}}


@dataclass(frozen=True)
class PlaneOfSample:
    """A sample of the pixels of a scene in the plane of its p − 1 principal components.

    Attributes
    ----------
    moments : Moments
        Of the scene.
    U : array (L, p − 1), float64
        The axes.
    size : float
        The root mean square of the components, by which they are divided.
    Z : array (n, p − 1), float64
        The components of the sample.
    noise : float
        The variance of the noise of each: the mean one in all other directions.
    mapped : callable
        `map`, or the map of a pool of threads, which share the pixels.
    """

    moments: Moments
    U: np.ndarray
    size: float
    Z: np.ndarray
    noise: float
    mapped: Callable[..., Iterable[Any]] = map

    @classmethod
    def of(cls, moments: Moments, p: int, Y: np.ndarray, mapped: Callable[..., Iterable[Any]] = map) -> "PlaneOfSample":
        """Return the plane of p materials; of Y (n, L), the sample, fewer than twice `ENOUGH_PIXELS` are taken."""
        Y = Y[:: max(1, len(Y) // ENOUGH_PIXELS)]
        U = principal_of(moments, p - 1)
        Z = (Y - moments.mean) @ U
        size = float(np.sqrt(np.square(Z).mean()))
        noise = moments.left_by(p - 1) / (len(U) - p + 1) / size**2
        return cls(moments, U, size, Z / size, max(noise, LEAST_NOISE), mapped)

    @cached_property
    def pixels(self) -> Pixels:
        """The sample, with room to compute its density."""
        return Pixels(self.Z, self.mapped)

    def components(self, E: np.ndarray) -> np.ndarray:
        """Return the components (p − 1, p) of spectra (L, p)."""
        found: np.ndarray = self.U.T @ (E - self.moments.mean[:, None]) / self.size
        return found

    def spectra(self, C: np.ndarray) -> np.ndarray:
        """Return the spectra (L, p) of components (p − 1, p)."""
        return np.ascontiguousarray(self.moments.mean[:, None] + self.U @ C * self.size)

    def settled(self, C: np.ndarray, shares: Shares | None) -> Density:
        """Return the density under the simplex C (p − 1, p) with its most likely shares, searched from ``shares``."""
        at = self.pixels.density(C, self.noise, first_shares(C.shape[1]) if shares is None else shares)
        for _ in range(STEPS_TO_SETTLE):
            before, at = at.value, self.pixels.density(C, self.noise, at.shares)
            if before - at.value < LEAST_CHANGE:
                break
        return at

    def use(self, C: np.ndarray) -> dict[str, Any]:
        """Return how the sample uses the corners of a simplex (`unmix.endmembers.quality.use_of`)."""
        points = Points(len(self.Z), len(C), self.Z.nbytes)
        try:
            points.put(0, self.Z * self.size)
            return use_of(self.moments, points, np.vstack([np.ones(C.shape[1]), C * self.size]))
        finally:
            points.close()


def first_shares(p: int) -> Shares:
    """Return the shares with which a search begins."""
    return Shares(np.full(p, PURE / p), np.full(p, ABSENT))


def climbed(
    pixels: Pixels, C: np.ndarray, noise: float, shares: Shares, gain: float, least: float = LEAST_GAIN_OF_BEST
) -> tuple[np.ndarray, Shares]:
    """Return corners (p − 1, p) and shares under which the pixels are more likely, until a turn gains less."""

    from scipy.optimize import minimize  # 0.2 s, for flat scenes alone

    def value(x: np.ndarray) -> tuple[float, np.ndarray]:
        found = pixels.density(x.reshape(C.shape), noise, shares)
        return found.value, found.slope.ravel()

    reached = np.inf
    for _ in range(TURNS):
        for _ in range(STEPS_OF_SHARES):
            shares = pixels.density(C, noise, shares).shares
        found = minimize(value, C.ravel(), method="L-BFGS-B", jac=True, options={"maxiter": STEPS, "ftol": least})
        C = found.x.reshape(C.shape)
        if not reached - found.fun >= gain:
            break
        reached = found.fun
    return C, shares


def most_likely(pixels: Pixels, starts: Sequence[np.ndarray], noise: float) -> tuple[np.ndarray, Shares] | None:
    """Return corners (p − 1, p) and shares that the best of several starts leads to; None if all are degenerate."""
    few, ways = Pixels(pixels.Z[:: -(-len(pixels.Z) // FEW_PIXELS)]), []
    reached: list[dict[float, np.ndarray]] = []
    for C in starts:
        with suppress(np.linalg.LinAlgError):  # two corners are one
            found = cooled(few, C, noise, reached)
            if found is not None:
                ways.append((few.density(found[0], noise, found[1]).value, *found))
    ways = sorted((way for way in ways if np.isfinite(way[0])), key=lambda way: way[0])
    for _, C, shares in ways:
        with suppress(np.linalg.LinAlgError):
            return climbed(pixels, C, noise, shares, GAINS[1])
    return None


def cooled(
    pixels: Pixels, C: np.ndarray, noise: float, reached: list[dict[float, np.ndarray]]
) -> tuple[np.ndarray, Shares] | None:
    """Return corners (p − 1, p) and shares searched with ever less noise; None if another search passed there."""
    shares, own = first_shares(C.shape[1]), dict[float, np.ndarray]()
    for times in NOISES:
        if times > 64.0 and times * noise > FAINT:
            continue
        if times == 1.0 or pixels.density(C, times * noise, shares).blur.max() <= MOST_BLURRED:
            C, shares = climbed(pixels, C, times * noise, shares, GAINS[0], LEAST_GAIN)
            if any(times in other and np.abs(C - other[times]).max() < ALIKE for other in reached):
                return None  # the other search goes on from here
            own[times] = C
    reached.append(own)
    return C, shares


def likely(plane: PlaneOfSample, starts: Sequence[np.ndarray]) -> Likely | None:
    """Return the most likely simplex found from several starts (p − 1, p); None where all are degenerate."""
    found = most_likely(plane.pixels, starts, plane.noise)
    if found is None:
        return None
    C, shares = found
    at = plane.pixels.density(C, plane.noise, shares)
    return Likely(plane.spectra(C), at.value, shares, at.blur, plane.use(C))
