"""Abundances of an image whose neighbouring pixels are alike, with a proof of how near the optimum they are.

The cost is ``Σ ½ |y − Ea|² + l1 Σa + Σ_e φ_e(a_i − a_j)`` over a ≥ 0 (and Σa = 1), e the pairs of neighbours. The
alternating direction method (Boyd et al. 2011) splits it into squares of all abundances, which the eigenvectors of EᵀE
and the cosine transform of each image make diagonal, and costs of single numbers. Of each of these, an abundance or a
difference, a state is kept: the dual plus ρ times the value. An edge belongs to the pixel on its left, or above it.
"""

import logging
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.fft

from ..blocks import cores
from ..certificate import UNIT_ROUNDOFF
from ..errors import CubeError, MethodError
from ..methods import LARGEST_THRESHOLD
from ..problem import refuse_sizes
from ..problem.factors import gram_matrix
from ..solvers.spatial import right_side, step_lines
from .mixtures import numbered, solved
from .others.kinds import on_host
from .pixels import checked
from .shown import Shown

log = logging.getLogger("unmix")

# The duality gap, relative to the cost, at which the search ends; and at which it gives up proving more.
PROVEN = 1e-6
MOST_STEPS = 20_000
# The gap is measured, and ρ set anew, at the start and after so many steps, or this share of the steps so far if it is
# more: where ρ was set every 8 steps, libraries of 240 spectra had gaps that grew.
FEWEST_STEPS, SHARE_OF_STEPS = 8, 0.3
# ρ at the start, over the mean of |e_j|², and the share of what steps show in its logarithm.
FIRST_RHO, SHARE_OF_RHO = 0.01, 0.5
# Weight of a pixel's distance from its iterate, over the mean of |e_j|², where spectra depend on each other.
NEARNESS = 1e-8
# How often the optima of the start, which are near nothing yet, are sought near the last.
ROUNDS_AT_START = 3
# The share of ``½ Σ |y|²`` below which a cost is rounding: maps of float32 change residuals by 1e-7 of the pixels.
SMALLEST_COST = 1e-8
# A cost is ``½ Σ |y|²`` less terms of that size, each with up to so many times the rounding of an entry of ``Eᵀy``.
ROUNDINGS_OF_COST = 8.0
# A gap pays for the rounding of each dual, three terms, and again for the largest where the bound is made feasible.
ROUNDINGS_OF_GAP = 4.0
# Least error of the optima of pixels, in the same unit: 6 bands and 5 spectra with a condition of 100 to 300 came to
# 5e-14.
LEAST_ROUNDING = 1000 * UNIT_ROUNDOFF
# Pixels whose bounds are computed at a time; arrays (p, lines, samples) of float64 that a search takes.
PIXELS_TOGETHER, ARRAYS = 2**13, 13


@dataclass(frozen=True)
class Prior:
    """The cost of a difference between the abundances of neighbours.

    Attributes
    ----------
    kind : {"tv", "laplacian"}
        ``λ |a_i − a_j|`` or ``½ λ (a_i − a_j)²``, added up over endmembers and pairs of neighbours.
    weight : float
        λ.
    """

    kind: str
    weight: float

    @property
    def smooth(self) -> bool:
        """Whether differences cost their squares."""
        return self.kind == "laplacian"


def prior_of(tv: float | None = None, laplacian: float | None = None) -> Prior:
    """Return the prior whose weight is given; `MethodError` if both or none are given, or it is out of range."""
    if (tv is None) == (laplacian is None):
        raise MethodError("name one of `tv` and `laplacian`")
    name, weight = ("laplacian", laplacian) if tv is None else ("tv", tv)
    assert weight is not None
    if not 0 < weight < LARGEST_THRESHOLD:
        raise MethodError(f"`{name}` {weight:g}: must be above 0, and below {LARGEST_THRESHOLD:g}")
    return Prior(name, float(weight))


@dataclass(frozen=True, repr=False)
class Spatial(Shown):
    """Abundances of the least cost ``½ Σ|y − E a|² + l1 Σa + λ Σ|a_i − a_j|``, or with half of the squares of
    differences.

    Attributes
    ----------
    kind : str
    weight : float
        λ.
    objective : float
        The cost.
    gap : float
        The largest share of the objective by which it may be above the optimum, rounding included; 1 where all of it
        may be.
    steps : int
    proved : bool
        Whether the search came to the gap that was asked for, as a share of the objective or of 1e-8 of ``½ Σ|y|²``, if
        that is more, or of 1e6 roundings: without noise hardly any cost is left, and the last of it is rounding.
    abundances : array (lines, samples, p), float64
        NaN where a pixel has no value in some band.
    """

    kind: str
    weight: float
    objective: float
    gap: float
    steps: int
    proved: bool
    abundances: np.ndarray


def spatial(
    Y: np.ndarray,
    E: np.ndarray,
    *,
    tv: float | None = None,
    laplacian: float | None = None,
    l1: float = 0.0,
    sum_to_one: bool = False,
    edges: tuple[np.ndarray, np.ndarray] | None = None,
    proven: float = PROVEN,
    threads: int | None = None,
) -> Spatial:
    """Find nonnegative abundances that are alike in neighbouring pixels, and prove how near the optimum they are.

    Parameters
    ----------
    Y : array-like of shape (lines, samples, L)
        An image, in any real type and unit; pixels that are not finite are left out.
    E : array-like of shape (L, p)
        One spectrum per column, in the unit of Y.
    tv, laplacian : float
        λ, of one of them: total variation, ``λ Σ|a_i − a_j|`` (Iordache, Bioucas-Dias and Plaza 2012), keeps edges; the
        Laplacian, ``½ λ Σ(a_i − a_j)²``, does not. Pairs of neighbours are those in a line and in a column.
    l1 : float
        Cost of each abundance, as `unmix.solve` has it.
    sum_to_one : bool
    edges : arrays (lines, samples - 1) and (lines - 1, samples), optional
        Weights of the differences from the pixel on the right, and from the one below, not negative, in place of 1.
    proven : float
        The relative duality gap at which the search ends, above 0 and at most 1.
    threads : int, optional
        CPU threads; default is all.

    Returns
    -------
    Spatial

    Raises
    ------
    CubeError, LibraryError
        As for `unmix.solve`; also where Y is no image.
    MethodError
        If not one of ``tv`` and ``laplacian`` is given, or a number is out of range; if some mixture of spectra is
        zero, so that nothing bounds the cost from below.

    Examples
    --------
    >>> import numpy as np, unmix
    >>> E = np.array([[1.0, 0.0], [0.0, 1.0], [0.1, 0.1]])
    >>> image = np.array([[[0.9, 0.1, 0.1], [0.7, 0.3, 0.1]]])
    >>> unmix.spatial(image, E, tv=1.0).abundances.round(3)
    array([[[0.8, 0.2],
            [0.8, 0.2]]])
    """
    prior = prior_of(tv, laplacian)
    Y, E = checked(Y, E)
    if Y.ndim != 3:
        raise CubeError(f"Y has the shape {Y.shape}; neighbours are those of an image (lines, samples, bands)")
    (lines, samples, _), p = Y.shape, E.shape[1]
    if not (isinstance(l1, int | float | np.number) and 0 <= float(l1) < LARGEST_THRESHOLD):
        raise MethodError(f"`l1` {l1}: must be a number that is not negative")
    if not (isinstance(proven, int | float | np.number) and 0 < float(proven) <= 1):
        raise MethodError(f"proven {proven}: must be a number above 0, and at most 1")
    refuse_sizes(numbered(E), True)
    image = SpatialImage.of(lines, samples, p)
    image.fill(0, np.asarray(Y, float), np.isfinite(Y).all(axis=2), E, float(l1))
    image.connect(prior.weight, *([] if edges is None else edge_weights(edges, lines, samples)))
    found = SpatialSearch(image, E, sum_to_one, threads).run(prior, proven)
    warn_of_gap(found, "Y", proven)
    return replace(found, abundances=np.where((image.lengths >= 0)[..., None], found.abundances, np.nan))


def edge_weights(edges: tuple[np.ndarray, np.ndarray], lines: int, samples: int) -> list[np.ndarray]:
    """Return weights (lines, S) across and down, padded with 0; `MethodError` where shapes or values are wrong."""
    shapes = [(lines, samples - 1), (lines - 1, samples)]
    given = [] if isinstance(edges, str) else [on_host(one) for one in edges]
    if [one.shape for one in given] != shapes or not all(one.dtype.kind in "buif" for one in given):
        raise MethodError(f"edges must be two arrays of numbers, of shapes {shapes[0]} and {shapes[1]}")
    if not all(((one >= 0) & (one < LARGEST_THRESHOLD)).all() for one in given):
        raise MethodError("edges must be finite, and not negative")
    return [np.pad(given[0], ((0, 0), (0, 1))), np.pad(given[1], ((0, 1), (0, 0)))]


def bytes_of_search(lines: int, samples: int, p: int) -> int:
    """Return the bytes of memory that a search of an image takes."""
    return 8 * ARRAYS * lines * samples * p


@dataclass
class SpatialImage:
    """Correlations and lengths of an image's pixels, and costs of differences of the first ``edged`` abundances."""

    F: np.ndarray  # (p, lines, samples) Eᵀy, less l1
    lengths: np.ndarray  # (lines, samples) |y|; below 0 for a pixel without values
    across: np.ndarray  # (lines, samples) cost of a difference from the pixel on the right, 0 where there is none
    down: np.ndarray  # (lines, samples) of that from the pixel below
    edged: int
    half_squares: float = 0.0  # ½ Σ |y|²

    @classmethod
    def of(cls, lines: int, samples: int, p: int, edged: int | None = None) -> "SpatialImage":
        """Return an image of zeros."""
        lengths, across, down = (np.zeros((lines, samples)) for _ in range(3))
        return cls(np.zeros((p, lines, samples)), lengths, across, down, p if edged is None else edged)

    def fill(self, first: int, Y: np.ndarray, valid: np.ndarray, E: np.ndarray, l1: np.ndarray | float) -> None:
        """Take pixels of some lines, (n, S, L); the ``valid`` ones (n, S) have values in all bands."""
        lines = slice(first, first + len(Y))
        near = np.where(valid[..., None], Y, 0.0)
        self.F[:, lines] = (near @ E - l1 * valid[..., None]).transpose(2, 0, 1)
        with np.errstate(over="ignore"):  # which a search refuses
            squares = np.square(near).sum(axis=2)
        self.lengths[lines] = np.where(valid, np.sqrt(squares), -1.0)
        self.half_squares += 0.5 * float(squares.sum())

    def connect(self, cost: float, across: np.ndarray | float = 1.0, down: np.ndarray | float = 1.0) -> None:
        """Set the costs of edges between pixels with values; ``across`` and ``down`` (lines, S) are their weights."""
        there = self.lengths >= 0
        self.across[:, :-1] = (cost * across * there)[:, :-1] * there[:, 1:]
        self.down[:-1] = (cost * down * there)[:-1] * there[1:]


class SpatialSearch:
    """A search of an image, which goes on from its last iterate where costs have changed.

    Parameters
    ----------
    image : SpatialImage
    E : array (L, p), float64
    sum_to_one : bool
    threads : int, optional

    Raises
    ------
    CubeError
        Where the sum of the squares of the pixels is no number.
    MethodError
        If no bound exists, since some mixture of spectra is zero.
    """

    def __init__(self, image: SpatialImage, E: np.ndarray, sum_to_one: bool, threads: int | None = None) -> None:
        if not math.isfinite(image.half_squares):
            raise CubeError(
                "the pixels are so bright that the sum of their squares is no number: divide them (`scale`)"
            )
        self.image, self.sum_to_one, self.threads = image, sum_to_one, threads or cores()
        self.gram = G = gram_matrix(E)
        (L, p), (_, lines, samples) = E.shape, image.F.shape
        self.roundings, self.sizes = UNIT_ROUNDOFF * (L + 2.0 * p + 10.0), np.sqrt(np.diag(G))
        # Along the ray c > 0 with Gc > 0 all duals become feasible; with Σa = 1 the multiplier does that.
        self.ray = (
            np.ones(p) if sum_to_one or (G.sum(axis=1) > 0).all() else np.linalg.lstsq(G, np.ones(p), rcond=1e-10)[0]
        )
        if not (sum_to_one or (G @ self.ray > 0).all()):
            raise MethodError(
                "some mixture of the endmembers is zero, so that no cost is bounded from below: leave spectra out, or "
                "use fcls"
            )
        # With the sum, abundances are their mean, 1/p, and a part whose sum is 0.
        self.mean = 1.0 / p if sum_to_one else 0.0
        axes = np.linalg.svd(np.ones((1, p)))[2][1:].T if sum_to_one else np.eye(p)
        values, Q = np.linalg.eigh(axes.T @ G @ axes)
        self.values, self.Q = np.maximum(values, 0.0), np.ascontiguousarray(axes @ Q)
        self.F = image.F - self.mean * G.sum(axis=1)[:, None, None] if sum_to_one else image.F
        self.waves = np.add.outer(*(2.0 - 2.0 * np.cos(np.pi * np.arange(n) / n) for n in (lines, samples)))
        size = float(np.mean(np.diag(G))) or 1.0
        self.rho, self.nearness, self.right = FIRST_RHO * size, NEARNESS * size, np.empty_like(image.F)
        self.factor = np.linalg.cholesky(G + self.nearness * np.eye(p))
        a = np.zeros(image.F.shape)
        for near, F in self.parts(a, image.F):
            for _ in range(ROUNDS_AT_START):
                near[:] = self.optima(F, near)
        slope = image.F - np.tensordot(G, a, 1)
        self.V = self.rho * a + np.minimum(slope - slope.max(axis=0) if sum_to_one else slope, 0.0)
        self.W, self.U = np.zeros_like(a), np.zeros_like(a)
        self.W[..., :-1], self.U[:, :-1] = self.rho * np.diff(a, axis=2), self.rho * np.diff(a, axis=1)

    def parts(self, *arrays: np.ndarray) -> Any:
        """Yield some pixels at a time of arrays (…, lines, samples), flat; of one array alone, or of each."""
        flat = [array.reshape(*array.shape[:-2], -1) for array in arrays]
        for first in range(0, flat[0].shape[-1], PIXELS_TOGETHER):
            some = [one[..., first : first + PIXELS_TOGETHER] for one in flat]
            yield some if len(some) > 1 else some[0]

    def optima(self, h: np.ndarray, near: np.ndarray | float) -> np.ndarray:
        """Return the a (p, n) that minimises ``½ aᵀGa − hᵀa``; near ``near`` where spectra depend on each other."""
        B = np.linalg.solve(self.factor, h + self.nearness * near)
        return solved(self.factor.T, B.T, "fcls" if self.sum_to_one else "nnls", self.threads)[0].T

    def duals(self, j: int, smooth: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the duals (lines, S) of an endmember's differences to the right and down."""
        costs = ((self.W[j], self.image.across), (self.U[j], self.image.down))
        if j >= self.image.edged:
            return np.zeros_like(self.W[j]), np.zeros_like(self.U[j])
        across, down = (m * (c / (c + self.rho)) if smooth else np.clip(m, -c, c) for m, c in costs)
        return across, down

    def abundances(self) -> np.ndarray:
        """Return the abundances (p, lines, S) of the iterate, which are feasible."""
        a = np.maximum(self.V, 0.0) / self.rho
        if self.sum_to_one:
            total = a.sum(axis=0)
            a[:, total == 0], total[total == 0] = 1.0, len(a)
            a /= total
        return a

    def run(
        self,
        prior: Prior,
        proven: float = PROVEN,
        most: int = MOST_STEPS,
        said: Callable[[int, float, float], None] | None = None,
    ) -> Spatial:
        """Search until the gap is ``proven`` or after ``most`` steps; ``said`` gets steps, objective and gap."""
        half, steps, smallest = self.image.half_squares, 0, self.smallest()
        with ThreadPoolExecutor(self.threads, "spatial") as pool:
            while True:
                objective, above = self.measure(prior.smooth)
                rounding = ROUNDINGS_OF_COST * self.roundings * half
                objective, gap, share = cost_and_gap(objective, above, smallest, rounding)
                if said is not None:
                    said(steps, objective, gap)
                if share <= proven or steps >= most:
                    break
                count = max(FEWEST_STEPS, int(steps * SHARE_OF_STEPS))
                for _ in range(count):
                    moved = self.step(prior.smooth, pool)
                self.weigh(*moved, prior.smooth)
                steps += count
        A = self.abundances().transpose(1, 2, 0)
        return Spatial(prior.kind, prior.weight, objective, gap, steps, share <= proven, A)

    def step(self, smooth: bool, pool: ThreadPoolExecutor) -> tuple[float, float]:
        """Solve for all abundances, and step their states; return the squares of how far ρ × values and duals moved."""
        p, n, S = self.right.shape
        no_edges = np.zeros((n, S))

        def states(j: int) -> tuple[Any, ...]:
            costs = (self.image.across, self.image.down) if j < self.image.edged else (no_edges, no_edges)
            return self.V[j], self.W[j], self.U[j], *costs, self.rho, smooth

        def transform(j: int) -> None:
            right_side(self.F[j], *states(j), self.right[j])
            self.right[j] = scipy.fft.dctn(self.right[j], norm="ortho", overwrite_x=True)

        def back(j: int) -> tuple[float, float]:
            a = scipy.fft.idctn(self.right[j], norm="ortho", overwrite_x=True)
            return step_lines(a + self.mean, *states(j))

        list(pool.map(transform, range(p)))
        for right, waves in self.parts(self.right, self.waves):
            right[:] = self.Q @ (self.Q.T @ right / (self.values[:, None] + self.rho * (1.0 + waves)))
        near, far = np.sum(list(pool.map(back, range(p))), axis=0)
        return float(near), float(far)

    def weigh(self, near: float, far: float, smooth: bool) -> None:
        """Bring ρ nearer to the ratio of how far duals and values moved; states keep both."""
        if not (near > 0 and far > 0):
            return
        grow = (far / near) ** (SHARE_OF_RHO / 2)
        for j in range(len(self.V)):
            duals = np.minimum(self.V[j], 0.0), *self.duals(j, smooth)
            for state, dual in zip((self.V[j], self.W[j], self.U[j]), duals):
                state += (grow - 1.0) * (state - dual)
        self.rho *= grow

    def smallest(self) -> float:
        """Return the cost below which all is rounding, where abundances are about as they are."""
        longest, total = float(self.sizes.max()) if self.sum_to_one else 0.0, []
        for a, y in self.parts(self.abundances(), self.image.lengths):
            size = (self.sizes @ a) * (y >= 0)
            total.append(float(size @ np.maximum(2 * size, size + longest)))
        least = ROUNDINGS_OF_GAP * max(self.roundings, LEAST_ROUNDING) * math.fsum(total)
        return max(SMALLEST_COST * self.image.half_squares, least / PROVEN)

    def measure(self, smooth: bool) -> tuple[float, float]:
        """Return the cost of the iterate's abundances, and by how much it is at most above the optimum."""
        a, h = self.abundances(), self.image.F.copy()
        costs, above = [self.image.half_squares], [0.0]
        for j in range(self.image.edged):
            W, U = self.duals(j, smooth)
            h[j] += W + U
            h[j, :, 1:] -= W[:, :-1]
            h[j, 1:] -= U[:-1]
            for difference, dual, cost in (
                (np.diff(a[j], axis=1), W[:, :-1], self.image.across[:, :-1]),
                (np.diff(a[j], axis=0), U[:-1], self.image.down[:-1]),
            ):
                size = 0.5 * cost * np.square(difference) if smooth else cost * np.abs(difference)
                refund = 0.5 * dual * dual / np.where(cost > 0, cost, 1.0) if smooth else 0.0
                costs.append(float(size.sum()))
                above.append(float((size + refund - dual * difference).sum()))
        for some in self.parts(a, h, self.image.F, self.image.lengths):
            of_pixels = self.measure_pixels(*(one[..., some[3] >= 0] for one in some))
            costs.append(of_pixels[0])
            above.append(of_pixels[1])
        return math.fsum(costs), math.fsum(above)

    def measure_pixels(self, a: np.ndarray, h: np.ndarray, F: np.ndarray, lengths: np.ndarray) -> tuple[float, float]:
        """Return the cost of pixels, less ``½ |y|²``, and a bound of ``½ aᵀGa − hᵀa`` (p, n) above its minima."""
        G, x = self.gram, self.optima(h, a)
        duals = G @ x - h
        rounding = self.roundings * (np.abs(h) + np.abs(G) @ x + self.sizes[:, None] * lengths)
        # Any x with Gx − h ≥ 0, to which the ray leads, bounds a minimum by −½ xᵀGx; with Σa = 1 the least dual μ does,
        # by μ − ½ xᵀGx. The gap is ½ (a − x)ᵀG(a − x) + aᵀ(Gx − h − μ), a sum of terms that are not negative.
        if self.sum_to_one:
            duals -= (duals - rounding).min(axis=0)
        else:
            x = x + self.ray[:, None] * np.maximum((rounding - duals) / (G @ self.ray)[:, None], 0.0).max(axis=0)
            duals = G @ x - h
        off = a - x
        gap = 0.5 * off * (G @ off) + a * (np.maximum(duals, 0.0) + rounding)
        return float((a * (0.5 * (G @ a) - F)).sum()), float(np.maximum(gap.sum(axis=0), 0.0).sum())


def cost_and_gap(objective: float, above: float, smallest: float, rounding: float) -> tuple[float, float, float]:
    """Return the cost, ≥ 0, the gap as a share of it, and the gap as a share of ``smallest``, if that is more."""
    if not (math.isfinite(objective) and math.isfinite(above)):
        return objective, math.inf, math.inf
    least, size = objective - rounding, max(objective, smallest)  # the cost is known to within rounding
    gap = above / least if least > above else 0.0 if above == 0 else 1.0
    return max(objective, 0.0), gap, above / size if size > 0 else 0.0 if above == 0 else math.inf


def warn_of_gap(found: Spatial, source: object, proven: float = PROVEN) -> None:
    """Log a warning where the search ended before the duality gap was ``proven``."""
    if not found.proved:
        log.warning(
            f"{source}: `{found.kind}` {found.weight:g} is not at its optimum: after {found.steps} steps the duality "
            "gap is "
            f"{found.gap:.1e} of the cost, and not {proven:g}"
        )
