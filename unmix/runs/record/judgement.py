"""Judge the model, which a certificate of the optimum does not: how well it fits, and how much each endmember is used."""

import contextlib
import logging
import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...methods import Method
from ...problem import some_of
from ...scene.bands import WATER, windows_of
from ...summary import KAPPA_BINS, PER_OCTAVE, POOR, Summary, edges

# A relative RMSE above `POOR` in the median pixel is a poor fit; above `POOR_PART` at the 95th percentile, or above `POOR` in a larger
# share of the pixels than `SOME_POOR`, a part of the scene is fitted poorly: of a granule with 3 % of clouds median and 95th percentile
# say nothing. An endmember present in a smaller share of the pixels than `UNUSED` is nearly unused. If a larger share than
# `MANY_OUTSIDE` lies outside the simplex of the endmembers, a warning is given.
SOME_POOR, POOR_PART, UNUSED, MANY_OUTSIDE = 0.02, 0.20, 0.001, 0.25
# Largest library whose unused spectra are warned of: most of a larger one are unused in any scene.
LARGEST_LIBRARY_JUDGED = 48
MOST_NAMED = 5


def fit_of(summary: Summary) -> dict[str, Any]:
    """Return the fit for ``run.json``: relative RMSE is |y − E a| over |y|; its percentiles are right to 3 % of themselves."""
    return {
        "relative_rmse": {
            "median": summary.percentile(0.5),
            "percentile_95": summary.percentile(0.95),
            "maximum": summary.worst_relative,
        },
        "maximum_rmse": summary.worst_rmse,
        "relative_rmse_histogram": histogram_of(summary.misfit, edges(), PER_OCTAVE),
    }


def residual_by_band(summary: Summary) -> dict[str, Any]:
    """Return for ``run.json`` the residual y − E a of each band in use: its RMS and mean, and the RMS of y, over sampled pixels.

    Six digits, the mean's counted from the RMS, so that they do not depend on the order in which a scene's blocks are added.
    """
    if summary.residuals is None:
        return {"pixels": 0, "rms": [], "mean": [], "rms_of_scene": []}
    squares, means, of_scene = summary.residuals / summary.sampled
    return {
        "pixels": summary.sampled,
        "rms": [float(f"{value:.5e}") for value in np.sqrt(squares)],
        "mean": [rounded_beside(mean, rms) for mean, rms in zip(means.tolist(), np.sqrt(squares).tolist())],
        "rms_of_scene": [float(f"{value:.5e}") for value in np.sqrt(of_scene)],
    }


def rounded_beside(value: float, scale: float) -> float:
    """Return a value rounded to the sixth digit of ``scale``, which is larger."""
    if not (0.0 < scale < math.inf and math.isfinite(value)):
        return value
    return float(f"{round(value, 5 - math.floor(math.log10(scale))):.6g}")


# The windows of water vapour are to blame where the relative RMSE of all bands is above `POOR`, and without them at most this part of
# it: of a NEON scene with them 0.31 (48 and 15 %); of sound scenes 0.77 to 1, with 7 % at most.
LESS_WITHOUT_WATER = 0.5
# A band stands out where its RMS is this many times the median of eight neighbours (3 to 6 bands away) and more than `POOR` of its
# signal: in sound scenes of AVIRIS and EnMAP the largest was 8.2.
STANDS_OUT = 10.0
# A misfit is that of noise where noise alone gives more than this part of it; and what is said of it then.
MOSTLY_NOISE = 0.8
NOISE = (
    "it is noise, which neighbouring bands do not share: no other endmember would explain it; pixels averaged (`unmix superpixels`) or "
    "maps smoothed (`tv`) have less"
)


def said_of_bands(summary: Summary, bands: np.ndarray, waves: np.ndarray | None) -> tuple[str | None, str | None]:
    """Return advice from the residuals of bands, on water vapour and on single bands; None where they show no fault.

    Parameters
    ----------
    summary : Summary
    bands : array (L,)
        The bands in use, from 1.
    waves : array (L,) or None
        Their wavelengths in nm.
    """
    if (
        summary.residuals is None
        or summary.residuals.shape[1] != len(bands)
        or not np.isfinite(summary.residuals).all()
    ):
        return None, None
    squares, _, of_scene = summary.residuals
    wet = np.zeros(len(bands), bool)
    for low, high in windows_of("`ignore_nm`", WATER):
        wet |= False if waves is None else (waves >= low) & (waves <= high)
    water = None
    if wet.any() and not wet.all():
        misfit, dry = (float(np.sqrt(squares[some].sum() / of_scene[some].sum())) for some in (wet | True, ~wet))
        if misfit > POOR and dry < LESS_WITHOUT_WATER * misfit:
            water = (
                f"{percent(float(squares[wet].sum() / squares.sum()))} of the squares of the residual lie in the {wet.sum()} bands of "
                f"water vapour: over all pixels and bands the relative RMSE is {percent(misfit)}, without these bands {percent(dry)}; "
                "leave them out with `ignore_nm` water"
            )
    rms = np.sqrt(squares)
    if len(rms) <= 12:
        return water, None
    around = (np.concatenate([rms[max(0, b - 6) : max(0, b - 2)], rms[b + 3 : b + 7]]) for b in range(len(rms)))
    near = np.array([np.median(some) for some in around])
    far = np.flatnonzero(~wet & (rms > STANDS_OUT * near) & (squares > POOR**2 * of_scene))
    if not len(far):
        return water, None
    if waves is None:
        what, flag = ", ".join(str(bands[b]) for b in far), "`bands`"
    else:
        what = ", ".join(f"{bands[b]} ({waves[b]:.5g} nm)" for b in far)
        flag = "`ignore_nm` " + ",".join(f"{waves[b] - 0.01:.2f}-{waves[b] + 0.01:.2f}" for b in far)
    return (
        water,
        f"the residual of band {what} is more than {STANDS_OUT:g} times that of bands near by: leave it out with {flag}",
    )


def kappas_of(summary: Summary) -> dict[str, Any]:
    """Return the histogram of κ for ``run.json``: a bin an octave; below the first bound are those from zero on."""
    return histogram_of(summary.kappas, 2.0 ** np.arange(-KAPPA_BINS, 0.0), 1)


def histogram_of(counts: np.ndarray, begins: np.ndarray, bins_an_octave: int) -> dict[str, Any]:
    """Return the counts from the first bin with a pixel to the last, and the value at which the first begins."""
    held = np.flatnonzero(counts)
    first, last = (int(held[0]), int(held[-1]) + 1) if len(held) else (0, 0)
    return {
        "begins": float(begins[first]),
        "bins_an_octave": bins_an_octave,
        "counts": [int(n) for n in counts[first:last]],
    }


def abundances_of(summary: Summary, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return for ``run.json`` how much each endmember is used."""
    if summary.sums is None or summary.most is None or summary.there is None or summary.outside is None:
        return []
    solved = max(1, summary.solved)
    return [
        {
            "name": name,
            "mean": float(summary.sums[j]) / solved,
            "maximum": float(summary.most[j]),
            "share_above_1_percent": int(summary.there[j]) / solved,
            "share_outside": int(summary.outside[j]) / solved,
        }
        for j, name in enumerate(names)
    ]


# The sum to one costs much of a fit where without it the median misfit, or the share of poor pixels, is below this part of what it is.
CLEARLY_LESS = 0.75
# A sample is solved without the sum to one where the misfit of the median pixel is above this, or pixels are fitted poorly.
SUSPECT = 0.05


# The sum of unconstrained abundances of bright pixels over that of dark ones from which on brightness varies.
VARIES = 1.3


class SumCost(NamedTuple):
    """The relative RMSE of a sample of ``pixels``: its median, and the share above 10 %, each with the sum to one and without."""

    pixels: int
    median: float
    median_without: float
    poor: float
    poor_without: float

    @property
    def hurts(self) -> bool:
        """Whether the sum to one costs much of the fit."""
        median = self.median > SUSPECT / 2 and self.median_without < CLEARLY_LESS * self.median
        # A free sum always fits better: of mixtures that do sum to one, with half of their spectra, 3 % were poor in place of 4.5 %.
        falls = self.median_without < 0.95 * self.median
        return median or (falls and self.poor > SOME_POOR and self.poor_without < 0.5 * self.poor)


def said_of_sum(cost: SumCost, method: Method) -> str:
    """Return by how much the sum to one, or at most one, costs the fit, and what to type instead."""
    bound = "sum of at most one" if method.constraint.has_shade else "sum to one"
    return (
        f"the {bound} costs much of it: of {cost.pixels} pixels looked at, without it the median has a relative RMSE of "
        f"{percent(cost.median_without)} in place of {percent(cost.median)}, and {percent(cost.poor_without)} in place of "
        f"{percent(cost.poor)} are fitted poorly: use `method` nnls, whose abundances follow the brightness of a pixel"
    )


def said_of_brightness(low: float, high: float) -> list[str]:
    """Return a warning that brightness varies, which abundances that sum to one cannot follow."""
    if not 0 < low * VARIES < high:
        return []
    return [
        f"brightness varies: without the sum to one abundances add up to {low:.2g} to {high:.2g} in nine of ten pixels, and with it a "
        "darker pixel is taken for a mixture with darker spectra; without `method`, fractions do not depend on brightness"
    ]


def suspects_sum(summary: Summary) -> bool:
    """Return whether a scene that was solved with the sum to one fits so badly that it is worth a sample without."""
    median = summary.percentile(0.5)
    return (
        median > SUSPECT or summary.percentile(0.95) > POOR_PART or share_above(summary.misfit, float(POOR)) > SOME_POOR
    )


def judge(
    summary: Summary,
    names: Sequence[str],
    method: Method,
    most_delta: float,
    culprits: Sequence[str],
    price: str = "",
    cost: SumCost | None = None,
    bands: tuple[np.ndarray, np.ndarray | None] | None = None,
    sums: tuple[float, float] | None = None,
    of_noise: tuple[float, float] | None = None,
) -> list[str]:
    """Return warnings that a user should read before using the maps, a sentence each; none makes a run fail.

    Parameters
    ----------
    summary : Summary
        Totals of a whole scene, or of a sample of it.
    names : sequence of str
        Names of the endmembers; for a method with shade that is the last.
    method : Method
    most_delta : float
        The largest δ (a distance between abundance vectors) that counts as certified.
    culprits : sequence of str
        Names of endmembers that are nearly mixtures of each other, if any.
    price : str
        Advice where an option makes the fit worse, such as "; a smaller `l1`".
    cost : SumCost, optional
        The cost of the sum to one on a sample, where that was tested.
    bands : tuple of arrays (L,), optional
        The bands in use, from 1, and their wavelengths in nm or None; for advice from the residual of each.
    sums : (float, float), optional
        The 5th and the 95th percentile of the sum of the unconstrained abundances, on a sample.
    of_noise : (float, float), optional
        The median and the 95th percentile of the relative RMSE that noise alone gives a sample, where residuals are noise.
    """
    if not summary.solved:
        return []
    constraint = method.constraint
    materials = 0 if method.is_by_models else len(names) - constraint.has_shade
    median, uses = summary.percentile(0.5), abundances_of(summary, names)
    water, single_bands = said_of_bands(summary, *bands) if bands is not None else (None, None)
    misfit = said_of_misfit(summary, method, cost, water, of_noise)
    sentences = [] if misfit is None else [misfit + price]
    sentences += [] if single_bands is None else [single_bands]
    if constraint.may_cost_fit and not constraint.has_shade and len(names) > 1 and sums is not None:
        sentences += said_of_brightness(*sums)
    outside = max(uses, key=lambda use: float(use["share_outside"]), default={"share_outside": 0.0})
    if not constraint.is_cone and len(names) > 1 and outside["share_outside"] > MANY_OUTSIDE:
        sentences.append(
            f"{percent(outside['share_outside'])} of the pixels are {outside['name']} alone and fitted poorly (abundance above 99 %, "
            "relative RMSE above 10 %): no mixture of the endmembers comes near them"
            + (
                f"; {without_sum(method)}"
                if cost is None or cost.hurts
                else ", brighter or darker; an endmember is missing"
            )
        )
    idle = [use["name"] for use in uses[:materials] if use["share_above_1_percent"] < UNUSED]
    if median <= POOR and idle and 1 < len(names) <= LARGEST_LIBRARY_JUDGED:
        single = len(idle) == 1
        sentences.append(
            f"{some_of(idle, MOST_NAMED)} {'is' if single else 'are'} nearly unused: abundance above 1 % in fewer than "
            f"{percent(UNUSED)} of the pixels; leave {'it' if single else 'them'} out unless known to be rare here"
        )
    if not (math.isfinite(summary.worst_rmse) and all(math.isfinite(use["maximum"]) for use in uses)):
        sentences.append(
            "some abundances or residuals are too large for the float32 of the maps and are infinite there; bring cube and library to "
            "the same unit with `scale`"
        )
    if summary.fit_certified:
        sentences.append(
            f"{summary.fit_certified} of {summary.solved} pixels are certified in their fit alone: nothing fits better, but their "
            f"abundances are not proved to within {most_delta:g} (`max_delta`)"
            + (
                f", since {some_of(culprits, MOST_NAMED)} can hardly be told apart; merge them or leave some out"
                if culprits
                else "; a larger `max_delta` may accept them"
            )
        )
    return sentences


# Most spectra of the median pixel that are called sparse: a mixture of more materials than this is rare.
MOST_SPARSE = 8


def said_of_sparsity(rule: str, count: float, without: float, library: int, sparse_from: float | None) -> str:
    """Return how many spectra a λ that a rule chose leaves in a pixel and, where that is no sparse answer, what gives one.

    Parameters
    ----------
    rule : str
        The name of the rule.
    count, without : float
        The number of spectra in the median pixel of a sample, with this λ and without a penalty.
    library : int
        The number of spectra of the library.
    sparse_from : float or None
        The smallest λ, nearly, that leaves `MOST_SPARSE` spectra in the median pixel; None where none is known.
    """
    said = f"{count:g} of {library} spectra in the median pixel, {without:g} without a penalty"
    if count <= MOST_SPARSE:
        return said
    # Two digits round by 5 % at most, and so never below the λ.
    larger = "" if sparse_from is None else f"`l1` {1.05 * sparse_from:.2g} leaves at most {MOST_SPARSE} there, "
    return (
        f"{said}: not sparse, since {rule} seeks the best fit, not few spectra; `at_most` {MOST_SPARSE} leaves no pixel more, {larger}"
        "`l21` auto leaves few in the whole scene, and `unmix path` shows what each `l1` does"
    )


def said_of_misfit(
    summary: Summary, method: Method, cost: SumCost | None, water: str | None = None, of_noise: tuple[float, float] | None = None
) -> str | None:  # fmt: skip
    """Return how badly a scene, or a part of it, is fitted, the likely cause and what to do; None where it is fitted well."""
    median, percentile_95 = summary.percentile(0.5), summary.percentile(0.95)
    in_median = f"relative RMSE {percent(median)} in the median pixel"
    at_95 = f"{percent(percentile_95)} at the 95th percentile"
    of_sum = said_of_sum(cost, method) if cost is not None and cost.hurts else None
    untested = cost is None and not method.constraint.is_cone
    if median > POOR:
        brighter = "pcls, or nnls" if not method.constraint.has_shade else "nnls"
        cause = "endmembers are missing or do not match this scene; try more endmembers or another library"
        cause += f"; where brightness varies, `method` {brighter}" if untested else ""
        if of_sum and cost is not None:
            cause = of_sum + ("; endmembers are missing, too" if cost.median_without > POOR else "")
        cause = water or (NOISE if of_noise is not None and of_noise[0] > MOSTLY_NOISE * median else cause)
        return f"the fit is poor: {in_median}, {at_95} (above 10 % is poor): {cause}"
    if percentile_95 > POOR_PART:
        cause = "an endmember may be missing there"
        if untested and not method.constraint.has_shade:
            cause += ", or pixels are darker or brighter than all of them (`method` pcls or nnls)"
        if of_noise is not None and of_noise[1] > MOSTLY_NOISE * percentile_95:
            cause = NOISE
        return f"a part of the scene is fitted poorly: {in_median}, but {at_95}: {of_sum or cause}; the RMSE map shows where"
    if (share := share_above(summary.misfit, float(POOR))) > SOME_POOR:
        cause = "clouds, water or shadow that a mask should leave out, or an endmember is missing there"
        return (
            f"{percent(share)} of the pixels are fitted poorly (relative RMSE above 10 %), though the median is {percent(median)}: "
            f"{of_sum or cause}; the RMSE map shows where"
        )
    return f"{in_median}, {at_95}: {of_sum}" if of_sum else None


def without_sum(method: Method) -> str:
    """Return which methods serve pixels that no mixture comes near."""
    darker = "pcls (shade) if they are darker than the endmembers, " if not method.constraint.has_shade else ""
    return f"use `method` {darker}nnls if some are brighter"


def share_above(misfit: np.ndarray, limit: float) -> float:
    """Return the share of pixels with a relative RMSE above a limit, by whole bins of `unmix.summary.edges`."""
    total = int(misfit.sum())
    return float(misfit[np.searchsorted(edges(), limit) :].sum()) / total if total else 0.0


def percent(share: float) -> str:
    """Return a share as per cent, with two significant digits below 10 % and whole per cents above."""
    if not math.isfinite(share):
        return "infinite"
    return f"{100 * share:.2g} %" if share < 0.0995 else f"{100 * share:.0f} %"


class Collector(logging.Handler):
    """A log handler that keeps the warnings of one thread, each text once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.thread, self.messages = threading.get_ident(), list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message of a warning."""
        if record.thread == self.thread and record.getMessage() not in self.messages:
            self.messages.append(record.getMessage())


@contextlib.contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Yield a list to which the warnings that this thread logs are appended."""
    log, collector = logging.getLogger("unmix"), Collector()
    log.addHandler(collector)
    try:
        yield collector.messages
    finally:
        log.removeHandler(collector)
