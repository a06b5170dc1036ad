"""Verify means and deviations over draws: the draws of a run, made again."""

from typing import Any

import numpy as np

from ...io import NODATA, origin_of
from .definition import drawn_spectra, factor_by_definition, noise_by_definition, normals_by_definition, over_draws
from .settings import DrawChoice

# Systems of draws that are solved again, a minute's work, unless all pixels are asked for.
MOST_SYSTEMS = 20_000
# Relative, and absolute: abundances of two solvers differ by 1e-9, and their deviations may be no larger.
RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE = 1e-5, 2e-7


class DrawCheck:
    """The draws of a run, made again.

    Parameters
    ----------
    solved : unmix.commands.verify.solved.SolvedScene
    everything : bool
        Look at all pixels.
    pixels : int
        How many will be asked for.
    """

    def __init__(self, solved: Any, everything: bool, pixels: int) -> None:
        self.solved, self.choice, self.classes = solved, DrawChoice(**solved.asked["draws"]), solved.classes
        self.materials = len(solved.library.names) - solved.has_shade
        count = self.materials if self.choice.spectra is None else self.choice.spectra
        self.sets = drawn_spectra(self.classes.members, count, self.choice.draws, self.choice.seed)
        rest = np.arange(self.materials, len(solved.library.names))
        drawn = {columns.tobytes(): np.append(columns, rest) for columns in self.sets}
        factors = {
            key: factor_by_definition(solved.library.matrix[:, columns], solved.noise) for key, columns in drawn.items()
        }
        self.factors = [factors[columns.tobytes()] for columns in self.sets] if self.choice.has_noise else []
        self.left = 2**62 if everything else max(self.choice.draws, MOST_SYSTEMS)

    def wrong(
        self, written: np.ndarray, A: np.ndarray, Y: np.ndarray, line: int, places: np.ndarray, blur: float
    ) -> np.ndarray:
        """Return which pixels have other means or deviations than their draws, (n,) bool; as many are looked at as time is left for.

        Pixels are passed over of which a draw has no unique abundances, as with equal spectra of two classes.

        Parameters
        ----------
        written : array (bands, n), float32
        A, Y : arrays (n, p) and (n, L), float64
            Abundances that were solved again, and the pixels.
        line, places
            Where they are in the scene.
        blur : float
            By how much what is written may be off, because it is stored in steps.
        """
        wrong = np.zeros(len(A), bool)
        count = min(len(A), self.left // self.choice.draws)
        if not count:
            return wrong
        self.left -= count * self.choice.draws
        some = np.linspace(0, len(A) - 1, count).round().astype(int)
        together = max(1, MOST_SYSTEMS // self.choice.draws)  # as much noise as is held at a time
        for part in np.split(some, range(together, count, together)):
            expected, clear = self.of_pixels(A[part], Y[part], line, places[part])
            off = np.abs(written[:, part].T - expected)
            near = off <= RELATIVE_TOLERANCE * np.abs(expected) + ABSOLUTE_TOLERANCE + blur
            wrong[part] = clear & ~near.all(axis=1)
        return wrong

    def of_pixels(self, A: np.ndarray, Y: np.ndarray, line: int, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the right values of some pixels of a line (n, bands), and which of them have unique abundances in each draw."""
        solved, clear = self.solved, np.ones(len(Y), bool)

        def solve(drawn: np.ndarray, E: np.ndarray) -> np.ndarray:
            clear[:] &= solved.is_unique(drawn, E)
            return solved.solve(drawn, E)

        shade = solved.has_shade and solved.w is None
        noises = self.noises(Y, A, line, places) if self.factors else None
        unknown = np.zeros(len(Y), bool)
        if noises is not None:
            unknown = np.isnan(noises[0]).any(axis=1)
            noises = [np.where(unknown[:, None], 0.0, noise) for noise in noises]
        found = over_draws(Y, solved.library.matrix, self.classes, self.sets, noises, solve, shade)
        found[unknown] = NODATA
        return found, clear | unknown

    def noises(self, Y: np.ndarray, A: np.ndarray, line: int, places: np.ndarray) -> list[np.ndarray]:
        """Return the noise (n, L) of some pixels of a line in each draw."""
        solved, (first, left) = self.solved, origin_of(self.solved.cube)
        assert solved.method is not None
        size = np.ones(len(Y))
        if solved.noise is None:
            size = noise_by_definition(Y, solved.library.matrix, A, solved.method.constraint.sum_to_one)
        lines = np.full(len(places), first + line)
        z = [
            normals_by_definition(self.choice.seed, draw, lines, left + places, f.shape[1])
            for draw, f in enumerate(self.factors)
        ]
        return [size[:, None] * (numbers @ factor.T) for numbers, factor in zip(z, self.factors)]
