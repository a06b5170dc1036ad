"""SISAL (Bioucas-Dias 2009): the smallest simplex around a scene but for a given share, where no pixel is pure.

With h = (1, z), z the p − 1 principal components of a pixel, divided by their deviations, and Q the inverse of the
matrix of the h of p corners, b = Qh are barycentric coordinates. The corners minimise

    −log|det Q| + τ Σ max(−b, 0)    over all pixels and coordinates,

where the columns of Q sum to those of (1, 0, …, 0).

Moving all corners from their centre at once shows that τ (1/p + |b|) sums to p − 1 over the coordinates below 0: so
``τ = p (p − 1) / (ν N)`` leaves ν N of them outside, but for their size.

The paper solves it by an augmented Lagrangian. Here ``max(−b, 0)`` is smoothed to ``(√(b² + 4ε²) − b) / 2``, and
Newton's method follows the minimum from ε = 0.1 down to 1e-8: some 60 steps, whatever the number of pixels, to a
minimum at which as many coordinates are 0 as there are unknowns.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ..compiled.jit import compiled
from .nfindr import Simplex, components, exchanged_from, matrix_of, spanning_and_seeded
from .passes import Passes
from .quality import use_of
from .statistics import Moments
from .vca import Points, principal_of

# Pixels taken together: a part of the rows that `Points` reads together, so that the result does not depend on memory.
TOGETHER = 2**16
# The smoothing at the first and the last minimum, and the factor from each to the next. The value at the last is above
# that without smoothing by less than 1e-8 of τ for each coordinate near 0.
FIRST, LAST, FACTOR = 0.1, 1e-8, 0.2
# The smoothing at the last minimum of a simplex that is only compared with another.
LAST_ROUGH = 1e-3
# Most pixels of the first, approximate round, and of a simplex that is only compared with another (of 2^12 to 2^16
# pixels, fractions of the two differed by the same, to 3 %); fewest of them per endmember.
MOST_FIRST_PIXELS, MOST_ROUGH_PIXELS, FEWEST_PIXELS_PER_ENDMEMBER = 2**16, 2**12, 100
# The second round begins here.
SECOND_ROUND_FROM = 1e-3
# Share of the pixels, times coordinates, that is left outside where none is given.
OUTSIDE = 0.3
# Most steps at each smoothing, which end where the expected decrease, relative to the value, is below the second.
MOST_STEPS, LEAST_DECREASE = 60, 1e-13

Result = TypeVar("Result")


@dataclass(frozen=True)
class Enclosing:
    """A simplex around a scene.

    Attributes
    ----------
    spectra : array (L, p), float64
        Its corners.
    value : float
        The minimum, without smoothing, for components divided by their deviations.
    tau : float
        The price of a coordinate below 0.
    below : float
        Coordinates below 0, for each pixel.
    decrement : float
        By how much another step of Newton's method would lower the value: nothing, but for rounding, at a minimum.
    steps : int
        Of Newton's method.
    use : dict
        How the scene uses it (`unmix.endmembers.quality.use_of`).
    """

    spectra: np.ndarray
    value: float
    tau: float
    below: float
    decrement: float
    steps: int
    use: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the entry for ``run.json``."""
        names = ("value", "tau", "below", "decrement", "steps")
        return {name: getattr(self, name) for name in names}


def axes(moments: Moments, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the p − 1 principal axes (L, p − 1), and the deviations of the components along them."""
    U = principal_of(moments, p - 1)
    return U, np.sqrt(np.maximum(np.diag(U.T @ moments.covariance @ U), np.finfo(float).tiny))


@compiled
def add_pixels(X, Q, smoothing, slopes, G, S):
    """Return the sum of smoothed ``max(−b, 0)`` of rows of X; if ``slopes``, add derivatives to G and S (p, p, p)."""
    p, d, total = Q.shape[0], X.shape[1], 0.0
    square = 4.0 * smoothing * smoothing
    for n in range(X.shape[0]):
        if np.isnan(X[n, 0]):
            continue
        for k in range(p):
            b = Q[k, 0]
            for j in range(d):
                b += Q[k, j + 1] * X[n, j]
            root = np.sqrt(b * b + square)
            # (root − b) / 2, which for a large b would be the difference of equal numbers
            below = 0.5 * square / (root + b) if b > 0.0 else 0.5 * (root - b)
            total += below
            # Smaller derivatives are left out: near the end these are nearly all.
            if slopes and below > 1e-14 * root:
                share = below / root
                G[k, 0] -= share
                for j in range(d):
                    G[k, j + 1] -= share * X[n, j]
                weight = 0.5 * square / (root * root * root)
                if weight * smoothing > 1e-14:
                    S[k, 0, 0] += weight
                    # Of S the lower triangles alone.
                    for i in range(d):
                        part = weight * X[n, i]
                        S[k, i + 1, 0] += part
                        for j in range(i + 1):
                            S[k, i + 1, j + 1] += part * X[n, j]
    return total


@dataclass(frozen=True)
class Thinned:
    """Some pixels of a scene, in memory."""

    rows: np.ndarray  # (n, p − 1), float64, none without a value

    def pieces(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield them as `Points.pieces` does."""
        yield 0, self.rows


@dataclass(frozen=True)
class Pixels:
    """Pixels of a scene, in the form that the cost depends on.

    Attributes
    ----------
    points : Points or Thinned
        The components of all pixels.
    deviations : array (p − 1,)
        Divisors of the components.
    threads : int
    """

    points: Points | Thinned
    deviations: np.ndarray
    threads: int

    def mapped(self, function: Callable[[np.ndarray], Result]) -> Iterator[Result]:
        """Yield what ``function`` makes of some rows at a time, in order, so that threads change nothing."""
        with ThreadPoolExecutor(self.threads) as pool:  # starts no thread until it is used
            for _, rows in self.points.pieces():
                some = [rows[n : n + TOGETHER] for n in range(0, len(rows), TOGETHER)]
                yield from pool.map(function, some) if len(some) > 1 else map(function, some)

    def below(self, Q: np.ndarray, limit: float) -> int:
        """Return how many coordinates of the pixels are below a limit."""
        by_component = (Q[:, 1:] / self.deviations).T
        return sum(self.mapped(lambda rows: int((rows @ by_component + Q[:, 0] < limit).sum())))  # NaN is not

    def total(self, Q: np.ndarray, smoothing: float, slopes: bool) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the sum of smoothed ``max(−b, 0)``, its gradient in Q (p, p), and a Hessian for each row (p, p, p)."""
        p, scale = len(Q), np.concatenate([[1.0], self.deviations])
        plain = np.ascontiguousarray(Q / scale)
        total, G, S = 0.0, np.zeros((p, p)), np.zeros((p, p, p))

        def add(rows: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
            own_G, own_S = np.zeros((p, p)), np.zeros((p, p, p))
            value = add_pixels(rows, plain, smoothing, slopes, own_G, own_S)
            return value, own_G, own_S

        for part in self.mapped(add):
            total, G, S = total + part[0], G + part[1], S + part[2]
        S = np.tril(S) + np.tril(S, -1).transpose(0, 2, 1)
        return total, G / scale, S / np.outer(scale, scale)

    def value(self, Q: np.ndarray, tau: float, smoothing: float) -> float:
        """Return the smoothed cost."""
        return tau * self.total(Q, smoothing, False)[0] - float(np.linalg.slogdet(Q)[1])

    def slopes(self, Q: np.ndarray, tau: float, smoothing: float) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the value, and its gradient (n,) and Hessian (n, n) in X, n = (p − 1) p, at Q + T X; see `changes`."""
        p, M, T = len(Q), np.linalg.inv(Q), changes(len(Q))
        total, G, S = self.total(Q, smoothing, True)
        A, n = M @ T, (p - 1) * p
        # The second derivative of −log|det Q| along D and D' is tr(M D M D').
        of_volume = np.einsum("ai,bj->ibja", A, A)
        of_pixels = tau * np.einsum("ki,kj,kab->iajb", T, T, S)
        hessian = (of_volume + of_pixels).reshape(n, n)
        value = tau * total - float(np.linalg.slogdet(Q)[1])
        return value, (T.T @ (tau * G - M.T)).ravel(), (hessian + hessian.T) / 2


def changes(p: int) -> np.ndarray:
    """Return T (p, p − 1), orthonormal columns that sum to 0: Q + T X keeps the sums of Q's columns for any X."""
    return np.asarray(np.linalg.svd(np.ones((1, p)))[2][1:].T)


def minimum(
    Q: np.ndarray, pixels: Pixels, tau: float, first: float, last: float = LAST
) -> tuple[np.ndarray, float, int]:
    """Follow the minimum from smoothing ``first`` to ``last``; return Q, the gain of one more step, and the steps."""
    p, steps, smoothing = len(Q), 0, first
    T = changes(p)
    while True:
        for _ in range(MOST_STEPS):
            value, step, decrease = newton_step(Q, pixels, tau, smoothing)
            if decrease <= LEAST_DECREASE * max(1.0, abs(value)):
                break
            moved = along_step(Q, T @ step.reshape(p - 1, p), value, decrease, pixels, tau, smoothing)
            if moved is None:
                break
            Q, steps = moved, steps + 1
        if smoothing <= last:
            return Q, decrease, steps
        smoothing = max(FACTOR * smoothing, last)


def newton_step(Q: np.ndarray, pixels: Pixels, tau: float, smoothing: float) -> tuple[float, np.ndarray, float]:
    """Return the value at Q, Newton's step in X (n,), and the decrease that a convex quadratic model expects of it."""
    value, gradient, hessian = pixels.slopes(Q, tau, smoothing)
    values, vectors = np.linalg.eigh(hessian)
    # The value is not convex: along directions that bend down, the step is as if they bent up.
    bent = np.maximum(np.abs(values), 1e-12 * np.abs(values).max())
    step = -(vectors @ ((vectors.T @ gradient) / bent))
    return value, step, -float(gradient @ step)


def along_step(
    Q: np.ndarray, D: np.ndarray, value: float, decrease: float, pixels: Pixels, tau: float, smoothing: float
) -> np.ndarray | None:
    """Return Q after as much of a step as makes the value smaller; None where no part of it does."""
    sign, share = np.linalg.slogdet(Q)[0], 1.0
    while share > 1e-10:
        other = Q + share * D
        keeps_side = np.linalg.slogdet(other)[0] == sign
        if keeps_side and pixels.value(other, tau, smoothing) <= value - 1e-4 * share * decrease:
            return other
        share *= 0.5
    return None


def sisal(
    moments: Moments,
    p: int,
    seed: int,
    budget: int,
    passes: Passes,
    outside: float = OUTSIDE,
) -> Enclosing | list[int]:
    """Return the simplex around all pixels but a share ``outside``, with the arguments of `nfindr`; or some pixels."""
    with components(moments, p, budget, passes) as (points, constant):
        found = exchanged_from(points, constant, p, spanning_and_seeded(p, seed))
        return enclosing(moments, points, found, outside, passes.threads) if isinstance(found, Simplex) else found


def enclosing(
    moments: Moments, points: Points, found: Simplex, outside: float, threads: int, is_rough: bool = False
) -> Enclosing:
    """Return the simplex around ``points`` but a share ``outside``, from N-FINDR's; of every n-th pixel if rough."""
    p = len(found.places)
    U, deviations = axes(moments, p)
    scaled = np.concatenate([[1.0], deviations])
    Q, steps = np.linalg.inv(matrix_of(points, found.places) / scaled[:, None]), 0
    each = max(1, moments.pixels // (MOST_ROUGH_PIXELS if is_rough else MOST_FIRST_PIXELS))
    tau = p * (p - 1) / (outside * moments.pixels)
    everything = Pixels(points, deviations, threads)
    few = Thinned(points.thinned(each) if each > 1 else np.empty((0, p - 1)))
    count, more = len(few.rows), 0
    if count > FEWEST_PIXELS_PER_ENDMEMBER * p:  # a mask may leave out nearly all of these
        last = LAST_ROUGH if is_rough else LAST
        Q, decrement, steps = minimum(Q, replace(everything, points=few), tau * moments.pixels / count, FIRST, last)
    if not (steps and is_rough):
        Q, decrement, more = minimum(Q, everything, tau, SECOND_ROUND_FROM if steps else FIRST)
    M = np.linalg.inv(Q) * scaled[:, None]
    M[0] = 1.0
    spectra = np.ascontiguousarray(moments.mean[:, None] + U @ M[1:])
    if is_rough:  # nobody asks for more of it
        return Enclosing(spectra, np.nan, tau, np.nan, decrement, steps, {})
    value, below = everything.value(Q, tau, 0.0), everything.below(Q, -2 * LAST) / moments.pixels
    return Enclosing(spectra, value, tau, below, decrement, steps + more, use_of(moments, points, M))
