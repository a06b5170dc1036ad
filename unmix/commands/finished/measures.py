"""Measure the differences of two maps: what papers print of fractions and their reference."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...errors import InputError
from ...io.cube import band_names
from .sides import Side, blocks_of, both_of, plan_of

# By how much a value may be outside of its range and count as inside: the rounding of both maps.
ROUNDING_OF_MAPS = 1e-6
# The share of the squares of a reference below which its variance is rounding.
LEAST_VARIANCE = 1e-13
# The least variance of a reference, beside its squared errors, of which R² and slope say anything: at less it hardly varies.
LEAST_BESIDE_ERRORS = 1e-3


def differences(one: Side, other: Side, pairs: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Return counts of pixels, totals, ``rows``, one for each pair, and the least and the largest of the values of each map."""
    left, right = [i for i, _ in pairs], [j for _, j in pairs]
    sums, largest = np.zeros((6, len(pairs))), np.zeros(len(pairs))  # of d, |d|, d², b, b² and a b, with d = a − b
    places: list[tuple[int, int] | None] = [None] * len(pairs)
    both, only_a, only_b = 0, 0, 0
    seen = {"a": [np.inf, -np.inf], "b": [np.inf, -np.inf]}
    for first, A, B, in_a, in_b in blocks_of(one, other):
        present = in_a & in_b
        both += int(present.sum())
        only_a += int((in_a & ~in_b).sum())
        only_b += int((in_b & ~in_a).sum())
        for side, values in (("a", A[in_a]), ("b", B[in_b])):
            if values.size:
                seen[side] = [min(seen[side][0], float(values.min())), max(seen[side][1], float(values.max()))]
        D = np.where(present[..., None], A[..., left] - B[..., right], 0.0)
        a, b, d = A[..., left][present], B[..., right][present], D[present]
        sums += [each.sum(axis=0) for each in (d, np.abs(d), np.square(d), b, np.square(b), a * b)]
        for k in range(len(pairs)):
            line, sample = divmod(int(np.abs(D[..., k]).argmax()), D.shape[1])
            if abs(D[line, sample, k]) > abs(largest[k]):
                largest[k], places[k] = D[line, sample, k], (one.first[0] + first + line, one.first[1] + sample)
    if not both:
        raise InputError(f"{other.path}: no pixel has values in it and in {one.path}, none that the mask keeps")
    n, (signed, sizes, squares, b, b2, ab) = both, sums
    rows = []
    for k, place in enumerate(places):
        # Sums about the means; rounding of large equal values is no variance.
        varies = b2[k] - b[k] ** 2 / n
        varies = varies if varies > max(LEAST_VARIANCE * b2[k], LEAST_BESIDE_ERRORS * squares[k]) else 0.0
        together = ab[k] - b[k] * (signed[k] + b[k]) / n
        rows.append({
            "mean_a": float((signed[k] + b[k]) / n), "mean_b": float(b[k] / n),
            "rmse": float(np.sqrt(squares[k] / n)), "mae": float(sizes[k] / n), "mean_difference": float(signed[k] / n),
            "r2": float(1.0 - squares[k] / varies) if varies else None, "slope": float(together / varies) if varies else None,
            "largest_difference": float(largest[k]), "line": None if place is None else place[0],
            "sample": None if place is None else place[1],
        })  # fmt: skip
    total, signal = float(squares.sum()), float(b2.sum())
    return {
        "pixels": {"compared": both, "only_a": only_a, "only_b": only_b},
        "rmse": float(np.sqrt(total / (n * max(1, len(pairs))))),
        "sre": None if not (total > 0 and signal > 0) else float(10 * np.log10(signal / total)), "rows": rows,
        "values": seen,
    }  # fmt: skip


def shares_within(one: Side, other: Side, pairs: Sequence[tuple[int, int]]) -> Iterator[dict[str, float | None]]:
    """Yield for each pair the shares of b's values ``inside`` of a's ranges and ``within`` its deviations, if it has them."""
    ranges = share_of(one, other, pairs, 2) if one.ranges is not None else None
    sigma = share_of(one, other, pairs, 1) if one.sigma is not None else None
    # Of sums, deviations of each endmember are no deviations, and the other way round.
    ranges, sigma = (
        None if found is None or not any(one is not None for one in found) else found for found in (ranges, sigma)
    )
    for k in range(len(pairs)):
        yield ({} if ranges is None else {"inside": ranges[k]}) | ({} if sigma is None else {"within": sigma[k]})


def share_of(one: Side, other: Side, pairs: Sequence[tuple[int, int]], each: int) -> list[float | None]:
    """Return for each pair which share of b's values is where a's map of ranges (``each`` is 2) or of deviations (1) expects it.

    None where that has no such band, or no pixel has both.
    """
    cube = one.ranges if each == 2 else one.sigma
    assert cube is not None
    places = {name.removesuffix(" lower"): at for at, name in enumerate(band_names(cube)) if each == 1 or at % 2 == 0}
    inside, known = np.zeros(len(pairs)), np.zeros(len(pairs))
    beside = one.beside(cube)
    for lines in plan_of(one, other, beside):
        (A, B, in_a, in_b), (R, has_range) = both_of(one, other, lines), beside.read(lines)
        # A pixel may have a value and no range; deviations that are infinite are some, and those that are missing are below 0.
        in_a = in_a & (has_range if each == 2 else True)
        for k, (i, j) in enumerate(pairs):
            at = places.get(one.names[i])
            if at is None:
                continue
            low, high = (R[..., at], R[..., at + 1]) if each == 2 else (A[..., i] - R[..., at], A[..., i] + R[..., at])
            has_both = in_a & in_b & (high >= low)
            off = np.maximum(low - B[..., j], B[..., j] - high)[has_both]
            inside[k] += np.count_nonzero(off <= ROUNDING_OF_MAPS)
            known[k] += off.size
    return [float(inside[k] / known[k]) if known[k] else None for k in range(len(pairs))]


def squares_between(one: Side, other: Side) -> np.ndarray:
    """Return the sums of squared differences between all bands of two maps, (p, q)."""
    squares = np.zeros((len(one.names), len(other.names)))
    for _, A, B, in_a, in_b in blocks_of(one, other):
        A, B = A[in_a & in_b], B[in_a & in_b]
        squares += np.square(A).sum(axis=0)[:, None] + np.square(B).sum(axis=0) - 2.0 * (A.T @ B)
    return squares
