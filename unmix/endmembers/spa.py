"""SPA, successive projections (Araújo et al. 2001; Gillis and Vavasis 2014): pick the pixels farthest from all before.

A pixel y is represented, in all bands, by ``h = (y − mean, c)``, with c the largest ``|y − mean|`` of the scene. The
first endmember is the pixel with the longest h; each of the other p − 1 is the pixel with the largest residual after
projecting onto those already picked. There are no random numbers. The constant c makes the corners of the simplex
linearly independent wherever it lies, which the proof of Gillis and Vavasis requires; without it a corner near the
origin (shade, water) is never found, and without subtracting the mean brightness alone decides.

The file is read once for the mean, once for the lengths, and once for each endmember but the last. 8 bytes are held for
each pixel: its squared residual. The result does not depend on budget, threads or interleave.
"""

import os
import tempfile

import numpy as np

from .passes import Passes
from .statistics import Moments

# Squared residual, as a share of the longest pixel's square, that is rounding.
RESIDUAL_ROUNDING = 1e-12


def spa(moments: Moments, p: int, seed: int, budget: int, passes: Passes) -> list[int]:
    """Pick p pixels, with the arguments of `vca` but ``seed``; fewer if all other pixels are mixtures of these."""
    residuals = room_for(passes.pixels, budget)

    def store_squares(first: int, squares: np.ndarray) -> None:
        residuals[first : first + len(squares)] = np.where(np.isnan(squares), -1.0, squares)

    passes.squares(moments.mean, store_squares)
    square = farthest(residuals)[1]  # the square of the constant c
    residuals[residuals >= 0] += square
    basis = np.zeros((0, len(moments.mean) + 1))
    picked: list[int] = []
    while True:
        best, largest = farthest(residuals)
        if picked and largest <= RESIDUAL_ROUNDING * 2 * square:
            return picked
        picked.append(best)
        if len(picked) == p or square == 0:
            return picked
        h = np.append(passes.mean([best]) - moments.mean, square**0.5)
        for _ in range(2):  # orthogonalise twice: once leaves rounding errors as large as those of the longest pixel
            h -= basis.T @ (basis @ h)
        u = h / np.linalg.norm(h)
        basis = np.vstack([basis, u])

        def subtract_projection(first: int, along: np.ndarray, constant: float = float(u[-1]) * square**0.5) -> None:
            piece = residuals[first : first + len(along)]
            valid = piece >= 0
            piece[valid] = np.maximum(piece[valid] - np.square(along[valid] + constant), 0.0)

        passes.along(moments.mean, u[:-1], subtract_projection)
        residuals[best] = -1.0


def room_for(pixels: int, budget: int) -> np.ndarray:
    """Return an empty float64 array (pixels,), in memory if it fits the budget, else in a scratch file."""
    if 8 * pixels <= budget:
        return np.empty(pixels)
    with tempfile.TemporaryFile(prefix="unmix-") as scratch:
        # allocate now: writing to the memory map on a full disk would kill the process
        os.posix_fallocate(scratch.fileno(), 0, 8 * pixels)
        return np.memmap(scratch, np.float64, "r+", shape=(pixels,))


def farthest(residuals: np.ndarray) -> tuple[int, float]:
    """Return the index of the largest value, the first of equal ones, and the value."""
    best = int(np.argmax(residuals))
    return best, float(residuals[best])
