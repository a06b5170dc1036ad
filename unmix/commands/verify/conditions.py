"""Hold pixels of a finished run against the conditions of an optimum, by numpy alone, from the scene and the maps."""

from dataclasses import replace
from typing import Any

import numpy as np

from ...features.runs import searches
from ...io import NODATA, Changed, Cube, Scene, bytes_per_line
from ...library import Endmembers, Normalization
from ...methods import choose
from ...methods.constraint import NONNEGATIVE, Constraint
from ...outputs import normalize_of
from .verdict import Maps, Verdict

# Two correct abundances differ by this share of max(1, a): each is a float32 rounding (6e-8) of a solution within δ of
# the optimum.
MAP_TOLERANCE = 2e-6
# A share of |e_j| |y| below which a slope of the cost is rounding.
SMALLEST_SLOPE = 1e-9


def slopes_of_cost(
    Y: np.ndarray, E: np.ndarray, A: np.ndarray, error: np.ndarray, penalty: np.ndarray, background: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return how the cost falls along each abundance (n, p), and how far that may be off if these are by ``error``."""
    # The cost is ½|y − E a|² + penaltyᵀa, or for counts with a ``background`` (L,) Σ (μ − y log μ) with μ = E a + b.
    curve: Any = 1.0
    if background is None:
        slope = (Y - A @ E.T) @ E - penalty
    else:
        mean = A @ E.T + background
        ratio = np.divide(Y, mean, out=np.zeros(Y.shape), where=Y > 0)
        slope, curve = ratio @ E - E.sum(axis=0), np.divide(ratio, mean, out=np.zeros(Y.shape), where=Y > 0)
        Y = ratio
    known = (error @ np.abs(E.T) * curve) @ np.abs(E)
    return slope, known + SMALLEST_SLOPE * np.linalg.norm(Y, axis=1)[:, None] * np.linalg.norm(E, axis=0)


def breaks_conditions(
    A: np.ndarray, error: np.ndarray, slope: np.ndarray, known: np.ndarray, constraint: Constraint, on_support: bool
) -> np.ndarray:
    """Return which pixels (n,) are no optimum; with ``on_support`` by abundances (n, p) that are not 0 only."""
    free = error < A if constraint.has_bounds else np.ones(A.shape, bool)
    if constraint.equations:  # the multiplier of the sum
        weights = np.where(free, np.abs(A), 0.0)
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
        slope = slope - (weights * slope).sum(axis=1, keepdims=True)
        known = known + (weights * known).sum(axis=1, keepdims=True)
    off = np.where(free, np.abs(slope) > known, (slope > known) & (not on_support))
    return np.asarray(off.any(axis=1))


def check_pixels(maps: Maps, scene: Cube, library: Endmembers, sample: int | None, verdict: Verdict) -> None:
    """Check that some or all pixels of a run are feasible, optimal, and of the RMSE that they should have."""
    report = maps.run.report
    if isinstance(scene, Changed):
        library = replace(library, matrix=scene.change_library(library.matrix))
    chosen = np.arange(scene.lines * scene.samples)
    if sample is not None and sample < len(chosen):
        chosen = np.sort(np.random.Generator(np.random.PCG64(0)).choice(len(chosen), sample, replace=False))
    written = Written(maps, Scene(scene, maps.run.bands(), report["nodata"]), library)
    for line in map(int, np.unique(chosen // scene.samples)):
        written.check(line, chosen[chosen // scene.samples == line] % scene.samples, verdict)


class Written:
    """The pixels of a scene and what a run wrote of them.

    Parameters
    ----------
    maps : Maps
    scene : Scene
        With the bands, gains and offsets of the run.
    library : Endmembers
        The endmembers that the run wrote, with shade where the method has it.
    """

    def __init__(self, maps: Maps, scene: Scene, library: Endmembers) -> None:
        report, E = maps.run.report, library.matrix
        asked, self.maps, self.scene = report.get("asked", {}), maps, scene
        self.buffer = np.empty(bytes_per_line(scene.cube), np.uint8)
        is_nmf = report["method"] == "nmf"
        method, solver = (None, None) if is_nmf else choose(report["method"], report["solver"])
        self.constraint = NONNEGATIVE if method is None else method.constraint
        self.normalization = Normalization.of(normalize_of(report), E, self.constraint.has_shade)
        self.penalty = np.full(E.shape[1], float(report["l1"]["lambda"]) if "l1" in report else 0.0)
        self.background = np.array(asked["background"]) if "background" in asked else None
        weights = np.array(asked["weights"]) if isinstance(asked.get("weights"), list) else np.ones(len(E))
        self.weights, self.E = weights, E * weights[:, None]
        self.is_optimum = solver is not None and solver.exact and "spatial" not in report
        self.on_support = any(name in asked for name in searches())
        self.blur = maps.blur("abundance")

    def pixels(self, line: int, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return pixels (n, L) of a line as the run solved them, float64, and which of them are masked, (n,)."""
        raw = self.scene.cube.read(slice(line, line + 1), self.buffer)
        return self.scene.spectra(raw)[places] * self.weights, self.scene.missing(raw)[places]

    def abundances(self, line: int, places: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return written abundances (n, p), how far each may be off, and which pixels have others not written."""
        values = self.maps.line("abundance", line)[places].astype(float)
        partly = np.zeros(len(values), bool)
        if self.maps.run.has("index"):  # the largest alone
            index = self.maps.line("index", line)[places]
            full, partly = np.zeros((len(values), self.E.shape[1] + 1)), values[:, -1] != 0
            np.put_along_axis(full, np.clip(index, 0, self.E.shape[1]).astype(int), values, axis=1)
            values = full[:, 1:]
        error = MAP_TOLERANCE * np.maximum(1.0, np.abs(values)) + self.blur
        if self.normalization is not None:
            scale, w = self.maps.line("scale", line)[places, 0].astype(float), self.normalization.weights
            values = self.normalization.back(values, scale, 1)
            error = np.divide(error * scale[:, None], w, out=np.full(error.shape, np.inf), where=w > 0)
            if self.normalization.has_shade:
                error[:, -1] = error[:, :-1].sum(axis=1)
        return values, error, partly

    @np.errstate(over="ignore", invalid="ignore")  # of a record's gains, which may be a stranger's
    def check(self, line: int, places: np.ndarray, verdict: Verdict) -> None:
        """Check some pixels of a line."""
        (Y, masked), stem = self.pixels(line, places), self.maps.run.stem
        rmse = self.maps.line("rmse", line)[places, 0]
        unsolved = rmse == NODATA
        wrong = (
            masked & ~unsolved if self.background is not None else masked != unsolved
        )  # negative counts have no answer
        wrong |= unsolved & (self.maps.line("abundance", line)[places] != NODATA).any(axis=1)
        verdict.accuse(stem, line, places[wrong], "is masked, and has values, or the other way round")
        A, error, partly = self.abundances(line, places)
        verdict.pixels += int((~unsolved).sum())
        solved = ~(unsolved | masked | partly)
        A, error, Y, places, rmse = (each[solved] for each in (A, error, Y, places, rmse))
        far, constraint = error.sum(axis=1), self.constraint
        wrong = ~(constraint.violation(A, np.ones(len(A), bool)) <= far)
        verdict.accuse(stem, line, places[wrong], f"its abundances are not as {constraint.words} asks")
        left = Y - A @ self.E.T - (0.0 if self.background is None else self.background)
        root = np.sqrt(Y.shape[1])
        truth, size = np.linalg.norm(left, axis=1) / root, np.linalg.norm(Y, axis=1) / root
        room = 1e-6 * truth + 2e-8 * size + np.linalg.norm(error @ np.abs(self.E.T), axis=1) / root
        wrong = ~(np.abs(rmse - truth) <= room) | (np.isfinite(rmse) & ~np.isfinite(truth))
        verdict.accuse(stem, line, places[wrong], "its RMSE does not match the cube")
        if self.is_optimum:
            slope, known = slopes_of_cost(Y, self.E, A, error, self.penalty, self.background)
            wrong = breaks_conditions(A, error, slope, known, constraint, self.on_support)
            verdict.accuse(stem, line, places[wrong], "does not match the cube: its abundances are no optimum")
