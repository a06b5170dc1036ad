"""VCA, vertex component analysis (Nascimento and Dias 2005): the pixels at the corners of the scene's simplex.

Streamed: the subspace comes from the moments, then one pass projects every pixel to p dimensions; held in memory where
that fits the budget, else in a scratch file.
"""

import tempfile
from collections.abc import Callable

import numpy as np

from ..solvers.jit import compiled
from .statistics import Moments

Project = Callable[[np.ndarray, np.ndarray, np.ndarray], None]


@compiled
def farthest(X, f):
    """The row of X with the largest ``|fᵀx|``; the lowest of equals. NaN rows never win."""
    best = 0
    most = -1.0
    for n in range(X.shape[0]):
        total = 0.0
        for j in range(f.shape[0]):
            total += f[j] * X[n, j]
        if abs(total) > most:
            best = n
            most = abs(total)
    return best


@compiled
def normalise(X, u):
    """Divide each row by its product with u (the projective projection); rows on the other side become NaN."""
    for n in range(X.shape[0]):
        total = 0.0
        for j in range(u.shape[0]):
            total += u[j] * X[n, j]
        for j in range(u.shape[0]):
            X[n, j] = X[n, j] / total if total > 0.0 else np.nan


@compiled
def largest_square(X):
    """The largest squared length of a row, NaN rows aside."""
    most = 0.0
    for n in range(X.shape[0]):
        total = 0.0
        for j in range(X.shape[1]):
            total += X[n, j] * X[n, j]
        if total > most:
            most = total
    return most


def principal(matrix: np.ndarray, d: int) -> np.ndarray:
    """The d leading eigenvectors of a symmetric matrix, (L, d), each with its largest entry positive."""
    _, vectors = np.linalg.eigh(matrix)
    U = vectors[:, ::-1][:, :d]
    signs = np.sign(U[np.abs(U).argmax(axis=0), np.arange(d)])
    return np.ascontiguousarray(U * np.where(signs == 0, 1, signs))


def signal_to_noise(moments: Moments, p: int) -> float:
    """SNR in dB as VCA estimates it: the power in the p-dimensional subspace against the rest."""
    power = float(np.trace(moments.second))
    inside = float(np.linalg.eigvalsh(moments.covariance)[::-1][:p].sum() + moments.mean @ moments.mean)
    L = len(moments.mean)
    rest = power - inside
    if rest <= 1e-14 * power:
        return float("inf")
    return float(10 * np.log10(max((inside - p / L * power) / rest, 1e-30)))


def vca(moments: Moments, p: int, seed: int, pixels: int, budget: int, project: Project) -> list[int]:
    """Pick p pixels.

    Parameters
    ----------
    moments : Moments
        Of the scene.
    p, seed : int
        How many; of the random directions.
    pixels, budget : int
        Pixels in the scene; bytes that their projections may hold in memory.
    project : callable
        ``project(U, shift, out)`` fills ``out`` (pixels, d) with ``Uᵀy − shift``, NaN where masked.

    Returns
    -------
    list of int
        Places of the pixels, counted along the lines.
    """
    with tempfile.NamedTemporaryFile(prefix="unmix-") as scratch:
        # Below the threshold (Nascimento and Dias, section III) the mean is taken out and a constant takes its place.
        noisy = p > 1 and signal_to_noise(moments, p) < 15 + 10 * np.log10(p)
        d = p - 1 if noisy else p
        shape = (pixels, d)
        if 8 * pixels * d <= budget:
            X = np.empty(shape)
        else:
            X = np.memmap(scratch, np.float64, "w+", shape=shape)
        U = principal(moments.covariance if noisy else moments.second, d)
        project(U, U.T @ moments.mean if noisy else np.zeros(d), X)
        constant = 0.0
        if noisy:
            constant = largest_square(X) ** 0.5
        elif p > 1:
            normalise(X, U.T @ moments.mean)
        return corners(X, constant, p, seed)


def corners(X: np.ndarray, constant: float, p: int, seed: int) -> list[int]:
    """The main loop: p times, the pixel farthest along a random direction orthogonal to all before.

    With a constant, every pixel has it as its last coordinate, without it being held.
    """
    random = np.random.Generator(np.random.PCG64(seed))
    A = np.zeros((p, p))
    A[-1, 0] = 1.0
    found = []
    for i in range(p):
        w = random.random(p)
        f = w - A @ (np.linalg.pinv(A) @ w)
        f /= np.sqrt(np.square(f).sum())
        d = X.shape[1]
        n = farthest(X, f) if d == p else farthest_with_constant(X, f, constant)
        A[:d, i] = X[n]
        if d < p:
            A[-1, i] = constant
        found.append(int(n))
    return found


@compiled
def farthest_with_constant(X, f, constant):
    """As `farthest`, where every row has a further coordinate ``constant``."""
    best = 0
    most = -1.0
    d = X.shape[1]
    for n in range(X.shape[0]):
        total = f[d] * constant
        for j in range(d):
            total += f[j] * X[n, j]
        if abs(total) > most:
            best = n
            most = abs(total)
    return best
