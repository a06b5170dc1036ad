"""Verify that no exchange of an extracted endmember for another pixel enlarges the simplex of all: two passes over the scene."""

from typing import Any

import numpy as np

from ...blocks import cores
from ...endmembers.nfindr import best_exchange, components, matrix_of
from ...endmembers.passes import Passes
from ...endmembers.statistics import moments
from ...io import Bands, Cube

# Memory for blocks and components; more goes to a scratch file.
BUDGET = 2**28
# A ratio of volumes is right to this.
ROUNDING = 1e-6


def fault_of_simplex(report: dict[str, Any], scene: Cube, bands: Bands) -> str | None:
    """Return what is wrong with the endmembers of a run whose record says that they are of the largest simplex; None if nothing is.

    Parameters
    ----------
    report : dict
        The run's record; ``nodata`` is its stored value.
    scene : Cube
    bands : Bands
        With the run's gain and offset.
    """
    found = report["endmembers"]
    places = [
        (line - scene.origin[0]) * scene.samples + sample - scene.origin[1]
        for line, sample in found["pixels"]
        if line >= 0
    ]
    nodata, threads = report["nodata"], cores()
    of_scene = moments(scene, bands, nodata, BUDGET, threads)
    passes = Passes(scene, bands, nodata, BUDGET, threads)
    points, _ = components(of_scene, len(places), scene.lines * scene.samples, BUDGET, passes)
    try:
        M = matrix_of(points, places)
        volume = float(np.linalg.slogdet(M)[1])
        if not abs(volume - found["simplex"]["log_volume"]) <= ROUNDING * max(1.0, abs(volume)):
            return f"the simplex of the endmembers has a volume of e^{volume:.9g}, not e^{found['simplex']['log_volume']:.9g}"
        inverse = np.linalg.inv(M)
        for k in range(len(places)):
            best, ratio = best_exchange(points, inverse, k)
            if ratio > 1.0 + ROUNDING:
                line, sample = divmod(best, scene.samples)
                return (
                    f"line {line + scene.origin[0]}, sample {sample + scene.origin[1]} in place of '{found['names'][k]}' "
                    f"makes the simplex {ratio:.6g} times as large"
                )
    finally:
        points.close()
    return None
