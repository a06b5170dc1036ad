"""The verdict on a finished run, and its maps as they are read for it."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...io import Cube, by_pixel, read_lines
from ...runs.files.finished import FinishedRun

# Faults that are listed.
MOST_FAULTS = 100


@dataclass
class Verdict:
    """The result of `verify`.

    Attributes
    ----------
    pixels : int
        Pixels that were held against the conditions of an optimum, by numpy from the scene and the maps alone.
    lines : int
        Lines that were unmixed again and compared with the maps.
    same_bytes : bool
        Whether every map must hold the same bytes there: the run was made by this code, on a processor and by packages
        as here.
    largest_difference : float
        Largest difference of a value of these lines, relative to max(1, value).
    faults : list of str
        One line each; empty where everything is right.
    """

    pixels: int = 0
    lines: int = 0
    same_bytes: bool = False
    largest_difference: float = 0.0
    faults: list[str] = field(default_factory=list)

    def accuse(self, stem: Path, line: int, places: Iterable[int], what: str) -> None:
        """Add a fault for each of some pixels of a line, as long as there are fewer than `MOST_FAULTS`."""
        for place in places:
            if len(self.faults) < MOST_FAULTS:
                self.faults.append(f"{stem}: line {line}, sample {place}: {what}")


@dataclass
class Maps:
    """The maps of a run, in any format; each is opened when it is first read, by one thread at a time."""

    run: FinishedRun
    opened: dict[str, Cube] = field(default_factory=dict)
    held: dict[str, tuple[int, np.ndarray]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def blur(self, name: str) -> float:
        """Return how far values of a map may differ from the true ones because they are stored in steps."""
        gain = self.run.open_stored(name).gain if self.run.has(name) else None
        return 0.0 if gain is None else 0.5 * float(np.max(gain))

    def line(self, name: str, line: int) -> np.ndarray:
        """Return one line of a map, float32 (samples, bands)."""
        with self.lock:
            if name not in self.opened:
                self.opened[name] = self.run.open(name)
            cube = self.opened[name]
            # A whole chunk is kept: to read one of its lines, all of it is inflated.
            together = min(cube.lines_together, cube.lines)
            first = line // together * together
            if self.held.get(name, (-1, None))[0] != first:
                raw = read_lines(cube, slice(first, min(first + together, cube.lines)))
                self.held[name] = first, by_pixel(raw, cube.interleave)
            return self.held[name][1][line - first]
