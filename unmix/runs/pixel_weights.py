"""Solve pixels whose bands each pixel's own noise weighs."""

from typing import Any

import numpy as np

from ..arrays.own import on_cone, on_simplex
from ..certificate import NODATA, PARTLY, SOLVED
from ..io import spectra
from ..problem import Problem


def weights_of(noise: np.ndarray) -> np.ndarray:
    """Return the factors (n, L) of bands that noise (n, L) gives pixels: its inverse, with a mean square of 1 in each pixel."""
    factors = noise.min(axis=1, keepdims=True) / noise
    return np.asarray(factors / np.sqrt(np.square(factors).mean(axis=1, keepdims=True)))


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
    y, factors = Y[solved.ravel()], weights_of(noise[solved.ravel()])
    own = {"weights": np.square(factors), "start": results["abundance"][line, :, sample]}
    constraint = problem.constraint
    solver = on_simplex if constraint.sum_to_one or constraint.has_shade else on_cone
    answer: dict[str, Any] = solver(y, E, False, own, "cpu", threads)
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
