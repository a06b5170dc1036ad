"""Derive the scatter of sums by class over random draws of spectra and noise, as in EMIT's fractional cover.

A draw is a set of spectra, as even over the classes as can be, common to all pixels, and noise that is a pixel's own.
Each is solved exactly by the method of the run. A pixel's noise depends on seed, line, sample and draw alone
(`normals_of_pixels`), so the bytes of the map depend neither on blocks nor on threads, and a part of a
scene has the values of the whole.

Abundances depend on a pixel y through Eᵀy alone. So noise of covariance Σ need not be drawn for L bands: with an
orthonormal basis Q of the draw's k spectra, ``Q C z`` serves, C a factor of ``Qᵀ Σ Q = C Cᵀ`` and z k normal numbers.
Sets of spectra and their factors are made once for a scene, and sent to the workers of a cluster, whose linear algebra
may round otherwise.
"""

from typing import Any, NamedTuple

import numpy as np

from ...arrays.pixels import solve_pixels
from ...compiled.jit import compiled
from ...errors import MethodError
from ...io import NODATA, spectra
from ...library import ClassSums
from ...maps.derived.solved import map_of_solved, residual_noise
from ...problem import Problem, plan_problem
from .settings import DrawChoice, names_of_averages

# Pixels that are solved at a time.
TOGETHER = 4096
# Share of a spectrum outside the span of spectra before it, below which it adds only rounding to their basis.
DEPENDENT_SPECTRUM = 1e-9


class DrawnSet(NamedTuple):
    """Spectra that are drawn together."""

    columns: np.ndarray  # (K,) their numbers in the library
    problem: Problem
    # (L, k) that turns k normal numbers into noise, white or of the given deviations; (L, 1) zeros without noise
    factor: np.ndarray


def plan_draws(problem: Problem, sums: ClassSums, choice: DrawChoice, memory: int) -> list[DrawnSet]:
    """Return the set of each draw, at most ``memory`` bytes of them; equal sets are one, whose noise is factored once."""
    given = problem.endmembers
    total = len(given.names) - given.has_shade
    count = total if choice.spectra is None else choice.spectra
    if not len(sums.names) <= count <= total:
        raise MethodError(
            f"`draw_spectra` {count}: must be from {len(sums.names)}, one of each class, to {total}, all spectra"
        )
    if count == total and not choice.has_noise:
        raise MethodError("`noise` none: nothing would vary with all spectra in each draw; lower `draw_spectra`")
    L = len(given.matrix)
    needed = 8 * (3 * L * (count + 1) + 6 * (count + 1) ** 2) * (1 if count == total else choice.draws)
    if needed > memory:
        raise MethodError(
            f"`draws` {choice.draws}: the draws of {count} spectra need {needed} bytes; raise `memory`, or draw less"
        )
    random = np.random.Generator(np.random.PCG64(choice.seed))
    all_spectra = np.arange(total)
    drawn = [all_spectra if count == total else class_even(sums, count, random) for _ in range(choice.draws)]
    sets: dict[bytes, DrawnSet] = {}
    for columns in drawn:
        if columns.tobytes() not in sets:
            of_set = given.take(columns.tolist())
            of_set = of_set.with_shade(given.matrix[:, -1]) if given.has_shade else of_set
            own = plan_problem(of_set, problem.method, problem.solver, warns=False)
            factor = noise_factor(of_set.matrix, problem.noise, choice.has_noise)
            sets[columns.tobytes()] = DrawnSet(columns, own, factor)
    return [sets[columns.tobytes()] for columns in drawn]


def noise_factor(E: np.ndarray, noise: np.ndarray | None, has_noise: bool) -> np.ndarray:
    """Return the factor (L, k) of `DrawnSet` for spectra (L, K), by Gram-Schmidt, twice, without dependent spectra."""
    # A QR factorisation would keep the rounding of dependent spectra as directions of their own, and the noise would
    # depend on the computer.
    basis = np.zeros((len(E), 0))
    for e in E.T:
        rest = e - basis @ (basis.T @ e)
        rest = rest - basis @ (basis.T @ rest)
        length = float(np.linalg.norm(rest))
        if length > DEPENDENT_SPECTRUM * float(np.linalg.norm(e)):
            basis = np.column_stack([basis, rest / length])
    if not has_noise or not basis.shape[1]:
        return np.zeros((len(E), 1))
    if noise is None:
        return np.ascontiguousarray(basis)
    R = np.linalg.qr(noise[:, None] * basis)[1]  # QᵀΣQ = RᵀR, but nothing is squared
    return np.ascontiguousarray(basis @ (R * np.sign(np.diag(R))[:, None]).T)


def normals_of_pixels(seed: int, draw: int, lines: np.ndarray, samples: np.ndarray, k: int) -> np.ndarray:
    """Return normal numbers (N, k) of a pixel's draw, which depend on the seed and its place alone."""
    # A line has a generator of its own (Philox, Salmon et al. 2011), whose numbers begin at sample 0 of the scene.
    z = np.empty((len(lines), k))
    for line in np.unique(lines):
        here = lines == line
        random = np.random.Generator(np.random.Philox(key=[seed, draw], counter=[0, 0, 0, line]))
        z[here] = random.standard_normal((samples[here].max() + 1, k))[samples[here]]
    return z


@compiled
def add_noise(Y: Any, F: Any, size: Any, z: Any, out: Any) -> None:
    """Write pixels (N, L) with noise ``size F z`` to ``out``: F (L, k), size (N,), normal numbers z (N, k)."""
    # Not a product of matrices, which rounds otherwise for other numbers of pixels.
    L, k = F.shape
    for n in range(Y.shape[0]):
        for b in range(L):
            value = 0.0
            for j in range(k):
                value += F[b, j] * z[n, j]
            out[n, b] = Y[n, b] + size[n] * value


def class_even(sums: ClassSums, count: int, random: np.random.Generator) -> np.ndarray:
    """Return ``count`` sorted spectrum numbers: one of each class in turn, classes and spectra in random order."""
    piles = [list(random.permutation(members)) for members in sums.members]
    order = random.permutation(len(piles))
    chosen: list[int] = []
    while len(chosen) < count:
        for c in order:
            if piles[c] and len(chosen) < count:
                chosen.append(int(piles[c].pop()))
    return np.sort(chosen)


class PlainAverage:
    """Mean and standard deviation of each sum by class over draws; a map of `unmix.maps.derived`.

    Parameters
    ----------
    given : GivenLines
        Of a problem with its draws, and with the noise of its bands, or None to take it, white, from each pixel's
        residual.
    """

    def __init__(self, given: Any) -> None:
        self.problem, self.sums, self.choice = given.problem, given.sums, DrawChoice.of(given.options)
        self.origin, self.threads, self.draws = given.origin, given.threads, given.problem.further["average"]
        self.bands = names_of_averages(self.sums.bands)

    @property
    def description(self) -> str:
        """Description of the map; a standard deviation over n draws is itself known to 1 in √(2 (n − 1))."""
        n, spectra_drawn = self.choice.draws, len(self.draws[0].columns)
        total = len(self.problem.endmembers.names) - self.problem.endmembers.has_shade
        what = [f"{spectra_drawn} of {total} spectra"] * (spectra_drawn < total) + ["noise"] * self.choice.has_noise
        return (
            f"means and standard deviations of sums by class over {n} draws of {' and '.join(what)}, the deviations to "
            f"{100 / np.sqrt(2 * (n - 1)):.0f} %"
        )

    def of(self, first: int, raw: np.ndarray, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """Return the map of some lines; see `unmix.maps.derived.table.DerivedMap`."""
        # Of normalized sums only draws with a brightness above 0 count: with fewer than two the deviation is −9999,
        # with none the mean, too.
        Y, samples = spectra(raw, self.problem.interleave, self.problem.bands), abundance.shape[2]

        def values(places: np.ndarray, A: np.ndarray) -> np.ndarray:
            out = np.empty((len(A), len(self.bands)), np.float32)
            for begin in range(0, len(A), TOGETHER):
                part = slice(begin, begin + TOGETHER)
                lines, across = np.divmod(places[part] + (self.origin[0] + first) * samples, samples)
                out[part] = self.of_pixels(Y[places[part]], A[part], lines, self.origin[1] + across)
            return out

        return map_of_solved(len(self.bands), abundance, masked, values)

    def of_pixels(self, Y: np.ndarray, A: np.ndarray, lines: np.ndarray, across: np.ndarray) -> np.ndarray:
        """Return the bands of pixels (N, L) with abundances (N, p), whose places in the scene are given."""
        size, drawn = np.ones(len(Y)), np.empty_like(Y)
        if self.problem.noise is None and self.choice.has_noise:
            size = residual_noise(Y, self.problem.endmembers.matrix, A, self.problem.constraint.equations)
        unknown, size = np.isnan(size), np.nan_to_num(size)
        count = mean = spread = np.zeros((len(Y), len(self.sums.bands)))
        for draw, (columns, problem, factor) in enumerate(self.draws):
            z = normals_of_pixels(self.choice.seed, draw, lines, across, factor.shape[1])
            add_noise(Y, factor, size, z, drawn)
            answer = solve_pixels(drawn, problem, len(problem.endmembers.names), "cpu", self.threads).abundances
            full = np.zeros((len(Y), len(self.problem.endmembers.names)))
            full[:, columns] = answer[:, : len(columns)]
            if self.problem.endmembers.has_shade:
                full[:, -1] = answer[:, -1]
            values = self.sums.values(full.T[None])[0].T
            known = ~np.isnan(values)
            count = count + known
            change = np.where(known, values - mean, 0.0)  # Welford (1962): no difference of large sums
            mean = mean + change / np.maximum(count, 1)
            spread = spread + np.where(known, change * (values - mean), 0.0)
        deviation = np.sqrt(spread / np.maximum(count - 1, 1))
        bands = np.hstack([np.where(count > 0, mean, NODATA), np.where(count > 1, deviation, NODATA)])
        bands[unknown] = NODATA
        with np.errstate(over="ignore"):
            return bands.astype(np.float32)
