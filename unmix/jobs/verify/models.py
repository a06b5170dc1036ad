"""Verify maps of MESMA: all models of some pixels again, each by least squares of its own."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...io import Bands, Cube, read_pixels
from ...io.export import NODATA
from ...library import ClassSums, Endmembers
from ...methods import ALLOWANCE, ModelChoice
from .spread import is_spread

# Models times pixels that are fitted again, about a minute's work.
MOST_FITS = 2_000_000
# Models whose pseudo-inverses are kept for all pixels; of 200 bands each takes 10 kB.
MOST_KEPT = 20_000
# Models fitted at a time.
TOGETHER = 4096
FRACTION_TOLERANCE = 2e-6
# A model is refused where `apart` is no larger (`unmix.solvers.pixels.mesma.tables.TOO_ALIKE`).
TOO_ALIKE = 1e-8
# The search knows an RMSE to this share of the pixel's, since it is the root of a difference: a limit may fall either way.
SLACK = 1e-7
# An RMSE nearer than this share of the pixel's counts as the same: its square is 1e-11 of it.
SAME_RMSE = 3.2e-6


def apart(A: np.ndarray) -> np.ndarray:
    """Return for models (M, L, k) the least squared sine of the angle between a spectrum and the span of those before it, (M,)."""
    unit = A / np.linalg.norm(A, axis=1, keepdims=True)
    least = np.ones(len(A))
    basis: list[np.ndarray] = []
    for column in np.moveaxis(unit, 2, 0):
        for _ in range(2):  # once more, for what rounding left of the span
            for before in basis:
                column = column - np.einsum("ml,ml->m", before, column)[:, None] * before
        squares = np.square(column).sum(axis=1)
        least = np.minimum(least, squares)
        basis.append(column / np.sqrt(np.maximum(squares, 1e-300))[:, None])
    return least


class ModelCheck:
    """All models of a library, and the rule by which a run chose among them.

    Parameters
    ----------
    library : Endmembers
        What the run wrote, with classes.
    report : dict
        The run's record.
    """

    def __init__(self, library: Endmembers, report: dict[str, Any]) -> None:
        self.E, self.choice = library.matrix, ModelChoice(**report["asked"]["choice"])
        self.sums = ClassSums.of(library, bool(report["asked"]["shade_normalize"]), True)
        members = dict(zip(self.sums.names, self.sums.members))
        sets = self.choice.sets_of(library.classes or ())
        self.models = {
            size: [
                np.array(list(itertools.product(*(members[name] for name in one)))) for one in sets if len(one) == size
            ]
            for size in range(1, self.choice.sizes[1] + 1)
        }
        self.blur = 0.0  # what fractions may be off that are stored in steps
        self.slack = 0.0  # what a limit on the RMSE may be off, as a share of the pixel's
        self.margin = 0.0  # what a fraction may be off
        self.count = sum(len(models) for parts in self.models.values() for models in parts)
        small = self.count <= MOST_KEPT
        self.kept = {size: list(self.inverses(size)) for size in self.models} if small else {}

    def fits(self, y: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield columns (M, k), abundances (M, k) and RMSE (M,) of the models of a size that the limits allow."""
        for columns, A, inverse, along, apart in self.kept.get(size) or self.inverses(size):
            free = inverse @ y
            is_kept = apart > TOO_ALIKE * (1 - 1e-3 * np.sign(self.margin))
            if self.choice.limits == "viper":
                yield self.within(columns, A, free, y, is_kept & self.of_viper(free))
                continue
            least = -self.margin
            total = free.sum(axis=1)
            yield self.within(columns, A, free, y, is_kept & (free.min(axis=1) >= least) & (total <= 1 - least))
            held = free + (1 - free.sum(axis=1, keepdims=True)) / along.sum(axis=1, keepdims=True) * along
            yield self.within(columns, A, held, y, is_kept & (held.min(axis=1) >= least) & (total > 1 + least))

    def inverses(self, size: int) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield columns (M, k), spectra (M, L, k), their pseudo-inverses, G⁻¹1 (M, k) and `apart` of the models of a size."""
        for models in self.models[size]:
            for begin in range(0, len(models), TOGETHER):
                columns = models[begin : begin + TOGETHER]
                A = np.ascontiguousarray(self.E.T[columns].transpose(0, 2, 1))
                inverse = np.linalg.pinv(A)
                yield columns, A, inverse, np.einsum("mkl,mjl->mkj", inverse, inverse).sum(axis=2), apart(A)

    def of_viper(self, a: np.ndarray) -> np.ndarray:
        """Return which abundances are within VIPER's limits."""
        shade, choice = 1 - a.sum(axis=1), self.choice
        inside = (a.min(axis=1) >= choice.min_fraction - ALLOWANCE) & (a.max(axis=1) <= choice.max_fraction + ALLOWANCE)
        return inside & (shade >= choice.min_shade - ALLOWANCE) & (shade <= choice.max_shade + ALLOWANCE)

    def within(
        self, columns: np.ndarray, A: np.ndarray, a: np.ndarray, y: np.ndarray, allowed: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return those models that are allowed and fit well enough, with their RMSE."""
        columns, a = columns[allowed], a[allowed]
        residual, size = y - np.einsum("mlk,mk->ml", A[allowed], a), np.sqrt(np.square(y).mean())
        rmse = np.sqrt(np.square(residual).mean(axis=1))
        good = rmse <= self.choice.largest_rmse + self.slack * size
        if self.choice.max_residual is not None:
            large = np.abs(residual) >= self.choice.max_residual + (self.slack + self.margin) * size
            width = min(self.choice.residual_bands, len(y) + 1)
            runs = np.lib.stride_tricks.sliding_window_view(np.pad(large, ((0, 0), (0, 1))), width, axis=1)
            good &= ~np.any(np.all(runs, axis=2), axis=1)
        return columns[good], a[good], rmse[good]

    def best(self, y: np.ndarray) -> tuple[float, np.ndarray]:
        """Return RMSE and abundances (p,) of the model that the run should have chosen; of no model, |y|/√L and zeros."""
        exact, (fewest, most) = self.choice.limits == "exact", self.choice.sizes
        chosen, least, kept, preceding = None, np.inf, np.inf, np.inf
        rmse, a = np.inf, np.zeros(self.E.shape[1])
        if exact and np.sqrt(np.square(y).mean()) <= self.choice.largest_rmse:
            rmse = float(np.sqrt(np.square(y).mean()))
        for size in range(1, most + 1):
            if not exact:
                rmse = np.inf
            for columns, fractions, errors in self.fits(y, size) if exact or size >= fewest else ():
                if len(errors) and errors.min() < rmse:
                    at = int(errors.argmin())
                    rmse, a = float(errors[at]), np.zeros(self.E.shape[1])
                    a[columns[at]] = fractions[at]
            if size < fewest:
                continue
            reference = kept if self.choice.fusion_rule == "kept" else preceding
            if rmse < np.inf and (reference == np.inf or reference - rmse >= self.choice.fusion):
                kept = rmse
                if rmse < least:
                    chosen, least = a, rmse
            preceding = rmse
        return (
            (least, chosen) if chosen is not None else (float(np.sqrt(np.square(y).mean())), np.zeros(self.E.shape[1]))
        )

    def check(
        self, maps: Any, report: dict[str, Any], scene: Cube, bands: Bands, line: int, places: np.ndarray
    ) -> tuple[dict[int, str], float]:
        """Return what is wrong with samples of a line, and by how much the fractions of the others are off."""
        Y, masked = read_pixels(scene, bands, report["nodata"], line, places)
        names = ("model", "fraction", "rmse", *(["spread"] if "spread" in maps else []))
        written = {name: maps.line(name, line)[:, places] for name in names}
        wrong: dict[int, str] = {}
        self.blur = maps.blur("fraction")
        worst, within = 0.0, float(report["asked"].get("within", 0.0))
        for n, place in enumerate(places):
            if masked[n]:
                if any((values[:, n] != NODATA).any() for values in written.values()):
                    wrong[int(place)] = "is masked, but not nodata"
                continue
            row = {name: values[:, n] for name, values in written.items()}
            tried = (self.compare(Y[n], row, slack) for slack in (0.0, SLACK, -SLACK))
            off = next((one for one in tried if one < np.inf), np.inf)
            if off == np.inf:
                wrong[int(place)] = "is not the best model"
            elif "spread" in row and not is_spread(self, Y[n], row, within):
                wrong[int(place)] = "has another spread over the models that fit nearly as well"
            worst = max(worst, off if off < np.inf else 0.0)
        return wrong, worst

    def compare(self, y: np.ndarray, written: dict[str, np.ndarray], slack: float) -> float:
        """Return by how much the fractions of a pixel are off, infinite where it should have another model."""
        self.slack = slack
        rmse, a = self.best(y)
        none, size = np.zeros((1, 1), bool), float(np.sqrt(np.square(y).mean()))
        expected = self.sums.fractions(a[None, :, None], none)[0, :, 0]
        numbers = self.sums.models(a[None, :, None], none)[0, :, 0]
        off = float(np.abs(written["fraction"] - expected).max())
        near = off <= FRACTION_TOLERANCE * max(1.0, float(np.abs(expected).max())) + self.blur
        if abs(float(written["rmse"][0]) - rmse) > 1e-6 * rmse + 2e-8 * size:
            return np.inf
        if near and np.array_equal(numbers, written["model"]):
            return off
        return 0.0 if self.equals(y, written["model"], written["fraction"], rmse, size) else np.inf

    def equals(self, y: np.ndarray, numbers: np.ndarray, fractions: np.ndarray, rmse: float, size: float) -> bool:
        """Return whether another model was written that fits as well as the best, with its own fractions."""
        columns = [int(number) - 1 for number in numbers if number > 0]
        if not columns:
            return False
        A = self.E[:, columns]
        free, along = np.linalg.lstsq(A, y, rcond=None)[0], np.linalg.pinv(A) @ np.linalg.pinv(A).T.sum(axis=1)
        for fitted in (free, free + (1 - free.sum()) / along.sum() * along):
            a = np.zeros(self.E.shape[1])
            a[columns] = fitted
            expected = self.sums.fractions(a[None, :, None], np.zeros((1, 1), bool))[0, :, 0]
            is_as_good = float(np.sqrt(np.square(y - A @ fitted).mean())) <= rmse + SAME_RMSE * size
            limit = FRACTION_TOLERANCE * max(1.0, float(np.abs(expected).max())) + self.blur
            if is_as_good and np.abs(fractions - expected).max() <= limit:
                return True
        return False
