"""Advice from the mean residual over wavelengths: a shift of the scene's axis, a step between two detectors, windows of water vapour,
and single bands that stand out.
"""

from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ...scene.bands import WATER, windows_of
from ...summary import POOR, Summary
from .fit import in_percent

# Fewest bands that are looked at.
FEWEST_BANDS = 30
# The mean residual must be larger than this share of the scene's values, as root mean squares over the bands.
LEAST_RESIDUAL = 0.002
# The share of the squares of the mean residual that a shift must explain, and the least shift, in spacings of the bands.
LEAST_EXPLAINED, LEAST_SHIFT = 0.5, 0.1
# A step between two neighbours: by how many medians of all differences of neighbours it exceeds them, and how many times the largest of
# the `SIDE` ones on either side; and its least size, as a share of the scene's values.
STEP_STANDS_OUT, ABOVE_OTHERS, SIDE, LEAST_STEP = 8.0, 3.0, 4, 0.01
# Neighbours farther apart than this many usual spacings have a gap between them: nothing is said across gaps.
GAP = 2.5


def said_of_axis(summary: Summary, E: np.ndarray, waves: np.ndarray | None) -> Iterator[str]:
    """Yield advice on a shift of the wavelengths and on a step between detectors, where the mean residual shows one.

    Parameters
    ----------
    summary : Summary
    E : array (L, p), float64
        The endmembers; the mean of the models is that of the mean abundances.
    waves : array (L,) or None
        Wavelengths of the bands in use, nm.
    """
    if waves is None or summary.residuals is None or summary.sums is None or summary.residuals.shape[1] != len(waves):
        return
    _, means, squares = summary.residuals / max(1, summary.sampled)
    model = E @ summary.sums if E.shape == (len(waves), len(summary.sums)) else np.zeros(len(waves))
    size = float(np.sqrt(squares.mean()))
    if len(waves) < FEWEST_BANDS or not (np.isfinite(means).all() and np.isfinite(model).all() and model.any()):
        return
    if not np.sqrt(np.square(means).mean()) > LEAST_RESIDUAL * size:
        return
    order = np.argsort(waves, kind="stable")
    waves, means, model = waves[order], means[order], model[order]
    model = model * size / np.sqrt(np.square(model).mean())
    spacing = float(np.median(np.diff(waves)))
    shift = shift_of(waves, means, model, spacing)
    if shift is not None:
        word = "small" if shift > 0 else "large"
        yield (
            f"the mean residual is that of wavelengths {abs(shift):.2g} nm too {word}: compare scene and library with a known "
            "absorption; `wavelengths` names others"
        )
        return
    at = step_between_detectors(waves, means, model, spacing, size)
    if at is not None:
        yield (
            f"the mean residual has a step at {waves[at]:.5g} nm, as between two detectors: their calibration, or bands of one "
            "(`ignore_nm`), may need care"
        )


def shift_of(waves: np.ndarray, means: np.ndarray, model: np.ndarray, spacing: float) -> float | None:
    """Return by how many nm the wavelengths of a scene are too small, as the mean residual says; None where it does not.

    Values at λ + δ that are taken for those at λ leave δ times the derivative of the spectrum.
    """
    near = np.diff(waves) <= GAP * spacing
    inside = np.concatenate([[False], near[:-1] & near[1:], [False]]) if len(near) > 1 else np.zeros(len(waves), bool)
    inside &= np.gradient(waves) > 0
    slope = np.zeros(len(waves))
    slope[1:-1] = (model[2:] - model[:-2]) / np.where(waves[2:] > waves[:-2], waves[2:] - waves[:-2], np.inf)
    d, r = slope[inside], means[inside]
    if len(r) < FEWEST_BANDS or not d.any():
        return None
    shift = float(r @ d / (d @ d))
    explained = 1.0 - float(np.square(r - shift * d).sum() / np.square(r).sum())
    return shift if explained >= LEAST_EXPLAINED and abs(shift) >= LEAST_SHIFT * spacing else None


def step_between_detectors(
    waves: np.ndarray, means: np.ndarray, model: np.ndarray, spacing: float, size: float
) -> int | None:
    """Return the first band after a step of the mean residual; None where it has none.

    Where the spectra themselves change more, as at the red edge of vegetation, a step says nothing of detectors.
    """
    steps, of_model = np.abs(np.diff(means)), np.abs(np.diff(model))
    steps[np.diff(waves) > GAP * spacing] = 0.0
    steps[: SIDE - 1] = steps[-(SIDE - 1) :] = 0.0  # at the ends of an axis much else goes wrong
    best = int(steps.argmax())
    around = np.concatenate([steps[max(0, best - SIDE) : best], steps[best + 1 : best + 1 + SIDE]])
    least = max(
        STEP_STANDS_OUT * float(np.median(steps)),
        ABOVE_OTHERS * float(around.max()),
        LEAST_STEP * size,
        float(of_model[best]),
    )
    stays = (
        abs(float(means[best + 1 : best + 1 + SIDE].mean() - means[best + 1 - SIDE : best + 1].mean()))
        > steps[best] / 2
    )
    return best + 1 if steps[best] > least and stays else None


# The windows of water vapour are to blame where the relative RMSE of all bands is above `POOR`, and without them at most this part of
# it: of a NEON scene with them 0.31 (48 and 15 %); of sound scenes 0.77 to 1, with 7 % at most.
LESS_WITHOUT_WATER = 0.5
# A band stands out where its RMS is this many times the median of eight neighbours (3 to 6 bands away) and more than `POOR` of its
# signal: in sound scenes of AVIRIS and EnMAP the largest was 8.2.
STANDS_OUT = 10.0


def median_around(values: np.ndarray) -> np.ndarray:
    """Return the median of the neighbours 3 to 6 places away of each of more than 6 values, (n,)."""
    around = sliding_window_view(np.pad(values, 6, constant_values=np.nan), 13)[:, [0, 1, 2, 3, 9, 10, 11, 12]]
    ordered, count = np.sort(around, axis=1), np.isfinite(around).sum(axis=1)  # NaN, beyond the ends, are last
    rows = np.arange(len(values))
    return np.asarray((ordered[rows, (count - 1) // 2] + ordered[rows, count // 2]) / 2)


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
                f"bands of water vapour hold {in_percent(float(squares[wet].sum() / squares.sum()))} of the squared residual, without "
                f"them the relative RMSE is {in_percent(dry)}: `ignore_nm` water leaves them out"
            )
    rms = np.sqrt(squares)
    if len(rms) <= 12:
        return water, None
    far = np.flatnonzero(~wet & (rms > STANDS_OUT * median_around(rms)) & (squares > POOR**2 * of_scene))
    if not len(far):
        return water, None
    if waves is None:
        what, flag = ", ".join(str(bands[b]) for b in far), "`bands`"
    else:
        what = ", ".join(f"{bands[b]} ({waves[b]:.5g} nm)" for b in far)
        flag = "`ignore_nm` " + ",".join(f"{waves[b] - 0.01:.2f}-{waves[b] + 0.01:.2f}" for b in far)
    return (
        water,
        f"the residual of band {what} is more than {STANDS_OUT:g} times its neighbours': leave out with {flag}",
    )
