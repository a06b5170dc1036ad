"""Find the right abundances of pixels with at most K endmembers again, by the definition."""

from typing import Any

import numpy as np

from ...arrays.pixels import solve
from .definition import best_move
from .search import MOVES_FOR_EACH


def again(solved: Any, Y: np.ndarray, written: np.ndarray, complete: np.ndarray) -> np.ndarray:
    """Return the right abundances of pixels (n, L) with at most K endmembers: nnls on the written support, if nothing betters it.

    Else, and where not all was written, nnls on the support that our own search finds, bettered by what is found here, if anything is.
    ``complete`` says for which pixels ``written`` (n, p), abundances or fractions, are all that are not 0.
    """
    E, most = solved.library.matrix, solved.asked["at_most"]
    sizes = np.linalg.norm(E, axis=0)
    found, unit = np.zeros((len(Y), E.shape[1])), E / sizes
    searched = solve(Y, E, method="nnls", at_most=most).abundances if len(Y) else found
    for i, length in enumerate(np.linalg.norm(Y, axis=1).tolist()):
        if length == 0.0:
            continue
        y, a, support = Y[i] / length, found[i], np.flatnonzero(written[i] > 0)
        moved: np.ndarray | None = support
        if complete[i] and len(support) <= most:
            a, moved = best_move(y, unit, support, most)
        if moved is not None:
            moved = np.flatnonzero(searched[i])
        for _ in range(MOVES_FOR_EACH * most):
            if moved is None:
                break
            a, moved = best_move(y, unit, moved, most)
        found[i] = a * length / sizes
    return found
