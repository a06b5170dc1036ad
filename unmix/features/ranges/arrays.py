"""Prove the least and largest abundances, or sums by class, over all mixtures of a library that fit a pixel."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...arrays.others.kinds import on_host
from ...arrays.pixels import checked, numbered
from ...arrays.shown import Shown
from ...errors import MethodError
from ...library.fractions import Normalization
from ...methods import BOUNDED, choose, refuse_normalization
from ...problem import refuse_sizes
from .calibration import Calibration
from .limit import FitLimit
from .mixtures import Mixtures

# Pixels that are solved together.
TOGETHER = 16384


@dataclass(frozen=True, repr=False)
class Ranges(Shown):
    """The least and largest value of each quantity over all mixtures that fit; NaN for a pixel with a missing band.

    Attributes
    ----------
    names : tuple
        The quantities: the classes in the order of their first spectra, or the numbers of the endmembers.
    lower, upper : arrays (..., quantities), float64
        Proved: no mixture that fits has less, or more; rounding is included.
    lower_reached, upper_reached : arrays (..., quantities), float64
        The ends that some mixture reaches: the true ends lie between these and the proved ones. Fractions of a pixel
        whose best mixture is dark are NaN, and from 0 to 1 where a dark mixture fits.
    limit : array (...), float64
        The largest RMSE of a mixture that fits; of the bands divided by their noise, where that is given.
    """

    names: tuple[Any, ...]
    lower: np.ndarray
    upper: np.ndarray
    lower_reached: np.ndarray
    upper_reached: np.ndarray
    limit: np.ndarray


def ranges(
    Y: np.ndarray,
    E: np.ndarray,
    classes: Sequence[str] | None = None,
    *,
    method: str = "nnls",
    within: float | None = None,
    confidence: float | None = None,
    simultaneous: bool = False,
    noise: Any = None,
    normalize: str = "none",
    threads: int | None = None,
) -> Ranges:
    """Find the least and largest abundances, or their sums by class, over all mixtures that fit a pixel.

    A mixture fits if its misfit ``½ |y − E a|²`` is at most ρ, by one of two measures: ``within`` is a statement about
    the library alone, ``confidence`` one about noise.

    Parameters
    ----------
    Y : array-like of shape (..., L)
        Pixels, in any real type and unit.
    E : array-like of shape (L, p)
        A library, one spectrum per column, in the unit of Y; for nnls there may be more spectra than bands.
    classes : sequence of str, optional
        The class of each spectrum; the quantities are then sums by class, else every abundance.
    method : {"nnls", "fcls", "pcls"}
        The constraint on mixtures: a ≥ 0; also a sum of one; or a sum of at most one.
    within : float, optional
        A mixture fits if its RMSE is at most the best mixture's plus this, above 0, in the unit of Y.
    confidence : float, optional
        A mixture fits if ``|r|²``, r in units of the noise, is at most the best mixture's plus a limit: intervals of
        this confidence, one at a time, where noise is normal and the library is right. The limit is set by χ² with one
        degree of freedom where all abundances exceed three of their standard deviations; else it is simulated, with
        the other abundances at 0.
    simultaneous : bool
        A mixture then fits if ``|r|²`` is at most the quantile of χ² with L degrees of freedom: all ranges of a pixel
        hold together. They are wider, and NaN where no mixture fits.
    noise : float or array-like of shape (L,), optional
        Standard deviation of each band's noise, in the unit of Y; ``confidence`` needs it, and ``within`` is then in
        its unit.
    normalize : {"none", "sum", "length", "max"}
        For nnls and pcls: the ranges of fractions, as `unmix.solve` has them.
    threads : int, optional
        CPU threads; default is all.

    Returns
    -------
    Ranges

    Raises
    ------
    CubeError, LibraryError
        As for `unmix.solve`. Also if the spectra of nnls lie on no side of a plane, as e and −e do.
    MethodError
        If the method has no ranges, not one of ``within`` and ``confidence`` is given, or a number is out of range.

    Notes
    -----
    With c the quantity and ``q(μ)`` the least of ``½ |y − E a|² − μ cᵀa`` over all mixtures, ``cᵀa ≤ (ρ − q(μ)) / μ``
    for every mixture that fits and every μ > 0 (weak duality; O'Leary and Rust 1986). The best μ is where the misfit
    reaches ρ: one root a bound. q is bounded from below by a dual point made of the residual, rounding included.
    Fractions are bounded by ``cᵀa − t wᵀa``, at the t where its largest value is 0.

    Examples
    --------
    >>> import numpy as np, unmix
    >>> E = np.array([[0.2, 0.5, 0.45], [0.3, 0.5, 0.45], [0.6, 0.3, 0.32]])
    >>> found = unmix.ranges(np.array([0.35, 0.4, 0.45]), E, ["soil", "plant", "plant"], within=0.01)
    >>> found.names, found.lower.round(2), found.upper.round(2)
    (('soil', 'plant'), array([0.39, 0.46]), array([0.54, 0.63]))
    """
    limit = FitLimit(within, confidence, simultaneous)
    if method not in BOUNDED:
        raise MethodError(f"ranges of `method` {method}: there are those of {', '.join(BOUNDED)}")
    if confidence is not None and noise is None:
        raise MethodError("`confidence` needs `noise`, the standard deviation of each band")
    refuse_normalization(choose(method)[0], normalize)
    Y, E = checked(Y, E)
    refuse_sizes(numbered(E), True)
    normalization = Normalization.of(normalize, E)
    if classes is not None and len(classes) != E.shape[1]:
        raise MethodError(f"`classes` names {len(classes)} classes; there is one for each of {E.shape[1]} spectra")
    kinds = list(range(E.shape[1])) if classes is None else list(classes)
    names = tuple(dict.fromkeys(kinds))
    pixels = np.asarray(Y, np.float64).reshape(-1, E.shape[0])
    deviations = deviations_of(noise, E.shape[0])
    E = E / deviations[:, None]
    quantities = np.array([[kind == name for kind in kinds] for name in names], np.float64)
    weights = None if normalization is None else normalization.weights
    if method == "pcls":  # shade is one more spectrum
        E, quantities = np.pad(E, ((0, 0), (0, 1))), np.pad(quantities, ((0, 0), (0, 1)))
        weights = None if weights is None else np.append(weights, 0.0)
    mixtures = Mixtures(E, method != "nnls", threads)
    calibration = Calibration.of(limit, E, mixtures.has_sum, quantities, weights)
    found, limits = np.full((4, len(pixels), len(names)), np.nan), np.full(len(pixels), np.nan)
    good = np.flatnonzero(np.isfinite(pixels).all(axis=1))
    for first in range(0, len(good), TOGETHER):
        some = good[first : first + TOGETHER]
        y = pixels[some] / deviations
        best = mixtures.solve(y)
        above = None if calibration is None else calibration.limits(best)
        fitted = mixtures.pixels(y, best, partial(limit.most, L=len(E), above=above))
        limits[some] = np.sqrt(2.0 * fitted.rho / len(E))
        found[:, some] = mixtures.ends(fitted, quantities, weights)
    shape = Y.shape[:-1]
    lower, upper, lower_reached, upper_reached = found.reshape(4, *shape, len(names))
    return Ranges(names, lower, upper, lower_reached, upper_reached, limits.reshape(shape))


def deviations_of(noise: Any, L: int) -> np.ndarray:
    """Return each band's noise (L,), a standard deviation, from one number, one for each band, or None for 1."""
    given = np.asarray(on_host(1.0 if noise is None else noise), np.float64)
    if given.shape not in ((), (L,)):
        raise MethodError(f"`noise` has the shape {given.shape}: it is one number, or one for each of {L} bands")
    if not np.all((given > 0) & np.isfinite(given)):
        raise MethodError("`noise` must be above 0 and finite: the standard deviation of each band")
    return np.broadcast_to(given, (L,))
