"""Parts of pages: text, tables, maps with their colours, and histograms and spectra as SVG in the page's colours.

Also the sections of a run's page that show spectra: of endmembers, residuals, and pixels.
"""

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import printable
from ..io.formats.written_by import PAGE_HEAD
from ..runs.files.finished import FinishedRun
from .pictures import GREY, MapView, dash_of, hex_of, own_or_ours, png, ramp


def text(value: Any) -> str:
    """Return any value as text of a page: nothing in it is markup, and no character is unprintable."""
    return escape(printable(str(value)))


def percent(share: float) -> str:
    """Return a share in percent, with two digits that count."""
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.1f} %"


def part(name: str) -> str:
    """Return the text of a file of this package."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def document(title: str, body: str, script: str = "") -> str:
    """Return a page that needs no other file, and may load none; ``script`` names a file of this package."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'" + (
        "; script-src 'unsafe-inline'" if script else ""
    )
    return (
        f'{PAGE_HEAD}<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{title}</title><style>{part('page.css')}</style></head>\n<body>\n{body}\n"
        + (f"<script>{part(script)}</script>" if script else "")
        + "</body></html>\n"
    )


def embedded(image: bytes) -> str:
    """Return an image as an address that holds it."""
    return "data:image/png;base64," + base64.b64encode(image).decode()


def coloured(view: MapView, colours: np.ndarray) -> bytes:
    """Return a view as an image, in 255 colours between its ends and clear where there is no value."""
    with np.errstate(invalid="ignore"):
        shares = np.clip((view.picture - view.low) / (view.high - view.low), 0, 1)
    return png(np.where(np.isnan(shares), 255, np.round(254 * np.nan_to_num(shares))).astype(np.uint8), colours)


def figure(view: MapView, colours: np.ndarray, caption: str, size: tuple[int, int] = (240, 64)) -> str:
    """Return a map with its histogram, of that size."""
    name = text(view.name)
    image = f'src="{embedded(coloured(view, colours))}" data-low="{view.low:.6g}" data-high="{view.high:.6g}"'
    return (
        f'<figure><img {image} alt="map of {name}"><figcaption><b>{name}</b> {caption}</figcaption>'
        f"{bars(view.counts, view.low, view.high, '', size, view.name)}</figure>"
    )


def legend(colours: np.ndarray, low: str, high: str) -> str:
    """Return a bar with the colours of maps, and the values at its ends."""
    stops = ",".join("#" + bytes(colours[k, :3]).hex() for k in range(0, 255, 254 // 8))
    return (
        f'<div class="ramp" style="background:linear-gradient(90deg,{stops})"></div><div '
        f'class="ends"><span>{low}</span>'
        f"<span>{high}</span></div>"
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """Return a table whose cells are text of a page; the first ``words`` columns hold words, the others numbers."""

    def row(cells: Sequence[str], tag: str) -> str:
        return "".join(f"<{tag}{' class=number' * (k >= words)}>{cell}</{tag[:2]}>" for k, cell in enumerate(cells))

    body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in rows)
    head = row(columns, 'th scope="col"')
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def stroke_style(colour: str, number: int, is_dotted: bool = False) -> str:
    """Return the style of the line of that number, from 1: its colour and dashes; of one that `is_dotted`, dots."""
    strokes = (2, 4) if is_dotted else dash_of(number) if colour != GREY else ()
    return f"color:{colour}" + (f";stroke-dasharray:{','.join(map(str, strokes))}" if strokes else "")


def keys(colours: Sequence[str], names: Sequence[str], first: int = 1, dotted: Sequence[int] = ()) -> str:
    """Return the legend of lines, numbered from ``first``: a piece of each with its dashes, or dots if ``dotted``."""
    return " ".join(
        f'<svg class="key" viewBox="0 0 28 4" style="{stroke_style(colour, first + k, k in dotted)}" '
        'aria-hidden="true">'
        f'<line class="piece" x2="28" y1="2" y2="2"/></svg>{text(name)}'
        for k, (colour, name) in enumerate(zip(colours, names))
    )


def ramps(*colours: str) -> str:
    """Return the colours of maps, by which a script knows the value under the pointer (values.js)."""
    each = ("".join(bytes(one[:3]).hex() for one in ramp(stops)[:255]) for stops in colours)
    return "".join(f'<div class="ramp-of" data-colours="{one}" hidden></div>' for one in each)


WIDE, HIGH = 640, 308
# Room around a chart for text of 19 to 22, as telephones have it (page.css): the least at the left, and of a letter
# there.
LEFT, LETTER, RIGHT, TOP, BELOW = 56, 14, 28, 34, 44
# Pixels at the right for names of lines, each after a piece of its line; most lines with names; the height of a name.
LABELS, PIECE, MOST_LABELS, LABEL_STEP = 160, 28, 12, 19


# A gap between neighbouring channels, in their usual spacing, at which a line is cut.
GAP = 2.5


def with_gaps(waves: np.ndarray | None, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return places and values (L,) in the order of wavelengths (or bands, from 1), with NaN in wide gaps."""
    places = np.arange(1.0, len(values) + 1) if waves is None else np.asarray(waves, float)
    order = np.argsort(places, kind="stable")
    places, values = places[order], values[order]
    steps = np.diff(places)
    gaps = np.flatnonzero(steps > GAP * np.median(steps)) + 1 if len(steps) else np.zeros(0, int)
    return np.insert(places, gaps, np.nan), np.insert(np.asarray(values, float), gaps, np.nan)


def number(value: float) -> str:
    """Return a coordinate, rounded so that it is the same text everywhere."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def steps_of(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers between two others, for an axis."""
    if not 0 < high - low < np.inf:  # of nothing, one value, or values that are none
        return [low]
    step = 10.0 ** np.floor(np.log10((high - low) / most))
    for factor in (1, 2, 5, 10):
        if (high - low) / (step * factor) <= most:
            step *= factor
            break
    return [float(k * step) for k in range(int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9)) + 1)]


def bars(
    counts: Sequence[int] | np.ndarray,
    low: float,
    high: float,
    what: str,
    size: tuple[int, int] = (320, 120),
    spoken: str = "",
) -> str:
    """Return a histogram from ``low`` to ``high``; ``what`` names the axis, and ``spoken`` is read out without it."""
    (wide, high_), below = size, 20
    top = max(1, int(max(counts, default=0)))
    width = wide / max(1, len(counts))
    shapes = "".join(
        f'<rect x="{number(k * width)}" y="{number((high_ - below) * (1 - n / top))}" '
        f'width="{number(max(width - 0.5, 0.5))}" '
        f'height="{number((high_ - below) * n / top)}"/>'
        for k, n in enumerate(counts)
        if n
    )
    ends = (
        f'<text x="0" y="{high_ - 5}">{low:.3g}</text><text x="{wide}" y="{high_ - 5}" '
        f'text-anchor="end">{high:.3g}</text>'
    )
    middle = f'<text x="{wide / 2}" y="{high_ - 5}" text-anchor="middle">{escape(what)}</text>'
    return (
        f'<svg class="bars" viewBox="0 0 {wide} {high_}" role="img" aria-label="{escape(what or spoken)}: histogram">'
        f"<title>{escape(what or spoken)}</title>{shapes}{ends}{middle}</svg>"
    )


def ends_of(names: Sequence[str], colours: Sequence[str], heights: Sequence[float]) -> list[str]:
    """Return the names of lines at their ends, beside a piece of each, moved apart where these are near each other."""
    order, parts = sorted(range(len(names)), key=lambda j: heights[j]), list[str]()
    step = min(LABEL_STEP, (HIGH - BELOW - TOP) / len(names))
    middle, x = TOP - step / 2, WIDE - LABELS + 6
    for k, j in enumerate(order):
        middle = min(max(heights[j], middle + step), HIGH - BELOW - (len(order) - 1 - k + 0.5) * step)
        y, name = number(middle), escape(names[j])
        parts.append(
            f'<line class="piece" x1="{x}" x2="{x + PIECE - 4}" y1="{y}" y2="{y}" '
            f'style="{stroke_style(colours[j], j + 1)}"/>'
            f'<foreignObject x="{x + PIECE}" y="{number(middle - LABEL_STEP / 2)}" width="{WIDE - x - PIECE}" '
            f'height="{LABEL_STEP}">'
            f'<div class="name" title="{name}">{name}</div></foreignObject>'
        )
    return parts


# The side of the square of two values, and the room at its left, above it and of the whole.
SQUARE, SQUARE_LEFT, SQUARE_TOP, SQUARE_WIDE, SQUARE_HIGH = 192, 36, 26, 240, 258


def square_chart(inside: str, low: float, high: float, across: str, up: str, spoken: str, said: str) -> str:
    """Return a square of two values between the same ends, with the line of equals; ``inside``: SVG, 0 to `SQUARE`."""
    parts = [f'<text x="0" y="16">{escape(up)}</text>']
    for value in steps_of(low, high, 3):
        place = (value - low) / (high - low) * SQUARE
        parts.append(
            f'<text x="{SQUARE_LEFT - 4}" y="{number(SQUARE_TOP + SQUARE - place + 4)}" '
            f'text-anchor="end">{value:g}</text>'
            f'<text x="{number(SQUARE_LEFT + place)}" y="{SQUARE_TOP + SQUARE + 15}" '
            f'text-anchor="middle">{value:g}</text>'
        )
    middle = SQUARE_LEFT + SQUARE / 2
    parts.append(f'<text x="{number(middle)}" y="{SQUARE_HIGH - 5}" text-anchor="middle">{escape(across)}</text>')
    return (
        f'<svg viewBox="0 0 {SQUARE_WIDE} {SQUARE_HIGH}" role="img" '
        f'aria-label="{spoken}"><title>{said}</title>{"".join(parts)}'
        f'<g transform="translate({SQUARE_LEFT} {SQUARE_TOP})">{inside}'
        f'<rect width="{SQUARE}" height="{SQUARE}" fill="none" stroke="#808080"/>'
        f'<line x1="0" y1="{SQUARE}" x2="{SQUARE}" y2="0" stroke="#808080"/></g></svg>'
    )


def lines(
    at: np.ndarray,
    spectra: np.ndarray,
    names: Sequence[str],
    colours: Sequence[str],
    axis: str,
    gap: float,
    what: str = "spectra of the endmembers",
    labelled: bool = True,
    floor: float = 0.0,
    values: str = "value",
    dotted: Sequence[int] = (),
) -> str:
    """Return spectra (L, p) over ``at`` (L,) as lines, cut at gaps wider than ``gap``; ``dotted`` ones as dots."""
    is_labelled = labelled and 1 < len(names) <= MOST_LABELS
    right = LABELS if is_labelled else RIGHT
    order = np.argsort(at, kind="stable")
    at, spectra = at[order], spectra[order]
    low, high = min(floor, float(spectra.min())), float(spectra.max())
    high = high if high > low else low + 1.0
    first, last = float(at[0]), float(at[-1]) if at[-1] > at[0] else float(at[0]) + 1.0

    heights = steps_of(low, high, 5)
    left = max(LEFT, 8 + LETTER * max(len(f"{value:g}") for value in heights))

    def x(value: float) -> float:
        return left + (WIDE - left - right) * (value - first) / (last - first)

    def y(value: float) -> float:
        return TOP + (HIGH - TOP - BELOW) * (high - value) / (high - low)

    parts = []
    for value in heights:
        parts.append(
            f'<line class="grid" x1="{left}" x2="{WIDE - right}" y1="{number(y(value))}" y2="{number(y(value))}"/>'
        )
        parts.append(f'<text x="{left - 6}" y="{number(y(value) + 4)}" text-anchor="end">{value:g}</text>')
    parts += [
        f'<text x="{number(x(value))}" y="{HIGH - BELOW + 17}" text-anchor="middle">{value:g}</text>'
        for value in steps_of(first, last, 6)
    ]
    parts.append(f'<text x="{(left + WIDE - right) / 2}" y="{HIGH - 6}" text-anchor="middle">{escape(axis)}</text>')
    parts += ends_of(names, colours, [y(float(spectra[-1, j])) for j in range(len(names))]) if is_labelled else []
    parts.append(f'<text x="0" y="18">{escape(values)}</text>')
    cuts = np.flatnonzero(np.diff(at) > gap) + 1
    for j in sorted(range(len(names)), key=lambda j: j in dotted):
        shapes = list[str]()
        for piece in np.split(np.arange(len(at)), cuts):
            points = [(number(x(at[b])), number(y(spectra[b, j]))) for b in piece]
            if j in dotted or len(points) == 1:
                shapes += [f'<circle cx="{across}" cy="{down}" r="1.5"/>' for across, down in points]
            else:
                shapes.append(f'<polyline points="{" ".join(map(",".join, points))}"/>')
        style = f"color:{colours[j]}" if j in dotted else stroke_style(colours[j], j + 1)
        parts.append(f'<g style="{style}"><title>{escape(names[j])}</title>{"".join(shapes)}</g>')
    return (
        f'<svg class="lines" viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{escape(what)}">{"".join(parts)}</svg>'
    )


# Columns of the table of endmembers; the last three only for extracted ones.
COLUMNS = (
    "endmember",
    "class",
    "pixel",
    "mean",
    "largest",
    "above 1 %",
    "nearest other",
    "leads in",
    "pixels beyond the facet opposite",
)
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
        rows.append([keys([colours[k]], [library.names[j]], k + 1), text(kind), place, *numbers])
    left_out = len(library.names) - len(shown)
    more = f"<p>These have the largest means; {left_out} more are in STEM_endmembers.csv.</p>" if left_out > 0 else ""
    source = text(run.report.get("endmembers", {}).get("source", ""))
    return (
        f"<h2>Endmembers</h2>{chart}<p class=quiet>{source}; {len(used)} bands in "
        f"use{left_by(quality)}</p>{other_set(simplex)}"
        f"{table(COLUMNS if quality else COLUMNS[:6], rows, 3)}{more}"
    )


def chart_of(
    run: FinishedRun,
    values: np.ndarray,
    names: Sequence[str],
    colours: Sequence[str],
    what: str = "spectra of the endmembers",
    labelled: bool = True,
    what_values: str = "value",
    dotted: Sequence[int] = (),
) -> str:
    """Return values of the bands in use (L, p) as lines, cut at other bands; see `unmix.pages.parts.lines`."""
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
    """Return an extracted endmember's cells: the nearest other one, and pixels that it leads and beyond its facet."""
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
    return (
        f"<p>Another set of spectra, by {text(others[0])}, {how}: its fractions differ by {simplex['differ']:.2g} on "
        "average.</p>"
    )


def cover(one: dict[str, Any]) -> list[str]:
    """Return mean, largest abundance and share of pixels above 1 %, as far as they are known."""
    forms = {"mean": "{:.3f}".format, "maximum": "{:.3f}".format, "share_above_1_percent": percent}
    return ["" if one.get(key) is None else form(one[key]) for key, form in forms.items()]
