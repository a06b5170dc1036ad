"""Open what a finished run solved, from its record: pixels, endmembers, penalties, and what fractions and deviations are of.

Verify abundances, RMSE, scale and residuals: some pixels of a line solved again, and compared with what was written.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ...certificate import CERTIFIED, MOST_DELTA
from ...errors import CubeError
from ...features.runs import searches
from ...io import Changed, Cube, Scene, bytes_per_line
from ...library import Endmembers, load
from ...maps.derived.noise import AllowedCube, CubeBeside, NoiseCube, WeightsCube
from ...methods import SOLVERS, Method, choose
from ...outputs import finite, normalize_of
from ...problem import LessShade, Problem, Weights, plan_problem
from ...reference.abundances import METHODS, l1, l1_cost, largest, of_pixels, poisson_of_pixel, rmse, with_zeros
from ...reference.fractions import Classes, fractions, from_fractions, weights_of
from ...runs.files.finished import FinishedRun
from .maps import MAP_TOLERANCE, NODATA, Maps, Verdict

Beside = TypeVar("Beside", bound=CubeBeside)


class OwnFactors(NamedTuple):
    """The factors of the bands of each pixel (n, L), and the endmembers that it may have (n, p); None where all have the same."""

    factors: np.ndarray | None = None
    allowed: np.ndarray | None = None

    def of(self, which: np.ndarray) -> "OwnFactors":
        """Return that of some of the pixels."""
        return OwnFactors(*(None if one is None else one[which] for one in self))


ALIKE = OwnFactors()


class SolvedScene:
    """The pixels of a scene as a run solved them, and its problem.

    Parameters
    ----------
    run : FinishedRun
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
    weights_cube : NoiseCube, WeightsCube or None
        By which the bands of each pixel are weighted.
    allowed : AllowedCube or None
        Which endmembers each pixel may have.
    background : array (L,) or None
        Of counts, whose noise is Poisson's.
    """

    def __init__(self, run: FinishedRun, cube: Cube, method: Method | None, solver: str) -> None:
        self.run, self.report, self.cube, self.method, self.solver = run, run.report, cube, method, solver
        self.asked: dict[str, Any] = run.report.get("asked", {})
        self.has_shade = method is not None and method.constraint.has_shade
        self.is_by_models = method is not None and method.is_by_models
        self.bands, self.library = run.bands(), load(run.stem.with_name(run.stem.name + "_endmembers.csv"))
        self.planned: dict[bytes, Problem] = {}  # by the spectra of each draw
        self.buffer = np.empty(bytes_per_line(cube), np.uint8)
        self.w: np.ndarray | None = None
        self.weights: np.ndarray | None = None

    @property
    def scene(self) -> Scene:
        """The cube, with `bands` in use."""
        return Scene(self.cube, self.bands, self.report["nodata"])

    def prepare(self) -> None:
        """Change bands and endmembers as the run did before it solved."""
        if isinstance(self.cube, Changed):
            self.library = replace(self.library, matrix=self.cube.change(self.library.matrix))
        if self.is_by_models and self.asked.get("shade") is not None:
            materials = self.library.take(range(len(self.library.names) - 1))
            self.bands, self.library = LessShade(self.library.matrix[:, -1]).apply(self.bands, materials)
        kind = normalize_of(self.report)
        self.w = None if kind == "none" else weights_of(self.library.matrix, kind, self.has_shade)
        self.plain_library = self.library
        if isinstance(self.asked.get("weights"), list):
            self.weights = np.array(self.asked["weights"])
            self.bands, self.library = Weights(self.weights).apply(self.bands, self.library)
        noise = self.open_beside(NoiseCube, "noise")
        self.noise_cube = noise if noise is None or self.weights is None else noise * self.weights
        is_noise = self.asked.get("weights") == "noise"
        self.weights_cube = self.noise_cube if is_noise else self.open_beside(WeightsCube, "weights")
        names = self.plain_library.names[: len(self.plain_library.names) - self.has_shade]
        self.allowed = self.open_beside(AllowedCube, "allowed", names)
        self.background = None if "background" not in self.asked else np.array(self.asked["background"])

    def open_beside(self, kind: type[Beside], option: str, names: Sequence[str] | None = None) -> Beside | None:
        """Return the cube of an option, where the run had one; `CubeError` where that is missing or another one."""
        if not isinstance(self.asked.get(option), dict):
            return None
        path = self.run.beside(option, self.cube.path)
        cube = kind(path, self.scene, self.run.reading(self.cube.path), names)
        if finite(cube.identity) != self.asked[option]:
            raise CubeError(f"{cube.path}: is not the cube of {cube.what} that the run read")
        return cube

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
        return np.full(len(self.library.names), float(self.report["l1"]["lambda"]))

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

    def solve(self, Y: np.ndarray, E: np.ndarray, own: OwnFactors = ALIKE) -> np.ndarray:
        """Return the abundances (n, p) of pixels (n, L) by `unmix.reference`; an inexact solver has no reference but itself."""
        assert self.method is not None
        if self.background is not None:
            return of_pixels(poisson_of_pixel, Y, E, self.background)
        if own.factors is not None or own.allowed is not None:
            found = np.zeros((len(Y), E.shape[1]))
            for i, y in enumerate(Y):
                w = np.ones(len(y)) if own.factors is None else own.factors[i]
                may = np.ones(E.shape[1], bool) if own.allowed is None else own.allowed[i]
                found[i, may] = self.solve((y * w)[None], E[:, may] * w[:, None])[0]
            return found
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

    def own(self, line: int, places: np.ndarray, Y: np.ndarray) -> tuple[OwnFactors, np.ndarray]:
        """Return what some pixels (n, L) of a line have of their own, and of which it is not known, so that they have no answer."""
        lost, factors, allowed = np.zeros(len(Y), bool), None, None
        if self.weights_cube is not None:
            factors = self.weights_cube.factors(line, 1)[places]
            factors = factors / np.sqrt(np.square(factors).mean(axis=1, keepdims=True))
            lost |= ~np.isfinite(factors).all(axis=1)
        if self.allowed is not None:
            may, known = (values[places] for values in self.allowed.read(line, 1))
            lost |= ~known | ~may.any(axis=1)
            allowed = np.column_stack([may, np.ones((len(may), int(self.has_shade)), bool)])
        if self.background is not None:
            is_dark = ~(self.library.matrix.any(axis=1) | (self.background > 0))
            lost |= (Y < 0).any(axis=1) | (Y[:, is_dark] > 0).any(axis=1)
        return OwnFactors(factors, allowed), lost

    def is_unique(self, Y: np.ndarray, E: np.ndarray, own: OwnFactors = ALIKE) -> np.ndarray:
        """Return for which pixels (n, L) δ proves that no other abundances fit as well, (n,): the others cannot be compared."""
        if self.background is not None:
            from ...arrays.counts import poisson as by_counts

            return np.asarray(by_counts(Y, E, background=self.background).delta <= MOST_DELTA)
        if own.factors is not None or own.allowed is not None:
            from ...arrays.own import solve_each

            weights = None if own.factors is None else np.square(own.factors)
            given = {name: one for name, one in (("weights", weights), ("allowed", own.allowed)) if one is not None}
            return np.asarray(solve_each(Y, E, self.name != "nnls", given, "cpu", None)["delta"] <= MOST_DELTA)
        from ...arrays.pixels import solve_pixels

        problem = self.planned.get(E.tobytes())
        if problem is None:
            names = tuple(map(str, range(E.shape[1])))
            problem = plan_problem(Endmembers(names, E, None), *choose(self.name), warns=False)
            problem = self.planned[E.tobytes()] = replace(
                problem, penalty=np.empty(0) if self.penalty is None else self.penalty
            )
        return solve_pixels(Y, problem, E.shape[1], "cpu", None).delta <= MOST_DELTA


# Two costs of a pixel are the same up to this share of |y|²: the rounding of maps in float32 changes them by 1e-15.
SAME_COST = 1e-13


def check_line(
    maps: Maps, solved: SolvedScene, line: int, places: np.ndarray, verdict: Verdict
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Solve some pixels of a line again and compare; see `verify`.

    Return the places that are not masked, the pixels (n, L) there, and their abundances (n, p); without those whose abundances are not
    all known.
    """
    Y, masked = solved.pixels(line, places)
    own, lost = solved.own(line, places, Y)
    masked = masked | lost
    written_rmse, abundance = maps.line("rmse", line)[0, places], maps.line("abundance", line)[:, places].T
    verdict.pixels += len(places)
    wrong = masked != (written_rmse == NODATA)
    wrong[masked] |= (abundance[masked] != NODATA).any(axis=1)
    if solved.w is not None:
        wrong[masked] |= maps.line("scale", line)[0, places[masked]] != NODATA
    good = places[~masked]
    wrong[~masked], best, known = compare_abundances(
        maps, solved, line, good, Y[~masked], own.of(~masked), wrong[~masked], verdict
    )
    verdict.accuse(maps.stem, line, places[wrong], "does not match the cube")
    return good[known], Y[~masked][known], best[known]


def compare_abundances(
    maps: Maps, solved: SolvedScene, line: int, places: np.ndarray, Y: np.ndarray, own: OwnFactors, wrong: np.ndarray,
    verdict: Verdict,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Return which pixels (n, L) of a line differ from what was written, their abundances (n, p), and for which these are known."""
    E, method, w = solved.library.matrix, solved.method, solved.w
    blur, found = maps.blur("abundance"), maps.line("abundance", line)[:, places].T
    written_rmse = maps.line("rmse", line)[0, places]
    written, complete = written_of(maps, line, places, E.shape[1])
    search = next((one for name, one in searches().items() if name in solved.asked), None)
    if method is None or "spatial" in solved.report:  # no pixel has an answer of its own
        best = written.astype(float)
        wrong |= (found < 0).any(axis=1)
    else:
        best = solved.solve(Y, E, own) if search is None else search.again(solved, Y, written, complete)
    counts, factors = Y, own.factors
    Y = Y if solved.background is None else Y - solved.background
    residual = Y - best @ E.T
    truth, length = rmse(Y, E, best, factors), np.sqrt(np.square(Y).sum(axis=1))
    known = best if w is None else fractions(best, w)[0]
    off, whole = differences(maps, line, places, found, known)
    if solved.penalty is not None and "index" not in maps and w is None:
        off[(off > MAP_TOLERANCE) & costs_as_little(Y, E, written.astype(float), best, solved.penalty, blur)] = 0.0
    if w is not None:
        written_scale = maps.line("scale", line)[0, places].astype(float)
        written = from_fractions(written, written_scale, w, solved.has_shade)
    unclear = np.zeros(len(Y), bool)
    if method is not None and search is None and SOLVERS[solved.solver].exact:
        doubtful = (off > MAP_TOLERANCE) | ~complete
        unclear[doubtful] = ~solved.is_unique(counts[doubtful], E, own.of(doubtful)) if doubtful.any() else False
    fits = is_answer(written.astype(float), complete, Y, E, factors, solved, written_rmse, blur)
    off[unclear] = np.where(fits[unclear], 0.0, np.inf)
    best = np.where((unclear & complete)[:, None], written, best)
    if w is not None:
        scale = fractions(best, w)[1]
        limit = len(E.T) * MAP_TOLERANCE * np.maximum(scale, float(w.max(initial=0.0)))
        wrong |= ~unclear & ~(np.abs(written_scale - scale) <= limit)
    rmse_off = np.abs(written_rmse - truth)
    # Of a pixel of zeros the abundances are some 1e-16, and the residual is that part of the spectra.
    limit = 1e-6 * truth + 2e-8 * length / np.sqrt(len(E)) + 1e-14 * np.abs(E).max()
    # Infinite or NaN differences are no match, unless the map has such a value as well.
    wrong |= ~(off <= MAP_TOLERANCE) | (rmse_off > limit) | (np.isfinite(written_rmse) & ~np.isfinite(truth))
    shown = np.where(off > 0, off + blur, np.minimum(whole, blur))  # with what the steps explain
    verdict.worst_abundance = max(verdict.worst_abundance, float(shown.max(initial=0)))
    verdict.worst_rmse = max(verdict.worst_rmse, float((rmse_off / np.maximum(length, 1e-300)).max(initial=0)))
    if "residual" in maps:
        weights = 1.0 if solved.weights is None else solved.weights
        size = (np.abs(Y) + np.abs(best) @ np.abs(E).T).max(axis=1, initial=0, keepdims=True)
        left = maps.line("residual", line)[:, places].T * weights
        wrong |= (np.abs(left - residual) > 1e-6 * size + maps.blur("residual") * weights).any(axis=1)
    if "certificate" in maps and SOLVERS[solved.solver].exact:
        wrong |= ~(maps.line("certificate", line)[0, places] <= CERTIFIED)
    return wrong, best, complete | ~unclear


def written_of(maps: Maps, line: int, places: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the abundances (n, p) that were written of some pixels of a line, and of which pixels these are all that are not 0."""
    values = maps.line("abundance", line)[:, places].T
    if "index" in maps:
        return with_zeros(values, maps.line("index", line)[:, places].T.astype(int), p)
    return values, np.ones(len(values), bool)


def differences(
    maps: Maps, line: int, places: np.ndarray, found: np.ndarray, known: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return by how much written values (n, bands) are off, relative to max(1, a): beyond the steps they are stored in, and in all."""
    blur = maps.blur("abundance")
    expected = known if "index" not in maps else largest(known, found.shape[1])[0]
    apart, size = np.abs(found - expected), np.maximum(1, np.abs(expected))
    off, whole = ((each / size).max(axis=1, initial=0) for each in (np.maximum(apart - blur, 0), apart))
    if "index" in maps:  # each of the largest is that of the endmember which is named
        index = maps.line("index", line)[:, places].T.astype(int)
        named = np.where(index > 0, np.take_along_axis(known, np.maximum(index - 1, 0), axis=1), 0)
        elsewhere = np.maximum(np.abs(named - found) - blur, 0) / np.maximum(1, np.abs(found))
        off = np.maximum(off, elsewhere.max(axis=1, initial=0))
    return off, whole


def costs_as_little(
    Y: np.ndarray, E: np.ndarray, A: np.ndarray, best: np.ndarray, penalty: np.ndarray, blur: float
) -> np.ndarray:
    """Return which abundances (n, p) cost no more than others: where a penalty is below rounding, it cannot choose between them.

    ``blur`` is by how much each abundance may be off: near the optimum that costs no more than its square.
    """
    allowed = 0.5 * (blur * np.sqrt(np.square(E).sum(axis=0)).sum()) ** 2 + SAME_COST * np.square(Y).sum(axis=1)
    is_cheap = l1_cost(Y, E, A, penalty) <= l1_cost(Y, E, best, penalty) + allowed
    return np.asarray(is_cheap & (A >= 0).all(axis=1))


def is_answer(
    A: np.ndarray, complete: np.ndarray, Y: np.ndarray, E: np.ndarray, factors: np.ndarray | None, solved: SolvedScene,
    written_rmse: np.ndarray, blur: float,
) -> np.ndarray:  # fmt: skip
    """Return which abundances (n, p), ``blur`` off at most, are feasible and, where all are known, leave the RMSE that was written."""
    if solved.method is None:
        return np.ones(len(A), bool)
    limit = MAP_TOLERANCE * np.maximum(1, np.abs(A).sum(axis=1)) + blur * A.shape[1]
    good = np.isfinite(A).all(axis=1) & (solved.method.constraint.violation(A, complete) <= limit)
    left = rmse(Y, E, A, factors)
    return good & (~complete | (np.abs(left - written_rmse) <= 1e-6 * left + limit * np.abs(E).max()))
