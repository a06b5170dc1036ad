"""Judge a scene's proved ranges: where zero cannot be excluded, and which classes cannot be told apart."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...io.fields import NODATA
from ...runs.record.fit import in_percent

# A class may be much of a pixel where its upper end is above this part of a whole: of 1, or where abundances sum to
# another unit, such as counts, of the sum that one pixel in twenty exceeds.
MUCH, NEAR_ONE = 0.1, (0.5, 2.0)
# The least share of the pixels in which two classes cannot be told apart, for the record; and how many pairs and
# classes are said.
LEAST_SHARE, MOST_SAID = 0.05, 3


def ranges_of(values: np.ndarray, names: Sequence[str], limit: str) -> dict[str, Any]:
    """Return run.json's record of ``STEM_range``, values (lines, bands, samples): each class's lower and upper end."""
    # each: the share of the pixels in which a class may be absent, and its mean width; alike: pairs of classes, with
    # the share of the pixels in which each may be absent and each above `MUCH`.
    k = len(names)
    much = MUCH * whole_of(values)
    absent, width, alike, known = np.zeros(k), np.zeros(k), np.zeros((k, k)), 0
    for line in values:
        lower, upper = line[0::2], line[1::2]
        has_range = lower[0] != np.float32(NODATA)
        lower, upper = lower[:, has_range], upper[:, has_range]
        may_be_absent = lower == 0
        absent, width = absent + may_be_absent.sum(axis=1), width + (upper - lower).sum(axis=1, dtype=float)
        either = (may_be_absent & (upper > much)).astype(float)
        alike, known = alike + either @ either.T, known + lower.shape[1]
    share = alike / max(1, known)
    pairs = [(float(share[i, j]), i, j) for i in range(k) for j in range(i) if share[i, j] >= LEAST_SHARE]
    each = [
        {"name": name, "absent": float(a / max(1, known)), "width": float(w / max(1, known))}
        for name, a, w in zip(names, absent, width)
    ]
    found = [{"names": [names[j], names[i]], "share": s} for s, i, j in sorted(pairs, key=lambda pair: -pair[0])]
    return {"limit": limit, "each": each, "alike": found, "said": said_of_ranges(limit, each, found, known, much)}


def whole_of(values: np.ndarray) -> float:
    """Return what the middles of a pixel's ranges sum to (lines, bands, samples): 1, or another unit's whole."""
    sums = np.concatenate([line.sum(axis=0)[line[0] != np.float32(NODATA)] / 2 for line in values])
    whole = float(np.percentile(sums, 95)) if len(sums) else 1.0
    return 1.0 if not whole > 0 or NEAR_ONE[0] < whole < NEAR_ONE[1] else whole


def said_of_ranges(
    limit: str, each: Sequence[dict[str, Any]], alike: Sequence[dict[str, Any]], known: int, much: float
) -> str:
    """Explain the ranges of a scene, which ``known`` pixels have, in a sentence."""
    if not known:
        return f"ranges (STEM_range, {limit}): no pixel has any"
    doubtful = sorted(each, key=lambda one: -one["absent"])[:MOST_SAID]
    parts = [f"{one['name']} in {in_percent(one['absent'])} (mean width {one['width']:.2g})" for one in doubtful]
    more = f", for the other {len(each) - len(doubtful)} no more often" if len(each) > len(doubtful) else ""
    said = f"ranges (STEM_range, {limit}): zero cannot be excluded for {', '.join(parts)} of the pixels{more}"
    pairs = [f"{' and '.join(one['names'])} ({in_percent(one['share'])} of the pixels)" for one in alike[:MOST_SAID]]
    if not pairs:
        return said
    return f"{said}; each may be absent or above {much:.3g}, so that they cannot be told apart: {', '.join(pairs)}"
