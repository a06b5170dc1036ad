"""Look for spectra that the endmembers of one scene lack, in a run and in `unmix.check`.

Find pixels that share a spectrum which no mixture of the endmembers has, and name that spectrum.

1. One product gives the unconstrained answer of all pixels of a sample, and a second their residuals, over each pixel's
length:
   brightness does not matter, and neither does a sum. Variability of the endmembers and noise leave residuals of either
   sign; a spectrum that is not among them leaves, in all its pixels, one direction with one sign.
2. The direction is the mean of the pixels that have most of it; both are updated in turn, `ROUNDS` times. Pixels count
as having it
   if they lie beyond the distance from zero at which `MOST_FALSE_PART` times as many lie on the other side.
3. The worst of these are solved exactly (nnls) with the endmembers, and with these and each spectrum of a library.

Of all candidates whose median misfit is within `MOST_RATIO_OF_EQUAL` of the least, the one with the largest share in
these pixels is named: a spectrum that is more extreme than the missing one fits as well, since the missing one is then
a mixture of it and the endmembers.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.mixtures import solved
from ...io import Scene
from ...library import Endmembers, load_for
from ...problem import Step, applied
from ...runs.look import Look, Sample
from ...scene.signal import usual_deviation
from ...summary import POOR
from ..runs import Part
from .record import LEAST_OF_PATCH, MOST_RATIO_OF_EQUAL, Missing, MissingCandidate, largest_group, mostly_within

# The part of the pixels with the direction that may be chance; the part of all pixels with which the search begins; its
# rounds.
MOST_FALSE_PART, FIRST_PART, ROUNDS = 0.05, 0.1, 5
# Steps of the power method by which it begins: it need not converge.
POWERS = 20
# Deviations by which a pixel must be beyond zero.
DEVIATIONS = 2.0
# Most pixels that are solved with each candidate, and most candidates: those whose residuals are nearest to it.
MOST_WORST, MOST_CANDIDATES = 256, 200
# A direction is looked at where this share of the pixels has it; or half a per cent, with this many times as much of it
# as any pixel has of its opposite. It is named where the misfit falls to this part with the candidate, which makes up
# this share of the pixels. Of 88 synthetic scenes where nothing was missing, whose spectra varied by 4 to 10 %, five
# had 2 to 4.7 % of the pixels in one direction: the best candidates left 0.60 to 0.96 of their misfits, with shares of
# 0.10 to 0.43. None had 1.8 times as much as of its opposite. With one missing the true one left 0.05 to 0.65, with a
# share of 0.5 or more.
LEAST_PART, RAREST_PART, LEAST_CONTRAST, MOST_LEFT, LEAST_SHARE = 0.02, 0.005, 2.0, 2 / 3, 0.5
# A direction that no spectrum explains is said where this share of the pixels has it; or fewer that are fitted poorly,
# with `LEAST_CONTRAST` times as much of it and a misfit of this many times their noise. So many directions are
# searched. Of 49 synthetic scenes (`families.py`, from seed 4000 on, without haze) that lack a material which 5 to 30 %
# of the pixels hold, 49 have a direction with 5 to 84 % of the pixels among the first five, 40 as the first; of the
# same scenes with all materials none has more than 3 %, of 53 others three have 4 to 6 %.
SHARED_PART, LEAST_OF_NOISE, MOST_DIRECTIONS = 0.05, 2.0, 5
# Nor is it said where the mean of all pixels along the direction is below this many times what noise may make of it: the
# root of bands over pixels, in deviations. Noise has no mean, however large or skewed, as of few counts.
LEAST_MEAN = 1.0
# Up to this many times the misfit of other pixels, a candidate leaves nothing.
MOST_OF_OTHERS = 1.5
# Smaller misfits are not reported, unless they are this many times those of the other pixels.
LEAST_MISFIT, LEAST_OF_OTHERS = 0.01, 5.0
MOST_NAMED = 5


def shared_direction(left: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray, int, float]:
    """Return the `common_direction` of residuals (N, L) that the largest part of pixels shares with one sign."""
    # Divided by noise and usual misfit together, so that neither dark pixels nor bright ones decide. A material that
    # varies leaves larger residuals than a missing one, of both signs: they are taken out, and the rest is searched.
    usual = np.median(np.linalg.norm(left, axis=1)) / np.sqrt(left.shape[1])
    sizes = np.maximum(np.hypot(noise, usual), np.finfo(float).tiny)
    rest, margin = left / sizes[:, None], noise / sizes
    first = common_direction(rest, margin)
    found = first
    for _ in range(MOST_DIRECTIONS - 1):
        if found[2] >= SHARED_PART * len(left):
            return found
        rest = rest - np.outer(rest @ found[0], found[0])
        found = common_direction(rest, margin)
    return found if found[2] >= SHARED_PART * len(left) else first


def common_direction(left: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray, int, float]:
    """Return the unit direction (L,) that residuals (N, L) share, pixels (N,) by it, their number, and the contrast."""
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
    # The contrast: the median of the pixels that have it, along the direction, over the largest along its opposite.
    opposite = max(float(-along.min()), 1e-30)
    return direction, order, count, float(np.median(along[worst]) / opposite)


def candidates_for(
    look: Look,
    worst: np.ndarray,
    direction: np.ndarray,
    misfit: float,
    whole: float,
    floor: float,
    library: Endmembers,
    threads: int | None,
) -> list[MissingCandidate]:
    """Return the spectra of a library that explain the worst pixels, wholly up to a misfit; the most likely first."""
    # ``floor``: the misfit that stays with any spectrum, by noise.
    sizes = np.linalg.norm(library.matrix, axis=0)
    known = np.flatnonzero((sizes > 1e-100) & (sizes < 1e100))
    C = library.matrix[:, known] / sizes[known]
    apart = C - look.unit @ (np.linalg.pinv(look.unit) @ C)
    cosines = (direction @ apart) / np.maximum(np.linalg.norm(apart, axis=0), 1e-12)
    tried = [int(j) for j in np.argsort(-cosines, kind="stable")[:MOST_CANDIDATES] if cosines[j] > 0]
    found = []
    for j in tried:
        x, left = solved(np.column_stack([look.unit, C[:, j]]), look.Y[worst], "nnls", threads)
        share = x[:, -1] / np.maximum(x.sum(axis=1), np.finfo(float).tiny)
        found.append(
            MissingCandidate(library.names[known[j]], library.source, float(np.median(left)), float(np.median(share)))
        )
    least = min((one.misfit for one in found), default=0.0)
    equal = sorted((one for one in found if one.misfit <= MOST_RATIO_OF_EQUAL * least), key=lambda one: -one.share)
    others = sorted((one for one in found if one.misfit > MOST_RATIO_OF_EQUAL * least), key=lambda one: one.misfit)
    # A small part of these pixels is enough where nothing is left but what others have.
    is_all = least <= whole
    most = np.hypot(floor, MOST_LEFT * np.sqrt(max(misfit**2 - floor**2, 0.0)))
    if not equal or equal[0].misfit > most or (equal[0].share < LEAST_SHARE and not is_all):
        return []
    return [one for one in equal + others if one.misfit <= most][:MOST_NAMED]


def what_is_missing(
    sample: Sample,
    look: Look,
    size: tuple[int, int],
    libraries: Callable[[], list[Endmembers]],
    threads: int | None = None,
) -> Missing | None:
    """Return the spectrum that the endmembers lack, None if none is certain; ``size`` is lines and samples."""
    direction, order, count, clear = shared_direction(look.left, look.noise)
    N = len(order)
    if count < max(8, RAREST_PART * N) or (count < LEAST_PART * N and clear < LEAST_CONTRAST):
        return None
    worst = order[: min(count, MOST_WORST)]
    A, left = solved(look.unit, look.Y[worst], "nnls", threads)
    misfit = float(np.median(left))
    of_others = np.linalg.norm(look.left[order[count:]], axis=1)
    usual = float(np.median(of_others)) if len(of_others) else 0.0
    if misfit < LEAST_MISFIT and misfit < LEAST_OF_OTHERS * (usual or misfit):
        return None
    # Spectra that may be named are read only where there is something to name.
    searched = libraries()
    whole = MOST_OF_OTHERS * usual if count >= SHARED_PART * N else 0.0
    is_shared = count >= SHARED_PART * N and has_mean(look, direction)
    how = misfit, whole, min(usual, misfit) if is_shared else 0.0
    found = [one for library in searched for one in candidates_for(look, worst, direction, *how, library, threads)]
    # The noise of these pixels may be larger than that of others, as of counts: it has no direction.
    beside = look.left[worst] - np.outer(look.left[worst] @ direction, direction)
    noise = np.maximum(look.noise[worst] * np.sqrt(len(look.unit)), np.linalg.norm(beside, axis=1))
    is_clear = misfit > max(float(POOR), LEAST_OF_NOISE * float(np.median(noise))) and clear > LEAST_CONTRAST
    if not found and not is_shared and (not is_clear or misfit <= usual):
        return None
    where, lines = order[:count], sample.lines[order[:count]]
    mean = look.Y[worst].mean(axis=0)
    along = mostly_within(lines, size[0], sample.lines)
    across = mostly_within(sample.samples[where], size[1], sample.samples)
    patch = 0
    if along is None and across is None:
        found_patch = largest_group((sample.lines, sample.samples), lines, sample.samples[where])
        if found_patch[2] >= LEAST_OF_PATCH * count:
            along, across, patch = found_patch
    return Missing(
        count,
        N,
        misfit,
        usual,
        along,
        across,
        np.histogram(lines, 16, (0, size[0]))[0].tolist(),
        mean.tolist(),
        (mean - look.unit @ A.mean(axis=0)).tolist(),
        found,
        sum(len(library.names) for library in searched),
        patch,
    )


def has_mean(look: Look, direction: np.ndarray) -> bool:
    """Return whether residuals have a mean along a direction (L,), over all pixels, that noise does not make."""
    along = look.left @ direction / np.maximum(look.noise, 1e-30)
    return bool(along.mean() > LEAST_MEAN * usual_deviation(along) * np.sqrt(len(direction) / len(along)))


class Lacks(Part):
    """The search for spectra that the endmembers lack; ``options`` are a run's, or the options of `unmix.check`."""

    named: Endmembers | None = None
    found: Missing | None = None
    has_looked = False

    def read(self, scene: Scene, library: Endmembers | None) -> None:
        """See `unmix.features.runs.Part.read`."""
        if self.options.names is not None:
            self.named = load_for(self.options.names, scene, complete=True, across_gaps=True)

    def request(self) -> dict[str, Any]:
        """See `unmix.features.runs.Part.request`."""
        return {} if self.named is None else {"names": self.named.digest()}

    def look(
        self, sample: Any, look: Any, scene: Scene, library: Endmembers | None, steps: Sequence[Step] = ()
    ) -> None:
        """See `unmix.features.runs.Part.look`."""

        def candidates() -> list[Endmembers]:
            found = [self.named] if self.named is not None else rest_of(vars(self.options), library, scene)
            return [applied(steps, scene.bands, one)[1] for one in found]

        cube, self.has_looked = scene.cube, True
        self.found = what_is_missing(sample, look, (cube.lines, cube.samples), candidates, self.options.threads)

    @property
    def lacking(self) -> float:
        """See `unmix.features.runs.Part.lacking`."""
        return 0.0 if self.found is None else self.found.share

    @property
    def said(self) -> str:
        """See `unmix.features.runs.Part.said`."""
        if self.named is not None and not self.has_looked:
            return "`names` are not searched: that takes 64 pixels of light, and fewer endmembers than bands"
        return "" if self.found is None else self.found.said

    def entry(self, summary: Any) -> dict[str, Any]:
        """See `unmix.features.runs.Part.entry`."""
        return {"missing": None if self.found is None else self.found.to_dict()}


def rest_of(asked: Mapping[str, Any], library: Endmembers | None, scene: Scene) -> list[Endmembers]:
    """Return the spectra that ``select`` left out of a library, read again on the bands in use; [] without any."""
    if asked["endmembers"] is None or library is None or asked["select"] is None:
        return []
    how = None, asked["library_scale"], None, True, bool(asked["across_gaps"])  # names need no class
    whole = load_for(asked["endmembers"], scene, *how)
    rest = [j for j, name in enumerate(whole.names) if name not in library.names]
    return [whole.take(rest)] if rest else []
