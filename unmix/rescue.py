"""Pixels that an exact solver could not certify are solved again, slowly and safely, on the CPU."""

import numpy as np

from .certificate import CERTIFIED, FARTHEST, SOLVED
from .problem import Problem
from .solvers.jit import compiled


@compiled
def doubtful(state, kappa, delta, certified, farthest):
    """How many solved pixels are to be solved again; arrays (n, samples)."""
    count = 0
    for line in range(state.shape[0]):
        for s in range(state.shape[1]):
            if state[line, s] == SOLVED:
                count += not (kappa[line, s] <= certified and delta[line, s] <= farthest)
    return count


def rescue(problem: Problem, raw: np.ndarray, results: dict[str, np.ndarray]) -> int:
    """Solve the doubtful pixels of a block again with a new QR at every step, in place.

    Parameters
    ----------
    problem : Problem
        Of a constrained method; others have nothing to search for.
    raw : array
        The block as stored, in ``problem.layout``.
    results : dict of arrays
        As `unmix.devices.Line.results`; a pixel is replaced where its κ does not get larger.

    Returns
    -------
    int
        How many uncertified pixels became certified.
    """
    if not problem.method.nonnegative or problem.pixel in ("safe", "qr"):
        return 0
    if doubtful(results["state"], results["kappa"], results["delta"], CERTIFIED, FARTHEST) == 0:
        return 0
    far = ~(results["kappa"] <= CERTIFIED) | ~(results["delta"] <= FARTHEST)
    places = np.argwhere((results["state"] == SOLVED) & far)
    from .devices import Line
    from .solvers.cpu import Plan, Results, Stored, solve_range, tiles_in

    axes = {"bip": (0, 1, 2), "bil": (0, 2, 1), "bsq": (1, 2, 0)}[problem.layout]
    pixels = np.ascontiguousarray(raw.transpose(axes)[places[:, 0], places[:, 1]])[None]
    line = Line(len(places), pixels.nbytes, len(results["residual"]) > 0, results["rmse"].dtype)
    again = {name: np.empty(shape, kind) for name, (kind, shape) in line.results(1, problem).items()}
    stored, plan = Stored(*problem.stored()), Plan(*problem.plan())
    solve_range("bip", "safe", 0, tiles_in(1, len(places)), pixels, stored, plan, Results(**again))
    before = results["kappa"][places[:, 0], places[:, 1]]
    # Of two answers at the level of rounding the safe one is closer: its duals know more than the certificate sees.
    better = np.isfinite(again["kappa"][0]) & ~(again["kappa"][0] > np.maximum(before, 1e-14))
    for i in np.flatnonzero(better):
        line, sample = places[i]
        for name, values in again.items():
            if name in ("abundance", "residual"):
                if len(values):
                    results[name][line, :, sample] = values[0, :, i]
            else:
                results[name][line, sample] = values[0, i]
    return int(np.count_nonzero((again["kappa"][0] <= CERTIFIED) & ~(before <= CERTIFIED)))
