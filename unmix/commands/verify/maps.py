"""Read the maps of a run for verification, and collect the verdict on them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...io import Cube, read_lines
from ...runs.files.finished import FinishedRun

# Difference of two correct abundances: the written and the found one are float32 roundings (6e-8) of solutions within δ of the optimum.
MAP_TOLERANCE = 2e-6
NODATA = np.float32(-9999)
# Faults of pixels that are listed.
MOST_FAULTS = 100


@dataclass
class Verdict:
    """The result of `verify`.

    Attributes
    ----------
    by : str
        The solver of the pixels: scipy, or ``delete-only`` itself, which has no other reference; the optimum is not checked then.
    pixels : int
        How many were solved again and compared.
    worst_abundance, worst_rmse : float
        Largest differences, relative to max(1, a) and to the pixel's norm.
    faults : list of str
        One line each; empty where everything is right.
    rounding : str
        How much an abundance is off at most because of how it is stored.
    together : str
        Text on the abundances of all pixels together, where no pixel has an answer of its own.
    found : list of str
        Further texts on what is right.
    """

    by: str = "scipy"
    pixels: int = 0
    worst_abundance: float = 0.0
    worst_rmse: float = 0.0
    faults: list[str] = field(default_factory=list)
    rounding: str = "float32 rounding: 6e-08"
    together: str = ""
    found: list[str] = field(default_factory=list)

    def accuse(self, stem: Path, line: int, places: Iterable[int], what: str) -> None:
        """Add a fault for each of some pixels of a line, as long as there are fewer than `MOST_FAULTS`."""
        for place in places:
            if len(self.faults) < MOST_FAULTS:
                self.faults.append(f"{stem}: line {line}, sample {place}: {what}")


@dataclass
class Maps:
    """The maps of a run, in any format; each is opened when it is first read."""

    run: FinishedRun
    opened: dict[str, Cube] = field(default_factory=dict)
    blurs: dict[str, float] = field(default_factory=dict)
    held: dict[str, tuple[int, np.ndarray]] = field(default_factory=dict)

    @property
    def stem(self) -> Path:
        """The beginning of their names."""
        return self.run.stem

    def blur(self, name: str) -> float:
        """Return by how much the values of a map may differ from what they stand for, because they are stored in steps."""
        if name not in self.blurs:
            gain = self.run.open_stored(name).gain if self.run.has(name) else None
            self.blurs[name] = 0.0 if gain is None else 0.5 * float(np.max(gain))
        return self.blurs[name]

    def line(self, name: str, line: int) -> np.ndarray:
        """Return one line of a map, float32 (bands, samples)."""
        if name not in self.opened:
            self.opened[name] = self.run.open(name)
        cube = self.opened[name]
        # A whole chunk is kept: to read one of its lines, all of it is inflated.
        together = min(cube.lines_together, cube.lines)
        first = line // together * together
        if self.held.get(name, (-1, None))[0] != first:
            last = min(first + together, cube.lines)
            self.held[name] = first, read_lines(cube, slice(first, last))
        raw = self.held[name][1]
        return raw[:, line - first] if cube.interleave == "bsq" else raw[line - first]

    def __contains__(self, name: str) -> bool:
        return self.run.has(name)
