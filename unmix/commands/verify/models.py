"""Verify maps of MESMA: the models of some pixels chosen again, and the models that fit nearly as well."""

import numpy as np

from ...methods import ModelChoice
from ...reference.models import SAME_ABUNDANCE, Models, gap_of, rms
from ...reference.ranges import largest_of_models
from .maps import NODATA, Maps, Verdict
from .ranges import LEAST_DIFFERENCE, SHARE_OF_RANGE
from .solved import SolvedScene

# Models times pixels that are fitted again, about a minute's work.
MOST_FITS = 2_000_000
FRACTION_TOLERANCE = 2e-6
# The search knows an RMSE to this share of the pixel's, since it is the root of a difference: a limit may fall either way.
SLACK = 1e-7
# An RMSE nearer than this share of the pixel's counts as the same: its square is 1e-11 of it.
SAME_RMSE = 3.2e-6
# Rounding of a squared error, as a share of the pixel's square; largest difference of two equal fractions.
ERROR_ROUNDING, SAME_FRACTION = 1e-10, 1e-8
LARGEST_RMSE = 1e150  # its square is a number
# Ends of ranges that are found again, a minute's work, unless all pixels are asked for.
MOST_ENDS = 500


class ModelCheck:
    """All models of a library, compared with those that a run chose.

    Parameters
    ----------
    solved : SolvedScene
    everything : bool
        Find the ranges of all pixels again, rather than of the first ones that are asked for, up to `MOST_ENDS` ends.
    """

    def __init__(self, solved: SolvedScene, everything: bool) -> None:
        choice, normalized = ModelChoice(**solved.asked["choice"]), bool(solved.asked["shade_normalize"])
        self.solved = solved
        self.models = Models(solved.library.matrix, solved.library.classes or (), choice, normalized)
        self.ends_left = 2**62 if everything else MOST_ENDS

    def check(self, maps: Maps, line: int, places: np.ndarray, verdict: Verdict) -> None:
        """Choose the models of some pixels of a line again and compare."""
        Y, masked = self.solved.pixels(line, places)
        names = ("model", "fraction", "rmse", *(name for name in ("spread", "range") if name in maps))
        written = {name: maps.line(name, line)[:, places] for name in names}
        wrong: dict[str, list[int]] = {}
        verdict.pixels += len(places)
        blur, within = maps.blur("fraction"), float(self.solved.asked.get("within", 0.0))
        for n, place in enumerate(places):
            row = {name: values[:, n] for name, values in written.items()}
            if masked[n]:
                if any((values != NODATA).any() for values in row.values()):
                    wrong.setdefault("is masked, but not nodata", []).append(int(place))
                continue
            tried = (self.compare(Y[n], row, slack, blur) for slack in (0.0, SLACK, -SLACK))
            off = next((one for one in tried if one < np.inf), np.inf)
            if off == np.inf:
                wrong.setdefault("is not the best model", []).append(int(place))
                continue
            verdict.worst_abundance = max(verdict.worst_abundance, off)
            if "spread" in row and not self.is_spread(Y[n], row, within):
                fault = "has another spread over the models that fit nearly as well"
                wrong.setdefault(fault, []).append(int(place))
            if "range" in row and self.ends_left > 0 and not self.has_ranges(Y[n], row, within):
                wrong.setdefault("its ranges are not those of all mixtures that fit", []).append(int(place))
        for fault, some in wrong.items():
            verdict.accuse(maps.stem, line, some, fault)

    def compare(self, y: np.ndarray, written: dict[str, np.ndarray], slack: float, blur: float) -> float:
        """Return by how much the fractions of a pixel are off, infinite where it should have another model."""
        least, a = self.models.best(y, slack)
        expected, numbers = self.models.maps_of(a)
        off = float(np.abs(written["fraction"] - expected).max())
        if abs(float(written["rmse"][0]) - least) > 1e-6 * least + 2e-8 * rms(y):
            return np.inf
        if off <= tolerance_of(expected) + blur and np.array_equal(numbers, written["model"]):
            return off
        return 0.0 if self.equals(y, written["model"], written["fraction"], least, blur) else np.inf

    def equals(self, y: np.ndarray, numbers: np.ndarray, fractions: np.ndarray, least: float, blur: float) -> bool:
        """Return whether another model was written that fits as well as the best, with its own fractions."""
        columns = [int(number) - 1 for number in numbers if number > 0]
        if not columns:
            return False
        A = self.models.E[:, columns]
        free, along = np.linalg.lstsq(A, y, rcond=None)[0], np.linalg.pinv(A) @ np.linalg.pinv(A).T.sum(axis=1)
        for fitted in (free, free + (1 - free.sum()) / along.sum() * along):
            a = np.zeros(self.models.E.shape[1])
            a[columns] = fitted
            expected = self.models.maps_of(a)[0]
            is_as_good = rms(y - A @ fitted) <= least + SAME_RMSE * rms(y)
            if is_as_good and np.abs(fractions - expected).max() <= tolerance_of(expected) + blur:
                return True
        return False

    def is_spread(self, y: np.ndarray, written: dict[str, np.ndarray], within: float) -> bool:
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
        exact, is_used = self.models.choice.limits == "exact", written["model"] > 0
        if exact:
            fractions = np.abs(written["fraction"][: len(is_used)])
            is_used &= fractions > SAME_ABUNDANCE * fractions.sum()
        chosen, own = int(np.count_nonzero(is_used)), float(written["rmse"][0])
        has_model = chosen > 0 or (exact and own <= self.models.choice.largest_rmse * (1 + 1e-6))
        if not has_model:
            return bool(count == 0 and (np.delete(spread, 1) == NODATA).all())
        sure, maybe = self.models.all_fits(y, -SAME_FRACTION), self.models.all_fits(y, SAME_FRACTION)
        bound = (own + min(within, LARGEST_RMSE)) ** 2
        slack = ERROR_ROUNDING * size + 3e-7 * bound
        fewest, inner = self.models.numbers_of(sure, bound - slack)
        most, outer = self.models.numbers_of(maybe, bound + slack)
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

    def has_ranges(self, y: np.ndarray, written: dict[str, np.ndarray], within: float) -> bool:
        """Return whether the ranges of a pixel are those of all mixtures whose RMSE is within that of the chosen model.

        The RMSE is as it was written: a range is right if it lies between those of a limit a little lower and a little higher.
        """
        ends, own, size = written["range"].astype(float).reshape(-1, 2), float(written["rmse"][0]), float(y @ y)
        step = float(self.solved.asked.get("quantize") or 0.0)
        if own > self.models.choice.largest_rmse * (1 + 1e-6):  # shade alone, which is no model then
            return bool((ends == NODATA).all())
        limit = min((own + within) ** 2, self.models.choice.largest_rmse**2) * len(y)
        slack = 1e-6 * limit + ERROR_ROUNDING * size
        if self.models.normalized and abs(size - limit) <= slack:
            return True
        if self.models.normalized and size <= limit:
            return bool((np.abs(ends - (0, 1)) <= step + FRACTION_TOLERANCE).all())
        self.ends_left -= ends.size
        for kind, (lower, upper) in zip(self.models.members, ends):
            room = SHARE_OF_RANGE * (upper - lower) + LEAST_DIFFERENCE + step
            for end, sign in ((-lower, -1.0), (upper, 1.0)):
                inner = largest_of_models(self.models, y, kind, sign, 0.5 * (limit - slack))
                if not end >= inner - room:
                    return False
                if end > inner + room and end > room + largest_of_models(
                    self.models, y, kind, sign, 0.5 * (limit + slack)
                ):
                    return False
        return True


def tolerance_of(fractions: np.ndarray) -> float:
    """Return by how much fractions of a pixel may be off."""
    return FRACTION_TOLERANCE * max(1.0, float(np.abs(fractions).max()))
