"""Count how well a model fits and how much each endmember is used: numbers of ``run.json`` for the judgements."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...summary import KAPPA_BINS, PER_OCTAVE, Summary, edges


def fit_of(summary: Summary) -> dict[str, Any]:
    """Return the fit for ``run.json``: relative RMSE is |y − E a| over |y|; its percentiles are right to 3 %."""
    return {
        "relative_rmse": {
            "median": summary.percentile(0.5),
            "percentile_95": summary.percentile(0.95),
            "maximum": summary.worst_relative,
        },
        "maximum_rmse": summary.worst_rmse,
        # Six digits, so that it does not depend on the order in which a scene's blocks are added.
        "mean_rmse": float(f"{summary.sum_of_rmse / max(1, summary.solved):.5e}"),
        "relative_rmse_histogram": histogram_of(summary.misfit, edges(), PER_OCTAVE),
    }


def residual_by_band(summary: Summary) -> dict[str, Any]:
    """Return for ``run.json`` the RMS and mean of y − E a, and the RMS of y, by band over sampled pixels."""
    if summary.residuals is None:
        return {"pixels": 0, "rms": [], "mean": [], "rms_of_scene": []}
    squares, means, of_scene = summary.residuals / summary.sampled
    return {
        # Six digits, the mean's counted from the RMS, so that the order in which blocks are added does not matter.
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


def share_above(misfit: np.ndarray, limit: float) -> float:
    """Return the share of pixels with a relative RMSE above a limit, by whole bins of `unmix.summary.edges`."""
    total = int(misfit.sum())
    return float(misfit[np.searchsorted(edges(), limit) :].sum()) / total if total else 0.0


# Shares below this are said to be below it: what is left of numbers that fit exactly is rounding.
LEAST_PERCENT = 1e-5


def in_percent(share: float) -> str:
    """Return a share in per cent, with two digits below 10 % and whole numbers above; never 100 % for less."""
    if not math.isfinite(share):
        return "infinite"
    if 0 < share < LEAST_PERCENT:
        return f"below {100 * LEAST_PERCENT:g} %"
    if 0.995 <= share < 1:
        return f"{math.floor(1000 * share) / 10:g} %"
    return f"{100 * share:.2g} %" if share < 0.0995 else f"{100 * share:.0f} %"


def seconds_of(report: dict[str, Any]) -> float:
    """Return the seconds that a run took; records of older versions count its blocks only."""
    seconds = report["seconds"]
    return float(seconds.get("elapsed", seconds["total"]))
