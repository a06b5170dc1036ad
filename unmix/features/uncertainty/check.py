"""Verify standard deviations, by their definition."""

from typing import Any

import numpy as np

from ...io.fields import NODATA
from ...reference.fractions import Classes
from ...reference.models import SAME_ABUNDANCE, gap_of
from .definition import covariance, deviations_of_sums

# Abundances below this may belong to the support of one solution, and not to that of another.
LARGEST_UNSURE_ABUNDANCE = 1e-6
DEVIATION_TOLERANCE = 1e-4
# A residual below this share of the pixel may be the rounding of maps to float32: it tells no noise.
EXACT = 1e-6
# Rounding of a squared error, as a share of the pixel's square; largest difference of two equal fractions.
ERROR_ROUNDING, SAME_FRACTION = 1e-10, 1e-8
LARGEST_RMSE = 1e150  # its square is a number


class DeviationCheck:
    """The deviations of a run, found again; ``solved`` is an `unmix.commands.verify.solved.SolvedScene`."""

    def __init__(self, solved: Any, everything: bool, pixels: int) -> None:
        self.solved = solved

    def wrong(
        self, written: np.ndarray, A: np.ndarray, Y: np.ndarray, line: int, places: np.ndarray, blur: float
    ) -> np.ndarray:
        """See `unmix.features.OwnMap`."""
        cube = self.solved.noise_cube
        return wrong_deviations(written, self.solved, A, Y, None if cube is None else cube.read(line, 1)[places])


def wrong_deviations(
    written: np.ndarray, solved: Any, A: np.ndarray, Y: np.ndarray, each: np.ndarray | None
) -> np.ndarray:
    """Return which pixels (n, L) have other standard deviations (bands, n) than they should, as far as these are known.

    ``each`` is the noise of each pixel (n, L), NaN where it is missing; None where all have the same.
    """
    E, w = solved.library.matrix, solved.weights_of_sums
    assert solved.method is not None
    constraint = solved.method.constraint
    classes = None if solved.asked.get("by") is None else solved.classes
    if classes is None and solved.w is not None:  # fractions: each endmember is a class
        materials = E.shape[1] - solved.has_shade
        classes = Classes(solved.library.names[:materials], tuple([j] for j in range(materials)), w, True)
    shade = solved.has_shade and solved.w is None
    wrong = np.zeros(len(A), bool)
    for n, (a, y) in enumerate(zip(A, Y)):
        noise = solved.noise if each is None else each[n]
        if constraint.has_bounds and a[a > 0].min(initial=1.0) < LARGEST_UNSURE_ABUNDANCE:
            continue
        if each is not None and not np.isfinite(each[n]).all():
            wrong[n] = np.any(written[:, n] != NODATA)
            continue
        F, C, alone = covariance(E, y, a, noise, *constraint.flags)
        if noise is None and len(E) - len(F) + constraint.sum_to_one <= 0:  # no residual shows its noise
            wrong[n] = np.any(written[:, n] != NODATA)
            continue
        if classes is not None and classes.normalized and not w @ a > 0:
            wrong[n] = np.any(written[: len(classes.names), n] != NODATA)
            continue
        if C is None or (noise is None and np.linalg.norm(y - E @ a) <= EXACT * np.linalg.norm(y)):
            continue
        if classes is None:
            found, expected = written[F, n], np.sqrt(np.diag(C))
        else:
            count = len(classes.names)
            found = written[[*range(count), count + shade], n]
            expected = np.append(*deviations_of_sums(classes, a, F, C, alone))
        limit = DEVIATION_TOLERANCE * expected + 1e-7 * np.abs(a).max(initial=0.0)
        wrong[n] = np.any(np.abs(found - expected) > limit)  # a deviation that is not known, NaN, exceeds no limit
    return wrong


class Spread:
    """The numbers over models of a run, found again; ``checked`` is an `unmix.commands.verify.derived.ModelCheck`."""

    def __init__(self, checked: Any, everything: bool) -> None:
        self.checked = checked

    def is_right(self, y: np.ndarray, written: dict[str, np.ndarray], within: float) -> bool:
        """Return whether the numbers over the models that fit nearly as well are right, as far as rounding lets this be told.

        A model may fall on either side of a limit. So those that surely count are found, and those that may: what was written has to
        lie between, and to be equal where they are the same.

        Parameters
        ----------
        y : array (L,), float64
        written : dict of arrays
            The pixel in the maps model, fraction, rmse and spread.
        within : float
            By how much the RMSE of a model may be larger than that of the chosen one.
        """
        spread, size = written["spread"].astype(float), float(np.square(y).mean())
        count, numbers = spread[1], spread[2:].reshape(-1, 4)
        exact, is_used = self.checked.models.choice.limits == "exact", written["model"] > 0
        if exact:
            fractions = np.abs(written["fraction"][: len(is_used)])
            is_used &= fractions > SAME_ABUNDANCE * fractions.sum()
        chosen, own = int(np.count_nonzero(is_used)), float(written["rmse"][0])
        has_model = chosen > 0 or (exact and own <= self.checked.models.choice.largest_rmse * (1 + 1e-6))
        if not has_model:
            return bool(count == 0 and (np.delete(spread, 1) == NODATA).all())
        sure, maybe = self.checked.models.all_fits(y, -SAME_FRACTION), self.checked.models.all_fits(y, SAME_FRACTION)
        bound = (own + min(within, LARGEST_RMSE)) ** 2
        slack = ERROR_ROUNDING * size + 3e-7 * bound
        fewest, inner = self.checked.models.numbers_of(sure, bound - slack)
        most, outer = self.checked.models.numbers_of(maybe, bound + slack)
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
        error = min(np.sqrt(blur), blur / max(own, 1e-300)) + 1e-6 * max(gaps) + 1e-7 * own
        return bool(min(gaps) - error <= spread[0] <= max(gaps) + error)
