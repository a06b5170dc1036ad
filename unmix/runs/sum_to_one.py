"""Test on a sample whether the sum of abundances to one costs a scene its fit, by solving with and without it."""

import numpy as np

from ..arrays.mixtures import solved
from ..io import Cube, Scene
from ..problem import Problem
from ..scene.sample import sampled_spectra
from .record.judgement import POOR, SumCost, in_percent

# Most pixels that are solved twice, and most abundances in all, since a pixel of a large library takes 10 ms; fewest
# pixels.
MOST_PIXELS, MOST_ABUNDANCES, FEWEST_PIXELS = 400, 40_000, 50
# The part of the median pixel above which a constant is no offset, but says that spectra are of another kind.
MOST_OF_PIXEL = 0.8


def cost_of_sum(Y: np.ndarray, E: np.ndarray) -> SumCost | None:
    """Return the relative misfit of pixels (N, L) by E (L, p) with and without sum to one; None if incomparable."""
    step = max(1, -(-len(Y) // max(FEWEST_PIXELS, min(MOST_PIXELS, MOST_ABUNDANCES // E.shape[1]))))
    unit = float(np.abs(E).max())
    if not 0.0 < unit < np.inf:
        return None
    E = E / unit
    with np.errstate(over="ignore", under="ignore"):
        pixels = Y[::step] / unit
        sizes = np.sqrt(np.square(pixels).sum(axis=1))
    compares = (sizes > 1e-100) & (sizes < 1e100)
    pixels, sizes = pixels[compares], sizes[compares, None]
    ways = (("fcls", E), ("nnls", E[:, E.any(axis=0)]))
    misfits = np.stack([solved(A, pixels, method)[1] for method, A in ways], axis=1) / sizes
    misfits = misfits[np.isfinite(misfits).all(axis=1)]
    if not len(misfits):
        return None
    medians, poor = np.median(misfits, axis=0), (misfits > POOR).mean(axis=0)
    return SumCost(len(misfits), float(medians[0]), float(medians[1]), float(poor[0]), float(poor[1]))


def cost_in_scene(cube: Cube, problem: Problem) -> SumCost | None:
    """Return the cost of the sum to one on a sample of a scene; see `cost_of_sum`."""
    Y, _, _ = sampled_spectra(problem.scene(cube), MOST_PIXELS)
    is_by_models = problem.method.is_by_models  # whose shade is not among the endmembers
    cost = cost_of_sum(Y, np.pad(problem.endmembers.matrix, ((0, 0), (0, int(is_by_models)))))
    if is_by_models or cost is None or not cost.is_suspect:
        return cost
    bands, endmembers = problem.plain
    scene = Scene(cube, bands, problem.nodata)
    return beside_constant(cost, scene, sampled_spectra(scene, MOST_PIXELS)[0], endmembers.matrix)


def constant_in_scene(cube: Cube, problem: Problem) -> SumCost | None:
    """Return the constant of all pixels of a scene that a method of any sum hides; None without one."""
    bands, endmembers = problem.plain
    scene = Scene(cube, bands, problem.nodata)
    return hidden_constant(scene, sampled_spectra(scene, MOST_PIXELS)[0], endmembers.matrix)


def hidden_constant(scene: Scene, Y: np.ndarray, E: np.ndarray) -> SumCost | None:
    """Return the constant that explains pixels (N, L) with a sum of one as well as any sum does; None without one."""
    from ..scene.constant import may_share, remedy  # of scenes with a constant alone

    found = remedy(scene, Y, E) if may_share(Y, E) else None
    if found is None or abs(found[0].constant) > MOST_OF_PIXEL * float(np.median(np.sqrt(np.square(Y).mean(axis=1)))):
        return None
    shared, words = found
    said = (
        f"a constant of {shared.constant:.2g} lies beside the endmembers, an offset as it seems: {words} takes it off, "
        "`free` ones if it varies"
    )
    return SumCost(len(Y), shared.median, shared.left, 1.0, 0.0, said)


def beside_constant(cost: SumCost | None, scene: Scene, Y: np.ndarray, E: np.ndarray) -> SumCost | None:
    """Return the cost of the sum to one with the constant of all pixels (N, L) that explains it, if there is one."""
    if cost is None or not cost.is_suspect:
        return cost
    if not cost.hurts:
        return hidden_constant(scene, Y, E) or cost
    from ..scene.constant import remedy  # for runs that fit poorly alone

    found = remedy(scene, Y, E)
    if found is None:
        return cost
    shared, words = found
    return cost._replace(
        constant=f"a constant of {shared.constant:.2g} lies beside the endmembers, an offset that was not taken off: "
        f"{words} lowers "
        f"the median misfit to {in_percent(shared.left)}"
    )
