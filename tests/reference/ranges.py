"""Define the largest value of a quantity over all mixtures that fit a pixel (`ranges`): one pixel, one end, by scipy."""

import numpy as np
from scipy.optimize import brentq

from .abundances import fcls, nnls
from .models import TOO_ALIKE, EveryModel

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


def largest_of_models(models: EveryModel, y: np.ndarray, kind: str, sign: float, rho: float) -> float:
    """Return the largest fraction of a class, or −1 times the least for ``sign`` −1, over all mixtures of all models
    that fit a pixel.

    Models are asked in the order in which their ellipsoids, without limits, allow more, until none allows more than was
    found.

    Parameters
    ----------
    models : Models
        Under the limits "exact".
    y : array (L,), float64
    kind : str
        The class.
    sign : float
    rho : float
        ``½|y − E a|²`` may be up to this.

    Returns
    -------
    float
        −∞ where nothing fits.
    """
    found = 0.0 if 0.5 * y @ y <= rho else -np.inf
    most = max(0.0, sign)
    for size in models.models:
        for columns, A, inverse, _, angles in models.kept.get(size) or models.inverses(size):
            free = inverse @ y
            left = 2.0 * rho - np.square(y - np.einsum("mlk,mk->ml", A, free)).sum(axis=1)
            c = sign * np.isin(columns, models.members[kind])
            some = np.flatnonzero((left >= 0) & (angles > TOO_ALIKE))
            while len(some):
                w = np.full(size, found if models.normalized and found > -np.inf else 0.0)
                row = c[some] - w
                half = np.sqrt(left[some] * np.square(np.einsum("mkl,mk->ml", inverse[some], row)).sum(axis=1))
                reach = (row * free[some]).sum(axis=1) + half
                if models.normalized:
                    allows = reach > 0 if found > -np.inf else np.full(len(some), True)
                else:
                    allows = np.minimum(reach, most) > found
                some, reach = some[allows], reach[allows]
                if not len(some) or found >= most:
                    break
                at = int(reach.argmax())
                found = max(found, end_of_model(A[some[at]], y, c[some[at]], rho, models.normalized))
                some = np.delete(some, at)
    return found


def end_of_model(A: np.ndarray, y: np.ndarray, c: np.ndarray, rho: float, normalized: bool) -> float:
    """Return the largest ``cᵀx``, or its share of the sum, over mixtures of one model with a sum of at most one; −∞ where none fits."""
    E, c, w = np.column_stack([A, np.zeros(len(A))]), np.append(c, 0.0), np.append(np.ones(A.shape[1]), 0.0)
    if 0.5 * np.square(y - E @ fcls(E, y)).sum() > rho:
        return -np.inf
    return largest_fraction(E, y, c, w, rho, True) if normalized else largest(E, y, c, rho, True)
