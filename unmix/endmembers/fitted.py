"""Fit directions by a cone: amounts of its edges, not negative, and residuals."""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..compiled.jit import WIDE, aligned_zeros, compiled
from ..solvers.pixels.active_set import index_of_entries, row_of, search_function
from ..solvers.pixels.gather import matrix_product_function

# Added to a squared distance: the logarithm of a mean of zeros has no value.
LEAST_SQUARED_DISTANCE = 1e-13
# A dual below this, relative to the pixel, is zero, as in `unmix.problem.Problem.dual_tolerance` for well-conditioned
# E.
DUAL_TOLERANCE = 1e-12


class Edges(NamedTuple):
    """The fields of `unmix.solvers.pixels.scalar.Plan` that the search reads, for the edges as endmembers."""

    E: Any  # (p, p)
    U: Any  # (p, p)
    norms: Any  # (p,)
    weights: Any  # (p,)
    packed_index: Any  # (p, p + 1)
    dual_tolerance: float
    sum_to_one: bool
    penalty: Any  # (0,)


class Lanes(NamedTuple):
    """The fields of `unmix.solvers.pixels.tile.Tile` that its search uses, of `WIDE` directions."""

    Y: Any
    F: Any
    A: Any
    T: Any
    pivot: Any
    state: Any
    chosen: Any
    exchanged: Any
    size: Any
    steps: Any


class Room(NamedTuple):
    """Scratch to fit cones of p edges."""

    edges: Edges
    lanes: Lanes
    rows: Any  # (2 width,) int64
    inverse: Any  # (p, p): W⁻¹
    work: Any  # (p, p)
    gram: Any  # (p, p): WᵀW
    used: Any  # (p + 1,) int64: how many edges were used last in `as_before`, −1 for none, and these
    of_used: Any  # (p, p): their part of ``gram``
    within: Any  # (p, p): its inverse
    values: Any  # (p, width): their amounts
    before: Any  # (p, width): the amounts before


@dataclass(frozen=True)
class Weighed:
    """Directions in the subspace."""

    T: np.ndarray  # (n, p)
    outside: np.ndarray  # (n,) squared length of what is outside of the subspace
    weights: np.ndarray  # (n,) of mean 1

    def some(self, every: int) -> "Weighed":
        """Return each ``every``-th direction."""
        if every == 1:
            return self
        weights = self.weights[::every]
        return Weighed(
            np.ascontiguousarray(self.T[::every]), np.ascontiguousarray(self.outside[::every]), weights / weights.mean()
        )

    def ordered(self, order: np.ndarray) -> "Weighed":
        """Return them in another order."""
        return Weighed(self.T[order], self.outside[order], self.weights[order])

    @functools.cached_property
    def tiles(self) -> "Tiles":
        """The same in vectors."""
        weights = tiled(self.weights[:, None])
        weights.reshape(-1)[len(self.weights) :] = 0.0
        return Tiles(tiled(self.T), tiled(self.outside[:, None]), weights)


class Tiles(NamedTuple):
    """`Weighed` in vectors of `WIDE` directions; the last vector repeats its last direction with weight 0."""

    T: Any  # (tiles p, width)
    outside: Any  # (tiles, width)
    weights: Any  # (tiles, width)


class Fit(NamedTuple):
    """A cone beside directions in vectors."""

    W: Any  # (p, p) edges, columns of unit length
    A: Any  # (tiles p, width) amounts
    R: Any  # (tiles p, width) residuals
    squares: Any  # (tiles, width) weighed squared distances


@dataclass(frozen=True)
class Fitted:
    """A cone beside the n directions it is to enclose."""

    cone: Fit
    n: int

    @property
    def W(self) -> np.ndarray:
        """The edges (p, p), columns of unit length."""
        W: np.ndarray = self.cone.W
        return W

    @functools.cached_property
    def A(self) -> np.ndarray:
        """The amounts (n, p)."""
        return untiled(self.cone.A, self.n, len(self.W))

    @functools.cached_property
    def R(self) -> np.ndarray:
        """The residuals (n, p)."""
        return untiled(self.cone.R, self.n, len(self.W))

    @property
    def squares(self) -> np.ndarray:
        """The weighed squared distances (n,)."""
        squares: np.ndarray = self.cone.squares.ravel()[: self.n]
        return squares

    @functools.cached_property
    def fractions(self) -> np.ndarray:
        """The amounts over their sum, (n, p)."""
        found: np.ndarray = self.A / np.maximum(self.A.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        return found


def tiled(X: np.ndarray) -> np.ndarray:
    """Return rows X (n, d) in vectors of `WIDE`: d rows (·, width) for each; the last vector repeats the last row."""
    n, d = X.shape
    tiles = -(-n // WIDE.width)
    out = aligned_zeros(tiles * d, WIDE.width)
    padded = X if tiles * WIDE.width == n else np.concatenate([X, np.repeat(X[-1:], tiles * WIDE.width - n, axis=0)])
    out.reshape(tiles, d, WIDE.width)[...] = padded.reshape(tiles, WIDE.width, d).transpose(0, 2, 1)
    return out


def untiled(X: np.ndarray, n: int, d: int) -> np.ndarray:
    """Return the rows (n, d) that `tiled` put in vectors."""
    return np.ascontiguousarray(X.reshape(-1, d, X.shape[1]).transpose(0, 2, 1).reshape(-1, d)[:n])


_product, _search = matrix_product_function(WIDE), search_function(WIDE)
fma, load, store, select, broadcast = WIDE.fma, WIDE.load, WIDE.store, WIDE.select, WIDE.broadcast
any_lane, lanes_of, first_of = WIDE.any_lane, WIDE.lanes_of, WIDE.first_of
ALL_LANES = (1 << WIDE.width) - 1


@compiled
def inverted(M, work, out):
    """Fill ``out`` (p, p) with the inverse of M, and return log|det M|; see `inverse_of_first`."""
    p, total = M.shape[0], 0.0
    if not inverse_of_first(p, M, work, out):
        return -np.inf
    for k in range(p):
        total += np.log(abs(work[k, k]))
    return total


@compiled
def inverse_of_first(p, M, work, out):
    """Fill ``out`` with the inverse of M's first p rows and columns, and ``work[k, k]`` with its pivots; or False."""
    for i in range(p):
        for j in range(p):
            work[i, j] = M[i, j]
            out[i, j] = 1.0 if i == j else 0.0
    for k in range(p):
        best = k
        for i in range(k + 1, p):
            if abs(work[i, k]) > abs(work[best, k]):
                best = i
        pivot = work[best, k]
        if not abs(pivot) > 0.0:
            out[0, 0] = np.nan
            return False
        share = 1.0 / pivot
        for j in range(p):
            of_work, of_out = work[best, j] * share, out[best, j] * share
            work[best, j], out[best, j] = work[k, j], out[k, j]
            work[k, j], out[k, j] = of_work, of_out
        for i in range(p):
            factor = work[i, k]
            if i != k and factor != 0.0:
                for j in range(p):
                    work[i, j] -= factor * work[k, j]
                    out[i, j] -= factor * out[k, j]
        work[k, k] = pivot  # stays, since no row below has anything left in column k
    return True


@compiled
def search_rows(room, T, count, out):
    """Write to ``out`` the amounts of the first ``count`` directions of T in ``room.rows``, at most a vector of them."""
    lanes, rows, p = room.lanes, room.rows, room.work.shape[0]
    width = lanes.Y.shape[1]
    for s in range(width):
        n = rows[s if s < count else count - 1]
        size = 0.0
        for j in range(p):
            value = T[n // width * p + j, n % width]
            lanes.Y[j, s] = value
            size += value * value
        lanes.size[0, s] = np.sqrt(size)
    _product(room.edges.E, lanes.Y, lanes.F)
    _search(room.edges, lanes)
    for s in range(count):
        for j in range(p):
            out[rows[s] // width * p + j, rows[s] % width] = lanes.A[j, s]


@compiled
def edges_in(room, W):
    """Fill ``room`` with what its search needs of the edges W (p, p)."""
    edges, p = room.edges, W.shape[0]
    room.used[0] = -1
    inverted(W, room.work, room.inverse)
    for j in range(p):
        square = 0.0
        for i in range(p):
            edges.E[i, j] = W[i, j]
            square += W[i, j] * W[i, j]
        edges.norms[j] = square**0.5
        edges.weights[j] = 1.0 / edges.norms[j]
    for i in range(p):
        for j in range(p):
            total = 0.0
            for k in range(p):
                total += W[k, i] * W[k, j]
            room.gram[i, j] = total
            edges.U[i, j] = total * edges.weights[i] * edges.weights[j]


@compiled
def as_before(room, out, row):
    """Write a vector's amounts, from ``lanes.F`` (WᵀT), with the zeros of ``out``; return the lanes that are wrong."""
    before = room.before
    for j in range(room.gram.shape[0]):
        store(before, j, load(out, row + j))
    F, G, p, zero, one = room.lanes.F, room.gram, room.gram.shape[0], broadcast(0.0), broadcast(1.0)
    # Lanes with the same zeros are served together, so directions are best sorted by them. A lane is wrong where an
    # amount is negative, or where the distance falls with an amount that is 0.
    used, left, wrong = room.used, ALL_LANES, 0
    while left != 0:
        s, k, is_last, differs = first_of(left), 0, True, zero
        for j in range(p):
            is_used = load(before, j) > 0.0
            if before[j, s] > 0.0:
                is_last = is_last and k < used[0] and used[1 + k] == j
                used[1 + k] = j
                k += 1
                differs = differs + select(is_used, zero, one)
            else:
                differs = differs + select(is_used, one, zero)
        if not is_last or k != used[0]:
            used[0] = k
            for a in range(k):
                for b in range(k):
                    room.of_used[a, b] = G[used[1 + a], used[1 + b]]
            inverse_of_first(used[0], room.of_used, room.work, room.within)
        same, place, fails = differs == 0.0, 0, zero
        for a in range(k):
            value = zero
            for b in range(k):
                value = fma(broadcast(room.within[a, b]), load(F, used[1 + b]), value)
            store(room.values, a, value)
            fails = fails + select(value >= 0.0, zero, one)
        for i in range(p):
            value = zero
            if place < k and used[1 + place] == i:
                value = load(room.values, place)
                place += 1
            else:
                slope = load(F, i)
                for a in range(k):
                    slope = fma(broadcast(-G[i, used[1 + a]]), load(room.values, a), slope)
                fails = fails + select(slope <= 0.0, zero, one)
            store(out, row + i, select(same, value, load(out, row + i)))
        these = lanes_of(same) & left
        wrong |= these & lanes_of(fails > 0.0)
        left ^= these
    return wrong


@compiled
def amounts_in(room, W, T, known, out):
    """Fill ``out`` with the amounts ≥ 0 of edges W (p, p) nearest to each direction of T; ``out`` and T are `tiled`."""
    lanes, rows, p = room.lanes, room.rows, W.shape[0]
    width = lanes.Y.shape[1]
    edges_in(room, W)
    count = T.shape[0] - T.shape[0]  # 0 as a variable
    for tile in range(T.shape[0] // p):
        for j in range(p):
            store(lanes.Y, j, load(T, tile * p + j))
        which = ALL_LANES
        if known:  # ``out`` has amounts of edges like these, likely with the same zeros
            _product(room.edges.E, lanes.Y, lanes.F)
            which = as_before(room, out, tile * p)
        while which != 0:
            rows[count] = tile * width + first_of(which)
            count += 1
            which &= which - 1
        if count >= width:
            search_rows(room, T, width, out)
            count -= width
            for s in range(count):
                rows[s] = rows[width + s]
    if count > 0:
        search_rows(room, T, count, out)


@compiled
def fit_in(room, data, known, one):
    """Scale the edges ``one.W`` (p, p) to length 1 and fill the rest of ``one``; see `amounts_in` for ``known``."""
    W, A = one.W, one.A
    p = W.shape[0]
    for j in range(p):
        square = 0.0
        for i in range(p):
            square += W[i, j] * W[i, j]
        for i in range(p):
            W[i, j] /= square**0.5
    amounts_in(room, W, data.T, known, A)
    for tile in range(data.outside.shape[0]):
        total = load(data.outside, tile)
        for i in range(p):
            left = load(data.T, tile * p + i)
            for j in range(p):
                left = fma(broadcast(-W[i, j]), load(A, tile * p + j), left)
            store(one.R, tile * p + i, left)
            total = fma(left, left, total)
        store(one.squares, tile, fma(total, load(data.weights, tile), broadcast(LEAST_SQUARED_DISTANCE)))


@functools.cache
def places_of(p: int) -> np.ndarray:
    """Return the places of a tableau's entries; see `index_of_entries`."""
    return index_of_entries(p)


def room_for(p: int) -> Room:
    """Return scratch for cones of p edges."""
    edges = Edges(
        np.empty((p, p)), np.empty((p, p)), np.empty(p), np.empty(p), places_of(p), DUAL_TOLERANCE, False, np.empty(0)
    )
    lanes = Lanes(*(np.empty((k, WIDE.width)) for k in (p, p, p, row_of(p + 1), p + 1, p, 3, 1, 1, 1)))
    inverse, work, gram, of_used, within = (np.empty((p, p)) for _ in range(5))
    return Room(
        edges,
        lanes,
        np.empty(2 * WIDE.width, np.int64),
        inverse,
        work,
        gram,
        np.full(p + 1, -1),
        of_used,
        within,
        aligned_zeros(p, WIDE.width),
        aligned_zeros(p, WIDE.width),
    )


def room_of_results(data: Tiles, W: np.ndarray) -> Fit:
    """Return an empty `Fit` by the cone with the edges W, with a copy of W."""
    return Fit(
        np.array(W, order="C"), *(aligned_zeros(len(rows), WIDE.width) for rows in (data.T, data.T, data.weights))
    )


def by_edges(A: np.ndarray) -> np.ndarray:
    """Return an order that groups directions with the same edges, by their amounts A (n, p); see `as_before`."""
    order: np.ndarray = np.argsort((A > 0.0) @ np.exp2(-np.arange(A.shape[1])), kind="stable")
    return order


def fitted(data: Weighed, W: np.ndarray, before: np.ndarray | None = None) -> Fitted:
    """Return the fit of directions to the cone of edges W (p, p); ``before`` are amounts (n, p) of similar edges."""
    one = room_of_results(data.tiles, W)
    if before is not None:
        one.A[:] = tiled(before)
    fit_in(room_for(len(W)), data.tiles, before is not None, one)
    return Fitted(one, len(data.T))
