"""SPA, successive projections (Araújo et al. 2001; for endmembers: Gillis and Vavasis 2014): pick the pixels farthest from all before.

A pixel y is represented, in all bands, by ``h = (y − mean, c)``, with c the largest ``|y − mean|`` of the scene. The first endmember is
the pixel with the longest h; each of the other p − 1 is the pixel with the largest residual after projecting onto those already picked.
There are no random numbers. The constant c makes the corners of the simplex linearly independent wherever it lies, which the proof of
Gillis and Vavasis requires; without it a corner near the origin (shade, water) is never found, and without subtracting the mean
brightness alone decides.

The file is read once for the mean, and once for ``|y − mean|²`` and some principal components of each pixel. These bound its residual:
what the picked pixels have outside of the components changes it by no more than the product of both parts outside. Only where the
bounds of several pixels overlap are their spectra read again, to choose by the residuals themselves; where these pixels are too many,
the file is read once more for components that hold all that is picked. The result does not depend on budget, threads or interleave.
"""

from typing import NamedTuple

import numpy as np

from ..compiled.jit import compiled
from .passes import Passes
from .scan import View
from .statistics import Moments
from .vca import principal_of, view_of

# Squared residual, as a share of the longest pixel's square, that is rounding.
RESIDUAL_ROUNDING = 1e-12
# Components beyond p − 1: with more, pixels have less outside of them.
MORE_COMPONENTS = 3
# Rounding of components and lengths, as a share of the largest ones.
ROUNDING_OF_LENGTHS = 1e-12
# Pixels whose bounds are made at a time: they stay in a processor's cache.
TOGETHER = 2**13
# Most pixels whose spectra are read to choose among them, and the part of all lines that they may be on: beyond that a pass is as fast.
# (Of 104 extractions of real scenes that had more than two passes with a twentieth of the lines and 16, 76 have two with these; five
# more components saved as little as 0.1 pass.)
MOST_RIVALS, PART_OF_LINES, FEW_LINES = 2**14, 8, 64


class Basis(NamedTuple):
    """An orthonormal basis of the picked pixels' h, in components: ``A z + constants`` for a pixel, but for ``outside``."""

    A: np.ndarray  # (k, d)
    constants: np.ndarray  # (k,)
    outside: float  # the largest part of a combination of the basis, of length 1, outside of the components


class Rivals(NamedTuple):
    """Pixels that may have the largest residual."""

    places: np.ndarray  # (n,) int64, ascending
    at_most: np.ndarray  # (n,) the upper bounds of their squared residuals
    least: float  # a lower bound of the largest one
    best: tuple[float, int]  # the largest squared residual but for what is outside of the components, and its pixel
    too_many: bool

    def with_more(self, other: "Rivals") -> "Rivals":
        """Return these and others, which come after them."""
        least = max(self.least, other.least)
        places, at_most = (np.concatenate(both) for both in zip(self[:2], other[:2]))
        near = at_most >= least
        too_many = int(near.sum()) > MOST_RIVALS  # some of these are left out: the best ones may be among them
        near &= not too_many
        best = other.best if other.best[0] > self.best[0] else self.best
        return Rivals(places[near], at_most[near], least, best, self.too_many or other.too_many or too_many)


NOBODY = Rivals(np.empty(0, np.int64), np.empty(0), -np.inf, (-np.inf, -1), False)


@compiled
def seen_by(basis, Z, squares, along, left):
    """Write the square of what each pixel has along the basis, and the square of what it has outside of the components."""
    A, constants = basis.A, basis.constants
    for n in range(Z.shape[0]):
        total, inside = 0.0, 0.0
        for i in range(A.shape[0]):
            part = constants[i]
            for j in range(Z.shape[1]):
                part += A[i, j] * Z[n, j]
            total += part * part
        for j in range(Z.shape[1]):
            inside += Z[n, j] * Z[n, j]
        along[n], left[n] = total, squares[n] - inside


class Residuals:
    """The squared residuals of all pixels, as far as components and lengths tell them.

    Parameters
    ----------
    moments : Moments
    p : int
        Number of endmembers.
    budget : int
        Bytes of memory for components.
    passes : Passes
    """

    def __init__(self, moments: Moments, p: int, budget: int, passes: Passes) -> None:
        self.moments, self.budget, self.passes = moments, budget, passes
        L = len(moments.mean)
        self.view = view_of(moments, min(L, p - 1 + MORE_COMPONENTS))
        self.points, self.squares = passes.points([self.view, View(np.empty((L, 0)), moments.mean)], budget)
        self.longest, square = self.squares.best(lambda rows: largest(rows))
        self.square = max(square, 0.0)  # of the constant c
        self.slack = ROUNDING_OF_LENGTHS * (self.square**0.5 + float(np.linalg.norm(moments.mean)))
        self.picked: list[int] = []
        self.basis = np.zeros((0, L + 1))

    def close(self) -> None:
        """Close scratch files."""
        self.points.close()
        self.squares.close()

    def pick(self, place: int) -> None:
        """Add a pixel to the basis."""
        self.picked.append(place)
        h = np.append(self.passes.spectrum(place) - self.moments.mean, self.square**0.5)
        for _ in range(2):  # orthogonalise twice: once leaves rounding errors as large as those of the longest pixel
            h -= self.basis.T @ (self.basis @ h)
        self.basis = np.vstack([self.basis, h / np.linalg.norm(h)])

    def farthest(self) -> tuple[int, float]:
        """Return the pixel with the largest squared residual, the first of equal ones, and that value."""
        rivals = self.rivals()
        if rivals.too_many or not self.are_few(rivals.places):
            self.see_basis()
            rivals = self.rivals()
            if rivals.too_many or not self.are_few(rivals.places):  # they are equal, but for rounding
                return rivals.best[1], max(rivals.best[0], 0.0)
        if len(rivals.places) == 0:
            return -1, -1.0
        values = self.exactly(rivals.places)
        best = int(np.argmax(values))
        return int(rivals.places[best]), float(values[best])

    def rivals(self) -> Rivals:
        """Return the pixels that may have the largest residual."""
        B, U = self.basis[:, :-1], self.view.U
        A = np.ascontiguousarray(B @ U)
        outside = float(np.linalg.norm(B - A @ U.T, 2)) if len(B) else 0.0
        basis = Basis(A, self.basis[:, -1] * self.square**0.5, outside)
        found = NOBODY
        for some in self.points.mapped(lambda first, rows: self.rivals_in(basis, first, rows)):
            found = found.with_more(some)
        return found

    def rivals_in(self, basis: Basis, first: int, rows: np.ndarray) -> Rivals:
        """Return those of some rows of components, the first of which is number ``first``."""
        found, squares = NOBODY, self.squares.part(first, len(rows))[:, 0]
        for start in range(0, len(rows), TOGETHER):
            Z, size = rows[start : start + TOGETHER], squares[start : start + TOGETHER]
            along, left = np.empty(len(Z)), np.empty(len(Z))
            seen_by(basis, Z, size, along, left)
            error = basis.outside * np.sqrt(np.maximum(left, 0.0) + ROUNDING_OF_LENGTHS * size) + self.slack
            root, whole = np.sqrt(along), size + self.square
            values, places = whole - along, first + start + np.arange(len(Z))
            values[np.isin(places, self.picked)] = np.nan
            good = np.flatnonzero(values > -np.inf)
            at_least = whole - np.square(root + error)
            at_most = whole - np.square(np.maximum(root - error, 0.0))
            if len(good):
                best = good[int(values[good].argmax())]
                least = max(found.least, float(at_least[good].max()))
                near = good[at_most[good] >= least]
                mine = (float(values[best]), int(places[best]))
                found = found.with_more(Rivals(places[near], at_most[near], least, mine, False))
        return found

    def are_few(self, places: np.ndarray) -> bool:
        """Return whether to read the spectra of these pixels is faster than a pass."""
        lines = {self.passes.locate(place)[:2] for place in places.tolist()}
        all_lines = sum(scene.cube.lines for scene in self.passes.scenes)
        return len(lines) <= max(FEW_LINES, all_lines // PART_OF_LINES)

    def exactly(self, places: np.ndarray) -> np.ndarray:
        """Return the squared residuals of some pixels, from their spectra."""
        found, line_of = np.empty(len(places)), (-1, -1)
        for n, place in enumerate(places.tolist()):
            number, line, sample = self.passes.locate(place)
            if (number, line) != line_of:
                of_line, line_of = self.passes.spectra(number, line), (number, line)
            x = of_line[sample] - self.moments.mean
            value = np.square(x).sum() + self.square
            for u in self.basis:
                value = max(value - ((u[:-1] * x).sum() + u[-1] * self.square**0.5) ** 2, 0.0)
            found[n] = value
        return found

    def see_basis(self) -> None:
        """Read components again, which hold the basis, and principal ones."""
        d = self.view.d
        both = np.hstack([self.basis[:, :-1].T, principal_of(self.moments, d)])
        U = np.ascontiguousarray(np.linalg.qr(both)[0][:, : max(d, len(self.basis))])
        self.view = View(U, U.T @ self.moments.mean)
        self.points.close()
        (self.points,) = self.passes.points([self.view], self.budget)


def largest(rows: np.ndarray) -> tuple[int, float]:
    """Return the row (n, 1) with the largest number, the first of equal ones, and the number; NaN is none."""
    values = np.where(np.isnan(rows[:, 0]), -1.0, rows[:, 0])
    best = int(values.argmax())
    return best, float(values[best])


def spa(moments: Moments, p: int, seed: int, budget: int, passes: Passes) -> list[int]:
    """Pick p pixels; the arguments are those of `unmix.endmembers.vca.vca`, and ``seed`` is not used.

    Fewer than p if all other pixels are mixtures of these.
    """
    residuals = Residuals(moments, p, budget, passes)
    try:
        if residuals.square == 0:
            return [residuals.longest]
        residuals.pick(residuals.longest)
        while len(residuals.picked) < p:
            best, largest_square = residuals.farthest()
            if largest_square <= RESIDUAL_ROUNDING * 2 * residuals.square:
                break
            residuals.pick(best)
        return residuals.picked
    finally:
        residuals.close()
