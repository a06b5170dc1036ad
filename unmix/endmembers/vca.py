"""VCA, vertex component analysis (Nascimento and Dias 2005): pick the pixels at the corners of the scene's simplex.

The subspace comes from the moments; one pass then projects every pixel to p dimensions. The projections are held in memory if they fit
the budget, else in a scratch file that is read in pieces.
"""

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..compiled.jit import compiled
from .passes import Passes
from .statistics import Moments


@compiled
def farthest(X, f, constant):
    """Return the row of X with the largest ``|fᵀx|``, the first of equal ones, and that value; rows with NaN are never chosen.

    If f has one entry more than X has columns, ``constant`` is the last coordinate of every row.
    """
    best = 0
    most = -1.0
    d = X.shape[1]
    beyond = f[d] * constant if f.shape[0] > d else 0.0
    for n in range(X.shape[0]):
        total = beyond
        for j in range(d):
            total += f[j] * X[n, j]
        if abs(total) > most:
            best = n
            most = abs(total)
    return best, most


@compiled
def normalise(X, u):
    """Divide each row of X by its product with u (the projective projection); rows with a product of 0 or less become NaN."""
    for n in range(X.shape[0]):
        total = 0.0
        for j in range(u.shape[0]):
            total += u[j] * X[n, j]
        for j in range(u.shape[0]):
            X[n, j] = X[n, j] / total if total > 0.0 else np.nan


@compiled
def largest_square(X):
    """Return the largest squared length of a row, without rows of NaN."""
    most = 0.0
    for n in range(X.shape[0]):
        total = 0.0
        for j in range(X.shape[1]):
            total += X[n, j] * X[n, j]
        if total > most:
            most = total
    return most


class Points:
    """The projected pixels, (pixels, d): an array if it fits the budget (bytes), else a scratch file."""

    # Rows of the scratch file that are read at a time.
    ROWS = 2**17

    def __init__(self, pixels: int, d: int, budget: int) -> None:
        self.pixels, self.d = pixels, d
        self.held = np.empty((pixels, d)) if 8 * pixels * d <= budget else None
        self.scratch: Any = None if self.held is not None else tempfile.TemporaryFile(prefix="unmix-")  # noqa: SIM115

    def put(self, first: int, rows: np.ndarray) -> None:
        """Store a block of rows; blocks must come in order."""
        if self.held is not None:
            self.held[first : first + len(rows)] = rows
        else:
            self.scratch.write(rows.data)

    def pieces(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield all rows in order, in pieces, each with the number of its first row."""
        if self.held is not None:
            yield 0, self.held
            return
        self.scratch.seek(0)
        for first in range(0, self.pixels, self.ROWS):
            count = min(self.ROWS, self.pixels - first) * self.d
            yield first, np.frombuffer(self.scratch.read(8 * count)).reshape(-1, self.d)

    def best(self, find: Callable[[np.ndarray], tuple[int, float]]) -> tuple[int, float]:
        """Return the row to which ``find`` gives the largest value of all pieces, and that value; −1 where it finds none."""
        best, most = 0, -1.0
        for first, rows in self.pieces():
            n, value = find(rows)
            if value > most:
                best, most = first + int(n), float(value)
        return best, most

    def row(self, n: int) -> np.ndarray:
        """Return row n."""
        if self.held is not None:
            return self.held[n]
        self.scratch.seek(8 * self.d * n)
        return np.frombuffer(self.scratch.read(8 * self.d))

    def close(self) -> None:
        """Close the scratch file, which deletes it."""
        if self.scratch is not None:
            self.scratch.close()


def principal(matrix: np.ndarray, d: int) -> np.ndarray:
    """Return the d leading eigenvectors of a symmetric matrix, (L, d), each with its largest entry positive."""
    _, vectors = np.linalg.eigh(matrix)
    return np.ascontiguousarray(with_positive_peaks(vectors[:, ::-1][:, :d]))


def with_positive_peaks(vectors: np.ndarray) -> np.ndarray:
    """Return columns with the sign that makes the largest entry of each positive, which an eigensolver leaves open."""
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])])
    return np.asarray(vectors * np.where(signs == 0, 1.0, signs))


def signal_to_noise(moments: Moments, p: int) -> float:
    """Estimate the SNR in dB as VCA does: the power in the p-dimensional subspace relative to the rest."""
    power = float(np.trace(moments.second))
    inside = float(np.linalg.eigvalsh(moments.covariance)[::-1][:p].sum() + moments.mean @ moments.mean)
    L = len(moments.mean)
    rest = power - inside
    if rest <= 1e-14 * power:
        return float("inf")
    return float(10 * np.log10(max((inside - p / L * power) / rest, 1e-30)))


def vca(moments: Moments, p: int, seed: int, budget: int, passes: Passes) -> list[int]:
    """Pick p pixels of the scenes that ``passes`` reads, each as its number there; ``moments`` are theirs.

    ``seed`` is that of the random directions, ``budget`` the bytes of memory that the projections of the pixels may take.
    """
    # Below this SNR (Nascimento and Dias, section III) the mean is subtracted, and a constant coordinate replaces it.
    noisy = p > 1 and signal_to_noise(moments, p) < 15 + 10 * np.log10(p)
    d = p - 1 if noisy else p
    U = principal(moments.covariance if noisy else moments.second, d)
    centre = U.T @ moments.mean
    points = Points(passes.pixels, d, budget)
    square = 0.0

    def keep(first: int, rows: np.ndarray) -> None:
        nonlocal square
        if noisy:
            square = max(square, largest_square(rows))
        elif p > 1:
            normalise(rows, centre)
        points.put(first, rows)

    try:
        passes.project(U, centre if noisy else np.zeros(d), keep)
        return corners(points, square**0.5, p, seed)
    finally:
        points.close()


def corners(points: Points, constant: float, p: int, seed: int) -> list[int]:
    """Pick p pixels, each the farthest along a random direction orthogonal to those before: the main loop of VCA."""
    random = np.random.Generator(np.random.PCG64(seed))
    A = np.zeros((p, p))
    A[-1, 0] = 1.0
    picked = []
    for i in range(p):
        w = random.random(p)
        # With one endmember no direction is orthogonal to A: the pixel with the most signal is picked.
        f = w - A @ (np.linalg.pinv(A) @ w) if p > 1 else np.ones(1)
        f /= np.sqrt(np.square(f).sum())
        best, _ = points.best(lambda rows: farthest(rows, f, constant))  # noqa: B023 - called at once
        A[: points.d, i] = points.row(best)
        A[points.d :, i] = constant
        picked.append(best)
    return picked
