"""How good the model is, which no certificate of the optimum says: the fit, and what each endmember is used for."""

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..summary import PER_OCTAVE, THERE, Summary, edges

# A median relative RMSE above this is called poor, an endmember that is there in fewer pixels unused, and a corner that more pixels
# are nothing but a pile.
POOR, UNUSED, PILE = 0.10, 0.001, 0.5
MOST_NAMED = 5


def fit_of(summary: Summary) -> dict[str, Any]:
    """The fit, for ``run.json``: relative RMSE is |y − E a| over |y|; its percentiles are right to 2 %."""
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
    if summary.sums is None or summary.most is None or summary.there is None or summary.corner is None:
        return []
    solved = max(1, summary.solved)
    return [
        {
            "name": name,
            "mean": float(summary.sums[j]) / solved,
            "maximum": float(summary.most[j]),
            "share_above_1_percent": int(summary.there[j]) / solved,
            "share_above_99_percent": int(summary.corner[j]) / solved,
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
        The endmembers that are nearly a mixture of each other.
    """
    if not summary.solved:
        return []
    found = []
    median = summary.percentile(0.5)
    if median > POOR:
        other = "--method nnls if brightness varies" if sum_to_one else "a shade endmember"
        found.append(
            f"the fit is poor: relative RMSE {percent(median)} in the median pixel, {percent(summary.percentile(0.95))} at 95 %: "
            f"endmembers are missing or are not this scene's; try another count or library, or {other}"
        )
    used = abundances_of(summary, names)
    idle = [one["name"] for one in used if one["share_above_1_percent"] < UNUSED]
    if idle and len(names) > 1:
        found.append(
            f"{listed(idle)} {'is' if len(idle) == 1 else 'are'} nearly unused: above {THERE:.0%} in less than {UNUSED:.1%} of the "
            f"pixels; leave {'it' if len(idle) == 1 else 'them'} out"
        )
    piles = [one for one in used if one["share_above_99_percent"] > PILE]
    if piles and len(names) > 1:
        share = percent(piles[0]["share_above_99_percent"])
        remedy = (
            "shade may be missing (a zero endmember, or --method nnls)" if sum_to_one else "check scale and library"
        )
        found.append(
            f"{piles[0]['name']} alone is more than 99 % of {share} of the pixels, which lie outside of what the endmembers "
            f"can mix; {remedy}"
        )
    if summary.fit_certified:
        found.append(
            f"{summary.fit_certified} of {summary.solved} pixels are certified in their fit alone: their abundances are not pinned "
            f"down to {most_delta:g}, since endmembers are nearly mixtures of each other: {listed(culprits)} first of all; "
            "merge them, or leave some out"
        )
    return found


def listed(names: Sequence[str]) -> str:
    """The first few of some names."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def percent(share: float) -> str:
    """A share in per cent, to two digits."""
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:.0f} %"


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
