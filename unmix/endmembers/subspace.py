"""Compute the distances of spectra to a scene's signal subspace (MUSIC)."""

import numpy as np

from ..blocks import cores
from ..errors import LibraryError, MethodError
from ..io import Scene
from ..library import Endmembers
from .counts import Counts
from .passes import signal_of
from .statistics import Moments

# Fewest dimensions of a signal subspace: one too small lacks rare materials, one too large holds a little noise.
FEWEST_DIMENSIONS = 15


def distances_to(moments: Moments, E: np.ndarray, dimensions: int) -> np.ndarray:
    """Return the share (N,) of each spectrum's length, E (L, N), outside of the signal subspace (MUSIC), 0 to 1."""
    L = len(E)
    if dimensions >= L:
        raise MethodError(f"{dimensions} `dimensions` of {L} bands hold every spectrum; give fewer")
    # A spectrum that is part of the scene's mixtures lies in this subspace, but for noise (Iordache et al. 2014).
    basis = np.linalg.eigh(moments.second)[1][:, -dimensions:]
    outside = E - basis @ (basis.T @ E)
    return np.asarray(np.linalg.norm(outside, axis=0) / np.linalg.norm(E, axis=0))


def distances_of(
    library: Endmembers, scene: Scene, dimensions: int | None, budget: int, threads: int | None
) -> np.ndarray:
    """Return the distances (N,) of spectra from a scene's signal subspace, in one pass; see `distances_to`."""
    dark = [name for name, spectrum in zip(library.names, library.matrix.T) if not spectrum.any()]
    if dark:
        raise LibraryError(f"{library.source}: '{dark[0]}' is zero in all bands in use of {scene.cube.path}")
    moments = signal_of(scene, budget, threads or cores())
    if dimensions is None:
        count = Counts.of(moments).auto
        dimensions = max(FEWEST_DIMENSIONS, count) if len(library.matrix) > FEWEST_DIMENSIONS else count
    return distances_to(moments, library.matrix, dimensions)
