"""`plot`: spectra of libraries, of a run's endmembers and of pixels, or maps of a run, as a picture."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import CubeError, LibraryError, MethodError
from ...io import located, open_cube, read_lines
from ...library import Endmembers, load_parts, prepared
from ...outputs import inputs_of, inputs_of_run, refuse_inputs, write_whole
from ...pages import dash_of, hex_of
from ...pages.parts import with_gaps
from ...pages.pixels import LINES, Pixel, RunModel
from ...runs.files.finished import FinishedRun
from ...scene import ReadOptions, open_scene
from .maps import ALL, DPIS, FORMS, SHARES, WIDTHS, bytes_of_figure, new_figure, picture_of_maps, within

# Most lines that the legend names, each with its own colour and dashes; width over height of a picture of spectra.
MOST_NAMED, SHAPE = 24, 1.8
# Widths in mm and dots an inch where none are asked for: of spectra, and of maps, which fill a journal's two columns.
WIDTH, DPI, MAPS_WIDTH, MAPS_DPI = 228.6, 150, 170.0, 300
# Most spectra of a picture: more are a blot, and take minutes.
MOST_SPECTRA = 2000


class SpectrumLine(NamedTuple):
    """A spectrum of a picture: name, wavelengths (nm) or None, values, NaN where missing, and own colour or none."""

    name: str
    waves: np.ndarray | None
    values: np.ndarray
    colour: str = ""


def plot(
    sources: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    at: Sequence[str] = (),
    select: str | None = None,
    maps: str | Sequence[str] | None = None,
    stretch: str | Sequence[float] | None = None,
    width: float | None = None,
    dpi: int | None = None,
    cube: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    **reading: Any,
) -> Path:
    """Draw spectra of libraries, runs and pixels, or maps of a run.

    Spectra are those of libraries; the endmembers of finished runs; with ``at`` pixels of cubes or, of runs, as
    measured and modelled. Maps are panels of one scale with a colour bar; pixels without a value are hatched. Where the
    scene's coordinates are lengths there are a scale bar and north, which need rasterio.

    Parameters
    ----------
    sources : path-like, or a sequence of them
        Libraries, cubes, or the beginnings of runs' outputs' names.
    out : path-like
        The picture, which ends in .png, .tif, .svg or .pdf.
    at : sequence of str
        Pixels, ``LINE,SAMPLE`` from 0.
    select : str, optional
        Which spectra of libraries, as for `unmix.run`.
    maps : str or sequence of str, optional
        Draw the maps of these endmembers or classes of one run, or bands of one raster that no run wrote; in a str,
        commas are between them, or it is ``all``.
    stretch : str or sequence of float, optional
        Values of the first and the last colour of maps, ``LOW,HIGH``; default 0 and 1, of a raster the percentiles 0.5
        and 99.5, or as far below as above 0. The colour bar shows where values are beyond.
    width : float, optional
        Width of the picture, mm; default 228.6, of maps 170.
    dpi : int, optional
        Dots an inch; default 150, of maps 300.
    cube : path-like, optional
        The scene of a run, if it is no longer where the run found it, or on a server.
    overwrite : bool
        Replace the file if it exists.
    **reading
        How cubes are read; see `unmix.ReadOptions`.

    Returns
    -------
    Path
        The picture.

    Raises
    ------
    MethodError
        Where matplotlib is missing, ``out`` has another ending, a pixel is not ``LINE,SAMPLE``, there are too many
        spectra, no such maps, or the picture has no room for them.
    LibraryError, CubeError
        Where a source cannot be read, or has no such pixel.
    OutputError
        Where the picture exists, or cannot be written.
    """
    target, named = Path(out), [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    form = FORMS.get(target.suffix.lower())
    if form is None:
        raise MethodError(f"{target}: pictures are written as {', '.join(FORMS)}; use one of these endings")
    usual = (WIDTH, DPI) if maps is None else (MAPS_WIDTH, MAPS_DPI)
    size = (
        within("width", usual[0] if width is None else width, WIDTHS, " mm"),
        int(within("dpi", usual[1] if dpi is None else dpi, DPIS)),
    )
    if maps is not None:
        if len(named) != 1 or at or select:
            raise MethodError("`maps` are of one run or raster; name it alone, without `at` and `select`")
        content = maps_drawn(located(named[0]), cube, maps, target, form, size, stretch)
        return write_whole({target: content}, overwrite, "another name")[0]
    if stretch is not None:
        raise MethodError("`stretch` is of `maps`; name some")
    places = [place_of(text) for text in at]
    inputs, drawn, seen = list[tuple[str, Path]](), list[SpectrumLine](), set[Path]()
    for source in named:
        path = located(source)
        run = FinishedRun.of_source(path, cube)
        if run is not None:
            if run.named is not None and run.named not in SHARES and not places:
                raise MethodError(f"{path}: is a map; draw it with `maps` {ALL}, or name the run, {run.stem}")
            if run.stem not in seen:  # several outputs of one run are one run
                inputs += inputs_of_run(run.stem)
                drawn += of_run(run, places, select)
            seen.add(run.stem)
        elif places:
            scene = open_scene(path, ReadOptions(**reading))
            inputs += inputs_of(scene.cube)
            drawn += [of_pixel(scene, *place) for place in places]
        else:
            inputs += inputs_of(library=path)
            parts = prepared(spectra_of(path), path, None, None, select)
            drawn += [line for part in parts for line in of_library(part)]
    if not 0 < len(drawn) <= MOST_SPECTRA:
        raise MethodError(
            f"these are {len(drawn)} spectra, and a picture has at most {MOST_SPECTRA}; choose some with `select`"
        )
    refuse_inputs([target], inputs)
    content = bytes_of_figure(picture_of_spectra(drawn, *size), form)
    return write_whole({target: content}, overwrite, "another name")[0]


def maps_drawn(
    path: Path,
    cube: str | os.PathLike[str] | None,
    maps: str | Sequence[str],
    target: Path,
    form: str,
    size: tuple[float, int],
    stretch: str | Sequence[float] | None,
) -> bytes:
    """Return maps of a run, or of a raster that no run wrote, as a picture."""
    run = FinishedRun.of_source(path, cube) if path.exists() else FinishedRun.of(path, cube)
    scale = None if stretch is None else stretch_of(stretch)
    if run is None:
        raster = open_cube(path)
        refuse_inputs([target], inputs_of(raster))
        return picture_of_maps(raster, maps, form, *size, scale)
    refuse_inputs([target], inputs_of_run(run.stem))
    with run.believing():
        return picture_of_maps(run, maps, form, *size, scale)


def spectra_of(path: Path) -> list[Endmembers]:
    """Load a library; `LibraryError` where it is none, which says how to draw pixels of a scene."""
    try:
        return list(load_parts(path))
    except LibraryError as error:
        if not path.exists():
            raise
        raise LibraryError(f"{error}; of a scene, name pixels with `at`, of a map bands with `maps`") from None


def of_library(library: Endmembers) -> Iterator[SpectrumLine]:
    """Yield the spectra of a library, in their own colours where they have some."""
    colors = library.colors or ("",) * len(library.names)
    yield from (
        SpectrumLine(name, library.wavelengths, *one) for name, *one in zip(library.names, library.matrix.T, colors)
    )


def place_of(text: str) -> tuple[int, int]:
    """Return line and sample of ``LINE,SAMPLE``."""
    parts = [part.strip() for part in str(text).split(",")]
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise MethodError(f"`at` {text}: write LINE,SAMPLE, both from 0")
    return int(parts[0]), int(parts[1])


def stretch_of(stretch: str | Sequence[float]) -> tuple[float, float]:
    """Return the ends of a scale; `MethodError` where they are no two numbers that grow."""
    parts = stretch.split(",") if isinstance(stretch, str) else stretch
    try:
        low, high = (float(part) for part in parts)
    except (TypeError, ValueError):
        low = high = np.nan
    if not -np.inf < low < high < np.inf:
        raise MethodError(f"`stretch` {stretch}: write LOW,HIGH, two numbers of which the second is larger")
    return low, high


def of_pixel(scene: Any, line: int, sample: int) -> SpectrumLine:
    """Return the spectrum of a pixel of a scene; `CubeError` where it is outside."""
    cube = scene.cube
    if not (line < cube.lines and sample < cube.samples):
        raise CubeError(no_pixel(cube, line, sample))
    raw = read_lines(cube, slice(line, line + 1))
    values = np.where(scene.missing(raw, each=True), np.nan, scene.spectra(raw))[sample]
    return SpectrumLine(f"{cube.stem} {line},{sample}", scene.wavelengths, values)


def no_pixel(cube: Any, line: int, sample: int) -> str:
    """Return the message about a pixel that is outside of a cube."""
    return f"{cube.path}: has {cube.lines} lines of {cube.samples} samples, and no pixel {line},{sample}"


def of_run(run: FinishedRun, places: Sequence[tuple[int, int]], select: str | None) -> Iterator[SpectrumLine]:
    """Yield the endmembers of a run, or pixels of its scene, each as measured and as modelled."""
    if not places:
        (library,) = prepared([run.endmembers()], run.stem, None, None, select)
        yield from of_library(library)
        return
    with run.believing():
        try:
            model = RunModel(run)
            for line, sample in places:
                if not (line < model.cube.lines and sample < model.cube.samples):
                    raise CubeError(no_pixel(model.cube, line, sample))
                measured, modelled, _ = model.of(Pixel("", line, sample))
                for word, values in zip(LINES, (measured, modelled, measured - modelled)):
                    yield SpectrumLine(f"{line},{sample} {word}", model.library.wavelengths, values)
        except ValueError as error:
            raise CubeError(f"{run.stem}: {error}") from None


def picture_of_spectra(drawn: Sequence[SpectrumLine], width: float, dpi: int) -> Any:
    """Return spectra as a figure; `MethodError` where matplotlib is missing."""
    figure = new_figure(width, width / SHAPE, dpi, layout="constrained")
    from matplotlib import colormaps

    axes = figure.add_subplot()
    are_few = len(drawn) <= MOST_NAMED
    for k, (name, waves, values, own) in enumerate(drawn):
        colour = own or hex_of(k + 1) if are_few else colormaps["viridis"](k / (len(drawn) - 1))
        dashes = (0, dash_of(k + 1)) if are_few and dash_of(k + 1) else "-"
        is_dotted = name.endswith(f" {LINES[0]}")  # as measured, over the modelled line
        how: dict[str, Any] = {"color": colour, "linestyle": "none" if is_dotted else dashes, "linewidth": 1.2}
        how |= {"marker": ".", "markersize": 4, "zorder": 3} if is_dotted else {}
        axes.plot(*with_gaps(waves, values), label=f"\u200b{name}", **how)  # which may begin with _
    has_waves = all(one.waves is not None for one in drawn)
    axes.set(xlabel="wavelength (nm)" if has_waves else "band", ylabel="value")
    axes.grid(alpha=0.3)
    if len(drawn) <= MOST_NAMED:
        legend = figure.legend(loc="outside right upper", fontsize=8, handlelength=4)  # as long as the longest dashes
        for text in legend.get_texts():
            text.set_parse_math(False)
    return figure
