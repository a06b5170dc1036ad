"""Put a raster on a scene's grid: each scene pixel takes the value of the raster pixel that holds its centre."""

import numpy as np

from .cube import Cube, by_pixel, cut, place_for, read_blocks
from .ground import is_one_system, placed
from .window import PIECE, Window


class Nearest(Window):
    """A raster on the grid of a scene.

    Parameters
    ----------
    raster : Cube
    scene : Cube
        The whole scene.
    places : tuple of arrays
        The raster's line of each line of the scene, and its sample of each sample, int64; −1 where it has none.
    outside : float
        The value of pixels that the raster does not cover.
    """

    def __init__(self, raster: Cube, scene: Cube, places: tuple[np.ndarray, np.ndarray], outside: float) -> None:
        super().__init__(raster, slice(0, raster.lines), slice(0, raster.samples), raster.nodata)
        self.lines, self.samples, self.fields = scene.lines, scene.samples, scene.fields
        self.places, self.outside = places, outside

    def read(self, lines: slice, out: np.ndarray) -> np.ndarray:
        """Read whole lines of the scene's grid; see `unmix.io.cube.Cube.read`."""
        filled = place_for(self, lines, out)
        filled[...] = self.outside
        down, across = self.places[0][lines], self.places[1]
        has_line, has_sample = down >= 0, across >= 0
        if has_line.any() and has_sample.any():
            wanted = slice(int(down[has_line].min()), int(down.max()) + 1)
            for block, raw in read_blocks(self.cube, cut(self.cube, PIECE, wanted)):
                inside = (down >= block.start) & (down < block.stop)
                values = by_pixel(raw, self.interleave)[down[inside] - block.start][:, across[has_sample]]
                by_pixel(filled, self.interleave)[np.ix_(inside, has_sample)] = values
        return filled


def nearest(raster: Cube, scene: Cube, outside: float) -> Nearest | None:
    """Return a raster on a scene's grid; None without two unrotated maps in one system that overlap."""
    at, to = placed(raster), placed(scene)
    if at is None or to is None or any((at[2], at[4], to[2], to[4])):
        return None
    if not is_one_system(scene, raster):
        return None
    places = [
        np.floor((to[k] + to[step] * (np.arange(size) + 0.5) - at[k]) / at[step]).astype(np.int64)
        for k, step, size in ((3, 5, scene.lines), (0, 1, scene.samples))
    ]
    down, across = (
        np.where((place >= 0) & (place < size), place, -1)
        for place, size in zip(places, (raster.lines, raster.samples))
    )
    return Nearest(raster, scene, (down, across), outside) if max(down) >= 0 and max(across) >= 0 else None
