"""The page of the viewer, as a Bokeh document: pictures of one or two sources, spectra, and a pixel's values."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bokeh.document import Document
from bokeh.events import RangesUpdate, SelectionGeometry, Tap
from bokeh.layouts import column, row
from bokeh.models import Button, ColumnDataSource, DataRange1d, Div, Select, TextInput
from bokeh.plotting import figure

from ...errors import UnmixError
from ...outputs.library import write_library
from ...pages.parts import part as file_of
from ...pages.parts import table, text, with_gaps
from ...pages.pictures import GREY as LINE
from ...pages.pictures import dash_of, hex_of
from .source import Facts, PictureArea, Source, coloured_picture, ends_of_picture, values_of_layer, whole_scene

# Of axes, names and grids, and what is behind them in both schemes: no one grey is read as text on light and dark
# pages.
GREY, GROUND = "#5c6570", "#ffffff"
# Samples or lines, from the first, beyond which an event's place is none; and most corners of a region.
FARTHEST, MOST_CORNERS = 1e9, 20_000
# Characters of a region's name.
LONGEST_NAME = 200
# Letters by which two sources are told apart.
LETTERS = "AB"
# The name of the line that is the mean of a region.
REGION = "mean of the region"
# Choices, names and buttons, in the colours of the reader's system.
INPUTS = [
    ".bk-input, .bk-btn { color: CanvasText; background-color: Canvas }"
    ".bk-btn[disabled], .bk-btn[disabled]:hover { color: GrayText; background-color: Canvas; opacity: 1 }"
]


class Picture:
    """One source: a choice of layers, and the picture of the one that is chosen.

    Parameters
    ----------
    source : Source
    title : str
        Of the choice.
    ranges : (DataRange1d, DataRange1d)
        Samples and lines that are shown, which two pictures share.
    """

    def __init__(self, source: Source, title: str, ranges: tuple[DataRange1d, DataRange1d]) -> None:
        self.source = source
        self.part = whole_scene(source.layers[0].cube)
        names = [layer.name for layer in source.layers]
        named = None if source.run is None else source.run.named
        first = next((name for name in names if name.partition(":")[0] == named), names[0])
        self.choice = Select(title=title, value=first, options=names, sizing_mode="stretch_width", stylesheets=INPUTS)
        self.figure = plain_figure(
            x_range=ranges[0],
            y_range=ranges[1],
            match_aspect=True,
            height=420,
            tools="pan,wheel_zoom,box_select,lasso_select,reset",
            active_scroll="wheel_zoom",
            x_axis_label="sample",
            y_axis_label="line",
        )
        self.data = ColumnDataSource({"image": [], "x": [], "y": [], "dw": [], "dh": []})
        self.mark = ColumnDataSource({"x": [], "y": []})
        self.figure.grid.visible = False
        x, y, wide, high = source.samples / 2, source.lines / 2, source.samples, source.lines
        frame = self.figure.rect(x=[x], y=[y], width=[wide], height=[high], fill_alpha=0, line_color=GREY)
        for one in ranges:  # which keep to the whole scene, whatever part is read again
            one.renderers = [*one.renderers, frame] if isinstance(one.renderers, list) else [frame]
        self.figure.image_rgba(image="image", x="x", y="y", dw="dw", dh="dh", source=self.data)
        self.figure.scatter(
            "x", "y", source=self.mark, marker="square", size=9, fill_alpha=0, line_color="#ff2a2a", line_width=2
        )
        self.choose()

    def choose(self) -> None:
        """Show the chosen layer, in colours over its values in the whole scene; `UnmixError` if there is none."""
        layers = {layer.name: layer for layer in self.source.layers}
        if self.choice.value not in layers:
            raise UnmixError("there is no such layer")
        self.layer = layers[self.choice.value]
        values = values_of_layer(self.layer, whole_scene(self.layer.cube))
        self.ends = ends_of_picture(values)
        if self.part == whole_scene(self.layer.cube):
            self.show(values)
        else:
            self.read()

    def moved(self, event: Any) -> None:
        """Read the part that is shown again, as fine as it is shown."""
        cube, (x, y) = self.layer.cube, corners_of_selection((event.x0, event.x1), (event.y0, event.y1), 2)
        (left, right), (top, bottom) = sorted(x), sorted(y)
        left, top = (int(np.clip(np.floor(edge), 0, n - 1)) for edge, n in ((left, cube.samples), (top, cube.lines)))
        right, bottom = (int(np.clip(np.ceil(edge), 1, n)) for edge, n in ((right, cube.samples), (bottom, cube.lines)))
        part = PictureArea(top, max(bottom, top + 1), left, max(right, left + 1))
        if part != self.part:
            self.part = part
            self.read()

    def read(self) -> None:
        """Read and draw the part that is shown."""
        self.show(values_of_layer(self.layer, self.part))

    def show(self, values: np.ndarray) -> None:
        """Draw the values of the part that is shown."""
        part = self.part
        self.data.data = {
            "image": [coloured_picture(values, self.ends)],
            "x": [part.left],
            "y": [part.top],
            "dw": [part.right - part.left],
            "dh": [part.bottom - part.top],
        }


class KeptSpectra:
    """The spectra of regions that are kept, in a library that is written anew for each."""

    def __init__(self, source: Source, path: Path) -> None:
        self.source, self.path = source, path
        self.names, self.spectra, self.is_ours = list[str](), list[np.ndarray](), False

    def add(self, name: str, spectrum: np.ndarray) -> str:
        """Add a spectrum and write the library; return what was done. `UnmixError` where it cannot be written."""
        name = (
            "".join(filter(str.isprintable, " ".join(name[:LONGEST_NAME].split()))) or f"region {len(self.names) + 1}"
        )
        if not (spectrum.size and np.isfinite(spectrum).all()):
            raise UnmixError("there is no mean to keep: draw a region with pixels that have values")
        if name in self.names:
            raise UnmixError(f"there is a '{name}' already; give it another name")
        names, spectra = [*self.names, name], [*self.spectra, spectrum]
        write_library(self.source.as_library(names, spectra), self.path, self.is_ours, [])
        self.names, self.spectra, self.is_ours = names, spectra, True
        return f"{self.path}: {len(names)} spectra"


class Page:
    """The page of one session: what its parts do.

    Parameters
    ----------
    sources : sequence of Source
        One, or two of one size.
    kept : Kept
        The means of regions, of all sessions.
    """

    def __init__(self, sources: Sequence[Source], kept: KeptSpectra) -> None:
        first, self.sources = sources[0], sources
        scenes = [one.scene for one in sources if one.scene is not None]
        self.is_one_scene = len({os.fspath(one.cube.path) for one in scenes}) == 1
        has_waves = bool(scenes) and scenes[0].wavelengths is not None
        ranges = DataRange1d(range_padding=0), DataRange1d(range_padding=0, flipped=True)
        titles = [
            str(one.path) if len(sources) == 1 else f"{letter}: {one.path}" for letter, one in zip(LETTERS, sources)
        ]
        self.pictures = [Picture(source, title, ranges) for source, title in zip(sources, titles)]
        label = "wavelength (nm)" if has_waves else "band"
        self.spectra = plain_figure(
            height=320, x_axis_label=label, y_axis_label="value", tools="pan,wheel_zoom,reset,hover", active_scroll=None
        )
        self.lines = dict[str, ColumnDataSource]()
        self.facts = Div(text="", sizing_mode="stretch_width", name="facts", disable_math=True)
        self.name = TextInput(title="Name of the region", sizing_mode="stretch_width", stylesheets=INPUTS)
        self.keep = Button(label="Keep its mean", disabled=True, width=140, align="end", stylesheets=INPUTS)
        self.said = Div(text="", sizing_mode="stretch_width", disable_math=True)
        self.kept, self.mean = kept, np.zeros(0)
        for picture in self.pictures:
            picture.choice.on_change("value", lambda attr, old, new, picture=picture: self.told(picture.choose))
            picture.figure.on_event(Tap, lambda event: self.told(self.tapped, event))
            picture.figure.on_event(SelectionGeometry, lambda event: self.told(self.selected, event))
            picture.figure.on_event(RangesUpdate, lambda event, picture=picture: self.told(picture.moved, event))
        self.keep.on_click(lambda event: self.told(self.keep_mean))
        self.show(first.lines // 2, first.samples // 2)

    def told(self, do: Callable[..., None], *event: Any) -> None:
        """Do the task of an event, or show on the page why it failed."""
        # Events may hold anything: any program may send them.
        try:
            do(*event)
        except (UnmixError, OSError) as error:
            self.said.text = text(error)

    def roots(self) -> list[Any]:
        """Return the parts of the page, by whose names the template places them."""
        wide = {"sizing_mode": "stretch_width"}
        pictures = [column(one.choice, one.figure, name=f"picture_{k}", **wide) for k, one in enumerate(self.pictures)]
        self.spectra.name = "spectra"
        region = column(row(self.name, self.keep, **wide), self.said, name="region", **wide)
        return [*pictures, self.spectra, region, self.facts]

    def line(self, name: str, waves: np.ndarray, values: np.ndarray | None) -> None:
        """Draw a spectrum by its name, or take it away."""
        data: dict[str, Any] = {"x": [], "y": []} if values is None else dict(zip("xy", with_gaps(waves, values)))
        if name in self.lines:
            self.lines[name].data = data
        elif values is not None:
            self.lines[name] = ColumnDataSource(data)
            number, is_rest = len(self.lines), name.endswith("residual")
            dash = dash_of(2 if name.startswith(LETTERS[1]) else 1) if is_rest else dash_of(number)
            how = {"color": LINE if is_rest else hex_of(number), "line_dash": list(dash)}
            self.spectra.line("x", "y", source=self.lines[name], legend_label=name, line_width=1.5, **how)
            self.spectra.legend.background_fill_alpha = 0
            self.spectra.legend.border_line_alpha = 0
            self.spectra.legend.label_text_color = GREY

    def tapped(self, event: Any) -> None:
        """Show the pixel that was clicked."""
        sample, line = np.floor(corners_of_selection(event.x, event.y)).astype(int)
        if 0 <= line < self.sources[0].lines and 0 <= sample < self.sources[0].samples:
            self.show(line, sample)

    def show(self, line: int, sample: int) -> None:
        """Show the spectra of a pixel and what is known of it."""
        said = [f"<h2>Line {line}, sample {sample}</h2>"]
        for letter, source, picture in zip(LETTERS, self.sources, self.pictures):
            picture.mark.data = {"x": [sample + 0.5], "y": [line + 0.5]}
            facts = source.facts(line, sample)
            self.draw(facts, letter)
            said.append(words_of(facts, "" if len(self.sources) == 1 else f"{letter}: {source.path}"))
        self.facts.text = "".join(said)

    def draw(self, facts: Facts, letter: str) -> None:
        """Draw the spectra of a pixel; what two sources of one scene measured is one line."""
        for name in ("measured", "modelled", "residual"):
            is_one = len(self.sources) == 1 or (name == "measured" and self.is_one_scene)
            if name in facts.spectra or not (is_one and letter != LETTERS[0]):
                self.line(name if is_one else f"{letter} {name}", facts.waves, facts.spectra.get(name))

    def selected(self, event: Any) -> None:
        """Draw the mean of the region that was drawn."""
        if not event.final:
            return
        self.mean, self.keep.disabled = np.zeros(0), True
        shape = event.geometry if isinstance(event.geometry, dict) else {}
        if shape.get("type") == "rect":
            ends = corners_of_selection([shape.get("x0"), shape.get("x1")], [shape.get("y0"), shape.get("y1")], 2)
            x, y = ends[0][[0, 1, 1, 0]], ends[1][[0, 0, 1, 1]]
        else:
            x, y = corners_of_selection(shape.get("x"), shape.get("y"), 2)
        source = self.sources[0]
        self.mean, count = source.mean_of(x, y)
        self.keep.disabled = count == 0
        self.line(REGION, source.waves, self.mean if count else None)
        self.said.text = f"The region has {count} pixels."

    def keep_mean(self) -> None:
        """Add the mean of the region to the library; errors as of `Kept.add`."""
        self.said.text = text(self.kept.add(self.name.value, self.mean))


def corners_of_selection(x: Any, y: Any, dimensions: int = 1) -> np.ndarray:
    """Return places that an event names as an array, (2,) or (2, n); `UnmixError` where they are no finite numbers."""
    try:
        places = np.array([x, y], float)
    except (TypeError, ValueError, OverflowError):  # such as text, or lists that are not as long as each other
        places = np.zeros(0)
    is_one = places.ndim == dimensions and 0 < places.size <= 2 * MOST_CORNERS
    if not (is_one and (np.abs(places) < FARTHEST).all()):
        raise UnmixError("this is no place in the picture")
    return places


def plain_figure(**how: Any) -> Any:
    """Return a figure on a light ground, in colours that are read there."""
    made = figure(
        sizing_mode="stretch_width",
        toolbar_location="above",
        background_fill_color=GROUND,
        border_fill_color=GROUND,
        outline_line_color=GREY,
        **how,
    )
    made.axis.axis_line_color = made.axis.major_tick_line_color = made.axis.minor_tick_line_color = GREY
    made.axis.major_label_text_color = made.axis.axis_label_text_color = GREY
    made.grid.grid_line_color, made.grid.grid_line_alpha = GREY, 0.2
    made.toolbar.logo = None
    return made


def words_of(facts: Facts, title: str) -> str:
    """Return what is known of a pixel as markup."""
    head = f"<h3>{text(title)}</h3>" if title else ""
    said = f'<p class="quiet">{text(facts.said)}</p>' if facts.said else ""
    rows = [(text(name), text(value)) for name, value in facts.rows]
    return head + said + (table(("", "value"), rows, 1) if rows else "")


def build_page(document: Document, sources: Sequence[Source], kept: KeptSpectra) -> None:
    """Fill the document of a session; see `Page`."""
    page = Page(sources, kept)
    for root in page.roots():
        document.add_root(root)
    document.title = " and ".join(one.path.name for one in sources)
    document.template = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
    document.template_variables["style"] = file_of("page.css")
