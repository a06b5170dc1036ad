"""Derive standard deviations of abundances from noise and each pixel's support, and tell how far to trust them.

On the support of a pixel the abundances are linear in the pixel, ``a = M y + c``. M is the pseudo-inverse of the
support's spectra, or, with the sum held at one, of their differences to the first, whose abundance is what the
others leave. So noise of covariance Σ gives them ``M Σ Mᵀ``. That assumes the support to stay what it is; the band
``validity`` says how well that holds: above 3 the deviations are right to some per cent.
"""

import contextlib
import functools
import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...compiled.jit import compiled
from ...io import NODATA, spectra
from ...library import ClassSums
from ...maps.derived.noise import NoiseCube
from ...maps.derived.solved import map_of_solved
from ...problem import Problem
from ...runs.pooled import Pooled

VALIDITY = "validity"
# Deviations above which an abundance is surely more than 0. Of pure pixels and mixtures of two and three of 3 to 20
# spectra, random and alike, 67 % or more are within one deviation of the truth with 2, down to 35 % if all are kept.
UNSURE = 2.0
# Supports whose matrices are kept; fewer where each has rows of all bands.
KEPT, KEPT_WITH_ROWS = 1024, 64
# Pixels with one support, below which numpy's calls cost more than the arithmetic.
FEW_PIXELS = 64
# Squared residual of a spectrum, as a share of its square, below which differences of products have lost their digits.
LITTLE = 1e-8


@compiled
def pull(Y: Any, E: Any, A: Any, rows: Any, others: Any, first: int, scale: Any, beside: Any, out: Any) -> None:
    """Write to ``out`` (N, 2) the noise by the residual, and how clearly other spectra stay out of the support."""
    # Y (N, L) becomes residuals. rows (p, L) are all spectra, others (m,) the numbers of spectra outside the support;
    # scale (1 or N, m) is the deviation of e_jᵀr, and 0 where e_j depends on the support; for noise of 1 if ``beside``
    # has a divisor: see `Pooled.beside`.
    # The residual is orthogonal to the support (or to its differences to ``first``): others need no part taken off.
    L, k = E.shape
    base, free, largest, factor, own = beside
    for n in range(Y.shape[0]):
        square, least = 0.0, np.inf
        for b in range(L):
            r = Y[n, b]
            for j in range(k):
                r -= E[b, j] * A[n, j]
            Y[n, b] = r
            square += r * r
        noise = 1.0
        if free > 0.0:
            noise = (max((base + square) / free, square / own if square > largest else 0.0)) ** 0.5 * factor
        shift = 0.0
        for b in range(L if first >= 0 else 0):
            shift += rows[first, b] * Y[n, b]
        at = min(n, scale.shape[0] - 1)
        for i in range(others.shape[0]):
            dual = -shift
            for b in range(L):
                dual += rows[others[i], b] * Y[n, b]
            if scale[at, i] > 0.0 and noise > 0.0:
                least = min(least, -dual / (scale[at, i] * noise))
        out[n, 0], out[n, 1] = noise, least


@compiled
def products_with(rows: Any, variances: Any, out: Any) -> None:
    """Write ``rows`` (m, L) times variances (N, L) to ``out`` (N, m), rounded the same for any block."""
    for n in range(variances.shape[0]):
        for i in range(rows.shape[0]):
            total = 0.0
            for b in range(rows.shape[1]):
                total += rows[i, b] * variances[n, b]
            out[n, i] = total


@compiled
def without_unsure(A: Any, sigma: Any, C: Any, left: Any, out: Any) -> None:
    """Write to ``out`` (N, k) the abundances A of a support without those below `UNSURE` deviations ``sigma``."""
    # C (1 or N, k, k) is their covariance for noise of 1, ``left`` (k + 1, k) scratch. One after the other is held at
    # 0, which moves the others by their regression on it. A pixel whose abundances all are unsure stays.
    k = C.shape[1]
    for n in range(A.shape[0]):
        at = min(n, C.shape[0] - 1)
        sure, column = 0, left[k]
        for j in range(k):
            for i in range(k):
                left[j, i] = C[at, j, i]
            out[n, j] = A[n, j]
            sure += A[n, j] >= UNSURE * sigma[n, j]
        for j in range(k if sure > 0 else 0):
            if A[n, j] >= UNSURE * sigma[n, j] or left[j, j] <= 1e-14 * C[at, j, j]:
                continue
            part, size = out[n, j] / left[j, j], left[j, j]
            for i in range(k):
                column[i] = left[i, j]
                out[n, i] -= column[i] * part
            for i in range(k):
                for m in range(k):
                    left[i, m] -= column[i] * column[m] / size
        for j in range(k if sure > 0 else 0):
            if A[n, j] < UNSURE * sigma[n, j]:
                out[n, j] = 0.0


def squares_of(noise: np.ndarray) -> np.ndarray:
    """Return the variances of noise, infinite where they are no float64."""
    with np.errstate(over="ignore"):
        return np.square(noise)


def times_matrix(noise: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Return noise (N, 1) times deviations (1 or N, p) for noise of 1; infinite deviations stay infinite."""
    shape = np.broadcast_shapes(noise.shape, sigma.shape)
    return np.multiply(noise, sigma, out=np.full(shape, np.inf), where=np.isfinite(sigma))


@dataclass(frozen=True)
class OfSupport:
    """Values that all pixels with one support share, for noise of 1 or the given noise."""

    columns: np.ndarray  # (k,)
    sigma: np.ndarray  # (p,) deviations of abundances in the support; of others, as if each were in it
    others: np.ndarray  # (m,) the numbers of the other spectra
    first: int  # the spectrum from which they are differences, where the sum is held at one; else −1
    scale: np.ndarray  # (m,) the standard deviation of their products with the residual
    parts: np.ndarray  # (classes + 1, k) which abundances a sum has; the last is the brightness
    variances: np.ndarray  # (1, classes + 1) of the sums
    shared: np.ndarray  # (1, classes + 1) their covariances with the last
    size: np.ndarray  # (m,) squared length of each other spectrum's residual on the support; infinite where it is 0
    covariance: np.ndarray  # (1 or N, k, k) of its abundances; (0, 0, 0) if these have no bounds
    # If each pixel has its own noise, (k² + m + 2 (classes + 1), L): multiplied with the variances of bands, they give
    # those of the support's abundances, of products of the others with the residual, and the two above. Else (0, L).
    rows: np.ndarray


class Uncertainty:
    """Standard deviations of the abundances of pixels, or of their sums by class.

    Parameters
    ----------
    problem : Problem
        With the noise of its bands, or None to take it, white, from the pixels' residuals.
    sums : ClassSums or None
        The sums whose standard deviations are wanted in place of the abundances' own.
    shared : Pooled
        The noise of the scene, where each pixel's own is not known.
    """

    description = "standard deviations"

    def __init__(self, problem: Problem, sums: ClassSums | None, shared: Pooled | None = None) -> None:
        self.shared = shared or Pooled()
        self.problem, self.constraint, self.noise, self.sums = problem, problem.constraint, problem.noise, sums
        self.E = problem.endmembers.matrix
        self.dimensions = len(self.E) - problem.lost
        self.rows = np.ascontiguousarray(self.E.T)
        self.is_each = isinstance(self.noise, NoiseCube)  # whether each pixel has its own noise
        self.weights = self.noise if isinstance(self.noise, np.ndarray) else np.ones(len(self.E))
        weighted = self.E * self.weights[:, None]
        self.products, self.spreads = self.E.T @ self.E, weighted.T @ weighted
        # Which abundances, times which weights, a sum has (classes, p); and all of these, class by class, for reduceat.
        members = () if sums is None else sums.members
        self.members = np.zeros((len(members), self.E.shape[1]))
        for c, some in enumerate(members):
            self.members[c, list(some)] = (
                1.0 if sums is None or sums.weights is None else np.array(sums.weights)[list(some)]
            )
        self.of_classes = np.concatenate([np.empty(0, int), *members]).astype(int)
        self.begins = np.cumsum([0, *map(len, members)])[:-1]
        self.of_support = functools.lru_cache(KEPT_WITH_ROWS if self.is_each else KEPT)(self.matrices)
        names = problem.endmembers.names if sums is None else sums.bands
        self.bands: tuple[str, ...] = (*names, *([VALIDITY] if problem.constraint.has_bounds else []))
        # For short numpy calls: four threads that hand over the interpreter after each took three times as long as one.
        self.alone = threading.Lock()

    def matrices(self, support: bytes) -> OfSupport:
        """Return the values that pixels with a support share; ``support`` has a byte for each endmember."""
        inside = np.frombuffer(support, bool)
        F, others = self.E[:, inside], np.flatnonzero(~inside)
        kept, first = np.flatnonzero(inside), -1
        M = of_kept = np.linalg.pinv(
            self.constraint.directions(F)
        )  # differences to the first: one of the spectra may be zero
        if self.constraint.equations:
            first, kept = int(kept[0]), kept[1:]
            M = np.vstack([-of_kept.sum(axis=0), of_kept])
        sigma = np.zeros(len(inside))
        sigma[inside] = np.sqrt(np.square(M * self.weights).sum(axis=1))
        squares, variance, size = self.left_over(of_kept, kept, others, first)
        alike = squares <= 1e-20 * size
        squares, scale = np.where(alike, np.inf, squares), np.sqrt(variance)
        sigma[others] = np.where(alike, np.inf, scale / squares)
        columns = np.flatnonzero(inside)
        parts = self.members[:, columns]
        parts = np.vstack([parts, parts.sum(axis=0)])
        S, rows = parts @ (M * self.weights), np.empty((0, len(self.E)))
        if self.is_each:
            left = np.where(alike, 0.0, self.rest_of(of_kept, kept, others, first))
            of_pairs = (M[:, None] * M[None]).reshape(-1, len(self.E))
            rows = np.ascontiguousarray(np.vstack([of_pairs, np.square(left.T), np.square(S), S * S[-1]]))
        variances, shared = np.square(S).sum(axis=1)[None], (S @ S[-1])[None]
        spread = M * self.weights
        C = (spread @ spread.T)[None] if self.constraint.has_bounds else np.empty((0, 0, 0))
        return OfSupport(
            columns, sigma, others, first, np.where(alike, 0.0, scale), parts, variances, shared, squares, C, rows
        )

    def rest_of(self, M: np.ndarray, kept: np.ndarray, others: np.ndarray, first: int) -> np.ndarray:
        """Return the residuals of some other spectra on the support, (L, m)."""
        base = 0.0 if first < 0 else self.E[:, [first]]
        rest, F = self.E[:, others] - base, self.E[:, kept] - base
        return np.asarray(rest - F @ (M @ rest))

    def left_over(
        self, M: np.ndarray, kept: np.ndarray, others: np.ndarray, first: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return |d|², ``dᵀΣd`` and |e|², (m,) each, d being the part of another spectrum e outside the support."""
        # From the products of all spectra, so that a support costs no product over the bands for each other spectrum;
        # where little is left of a spectrum, from itself.
        G, V = self.products, self.spreads

        def of(products: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
            found = products[np.ix_(a, b)]
            if first < 0:
                return found
            return found - products[a, first][:, None] - products[first, b][None] + products[first, first]

        def own(products: np.ndarray) -> np.ndarray:
            found = np.diag(products)[others]
            return found if first < 0 else found - 2 * products[others, first] + products[first, first]

        m = (M @ M.T) @ of(G, kept, others)
        size = own(G)

        def left(products: np.ndarray) -> np.ndarray:  # of the second order in an error of m
            inner = of(products, kept, kept) @ m - 2 * of(products, kept, others)
            return own(products) + (m * inner).sum(axis=0)

        squares, variance = left(G), left(V)
        little = ~(squares > LITTLE * np.diag(G)[others]) | ~(variance > LITTLE * np.diag(V)[others])
        if little.any():
            D = self.rest_of(M, kept, others[little], first)
            squares[little] = np.square(D).sum(axis=0)
            variance[little] = np.square(D * self.weights[:, None]).sum(axis=0)
        return squares, variance, size

    def of(self, first: int, raw: np.ndarray, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """Return the deviations of lines, float32 (n, bands, samples); see `unmix.maps.derived.table.DerivedMap`."""
        Y = spectra(raw, self.problem.interleave, self.problem.bands)
        noise = self.noise.read(first, len(abundance)) if isinstance(self.noise, NoiseCube) else None

        # −9999 where a residual is to give the noise, and the support leaves none. An abundance of 0 has the
        # deviation that it would have in the support: a multiple of it would have been seen. A class without a
        # spectrum in the pixel has the largest of its spectra's.
        def values(places: np.ndarray, A: np.ndarray) -> np.ndarray:
            out = np.empty((len(A), len(self.bands)), np.float32)
            variances = None if noise is None else squares_of(noise[places])
            free = self.constraint.free(A)
            supports, which, counts = np.unique(free, axis=0, return_inverse=True, return_counts=True)
            together = np.argsort(which.ravel(), kind="stable")
            for support, some in zip(supports, np.split(together, np.cumsum(counts)[:-1])):
                with np.errstate(over="ignore"), self.alone if len(some) < FEW_PIXELS else contextlib.nullcontext():
                    of_bands = None if variances is None else variances[some]
                    out[some] = self.of_pixels(self.of_support(support.tobytes()), Y[places[some]], A[some], of_bands)
            if variances is not None and isinstance(self.noise, NoiseCube):
                unknown = ~np.isfinite(variances).all(axis=1)
                out[unknown] = NODATA
                self.noise.lost.append(int(unknown.sum()))
            return out

        return map_of_solved(len(self.bands), abundance, masked, values)

    def of_pixels(self, of: OfSupport, Y: np.ndarray, A: np.ndarray, variances: np.ndarray | None) -> np.ndarray:
        """Return the bands (N, bands) of pixels with one support; ``variances`` (N, L) are those of their bands."""
        columns, beside = of.columns, (0.0, 0.0, 0.0, 0.0, 0.0)
        if self.noise is None:
            beside = self.shared.beside(float(self.dimensions - len(columns) + self.constraint.equations))
            if beside[1] <= 0.0:  # the pixel is fitted exactly, whatever its noise is
                return np.full((len(Y), len(self.bands)), NODATA)
        found = np.empty((len(Y), 2))
        F = np.ascontiguousarray(self.E[:, columns])
        support = np.ascontiguousarray(A[:, columns])
        if variances is not None:
            of = self.with_noise(of, variances)
        pull(Y, F, support, self.rows, of.others, of.first, np.atleast_2d(of.scale), beside, found)
        noise, away = found[:, :1], found[:, 1]
        sigma = times_matrix(noise, np.atleast_2d(of.sigma))
        own = sigma[:, columns]
        inside = np.divide(support, own, out=np.full(own.shape, np.inf), where=own > 0).min(axis=1, initial=np.inf)
        validity, without = np.minimum(inside, away)[:, None], support
        if len(of.covariance):
            without = np.empty_like(support)
            own = np.ascontiguousarray(np.broadcast_to(own, support.shape))
            without_unsure(support, own, of.covariance, np.empty((len(columns) + 1, len(columns))), without)
        if self.sums is not None:
            sigma = self.of_sums(of, noise, A, without)
        else:
            moved = np.where(without == 0.0, 0.0, without - support)
            sigma[:, columns] = np.hypot(own, moved)
        return np.hstack([sigma, validity]) if self.constraint.has_bounds else sigma

    def with_noise(self, of: OfSupport, variances: np.ndarray) -> OfSupport:
        """Return values of one support for pixels with noise of their own: arrays have a row for each pixel."""
        out = np.empty((len(variances), len(of.rows)))
        products_with(of.rows, variances, out)
        k = len(of.columns)
        ends = np.cumsum([k * k, len(of.others), len(of.parts)])
        inside, outside, sums, shared = np.split(out, ends, axis=1)
        C = inside.reshape(len(out), k, k)
        sigma, scale = np.empty((len(out), self.E.shape[1])), np.sqrt(outside)
        sigma[:, of.columns] = np.sqrt(np.einsum("nkk->nk", C))
        sigma[:, of.others] = np.where(np.isinf(of.size), np.inf, scale / of.size)
        return replace(
            of,
            sigma=sigma,
            scale=scale,
            variances=sums,
            shared=shared,
            covariance=C if self.constraint.has_bounds else of.covariance,
        )

    def of_sums(self, of: OfSupport, noise: np.ndarray, A: np.ndarray, without: np.ndarray) -> np.ndarray:
        """Return the standard deviations of the sums by class, in the order of their bands; see `without_unsure`."""
        assert self.sums is not None
        variances = np.broadcast_to(of.variances, (len(A), of.variances.shape[1])).copy()
        sums, moved = np.zeros(variances.shape), np.zeros(variances.shape)
        # One after the other: a product's rounding would depend on the block.
        for part, j, other in zip(of.parts.T, of.columns, without.T):
            sums += part * A[:, [j]]
            moved += part * other[:, None]
        brightness = sums[:, -1]
        if self.sums.normalized:
            g = sums[:, :-1] / np.where(brightness > 0, brightness, 1)[:, None]
            moved[:, :-1] /= np.where(moved[:, -1:] > 0, moved[:, -1:], 1)
            change = of.variances[:, :-1] - 2 * g * of.shared[:, :-1] + g * g * of.variances[:, -1:]
            variances[:, :-1] = change / np.where(brightness > 0, np.square(brightness), np.inf)[:, None]
        # For an absent class only its own abundance counts: the brightness's deviation is multiplied with its
        # fraction, 0.
        height = np.where(brightness > 0, brightness, 1.0) if self.sums.normalized else 1.0
        before = np.hstack([g, sums[:, -1:]]) if self.sums.normalized else sums
        sigma = np.hypot(noise * np.sqrt(np.maximum(variances, 0)), np.where(moved == 0.0, 0.0, moved - before))
        of_each = np.atleast_2d(of.sigma)
        if self.sums.weights is not None:
            of_each = times_matrix(np.array(self.sums.weights)[None], of_each)
        absent = np.flatnonzero(~of.parts[:-1].any(axis=1))
        largest = np.maximum.reduceat(of_each[:, self.of_classes], self.begins, axis=1)
        sigma[:, absent] = times_matrix(noise, largest[:, absent]) / np.reshape(height, (-1, 1))
        if self.sums.normalized:
            sigma[brightness <= 0, :-1] = NODATA
        classes, total = sigma[:, :-1], sigma[:, -1:]
        return np.hstack([classes, *([total] if self.sums.has_shade else []), total])


def made(given: Any) -> Uncertainty:
    """Return the map of standard deviations of a run."""
    problem, sums = given.problem, given.sums
    if sums is None and problem.normalization is not None:
        sums = ClassSums.of_each(problem.endmembers.names, problem.normalization, problem.constraint.has_shade)
    return Uncertainty(problem, sums, Pooled.of_run(given))
