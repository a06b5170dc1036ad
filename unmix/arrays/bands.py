"""`select_bands`: which bands predict a target, or are the least collinear: successive projections (de Paula et al. 2013)."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from ..devices import one_device
from ..errors import InputError, MethodError
from ..solvers.bands import chains
from ..solvers.bands.chains import ChainEngine
from ..solvers.bands.projections import Samples
from .engines import groups_on

# How the prefixes of chains are regressed.
REGRESSIONS = {
    "sequential": "a prefix grows by one band, an add",
    "gauss-jordan": "every prefix's matrix is inverted by Gauss-Jordan, as de Paula et al. 2013 have it",
}
# Bands of a chain, unless asked for, and samples that leave a degree of freedom.
MOST = 100
FOLDS = 5
# Of the F test: an error whose probability of being no worse is above this is (Galvão et al. 2008).
ALPHA = 0.25
LARGEST = 1e140
# Validation samples that an error is measured on, at least.
FEWEST = 3


@dataclass(frozen=True)
class Selection:
    """What was chosen.

    Attributes
    ----------
    bands : array of int
        Places from 0, the most relevant first; without a target in the order of the chain.
    chain : array of int
        The best prefix before elimination, in order.
    rmsep : float or None
        Root mean squared error of prediction of ``bands``, on validation samples or by cross-validation.
    least : float or None
        That of ``chain``, the smallest.
    coefficients, relevance : arrays, or None
        Of ``bands``, from all samples: their regression; its modulus times the band's standard deviation.
    intercept : float or None
    curve : list of (int, float, int)
        For every number of bands the smallest RMSEP, and the band that its chain begins with; without a target the volume.
    device : str
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
    """Give what makes chains and regressions on a device, and the device's name."""
    with one_device(device, threads) as machine:
        groups = groups_on(machine, threads, chains.THREADS, chains.BLOCKS_AT_ONCE)
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
    regression: str = "sequential",
    seed: int = 0,
    device: str = "cpu",
    threads: int | None = None,
) -> Selection:
    """The bands whose regression predicts a target best, by successive projections (de Paula et al. 2013).

    Phase 1: from every band a chain, of which each next is the longest beside those before. Phase 2: the regression of every prefix
    of every chain, by its error on validation samples. Phase 3: bands of the best prefix are left out, the least relevant (standard
    deviation times \\|coefficient\\|) first, while the error does not rise significantly by an F test.

    Parameters
    ----------
    X : array-like of shape (N, K)
        Samples; a band a column.
    y : array-like of shape (N,)
        The target.
    most : int, optional
        Bands of a chain; default is what equation 4 of de Paula et al. 2013 allows, at most 100.
    validation : float, optional
        The share of samples, drawn with ``seed``, that errors are measured on.
    folds : int, optional
        Cross-validation instead: every sample is predicted once, from the other folds. The default, with 5.
    alpha : float
        Significance of the F test; 0 leaves every band of the best prefix in.
    regression : {"sequential", "gauss-jordan"}
        How; the second is for comparison.
    seed : int
    device : str
        "cpu", "cuda", "cuda:K" or "auto".
    threads : int, optional

    Returns
    -------
    Selection

    Raises
    ------
    InputError
        Where shapes do not go together, something is not finite, there are too few samples, or a target or every band is constant.
    MethodError, DeviceError
        Where an option is wrong, or the device is not there.
    """
    X, y = np.asarray(X, np.float64), np.asarray(y, np.float64)
    check(X, y, validation, folds, alpha, regression)
    parts = cut(len(X), validation, FOLDS if folds is None and validation is None else folds, seed)
    fewest = min(len(calibration) for calibration, _ in parts)
    highest = min(fewest - 1, X.shape[1])
    if most is not None and not 1 <= most <= highest:
        raise MethodError(f"`most` {most}: must be from 1 to {highest} (calibration samples less one, bands)")
    most = min(highest, MOST) if most is None else most
    with chain_engine(device, threads) as (engine, name):
        calibration = parts[0][0] if validation is not None else np.arange(len(X))
        centred = X[calibration] - X[calibration].mean(axis=0)
        orders, counts = engine.chains(centred.T @ centred, most)
        if not counts.any():
            raise InputError("every band is constant")
        prepared = [samples_of(X, y, *part) for part in parts]
        squares = errors_of(engine, prepared, orders, counts, most, regression)
        if not np.isfinite(squares).any():
            raise InputError("every band is constant in some fold; use fewer `folds`, or `validation`")
        predicted = sum(len(part[1]) for part in parts)
        best = np.unravel_index(int(np.argmin(squares)), squares.shape)
        chain = orders[best[0], : best[1] + 1].astype(int)
        curve = [(m + 1, rms(squares[:, m].min(), predicted), int(np.argmin(squares[:, m]))) for m in range(most)
                 if np.isfinite(squares[:, m].min())]  # fmt: skip
        bands, square = eliminate(engine, prepared, X, y, chain, float(squares[best]), predicted, alpha)
        slopes, relevance, intercept = regression_of(X, y, bands)
        return Selection(
            bands, chain, rms(square, predicted), rms(float(squares[best]), predicted), slopes, relevance, intercept, curve,
            name,
        )  # fmt: skip


def least_collinear(covariance: np.ndarray, count: int, device: str = "cpu", threads: int | None = None) -> Selection:
    """Without a target: of all chains, the ``count`` bands that span the largest volume (phase 1 alone).

    Parameters
    ----------
    covariance : array (K, K), float64
        Of the bands.
    count : int
    device, threads
        As of `select_bands`.

    Raises
    ------
    MethodError
        Where so many bands are not there, or are collinear.
    """
    K = len(covariance)
    if not 1 <= count <= K:
        raise MethodError(f"`most` {count}: must be from 1 to {K}, the bands in use")
    with chain_engine(device, threads) as (engine, name):
        orders, counts = engine.chains(np.ascontiguousarray(covariance), count)
        volumes = [log_volume(covariance, orders[i, : counts[i]]) if counts[i] == count else -np.inf for i in range(K)]
        start = int(np.argmax(volumes))
        if counts[start] < count:
            most = int(counts.max())
            what = f"only {most} bands are not mixtures" if most > 1 else "all bands are multiples"
            raise MethodError(f"`most` {count}: {what} of each other")
        return Selection(orders[start].astype(int), orders[start].astype(int), device=name)


def log_volume(covariance: np.ndarray, bands: np.ndarray) -> float:
    """Logarithm of the determinant of some bands' correlation: 0 where none is like another."""
    own = covariance[np.ix_(bands, bands)]
    lengths = np.sqrt(np.diagonal(own))
    return float(np.linalg.slogdet(own / np.outer(lengths, lengths))[1])


def check(
    X: np.ndarray, y: np.ndarray, validation: float | None, folds: int | None, alpha: float, regression: str
) -> None:
    """Raise what is wrong with the arguments of `select_bands`."""
    if X.ndim != 2 or y.ndim != 1 or len(X) != len(y) or 0 in X.shape:
        raise InputError(f"samples have shape {X.shape} and the target {y.shape}: (N, K) and (N,) are wanted")
    for name, values in (("samples hold", X), ("the target holds", y)):
        if not np.all(np.isfinite(values)):
            where = int(np.argwhere(~np.isfinite(values))[0, 0])
            raise InputError(f"{name} values that are not finite, first in row {where + 1}")
    if max(np.abs(X).max(), np.abs(y).max()) > LARGEST:
        raise InputError(
            f"samples or target hold values above {LARGEST:g}, whose squares float64 does not hold; rescale them"
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
    if regression not in REGRESSIONS:
        raise MethodError(f"unknown regression '{regression}'; there are {', '.join(REGRESSIONS)}")


def cut(N: int, validation: float | None, folds: int | None, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Calibration and validation samples: one pair, or one a fold."""
    order = np.random.Generator(np.random.PCG64(seed)).permutation(N)
    if validation is None:
        assert folds is not None
        parts = [np.sort(part) for part in np.array_split(order, min(folds, N))]
    else:
        parts = [np.sort(order[: max(1, round(validation * N))])]
    pairs = [(np.setdiff1d(np.arange(N), part), part) for part in parts]
    if validation is not None and len(parts[0]) < FEWEST:
        raise MethodError(
            f"`validation` {validation:g}: leaves {len(parts[0])} of {N} samples to measure errors on; {FEWEST} at least"
        )
    if min(len(calibration) for calibration, _ in pairs) < 2:
        raise InputError(f"{N} samples are too few: a regression needs two at least beside those that it predicts")
    return pairs


def samples_of(X: np.ndarray, y: np.ndarray, calibration: np.ndarray, validation: np.ndarray) -> Samples:
    """What regressions on some samples, and their errors on others, are made of."""
    mean, level = X[calibration].mean(axis=0), y[calibration].mean()
    own, target = X[calibration] - mean, y[calibration] - level
    return Samples(own.T @ own, own.T @ target, np.ascontiguousarray((X[validation] - mean).T), y[validation] - level)


def errors_of(
    engine: Any, prepared: list[Samples], orders: np.ndarray, counts: np.ndarray, most: int, regression: str
) -> np.ndarray:
    """Sums of squared errors of every prefix, (chains, most); infinite where there is none."""
    squares = np.zeros((len(orders), most))
    for samples in prepared:
        engine.regress(samples, orders, counts, squares, regression)
    return np.where(np.isfinite(squares), squares, np.inf)


def rms(square: float, samples: int) -> float:
    """RMSEP (de Paula et al. 2013, eq. 2)."""
    return float(np.sqrt(square / samples))


def regression_of(X: np.ndarray, y: np.ndarray, bands: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Coefficients, relevance and intercept of bands, from all samples."""
    mean = X[:, bands].mean(axis=0)
    slopes = np.linalg.lstsq(X[:, bands] - mean, y - y.mean(), rcond=None)[0]
    return slopes, np.abs(slopes) * X[:, bands].std(axis=0, ddof=1), float(y.mean() - mean @ slopes)


def eliminate(
    engine: Any, prepared: list[Samples], X: np.ndarray, y: np.ndarray, chain: np.ndarray, square: float, predicted: int, alpha: float
) -> tuple[np.ndarray, float]:  # fmt: skip
    """Phase 3: of the bands by falling relevance, the fewest whose error is not significantly above the least; and its square sum."""
    _, relevance, _ = regression_of(X, y, chain)
    order = chain[np.argsort(-relevance, kind="stable")]
    found = errors_of(
        engine, prepared, order[None].astype(np.int32), np.array([len(order)], np.int32), len(order), "sequential"
    )[0]
    if alpha == 0:
        return order, square
    limit = found.min() * stats.f.ppf(1 - alpha, predicted, predicted)
    fewest = int(np.flatnonzero(found <= limit)[0])
    return order[: fewest + 1], float(found[fewest])
