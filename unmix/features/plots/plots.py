"""`validate`: compare the maps of a finished run with fractions that were measured at places of the ground."""

import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...commands.finished.sides import Side, side_of
from ...errors import InputError, MethodError
from ...io import Cube, counted, csv_of, located, read_small
from ...io.formats.geotiff import gdal
from ...io.formats.header import geotransform
from ...io.ground import system_of, transformed
from ...io.polygons import LONGITUDE_LATITUDE
from ...library.table import is_number, number_or_nan, read_rows
from ...outputs import inputs_of, inputs_of_run, refuse_inputs, titled, write_whole
from ...runs.files.finished import stem_of_outputs
from .page import page_of_plots

log = logging.getLogger("unmix")
# Bytes of a table of plots, and the most pixels along a side of a plot.
LONGEST_FILE, WIDEST_WINDOW = 64 * 2**20, 99
# The least share of a plot's pixels that must have values.
LEAST_WITH_VALUES = 0.5
# By how much sums of measured and of mapped fractions may differ, in the median plot.
MOST_APART = 0.1
# Above this a measured fraction is likely in per cent.
LARGEST_FRACTION = 2.0
# Above this a number is no fraction in any unit; squares of such numbers are still numbers.
NO_FRACTION = 1e12
# The columns that say where a plot is, the first pair that is there, and which of three ways it is: line and sample, or
# across and up.
PLACES = {
    ("line", "sample"): "line",
    ("x", "y"): "x",
    ("easting", "northing"): "x",
    ("lon", "lat"): "lon",
    ("longitude", "latitude"): "lon",
}
# Words beside the name of a material in the heading of a column, and of these such as say that it is in per cent.
PER_CENT = {"pct", "percent", "perc", "%"}
BESIDE_NAMES = PER_CENT | {"cover", "fraction", "frac", "share", "abundance", "per", "cent"}
WORDS = re.compile(r"[a-z0-9]+|%")
# Most names of a list that is said.
MOST_SAID = 5
NAMES = ("plot", "name", "id", "plot id", "plot_id")
# The columns of the tables that are written: of each plot, and of the errors.
PAIR = ("plot", "name", "measured", "mapped")
ERRORS = ("name", "n", "r2", "rmse", "mae", "bias", "slope")
# Of a reference that varies by less than this share of its squares R² and slope say nothing.
LEAST_VARIANCE = 1e-13


class Plots(NamedTuple):
    """A table of n plots: names, places (n, 2) by a word of `PLACES`, k columns, and values (n, k), NaN where empty."""

    names: list[str]
    by: str
    places: np.ndarray
    columns: list[str]
    values: np.ndarray


def validate(
    run: str | os.PathLike[str],
    plots: str | os.PathLike[str],
    *,
    window: int = 1,
    scale: float | None = None,
    kind: str | None = None,
    by: str | None = None,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Compare the maps of a finished run, or a raster of fractions, with fractions that were measured on the ground.

    Parameters
    ----------
    run : path-like
        The beginning of a run's outputs' names, or one of these outputs.
    plots : path-like
        A CSV table with a plot in each row: columns ``line`` and ``sample`` (from 0, in the whole scene), ``x`` and
        ``y``, or ``easting`` and ``northing`` (in the scene's coordinate system), or ``lon`` and ``lat`` (degrees, WGS
        84); a column with the fraction of each endmember or class, by its name, perhaps with a word beside it
        (``grass_pct``, ``Oak cover``); and perhaps ``plot``, its name. A cell may be empty.
    window : int
        Pixels along a side of the square around the place that are averaged: 1, 3, 5, …
    scale : float, optional
        The divisor of the table's fractions; default is 100 for columns named per cent (pct, percent, perc, %), and 1.
    kind : {"abundance", "fraction", "mass"}, optional
        The map; default is that which the run's name says, else abundances, or sums by class where there are none.
    by : {"class"}, optional
        Add up the endmembers of each class first.
    out : path-like, optional
        A page, .html, with a scatter plot for each pair; or a table of the errors, .csv, and beside it,
        ``NAME_plots.csv``, measured and mapped fractions of each plot.
    overwrite : bool
        Replace that file if it exists.

    Returns
    -------
    dict
        ``plots``: their number; ``used``: those with a place and values in the maps; ``outside`` and ``nodata``: names
        of plots beyond the scene, or less than half of whose pixels have values; ``window``; ``unmatched``: columns
        that are no map of the run; ``empty``: names of plots without a value, by column;
        ``pairs``: for each column ``name``, ``n``, ``r2`` (one less the squared errors over the variance of what was
        measured), ``rmse``, ``mae``, ``bias`` (mapped less measured, mean), ``slope`` (by which the map grows with what
        was measured); ``rows``: a dict for each plot and column: ``plot``, ``name``, ``measured``, ``mapped``.

    Raises
    ------
    OutputError
        Where there is no such run or map, or the file exists or cannot be written.
    InputError
        Where the table has no places, no column with the name of a map, or a cell that is no number; where no plot can
        be compared; or the scene has no place on a map and the table coordinates.
    MethodError
        Where a parameter is out of range.
    """
    if not (0 < window <= WIDEST_WINDOW and window % 2):
        raise MethodError(f"`window` {window}: has to be an odd number from 1 to {WIDEST_WINDOW}")
    if scale is not None and not 0 < scale < np.inf:
        raise MethodError(f"`scale` {scale:g}: must be above 0, and finite")
    if by not in (None, "class"):
        raise MethodError(f"`by` {by}: has to be class")
    target = None if out is None else Path(out)
    if target is not None and target.suffix.lower() not in (".html", ".csv"):
        raise MethodError(f"{target}: a page ends in .html, a table in .csv")
    table, side = read_plots(located(plots)), side_of(Path(run), kind, "fraction" if by else None)
    side = side.by_class() if by else side
    bands = bands_named(table.columns, side.names)
    pairs = [*bands.items()]
    unmatched = [name for c, name in enumerate(table.columns) if c not in bands]
    if not pairs:
        some = ", ".join(side.names)
        raise InputError(f"{plots}: no column has the name of a map of {run}: {some}; `by` class sums up each")
    divisors = [scale or (100.0 if is_per_cent(name) else 1.0) for name in table.columns]
    lines, samples = pixels_of(table, side)
    inside = (lines >= 0) & (lines < side.cube.lines) & (samples >= 0) & (samples < side.cube.samples)
    mapped = np.full((len(lines), len(side.names)), np.nan)
    for n in np.flatnonzero(inside)[np.argsort(lines[inside], kind="stable")]:
        mapped[n] = mean_around(side, int(lines[n]), int(samples[n]), window)
    has_values = (np.abs(mapped) <= NO_FRACTION).all(axis=1)
    mapped[~has_values] = np.nan
    measured = table.values / divisors
    if (most := float(np.nanmax(np.abs(measured[:, [c for c, _ in pairs]]), initial=0.0))) > NO_FRACTION:
        raise InputError(
            f"{plots}: measured fractions reach {most:.3g}, which is none; correct that, or leave the cell empty"
        )
    if most > LARGEST_FRACTION:
        log.warning(f"{plots}: measured fractions reach {most:.3g}; are they in per cent? Then give `scale` 100")
    both = measured[:, [c for c, _ in pairs]], mapped[:, [b for _, b in pairs]]
    full = has_values & np.isfinite(both[0]).all(axis=1)
    sums = [float(np.median(one[full].sum(axis=1))) if full.any() else 1.0 for one in both]
    if len(pairs) > 1 and most <= LARGEST_FRACTION and abs(sums[0] - sums[1]) > MOST_APART:
        log.warning(
            f"{plots}: measured fractions sum to {sums[0]:.2f} in the median plot{', as layers do' * (sums[0] > 1 + MOST_APART)}, "
            f"those mapped to {sums[1]:.2f}: bias and slope hold the difference"
        )
    found: dict[str, Any] = {
        "run": str(run),
        "table": str(plots),
        "plots": len(lines),
        "used": int(has_values.sum()),
        "window": window,
        "outside": [table.names[n] for n in np.flatnonzero(~inside)],
        "nodata": [table.names[n] for n in np.flatnonzero(inside & ~has_values)],
        "unmatched": unmatched,
        "empty": {
            table.columns[c]: [table.names[n] for n in np.flatnonzero(has_values & np.isnan(measured[:, c]))]
            for c, _ in pairs
        },
        "pairs": [errors_of_plots(table.columns[c], measured[:, c], mapped[:, b]) for c, b in pairs],
        "rows": [
            {
                "plot": table.names[n],
                "name": table.columns[c],
                "measured": float(measured[n, c]),
                "mapped": float(mapped[n, b]),
            }
            for c, b in pairs
            for n in np.flatnonzero(has_values & ~np.isnan(measured[:, c]))
        ],
    }
    if not found["rows"]:
        raise InputError(
            f"{plots}: no plot has values in the maps of {run}: {counted(len(found['outside']), 'plot')} outside"
        )
    for key, said in (("outside", "outside of the scene"), ("nodata", "without values in the maps")):
        if found[key]:
            log.warning(f"{plots}: {counted(len(found[key]), 'plot')} {said}: {few_of(found[key])}")
    for name, lacking in found["empty"].items():
        if lacking:
            log.warning(f"{plots}: no value of {name} at {counted(len(lacking), 'plot')}: {few_of(lacking)}")
    read_as = [
        f"{table.columns[c]} as {side.names[b]}" + (" in per cent" if scale is None and divisors[c] > 1 else "")
        for c, b in pairs
        if table.columns[c].lower() != side.names[b].strip().lower()
    ]
    if read_as:
        log.info(f"{plots}: columns are read: {few_of(read_as)}")
    if target is not None:
        inputs = inputs_of(side.cube, plots=plots) + (inputs_of_run(stem_of_outputs(side.path)) if side.report else [])
        contents = {target: page_of_plots(found)}
        if target.suffix.lower() == ".csv":
            each = target.with_name(f"{target.stem}_plots.csv")
            contents = {target: csv_of(ERRORS, found["pairs"]), each: csv_of(PAIR, found["rows"])}
        refuse_inputs([*contents], inputs)
        write_whole(
            {path: text.encode() for path, text in contents.items()}, overwrite, "another name", titled(ERRORS, PAIR)
        )
    return found


def few_of(names: list[str]) -> str:
    """Return some names, and how many more there are."""
    more = len(names) - MOST_SAID
    return ", ".join(names[:MOST_SAID]) + (f" and {more} more" if more > 0 else "")


def words_of(name: str) -> set[str]:
    """Return the words of a column's heading, or of the name of a map."""
    return set(WORDS.findall(name.lower()))


def is_per_cent(column: str) -> bool:
    """Return whether a column's heading says that it is in per cent."""
    words = words_of(column)
    return bool(words & PER_CENT) or {"per", "cent"} <= words


def bands_named(columns: Sequence[str], names: Sequence[str]) -> dict[int, int]:
    """Return each column's band: the one with its name, else the only one with its words but for `BESIDE_NAMES`."""
    small = [name.strip().lower() for name in names]
    found = {c: small.index(name.lower()) for c, name in enumerate(columns) if name.lower() in small}
    for c, name in enumerate(columns):
        words = words_of(name) - BESIDE_NAMES
        like = [
            b
            for b, one in enumerate(names)
            if words and words == words_of(one) - BESIDE_NAMES and b not in found.values()
        ]
        if c not in found and len(like) == 1:
            found[c] = like[0]
    return dict(sorted(found.items()))


def read_plots(path: Path) -> Plots:
    """Read a table of plots; `InputError` where it has no places, or a cell is no number."""
    rows = read_rows(path, read_small(path, LONGEST_FILE))
    heading = [cell.strip() for cell in rows[0][1]] if rows else []
    small = [cell.lower() for cell in heading]
    pair = next((pair for pair in PLACES if set(pair) <= set(small)), None)
    if pair is None or len(rows) < 2:
        pairs = ", ".join(" and ".join(one) for one in PLACES)
        raise InputError(f"{path}: a table of plots has a heading with one of {pairs}, and a row for each plot")
    of_places = [small.index(name) for name in pair]
    of_name = next((small.index(name) for name in NAMES if name in small), None)
    others = [i for i in range(len(heading)) if i not in (*of_places, of_name) and small[i] not in sum(PLACES, ())]
    others = [i for i in others if any(is_number(cell_of(cells, i)) for _, cells in rows[1:])]
    values = np.full((len(rows) - 1, len(others)), np.nan)
    places = np.empty((len(rows) - 1, 2))
    for r, (number, cells) in enumerate(rows[1:]):
        for out, columns, may_lack in ((places[r], of_places, False), (values[r], others, True)):
            for k, i in enumerate(columns):
                cell = cell_of(cells, i)
                value = number_or_nan(cell or "nan") if may_lack else float(cell) if is_number(cell) else None
                if value is None:
                    advice = "; write the middle of a class of cover" if may_lack else ""
                    raise InputError(f"{path}: row {number}, {heading[i]}: '{cell[:20]}' is not a number{advice}")
                out[k] = value
    names = [cell_of(cells, of_name) if of_name is not None else f"row {number}" for number, cells in rows[1:]]
    return Plots(names, PLACES[pair], places, [heading[i] for i in others], values)


def cell_of(cells: list[str], column: int) -> str:
    """Return a cell without blanks around it, "" where the row is shorter."""
    return cells[column].strip() if column < len(cells) else ""


def pixels_of(table: Plots, side: Side) -> tuple[np.ndarray, np.ndarray]:
    """Return the line and sample (n,), int64, of each plot in the map; -1 where it has no place in it."""
    if table.by == "line":
        lines, samples = (np.floor(table.places) - side.begins).T
    else:
        across, up = placed(table, side.cube)
        transform = geotransform(side.cube.fields["map info"])
        assert transform is not None
        x, a, b, y, c, d = transform
        samples, lines = np.floor(np.linalg.solve([[a, b], [c, d]], np.stack([across - x, up - y])))
    known = np.isfinite(lines) & np.isfinite(samples)
    return tuple(  # type: ignore[return-value]
        np.where(known, np.clip(each, -1, 2**40), -1).astype(np.int64) for each in (lines, samples)
    )


def placed(table: Plots, cube: Cube) -> np.ndarray:
    """Return the coordinates (2, n) of plots in a scene's coordinate system."""
    if geotransform(cube.fields.get("map info", "")) is None:
        raise InputError(
            f"{cube.path}: has no map info, so coordinates have no place in it; give plots by line and sample"
        )
    own = system_of(cube.fields)
    if table.by == "x":
        return table.places.T
    gdal("plots in degrees need")
    if not own:
        raise InputError(f"{cube.path}: its coordinate system is not known; give plots by x and y, or line and sample")

    def at(place: np.ndarray) -> np.ndarray:
        try:
            return transformed(place[:, None], LONGITUDE_LATITUDE, own)
        except Exception:  # of PROJ: a latitude beyond a pole, or a system that it does not know
            return np.full((2, 1), np.nan)

    found = np.hstack([at(place) for place in table.places])
    if not np.isfinite(found).any():
        raise InputError(
            f"{cube.path}: no plot has a place in its coordinate system; are longitude and latitude the right way round?"
        )
    return found


def mean_around(side: Side, line: int, sample: int, window: int) -> np.ndarray:
    """Return the mean (bands,) of the pixels with values in a square around one, NaN where too few have any."""
    reach = window // 2
    values, present = side.read(slice(max(0, line - reach), min(side.cube.lines, line + reach + 1)))
    across = slice(max(0, sample - reach), sample + reach + 1)
    values, present = values[:, across], present[:, across]
    if present.sum() < LEAST_WITH_VALUES * present.size:
        return np.full(values.shape[2], np.nan)
    return np.asarray(values[present].mean(axis=0))


def errors_of_plots(name: str, measured: np.ndarray, mapped: np.ndarray) -> dict[str, Any]:
    """Return the errors of one map at the plots (n,) that have both values; None where they say nothing."""
    both = ~(np.isnan(measured) | np.isnan(mapped))
    b, n = measured[both], int(both.sum())
    d = mapped[both] - b
    if not n:
        return {"name": name, "n": 0} | dict.fromkeys(("r2", "rmse", "mae", "bias", "slope"))
    squares = float(np.square(b - b.mean()).sum())
    varies = n > 1 and squares > LEAST_VARIANCE * float(np.square(b).sum())
    return {
        "name": name,
        "n": n,
        "r2": float(1 - np.square(d).sum() / squares) if varies else None,
        "rmse": float(np.sqrt(np.square(d).mean())),
        "mae": float(np.abs(d).mean()),
        "bias": float(d.mean()),
        "slope": float(1 + (d * (b - b.mean())).sum() / squares) if varies else None,
    }
