"""Estimate the number of endmembers in a scene, and extract them from its pixels."""

import logging
from typing import Any

import numpy as np

from ..blocks import cores
from ..errors import CubeError, MethodError
from ..io.cube import Bands, Cube
from ..library import Endmembers
from .counts import Counts
from .nfindr import Simplex, nfindr, refined_vca
from .passes import Passes
from .spa import spa
from .statistics import Moments, moments
from .vca import vca

log = logging.getLogger("unmix")

# By name, and whether the pixels that VCA picks are exchanged.
EXTRACTORS = {
    ("vca", True): refined_vca, ("vca", False): vca, ("spa", True): spa, ("spa", False): spa, ("nfindr", True): nfindr,
}  # fmt: skip
SEEDED = ("vca", "nfindr")
# Pixels of which an extracted endmember is the mean: their places are in ``run.json``.
MOST_PUREST = 10_000
# Those that end in the largest simplex.
SMOOTHED = (("vca", True), ("nfindr", True))
# Largest count that "auto" uses: abundances of so many endmembers mean little.
MOST = 30


def count_endmembers(cube: Cube, bands: Bands, nodata: float | None, budget: int, threads: int | None = None) -> Counts:
    """Estimate the number of endmembers by all criteria, in one pass over the scene.

    Parameters
    ----------
    cube : Cube
    bands : Bands
        The bands in use.
    nodata : float or None
        The stored value that means no data.
    budget : int
        Bytes of memory for blocks and intermediate results.
    threads : int, optional
        CPU threads; default is all.

    Raises
    ------
    CubeError
        If no pixel is valid, or the valid ones have no signal.
    """
    return Counts.of(signal_of(cube, bands, nodata, budget, threads))


def signal_of(cube: Cube, bands: Bands, nodata: float | None, budget: int, threads: int | None) -> Moments:
    """Return the moments of a scene; `CubeError` if its valid pixels have no signal to extract endmembers from."""
    with np.errstate(over="ignore", invalid="ignore"):
        scene_moments = moments(cube, bands, nodata, budget, threads or cores())
    power = float(np.trace(scene_moments.second))
    if not 1e-200 < power < 1e200:
        problem = "are all zero" if power == 0 else "are too large or small for float64"
        raise CubeError(f"{cube.path}: its {scene_moments.pixels} valid pixels {problem}; there is nothing to extract")
    if scene_moments.pixels <= len(bands.index):
        log.warning(
            f"{cube.path}: not more valid pixels ({scene_moments.pixels}) than bands; noise cannot be told from signal"
        )
    return scene_moments


def extract_endmembers(
    cube: Cube,
    bands: Bands,
    nodata: float | None,
    count: int | str,
    extract: str,
    seed: int,
    budget: int,
    threads: int | None = None,
    refine: bool = True,
    smooth: int = 0,
) -> tuple[Endmembers, int]:
    """Extract endmembers: pixels of the scene, as they are stored and scaled.

    The published algorithms return the pixel projected to the signal subspace. The pixel itself is returned here: it exists in the
    scene, and its bytes do not depend on the eigensolver.

    Parameters
    ----------
    cube, bands, nodata, budget, threads
        As in `count_endmembers`.
    count : int or "auto"
        How many to extract; "auto" estimates the number (`unmix.endmembers.counts`) and uses at most 30.
    extract : {"vca", "spa", "nfindr"}
    seed : int
        Seed of random directions, from 0; of VCA, and of N-FINDR above six endmembers.
    refine : bool
        Exchange VCA's pixels for others while that enlarges their simplex (`unmix.endmembers.nfindr`).
    smooth : int
        Return, for each corner of the simplex, the mean of so many pixels nearest to it; 0 returns the pixel at the corner.

    Returns
    -------
    Endmembers
        With a matrix (L, p), float64, and the line and sample of each.
    passes : int
        How many times the file was read.

    Raises
    ------
    MethodError
        If the algorithm is unknown, the count or seed is invalid, or the count is larger than the number of bands or valid pixels.
    CubeError
        If no pixel is valid, the scene has too few distinct spectra, or there is no room for scratch files.
    """
    names_known = dict.fromkeys(name for name, _ in EXTRACTORS)
    if extract not in names_known:
        raise MethodError(f"unknown extraction '{extract}'; there are {', '.join(names_known)}")
    if (extract, refine) not in EXTRACTORS:
        raise MethodError(f"`refine`: {extract} always exchanges pixels; only vca can be left as it is")
    if smooth and (extract, refine) not in SMOOTHED:
        raise MethodError(
            "`smooth` is for the corners of the largest simplex; use `extract` nfindr, or vca with `refine`"
        )
    if not 0 <= smooth <= MOST_PUREST:
        raise MethodError(f"`smooth` {smooth}: must be from 0 to {MOST_PUREST} pixels")
    scene_moments = signal_of(cube, bands, nodata, budget, threads)
    counts = Counts.of(scene_moments) if count == "auto" else None
    p = int(count) if counts is None else capped(cube, counts)
    L = len(bands.index)
    if not 1 <= p <= min(L, scene_moments.pixels):
        raise MethodError(
            f"`count` {p}: must be from 1 to {min(L, scene_moments.pixels)} (bands and valid pixels in use)"
        )

    if smooth and p == 1:
        raise MethodError("`smooth`: one endmember has no simplex, whose corners are smoothed")
    if p * smooth > scene_moments.pixels:
        raise MethodError(
            f"`smooth` {smooth}: {scene_moments.pixels} valid pixels are not so many for each of {p} endmembers"
        )
    if not (isinstance(seed, int) and 0 <= seed < 2**63):
        raise MethodError(f"`seed` {seed}: must be a whole number from 0 to 2^63 - 1")
    scene = Passes(cube, bands, nodata, budget, threads or cores())
    try:
        more = {"smooth": smooth} if smooth else {}
        found = EXTRACTORS[extract, refine](
            scene_moments, p, seed, cube.lines * cube.samples, budget // 2, scene, **more
        )
    except OSError as error:
        raise CubeError(
            f"{cube.path}: no room for a scratch file: {error.strerror}; set TMPDIR to a larger disk, or raise `memory`"
        ) from None
    simplex = found if isinstance(found, Simplex) else None
    places = found.places if isinstance(found, Simplex) else found
    if len(set(places)) < p:
        raise CubeError(
            f"{cube.path}: has only {len(set(places))} distinct spectra by {extract}, not {p}; lower `count`"
        )
    positions = [(n // cube.samples, n % cube.samples) for n in places]
    purest = simplex.purest if simplex is not None and smooth else [[n] for n in places]
    matrix = np.stack([mean_spectrum(scene, some) for some in purest], axis=1)
    # `Endmembers.pixels` counts in the whole scene, also where only a part of it is read.
    pixels = tuple((line + cube.origin[0], sample + cube.origin[1]) for line, sample in positions)
    waves = None if cube.wavelengths is None else cube.wavelengths[bands.index]
    names = tuple(f"endmember {j + 1}" for j in range(p))
    source = f"{extract} (seed {seed})" if extract in SEEDED else extract
    source += f", means of the {smooth} purest pixels" if smooth else ""
    counted = None if counts is None else counts.all
    library = Endmembers(
        names,
        np.ascontiguousarray(matrix),
        waves,
        pixels,
        source,
        counted=counted,
        simplex=None if simplex is None else simplex.to_dict() | purest_of(simplex, cube),
    )
    return library, 1 + scene.made


def capped(cube: Cube, counts: Counts) -> int:
    """Return the count of a scene, at most `MOST`, and log it."""
    taken = min(counts.auto, MOST)
    if counts.auto > MOST:
        log.warning(
            f"{cube.path}: {counts.auto} endmembers ({counts}), too many to be materials; {MOST} are used: set `count`"
        )
    elif not counts.is_clear:
        log.warning(
            f"{cube.path}: how many endmembers there are is not clear ({counts}); {taken} are used: set `count` if you know"
        )
    else:
        log.info(f"{cube.path}: {taken} endmembers ({counts})")
    return taken


def purest_of(simplex: Simplex, cube: Cube) -> dict[str, Any]:
    """Return for ``run.json`` line and sample in the whole scene of the pixels that each endmember is the mean of, if it is one."""
    places = [
        [[n // cube.samples + cube.origin[0], n % cube.samples + cube.origin[1]] for n in some]
        for some in simplex.purest
    ]
    return {"purest": places} if places else {}


def mean_spectrum(scene: Passes, places: list[int]) -> np.ndarray:
    """Return the mean of the spectra of some pixels, (L,); they are read and added in the order of the file."""
    total = np.zeros(len(scene.bands.index))
    samples, ordered = scene.cube.samples, np.sort(places)
    for line in np.unique(ordered // samples):
        of_line = scene.spectra(int(line))
        for place in ordered[ordered // samples == line]:
            total += of_line[place % samples]
    return total / len(places)


def pixel_spectrum(cube: Cube, bands: Bands, line: int, sample: int) -> np.ndarray:
    """Return the spectrum of one pixel, scaled; array (L,), float64."""
    return Passes(cube, bands, None, 0, 1).spectrum(line * cube.samples + sample)
