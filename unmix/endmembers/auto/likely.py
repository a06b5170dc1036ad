"""Endmembers of a scene whose brightness does not vary, as the corners of the most likely simplex.

Pixels are mixtures and white noise, whose variance σ² is what the principal components beyond those of the simplex have. With the
components z of a pixel, c of the corners, barycentric coordinates b, and t = b / s, where s is the deviation that noise gives to b, the
density of a pixel is

    Σ_k π_k N(z; c_k, σ²) + (1 − Σ π) / V · exp(−e / 2) · Π_j [(1 − w_j) Φ(t_j) + w_j φ(t_j) / ((p − 1) s_j)].

A pixel is pure with probability π. Otherwise each material is absent, so that the pixel is on a facet (w φ), or has any amount (Φ), in
the volume V of the simplex. A pixel beyond a sharp corner is near to all facets there, yet far from the simplex: e is by how much the
squared distance to the simplex, over σ², is above Σ min(t, 0)². V is of a simplex whose covariance is larger by that of the noise, so
that one thinner than the noise has a volume.

Corners, π and w are those under which a sample of the pixels is most likely, by turns: shares by expectation and maximisation, corners
by L-BFGS. So all pixels on edges and facets tell where the corners are, whether or not a pixel is pure, and noise does not push them
outwards.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...compiled.jit import compiled
from ..fitted import amounts
from ..quality import use_of
from ..statistics import Moments
from ..vca import Points, principal_of
from .descent import descended

# Pixels with which all starts are tried; of twice these and more, every n-th is taken with which the best goes on: with 10 000 the mean
# error of 40 flat scenes was 0.0270, as with 4000; 0.0271 with 2500.
FEW_PIXELS, ENOUGH_PIXELS = 1500, 4096
# The noise is as many times as strong as it is, in turn: with little noise a search ends where it begins. A stronger noise is left out
# where it gives a barycentric coordinate a deviation above the second.
NOISES, MOST_BLURRED = (64.0, 8.0, 1.0), 0.1
# Most turns at each noise, steps of L-BFGS and of shares in each. A turn is the last one that gains less than this of the log
# likelihood of a pixel: the first from each start, the second from the best.
TURNS, STEPS, STEPS_OF_SHARES, GAINS = 10, 20, 3, (1e-3, 1e-4)
# From a start, a turn ends where a step of L-BFGS gains less than this: errors of 40 flat scenes were the same as without.
LEAST_GAIN = 1e-5
# Most steps of shares to compare simplices that were found by others; one that changes the value by less than the second is the last.
STEPS_TO_SETTLE, LEAST_CHANGE = 20, 1e-5
# Two starts have come to one simplex where no component of a corner differs by more than this. In 13 of 16 flat scenes all three did at
# the first noise, and went the same way from there on, but for 0.08 in one of them.
ALIKE = 0.01
# Shares at the start, and the least ones.
PURE, ABSENT, LEAST_PURE, LEAST_ABSENT = 0.5, 0.2, 1e-4, 1e-3
# The least variance of noise, in units of the components': a scene without noise has only its rounding.
LEAST_NOISE = 1e-9
# The weight of the sum of amounts in the fit to a simplex, over the size of the components.
WEIGHT_OF_SUM = 1e3
HALF_LOG_2_PI, SQRT_HALF = 0.5 * float(np.log(2.0 * np.pi)), math.sqrt(0.5)
# Below this number of deviations the normal distribution is its asymptotic series, to rounding.
FAR_BELOW = -30.0


class Shares(NamedTuple):
    """Shares of pixels: of pure ones of each material, and of the rest those without it; (p,) each."""

    pure: np.ndarray
    absent: np.ndarray


class Density(NamedTuple):
    """The density of pixels under a simplex.

    ``value`` is the mean of −log of it, ``slope`` (p − 1, p) its derivative by the corners, ``shares`` those that are more likely,
    ``blur`` (p,) the deviations that noise gives to barycentric coordinates.
    """

    value: float
    slope: np.ndarray
    shares: Shares
    blur: np.ndarray


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
        Of pure pixels, and of those without a material.
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
    """

    moments: Moments
    U: np.ndarray
    size: float
    Z: np.ndarray
    noise: float

    @classmethod
    def of(cls, moments: Moments, p: int, Y: np.ndarray) -> "PlaneOfSample":
        """Return the plane of p materials; of Y (n, L), the sample, fewer than twice `ENOUGH_PIXELS` are taken."""
        Y = Y[:: max(1, len(Y) // ENOUGH_PIXELS)]
        U = principal_of(moments, p - 1)
        left = float(np.trace(moments.covariance) - np.trace(U.T @ moments.covariance @ U))
        Z = (Y - moments.mean) @ U
        size = float(np.sqrt(np.square(Z).mean()))
        return cls(moments, U, size, Z / size, max(left / (len(U) - p + 1) / size**2, LEAST_NOISE))

    def components(self, E: np.ndarray) -> np.ndarray:
        """Return the components (p − 1, p) of spectra (L, p)."""
        found: np.ndarray = self.U.T @ (E - self.moments.mean[:, None]) / self.size
        return found

    def spectra(self, C: np.ndarray) -> np.ndarray:
        """Return the spectra (L, p) of components (p − 1, p)."""
        return np.ascontiguousarray(self.moments.mean[:, None] + self.U @ C * self.size)

    def settled(self, C: np.ndarray) -> Density:
        """Return the density under a simplex, with the shares under which it is most likely."""
        at = density(self.Z, C, self.noise, first_shares(C.shape[1]))
        for _ in range(STEPS_TO_SETTLE):
            before, at = at.value, density(self.Z, C, self.noise, at.shares)
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


def within(C: np.ndarray, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the fractions (n, p) of the points of the simplex C (d, p) that are nearest to Z (n, d), and what these leave (n, d)."""
    size = WEIGHT_OF_SUM * float(np.sqrt(np.square(Z).mean()))
    A = amounts(np.vstack([C, np.full(C.shape[1], size)]), np.column_stack([Z, np.full(len(Z), size)]))
    return A, Z - A @ C.T


@compiled
def log_of_normal(t, out):
    """Write log Φ of each number of t (n,), as scipy.special.log_ndtr, which takes 0.2 s to import."""
    for n in range(t.shape[0]):
        x = t[n]
        if x > 0.0:
            out[n] = math.log1p(-0.5 * math.erfc(x * SQRT_HALF))
        elif x > FAR_BELOW or x != x:
            out[n] = math.log(0.5 * math.erfc(-x * SQRT_HALF))
        else:
            square = 1.0 / (x * x)
            series = 1.0 - square * (1.0 - 3.0 * square * (1.0 - 5.0 * square * (1.0 - 7.0 * square)))
            out[n] = math.log(series) - 0.5 * x * x - math.log(-x) - HALF_LOG_2_PI


def density(Z: np.ndarray, C: np.ndarray, noise: float, shares: Shares) -> Density:
    """Return the density of pixels with components Z (n, p − 1) under the simplex of C (p − 1, p), for a variance of the noise."""
    d, p = C.shape
    Q = np.linalg.inv(np.vstack([np.ones(p), C]))
    blur = np.sqrt(noise) * np.linalg.norm(Q[:, 1:], axis=1)
    # A row for each material: sums over materials are of whole rows.
    t = (Q[:, 1:] @ Z.T + Q[:, :1]) / blur[:, None]
    log_phi, log_inside = -0.5 * np.square(t) - HALF_LOG_2_PI, np.empty_like(t)
    log_of_normal(t.ravel(), log_inside.ravel())
    log_absent = log_phi + np.log(shares.absent / (d * blur))[:, None]
    log_present = log_inside + np.log1p(-shares.absent)[:, None]
    ratio = np.exp(-np.abs(log_absent - log_present))
    facets = np.maximum(log_absent, log_present) + np.log1p(ratio)
    absent = np.where(log_absent > log_present, 1.0, ratio) / (1.0 + ratio)
    A, left = within(C, Z)
    beyond = np.minimum(t, 0.0)
    sharp = np.square(left).sum(axis=1) / noise - np.square(beyond).sum(axis=0)
    around = C - C.mean(axis=1, keepdims=True)
    spread = around @ around.T + p * (p + 1) * noise * np.eye(d)
    log_volume = 0.5 * float(np.linalg.slogdet(spread)[1] + np.log(p)) - math.lgamma(p)
    from_corners = (np.square(C).sum(axis=0)[:, None] - 2.0 * C.T @ Z.T + np.square(Z).sum(axis=1)) / noise
    logs = np.vstack([
        np.log(shares.pure)[:, None] - 0.5 * from_corners - d * (HALF_LOG_2_PI + 0.5 * np.log(noise)),
        np.log1p(-shares.pure.sum()) - log_volume + facets.sum(axis=0) - 0.5 * np.maximum(sharp, 0.0),
    ])  # fmt: skip
    largest = logs.max(axis=0)
    parts = np.exp(logs - largest)
    sums = parts.sum(axis=0)
    parts /= sums
    pure, mixed = parts[:p], parts[p]
    beyond *= mixed * (sharp > 0.0)
    by_t = mixed * ((1.0 - absent) * np.exp(log_phi - log_inside) - absent * t) + beyond
    by_blur = -((mixed * absent).sum(axis=1) + (by_t * t).sum(axis=1)) / blur
    by_Q = np.column_stack([by_t.sum(axis=1), by_t @ Z]) / blur[:, None]
    by_Q[:, 1:] += (by_blur * noise / blur)[:, None] * Q[:, 1:]
    narrow = np.linalg.solve(spread, around)
    slope = -(Q.T @ by_Q @ Q.T)[1:] - mixed.sum() * (narrow - narrow.mean(axis=1, keepdims=True))
    slope += (left.T @ (A * (mixed * (sharp > 0.0))[:, None]) + (pure @ Z).T - C * pure.sum(axis=1)) / noise
    more = np.maximum(parts.mean(axis=1), LEAST_PURE)
    without = np.clip(
        (absent * mixed).sum(axis=1) / max(float(mixed.sum()), LEAST_PURE), LEAST_ABSENT, 1 - LEAST_ABSENT
    )
    value = -float((largest + np.log(sums)).mean())
    return Density(value, -slope / len(Z), Shares(more[:p] / more.sum(), without), blur)


def first_shares(p: int) -> Shares:
    """Return the shares with which a search begins."""
    return Shares(np.full(p, PURE / p), np.full(p, ABSENT))


def climbed(
    Z: np.ndarray, C: np.ndarray, noise: float, shares: Shares, gain: float, least: float = 0.0
) -> tuple[np.ndarray, Shares]:
    """Return corners (p − 1, p) and shares under which the pixels are more likely, until a turn gains less."""

    def value(x: np.ndarray) -> tuple[float, np.ndarray]:
        found = density(Z, x.reshape(C.shape), noise, shares)
        return found.value, found.slope.ravel()

    reached = np.inf
    for _ in range(TURNS):
        for _ in range(STEPS_OF_SHARES):
            shares = density(Z, C, noise, shares).shares
        found = descended(value, C.ravel(), STEPS, least)
        C = found.x.reshape(C.shape)
        if reached - found.value < gain:
            break
        reached = found.value
    return C, shares


def most_likely(Z: np.ndarray, starts: Sequence[np.ndarray], noise: float) -> tuple[np.ndarray, Shares] | None:
    """Return the corners (p − 1, p) and shares to which the best of several starts leads; None where all are degenerate."""
    few, ways = Z[:: -(-len(Z) // FEW_PIXELS)], []
    reached: list[dict[float, np.ndarray]] = []
    for C in starts:
        with suppress(np.linalg.LinAlgError):  # two corners are one
            found = cooled(few, C, noise, reached)
            if found is not None:
                ways.append((density(few, found[0], noise, found[1]).value, *found))
    ways = sorted((way for way in ways if np.isfinite(way[0])), key=lambda way: way[0])
    for _, C, shares in ways:
        with suppress(np.linalg.LinAlgError):
            return climbed(Z, C, noise, shares, GAINS[1])
    return None


def cooled(
    Z: np.ndarray, C: np.ndarray, noise: float, reached: list[dict[float, np.ndarray]]
) -> tuple[np.ndarray, Shares] | None:
    """Return corners (p − 1, p) and shares to which a search leads that begins with more noise than there is.

    None where it comes to a simplex that another search had ``reached`` at the same noise; its own are added.
    """
    shares, own = first_shares(C.shape[1]), dict[float, np.ndarray]()
    for times in NOISES:
        if times == 1.0 or density(Z, C, times * noise, shares).blur.max() <= MOST_BLURRED:
            C, shares = climbed(Z, C, times * noise, shares, GAINS[0], LEAST_GAIN)
            if any(times in other and np.abs(C - other[times]).max() < ALIKE for other in reached):
                return None
            own[times] = C
    reached.append(own)
    return C, shares


def likely(plane: PlaneOfSample, starts: Sequence[np.ndarray]) -> Likely | None:
    """Return the most likely simplex, to which the best of several sets of spectra (L, p) leads; None where all are degenerate."""
    found = most_likely(plane.Z, [plane.components(E) for E in starts], plane.noise)
    if found is None:
        return None
    C, shares = found
    at = density(plane.Z, C, plane.noise, shares)
    return Likely(plane.spectra(C), at.value, shares, at.blur, plane.use(C))
