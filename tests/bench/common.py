"""What the scripts here share: seconds of calls, lines of JSON, cubes in memory, materials that are matched with a truth."""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from unmix.io import bytes_per_line, open_cube, spectra
from unmix.scene.bands import choose_bands

# The folder of real scenes where a script is given none, and the tests, whose tools the scripts import.
DATA = Path(os.environ.get("UNMIX_DATA", Path(__file__).parents[3] / "shared/data"))
sys.path.insert(0, str(Path(__file__).parents[1]))


def say(rows: Any = None, **row: Any) -> None:
    """Print a row, or each of some, as a line of JSON."""
    for one in [rows or row] if isinstance(rows or row, dict) else rows:
        print(json.dumps(one), flush=True)


def seconds_of(
    times: int,
    call: Callable,
    /,
    *arguments: Any,
    of: Callable = statistics.median,
    long: float = np.inf,
    **options: Any,
) -> tuple[float, Any]:
    """Return the median of the seconds of so many calls, after one that warms up if they are several, and what the last
    returned.

    ``of`` is another statistic than the median; a first call of more than ``long`` seconds is the only one.
    """
    taken: list[float] = []
    for _ in range(times + (times > 1)):
        began = time.perf_counter()
        found = call(*arguments, **options)
        taken.append(time.perf_counter() - began)
        if taken[0] > long:
            return round(taken[0], 6), found
    return round(float(of(taken[times > 1 :])), 6), found


def stored(path: Path, scale: float | None = None) -> np.ndarray:
    """Return a cube in memory, (lines, samples, bands), scaled."""
    cube = open_cube(path)
    raw = cube.read(slice(0, cube.lines), np.empty(bytes_per_line(cube) * cube.lines, np.uint8))
    return spectra(raw, cube.interleave, choose_bands(cube, "good", scale)).reshape(cube.lines, cube.samples, -1)


def matched(E: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which true spectra (L, p) belong to which of E (L, q), no one twice, by angle; and all angles (p, q)."""
    units = [some / np.linalg.norm(some, axis=0) for some in (truth, E)]
    angles = np.arccos(np.clip(units[0].T @ units[1], -1, 1))
    return *linear_sum_assignment(angles), angles
