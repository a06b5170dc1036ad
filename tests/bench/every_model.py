"""MESMA of whole real scenes against every model of every pixel: ``python tests/bench/every_model.py [SPECTRA]
[DATA]``.

Jasper Ridge and Samson, SPECTRA of each of three classes of their libraries (4), levels 2 to 4, both limits and both
rules of fusion, with thresholds drawn at random. `reference.models` fits all models of a pixel by least squares of
their own. Prints a line of JSON for each run: pixels, models, faults, seconds.
"""

import sys
import time
from pathlib import Path

import numpy as np
from common import say
from reference.models import EveryModel, rms

import unmix
from unmix.io import read_lines
from unmix.library import load, load_for
from unmix.methods import ModelChoice
from unmix.scene import open_scene

SCENES = {
    "jasper": ("jasper/jasper.hdr", "spectral_library_jasperRidge.mat"),
    "samson": ("samson/samson.hdr", "spectral_library_samson.mat"),
}


def thresholds(random: np.random.Generator, limits: str, rule: str) -> dict:
    """Return options of a run, thresholds drawn at random."""
    words = {"levels": "2-4", "limits": limits, "fusion_rule": rule, "fusion": float(random.uniform(0, 0.01))}
    if limits == "viper":
        words |= {"min_fraction": float(random.uniform(-0.2, 0.05)), "max_fraction": float(random.uniform(0.9, 1.3))}
        words |= {"min_shade": float(random.uniform(-0.2, 0.1)), "max_shade": float(random.uniform(0.5, 1.0))}
        words |= {"max_rmse": float(random.uniform(0.01, 0.05))}
    return words


def main(spectra: str = "4", data: str = "") -> None:
    folder = Path(data) if data else Path(__file__).parents[3] / "shared/data"
    random = np.random.default_rng(0)
    for name, (cube, source) in SCENES.items():
        library = load(folder / "libraries" / source)
        kinds = list(dict.fromkeys(library.classes or ()))[:3]
        members = [[j for j, kind in enumerate(library.classes or ()) if kind == of][: int(spectra)] for of in kinds]
        scene = open_scene(folder / cube)
        chosen = load_for(library.take([j for some in members for j in some]), scene)
        E, kinds_of = chosen.matrix, list(chosen.classes or ())
        Y = scene.spectra(read_lines(scene.cube, slice(0, scene.cube.lines)))
        for limits, rule in (("exact", "kept"), ("viper", "preceding"), ("viper", "kept"), ("exact", "preceding")):
            words = thresholds(random, limits, rule)
            began = time.perf_counter()
            found = unmix.mesma(Y, E, kinds_of, **words)
            models = EveryModel(E, kinds_of, ModelChoice(**words))
            wrong = sum(is_wrong(models, *pixel) for pixel in zip(Y, found.abundances, found.rmse))
            say(
                {
                    "scene": name,
                    "limits": limits,
                    "rule": rule,
                    "pixels": len(Y),
                    "without": int((found.steps == 0).sum()),
                    "spectra": E.shape[1],
                    "faults": wrong,
                    "seconds": round(time.perf_counter() - began, 1),
                }
            )


def is_wrong(models: EveryModel, y: np.ndarray, a: np.ndarray, rmse: float) -> bool:
    """Return whether a pixel has another RMSE than its best model, or other abundances without a model as good."""
    least, expected = models.best(y)
    if abs(rmse - least) > 1e-9 * rms(y):
        return True
    return not np.allclose(a, expected, atol=2e-6) and rms(y - models.E @ a) > least + 3.2e-6 * rms(y)


if __name__ == "__main__":
    main(*sys.argv[1:])
