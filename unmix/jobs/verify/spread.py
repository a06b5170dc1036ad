"""Verify what MESMA says about the models that fit a pixel nearly as well: every model again, by least squares of its own."""

from typing import Any, NamedTuple

import numpy as np

from ...io.export import NODATA

# A squared error is known to this share of the pixel's, and a fraction to this.
ROUNDING, SAME_FRACTION = 1e-10, 1e-8
# Abundances that differ by less are of the same model.
SAME_ABUNDANCE = 1e-6


class Fits(NamedTuple):
    """Models of a pixel that the limits allow."""

    sizes: np.ndarray  # (M,) spectra of each
    abundances: np.ndarray  # (M, p)
    rmse: np.ndarray  # (M,)


def all_fits(check: Any, y: np.ndarray, margin: float) -> Fits:
    """Return all models; fractions may be ``margin`` beyond a limit."""
    fewest, most = check.choice.sizes
    exact, p = check.choice.limits == "exact", check.E.shape[1]
    size = float(np.sqrt(np.square(y).mean()))
    is_dark = exact and size < check.choice.largest_rmse
    sizes, rows, errors = [np.zeros(int(is_dark), int)], [np.zeros((int(is_dark), p))], [np.full(int(is_dark), size)]
    check.margin = margin
    for k in range(1 if exact else fewest, most + 1):
        for columns, fractions, rmse in check.fits(y, k):
            if exact:  # a mixture with a fraction of 0 is one of fewer spectra
                used = fractions.min(axis=1) > SAME_ABUNDANCE - margin
                columns, fractions, rmse = columns[used], fractions[used], rmse[used]
            row = np.zeros((len(rmse), p))
            np.put_along_axis(row, columns, fractions, axis=1)
            sizes.append(np.full(len(rmse), k))
            rows.append(row)
            errors.append(rmse)
    check.margin = 0.0
    return Fits(np.concatenate(sizes), np.concatenate(rows), np.concatenate(errors))


def numbers_of(check: Any, fits: Fits, bound: float) -> tuple[int, np.ndarray]:
    """Return how many models have at most this squared error, and mean, deviation, least and largest of each class and shade."""
    A = fits.abundances[np.square(fits.rmse) <= bound]
    if check.sums.normalized:
        A = A[A.sum(axis=1) > 0]
    if not len(A):
        return 0, np.full((len(check.sums.names) + 1, 4), NODATA)
    fractions = check.sums.fractions(A.T[None], np.zeros((1, len(A)), bool))[0, :-1].astype(float)
    parts = fractions.mean(axis=1), fractions.std(axis=1), fractions.min(axis=1), fractions.max(axis=1)
    return len(A), np.stack(parts, axis=1)


def gap_of(fits: Fits, size: int) -> float:
    """Return by how much the RMSE of the second best model of so many spectra is larger; `NODATA` if there is none."""
    own = fits.sizes == size
    if size == 0 or not own.any():
        return NODATA
    rmse, A = fits.rmse[own], fits.abundances[own]
    others = np.abs(A - A[rmse.argmin()]).max(axis=1) > SAME_ABUNDANCE
    return float(rmse[others].min() - rmse.min()) if others.any() else NODATA


def is_spread(check: Any, y: np.ndarray, written: dict[str, np.ndarray], within: float) -> bool:
    """Return whether the numbers over the models that fit nearly as well are right, as far as rounding lets this be told.

    A model may fall on either side of a limit. So those that surely count are found, and those that may: what was written has to lie
    between, and to be equal where they are the same.

    Parameters
    ----------
    check : ModelCheck
    y : array (L,), float64
    written : dict of arrays
        The pixel in the maps model, rmse and spread.
    within : float
        By how much the RMSE of a model may be larger than that of the chosen one.
    """
    spread, size = written["spread"].astype(float), float(np.square(y).mean())
    count, numbers = spread[1], spread[2:].reshape(-1, 4)
    sure, maybe = all_fits(check, y, -SAME_FRACTION), all_fits(check, y, SAME_FRACTION)
    is_used = written["model"] > 0
    if check.choice.limits == "exact":
        is_used &= np.abs(written["fraction"][: len(is_used)]) > SAME_ABUNDANCE
    chosen, rmse = int(np.count_nonzero(is_used)), float(written["rmse"][0])
    if chosen == 0 and not (check.choice.limits == "exact" and rmse < check.choice.largest_rmse):
        return bool(count == 0 and (np.delete(spread, 1) == NODATA).all())
    bound, slack = (rmse + within) ** 2, ROUNDING * size + 3e-7 * (rmse + min(within, 1e9)) ** 2
    fewest, inner = numbers_of(check, sure, bound - slack if np.isfinite(bound) else bound)
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
    error = min(np.sqrt(ROUNDING * size), ROUNDING * size / max(rmse, 1e-300)) + 1e-6 * max(gaps) + 1e-7 * rmse
    return bool(min(gaps) - error <= spread[0] <= max(gaps) + error)
