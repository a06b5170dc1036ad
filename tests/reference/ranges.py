"""Define the largest value of a quantity over all mixtures that fit a pixel (`ranges`): one pixel, one end, by scipy."""

import numpy as np
from scipy.optimize import brentq

from .abundances import fcls, nnls

# Search of μ: the interval around its natural unit, in powers of ten, and the tolerance of its logarithm.
FARTHEST, ROOT_TOLERANCE = 12, 1e-9


def optimum_of_range(E: np.ndarray, y: np.ndarray, c: np.ndarray, mu: float, has_sum: bool) -> np.ndarray:
    """Minimise ``½|y − E a|² − μ cᵀa`` over a ≥ 0, or with Σa = 1; E (L, p) has full rank, under the sum for
    differences of columns.

    It is least squares of ``y + μ u`` with ``Eᵀu = c``, under the sum up to a constant.
    """
    M, d = (E - E.mean(axis=1, keepdims=True), c - c.mean()) if has_sum else (E, c)
    return (fcls if has_sum else nnls)(E, y + mu * np.linalg.lstsq(M.T, d, rcond=None)[0])


def largest(E: np.ndarray, y: np.ndarray, c: np.ndarray, rho: float, has_sum: bool) -> float:
    """Return the largest ``cᵀa`` of mixtures with ``½|y − E a|²`` up to ρ, of which the best one is one.

    Parameters
    ----------
    E : array (L, p), float64
    y : array (L,), float64
    c : array (p,), float64
    rho : float
    has_sum : bool
        Whether Σa = 1.
    """
    if not c.any():
        return 0.0

    def over(log_mu: float) -> float:
        return float(0.5 * np.square(y - E @ optimum_of_range(E, y, c, 10.0**log_mu, has_sum)).sum() - rho)

    unit = np.log10(max(rho, 1e-300) / max(float(np.abs(c).max()), 1e-300))
    low, high = unit - FARTHEST, unit + FARTHEST
    if over(high) <= 0:  # the quantity has come to its own end
        return float(c @ optimum_of_range(E, y, c, 10.0**high, has_sum))
    if over(low) >= 0:
        return float(c @ optimum_of_range(E, y, c, 10.0**low, has_sum))
    return float(c @ optimum_of_range(E, y, c, 10.0 ** brentq(over, low, high, xtol=ROOT_TOLERANCE), has_sum))


def largest_fraction(E: np.ndarray, y: np.ndarray, c: np.ndarray, w: np.ndarray, rho: float, has_sum: bool) -> float:
    """Return the largest ``cᵀa / wᵀa`` of these mixtures: the t at which the largest ``(c − t w)ᵀa`` is 0; NaN where wᵀa may be 0."""
    if -largest(E, y, -w, rho, has_sum) <= 0:
        return np.nan
    low, high = float(min(c.min(), 0.0) / w[w > 0].min()) - 1.0, float(np.abs(c).max() / w[w > 0].min()) + 1.0
    return float(brentq(lambda t: largest(E, y, c - t * w, rho, has_sum), low, high, xtol=ROOT_TOLERANCE))
