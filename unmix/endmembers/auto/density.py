"""The density of pixels under a simplex, its derivative by the corners, and shares that are more likely (`likely`)."""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from ...compiled.exponentials import exp_of_minus, log
from ...compiled.jit import WIDE, aligned_zeros, compiled
from ..fitted import amounts_in, by_edges, inverted, room_for, tiled, untiled

# The least shares of pure pixels, and of pixels without a material.
LEAST_PURE, LEAST_ABSENT = 1e-4, 1e-3
# The weight of the sum of amounts in the fit to a simplex, over the size of the components.
WEIGHT_OF_SUM = 1e3
OF_NORMAL = 1.0 / math.sqrt(2.0 * math.pi)
# Pixels whose sums are added up alone: threads share them, and change no bit.
PIECE = 2**11
# Coefficients of (1 + x) exp (x² / 2) Φ (−x), x ≥ 0, by powers of (x − 4) / (x + 4), the highest first: relative error
# 6e-15.
MIDDLE = 4.0
TAIL = np.array(
    [
        9.35126622115242e-09,
        1.4992377267439362e-10,
        -9.208166625637264e-08,
        -3.398903921742291e-08,
        5.280284101190561e-07,
        4.4303841144148843e-07,
        -2.5943809657730086e-06,
        -3.4591907881493818e-06,
        1.36178612167737e-05,
        2.1262340756252954e-05,
        -8.78504461153853e-05,
        -9.443383326136695e-05,
        0.000694896605997275,
        -0.00028562246189991493,
        -0.005002378541412053,
        0.017936097416731422,
        -0.032197837430309385,
        0.028600364056446278,
        0.013999634724451334,
        -0.09670347732656567,
        0.47205320650984467,
    ]
)
# Facets whose densities are multiplied before a logarithm is taken.
AT_ONCE = 8
fma, load, store, select, broadcast = WIDE.fma, WIDE.load, WIDE.store, WIDE.select, WIDE.broadcast
total_of = WIDE.total


class Shares(NamedTuple):
    """Shares of pixels: of pure ones of each material, and of the rest those without it; (p,) each."""

    pure: np.ndarray
    absent: np.ndarray


class Density(NamedTuple):
    """The density of pixels under a simplex.

    ``value`` is the mean −log of it, ``slope`` (p − 1, p) its derivative by the corners, ``shares`` the shares that are
    more likely, ``blur`` (p,) the deviations that noise gives to barycentric coordinates.
    """

    value: float
    slope: np.ndarray
    shares: Shares
    blur: np.ndarray


class Terms(NamedTuple):
    """Terms of the density that all pixels share; the algebra of a simplex."""

    Q: Any  # (p, p) rows that make barycentric coordinates of (1, z)
    blur: Any  # (p,) deviations of barycentric coordinates
    absent: Any  # (p,) factor of exp (−t² / 2): pixels on a facet
    present: Any  # (p,) factor of Φ
    log_pure: Any  # (p,) logarithm of the density of pure pixels at a corner
    corners: Any  # (p, p) a row of ones above the corners
    heavy: Any  # (p, p) corners above a row of a heavy 1
    around: Any  # (p − 1, p) corners less their mean
    spread: Any  # (p − 1, p − 1) covariance of the simplex plus the noise's, times p (p + 1)
    narrow: Any  # (p − 1, p − 1) its inverse
    by_Q: Any  # (p, p) derivatives by Q
    work: Any  # (p, p)


class Scratch(NamedTuple):
    """Scratch for a vector of pixels: rows of it."""

    logs: Any  # (p,)
    absent: Any  # (p,)
    slopes: Any  # (p,)
    negative: Any  # (p,)
    left: Any  # (d,)


class Sums(NamedTuple):
    """Sums over pixels weighed by the probability that each is mixed or pure, as vectors or added over the lanes."""

    values: Any  # (2 + p,) −log of the density; mixed pixels; those without each material
    pure: Any  # (p (1 + d),) pure pixels, and their components
    facets: Any  # (p (1 + d),) derivatives by t, and these times components
    left: Any  # (d p,) distances from the simplex times fractions


class Piece(NamedTuple):
    """Some pixels, with room to add up what they give to the density."""

    T: Any  # (tiles p, width) components, and a heavy 1, for the fit to a simplex; see `unmix.endmembers.fitted.tiled`
    A: Any  # (tiles p, width) fractions of the nearest point of the simplex
    counts: Any  # (tiles, width) 1, or 0 where there is no pixel
    room: Any
    scratch: Scratch
    sums: Sums


class Pixels:
    """Pixels whose density under simplices is asked for.

    Parameters
    ----------
    Z : array (n, p − 1), float64
        Their components.
    mapped : callable
        `map`, or the map of a pool of threads.
    """

    def __init__(self, Z: np.ndarray, mapped: Callable[..., Iterable[Any]] = map) -> None:
        d = Z.shape[1]
        p = d + 1
        self.Z, self.size = np.ascontiguousarray(Z), WEIGHT_OF_SUM * float(np.sqrt(np.square(Z).mean()))
        self.mapped = mapped if len(Z) > PIECE else map
        shapes = ((p, p), p, p, p, p, (p, p), (p, p), (d, p), (d, d), (d, d), (p, p), (p, p))
        self.terms = Terms(*map(np.empty, shapes))
        self.totals = Sums(*map(np.empty, (2 + p, p * p, p * p, d * p)))
        self.terms.heavy[d] = self.size
        self.is_sorted = False
        self.arrange(np.arange(len(Z)), np.zeros((len(Z), d + 1)))

    def arrange(self, order: np.ndarray, A: np.ndarray) -> None:
        """Put the pixels into pieces in an order (n,), with fractions A (n, p) like theirs."""
        p, width, self.order, self.pieces = A.shape[1], WIDE.width, order, list[Piece]()
        sizes = (2 + p, p * p, p * p, (p - 1) * p)
        for k in range(0, len(order), PIECE):
            some = order[k : k + PIECE]
            T = tiled(np.column_stack([self.Z[some], np.full(len(some), self.size)]))
            counts = (np.arange(len(T) // p * width) < len(some)).astype(np.float64).reshape(-1, width)
            scratch = Scratch(*(aligned_zeros(size, width) for size in (p, p, p, p, p - 1)))
            sums = Sums(*(aligned_zeros(size, width) for size in sizes))
            self.pieces.append(Piece(T, tiled(A[some]), counts, room_for(p), scratch, sums))

    def within(self, C: np.ndarray) -> np.ndarray:
        """Return the fractions (n, p) of the points of the simplex C (d, p) that are nearest to the pixels."""
        augmented = np.vstack([C, np.full(C.shape[1], self.size)])
        for piece in self.pieces:
            amounts_in(piece.room, augmented, piece.T, True, piece.A)
        rows = np.concatenate(
            [untiled(piece.A, len(piece.counts) * piece.A.shape[1], len(augmented)) for piece in self.pieces]
        )
        found = np.empty((len(self.Z), len(augmented)))
        found[self.order] = rows[: len(found)]
        return found

    def density(self, C: np.ndarray, noise: float, shares: Shares) -> Density:
        """Return the density under the simplex C (p − 1, p) for a noise variance; `LinAlgError` if it has no volume."""
        C, n = np.ascontiguousarray(C), len(self.Z)
        if not self.is_sorted:
            A = self.within(C)
            self.arrange(by_edges(A), A)
            self.is_sorted = True
        log_mixed = simplex_in(C, noise, shares, self.terms, self.totals)
        if log_mixed == np.inf:
            raise np.linalg.LinAlgError
        for piece in self.mapped(lambda piece: added(piece, C, noise, log_mixed, self.terms), self.pieces):
            join_in(piece.sums, self.totals)
        slope, more = np.empty(C.shape), np.empty((2, len(C) + 1))
        density_in(C, noise, n, self.terms, self.totals, slope, more)
        return Density(float(self.totals.values[0]) / n, slope, Shares(*more), self.terms.blur.copy())


def added(piece: Piece, C: np.ndarray, noise: float, log_mixed: float, terms: Terms) -> Piece:
    """Add up what some pixels give, and return them."""
    add_likelihoods(piece, C, noise, log_mixed, terms)
    return piece


@compiled
def log_facets(T, row, terms, scratch):
    """Return the logarithm of the product over facets for a vector of pixels, and the sum of min (t, 0)²."""
    Q, p = terms.Q, terms.Q.shape[0]
    total, product, below = broadcast(0.0), broadcast(1.0), broadcast(0.0)
    for j in range(p):
        t = broadcast(Q[j, 0])
        for i in range(p - 1):
            t = fma(broadcast(Q[j, 1 + i]), load(T, row + i), t)
        t = t / terms.blur[j]
        negative = select(t < 0.0, t, broadcast(0.0))
        x = t - negative - negative
        half = 0.5 * (x * x)
        step = (x - MIDDLE) / (x + MIDDLE)
        # Φ(−x) is exp(−x²/2) times this polynomial over 1 + x: φ and Φ share one exponential.
        tail = broadcast(TAIL[0])
        for k in range(1, TAIL.shape[0]):
            tail = fma(tail, step, broadcast(TAIL[k]))
        tail = tail / (x + 1.0)
        of_normal = select(t < 0.0, broadcast(1.0), exp_of_minus(half))
        within = select(t < 0.0, tail, 1.0 - of_normal * tail)
        absent, present = terms.absent[j] * of_normal, terms.present[j] * within
        both = absent + present
        absent = absent / both
        product = product * both
        total = total - select(t < 0.0, half, broadcast(0.0))
        if j % AT_ONCE == AT_ONCE - 1 or j == p - 1:
            total, product = total + log(product), broadcast(1.0)
        below = fma(negative, negative, below)
        store(scratch.absent, j, absent)
        store(scratch.slopes, j, terms.present[j] * OF_NORMAL * of_normal / both - absent * t)
        store(scratch.negative, j, negative)
    return total, below


@compiled
def distance_in(T, A, row, C, left):
    """Write the differences of a vector of pixels from mixtures with fractions A, and return their squared length."""
    square = broadcast(0.0)
    for i in range(C.shape[0]):
        value = load(T, row + i)
        for j in range(C.shape[1]):
            value = fma(broadcast(-C[i, j]), load(A, row + j), value)
        store(left, i, value)
        square = fma(value, value, square)
    return square


@compiled
def log_corners(T, row, C, noise, terms, logs, largest):
    """Write the logarithms of the densities of pure pixels, and return the largest of them and ``largest``."""
    for j in range(C.shape[1]):
        square = broadcast(0.0)
        for i in range(C.shape[0]):
            apart = load(T, row + i) - C[i, j]
            square = fma(apart, apart, square)
        value = terms.log_pure[j] - square * (0.5 / noise)
        store(logs, j, value)
        largest = select(value > largest, value, largest)
    return largest


@compiled
def add_to_row(sums, row, value):
    """Add a vector to a row."""
    store(sums, row, load(sums, row) + value)


@compiled
def add_likelihoods(piece, C, noise, log_mixed, terms):
    """Find the points of the simplex that are nearest to some pixels, and add up what these give."""
    T, A, scratch, sums, d, p = piece.T, piece.A, piece.scratch, piece.sums, C.shape[0], C.shape[1]
    amounts_in(piece.room, terms.heavy, T, True, A)
    for some in (sums.values, sums.pure, sums.facets, sums.left):
        for row in range(some.shape[0]):
            store(some, row, broadcast(0.0))
    for tile in range(piece.counts.shape[0]):
        first, counts = tile * p, load(piece.counts, tile)
        total, below = log_facets(T, first, terms, scratch)
        beyond = distance_in(T, A, first, C, scratch.left) / noise - below
        sharp = (beyond > 0.0) & (below > 0.0)
        mixed = total + log_mixed - select(sharp, 0.5 * beyond, broadcast(0.0))
        largest = log_corners(T, first, C, noise, terms, scratch.logs, mixed)
        mixed = exp_of_minus(largest - mixed)
        total = mixed
        for j in range(p):
            part = exp_of_minus(largest - load(scratch.logs, j))
            store(scratch.logs, j, part)
            total = total + part
        add_to_row(sums.values, 0, select(counts > 0.0, (broadcast(0.0) - largest) - log(total), broadcast(0.0)))
        total = counts / total
        mixed = mixed * total
        add_to_row(sums.values, 1, mixed)
        of_left = select(sharp, mixed, broadcast(0.0))
        for j in range(p):
            pure = load(scratch.logs, j) * total
            slope = fma(of_left, load(scratch.negative, j), mixed * load(scratch.slopes, j))
            away = of_left * load(A, first + j)
            add_to_row(sums.values, 2 + j, mixed * load(scratch.absent, j))
            row = j * (1 + d)
            add_to_row(sums.pure, row, pure)
            add_to_row(sums.facets, row, slope)
            for i in range(d):
                z = load(T, first + i)
                store(sums.pure, row + 1 + i, fma(pure, z, load(sums.pure, row + 1 + i)))
                store(sums.facets, row + 1 + i, fma(slope, z, load(sums.facets, row + 1 + i)))
                store(sums.left, i * p + j, fma(away, load(scratch.left, i), load(sums.left, i * p + j)))


@compiled
def simplex_in(C, noise, shares, terms, totals):
    """Fill ``terms``, clear ``totals``, and return log (mixed share / volume); ∞ where the simplex has no volume."""
    d, p = C.shape
    for total in (totals.values, totals.pure, totals.facets, totals.left):
        total[:] = 0.0
    mixed, log_normal = 1.0, 0.5 * d * np.log(2.0 * np.pi * noise)
    for j in range(p):
        terms.corners[0, j] = 1.0
        mixed -= shares.pure[j]
        for i in range(d):
            terms.corners[1 + i, j] = terms.heavy[i, j] = C[i, j]
    if not inverted(terms.corners, terms.work, terms.Q) > -np.inf:
        return np.inf
    for j in range(p):
        square = 0.0
        for i in range(d):
            square += terms.Q[j, 1 + i] * terms.Q[j, 1 + i]
        terms.blur[j] = np.sqrt(noise * square)
        terms.absent[j] = OF_NORMAL * shares.absent[j] / (d * terms.blur[j])
        terms.present[j] = 1.0 - shares.absent[j]
        terms.log_pure[j] = np.log(shares.pure[j]) - log_normal
    for i in range(d):
        mean = 0.0
        for j in range(p):
            mean += C[i, j] / p
        for j in range(p):
            terms.around[i, j] = C[i, j] - mean
        for k in range(i + 1):
            total = p * (p + 1) * noise if k == i else 0.0
            for j in range(p):
                total += terms.around[i, j] * terms.around[k, j]
            terms.spread[i, k] = terms.spread[k, i] = total
    volume = 0.5 * (inverted(terms.spread, terms.work, terms.narrow) + np.log(p)) - math.lgamma(p)
    return np.log(mixed) - volume


@compiled
def join_in(sums, totals):
    """Add sums, lane by lane, to totals."""
    for k in range(totals.values.shape[0]):
        totals.values[k] += total_of(load(sums.values, k))
    for k in range(totals.pure.shape[0]):
        totals.pure[k] += total_of(load(sums.pure, k))
        totals.facets[k] += total_of(load(sums.facets, k))
    for k in range(totals.left.shape[0]):
        totals.left[k] += total_of(load(sums.left, k))


@compiled
def slope_in(C, noise, terms, sums, slope):
    """Write the derivative of the sum of logarithms by corners, from sums over pixels."""
    d, p, mixed = C.shape[0], C.shape[1], sums.values[1]
    for j in range(p):
        by_blur = sums.values[2 + j]
        for i in range(p):
            by_blur += sums.facets[j * p + i] * terms.Q[j, i] / terms.blur[j]
        by_blur *= -noise / (terms.blur[j] * terms.blur[j])
        for i in range(p):
            terms.by_Q[j, i] = sums.facets[j * p + i] / terms.blur[j] + (by_blur * terms.Q[j, i] if i > 0 else 0.0)
    for i in range(p):  # by_Q Qᵀ
        for j in range(p):
            total = 0.0
            for k in range(p):
                total += terms.by_Q[i, k] * terms.Q[j, k]
            terms.work[i, j] = total
    for i in range(d):
        for j in range(p):
            of_volume, of_Q = 0.0, 0.0
            for k in range(d):
                of_volume += terms.narrow[i, k] * terms.around[k, j]  # the mean of columns of ``around`` is 0
            for k in range(p):
                of_Q += terms.Q[k, 1 + i] * terms.work[k, j]
            of_pixels = sums.left[i * p + j] + sums.pure[j * p + 1 + i] - C[i, j] * sums.pure[j * p]
            slope[i, j] = of_pixels / noise - of_Q - mixed * of_volume


@compiled
def density_in(C, noise, n, terms, totals, slope, more):
    """Write the slope (d, p), and more likely shares (2, p), from the sums of n pixels."""
    p, mixed = C.shape[1], totals.values[1]
    slope_in(C, noise, terms, totals, slope)
    total = max(mixed / n, LEAST_PURE)
    for j in range(p):
        more[0, j] = max(totals.pure[j * p] / n, LEAST_PURE)
        more[1, j] = min(max(totals.values[2 + j] / max(mixed, LEAST_PURE), LEAST_ABSENT), 1.0 - LEAST_ABSENT)
        total += more[0, j]
        for i in range(p - 1):
            slope[i, j] /= -n
    for j in range(p):
        more[0, j] /= total
