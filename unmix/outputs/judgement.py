"""How good the model is, which no certificate of the optimum says: the fit, and what each endmember is used for."""

import contextlib
import logging
import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..problem import some_of
from ..summary import PER_OCTAVE, POOR, Summary, edges

# A relative RMSE above `POOR` in the median pixel is a poor fit, above the first of these at 95 % one of a part of the scene. An
# endmember that is there in a smaller share of pixels than the second is unused; where more than the third are outside, it is said.
POOR_PART, UNUSED, MANY_OUTSIDE = 0.20, 0.001, 0.25
MOST_NAMED = 5


def fit_of(summary: Summary) -> dict[str, Any]:
    """The fit, for ``run.json``: relative RMSE is |y − E a| over |y|; its percentiles are right to 3 %."""
    return {
        "relative_rmse": {
            "median": summary.percentile(0.5),
            "percentile_95": summary.percentile(0.95),
            "maximum": summary.worst_relative,
        },
        "maximum_rmse": summary.worst_rmse,
        "relative_rmse_histogram": histogram_of(summary.misfit),
    }


def histogram_of(misfit: np.ndarray) -> dict[str, Any]:
    """The bins from the first that holds a pixel to the last, and the relative RMSE that the first begins with."""
    held = np.flatnonzero(misfit)
    first, last = (int(held[0]), int(held[-1]) + 1) if len(held) else (0, 0)
    return {
        "begins": float(edges()[first]),
        "bins_an_octave": PER_OCTAVE,
        "counts": [int(n) for n in misfit[first:last]],
    }


def abundances_of(summary: Summary, names: Sequence[str]) -> list[dict[str, Any]]:
    """What each endmember is used for, for ``run.json``."""
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


def judge(
    summary: Summary, names: Sequence[str], sum_to_one: bool, most_delta: float, culprits: Sequence[str]
) -> list[str]:
    """What a user should think about before the maps are used, a sentence each; none of it makes a run fail.

    Parameters
    ----------
    summary : Summary
        Of a whole scene, or of a sample.
    names : sequence of str
        Of the endmembers.
    sum_to_one : bool
        Whether abundances had to sum to one.
    most_delta : float
        The largest δ that counts as certified.
    culprits : sequence of str
        The endmembers that are nearly a mixture of each other, if any are.
    """
    if not summary.solved:
        return []
    found = []
    median, most = summary.percentile(0.5), summary.percentile(0.95)
    used = abundances_of(summary, names)
    if median > POOR:
        other = (
            ", `method` nnls, or a zero endmember for shade, if brightness varies"
            if sum_to_one
            else ", or check `scale`"
        )
        found.append(
            f"the fit is poor: relative RMSE {percent(median)} in the median pixel, {percent(most)} at 95 %: endmembers are missing "
            f"or are not this scene's; try another count or library{other}"
        )
    elif most > POOR_PART:
        found.append(
            f"a part of the scene is fitted poorly: relative RMSE {percent(median)} in the median pixel, but {percent(most)} at 95 %: "
            "an endmember may be missing there; the RMSE map shows where"
        )
    outside = max(used, key=lambda one: float(one["share_outside"]), default={"share_outside": 0.0})
    if sum_to_one and len(names) > 1 and outside["share_outside"] > MANY_OUTSIDE:
        found.append(
            f"{percent(outside['share_outside'])} of the pixels are {outside['name']} alone and fitted poorly: they lie outside "
            "of what the endmembers can mix; a zero endmember (shade) serves where they are darker, `method` nnls where they are "
            "brighter, too"
        )
    idle = [one["name"] for one in used if one["share_above_1_percent"] < UNUSED]
    if median <= POOR and idle and len(names) > 1:
        one = len(idle) == 1
        found.append(
            f"{some_of(idle, MOST_NAMED)} {'is' if one else 'are'} nearly unused: more than 1 % in less than {percent(UNUSED)} of "
            f"the pixels; leave {'it' if one else 'them'} out"
        )
    if not (math.isfinite(summary.worst_rmse) and all(math.isfinite(one["maximum"]) for one in used)):
        found.append(
            "some abundances or residuals are too large for the float32 of the maps; bring cube and library to one unit"
        )
    if summary.fit_certified:
        found.append(
            f"{summary.fit_certified} of {summary.solved} pixels are certified in their fit alone: their abundances are not pinned "
            f"down to {most_delta:g}"
            + (
                f", since {some_of(culprits, MOST_NAMED)} can hardly be told apart; merge them, or leave some out"
                if culprits
                else ""
            )
        )
    return found


def percent(share: float) -> str:
    """A share in per cent, to two digits where that is more than whole per cents."""
    if not math.isfinite(share):
        return "infinite"
    return f"{100 * share:.2g} %" if share < 0.0995 else f"{100 * share:.0f} %"


class Collector(logging.Handler):
    """Keep the warnings of one thread."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.thread, self.messages = threading.get_ident(), list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what is warned of."""
        if record.thread == self.thread and record.getMessage() not in self.messages:
            self.messages.append(record.getMessage())


@contextlib.contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """The warnings that this thread logs, in a list that grows."""
    log, collector = logging.getLogger("unmix"), Collector()
    log.addHandler(collector)
    try:
        yield collector.messages
    finally:
        log.removeHandler(collector)
