"""Verify proved ranges: the ends of some pixels again, by scipy."""

import numpy as np

from ...commands.verify.derived import FRACTION_TOLERANCE, ModelCheck
from ...commands.verify.maps import MAP_TOLERANCE
from ...commands.verify.solved import SolvedScene
from ...io.fields import NODATA
from ...reference.abundances import fcls, nnls
from .calibration import SURE, Calibration
from .definition import largest, largest_fraction, largest_of_models
from .limit import ALWAYS_FITS, FitLimit

# Ends that are found again, some seconds' work, unless all pixels are asked for.
MOST_ENDS = 1000
# The same of models, whose ends take longer.
MOST_ENDS_OF_MODELS = 500
# Rounding of a squared error, as a share of the pixel's square.
ERROR_ROUNDING = 1e-10
# By which share an abundance of three deviations may be off in maps.
UNSURE = 1e-5
# By how much an end may be off, as a share of its range, and absolutely: both are found to 1e-7 or better, from abundances as written.
SHARE_OF_RANGE, LEAST_DIFFERENCE = 1e-4, 5 * MAP_TOLERANCE


class RangeCheck:
    """The ranges of a run, found again.

    Parameters
    ----------
    solved : SolvedScene
    everything : bool
        Look at all pixels.
    pixels : int
        How many pixels will be asked for; if they have more than `MOST_ENDS` ends, some of them are looked at, evenly spread.
    """

    def __init__(self, solved: SolvedScene, everything: bool, pixels: int) -> None:
        asked, library = solved.asked, solved.library
        assert solved.method is not None
        within = asked.get("within")
        confidence, together = asked.get("confidence"), bool(asked.get("simultaneous"))
        self.limit = FitLimit(None if within is None else float(within), confidence, together)
        self.has_sum = solved.method.constraint.sum_to_one or solved.has_shade
        self.noise = solved.noise if confidence is not None else None
        self.noise_cube = solved.noise_cube if confidence is not None else None
        self.step = float(asked.get("quantize") or 0.0)  # by which ends are rounded outwards at most, but for rounding
        self.E = library.matrix
        materials = len(library.names) - solved.has_shade
        own = (library.classes or ())[:materials] if asked["ranges"] == "class" else tuple(map(str, range(materials)))
        self.names = tuple(dict.fromkeys(own))
        shade = np.zeros((len(self.names), int(solved.has_shade)))
        self.quantities = np.hstack([[[float(kind == name) for kind in own] for name in self.names], shade])
        normalized = solved.w is not None or (asked["ranges"] == "class" and bool(asked.get("shade_normalize")))
        self.w = solved.weights_of_sums if normalized else None
        M = self.E - self.E.mean(axis=1, keepdims=True) if self.has_sum else self.E
        white = self.E if self.noise is None else self.E / self.noise[:, None]
        self.calibration = Calibration.of(self.limit, white, self.has_sum, self.quantities, self.w)
        self.is_defined = bool(np.linalg.matrix_rank(M) == self.E.shape[1] - self.has_sum)
        most = 1.0 if everything else MOST_ENDS / (2 * len(self.names) * max(1, pixels))
        self.share, self.due = min(1.0, most) if self.is_defined else 0.0, 0.5

    def wrong(
        self, written: np.ndarray, A: np.ndarray, Y: np.ndarray, line: int, places: np.ndarray, blur: float
    ) -> np.ndarray:
        """Return which pixels (n, L) have other ranges (bands, n) than they should, of those that are looked at."""
        wrong, cube = np.zeros(len(Y), bool), self.noise_cube
        each = None if cube is None else cube.read(line, 1)[places]
        self.due += self.share * len(Y)
        count = min(len(Y), int(self.due))
        self.due -= count
        for n in np.linspace(0, len(Y) - 1, count).round().astype(int):
            noise = self.noise if each is None else each[n]
            wrong[n] = self.is_wrong(written[:, n].astype(float).reshape(-1, 2), Y[n], noise)
        return wrong

    def is_wrong(self, written: np.ndarray, y: np.ndarray, noise: np.ndarray | None) -> bool:
        """Return whether the ranges (k, 2) of a pixel (L,) are others than they should be, for noise of its bands."""
        if noise is not None and not np.isfinite(noise).all():
            return bool((written != NODATA).any())
        E, y = (self.E, y) if noise is None else (self.E / noise[:, None], y / noise)
        best = (fcls if self.has_sum else nnls)(E, y)
        square, L = float(np.square(y - E @ best).sum()), len(y)
        scale = 1.0
        if self.limit.confidence is not None and noise is None:
            free = L - int(np.count_nonzero(best)) + int(self.has_sum)
            if free <= 0:  # no residual shows the pixel's noise
                return bool((written != NODATA).any())
            scale = square / free
        # The noise of a pixel, in the unit of that which its limit was simulated for.
        sigma = np.sqrt(scale if noise is None or noise is self.noise else np.square(noise).mean())
        shares, above = np.array([square / scale if scale > 0 else 0.0]), list[np.ndarray | None]([None])
        if self.calibration is not None:  # an abundance may be of just as many deviations as decide the limit
            above = [self.calibration.limits(best[None], sigma, SURE * (1.0 + off)) for off in (-UNSURE, UNSURE)]
        limits = {scale * float(self.limit.most(shares, L, one)[0]) for one in above}
        return all(self.is_beyond(written, E, y, best, most) for most in limits)

    def is_beyond(self, written: np.ndarray, E: np.ndarray, y: np.ndarray, best: np.ndarray, most: float) -> bool:
        """Return whether the ranges (k, 2) of a pixel are others than those of mixtures with |r|² of at most ``most``."""
        square, rho = (
            float(np.square(y - E @ best).sum()),
            0.5 * max(most, (ALWAYS_FITS * float(np.linalg.norm(y))) ** 2),
        )
        if rho <= 0.5 * square or (self.w is not None and not self.w @ best > 0):
            return bool((written != NODATA).any())
        for (lower, upper), c in zip(written, self.quantities):
            room = SHARE_OF_RANGE * (upper - lower) + LEAST_DIFFERENCE * max(1.0, upper) + 2.0 * self.step
            found = [self.end(E, y, sign * c, rho) for sign in (-1.0, 1.0)]
            if not np.isnan(found).any() and max(abs(lower + found[0]), abs(upper - found[1])) > room:
                return True
        return False

    def end(self, E: np.ndarray, y: np.ndarray, c: np.ndarray, rho: float) -> float:
        """Return the largest value of a quantity, or of its fraction; NaN where a mixture without light fits."""
        if self.w is None:
            return largest(E, y, c, rho, self.has_sum)
        return largest_fraction(E, y, c * self.w, self.w, rho, self.has_sum)


class ModelRangeCheck:
    """The ranges over the mixtures of models of a run, found again: of the first pixels alone, but for ``everything``."""

    def __init__(self, checked: ModelCheck, everything: bool) -> None:
        self.checked, self.ends_left = checked, 2**62 if everything else MOST_ENDS_OF_MODELS

    def is_right(self, y: np.ndarray, written: dict[str, np.ndarray], within: float) -> bool:
        """Return whether the ranges of a pixel are those of all mixtures whose RMSE is within that of the chosen model.

        The RMSE is as it was written: a range is right if it lies between those of a limit a little lower and a little higher.
        """
        if self.ends_left <= 0:
            return True
        ends, own, size = written["range"].astype(float).reshape(-1, 2), float(written["rmse"][0]), float(y @ y)
        step = float(self.checked.solved.asked.get("quantize") or 0.0)
        if own > self.checked.models.choice.largest_rmse * (1 + 1e-6):  # shade alone, which is no model then
            return bool((ends == NODATA).all())
        limit = min((own + within) ** 2, self.checked.models.choice.largest_rmse**2) * len(y)
        slack = 1e-6 * limit + ERROR_ROUNDING * size
        if self.checked.models.normalized and abs(size - limit) <= slack:
            return True
        if self.checked.models.normalized and size <= limit:
            return bool((np.abs(ends - (0, 1)) <= step + FRACTION_TOLERANCE).all())
        self.ends_left -= ends.size
        for kind, (lower, upper) in zip(self.checked.models.members, ends):
            room = SHARE_OF_RANGE * (upper - lower) + LEAST_DIFFERENCE + step
            for end, sign in ((-lower, -1.0), (upper, 1.0)):
                inner = largest_of_models(self.checked.models, y, kind, sign, 0.5 * (limit - slack))
                if not end >= inner - room:
                    return False
                if end > inner + room and end > room + largest_of_models(
                    self.checked.models, y, kind, sign, 0.5 * (limit + slack)
                ):
                    return False
        return True
