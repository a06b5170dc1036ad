"""Look at a sample of a scene: faulty bands, and whether it has the scale of the endmembers."""

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ..errors import CubeError
from ..io import Changed, Cube, RemotePath, Scene, bands_named, bytes_per_line, read_blocks
from ..library import Endmembers
from ..settings.presets import PRESETS, preset_of
from .bands import WATER, windows_of
from .undeclared import MOST_PIXELS, ConstantPixels, misfit_of_any, remedy

log = logging.getLogger("unmix")

# Accepted range of the 98th percentile of |y| divided by the largest |e|; dark scenes reach 0.1, so it is not tighter.
SCALE_RANGE = (0.02, 50.0)
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
# From how many times as large as the others on a spectrum is of another unit; the least size that others count for.
ODD, TINY = 30.0, 1e-12
# Largest usual reflectance: a scene is reflectance if most bands are mostly below; a band mostly above it is then
# faulty.
BRIGHTEST = 1.2
# Advice where values are no multiple of reflectance; the misfit of the median pixel by nonnegative mixtures from which
# on no scale is advised: in another unit the misfit stays the model's.
RAW = "take (raw - dark) / (white - dark) of counts, correct radiance for the atmosphere, absorbance in both or neither"
MOST_MISFIT = 0.25
# Means of this many parts of the pixels are fitted for that: means of mixtures are mixtures, with less noise.
MEANS = 8
# Units of reflectance beside shares: per cent, and the ten thousandths of products.
UNITS = 100.0, 10_000.0
# The power of ten that stands for the largest numbers of 16 bits, by which some divide.
LIKE_16_BITS = 100_000.0


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
    low, high : arrays, float64
        Smallest and largest value, scaled.
    fill : str or None
        A sentence about fill values that no header declares, else about saturated ones; see `unmix.scene.undeclared`.
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
    fill: str | None
    is_whole: bool

    def faults(self) -> dict[str, list[int]]:
        """Return the bands (from 0) that should not be used, by fault."""
        unmasked = self.pixels - self.masked
        present = np.maximum(1, unmasked - self.missing)
        dead = (self.missing == unmasked) if unmasked else np.zeros(len(self.index), bool)
        constant = ~dead & (self.low == self.high) & (unmasked > 1)
        bright = self.bright > present / 2
        # Whole numbers are counts, or reflectance that is not scaled yet.
        reflectance = bright.sum() <= 0.2 * len(self.index) and not self.is_whole
        out_of_range = ~dead & ~constant & ((self.negative > present / 2) | (bright & reflectance))
        masks = {"dead": dead, "constant": constant, "out of physical range": out_of_range}
        return {fault: self.index[mask].tolist() for fault, mask in masks.items()}


def survey(scene: Scene) -> Survey:
    """Return the statistics of the bands in use, before any are changed, on a sample of pixels; see `Survey`."""
    scene = scene.unchanged()
    L = len(scene.bands.index)
    counts = np.zeros((3, L), np.int64)
    low, high = np.full(L, np.inf), np.full(L, -np.inf)
    pixels, masked, partly, is_whole = 0, 0, 0, True
    constants = ConstantPixels(scene)
    for part in sampled(scene.cube):
        constants.add(part)
        Y, absent = scene.spectra(part), scene.missing(part, each=True)
        masked_here = absent.all(axis=1)
        pixels, masked = pixels + len(Y), masked + int(masked_here.sum())
        partly += int((absent.any(axis=1) & ~masked_here).sum())
        Y, absent = Y[~masked_here], absent[~masked_here]
        counts += np.stack([absent, ~absent & (Y < 0), ~absent & (Y > BRIGHTEST)]).sum(axis=1)
        is_whole = is_whole and bool((absent | (np.floor(Y) == Y)).all())
        low = np.minimum(low, np.where(absent, np.inf, Y).min(axis=0, initial=np.inf))
        high = np.maximum(high, np.where(absent, -np.inf, Y).max(axis=0, initial=-np.inf))
    fill = next(iter(constants.said().values()), None)
    return Survey(scene.bands.index, pixels, masked, partly, counts[0], counts[1], counts[2], low, high, fill, is_whole)


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


def sizes_of(lengths: np.ndarray, E: np.ndarray) -> tuple[float, float]:
    """Return the 98th percentile of |y| and the largest |e|."""
    size = float(np.percentile(lengths, 98)) if len(lengths) else np.nan
    with np.errstate(over="ignore"):  # infinite; `scale_fault` says so
        return size, float(np.sqrt(np.square(E).sum(axis=0)).max())


def ratio_of_sizes(lengths: np.ndarray, E: np.ndarray) -> float | None:
    """Return how many times as large as endmembers pixels are; None where that is in `SCALE_RANGE`, or not known."""
    size, largest = sizes_of(lengths, E)
    known = size > 0 and largest > 0
    return None if not known or SCALE_RANGE[0] <= size / largest <= SCALE_RANGE[1] else size / largest


def scale_fault(scene: Scene, endmembers: Endmembers, constants: ConstantPixels | None = None) -> str | None:
    """Return a message if the sizes of pixels and endmembers do not match, else None; see `check_scale`."""
    cube, lengths = scene.cube, lengths_of(scene, SCALE_PIXELS, constants)
    if not lengths.any():
        lengths = lengths_of(scene, SAMPLE)
    if len(lengths) == 0:
        log.warning(f"{cube.path}: no pixel of the sample has values in all bands; the scale was not checked")
    if len(lengths) and not lengths.any():
        raise CubeError(
            f"{cube.path}: all values of the {len(lengths)} pixels looked at are 0; there is nothing to unmix"
        )
    if not np.all(np.isfinite(lengths)):
        return f"{cube.path}: its values are too large for float64; divide them with `scale`"
    ratio = ratio_of_sizes(lengths, endmembers.matrix)
    if ratio is None:
        return None
    size, largest = sizes_of(lengths, endmembers.matrix)
    if not np.isfinite(largest):
        return f"{endmembers.source}: its values are too large for float64; divide them with `library_scale`"
    gain = float(np.median(np.abs(scene.bands.gain)))
    Y = sampled_spectra(scene, MOST_PIXELS)[0]
    if (varies := np.ptp(Y, axis=1) > 0).any():  # one value in all bands is fill
        Y = Y[varies]
    E, waves, alive = endmembers.matrix, scene.wavelengths, scene.bands.index
    if waves is not None:  # water vapour leaves noise, which is no mixture at any scale
        dry = np.all([(waves < low) | (waves > high) for low, high in windows_of("`ignore_nm`", WATER)], axis=0)
        Y, E, alive = (Y[:, dry], E[dry], alive[dry]) if 2 * dry.sum() > len(dry) else (Y, E, alive)
    said, dead = f"{cube.path}: pixels are {ratio:.3g} times as large as the endmembers of {endmembers.source}", ""
    is_dead = np.ptp(Y, axis=0) == 0 if len(Y) > 1 else np.zeros(Y.shape[1], bool)
    if is_dead.any() and not is_dead.all():
        dead = f"; one value is in all pixels of {bands_named(alive[is_dead].tolist())}: leave out with `bands` auto"
        Y, E = Y[:, ~is_dead], E[~is_dead]
        if ratio_of_sizes(np.linalg.norm(Y, axis=1), E) is None:
            return said + dead
    found = remedy(scene, Y, E, False) if not dead else None
    # Saturated bands decide lengths, but no medians of bands.
    middles = np.percentile(np.median(np.abs(Y), axis=1), 98), np.median(np.abs(E), axis=0).max()
    advised = middles[0] / middles[1] if min(middles) > 0 else ratio
    means = np.stack([part.mean(axis=0) for part in np.array_split(Y, max(1, min(MEANS, len(Y))))])
    keeps, misfit = f"`scale` {1 / gain:g} keeps them", 0.0 if found else misfit_of_any(means, E)
    own = preset_of(cube.path.name, cube.format)
    if (one := odd_one(endmembers)) is not None:
        brings = f"{one}: bring all spectra to one unit"
    elif own is not None and gain == 1 and "scale" in PRESETS[own]:
        brings = f"`preset` {own}, by its name, brings them together, {keeps}"
    elif found is not None and "preset" in found[1]:
        brings = f"they have an offset, too: {found[1]} brings them together, {keeps}"
    elif found is not None:
        brings = f"they have an offset, too, so they are no reflectance: {RAW}; {keeps}"
    elif misfit > MOST_MISFIT:
        brings = f"no scale makes them mixtures of these (misfit {misfit:.0%}): {RAW}, or take another library; {keeps}"
    else:
        brings = said_of_scales(advised, (gain, endmembers.divisor), size, largest, len(endmembers.matrix))
        brings += "; of raw counts take (raw - dark) / (white - dark)" * (cube.dtype.kind in "iu" and gain == 1)
    return f"{said}; {brings}{dead}"


def odd_one(library: Endmembers) -> str | None:
    """Return that a spectrum differs from the others in size by more than `ODD`, or None."""
    sizes = np.median(np.abs(library.matrix), axis=0)
    off = (
        [size / max(np.median(np.delete(sizes, j)), TINY) for j, size in enumerate(sizes)] if len(sizes) > 1 else [1.0]
    )
    j = int(np.argmax(off))
    return f"'{library.names[j]}' is {off[j]:.3g} times as large as the others" if off[j] > ODD else None


def unit_of_library(scene: Scene, library: Endmembers, given: Sequence[float | None]) -> float | None:
    """Return 100 or 10 000 if spectra are in that unit, and the file's scale makes pixels reflectance; else None."""
    # By bands of spectra that are brighter than most, not by one value or one spectrum.
    E = library.matrix
    largest = float(np.percentile(np.percentile(np.abs(E), 90, axis=0), 75))
    unit = next((unit for unit in UNITS if BRIGHTEST < largest <= BRIGHTEST * unit), None)
    if unit is None or scene.cube.gain is None or any(one is not None for one in given):
        return None
    lengths = lengths_of(scene, SCALE_PIXELS)
    if not len(lengths) or not np.isfinite(lengths).all() or np.percentile(lengths, 98) > BRIGHTEST * np.sqrt(len(E)):
        return None
    if ratio_of_sizes(lengths, E) is None or ratio_of_sizes(lengths, E / unit) is not None:
        return None
    if (one := odd_one(library)) is not None:
        log.warning(f"{library.source}: {one}: bring all spectra to one unit")
    log.info(
        f"{library.source}: its values are divided by {unit:g} (`library_scale`): the file's own scale makes pixels "
        "reflectance"
    )
    return unit


def said_of_scales(ratio: float, given: tuple[float, float], size: float, largest: float, bands: int) -> str:
    """Return the options that bring pixels, ``ratio`` times as large, and spectra to one unit, best option first."""
    gain, divisor = given  # of the scene, and of the library
    power = 10.0 ** np.round(np.log10(ratio))
    of_scene, of_library = (
        f"`scale` {power / gain:g}" + ", or 32768 or 65535" * bool(power / gain == LIKE_16_BITS),
        f"`library_scale` {divisor / power:g}",
    )
    is_reflectance = [length / np.sqrt(bands) <= BRIGHTEST for length in (size, largest)]
    units = [
        next((unit for unit in UNITS if length / np.sqrt(bands) <= BRIGHTEST * unit), None)
        for length in (size, largest)
    ]
    if not any(is_reflectance) and units[0] and units[1] and units[0] != units[1]:  # of two units, neither 1
        both = f"`scale` {units[0] / gain:g} with `library_scale` {divisor * units[1]:g} if both are reflectance in these units"
        return f"{both}, `scale` {1 / gain:g} keeps them"
    first, other = (of_library, of_scene) if is_reflectance == [True, False] else (of_scene, of_library)
    return f"{first} (or {other}) brings them together, `scale` {1 / gain:g} keeps them"


def check_scale(scene: Scene, endmembers: Endmembers, meant: bool = False) -> None:
    """Raise `CubeError`, or warn if ``meant``, where pixels and endmembers differ in size; warn of undeclared fill."""
    constants = ConstantPixels(scene)
    if isinstance(scene.cube, Changed):
        warn_of_fill(scene)
    fault = scale_fault(scene, endmembers, constants)
    constants.warn()
    if fault and not meant:
        raise CubeError(fault)
    if fault:  # a scale of 1 is the answer to it
        log.log(logging.INFO if np.all(scene.unchanged().bands.gain == 1) else logging.WARNING, fault)


def spaced(Y: np.ndarray, most: int) -> np.ndarray:
    """Return at most ``most`` spectra (n, L), evenly spaced."""
    return Y[np.linspace(0, len(Y) - 1, min(len(Y), most)).astype(int)]
