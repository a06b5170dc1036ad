"""Open what a finished run solved, from its record: pixels, endmembers, penalties, and what fractions and deviations are of."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...certificate import MOST_DELTA
from ...errors import CubeError
from ...io import Bands, Cube, Scene, bytes_per_line
from ...io.window import Tied
from ...library import Endmembers, load
from ...maps.derived.noise import NoiseCube
from ...methods import SOLVERS, Method, choose
from ...outputs.run_record import normalize_of
from ...problem import Problem, plan_problem
from ...problem.steps import Costs, LessShade, Weights
from ...reference.abundances import METHODS, of_pixels
from ...reference.at_most import best_move
from ...reference.fractions import Classes, weights_of
from ...reference.penalties import l1
from ...scene import ReadOptions, name_for

# Additions and exchanges for each endmember that a pixel may have at most.
MOVES_FOR_EACH = 20


class SolvedScene:
    """The pixels of a scene as a run solved them, and its problem.

    Parameters
    ----------
    stem : Path
        The beginning of the outputs' names.
    report : dict
        The run's record.
    cube : Cube
    method : Method or None
        None for nmf.
    solver : str

    Attributes
    ----------
    bands, library : Bands, Endmembers
        With weights of bands, without the spectrum of shade under MESMA; `plain_library` has its own spectra.
    w : array (p,) or None
        Factors of the abundances, where fractions are written.
    weights : array (L,) or None
        The weights of bands.
    divides_by_noise : bool
        Whether each pixel's bands have the weights that its noise gives them.
    costs : Costs or None
        Of the squares of abundances (`l21`); its bands are not yet among ``bands``.
    """

    def __init__(self, stem: Path, report: dict[str, Any], cube: Cube, method: Method | None, solver: str) -> None:
        self.report, self.cube, self.method, self.solver = report, cube, method, solver
        self.asked: dict[str, Any] = report.get("asked", {})
        self.has_shade = method is not None and method.constraint.has_shade
        self.is_by_models = method is not None and method.is_by_models
        index = np.array(report["bands_used"]) - 1
        # Copied: code for arrays that cannot be written to would be compiled once more.
        gain, offset = (
            np.broadcast_to(np.asarray(report[key], float), len(index)).copy() for key in ("gain", "offset")
        )
        self.bands, self.library = Bands(index, gain, offset), load(stem.with_name(stem.name + "_endmembers.csv"))
        self.planned: dict[bytes, Problem] = {}  # by the spectra of each draw
        self.buffer = np.empty(bytes_per_line(cube), np.uint8)
        self.w: np.ndarray | None = None
        self.weights: np.ndarray | None = None
        self.costs: Costs | None = None

    @property
    def scene(self) -> Scene:
        """The cube, with `bands` in use."""
        return Scene(self.cube, self.bands, self.report["nodata"])

    def prepare(self) -> None:
        """Change bands and endmembers as the run did before it solved."""
        if isinstance(self.cube, Tied):
            self.library = replace(self.library, matrix=self.cube.tie(self.library.matrix))
        if self.is_by_models and self.asked.get("shade") is not None:
            materials = self.library.take(range(len(self.library.names) - 1))
            self.bands, self.library = LessShade(self.library.matrix[:, -1]).apply(self.bands, materials)
        kind = normalize_of(self.report)
        self.w = None if kind == "none" else weights_of(self.library.matrix, kind, self.has_shade)
        self.plain_library = self.library
        self.divides_by_noise = self.asked.get("weights") == "noise"
        if self.asked.get("weights") is not None and not self.divides_by_noise:
            self.weights = np.array(self.asked["weights"])
            self.bands, self.library = Weights(self.weights).apply(self.bands, self.library)
        if "l21" in self.report:
            self.costs = Costs(np.array(self.report["l21"]["costs"]))
        self.noise_cube = self.open_noise()

    def open_noise(self) -> NoiseCube | None:
        """Return the noise of each pixel, where a run had it from a cube; `CubeError` where that is missing or another one."""
        if not isinstance(self.asked.get("noise"), dict):
            return None
        path = name_for(self.report["options"]["noise"], self.cube.path)
        cube = NoiseCube(path, self.scene, ReadOptions(**self.report["reading"]))
        if cube.identity != self.asked["noise"]:
            raise CubeError(f"{cube.path}: is not the noise that the run read")
        return cube if self.weights is None else cube * self.weights

    @property
    def noise(self) -> np.ndarray | None:
        """The noise of each band, (L,), where it is the same in all pixels."""
        noise = self.asked.get("noise")
        if not isinstance(noise, list):
            return None
        return np.array(noise) * (1.0 if self.weights is None else self.weights)

    @property
    def penalty(self) -> np.ndarray | None:
        """Costs of the abundances (`l1`), (p,)."""
        asked = self.asked.get("l1")
        if asked is None:
            return None
        weights = np.ones(len(self.library.names)) if asked["weights"] is None else np.array(asked["weights"])
        return float(self.report["l1"]["lambda"]) * weights

    @property
    def name(self) -> str:
        """The method by which endmembers as they were written, shade among them, give the same abundances."""
        assert self.method is not None
        return "fcls" if self.has_shade else self.method.name

    @property
    def classes(self) -> Classes:
        """How abundances are summed by class; of abundances times `w`, where fractions are written."""
        kinds = (self.library.classes or ())[: len(self.library.names) - self.has_shade]
        return Classes.of(kinds, self.weights_of_sums, bool(self.asked.get("shade_normalize")) or self.w is not None)

    @property
    def weights_of_sums(self) -> np.ndarray:
        """Factors of the abundances in sums, (p,); 0 for shade."""
        return weights_of(self.library.matrix, "sum", self.has_shade) if self.w is None else self.w

    def pixels(self, line: int, places: np.ndarray | slice = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Return pixels (n, L) of a line as the run solved them, float64, and which of them are masked, (n,)."""
        raw = self.cube.read(slice(line, line + 1), self.buffer)
        return self.scene.spectra(raw)[places], self.scene.missing(raw)[places]

    def solve(self, Y: np.ndarray, E: np.ndarray, factors: np.ndarray | None = None) -> np.ndarray:
        """Return the abundances (n, p) of pixels (n, L) by `unmix.reference`; an inexact solver has no reference but itself.

        ``factors`` (n, L) multiply the bands of each pixel, where pixels have weights of their own.
        """
        assert self.method is not None
        if factors is not None:
            rows = [self.solve((y * w)[None], E * w[:, None])[0] for y, w in zip(Y, factors)]
            return np.array(rows).reshape(len(Y), E.shape[1])
        if self.penalty is not None:
            return of_pixels(l1, Y, E, self.penalty)
        if not SOLVERS[self.solver].exact:
            from ...arrays.pixels import solve

            return solve(Y, E, method=self.method.name, solver=self.solver).abundances
        if self.w is None or not self.method.constraint.is_cone:
            return of_pixels(METHODS[self.name], Y, E)
        # Brought to length 1, which changes no fraction: scipy's tolerance is absolute.
        lengths = np.linalg.norm(Y, axis=1, keepdims=True)
        return of_pixels(METHODS[self.name], Y / np.where(lengths > 0, lengths, 1.0), E) * lengths

    def factors(self, line: int, places: np.ndarray) -> np.ndarray | None:
        """Return the weights (n, L) of the bands of some pixels of a line, NaN where noise is missing; None where all have the same."""
        if not self.divides_by_noise or self.noise_cube is None:
            return None
        noise = self.noise_cube.read(line, 1)[places]
        factors = np.where(np.isfinite(noise), 1.0 / noise, np.nan)
        return np.asarray(factors / np.sqrt(np.square(factors).mean(axis=1, keepdims=True)))

    def is_unique(self, Y: np.ndarray, E: np.ndarray, factors: np.ndarray | None = None) -> np.ndarray:
        """Return for which pixels (n, L) δ proves that no other abundances fit as well, (n,): the others cannot be compared.

        ``factors`` as of `solve`.
        """
        if factors is not None:
            from ...arrays.own import solve_each

            own = {"weights": np.square(factors)}
            return np.asarray(solve_each(Y, E, self.name != "nnls", own, "cpu", None)["delta"] <= MOST_DELTA)
        from ...arrays.pixels import solve_pixels

        problem = self.planned.get(E.tobytes())
        if problem is None:
            names = tuple(map(str, range(E.shape[1])))
            problem = plan_problem(Endmembers(names, E, None), *choose(self.name), warns=False)
            problem = self.planned[E.tobytes()] = replace(
                problem, penalty=np.empty(0) if self.penalty is None else self.penalty
            )
        return solve_pixels(Y, problem, E.shape[1], "cpu", None).delta <= MOST_DELTA

    def solve_at_most(self, Y: np.ndarray, written: np.ndarray, complete: np.ndarray) -> np.ndarray:
        """Return the right abundances of pixels (n, L) with at most K endmembers: nnls on the written support, if nothing betters it.

        Else, and where not all was written, nnls on the support that our own search finds, bettered by what is found here, if
        anything is. ``complete`` says for which pixels ``written`` (n, p), abundances or fractions, are all that are not 0.
        """
        from ...arrays.pixels import solve

        E, most = self.library.matrix, self.asked["at_most"]
        sizes = np.linalg.norm(E, axis=0)
        found, unit = np.zeros((len(Y), E.shape[1])), E / sizes
        again = solve(Y, E, method="nnls", at_most=most).abundances if len(Y) else found
        for i, length in enumerate(np.linalg.norm(Y, axis=1).tolist()):
            if length == 0.0:
                continue
            y, a, support = Y[i] / length, found[i], np.flatnonzero(written[i] > 0)
            moved: np.ndarray | None = support
            if complete[i] and len(support) <= most:
                a, moved = best_move(y, unit, support, most)
            if moved is not None:
                moved = np.flatnonzero(again[i])
            for _ in range(MOVES_FOR_EACH * most):
                if moved is None:
                    break
                a, moved = best_move(y, unit, moved, most)
            found[i] = a * length / sizes
        return found
