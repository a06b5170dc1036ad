"""Abundances of an image whose neighbouring pixels are alike, with a proof of how near the optimum they are."""

from dataclasses import replace

import numpy as np

from ...errors import CubeError, MethodError
from ...methods import LARGEST_THRESHOLD
from ...problem import refuse_sizes
from ..others.kinds import on_host
from ..pixels import checked, numbered
from .passes import PROVEN, Field, Spatial, feasible, prior_of, search, warn_of_gap


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
        Cost of each abundance, as in `unmix.path`.
    sum_to_one : bool
    edges : arrays (lines, samples - 1) and (lines - 1, samples), optional
        Weights of the differences from the pixel on the right, and from the one below, not negative, in place of 1.
    proven : float
        The relative duality gap at which the search ends, above 0 and at most 1.
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
    if not (isinstance(l1, int | float | np.number) and 0 <= float(l1) < LARGEST_THRESHOLD):
        raise MethodError(f"`l1` {l1}: must be a number that is not negative")
    if not (isinstance(proven, int | float | np.number) and 0 < float(proven) <= 1):
        raise MethodError(f"`proven` {proven}: must be a number above 0, and at most 1")
    refuse_sizes(numbered(E), True)
    values = Field.in_memory(lines, samples, p, p)
    valid = np.isfinite(Y).all(axis=2)
    values.fill(0, np.asarray(Y, float), valid, E, float(l1))
    weights = [] if edges is None else edge_weights(edges, lines, samples)
    values.connect(prior.weight, *weights)
    found = search(values, E, prior, sum_to_one, proven=proven, device=device, threads=threads)
    warn_of_gap(found, "Y", proven)
    A = feasible(values.arrays["a"], sum_to_one).transpose(0, 2, 1)
    return replace(found, abundances=np.where(valid[..., None], A, -9999.0))


def edge_weights(edges: tuple[np.ndarray, np.ndarray], lines: int, samples: int) -> list[np.ndarray]:
    """Return weights as `Field.connect` takes them; `MethodError` where they have other shapes, or are negative or not finite."""
    shapes = [(lines, samples - 1), (lines - 1, samples)]
    given = [] if isinstance(edges, str) else [on_host(one) for one in edges]
    if [one.shape for one in given] != shapes or not all(one.dtype.kind in "buif" for one in given):
        raise MethodError(f"`edges` must be two arrays of numbers, of shapes {shapes[0]} and {shapes[1]}")
    if not all(((one >= 0) & (one < LARGEST_THRESHOLD)).all() for one in given):
        raise MethodError("`edges` must be finite, and not negative")
    return [np.pad(given[0], ((0, 0), (0, 1))), np.pad(given[1], ((0, 1), (0, 0)))]
