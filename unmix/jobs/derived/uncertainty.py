"""How noise moves the abundances of a pixel: standard deviations from its support, and how far these can be trusted.

On the support of a pixel the abundances are linear in the pixel, ``a = M y + c``. M is the pseudo-inverse of the support's spectra, or
with the sum held at one that of their differences to the first, whose abundance is what the others leave. So noise of covariance Σ
gives them ``M Σ Mᵀ``. That assumes the support to stay what it is; the band ``validity`` says how well that holds: above 3 the
deviations are right to some per cent.
"""

import contextlib
import functools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...compiled.jit import compiled
from ...errors import InputError
from ...io import Bands, spectra
from ...io.export import NODATA
from ...library import ClassSums
from ...problem import Problem

VALIDITY = "validity"
# Bytes of a file of numbers.
LONGEST_FILE = 2**20
# Supports whose matrices are kept.
KEPT = 1024
# Pixels with one support, below which numpy's calls cost more than the arithmetic.
FEW = 64
# What is left of a spectrum, as a share of its square, below which differences of products have lost their digits.
LITTLE = 1e-8


@compiled
def pull(Y: Any, E: Any, A: Any, rows: Any, others: Any, first: int, scale: Any, dof: Any, out: Any) -> None:
    """Write for each pixel the noise that its residual shows, and how clearly each other spectrum stays out of the support.

    Parameters
    ----------
    Y : array (N, L), float64
        Pixels; residuals afterwards.
    E, A : arrays (L, k) and (N, k), float64
        Spectra and abundances of the support.
    rows : array (p, L), float64
        All spectra.
    others : array (m,), int64
        The numbers of those that are not in the support.
    first : int
        The spectrum that they are differences to; −1 for none. (The residual is orthogonal to the support, or to its differences, so
        that it needs no part of the others taken off.)
    scale : array (m,), float64
        The standard deviation of ``e_jᵀ r``, for noise of 1 if ``dof`` is above 0; 0 where it cannot be told from the support.
    dof : float
        Bands less free abundances; 0 where the noise is given.
    out : array (N, 2), float64
        The noise (1 where it is given), and the least ``−e_jᵀ r`` over its standard deviation; infinite without others.
    """
    L, k = E.shape
    for n in range(Y.shape[0]):
        square, least = 0.0, np.inf
        for b in range(L):
            r = Y[n, b]
            for j in range(k):
                r -= E[b, j] * A[n, j]
            Y[n, b] = r
            square += r * r
        noise = (square / dof) ** 0.5 if dof > 0.0 else 1.0
        shift = 0.0
        for b in range(L if first >= 0 else 0):
            shift += rows[first, b] * Y[n, b]
        for i in range(others.shape[0]):
            dual = -shift
            for b in range(L):
                dual += rows[others[i], b] * Y[n, b]
            if scale[i] > 0.0 and noise > 0.0:
                least = min(least, -dual / (scale[i] * noise))
        out[n, 0], out[n, 1] = noise, least


@compiled
def squares_of_residuals(Y: Any, E: Any, A: Any, out: Any) -> None:
    """Write the sum over the bands of the squared residual of pixels (N, L) with abundances (N, p)."""
    L, p = E.shape
    for n in range(Y.shape[0]):
        square = 0.0
        for b in range(L):
            r = Y[n, b]
            for j in range(p):
                r -= E[b, j] * A[n, j]
            square += r * r
        out[n] = square


def residual_noise(Y: np.ndarray, E: np.ndarray, A: np.ndarray, held: int) -> np.ndarray:
    """Return the noise that the residuals of pixels (N, L) with abundances (N, p) show; ``held`` is 1 where the sum is held at one."""
    squares = np.empty(len(Y))
    squares_of_residuals(Y, E, A, squares)
    return np.sqrt(squares / np.maximum(1, len(E) - np.count_nonzero(A, axis=1) + held))


Values = Callable[[np.ndarray, np.ndarray], np.ndarray]


def map_of_solved(count: int, abundance: np.ndarray, masked: np.ndarray, values: Values) -> np.ndarray:
    """Return a map of some lines, float32 (n, count, samples), −9999 where masked.

    ``values(places, A)`` returns its bands (m, count) of the m pixels that are solved, from their places, line by line, and abundances
    (m, p).
    """
    n, p, samples = abundance.shape
    solved = np.flatnonzero(~masked.ravel())
    out = np.full((n * samples, count), NODATA, np.float32)
    out[solved] = values(solved, np.ascontiguousarray(abundance.transpose(0, 2, 1)).reshape(-1, p)[solved])
    return np.ascontiguousarray(out.reshape(n, samples, count).transpose(0, 2, 1))


@dataclass(frozen=True)
class OfSupport:
    """What all pixels with one support share, for noise of 1, or that which is given."""

    columns: np.ndarray  # (k,)
    sigma: np.ndarray  # (p,) of the abundances of the support; of the others, of the abundance that each would have
    others: np.ndarray  # (m,) the numbers of the other spectra
    first: int  # the spectrum that these are differences to, where the sum is held at one; else −1
    scale: np.ndarray  # (m,) the standard deviation of their products with the residual
    parts: np.ndarray  # (classes + 1, k) which abundances a sum has; the last is the brightness
    covariance: np.ndarray  # (classes + 1, classes + 1) of the sums


class Uncertainty:
    """Standard deviations of the abundances of pixels, or of their sums by class.

    Parameters
    ----------
    problem : Problem
        With the noise of its bands, or None to take it, white, from each pixel's residual.
    sums : ClassSums or None
        The sums whose standard deviations are wanted in place of those of the abundances.
    """

    def __init__(self, problem: Problem, sums: ClassSums | None) -> None:
        self.problem, self.noise, self.sums = problem, problem.noise, sums
        self.E = problem.endmembers.matrix
        self.rows = np.ascontiguousarray(self.E.T)
        self.weights = np.ones(len(self.E)) if self.noise is None else self.noise
        weighted = self.E * self.weights[:, None]
        self.products, self.spreads = self.E.T @ self.E, weighted.T @ weighted
        self.of_support = functools.lru_cache(KEPT)(self.matrices)
        # For short numpy calls: four threads that hand over the interpreter after each took three times as long as one.
        self.alone = threading.Lock()

    @property
    def bands(self) -> tuple[str, ...]:
        """The names of the bands."""
        names = self.problem.endmembers.names if self.sums is None else self.sums.bands
        return (*names, *([VALIDITY] if self.problem.method.nonnegative else []))

    def matrices(self, support: bytes) -> OfSupport:
        """Return what the pixels with a support share; ``support`` has a byte for each endmember."""
        inside = np.frombuffer(support, bool)
        F, others = self.E[:, inside], np.flatnonzero(~inside)
        kept, first = np.flatnonzero(inside), -1
        M = np.linalg.pinv(F)
        if self.problem.method.sum_to_one:  # differences to the first: one of the spectra may be zero
            first, kept = int(kept[0]), kept[1:]
            of_kept = np.linalg.pinv(F[:, 1:] - F[:, [0]])
            M = np.vstack([-of_kept.sum(axis=0), of_kept])
        else:
            of_kept = M
        sigma = np.zeros(len(inside))
        sigma[inside] = np.sqrt(np.square(M * self.weights).sum(axis=1))
        squares, variance, size = self.left_over(of_kept, kept, others, first)
        alike = squares <= 1e-20 * size
        scale = np.sqrt(variance)
        sigma[others] = np.where(alike, np.inf, scale / np.where(alike, 1.0, squares))
        columns = np.flatnonzero(inside)
        members = () if self.sums is None else self.sums.members
        parts = np.array([[float(j in some) for j in columns] for some in members]).reshape(len(members), len(columns))
        parts = np.vstack([parts, parts.sum(axis=0)])
        S = parts @ (M * self.weights)
        return OfSupport(columns, sigma, others, first, np.where(alike, 0.0, scale), parts, S @ S.T)

    def left_over(
        self, M: np.ndarray, kept: np.ndarray, others: np.ndarray, first: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return of what the support leaves of each other spectrum: |d|², ``dᵀΣd``, and |e|², each (m,).

        From the products of all spectra, so that a support costs no product over the bands for each other spectrum; where little is
        left of a spectrum, from itself.
        """
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
            base = 0.0 if first < 0 else self.E[:, [first]]
            rest, F = self.E[:, others[little]] - base, self.E[:, kept] - base
            D = rest - F @ (M @ rest)
            squares[little] = np.square(D).sum(axis=0)
            variance[little] = np.square(D * self.weights[:, None]).sum(axis=0)
        return squares, variance, size

    @property
    def description(self) -> str:
        """What the map is."""
        return "standard deviations"

    def of(self, first: int, raw: np.ndarray, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """Return the map of some lines; see `unmix.jobs.derived.table.DerivedMap`.

        Returns
        -------
        array (n, bands, samples), float32
            Standard deviations; −9999 where masked. Of an abundance that is 0, that of the abundance it would have: with a multiple of
            it the endmember would have been seen. Of a class without a spectrum in the pixel, the largest of its spectra's.
        """
        Y = spectra(raw, self.problem.interleave, self.problem.bands)

        def values(places: np.ndarray, A: np.ndarray) -> np.ndarray:
            out = np.empty((len(A), len(self.bands)), np.float32)
            used = A != 0 if self.problem.method.nonnegative else np.ones(A.shape, bool)
            supports, which, counts = np.unique(used, axis=0, return_inverse=True, return_counts=True)
            together = np.argsort(which.ravel(), kind="stable")
            for support, some in zip(supports, np.split(together, np.cumsum(counts)[:-1])):
                with np.errstate(over="ignore"), self.alone if len(some) < FEW else contextlib.nullcontext():
                    out[some] = self.of_pixels(self.of_support(support.tobytes()), Y[places[some]], A[some])
            return out

        return map_of_solved(len(self.bands), abundance, masked, values)

    def of_pixels(self, shared: OfSupport, Y: np.ndarray, A: np.ndarray) -> np.ndarray:
        """Return the bands of pixels with one support, (N, bands)."""
        columns, held = shared.columns, self.problem.method.sum_to_one
        dof = max(1.0, len(self.E) - len(columns) + held) if self.noise is None else 0.0
        found = np.empty((len(Y), 2))
        F = np.ascontiguousarray(self.E[:, columns])
        support = np.ascontiguousarray(A[:, columns])
        pull(Y, F, support, self.rows, shared.others, shared.first, shared.scale, dof, found)
        noise, away = found[:, :1], found[:, 1]
        sigma = noise * shared.sigma
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = np.where(sigma[:, columns] > 0, A[:, columns] / sigma[:, columns], np.inf).min(
                axis=1, initial=np.inf
            )
        validity = np.minimum(inside, away)[:, None]
        if self.sums is not None:
            sigma = self.of_sums(shared, noise, A)
        return np.hstack([sigma, validity]) if self.problem.method.nonnegative else sigma

    def of_sums(self, shared: OfSupport, noise: np.ndarray, A: np.ndarray) -> np.ndarray:
        """Return the standard deviations of the sums by class, in the order of their bands."""
        assert self.sums is not None
        V = shared.covariance
        variances = np.broadcast_to(np.diag(V), (len(A), len(V))).copy()
        sums = np.zeros(variances.shape)
        for part, j in zip(
            shared.parts.T, shared.columns
        ):  # one after the other: a product's rounding would depend on the block
            sums += part * A[:, [j]]
        brightness = sums[:, -1]
        if self.sums.normalized:
            g = sums[:, :-1] / np.where(brightness > 0, brightness, 1)[:, None]
            change = np.diag(V)[:-1] - 2 * g * V[:-1, -1] + g * g * V[-1, -1]
            variances[:, :-1] = change / np.where(brightness > 0, np.square(brightness), np.inf)[:, None]
        sigma = noise * np.sqrt(np.maximum(variances, 0))
        for c, members in enumerate(self.sums.members):
            if not shared.parts[c].any():
                sigma[:, c] = noise[:, 0] * max(shared.sigma[j] for j in members)
        if self.sums.normalized:
            sigma[brightness <= 0, :-1] = NODATA
        classes, total = sigma[:, :-1], sigma[:, -1:]
        return np.hstack([classes, *([total] if self.sums.has_shade else []), total])


def read_bands(path: str | os.PathLike[str], bands: Bands, count: int, what: str) -> np.ndarray:
    """Return a number for each band in use from a text or CSV file with a line for each band, of which the last number counts.

    Parameters
    ----------
    path : path-like
    bands : Bands
    count : int
        Bands of the cube; the file has a line for each of them, or for each in use.
    what : str
        What the numbers are, for messages.

    Raises
    ------
    InputError
        Where it cannot be read, has another number of lines, or a value is not above 0.
    """
    try:
        with open(path, errors="replace") as file:
            text = file.read(LONGEST_FILE)
    except OSError as error:
        raise InputError(f"{path}: cannot read the {what}: {error.strerror}") from None
    rows = [row for row in (line.replace(",", " ").split() for line in text.splitlines()) if row]
    values = []
    for number, row in enumerate(rows):
        try:
            values.append(float(row[-1]))
        except ValueError:
            if number:  # the first line may be a heading
                raise InputError(
                    f"{path}: '{row[-1][:20]}' is no number; write the {what} of a band on each line"
                ) from None
    if len(values) not in (count, len(bands.index)):
        raise InputError(
            f"{path}: {len(values)} lines of {what}, but the cube has {count} bands, {len(bands.index)} in use"
        )
    noise = np.array(values)[bands.index] if len(values) == count else np.array(values)
    if not np.all((noise > 0) & np.isfinite(noise)):
        raise InputError(f"{path}: the {what} of every band must be above 0")
    return noise
