"""The section of a run's page that shows single pixels: as measured, as modelled, and what is left."""

from typing import Any, NamedTuple

import numpy as np

from ..errors import UnmixError
from ..io import NODATA, Cube, Scene, by_pixel, read_lines
from ..library.fractions import Normalization
from ..outputs.names import normalize_of
from ..runs.files.finished import FinishedRun
from ..scene import open_part, open_pixels
from ..scene.albedo import Albedo
from .parts import chart_of, keys, percent, text
from .pictures import GREY, hex_of, thin_bands, thinned_lines

# Longest side of the thinned maps that pixels are chosen from; most endmembers that are shown by a pixel each.
SIDE, MOST_MATERIALS = 400, 4
# Pixels with the largest RMSE, of one in twenty, whose residuals are compared; groups that are shown, the fewest pixels
# of one, and the cosine from which on two residuals are of one shape.
MOST_COMPARED, MOST_GROUPS, FEWEST_OF_GROUP, ONE_SHAPE = 64, 3, 4, 0.85
# Most endmembers of a pixel that are named, and the least share of its sum that one has.
MOST_NAMED, LEAST_SHARE = 4, 0.01
# The lines of a pixel's chart.
LINES, COLOURS = ("measured", "modelled", "residual"), (hex_of(1), hex_of(2), GREY)


class Pixel(NamedTuple):
    """A pixel that is shown: why, and where."""

    why: str
    line: int
    sample: int


def chosen(run: FinishedRun) -> list[Pixel]:
    """Return the worst, a median and the purest pixels of a run, among every k-th line and sample of its maps."""
    rows, columns, rmse = thinned_rmse(run)
    if np.isnan(rmse).all():
        return []
    places = [("Largest RMSE", np.nanargmax(rmse)), ("Median RMSE", np.nanargmin(np.abs(rmse - np.nanmedian(rmse))))]
    names = [str(name) for name in run.report["endmembers"]["names"]]
    means = {str(one.get("name")): float(one.get("mean") or 0.0) for one in run.report.get("abundances", [])}
    largest = sorted(range(len(names)), key=lambda j: -means.get(names[j], 0.0))[:MOST_MATERIALS]
    for j, values in zip(largest, thin_bands(run.open("abundance"), largest, SIDE)):
        shares = known(values)
        if not np.isnan(shares).all() and np.nanmax(shares) > 0:
            places.append((f"Most of {names[j]}", np.nanargmax(shares)))
    found, seen = [], set()
    for why, place in places:
        line, sample = np.unravel_index(place, rmse.shape)
        if (line, sample) not in seen:
            found.append(Pixel(why, int(rows[line]), int(columns[sample])))
        seen.add((line, sample))
    return found


def thinned_rmse(run: FinishedRun) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return every k-th line and sample of a run's maps, and the RMSE there, (h, w); NaN where it has none."""
    cube = run.open("rmse")
    parts = thinned_lines(cube.lines, cube.samples, SIDE)
    rows, columns = (np.arange(n)[part] for n, part in zip((cube.lines, cube.samples), parts))
    return rows, columns, known(thin_bands(cube, [0], SIDE)[0])


def misfits(run: FinishedRun, model: "RunModel") -> list[Pixel]:
    """Return a pixel of each large group of residuals of one shape, among the pixels with the largest RMSE."""
    rows, columns, rmse = thinned_rmse(run)
    if np.isnan(rmse).all():
        return []
    worst = np.flatnonzero(rmse.ravel() >= np.nanpercentile(rmse, 95))
    some = worst[np.unique(np.linspace(0, len(worst) - 1, min(MOST_COMPARED, len(worst))).astype(int))]
    pixels = [Pixel("", int(rows[place // rmse.shape[1]]), int(columns[place % rmse.shape[1]])) for place in some]
    left = []
    for pixel in pixels:
        y, modelled, _ = model.of(pixel)
        left.append(np.nan_to_num(y - modelled))
    shapes = np.array(left) / np.maximum(np.linalg.norm(left, axis=1, keepdims=True), np.finfo(float).tiny)
    alike, found = shapes @ shapes.T >= ONE_SHAPE, list[Pixel]()
    while len(found) < MOST_GROUPS:
        first = int(alike.sum(axis=1).argmax())
        group = alike[first].copy()
        if group.sum() < FEWEST_OF_GROUP:
            break
        share = percent(float(group.sum()) / len(pixels))
        found.append(pixels[first]._replace(why=f"Pattern of {share} of the worst pixels"))
        alike[group], alike[:, group] = False, False
    return found


def known(values: np.ndarray) -> np.ndarray:
    """Return a map with NaN where it has no value."""
    return np.where(np.isfinite(values) & (values != NODATA), values, np.nan)


def why_none(run: FinishedRun) -> str:
    """Return why a run's pixels cannot be drawn; empty where they can."""
    if run.report["method"] in ("mesma", "nmf"):
        return f"abundances of {run.report['method']} are none of mixtures of all endmembers"
    if not run.has("abundance") or run.has("index"):
        return "only the largest abundances were written"
    return "its bands are tied" if run.report["reading"].get("tie") is not None else ""


class RunModel:
    """A run's model of its pixels; `UnmixError` or `ValueError` if that is unknown, or the scene absent or another."""

    def __init__(self, run: FinishedRun) -> None:
        report = run.report
        if why_none(run):
            raise ValueError(why_none(run))
        self.run, path = run, run.input()
        self.maps = dict[str, Cube]()  # opened once: to open HDF5 takes a process
        reading = run.reading(path)
        self.cube, nodata = (open_pixels(path, reading), None) if reading.changes else open_part(path, reading)
        if not run.is_of(self.cube):
            raise ValueError("the scene is not as the run read it")
        self.scene, L = Scene(self.cube, run.bands(), nodata), len(report["bands_used"])
        self.library = run.endmembers()
        self.albedo = self.cube if isinstance(self.cube, Albedo) else None
        self.matrix = self.library.matrix if self.albedo is None else self.albedo.change_library(self.library.matrix)
        has_shade = len(self.library.names) > 0 and run.report["method"] == "pcls"
        self.normalization = Normalization.of(normalize_of(report), self.matrix, has_shade)
        asked: dict[str, Any] = report.get("asked", {})
        self.background = np.broadcast_to(np.array(asked.get("background", 0.0), float), L)
        if len(self.library.matrix) != L:
            raise ValueError("its endmembers have another number of bands")

    def of(self, pixel: Pixel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return a pixel's spectrum and model (L,), in the unit of the library, and written abundances (p,)."""
        y = self.scene.spectra(read_lines(self.cube, slice(pixel.line, pixel.line + 1)))[pixel.sample]
        shown = self.values("abundance", pixel)
        if self.values("rmse", pixel)[0] == NODATA:
            raise ValueError(f"line {pixel.line}, sample {pixel.sample} has no result")
        a = shown.astype(float)
        if self.normalization is not None:
            a = self.normalization.back(a, self.values("scale", pixel)[0].astype(float), 0)
        modelled = self.matrix @ a + self.background
        if self.albedo is not None:
            y, modelled = self.albedo.back(y), self.albedo.back(modelled)
        return y, modelled, shown

    def values(self, name: str, pixel: Pixel) -> np.ndarray:
        """Return the values of a map for a pixel."""
        if name not in self.maps:
            self.maps[name] = self.run.open(name)
        cube = self.maps[name]
        return by_pixel(read_lines(cube, slice(pixel.line, pixel.line + 1)), cube.interleave)[0, pixel.sample]


def pixels_section(run: FinishedRun) -> str:
    """Return the section; empty if abundances are of no mixtures (mesma) or only the largest are written."""
    if why_none(run):
        return ""
    try:
        model = RunModel(run)
        found = chosen(run)
        seen = {(pixel.line, pixel.sample) for pixel in found}
        found += [pixel for pixel in misfits(run, model) if (pixel.line, pixel.sample) not in seen]
        parts = [figure_of(run, model, pixel) for pixel in found]
    except (UnmixError, ValueError, OSError) as error:
        return f'<h2>Pixels</h2><p class="quiet">No spectra of pixels: {text(error)}.</p>'
    legend = keys(COLOURS, LINES, dotted=(0,))
    return (
        f'<h2>Pixels</h2><p class="quiet small">{legend}</p><div class="charts wide">{"".join(parts)}</div>'
        if parts
        else ""
    )


def figure_of(run: FinishedRun, model: RunModel, pixel: Pixel) -> str:
    """Return a pixel's chart, and in words what it is made of."""
    y, modelled, shown = model.of(pixel)
    values = np.column_stack([y, modelled, y - modelled])
    chart = chart_of(run, values, LINES, COLOURS, f"spectra of a pixel: {pixel.why}", False, dotted=(0,))
    total, length = float(np.abs(shown).sum()), float(np.linalg.norm(y - model.background))
    order = [j for j in np.argsort(-np.abs(shown)) if abs(shown[j]) > LEAST_SHARE * total][:MOST_NAMED]
    made = ", ".join(f"{shown[j]:.2f} {text(model.library.names[j])}" for j in order) or "nothing"
    misfit = percent(float(np.linalg.norm(y - modelled)) / length) if length > 0 else "all"
    return (
        f"<figure><figcaption><b>{text(pixel.why)}</b>: line {pixel.line}, sample {pixel.sample}; {made}; {misfit} of "
        "the spectrum is "
        f"left</figcaption>{chart}</figure>"
    )
