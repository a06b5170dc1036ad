"""Verify standard deviations, by their definition."""

from typing import Any

import numpy as np

from ...io.fields import NODATA
from ...reference.fractions import Classes
from .definition import covariance, deviations_of_sums

# Abundances below this may belong to the support of one solution, and not to that of another.
LARGEST_UNSURE_ABUNDANCE = 1e-6
DEVIATION_TOLERANCE = 1e-4
# A residual below this share of the pixel may be the rounding of maps to float32: it tells no noise.
EXACT = 1e-6


class Deviations:
    """The deviations of a run, found again; ``solved`` is an `unmix.commands.verify.solved.SolvedScene`."""

    def __init__(self, solved: Any, everything: bool) -> None:
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
