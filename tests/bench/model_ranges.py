"""Ranges over MESMA's models beside the same in 50 digits (needs mpmath): ``python tests/bench/model_ranges.py
[LIBRARIES [SEED]]``.

Small libraries of bright and dark spectra, a third of them with two nearly equal ones, a third with three nearly
dependent ones, and noisy mixtures. The faces of all models, from the same floats: prints how many ends there are, how
many of ours lie inside of the truth, and by how much they are beyond it at most, and in 99 % of all.
"""

import itertools
import sys

import numpy as np
from mpmath import mp, mpf

import unmix
from unmix.features.ranges.limit import FitLimit
from unmix.features.ranges.maps import ModelRanges
from unmix.features.ranges.of_models import new_reach, ranges_function, without_limits
from unmix.library import ClassSums, Endmembers
from unmix.methods import ModelChoice, choose
from unmix.problem import plan_problem
from unmix.solvers.pixels.mesma.tables import ALPHA, ROW

mp.dps = 50
# Below this a quantity does not change on a plane, or a sum is one.
NOTHING = mpf(10) ** -40


def case(random: np.random.Generator, kind: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return spectra (L, p), their classes, and pixels (6, L)."""
    L, classes = int(random.integers(4, 40)), np.repeat(np.arange(random.integers(2, 5)), random.integers(1, 4))
    centres = random.uniform(0.1, 0.8, (L, classes.max() + 1))
    E = np.abs(centres[:, classes] + 0.1 * random.standard_normal((L, len(classes)))) + 0.01
    off = random.normal(0, 10.0 ** random.uniform(-4, -2), L)
    if kind == 1:
        E[:, -1] = E[:, 0] * random.uniform(0.5, 1) + off
    if kind == 2 and len(classes) > 2:
        E[:, -1] = 0.4 * E[:, 0] + 0.6 * E[:, 1] + off
    E *= 10.0 ** random.uniform(-1.5, 0.0, len(classes))  # bright spectra and dark ones
    shares = random.dirichlet(np.full(len(classes) + 1, 0.4), 6)[:, :-1]
    Y = shares @ E.T + 0.01 * random.standard_normal((6, L))
    Y[1] = E[:, -1]
    return E, classes, Y


def is_refused(models, spectra) -> bool:
    """Return whether the tables refuse a model, for its spectra are too alike; these are in the order of the tables."""
    if len(spectra) > 1 and models.scale[spectra[0], spectra[1]] == 0:
        return True
    return len(spectra) == 3 and models.triples[ROW * (models.place[spectra[0], spectra[1]] + spectra[2]) + ALPHA] == 0


class Ends:
    """The least and the largest share of each class over the mixtures that are added."""

    def __init__(self, classes: int, normalized: bool) -> None:
        self.lower, self.upper, self.normalized = [mp.inf] * classes, [-mp.inf] * classes, normalized

    def add(self, kinds, x, is_held: bool) -> None:
        """Add a mixture, if it is inside of the limits."""
        total = mp.fsum(x)
        if min(x) < 0 or (total > 1 and not (is_held and abs(total - 1) < NOTHING)) or (self.normalized and total == 0):
            return
        for c in range(len(self.lower)):
            value = mp.fsum(v for v, kind in zip(x, kinds) if kind == c) / (total if self.normalized else 1)
            self.lower[c], self.upper[c] = min(self.lower[c], value), max(self.upper[c], value)


def add_plane(ends: Ends, kinds, G, products, square, bound, is_held: bool) -> None:
    """Add the extremes on one plane of a model."""
    k, inverse = len(kinds), G**-1
    free, ones = inverse * products, inverse * mp.matrix([1] * k)
    sums, total = mp.fsum(ones), mp.fsum(free)
    missing = 1 - total if is_held else mpf(0)
    room = bound - (square - mp.fdot(products, free)) - missing**2 / sums
    if room < 0:
        return
    middle = free + ones * (missing / sums)
    ends.add(kinds, middle, is_held)
    for c in range(k):
        for t in shares_of(c, inverse, free, ones, sums, total, room) if ends.normalized and not is_held else [mpf(0)]:
            quantity = mp.matrix([-t] * k)
            quantity[c] += 1
            along = inverse * quantity
            along = along - ones * (mp.fdot(ones, quantity) / sums) if is_held else along
            length = mp.fdot(quantity, along)
            for sign in (-1, 1) if length > NOTHING else ():
                ends.add(kinds, middle + along * (sign * mp.sqrt(room / length)), is_held)


def shares_of(c, inverse, free, ones, sums, total, room):
    """Return the shares at which planes of one share touch the ellipsoid of a model."""
    first, mixed = total**2 - room * sums, free[c] * total - room * ones[c]
    square = mixed**2 - first * (free[c] ** 2 - room * inverse[c, c])
    return [] if square < 0 or first == 0 else [(mixed + sign * mp.sqrt(square)) / first for sign in (-1, 1)]


def exact_ends(models, E, classes, y, bound, normalized: bool) -> Ends:
    """Return the ends of a pixel; spectra are in the order of the tables."""
    ends = Ends(int(classes.max()) + 1, normalized)
    columns = [mp.matrix([mpf(float(v)) for v in E[:, j]]) for j in range(E.shape[1])]
    pixel = mp.matrix([mpf(float(v)) for v in y])
    square = mp.fdot(pixel, pixel)
    if square <= bound:
        for c in range(len(ends.lower)):
            ends.lower[c], ends.upper[c] = mpf(0), mpf(int(normalized))
    for k in (1, 2, 3):
        for spectra in itertools.combinations(range(E.shape[1]), k):
            kinds = [int(classes[j]) for j in spectra]
            if len(set(kinds)) < k or is_refused(models, spectra):
                continue
            G = mp.matrix([[mp.fdot(columns[i], columns[j]) for j in spectra] for i in spectra])
            products = mp.matrix([mp.fdot(columns[j], pixel) for j in spectra])
            for is_held in (False, True):
                add_plane(ends, kinds, G, products, square, bound, is_held)
    return ends


def beyond(random: np.random.Generator, turn: int) -> list[float]:
    """Return by how much our ends of a library's pixels are beyond the exact ones."""
    E, classes, Y = case(random, turn % 3)
    normalized, within = bool(turn // 3 % 2), float(10 ** random.uniform(-5, -1.5))
    names = [f"c{c}" for c in classes]
    choice = ModelChoice(levels=f"2-{min(4, classes.max() + 2)}")
    library = Endmembers(tuple(f"s{j}" for j in range(len(names))), E, None, classes=tuple(names))
    problem = plan_problem(library, *choose("mesma"), mesma=choice)
    ranges = ModelRanges(problem, ClassSums.of(library, normalized, True), FitLimit(within))
    A = unmix.mesma(Y, E, names, levels=choice.levels).abundances
    chosen, k = ranges.chosen(Y, A), int(classes.max()) + 1
    shares = np.stack([A[:, classes == c].sum(axis=1) for c in range(k)], axis=1)
    shares = shares / shares.sum(axis=1, keepdims=True) if normalized else shares
    lower, upper = np.empty(shares.shape), np.empty(shares.shape)
    reach = new_reach(ranges.kind, k, normalized)
    models = problem.models
    ranges_function()(without_limits(models), chosen.U, chosen.squares, chosen.bounds, shares, reach, lower, upper)
    out = []
    for n, y in enumerate(Y):
        left = [
            mpf(float(v)) - mp.fsum(mpf(float(E[b, j])) * mpf(float(A[n, j])) for j in np.flatnonzero(A[n]))
            for b, v in enumerate(y)
        ]
        bound = (mp.sqrt(mp.fdot(left, left)) + mpf(within) * mp.sqrt(len(y))) ** 2
        ends = exact_ends(models, E[:, models.order], classes[models.order], y, bound, normalized)
        for c in range(k):
            out += [float(ends.lower[c] - mpf(float(lower[n, c]))), float(mpf(float(upper[n, c])) - ends.upper[c])]
    return out


def main(libraries: str = "60", seed: str = "0") -> None:
    random = np.random.default_rng(int(seed))
    off = np.array([value for turn in range(int(libraries)) for value in beyond(random, turn)])
    print(
        f"{len(off)} ends, {np.count_nonzero(off < 0)} inside of the truth; 99 % beyond it by at most "
        f"{np.quantile(off, 0.99):.1e}, all by {off.max():.1e}"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
