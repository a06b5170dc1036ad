"""Look at a sample of a scene: its spectra, its faulty bands, the lengths of its pixels."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ..io import Cube, RemotePath, Scene, bytes_per_line, read_blocks
from .signal import FAR_BELOW, dim_bands, moments_of, warn_of_bands
from .signal import MOST_READ as MOST_LOOKED_AT
from .undeclared import ConstantPixels

# Pixels of a sample of the scene.
SAMPLE = 100_000
# Pixels on which the scale is checked: all of `SAMPLE` took a third of a run of 400 000 pixels on a GPU.
SCALE_PIXELS = 10_000
# From a chunked file a sample reads at least `FEWEST_PLACES` chunks, fewer if those are more than `MOST_READ` bytes,
# but never under 3.
FEWEST_PLACES, MOST_READ = 16, 256 * 2**20
# The same of a chunked file on a server: of 100 MB over 1 Gbit/s the larger sample took as long as the run.
MOST_FETCHED = 32 * 2**20
# Blocks of a sample that are read from a server at once, and their bytes.
MOST_AHEAD, MOST_READ_AHEAD = 16, 64 * 2**20
# Largest usual reflectance: a scene is reflectance if most bands are mostly below; a band mostly above it is then
# faulty.
BRIGHTEST = 1.2


def sampled(cube: Cube, most: int = SAMPLE) -> Iterator[np.ndarray]:
    """Yield at most ``most`` pixels, evenly spread over the scene, as stored, in pieces; see `placed`."""
    for part, _, _ in placed(cube, most):
        yield part


def placed(
    cube: Cube, most: int = SAMPLE, in_pairs: bool = False
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield pieces of at most ``most`` evenly spread pixels, as stored, with the lines and samples (n,) of each."""
    # ``in_pairs``: each second pixel is the neighbour of the one before it.
    # One line costs as much as its whole chunk, so chunks spread over the scene are read, and some lines of each taken.
    blocks, wanted = sample_blocks(cube, most), wanted_lines(cube, most)
    sample_step = max(1, -(-cube.samples * wanted // most))
    for block, raw in zip(blocks, read_ahead(cube, blocks)):
        read = block.stop - block.start
        line_step = max(1, -(-read * len(blocks) // wanted))
        lines = slice((read - 1) % line_step // 2, None, line_step)
        part = raw[:, lines] if cube.interleave == "bsq" else raw[lines]
        step = max(1, 2048 // max(1, part.shape[1 if cube.interleave == "bsq" else 0])) * sample_step
        for begin in range(0, cube.samples, step):  # in pieces, because the caller makes float64 of them
            columns = np.arange(begin, min(begin + step, cube.samples), sample_step)
            if in_pairs and sample_step > 1:
                columns[1::2] = columns[: len(columns) // 2 * 2 : 2] + 1
            samples, of_lines = (
                grid.ravel() for grid in np.meshgrid(columns, np.arange(block.start, block.stop)[lines])
            )
            picked = columns if in_pairs else slice(begin, begin + step, sample_step)
            yield part[:, picked] if cube.interleave == "bip" else part[..., picked], of_lines, samples


def wanted_lines(cube: Cube, most: int) -> int:
    """Return how many lines ``most`` pixels are taken from."""
    return min(cube.lines, max(FEWEST_PLACES, most // cube.samples))


def sample_blocks(cube: Cube, most: int, least: int = 1) -> list[slice]:
    """Return spread blocks of lines for a sample of ``most`` pixels: chunks, of at least ``least`` lines."""
    chunk_lines = min(max(cube.lines_together, least), cube.lines)
    chunks = -(-(cube.lines + 1 - least) // chunk_lines)
    chunks_read = min(chunks, max(FEWEST_PLACES, wanted_lines(cube, most) // chunk_lines))
    most_read = MOST_FETCHED if isinstance(cube.path, RemotePath) and cube.lines_together > 1 else MOST_READ
    chunks_read = min(chunks_read, max(3, most_read // (chunk_lines * bytes_per_line(cube))))
    places = sorted({int((i + 0.5) * chunks / chunks_read) for i in range(chunks_read)})
    return [slice(chunk * chunk_lines, min((chunk + 1) * chunk_lines, cube.lines)) for chunk in places]


def sampled_spectra(
    scene: Scene, most: int = SAMPLE, in_pairs: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return spectra (N, L) of a sample, complete in all bands, and their lines and samples (N,); see `placed`."""
    found = [(np.empty((0, len(scene.bands.index))), np.empty(0, int), np.empty(0, int))]
    for part, lines, samples in placed(scene.cube, most, in_pairs):
        good = np.flatnonzero(~scene.missing(part))
        with np.errstate(invalid="ignore"):  # NaN that signals
            found.append((scene.spectra(part)[good], lines[good], samples[good]))
    Y, lines, samples = map(np.concatenate, zip(*found))
    return Y, lines, samples


def read_ahead(cube: Cube, blocks: Sequence[slice]) -> Iterator[np.ndarray]:
    """Yield blocks of lines as stored; on a server several are read at once, since each waits for an answer."""
    largest = max((block.stop - block.start for block in blocks), default=0) * bytes_per_line(cube)
    count = min(len(blocks), MOST_AHEAD, max(1, MOST_READ_AHEAD // largest)) if isinstance(cube.path, RemotePath) else 1
    if count == 1:
        yield from (raw for _, raw in read_blocks(cube, blocks))
        return
    buffers = [np.empty(largest, np.uint8) for _ in range(count)]
    with ThreadPoolExecutor(count) as pool:
        under_way = deque[Future[np.ndarray]]()
        for number, block in enumerate(blocks):
            if len(under_way) == count:
                yield under_way.popleft().result()
            under_way.append(pool.submit(cube.read, block, buffers[number % count]))
        while under_way:
            yield under_way.popleft().result()


@dataclass
class Survey:
    """Statistics of the bands in use on a sample of a scene's pixels; arrays are (L,).

    Attributes
    ----------
    index : array, int64
        The bands, from 0.
    pixels, masked, partly : int
        Pixels in the sample; those with no value in any band; those with values in some bands only.
    missing, negative, bright : arrays, int64
        Numbers of the pixels not masked that have no value in the band, one below 0, or one above `BRIGHTEST`.
    low, high, rms : arrays, float64
        Smallest and largest value, and the root of the mean square, scaled; of pixels that are not one value in all bands,
        which is fill.
    fill : str or None
        A sentence about swapped bytes, fill values that no header declares, or saturated ones; see
        `unmix.scene.undeclared`.
    is_whole : bool
        Whether all values are whole numbers.
    """

    index: np.ndarray
    pixels: int
    masked: int
    partly: int
    missing: np.ndarray
    negative: np.ndarray
    bright: np.ndarray
    low: np.ndarray
    high: np.ndarray
    rms: np.ndarray
    fill: str | None
    is_whole: bool

    def faults(self) -> dict[str, list[int]]:
        """Return the bands (from 0) that should not be used, by fault."""
        unmasked = self.pixels - self.masked
        present = np.maximum(1, unmasked - self.missing)
        dead = (self.missing == unmasked) if unmasked else np.zeros(len(self.index), bool)
        constant = ~dead & (self.low >= self.high) & (unmasked > 1)
        dim = ~dead & ~constant & dim_bands(self.rms)
        bright = self.bright > present / 2
        # Whole numbers are counts, or reflectance that is not scaled yet.
        reflectance = bright.sum() <= 0.2 * len(self.index) and not self.is_whole
        out_of_range = ~dead & ~constant & ~dim & ((self.negative > present / 2) | (bright & reflectance))
        masks = {"dead": dead, "constant": constant, FAR_BELOW: dim, "out of physical range": out_of_range}
        return {fault: self.index[mask].tolist() for fault, mask in masks.items()}


def survey(scene: Scene) -> Survey:
    """Return the statistics of the bands in use, before any are changed, on a sample of pixels; see `Survey`."""
    scene = scene.unchanged()
    L = len(scene.bands.index)
    counts = np.zeros((3, L), np.int64)
    low, high, squares, present = np.full(L, np.inf), np.full(L, -np.inf), np.zeros(L), np.zeros(L)
    pixels, masked, partly, is_whole = 0, 0, 0, True
    constants = ConstantPixels(scene)
    for part in sampled(scene.cube):
        is_fill = constants.add(part)
        Y, absent = scene.spectra(part), scene.missing(part, each=True)
        masked_here = absent.all(axis=1)
        pixels, masked = pixels + len(Y), masked + int(masked_here.sum())
        partly += int((absent.any(axis=1) & ~masked_here).sum())
        Y, absent, is_fill = Y[~masked_here], absent[~masked_here], is_fill[~masked_here]
        counts += np.stack([absent, ~absent & (Y < 0), ~absent & (Y > BRIGHTEST)]).sum(axis=1)
        is_whole = is_whole and bool((absent | (np.floor(Y) == Y)).all())
        absent |= is_fill[:, None]
        low = np.minimum(low, np.where(absent, np.inf, Y).min(axis=0, initial=np.inf))
        high = np.maximum(high, np.where(absent, -np.inf, Y).max(axis=0, initial=-np.inf))
        with np.errstate(over="ignore"):
            squares += np.square(np.where(absent, 0.0, Y)).sum(axis=0)
        present += (~absent).sum(axis=0)
    fill, rms = next(iter(constants.said().values()), None), np.sqrt(squares / np.maximum(1, present))
    missing, negative, above = counts
    return Survey(scene.bands.index, pixels, masked, partly, missing, negative, above, low, high, rms, fill, is_whole)


def lengths_of(scene: Scene, most: int, constants: ConstantPixels | None = None) -> np.ndarray:
    """Return |y| (N,) of sampled pixels that are complete in all bands and hold no fill, as ``constants`` finds."""
    constants = constants or ConstantPixels(scene)
    lengths, constant = [np.empty(0)], [np.empty(0, bool)]
    for part in sampled(scene.cube, most):
        good = ~scene.missing(part)
        constant.append(constants.add(part)[good])
        with np.errstate(over="ignore"):
            lengths.append(np.sqrt(np.square(scene.spectra(part)[good]).sum(axis=1)))
    found = np.concatenate(lengths)
    return found if constants.message() is None else found[~np.concatenate(constant)]


def warn_of_fill(scene: Scene) -> None:
    """Warn of fill values that no header declares, from a sample; see `unmix.scene.undeclared`."""
    constants = ConstantPixels(scene.unchanged())
    for part in sampled(scene.unchanged().cube, SCALE_PIXELS):
        constants.add(part)
    constants.warn()


def warn_of_sample(scene: Scene) -> None:
    """Warn of fill values that no header declares, and of bands in use without a signal, from a sample."""
    warn_of_fill(scene)
    Y = sampled_spectra(scene, MOST_LOOKED_AT)[0]
    warn_of_bands(scene, *moments_of(Y[np.ptp(Y, axis=1) > 0]))  # one value in all bands is fill


def spaced(Y: np.ndarray, most: int) -> np.ndarray:
    """Return at most ``most`` spectra (n, L), evenly spaced."""
    return Y[np.linspace(0, len(Y) - 1, min(len(Y), most)).astype(int)]
