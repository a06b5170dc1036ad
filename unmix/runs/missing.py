"""Find pixels that share a spectrum which no mixture of the endmembers has, and name that spectrum.

1. One product gives the unconstrained answer of all pixels of a sample, and a second their residuals, over each pixel's length:
   brightness does not matter, and neither does a sum. Variability of the endmembers and noise leave residuals of either sign; a
   spectrum that is not among them leaves, in all its pixels, one direction with one sign.
2. The direction is the mean of the pixels that have most of it; both are updated in turn, `ROUNDS` times. Pixels count as having it
   if they lie beyond the distance from zero at which `MOST_FALSE_PART` times as many lie on the other side.
3. The worst of these are solved exactly (nnls) with the endmembers, and with these and each spectrum of a library.

Of all candidates whose median misfit is within `MOST_RATIO_OF_EQUAL` of the least, the one with the largest share in these pixels is
named: a spectrum that is more extreme than the missing one fits as well, since the missing one is then a mixture of it and the
endmembers.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.pixels import numbered, solve_pixels
from ..io import Cube, Scene
from ..library import Endmembers, load_for
from ..methods import choose
from ..problem import Problem, plan_problem
from ..scene.sample import sampled_spectra
from ..summary import POOR, Summary
from .record.judgement import LEAST_LEVEL, MISFIT_OF_LEVEL
from .record.missing import Candidate, Missing, mostly_within, places_of

# Most pixels that are read if a run has not kept a sample (`check`, and runs that were resumed).
MOST_READ = 2048
# Fewest pixels of a sample, and most endmembers, that are judged: more endmembers explain any spectrum.
FEWEST_PIXELS, MOST_ENDMEMBERS = 64, 48
# The part of the pixels with the direction that may be chance; the part of all pixels with which the search begins; its rounds.
MOST_FALSE_PART, FIRST_PART, ROUNDS = 0.05, 0.1, 5
# Steps of the power method by which it begins: it need not converge.
POWERS = 20
# The noise is that of the pixels with the smallest residuals: this percentile. A pixel must be this many deviations beyond zero.
NOISE_PERCENTILE, DEVIATIONS = 5.0, 2.0
# Most pixels that are solved with each candidate, and most candidates: those whose residuals are nearest to it.
MOST_WORST, MOST_CANDIDATES = 256, 200
# A direction is looked at where this share of the pixels has it; or half a per cent, with this many times as much of it as any pixel
# has of its opposite. It is named where the misfit falls to this part with the candidate, which makes up this share of the pixels. Of
# 88 synthetic scenes of which nothing was missing, whose spectra varied by 4 to 10 %, five had 2 to 4.7 % of the pixels in one
# direction: the best candidates left 0.60 to 0.96 of their misfits, with shares of 0.10 to 0.43. None had 1.8 times as much as of its
# opposite. With one missing the true one left 0.05 to 0.65, with a share of 0.5 or more.
LEAST_PART, RAREST_PART, LEAST_CONTRAST, MOST_LEFT, LEAST_SHARE = 0.02, 0.005, 2.0, 2 / 3, 0.5
# Least share of the pixels with a direction that no spectrum explains, or `LEAST_CONTRAST` times as much of it; they must be fitted
# poorly: real scenes have such pixels with misfits of 2 to 9 %, by materials that vary and light that is reflected twice.
LEAST_UNEXPLAINED_PART = 0.1
# Smaller misfits are not reported.
LEAST_MISFIT = 0.01
# Sums of abundances are reported if noise explains no more than this part of their variation.
MOST_NOISE_PART = 0.1
# Residuals are noise where the correlation of neighbouring bands is at most this. It is 0.72 and 0.87 on Jasper Ridge and Samson; of
# synthetic scenes at 10 to 30 dB it is −0.03, and 0.27 to 0.31 where at 30 dB one of six endmembers is missing.
MOST_ALIKE = 0.15
# Noise can be told from spectra where these are smooth over neighbouring bands, of which there are enough: of spectra less their mean,
# this much of a band's value is its neighbour's, too. Of broad bands neither noise nor spectra are.
FEWEST_BANDS, SMOOTH = 20, 0.5
# The share of the squares of a scene's values that is of values below 0 from which on they are not those of light: of minimum noise
# fractions it is a half, of reflectance with noise some per cent.
BOTH_SIGNS = 0.2
# Candidates whose median misfits differ by less are equal.
MOST_RATIO_OF_EQUAL = 1.1
MOST_NAMED = 5


@dataclass(frozen=True)
class Sample:
    """Some pixels of a scene: their spectra (N, L), float64, and their lines and samples (N,)."""

    Y: np.ndarray
    lines: np.ndarray
    samples: np.ndarray

    @classmethod
    def read(cls, scene: Scene) -> "Sample":
        """Read pixels that have values in all bands, evenly spread over the scene."""
        return cls(*sampled_spectra(scene, MOST_READ))


def has_look(problem: Problem) -> bool:
    """Return whether a run can say what is missing: its pixels are mixtures of few endmembers, without a penalty."""
    return not problem.method.is_by_models and fits_look(problem.endmembers.matrix) and not problem.penalty.any()


def fits_look(E: np.ndarray) -> bool:
    """Return whether mixtures of endmembers (L, p) leave directions in which something could be missing."""
    return E.shape[1] <= min(MOST_ENDMEMBERS, len(E) - 2)


def rest_of(
    names: str | os.PathLike[str] | Endmembers | None, path: str | os.PathLike[str] | Endmembers | None, asked: Mapping[str, Any],
    library: Endmembers | None, scene: Scene,
) -> list[Endmembers]:  # fmt: skip
    """Return the library whose spectra may be named as missing, on the bands in use; an empty list where the run has no such library.

    It is ``names``, or else the spectra that ``select`` left out of the library at ``path``, which is read again with the options
    ``asked`` (``select``, ``classes``, ``library_scale``, ``across_gaps``); ``library`` is the endmembers, if a library has them.
    """
    if names is not None:
        return [load_for(names, scene, complete=True, across_gaps=True)]
    if path is None or library is None or asked["select"] is None:
        return []
    how = asked["classes"], asked["library_scale"], None, True, bool(asked["across_gaps"])
    whole = load_for(path, scene, *how)
    rest = [j for j, name in enumerate(whole.names) if name not in library.names]
    return [whole.take(rest)] if rest else []


def sample_of(cube: Cube, problem: Problem, summary: Summary) -> Sample:
    """Return the pixels that a run kept; pixels that are read anew where it has not seen all lines."""
    kept = [Sample(*part) for part in summary.kept]
    if sum(map(len, (one.lines for one in kept))) < summary.sampled or not kept:
        return Sample.read(problem.scene(cube))
    together = Sample(*(np.concatenate([getattr(one, name) for one in kept]) for name in ("Y", "lines", "samples")))
    order = np.lexsort((together.samples, together.lines))
    return Sample(together.Y[order], together.lines[order], together.samples[order])


@dataclass(frozen=True)
class Look:
    """A first look at a sample, without a constraint.

    Attributes
    ----------
    negative, far_below : arrays (p,), float64
        Shares of the pixels whose unconstrained abundance is negative, and that are below −5 % of the pixel, of spectra at unit length;
        NaN for a spectrum that is zero.
    unit : array (L, k), float64
        The endmembers that are not zero, at unit length.
    Y : array (N, L), float64
        The pixels at unit length.
    left : array (N, L), float64
        Their residuals at the unconstrained answer.
    noise : array (N,), float64
        The standard deviation of a band, of these.
    sums : (float, float), optional
        The 5th and the 95th percentile of the sum of a pixel's unconstrained abundances; None where noise alone could vary it.
    of_noise : (float, float), optional
        The median and the 95th percentile of the relative RMSE that noise alone gives, where residuals are noise: those of neighbouring
        bands do not resemble each other, though those of spectra do. Else None.
    level : float, optional
        The median of the sums, where three in four are on its side of one, and neither noise nor misfits are the cause. Else None.
    faint : float
        The part of the poorly fitted pixels that are merely dark; see `unmix.runs.faint`.
    """

    negative: np.ndarray
    far_below: np.ndarray
    unit: np.ndarray
    Y: np.ndarray
    left: np.ndarray
    noise: np.ndarray
    sums: tuple[float, float] | None = None
    of_noise: tuple[float, float] | None = None
    level: float | None = None
    faint: float = 0.0

    @classmethod
    def at(cls, Y: np.ndarray, E: np.ndarray) -> "Look":
        """Look at pixels (N, L), none of which is zero, with endmembers (L, p)."""
        sizes = np.linalg.norm(E, axis=0)
        there = sizes > 0
        unit, lengths = E[:, there] / sizes[there], np.linalg.norm(Y, axis=1)
        pixels = Y / lengths[:, None]
        inverse = np.linalg.pinv(unit)
        A = pixels @ inverse.T
        left = pixels - A @ unit.T
        shares = [np.full(len(sizes), np.nan) for _ in range(2)]
        for share, limit in zip(shares, (0.0, -0.05)):
            share[there] = (limit > A).mean(axis=0)
        squares = np.square(left * lengths[:, None]).sum(axis=1) / max(1, Y.shape[1] - unit.shape[1])
        noise = np.sqrt(np.percentile(squares, NOISE_PERCENTILE)) / lengths
        adds = inverse.T @ (1.0 / sizes[there])  # a spectrum of the pixel times this is the sum of its abundances
        low, early, median, late, high = np.percentile((pixels @ adds) * lengths, (5, 25, 50, 75, 95)).tolist()
        by_noise = float(np.median(noise * lengths) * np.linalg.norm(adds))
        sums = (low, high) if by_noise < MOST_NOISE_PART * (high - low) else None
        of_noise = noise_in(left, unit) if is_smooth(unit, pixels) else None
        misfit = 0.0 if of_noise is not None else float(np.median(np.linalg.norm(left, axis=1)))
        off = abs(median - 1.0)
        is_beside = early > 1.0 + LEAST_LEVEL / 2 if median > 1 else late < 1.0 - LEAST_LEVEL / 2
        clear = off > LEAST_LEVEL and misfit < MISFIT_OF_LEVEL * off and 4.0 * by_noise < off * np.sqrt(len(Y))
        return cls(
            shares[0], shares[1], unit, pixels, left, noise, sums, of_noise, median if is_beside and clear else None
        )


def is_smooth(unit: np.ndarray, pixels: np.ndarray) -> bool:
    """Return whether a spectrum that is missing would resemble itself in neighbouring bands, as those (L, k) and pixels (N, L) do."""
    if len(unit) < FEWEST_BANDS:
        return False
    some = np.column_stack([unit, pixels[:: max(1, len(pixels) // MOST_WORST)].T]) if unit.shape[1] < 2 else unit
    apart = some - some.mean(axis=1, keepdims=True)
    apart = apart - apart.mean(axis=0)
    squares = float(np.square(apart).sum())
    return bool(squares > 0 and (apart[1:] * apart[:-1]).sum() > SMOOTH * squares)


def has_both_signs(Y: np.ndarray) -> bool:
    """Return whether values (N, L) lie on both sides of 0, as those of minimum noise fractions do."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares, below = np.square(Y).sum(axis=0), np.square(np.minimum(Y, 0.0)).sum(axis=0)
        of_bands = np.mean(below > BOTH_SIGNS * squares)  # not of a few bands without light, whose noise is large
        return bool(below.sum() > BOTH_SIGNS * squares.sum() and of_bands > 0.5)


def noise_in(left: np.ndarray, unit: np.ndarray) -> tuple[float, float] | None:
    """Return the relative RMSE that noise alone gives, `Look.of_noise`, from residuals (N, L) of unit pixels by endmembers (L, p)."""
    p, rms = unit.shape[1], np.sqrt(np.square(left).mean(axis=0))
    scaled = np.divide(left, rms, out=np.zeros_like(left), where=rms > 0)
    if len(rms) < 2 or (scaled[:, 1:] * scaled[:, :-1]).mean() > MOST_ALIKE:
        return None
    # A model of p endmembers takes as much of the noise out of each pixel.
    sizes = np.linalg.norm(left, axis=1) * np.sqrt(len(rms) / max(1, len(rms) - p))
    return float(np.median(sizes)), float(np.percentile(sizes, 95))


def usable(sample: Sample, E: np.ndarray) -> Sample | None:
    """Return the pixels of a sample that have a length; None where there are too few, or a number is too large or small."""
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(sample.Y, axis=1)
    good = (lengths > 1e-100) & (lengths < 1e100)
    ordinary = np.isfinite(E).all() and E.any() and 1e-100 < np.abs(E).max() < 1e100
    if good.sum() < FEWEST_PIXELS or not ordinary:
        return None
    return sample if good.all() else Sample(sample.Y[good], sample.lines[good], sample.samples[good])


def common_direction(left: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray, int, float]:
    """Return the direction that the residuals of some pixels have in common.

    Of the residuals ``left`` (N, L) and the standard deviation of a band of each, ``noise`` (N,): the direction (L,), of unit length;
    the pixels (N,), those with most of it first; how many have it; and how many times as much of it the median of these (at most
    `MOST_WORST`) has as any pixel has of its opposite.
    """
    N, margin = len(left), DEVIATIONS * noise
    worst = np.argsort(left.shape[1] * noise**2 - np.square(left).sum(axis=1), kind="stable")[
        : max(8, int(FIRST_PART * N))
    ]
    chosen = left[worst]
    direction = chosen[0]
    for _ in range(POWERS):  # the direction with the largest sum of squares; eigh took ten times as long
        direction = (chosen @ direction) @ chosen
        direction = direction / max(np.linalg.norm(direction), np.finfo(float).tiny)
    direction = direction if np.median(chosen @ direction) >= 0 else -direction
    for k in range(ROUNDS):
        if k:
            mean = left[worst].mean(axis=0)
            direction = mean / max(np.linalg.norm(mean), np.finfo(float).tiny)
        along = left @ direction
        order = np.argsort(margin - along, kind="stable")
        beyond = (along - margin)[order]
        false = np.searchsorted(np.sort(along + margin), -beyond, side="right")  # as far on the other side
        some = np.flatnonzero((false <= MOST_FALSE_PART * np.arange(1, N + 1)) & (beyond > 0))
        count = int(some[-1]) + 1 if len(some) else 0
        worst = order[: max(8, min(count, MOST_WORST))]
    opposite = max(float(-along.min()), np.finfo(float).tiny)
    return direction, order, count, float(np.median(along[worst]) / opposite)


def fitted(A: np.ndarray, Y: np.ndarray, threads: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the exact nonnegative mixtures (n, k) of spectra (L, k) for pixels (n, L), and the lengths of their residuals, (n,)."""
    # By the search that a run has compiled anyway: the batches of `unmix.nnls` would be 15 s of compiling more.
    problem = plan_problem(numbered(np.ascontiguousarray(A)), *choose("nnls"), warns=False)
    x = solve_pixels(np.ascontiguousarray(Y), problem, A.shape[1], "cpu", threads).abundances
    return x, np.linalg.norm(Y - x @ A.T, axis=1)


def candidates_for(
    look: Look, worst: np.ndarray, direction: np.ndarray, misfit: float, library: Endmembers, threads: int | None
) -> list[Candidate]:
    """Return the spectra of a library that explain the worst pixels, the most likely first."""
    sizes = np.linalg.norm(library.matrix, axis=0)
    known = np.flatnonzero((sizes > 1e-100) & (sizes < 1e100))
    C = library.matrix[:, known] / sizes[known]
    apart = C - look.unit @ (np.linalg.pinv(look.unit) @ C)
    cosines = (direction @ apart) / np.maximum(np.linalg.norm(apart, axis=0), 1e-12)
    tried = [int(j) for j in np.argsort(-cosines, kind="stable")[:MOST_CANDIDATES] if cosines[j] > 0]
    found = []
    for j in tried:
        x, left = fitted(np.column_stack([look.unit, C[:, j]]), look.Y[worst], threads)
        share = x[:, -1] / np.maximum(x.sum(axis=1), np.finfo(float).tiny)
        found.append(
            Candidate(library.names[known[j]], library.source, float(np.median(left)), float(np.median(share)))
        )
    least = min((one.misfit for one in found), default=0.0)
    equal = sorted((one for one in found if one.misfit <= MOST_RATIO_OF_EQUAL * least), key=lambda one: -one.share)
    others = sorted((one for one in found if one.misfit > MOST_RATIO_OF_EQUAL * least), key=lambda one: one.misfit)
    if not equal or equal[0].misfit > MOST_LEFT * misfit or equal[0].share < LEAST_SHARE:
        return []
    return [one for one in equal + others if one.misfit <= MOST_LEFT * misfit][:MOST_NAMED]


def what_is_missing(
    sample: Sample, look: Look, size: tuple[int, int], libraries: Callable[[], list[Endmembers]], threads: int | None = None,
) -> Missing | None:  # fmt: skip
    """Return the spectrum that the endmembers lack; None if no such spectrum is certain.

    ``look`` is at this sample; ``size`` is lines and samples of the scene. ``libraries`` returns at most one: the spectra that may be
    named, on the bands in use; it is called where there is something to name.
    """
    direction, order, count, clear = common_direction(look.left, look.noise)
    N = len(order)
    if count < max(8, RAREST_PART * N) or (count < LEAST_PART * N and clear < LEAST_CONTRAST):
        return None
    worst = order[: min(count, MOST_WORST)]
    A, left = fitted(look.unit, look.Y[worst], threads)
    misfit = float(np.median(left))
    if misfit < LEAST_MISFIT:
        return None
    searched = libraries()
    found = [one for library in searched for one in candidates_for(look, worst, direction, misfit, library, threads)]
    if not found and (misfit < POOR or (count < LEAST_UNEXPLAINED_PART * N and clear < LEAST_CONTRAST)):
        return None
    of_others = np.linalg.norm(look.left[order[count:]], axis=1)
    where, lines = order[:count], sample.lines[order[:count]]
    mean = look.Y[worst].mean(axis=0)
    along, across = mostly_within(lines, size[0]), mostly_within(sample.samples[where], size[1])
    places, groups = 0, places_of(lines, sample.samples[where], size) if along is None and across is None else None
    if groups is not None:
        places, along, across = groups
    return Missing(
        count, N, misfit, float(np.median(of_others)) if len(of_others) else 0.0, along, across,
        np.histogram(lines, 16, (0, size[0]))[0].tolist(), mean.tolist(), (mean - look.unit @ A.mean(axis=0)).tolist(),
        found, sum(len(library.names) for library in searched), places,
    )  # fmt: skip
