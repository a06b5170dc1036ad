"""Define reflectance of single-scattering albedo, and its inverse by a search for the root (Hapke 1981)."""

import numpy as np
from scipy.optimize import brentq

# The widest albedo that is searched: below 0 it is that of noise.
LEAST_ALBEDO = -20.0


def reflectance(w: float, incidence: float, emission: float) -> float:
    """Return reflectance relative to a white surface, of cosines of the angles: isotropic scattering, without an opposition effect."""
    gamma = np.sqrt(1.0 - w)
    return float(w / ((1.0 + 2.0 * incidence * gamma) * (1.0 + 2.0 * emission * gamma)))


def albedo(value: float, incidence: float, emission: float) -> float:
    """Return the albedo at most 1 whose reflectance is that value; NaN where there is none."""
    if not value <= 1.0 or reflectance(LEAST_ALBEDO, incidence, emission) > value:
        return np.nan
    return float(
        brentq(lambda w: reflectance(w, incidence, emission) - value, LEAST_ALBEDO, 1.0, xtol=1e-15, rtol=1e-15)
    )
