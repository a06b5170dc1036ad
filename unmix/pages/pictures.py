"""Pictures: their colours, views of maps, the browse image of a run, and PNG files (ISO/IEC 15948)."""

import colorsys
import struct
import zlib
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import MethodError
from ..io import NODATA, Cube, by_pixel, cut, read_blocks
from ..io.formats.written_by import PNG_SOFTWARE

# Viridis and magma (Smith and van der Walt 2015, public domain) at 25 places; between the places colours are linear, to
# 4 of 255.
VIRIDIS = (
    "440154 471063 481f70 472d7b 443983 404688 3b528b 365d8d 31688e 2c728e 287c8e 24868e 21918c 1f9a8a 20a486 "
    "28ae80 35b779 48c16e 5ec962 75d054 90d743 addc30 c8e020 e5e419 fde725"
)
MAGMA = (
    "000004 050416 100b2d 1d1147 2c115f 3f0f72 51127c 601880 721f81 832681 932b80 a5317e b73779 c73d73 d8456c "
    "e75263 f1605d f8745c fc8961 fd9b6b feb078 fec488 fed799 fdebac fcfdbf"
)
# Differences: blue below zero, white, red above; RdBu of ColorBrewer (Brewer 2003, Apache licence), turned round.
DIFFERENCES = "053061 2166ac 4393c3 92c5de d1e5f0 f7f7f7 fddbc7 f4a582 d6604d b2182b 67001f"
# Lines and classes, found by a search: each has a contrast of 3 and more with a page and its fields, light and dark,
# and any two differ by 38 in CIELAB, and by 18 as people with deuteranopia or protanopia see them
# (tests/pages/test_colours.py). Those of Okabe and Ito (2008) differ by 26 and 17, and three of them have less contrast
# with white. More than ten are told apart by dashes as well: any two of fifteen that have one dash differ by 15 as
# those people see them, of twenty by 10; others may differ by less than 1.
CLASSES = (
    (0, 120, 156),
    (252, 36, 24),
    (168, 0, 252),
    (72, 120, 84),
    (120, 132, 216),
    (36, 144, 12),
    (156, 108, 252),
    (228, 0, 84),
    (192, 120, 144),
    (204, 0, 144),
)
# Lengths of strokes and of gaps, in pixels, of the first, second, … line; the first is whole.
DASHES: tuple[tuple[int, ...], ...] = ((), (7, 3), (2, 2), (8, 3, 2, 3), (12, 3, 2, 3, 2, 3))
# Lines that are no material: zero, residuals.
GREY = "#888888"
# Limits of the luminance of all colours, from 0 to 1, by which they have that contrast.
DARKEST, LIGHTEST = 0.151, 0.270

# Shares of red, green and blue in luminance (sRGB).
LUMINANCE = (0.2126, 0.7152, 0.0722)
# Most classes that a byte numbers, beside 0 for none.
MOST_CLASSES = 255


def ramp(places: str) -> np.ndarray:
    """Return 255 colours and, last, one that is clear: array (256, 4), uint8."""
    anchors = np.array([[int(word[i : i + 2], 16) for i in (0, 2, 4)] for word in places.split()], float)
    at = np.linspace(0, len(anchors) - 1, 255)
    colours = np.stack([np.interp(at, np.arange(len(anchors)), anchors[:, c]) for c in range(3)], axis=1)
    return np.vstack([np.pad(np.round(colours), ((0, 0), (0, 1)), constant_values=255), np.zeros((1, 4))]).astype(
        np.uint8
    )


def hex_of(number: int) -> str:
    """Return the colour of a class as a page has it."""
    return "#" + bytes(colour_of(number)).hex()


def colour_of(number: int) -> tuple[int, int, int]:
    """Return the colour of a class: black for 0, then `CLASSES`, then hues far apart, dark and light by turns."""
    if number <= len(CLASSES):
        return ((0, 0, 0), *CLASSES)[number]
    linear = np.array(colorsys.hsv_to_rgb(number * 0.618034 % 1.0, 0.65, 0.9)) ** 2.2
    wanted, luminance = (DARKEST, LIGHTEST)[number % 2], float(linear @ LUMINANCE)
    if luminance > wanted:
        linear *= wanted / luminance
    else:
        linear += (1.0 - linear) * (wanted - luminance) / (1.0 - luminance)
    shown = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    red, green, blue = np.round(255 * shown).astype(int).tolist()
    return red, green, blue


def own_or_ours(own: Sequence[str] | None, count: int) -> list[str]:
    """Return the colours of ``count`` lines or classes: their own (``#rrggbb``), else the palette's, in turn."""
    return [(own[k] if own and k < len(own) else "") or hex_of(k + 1) for k in range(count)]


def dash_of(number: int) -> tuple[int, ...]:
    """Return the dashes of a line that has the colour of a class; none for a whole line."""
    return DASHES[(number - 1) % len(DASHES)]


def fields_of_classes(names: Sequence[str], own: Sequence[str] | None = None) -> dict[str, str | list[str]]:
    """Return the fields of the header of an ENVI Classification, whose class 0 is none; ``own`` as of `own_or_ours`."""
    shown = ["#000000", *own_or_ours(own, len(names))]
    names = ["unclassified", *names]
    colours = [str(number) for one in shown for number in bytes.fromhex(one[1:])]
    return {
        "file type": "ENVI Classification",
        "classes": str(len(names)),
        "class names": names,
        "class lookup": colours,
    }


# Level of compression: 4 takes half the time of 6, and pictures are 1 % larger.
LEVEL = 4


def chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(image: np.ndarray, palette: np.ndarray | None = None) -> bytes:
    """Return the PNG of an image (h, w, 4), uint8, of RGB and opacity, or of numbers (h, w) in a palette (n, 4)."""
    height, width = image.shape[:2]
    indexed = palette is not None
    parts = [chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3 if indexed else 6, 0, 0, 0))]
    parts += [chunk(b"tEXt", PNG_SOFTWARE)]
    if palette is not None:
        parts += [chunk(b"PLTE", palette[:, :3].tobytes()), chunk(b"tRNS", palette[:, 3].tobytes())]
    rows = np.zeros((height, 1 + image.reshape(height, -1).shape[1]), np.uint8)
    rows[:, 1:] = image.reshape(height, -1)
    if not indexed and height > 1:  # less the row above: natural images shrink by a fifth
        rows[1:, 0] = 2
        rows[1:, 1:] -= image.reshape(height, -1)[:-1]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [*parts, chunk(b"IDAT", zlib.compress(rows.tobytes(), LEVEL)), chunk(b"IEND", b"")]
    )


# Bins of a histogram.
BINS = 50
BLOCK_BYTES = 2**25  # of a map that are read at a time


@dataclass
class MapView:
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
    held : float, optional
        Their sum, each times its pixel's area, ha.
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
    held: float | None = None

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
    """The lines and samples of a map that are shown, at most ``most`` along the longest side."""

    def __init__(self, lines: int, samples: int, most: int) -> None:
        rows, self.columns = thinned_lines(lines, samples, most)
        self.shown = np.arange(lines)[rows]
        self.shape = len(self.shown), len(range(*self.columns.indices(samples)))

    def view(self, name: str, low: float, high: float) -> MapView:
        """Return an empty view, with a histogram between two values."""
        return MapView(name, np.full(self.shape, np.nan, np.float32), low, high)

    def add(self, view: MapView, first: int, values: np.ndarray, present: np.ndarray) -> None:
        """Add a block of lines from ``first`` on: values (n, samples) float32, and which pixels have values."""
        view.count(values[present])
        place = (self.shown >= first) & (self.shown < first + len(values))
        lines = self.shown[place] - first
        view.picture[place] = np.where(present & np.isfinite(values), values, np.nan)[lines, self.columns]


def views_of(
    cube: Cube,
    bands: Sequence[int],
    names: Sequence[str],
    most: int,
    low: float | Sequence[float] = 0.0,
    high: float | Sequence[float] = 1.0,
    summed: bool = False,
    areas: Callable[[slice], np.ndarray] | None = None,
) -> list[MapView]:
    """Return views of bands of a map and, if ``summed``, of the sum of all; the map is read once, by blocks."""
    # ``low`` and ``high`` are the ends of the histograms, of each or of all; ``areas`` returns the m² of the pixels of
    # some lines.
    canvas = Canvas(cube.lines, cube.samples, most)
    ends = np.broadcast_to(np.array([low, high], float).reshape(2, -1), (2, len(names))).T.tolist()
    views = [canvas.view(name, *both) for name, both in zip(names, ends)]
    views += [canvas.view("sum of the abundances", 0.0, 1.0)] * summed
    for lines, raw in read_blocks(cube, cut(cube, BLOCK_BYTES)):
        block = by_pixel(raw, cube.interleave)
        has_value = np.ones(block.shape[:2], bool) if cube.nodata is None else block[..., 0] != cube.nodata
        taken = [block[..., b] for b in bands] + [block.sum(axis=2, dtype=np.float32)] * summed
        ground = None if areas is None else areas(lines)
        for view, values in zip(views, taken):
            values = np.asarray(values, np.float32)
            present = has_value if cube.nodata is None else has_value & (values != np.float32(cube.nodata))
            canvas.add(view, lines.start, values, present)
            if ground is not None:
                known = np.where(present & np.isfinite(values), values, 0.0)
                view.held = (view.held or 0.0) + float(np.vdot(ground, known)) / 1e4
    return views


def thin_bands(cube: Cube, bands: Sequence[int], most: int) -> np.ndarray:
    """Return some bands of a map, (n, h, w), of every k-th line and sample; only these lines are read."""
    rows, columns = thinned_lines(cube.lines, cube.samples, most)
    wanted = (slice(line, line + 1) for line in range(*rows.indices(cube.lines)))
    lines = [by_pixel(raw, cube.interleave)[0, columns][:, list(bands)].T for _, raw in read_blocks(cube, wanted)]
    return np.stack(lines, axis=1, dtype=np.float32)


LONGEST_SIDE = 1024  # of a browse image, in pixels


def thinned_lines(lines: int, samples: int, most: int = LONGEST_SIDE) -> tuple[slice, slice]:
    """Return slices of every k-th line and sample, from the middle of the first k: neither side exceeds ``most``."""
    step = max(1, -(-max(lines, samples) // most))
    return slice((min(step, lines) - 1) // 2, lines, step), slice((min(step, samples) - 1) // 2, samples, step)


def bands_shown(names: Sequence[str], sums: Sequence[float], rgb: str | None = None) -> list[int]:
    """Return the bands that are shown as red, green and blue: those of ``rgb``, else of the largest ``sums``."""
    if rgb is None:
        order = sorted(range(len(names)), key=lambda j: -sums[j])
        return order[:3] if len(names) >= 3 else order[:1]
    wanted = [word.strip() for word in rgb.split(",")]
    for word in wanted:
        if word not in names:
            some = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
            raise MethodError(f"`rgb` {rgb}: there is no '{word}'; there are {some}")
    if len(wanted) > 3:
        raise MethodError(f"`rgb` {rgb}: name at most three, for red, green and blue")
    return [list(names).index(word) for word in wanted]


def of_shares(values: np.ndarray, masked: np.ndarray) -> bytes:
    """Return one (grey) to three maps (n, h, w), 0 to 1, as RGB in a PNG, clear where ``masked`` (h, w)."""
    n, h, w = values.shape
    image = np.zeros((h, w, 4), np.uint8)
    shares = np.round(255 * np.clip(np.nan_to_num(values), 0, 1)).astype(np.uint8)
    image[..., : 3 if n == 1 else n] = np.moveaxis(shares, 0, -1)
    image[..., 3] = 255
    image[masked] = 0
    return png(image)


def of_largest(numbers: np.ndarray, shares: np.ndarray, masked: np.ndarray) -> bytes:
    """Return a PNG (h, w) in the colour of the largest endmember, counted from 1, as bright as its share."""
    colours = np.array([colour_of(j) for j in range(int(numbers.max(initial=0)) + 1)])
    bright = colours[np.maximum(numbers, 0).astype(int)] * np.clip(np.nan_to_num(shares), 0, 1)[..., None]
    image = np.concatenate([np.round(bright), np.full((*masked.shape, 1), 255.0)], axis=-1).astype(np.uint8)
    image[masked] = 0
    return png(image)


def picture(read: Callable[[str, Sequence[int]], np.ndarray], maps: Container[str], bands: Sequence[int]) -> bytes:
    """Return a run's picture: of sums by class, if any; else of the bands, or of the largest if only these exist."""
    # ``read(name, bands)`` returns bands of a map (n, h, w), as thin as the picture; ``bands`` are as of `bands_shown`.
    masked = read("rmse", [0])[0] == NODATA
    if "index" in maps:
        return of_largest(read("index", [0])[0], read("abundance", [0])[0], masked)
    shown = read("fraction" if "fraction" in maps else "abundance", bands)
    return of_shares(shown, masked | (shown == NODATA).any(axis=0))


def browse_of(maps: Mapping[str, Any], bands: Sequence[int]) -> bytes:
    """Return a run's browse image, at most `LONGEST_SIDE` pixels a side; ``maps`` are (lines, bands, samples)."""
    lines, _, samples = maps["rmse"].shape
    rows, columns = thinned_lines(lines, samples)
    return picture(lambda name, some: np.stack([maps[name][rows, b, columns] for b in some]), maps, bands)
