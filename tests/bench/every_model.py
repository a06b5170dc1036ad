"""MESMA of whole real scenes against every model of every pixel: ``python tests/bench/every_model.py [SPECTRA] [DATA]``.

Jasper Ridge and Samson, SPECTRA of each of three classes of their libraries (4), levels 2 to 4, both limits and both rules of fusion,
with thresholds drawn at random. `unmix verify` fits all models of each pixel by least squares of their own. Prints a line of JSON for
each run: pixels, models, faults, seconds.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import unmix
from unmix.commands.verify import verify
from unmix.library import load

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
        chosen = library.take([j for some in members for j in some])
        for limits, rule in (("exact", "kept"), ("viper", "preceding"), ("viper", "kept"), ("exact", "preceding")):
            words = thresholds(random, limits, rule)
            with tempfile.TemporaryDirectory() as out:
                began = time.perf_counter()
                report = unmix.run(folder / cube, endmembers=chosen, method="mesma", out_dir=out, **words)
                faults = verify(Path(out) / report["input"]["name"].partition(".")[0], everything=True).faults
                print(json.dumps({
                    "scene": name, "limits": limits, "rule": rule, "pixels": report["pixels"]["solved"],
                    "without": report["without_spectrum"], "spectra": len(chosen.names), "faults": len(faults),
                    "first": faults[:1], "seconds": round(time.perf_counter() - began, 1),
                }), flush=True)  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
