"""Sections of a run's page that show spectra: of endmembers, residuals, and pixels."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..runs.files.finished import FinishedRun
from .charts import GAP, lines
from .colours import GREY, hex_of, own_or_ours
from .parts import keys, percent, table, text

# Columns of the table of endmembers; the last three only for extracted ones.
COLUMNS = (
    "endmember", "class", "pixel", "mean", "largest", "above 1 %", "nearest other", "leads in", "pixels beyond the facet opposite",
)  # fmt: skip
# The most endmembers or classes whose maps and spectra are shown: those with the largest means.
MOST_SHOWN = 48


def spectra_section(run: FinishedRun) -> str:
    """Return the endmembers' spectra with gaps at bands that are not in use, and where each is from."""
    library, used = run.endmembers(), np.asarray(run.report.get("bands_used", []))
    by_name = {one.get("name"): one for one in run.report.get("abundances", [])}
    shown = list(range(len(library.names)))
    if len(shown) > MOST_SHOWN:
        shown = sorted(shown, key=lambda j: -float(by_name.get(library.names[j], {}).get("mean") or 0.0))[:MOST_SHOWN]
    every = own_or_ours(library.colors, len(library.names))
    colours = [every[j] for j in shown]
    chart = chart_of(run, library.matrix[:, shown], [library.names[j] for j in shown], colours)
    pixels = run.report.get("endmembers", {}).get("pixels") or [None] * len(library.names)
    quality = run.report.get("endmembers", {}).get("quality") or {}
    simplex = run.report.get("endmembers", {}).get("simplex") or {}
    rows = []
    for k, j in enumerate(shown):
        numbers = cover(by_name.get(library.names[j], {})) + alike(quality, library.names, j)
        place = f"line {int(pixels[j][0])}, sample {int(pixels[j][1])}" if j < len(pixels) and pixels[j] else ""
        kind = library.classes[j] if library.classes else ""
        rows.append([keys([colours[k]], [library.names[j]]), text(kind), place, *numbers])
    left_out = len(library.names) - len(shown)
    more = f"<p>These have the largest means; {left_out} more are in STEM_endmembers.csv.</p>" if left_out > 0 else ""
    source = text(run.report.get("endmembers", {}).get("source", ""))
    return (
        f"<h2>Endmembers</h2>{chart}<p class=quiet>{source}; {len(used)} bands in use{left_by(quality)}</p>{other_set(simplex)}"
        f"{table(COLUMNS if quality else COLUMNS[:6], rows, 3)}{more}"
    )


def chart_of(
    run: FinishedRun, values: np.ndarray, names: Sequence[str], colours: Sequence[str], what: str = "spectra of the endmembers",
    labelled: bool = True, what_values: str = "value", dotted: Sequence[int] = (),
) -> str:  # fmt: skip
    """Return values of the bands in use (L, p) as lines, cut at bands that are not; see `unmix.pages.charts.lines` for the rest."""
    count, waves = len(values), run.endmembers().wavelengths
    if waves is not None and len(waves) != count:
        waves = None
    at = np.arange(1.0, count + 1) if waves is None else waves
    spacing = float(np.median(np.abs(np.diff(at)))) if count > 1 else 1.0
    axis = "band" if waves is None else "wavelength (nm)"
    return lines(at, values, names, colours, axis, GAP * spacing, what, labelled, values=what_values, dotted=dotted)


def residual_section(run: FinishedRun) -> str:
    """Return the residual of each band: the root mean square and the mean of ``y − E a`` over the pixels looked at."""
    found = run.report.get("residual_by_band")
    if not found or not found["rms"]:
        return ""
    values = np.column_stack([found["rms"], found["mean"], np.zeros(len(found["rms"]))])
    colours, names = [hex_of(1), hex_of(2), GREY], ["root mean square", "mean", "0"]
    chart = chart_of(run, values, names, colours, "residual of each band", what_values="residual")
    said = f"{keys(colours, names[:2])} of y − E a, over {found['pixels']} pixels"
    return f"<h2>Residual of each band</h2>{chart}<p class=quiet>{said}</p>"


def alike(quality: dict[str, Any], names: Sequence[str], j: int) -> list[str]:
    """Return an extracted endmember's cells: the nearest other one, and the shares of pixels that it leads and beyond its facet."""
    if not quality or j >= len(quality["each"]):
        return [""] * (len(COLUMNS) - 6) if quality else []
    one = quality["each"][j]
    near = "" if one["nearest"] is None else f"{one['angle']:.2f}° {text(names[int(one['nearest'])])}"
    return [near, *("" if one.get(key) is None else percent(one[key]) for key in ("leads", "beyond"))]


def left_by(quality: dict[str, Any]) -> str:
    """Return words on the residual of a scene for its extracted endmembers."""
    if quality.get("unexplained") is None:
        return ""
    return (
        f"; the components they span leave {quality['unexplained']:.2g} times the noise of neighbouring pixels; "
        f"{percent(quality['outside'])} of the pixels are outside of their simplex by more than that"
    )


def other_set(simplex: dict[str, Any]) -> str:
    """Return a sentence on the set of endmembers that was not taken, and how far its fractions are."""
    others = [name for name in simplex.get("sets", {}) if name != simplex.get("by")]
    if not others or simplex.get("differ") is None:
        return ""
    how = "explains the scene as well" if simplex.get("close") else "explains the scene less well"
    return f"<p>Another set of spectra, by {text(others[0])}, {how}: its fractions differ by {simplex['differ']:.2g} on average.</p>"


def cover(one: dict[str, Any]) -> list[str]:
    """Return mean, largest abundance and share of pixels above 1 %, as far as they are known."""
    forms = {"mean": "{:.3f}".format, "maximum": "{:.3f}".format, "share_above_1_percent": percent}
    return ["" if one.get(key) is None else form(one[key]) for key, form in forms.items()]
