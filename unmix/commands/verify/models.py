"""Verify maps of MESMA: the models of some pixels chosen again, and the models that fit nearly as well."""

import numpy as np

from ...features.runs import own_maps
from ...methods import ModelChoice
from ...reference.models import Models, rms
from .maps import NODATA, Maps, Verdict
from .solved import SolvedScene

# Models times pixels that are fitted again, about a minute's work.
MOST_FITS = 2_000_000
FRACTION_TOLERANCE = 2e-6
# The search knows an RMSE to this share of the pixel's, since it is the root of a difference: a limit may fall either way.
SLACK = 1e-7
# An RMSE nearer than this share of the pixel's counts as the same: its square is 1e-11 of it.
SAME_RMSE = 3.2e-6


class ModelCheck:
    """All models of a library, compared with those that a run chose.

    Parameters
    ----------
    solved : SolvedScene
    everything : bool
        Look at all pixels, of which maps of features may take long.
    maps : Maps
    """

    def __init__(self, solved: SolvedScene, everything: bool, maps: Maps) -> None:
        choice, normalized = ModelChoice(**solved.asked["choice"]), bool(solved.asked["shade_normalize"])
        self.solved = solved
        self.models = Models(solved.library.matrix, solved.library.classes or (), choice, normalized)
        self.own = {name: one.of_models(self, everything) for name, one in own_maps().items() if name in maps}

    def check(self, maps: Maps, line: int, places: np.ndarray, verdict: Verdict) -> None:
        """Choose the models of some pixels of a line again and compare."""
        Y, masked = self.solved.pixels(line, places)
        names = ("model", "fraction", "rmse", *self.own)
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
            for fault in (
                own_maps()[name].differs for name, one in self.own.items() if not one.is_right(Y[n], row, within)
            ):
                wrong.setdefault(fault, []).append(int(place))
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


def tolerance_of(fractions: np.ndarray) -> float:
    """Return by how much fractions of a pixel may be off."""
    return FRACTION_TOLERANCE * max(1.0, float(np.abs(fractions).max()))
