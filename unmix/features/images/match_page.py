"""The page of `match`: nearest spectra, their distances and clarity, and each spectrum beside its pixels' mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...io.fields import NODATA
from ...library.matching import Comparable
from ...pages import BLOCK_BYTES, MAGMA, Canvas, MapView, colour_of, hex_of, png, ramp, thinned_lines
from ...pages.parts import GAP, document, embedded, figure, legend, lines, percent, ramps, table, text

# Longest sides of the map of spectra, and of the maps of distances; spectra that have a colour of their own (a byte
# numbers them, none, the others and what is masked), rows of the table, and spectra that are drawn: those of the most
# pixels.
SIDE, DISTANCE_SIDE, MOST_COLOURED, MOST_ROWS, MOST_DRAWN = 640, 400, 252, 48, 12
OTHERS, MASKED = 253, 255
GREY = 136
# Share of the distances, in percent, up to which their colours are spread.
SPREAD = 98.0
# Shares of unclear pixels from which on the outcome is fair, and poor.
FAIR, POOR = 0.2, 0.5


@dataclass(frozen=True)
class Matched:
    """Holds the outcome of `match` for its page.

    Attributes
    ----------
    scene, library : str
        Their names.
    spectra : sequence of dict
        ``number``, ``name``, ``class``, ``pixels`` and ``mean_distance`` of each that can be compared.
    none, unclear : int
        Pixels without a name; and named pixels to which another spectrum is nearly as near.
    known : Comparable
    means : array (K + 1, L)
        The mean of the pixels without a name, then of pixels nearest to each spectrum; NaN where there are none.
    image : array (lines, 3, samples), float32
        Number, distance, and distance of the next; `NODATA` where masked.
    unit : str
        Of distances.
    """

    scene: str
    library: str
    spectra: Sequence[dict[str, Any]]
    none: int
    unclear: int
    known: Comparable
    means: np.ndarray
    image: np.ndarray
    unit: str


def match_page(found: Matched) -> str:
    """Return the page."""
    ranked = sorted((one for one in found.spectra if one["pixels"]), key=lambda one: -one["pixels"])
    # Colours are those of the classification, up to `MOST_COLOURED` spectra.
    coloured = sorted(one["number"] for one in ranked[:MOST_COLOURED])
    colour_numbers = {number: k for k, number in enumerate(coloured, 1)}
    views = distance_views(found.image)
    colours = ramp(MAGMA)
    captions = (f"to the nearest spectrum{found.unit}", f"that the next one is farther{found.unit}: dark is unclear")
    figures = "".join(
        f"<div>{figure(view, colours, caption)}{legend(colours, '0', f'{view.high:.3g}')}</div>"
        for view, caption in zip(views, captions)
    )
    picture = (
        f'<figure><img src="{embedded(map_of_matches(found.image[:, 0], colour_numbers))}" alt="map of the nearest '
        'spectra">'
        "<figcaption>black: no name; clear: no data</figcaption></figure>"
    )
    body = "\n".join(
        [
            f"<h1>{text(found.scene)}</h1>",
            f'<p class="quiet">each pixel by the nearest spectrum of {text(found.library)}</p>',
            said_of_match(found, len(ranked)),
            f'<div class="top">{picture}<div class="maps">{figures}</div></div>',
            f"<h2>Spectra</h2>{counts_table(found, ranked, colour_numbers)}",
            drawn(found, ranked[:MOST_DRAWN]),
        ]
    )
    return document(f"{text(found.scene)} – unmix match", body + ramps(MAGMA), "values.js")


def said_of_match(found: Matched, several: int) -> str:
    """Return the outcome in words."""
    named = sum(one["pixels"] for one in found.spectra)
    parts = [
        f"<strong>{named} of {named + found.none} pixels have a name</strong>, of {several} of {len(found.spectra)} "
        "spectra."
    ]
    share, word = found.unclear / max(1, named), " poor"
    if named:
        word = " poor" if share >= POOR else " fair" if share >= FAIR else ""
        parts.append(
            f"For {percent(share)} of these another spectrum is nearly as near (at most 10 % farther): look at both."
        )
    return f'<div class="verdict{word}"><p>{"</p><p>".join(parts)}</p></div>'


def map_of_matches(numbers: np.ndarray, colour_numbers: dict[int, int]) -> bytes:
    """Return the map of numbers of spectra (lines, samples) as a picture, thinned."""
    rows, columns = thinned_lines(len(numbers), numbers.shape[1], SIDE)
    shown = numbers[rows, columns]
    is_masked = shown == np.float32(NODATA)
    shown = np.where(is_masked, 0, shown).astype(int)
    places = np.full(int(shown.max(initial=0)) + 1, OTHERS, np.uint8)
    places[0] = 0
    for number, k in colour_numbers.items():
        if number < len(places):
            places[number] = k
    palette = np.full((256, 4), GREY, np.uint8)
    palette[: MOST_COLOURED + 1, :3] = [colour_of(k) for k in range(MOST_COLOURED + 1)]
    palette[:, 3] = 255
    palette[MASKED, 3] = 0
    return png(np.where(is_masked, np.uint8(MASKED), places[shown]), palette)


def distance_views(image: np.ndarray) -> list[MapView]:
    """Return views of the distance, and of how much farther the next spectrum is."""
    lines_, _, samples = image.shape
    canvas = Canvas(lines_, samples, DISTANCE_SIDE)
    thin = image[canvas.shown][:, :, canvas.columns]
    views = [
        canvas.view(name, 0.0, high_of(values, thin[:, 1]))
        for name, values in (("distance", thin[:, 1]), ("lead", thin[:, 2] - thin[:, 1]))
    ]
    for first in range(0, lines_, block := max(1, BLOCK_BYTES // (12 * samples))):
        part = np.asarray(image[first : first + block])
        has_value = part[:, 1] >= 0
        for view, values, present in (
            (views[0], part[:, 1], has_value),
            (views[1], part[:, 2] - part[:, 1], has_value & (part[:, 2] >= 0)),
        ):
            canvas.add(view, first, values, present)
    return views


def high_of(values: np.ndarray, distances: np.ndarray) -> float:
    """Return the value up to which colours are spread."""
    known = values[(distances >= 0) & (values >= 0)]
    high = float(np.percentile(known, SPREAD)) if known.size else 0.0
    return high if high > 0 else 1.0


def counts_table(found: Matched, ranked: Sequence[dict[str, Any]], colour_numbers: dict[int, int]) -> str:
    """Return the table of the spectra that have pixels, with their colours."""
    total = max(1, found.none + sum(one["pixels"] for one in ranked))
    rows = []
    for one in ranked[:MOST_ROWS]:
        colour = hex_of(colour_numbers[one["number"]])
        numbers = (str(one["pixels"]), percent(one["pixels"] / total), f"{one['mean_distance']:.3g}")
        rows.append(
            [f'<span class="key" style="color:{colour}"></span>{text(one["name"])}', text(one["class"]), *numbers]
        )
    more = len(ranked) - MOST_ROWS
    rest = f"<p class=quiet>{more} more are in STEM_match.csv.</p>" if more > 0 else ""
    return table(("spectrum", "class", "pixels", "share", f"mean distance{found.unit}"), rows, 2) + rest


def drawn(found: Matched, ranked: Sequence[dict[str, Any]]) -> str:
    """Return charts of the first spectra beside the means of their pixels, as they are compared."""
    if not ranked:
        return ""
    waves, charts = found.known.waves, []
    axis, floor = "band" if waves is None else "wavelength (nm)", 1.0 if found.known.continuum else 0.0
    for one in ranked:
        has, values = found.known.known[one["number"] - 1]
        mean = found.known.as_compared(found.means[one["number"]][:, None], has)[:, 0]
        at = np.flatnonzero(has) + 1.0 if waves is None else waves[has]
        both = np.column_stack([values, mean])
        good = np.isfinite(both).all(axis=1)
        if good.sum() < 2:
            continue
        spacing = float(np.median(np.abs(np.diff(np.sort(at)))))
        names, colours = ("library", "its pixels"), (hex_of(1), hex_of(2))
        chart = lines(
            at[good], both[good], names, colours, axis, GAP * spacing, f"spectrum of {one['name']}", floor=floor
        )
        charts.append(f"<div><b>{text(one['name'])}</b>, {one['pixels']} pixels{chart}</div>")
    how = "divided by their continua" if found.known.continuum else "each with its largest value at 1"
    return (
        f'<h2>Beside the means of their pixels</h2><p class="quiet">{how}</p><div class="charts '
        f'wide">{"".join(charts)}</div>'
    )
