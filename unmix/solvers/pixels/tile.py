"""Solve a tile of neighbouring pixels of a line: from stored values to abundances and their certificate.

The source serves both kinds of device (`unmix.compiled.jit`): on a CPU a tile is as wide as the vectors, on a GPU it is
one pixel, and each thread has its own. Lanes do not interact: the results do not depend on block, thread or interleave.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...certificate import (
    BARE,
    CERTIFIED,
    DARK,
    FARTHEST,
    GAP_WEIGHT,
    LEFT,
    MARGIN,
    MASKED,
    MULTIPLIER,
    NODATA,
    PARTLY,
    SCALE,
    SOLVED,
    SUM_ERROR,
    TERMS,
    WORTH,
    certify_function,
    face_function,
)
from ...compiled.jit import ALONE, Team, Width, compiled, inlined
from ...features.runs import search_file
from . import scalar
from .active_set import search_function, triangle
from .gather import gather_function, matrix_product_function
from .supports.pivots import BY_SUPPORT
from .supports.search import supports_function
from .working_set import members_of, working_set_function


class Tile(NamedTuple):
    """Scratch of one tile, float64; w is its width."""

    Y: Any  # (L, w) pixels
    F: Any  # (p, w) EᵀY
    A: Any  # (p, w) abundances
    W: Any  # (p, w) duals; before that QᵀY, for solvers that need it
    T: Any  # ((m + 1)(m + 2) / 2, w) the tableau's triangle, of m = SWEPT[solver](p) columns; 0 for other solvers
    pivot: Any  # (m + 1, w) the row of the tableau that is swept
    state: Any  # (m, w) FREE, PASSIVE, BARRED or ABSENT
    chosen: Any  # (3, w) the next step of each lane: see `choose_function`
    exchanged: Any  # (1, w) see `unmix.solvers.pixels.active_set.exchange`
    missing: Any  # (1, w) number of used bands that are nodata, NaN or infinite
    length: Any  # (1, w) |y| as stored and scaled
    size: Any  # (1, w) the scale of the duals: |y|, under Σa = 1 at least the length of the longest endmember
    begins: Any  # (1, w) 1 where a run of tiles begins: a search looks no further back, and sets −1 to leave the run
    steps: Any  # (1, w)
    rmse: Any  # (1, w)
    kappa: Any  # (1, w)
    delta: Any  # (1, w)
    terms: Any  # (7, w): see `unmix.certificate.certify_function`


def tile_rows(L: int, p: int, solver: str) -> Tile:
    """Return the number of rows of each field of a `Tile`."""
    m = SWEPT[solver](p) if solver in SWEPT else 0
    return Tile(L, p, p, p, triangle(m + 1), m + 1, m, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, TERMS)


class Results(NamedTuple):
    """The results of a block of n lines. Arrays that the user did not ask for have 0 lines."""

    abundance: Any  # (n, p, samples)
    rmse: Any  # (n, samples)
    relative: Any  # (n, samples) float32: |y − E a| / |y|; −1 where |y| is 0
    kappa: Any  # (n, samples) float64
    delta: Any  # (n, samples) float64
    steps: Any  # (n, samples) int32
    state: Any  # (n, samples) uint8: SOLVED, PARTLY or MASKED
    residual: Any  # (n or 0, L, samples)


def searched_by_pixel(solve: Any) -> Callable[[Width], Any]:
    """Return a tile solver that calls a solver of single pixels (`unmix.solvers.pixels.scalar`) lane by lane."""

    def solver(ops: Width) -> Any:
        product, width = matrix_product_function(ops), ops.width

        @compiled
        def search(plan, tile, work, count):
            p = plan.E.shape[1]
            product(plan.Q, tile.Y, tile.W)
            for s in range(count):
                for j in range(p):
                    work.z[j] = tile.W[j, s] + plan.lifts[j]
                    work.f[j] = tile.F[j, s]
                tile.steps[0, s] = solve(plan, work, tile.size[0, s])
                for j in range(p):
                    tile.A[j, s] = work.a[j]
            for s in range(count, width):  # lanes that hold no pixel
                for j in range(p):
                    tile.A[j, s] = 0.0

        return search

    return solver


def by_sweeps(ops: Width) -> Any:
    """Return the tile solver that searches all lanes at once."""
    sweep = search_function(ops)

    @compiled
    def search(plan, tile, work, count):
        sweep(plan, tile)

    return search


def by_plan(ops: Width) -> Any:
    """Return the tile solver for least squares on all endmembers by one product, ``a = (Q R⁻ᵀ)ᵀy``."""
    # cond(E) is small here.
    load, store, fma, broadcast, product = ops.load, ops.store, ops.fma, ops.broadcast, matrix_product_function(ops)

    @compiled
    def search(plan, tile, work, count):
        product(plan.Q, tile.Y, tile.A)
        store(tile.steps, 0, broadcast(0.0))
        if not plan.sum_to_one:
            return
        # The constant band adds its height squared to each Eᵀy; then the sum is moved to 1 along G⁻¹ 1, twice, because
        # the first leaves rounding of the size of pixels that are far brighter than endmembers.
        spread = 0.0
        for j in range(plan.lifts.shape[0]):
            spread += plan.lifts[j]
        missing = broadcast(-plan.lift)
        for _ in range(3):
            total = broadcast(0.0)
            for j in range(tile.A.shape[0]):
                a = fma(broadcast(-plan.lifts[j]), missing, load(tile.A, j))
                store(tile.A, j, a)
                total = total + a
            missing = (total - 1.0) * broadcast(1.0 / spread)

    return search


def by_working_set(ops: Width) -> Any:
    """Return the tile solver for many endmembers, whose ``work`` is a `unmix.solvers.pixels.working_set.WorkingSet`."""
    find = working_set_function(ops)

    @compiled
    def search(plan, tile, work, count):
        find(plan, tile, work)

    return search


def by_models(ops: Width) -> Any:
    """Return the tile solver that chooses the best model of each pixel."""
    from .mesma.search import models_function  # to define its functions takes 9 ms

    return models_function(ops)


# The tile solver of each solver in `unmix.methods.SOLVERS`.
SEARCH = {
    "active_set": by_sweeps,
    "working_set": by_working_set,
    **{key: functools.partial(supports_function, c=path.vectors) for key, path in BY_SUPPORT.items()},
    "inverse": searched_by_pixel(scalar.inverse),
    "delete_only": searched_by_pixel(scalar.delete_only),
    "direct": searched_by_pixel(scalar.direct),
    "planned": by_plan,
    "mesma": by_models,
}


@functools.cache
def search_of(solver: str, ops: Width) -> Any:
    """Return the compiled function of a solver in `SEARCH`, or of a feature."""
    # Cached: a new one each time would be read from disk.
    made = SEARCH[solver] if solver in SEARCH else search_file(solver).tile_solver
    return made(ops)


# Solvers that need a tableau, and the most columns it holds for p endmembers.
SWEPT = {"active_set": lambda p: p, "working_set": members_of}
SWEPT |= {key: SWEPT[path.other] for key, path in BY_SUPPORT.items()}


@functools.cache
def residual_writer(ops: Width) -> Any:
    """Return ``write_residual``, which writes ``y − E a`` in the unit of the scaled cube, nodata where masked."""
    # It comes last, as it leaves the residual in place of the tile's pixels.
    load, store, broadcast = ops.load, ops.store, ops.broadcast

    @compiled
    def write_residual(E, tile, results, line, first, count):
        L, p = E.shape
        for b in range(0, L, 4):  # four bands at a time: A is loaded a quarter as often
            b1, b2, b3 = min(b + 1, L - 1), min(b + 2, L - 1), min(b + 3, L - 1)
            r0, r1, r2, r3 = load(tile.Y, b), load(tile.Y, b1), load(tile.Y, b2), load(tile.Y, b3)
            for j in range(p):
                a = load(tile.A, j)
                r0 = r0 - broadcast(E[b, j]) * a
                r1 = r1 - broadcast(E[b1, j]) * a
                r2 = r2 - broadcast(E[b2, j]) * a
                r3 = r3 - broadcast(E[b3, j]) * a
            store(tile.Y, b, r0)
            store(tile.Y, b1, r1)
            store(tile.Y, b2, r2)
            store(tile.Y, b3, r3)
        for b in range(L):
            for s in range(count):
                results.residual[line, b, first + s] = tile.Y[b, s] if tile.missing[0, s] == 0.0 else NODATA

    return write_residual


@compiled
def write_tile(tile, results, line, first, count, L):
    """Write the results of a tile; nodata where a pixel is masked."""
    for j in range(tile.A.shape[0]):
        for s in range(count):
            results.abundance[line, j, first + s] = tile.A[j, s] if tile.missing[0, s] == 0.0 else NODATA
    root_of_bands = float(L) ** 0.5
    for s in range(count):
        sample = first + s
        missing = tile.missing[0, s]
        solved = missing == 0.0
        results.rmse[line, sample] = tile.rmse[0, s] if solved else NODATA
        length = tile.length[0, s]
        results.relative[line, sample] = tile.rmse[0, s] * root_of_bands / length if solved and length > 0.0 else -1.0
        results.kappa[line, sample] = tile.kappa[0, s] if solved else NODATA
        results.delta[line, sample] = tile.delta[0, s] if solved else NODATA
        results.steps[line, sample] = np.int64(tile.steps[0, s] if solved else NODATA)
        results.state[line, sample] = SOLVED if solved else (MASKED if missing == L else PARTLY)


@inlined
def least_of(values):
    """Return the least of some values (p,)."""
    least = values[0]
    for value in values:
        least = value if value < least else least
    return least


@functools.cache
def settle_function(team: Team) -> Any:
    """Return ``settle``, which returns κ and δ of a pixel with abundances a and duals w; ``dark``: the pixel is 0."""
    # Where the arguments do not certify it, κ and δ from a face of the feasible set, if they are smaller
    # (unmix.certificate.face_function).
    bound_on_face = face_function(team)

    @team.compile
    def settle(plan, a, w, terms, dark, kappa, delta, face, reduction_buffer):
        bare = terms[BARE]
        if (kappa <= CERTIFIED and delta <= FARTHEST) or not bare <= CERTIFIED:
            return kappa, delta
        if dark and not plan.sum_to_one and least_of(plan.slopes) > 0.0 and bare == 0.0:
            # All endmembers have a positive product with one vector of length 1, at least 1e-9 of their length: Σ 1e-39
            # a_j <= |E a| <=
            # |y|, and |y| is below 1e-150, since its square is 0.
            return 0.0, DARK
        distance, gap = bound_on_face(
            plan.U,
            plan.norms,
            plan.sizes,
            plan.sum_to_one,
            a,
            w,
            terms[MULTIPLIER],
            terms[MARGIN],
            terms[SUM_ERROR],
            plan.blur * terms[LEFT],
            face,
            reduction_buffer,
        )
        scale = terms[SCALE]
        by_gap = (gap + terms[WORTH]) / scale * (2.0 * GAP_WEIGHT) / scale if scale > 0.0 else bare
        by_gap = by_gap if by_gap > bare else bare
        return (by_gap if by_gap < kappa else kappa), (distance if distance < delta else delta)

    return settle


_settle = settle_function(ALONE)


@compiled
def settle_tile(plan, tile, face, count):
    """Call the function of `settle_function` for all pixels of a tile that are not masked."""
    for s in range(count):
        if tile.missing[0, s] == 0.0:
            tile.kappa[0, s], tile.delta[0, s] = _settle(
                plan,
                tile.A[:, s],
                tile.W[:, s],
                tile.terms[:, s],
                tile.length[0, s] == 0.0,
                tile.kappa[0, s],
                tile.delta[0, s],
                face,
                face.row,
            )


@compiled
def leave_tile(plan, tile, face, count):
    """Do nothing, in place of `settle_tile`."""


@functools.cache
def prepare_function(ops: Width) -> Any:
    """Return ``prepare(plan, tile)``, which computes what a search needs of a tile's pixels."""
    load, store, select, broadcast, product = (
        ops.load,
        ops.store,
        ops.select,
        ops.broadcast,
        matrix_product_function(ops),
    )

    @compiled
    def prepare(plan, tile):
        product(plan.E, tile.Y, tile.F)
        for j in range(plan.penalty.shape[0]):
            store(tile.F, j, load(tile.F, j) - broadcast(plan.penalty[j]))
        if plan.sum_to_one:  # |y| is relative to the mean endmember here: near it, any dual would look large
            longest = 0.0
            for j in range(plan.norms.shape[0]):
                longest = plan.norms[j] if plan.norms[j] > longest else longest
                store(tile.F, j, load(tile.F, j) + plan.lift)
            size = load(tile.size, 0)
            size = select(size > longest, size, broadcast(longest))
            store(tile.size, 0, select(load(tile.missing, 0) > 0.0, broadcast(0.0), size))
        store(tile.delta, 0, broadcast(np.inf))

    return prepare


@functools.cache
def prove_function(ops: Width, settles: bool) -> Any:
    """Return ``prove(plan, tile, face, count)``, which certifies a tile; ``face`` is used only with ``settles``."""
    certify, settle = certify_function(ops), settle_tile if settles else leave_tile

    @compiled
    def prove(plan, tile, face, count):
        certify(
            plan.E,
            plan.sizes,
            plan.slopes,
            plan.curvature,
            plan.centre,
            plan.sum_to_one,
            plan.nonnegative,
            plan.penalty,
            tile.Y,
            tile.A,
            tile.W,
            tile.rmse,
            tile.kappa,
            tile.delta,
            tile.terms,
        )
        if plan.nonnegative:
            settle(plan, tile, face, count)

    return prove


def proof_of(solver: str, ops: Width, settles: bool) -> Any:
    """Return `prove_function` for a solver, or a function that does nothing if the solver certifies its own models."""
    return leave_tile if solver == "mesma" or solver not in SEARCH else prove_function(ops, settles)


@functools.cache
def writer(ops: Width) -> Any:
    """Return ``write``, which writes the results of a tile, and its residual if the user asked for it."""
    write_residual = residual_writer(ops)

    @compiled
    def write(E, tile, results, line, first, count):
        write_tile(tile, results, line, first, count, E.shape[0])
        if results.residual.shape[0] > 0:
            write_residual(E, tile, results, line, first, count)

    return write


@functools.cache
def tile_solver(interleave: str, solver: str, ops: Width, settles: bool) -> Any:
    """Return the compiled function that solves one tile; its argument ``face`` is used only with ``settles``."""
    gather, write, prepare = gather_function(interleave, ops), writer(ops), prepare_function(ops)
    search, prove = search_of(solver, ops), proof_of(solver, ops, settles)

    @compiled
    def solve_tile(raw, line, first, count, stored, plan, tile, work, face, results):
        gather(raw, line, first, count, stored, tile.Y, tile.missing, tile.length, tile.size)
        prepare(plan, tile)
        search(plan, tile, work, count)
        prove(plan, tile, face, count)
        write(plan.E, tile, results, line, first, count)

    return solve_tile
