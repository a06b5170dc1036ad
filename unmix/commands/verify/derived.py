"""Verify the maps that are made of abundances: sums by class, classes, RMSE without weights.

Verify maps of MESMA: the models of some pixels chosen again, and the models that fit nearly as well.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...features.runs import own_maps
from ...maps.raster import blank_of
from ...methods import ModelChoice
from ...reference.abundances import rmse
from ...reference.fractions import Classes, reflectance
from ...reference.models import EveryModel, rms
from ...scene.albedo import geometry_of
from .maps import MAP_TOLERANCE, NODATA, Maps, Verdict
from .solved import SolvedScene

# Below this sum of abundances its quotients are not known to the tolerance.
DARK = 1e-4


def check_derived(
    maps: Maps, solved: SolvedScene, own: Mapping[str, Any], line: int, places: np.ndarray,
    Y: np.ndarray, A: np.ndarray, verdict: Verdict,
) -> None:  # fmt: skip
    """Compute what is made of the abundances (n, p) of some pixels (n, L) of a line again and compare; ``own`` does for features."""
    if "unweighted" in maps:
        wrong = wrong_without_weights(maps.line("unweighted", line)[0, places], solved, Y, A)
        verdict.accuse(maps.stem, line, places[wrong], "its RMSE without weights does not match the cube")
    if "reflectance" in maps:
        wrong = wrong_reflectance(maps.line("reflectance", line)[0, places], solved, Y, A)
        verdict.accuse(maps.stem, line, places[wrong], "its RMSE of reflectance does not match the cube")
    if solved.method is None:
        return
    for name, one in own.items():
        wrong = one.wrong(maps.line(name, line)[:, places], A, Y, line, places, maps.blur(name))
        verdict.accuse(maps.stem, line, places[wrong], own_maps()[name].differs)
    if "fraction" in maps:
        written = maps.line("fraction", line)[:, places]
        wrong = wrong_sums(written, solved.classes, A, solved.has_shade and solved.w is None, maps.blur("fraction"))
        verdict.accuse(maps.stem, line, places[wrong], "its sums by class do not match the cube")


def wrong_without_weights(written: np.ndarray, solved: SolvedScene, Y: np.ndarray, A: np.ndarray) -> np.ndarray:
    """Return which pixels have another RMSE (n,) than they should without the weights of the bands."""
    E, weights = solved.plain_library.matrix, np.ones(Y.shape[1]) if solved.weights is None else solved.weights
    truth = rmse(Y / weights, E, A)
    # Abundances within the tolerance may leave a residual of that size where weights are small.
    limit = 1e-6 * truth + MAP_TOLERANCE * np.abs(E).max() * np.maximum(1, np.abs(A).sum(axis=1))
    return ~(np.abs(written - truth) <= limit)


def wrong_reflectance(written: np.ndarray, solved: SolvedScene, Y: np.ndarray, A: np.ndarray) -> np.ndarray:
    """Return which pixels of albedo have another RMSE (n,) of the reflectance than they should."""
    cosines = geometry_of(solved.report["reading"]["albedo"])
    E = solved.plain_library.matrix
    weights = np.ones(len(E)) if solved.weights is None else solved.weights
    Y = Y[:, : len(E)]  # without the rows of a penalty
    of_albedo = np.vectorize(lambda w: reflectance(min(w, 1.0), *cosines), otypes=[float])
    truth = np.sqrt(np.square(of_albedo(Y / weights) - of_albedo(A @ E.T)).mean(axis=1))
    # Reflectance grows without bound by albedo near 1 (as 1/γ), so that there abundances within the tolerance leave more.
    slope = 1 / np.sqrt(np.maximum(1e-6, 1 - np.clip((A @ E.T).max(axis=1), 0, 1)))
    limit = 1e-6 * truth + MAP_TOLERANCE * slope * np.abs(E).max() * np.maximum(1, np.abs(A).sum(axis=1))
    return ~(np.abs(written - truth) <= limit)


def check_masked(maps: Maps, line: int, places: np.ndarray, verdict: Verdict) -> None:
    """Check that those pixels of a line that are masked have no values in the maps made of abundances."""
    places = places[maps.line("rmse", line)[0, places] == NODATA]
    for name in ("fraction", "class", "unweighted", "reflectance", "scale", *own_maps()):
        if name in maps:
            wrong = (maps.line(name, line)[:, places] != blank_of(name)).any(axis=0)
            verdict.accuse(maps.stem, line, places[wrong][:10], f"is masked, but has a {name}")


def check_classes(maps: Maps, count: int, line: int, places: np.ndarray, verdict: Verdict) -> None:
    """Compare the class of some pixels of a line with the sums by class, of which there are ``count``."""
    sums = maps.line("fraction", line)[:count, places].astype(float)
    chosen, most = maps.line("class", line)[0, places].astype(int), sums.max(axis=0)
    of_chosen = np.take_along_axis(sums, np.clip(chosen - 1, 0, count - 1)[None], axis=0)[0]
    limit = MAP_TOLERANCE * np.maximum(1, np.abs(most)) + 2 * maps.blur("fraction")
    wrong = np.where(chosen > 0, of_chosen < most - limit, most > limit)
    verdict.accuse(maps.stem, line, places[wrong | (chosen > count)], "its class has not the largest sum")


def wrong_sums(written: np.ndarray, classes: Classes, A: np.ndarray, shade: bool, blur: float) -> np.ndarray:
    """Return which pixels have other sums by class (bands, n) than they should; ``shade`` says whether the last but one is shade."""
    sums, total = classes.sums(A)
    lit = total > DARK
    expected = np.column_stack([sums, *([1 - total] if shade else []), total]).T
    compared = np.ones(expected.shape, bool)
    compared[: len(classes.names)] = lit | (not classes.normalized)
    tolerance = MAP_TOLERANCE / np.where(lit, np.minimum(total, 1), 1) * sum(map(len, classes.members))
    off = np.abs(written - expected) > tolerance * np.maximum(1, np.abs(expected)) + blur
    return (off & compared).any(axis=0)


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
        self.models = EveryModel(solved.library.matrix, solved.library.classes or (), choice, normalized)
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
