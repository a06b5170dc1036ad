"""Tell whether pixels and endmembers are in one unit, and which options bring them to one."""

import logging
from collections.abc import Sequence

import numpy as np

from ..errors import CubeError
from ..io import Changed, Scene, bands_named
from ..library import Endmembers
from ..settings.presets import PRESETS, preset_of
from .bands import WATER, windows_of
from .constant import MOST_PIXELS, misfit_of_any, remedy
from .sample import BRIGHTEST, SAMPLE, SCALE_PIXELS, lengths_of, sampled_spectra, warn_of_fill
from .undeclared import ConstantPixels

log = logging.getLogger("unmix")

# Accepted range of the 98th percentile of |y| divided by the largest |e|; dark scenes reach 0.1, so it is not tighter.
SCALE_RANGE = (0.02, 50.0)
# From how many times as large as the others on a spectrum is of another unit; the least size that others count for.
ODD, TINY = 30.0, 1e-12
# Advice where values are no multiple of reflectance; the misfit of the median pixel by nonnegative mixtures from which
# on no scale is advised: in another unit the misfit stays the model's.
RAW = "take (raw - dark) / (white - dark) of counts, correct radiance for the atmosphere, absorbance in both or neither"
MOST_MISFIT = 0.25
# How many times as large pixels may be by a preset's scale, where that is advised.
NEAR_A_PRESET = 10.0
# Means of this many parts of the pixels are fitted for that: means of mixtures are mixtures, with less noise.
MEANS = 8
# Units of reflectance beside shares: per cent, and the ten thousandths of products.
UNITS = 100.0, 10_000.0
# How many times as large pixels are where some divide by the largest numbers of 16 bits, though scenes are darker.
LIKE_16_BITS = 15_000.0, 300_000.0


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
    if (ratio := ratio_of_sizes(lengths, endmembers.matrix)) is None:
        return None
    size, largest = sizes_of(lengths, endmembers.matrix)
    if not np.isfinite(largest):
        return f"{endmembers.source}: its values are too large for float64; divide them with `library_scale`"
    gain = float(np.median(np.abs(scene.bands.gain)))
    Y = sampled_spectra(scene, MOST_PIXELS)[0]
    said, dead = f"{cube.path}: pixels are {ratio:.3g} times as large as the endmembers of {endmembers.source}", ""
    if not len(Y):  # in the smaller sample
        return said
    if (varies := np.ptp(Y, axis=1) > 0).any():  # one value in all bands is fill
        Y = Y[varies]
    E, waves, alive = endmembers.matrix, scene.wavelengths, scene.bands.index
    if waves is not None:  # water vapour leaves noise, which is no mixture at any scale
        dry = np.all([(waves < low) | (waves > high) for low, high in windows_of("`ignore_nm`", WATER)], axis=0)
        Y, E, alive = (Y[:, dry], E[dry], alive[dry]) if 2 * dry.sum() > len(dry) else (Y, E, alive)
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
    means = np.stack([part.mean(axis=0) for part in np.array_split(Y, min(MEANS, len(Y)))])
    keeps, misfit = (
        f"`scale` {1 / gain:g} keeps them",
        0.0 if found or isinstance(cube, Changed) else misfit_of_any(means, E),
    )
    own = preset_of(cube.path.name, cube.format)
    if (one := odd_one(endmembers)) is not None:
        brings = f"{one}: bring all spectra to one unit"
    elif (
        own is not None and gain == 1 and 1 / NEAR_A_PRESET < ratio / PRESETS[own].get("scale", np.inf) < NEAR_A_PRESET
    ):
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
    sizes = np.percentile(np.abs(library.matrix), 98, axis=0)  # the median of narrow peaks is near 0
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
    scales = [f"{power / gain:g}"]
    if LIKE_16_BITS[0] < ratio / gain < LIKE_16_BITS[1]:  # no 16 bits hold more than 65535
        scales = ["10000", "32768", "65535"] if power / gain < LIKE_16_BITS[1] / 10 else ["32768", "65535", *scales]
    of_scene, of_library = (
        f"`scale` {', or '.join(scales)}",
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
