"""`series`: lines through the values of each pixel at several dates."""

import datetime
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...commands.finished.blocks import plan_of
from ...commands.finished.change import format_of, write_map
from ...commands.finished.grids import is_one_grid
from ...commands.finished.sides import Side, side_of
from ...errors import InputError, MethodError
from ...io.fields import NODATA
from ...io.ground import is_one_system
from ...outputs.names import inputs_of_run
from ...pages.parts import document, keys, text
from ...pages.parts import lines as graph
from ...pages.parts import table as grid
from ...pages.pictures import own_or_ours
from ...pages.write import write_page
from ...runs.files.finished import FinishedRun, finished_runs, repeat_warnings

log = logging.getLogger("unmix")
# Days of a year; fewest dates of a pixel that tell a standard error; the chance of a change that is none.
DAYS, FEWEST_FOR_ERRORS, CHANCE = 365.25, 3, 0.05
# Maps that series are made from.
SHARES = ("abundance", "fraction")
# Years that dates must span for seasons not to be taken for a change a year, nearly.
SHORT = 1.5


def series(
    runs: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    kind: str | None = None,
    overwrite: bool = False,
) -> list[dict[str, Any]]:
    """Fit a line to the values of each pixel over finished runs of one place, by least squares.

    Parameters
    ----------
    runs : path-like, or a sequence of them
        Runs on one grid, with bands of the same names: the beginnings of their outputs' names, or one of these outputs
        each; or folders, whose finished runs are all taken.
    out : path-like, optional
        A map, .tif or .hdr, to write: for each band the change a year, and its standard error; no data where fewer than
        two dates have a value, or fewer than three for the error. Or a page, .html, with a graph and a table of the
        means over time.
    kind : {"abundance", "fraction"}, optional
        The map; default is the one whose file is named, else sums by class where all runs have them, else abundances.
    overwrite : bool
        Replace the map if it exists.

    Returns
    -------
    list of dict
        For each ``band`` the mean ``change`` a year over the ``pixels`` that have one, None without any, and how many
        of these are ``falling`` and ``rising`` by more than chance (Student's t with two dates less, 5 % of both), None
        of two dates; the
        ``dates``, and the ``means`` at
        each, over the ``pixels_of_means`` that have values at all of them or, without any, over those of each date.

    Raises
    ------
    MethodError
        Where there are fewer than two dates, a run has none, or the name of the map or page has another ending.
    InputError
        Where runs are on other grids, or have other bands.
    OutputError
        Where there is no such run, it has no such map, or the map exists or cannot be written.
    """
    given = [runs] if isinstance(runs, str | os.PathLike) else list(runs)
    found = [FinishedRun.of(stem) for path in map(Path, given) for stem in finished_runs(path)]
    repeat_warnings(run.report for run in found)
    form = None if out is None else format_of(Path(out))
    years = years_of(found)
    order = np.argsort(years, kind="stable")
    found, years = [found[k] for k in order], years[order]
    if years[-1] < SHORT:
        log.warning(f"the dates span {years[-1] * DAYS:.0f} days: seasons pass for a change a year")
    own = ("fraction" if all(run.has("fraction") for run in found) else "abundance") if kind is None else kind
    asked = {run.asked(kind, SHARES) or own for run in found}
    if len(asked) > 1:
        raise MethodError(f"maps of {' and '.join(sorted(asked))} are no series; name one by `map`")
    (name,) = asked
    sides = [side_of(run.stem, name) for run in found]
    refuse_others(sides)
    names, rows = sides[0].names, Rows(len(sides), len(sides[0].names))
    blocks = (rows.added(*values_of(sides, lines), years) for lines in plan_of(*sides))
    inputs = [file for run in found for file in inputs_of_run(run.stem)]
    if out is not None and form is not None:
        bands = [f"{name} a year" for name in names] + [f"standard error of {name}" for name in names]
        what = f"changes a year over {len(sides)} dates"
        write_map(Path(out), form, sides[0].cube, bands, what, blocks, overwrite, inputs)
    else:
        for _ in blocks:
            pass
    dates = [str(run.time) for run in found]
    table = [{"band": name} | row | {"dates": dates} for name, row in zip(names, rows.all())]
    if out is not None and form is None:
        library = found[0].endmembers() if name == "abundance" else None
        colours = own_or_ours(None if library is None else library.colors, len(names))
        write_page(Path(out), lambda: page_of_means(table, years, colours), inputs)
    return table


class Rows:
    """The sums over the pixels of a series, for each of its bands."""

    def __init__(self, dates: int, bands: int) -> None:
        self.total, self.counts = np.zeros(bands), np.zeros((3, bands), int)
        self.sums, self.there = np.zeros((2, dates, bands)), np.zeros((2, dates), int)

    def added(self, Y: np.ndarray, there: np.ndarray, years: np.ndarray) -> np.ndarray:
        """Add the `values_of` some lines; return their changes and errors (n, samples, 2 · bands) for a map."""
        for k, some in enumerate((there * there.all(axis=0), there)):  # of pixels with all dates, and of all
            self.sums[k] += (Y * some).sum(axis=(1, 2))
            self.there[k] += some.sum(axis=(1, 2, 3)).astype(int)
        change, error = slopes(Y, there, years)
        self.total += np.nansum(change, axis=(0, 1))
        from scipy.special import stdtrit

        limit = error * stdtrit(np.maximum(1, there.sum(axis=0) - 2), 1 - CHANCE / 2)
        kinds = np.isfinite(change), change < -limit, change > limit
        self.counts += np.stack([kind.sum(axis=(0, 1)) for kind in kinds])
        both = np.concatenate([change, error], axis=2)
        return np.where(np.isfinite(both), both, NODATA)

    def all(self) -> Iterator[dict[str, Any]]:
        """The row of each band, but for its name."""
        means, common = self.means()
        for total, counts, of_dates in zip(self.total.tolist(), self.counts.T.tolist(), means.T.tolist()):
            change = total / counts[0] if counts[0] else None
            beyond = counts[1:] if len(self.there[0]) >= FEWEST_FOR_ERRORS else (None, None)
            row = {"change": change} | dict(zip(("pixels", "falling", "rising"), (counts[0], *beyond)))
            yield row | {"means": of_dates, "pixels_of_means": common}

    def means(self) -> tuple[np.ndarray, int]:
        """Return means (dates, bands) over pixels with all dates and their number; else over each date's, and 0."""
        k = int(not self.there[0].any())
        return self.sums[k] / np.maximum(1, self.there[k])[:, None], int(self.there[0].max())


def years_of(runs: Sequence[FinishedRun]) -> np.ndarray:
    """Return the time of each run in years after the first (n,), float64; `MethodError` without two of them."""
    days = []
    for run in runs:
        try:
            days.append(datetime.datetime.fromisoformat(str(run.time).removesuffix("Z")).replace(tzinfo=None))
        except ValueError:
            raise MethodError(
                f"{run.stem}: has no date{f' as 2024-07-06, but {run.time}' if run.time else ''}; name its scene by one, "
                "such as site_20240706, or give the header an acquisition time"
            ) from None
    if len(set(days)) < 2:
        raise MethodError(f"a series needs runs at two dates or more, not {len(set(days))}")
    return np.array([(day - min(days)).total_seconds() for day in days]) / 86_400 / DAYS


def refuse_others(sides: Sequence[Side]) -> None:
    """Raise `InputError` where a map is on another grid than the first, or has other bands."""
    first = sides[0]
    for side in sides[1:]:
        if side.size != first.size or not (is_one_grid(first.cube, side.cube) and is_one_system(first.cube, side.cube)):
            raise InputError(f"{side.path}: is on another grid than {first.path}; a series needs one grid")
        if side.names != first.names:
            raise InputError(f"{side.path}: has the bands {', '.join(side.names)}, not {', '.join(first.names)}")


def page_of_means(table: Sequence[dict[str, Any]], years: np.ndarray, colours: Sequence[str]) -> str:
    """Return a page with a graph of the means over time, and a table of them."""
    names, dates, common = [row["band"] for row in table], table[0]["dates"], table[0]["pixels_of_means"]
    means = np.array([row["means"] for row in table]).T
    first = datetime.datetime.fromisoformat(dates[0].removesuffix("Z"))
    is_long = years[-1] >= SHORT
    at = first.year + (first.timetuple().tm_yday - 1) / DAYS + years if is_long else years * DAYS
    axis = "year" if is_long else f"days after {dates[0]}"
    chart = graph(at, means, names, colours, axis, np.inf, "means over time", values="mean")
    said = (
        f"Means over the {common} pixels with values at all dates." if common else "Means over the pixels of each date."
    )
    cells = [[text(date), *(f"{mean:.4f}" for mean in row)] for date, row in zip(dates, means)]
    titles = ["date", *map(text, names)]
    body = (
        f"<h1>{len(dates)} dates</h1>{chart}<p>{keys(colours, names)}</p><p "
        f"class=quiet>{said}</p>{grid(titles, cells, 1)}"
    )
    return document("unmix series", body)


def values_of(sides: Sequence[Side], lines: slice) -> tuple[np.ndarray, np.ndarray]:
    """Return values (dates, n, samples, bands) of lines, 0 where missing, and 1 where present (…, 1), float64."""
    read = [side.read(lines) for side in sides]
    there = np.stack([present for _, present in read])[..., None].astype(float)
    return np.where(there > 0, np.stack([values for values, _ in read]), 0.0), there


def slopes(Y: np.ndarray, there: np.ndarray, years: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the slope (n, samples, bands) of the line through each pixel's values, and its standard error; or NaN."""
    count, T = there.sum(axis=0), years.reshape(-1, 1, 1, 1) * there
    with np.errstate(invalid="ignore", divide="ignore"):
        T = (T - T.sum(axis=0) / count) * there
        Y = (Y - Y.sum(axis=0) / count) * there
        spread = np.square(T).sum(axis=0)
        slope = (T * Y).sum(axis=0) / np.where(spread > 0, spread, np.nan)
        left = np.square(Y - slope * T).sum(axis=0)
        error = np.sqrt(left / np.where(count >= FEWEST_FOR_ERRORS, count - 2, np.nan) / spread)
    return slope, error
