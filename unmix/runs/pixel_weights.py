"""Solve pixels whose bands each pixel's own noise weighs."""

import numpy as np

from ..arrays.own import solve_each
from ..certificate import NODATA, PARTLY, SOLVED
from ..io import spectra
from ..problem import Problem
from ..problem.steps import of_mean_square_one


def divide_by_noise(
    problem: Problem, first: int, raw: np.ndarray, results: dict[str, np.ndarray], threads: int
) -> None:  # fmt: skip
    """Solve the pixels of some lines again, each with weights of its own, in place.

    Their answers without weights are where the searches begin. Pixels whose noise is not known in some band are left without results.

    Parameters
    ----------
    problem : Problem
        Its ``noise`` is an `unmix.maps.derived.noise.NoiseCube`.
    first : int
        The number of the first line.
    raw : array
        The stored values of n lines, in ``problem.interleave``.
    results : dict of arrays
        The arrays of `unmix.devices.Line.results`, float64.
    threads : int
        CPU threads.
    """
    state, (n, _, samples) = results["state"], results["abundance"].shape
    noise, Y = problem.noise.read(first, n), spectra(raw, problem.interleave, problem.bands)
    known = np.isfinite(noise).all(axis=1).reshape(n, samples)
    solved, E = (state == SOLVED) & known, problem.endmembers.matrix
    line, sample = np.nonzero(solved)
    y, noise = Y[solved.ravel()], noise[solved.ravel()]
    factors = of_mean_square_one(noise.min(axis=1, keepdims=True) / noise)
    own = {"weights": np.square(factors), "start": results["abundance"][line, :, sample]}
    constraint = problem.constraint
    answer = solve_each(y, E, constraint.sum_to_one or constraint.has_shade, own, "cpu", threads)
    results["abundance"][line, :, sample] = answer["abundances"]
    for name in ("rmse", "kappa", "delta", "steps"):
        results[name][solved] = answer[name]
    length = np.sqrt(np.square(factors * y).mean(axis=1))
    results["relative"][solved] = np.divide(answer["rmse"], length, out=np.full(len(y), -1.0), where=length > 0)
    if results["residual"].size:
        results["residual"][line, :, sample] = y - answer["abundances"] @ E.T
    lost = (state == SOLVED) & ~known
    problem.noise.lost.append(int(lost.sum()))
    line, sample = np.nonzero(lost)
    state[lost] = PARTLY
    for name in ("rmse", "kappa", "delta", "steps"):
        results[name][lost] = NODATA
    results["relative"][lost] = -1.0
    results["abundance"][line, :, sample] = NODATA
    if results["residual"].size:
        results["residual"][line, :, sample] = NODATA
