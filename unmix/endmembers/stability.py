"""A count of endmembers by stability: up to which number random starts of N-FINDR end in one and the same simplex."""

import functools
from collections.abc import Callable, Iterator

import numpy as np

from .nfindr import RESIDUAL_ROUNDING, components, exchanged
from .passes import Passes
from .statistics import Moments
from .vca import Points, corners

# Largest count tried; random starts per count; most pixels sampled.
MOST_ENDMEMBERS_TRIED, STARTS, PIXELS = 15, 8, 2**18
# Simplices are the same if the logarithms of their volumes differ by less.
LARGEST_DIFFERENCE_OF_EQUAL = 1e-6


class First(Points):
    """The first components of some projected pixels."""

    def __init__(self, points: Points, d: int) -> None:
        self.pixels, self.d, self.points = points.pixels, d, points
        self.threads, self.pool = points.threads, points.pool

    def parts(self) -> Iterator[tuple[int, Callable[[], np.ndarray]]]:
        """See `Points.parts`."""
        for first, part in self.points.parts():
            yield first, functools.partial(lambda part: np.ascontiguousarray(part()[:, : self.d]), part)

    def row(self, n: int) -> np.ndarray:
        """See `Points.row`."""
        return self.points.row(n)[: self.d]


def thinned(moments: Moments, d: int, passes: Passes, budget: int) -> Points:
    """Return d principal components of every n-th pixel; a pass over the files."""
    return components(moments, d + 1, budget, passes, -(-passes.pixels // PIXELS))[0]


def stable(moments: Moments, passes: Passes, budget: int, seed: int = 0) -> int | None:
    """Return the largest number of endmembers up to which all random starts of N-FINDR end in one simplex.

    With as many corners as a scene has materials there is one largest simplex, and exchanges find it from anywhere; with more, corners
    are noise, and where they end depends on where they begin. It is a hint, not a test: texture has stable corners, too.

    ``budget`` is bytes for the components; the starts are those of VCA with ``seed`` and the next ones. 1 where not even two corners
    are stable; None where there are fewer than three bands or pixels.
    """
    most = min(MOST_ENDMEMBERS_TRIED, len(moments.mean), moments.pixels - 1)
    if most < 2:
        return None
    points, values = thinned(moments, most - 1, passes, budget), np.linalg.eigvalsh(moments.covariance)[::-1]
    try:
        for p in range(2, most + 1):
            if values[p - 2] <= RESIDUAL_ROUNDING * values[0]:
                return p - 1
            some, size = First(points, p - 1), float(np.sqrt(max(values[: p - 1].sum(), 0.0)))
            found = [exchanged(some, corners(some, size, p, seed + k)) for k in range(STARTS)]
            volumes = [-np.inf if one is None else one.log_volume for one in found]
            if not max(volumes) - min(volumes) < LARGEST_DIFFERENCE_OF_EQUAL:
                return p - 1
        return most
    finally:
        points.close()
