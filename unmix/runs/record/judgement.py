"""Judge the model, which a certificate does not: how well it fits, and how much each endmember is used."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...methods import Method
from ...problem import some_of
from ...summary import POOR, Summary
from .bands import said_of_bands
from .fit import abundances_of, in_percent, share_above
from .misfit import EXPLAINED, FAR, MOST_WORSE, WORSE, Misfit

# A relative RMSE above `POOR` in the median pixel is a poor fit; above `POOR_PART` at the 95th percentile, or above
# `POOR` in a larger share of the pixels than `SOME_POOR`, a part of the scene is fitted poorly: of a granule with 3 %
# of clouds median and 95th percentile say nothing. An endmember present in a smaller share of the pixels than `UNUSED`
# is nearly unused. If a larger share than `MANY_OUTSIDE` lies outside the simplex of the endmembers, a warning is
# given.
SOME_POOR, POOR_PART, UNUSED, MANY_OUTSIDE = 0.02, 0.20, 0.001, 0.25
# Where more than this part of the poorly fitted pixels are faint (`unmix.runs.record.misfit`), their 95th percentile
# says nothing of the model.
MOSTLY_FAINT = 0.5
# Largest library whose unused spectra are warned of: most of a larger one are unused in any scene.
LARGEST_LIBRARY_JUDGED = 48
MOST_NAMED = 5


# Words on a misfit that noise explains.
NOISE, OF_NEIGHBOURS = "noise, which neighbours do not share", "; `tv` takes it out"
# The advice wherever a sum of one does not fit: one for all sentences of a run, so that none contradicts another. A sum
# that was ordered is kept by division.
FREE_SUM = "nnls with `normalize` sum"
STILL_ONE = f"{FREE_SUM} also sums to one"
# The sum to one costs much of a fit where without it the median misfit, or the share of poor pixels, is below this part
# of what it is.
CLEARLY_LESS = 0.75
# A sample is solved without the sum to one where the misfit of the median pixel is above this, or pixels are fitted
# poorly.
SUSPECT = 0.05


# The share of masked pixels above which a mask is doubted beside a poor fit; and above which beside a good one, too.
MOST_PIXELS, MOST_MASKED = 0.5, 0.9
# The share of the pixels without shade above which it is said, and the sum that one in twenty exceeds then.
MANY_LIT, BRIGHTER = 0.25, 1.1
# The share of the pixels with values that are masked for single bands, above which it is said.
MANY_PARTLY = 0.02
# Deviations of sums by noise beyond which sums say nothing, as of spectra that are equal up to a factor.
MOST_OF_SUM = 1.0
# The ratio of bright to dark pixels' sums of unconstrained abundances from which on brightness varies; the least
# by which their median is off one where most pixels are darker, or brighter, than the library; and how much of that the
# misfit may be, since of spectra that are missing the sum is not one.
VARIES, LEAST_LEVEL, MISFIT_OF_LEVEL = 1.2, 0.05, 0.3
# How near a power of ten, in its logarithm, a level is another scale rather than light.
NEAR_TEN = 0.05
# The misfit of the median pixel from which on it is said of values of both signs, too.
HOPELESS = 0.5
# The standard deviation of fractions by noise, of a usual pixel, from which on it is said.
MOST_MOVED = 0.1
# Said of values below 0 in a large part; also of a scale, or an offset, that a file has applied already.
SAID_OF_SIGNS = "on both sides of 0, as MNF's: unmix the cube itself (or is an offset taken twice?)"


class SumCost(NamedTuple):
    """The median relative RMSE of a sample of ``pixels`` and the share above 10 %, with and without the sum to one."""

    pixels: int
    median: float
    median_without: float
    poor: float
    poor_without: float
    constant: str = ""  # what is to blame instead, where that is a constant of all pixels (`unmix.scene.constant`)

    @property
    def median_hurts(self) -> bool:
        """Whether the median pixel shows it."""
        return self.median > SUSPECT / 2 and self.median_without < CLEARLY_LESS * self.median

    @property
    def is_suspect(self) -> bool:
        """Whether a constant that all pixels share may be to blame."""
        return self.hurts or self.median > SUSPECT

    @property
    def hurts(self) -> bool:
        """Whether the sum to one costs much of the fit."""
        # A free sum always fits better: of mixtures that do sum to one, with half of their spectra, 3 % were poor in
        # place of 4.5 %.
        falls = self.median_without < 0.95 * self.median
        return self.median_hurts or (falls and self.poor > SOME_POOR and self.poor_without < 0.5 * self.poor)


def said_of_sum(cost: SumCost, method: Method) -> str:
    """Return by how much the sum to one, or at most one, costs the fit, and what to type instead."""
    if cost.constant:
        return cost.constant
    bound, advice = "sum to one", STILL_ONE
    if method.is_by_models:
        bound, advice = "sum of at most one", "pixels are brighter than the library, or `scale` is wrong"
    elif method.constraint.has_shade:
        bound, advice = "sum of at most one", "use nnls"
    what, without, held = "median misfit", cost.median_without, cost.median
    if not cost.median_hurts:
        what, without, held = "poor pixels", cost.poor_without, cost.poor
    return f"the {bound} costs much of the fit: {what} {in_percent(held)}, {in_percent(without)} without; {advice}"


def suspects_sum(summary: Summary) -> bool:
    """Return whether a scene that was solved with the sum to one fits so badly that it is worth a sample without."""
    median = summary.percentile(0.5)
    return (
        median > SUSPECT or summary.percentile(0.95) > POOR_PART or share_above(summary.misfit, float(POOR)) > SOME_POOR
    )


class Free(Protocol):
    """What unconstrained answers of a sample say: see `unmix.runs.look.Look`."""

    @property
    def negative(self) -> np.ndarray: ...
    @property
    def far_below(self) -> np.ndarray: ...
    @property
    def sums(self) -> tuple[float, float] | None: ...
    @property
    def level(self) -> float | None: ...
    @property
    def misfit(self) -> Misfit | None: ...
    @property
    def sum_noise(self) -> float | None: ...
    @property
    def left(self) -> np.ndarray: ...
    @property
    def given(self) -> np.ndarray: ...
    @property
    def amounts(self) -> np.ndarray: ...


@dataclass(frozen=True)
class Seen:
    """What is known of a scene when it is judged.

    Attributes
    ----------
    summary : Summary
        Totals of a whole scene, or of a sample of it.
    names : sequence of str
        Names of the endmembers; for a method with shade that is the last.
    method : Method
    most_delta : float
        The largest δ (a distance between abundance vectors) that counts as certified.
    culprits, black : sequences of str
        Names of endmembers that are nearly mixtures of each other, if any; and of endmembers that are nearly black.
    price : str
        Advice where an option makes the fit worse, such as "; a smaller `l1`".
    cost : SumCost, optional
        The cost of the sum to one on a sample, where that was tested.
    bands : tuple of arrays (L,), optional
        The bands in use, from 1, and their wavelengths in nm or None; for advice from the residual of each.
    free : Free, optional
        What unconstrained answers of a sample say.
    is_flat : bool
        Whether the run took its method because the scene's brightness does not vary.
    both_signs : bool
        Whether values lie on both sides of 0, as those of minimum noise fractions do.
    lacking : float
        The share of the pixels that have a spectrum which no mixture has, which is said elsewhere.
    are_bands_told : bool
        Whether bands without a signal are named elsewhere.
    has_limit : bool
        Whether pixels with a value above a limit are left out, as was asked.
    mask : (str, float), optional
        Which of `mask` and `mask_out` was given, and the share of the pixels that are masked.
    weights : array (p,), optional
        What abundances are multiplied by to make fractions (`unmix.library.fractions`); None where classes are summed,
        or noise depends on counts.
    """

    summary: Summary
    names: Sequence[str]
    method: Method
    most_delta: float
    culprits: Sequence[str] = ()
    black: Sequence[str] = ()
    price: str = ""
    cost: SumCost | None = None
    bands: tuple[np.ndarray, np.ndarray | None] | None = None
    free: Free | None = None
    is_flat: bool = False
    both_signs: bool = False
    lacking: float = 0.0
    mask: tuple[str, float] | None = None
    has_limit: bool = False
    are_bands_told: bool = False
    weights: np.ndarray | None = None

    @property
    def is_shifted(self) -> bool:
        """Return whether a constant that all pixels share explains sums and fits; False if a mask may be wrong."""
        return not self.doubts_mask and self.cost is not None and bool(self.cost.constant)

    @property
    def doubts_mask(self) -> bool:
        """Whether a mask leaves out most pixels, so that it may be the wrong way round: not if a constant explains them."""
        is_told = self.cost is not None and bool(self.cost.constant) and self.cost.median_without < SUSPECT
        return self.mask is not None and self.mask[1] > MOST_PIXELS and not is_told

    @property
    def of_bands(self) -> tuple[str | None, str | None]:
        """Advice on water vapour, and on single bands."""
        usual = None if self.free is None else np.median(np.abs(self.free.left), axis=0)
        return (
            (None, None) if self.bands is None else said_of_bands(self.summary, *self.bands, usual, self.are_bands_told)
        )

    @property
    def of_sum(self) -> SumCost | None:
        """Return the cost of the sum to one, if it was tested and neither ``is_flat`` nor ``both_signs`` decides."""
        if self.is_flat or self.both_signs or self.cost is None or (self.doubts_mask and self.cost.constant):
            return None
        return self.cost

    @property
    def poor(self) -> float:
        """The share of the pixels that are fitted poorly and are not merely dark."""
        return share_above(self.summary.misfit, float(POOR)) * (1.0 - self.faint)

    @property
    def is_noise(self) -> bool:
        """Whether noise explains the misfit."""
        misfit = None if self.free is None else self.free.misfit
        return misfit is not None and misfit.is_noise and not self.lacking

    @property
    def faint(self) -> float:
        """The part of the poorly fitted pixels that are merely dark."""
        return 0.0 if self.free is None or self.free.misfit is None else self.free.misfit.faint


def judge(seen: Seen) -> list[str]:
    """Return warnings that a user should read before using the maps, a sentence each; none makes a run fail."""
    return [sentence for say in SENTENCES for sentence in say(seen)] if seen.summary.solved else []


def say_both_signs(seen: Seen) -> Iterator[str]:
    """Say that values are no values of light, which mixes in nonnegative multiples."""
    if seen.both_signs and (seen.method.constraint.is_cone or seen.method.constraint.has_shade):
        yield f"values lie {SAID_OF_SIGNS}, or take `method` fcls"


def say_mask(seen: Seen) -> Iterator[str]:
    """Say that a mask may be the wrong way round: it leaves out most pixels, or leaves such as are fitted poorly."""
    if seen.mask is None:
        return
    given, masked = seen.mask
    is_poor = seen.summary.percentile(0.5) > POOR or (seen.cost is not None and bool(seen.cost.constant))
    if seen.doubts_mask and (masked > MOST_MASKED or is_poor):
        other, what = ("mask_out", "leave out") if given == "mask" else ("mask", "keep")
        yield f"{in_percent(masked)} of the pixels are masked; `{other}` if the values of `{given}` mark what to {what}"


def say_partly(seen: Seen) -> Iterator[str]:
    """Say that pixels are masked for single bands without a value, such as dark water where 0 is no data."""
    partly = seen.summary.partly_nodata
    share = partly / (partly + seen.summary.solved)
    if share > MANY_PARTLY and not seen.has_limit:
        yield (
            f"{in_percent(share)} of the pixels with values are masked, since they miss a band in use, as dark "
            "water may: is `nodata` right?"
        )


def say_misfit(seen: Seen) -> Iterator[str]:
    """Say how badly the scene, or a part of it, is fitted, and why."""
    if seen.both_signs:
        if (median := seen.summary.percentile(0.5)) > HOPELESS and not any(say_both_signs(seen)):
            yield f"relative RMSE is {in_percent(median)} in the median pixel: these are no mixtures of these spectra"
        return
    water, _ = seen.of_bands
    of_sum = said_of_sum(seen.of_sum, seen.method) if seen.of_sum is not None and seen.of_sum.hurts else None
    misfit = said_of_misfit(seen, bool(of_sum), bool(water))
    if misfit is not None:
        yield misfit
    if water is not None and seen.summary.percentile(0.5) > POOR:
        yield water
    elif of_sum is not None:
        yield of_sum
    if seen.price and misfit is not None:
        yield seen.price


def say_far(seen: Seen) -> Iterator[str]:
    """Say that the misfit is far above the noise, though it is small beside the pixels."""
    found = None if seen.free is None else seen.free.misfit
    if found is not None and found.over_noise > FAR and seen.summary.percentile(0.5) <= POOR and not seen.both_signs:
        yield (
            f"the misfit is {found.over_noise:.2g} times the noise: an offset (dark frame, haze), an endmember, or "
            "spectra that vary"
        )


def say_worse(seen: Seen) -> Iterator[str]:
    """Say that some pixels are fitted much worse than the others, whose misfit is noise."""
    found = None if seen.free is None else seen.free.misfit
    if found is None or found.over_noise > EXPLAINED or seen.lacking or seen.both_signs:
        return
    if found.worse > MOST_WORSE and said_of_misfit(seen, False, False) is None:
        yield (
            f"{in_percent(found.worse)} of the pixels are fitted over {WORSE:g} times worse than nine in ten: spikes, or "
            "a spectrum that is missing there; see the RMSE map"
        )


def say_single_bands(seen: Seen) -> Iterator[str]:
    """Say which bands stand out."""
    if (single := seen.of_bands[1]) is not None:
        yield single


def say_brightness(seen: Seen) -> Iterator[str]:
    """Yield that pixels are darker or brighter than the library, or vary in brightness, or do not, against the method."""
    constraint = seen.method.constraint
    noise = None if seen.free is None else seen.free.sum_noise
    if noise is not None and noise < MOST_OF_SUM and constraint.is_cone and len(seen.names) > 1 and seen.is_noise:
        other = "fcls" if constraint.has_bounds else "scls"
        fcls = f"`method` {other}, which takes the sum for one, errs less"
        yield f"unconstrained abundances sum to one but for noise (±{noise:.2g}): where brightness is even, {fcls}"
    if seen.both_signs or not constraint.sum_to_one or len(seen.names) < 2:
        return
    if seen.free is None or seen.is_flat or seen.is_shifted or seen.lacking > MANY_OUTSIDE:
        return  # whose sum says nothing of brightness
    level, sums = seen.free.level, seen.free.sums
    uses = abundances_of(seen.summary, seen.names) if constraint.has_shade else []
    lit = 1.0 - uses[-1]["share_above_1_percent"] if uses else 0.0
    if level is None and lit > MANY_LIT and sums is not None and sums[1] > BRIGHTER:
        yield (
            f"shade is 0 in {in_percent(lit)} of the pixels, of which some are brighter than the spectra, so that "
            "fractions are biased: use nnls"
        )
    if level is not None and (level > 1 or not constraint.has_shade):
        word = "darker" if level < 1 else "brighter"
        advice = "use nnls" if constraint.has_shade else f"{STILL_ONE}, or pcls" if level < 1 else STILL_ONE
        power = math.log10(level) if level > 0 else 0.0
        if round(power) and abs(power - round(power)) < NEAR_TEN:
            advice = f"is it light, or the wrong `scale`? {advice}"
        yield f"pixels are {word} than the library: unconstrained abundances sum to {level:.2g} in the median; {advice}"
    elif sums is not None and 0 < sums[0] * VARIES < sums[1] and not constraint.has_shade:
        yield (
            f"brightness varies: unconstrained abundances sum to {sums[0]:.2g} to {sums[1]:.2g} in nine of ten pixels; "
            f"{STILL_ONE}"
        )


def say_noisy(seen: Seen) -> Iterator[str]:
    """Say which fractions noise alone moves much, as those of a spectrum that is nearly black in pixels of any light."""
    free, w, is_told = seen.free, seen.weights, seen.both_signs or seen.culprits or seen.black
    if is_told or free is None or w is None or free.misfit is None or free.sum_noise is not None:
        return
    there, has_sum = free.given.any(axis=0), seen.method.constraint.sum_to_one and not seen.method.constraint.has_shade
    H, scale = (
        np.linalg.pinv(free.given[:, there].T @ free.given[:, there]),
        1.0 if has_sum else float(w @ free.amounts),
    )
    of_sum = H.sum(axis=1)
    H -= np.outer(of_sum, of_sum) / of_sum.sum() * has_sum
    moved = free.misfit.noise * np.sqrt(np.maximum(np.diag(H), 0.0)) * w[there] / scale if scale > 0 else np.zeros(0)
    if moved.max(initial=0.0) > MOST_MOVED:
        named = [name for name, one in zip(np.array(seen.names)[there], moved) if one > MOST_MOVED]
        advice = "" if has_sum else "; in even light `method` fcls errs less"
        yield f"noise alone moves fractions of {some_of(named, MOST_NAMED)} by up to ±{moved.max():.2g} (one deviation){advice}"


def say_outside(seen: Seen) -> Iterator[str]:
    """Say that many pixels are one endmember alone, and fitted poorly."""
    uses = abundances_of(seen.summary, seen.names)
    outside = max(uses, key=lambda use: float(use["share_outside"]), default={"share_outside": 0.0})
    if (
        seen.both_signs
        or seen.faint > MOSTLY_FAINT
        or seen.is_shifted
        or seen.method.constraint.is_cone
        or len(seen.names) < 2
        or outside["share_outside"] <= MANY_OUTSIDE
    ):
        return
    of_sum = seen.cost is None or seen.cost.hurts
    why = STILL_ONE if of_sum and not seen.is_flat else "an endmember may be missing"
    yield (
        f"{in_percent(outside['share_outside'])} of pixels are {outside['name']} alone and fitted poorly: no mixture "
        f"is near; {why}"
    )


def say_unused(seen: Seen) -> Iterator[str]:
    """Say which spectra are nearly unused."""
    materials = 0 if seen.method.is_by_models else len(seen.names) - seen.method.constraint.has_shade
    uses = abundances_of(seen.summary, seen.names)[:materials]
    idle = [use["name"] for use in uses if use["share_above_1_percent"] < UNUSED]
    if seen.summary.percentile(0.5) <= POOR and idle and 1 < len(seen.names) <= LARGEST_LIBRARY_JUDGED:
        one = len(idle) == 1
        yield (
            f"{some_of(idle, MOST_NAMED)} {'is' if one else 'are'} nearly unused, above 1 % in fewer than "
            f"{in_percent(UNUSED)} of the "
            f"pixels: leave {'it' if one else 'them'} out unless rare"
        )


def say_infinite(seen: Seen) -> Iterator[str]:
    """Say that maps hold infinities."""
    uses = abundances_of(seen.summary, seen.names)
    if not (math.isfinite(seen.summary.worst_rmse) and all(math.isfinite(use["maximum"]) for use in uses)):
        yield (
            "some abundances or residuals are too large for float32 and infinite in the maps; bring cube and library "
            "to one unit with "
            "`scale`"
        )


def say_fit_alone(seen: Seen) -> Iterator[str]:
    """Say that abundances are not proved, though nothing fits better."""
    summary = seen.summary
    if not summary.fit_certified:
        return
    why = "a larger one may accept them"
    if seen.black:
        why = f"leave out {some_of(seen.black, MOST_NAMED)}, nearly black"
    elif seen.culprits:
        why = f"merge or leave out {some_of(seen.culprits, MOST_NAMED)}"
    yield (
        f"{summary.fit_certified} of {summary.solved} pixels are certified in their fit alone, their abundances not to "
        "within "
        f"{seen.most_delta:g} (`max_delta`); {why}"
    )


# Each yields the sentences that are true of a scene, in the order in which they are said.
SENTENCES: tuple[Callable[[Seen], Iterator[str]], ...] = (
    say_both_signs,
    say_mask,
    say_partly,
    say_misfit,
    say_far,
    say_worse,
    say_single_bands,
    say_brightness,
    say_noisy,
    say_outside,
    say_unused,
    say_infinite,
    say_fit_alone,
)


def said_of_misfit(seen: Seen, of_sum: bool, of_water: bool) -> str | None:
    """Return how badly a scene, or a part of it, is fitted, and the likely cause; None if it is fitted well."""
    summary, cost, constraint = seen.summary, seen.of_sum, seen.method.constraint
    median, percentile_95 = summary.percentile(0.5), summary.percentile(0.95)
    untested = seen.cost is None and not constraint.is_cone and not seen.is_flat
    if seen.is_noise:
        return (
            f"relative RMSE is {in_percent(median)} in the median pixel: {NOISE}{'' if seen.price else OF_NEIGHBOURS}"
            if median > POOR
            else None
        )
    # No cause is named if another sentence tells of it: of the sum to one, or of bands of water vapour.
    is_told = of_sum or any(say_brightness(seen))
    where = "; the RMSE map shows where"
    if median > POOR:
        also = cost is not None and cost.hurts and cost.median_without > POOR
        cause = "" if is_told and not also else ": an endmember may be missing, or the library does not match"
        if untested and cause:
            cause = f": an endmember may be missing, or brightness varies ({FREE_SUM})"
        cause = "" if of_water else cause
        return f"the fit is poor: relative RMSE {in_percent(median)} in the median pixel{cause}"
    if percentile_95 > POOR_PART and seen.faint <= MOSTLY_FAINT:
        cause = "" if is_told else ": an endmember may be missing there"
        return f"5 % of the pixels have a relative RMSE above {in_percent(percentile_95)}{cause}{where}"
    if seen.poor > SOME_POOR:
        cause = "" if is_told else ": clouds, shadow, or an endmember may be missing"
        return (
            f"{in_percent(seen.poor)} of pixels are fitted poorly (relative RMSE above 10 %){cause}; see the RMSE map"
        )
    return None


def with_free(uses: list[dict[str, Any]], free: Free | None) -> list[dict[str, Any]]:
    """Return how much each endmember is used with what unconstrained answers say of it; null for shade that is zero."""
    if free is None:
        return uses
    return [
        use | {"negative_if_free": float(negative), "far_below_if_free": float(far)}
        for use, negative, far in zip(uses, free.negative, free.far_below)
    ]
