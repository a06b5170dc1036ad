"""Single-scattering albedo of reflectance, in which intimate mixtures are linear (Hapke 1981, isotropic scattering)."""

from typing import NamedTuple

import numpy as np

from ..errors import CubeError, MethodError
from ..io import Changed, Scene, read_lines

# Lines of a scene that are looked at, to tell whether it is reflectance from 0 to 1, and the share of their values that
# may be above 1.
LOOKED_AT, MOST_ABOVE = 5, 0.5


class Geometry(NamedTuple):
    """The cosines of the angles of incidence and emission."""

    incidence: float
    emission: float

    def albedo(self, reflectance: np.ndarray) -> np.ndarray:
        """Return the single-scattering albedo of reflectance relative to a white surface under the same angles."""
        # With γ = sqrt(1 − w), R = w / ((1 + 2 μ₀ γ)(1 + 2 μ γ)), a quadratic equation in γ (Hapke 1981, equation 37;
        # Mustard and Pieters 1989). R below 0, as of noise, has w below 0; R above 1, or far below 0, has no root: NaN.
        s, p = self.incidence + self.emission, 4.0 * self.incidence * self.emission
        R = np.asarray(reflectance, float)
        with np.errstate(invalid="ignore", divide="ignore"):
            leading = 1.0 + p * R
            root = np.sqrt(np.square(s * R) + leading * (1.0 - R))
            # The root of the quadratic that does not cancel: (1 − R) over the sum, as γ is small where R is near 1.
            gamma = (1.0 - R) / (root + s * R)
            has = (R <= 1.0) & (leading > 0.0) & (root + s * R > 0.0)
            return np.where(has, (1.0 - gamma) * (1.0 + gamma), np.nan)

    def reflectance(self, albedo: np.ndarray) -> np.ndarray:
        """Return the reflectance for single-scattering albedo; values above 1, as in sums of spectra, count as 1."""
        w = np.minimum(np.asarray(albedo, float), 1.0)
        gamma = np.sqrt(1.0 - w)
        return np.asarray(w / ((1.0 + 2.0 * self.incidence * gamma) * (1.0 + 2.0 * self.emission * gamma)))


def geometries_of(text: str) -> list[Geometry]:
    """Return the geometries of scene and library of ``INCIDENCE,EMISSION[,INCIDENCE,EMISSION]``, in degrees."""
    try:
        angles = [float(word) for word in text.split(",")]
    except ValueError:
        angles = []
    if len(angles) not in (2, 4):
        raise MethodError(
            f"`albedo` {text}: write INCIDENCE,EMISSION, two angles in degrees, or four with the library's"
        )
    if not all(0 <= angle < 90 for angle in angles):
        raise MethodError(f"`albedo` {text}: angles are from the normal, from 0 to below 90 degrees")
    mu = [float(np.cos(np.radians(angle))) for angle in angles]
    return [Geometry(*mu[:2]), Geometry(*mu[-2:])]


def geometry_of(text: str) -> Geometry:
    """Return the geometry of the scene; see `geometries_of`."""
    return geometries_of(text)[0]


class Albedo(Changed):
    """A scene of reflectance from 0 to 1, as single-scattering albedo; values without one are missing.

    Parameters
    ----------
    source : Scene
        A scene whose cube is a `Window`, with L bands in use.
    angles : str
        Of the scene, and of the library if that was measured under others: see `geometries_of`.

    Raises
    ------
    CubeError
        Where more than half of the values that are looked at are above 1: these are no reflectance from 0 to 1.
    """

    refusal = (
        "has a reflectance above 1 or far below 0, which no albedo has; divide with `library_scale`, or leave it out "
        "with `select`"
    )

    def __init__(self, source: Scene, angles: str) -> None:
        super().__init__(source, np.ones(len(source.bands.index), bool))
        self.geometry, self.of_library = geometries_of(angles)
        above, known = 0, 0
        for line in np.unique(np.linspace(0, source.cube.lines - 1, LOOKED_AT).astype(int)):
            raw = read_lines(source.cube, slice(line, line + 1))
            values = source.spectra(raw)[~source.missing(raw)]
            above, known = above + int((values > 1).sum()), known + values.size
        if above > MOST_ABOVE * known:
            raise CubeError(
                f"{source.cube.path}: {100 * above / known:.0f} % of the values are above 1, and `albedo` is that of "
                "reflectance from "
                "0 to 1; divide with `scale`"
            )

    def change(self, values: np.ndarray) -> np.ndarray:
        """See `Changed.change`: the albedo of reflectance."""
        return self.geometry.albedo(values)

    def change_library(self, values: np.ndarray) -> np.ndarray:
        """See `Changed.change_library`: under the library's own angles."""
        return self.of_library.albedo(values)

    def back(self, values: np.ndarray) -> np.ndarray:
        """Return the reflectance of albedo."""
        return self.geometry.reflectance(values)
