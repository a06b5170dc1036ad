"""Warn of compared maps that are in another order, no shares, of endmembers of their own, or differ all over."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...io import counted
from ...library import OF_LIGHT
from ...runs.files.finished import stem_of_outputs
from ...scene.signal import usual_deviation
from .array_maps import in_other_order
from .sides import Side

log = logging.getLogger("unmix")
# The part of the RMSE, at most, that a map leaves in another order of pixels where that order is named.
OTHER_ORDER = 0.8
# The part of the usual difference of two dates that their median has where they differ all over; the most pairs said;
# the least that is said.
MOST_SHARED, MOST_SAID, LEAST_SAID = 0.8, 4, 0.001
# A median difference below this part of the noise of a tile is not looked at; tiles wanted, and the longest side of one.
OF_NOISE, TILES, LARGEST_TILE = 0.25, 256, 8
# How far from 1 the sum of shares may be, in the mean.
ONE = 0.02
# Degrees up to which two spectra are the same but for rounding.
SAME_SPECTRA = 0.01
# Values beyond these are likely no shares.
LEAST_SHARE, LARGEST_SHARE = -1.0, 2.0


def warn_of_maps(
    one: Side,
    other: Side,
    found: dict[str, Any],
    means: Sequence[Sequence[float]],
    rmse_of: Callable[[Side, Side], float],
) -> None:
    """Warn of maps in another order of pixels or without a partner, and of values that are no shares."""
    # ``found`` is the result of `compare`, ``means`` those of all maps of either side.
    warn_of_order(one, other, found["rmse"], rmse_of)
    crossed = [
        row for row in found["pairs"] if row["a"] in other.names and row["b"] in one.names and row["a"] != row["b"]
    ]
    if crossed and found["matched_by"] == "abundances":
        log.warning(
            f"{one.path}, {other.path}: maps are matched by their values, as {crossed[0]['a']} with {crossed[0]['b']}: if "
            "names mean the same in both, errors are larger; put the spectra beside, as x_truth_endmembers.csv"
        )
    rest = []
    for side, own, names in zip((one, other), means, (found["only_a"], found["only_b"])):
        alone = [name for name in names if name not in OF_LIGHT]
        rest.append(sum(mean for name, mean in zip(side.names, own) if name in alone))
        if alone and abs(rest[-1]) > ONE:
            log.warning(
                f"{side.path}: {counted(len(alone), 'map')} without a partner: {rest[-1]:.2g} of it in the mean, which RMSE and "
                "SRE leave out"
            )
    for side, beside in ((one, other), (other, one)):
        kinds = set(side.spectra.classes or ()) if side.spectra is not None else set()
        if len(kinds & {*beside.names}) > 1:
            log.warning(f"{beside.path}: its maps have the names of classes of {side.path}: `by` class compares these")
    sums = [sum(m for n, m in zip(side.names, own) if n not in OF_LIGHT) for side, own in zip((one, other), means)]
    off = [abs(total - 1.0) for total in sums]
    if not np.any(np.abs(rest) > ONE) and min(off) < ONE < 5 * ONE < max(off) < LARGEST_SHARE:
        log.warning(
            f"{one.path}, {other.path}: sum to {sums[0]:.2g} and {sums[1]:.2g} in the mean: one does not hold shares "
            "(of a run: `normalize` sum)"
        )
    for side, (low, high), per_cent in zip((one, other), found["values"].values(), ("100,1", "1,100")):
        if not side.report and (low < LEAST_SHARE or high > LARGEST_SHARE):
            scale = "100" if one.report or other.report else per_cent
            log.warning(
                f"{side.path}: values from {low:g} to {high:g} are taken for shares; "
                f"`nodata` {low:g} if that is fill, `scale` {scale} if per cent, `legend` if classes"
            )


def warn_of_dates(one: Side, other: Side, rows: Sequence[dict[str, Any]], D: np.ndarray) -> None:
    """Warn of two dates that differ by the same nearly everywhere, as places hardly do, or of endmembers of their own."""
    # ``D`` (n, m, pairs) are differences in the middle, NaN where there is none: their medians, since a part may change.
    found = [(row["a"], shift_all_over(row, D[..., k])) for k, row in enumerate(rows)]
    named = [f"{name} by {by:+.3f}" for name, by in found if by and name not in OF_LIGHT]
    light = [f"{name} by {by:+.3f}" for name, by in found if by and name in OF_LIGHT]
    if named:
        log.warning(
            f"{one.path}, {other.path}: differ all over, {', '.join([*named[:MOST_SAID], *light])}: by light, haze, "
            "season or calibration, unless all of it changed; compare with ground that did not"
        )
    elif light:
        log.info(f"{one.path}, {other.path}: differ in light, {light[0]}; fractions do not differ all over")
    angles = [row["angle"] for row in rows if row["angle"] is not None]
    if angles and max(angles) > SAME_SPECTRA:
        library = f"{stem_of_outputs(other.path)}_endmembers.csv"
        log.warning(
            f"{one.path}, {other.path}: have endmembers of their own, up to {max(angles):.1f}° apart, which passes for "
            f"change: unmix both with `endmembers` {library}"
        )


def shift_all_over(row: dict[str, Any], D: np.ndarray) -> float:
    """Return the median of differences (n, m) that nearly all places share, but for noise where that is known; else 0."""
    # Means of tiles have less noise, and tell smaller shifts.
    high, wide = (max(1, min(int(np.sqrt(D.size / TILES)), LARGEST_TILE, size)) for size in D.shape)
    lines, samples = D.shape[0] // high, D.shape[1] // wide
    tiles = D[: lines * high, : samples * wide].reshape(lines, high, samples, wide)
    known = np.isfinite(tiles).sum(axis=(1, 3))
    most = 2 * known > high * wide
    d = np.nansum(tiles, axis=(1, 3))[most] / known[most]
    if not len(d):
        return 0.0
    by, noise = float(np.median(d)), (row.get("variance") or 0.0) / (high * wide)
    apart = max(usual_deviation(d) ** 2 + by**2 - noise, by**2) ** 0.5
    return by if abs(by) > max(MOST_SHARED * apart, OF_NOISE * noise**0.5, LEAST_SAID) else 0.0


def warn_of_order(one: Side, other: Side, rmse: float, rmse_of: Callable[[Side, Side], float]) -> None:
    """Warn of an array that fits the other map better with its pixels in the other order."""
    for k, side in enumerate((one, other)):
        turned = in_other_order(side.cube) if side.grid is None else None
        sides = [one, other]
        sides[k] = side if turned is None else replace(side, cube=turned)
        better = rmse if turned is None else rmse_of(*sides)
        if better < OTHER_ORDER * rmse:
            log.warning(
                f"{side.path}: RMSE {rmse:.3g}, but {better:.3g} with lines and samples exchanged: save its pixels in "
                "the other order (NumPy's is line by line, MATLAB's column by column), or name it, `dataset` NAME:xyb"
            )
