"""A spatial prior that a run asks for (`tv`, `laplacian`): its λ, the search over the whole scene, and the abundances that it found."""

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays.spatial.passes import Field, Prior, feasible, prior_of, search, warn_of_gap
from ...certificate import SOLVED
from ...devices.slots import put
from ...endmembers import signal_of
from ...endmembers.counts import noise_power
from ...endmembers.statistics import walk
from ...errors import CubeError, OutputError
from ...io import Cube, Scene, spectra
from ...options import Options
from ...problem import Problem
from .search_file import SearchFile

log = logging.getLogger("unmix")

# Windows of the scene on which λ is chosen: their side, and the most values of abundances in all of them.
WINDOW, MOST_VALUES = 32, 250_000
# The gap, and the most steps, to which λ that are tried are searched; the ratio between successive ones, and the number without
# improvement that ends the choice.
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
    guided : bool
        Whether the scene says where differences cost less.
    chosen_by : dict
        Where λ was chosen: ``rule``, and ``noise``, the standard deviation of a band that the rule was told.
    found : dict
        ``objective``, ``gap`` and ``steps`` of the search, once it is done.
    kept : dict
        Where the search's file holds the abundances, and their digest, once it is done; see `SearchFile.about`.
    """

    kind: str
    weight: float | str
    guided: bool = False
    chosen_by: dict[str, Any] = field(default_factory=dict)
    found: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Options) -> "Neighbours | None":
        """Return what the options ask for, None for nothing."""
        asked = {name: getattr(options, name) for name in ("tv", "laplacian") if getattr(options, name) is not None}
        return None if not asked else cls(*asked.popitem(), guided=options.edges == "guided")

    def request(self) -> dict[str, Any]:
        """Return the facts that abundances depend on, for ``run.json``."""
        return {self.kind: self.weight} | ({"edges": "guided"} if self.guided else {})

    def state(self) -> dict[str, Any]:
        """Return what a resumed run takes over."""
        return {"weight": self.weight, "chosen_by": self.chosen_by, "found": self.found, "kept": self.kept}

    def about(self) -> dict[str, Any]:
        """Return the entry in a run's record: see docs/run.schema.json."""
        edges = "guided" if self.guided else "alike"
        return {"prior": self.kind, "lambda": self.weight, "edges": edges} | self.found | self.chosen_by

    def smooth(
        self, problem: Problem, cube: Cube, noise: float | None, options: Options, device: str, file: Path, key: bytes
    ) -> tuple["Neighbours", Problem]:
        """Search the whole scene, unless an earlier run has; return this with what was found, and the problem with the abundances.

        Parameters
        ----------
        problem : Problem
            With `l1`, if there is any.
        cube : Cube
        noise : float or None
            The sum over the bands of the variance of noise, for the choice of λ.
        options : Options
        device : str
        file : Path
            Holds the iterate; a search that was cut off goes on from it.
        key : bytes
            A digest of request and input: a file of another is not gone on from.
        """
        scene = problem.scene(cube)
        q = problem.E.shape[1] - problem.constraint.has_shade
        source = SearchFile(file.absolute(), key, (cube.lines, cube.samples, problem.E.shape[1], q))
        if self.found:
            if not source.is_there() or source.about() != self.kept:
                raise OutputError(
                    f"{file}: is not there, or not as the run that was cut off left it; begin anew with `overwrite`"
                )
            return self, replace(problem, own=Smoothed(source, problem.constraint.sum_to_one))
        this = self if not isinstance(self.weight, str) else self.chosen(problem, scene, noise, options, device)
        known = source.is_there() and source.field.is_finite()
        if not known:
            source = replace(source).make()
        values = source.field
        fill(values, scene, problem.endmembers.matrix, penalty_of(problem), options.budget, this.guided)
        prior = prior_of(**{this.kind: float(this.weight)})
        this.connect(values, prior)

        def said(steps: int, objective: float, gap: float) -> None:
            log.debug(f"{cube.path}: {this.kind}: {steps} steps, cost {objective:.6g}, duality gap {gap:.1e} of it")

        if known:
            log.info(f"{cube.path}: {this.kind}: goes on from where an earlier search was")
        found = search(
            values, problem.endmembers.matrix, prior, problem.constraint.sum_to_one, budget=options.budget, device=device,
            threads=options.threads, said=said, start=not known,
        )  # fmt: skip
        log.info(
            f"{cube.path}: {this.kind} {found.weight:g}: duality gap {found.gap:.1e} of the cost after {found.steps} steps"
        )
        warn_of_gap(found, cube.path)
        about = {name: getattr(found, name) for name in ("objective", "gap", "steps", "proved")}
        this = replace(this, found=about, kept=source.about())
        return this, replace(problem, own=Smoothed(source, problem.constraint.sum_to_one))

    def connect(self, values: Field, prior: Prior) -> None:
        """Set the costs of the field's edges, which hold the squares of differences between spectra if they are to guide."""
        weights: tuple[np.ndarray, ...] = ()
        if self.guided:
            weights = guides(values.arrays["across"].copy(), values.arrays["down"].copy())
        values.connect(prior.weight, *weights)

    def chosen(
        self, problem: Problem, scene: Scene, noise: float | None, options: Options, device: str
    ) -> "Neighbours":
        """Return this with the λ of the least expected error of the fit, by Stein's unbiased estimate on windows of the scene.

        The expectation of ``Σ |E a − clean y|²`` is that of ``Σ |y − E a|² + 2 σ² d``, less a constant; d, the degrees of freedom, is
        measured by a change of the pixels at random (Ramani et al. 2008).
        """
        if noise is None:
            powers = noise_power(signal_of(scene, options.budget, options.threads)).values()
            noise = min((power for power in powers if power is not None), default=0.0)  # more would hide differences
        E = problem.endmembers.matrix
        sigma = math.sqrt(noise / len(E))
        Y, valid, ends = windows_of_scene(scene, E.shape[1])
        if not (sigma > 0 and valid.any()):
            why = "the noise is 0" if valid.any() else "no pixel of the windows that it is chosen on has values"
            raise CubeError(f"{scene.cube.path}: `{self.kind}` auto: {why}; give a number")
        log.info(
            f"{scene.cube.path}: {self.kind} auto: tries λ on {len(ends)} windows of the scene; a run that is stopped tries again"
        )
        trials = NeighbourTrials(self, problem, Y, valid, ends, sigma, device, options.threads)
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
    prior : Neighbours
    problem : Problem
    Y, valid : arrays (lines, S, L) and (lines, S)
        Windows, one below the other.
    ends : array of int
        The last line of each.
    sigma : float
        Standard deviation of the noise of a band.
    device, threads
    """

    def __init__(
        self, prior: Neighbours, problem: Problem, Y: np.ndarray, valid: np.ndarray, ends: np.ndarray, sigma: float, device: str,
        threads: int | None,
    ) -> None:  # fmt: skip
        self.prior, self.E, self.sum_to_one = prior, problem.endmembers.matrix, problem.constraint.sum_to_one
        self.Y, self.valid, self.sigma, self.ends = Y, valid, sigma, ends
        self.device, self.threads = device, threads
        self.change = np.random.Generator(np.random.PCG64(0)).standard_normal(Y.shape) * valid[..., None]
        penalty = penalty_of(problem)
        q = self.E.shape[1] - problem.constraint.has_shade
        lines, samples, _ = Y.shape
        self.fields = [Field.in_memory(lines, samples, self.E.shape[1], q) for _ in range(2)]
        for one, moved in zip(self.fields, (Y, Y + PROBE * sigma * self.change)):
            one.fill(0, moved, valid, self.E, penalty)
        self.differences = differences(Y)
        self.begun = False

    def fit(self, values: Field, weight: float) -> np.ndarray:
        """Return ``E a`` (lines, S, L) for a λ; the next search begins there."""
        if self.prior.guided:
            values.arrays["across"][:], values.arrays["down"][:] = self.differences
        prior = Prior(self.prior.kind, weight)
        self.prior.connect(values, prior)
        values.arrays["down"][self.ends] = 0.0
        search(
            values, self.E, prior, self.sum_to_one, proven=PROVEN_TO_CHOOSE, most=MOST_STEPS_TO_CHOOSE, device=self.device,
            threads=self.threads, start=not self.begun,
        )  # fmt: skip
        return feasible(values.arrays["a"], self.sum_to_one).transpose(0, 2, 1) @ self.E.T * self.valid[..., None]

    def risk(self, weight: float) -> float:
        """Return the estimate of the error of the fit, less a constant."""
        fit, moved = (self.fit(values, weight) for values in self.fields)
        self.begun = True
        left = float(np.square(np.where(self.valid[..., None], self.Y, 0.0) - fit).sum())
        freedom = float((self.change * (moved - fit)).sum()) / (PROBE * self.sigma) if self.sigma > 0 else 0.0
        return left + 2.0 * self.sigma**2 * freedom


@dataclass
class Smoothed:
    """The abundances that the search found, in place of each pixel's own (`unmix.problem.Problem.own`).

    Attributes
    ----------
    source : SearchFile
    sum_to_one : bool
    """

    source: SearchFile
    sum_to_one: bool

    def messages(self) -> list[str]:
        """Return why pixels have no answer: nothing more than their values says."""
        return []

    def solve(
        self, problem: Problem, first: int, raw: np.ndarray, results: dict[str, np.ndarray], threads: int
    ) -> None:
        """Put the abundances of some lines, and their residuals, in the place of the pixels' own; see `OwnPixels.solve`."""
        state = results["state"]
        n, S = state.shape
        Y = spectra(raw, problem.interleave, problem.bands).reshape(n, S, -1)
        A = feasible(self.source.lines(first, n), self.sum_to_one)
        A = A.astype(np.float32).astype(float)  # as maps hold them, of which the residuals are
        solved = state == SOLVED
        A = A.transpose(0, 2, 1)[solved]
        left, length = Y[solved] - A @ problem.endmembers.matrix.T, np.sqrt(np.square(Y[solved]).mean(axis=1))
        # Of κ, δ and steps there are none: the proof is of all pixels together.
        found = {"abundances": A, "rmse": np.sqrt(np.square(left).mean(axis=1)), "kappa": 0, "delta": 0, "steps": 0}
        put(results, solved, found, left, length)


def proved_together(report: dict[str, Any]) -> dict[str, Any]:
    """Return a record whose pixels are proved together: nothing of it says how far each is from an optimum of its own."""
    pixels = {
        name: count for name, count in report["pixels"].items() if name in ("all", "solved", "masked", "partly_nodata")
    }
    of_each = ("failures", "worst_kappa", "worst_delta", "kappa_histogram", "steps")
    rest = {name: one for name, one in report.items() if name not in of_each}
    return rest | {"pixels": pixels, "certified": report["spatial"]["proved"]}


def rows_of(scene: Scene, budget: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield the number of the first line, pixels (n, S, L) and which of them have values (n, S), some lines at a time."""
    L, S = len(scene.bands.index), scene.cube.samples
    for lines, raw in walk(scene.cube, budget, 4 * 8 * L * S):
        n = lines.stop - lines.start
        yield lines.start, scene.spectra(raw).reshape(n, S, L), ~scene.missing(raw).reshape(n, S)


def penalty_of(problem: Problem) -> np.ndarray | float:
    """Return the costs of abundances (p,), 0 where there are none."""
    return problem.penalty if problem.penalty.size else 0.0


def fill(values: Field, scene: Scene, E: np.ndarray, penalty: np.ndarray | float, budget: int, guided: bool) -> None:
    """Fill the field's correlations and lengths in one pass over the scene, and if guided, the differences of neighbours."""
    above: np.ndarray | None = None  # the line before
    for first, Y, valid in rows_of(scene, budget):
        values.fill(first, Y, valid, E, penalty)
        if guided:
            Y = np.where(valid[..., None], Y, np.nan)
            across, down = differences(Y if above is None else np.concatenate([above, Y]))
            stop = first + len(Y)
            values.arrays["across"][stop - len(across) : stop] = across
            values.arrays["down"][stop - len(down) : stop] = down
            above = Y[-1:]


def differences(Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean squares of the differences between pixels (n, S, L) and those on their right and below, (n, S) each.

    They are 0 where there is no such pixel, or one of the two is NaN.
    """
    across, down = np.zeros(Y.shape[:2]), np.zeros(Y.shape[:2])
    across[:, :-1] = np.square(Y[:, 1:] - Y[:, :-1]).mean(axis=2)
    down[:-1] = np.square(Y[1:] - Y[:-1]).mean(axis=2)
    return np.nan_to_num(across), np.nan_to_num(down)


def guides(across: np.ndarray, down: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of edges: 1 up to the scene's median difference, and ``exp(1 − d²/median)`` above (Perona and Malik 1990)."""
    both = np.concatenate([across[across > 0].ravel(), down[down > 0].ravel()])
    middle = float(np.median(both)) if both.size else 1.0
    return tuple(np.minimum(1.0, np.exp(1.0 - one / middle)) for one in (across, down))  # type: ignore[return-value]


def windows_of_scene(scene: Scene, p: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return windows of a scene one below the other, (lines, S, L), which pixels have values, and the last line of each window.

    Their lines are evenly spread over the scene. Where all pixels have values, the windows are on its diagonals; else each is moved to
    the nearest place in its lines where the most have.
    """
    lines, samples = scene.cube.lines, scene.cube.samples
    height, width = min(WINDOW, lines), min(WINDOW, samples)
    count = max(1, min(MOST_VALUES // (p * height * width), -(-lines // height) * -(-samples // width)))
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
