"""Solve pixels that float64 cannot decide: Lawson-Hanson in double-double, from a support that is nearly right.

At cond(E) = 1e7 a dual that matters is 1e-14 of the terms that it is summed from: its sign depends on rounding, and so
does the support. Here duals are right to 1e-25, and abundances to the last bit of float64. The search needs p numbers a
pixel: it takes the Gram matrix and ``Eᵀy`` to 106 bits, and a new Cholesky factor for each support, and there is
mostly one. Only ``Eᵀy`` is a sum over the bands.
"""

import functools
from typing import Any, NamedTuple

import numpy as np

from ...certificate import FARTHEST, UNDERFLOW, UNIT_ROUNDOFF, Face, certify_function, face_function, face_shapes
from ...compiled.double_double import (
    OPERATION_ROUNDING,
    add_double,
    divide,
    less_product,
    multiply,
    product_function,
    root_of,
)
from ...compiled.jit import ALONE, WIDE, compiled
from .gather import Stored, block_maker, gather_block
from .scalar import FREE, PASSIVE
from .tile import Results, Tile, settle_tile, tile_rows, writer

# Factor that covers the rounding of the bound itself.
OWN_ROUNDING = 1.0 + 2.0**-40


class Exact(NamedTuple):
    """Data that all pixels share, to 106 bits; under Σa = 1 with the constant band."""

    E: Any  # (L, p) the endmembers as given, without the constant band
    high: Any  # (p, p) Gram matrix, first halves
    low: Any  # (p, p) second halves
    unit: Any  # (p, p) Gram matrix of the columns at unit length, in float64
    norms: Any  # (p,) lengths of the columns
    lift: float  # added to each Eᵀy by the constant band, exact
    curvature: float  # a lower bound of σ_min(E)², under Σa = 1 on vectors that sum to 0
    blur: float  # see `unmix.solvers.pixels.scalar.Plan`
    sum_to_one: bool
    nonnegative: bool
    penalty: Any  # (p, 2) subtracted from each Eᵀy; (0, 2) if there is none


class ExtendedWork(NamedTuple):
    """Scratch of one pixel, float64 but the last three; pairs are double-doubles."""

    f: Any  # (p, 2) Eᵀy
    x: Any  # (p, 2) the optimum on the support, 0 elsewhere
    w: Any  # (2, p) duals, first and second halves
    s: Any  # (p, 2) inverse of the support's Gram matrix times ones
    T: Any  # (p, p, 2) its Cholesky factor
    a: Any  # (p,) the feasible point from which x is approached
    state: Any  # (p,) int64: FREE or PASSIVE
    support: Any  # (p,) int64, ascending
    face: Any  # unmix.certificate.Face


@compiled
def lift_products(product_high, product_low, lift, high, low):
    """Write ``product + lift`` into ``high`` and ``low``, whose columns are the first of the products'."""
    for i in range(high.shape[0]):
        for j in range(high.shape[1]):
            high[i, j], low[i, j] = add_double(product_high[i, j], product_low[i, j], lift, 0.0)


def pairs_of(values: np.ndarray, rest: np.ndarray | float) -> np.ndarray:
    """Return values (p,) and what their rounding left out as double-doubles, (p, 2)."""
    return np.stack([values, np.broadcast_to(rest, values.shape)], axis=1)


def exact_of(
    E: np.ndarray,
    height: float,
    curvature: float,
    blur: float,
    sum_to_one: bool,
    nonnegative: bool,
    penalty: np.ndarray,
) -> Exact:
    """Return the data of E (L, p) with a constant band of that height; the Gram matrix is computed in double-double."""
    L, p = E.shape
    width = WIDE.width
    high, low = np.zeros((p, p)), np.zeros((p, p))
    for first in range(0, p, width):
        block = E[:, first : first + width]
        columns = np.zeros((L, width))
        columns[:, : block.shape[1]] = block
        products = np.empty((2, p, width))
        product_function()(E, columns, products[0], products[1])
        lift_products(
            products[0], products[1], height**2, high[:, first : first + width], low[:, first : first + width]
        )
    norms = np.sqrt(np.square(E).sum(axis=0) + height**2)
    return Exact(
        E,
        high,
        low,
        high / np.multiply.outer(norms, norms),
        norms,
        height**2,
        curvature,
        blur,
        sum_to_one,
        nonnegative,
        pairs_of(penalty, 0.0),
    )


def new_extended_work(p: int) -> ExtendedWork:
    """Return the scratch of one pixel."""
    face = Face(*(np.empty(shape, kind) for shape, kind in face_shapes(p)))
    f, x, s = (np.empty((p, 2)) for _ in range(3))
    return ExtendedWork(
        f, x, np.empty((2, p)), s, np.empty((p, p, 2)), np.empty(p), np.empty(p, np.int64), np.empty(p, np.int64), face
    )


@compiled
def back_substitute(T, x, support, k):
    """Solve ``T Tᵀ x_new = x`` on the support, in place."""
    for i in range(k):
        high, low = x[support[i], 0], x[support[i], 1]
        for m in range(i):
            high, low = less_product(high, low, T[i, m, 0], T[i, m, 1], x[support[m], 0], x[support[m], 1])
        x[support[i], 0], x[support[i], 1] = divide(high, low, T[i, i, 0], T[i, i, 1])
    for i in range(k - 1, -1, -1):
        high, low = x[support[i], 0], x[support[i], 1]
        for m in range(i + 1, k):
            high, low = less_product(high, low, T[m, i, 0], T[m, i, 1], x[support[m], 0], x[support[m], 1])
        x[support[i], 0], x[support[i], 1] = divide(high, low, T[i, i, 0], T[i, i, 1])


@compiled
def factor(exact, work):
    """Compute the Cholesky factor of the passive columns' Gram matrix; return their number, or −1 if dependent."""
    k = 0
    for j in range(work.state.shape[0]):
        if work.state[j] == PASSIVE:
            work.support[k] = j
            k += 1
    T, support = work.T, work.support
    for i in range(k):
        for j in range(i + 1):
            high, low = exact.high[support[i], support[j]], exact.low[support[i], support[j]]
            for m in range(j):
                high, low = less_product(high, low, T[i, m, 0], T[i, m, 1], T[j, m, 0], T[j, m, 1])
            if j < i:
                T[i, j, 0], T[i, j, 1] = divide(high, low, T[j, j, 0], T[j, j, 1])
            elif high > 0.0:
                T[i, i, 0], T[i, i, 1] = root_of(high, low)
            else:
                return -1
    return k


@compiled
def solve_extended(exact, work):
    """Solve least squares on the passive columns into ``work.x``; returns what `factor` returns."""
    x, s = work.x, work.s
    k = factor(exact, work)
    for j in range(x.shape[0]):
        x[j, 0], x[j, 1] = 0.0, 0.0
    for i in range(k):
        j = work.support[i]
        x[j, 0], x[j, 1] = work.f[j, 0], work.f[j, 1]
        s[j, 0], s[j, 1] = 1.0, 0.0
    back_substitute(work.T, x, work.support, k)
    if exact.sum_to_one and k > 0:
        back_substitute(work.T, s, work.support, k)
        missing_high, missing_low, spread_high, spread_low = 1.0, 0.0, 0.0, 0.0
        for i in range(k):
            j = work.support[i]
            missing_high, missing_low = add_double(missing_high, missing_low, -x[j, 0], -x[j, 1])
            spread_high, spread_low = add_double(spread_high, spread_low, s[j, 0], s[j, 1])
        missing_high, missing_low = divide(missing_high, missing_low, spread_high, spread_low)
        for i in range(k):
            j = work.support[i]
            high, low = multiply(missing_high, missing_low, s[j, 0], s[j, 1])
            x[j, 0], x[j, 1] = add_double(x[j, 0], x[j, 1], high, low)
    return k


@compiled
def leaving_column(work, k):
    """Move ``work.a`` towards ``work.x`` until a column becomes zero; return this column, or −1 if x is reached."""
    reach = 1.0
    leaving = -1
    for i in range(k):
        j = work.support[i]
        if work.x[j, 0] <= 0.0:
            distance = work.a[j] - work.x[j, 0]
            fraction = work.a[j] / distance if distance > 0.0 else 0.0
            if leaving < 0 or fraction < reach:
                leaving, reach = j, fraction
    for i in range(k):
        j = work.support[i]
        work.a[j] += reach * (work.x[j, 0] - work.a[j])
    return leaving


@compiled
def find_duals(exact, work, k):
    """Compute ``w = Eᵀ(y − E x)``, under Σa = 1 less the multiplier of the sum; returns Σ|e_j||x_j|."""
    high, low = work.w
    p = high.shape[0]
    reach = 0.0
    for j in range(p):
        high[j], low[j] = work.f[j, 0], work.f[j, 1]
        reach += exact.norms[j] * abs(work.x[j, 0])
    for i in range(k):  # a row for all columns, which the compiler vectorises; U is symmetric to the last bit
        m = work.support[i]
        x_high, x_low = work.x[m, 0], work.x[m, 1]
        row_high, row_low = exact.high[m], exact.low[m]
        for j in range(p):
            high[j], low[j] = less_product(high[j], low[j], row_high[j], row_low[j], x_high, x_low)
    if exact.sum_to_one:
        multiplier_high, multiplier_low = 0.0, 0.0
        for i in range(k):
            j = work.support[i]
            part_high, part_low = multiply(work.x[j, 0], work.x[j, 1], high[j], low[j])
            multiplier_high, multiplier_low = add_double(multiplier_high, multiplier_low, part_high, part_low)
        for j in range(p):
            high[j], low[j] = add_double(high[j], low[j], -multiplier_high, -multiplier_low)
    return reach


_bound_on_face = face_function(ALONE)


@compiled
def search(exact, work, size, left):
    """Write the optimum to ``work.x``, from a feasible ``work.a``; return steps and a bound of x's distance to it."""
    # size is |y|, left the residual's length in float64. The bound is the remaining gradient over the curvature, as in
    # unmix.certificate with double-double rounding; infinite if columns are dependent or an abundance is negative.
    L, p = exact.E.shape
    unit = (float(L * L) + 16.0 * (p + 4.0)) * OPERATION_ROUNDING
    steps = 0
    rounding, reach = 0.0, 0.0
    while True:
        entered = -1
        k = solve_extended(exact, work)
        while k > 0 and exact.nonnegative and steps < 12 * p + 40:
            leaving = leaving_column(work, k)
            if leaving < 0:
                break
            work.a[leaving] = 0.0
            work.state[leaving] = FREE
            steps += 1
            k = solve_extended(exact, work)
        if k < 0:
            return steps, np.inf
        reach = find_duals(exact, work, k)
        rounding = unit * (size + reach)
        largest = 0.0
        for j in range(p):
            dual = work.w[0, j] / exact.norms[j]
            if exact.nonnegative and work.state[j] == FREE and dual > rounding and dual > largest:
                entered, largest = j, dual
        if entered < 0 or steps >= 12 * p + 40:
            break
        work.state[entered] = PASSIVE
        work.a[entered] = 0.0
        steps += 1
    missing_high, missing_low, longest, absolute = 1.0, 0.0, 0.0, 1.0
    for j in range(p):
        missing_high, missing_low = add_double(missing_high, missing_low, -work.x[j, 0], -work.x[j, 1])
        longest = max(longest, exact.norms[j])
        absolute += abs(work.x[j, 0])
    sum_error = abs(missing_high) + p * OPERATION_ROUNDING * absolute if exact.sum_to_one else 0.0
    violation, second_halves = UNDERFLOW, 0.0
    for j in range(p):
        margin = (rounding + sum_error * longest) * exact.norms[j]
        dual = work.w[0, j]
        free = exact.nonnegative and work.state[j] != PASSIVE
        violation += (max(dual + margin, 0.0) if free else abs(dual) + margin) ** 2
        second_halves += abs(work.x[j, 1])
        if exact.nonnegative and work.x[j, 0] < 0.0:
            return steps, np.inf
    distance = violation**0.5 / exact.curvature + sum_error if exact.curvature > 0.0 else np.inf
    if exact.nonnegative and not distance <= FARTHEST:  # the condition of all endmembers says too little
        distance = min(
            distance,
            _bound_on_face(
                exact.unit,
                exact.norms,
                exact.norms,
                exact.sum_to_one,
                work.x[:, 0],
                work.w[0],
                0.0,
                rounding + sum_error * longest,
                sum_error,
                exact.blur * (left + (p + 2.0) * UNIT_ROUNDOFF * (size + reach)),
                work.face,
                work.face.row,
            )[0],
        )
    return steps, (distance + second_halves) * OWN_ROUNDING


@functools.cache
def prover() -> Any:
    """Return the compiled function behind `prove_pixels`, which takes its scratch as arguments."""
    width, write = WIDE.width, writer(WIDE)
    product, certify = product_function(), certify_function(WIDE)

    @compiled
    def prove(block, count, unshifted, stored, plan, exact, results, tile, work):
        L, p = exact.E.shape
        root_of_bands = float(L) ** 0.5
        for first in range(0, count, width):
            pixels = min(width, count - first)
            gather_block(block, 0, first, pixels, unshifted, tile.Y, tile.missing, tile.length, tile.size)
            product(exact.E, tile.Y, tile.F, tile.W)
            for s in range(width):
                tile.delta[0, s] = np.inf
                for j in range(p):
                    tile.A[j, s] = 0.0
            for s in range(pixels):
                members = 0
                for j in range(p):
                    work.f[j, 0], work.f[j, 1] = add_double(tile.F[j, s], tile.W[j, s], exact.lift, 0.0)
                    if exact.penalty.shape[0] > 0:
                        work.f[j, 0], work.f[j, 1] = add_double(
                            work.f[j, 0], work.f[j, 1], -exact.penalty[j, 0], -exact.penalty[j, 1]
                        )
                    a = float(results.abundance[0, j, first + s])
                    positive = a > 0.0 and a - a == 0.0
                    work.a[j] = a if positive else 0.0
                    work.state[j] = PASSIVE if positive or not exact.nonnegative else FREE
                    members += work.state[j] == PASSIVE
                if exact.sum_to_one and members == 0:  # an empty support cannot sum to one
                    work.state[0], work.a[0] = PASSIVE, 1.0
                left = results.rmse[0, first + s] * root_of_bands
                tile.steps[0, s], tile.delta[0, s] = search(exact, work, tile.size[0, s], left)
                for j in range(p):
                    tile.A[j, s] = work.x[j, 0]
            gather_block(block, 0, first, pixels, stored, tile.Y, tile.missing, tile.length, tile.size)
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
                settle_tile(plan, tile, work.face, pixels)
            write(plan.E, tile, results, 0, first, pixels)

    return prove


def prove_pixels(raw: np.ndarray, stored: Stored, plan: Any, exact: Exact, results: Results) -> None:
    """Solve and certify stored pixels (1, n, bands) again in double-double, from the abundances in ``results``."""
    # plan is the run's in float64, for the certificate; exact the same endmembers, for the search. All results change.
    L, p = plan.E.shape
    tile = Tile(*(np.empty((rows, WIDE.width)) for rows in tile_rows(L, p, "")))
    unshifted = stored._replace(shift=stored.shift[:0])
    block = block_maker("bip", stored)(raw)
    prover()(block, raw.shape[1], unshifted, stored, plan, exact, results, tile, new_extended_work(p))
