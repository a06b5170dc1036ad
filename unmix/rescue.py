"""Pixels that float64 cannot prove are solved again in double-double arithmetic, on the CPU."""

import numpy as np

from .certificate import CERTIFIED, FARTHEST, SOLVED
from .compiled.jit import compiled
from .problem import Problem

# Of stored values that are held twice at a time.
CHUNK_BYTES = 2**20


@compiled
def doubtful(state, kappa, delta, certified, farthest):
    """How many solved pixels are to be solved again; arrays (n, samples)."""
    count = 0
    for line in range(state.shape[0]):
        for s in range(state.shape[1]):
            if state[line, s] == SOLVED:
                count += not (kappa[line, s] <= certified and delta[line, s] <= farthest)
    return count


def farthest(limit: float) -> float:
    """From which δ on a pixel is solved again, where one above ``limit`` is not certified."""
    return min(limit, FARTHEST)


def rescue(problem: Problem, raw: np.ndarray, results: dict[str, np.ndarray], limit: float = FARTHEST) -> int:
    """Solve the doubtful pixels of a block again, from the answers at hand, in place.

    Parameters
    ----------
    problem : Problem
        Of full rank; where it is not there is no one answer to be found.
    raw : array
        The block as stored, in ``problem.interleave``.
    results : dict of arrays
        As `unmix.devices.Line.results`; a pixel is replaced where its certificate does not get worse.
    limit : float
        The largest δ that counts as certified.

    Returns
    -------
    int
        How many pixels are certified that were not.
    """
    most = farthest(limit)
    if problem.curvature == 0.0 or not doubtful(results["state"], results["kappa"], results["delta"], CERTIFIED, most):
        return 0
    far = ~(results["kappa"] <= CERTIFIED) | ~(results["delta"] <= most)
    places = np.argwhere((results["state"] == SOLVED) & far)
    axes = {"bip": (0, 1, 2), "bil": (0, 2, 1), "bsq": (1, 2, 0)}[problem.interleave]
    pixels = raw.transpose(axes)
    step = max(1, CHUNK_BYTES // (pixels.shape[2] * pixels.dtype.itemsize))
    return sum(prove_again(problem, pixels, results, places[i : i + step]) for i in range(0, len(places), step))


def prove_again(problem: Problem, pixels: np.ndarray, results: dict[str, np.ndarray], places: np.ndarray) -> int:
    """`rescue` for the pixels at ``places`` (n, 2) of a block (lines, samples, bands)."""
    from .devices import Line
    from .solvers.pixels.active_set_extended import prove_pixels
    from .solvers.pixels.cpu import Plan, Results, Stored

    here = places[:, 0], places[:, 1]
    some = np.ascontiguousarray(pixels[here])[None]
    line = Line(len(places), some.nbytes, len(results["residual"]) > 0, results["rmse"].dtype)
    again = {name: np.empty(shape, kind) for name, (kind, shape) in line.results(1, problem).items()}
    again["abundance"][0] = results["abundance"].transpose(0, 2, 1)[here].T
    prove_pixels(some, Stored(*problem.stored()), Plan(*problem.plan()), problem.exact, Results(**again))
    kappa, delta = results["kappa"][here], results["delta"][here]
    # Twice: of two answers that are right to rounding, κ is rounding.
    better = (again["kappa"][0] <= np.maximum(2.0 * kappa, CERTIFIED)) & (again["delta"][0] <= delta)
    chosen = places[better, 0], places[better, 1]
    for name, values in again.items():
        if name not in ("abundance", "residual"):
            results[name][chosen] = values[0, better]
        elif len(values):
            results[name].transpose(0, 2, 1)[chosen] = values[0].T[better]
    return int(np.count_nonzero(better & ~(kappa <= CERTIFIED) & (again["kappa"][0] <= CERTIFIED)))
