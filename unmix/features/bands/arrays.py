"""Select the bands that predict a target best, or are the least collinear, by successive projections.

The method is by de Paula et al. 2013.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from ...arrays.groups import groups_on
from ...arrays.others.kinds import on_host
from ...devices import one_device
from ...errors import InputError, MethodError
from .projections import BLOCKS_AT_ONCE, THREADS, ChainEngine, Samples

MOST_BANDS, FOLDS = 100, 5  # defaults
# Significance level of the F test: an error counts as no worse if the test does not reject that at this level (Galvão
# et al. 2008).
ALPHA = 0.25
LARGEST_SAMPLE = 1e140  # and target: float64 holds the squares of such values and their sums
FEWEST_VALIDATION_SAMPLES = 3


@dataclass(frozen=True)
class Selection:
    """The selected bands and their regression; without a target, all but bands, chain and device are None or empty.

    Attributes
    ----------
    bands : array of int
        Indices of the selected bands, from 0, the most relevant first; without a target in the order of the chain.
    chain : array of int
        The best prefix before elimination, in order.
    rmsep : float or None
        Root mean squared error of prediction of ``bands``, on validation samples or by cross-validation.
    least : float or None
        The RMSEP of ``chain``, the smallest of all prefixes.
    coefficients, relevance : arrays (len(bands),), float64, or None
        Regression coefficients of ``bands`` from all samples; their absolute values times the bands' standard
        deviations.
    intercept : float or None
    curve : list of (int, float, int)
        For each number of bands: that number, the smallest RMSEP, and the first band of the chain that reaches it.
    device : str
        The name of the device.
    """

    bands: np.ndarray
    chain: np.ndarray
    rmsep: float | None = None
    least: float | None = None
    coefficients: np.ndarray | None = None
    relevance: np.ndarray | None = None
    intercept: float | None = None
    curve: list[tuple[int, float, int]] = field(default_factory=list)
    device: str = "cpu"


@contextmanager
def chain_engine(device: str, threads: int | None) -> Iterator[tuple[ChainEngine, str]]:
    """Yield the engine that computes chains and regressions on a device, and the device's name."""
    with one_device(device, threads) as machine:
        groups = groups_on(machine, threads, THREADS, BLOCKS_AT_ONCE)
        with closing(ChainEngine(groups)) as engine:
            yield engine, machine.name


def select_bands(
    X: np.ndarray,
    y: np.ndarray,
    *,
    most: int | None = None,
    validation: float | None = None,
    folds: int | None = None,
    alpha: float = ALPHA,
    seed: int = 0,
    device: str = "cpu",
    threads: int | None = None,
) -> Selection:
    """Select the bands whose regression predicts a target best, by successive projections (de Paula et al. 2013).

    Phase 1: grow a chain from every band; each next band has the largest projection onto the complement of the chain.
    Phase 2: regress on every prefix of every chain; the best has the smallest error on validation samples. Phase 3:
    drop bands of the best prefix, the least relevant (standard deviation times \\|coefficient\\|) first, while the
    error does not rise significantly by an F test.

    Parameters
    ----------
    X : array-like of shape (N, K)
        Samples; each column is a band.
    y : array-like of shape (N,)
        The target.
    most : int, optional
        Bands of a chain; default is the most that equation 4 of de Paula et al. 2013 allows, up to 100.
    validation : float, optional
        The share of samples, drawn at random, on which errors are measured.
    folds : int, optional
        Number of folds of cross-validation, used instead: each sample is predicted once, from the other folds. The
        default, with 5.
    alpha : float
        Significance level of the F test; 0 keeps every band of the best prefix.
    seed : int
        Seed of the random split into validation samples or folds.
    device : str
        "cpu", "cuda", "cuda:K" or "auto".
    threads : int, optional
        CPU threads; default is all.

    Returns
    -------
    Selection

    Raises
    ------
    InputError
        If shapes do not match, a value is not finite or too large, there are too few samples, or the target or every
        band is constant.
    MethodError, DeviceError
        If an option is wrong, or the device is not available.
    """
    X, y = np.asarray(on_host(X), np.float64), np.asarray(on_host(y), np.float64)
    check(X, y, validation, folds, alpha)
    parts = cut_folds(len(X), validation, FOLDS if folds is None and validation is None else folds, seed)
    fewest = min(len(calibration) for calibration, _ in parts)
    highest = min(fewest - 1, X.shape[1])
    if most is not None and not 1 <= most <= highest:
        raise MethodError(f"`most` {most}: must be from 1 to {highest} (calibration samples less one, bands)")
    most = min(highest, MOST_BANDS) if most is None else most
    with chain_engine(device, threads) as (engine, name):
        calibration = parts[0][0] if validation is not None else np.arange(len(X))
        centred = X[calibration] - X[calibration].mean(axis=0)
        orders, counts = engine.chains(centred.T @ centred, most)
        if not counts.any():
            raise InputError("every band is constant")
        prepared = [samples_of(X, y, *part) for part in parts]
        squares = errors_of_prefixes(engine, prepared, orders, counts, most)
        if not np.isfinite(squares).any():
            raise InputError("every band is constant in some fold; use fewer `folds`, or `validation`")
        predicted = sum(len(part[1]) for part in parts)
        best = np.unravel_index(int(np.argmin(squares)), squares.shape)
        chain = orders[best[0], : best[1] + 1].astype(int)
        curve = [
            (m + 1, root_mean(squares[:, m].min(), predicted), int(np.argmin(squares[:, m])))
            for m in range(most)
            if np.isfinite(squares[:, m].min())
        ]
        bands, square = eliminate(engine, prepared, X, y, chain, float(squares[best]), predicted, alpha)
        slopes, relevance, intercept = regression_of(X, y, bands)
        return Selection(
            bands,
            chain,
            root_mean(square, predicted),
            root_mean(float(squares[best]), predicted),
            slopes,
            relevance,
            intercept,
            curve,
            name,
        )


def least_collinear(covariance: np.ndarray, count: int, device: str = "cpu", threads: int | None = None) -> Selection:
    """Select ``count`` bands from their covariance (K, K): the chain that spans the largest volume (phase 1 alone)."""
    K = len(covariance)
    if not 1 <= count <= K:
        raise MethodError(f"`most` {count}: must be from 1 to {K}, the bands in use")
    with chain_engine(device, threads) as (engine, name):
        orders, counts = engine.chains(np.ascontiguousarray(covariance), count)
        volumes = [log_volume(covariance, orders[i, : counts[i]]) if counts[i] == count else -np.inf for i in range(K)]
        start = int(np.argmax(volumes))
        if counts[start] < count:
            most = int(counts.max())
            reason = f"only {most} bands are not mixtures" if most > 1 else "all bands are multiples"
            raise MethodError(f"`most` {count}: {reason} of each other")
        return Selection(orders[start].astype(int), orders[start].astype(int), device=name)


def log_volume(covariance: np.ndarray, bands: np.ndarray) -> float:
    """Return the log-determinant of some bands' correlation matrix: 0 if they are uncorrelated, else below 0."""
    selected = covariance[np.ix_(bands, bands)]
    lengths = np.sqrt(np.diagonal(selected))
    return float(np.linalg.slogdet(selected / np.outer(lengths, lengths))[1])


def check(X: np.ndarray, y: np.ndarray, validation: float | None, folds: int | None, alpha: float) -> None:
    """Raise `InputError` or `MethodError` if an argument of `select_bands` is wrong."""
    if X.ndim != 2 or y.ndim != 1 or len(X) != len(y) or 0 in X.shape:
        raise InputError(f"samples have shape {X.shape} and the target {y.shape}; they must be (N, K) and (N,)")
    for name, values in (("samples hold", X), ("the target holds", y)):
        if not np.all(np.isfinite(values)):
            row = int(np.argwhere(~np.isfinite(values))[0, 0])
            raise InputError(f"{name} values that are not finite, first in row {row + 1}")
    if max(np.abs(X).max(), np.abs(y).max()) > LARGEST_SAMPLE:
        raise InputError(
            f"samples or target hold values above {LARGEST_SAMPLE:g}, whose squares float64 does not hold; rescale them"
        )
    if not np.ptp(y) > 0:
        raise InputError("the target is constant; there is nothing to predict")
    if validation is not None and folds is not None:
        raise MethodError("`validation` and `folds` contradict each other")
    if validation is not None and not 0 < validation < 1:
        raise MethodError(f"`validation` {validation:g}: must be between 0 and 1")
    if folds is not None and not 2 <= folds <= len(X):
        raise MethodError(f"`folds` {folds}: must be from 2 to {len(X)}, the samples")
    if not 0 <= alpha < 1:
        raise MethodError(f"`alpha` {alpha:g}: must be from 0, below 1")


def cut_folds(N: int, validation: float | None, folds: int | None, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Draw the indices of calibration and validation samples: one pair, or a pair for each fold."""
    order = np.random.Generator(np.random.PCG64(seed)).permutation(N)
    if validation is None:
        assert folds is not None
        parts = [np.sort(part) for part in np.array_split(order, min(folds, N))]
    else:
        parts = [np.sort(order[: max(1, round(validation * N))])]
    pairs = [(np.setdiff1d(np.arange(N), part), part) for part in parts]
    if validation is not None and len(parts[0]) < FEWEST_VALIDATION_SAMPLES:
        raise MethodError(
            f"`validation` {validation:g}: leaves {len(parts[0])} of {N} samples to measure errors on; at least"
            f" {FEWEST_VALIDATION_SAMPLES} are needed"
        )
    if min(len(calibration) for calibration, _ in pairs) < 2:
        raise InputError(f"{N} samples are too few: a regression needs at least two beside those that it predicts")
    return pairs


def samples_of(X: np.ndarray, y: np.ndarray, calibration: np.ndarray, validation: np.ndarray) -> Samples:
    """Return the products of calibration samples, and the validation samples, all centred by the calibration means."""
    mean, level = X[calibration].mean(axis=0), y[calibration].mean()
    centred, target = X[calibration] - mean, y[calibration] - level
    return Samples(
        centred.T @ centred, centred.T @ target, np.ascontiguousarray((X[validation] - mean).T), y[validation] - level
    )


def errors_of_prefixes(
    engine: Any, prepared: list[Samples], orders: np.ndarray, counts: np.ndarray, most: int
) -> np.ndarray:
    """Return the sums of squared errors of every prefix, (chains, most); infinite where a chain has no such prefix."""
    squares = np.zeros((len(orders), most))
    for samples in prepared:
        engine.regress(samples, orders, counts, squares)
    return np.where(np.isfinite(squares), squares, np.inf)


def root_mean(square: float, samples: int) -> float:
    """Return the RMSEP from a sum of squared errors (de Paula et al. 2013, eq. 2)."""
    return float(np.sqrt(square / samples))


def regression_of(X: np.ndarray, y: np.ndarray, bands: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return coefficients, relevance and intercept of the regression on some bands, from all samples."""
    mean = X[:, bands].mean(axis=0)
    slopes = np.linalg.lstsq(X[:, bands] - mean, y - y.mean(), rcond=None)[0]
    return slopes, np.abs(slopes) * X[:, bands].std(axis=0, ddof=1), float(y.mean() - mean @ slopes)


def eliminate(
    engine: Any,
    prepared: list[Samples],
    X: np.ndarray,
    y: np.ndarray,
    chain: np.ndarray,
    square: float,
    predicted: int,
    alpha: float,
) -> tuple[np.ndarray, float]:
    """Return the fewest bands, by relevance, with an error not significantly above the least, and its square sum."""
    _, relevance, _ = regression_of(X, y, chain)
    order = chain[np.argsort(-relevance, kind="stable")]
    squares = errors_of_prefixes(
        engine, prepared, order[None].astype(np.int32), np.array([len(order)], np.int32), len(order)
    )[0]
    if alpha == 0:
        return order, square
    limit = squares.min() * stats.f.ppf(1 - alpha, predicted, predicted)
    fewest = int(np.flatnonzero(squares <= limit)[0])
    return order[: fewest + 1], float(squares[fewest])
