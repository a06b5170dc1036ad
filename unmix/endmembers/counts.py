"""Count the endmembers of a scene, by several criteria: from its moments, and from a cone around its directions.

No single criterion holds. Noise that neighbouring bands share, as in resampled products, is predicted by regression on
the other bands and passes for signal; texture makes the noise that neighbouring pixels show too large; noise hides
edges of a cone. `Counts.auto` chooses by the kind of scene; in an image it
weighs two numbers that err to opposite sides.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..blocks import cores
from ..io import Scene
from ..later import later
from ..scene.sample import sampled_spectra
from .passes import Passes, named, signal_of
from .plane import Plane
from .statistics import Moments, merged
from .vca import with_positive_peaks

log = logging.getLogger("unmix")

count_edges, sample_of = later(__package__, "auto:count_edges"), later(__package__, "sampled:Sampled.of")
held_out, without_odd = later(__package__, "held_out:held_out"), later(__package__, "outliers:without_odd")
step_apart, thinned = later(__package__, "resampled:step_apart"), later(__package__, "resampled:thinned")
# Most endmembers that "auto" counts: abundances of more mean little.
MOST_ENDMEMBERS_COUNTED = 30
# Most pixels of a scene that are looked at as a table.
PIXELS_OF_TABLE = 512
# A component counts if its signal is at least as strong as its noise: their sum is twice the noise.
SIGNAL = 2.0
# Ridge of HySime's regressions, relative to the mean power of a band: noise-free data, which has rank p, could not be
# inverted.
REGRESSION_RIDGE = 1e-10
# Added to both covariances of MNF, relative to the mean variance of a band: directions without noise and signal have a
# ratio of 1 then.
RIDGE = 1e-12
# Fewest pairs of neighbours that give the noise to 10 %: of one band; and, times the bands, of their covariance.
FEWEST_PAIRS, PAIRS_A_BAND = 50, 4


def noise_regression(second: np.ndarray) -> np.ndarray:
    """Return coefficients (L, L): column j regresses band j on all others, from the second moment (L, L)."""
    L = len(second)
    inverse = np.linalg.inv(second + REGRESSION_RIDGE * np.trace(second) / L * np.eye(L))
    # Column i of the inverse, divided by its diagonal entry and negated, is the regression of band i on the others.
    coefficients = -inverse / np.diag(inverse)
    np.fill_diagonal(coefficients, 0.0)
    return coefficients


def hysime(moments: Moments) -> int:
    """Count the dimensions with more signal than noise by regression: HySime (Bioucas-Dias and Nascimento 2008)."""
    second = moments.second
    L = len(second)
    if L == 1:
        return 1
    # Noise is y − Bᵀy, signal Bᵀy (eq. 26 of the paper).
    B = noise_regression(second)
    residual = np.eye(L) - B
    return directions_above(second, B.T @ second @ B, np.diag(np.diag(residual.T @ second @ residual)))


def directions_above(second: np.ndarray, signal: np.ndarray, noise: np.ndarray) -> int:
    """Count eigenvectors of ``signal`` with more than twice the noise; at least 1. All are second moments (L, L)."""
    L = len(second)
    _, vectors = np.linalg.eigh(signal)
    noise = noise + np.trace(signal) / L / 1e5 * np.eye(L)  # as in the authors' code: a floor for noise-free data
    power = (vectors * (second @ vectors)).sum(axis=0)
    noise_power = (vectors * (noise @ vectors)).sum(axis=0)
    return max(1, int(np.count_nonzero(power > 2 * noise_power)))


def noise_power(moments: Moments) -> dict[str, float | None]:
    """Return two estimates of the noise variance, summed over the bands; None where one cannot be made."""
    L = len(moments.mean)
    residual = np.eye(L) - noise_regression(moments.second)
    # Noise that other bands do not predict: too small where bands share noise.
    # Rounding may make it negative where pixels are alike.
    regression = max(0.0, float((residual * (moments.second @ residual)).sum())) if L > 1 else None
    # Noise that neighbouring pixels do not share: too large by their texture.
    spatial = float(np.trace(moments.differences)) if moments.pairs >= FEWEST_PAIRS else None
    return {"regression": regression, "spatial": spatial}


def hysime_spatial(moments: Moments) -> int | None:
    """Count as `hysime` does, with the noise that neighbouring pixels do not share; None with too few pairs of them."""
    if moments.pairs < FEWEST_PAIRS:
        return None
    noise = np.diag(np.diag(moments.differences))
    return directions_above(moments.second, moments.second - noise, noise)


def noise_fractions(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Return the variance ratios (L,), largest first, and axes (L, L) of MNF components (Green et al. 1988)."""
    floor = floor_of(moments)
    values, vectors = np.linalg.eigh(moments.differences + floor)
    whitener = vectors / np.sqrt(np.maximum(values, np.finfo(float).tiny))
    ratios, axes = np.linalg.eigh(whitener.T @ (moments.covariance + floor) @ whitener)
    # Wᵀ(y − mean) has noise of variance 1, but for the ridge; a ratio of 1 is noise alone, and neighbours correlate by
    # 1 − 1 / ratio.
    W = whitener @ axes[:, ::-1]
    return ratios[::-1], with_positive_peaks(W)


def floor_of(moments: Moments) -> np.ndarray:
    """Return what is added to both covariances of MNF, (L, L); see `RIDGE`."""
    L = len(moments.mean)
    return moments.floor(RIDGE) / L * np.eye(L)


def mnf(moments: Moments) -> int | None:
    """Count the minimum noise fractions with at least as much signal as noise; p endmembers span p − 1 of them."""
    if moments.pairs < PAIRS_A_BAND * len(moments.mean):
        return None
    floor = floor_of(moments)
    # The number of ratios of `noise_fractions` above `SIGNAL` is that of positive eigenvalues here (Sylvester's law),
    # in a quarter of the time.
    beyond = np.linalg.eigvalsh(moments.covariance + floor - SIGNAL * (moments.differences + floor))
    return 1 + int(np.count_nonzero(beyond > 0.0))


CRITERIA: dict[str, Callable[[Moments], int | None]] = {"hysime": hysime, "hysime-spatial": hysime_spatial, "mnf": mnf}
# Two counts agree if the larger is at most this much as large as the smaller.
AGREE = 1.5
# Variability adds dimensions to those of the materials, more of them the smaller the misfit of their cone: where there
# are more dimensions with signal than edges, the number is the sum of both times the first, the logarithm of the misfit
# times the second, and the third. On 197 synthetic scenes of 3 to 6 materials this was within one in 95 %, without the
# misfit in 91 %; neighbouring constants were alike. One too few costs more than one too many: on 126 such scenes the
# error of fractions was 1.11 times that with the true number where the third was 1.6, 1.04 times with 1.8, and 121
# counts were within one for 118. The last is the least misfit: the misfit of scenes without noise is rounding.
PER_DIMENSION, PER_MISFIT, MORE, LEAST_MISFIT = 0.42, 0.6, 1.8, 0.01
# A plane's number is taken up to this many times the number that predicts parts held out.
MOST_OF_HELD_OUT = 2


# Criteria that messages name only where they have a number.
MAY_LACK = "plane", "held-out"


def agree(one: int, other: int) -> bool:
    """Return whether two counts are nearly the same."""
    return max(one, other) <= AGREE * min(one, other)


@dataclass(frozen=True)
class Counts:
    """The number of endmembers by each criterion.

    Attributes
    ----------
    by : dict of str to int or None
        By the names of `CRITERIA`; "held-out", of a table (`unmix.endmembers.held_out`); "plane", of a scene whose
        brightness does not vary (`unmix.endmembers.plane`); and "cone", the edges of the cone that explains the
        directions of pixels best (`unmix.endmembers.auto`). None where the scene does not allow it.
    misfit : float, optional
        The mean distance of pixels at unit length to that cone.
    fits : sequence of `unmix.endmembers.auto.choice.Edges`
        The best cones of 1, 2, … edges, as far as they were compared.
    """

    by: dict[str, int | None]
    misfit: float | None = None
    fits: Sequence[Any] = field(default=(), compare=False)

    @classmethod
    def of(cls, moments: Moments) -> "Counts":
        """Count by the criteria of moments; there are no more endmembers than bands or pixels."""
        most = min(len(moments.mean), moments.pixels)
        found = {name: criterion(moments) for name, criterion in CRITERIA.items()}
        by = {name: None if count is None else min(count, most) for name, count in found.items()}
        # Beyond the dimensions with signal any plane leaves as little.
        most = max(filter(None, by.values()), default=1)
        return cls(by | {"plane": Plane(moments).count(most, by["hysime-spatial"] or 0)})

    @property
    def auto(self) -> int:
        """The number that is taken where none is given."""
        plane, held_out = self.by.get("plane"), self.by.get("held-out")
        plain, edges, spatial = self.by["hysime"] or 1, self.edges, self.by["hysime-spatial"]
        if plane is not None and (held_out is None or plane <= MOST_OF_HELD_OUT * held_out):
            # Of resampled pixels the noise that neighbours do not share is too small, for a plane most of all.
            others = max(plain, spatial) if spatial is not None and agree(plain, spatial) else plane
            return others if plane > AGREE * others else plane
        if held_out is not None and (spatial is None or self.by["mnf"] is None):
            return held_out
        if spatial is None:
            return plain
        if edges is None or self.misfit is None:  # neighbours are no more alike than other pixels
            by_noise = plain if agree(plain, spatial) else min(plain, spatial)
            # Parts held out count variability as materials, too; the criteria of noise miss rare materials.
            return by_noise if held_out is None else math.ceil((by_noise + held_out) / 2)
        # The cone misses edges in noise, and variability adds dimensions.
        if edges >= spatial:
            return spatial
        mean = PER_DIMENSION * (edges + spatial) + PER_MISFIT * math.log(max(self.misfit, LEAST_MISFIT)) + MORE
        return max(1, edges - 1, math.floor(mean + 0.5))

    @property
    def edges(self) -> int | None:
        """The count of the cone; None where neighbours are no more alike than other pixels."""
        return self.by.get("cone") if self.has_neighbours else None

    @property
    def has_neighbours(self) -> bool:
        """Whether neighbours are more alike than other pixels, as those of an image are; those of a table are not."""
        return self.by["mnf"] not in (None, 1)

    @property
    def is_clear(self) -> bool:
        """Whether the criteria that are taken agree."""
        if self.by.get("held-out") is not None or self.by.get("plane") is not None:
            return True
        spatial = self.by["hysime-spatial"]
        other = self.edges if self.edges is not None else self.by["hysime"]
        return spatial is not None and other is not None and agree(other, spatial)

    @property
    def interval(self) -> tuple[int, int]:
        """The least and the largest number that the criteria allow: it held 105 of 107 synthetic and real scenes."""
        plane, held_out = self.by.get("plane"), self.by.get("held-out")
        other = self.edges if self.edges is not None else self.by["hysime"]
        by_noise = (other, self.by["hysime-spatial"]) if plane is None and held_out is None else (plane, held_out)
        taken, off = [self.auto, *(count for count in by_noise if count is not None)], int(plane is None)
        return max(1, min(*taken, self.auto - off)), max(*taken, self.auto + off)

    @property
    def differ(self) -> float | None:
        """By how much fractions of the ends of `interval` differ, a mean over pixels and materials; None if unknown."""
        low, high = max(2, self.interval[0]), min(self.interval[1], len(self.fits))  # of one the fraction is always 1
        return self.fits[high - 1].differ(self.fits[low - 1]) if low < high else None

    @property
    def possible(self) -> str:
        """The interval in words, "" where it is one number."""
        (low, high), differ = self.interval, self.differ
        if low == high:
            return ""
        return f", {low} to {high} possible" + ("" if differ is None else f" (fractions differ by {differ:.2g})")

    def to_dict(self) -> dict[str, Any]:
        """Return the entry for ``run.json``."""
        return self.all | {"interval": list(self.interval), "differ": self.differ}

    @property
    def all(self) -> dict[str, int | None]:
        """``by`` with `auto`."""
        return self.by | {"auto": self.auto}

    def __str__(self) -> str:
        said = {name: count for name, count in self.by.items() if name not in MAY_LACK or count is not None}
        return ", ".join(f"{name} {'-' if count is None else count}" for name, count in said.items())


def counts_of(passes: Passes, scene_moments: Moments, counts: Counts | None = None) -> Counts:
    """Count endmembers by all criteria from a sample of pixels; ``counts`` are the counts by moments, where known."""
    step = max(step_apart(scene, scene_moments) for scene in passes.scenes)
    if step > 1:
        scene_moments, counts = merged([thinned(scene, step) for scene in passes.scenes]), None
        log.info(
            f"{named(passes.scenes)}: neighbours share noise, as interpolated ones do: "
            f"endmembers are counted in pixels {step} apart"
        )
    counts = counts or Counts.of(scene_moments)
    if not counts.has_neighbours:
        Y = np.concatenate([sampled_spectra(scene, PIXELS_OF_TABLE)[0] for scene in passes.scenes])
        return Counts(counts.by | {"cone": None, "held-out": held_out(Y)})
    if counts.by["plane"] is not None:
        return Counts(counts.by | {"cone": None})
    most = counts.by["hysime-spatial"] or MOST_ENDMEMBERS_COUNTED  # more would not be taken
    found = count_edges(sample_of(passes, scene_moments), min(most, MOST_ENDMEMBERS_COUNTED), passes.threads)
    edges, fits = (None, []) if found is None else found
    return Counts(counts.by | {"cone": edges}, None if edges is None else fits[edges - 1].misfit, fits)


def capped(name: str, counts: Counts) -> int:
    """Return the count, at most `MOST_ENDMEMBERS_COUNTED`, and log it; the message begins with ``name``."""
    taken = min(counts.auto, MOST_ENDMEMBERS_COUNTED)
    if counts.auto > MOST_ENDMEMBERS_COUNTED:
        log.warning(
            f"{name}: {counts.auto} endmembers ({counts}), too many to be materials; {taken} are used: set `count`"
        )
    elif not counts.is_clear:
        log.warning(
            f"{name}: the number of endmembers is not clear ({counts}): {taken} {'is' if taken == 1 else 'are'} used"
            f"{counts.possible}; set `count` if you know it"
        )
    else:
        log.info(f"{name}: {taken} endmembers{counts.possible} ({counts})")
    return taken


def count_endmembers(scene: Scene, budget: int, threads: int | None = None) -> Counts:
    """Estimate the number of endmembers by all criteria, in one pass over the scene; ``budget`` is bytes of memory."""
    scenes, moments = [scene], signal_of(scene, budget, threads)
    if any(map(len, moments.odd)):
        scenes, _ = without_odd(scenes, moments.odd)
        moments = signal_of(scenes[0], budget, threads)
    return counts_of(Passes(scenes, budget, threads or cores()), moments)
