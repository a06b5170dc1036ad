"""Tabulate the models of a library that are averaged: at most one spectrum of each class, with and without shade.

A model's abundances are, before light is known, evenly spread over ``a >= 0, Σa <= 1``, or over ``Σa = 1`` without
shade. Given a pixel they are normal around its least-squares optimum there, cut off where a fraction leaves its range.
So a model's evidence is its volume times exp(−χ²/2σ²) times the share that is not cut off (MacKay 1992). That share is
sampled by the optimum and one step, forwards and backwards, for each model: a quasi-random order spreads the steps over
the models, and a class set of few models has several steps for each.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import LibraryError
from ...methods import counts_of_models
from ...solvers.pixels.mesma.tables import (
    FALLS,
    SLACK,
    TOO_ALIKE,
    count_of_numbers,
    factors_of_models,
    numbers_of_factors,
    table_of_models,
)

# Models that are all averaged; of more, so many are drawn at random, as many for each set of classes as can be.
MOST_MODELS, DRAWN_MODELS = 1_000_000, 100_000
# Of more models than these a pixel needs no more of a set once so many share the weight: the error of its mean is then
# some 6 % of its deviation.
MANY_MODELS, ENOUGH_MODELS = 100_000, 300.0
# Most models of a set that are numbered, to draw some of them.
MOST_NUMBERED = 2**24
# Fewest steps for each set of classes.
LEAST_STEPS = 1024
# Most sets of classes.
MOST_SETS = 255
# More numbers of a model: its volume with and without shade and the sum of its step; and then, for each spectrum, the
# steps with and without shade, and its variance with shade.
WITH_SHADE, WITHOUT_SHADE, STEP_SUM, STEPS = range(4)


class ModelTable(NamedTuple):
    """The models of S sets of classes, in this order; the first fields are those of `Models`, a set for a size."""

    sizes: Any  # (S,) int64: k
    begin: Any  # (S + 1,) int64: the first model of each set
    stride: Any  # (S,) int64
    numbers_at: Any  # (S,) int64
    spectra_at: Any  # (S,) int64
    numbers: Any
    spectra: Any
    more: Any  # `STEPS` + 3 k more numbers of each model
    more_at: Any  # (S,) int64
    repeats: Any  # (S,) int64: how often each model is there, with another step
    classes: Any  # (S, most k) int64: the class of each of its spectra
    shade: bool  # whether there may be shade
    enough: float  # how many models of a set share the weight of a pixel where it needs no more of them


def sets_of_classes(counts: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the sets of classes of these sizes, smaller ones first; `LibraryError` where there are too many."""
    every = range(1, len(counts_of_models(counts, len(counts))) + 1)
    total = sum(math.comb(len(counts), k) for k in every)
    if total > MOST_SETS:
        raise LibraryError(f"`average`: {len(counts)} classes have {total} sets, more than {MOST_SETS}; `select` fewer")
    return [one for k in every for one in itertools.combinations(range(len(counts)), k)]


def chosen_spectra(members: Sequence[np.ndarray], most: int, random: np.random.Generator) -> np.ndarray:
    """Return the spectra (M, k) of models with one of each of ``members``: at most ``most``, in a random order."""
    counts = [len(one) for one in members]
    total = math.prod(counts)
    if total > MOST_NUMBERED:  # the same model is hardly ever drawn twice
        return np.stack([random.choice(one, most) for one in members], axis=1)
    numbers = random.choice(total, min(total, most), replace=False)
    return np.stack([one[at] for one, at in zip(members, np.unravel_index(numbers, counts))], axis=1)


def normal_steps(count: int, k: int, random: np.random.Generator) -> np.ndarray:
    """Return ``count`` quasi-random normal numbers of k dimensions, (count, k), in a random order (Roberts 2018)."""
    from scipy.special import ndtri

    golden = 2.0
    for _ in range(60):
        golden = (1.0 + golden) ** (1.0 / (k + 1))
    points = (0.5 + np.outer(random.permutation(count) + 1, golden ** -np.arange(1.0, k + 1))) % 1.0
    return np.asarray(ndtri(np.clip(points, 1e-12, 1 - 1e-12)))


def with_steps(
    G: np.ndarray, columns: np.ndarray, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return spectra (M, k), numbers, more numbers and repeats of a set's models, for a Gram matrix (p, p)."""
    W, sines = factors_of_models(G, columns)
    good = (sines > TOO_ALIKE).all(axis=1)
    columns, W = columns[good], W[good]
    count, k = columns.shape
    numbers, volume = numbers_of_factors(W), np.diagonal(W, axis1=1, axis2=2).prod(axis=1) / max(1, count)
    repeats = max(1, -(-LEAST_STEPS // max(1, count)))
    columns, W, numbers, volume = (np.repeat(x, repeats, axis=0) for x in (columns, W, numbers, volume / repeats))
    slack, falls = numbers[:, SLACK], numbers[:, FALLS : FALLS + k]
    # A step without shade is one with it, less its part that changes the sum.
    steps = np.einsum("mji,mj->mi", W, normal_steps(len(columns), k, random))
    level = steps - steps.sum(axis=1, keepdims=True) * falls
    more = (
        math.factorial(k) * (2 * math.pi) ** (k / 2) * volume,
        math.factorial(k - 1) * (2 * math.pi) ** ((k - 1) / 2) * volume * np.sqrt(slack),
        steps.sum(axis=1),
        steps,
        level,
        np.square(W).sum(axis=1),
    )
    return columns, numbers, np.column_stack(more), repeats


def bytes_of_table(counts: Sequence[int]) -> int:
    """Return the memory of the table of classes of these sizes."""
    sets, share = sets_of_classes(counts), models_of_a_set(counts)
    return sum(
        8
        * (count_of_numbers(len(one)) + STEPS + 4 * len(one))
        * max(LEAST_STEPS, min(share, math.prod(counts[c] for c in one)))
        for one in sets
    )


def models_of_a_set(counts: Sequence[int]) -> int:
    """Return how many models of a set are averaged at most."""
    is_all = sum(counts_of_models(counts, len(counts))) <= MOST_MODELS
    return MOST_MODELS if is_all else max(LEAST_STEPS, DRAWN_MODELS // len(sets_of_classes(counts)))


def tabulate(E: np.ndarray, kinds: np.ndarray, shade: bool, seed: int = 0) -> ModelTable:
    """Return the table of the models of a library.

    Parameters
    ----------
    E : array (L, p), float64
        Spectra, less that of shade, in units of the bands' noise where that differs between bands.
    kinds : array (p,), int64
        The class of each, from 0.
    shade : bool
        Whether fractions may sum to less than one.
    seed : int
        Of steps, and of models that are drawn.

    Returns
    -------
    ModelTable

    Raises
    ------
    LibraryError
        If there are too many classes, or all spectra of a class are zero.
    """
    random = np.random.Generator(np.random.PCG64(seed))
    members = [np.flatnonzero(kinds == c) for c in range(int(kinds.max()) + 1)]
    counts = [len(one) for one in members]
    sets, most, G = sets_of_classes(counts), models_of_a_set(counts), E.T @ E
    made = [with_steps(G, chosen_spectra([members[c] for c in one], most, random), random) for one in sets]
    there = [i for i, (columns, *_) in enumerate(made) if len(columns)]
    if not there:
        raise LibraryError("`average`: all spectra are zero")
    sets, made = [sets[i] for i in there], [made[i] for i in there]
    classes = np.zeros((len(sets), max(map(len, sets))), np.int64)
    for row, one in zip(classes, sets):
        row[: len(one)] = one
    columns, numbers, more, repeats = zip(*made)
    values: Any = (
        *table_of_models(list(zip(columns, numbers))),
        np.concatenate([values.ravel() for values in more]),
        np.cumsum([0, *(values.size for values in more)])[:-1],
        np.array(repeats),
        classes,
        shade,
        ENOUGH_MODELS if sum(map(len, columns)) > MANY_MODELS else math.inf,
    )
    return ModelTable(*values)
