"""Fit counts with Poisson noise by the most likely non-negative mixture of spectra, with its gap proved."""

from dataclasses import dataclass

import numpy as np
from scipy.special import kl_div, xlogy

from ...errors import InputError
from ...problem import refuse_sizes
from ..mixtures import numbered
from ..nnls import refuse_nonfinite
from ..others.kinds import as_kind, kind_of_array, on_host
from ..shown import Shown
from .search import CountSearch

# Pixels that are solved together, in numbers of a pixel's bands and its Hessian.
MOST_NUMBERS = 2**22
# The gap at which a pixel is done, as a share of its counts.
GAP = 1e-12


@dataclass(frozen=True, repr=False)
class Poisson(Shown):
    """The most likely abundances of counts.

    Attributes
    ----------
    x : array (..., p), float64
        Abundances, at least 0.
    cost : array (...), float64
        ``Σ (μ − y log μ)``, ``μ = E x + b``: minus the logarithm of the likelihood, up to a constant of y.
    deviance : array (...), float64
        ``2 Σ (y log(y/μ) − y + μ)``: about L − p where the model is right and counts are not few.
    kappa : array (...), float64
        The largest violation of the optimality conditions, of the counts of a spectrum; at least the gap as a share of
        Σy.
    delta : array (...), float64
        The distance of x from the optimum is at most this, rounding included; infinite where that is not proved.
    gap : array (...), float64
        By how much the cost is above the least one at most: proved by a dual point, but for rounding of some 1e-15 of
        Σy.
    steps : array (...), int32
        Weighted least squares that were solved.
    """

    x: np.ndarray
    cost: np.ndarray
    deviance: np.ndarray
    kappa: np.ndarray
    delta: np.ndarray
    gap: np.ndarray
    steps: np.ndarray


def poisson(
    Y: np.ndarray, E: np.ndarray, *, background: np.ndarray | None = None, gap: float = GAP, threads: int | None = None
) -> Poisson:
    """Minimise ``Σ (μ_l − y_l log μ_l)``, ``μ = E x + b``, over x ≥ 0, for every pixel.

    Parameters
    ----------
    Y : array-like of shape (..., L)
        Counts, at least 0; they need not be whole.
    E : array-like of shape (L, p)
        Spectra at least 0, one per column, in counts for an abundance of one; none of zeros.
    background : array-like of shape (L,) or (..., L), optional
        Counts b that are there in any case, at least 0.
    gap : float
        The gap, as a share of Σy, at which a pixel is done.
    threads : int, optional
        CPU threads; default is all.

    Returns
    -------
    Poisson
        Of arrays of the kind of Y, where Y is (torch, CuPy, JAX, numba); the host computes them.

    Raises
    ------
    InputError
        Where shapes do not match, a value is negative or not finite, a spectrum is 0 in all bands, or a pixel has
        counts in a band in which no spectrum and no background has any.

    Notes
    -----
    Steps of Fisher's scoring and of Newton, by turns, are weighted NNLS (`unmix.nnls`) and choose the support; Newton's
    steps on it end the search. With ``g = Eᵀ(1 − y/μ)``, v is g where x > 0, and its negative part elsewhere, ``σ²``
    the least eigenvalue of the Hessian ``Eᵀ diag(y/μ²) E`` and ``M`` one over the root of the least count above 0: the
    cost is M-self-concordant (Nesterov 2018, 5.1), so ``|x − x*| ≤ δ = q / (1 − M q) / σ`` where ``q = |v| / σ`` and M
    q < 1. Computed bounds of rounding are added to v and taken off σ².
    The gap is ``Σμ − Σy − Σy log s − Σb + s Σ b y/μ``, with s the largest number for which ``Eᵀ1 ≥ s Eᵀ(y/μ)``, but at
    most ``Σy / Σ(b y/μ)``: ``1 − s y/μ`` is then a feasible dual point.

    Examples
    --------
    >>> import numpy as np, unmix
    >>> E = np.array([[4.0, 0], [2, 1], [0, 3]])
    >>> unmix.poisson(np.array([9, 5, 3]), E).x.round(3)
    array([2.181, 0.979])
    """
    kind, given = kind_of_array(Y), Y
    Y, E = np.asarray(kind.host(Y), np.float64), np.ascontiguousarray(on_host(E), np.float64)
    if E.ndim != 2 or 0 in E.shape or Y.ndim < 1 or Y.shape[-1] != len(E):
        raise InputError(f"E must be (L, p), and Y (..., L); they have shapes {E.shape} and {Y.shape}")
    L, p = E.shape
    rows = Y.reshape(-1, L)
    if background is None:
        background = np.zeros(L)
    b = np.asarray(on_host(background), np.float64)
    if b.shape not in ((L,), Y.shape):
        raise InputError(f"background must be {(L,)} or {Y.shape}, but has shape {b.shape}")
    b = np.broadcast_to(b, Y.shape).reshape(-1, L)
    for name, values in (("Y", rows), ("E", E), ("background", b)):
        refuse_nonfinite(name, values)
        if (values < 0).any():
            raise InputError(f"{name} is negative, first in row {int(np.argwhere(values < 0)[0, 0])}")
    if not E.any(axis=0).all():
        raise InputError(f"spectrum {int(np.argmin(E.any(axis=0))) + 1} of E is 0 in all bands")
    refuse_sizes(numbered(E), True)
    dark = (rows > 0) & ~(E.any(axis=1) | (b > 0))
    if dark.any():
        row, band = np.argwhere(dark)[0]
        raise InputError(f"Y has counts in row {row}, band {band + 1}, where neither E nor background has any")
    x, steps = np.zeros((len(rows), p)), np.zeros(len(rows), np.int32)
    gaps, kappa, delta = (np.zeros(len(rows)) for _ in range(3))
    together = max(1, MOST_NUMBERS // (2 * L + p * p))
    for first in range(0, len(rows), together):
        part = slice(first, first + together)
        search = CountSearch(rows[part], E, b[part], threads)
        search.run(gap)
        x[part], gaps[part], steps[part] = search.x, search.gap, search.steps
        kappa[part], delta[part] = search.proof()
    mean = x @ E.T + b
    cost = (mean - xlogy(rows, mean)).sum(axis=1)
    deviance = 2.0 * np.maximum(kl_div(rows, mean), 0.0).sum(axis=1)  # which rounds below 0
    shape = Y.shape[:-1]
    planes = (one.reshape(shape) for one in (cost, deviance, kappa, delta, gaps, steps))
    answer = Poisson(x.reshape(*shape, p), *planes)
    return as_kind(answer, kind, given)
