"""The penalty on the sum of abundances that a run asks for (`l1`): its weights, its λ, and what they make of the scene."""

import logging
import os
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...arrays.penalties import RULES, Trials
from ...endmembers import signal_of
from ...endmembers.counts import noise_power
from ...errors import InputError, MethodError
from ...io import Bands, Cube
from ...library import load_for
from ...maps.derived.noise import read_numbers
from ...options import Options
from ...problem import Problem, plan_problem
from ...scene import check_scale, open_scene, sampled_spectra
from ...summary import Summary
from ..record.judgement import MOST_SPARSE, said_of_sparsity

log = logging.getLogger("unmix")

# Pixels of the sample on which λ is chosen: 500 spectra take 0.1 s for each λ tried.
SAMPLE_PIXELS = 2000
# The smallest λ of a scene's path, as a share of the first.
LAST = 1e-5


@dataclass(frozen=True)
class Penalty:
    """Cost of an abundance: λ times its weight.

    Attributes
    ----------
    l1 : float or str
        λ, or the name of a rule that chooses it (`unmix.arrays.penalties.RULES`).
    weights : array (p,), float64, or None
        None is 1 for all.
    source : path-like or None
        The file with the weights.
    chosen_by : dict
        Where a rule has chosen λ: ``rule``; ``noise``, the standard deviation of a band that it was told; and ``median_count``, the
        number of endmembers in the median pixel of the sample.
    """

    l1: float | str
    weights: np.ndarray | None = None
    source: str | os.PathLike[str] | None = None
    chosen_by: dict[str, Any] = field(default_factory=dict)

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
        """Return the facts that abundances depend on, for ``run.json``."""
        return {"lambda": self.l1, "weights": None if self.weights is None else self.weights.tolist()}

    def trials(self, problem: Problem, scene: Cube, threads: int | None) -> Trials:
        """Return the trials of λ on a sample of a scene's pixels; `InputError` if the weights do not fit."""
        self.refuse_other_count(problem)
        plain = replace(problem, bands=Bands.of(np.arange(len(problem.E))), nodata=None, interleave="bip", noise=None)
        return Trials(plain, sampled_spectra(problem.scene(scene), SAMPLE_PIXELS)[0], self.weights, threads)

    def chosen(self, problem: Problem, scene: Cube, noise: float | None, budget: int, threads: int | None) -> "Penalty":
        """Return the penalty with the λ that its rule chooses for a scene.

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
            noise = smaller(noise_power(signal_of(problem.scene(scene), budget, threads)))
        trials = self.trials(problem, scene, threads)
        l1 = RULES[str(self.l1)](trials, noise)
        of_band = float(np.sqrt(noise / len(problem.E)))
        if l1 == 0.0:
            left = float(np.sqrt(np.median(trials.at(0.0)[0]) / len(problem.E))) if len(trials.Y) else 0.0
            log.warning(
                f"{scene.path}: `l1` {self.l1} is 0: without a penalty the endmembers leave {left:.3g} a band of the median pixel, "
                f"and the noise is {of_band:.3g}; name a number, or add the spectra that are missing"
            )
        count, without = trials.median_count(l1), trials.median_count(0.0)
        dense = count > MOST_SPARSE
        said = said_of_sparsity(
            str(self.l1), count, without, problem.E.shape[1], trials.sparse_from(MOST_SPARSE, l1) if dense else None
        )
        level = logging.WARNING if dense else logging.INFO
        log.log(level, f"{scene.path}: l1 {l1:g} by {self.l1}, from noise of {of_band:.3g} a band: {said}")
        return replace(self, l1=l1, chosen_by={"rule": self.l1, "noise": of_band, "median_count": count})

    def refuse_other_count(self, problem: Problem) -> None:
        """Raise `InputError` where there are not as many weights as endmembers."""
        p = len(problem.endmembers.names)
        if self.weights is not None and len(self.weights) != p:
            raise InputError(f"{self.source}: {len(self.weights)} weights for {p} endmembers; write one on each line")

    def put_on(self, problem: Problem) -> Problem:
        """Return a problem with the penalty, whose λ is known; `InputError` as of `refuse_other_count`."""
        self.refuse_other_count(problem)
        assert not isinstance(self.l1, str)
        return problem.penalised(self.l1, self.weights)

    def about(self, problem: Problem, scene: Cube, summary: Summary) -> dict[str, Any]:
        """Return the penalty's entry in a run's record.

        Returns
        -------
        dict
            ``lambda``; ``largest``, the λ from which on half of the pixels of a sample are 0, which λ is to be compared with (None
            where no λ does that); ``above_1_percent``, how many endmembers a pixel has on average above 1 %; and ``chosen_by``, where
            λ was chosen.
        """
        there = 0 if summary.there is None else int(summary.there.sum())
        return {
            "lambda": self.l1,
            "largest": finite_median(self.trials(replace(problem, penalty=np.empty(0)), scene, 1).zero_from()),
            "above_1_percent": there / max(1, summary.solved),
        } | self.chosen_by


def smaller(powers: dict[str, float | None]) -> float:
    """Return the smaller of two estimates of noise: too much of it would hide endmembers."""
    return min((power for power in powers.values() if power is not None), default=0.0)


def finite_median(values: np.ndarray) -> float | None:
    """Return the median, None where it is infinite or there is none."""
    middle = float(np.median(values)) if len(values) else np.inf
    return middle if np.isfinite(middle) else None


def path_of_scene(
    cube: str | os.PathLike[str], endmembers: str | os.PathLike[str], *, count: int = 20,
    l1_weights: str | os.PathLike[str] | None = None, memory: str | int = "1G", threads: int | None = None, **words: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return the number of endmembers and the residual over λ, on a sample of a scene's pixels.

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
        (None where there is none); ``auto`` and ``discrepancy``, the λ that these rules choose; and ``path``, for each λ: ``lambda``;
        ``endmembers``, how many a pixel has on average, and ``above_1_percent``; ``rmse``, the median; ``zero``, the share of pixels
        without any.

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
    scene = open_scene(cube, options.reading)
    how = options.classes, options.library_scale, options.select, options.complete, options.across_gaps
    library = load_for(endmembers, scene, *how)
    check_scale(scene, library, options.reading.scale is not None)
    problem = plan_problem(library, options.method_spec, options.solver_spec, scene)
    trials = Penalty.of("auto", l1_weights).trials(problem, scene.cube, threads)
    powers = noise_power(signal_of(scene, options.budget, threads))
    top = finite_median(trials.zero_from()) or trials.highest
    steps = [float(f"{value:.4g}") for value in np.geomspace(top, top * LAST, count)] if top > 0 else []
    return {
        "pixels": len(trials.Y),
        "noise": {
            name: None if power is None else float(np.sqrt(power / len(problem.E))) for name, power in powers.items()
        },
        **{name: rule(trials, smaller(powers)) for name, rule in RULES.items()},
        "path": [point_of(trials, l1) for l1 in [*steps, 0.0]],
    }


def point_of(trials: Trials, l1: float) -> dict[str, float]:
    """Return the results of one λ for some pixels; see `path_of_scene`."""
    left, A = trials.at(l1)
    support, clear = ((limit < A).sum(axis=1) for limit in (0.0, 0.01))
    rmse = float(np.sqrt(np.median(left) / trials.Y.shape[1]))
    return {
        "lambda": l1, "endmembers": float(support.mean()), "above_1_percent": float(clear.mean()), "rmse": rmse,
        "zero": float((support == 0).mean()),
    }  # fmt: skip
