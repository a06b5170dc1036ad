"""The tables that all pixels share: a row of coefficients for each model, from the inverted Cholesky factors of its Gram matrix."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....compiled.jit import inlined

# The squared sine of the angle between a spectrum and the span of a model's others below which the model is refused.
TOO_ALIKE = 1e-8
# Models of three spectra whose rows are held: 32 bytes each.
MOST_MODELS = 10_000_000
# Places in a model's row. Of the direction e that its last spectrum adds to those before, orthogonal to them and of length 1, the
# coefficients of the first, the second and the last: t = eᵀy is their product with Eᵀy, and t times them is what e adds to the
# abundances. Then 1/(1ᵀG⁻¹1). A model of two spectra has no second one; where a model is refused, all are NaN.
FIRST, SECOND, LAST, SLACK = range(4)
ROW = 4


class Models(NamedTuple):
    """Tables and limits that all pixels share; p spectra, ordered by class, float64 unless stated."""

    order: Any  # (p,) int64: the number of each in the library
    begin: Any  # (classes + 1,) int64: the first of each class, and p
    lengths: Any  # (p,)
    place: Any  # (p, p) int64: where rows of models begin, less the number of their last spectrum: [i, j] of three, [i, i] of two
    rows: Any  # (models, 4), see `FIRST` to `SLACK`; the first p are of one spectrum
    most: int  # spectra of a model: 1 to 3
    fewest: int
    exact: bool  # a >= 0, sum of at most one; else the following reject
    lowest: float  # fraction
    highest: float
    least_shade: float
    most_shade: float
    most_error: float  # bound on the squared error, the sum over bands
    fusion: float  # of the RMSE
    against_kept: bool  # fusion compares with the last level that was kept, else with the preceding one
    bands: float
    sets: Any  # (sets, 4) int32: how many classes make models, and the first, the second and the last of them; sizes ascend
    most_residual: float  # which `run` bands after each other may not reach; infinite for none
    run: int
    spectra: Any  # (L, p) in the order of the tables, where there is such a limit; else (0, 0)


def count_refused(models: Models) -> int:
    """Return how many models of two or three spectra are refused, since their spectra are too alike."""
    count = 0
    for size, *classes in models.sets[models.sets[:, 0] > 1]:
        i, j, m = np.ix_(*(np.arange(models.begin[c], models.begin[c + 1]) for c in classes))
        at = models.place[i, j if size > 2 else i] + m
        count += int(np.isnan(models.rows[at, LAST]).sum())
    return count


def allowed_sets(names: Sequence[str], sets: Sequence[tuple[str, ...]]) -> np.ndarray:
    """Return ``sets`` of `Models`; the classes of each come in the order of ``names``."""
    number = {name: k for k, name in enumerate(names)}
    rows = [(len(one), number[one[0]], number[one[min(1, len(one) - 1)]], number[one[-1]]) for one in sets]
    return np.array(rows, np.int32).reshape(-1, 4)


def rows_of_models(*directions: np.ndarray) -> np.ndarray:
    """Return rows (models, 4) of `Models` from coefficients (..., 3) of the directions that each of a model's spectra adds."""
    slack = 1.0 / sum(np.square(direction.sum(axis=-1, keepdims=True)) for direction in directions)
    return np.concatenate([np.broadcast_to(directions[-1], (*slack.shape[:-1], 3)), slack], axis=-1).reshape(-1, ROW)


def tables(unit_gram: np.ndarray, lengths: np.ndarray, kinds: Any, names: Sequence[str], most: int) -> tuple[Any, ...]:
    """Return the tables of `Models`, from ``order`` to ``rows``.

    Parameters
    ----------
    unit_gram : array (p, p), float64
        Products of the spectra at unit length.
    lengths : array (p,), float64
    kinds : sequence of str
        The class of each.
    names : sequence of str
        The classes, in the order that settles ties.
    most : int
        Spectra of a model.
    """
    number = np.array([names.index(kind) for kind in kinds])
    order = np.argsort(number, kind="stable")
    begin = np.searchsorted(number[order], np.arange(len(names) + 1))
    rho, lengths = unit_gram[np.ix_(order, order)], lengths[order]
    p, v, sines = len(order), 1.0 / lengths, 1.0 - np.square(rho)
    scale = 1.0 / np.sqrt(np.where(sines > TOO_ALIKE, sines, np.nan))
    ones = v[:, None] * np.array([0.0, 0.0, 1.0])
    parts, place, size = [rows_of_models(ones)], np.zeros((p, p), np.int64), p

    def add(rows: np.ndarray, i: int, j: Any, after: int) -> None:
        nonlocal size
        parts.append(rows)
        place[i, j] = size - after + (p - after) * np.arange(len(j))
        size += len(rows)

    for i in range(p if most > 1 else 0):
        after = begin[number[order[i]] + 1]
        first, twos = ones[i, ::-1], np.zeros((p, 3))
        twos[:, 0], twos[:, 2] = -rho[i] * scale[i] * v[i], scale[i] * v
        add(rows_of_models(first, twos[after:]), i, [i], after)
        for c in range(number[order[i]] + 1, len(names) - 1 if most > 2 else 0):
            j, m = np.ix_(np.arange(begin[c], begin[c + 1]), np.arange(begin[c + 1], p))
            across = (rho[j, m] - rho[i, j] * rho[i, m]) * scale[i, j]
            rest = 1.0 - rho[i, m] ** 2 - across**2
            alpha = 1.0 / np.sqrt(np.where(rest > TOO_ALIKE, rest, np.nan))
            beta = -alpha * across * scale[i, j]
            threes = np.stack([(-alpha * rho[i, m] - beta * rho[i, j]) * v[i], beta * v[j], alpha * v[m]], axis=-1)
            add(rows_of_models(first, twos[j][..., [0, 2, 1]], threes), i, j[:, 0], begin[c + 1])
    return order.astype(np.int64), begin.astype(np.int64), lengths, place, np.concatenate(parts)


@inlined
def row_of_model(models, k, i, j, m):
    """Return the row of a model of k spectra, of which m is the last, i the first, and of three j the second."""
    return m + (0 if k < 2 else models.place[i, i if k < 3 else j])
