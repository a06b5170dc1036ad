"""Measure how far the misfit of a run is above its noise: noise is what neighbouring pixels do not share."""

from typing import Any, NamedTuple

import numpy as np

from ...summary import POOR
from .fit import in_percent

# Fewest pairs of neighbours, and fewest bands beside the endmembers, from which noise is told.
FEWEST_PAIRS, FEWEST_FREE = 32, 2
# A misfit of up to this many times the noise is explained, if at most this share of the pixels exceeds it.
EXPLAINED, MOST_ABOVE = 1.25, 0.02
# A misfit of more than this many times the noise is said: real scenes, whose materials vary, are at 1.2 to 3.
FAR = 4.0
# Pixels are fitted worse than others where their RMSE is this many times that which one in ten exceeds, and so many
# at least.
WORSE, MOST_WORSE = 2.5, 0.002
# Deviations by which a share must exceed chance.
DEVIATIONS = 3.0
# A poorly fitted pixel is merely dark where its RMSE is at most this many times the noise (of ten bands, 99 % of noise
# is), if neighbours that are dark share no more than noise.
FAINT = 1.5
# Columns differ as stripes do where what the lines of a column share has this part of the variance of noise, and their
# mean is larger, in squares, by this part than if they were independent; in so many lines at least. The first is -0.01
# to 0.03 in Samson, Jasper Ridge, Moffett, Salinas-A, EnMAP and synthetic scenes, 0.15 to 80 with stripes of 5 % of the
# mean.
STRIPED, LEAST_BEYOND, FEWEST_LINES = 0.12, 0.6, 3
# Less noise than this part of a pixel's length is rounding.
LEAST_NOISE = 1e-9
# How many times too small deviations are said to be, where bands' noise differs, at least.
UNEVEN = 1.25
# The correlation of neighbouring bands' noise from which on deviations by white noise are a quarter too small.
CORRELATED = 0.25


class Misfit(NamedTuple):
    """A run's misfit beside its noise: ``noise`` is the deviation of a band, in the unit of the scene.

    ``over_noise`` is the median misfit over it; ``above`` the share of the pixels, less what chance gives (0 where that
    may be all), whose misfit is above `EXPLAINED` times the noise and shared by a neighbour, or is the price of a
    constraint. ``faint`` is the part of the poorly fitted pixels that are merely dark, ``striped`` whether columns
    differ by more than noise, which is then without that.
    """

    noise: float
    over_noise: float
    above: float
    faint: float
    striped: bool = False
    # Of the differences of neighbours' residuals, between neighbouring bands: the median of pairs; 0 of white noise.
    correlation: float = 0.0
    # By how much deviations of some endmember are too small, if noise is taken to be of one size in all bands.
    uneven: float = 1.0
    worse: float = 0.0  # the share of the pixels that are fitted much worse than the others

    @property
    def is_noise(self) -> bool:
        """Whether noise explains it."""
        return self.over_noise <= EXPLAINED and self.above <= MOST_ABOVE

    def said_of_results(self, results: str, is_white: bool) -> list[str]:
        """Return that ``results`` are too small where there is more than noise, or bands are correlated, or differ."""
        # ``is_white``: they take noise to be of one size in all bands.
        much = (
            f"{self.over_noise:.2g} times"
            if self.over_noise > EXPLAINED
            else f"in {in_percent(self.above)} of the pixels above"
        )
        more = [f"the misfit is {much} the noise: {results}, by noise alone, hold fewer truths than they say"] * (
            not self.is_noise
        )
        if is_white and self.uneven > UNEVEN:
            more.append(
                f"noise differs between bands: {results}, which take it for even, may be {self.uneven:.2g} times too "
                "small: give it by `noise`"
            )
        return more + said_of_correlation(self.correlation, results)

    def to_dict(self) -> dict[str, Any]:
        """Return it for ``run.json``."""
        shared = f"; in {in_percent(self.above)} of the pixels it is above the noise, and a neighbour shares it"
        said = f"{self.over_noise:.2f} times the noise{shared if self.above > MOST_ABOVE else ''}"
        said += "; columns differ, as stripes do" if self.striped else ""
        said += f"; {in_percent(self.worse)} of the pixels are fitted much worse" if self.worse > MOST_WORSE else ""
        numbers = {name: float(f"{getattr(self, name):.5g}") for name in ("noise", "over_noise", "above", "worse")}
        return numbers | {"is_noise": self.is_noise, "striped": self.striped, "said": said}


def said_of_correlation(correlation: float, results: str) -> list[str]:
    """Return that ``results`` are too small where residuals of neighbouring bands are correlated."""
    # As if the correlation falls with the distance of bands; a smooth spectrum sums up all of it.
    factor = ((1 + correlation) / max(1 - correlation, 1e-3)) ** 0.5
    return [
        f"residuals of neighbouring bands are correlated ({correlation:.2f}): {results}, which assume that they "
        f"are not, may be {factor:.2g} times too small"
    ] * (correlation > CORRELATED)


def correlation_of(rows: np.ndarray) -> float:
    """Return the correlation of neighbouring bands of residuals (N, L): the median of their rows."""
    bands, others = rows[:, :-1], rows[:, 1:]
    alike = 2 * (bands * others).sum(axis=1) / np.maximum((bands**2 + others**2).sum(axis=1), 1e-300)
    return float(np.median(alike))


def said_of_few(Y: np.ndarray, E: np.ndarray, results: str) -> list[str]:
    """Return that residuals of pixels (N, L), too few to tell noise, are alike in neighbouring bands."""
    (L, p), N = E.shape, len(Y)
    if not N or L - p < FEWEST_FREE:
        return []
    correlation = correlation_of(Y - Y @ np.linalg.pinv(E).T @ E.T)
    return said_of_correlation(correlation, results) * (correlation - DEVIATIONS / (N * L) ** 0.5 > CORRELATED)


@np.errstate(over="ignore", invalid="ignore")  # of values near the largest
def misfit_beside_noise(
    left: np.ndarray, p: int, places: tuple[np.ndarray, np.ndarray], rmse: np.ndarray | None, lengths: np.ndarray
) -> Misfit | None:
    """Return the misfit of a run beside its noise; None where neighbours or bands are too few."""
    # ``left`` (N, L) are residuals by p endmembers without constraints, ``rmse`` (N,) those of the run, or None for the
    # same; ``places`` their lines and samples, in order; ``lengths`` |y| (N,).
    L, first = left.shape[1], np.flatnonzero((np.diff(places[0]) == 0) & (np.diff(places[1]) == 1))
    if len(first) < FEWEST_PAIRS or L - p < FEWEST_FREE:
        return None
    # Noise makes sums and differences of neighbours equally large; what they share is in the sums alone.
    both, differences = left[first] + left[first + 1], left[first] - left[first + 1]
    own, striped = without_stripes(differences, places[1][first])
    sums, differ, apart = (np.square(one).sum(axis=1) / 2 for one in (both, differences, own))
    middle = float(np.median(apart))
    if not LEAST_NOISE**2 * float(np.median(np.square(lengths))) < middle < np.inf:  # lines that repeat, no noise
        return None
    free = np.square(left).sum(axis=1)
    squares = free if rmse is None else np.square(rmse) * L
    prices = (
        squares - free
    )  # of constraints; where these do not bind, noise: at most χ² of p numbers, of two pixels' mean
    by_noise = middle / (L - p) * (p + DEVIATIONS * p**0.5)
    prices = np.maximum((prices[first] + prices[first + 1]) / 2 - by_noise, 0.0)
    limit = (2 * EXPLAINED**2 - 1) * middle
    shares = float(np.mean(sums + 2 * prices > limit)), float(np.mean(apart > limit))
    is_certain = shares[0] - shares[1] > DEVIATIONS * (sum(shares) / len(first)) ** 0.5
    over = float(np.median((sums + differ) / 2 + prices)) / middle
    noise, poor = middle / (L - p), squares > POOR**2 * np.square(lengths)
    faint = poor & (squares <= FAINT**2 * noise * L)
    dark = faint[first] & faint[first + 1]
    is_shared = dark.any() and np.median(sums[dark]) > (2 * EXPLAINED**2 - 1) * np.median(apart[dark])
    of_poor = 0.0 if is_shared else float(faint.sum() / max(1, poor.sum()))
    worse = float(np.mean(squares > WORSE**2 * np.percentile(squares, 90)))
    above = (shares[0] - shares[1]) * is_certain
    return Misfit(noise**0.5, over**0.5, above, of_poor, striped, correlation_of(own), worse=worse)


def without_stripes(differences: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, bool]:
    """Return differences of neighbours (n, L) less those of their columns (n,), as large as if none were shared."""
    # As they are, and False, where columns share no more than noise.
    _, which, counts = np.unique(columns, return_inverse=True, return_counts=True)
    means = np.zeros((len(counts), differences.shape[1]))
    np.add.at(means, which, differences)
    means /= counts[:, None]
    own, free = differences - means[which], np.maximum(counts - 1, 1)
    shared = counts * np.square(means).sum(axis=1)
    single = np.bincount(which, np.square(own).sum(axis=1)) / free
    lines, beyond = np.median(counts), np.median(shared) / max(float(np.median(single)), 1e-300) - 1.0
    if lines < FEWEST_LINES or not beyond > max(LEAST_BEYOND, STRIPED * lines):
        return differences, False
    return own * np.sqrt(counts / free)[which, None], True
