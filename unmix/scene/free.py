"""Take spectra of any sign out of pixels and library: backgrounds, offsets, slopes, of which each pixel has its own.

The least squares of ``y − E a − B c`` over c of any sign leave ``P (y − E a)``, P the projection to what is at right
angles to B (Frisch and Waugh 1933). So pixels and library are projected, and every method, its sum and its proof are of
what is left; then ``c = B⁺ (y − E a)``.
"""

import numpy as np

from ..errors import CubeError, LibraryError
from ..io import Changed, Scene
from ..library import Endmembers

# Share of a spectrum outside the span of others, below which it adds no direction of its own.
DEPENDENT_PART = 1e-9


def products(basis: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return ``basisᵀ values``, (q, n), of a basis (L, q) and spectra (L, n), band by band."""
    # A product of matrices would round differently for another number of pixels.
    total = np.zeros((basis.shape[1], values.shape[1]))
    for row, of_band in zip(basis, values):
        total += row[:, None] * of_band
    return total


class Freed(Changed):
    """A scene without what spectra of any sign explain of it.

    Parameters
    ----------
    source : Scene
        A `Window` with L bands in use.
    free : Endmembers
        The spectra, (L, q).

    Raises
    ------
    CubeError, LibraryError
        Where they leave no direction of the bands, or one of them is a mixture of the others.
    """

    refusal = "is a mixture of spectra that are `free`; leave it out with `select`"

    def __init__(self, source: Scene, free: Endmembers) -> None:
        super().__init__(source, np.ones(len(source.bands.index), bool))
        self.free = free
        lengths = np.linalg.norm(free.matrix, axis=0)
        U, sizes, _ = np.linalg.svd(free.matrix / np.where(lengths > 0, lengths, 1.0), full_matrices=False)
        self.basis = np.ascontiguousarray(U[:, sizes > DEPENDENT_PART * sizes.max(initial=0.0)])
        self.lost = self.basis.shape[1]
        if self.basis.shape[1] < min(free.matrix.shape):
            raise LibraryError(f"{free.source}: a spectrum of `free` is zero, or a mixture of the others; leave it out")
        if self.basis.shape[1] + 1 >= len(self.basis):
            raise CubeError(f"{source.cube.path}: {len(self.basis)} bands leave nothing beside so many `free` spectra")

    def change(self, values: np.ndarray) -> np.ndarray:
        """See `Changed.change`."""
        missing = ~np.isfinite(values)
        left = np.ascontiguousarray(np.where(missing, 0.0, values))
        for _ in range(2):  # one pass leaves rounding
            left -= products(self.basis.T, products(self.basis, left))
        return np.where(missing, np.nan, left)

    def amounts(self, Y: np.ndarray, E: np.ndarray, A: np.ndarray) -> np.ndarray:
        """Return the amounts (N, q) of the free spectra in pixels (N, L) with A (N, p) of spectra (L, p) beside them."""
        return products(np.linalg.pinv(self.free.matrix).T, Y.T - products(E.T, A.T)).T
