"""The spatial prior of a run (`tv`, `laplacian`): its λ, the search over the whole scene, and its abundances."""

import logging
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...arrays.spatial import Prior, SpatialImage, SpatialSearch, bytes_of_search, prior_of, warn_of_gap
from ...certificate import SOLVED
from ...devices.slots import put
from ...endmembers import signal_of
from ...endmembers.counts import noise_power
from ...endmembers.statistics import walk
from ...errors import CubeError, MethodError
from ...io import Cube, Scene, spectra
from ...options import Options
from ...problem import Problem
from ..record.memory import memory_of_machine

log = logging.getLogger("unmix")

# Windows of the scene on which λ is chosen: their side, and the most values of abundances in all of them.
WINDOW, MOST_VALUES = 32, 250_000
# The gap, and the most steps, to which λ that are tried are searched; the ratio between successive ones, and the number
# without improvement that ends the choice.
PROVEN_TO_CHOOSE, MOST_STEPS_TO_CHOOSE, MOST_WORSE = 1e-4, 2000, 2
RATIO = {"tv": 2.0, "laplacian": 4.0}
LOWEST_SHARE = 1e-7
# Step along which the degrees of freedom of a fit are measured, in standard deviations of the noise.
PROBE = 0.1


@dataclass(frozen=True)
class Neighbours:
    """The cost of differences between neighbours.

    Attributes
    ----------
    kind : {"tv", "laplacian"}
    weight : float or "auto"
        λ, or that it is to be chosen.
    chosen_by : dict
        Where λ was chosen: ``rule``, and ``noise``, the standard deviation of a band that the rule was told.
    found : dict
        ``objective``, ``gap``, ``steps`` and ``proved`` of the search, once it is done.
    """

    kind: str
    weight: float | str
    chosen_by: dict[str, Any] = field(default_factory=dict)
    found: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Options) -> "Neighbours | None":
        """Return what the options ask for, None for nothing."""
        asked = {name: getattr(options, name) for name in ("tv", "laplacian") if getattr(options, name) is not None}
        return None if not asked else cls(*asked.popitem())

    def request(self) -> dict[str, Any]:
        """Return the facts that abundances depend on, for ``run.json``."""
        return {self.kind: self.weight}

    def about(self) -> dict[str, Any]:
        """Return the entry in a run's record: see docs/run.schema.json."""
        return {"prior": self.kind, "lambda": self.weight} | self.found | self.chosen_by

    def smooth(
        self, problem: Problem, cube: Cube, noise: float | None, options: Options
    ) -> tuple["Neighbours", Problem]:
        """Search the whole scene; return this with the results of the search, and the problem with the abundances."""
        # ``noise`` is the variance of the noise, summed over the bands, for the choice of λ.
        scene, E = problem.scene(cube), problem.endmembers.matrix
        self.refuse_large(cube, E.shape[1])
        this = self if not isinstance(self.weight, str) else self.chosen(problem, scene, noise, options)
        image = SpatialImage.of(cube.lines, cube.samples, E.shape[1], edged_of(problem))
        fill(image, scene, E, penalty_of(problem), options.budget)
        prior = prior_of(**{this.kind: float(this.weight)})
        image.connect(prior.weight)

        def said(steps: int, objective: float, gap: float) -> None:
            log.debug(f"{cube.path}: {this.kind}: {steps} steps, cost {objective:.6g}, duality gap {gap:.1e} of it")

        found = SpatialSearch(image, E, problem.constraint.sum_to_one, options.threads).run(prior, said=said)
        log.info(
            f"{cube.path}: {this.kind} {found.weight:g}: duality gap {found.gap:.1e} of the cost after {found.steps} "
            "steps"
        )
        warn_of_gap(found, cube.path)
        about = {name: getattr(found, name) for name in ("objective", "gap", "steps", "proved")}
        return replace(this, found=about), replace(problem, own=Smoothed(found.abundances.astype(np.float32)))

    def refuse_large(self, cube: Cube, p: int) -> None:
        """Raise `CubeError` where a search of a cube with p endmembers takes more than the memory of this machine."""
        size, there = bytes_of_search(cube.lines, cube.samples, p), memory_of_machine()
        if size > there:
            raise CubeError(
                f"{cube.path}: `{self.kind}` searches all pixels together, {size / 2**30:.1f} GiB in memory, and there "
                "are "
                f"{there / 2**30:.1f}: unmix parts of it, with `lines` and `samples`"
            )

    def chosen(self, problem: Problem, scene: Scene, noise: float | None, options: Options) -> "Neighbours":
        """Return this with the λ of the least expected error by Stein's unbiased estimate on windows of the scene."""
        if noise is None and problem.lost:
            raise MethodError(
                f"`{self.kind}` auto: spectra that were taken out (`free`) hide the noise: give it by `noise`, or a number"
            )
        if noise is None:
            powers = noise_power(signal_of(scene, options.budget, options.threads)).values()
            noise = min((power for power in powers if power is not None), default=0.0)  # more would hide differences
        E = problem.endmembers.matrix
        sigma = math.sqrt(noise / len(E))
        Y, valid, ends = windows_of_scene(scene, E.shape[1])
        if not (sigma > 0 and valid.any()):
            why = "the noise is 0" if valid.any() else "no pixel of the windows that it is chosen on has values"
            raise CubeError(f"{scene.cube.path}: `{self.kind}` auto: {why}; give a number")
        log.info(f"{scene.cube.path}: {self.kind} auto: tries λ on {len(ends)} windows of the scene")
        # Σ|E a − clean y|² has the expectation of Σ|y − E a|² + 2σ²d, less a constant; d, the degrees of
        # freedom, is measured by a random change of the pixels (Ramani et al. 2008).
        trials = NeighbourTrials(self.kind, problem, Y, valid, ends, sigma, options.threads)
        lengths = np.linalg.norm(E, axis=0)
        typical = float(np.median(lengths[lengths > 0]))
        weight = top = typical * sigma if self.kind == "tv" else typical**2
        least, best, worse = np.inf, weight, 0
        while worse < MOST_WORSE and weight > LOWEST_SHARE * top > 0:
            risk = trials.risk(weight)
            least, best, worse = (risk, weight, 0) if risk < least else (least, best, worse + 1)
            weight /= RATIO[self.kind]
        best = float(f"{best:.4g}")
        log.info(f"{scene.cube.path}: {self.kind} {best:g} by auto, from noise of {sigma:.3g} a band")
        return replace(self, weight=best, chosen_by={"rule": "auto", "noise": sigma})


class NeighbourTrials:
    """Searches of windows of a scene for λ that are tried.

    Parameters
    ----------
    kind : str
    problem : Problem
    Y, valid : arrays (lines, S, L) and (lines, S)
        Windows, one below the other.
    ends : array of int
        The last line of each.
    sigma : float
        Standard deviation of the noise of a band.
    threads : int or None
    """

    def __init__(
        self,
        kind: str,
        problem: Problem,
        Y: np.ndarray,
        valid: np.ndarray,
        ends: np.ndarray,
        sigma: float,
        threads: int | None,
    ) -> None:
        self.kind, self.E, self.Y, self.valid, self.sigma, self.ends = (
            kind,
            problem.endmembers.matrix,
            Y,
            valid,
            sigma,
            ends,
        )
        self.change = np.random.Generator(np.random.PCG64(0)).standard_normal(Y.shape) * valid[..., None]
        self.searches = []
        for moved in (Y, Y + PROBE * sigma * self.change):
            image = SpatialImage.of(len(valid), valid.shape[1], self.E.shape[1], edged_of(problem))
            image.fill(0, moved, valid, self.E, penalty_of(problem))
            self.searches.append(SpatialSearch(image, self.E, problem.constraint.sum_to_one, threads))

    def fit(self, search: SpatialSearch, weight: float) -> np.ndarray:
        """Return ``E a`` (lines, S, L) for a λ; the next search begins there."""
        search.image.connect(weight)
        search.image.down[self.ends] = 0.0
        found = search.run(Prior(self.kind, weight), PROVEN_TO_CHOOSE, MOST_STEPS_TO_CHOOSE)
        return found.abundances @ self.E.T * self.valid[..., None]

    def risk(self, weight: float) -> float:
        """Return the estimate of the error of the fit, less a constant."""
        fit, moved = (self.fit(search, weight) for search in self.searches)
        left = float(np.square(np.where(self.valid[..., None], self.Y, 0.0) - fit).sum())
        freedom = float((self.change * (moved - fit)).sum()) / (PROBE * self.sigma) if self.sigma > 0 else 0.0
        return left + 2.0 * self.sigma**2 * freedom


@dataclass
class Smoothed:
    """The abundances that the search found, in place of each pixel's own (`unmix.problem.Problem.own`).

    Attributes
    ----------
    abundances : array (lines, samples, p), float32
        As maps hold them; residuals are of these.
    """

    abundances: np.ndarray

    def messages(self) -> list[str]:
        """Return why pixels have no answer: nothing more than their values says."""
        return []

    def solve(
        self, problem: Problem, first: int, raw: np.ndarray, results: dict[str, np.ndarray], threads: int
    ) -> None:
        """Put the abundances and residuals of some lines in the place of the pixels' own; see `CountedPixels.solve`."""
        state = results["state"]
        n, S = state.shape
        Y, solved = spectra(raw, problem.interleave, problem.bands).reshape(n, S, -1), state == SOLVED
        A = self.abundances[first : first + n][solved].astype(float)
        left, length = Y[solved] - A @ problem.endmembers.matrix.T, np.sqrt(np.square(Y[solved]).mean(axis=1))
        # Of κ, δ and steps there are none: the proof is of all pixels together.
        found = {"abundances": A, "rmse": np.sqrt(np.square(left).mean(axis=1)), "kappa": 0, "delta": 0, "steps": 0}
        put(results, solved, found, left, length)


def proved_together(report: dict[str, Any]) -> dict[str, Any]:
    """Return a record without the distance of each pixel from its optimum, since pixels are proved together."""
    pixels = {
        name: count for name, count in report["pixels"].items() if name in ("all", "solved", "masked", "partly_nodata")
    }
    of_each = ("failures", "worst_kappa", "worst_delta", "kappa_histogram", "steps")
    rest = {name: one for name, one in report.items() if name not in of_each}
    return rest | {"pixels": pixels, "certified": report["spatial"]["proved"]}


def penalty_of(problem: Problem) -> np.ndarray | float:
    """Return the costs of abundances (p,), 0 where there are none."""
    return problem.penalty if problem.penalty.size else 0.0


def fill(image: SpatialImage, scene: Scene, E: np.ndarray, penalty: np.ndarray | float, budget: int) -> None:
    """Fill an image's correlations and lengths in one pass over the scene."""
    L, S = len(scene.bands.index), scene.cube.samples
    for lines, raw in walk(scene.cube, budget, 4 * 8 * L * S):
        shape = lines.stop - lines.start, S
        image.fill(lines.start, scene.spectra(raw).reshape(*shape, L), ~scene.missing(raw).reshape(shape), E, penalty)


def edged_of(problem: Problem) -> int:
    """Return how many endmembers have differences that cost: all but shade, which comes last."""
    return problem.E.shape[1] - problem.constraint.has_shade


def windows_of_scene(scene: Scene, p: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return stacked windows of a scene (lines, S, L), their valid pixels, and the last line of each window."""
    lines, samples = scene.cube.lines, scene.cube.samples
    height, width = min(WINDOW, lines), min(WINDOW, samples)
    count = max(1, min(MOST_VALUES // (p * height * width), -(-lines // height) * -(-samples // width)))
    # Spread evenly over the lines, on diagonals; each is moved to the nearest samples with the most valid pixels.
    parts, places = [], np.linspace(0.0, 1.0, count + 2)[1:-1] if count > 1 else [0.5]
    for at, share in enumerate(places):
        first, left = round(share * (lines - height)), round(share * (samples - width))
        if at % 2:
            left = samples - width - left
        raw = np.empty(height * scene.cube.samples * scene.cube.bands * scene.cube.dtype.itemsize, np.uint8)
        stored = scene.cube.read(slice(first, first + height), raw)
        Y = scene.spectra(stored).reshape(height, samples, -1)
        valid = ~scene.missing(stored).reshape(height, samples) & np.isfinite(Y).all(axis=2)
        counts = np.convolve(valid.sum(axis=0), np.ones(width, int), "valid")
        places_of_most = np.nonzero(counts == counts.max())[0]
        left = int(places_of_most[np.argmin(np.abs(places_of_most - left))])
        parts.append((Y[:, left : left + width], valid[:, left : left + width]))
    Y, valid = (np.concatenate([part[k] for part in parts]) for k in range(2))
    return np.where(valid[..., None], Y, np.nan), valid, np.arange(1, len(parts) + 1) * height - 1
