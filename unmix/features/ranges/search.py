"""Search for the end of a range by solving for one μ after the other: for pixels whose path is lost (`mixtures`)."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from ...certificate import UNIT_ROUNDOFF

# Most solutions for one bound of a pixel; nearly all take 6 to 15.
MOST_ROUNDS = 40
# A bound is found where what is proved is this close to what a mixture reaches, as a share of its distance to the best
# mixture.
CLOSE = 3e-7
# By how much s = μ² may grow from one solution to the next while no mixture is too far from the pixel.
MOST_GROWTH = 1e4
# Every how many solutions the interval of s is halved, should secants approach its end from one side alone.
HALVED_EVERY = 3
# The smallest share of the interval by which a secant moves.
LEAST_STEP = 1e-3


# From pixels (n, L) and μ (n,) to the abundances (n, P) at the optimum.
Solve = Callable[[np.ndarray, np.ndarray], np.ndarray]


class SearchedMixtures(Protocol):
    """The part of `unmix.features.ranges.mixtures.Mixtures` that the search needs."""

    E: np.ndarray

    def residuals(self, Y: np.ndarray, a: np.ndarray) -> np.ndarray: ...
    def misfits(self, Y: np.ndarray, a: np.ndarray) -> np.ndarray: ...
    def prove(
        self, Y: np.ndarray, a: np.ndarray, mu: np.ndarray, rho: np.ndarray, c: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]: ...


def is_open(proved: np.ndarray, reached: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Return where a proved value is not close to the reached one, relative to its distance from ``best``."""
    known = np.where(np.isfinite(proved), proved, 0.0)
    close = CLOSE * np.abs(known - best) + UNIT_ROUNDOFF * np.abs(known)
    return np.asarray(~np.isfinite(proved) | (known - reached > close))


def largest(
    mixtures: SearchedMixtures, solve: Solve, Y: np.ndarray, best: np.ndarray, rho: np.ndarray, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return what ``cᵀa`` of no mixture with a misfit up to ρ exceeds, and what one reaches, for n pixels."""
    state = RangeSearch(mixtures, Y, best, rho, c)
    for rounds in range(1, MOST_ROUNDS + 1):
        k = state.open()
        if not len(k):
            break
        state.take(k, solve(Y[k], np.sqrt(state.s[k])))
        state.move(k, rounds % HALVED_EVERY == 0)
    return state.proved, np.minimum(state.reached, state.proved)


class RangeSearch:
    """The search for the root of one bound, for n pixels: s = μ² at which the misfit is ρ.

    Between two supports the misfit is linear in s. ``near`` is the largest s so far at which the misfit is below ρ,
    ``far`` the least at which it is above, infinite at first.
    """

    def __init__(
        self, mixtures: SearchedMixtures, Y: np.ndarray, best: np.ndarray, rho: np.ndarray, c: np.ndarray
    ) -> None:
        self.mixtures, self.Y, self.best, self.rho, self.c = mixtures, Y, best, rho, c
        n = len(Y)
        self.first = mixtures.misfits(Y, best)
        self.proved, self.reached = np.full(n, np.inf), best @ c
        self.near, self.near_misfit, self.near_a = np.zeros(n), self.first.copy(), best.copy()
        self.far, self.far_misfit, self.far_a = np.full(n, np.inf), np.full(n, np.inf), best.copy()
        # With all spectra free the misfit grows by half of cᵀG⁻¹c for each unit of s.
        growth = float(np.square(np.linalg.lstsq(mixtures.E.T, c, rcond=None)[0]).sum())
        growth = max(
            growth, float(np.square(c).max() / np.square(mixtures.E).sum())
        )  # with one of them free, where they depend
        self.s = 2.0 * (rho - self.first) / max(growth, 1e-300)

    def open(self) -> np.ndarray:
        """Return the pixels whose bound is not close to what is reached."""
        return np.flatnonzero(is_open(self.proved, self.reached, self.best @ self.c) & (self.s > 0))

    def take(self, k: np.ndarray, a: np.ndarray) -> None:
        """Take the optima (n, p) of pixels k at their s."""
        proved, misfit = self.mixtures.prove(self.Y[k], a, np.sqrt(self.s[k]), self.rho[k], self.c)
        self.proved[k] = np.minimum(self.proved[k], proved)
        fits = misfit <= self.rho[k]
        for which, place, misfits, points in (
            (fits, self.near, self.near_misfit, self.near_a),
            (~fits, self.far, self.far_misfit, self.far_a),
        ):
            at = k[which]
            place[at], misfits[at], points[at] = self.s[at], misfit[which], a[which]
        at = k[fits]
        self.reached[at] = np.maximum(self.reached[at], a[fits] @ self.c)
        self.reach(k[np.isfinite(self.far[k])])

    def reach(self, k: np.ndarray) -> None:
        """Find the mixture between ``near`` and ``far`` whose misfit is ρ."""
        near = self.mixtures.residuals(self.Y[k], self.near_a[k])
        way = self.mixtures.residuals(self.Y[k], self.far_a[k]) - near
        square, along = np.square(way).sum(axis=1), (near * way).sum(axis=1)
        room = np.maximum(2.0 * self.rho[k] - np.square(near).sum(axis=1), 0.0)
        # The root of square t² + 2 along t = room, without cancellation.
        root = np.sqrt(np.square(along) + square * room)
        t = np.where(along > 0, room / np.maximum(along + root, 1e-300), (root - along) / np.maximum(square, 1e-300))
        t = np.clip(t * (1.0 - 1e-9), 0.0, 1.0)
        point = self.near_a[k] + t[:, None] * (self.far_a[k] - self.near_a[k])
        fits = self.mixtures.misfits(self.Y[k], point) <= self.rho[k]
        at = k[fits]
        self.reached[at] = np.maximum(self.reached[at], point[fits] @ self.c)

    def move(self, k: np.ndarray, halves: bool) -> None:
        """Choose the next s of pixels k: by a secant, or half-way; without a far end by the slope so far."""
        near, far, misfit = self.near[k], self.far[k], self.near_misfit[k]
        with np.errstate(invalid="ignore", divide="ignore"):
            slope = (misfit - self.first[k]) / near
            beyond = np.where(slope > 0, 1.0001 * (self.rho[k] - self.first[k]) / slope, np.inf)
            width = far - near
            share = np.full(len(k), 0.5) if halves else (self.rho[k] - misfit) / (self.far_misfit[k] - misfit)
            between = near + np.clip(share, LEAST_STEP, 1.0 - LEAST_STEP) * width
        lowest = np.where(near > 0, near, self.s[k])
        self.s[k] = np.where(np.isfinite(far), between, np.clip(beyond, 2.0 * lowest, MOST_GROWTH * lowest))
