"""The pixels at the corners of a cloud of spectra, for any number of corners; the components are computed once."""

from functools import cached_property

import numpy as np

from .nfindr import Simplex, exchanged_from
from .statistics import Moments
from .vca import Points, leading

# Components that are computed together.
COMPONENTS = 32


class Cloud:
    """Some spectra, in which corners are looked for.

    Parameters
    ----------
    rows : array (n, L), float64
        The spectra; rows with NaN are left out.
    moments : Moments, optional
        Of the scene that they are a sample of, whose axes are taken: to find those of 16 384 spectra takes as long as
        all the rest.
    """

    def __init__(self, rows: np.ndarray, moments: Moments | None = None) -> None:
        self.rows, self.moments = rows, moments
        self.valid = np.flatnonzero(np.isfinite(rows @ np.ones(rows.shape[1])))

    @property
    def valid_rows(self) -> np.ndarray:
        """The rows without those of NaN."""
        return self.rows if len(self.valid) == len(self.rows) else self.rows[self.valid]

    @cached_property
    def centred(self) -> np.ndarray:
        """The valid rows without their mean."""
        rows = self.valid_rows
        return np.asarray(rows - rows.mean(axis=0))

    @cached_property
    def axes(self) -> tuple[float, np.ndarray]:
        """The trace of the covariance, and its eigenvectors (L, L), the weakest first."""
        if self.moments is not None:
            return float(np.trace(self.moments.covariance)), self.moments.axes[1]
        covariance = self.centred.T @ self.centred / max(1, len(self.valid))
        return float(np.trace(covariance)), np.linalg.eigh(covariance)[1]

    @cached_property
    def components(self) -> np.ndarray:
        """The first principal components of the valid rows, the strongest first."""
        return self.along(leading(self.axes[1], min(self.rows.shape[1], COMPONENTS)))

    def along(self, axes: np.ndarray) -> np.ndarray:
        """Return the components (n, k) of the valid rows without their mean along some axes (L, k)."""
        if self.moments is None:
            return np.asarray(self.centred @ axes)
        return np.asarray(self.valid_rows @ axes - self.moments.mean @ axes)

    def corners(self, p: int) -> list[list[int]]:
        """Return the rows that SPA picks in p − 1 principal components, and the rows that exchanges lead to."""
        if p == 1:
            return [[int(np.argmax(np.square(self.rows).sum(axis=1)))]]
        power, vectors = self.axes
        points = Points(len(self.valid), p - 1, 8 * len(self.valid) * p)
        rows = self.components if p <= COMPONENTS else self.along(leading(vectors, p - 1))
        points.put(0, rows[:, : p - 1])
        first: list[list[int]] = []

        def begin(_: Points, __: float, spanning: list[int]) -> list[list[int]]:
            first.append(spanning)
            return [spanning]

        simplex = exchanged_from(points, float(np.sqrt(power)), p, begin)
        picked = [*first, simplex.places] if isinstance(simplex, Simplex) else first
        return [[int(self.valid[k]) for k in some] for some in picked]
