"""Define MESMA: the best of all models with one spectrum of each of some classes, and what else a pixel could be."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from .fractions import NODATA

# Models whose pseudo-inverses are kept for all pixels; of 200 bands each takes 10 kB.
MOST_KEPT = 20_000
# Models fitted at a time.
TOGETHER = 4096
# A model is refused where `models_apart` is no larger: its spectra are too alike.
TOO_ALIKE = 1e-8
# Tolerance of VIPER's limits: rounding gives a pixel that is a spectrum of the library a shade of 0 or of -2e-16.
ALLOWANCE = 1e-9
# Abundances closer than this are equal; smaller ones are zero.
SAME_ABUNDANCE = 1e-6


def models_apart(A: np.ndarray) -> np.ndarray:
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


class Fits(NamedTuple):
    """Models of a pixel that the limits allow; of those with fewer than three spectra the last columns are −1."""

    sizes: np.ndarray  # (M,) spectra of each
    columns: np.ndarray  # (M, 3) their numbers
    amounts: np.ndarray  # (M, 3) their abundances
    rmse: np.ndarray  # (M,)

    def take(self, which: np.ndarray) -> "Fits":
        """Return some of the models."""
        return Fits(*(values[which] for values in self))


def sets_of(choice: Any, kinds: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the sets of classes of models that a choice allows, by size, then by lower-case names."""
    (low, high), exact = choice.sizes, choice.limits == "exact"
    known = sorted(set(kinds), key=lambda name: (name.lower(), name))
    every = [one for k in range(1 if exact else low, high + 1) for one in itertools.combinations(known, k)]
    if choice.class_sets is None:
        return every
    named = [set(text.split("+")) for text in choice.class_sets.split(",")]
    return [one for one in every if any(set(one) <= some if exact else set(one) == some for some in named)]


class EveryModel:
    """All models of a library, and the rule by which one of them is chosen.

    Parameters
    ----------
    E : array (L, p), float64
    kinds : sequence of str
        The class of each spectrum.
    choice : unmix.methods.ModelChoice
        The limits.
    normalized : bool
        Whether fractions are divided by their sum, so that shade is taken out.
    """

    def __init__(self, E: np.ndarray, kinds: Sequence[str], choice: Any, normalized: bool = False) -> None:
        choice = choice.of_library(kinds, len(E))
        self.E, self.choice, self.normalized = E, choice, normalized
        self.members = {name: [j for j, kind in enumerate(kinds) if kind == name] for name in dict.fromkeys(kinds)}
        sets = sets_of(choice, kinds)
        self.models = {
            size: [
                np.array(list(itertools.product(*(self.members[name] for name in one))))
                for one in sets
                if len(one) == size
            ]
            for size in range(1, choice.sizes[1] + 1)
        }
        self.count = sum(len(models) for parts in self.models.values() for models in parts)
        small = self.count <= MOST_KEPT
        self.kept = {size: list(self.inverses(size)) for size in self.models} if small else {}

    def inverses(self, size: int) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield columns (M, k), spectra (M, L, k), their pseudo-inverses, G⁻¹1 (M, k) and `models_apart` of the models of a size."""
        for models in self.models[size]:
            for begin in range(0, len(models), TOGETHER):
                columns = models[begin : begin + TOGETHER]
                A = np.ascontiguousarray(self.E.T[columns].transpose(0, 2, 1))
                inverse = np.linalg.pinv(A)
                yield columns, A, inverse, np.einsum("mkl,mjl->mkj", inverse, inverse).sum(axis=2), models_apart(A)

    def fits(
        self, y: np.ndarray, size: int, slack: float = 0.0, margin: float = 0.0
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield columns (M, k), abundances (M, k) and RMSE (M,) of the models of a size that the limits allow.

        ``slack`` is what a limit on the RMSE may be off, as a share of the pixel's; ``margin`` what a fraction may be
        beyond a limit.
        """
        for columns, A, inverse, along, angles in self.kept.get(size) or self.inverses(size):
            free = inverse @ y
            is_kept = angles > TOO_ALIKE * (1 - 1e-3 * np.sign(margin))
            if self.choice.limits == "viper":
                yield self.within(columns, A, free, y, is_kept & self.of_viper(free), slack, margin)
                continue
            total = free.sum(axis=1)
            inside = (free.min(axis=1) >= -margin) & (total <= 1 + margin)
            yield self.within(columns, A, free, y, is_kept & inside, slack, margin)
            held = free + (1 - total)[:, None] / along.sum(axis=1, keepdims=True) * along
            outside = (held.min(axis=1) >= -margin) & (total > 1 - margin)
            yield self.within(columns, A, held, y, is_kept & outside, slack, margin)

    def of_viper(self, a: np.ndarray) -> np.ndarray:
        """Return which abundances are within VIPER's limits."""
        shade, choice = 1 - a.sum(axis=1), self.choice
        inside = (a.min(axis=1) >= choice.min_fraction - ALLOWANCE) & (a.max(axis=1) <= choice.max_fraction + ALLOWANCE)
        return inside & (shade >= choice.min_shade - ALLOWANCE) & (shade <= choice.max_shade + ALLOWANCE)

    def within(
        self,
        columns: np.ndarray,
        A: np.ndarray,
        a: np.ndarray,
        y: np.ndarray,
        allowed: np.ndarray,
        slack: float,
        margin: float,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return those models that are allowed and fit well enough, with their RMSE."""
        columns, a = columns[allowed], a[allowed]
        residual, size = y - np.einsum("mlk,mk->ml", A[allowed], a), rms(y)
        rmse = np.sqrt(np.square(residual).mean(axis=1))
        good = rmse <= self.choice.largest_rmse + slack * size
        if self.choice.max_residual is not None:
            large = np.abs(residual) >= self.choice.max_residual + (slack + margin) * size
            width = min(self.choice.residual_bands, len(y) + 1)
            runs = np.lib.stride_tricks.sliding_window_view(np.pad(large, ((0, 0), (0, 1))), width, axis=1)
            good &= ~np.any(np.all(runs, axis=2), axis=1)
        return columns[good], a[good], rmse[good]

    def best(self, y: np.ndarray, slack: float = 0.0) -> tuple[float, np.ndarray]:
        """Return RMSE and abundances (p,) of the model that should be chosen; of no model, |y|/√L and zeros."""
        exact, (fewest, most) = self.choice.limits == "exact", self.choice.sizes
        nothing = np.zeros(self.E.shape[1])
        rmse, a = rms(y) if exact and rms(y) <= self.choice.largest_rmse else np.inf, nothing
        levels: list[tuple[int, float, np.ndarray]] = []
        for size in range(1, most + 1):
            if not exact:
                rmse = np.inf
            for columns, fractions, errors in self.fits(y, size, slack) if exact or size >= fewest else ():
                if len(errors) and errors.min() < rmse:
                    at = int(errors.argmin())
                    rmse, a = float(errors[at]), np.zeros(self.E.shape[1])
                    a[columns[at]] = fractions[at]
            if size >= fewest:
                levels.append((size, rmse, a))
        return self.chosen(levels, len(y)) or (rms(y), nothing)

    def chosen(self, levels: list[tuple[int, float, np.ndarray]], L: int) -> tuple[float, np.ndarray] | None:
        """Return the best of the levels that are kept, each its size, RMSE and abundances; None without one."""
        most = self.choice.sizes[1]
        noise = min((rmse for _, rmse, _ in levels), default=np.inf) ** 2 * L / max(L - most, 1)
        best, kept, preceding = None, None, None
        for size, rmse, a in levels:
            reference = kept if self.choice.fusion_rule == "kept" else preceding
            preceding = (size, rmse) if rmse < np.inf else (size, np.inf)
            if rmse == np.inf:
                continue
            if reference is not None and reference[1] < np.inf:
                if self.choice.fusion is not None:
                    is_kept = reference[1] - rmse >= self.choice.fusion
                else:
                    gain = sum(4 if k <= 3 else 9 for k in range(reference[0] + 1, size + 1))
                    is_kept = L * (reference[1] ** 2 - rmse**2) >= gain * noise * (1 - 1e-12)
                if not is_kept:
                    continue
            kept = size, rmse
            if best is None or rmse < best[0]:
                best = rmse, a
        return best

    def maps_of(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the maps of a pixel's abundances (p,): fractions, shade and brightness; and the spectrum of each class, from 1."""
        sums = np.array([a[some].sum() for some in self.members.values()])
        total = sums.sum()
        if self.normalized:
            sums = sums / total if total > 0 else np.full(len(sums), NODATA)
        numbers = [sum(j + 1 for j in some if a[j] != 0) for some in self.members.values()]
        return np.array([*sums, 1 - total, total]), np.array(numbers)


def rms(y: np.ndarray) -> float:
    """Return the root mean square of a pixel's values."""
    return float(np.sqrt(np.square(y).mean()))
