"""N-FINDR (Winter 1999): pick the pixels whose simplex is the largest, so that no exchange of one enlarges it.

With p − 1 principal components z of a pixel, ``h = (1, z)`` and ``M`` the matrix of the h of p pixels, exchanging pixel
k for pixel n multiplies the volume of their simplex by ``|(M⁻¹ h_n)_k|``. The largest of these ratios over all k and n
is ω. Exchanges are made until ω is 1: then no single exchange enlarges the simplex, and its volume is at least
``p^(−p/2)`` of the largest.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .passes import Passes
from .quality import use_of
from .scan.searches import columns_of
from .statistics import Moments
from .vca import Corners, Points, corners, principal_of, vca, view_of

# An exchange has to enlarge the volume by more than this: less is rounding.
GAIN = 1e-9
# Most endmembers for one start: with more, exchanges end in different simplices and begin from `RESTARTS` more sets of
# pixels.
ONE_START, RESTARTS = 6, 3
# Seeds are below this.
SEEDS = 2**63
# Squared residual, as a share of the mean square, that is rounding (1e-14 of float32 values): the pixels already picked
# span the rest.
RESIDUAL_ROUNDING = 1e-12
# Begin: (points, rms, SPA's pixels) → sets of pixels to start from.
Starts = list[list[int]]
Begin = Callable[[Points, float, list[int]], Starts]


@dataclass(frozen=True)
class Simplex:
    """Pixels, and how large the simplex is that they span.

    Attributes
    ----------
    places : list of int
        The pixels, each as ``line * samples + sample``.
    omega : float
        By how much the best exchange of one of them would multiply the volume.
    log_volume : float
        Natural logarithm of ``|det M|``, which is the volume times (p − 1)!.
    exchanges : int
    starts : int
        How many sets of pixels exchanges began from.
    agree : int
        How many of these ended in a simplex as large.
    purest : list of lists of int
        For each of them, the pixels with the largest barycentric coordinate of its corner, if they were asked for.
    use : dict
        How the scene uses it (`unmix.endmembers.quality.use_of`).
    """

    places: list[int]
    omega: float
    log_volume: float
    exchanges: int
    starts: int = 1
    agree: int = 1
    purest: list[list[int]] = field(default_factory=list)
    use: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, float | int]:
        """Return the entry for ``run.json``."""
        return {name: getattr(self, name) for name in ("omega", "log_volume", "exchanges", "starts", "agree")}


@contextlib.contextmanager
def components(moments: Moments, p: int, budget: int, passes: Passes) -> Iterator[tuple[Points, float]]:
    """Yield p − 1 principal components of all pixels, NaN where masked, and their RMS length; a pass over the files."""
    with passes.points([view_of(moments, p - 1)], budget) as (points,):
        yield points, size_of(moments, p - 1)


def size_of(moments: Moments, d: int) -> float:
    """Return the root mean square of the lengths of d principal components."""
    U = principal_of(moments, d)
    return float(np.sqrt(max(np.trace(U.T @ moments.covariance @ U), 0.0)))


def successive(points: Points, constant: float, p: int) -> list[int]:
    """Pick p pixels by SPA in the components, each the farthest from the span of the pixels before."""
    Q = np.zeros((0, points.d + 1))
    picked: list[int] = []
    for _ in range(p):
        best, most = points.largest_residual(constant, Q)
        if most < 0 or (picked and most <= RESIDUAL_ROUNDING * constant**2):
            break
        picked.append(best)
        if constant == 0:
            break
        h = np.append(points.row(best), constant)
        for _ in range(2):  # once leaves rounding errors as large as those of the longest pixel
            h = h - Q.T @ (Q @ h)
        Q = np.vstack([Q, h / np.linalg.norm(h)])
    return picked


def matrix_of(points: Points, places: list[int]) -> np.ndarray:
    """Return M, (p, p): a column (1, z) for each pixel."""
    return np.vstack([np.ones(len(places)), np.stack([points.row(n) for n in places], axis=1)])


def best_exchanges(points: Points, M: np.ndarray) -> tuple[list[int], list[float]]:
    """Return for each corner the pixel that enlarges the simplex most in its place, and the ratios of the volumes."""
    return points.farthest_each(columns_of(np.linalg.inv(M)))


def exchanged(points: Points, places: list[int]) -> Simplex | None:
    """Exchange pixels, one corner after the other, while that enlarges the simplex; None if it has no volume."""
    places, exchanges, k, refused = list(places), 0, 0, 0
    M = matrix_of(points, places)
    sign, log_volume = np.linalg.slogdet(M)
    if sign == 0:
        return None
    best, ratios = best_exchanges(points, M)
    while refused < len(places):
        refused += 1
        if ratios[k] > 1.0 + GAIN and best[k] not in places:
            other = M.copy()
            other[1:, k] = points.row(best[k])
            larger = float(np.linalg.slogdet(other)[1])
            # The volume itself has to grow: the ratio of a thin simplex is rounding, and exchanges by it never end.
            if larger > log_volume + 0.5 * GAIN:
                places[k], M, log_volume = best[k], other, larger
                exchanges, refused = exchanges + 1, 0
                best, ratios = best_exchanges(points, M)
        k = (k + 1) % len(places)
    return Simplex(places, max(ratios), float(log_volume), exchanges)


def purest(points: Points, simplex: Simplex, count: int) -> Simplex:
    """Return the simplex with ``purest``, the ``count`` pixels with the largest coordinate of each corner."""
    inverse = np.linalg.inv(matrix_of(points, simplex.places))
    return replace(simplex, purest=points.largest_along(columns_of(inverse), count))


def refined(points: Points, starts: list[list[int]]) -> Simplex | None:
    """Return the largest simplex that exchanges from these sets of pixels lead to, the first of equal ones."""
    found = [simplex for simplex in (exchanged(points, start) for start in starts) if simplex is not None]
    if not found:
        return None
    most = max(simplex.log_volume for simplex in found)
    equal = [simplex for simplex in found if simplex.log_volume >= most - GAIN]
    return replace(equal[0], starts=len(starts), agree=len(equal))


def spanning_and_seeded(p: int, seed: int) -> Begin:
    """Begin from SPA's pixels and, above `ONE_START` endmembers, from VCA's with `RESTARTS` seeds from ``seed`` on."""
    seeds = [(seed + k) % SEEDS for k in range(RESTARTS if p > ONE_START else 0)]
    return lambda points, constant, spanning: [spanning, *(corners(points, constant, p, each) for each in seeds)]


def exchanged_from(points: Points, constant: float, p: int, begin: Begin) -> Simplex | list[int]:
    """Return the simplex that exchanges lead to; see `largest_simplex`."""
    spanning = successive(points, constant, p)
    if len(spanning) < p:
        return spanning
    return refined(points, begin(points, constant, spanning)) or refined(points, [spanning]) or spanning[: p - 1]


def largest_simplex(moments: Moments, points: Points, p: int, smooth: int, begin: Begin) -> Simplex | list[int]:
    """Return the simplex that exchanges from the sets of ``begin`` lead to, and its use; pixels if there is none."""
    found = exchanged_from(points, size_of(moments, p - 1), p, begin)
    if not isinstance(found, Simplex):
        return found
    found = replace(found, use=use_of(moments, points, matrix_of(points, found.places)))
    return purest(points, found, smooth) if smooth else found


def nfindr(moments: Moments, p: int, seed: int, budget: int, passes: Passes, smooth: int = 0) -> Simplex | list[int]:
    """Pick p pixels, with the arguments of `vca`, and ``smooth`` pixels near each corner; a list without a simplex."""
    if p == 1:
        return vca(moments, p, seed, budget, passes)
    with components(moments, p, budget, passes) as (points, _):
        return largest_simplex(moments, points, p, smooth, spanning_and_seeded(p, seed))


def refined_vca(
    moments: Moments, p: int, seed: int, budget: int, passes: Passes, smooth: int = 0
) -> Simplex | list[int]:
    """Pick p pixels by VCA, and exchange them until no exchange of one enlarges their simplex; see `nfindr`."""
    if p == 1:
        return vca(moments, p, seed, budget, passes)
    # One pass makes both views, which are the same where the scene is noisy.
    own = Corners.of(moments, p)
    with passes.points([view_of(moments, p - 1)] + ([] if own.is_centred else [own.view]), budget) as views:
        picked = own.picked(views[-1], p, seed)
        if not own.is_centred:
            views[-1].close()
        return largest_simplex(moments, views[0], p, smooth, lambda *_: [picked])
