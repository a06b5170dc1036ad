"""Verify that no exchange of an extracted endmember for another pixel enlarges the simplex of all: two passes over the scene."""

from typing import Any

import numpy as np

from ...blocks import cores
from ...endmembers import listed
from ...endmembers.auto import Cone, cone
from ...endmembers.auto.density import Shares
from ...endmembers.auto.likely import PlaneOfSample, climbed
from ...endmembers.nfindr import Simplex, best_exchanges, components, matrix_of, purest
from ...endmembers.outliers import without_outliers
from ...endmembers.passes import Passes
from ...endmembers.plane import Plane
from ...endmembers.quality import use_of
from ...endmembers.sampled import FEWEST_NEAR_PURE, Sampled
from ...endmembers.sisal import LAST, Pixels, axes, newton_step
from ...endmembers.statistics import moments
from ...io import Scene

# Memory for blocks and components; more goes to a scratch file.
BUDGET = 2**28
SIMPLEX_TOLERANCE = 1e-6  # of ratios of volumes, ω and mean spectra, relative
# Edges of a cone that is searched again differ by no more than this: a search ends by its last step, and BLAS rounds as it likes.
EDGES = 1e-3
# Shares of pixels that are counted again differ by less: a few pixels at a limit fall on the other side of it.
SHARES = 1e-3
# By how much −log of the density of a pixel may fall in a search that goes on from the most likely simplex.
LIKELIHOOD = 1e-2
# By how much a step may lower SISAL's value, relative to it, at a minimum whose spectra were rounded to float64.
DECREMENT = 1e-7


def fault_of_simplex(report: dict[str, Any], scene: Scene, matrix: np.ndarray) -> str | None:
    """Return the fault of endmembers that a record says are of the largest simplex; None without a fault.

    Parameters
    ----------
    report : dict
        The run's record.
    scene : Scene
        With the run's gain, offset and nodata value.
    matrix : array (L, p), float64
        The endmembers that the run wrote.
    """
    found, scene = report["endmembers"], scene.to_extract_from()
    left_out = (found.get("quality") or {}).get("outliers")
    if left_out is not None:
        of_whole = moments(scene, BUDGET, cores())
        (scene,), again = without_outliers([scene], of_whole, left_out["limit"], BUDGET, cores())
        if again != left_out:
            return f"{again['pixels']} pixels are outliers, not {left_out['pixels']}, or others"
    if "flat" in found["simplex"] and not Plane(moments(scene, BUDGET, cores())).is_flat(matrix.shape[1]):
        return "the brightness of the scene varies"
    if "near_pure" in found["simplex"]:
        return fault_of_means(report, scene, matrix)
    if "likelihood" in found["simplex"]:
        return fault_of_likely(report, scene, matrix)
    if "tau" in found["simplex"]:
        return fault_of_enclosing(report, scene, matrix)
    cube = scene.cube
    corners = [(line - cube.origin[0], sample - cube.origin[1]) for line, sample in found["pixels"] if line >= 0]
    if not all(0 <= line < cube.lines and 0 <= sample < cube.samples for line, sample in corners):
        return "a pixel of an endmember is not in the scene"
    places = [line * cube.samples + sample for line, sample in corners]
    of_scene, passes = moments(scene, BUDGET, cores()), Passes([scene], BUDGET, cores())
    points, _ = components(of_scene, len(places), BUDGET, passes)
    try:
        M = matrix_of(points, places)
        volume = float(np.linalg.slogdet(M)[1])
        if not abs(volume - found["simplex"]["log_volume"]) <= SIMPLEX_TOLERANCE * max(1.0, abs(volume)):
            return f"the simplex of the endmembers has a volume of e^{volume:.9g}, not e^{found['simplex']['log_volume']:.9g}"
        best, ratios = best_exchanges(points, M)
        for k, ratio in enumerate(ratios):
            if ratio > 1.0 + SIMPLEX_TOLERANCE:
                line, sample = divmod(best[k], cube.samples)
                return (
                    f"line {line + cube.origin[0]}, sample {sample + cube.origin[1]} in place of '{found['names'][k]}' "
                    f"makes the simplex {ratio:.6g} times as large"
                )
        omega = max(ratios)
        if not abs(omega - found["simplex"]["omega"]) <= SIMPLEX_TOLERANCE:
            return f"the best exchange multiplies the volume by {omega:.9g}, not {found['simplex']['omega']}"
        if not agrees(use_of(of_scene, points, M), found.get("quality")):
            return "how the scene uses the simplex of the endmembers is not what the record says"
        of_each, said = [[n] for n in places], found["simplex"].get("purest")
        if said is not None:
            simplex = purest(points, Simplex(places, omega, volume, 0), len(said[0]))
            of_each = simplex.purest
            if listed(of_each, passes) != {"purest": said}:
                return "the purest pixels of an endmember are others"
    finally:
        points.close()
    for k, some in enumerate(of_each):
        if not np.allclose(passes.mean(some), matrix[:, k], rtol=1e-12, atol=0.0):
            return f"'{found['names'][k]}' is not the mean of its pixels"
    return None


def fault_of_means(report: dict[str, Any], scene: Scene, matrix: np.ndarray) -> str | None:
    """Return the fault of endmembers that are means of near-pure pixels, as bright as their median; see `fault_of_simplex`."""
    cube, passes = scene.cube, Passes([scene], BUDGET, cores())
    if report["endmembers"]["simplex"].get("sharp"):
        return fault_of_edges(report, passes, matrix)
    for spectrum, name, near in zip(matrix.T, report["endmembers"]["names"], report["endmembers"]["simplex"]["purest"]):
        if len(near) < FEWEST_NEAR_PURE:
            continue
        pixels = [(line - cube.origin[0], sample - cube.origin[1]) for line, sample in near]
        if not all(0 <= line < cube.lines and 0 <= sample < cube.samples for line, sample in pixels):
            return f"a pixel of {name} is not in the scene"
        lines = {line: passes.spectra(0, line) for line in {line for line, _ in pixels}}
        Y = np.stack([lines[line][sample] for line, sample in pixels])
        lengths = np.linalg.norm(Y, axis=1, keepdims=True)
        mean = (Y / lengths).mean(axis=0)
        mean *= np.median(lengths) / np.linalg.norm(mean)
        if not np.abs(mean - spectrum).max() <= SIMPLEX_TOLERANCE * np.abs(mean).max():
            return f"{name} is not the mean of the pixels that the record lists"
    return None


def fault_of_edges(report: dict[str, Any], passes: Passes, matrix: np.ndarray) -> str | None:
    """Return the fault of endmembers that are the edges of a sharp cone, which is made again; see `fault_of_simplex`."""
    found = report["endmembers"]
    again = cone(None, matrix.shape[1], report["asked"]["seed"], BUDGET, passes)
    if not isinstance(again, Cone) or not again.sharp:
        return "the cone is not sharp"
    off = np.abs(again.spectra - matrix).max(axis=0) > EDGES * np.abs(matrix).max(axis=0)
    return f"{found['names'][int(off.argmax())]} is not an edge of the smallest cone" if off.any() else None


def fault_of_likely(report: dict[str, Any], scene: Scene, matrix: np.ndarray) -> str | None:
    """Return the fault of endmembers that a record says are the corners of the most likely simplex; see `fault_of_simplex`."""
    found, passes = report["endmembers"], Passes([scene], BUDGET, cores())
    plane = PlaneOfSample.of(moments(scene, BUDGET, cores()), matrix.shape[1], Sampled.of(passes).sample.spectra)
    C, said = plane.components(matrix), found["simplex"]
    if not np.allclose(plane.spectra(C), matrix, rtol=0, atol=1e-9 * np.abs(matrix).max()):
        return "an endmember is outside of the plane of the principal components"
    shares = Shares(np.array(said["pure"]), np.array(said["absent"]))
    value = plane.pixels.density(C, plane.noise, shares).value
    if not abs(value - said["likelihood"]) <= SIMPLEX_TOLERANCE * max(1.0, abs(value)):
        return f"the simplex of the endmembers has a likelihood of {value:.9g}, not {said['likelihood']:.9g}"
    further, shares = climbed(plane.pixels, C, plane.noise, shares, LIKELIHOOD)
    better = plane.pixels.density(further, plane.noise, shares).value
    if not value - better <= LIKELIHOOD:
        return f"the simplex of the endmembers is not the most likely one: {better:.9g} is reached from it, beside {value:.9g}"
    if not agrees(plane.use(C), found.get("quality")):
        return "how the sample uses the simplex of the endmembers is not what the record says"
    return None


def fault_of_enclosing(report: dict[str, Any], scene: Scene, matrix: np.ndarray) -> str | None:
    """Return the fault of endmembers that a record says are the corners of SISAL's simplex; see `fault_of_simplex`."""
    found, p = report["endmembers"], matrix.shape[1]
    of_scene, passes = moments(scene, BUDGET, cores()), Passes([scene], BUDGET, cores())
    points, _ = components(of_scene, p, BUDGET, passes)
    try:
        U, deviations = axes(of_scene, p)
        centred = matrix - of_scene.mean[:, None]
        Z = U.T @ centred
        if not np.allclose(U @ Z, centred, rtol=0, atol=1e-9 * np.abs(matrix).max()):
            return "an endmember is outside of the plane of the principal components"
        Q = np.linalg.inv(np.vstack([np.ones(p), Z / deviations[:, None]]))
        tau, pixels = found["simplex"]["tau"], Pixels(points, deviations, cores())
        value = pixels.value(Q, tau, 0.0)
        if not abs(value - found["simplex"]["value"]) <= SIMPLEX_TOLERANCE * max(1.0, abs(value)):
            return f"the simplex of the endmembers has a value of {value:.9g}, not {found['simplex']['value']:.9g}"
        decrement = newton_step(Q, pixels, tau, LAST)[2]
        if not decrement <= DECREMENT * max(1.0, abs(value)):
            return f"the simplex of the endmembers is at no minimum: a step would lower its value of {value:.6g} by {decrement:.3g}"
        if not agrees(use_of(of_scene, points, np.vstack([np.ones(p), Z])), found.get("quality")):
            return "how the scene uses the simplex of the endmembers is not what the record says"
    finally:
        points.close()
    return None


def agrees(use: dict[str, Any], said: dict[str, Any] | None) -> bool:
    """Return whether a record says what was found of the use of a simplex, but for rounding; older records say nothing."""
    if said is None:
        return True
    return all(
        said.get(name) is value
        if value is None
        else all(agrees(one, other) for one, other in zip(value, said[name], strict=True))
        if isinstance(value, list)
        else abs(value - said[name]) <= SHARES * max(1.0, abs(value))
        for name, value in use.items()
        if name in said or name != "negative"  # which older records have not
    )
