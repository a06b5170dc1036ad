"""SPA, successive projections (Araújo et al. 2001; for endmembers: Gillis and Vavasis 2014): the pixels farthest from all before.

A pixel y stands as ``h = (y − mean, c)``, c the largest ``|y − mean|`` of the scene, in all bands. The first is the one with the
longest h; then, p − 1 times, the one of which most is left beside those found. No random number. The constant makes of the simplex
that pixels lie in, wherever it stands, one whose corners are independent, which is what the proof of Gillis and Vavasis asks for;
without it a corner near the origin (shade, water) is never found, and without the mean taken out brightness alone decides.

A pass over the file for the mean, one for lengths, one for each endmember but the last. Of each pixel 8 bytes are held: the square of
what is left of it. The same places for any budget, threads or interleave.
"""

import os
import tempfile

import numpy as np

from .passes import Passes
from .statistics import Moments

# Of the longest's square, what is left where nothing is left but rounding.
NOTHING = 1e-12


def spa(moments: Moments, p: int, seed: int, pixels: int, budget: int, passes: Passes) -> list[int]:
    """Pick p pixels; arguments as of `unmix.endmembers.vca.vca`, of which ``seed`` is not used.

    Returns
    -------
    list of int
        Places of the pixels, counted along the lines; fewer than p where all others are mixtures of these.
    """
    left = room_for(pixels, budget)

    def take_squares(first: int, squares: np.ndarray) -> None:
        left[first : first + len(squares)] = np.where(np.isnan(squares), -1.0, squares)

    passes.squares(moments.mean, take_squares)
    square = farthest(left)[1]  # of the constant
    left[left >= 0] += square
    basis = np.zeros((0, len(moments.mean) + 1))
    found: list[int] = []
    while True:
        best, most = farthest(left)
        if found and most <= NOTHING * 2 * square:
            return found
        found.append(best)
        if len(found) == p or square == 0:
            return found
        h = np.append(passes.spectrum(best) - moments.mean, square**0.5)
        for _ in range(2):  # once leaves rounding of the longest
            h -= basis.T @ (basis @ h)
        u = h / np.linalg.norm(h)
        basis = np.vstack([basis, u])

        def take_out(first: int, along: np.ndarray, constant: float = float(u[-1]) * square**0.5) -> None:
            part = left[first : first + len(along)]
            there = part >= 0
            part[there] = np.maximum(part[there] - np.square(along[there] + constant), 0.0)

        passes.along(moments.mean, u[:-1], take_out)
        left[best] = -1.0


def room_for(pixels: int, budget: int) -> np.ndarray:
    """Return a number for each pixel: in memory where they fit the budget, else in a scratch file."""
    if 8 * pixels <= budget:
        return np.empty(pixels)
    with tempfile.TemporaryFile(prefix="unmix-") as scratch:
        # a full disk would end the process when the map is written to
        os.posix_fallocate(scratch.fileno(), 0, 8 * pixels)
        return np.memmap(scratch, np.float64, "r+", shape=(pixels,))


def farthest(left: np.ndarray) -> tuple[int, float]:
    """Return the place of the largest number, the first of equals, and the number."""
    best = int(np.argmax(left))
    return best, float(left[best])
