"""Find a constant that all bands and pixels of a scene have beside their spectra: an offset of stored values that was not taken off."""

from typing import NamedTuple

import numpy as np

from ..io import Scene
from ..io.window import Changed
from ..settings.presets import PRESETS

# Most pixels and most entries of the library that are looked at: a pixel of 200 spectra takes some ms.
MOST_PIXELS, MOST_SPECTRA = 200, 200
# By how much more than spectra the sum to one weighs, as one further band.
WEIGHT = 1e4
# A constant explains a misfit where it leaves at most this part of it, and at most this many times what abundances of any sum leave.
MOST_LEFT, NOT_WORSE = 0.5, 1.1
# A preset's scale and offset are meant where the fitted ones differ by at most this part.
AS_PRESET = 0.05


class Shared(NamedTuple):
    """Pixels are ``factor · E a + constant`` with Σa = 1: the median of their relative RMSE without both, and with them."""

    factor: float
    constant: float
    median: float
    left: float


def shared_constant(Y: np.ndarray, E: np.ndarray, is_scaled: bool = True) -> Shared | None:
    """Return the constant that pixels (N, L) have beside mixtures of endmembers (L, p); None where none explains their misfit.

    One constant serves all pixels, where a free sum of abundances has a factor for each. If pixels and endmembers need not be in one
    unit (``is_scaled`` is false), one factor for all pixels is found with it.
    """
    from scipy.optimize import nnls  # 0.2 s, for runs that fit poorly alone

    (L, p), Y = E.shape, Y[:: max(1, -(-len(Y) // MOST_PIXELS))]
    sizes = np.sqrt(np.square(Y).mean(axis=1))
    known = (sizes > 0) & np.isfinite(sizes)
    unit = float(np.abs(E).max(initial=0.0))
    if p + 2 > L or p > MOST_SPECTRA or not known.any() or not 0 < unit < np.inf:
        return None
    E, Y, sizes = E / unit, Y[known], sizes[known]
    free = E[:, E.any(axis=0)]  # without shade
    constants, last = np.stack([np.ones(L), -np.ones(L)], axis=1), WEIGHT * np.sqrt(L)
    held = np.vstack([E, np.full(p, last)])
    held_beside = np.column_stack([held, np.vstack([constants, np.zeros((1, 2))])])

    def misfit(pixels: np.ndarray, has_sum: bool) -> float:
        """Return the median relative RMSE of pixels, whose sizes are those of Y."""
        answers = np.array([nnls(held, np.append(y, last))[0] if has_sum else nnls(free, y)[0] for y in pixels])
        return float(
            np.median(np.sqrt(np.square(pixels - answers @ (E if has_sum else free).T).mean(axis=1)) * whole / sizes)
        )

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
        found = Shared(whole / unit, constant * whole, misfit(pixels, True), misfit(pixels - constant, True))
        explains = found.left <= min(MOST_LEFT * found.median, NOT_WORSE * misfit(pixels, False))
    except RuntimeError:  # it does not converge
        return None
    return found if explains else None


def remedy(scene: Scene, Y: np.ndarray, E: np.ndarray, is_scaled: bool = True) -> tuple[Shared, str] | None:
    """Return the constant of a scene's pixels (see `shared_constant`), and the options that take it off; None where there is none.

    Parameters
    ----------
    scene : Scene
    Y : array (N, L), float64
        Pixels, scaled as the scene says.
    E : array (L, p), float64
    is_scaled : bool
    """
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
