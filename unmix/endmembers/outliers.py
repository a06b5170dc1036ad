"""Leave out pixels that are far from all others: every extraction would pick a hot pixel as an endmember.

The distance of a pixel y is as in the RX detector (Reed and Yu 1990), ``√((y − m)ᵀ C⁻¹ (y − m) / d)``, with mean m
and covariance C of the *other* pixels, and d the rank of C, mostly L: with its own share in C a hot pixel would hide
itself. With far more pixels than bands its root mean square is about 1.
"""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import CubeError
from ..io import Scene
from ..io.window import Window
from .passes import Passes, named
from .statistics import Moments

log = logging.getLogger("unmix")

# Share of the variance in a direction that is rounding.
VARIANCE_ROUNDING = 1e-12
# Most outliers whose places are recorded; largest share of all pixels that may be outliers.
PLACES, LARGEST_OUTLIER_SHARE = 100, 0.1
# Places in a message.
NAMED = 5


class Without(Window):
    """A scene without some of its ``pixels``, ascending ``line * samples + sample``, which are read as masked."""

    def __init__(self, scene: Scene, pixels: np.ndarray) -> None:
        cube = scene.cube
        super().__init__(cube, slice(0, cube.lines), slice(0, cube.samples), scene.nodata)
        self.fields, self.origin, self.pixels = cube.fields, cube.origin, pixels
        self.set_blank()

    def kept(self, lines: slice) -> np.ndarray:
        """Return which pixels of some lines are not left out; bool array (n, samples)."""
        keep = np.ones((lines.stop - lines.start) * self.samples, bool)
        ends = np.searchsorted(self.pixels, [lines.start * self.samples, lines.stop * self.samples])
        keep[self.pixels[slice(*ends)] - lines.start * self.samples] = False
        return keep.reshape(-1, self.samples)


def without_pixels(scene: Scene, pixels: np.ndarray) -> Scene:
    """Return a scene that reads some pixels, ascending ``line * samples + sample``, as masked."""
    if not len(pixels):
        return scene
    part = Without(scene, pixels)
    return Scene(part, scene.bands, part.nodata)


def without_odd(scenes: Sequence[Scene], odd: Sequence[np.ndarray]) -> tuple[list[Scene], dict[str, Any]]:
    """Return scenes without their odd pixels, see `unmix.scene.odd`, and the record of them; warn of these."""
    places = [
        [int(n) for n in np.add(np.divmod(place, scene.cube.samples), scene.cube.origin)]
        for scene, some in zip(scenes, odd)
        for place in some[:PLACES]
    ]
    count = sum(map(len, odd))
    scene, some = next((scene, some) for scene, some in zip(scenes, odd) if len(some))
    line, sample = divmod(int(some[0]), scene.cube.samples)
    spectrum = scene.read(line, slice(sample, sample + 1))[0][0]
    first = ", ".join(" ".join(map(str, place)) for place in places[:NAMED])
    stripes = [one for scene, some in zip(scenes, odd) for one in stripes_in(some, scene)]
    as_stripes = f"; stripes: {', '.join(stripes[:NAMED])}{', …' if len(stripes) > NAMED else ''}" if stripes else ""
    log.warning(
        f"{named(scenes)}: {count} odd {'pixel is' if count == 1 else 'pixels are'} left out where endmembers are "
        f"counted and extracted: (line sample) {first}{', …' if count > NAMED else ''}, the first from "
        f"{spectrum.min():.4g} to {spectrum.max():.4g}{as_stripes}; `outliers` 0 keeps {'it' if count == 1 else 'them'}"
    )
    about = {"pixels": count, "places": places} | ({"stripes": stripes} if stripes else {})
    return [without_pixels(scene, some) for scene, some in zip(scenes, odd)], about


def stripes_in(places: np.ndarray, scene: Scene) -> list[str]:
    """Return the names of the lines and columns of which most pixels are among ``line * samples + sample``."""
    lines, samples = np.divmod(places, scene.cube.samples)
    found = ("line", lines, scene.cube.samples), ("column", samples, scene.cube.lines)
    return [
        f"{what} {n + begin}"
        for (what, at, length), begin in zip(found, scene.cube.origin)
        for n in np.flatnonzero(2 * np.bincount(at) > length)
    ]


def distances(Z: np.ndarray, pixels: int) -> np.ndarray:
    """Return distances (n,) of pixels from all others, NaN if masked; Z (n, d) is whitened, ``pixels`` are valid."""
    # Taking a pixel out moves the mean to its other side, and its share out of the covariance (Sherman and Morrison).
    share = np.square(Z).sum(axis=1) / (pixels - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        squared = share * pixels / np.maximum(1.0 - share, 0.0)
    return np.sqrt(squared / Z.shape[1])


def whitening(moments: Moments) -> np.ndarray:
    """Return the matrix (L, d) that makes the pixels' covariance the identity, without directions of no variance."""
    values, vectors = moments.axes
    some = values > moments.floor(VARIANCE_ROUNDING)
    return np.ascontiguousarray(vectors[:, some] / np.sqrt(values[some]))


def without_outliers(
    scenes: Sequence[Scene], moments: Moments, limit: float, budget: int, threads: int
) -> tuple[list[Scene], dict[str, Any]]:
    """Return scenes without the pixels at a distance above ``limit``, and the record of them; reads the files once."""
    W, passes, found = whitening(moments), Passes(scenes, budget, threads), []
    if moments.pixels < max(3, 2 * W.shape[1]):
        raise CubeError(
            f"{named(scenes)}: {moments.pixels} valid pixels in {W.shape[1]} dimensions are too few to tell outliers; "
            "extract without "
            "`outliers`, or use fewer `bands`"
        )

    def visit(first: int, Z: np.ndarray) -> None:
        found.append(first + np.flatnonzero(distances(Z, moments.pixels) > limit))

    if W.shape[1]:
        passes.project(W, moments.mean, visit)
    far = np.concatenate([np.empty(0, np.int64), *found])
    if len(far) > LARGEST_OUTLIER_SHARE * moments.pixels:
        raise CubeError(
            f"{named(scenes)}: {len(far)} of {moments.pixels} pixels are beyond `outliers` {limit:g}; raise it: these "
            "are no outliers"
        )
    parts = [far[(far >= first) & (far < first + scene.pixels)] - first for first, scene in passes.begun()]
    left = [without_pixels(scene, own) for scene, own in zip(scenes, parts)]
    # (line, sample), with the number of the scene before it where there are several
    places = passes.positions(far[:PLACES].tolist())
    if len(scenes) > 1:
        places = [[passes.locate(int(n))[0], *place] for n, place in zip(far, places)]
    first = ", ".join(" ".join(map(str, place)) for place in places[:NAMED])
    log.info(
        f"{named(scenes)}: {len(far)} of {moments.pixels} pixels left out as outliers, beyond {limit:g}"
        + (f"; (line sample) {first}" + (", …" if len(far) > NAMED else "") if len(far) else "")
    )
    return left, {"limit": limit, "pixels": len(far), "places": places}
