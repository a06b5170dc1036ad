"""Take spectra of any sign out of pixels and library: backgrounds, offsets, slopes, of which each pixel has its own.

The least squares of ``y − E a − B c`` over c of any sign leave ``P (y − E a)``, P the projection to what is at right
angles to B (Frisch and Waugh 1933). So pixels and library are projected, and every method, its sum and its proof are of
what is left; then ``c = B⁺ (y − E a)``.
"""

from typing import Any

import numpy as np

from ..compiled.jit import compiled
from ..errors import CubeError, LibraryError
from ..io import Changed, Scene
from ..library import Endmembers

# Share of a spectrum outside the span of others, below which it adds no direction of its own.
DEPENDENT_PART = 1e-9


@compiled
def take_out(values: Any, basis: Any) -> None:
    """Take the span of an orthonormal basis (L, q) out of spectra (L, n), twice, as one pass leaves rounding; in place."""
    # A product of matrices would round differently for another number of pixels.
    L, q = basis.shape
    for n in range(values.shape[1]):
        for _ in range(2):
            for i in range(q):
                product = 0.0
                for b in range(L):
                    product += basis[b, i] * values[b, n]
                for b in range(L):
                    values[b, n] -= product * basis[b, i]


@compiled
def amounts_left(Y: Any, E: Any, A: Any, inverse: Any, left: Any, out: Any) -> None:
    """Write ``B⁺ (y − E a)`` of pixels (N, L) to ``out`` (N, q): E (L, p), A (N, p), B⁺ (q, L), left (L,) scratch."""
    for n in range(Y.shape[0]):
        for b in range(E.shape[0]):
            left[b] = Y[n, b]
            for j in range(E.shape[1]):
                left[b] -= E[b, j] * A[n, j]
        for i in range(inverse.shape[0]):
            out[n, i] = 0.0
            for b in range(E.shape[0]):
                out[n, i] += inverse[i, b] * left[b]


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
        if self.basis.shape[1] < min(free.matrix.shape):
            raise LibraryError(f"{free.source}: a spectrum of `free` is zero, or a mixture of the others; leave it out")
        if self.basis.shape[1] + 1 >= len(self.basis):
            raise CubeError(f"{source.cube.path}: {len(self.basis)} bands leave nothing beside so many `free` spectra")

    def change(self, values: np.ndarray) -> np.ndarray:
        """See `Changed.change`."""
        missing = ~np.isfinite(values)
        left = np.ascontiguousarray(np.where(missing, 0.0, values))
        take_out(left, self.basis)
        return np.where(missing, np.nan, left)

    def amounts(self, Y: np.ndarray, E: np.ndarray, A: np.ndarray) -> np.ndarray:
        """Return the amounts (N, q) of the free spectra in pixels (N, L) with A (N, p) of spectra (L, p) beside them."""
        out = np.empty((len(Y), len(self.free.names)))
        amounts_left(Y, E, np.ascontiguousarray(A), np.linalg.pinv(self.free.matrix), np.empty(len(E)), out)
        return out
