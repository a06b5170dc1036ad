"""The tables that all pixels share: Gram-Schmidt's coefficients of all models' spectra at unit length."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

# The squared sine of the angle between a spectrum and the span of a model's others below which the model is refused.
TOO_ALIKE = 1e-8
# Models of three spectra whose tables are held: 64 bytes each.
MOST_MODELS = 10_000_000
# Places in a model's row of `Models.triples`: 1/√g of the third spectrum; less its product with the second, over √g;
# what t adds to the fraction of the first, the second and the third; 1/(1ᵀG⁻¹1); and by how much the fractions of the
# first and the second fall where their sum is lowered by one (those of the three add up to one).
ALPHA, BETA, FIRST, SECOND, THIRD, SLACK, FALL_1, FALL_2 = range(8)
ROW = 8


class Models(NamedTuple):
    """Tables and limits that all pixels share; p spectra, ordered by class, float64 unless stated."""

    order: Any  # (p,) int64: the number of each in the library
    begin: Any  # (classes + 1,) int64: the first of each class, and p
    lengths: Any  # (p,)
    weights: Any  # (p,) 1 / lengths
    rho: Any  # (p, p) products of the spectra at unit length
    scale: Any  # (p, p) 1/√(1 − ρ²), the second less the first, for classes in ascending order; 0 where refused
    slack: Any  # (p, p) 1/(1ᵀG⁻¹1) of two
    fall: Any  # (p, p) by how much the fraction of the second of two falls where the sum is lowered by one
    place: Any  # (p, p) int64: where a pair's third ones begin in ``triples``, less the number of the first of them
    triples: Any  # (ROW models of three, and a row of zeros,): a row each, see `ALPHA` to `FALL_2`
    most: int  # spectra of a model: 1 to 3
    fewest: int
    exact: bool  # a >= 0, sum of at most one; else the following reject
    lowest: float  # fraction
    highest: float
    least_shade: float
    most_shade: float
    most_error: float  # bound on the squared error, the sum over bands
    fusion: float  # of the RMSE; below 0 for `search.NOISE_GAIN`
    against_kept: bool  # fusion compares with the last level that was kept, else with the preceding one
    bands: float
    sets: Any  # (classes, classes, classes) uint8: 1 where the three classes make models; of fewer, the last repeats
    most_residual: float  # which `run` bands after each other may not reach; infinite for none
    run: int
    spectra: Any  # (L, p) in the order of the tables, where there is such a limit; else (0, 0)


def allowed_sets(names: Sequence[str], sets: Sequence[tuple[str, ...]]) -> np.ndarray:
    """Return ``sets`` of `Models`; the classes of each come in the order of ``names``."""
    allowed = np.zeros((len(names),) * 3, np.uint8)
    for one in sets:
        numbers = [names.index(name) for name in one]
        allowed[tuple(numbers + numbers[-1:] * (3 - len(numbers)))] = 1
    return allowed


def tables(unit_gram: np.ndarray, lengths: np.ndarray, kinds: Any, names: Sequence[str], most: int) -> tuple[Any, ...]:
    """Return the tables of `Models`, from ``order`` to ``triples``, for spectra of these lengths (p,) and classes."""
    # unit_gram (p, p) is of spectra at unit length; `names` are the classes in the order that settles ties.
    number = np.array([names.index(kind) for kind in kinds])
    order = np.argsort(number, kind="stable")
    begin = np.searchsorted(number[order], np.arange(len(names) + 1))
    rho = np.ascontiguousarray(unit_gram[np.ix_(order, order)])
    p = len(order)
    left = 1.0 - rho * rho
    scale = np.where(left > TOO_ALIKE, 1.0 / np.sqrt(np.maximum(left, TOO_ALIKE)), 0.0)
    v = 1.0 / lengths[order]  # the vector of ones, for spectra at unit length
    along = (v - rho * v[:, None]) * scale  # its second Gram-Schmidt coefficient
    slack = 1.0 / (np.square(v)[:, None] + np.square(along))
    fall = slack * along * scale * v
    place = np.zeros((p, p), np.int64)
    parts: list[np.ndarray] = []
    size = 0
    after = begin[number[order] + 1]  # the first spectrum of the next class
    for i in range(p if most > 2 else 0):
        for j in range(after[i], p if after[i] < p else 0):
            m = np.arange(after[j], p)
            if not len(m):
                continue
            across = (rho[j, m] - rho[i, j] * rho[i, m]) * scale[i, j]
            rest = 1.0 - rho[i, m] ** 2 - across**2
            good = (rest > TOO_ALIKE) & (scale[i, j] > 0)
            alpha = np.where(good, 1.0 / np.sqrt(np.maximum(rest, TOO_ALIKE)), 0.0)
            beta = across * alpha
            last = alpha * (v[m] - rho[i, m] * v[i]) - beta * along[i, j]
            second = scale[i, j] * beta
            of_three = 1.0 / (v[i] ** 2 + along[i, j] ** 2 + last**2)
            w_m = alpha * last
            w_j = (along[i, j] - beta * last) * scale[i, j]
            w_i = v[i] - rho[i, j] * w_j - rho[i, m] * w_m
            columns = (
                alpha,
                -beta,
                (rho[i, j] * second - rho[i, m] * alpha) * v[i],
                -second * v[j],
                alpha * v[m],
                of_three,
                of_three * w_i * v[i],
                of_three * w_j * v[j],
            )
            parts.append(np.stack(columns, axis=1))
            place[i, j] = size - m[0]
            size += len(m)
    triples = np.concatenate([*parts, np.zeros((1, ROW))]).ravel()
    return order.astype(np.int64), begin.astype(np.int64), lengths[order], v, rho, scale, slack, fall, place, triples
