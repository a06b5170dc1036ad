"""Open one date, ``FILE#DATE``, of a file with a time axis, as NetCDF data cubes of a site have."""

import datetime
import functools
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ...errors import CubeError
from ..read import ScratchFile, brief
from ..remote import absolute
from ..scratch import inflate
from .cf import TIMES, roles
from .hdf5 import LAYOUTS, Attributes, Hdf5Cube, dimensions_of_dataset, variable_in

# Most dates that a message names.
MOST_SAID = 3
SINCE = re.compile(r"(second|minute|hour|day)s? since (\d{4}-\d\d?-\d\d?)(?:[T ](\d\d?:\d\d(?::\d\d)?))?.*")


def cube_of_times(file: h5py.File, dataset: str | None) -> tuple[h5py.Dataset, str] | None:
    """Return the one dataset with several times, and its order of axes, 1 for time; None where not exactly one has."""
    found: list[tuple[h5py.Dataset, str]] = []

    def visit(name: str, data: Any) -> None:
        if not isinstance(data, h5py.Dataset) or data.ndim != 4 or dataset not in (None, name, f"/{name}"):
            return
        names = dimensions_of_dataset(data)
        which = [k for k, one in enumerate(names) if one.lower() in TIMES and data.shape[k] > 1]
        if len(which) == 1:
            at = which[0]
            axes = roles(data.shape[:at] + data.shape[at + 1 :], names[:at] + names[at + 1 :], Attributes(data))
            if axes in LAYOUTS:
                found.append((data, f"{axes[:at]}1{axes[at:]}"))

    file.visititems(visit)
    return found[0] if len(found) == 1 else None


def dates_along(data: h5py.Dataset, axes: str) -> list[str]:
    """Return the names of a stack's times: dates, with times of day if needed; numbers from 0 if unclear."""
    at = axes.index("1")
    name, count = dimensions_of_dataset(data)[at], data.shape[at]
    times = data.parent.get(name)
    found = SINCE.fullmatch(variable_in(times).unit) if isinstance(times, h5py.Dataset) else None
    values = variable_in(times).numbers(count) if found else None
    if found is None or values is None or not np.isfinite(values).all():
        return [str(k) for k in range(count)]
    start = datetime.datetime.fromisoformat(f"{pad(found[2])}T{pad(found[3] or '00:00')}")
    moments = [start + datetime.timedelta(**{f"{found[1]}s": float(value)}) for value in values]
    names = [moment.date().isoformat() for moment in moments]
    names = names if len({*names}) == count else [moment.strftime("%Y-%m-%dT%H%M%S") for moment in moments]
    return names if len({*names}) == count else [str(k) for k in range(count)]


def pad(words: str) -> str:
    """Return a date or an hour of the day with two digits in each part."""
    return re.sub(r"(?<!\d)(\d)(?!\d)", r"0\1", words)


def at_date(file: h5py.File, path: Path, dataset: str | None, date: str, open_it: Any) -> Hdf5Cube:
    """Return the cube of one date, described by ``open_it(path, data, axes)``; `CubeError` for an unknown date."""
    found = cube_of_times(file, dataset)
    if found is None:
        raise CubeError(f"{path}: has no dataset with a cube for each of several times, so it has no {brief(date)}")
    data, axes = found
    dates = dates_along(data, axes)
    if date not in dates:
        raise CubeError(f"{path}: has no '{brief(date)}' among its {said_of_dates(dates)}")
    cube: Hdf5Cube = open_it(path, data, axes)
    index = dates.index(date)
    cube.scratch = ScratchFile(functools.partial(inflate, path, data, axes, data.dtype.newbyteorder("="), index))
    cube.stem, cube.named = f"{path.stem}_{date}", f"{absolute(path)}#{date}"
    cube.fields |= {"acquisition time": date} if "-" in date else {}
    return cube


def refuse_stack(file: h5py.File, path: Path, dataset: str | None = None) -> None:
    """Raise `CubeError` where a file has a cube for each of several times, so that one time has to be named."""
    if (found := cube_of_times(file, dataset)) is not None:
        dates = dates_along(*found)
        raise CubeError(f"{path}: has {said_of_dates(dates)}; name one, as {path.name}#{dates[0]}; unmix run takes all")


def said_of_dates(dates: list[str]) -> str:
    """Return how many dates there are, and the first of them."""
    return f"{len(dates)} times: {', '.join(dates[:MOST_SAID])}{', …' if len(dates) > MOST_SAID else ''}"
