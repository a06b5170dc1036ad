"""Verify the abundances of a run with a spatial prior (`tv`, `laplacian`): whether they are the optimum of the whole scene."""

import tempfile
from pathlib import Path

import numpy as np

from ...arrays.spatial.field import Field, prior_of
from ...arrays.spatial.passes import PROVEN, SMALLEST_COST, search
from ...reference.neighbours import cost, least_cost, price, refund
from ...runs.penalties.neighbours import Neighbours, fill
from ...runs.penalties.search_file import SearchFile
from .maps import Maps, Verdict
from .solved import SolvedScene

# The largest duality gap of the maps, relative to the cost: three times that of a run, for the rounding of maps to float32.
LARGEST_GAP = 3 * PROVEN
# The largest relative difference of the cost from the recorded one.
LARGEST_DIFFERENCE = 1e-6
MEMORY = 2**28


def check_neighbours(maps: Maps, solved: SolvedScene, everything: bool, verdict: Verdict) -> None:
    """Check the cost of all abundances that were written and, with ``everything``, how far it may be above the optimum.

    The cost is computed from the maps and the cube alone, and so is the bound below which no abundances come: for duals that a search
    of the cube finds anew, and that prove what they prove wherever they are from.
    """
    about = solved.report["spatial"]
    prior = prior_of(**{about["prior"]: about["lambda"]})
    E, cube = solved.library.matrix, solved.cube
    shape = cube.lines, cube.samples, E.shape[1], E.shape[1] - solved.has_shade
    penalty = 0.0 if solved.penalty is None else solved.penalty
    with tempfile.TemporaryDirectory() as folder:
        values = SearchFile(Path(folder) / "search", b"", shape).make().field
        guided = about["edges"] == "guided"
        fill(values, solved.scene, E, penalty, MEMORY, guided)
        Neighbours(prior.kind, prior.weight, guided).connect(values, prior)
        total = cost_of(maps, solved, values, penalty, prior.smooth)
        size = max(total, SMALLEST_COST * values.half_squares)
        if abs(total - about["objective"]) > LARGEST_DIFFERENCE * size:
            verdict.faults.append(
                f"{maps.stem}_abundance: the cost of the abundances is {total:.9g}, not {about['objective']:.9g}"
            )
            return
        verdict.together = "the cost of all abundances together is that of the record"
        if not everything:
            return
        assert solved.method is not None
        sums = solved.method.constraint.sum_to_one
        search(values, E, prior, sums, proven=PROVEN / 2, budget=MEMORY)
        bound = bound_of(solved, values, penalty, prior.smooth, sums)
    gap = (total - bound) / size if size > 0 else 0.0
    verdict.together += f", and at most {gap:.1e} of it above the optimum"
    if not gap <= LARGEST_GAP:
        verdict.faults.append(
            f"{maps.stem}_abundance: the abundances are no optimum: their cost may be {gap:.1e} of it too large (`{prior.kind}`)"
        )


def cost_of(maps: Maps, solved: SolvedScene, values: Field, penalty: np.ndarray | float, smooth: bool) -> float:
    """Return the cost of the abundances that were written."""
    E, q, total, above = solved.library.matrix, values.arrays["W"].shape[1], 0.0, None
    across, down = values.arrays["across"], values.arrays["down"]
    for line in range(solved.cube.lines):
        Y, masked = solved.pixels(line)
        A = np.where(masked[:, None], 0.0, maps.line("abundance", line).T.astype(float))
        total += cost(Y[~masked], E, A[~masked], penalty)
        total += price(A[:-1, :q], A[1:, :q], across[line, :-1], smooth)
        if above is not None:
            total += price(above[:, :q], A[:, :q], down[line - 1], smooth)
        above = A
    return total


def bound_of(solved: SolvedScene, values: Field, penalty: np.ndarray | float, smooth: bool, sum_to_one: bool) -> float:
    """Return what the cost of no abundances is below, by the duals of the field."""
    E, arrays, total = solved.library.matrix, values.arrays, 0.0
    for line in range(solved.cube.lines):
        Y, masked = solved.pixels(line)
        W, U = arrays["W"][line], arrays["U"][line]
        charges = np.zeros((len(Y), E.shape[1]))
        q = len(W)
        charges[:, :q] -= (W + U).T
        charges[1:, :q] += W[:, :-1].T
        if line > 0:
            charges[:, :q] += arrays["U"][line - 1].T
        X = arrays["x"][line].T
        total += least_cost(Y[~masked], E, X[~masked], (charges + penalty)[~masked], sum_to_one)
        total -= refund(W.T, arrays["across"][line], smooth) + refund(U.T, arrays["down"][line], smooth)
    return total
