"""Abundances of an image whose neighbouring pixels are alike, with a proof of how near the optimum they are."""

from dataclasses import replace

import numpy as np

from ...errors import CubeError
from ..pixels import checked
from .field import Field, feasible, prior_of
from .passes import PROVEN, Spatial, search, warn_of_gap

__all__ = ["Spatial", "spatial"]


def spatial(
    Y: np.ndarray, E: np.ndarray, *, tv: float | None = None, laplacian: float | None = None, l1: float = 0.0,
    sum_to_one: bool = False, edges: tuple[np.ndarray, np.ndarray] | None = None, proven: float = PROVEN,
    device: str = "cpu", threads: int | None = None,
) -> Spatial:  # fmt: skip
    """Find nonnegative abundances that are alike in neighbouring pixels, and prove how near the optimum they are.

    Parameters
    ----------
    Y : array-like of shape (lines, samples, L)
        An image, in any real type and unit; pixels that are not finite are left out.
    E : array-like of shape (L, p)
        One spectrum per column, in the unit of Y.
    tv, laplacian : float
        λ, of one of them: total variation, ``λ Σ|a_i − a_j|`` (Iordache, Bioucas-Dias and Plaza 2012), keeps edges; the Laplacian,
        ``½ λ Σ(a_i − a_j)²``, does not. Pairs of neighbours are those in a line and in a column.
    l1 : float
        Cost of abundances beside that.
    sum_to_one : bool
    edges : arrays (lines, samples - 1) and (lines - 1, samples), optional
        Weights of differences, in place of 1.
    proven : float
        The relative duality gap at which the search ends.
    device : str
        "cpu", "cuda", "cuda:K" or "auto".
    threads : int, optional
        CPU threads; default is all.

    Returns
    -------
    Spatial

    Raises
    ------
    CubeError, LibraryError
        As for `unmix.solve`; also where Y is no image.
    MethodError, DeviceError
        If not one of ``tv`` and ``laplacian`` is given, or a number is out of range; if some mixture of spectra is zero, so that
        nothing bounds the cost from below; if the device is unknown or not available.

    Examples
    --------
    >>> import numpy as np, unmix
    >>> E = np.array([[1.0, 0.0], [0.0, 1.0], [0.1, 0.1]])
    >>> image = np.array([[[0.9, 0.1, 0.1], [0.7, 0.3, 0.1]]])
    >>> unmix.spatial(image, E, tv=1.0).abundances.round(3)
    array([[[0.8, 0.2],
            [0.8, 0.2]]])
    """
    prior = prior_of(tv, laplacian)
    Y, E = checked(Y, E)
    if Y.ndim != 3:
        raise CubeError(f"Y has the shape {Y.shape}; neighbours are those of an image (lines, samples, bands)")
    (lines, samples, _), p = Y.shape, E.shape[1]
    values = Field.in_memory(lines, samples, p, p)
    valid = np.isfinite(Y).all(axis=2)
    values.fill(0, np.asarray(Y, float), valid, E, l1)
    weights = [] if edges is None else [np.pad(edges[0], ((0, 0), (0, 1))), np.pad(edges[1], ((0, 1), (0, 0)))]
    values.connect(prior.weight, *weights)
    found = search(values, E, prior, sum_to_one, proven=proven, device=device, threads=threads)
    warn_of_gap(found, "Y", proven)
    A = feasible(values.arrays["a"], sum_to_one).transpose(0, 2, 1)
    return replace(found, abundances=np.where(valid[..., None], A, -9999.0))
