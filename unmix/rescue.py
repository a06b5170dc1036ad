"""Solve pixels that float64 cannot certify again, in double-double arithmetic on the CPU."""

import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from .certificate import CERTIFIED, FARTHEST, SOLVED
from .compiled.jit import WIDE
from .problem import Problem

# Stored values that are copied at a time, in bytes.
CHUNK_BYTES = 2**20
# Blocks are written by several threads; the first computes a problem's constants: from Python 3.12 on a cached
# property does not wait, and sixteen threads computed them all.
_CONSTANTS = threading.Lock()
# Solver whose plan has no `packed_index`, which the rescue does not need and which takes 4 ms with 529 endmembers.
NO_TABLEAU = "working_set"


def worst_first(limit: float) -> float:
    """Return the δ above which a pixel is solved again, where ``limit`` is the largest δ of a certified pixel."""
    return min(limit, FARTHEST)


def rescue(
    problem: Problem, raw: np.ndarray, results: dict[str, np.ndarray], limit: float = FARTHEST, threads: int = 1
) -> int:
    """Solve a block's doubtful pixels again in place, from their abundances; return how many come to κ ≤ 1e-10."""
    # A pixel is replaced if its certificate does not get worse. With a library of 529 of the scene's spectra each takes
    # 0.4 ms.
    most = worst_first(limit)
    hopeless = np.inf if problem.has_duplicates else -1.0  # duplicates, which no precision tells apart
    kappa, delta = results["kappa"], results["delta"]
    if kappa.max(initial=0.0) <= CERTIFIED and delta.max(initial=0.0) <= most:  # nearly always, and without new memory
        return 0
    is_open = ~((kappa <= CERTIFIED) & ((delta <= most) | (delta == hopeless))) & (results["state"] == SOLVED)
    if not is_open.any():
        return 0
    places = np.argwhere(is_open)
    axes = {"bip": (0, 1, 2), "bil": (0, 2, 1), "bsq": (1, 2, 0)}[problem.interleave]
    pixels = raw.transpose(axes)
    step = max(1, CHUNK_BYTES // (pixels.shape[2] * pixels.dtype.itemsize))
    step = min(step, -(-len(places) // (threads * WIDE.width)) * WIDE.width)  # whole tiles, as even as can be
    shares = [places[i : i + step] for i in range(0, len(places), step)]
    with _CONSTANTS:
        constants = problem.exact, problem.plan(NO_TABLEAU)
    left = functools.partial(prove_share, problem, constants, pixels, results, limit)
    with ThreadPoolExecutor(min(threads, len(shares)), "rescue") as pool:
        return sum(pool.map(left, shares))


def prove_share(
    problem: Problem,
    constants: tuple[Any, Any],
    pixels: np.ndarray,
    results: dict[str, np.ndarray],
    limit: float,
    places: np.ndarray,
) -> int:
    """Return how many pixels come to be certified, those without noise by `unmix.exact_mixtures` in 1 % of the time."""
    from .exact_mixtures import NO_NOISE, prove_mixtures
    from .solvers.pixels.cpu import Plan, path_of_solver

    relative = results["relative"][places[:, 0], places[:, 1]]
    exact = (relative >= 0.0) & (relative < NO_NOISE) & problem.constraint.has_bounds & (len(problem.penalty) == 0)
    mixtures, count = places[exact], 0
    if len(mixtures):
        spectra, again = taken(problem, pixels, results, mixtures)
        open_before = ~(again["kappa"][0] <= CERTIFIED)
        proved = prove_mixtures(problem, Plan(*problem.plan(path_of_solver(problem))), spectra, again, limit)
        put_back(results, again, mixtures, proved)
        count, places = int(np.count_nonzero(proved & open_before)), np.concatenate([places[~exact], mixtures[~proved]])
    return count + (prove_again(problem, constants, pixels, results, limit, places) if len(places) else 0)


def taken(
    problem: Problem, pixels: np.ndarray, results: dict[str, np.ndarray], places: np.ndarray
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return stored values (1, n, bands) and results of the pixels at ``places`` (n, 2), with an empty residual."""
    from .devices import Line

    selected = places[:, 0], places[:, 1]
    spectra = np.ascontiguousarray(pixels[selected])[None]
    line = Line(len(places), spectra.nbytes, len(results["residual"]) > 0)
    again = {}
    for name, (_, shape) in line.results(1, problem).items():
        # float64, whatever they are in the block, so that the code for them is compiled once.
        is_real = results[name].dtype.kind == "f"
        again[name] = values = np.empty(shape, np.float64 if is_real else results[name].dtype)
        if name == "abundance":
            values[0] = results[name].transpose(0, 2, 1)[selected].T
        elif name != "residual":
            values[0] = results[name][selected]
    return spectra, again


def put_back(
    results: dict[str, np.ndarray], again: dict[str, np.ndarray], places: np.ndarray, better: np.ndarray
) -> None:
    """Replace the results at those of the ``places`` that are ``better`` (n,)."""
    replaced = places[better, 0], places[better, 1]
    with np.errstate(over="ignore"):  # as compiled code stores float32
        for name, values in again.items():
            if name not in ("abundance", "residual"):
                results[name][replaced] = values[0, better]
            elif len(values):
                results[name].transpose(0, 2, 1)[replaced] = values[0].T[better]


def prove_again(
    problem: Problem,
    constants: tuple[Any, Any],
    pixels: np.ndarray,
    results: dict[str, np.ndarray],
    limit: float,
    places: np.ndarray,
) -> int:
    """Return how many pixels at ``places`` (n, 2) of a block come to be certified, in double-double."""
    # ``constants`` are the problem's in double-double and in float64.
    from .solvers.pixels.active_set_extended import prove_pixels
    from .solvers.pixels.cpu import Plan, Results, Stored

    exact, plan = constants
    selected = places[:, 0], places[:, 1]
    spectra, again = taken(problem, pixels, results, places)
    prove_pixels(spectra, Stored(*problem.stored()), Plan(*plan), exact, Results(**again))
    kappa, delta = results["kappa"][selected], results["delta"][selected]
    # Factor 2: the κ of two answers that are both right to rounding differ by chance. Of two that are both open, κ
    # bounds neither.
    better = again["kappa"][0] <= np.maximum(2.0 * kappa, CERTIFIED)
    is_open = np.minimum(again["kappa"][0], kappa) > CERTIFIED
    if len(problem.penalty) == 0:
        better = np.where(is_open, again["rmse"][0] <= results["rmse"][selected], better)
    # Where κ alone was open, δ may grow up to the limit: the term of an error of Σa exceeds it in pixels that fit
    # poorly.
    better &= again["delta"][0] <= np.maximum(delta, worst_first(limit))
    put_back(results, again, places, better)
    return int(np.count_nonzero(better & ~(kappa <= CERTIFIED) & (again["kappa"][0] <= CERTIFIED)))
