"""Advice from the residuals of bands: windows of water vapour, and single bands that stand out."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ...io import counted, in_ranges
from ...scene.bands import WATER, windows_of
from ...scene.signal import FAR_BELOW, dim_bands
from ...summary import POOR, Summary
from .fit import in_percent

# The windows of water vapour are to blame where the relative RMSE of all bands is above `POOR`, and without them at
# most this part of it: the part was 0.31 (15 over 48 %) in a NEON scene, 0.77 to 1 in sound ones.
LESS_WITHOUT_WATER = 0.5
# A band stands out where its RMS is this many times the median of eight neighbours (3 to 6 bands away) and more than
# `POOR` of its signal: in sound scenes of AVIRIS and EnMAP the largest was 8.2.
STANDS_OUT = 10.0
# How many times its neighbours' the median pixel's residual of such a band is, at least: spikes are of few pixels.
MEDIAN_STANDS_OUT = 3.0
# The most bands that are named: more are rather spikes of single pixels (cosmic rays) than faulty bands.
MOST_NAMED = 5


def median_around(values: np.ndarray) -> np.ndarray:
    """Return the median of the neighbours 3 to 6 places away of each of more than 6 values, (n,)."""
    around = sliding_window_view(np.pad(values, 6, constant_values=np.nan), 13)[:, [0, 1, 2, 3, 9, 10, 11, 12]]
    ordered, count = np.sort(around, axis=1), np.isfinite(around).sum(axis=1)  # NaN, beyond the ends, are last
    rows = np.arange(len(values))
    return np.asarray((ordered[rows, (count - 1) // 2] + ordered[rows, count // 2]) / 2)


def said_of_bands(
    summary: Summary,
    bands: np.ndarray,
    waves: np.ndarray | None,
    usual: np.ndarray | None = None,
    are_told: bool = False,
) -> tuple[str | None, str | None]:
    """Return advice on water vapour and on single bands by residuals, None without a fault; ``bands`` are from 1."""
    # ``usual`` (L,) are the residuals of the median pixel, where they are known; ``are_told``: see `Seen`.
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
                f"bands of water vapour hold {in_percent(float(squares[wet].sum() / squares.sum()))} of the squared "
                "residual, without "
                f"them the relative RMSE is {in_percent(dry)}: `ignore_nm` water leaves them out"
            )
    rms = np.sqrt(squares)
    if len(rms) <= 12:
        return water, None
    dim = dim_bands(np.sqrt(of_scene))
    if dim.any() and not are_told:
        what = f"{counted(int(dim.sum()), 'band')} in use {FAR_BELOW}: {in_ranges((bands[dim] - 1).tolist())}"
        return water, f"{what}; `bands` auto leaves such bands out"
    is_far = ~wet & (rms > STANDS_OUT * median_around(rms)) & (squares > POOR**2 * of_scene)
    if usual is not None and len(usual) == len(rms):
        is_far &= usual > MEDIAN_STANDS_OUT * median_around(usual)
    far = np.flatnonzero(is_far)
    if not len(far):
        return water, None
    if len(far) > MOST_NAMED:
        some = ", ".join(str(bands[b]) for b in far[:MOST_NAMED])
        return (
            water,
            f"the residuals of {len(far)} bands ({some}, …) are more than {STANDS_OUT:g} times their neighbours': spikes "
            "of single pixels, or bands to leave out",
        )
    if waves is None:
        what, flag = ", ".join(str(bands[b]) for b in far), "`bands`"
    else:
        what = ", ".join(f"{bands[b]} ({waves[b]:.5g} nm)" for b in far)
        half = min(0.01, 0.4 * float(np.diff(np.sort(waves)).min()))
        flag = "`ignore_nm` " + ",".join(f"{waves[b] - half:.7g}-{waves[b] + half:.7g}" for b in far)
    return (
        water,
        f"the residual of band {what} is more than {STANDS_OUT:g} times its neighbours': leave out with {flag}",
    )
