"""Tell scenes whose pixels were interpolated: neighbours share noise, and their differences show too little of it."""

import numpy as np

from ..io import Scene
from .statistics import Moments, merged

# Correlation of neighbours in the directions of the least variance, half of all, from which on noise is shared; lines
# in which it is looked at; and the farthest neighbours that are tried. It is -0.13 to 0.15 in Samson, Jasper Ridge,
# Moffett, Salinas-A and synthetic scenes, 0.38 to 0.70 in these interpolated linearly by 1.3 and 2.
SHARED, LINES, FARTHEST = 0.25, 24, 4
# Most pixels of a scene that is thinned.
MOST_PIXELS = 40_000


def step_apart(scene: Scene, moments: Moments) -> int:
    """Return the least distance of pixels in a line whose noise is not shared."""
    V, lines = moments.axes[1], scene.cube.lines
    V = V[:, : len(V) // 2]
    if not V.size or scene.cube.samples < 2 * FARTHEST or not np.isfinite(V).all():
        return 1
    rows = []
    for line in range(0, lines, max(1, lines // LINES)):
        Y, masked = scene.read(line)
        masked |= ~np.isfinite(Y).all(axis=1)
        rows.append(np.where(masked[:, None], np.nan, np.where(masked[:, None], 0.0, Y - moments.mean) @ V))
    for step in range(1, FARTHEST):
        pairs = [(row[step:], row[:-step]) for row in rows]
        shared = sum(np.nansum(a * b) for a, b in pairs)
        if not shared > SHARED * sum(np.nansum(a * a + b * b) for a, b in pairs) / 2:
            return step
    return FARTHEST


def thinned(scene: Scene, step: int) -> Moments:
    """Return the moments of each ``step``-th pixel of each ``step``-th line."""
    lines = range(0, scene.cube.lines, step * max(1, scene.pixels // (step**2 * MOST_PIXELS)))
    parts = [line_moments(*scene.read(line, slice(None, None, step))) for line in lines]
    return merged([part for part in parts if part.pixels] or parts[:1])


def line_moments(Y: np.ndarray, masked: np.ndarray) -> Moments:
    """Return the moments of a line's pixels (n, L) that are not ``masked`` (n,)."""
    both = ~(masked[1:] | masked[:-1])
    D, Y = (Y[1:] - Y[:-1])[both], Y[~masked]
    mean = Y.mean(axis=0) if len(Y) else np.zeros(Y.shape[1])
    centred = Y - mean
    return Moments(len(Y), mean, centred.T @ centred / max(1, len(Y)), len(D), D.T @ D / (2 * max(1, len(D))))
