"""Verify that no exchange of an extracted endmember for another pixel enlarges the simplex of all: two passes over the scene."""

from typing import Any

import numpy as np

from ...blocks import cores
from ...endmembers import mean_spectrum, purest_of
from ...endmembers.nfindr import Simplex, best_exchange, components, matrix_of, purest
from ...endmembers.passes import Passes, Scene
from ...endmembers.statistics import moments
from ...io import Bands, Cube

# Memory for blocks and components; more goes to a scratch file.
BUDGET = 2**28
# A ratio of volumes is right to this.
ROUNDING = 1e-6


def fault_of_simplex(report: dict[str, Any], scene: Cube, bands: Bands, matrix: np.ndarray) -> str | None:
    """Return what is wrong with the endmembers of a run whose record says that they are of the largest simplex; None if nothing is.

    Parameters
    ----------
    report : dict
        The run's record; ``nodata`` is its stored value.
    scene : Cube
    bands : Bands
        With the run's gain and offset.
    matrix : array (L, p), float64
        The endmembers that the run wrote.
    """
    found = report["endmembers"]
    corners = [(line - scene.origin[0], sample - scene.origin[1]) for line, sample in found["pixels"] if line >= 0]
    if not all(0 <= line < scene.lines and 0 <= sample < scene.samples for line, sample in corners):
        return "a pixel of an endmember is not in the scene"
    places = [line * scene.samples + sample for line, sample in corners]
    nodata, threads = report["nodata"], cores()
    of_scene = moments(scene, bands, nodata, BUDGET, threads)
    passes = Passes([Scene(scene, bands, nodata)], BUDGET, threads)
    points, _ = components(of_scene, len(places), scene.lines * scene.samples, BUDGET, passes)
    try:
        M = matrix_of(points, places)
        volume = float(np.linalg.slogdet(M)[1])
        if not abs(volume - found["simplex"]["log_volume"]) <= ROUNDING * max(1.0, abs(volume)):
            return f"the simplex of the endmembers has a volume of e^{volume:.9g}, not e^{found['simplex']['log_volume']:.9g}"
        inverse, omega = np.linalg.inv(M), 0.0
        for k in range(len(places)):
            best, ratio = best_exchange(points, inverse, k)
            omega = max(omega, ratio)
            if ratio > 1.0 + ROUNDING:
                line, sample = divmod(best, scene.samples)
                return (
                    f"line {line + scene.origin[0]}, sample {sample + scene.origin[1]} in place of '{found['names'][k]}' "
                    f"makes the simplex {ratio:.6g} times as large"
                )
        if not abs(omega - found["simplex"]["omega"]) <= ROUNDING:
            return f"the best exchange multiplies the volume by {omega:.9g}, not {found['simplex']['omega']}"
        of_each, said = [[n] for n in places], found["simplex"].get("purest")
        if said is not None:
            simplex = purest(points, Simplex(places, omega, volume, 0), len(said[0]))
            of_each = simplex.purest
            if purest_of(simplex, passes) != {"purest": said}:
                return "the purest pixels of an endmember are others"
    finally:
        points.close()
    for k, some in enumerate(of_each):
        if not np.allclose(mean_spectrum(passes, some), matrix[:, k], rtol=1e-12, atol=0.0):
            return f"'{found['names'][k]}' is not the mean of its pixels"
    return None
