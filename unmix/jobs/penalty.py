"""The penalty on the sum of abundances that a run asks for (`l1`): its weights, and what the scene makes of it."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arrays.pixels import all_bands, solve_pixels
from ..endmembers import signal_of
from ..endmembers.counts import noise_power
from ..errors import InputError, MethodError
from ..io import Cube, missing, spectra
from ..library import load_for
from ..options import Options
from ..problem import Problem, plan_problem
from ..scene import open_scene
from ..scene.sample import sampled
from ..summary import Summary
from .derived.noise import read_numbers

log = logging.getLogger("unmix")

# Pixels of the sample that λ is chosen on: 500 spectra take 0.1 s for each λ that is tried.
FEW = 2000
# The smallest λ that is tried, as a share of that which makes all pixels 0.
SMALLEST = 1e-8


@dataclass(frozen=True)
class Penalty:
    """What an abundance costs: λ times its weight.

    Attributes
    ----------
    l1 : float or "auto"
        λ.
    weights : array (p,), float64, or None
        None is 1 for all.
    source : path-like or None
        The file with the weights.
    """

    l1: float | str
    weights: np.ndarray | None = None
    source: str | os.PathLike[str] | None = None

    @classmethod
    def of(cls, l1: float | str, path: str | os.PathLike[str] | None) -> "Penalty":
        """Read the weights; `InputError` where they cannot be read, or one is negative."""
        if path is None:
            return cls(l1)
        weights = np.array(read_numbers(path, "weight", "an endmember"))
        if not np.all((weights >= 0) & np.isfinite(weights)):
            raise InputError(f"{path}: weights of endmembers must be numbers that are not negative")
        return cls(l1, weights, path)

    def to_dict(self) -> dict[str, Any]:
        """Return what abundances depend on, for ``run.json``."""
        return {"lambda": self.l1, "weights": None if self.weights is None else self.weights.tolist()}

    def chosen(self, problem: Problem, scene: Cube, noise: float | None, budget: int, threads: int | None) -> "Penalty":
        """Return the penalty whose λ leaves of the median pixel of a sample as much as there is noise (discrepancy principle).

        Parameters
        ----------
        problem : Problem
            Without a penalty.
        noise : float or None
            The sum over the bands of the variance of noise; None is the smaller of two estimates from the scene.
        budget : int
            Bytes of memory for blocks.
        threads : int, optional
        """
        if noise is None:
            found = noise_power(signal_of(scene, problem.bands, problem.nodata, budget, threads))
            noise = min((power for power in found.values() if power is not None), default=0.0)
        Y = some_pixels(problem, scene)
        left = left_at(problem, Y, self.weights, threads)
        counts = slice(None) if self.weights is None else self.weights > 0
        products = (Y @ problem.E)[:, counts] / (1.0 if self.weights is None else self.weights[counts])
        highest = float(products.max(initial=0.0))
        l1 = by_discrepancy(left, noise, highest)
        if l1 == 0.0:
            log.warning(
                f"{scene.path}: without a penalty the endmembers leave {np.sqrt(left(0.0) / max(noise, 1e-300)):.2g} times the noise "
                "of the scene: `l1` auto is 0; name a number, or add the spectra that are missing"
            )
        of_band = np.sqrt(noise / len(problem.E))
        log.info(f"{scene.path}: l1 {l1:g}, which leaves of the median pixel the noise ({of_band:.3g} a band)")
        return replace(self, l1=l1)

    def put_on(self, problem: Problem) -> Problem:
        """Return a problem with the penalty; `InputError` where there are not as many weights as endmembers."""
        p = len(problem.endmembers.names)
        if self.weights is not None and len(self.weights) != p:
            raise InputError(f"{self.source}: {len(self.weights)} weights for {p} endmembers; write one on each line")
        assert not isinstance(self.l1, str)
        return problem.penalised(self.l1, self.weights)

    def about(self, problem: Problem, scene: Cube, summary: Summary) -> dict[str, Any]:
        """Return what a run's record says of the penalty.

        Returns
        -------
        dict
            ``lambda``; ``largest``, the λ from which on half of the pixels of a sample are 0, which λ is to be compared with (None
            where no λ does that); ``endmembers``, how many a pixel has on average above 1 %.
        """
        most = largest_of(problem, some_pixels(problem, scene), self.weights)
        largest = float(np.median(most)) if len(most) else np.inf
        there = 0 if summary.there is None else int(summary.there.sum())
        return {
            "lambda": self.l1,
            "largest": largest if np.isfinite(largest) else None,
            "endmembers": there / max(1, summary.solved),
        }


def some_pixels(problem: Problem, scene: Cube) -> np.ndarray:
    """Return the pixels of a sample of a scene that have values in all bands, (N, L), scaled."""
    found = [np.empty((0, len(problem.E)))]
    for part in sampled(scene, FEW):
        good = ~missing(part, scene.interleave, problem.bands, problem.nodata)
        found.append(spectra(part, scene.interleave, problem.bands)[good])
    return np.concatenate(found)


def largest_of(problem: Problem, Y: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Return the λ from which on each pixel, a row of Y, is 0: the largest ``e_jᵀy / w_j``, at least 0; array, float64."""
    products = Y @ problem.E
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(products > 0, products / (1.0 if weights is None else weights), 0.0)
    return np.asarray(each.max(axis=1, initial=0.0))


def plain(problem: Problem) -> Problem:
    """Return the problem of pixels that are scaled already."""
    return replace(problem, bands=all_bands(len(problem.E)), nodata=None, interleave="bip", noise=None)


def left_at(
    problem: Problem, Y: np.ndarray, weights: np.ndarray | None, threads: int | None
) -> Callable[[float], float]:
    """Return the function that computes the median of ``|y − E a|²`` over pixels, the rows of Y, for one λ."""

    def left(l1: float) -> float:
        found = solve_pixels(Y, plain(problem).penalised(l1, weights), problem.E.shape[1], "cpu", threads)
        return float(np.median(np.square(found.rmse)) * len(problem.E))

    return left


def by_discrepancy(left: Callable[[float], float], noise: float, highest: float) -> float:
    """Return the λ, right to one in a thousand, at which ``left``, which rises with it, is ``noise``; 0 where it always is more."""
    if left(0.0) >= noise or highest <= 0:
        return 0.0
    low, high = highest * SMALLEST, highest
    if left(high) <= noise:
        return float(f"{high:.4g}")
    while high > low * (1.0 + 1e-3):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if left(middle) < noise else (low, middle)
    return float(f"{np.sqrt(low * high):.4g}")


def path_of_scene(
    cube: str | os.PathLike[str], endmembers: str | os.PathLike[str], *, count: int = 20,
    l1_weights: str | os.PathLike[str] | None = None, memory: str | int = "1G", threads: int | None = None, **words: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return what penalties make of a scene: how many endmembers, and what is left, over λ, on a sample of its pixels.

    Parameters
    ----------
    cube, endmembers : path-like
        The scene and the spectral library.
    count : int
        How many λ, beside 0: from the one from which on half of the pixels are 0 down to a hundred-thousandth of it, in equal ratios.
    l1_weights : path-like, optional
        See `unmix.Options`.
    memory, threads
        See `unmix.Options`.
    **words
        ``select``, ``library_scale`` and other options of the library of `unmix.Options`; those of `unmix.ReadOptions`.

    Returns
    -------
    dict
        ``pixels`` of the sample; ``noise``, the standard deviation of a band by each estimate of `unmix.endmembers.counts.noise_power`
        (None where there is none); ``auto``, the λ that ``l1`` auto takes; and ``path``, for each λ: ``lambda``; ``endmembers``, how
        many a pixel has on average; ``rmse``, the median; ``zero``, the share of pixels without any.

    Raises
    ------
    MethodError
        Where ``count`` is below 2.
    UnmixError
        As `unmix.run`.
    """
    if count < 2:
        raise MethodError(f"`count` {count}: a path has at least 2 points")
    options = Options.of(
        method="nnls", endmembers=endmembers, l1="auto", l1_weights=l1_weights, memory=memory, threads=threads, **words
    ).for_scene(cube)
    scene, used, nodata = open_scene(cube, options.reading)
    library = load_for(endmembers, scene, used.index, options.classes, options.library_scale, options.select)
    problem = plan_problem(library, options.method_spec, options.solver_spec, used, nodata, scene.interleave)
    penalty = Penalty.of("auto", l1_weights)
    replace(penalty, l1=0.0).put_on(problem)  # as many weights as endmembers
    powers = noise_power(signal_of(scene, used, nodata, options.budget, threads))
    noise = min((power for power in powers.values() if power is not None), default=0.0)
    Y, L = some_pixels(problem, scene), len(problem.E)
    most = largest_of(problem, Y, penalty.weights)
    top = float(np.median(most[np.isfinite(most)])) if np.isfinite(most).any() else 0.0
    steps = [] if top <= 0 else [float(f"{value:.4g}") for value in np.geomspace(top, top * 1e-5, count)]
    return {
        "pixels": len(Y),
        "noise": {name: None if power is None else float(np.sqrt(power / L)) for name, power in powers.items()},
        "auto": penalty.chosen(problem, scene, noise, options.budget, threads).l1,
        "path": [point_of(problem, Y, penalty.weights, l1, threads) for l1 in [*steps, 0.0]],
    }


def point_of(
    problem: Problem, Y: np.ndarray, weights: np.ndarray | None, l1: float, threads: int | None
) -> dict[str, float]:
    """Return what one λ makes of pixels; see `path_of_scene`."""
    found = solve_pixels(Y, plain(problem).penalised(l1, weights), problem.E.shape[1], "cpu", threads)
    support = (found.abundances > 0).sum(axis=1)
    return {
        "lambda": l1,
        "endmembers": float(support.mean()),
        "rmse": float(np.median(found.rmse)),
        "zero": float((support == 0).mean()),
    }
