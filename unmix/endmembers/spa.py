"""SPA, successive projections (Araújo et al. 2001; for endmembers: Gillis and Vavasis 2014): the pixels farthest from all before.

The first is the longest; then, p − 1 times, the one of which most is left beside those found. No random number. Streamed as `vca`: one
pass of moments, one that projects to p dimensions, where the signal is.
"""

import numpy as np

from ..solvers.jit import compiled
from .statistics import Moments
from .vca import Points, Project, principal


@compiled
def longest(X, P):
    """The row of X of which ``P x`` is the longest, the lowest of equals, and its squared length; NaN rows never win."""
    best, most = 0, -1.0
    d = X.shape[1]
    for n in range(X.shape[0]):
        square = 0.0
        for i in range(d):
            part = 0.0
            for j in range(d):
                part += P[i, j] * X[n, j]
            square += part * part
        if square > most:
            best, most = n, square
    return best, most


def spa(moments: Moments, p: int, seed: int, pixels: int, budget: int, project: Project) -> list[int]:
    """Pick p pixels; arguments as of `unmix.endmembers.vca.vca`, of which ``seed`` is not used.

    Returns
    -------
    list of int
        Places of the pixels, counted along the lines.
    """
    U = principal(moments.second, p)
    points = Points(pixels, p, budget)
    try:
        project(U, np.zeros(p), points.put)
        return successive(points, p)
    finally:
        points.close()


def successive(points: Points, p: int) -> list[int]:
    """The main loop; each pixel's direction is taken out twice, since once leaves rounding of the longest."""
    P = np.eye(points.d)
    found = []
    for _ in range(p):
        best, most = 0, -1.0
        for first, rows in points.pieces():
            n, square = longest(rows, P)
            if square > most:
                best, most = first + int(n), square
        found.append(best)
        left = P @ (P @ points.row(best))
        length = float(np.linalg.norm(left))
        if length > 0:
            P -= np.outer(left, left) / length**2
    return found
