"""Verify the maps that are made of abundances: sums by class, classes, standard deviations, means over draws, RMSE without weights."""

from typing import Any

import numpy as np

from ...errors import CubeError
from ...io import Bands, Cube, read_pixels
from ...io.window import origin_of
from ...library import Endmembers
from ...library.fractions import Normalization
from ...methods import Method
from ...outputs.maps.map_type import blank_of
from ...problem import Weighting
from ...scene import ReadOptions, name_for
from ..derived.noise import NoiseCube
from .deviations import wrong_deviations
from .draws import DrawCheck
from .maps import MAP_TOLERANCE, NODATA, Maps, Verdict
from .references import reference


def check_scatter(
    maps: Maps, report: dict[str, Any], scene: Cube, bands: Bands, library: Endmembers, method: Method, draws: DrawCheck | None,
    each: NoiseCube | None, line: int, solved: tuple[np.ndarray, np.ndarray], verdict: Verdict, shares: Normalization | None = None,
) -> None:  # fmt: skip
    """Compute standard deviations, and those over draws, of some pixels of a line again and compare."""
    places, best = solved
    Y, _ = read_pixels(scene, bands, None, line, places)
    wrong = {}
    if "sigma" in maps:
        written = maps.line("sigma", line)[:, places]
        noise = None if each is None else each.read(line, 1)[places]
        wrong["standard deviations"] = wrong_deviations(written, library, report, method, best, Y, noise, shares)
    if draws is not None:
        origin = origin_of(scene)
        wrong["means and deviations over draws"] = draws.wrong(
            maps.line("montecarlo", line)[:, places], best, Y, np.full(len(places), origin[0] + line), origin[1] + places,
            lambda drawn, E: reference(drawn, E, method, report["solver"]), maps.blur("montecarlo"),
        )  # fmt: skip
    for what, which in wrong.items():
        verdict.accuse(maps.stem, line, places[which], f"its {what} do not match the cube")


def noise_of_each(report: dict[str, Any], scene: Cube, bands: Bands) -> NoiseCube | None:
    """Return the noise of each pixel, where a run had it from a cube; `CubeError` where that is missing or another one."""
    identity = report.get("asked", {}).get("noise")
    if not isinstance(identity, dict):
        return None
    each = NoiseCube(name_for(report["options"]["noise"], scene.path), scene, bands, ReadOptions(**report["reading"]))
    if each.identity != identity:
        raise CubeError(f"{each.path}: is not the noise that the run read")
    weights = report["asked"].get("weights")
    return each if weights is None else each * np.array(weights)


def with_weighted_noise(report: dict[str, Any], weighting: Weighting) -> dict[str, Any]:
    """Return the record with the noise of the weighted bands."""
    noise = report["asked"].get("noise")
    noise = np.array(noise) * weighting.weights if isinstance(noise, list) else noise
    return report | {"asked": report["asked"] | {"noise": noise}, "weights": weighting.weights}


def check_unweighted(
    maps: Maps, scene: Cube, weighting: Weighting, line: int, solved: tuple[np.ndarray, np.ndarray], verdict: Verdict
) -> None:
    """Compute the RMSE of some pixels of a line without the weights of the bands again and compare."""
    places, best = solved
    Y, _ = read_pixels(scene, weighting.bands, None, line, places)
    truth = np.sqrt(np.square(Y - best @ weighting.endmembers.matrix.T).mean(axis=1))
    off = np.abs(maps.line("unweighted", line)[0, places] - truth)
    # Abundances within the tolerance may leave a residual of that size where weights are small.
    limit = 1e-6 * truth + MAP_TOLERANCE * np.abs(weighting.endmembers.matrix).max() * np.maximum(
        1, np.abs(best).sum(axis=1)
    )
    verdict.accuse(maps.stem, line, places[~(off <= limit)], "its RMSE without weights does not match the cube")


def check_masked(maps: Maps, line: int, places: np.ndarray, verdict: Verdict) -> None:
    """Check that those pixels of a line that are masked have no values in the maps made of abundances."""
    places = places[maps.line("rmse", line)[0, places] == NODATA]
    for name in ("fraction", "sigma", "montecarlo", "class", "unweighted", "scale"):
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


def check_fractions(
    maps: Maps, report: dict[str, Any], library: Endmembers, method: Method, line: int, solved: tuple[np.ndarray, np.ndarray],
    verdict: Verdict, shares: Normalization | None = None,
) -> None:  # fmt: skip
    """Sum the abundances of some pixels by class again and compare."""
    places, best = solved
    is_normalized = report["asked"]["shade_normalize"] or shares is not None
    best = best if shares is None else best * shares.weights
    materials = best[:, : best.shape[1] - method.has_shade]
    kinds = (library.classes or ())[: materials.shape[1]]
    sums = np.stack([materials[:, [kind == name for kind in kinds]].sum(axis=1) for name in dict.fromkeys(kinds)])
    brightness = materials.sum(axis=1)
    lit = brightness > 1e-4  # where it is smaller, its quotients are not known to the tolerance
    written = maps.line("fraction", line)[:, places]
    expected = sums / np.where(lit, brightness, 1) if is_normalized else sums
    rest = [1 - brightness] * (method.has_shade and shares is None) + [brightness]
    expected = np.vstack([expected, *rest])
    compared = np.ones_like(expected, bool)
    compared[: len(sums)] = lit | (not is_normalized)
    tolerance = np.where(lit, MAP_TOLERANCE / np.minimum(np.where(lit, brightness, 1), 1), MAP_TOLERANCE) * len(kinds)
    off = np.abs(written - expected) > tolerance * np.maximum(1, np.abs(expected)) + maps.blur("fraction")
    verdict.accuse(maps.stem, line, places[(off & compared).any(axis=0)], "its sums by class do not match the cube")
