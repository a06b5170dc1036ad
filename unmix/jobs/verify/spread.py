"""Verify what MESMA says about the models that fit a pixel nearly as well: every model again, by least squares of its own."""

from typing import Any, NamedTuple

import numpy as np

from ...io.export import NODATA

# Rounding of a squared error, as a share of the pixel's square; largest difference of two equal fractions.
ERROR_ROUNDING, SAME_FRACTION = 1e-10, 1e-8
# Abundances closer than this are equal; smaller ones are zero.
SAME_ABUNDANCE = 1e-6
LARGEST_RMSE = 1e150  # its square is a number


class Fits(NamedTuple):
    """Models of a pixel that the limits allow; of those with fewer than three spectra the last columns are −1."""

    sizes: np.ndarray  # (M,) spectra of each
    columns: np.ndarray  # (M, 3) their numbers
    amounts: np.ndarray  # (M, 3) their abundances
    rmse: np.ndarray  # (M,)

    def take(self, which: np.ndarray) -> "Fits":
        """Return some of the models."""
        return Fits(*(values[which] for values in self))


def all_fits(check: Any, y: np.ndarray, margin: float) -> Fits:
    """Return all models; fractions may be ``margin`` beyond a limit."""
    fewest, most = check.choice.sizes
    exact = check.choice.limits == "exact"
    size = float(np.sqrt(np.square(y).mean()))
    dark = int(exact and size <= check.choice.largest_rmse * (1 + 1e-9))  # shade alone
    parts = [Fits(np.zeros(dark, int), np.full((dark, 3), -1), np.zeros((dark, 3)), np.full(dark, size))]
    check.margin = margin
    for k in range(1 if exact else fewest, most + 1):
        for columns, fractions, rmse in check.fits(y, k):
            used = np.ones(len(rmse), bool)
            if exact:  # a mixture with a fraction of 0 is one of fewer spectra
                used = fractions.min(axis=1) > (SAME_ABUNDANCE - margin) * fractions.sum(axis=1)
            wide = ((0, 0), (0, 3 - k))
            parts.append(Fits(
                np.full(int(used.sum()), k), np.pad(columns[used], wide, constant_values=-1), np.pad(fractions[used], wide), rmse[used]
            ))  # fmt: skip
    check.margin = 0.0
    return Fits(*(np.concatenate(values) for values in zip(*parts)))


def numbers_of(check: Any, fits: Fits, bound: float) -> tuple[int, np.ndarray]:
    """Return how many models have at most this squared error, and mean, deviation, least and largest of each class and shade."""
    fits = fits.take(np.square(fits.rmse) <= bound)
    total, normalized = fits.amounts.sum(axis=1), check.sums.normalized
    if normalized:
        fits, total = fits.take(total > 0), total[total > 0]
    if not len(total):
        return 0, np.full((len(check.sums.names) + 1, 4), NODATA)
    shares = fits.amounts / total[:, None] if normalized else fits.amounts
    fractions = [np.where(np.isin(fits.columns, members), shares, 0.0).sum(axis=1) for members in check.sums.members]
    rows = [*fractions, 1 - total]
    return len(total), np.array([[row.mean(), row.std(), row.min(), row.max()] for row in rows])


def gap_of(fits: Fits, size: int) -> float:
    """Return by how much the RMSE of the second best model of ``size`` spectra is larger; `NODATA` without one."""
    fits = fits.take(fits.sizes == size)
    if size == 0 or not len(fits.rmse):
        return NODATA
    best = int(fits.rmse.argmin())
    shared = fits.columns[:, :size, None] == fits.columns[best, :size]  # (M, their spectra, those of the best)
    theirs = fits.amounts[:, :size] - (shared * fits.amounts[best, :size]).sum(axis=2)
    lacked = np.where(shared.any(axis=1), 0.0, fits.amounts[best, :size])
    others = np.maximum(np.abs(theirs).max(axis=1), np.abs(lacked).max(axis=1)) > SAME_ABUNDANCE
    return float(fits.rmse[others].min() - fits.rmse[best]) if others.any() else NODATA


def is_spread(check: Any, y: np.ndarray, written: dict[str, np.ndarray], within: float) -> bool:
    """Return whether the numbers over the models that fit nearly as well are right, as far as rounding lets this be told.

    A model may fall on either side of a limit. So those that surely count are found, and those that may: what was written has to lie
    between, and to be equal where they are the same.

    Parameters
    ----------
    check : ModelCheck
    y : array (L,), float64
    written : dict of arrays
        The pixel in the maps model, fraction, rmse and spread.
    within : float
        By how much the RMSE of a model may be larger than that of the chosen one.
    """
    spread, size = written["spread"].astype(float), float(np.square(y).mean())
    count, numbers = spread[1], spread[2:].reshape(-1, 4)
    is_used = written["model"] > 0
    if check.choice.limits == "exact":
        fractions = np.abs(written["fraction"][: len(is_used)])
        is_used &= fractions > SAME_ABUNDANCE * fractions.sum()
    chosen, rmse = int(np.count_nonzero(is_used)), float(written["rmse"][0])
    has_model = chosen > 0 or (check.choice.limits == "exact" and rmse <= check.choice.largest_rmse * (1 + 1e-6))
    if not has_model:
        return bool(count == 0 and (np.delete(spread, 1) == NODATA).all())
    sure, maybe = all_fits(check, y, -SAME_FRACTION), all_fits(check, y, SAME_FRACTION)
    bound = (rmse + min(within, LARGEST_RMSE)) ** 2
    slack = ERROR_ROUNDING * size + 3e-7 * bound
    fewest, inner = numbers_of(check, sure, bound - slack)
    most, outer = numbers_of(check, maybe, bound + slack)
    if not fewest <= count <= most:
        return False
    near = 2e-5 * max(1.0, float(np.abs(outer).max()))
    if fewest == most and np.abs(numbers - inner).max() > near:
        return False
    if fewest > 0 and ((numbers[:, 2] > inner[:, 2] + near) | (numbers[:, 3] < inner[:, 3] - near)).any():
        return False
    if count > 0 and ((numbers[:, 2] < outer[:, 2] - near) | (numbers[:, 3] > outer[:, 3] + near)).any():
        return False
    gaps = gap_of(sure, chosen), gap_of(maybe, chosen)
    if NODATA in gaps or spread[0] == NODATA:
        return gaps[0] != gaps[1] or spread[0] == gaps[0]
    blur = ERROR_ROUNDING * size
    error = min(np.sqrt(blur), blur / max(rmse, 1e-300)) + 1e-6 * max(gaps) + 1e-7 * rmse
    return bool(min(gaps) - error <= spread[0] <= max(gaps) + error)
