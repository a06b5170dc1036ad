"""`series`: lines through the values of each pixel at several dates."""

import datetime
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...commands.finished.change import format_of, write_map
from ...commands.finished.grids import is_one_grid
from ...commands.finished.sides import Side, plan_of, side_of
from ...errors import InputError, MethodError
from ...io.fields import NODATA
from ...outputs.names import inputs_of_run
from ...runs.files.finished import FinishedRun, finished_runs

# Days of a year; fewest dates of a pixel that tell a standard error; standard errors by which a change is more than chance.
DAYS, FEWEST_FOR_ERRORS, ERRORS = 365.25, 3, 2.0


def series(
    runs: Sequence[str | os.PathLike[str]] | str | os.PathLike[str], *, out: str | os.PathLike[str] | None = None,
    kind: str | None = None, overwrite: bool = False,
) -> list[dict[str, Any]]:  # fmt: skip
    """Fit a line to the values of each pixel over finished runs of one place, by least squares.

    Parameters
    ----------
    runs : path-like, or a sequence of them
        Runs on one grid, with bands of the same names: the beginnings of their outputs' names, or one of these outputs each; or
        folders, of which all finished runs are taken.
    out : path-like, optional
        A map, .tif or .hdr, to write: for each band the change a year, and its standard error; no data where fewer than two dates have
        a value, or fewer than three for the error.
    kind : {"abundance", "fraction"}, optional
        The map; default is sums by class where all runs have them, else abundances.
    overwrite : bool
        Replace the map if it exists.

    Returns
    -------
    list of dict
        For each ``band`` the mean ``change`` a year over the ``pixels`` that have one, None without any, and how many of these are
        ``falling`` and ``rising`` by more than two standard errors; and the ``dates``.

    Raises
    ------
    MethodError
        Where there are fewer than two dates, a run has none, or the map's name has another ending.
    InputError
        Where runs are on other grids, or have other bands.
    OutputError
        Where there is no such run, it has no such map, or the map exists or cannot be written.
    """
    given = [runs] if isinstance(runs, str | os.PathLike) else list(runs)
    found = [FinishedRun.of(stem) for path in map(Path, given) for stem in finished_runs(path)]
    form = None if out is None else format_of(Path(out))
    if out is not None and form is None:
        raise MethodError(f"{out}: name a map, .tif or .hdr")
    years = years_of(found)
    name = kind or ("fraction" if all(run.has("fraction") for run in found) else "abundance")
    sides = [side_of(run.stem, name) for run in found]
    refuse_others(sides)
    names, rows = sides[0].names, Rows(len(sides[0].names))
    blocks = (rows.added(*slopes(sides, years, lines)) for lines in plan_of(*sides))
    if out is not None and form is not None:
        bands = [f"{name} a year" for name in names] + [f"standard error of {name}" for name in names]
        inputs = [file for run in found for file in inputs_of_run(run.stem)]
        what = f"changes a year over {len(sides)} dates"
        write_map(Path(out), form, sides[0].cube, bands, what, blocks, overwrite, inputs)
    else:
        for _ in blocks:
            pass
    dates = sorted(str(run.time) for run in found)
    return [{"band": name} | row | {"dates": dates} for name, row in zip(names, rows.all())]


class Rows:
    """The sums over the pixels of a series, for each of its bands."""

    def __init__(self, bands: int) -> None:
        self.total, self.counts = np.zeros(bands), np.zeros((3, bands), int)

    def added(self, change: np.ndarray, error: np.ndarray) -> np.ndarray:
        """Add the changes (n, samples, bands) of some lines and their errors, NaN where unknown; return both for a map."""
        self.total += np.nansum(change, axis=(0, 1))
        kinds = np.isfinite(change), change < -ERRORS * error, change > ERRORS * error
        self.counts += np.stack([kind.sum(axis=(0, 1)) for kind in kinds])
        both = np.concatenate([change, error], axis=2)
        return np.where(np.isfinite(both), both, NODATA)

    def all(self) -> Iterator[dict[str, Any]]:
        """The row of each band, but for its name."""
        for total, (pixels, falling, rising) in zip(self.total.tolist(), self.counts.T.tolist()):
            change = total / pixels if pixels else None
            yield {"change": change, "pixels": pixels, "falling": falling, "rising": rising}


def years_of(runs: Sequence[FinishedRun]) -> np.ndarray:
    """Return the time of each run in years after the first (n,), float64; `MethodError` without two of them."""
    days = []
    for run in runs:
        try:
            days.append(datetime.datetime.fromisoformat(str(run.time).removesuffix("Z")).replace(tzinfo=None))
        except ValueError:
            raise MethodError(
                f"{run.stem}: has no date; name its scene by one, such as site_20240706, or give the header an acquisition time"
            ) from None
    if len(set(days)) < 2:
        raise MethodError(f"a series needs runs at two dates or more, not {len(set(days))}")
    return np.array([(day - min(days)).total_seconds() for day in days]) / 86_400 / DAYS


def refuse_others(sides: Sequence[Side]) -> None:
    """Raise `InputError` where a map is on another grid than the first, or has other bands."""
    first = sides[0]
    for side in sides[1:]:
        if side.size != first.size or not is_one_grid(first.cube, side.cube):
            raise InputError(f"{side.path}: is on another grid than {first.path}; a series needs one grid")
        if side.names != first.names:
            raise InputError(f"{side.path}: has the bands {', '.join(side.names)}, not {', '.join(first.names)}")


def slopes(sides: Sequence[Side], years: np.ndarray, lines: slice) -> tuple[np.ndarray, np.ndarray]:
    """Return the slope (n, samples, bands) of the line through each pixel's values of some lines, and its standard error; or NaN."""
    read = [side.read(lines) for side in sides]
    there = np.stack([present for _, present in read])[..., None].astype(float)
    Y = np.where(there > 0, np.stack([values for values, _ in read]), 0.0)
    count, T = there.sum(axis=0), years.reshape(-1, 1, 1, 1) * there
    with np.errstate(invalid="ignore", divide="ignore"):
        T = (T - T.sum(axis=0) / count) * there
        Y = (Y - Y.sum(axis=0) / count) * there
        spread = np.square(T).sum(axis=0)
        slope = (T * Y).sum(axis=0) / np.where(spread > 0, spread, np.nan)
        left = np.square(Y - slope * T).sum(axis=0)
        error = np.sqrt(left / np.where(count >= FEWEST_FOR_ERRORS, count - 2, np.nan) / spread)
    return slope, error
