"""Warn of compared maps that are in another order, no shares, of endmembers of their own, or differ all over."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...io import counted
from ...runs.files.finished import stem_of_outputs
from .array_maps import in_other_order
from .sides import Side

log = logging.getLogger("unmix")
# The part of the RMSE, at most, that a map leaves in another order of pixels where that order is named.
OTHER_ORDER = 0.8
# The part of the RMSE of two dates that a mean difference has where they differ all over; the most pairs said.
MOST_SHARED, MOST_SAID = 0.8, 3
# A mean difference below this part of a pixel's noise is not looked at.
OF_NOISE = 0.25
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
    rest = []
    for side, own, alone in zip((one, other), means, (found["only_a"], found["only_b"])):
        rest.append(sum(mean for name, mean in zip(side.names, own) if name in alone))
        if alone and abs(rest[-1]) > ONE:
            log.warning(
                f"{side.path}: {counted(len(alone), 'map')} without a partner: {rest[-1]:.2g} of it in the mean, which RMSE and "
                "SRE leave out"
            )
    sums = [sum(own) for own in means]
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


def warn_of_dates(one: Side, other: Side, rows: Sequence[dict[str, Any]]) -> None:
    """Warn where two dates differ by nearly the same in all pixels, as places hardly do, or have endmembers of their own."""
    all_over = [row for row in rows if differs_all_over(row)]
    if all_over:
        named = ", ".join(f"{row['a']} by {row['mean_difference']:+.3f}" for row in all_over[:MOST_SAID])
        log.warning(
            f"{one.path}, {other.path}: differ all over, {named}: by light, haze, season or calibration, unless all of "
            "it changed; compare with ground that did not"
        )
    angles = [row["angle"] for row in rows if row["angle"] is not None]
    if angles and max(angles) > SAME_SPECTRA:
        library = f"{stem_of_outputs(other.path)}_endmembers.csv"
        log.warning(
            f"{one.path}, {other.path}: have endmembers of their own, up to {max(angles):.1f}° apart, which passes for "
            f"change: unmix both with `endmembers` {library}"
        )


def differs_all_over(row: dict[str, Any]) -> bool:
    """Return whether two dates differ by nearly the same in all pixels, but for noise where that is known."""
    mean, noise = abs(row["mean_difference"]), row.get("variance") or 0.0
    apart = max(row["rmse"] ** 2 - noise, mean**2) ** 0.5
    return bool(mean > MOST_SHARED * apart and mean > OF_NOISE * noise**0.5)


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
                "the other order (NumPy's is line by line, MATLAB's column by column)"
            )
