"""Tabulate models of a library: the inverse of the Cholesky factor of each model's Gram matrix, and its falls."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

# The squared sine of the angle between a spectrum and the span of a model's others below which the model is refused.
TOO_ALIKE = 1e-8
# Bytes of the tables of all models that are held; models that are tabulated at a time.
MOST_BYTES, TOGETHER = 2**30, 1 << 18
# A model of k spectra has 1/(1ᵀG⁻¹1), then by how much each fraction falls where their sum is lowered by one, then W by
# rows, lower triangular, with G⁻¹ = WᵀW.
SLACK, FALLS = 0, 1


class Models(NamedTuple):
    """Tables and limits that all pixels share; numbers of models of one size follow each other; float64 unless stated."""

    sizes: Any  # (S,) int64: k, the spectra of a model
    begin: Any  # (S + 1,) int64: the first model of each size
    stride: Any  # (S,) int64: how many numbers a model has
    numbers_at: Any  # (S,) int64: where its models' numbers begin
    spectra_at: Any  # (S,) int64: where its models' spectra begin
    numbers: Any
    spectra: Any  # int64: k columns of the library, a model after the other
    lengths: Any  # (p,) of the spectra
    most: int  # spectra of a model
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
    most_residual: float  # which `run` bands after each other may not reach; infinite for none
    run: int


def count_of_numbers(k: int) -> int:
    """Return how many numbers a model of k spectra has."""
    return 1 + k + k * (k + 1) // 2


def bytes_of_models(counts: Sequence[int]) -> int:
    """Return the memory of so many models of each size, from 1 on."""
    return sum(8 * count * (count_of_numbers(k) + k) for k, count in enumerate(counts, 1))


def factors_of_models(G: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return W (M, k, k) and, for each spectrum, the squared sine of its angle with those before, of models (M, k)."""
    lengths = np.sqrt(np.diag(G))[columns]
    lengths = np.where(lengths > 0, lengths, 1.0)
    unit = G[columns[:, :, None], columns[:, None, :]] / lengths[:, :, None] / lengths[:, None, :]
    W, sines = np.zeros_like(unit), np.empty(columns.shape)
    for i in range(columns.shape[1]):
        along = np.einsum("mjl,ml->mj", W[:, :i], unit[:, i])
        sines[:, i] = unit[:, i, i] - np.square(along).sum(axis=1)
        W[:, i] = -np.einsum("mj,mjl->ml", along, W[:, :i])
        W[:, i, i] += 1.0
        W[:, i] /= np.sqrt(np.maximum(sines[:, i], TOO_ALIKE))[:, None]
    return W / lengths[:, None, :], sines


def numbers_of_factors(W: np.ndarray) -> np.ndarray:
    """Return the numbers (M, n) of models with W (M, k, k)."""
    ones = np.einsum("mij,mi->mj", W, W.sum(axis=2))  # G⁻¹1
    total, (i, j) = ones.sum(axis=1, keepdims=True), np.tril_indices(W.shape[1])
    return np.hstack([1.0 / total, ones / total, W[:, i, j]])


def table_of_models(made: Sequence[tuple[np.ndarray, np.ndarray]]) -> Any:
    """Return the fields of `Models` up to ``spectra``, of spectra (M, k) and numbers (M, n) of the models of each size."""
    begin, spectra_at, numbers_at = (
        np.cumsum([0, *sizes])
        for sizes in (
            [len(columns) for columns, _ in made],
            [columns.size for columns, _ in made],
            [numbers.size for _, numbers in made],
        )
    )
    sizes, stride = (np.array([values.shape[1] for values in parts]) for parts in zip(*made))
    spectra, numbers = (np.concatenate([values.ravel() for values in parts]) for parts in zip(*made))
    return sizes, begin, stride, numbers_at[:-1], spectra_at[:-1], numbers, spectra


def all_models(number: np.ndarray, k: int, sets: set[tuple[int, ...]] | None) -> np.ndarray:
    """Return the models (M, k) of spectra whose classes have these numbers (p,): by class sets, then in their order."""
    if sets is not None:
        members = [np.flatnonzero(number == c) for c in range(int(number.max()) + 1)]
        grids = [np.meshgrid(*(members[c] for c in one), indexing="ij") for one in sorted(sets) if len(one) == k]
        return np.concatenate([np.empty((0, k), np.int64), *(np.stack(one, axis=-1).reshape(-1, k) for one in grids)])
    order = np.argsort(number, kind="stable")
    number = number[order].astype(np.int16)
    later = np.searchsorted(number, number, side="right")  # the first spectrum of a later class
    models = np.arange(len(order), dtype=np.int32)[:, None]
    for _ in range(k - 1):
        first = later[models[:, -1]]
        end = np.cumsum(len(order) - first)
        last = np.arange(end[-1] if len(end) else 0) - np.repeat(end - len(order), len(order) - first)
        models = np.column_stack([np.repeat(models, len(order) - first, axis=0), last.astype(np.int32)])
    return order[models[np.lexsort(number[models].T[::-1])]]


def tabulated(G: np.ndarray, models: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return spectra and numbers of those models (M, k) whose spectra are not too alike, for a Gram matrix (p, p)."""
    made = []
    for first in range(0, max(len(models), 1), TOGETHER):
        columns = models[first : first + TOGETHER]
        W, sines = factors_of_models(G, columns)
        good = (sines > TOO_ALIKE).all(axis=1)
        made.append((columns[good], numbers_of_factors(W[good])))
    columns, numbers = (np.concatenate(parts) for parts in zip(*made))
    return columns, numbers
