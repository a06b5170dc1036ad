"""Find a constant that all bands and pixels of a scene have beside their spectra: an offset that was not taken off."""

from typing import NamedTuple

import numpy as np

from ..io import Changed, Scene
from ..settings.presets import PRESETS
from .signal import usual_deviation

# Most pixels and most entries of the library that are looked at: a pixel of 200 spectra takes some ms.
MOST_PIXELS, MOST_SPECTRA = 200, 200
# The weight of the sum to one, as one further band beside those of spectra.
WEIGHT = 1e4
# A constant explains a misfit where it leaves at most this part of it, and at most this many times what abundances of
# any sum leave.
MOST_LEFT, NOT_WORSE = 0.5, 1.1
# Constants of pixels are one where their median is this many deviations of theirs, and this part of the library, from 0.
# And where it leaves less than this part of the misfit that one factor for all leaves.
SURELY, LEAST_CONSTANT, CLEARLY = 3.0, 0.02, 0.9
# Fewest pixels that share a constant.
FEWEST_SHARING = 20
# A preset's scale and offset are meant where the fitted ones differ by at most this part.
AS_PRESET = 0.1


class SharedConstant(NamedTuple):
    """Pixels are ``factor · E a + constant``, Σa = 1; ``median``, ``left``: relative RMSE by the factor, by both."""

    factor: float
    constant: float
    median: float
    left: float


def shared_constant(Y: np.ndarray, E: np.ndarray, is_scaled: bool = True) -> SharedConstant | None:
    """Return the constant that all pixels (N, L) share beside mixtures of E (L, p); None where none explains them."""
    from scipy.optimize import nnls  # 0.2 s, for runs that fit poorly alone

    (L, p), Y = E.shape, Y[:: max(1, -(-len(Y) // MOST_PIXELS))]
    sizes = np.sqrt(np.square(Y).mean(axis=1))
    known = (sizes > 0) & np.isfinite(sizes)
    unit = float(np.abs(E).max(initial=0.0))
    if p >= L or p > MOST_SPECTRA or not known.any() or not 0 < unit < np.inf:
        return None
    E, Y, sizes = E / unit, Y[known], sizes[known]
    # One constant serves all pixels, where a free sum of abundances has a factor for each.
    constants, last = np.stack([np.ones(L), -np.ones(L)], axis=1), WEIGHT * np.sqrt(L)
    held = np.vstack([E, np.full(p, last)])
    held_beside = np.column_stack([held, np.vstack([constants, np.zeros((1, 2))])])

    def misfit(pixels: np.ndarray) -> float:
        """Return the median relative RMSE of pixels, whose sizes are those of Y, by sums of one."""
        answers = np.array([nnls(held, np.append(y, last))[0] for y in pixels])
        return float(np.median(np.sqrt(np.square(pixels - answers @ E.T).mean(axis=1)) * whole / sizes))

    try:
        whole = unit
        if not is_scaled:
            beside = np.array([nnls(np.hstack([E, constants]), y)[0] for y in Y / sizes[:, None]])
            whole = float(np.median(beside[:, :p].sum(axis=1) * sizes))
        if not 0 < whole < np.inf:
            return None
        pixels = Y / whole
        beside = np.array([nnls(held_beside, np.append(y, last))[0][p:] for y in pixels])
        constant = float(np.median(beside[:, 0] - beside[:, 1]))
        found = SharedConstant(whole / unit, constant * whole, misfit(pixels), misfit(pixels - constant))
        explains = found.left <= min(MOST_LEFT * found.median, NOT_WORSE * misfit_of_any(pixels, E))
    except RuntimeError:  # it does not converge
        return None
    return found if explains else None


def may_share(Y: np.ndarray, E: np.ndarray) -> bool:
    """Return whether each pixel's own constant beside mixtures of E (L, p), of sum one, is nearly that of all others."""
    (L, p), unit = E.shape, float(np.abs(E).max(initial=0.0))
    if p >= L or len(Y) < FEWEST_SHARING or not np.ptp(Y, axis=0).any() or not 0 < unit < np.inf:
        return False
    held = np.vstack([np.column_stack([E / unit, np.ones(L)]), np.append(np.full(p, WEIGHT), 0.0)])
    constants = np.column_stack([Y / unit, np.full(len(Y), WEIGHT)]) @ np.linalg.pinv(held)[-1]
    constant, D = float(np.median(constants)), E[:, 1:] - E[:, :1]
    if abs(constant) <= max(SURELY * usual_deviation(constants), LEAST_CONSTANT):
        return False
    # A scene that is darker, or brighter, throughout has one factor for all pixels in place of one constant.
    factor = float(np.median(Y @ np.linalg.pinv(E).sum(axis=0)))
    apart = (Y - constant * unit - E[:, 0], Y - factor * E[:, 0])
    left = (np.linalg.norm(one - one @ np.linalg.pinv(D).T @ D.T, axis=1) for one in apart)
    of_constant, of_factor = map(np.median, left)
    return bool(of_constant < CLEARLY * of_factor)


def misfit_of_any(Y: np.ndarray, E: np.ndarray) -> float:
    """Return the median relative RMSE of pixels (N, L) by mixtures of E (L, p) of any sum; 0 where it is unknown."""
    from scipy.optimize import nnls

    Y = Y[:: max(1, -(-len(Y) // MOST_PIXELS))]
    sizes = np.linalg.norm(Y, axis=1)
    known, unit = (sizes > 0) & np.isfinite(sizes), float(np.abs(E).max(initial=0.0))
    if E.shape[1] > min(MOST_SPECTRA, len(E) - 1) or not known.any() or not 0 < unit < np.inf:
        return 0.0
    try:
        return float(np.median([nnls(E / unit, y)[1] for y in Y[known] / sizes[known, None]]))
    except RuntimeError:  # it does not converge
        return 0.0


def remedy(scene: Scene, Y: np.ndarray, E: np.ndarray, is_scaled: bool = True) -> tuple[SharedConstant, str] | None:
    """Return the constant shared by pixels Y (N, L), and the options that remove it; None without one."""
    gain, offset = scene.bands.gain, scene.bands.offset
    if isinstance(scene.cube, Changed) or np.ptp(gain) or np.ptp(offset):
        return None
    shared = shared_constant(Y, E, is_scaled)
    if shared is None:
        return None
    scale = shared.factor / float(gain[0])
    added = (float(offset[0]) - shared.constant) / shared.factor
    for name, sets in PRESETS.items():
        if "offset" in sets and abs(sets["scale"] / scale - 1) < AS_PRESET > abs(sets["offset"] / added - 1):
            return shared, f"`preset` {name}"
    return shared, f"`offset` {added:.2g}" if is_scaled else f"`scale` {scale:.6g} with `offset` {added:.2g}"
