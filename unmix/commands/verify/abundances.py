"""Verify abundances, RMSE, scale and residuals: some pixels of a line solved again, and compared with what was written."""

import numpy as np

from ...certificate import CERTIFIED
from ...features.runs import searches
from ...methods import SOLVERS
from ...reference.abundances import largest, rmse, with_zeros
from ...reference.fractions import fractions, from_fractions
from ...reference.penalties import l1_cost
from .maps import MAP_TOLERANCE, NODATA, Maps, Verdict
from .solved import Own, SolvedScene

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
    wrong[~masked], best, known = compare(
        maps, solved, line, good, Y[~masked], own.of(~masked), wrong[~masked], verdict
    )
    verdict.accuse(maps.stem, line, places[wrong], "does not match the cube")
    return good[known], Y[~masked][known], best[known]


def compare(
    maps: Maps, solved: SolvedScene, line: int, places: np.ndarray, Y: np.ndarray, own: Own, wrong: np.ndarray,
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
