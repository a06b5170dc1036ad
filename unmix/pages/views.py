"""Read a finished map once, block by block: a thinned picture of each band, and an exact histogram of all its values."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..io import Cube
from ..io.cube import by_pixel, cut, read_blocks
from .browse import thinned

# Bins of a histogram.
BINS = 50
BLOCK_BYTES = 2**25  # read at a time


@dataclass
class View:
    """A band of a map, as it is shown.

    Attributes
    ----------
    name : str
    picture : array (h, w), float32
        Every k-th line and sample; NaN where there is no value.
    counts : array (`BINS`,), int64
        Pixels with a value in each bin between ``low`` and ``high``; those beyond are in the first and the last.
    low, high : float
        The ends of the histogram and of the colours.
    solved : int
        Pixels with a value.
    odd : int
        Pixels whose value is infinite or no number, as in a damaged map: they are not counted otherwise.
    total, largest : float
        The sum and the largest of them.
    """

    name: str
    picture: np.ndarray
    low: float
    high: float
    counts: np.ndarray = field(default_factory=lambda: np.zeros(BINS, np.int64))
    solved: int = 0
    odd: int = 0
    total: float = 0.0
    largest: float = -np.inf

    @property
    def mean(self) -> float:
        """The mean of the values; 0 where there are none."""
        return self.total / max(1, self.solved)

    def count(self, values: np.ndarray) -> None:
        """Add values to the histogram."""
        finite = np.isfinite(values)
        self.odd += int(values.size - np.count_nonzero(finite))
        values = values[finite]
        if values.size == 0:
            return
        scale = BINS / (self.high - self.low)
        with np.errstate(over="ignore"):
            places = np.clip((values - np.float32(self.low)) * np.float32(scale), 0, BINS - 1)
        self.counts += np.bincount(places.astype(np.int8), minlength=BINS)
        self.solved += values.size
        self.total += float(values.sum(dtype=float))
        self.largest = max(self.largest, float(values.max()))


class Canvas:
    """The lines and samples of a map that are shown, where its longest side may have ``most``."""

    def __init__(self, lines: int, samples: int, most: int) -> None:
        rows, self.columns = thinned(lines, samples, most)
        self.shown = np.arange(lines)[rows]
        self.shape = len(self.shown), len(range(*self.columns.indices(samples)))

    def view(self, name: str, low: float, high: float) -> View:
        """Return a view that has nothing yet, with a histogram between two values."""
        return View(name, np.full(self.shape, np.nan, np.float32), low, high)

    def add(self, view: View, first: int, values: np.ndarray, present: np.ndarray) -> None:
        """Add a block of lines from ``first`` on: values (n, samples) float32, and where they are some."""
        view.count(values[present])
        place = (self.shown >= first) & (self.shown < first + len(values))
        lines = self.shown[place] - first
        view.picture[place] = np.where(present & np.isfinite(values), values, np.nan)[lines, self.columns]


def views_of(
    cube: Cube, bands: Sequence[int], names: Sequence[str], most: int, low: float | Sequence[float] = 0.0,
    high: float | Sequence[float] = 1.0, summed: bool = False,
) -> list[View]:  # fmt: skip
    """Return views of some bands of a map, called ``names``, and where ``summed`` of the sum of all; read once, a block at a time.

    ``most`` is the longest side of a picture; ``low`` and ``high`` are the ends of the histograms, of each or of all; those of the sum
    are 0 and 1.
    """
    canvas = Canvas(cube.lines, cube.samples, most)
    ends = np.broadcast_to(np.array([low, high], float).reshape(2, -1), (2, len(names))).T.tolist()
    views = [canvas.view(name, *both) for name, both in zip(names, ends)]
    views += [canvas.view("sum of the abundances", 0.0, 1.0)] * summed
    for lines, raw in read_blocks(cube, cut(cube, BLOCK_BYTES)):
        block = by_pixel(raw, cube.interleave)
        has_value = np.ones(block.shape[:2], bool) if cube.nodata is None else block[..., 0] != cube.nodata
        taken = [block[..., b] for b in bands] + [block.sum(axis=2, dtype=np.float32)] * summed
        for view, values in zip(views, taken):
            values = np.asarray(values, np.float32)
            present = has_value if cube.nodata is None else has_value & (values != np.float32(cube.nodata))
            canvas.add(view, lines.start, values, present)
    return views


def thin_bands(cube: Cube, bands: Sequence[int], most: int) -> np.ndarray:
    """Return some bands of a map, (n, h, w), of every k-th line and sample; only these lines are read."""
    rows, columns = thinned(cube.lines, cube.samples, most)
    wanted = (slice(line, line + 1) for line in range(*rows.indices(cube.lines)))
    lines = [by_pixel(raw, cube.interleave)[0, columns][:, list(bands)].T for _, raw in read_blocks(cube, wanted)]
    return np.stack(lines, axis=1, dtype=np.float32)
