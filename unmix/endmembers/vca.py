"""VCA, vertex component analysis (Nascimento and Dias 2005): pick the pixels at the corners of the scene's simplex.

The subspace comes from the moments; one pass then projects every pixel to p dimensions.
"""

from typing import NamedTuple

import numpy as np

from .passes import Passes
from .scan import View
from .scan.points import Points
from .statistics import Moments


def principal(matrix: np.ndarray, d: int) -> np.ndarray:
    """Return the d leading eigenvectors of a symmetric matrix, (L, d), each with its largest entry positive."""
    return leading(np.linalg.eigh(matrix)[1], d)


def principal_of(moments: Moments, d: int) -> np.ndarray:
    """Return what `principal` does of the covariance, whose eigenvectors are computed once."""
    return leading(moments.axes[1], d)


def leading(vectors: np.ndarray, d: int) -> np.ndarray:
    """Return the last d columns, the last one first, each with its largest entry positive."""
    return np.ascontiguousarray(with_positive_peaks(vectors[:, ::-1][:, :d]))


def with_positive_peaks(vectors: np.ndarray) -> np.ndarray:
    """Return columns with the sign that makes the largest entry of each positive, which an eigensolver leaves open."""
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])])
    return np.asarray(vectors * np.where(signs == 0, 1.0, signs))


def signal_to_noise(moments: Moments, p: int) -> float:
    """Estimate the SNR in dB as VCA does: the power in the p-dimensional subspace relative to the rest."""
    power = float(np.trace(moments.second))
    rest, L = moments.left_by(p), len(moments.mean)
    if rest <= 1e-14 * power:
        return float("inf")
    return float(10 * np.log10(max(((1 - p / L) * power - rest) / rest, 1e-30)))


class Corners(NamedTuple):
    """The projection that VCA makes: its axes, and whether they are those of the components (`view_of`)."""

    view: View
    is_centred: bool

    @classmethod
    def of(cls, moments: Moments, p: int) -> "Corners":
        """Choose the axes for p endmembers."""
        # Below this SNR (Nascimento and Dias, section III) the mean is subtracted, and a constant coordinate replaces
        # it.
        if p > 1 and signal_to_noise(moments, p) < 15 + 10 * np.log10(p):
            return cls(view_of(moments, p - 1), True)
        U = principal(moments.second, p)
        return cls(View(U, np.zeros(p), U.T @ moments.mean if p > 1 else None), False)

    def picked(self, points: Points, p: int, seed: int) -> list[int]:
        """Pick p pixels."""
        square = points.largest_residual(0.0, np.zeros((0, p)))[1] if self.is_centred else 0.0
        return corners(points, max(square, 0.0) ** 0.5, p, seed)


def view_of(moments: Moments, d: int) -> View:
    """Return the view of pixels along d principal components."""
    U = principal_of(moments, d)
    return View(U, U.T @ moments.mean)


def vca(moments: Moments, p: int, seed: int, budget: int, passes: Passes) -> list[int]:
    """Pick p pixels, as numbers, of the scenes of ``passes``; ``budget`` is the bytes for projections of all pixels."""
    own = Corners.of(moments, p)
    with passes.points([own.view], budget) as (points,):
        return own.picked(points, p, seed)


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
        beyond = f[points.d :] * constant if p > points.d else np.zeros(1)
        best = points.farthest_each(np.append(f[: points.d], beyond)[:, None])[0][0]
        A[: points.d, i] = points.row(best)
        A[points.d :, i] = constant
        picked.append(best)
    return picked


__all__ = ["Points", "corners", "principal", "principal_of", "vca", "view_of", "with_positive_peaks"]
