"""Maps of a finished run as panels of one picture: one scale, one colour bar, where there are no values hatched.

Files of pictures: their endings and sizes; the same picture is the same bytes.
"""

import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import InputError, MethodError, brief
from ...io import Cube, band_names
from ...io.export.areas import known_system
from ...io.formats.header import geotransform
from ...outputs.names import normalize_of
from ...pages.pictures import DIFFERENCES, VIRIDIS, ramp, thin_bands
from ...runs.files.finished import FinishedRun
from ...settings.maps import map_named

# Endings of pictures, and what matplotlib calls each.
FORMS = {".png": "png", ".svg": "svg", ".pdf": "pdf", ".tif": "tiff", ".tiff": "tiff"}
# Metadata of each form of picture: without a date, so that equal pictures are equal files.
ABOUT: dict[str, dict[str, str | None]] = {
    "png": {"Software": "unmix"},
    "svg": {"Date": None, "Creator": "unmix"},
    "pdf": {"CreationDate": None, "Creator": "unmix"},
}
# Narrowest and widest picture, in mm, and its dots an inch: less is not legible, more takes minutes and gigabytes.
WIDTHS, DPIS = (30.0, 600.0), (50, 1200)
INCH = 25.4  # mm


def within(name: str, value: float, limits: tuple[float, float], unit: str = "") -> float:
    """Return a number between two limits; `MethodError` where it is not."""
    if not limits[0] <= value <= limits[1]:
        raise MethodError(f"`{name}` {value:g}: must be from {limits[0]:g} to {limits[1]:g}{unit}")
    return value


def new_figure(width: float, height: float, dpi: int, **how: Any) -> Any:
    """Return an empty figure, sizes in mm, with a whole number of dots; `MethodError` without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MethodError("pictures need matplotlib: pip install 'unmix[plot]'") from None
    # Dots are cut to whole ones, so a little is added.
    across, up = ((math.ceil(side / INCH * dpi - 1e-6) + 1e-3) / dpi for side in (width, height))
    return Figure(figsize=(across, up), dpi=dpi, **how)


def bytes_of_figure(figure: Any, form: str) -> bytes:
    """Return a figure as the content of a file."""
    from matplotlib import rc_context

    content = io.BytesIO()
    packed = {"pil_kwargs": {"compression": "tiff_lzw", "software": "unmix"}} if form == "tiff" else {}
    with rc_context({"svg.hashsalt": "unmix", "svg.fonttype": "none"}):
        try:
            figure.savefig(content, format=form, dpi=figure.dpi, metadata=ABOUT.get(form), **packed)
        except (
            ValueError,
            OverflowError,
            FloatingPointError,
        ) as error:  # of values whose differences float64 does not hold
            raise InputError(f"the picture cannot be drawn: {brief(error)}") from None
    return content.getvalue()


# Maps whose bands have names, as they are searched for them.
SHARES = ("fraction", "abundance")
# The word for all bands; the percentiles of a raster's values that its scale is from and to.
ALL, STRETCHED = "all", (0.5, 99.5)
# Most panels of a picture, and of a row.
MOST_PANELS, MOST_BESIDE = 24, 4
# Millimetres: the edge, between panels, a title, the colour bar with its numbers and name, the line below the panels;
# the least width of a panel; the shortest colour bar, and the highest panels together, which fit a page.
EDGE, GAP, TITLE, SIDE, FOOT, NARROWEST, SHORTEST, HIGHEST = 1.0, 2.5, 5.0, 15.0, 6.0, 3.0, 22.0, 230.0
# Sizes of titles and of other words, and the smallest title, in points; a letter is about this share of its size wide.
LARGE, SMALL, SMALLEST_TITLE, LETTER = 8.0, 7.0, 4.0, 0.6
POINT = INCH / 72  # mm
# Values are beyond the scale where they are by more than this share of it, half a step of 255 colours.
BEYOND = 0.5 / 255


class MapPlace(NamedTuple):
    """A map's place on the ground: metres of a sample, a pixel's height over its width, radians from up to north."""

    metres: float
    aspect: float
    north: float


class FigureLayout(NamedTuple):
    """A layout in mm: width and height of the picture and of a panel; each panel's left and bottom in the picture."""

    width: float
    height: float
    panel: tuple[float, float]
    corners: list[tuple[float, float]]


class NamedMap(NamedTuple):
    """A map whose bands have names, and what its values are called."""

    label: str
    cube: Cube
    names: list[str]


def maps_of_run(run: FinishedRun) -> Iterator[NamedMap]:
    """Yield the maps of a run whose bands are searched for names: the one whose file is named, else those of shares."""
    for kind in SHARES if run.named is None else (run.named,):
        if run.has(kind) and not (kind == "abundance" and run.has("index")):  # whose bands are ranks
            cube, is_share = run.open(kind), kind in SHARES
            label = kind if normalize_of(run.report) == "none" or not is_share else "fraction"
            yield NamedMap(label, cube, run.band_names(kind, cube.bands) if is_share else band_names(cube))


def picture_of_maps(
    source: FinishedRun | Cube,
    maps: str | Sequence[str],
    form: str,
    width: float,
    dpi: int,
    scale: tuple[float, float] | None,
) -> bytes:
    """Return the maps of some endmembers or classes of a run, or bands of a raster, as a picture; see `unmix.plot`."""
    is_of_shares = isinstance(source, FinishedRun) and (source.named is None or map_named(source.named).is_share)
    if isinstance(source, FinishedRun):
        every = list(maps_of_run(source))
    else:
        every = [NamedMap("", source, band_names(source))]
    (label, cube, _), bands, names = chosen(source.stem, every, maps)
    place = place_of_map(cube)
    aspect = 1.0 if place is None else place.aspect
    laid = layout_of(len(names), cube.lines * aspect / cube.samples, width)
    images = thin_bands(cube, bands, math.ceil(max(laid.panel) / INCH * dpi))
    lacks = ~np.isfinite(images) if cube.nodata is None else ~np.isfinite(images) | (images == np.float32(cube.nodata))
    images = np.ma.masked_array(images, lacks)
    scale = scale or ((0.0, 1.0) if is_of_shares else usual_scale(images))
    figure = new_figure(laid.width, laid.height, dpi)

    def axes_at(left: float, bottom: float, w: float, h: float) -> Any:
        return figure.add_axes((left / laid.width, bottom / laid.height, w / laid.width, h / laid.height))

    for image, name, (left, bottom) in zip(images, names, laid.corners):
        drawn = panel(axes_at(left, bottom, *laid.panel), image, name, scale, laid.panel[0])
    right, top = laid.corners[0][0], laid.corners[0][1] + laid.panel[1]
    right += (laid.panel[0] + GAP) * (min(len(names), MOST_BESIDE) - 1) + laid.panel[0] + GAP
    height = max(top - laid.corners[-1][1], SHORTEST)
    bar = figure.colorbar(drawn, cax=axes_at(right, top - height, 3.0, height), extend=extended(images, scale))
    bar.ax.tick_params(labelsize=SMALL)
    bar.set_label(label, size=SMALL)
    foot(axes_at(laid.corners[0][0], 0, laid.width - laid.corners[0][0], FOOT), laid, place, cube, bool(lacks.any()))
    return bytes_of_figure(figure, form)


def usual_scale(images: np.ndarray) -> tuple[float, float]:
    """Return the ends of a scale for most of the values, symmetric about 0 where they have both signs."""
    values = np.ma.compressed(images)
    low, high = map(float, np.percentile(values, STRETCHED)) if values.size else (0.0, 1.0)
    if low < 0 < high:
        low, high = -max(-low, high), max(-low, high)
    return (low, high) if low < high else (low, low + 1.0)


def chosen(
    stem: str | Path, every: Sequence[NamedMap], maps: str | Sequence[str]
) -> tuple[NamedMap, list[int], list[str]]:
    """Return the map that has all names, the numbers of their bands, and the names; `MethodError` where none has."""
    for one in every:
        # No name has a comma.
        wanted = [word.strip() for word in (maps.split(",") if isinstance(maps, str) else maps)]
        wanted = one.names if wanted == [ALL] and ALL not in one.names else wanted
        if 0 < len(wanted) <= MOST_PANELS and set(wanted) <= set(one.names):
            return one, [one.names.index(word) for word in wanted], wanted
    known = [name for one in every for name in one.names]
    some = ", ".join(known[:12]) + (", …" if len(known) > 12 else "") or "none"
    raise MethodError(
        f"{stem}: `maps` {maps}: name 1 to {MOST_PANELS} endmembers, classes or bands, with commas between, or {ALL}; "
        f"there are {some}"
    )


def layout_of(count: int, shape: float, width: float) -> FigureLayout:
    """Return where ``count`` panels are, ``shape`` times as high as wide; `MethodError` where they are too narrow."""
    columns = min(count, MOST_BESIDE)
    rows = -(-count // columns)
    w = (width - 2 * EDGE - SIDE - columns * GAP) / columns + GAP / columns
    w = min(w, HIGHEST / rows / shape)
    if w < NARROWEST:
        raise MethodError(
            f"the panels would be {max(0.0, w):.1f} mm wide; make the picture wider (`width`), or draw fewer maps"
        )
    h = w * shape
    block = columns * w + (columns - 1) * GAP + SIDE
    left, high = (width - block) / 2, max(rows * (h + TITLE), SHORTEST + TITLE)
    corners = [
        (left + i % columns * (w + GAP), EDGE + FOOT + high - (i // columns + 1) * (h + TITLE)) for i in range(count)
    ]
    return FigureLayout(width, high + FOOT + 2 * EDGE, (w, h), corners)


def panel(axes: Any, image: np.ndarray, name: str, scale: tuple[float, float], width: float) -> Any:
    """Draw a map (h, w) with its title, hatched where it has no value."""
    from matplotlib.colors import ListedColormap

    hatched(axes)
    # Lightness grows with the value, also in grey; of both signs with the distance from 0.
    colours = ListedColormap(ramp(DIFFERENCES if scale[0] == -scale[1] else VIRIDIS)[:255] / 255.0)
    shown = axes.imshow(
        image, cmap=colours, vmin=scale[0], vmax=scale[1], interpolation="nearest", aspect="auto", zorder=1
    )
    size = max(SMALLEST_TITLE, min(LARGE, (width + GAP) / POINT / LETTER / max(1, len(name))))
    axes.set_title(name, size=size, pad=2, parse_math=False)
    axes.set(xticks=[], yticks=[])
    return shown


def hatched(axes: Any) -> None:
    """Hatch the whole of some axes, below what is drawn on them."""
    from matplotlib.patches import Rectangle

    how: dict[str, Any] = {"facecolor": "white", "edgecolor": "0.5", "hatch": "/////", "linewidth": 0, "zorder": 0}
    axes.add_patch(Rectangle((0, 0), 1, 1, transform=axes.transAxes, **how))


def extended(images: np.ndarray, scale: tuple[float, float]) -> str:
    """Return at which ends of the colour bar values are beyond the scale, in matplotlib's words."""
    values, slack = np.ma.compressed(images), BEYOND * (scale[1] - scale[0])
    ends = bool((values < scale[0] - slack).any()), bool((values > scale[1] + slack).any())
    return {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}[ends]


def place_of_map(cube: Cube) -> MapPlace | None:
    """Return how a map lies on the ground; None where its coordinates are unknown, or no lengths."""
    transform, system = geotransform(cube.fields.get("map info", "")), known_system(cube)
    if transform is None or system is None:
        return None
    _, a, b, _, c, d = transform
    if not system.is_projected or a * d == b * c:
        return None
    across, down = math.hypot(a, c), math.hypot(b, d)
    sample, line = np.linalg.solve([[a, b], [c, d]], [0.0, 1.0])
    return MapPlace(across * system.linear_units_factor[1], down / across, math.atan2(sample * across, -line * down))


def foot(axes: Any, laid: FigureLayout, place: MapPlace | None, cube: Cube, has_gaps: bool) -> None:
    """Draw the line below the panels, in mm: scale bar and north where there is a ``place``, and a key of hatching."""
    axes.set(xlim=(0, laid.width - laid.corners[0][0]), ylim=(0, FOOT))
    axes.axis("off")
    at = 0.0
    if place is not None:
        whole = place.metres * cube.samples
        metres = round_length(whole / 3)
        length = metres / whole * laid.panel[0]
        axes.plot([0, length], [2.5, 2.5], color="black", linewidth=2, solid_capstyle="butt")
        said = f"{metres / 1000:g} km" if metres >= 1000 else f"{metres:g} m"
        axes.text(length + 1, 2.5, said, size=SMALL, va="center")
        at = length + 1 + len(said) * SMALL * POINT * LETTER + 5
        x, y = 2 * math.sin(place.north), 2 * math.cos(place.north)
        arrow = {"arrowstyle": "-|>", "color": "black", "lw": 0.8, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 6}
        axes.annotate("", (at + x, 2.5 + y), (at - x, 2.5 - y), arrowprops=arrow)
        axes.text(at + 3, 2.5, "N", size=SMALL, va="center")
        at += 10
    if has_gaps:
        key = axes.inset_axes((at, 1, 5, 3), transform=axes.transData)
        hatched(key)
        key.set(xticks=[], yticks=[])
        axes.text(at + 6, 2.5, "no data", size=SMALL, va="center")


def round_length(most: float) -> float:
    """Return the largest of 1, 2 and 5 times a power of ten that is not above ``most``."""
    power = 10.0 ** math.floor(math.log10(most))
    return next(factor * power for factor in (5, 2, 1) if factor * power <= most or factor == 1)
