"""Measure the quality of extracted endmembers: their residuals in the scene, and the use of each."""

from typing import Any

import numpy as np

from ..errors import aligned
from ..library.spectra import angles_between
from .scan.searches import LOW, PER_UNIT
from .statistics import Moments
from .vca import Points, principal_of

# The columns of each endmember: title, key and form; a column is there where endmembers have the key.
COLUMNS = (
    ("at", "angle", "{:.2f}°"),
    ("leads in", "leads", "{:.2g} %"),
    ("1 in 1000 above", "largest", "{:.2f}"),
    ("beyond facet", "beyond", "{:.2g} %"),
    ("would be negative", "negative", "{:.2g} %"),
    ("found in parts", "found", "{:.0f} %"),
    ("spread", "spread", "{:.2f}°"),
)

# Standard deviations of noise by which a coordinate is below 0 where a pixel is outside of the simplex.
DEVIATIONS = 3.0
# Share of the pixels whose coordinate is below `largest`.
SHARE_BELOW_LARGEST = 0.999


def use_of(moments: Moments, points: Points, M: np.ndarray) -> dict[str, Any]:
    """Return how a scene uses the corners of a simplex, columns (1, z) of M (p, p), from its p − 1 components."""
    p, L = len(M), len(moments.mean)
    noise = float(np.sqrt(max(np.trace(moments.differences), 0.0) / L))
    U, inverse = principal_of(moments, p - 1), np.linalg.inv(M)
    of_noise = np.einsum("ki,ij,kj->k", inverse[:, 1:], U.T @ moments.differences @ U, inverse[:, 1:])
    # 1e-9: rounding, where there is no noise.
    limits = np.maximum(DEVIATIONS * np.sqrt(np.maximum(of_noise, 0.0)), 1e-9)

    bins, leads, beyond, both = points.count_use(inverse, limits)
    valid, outside = both.tolist()
    below = (np.cumsum(bins, axis=1) < SHARE_BELOW_LARGEST * valid).sum(axis=1)
    each = [
        {
            "leads": int(leads[k]) / valid,  # share of pixels with the largest coordinate of the corner
            "largest": round(LOW + (int(below[k]) + 0.5) / PER_UNIT, 3),  # one in 1000 exceeds it; near 1: pure
            "beyond": int(beyond[k]) / valid,  # share of pixels outside past the opposite facet
            "negative": int(bins[k, : int(-LOW * PER_UNIT)].sum()) / valid,  # share with it below 0
        }
        for k in range(p)
    ]
    # Well above 1 an endmember may be missing. Texture makes ``noise`` too large; ``outside`` is by `DEVIATIONS`.
    rest = float(np.sqrt(max(moments.left_by(p - 1), 0.0) / L))
    unexplained = rest / noise if noise > 0 else None
    return {"noise": noise, "unexplained": unexplained, "outside": outside / valid, "each": each}


def quality_of(E: np.ndarray, use: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the condition of endmembers (L, p) and the nearest other of each, besides ``use`` (`use_of`) if known."""
    singular = np.linalg.svd(E, compute_uv=False)
    condition = float(singular[0] / singular[-1]) if singular[-1] > 0 else None
    each = [{"nearest": j, "angle": angle} for j, angle in nearest_of(E)]
    if use is not None:
        each = [own | of_use for own, of_use in zip(each, use["each"])]
    return (use or {}) | {"condition": condition, "each": each}


def nearest_of(E: np.ndarray) -> list[tuple[int | None, float | None]]:
    """Return for each column of E (L, p) the index of the column at the smallest angle, and that angle in degrees."""
    if E.shape[1] == 1:
        return [(None, None)]
    apart = angles_between(E, E)
    np.fill_diagonal(apart, np.inf)
    return [(int(row.argmin()), float(np.degrees(row.min()))) for row in apart]


def said_of(names: tuple[str, ...], quality: dict[str, Any]) -> list[str]:
    """Return the quality of a set for people: a line about all, and a table of each."""
    words = []
    if quality.get("unexplained") is not None:
        words.append(
            f"{len(names) - 1} components leave {quality['unexplained']:.2g} times the noise of neighbouring pixels "
            "(much above 1, an "
            "endmember may be missing)"
        )
    if "outside" in quality:
        words.append(f"{100 * quality['outside']:.2g} % of the pixels outside of the simplex by more than that noise")
    condition = quality["condition"]
    words.append("dependent" if condition is None else f"cond(E) = {condition:.2g}")
    return ["; ".join(words), *aligned([heading(quality), *rows_of(names, quality)], 2)]


def columns_of(quality: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the columns that endmembers have numbers for."""
    return [one for one in COLUMNS if any(each.get(one[1]) is not None for each in quality["each"])]


def heading(quality: dict[str, Any]) -> list[str]:
    """Return the titles of the columns of `rows_of`."""
    return ["endmember", "nearest", *(title for title, _, _ in columns_of(quality))]


def rows_of(names: tuple[str, ...], quality: dict[str, Any]) -> list[list[str]]:
    """Return for each endmember its name, the nearest other one, and its numbers, in words."""
    rows = []
    for name, one in zip(names, quality["each"]):
        nearest = "" if one["nearest"] is None else names[one["nearest"]]
        numbers = []
        for _, key, form in columns_of(quality):
            value = one.get(key)
            numbers.append("" if value is None else form.format(100 * value if form.endswith("%") else value))
        rows.append([name, nearest, *numbers])
    return rows
