"""Estimate the number of endmembers in a scene, and extract them from its pixels."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..blocks import cores
from ..errors import CubeError, MethodError
from ..io.cube import Bands, Cube
from ..library import Endmembers
from .counts import Counts
from .nfindr import Simplex, nfindr, refined_vca
from .passes import Passes, Scene
from .quality import quality_of
from .sisal import Enclosing, sisal
from .spa import spa
from .statistics import Moments, merged, moments
from .vca import vca

log = logging.getLogger("unmix")

# By name, and whether the pixels that VCA picks are exchanged.
EXTRACTORS = {
    ("vca", True): refined_vca, ("vca", False): vca, ("spa", True): spa, ("spa", False): spa, ("nfindr", True): nfindr,
    ("sisal", True): sisal,
}  # fmt: skip
SEEDED = ("vca", "nfindr", "sisal")
# Share of the pixels, times coordinates, that SISAL leaves outside, where none is given.
OUTSIDE = 0.3
# Pixels of which an extracted endmember is the mean: their places are in ``run.json``.
MOST_PUREST = 10_000
# Those that end in the largest simplex.
SMOOTHED = (("vca", True), ("nfindr", True))
# Scenes whose pixels differ in size by more than this factor are in different units.
OTHER_UNIT = 50.0
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
    return signal_of_all([Scene(cube, bands, nodata)], budget, threads)


def signal_of_all(scenes: Sequence[Scene], budget: int, threads: int | None) -> Moments:
    """Return the moments of all pixels of some scenes on the same bands.

    Raises
    ------
    CubeError
        If there is no valid pixel, or no signal in them, or the scenes are in different units.
    """
    parts = []
    for cube, bands, nodata in scenes:
        with np.errstate(over="ignore", invalid="ignore"):
            parts.append(moments(cube, bands, nodata, budget, threads or cores()))
        path, part = cube.path, parts[-1]
        power = float(np.trace(part.second))
        if part.pixels == 0 and len(scenes) == 1:
            raise CubeError(f"{path}: all {cube.lines * cube.samples} pixels are masked as nodata")
        if part.pixels == 0:
            log.warning(f"{path}: all {cube.lines * cube.samples} pixels are masked as nodata; it adds nothing")
        elif not 1e-200 < power < 1e200:
            problem = "are all zero" if power == 0 else "are too large or small for float64"
            raise CubeError(f"{path}: its {part.pixels} valid pixels {problem}; there is nothing to extract")
    refuse_units(scenes, parts)
    together = merged(parts)
    if together.pixels <= len(together.mean):
        log.warning(
            f"{named(scenes)}: not more valid pixels ({together.pixels}) than bands; noise cannot be told from signal"
        )
    return together


def refuse_units(scenes: Sequence[Scene], parts: Sequence[Moments]) -> None:
    """Raise `CubeError` where scenes are in other units than the first that has pixels, or none has any."""
    sizes = [np.sqrt(float(np.trace(part.second))) if part.pixels else 0.0 for part in parts]
    first = next((k for k, size in enumerate(sizes) if size > 0), None)
    if first is None:
        raise CubeError(f"{named(scenes)}: all pixels are masked as nodata")
    for scene, size in zip(scenes, sizes):
        if size > 0 and not 1 / OTHER_UNIT < size / sizes[first] < OTHER_UNIT:
            raise CubeError(
                f"{scene.cube.path}: its pixels are {size / sizes[first]:.3g} times as large as those of {scenes[first].cube.path}; "
                "scenes of one set must be in one unit"
            )


def named(scenes: Sequence[Scene]) -> str:
    """Return what messages about some scenes begin with."""
    return str(scenes[0].cube.path) if len(scenes) == 1 else f"{len(scenes)} scenes, {scenes[0].cube.path} first"


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
    outside: float | None = None,
) -> tuple[Endmembers, int]:
    """Extract endmembers of one scene; see `extract_from`."""
    return extract_from([Scene(cube, bands, nodata)], count, extract, seed, budget, threads, refine, smooth, outside)


def extract_from(
    scenes: Sequence[Scene],
    count: int | str,
    extract: str,
    seed: int,
    budget: int,
    threads: int | None = None,
    refine: bool = True,
    smooth: int = 0,
    outside: float | None = None,
) -> tuple[Endmembers, int]:
    """Extract one set of endmembers of all scenes: pixels of them, as they are stored and scaled.

    The published algorithms return the pixel projected to the signal subspace. The pixel itself is returned here: it exists in the
    scene, and its bytes do not depend on the eigensolver.

    Parameters
    ----------
    scenes : sequence of Scene
        On the same bands.
    budget, threads
        As in `count_endmembers`.
    count : int or "auto"
        How many to extract; "auto" estimates the number (`unmix.endmembers.counts`) and uses at most 30.
    extract : {"vca", "spa", "nfindr", "sisal"}
    seed : int
        Seed of random directions, from 0; of VCA, and of N-FINDR, with which SISAL begins, above six endmembers.
    refine : bool
        Exchange VCA's pixels for others while that enlarges their simplex (`unmix.endmembers.nfindr`).
    smooth : int
        Return, for each corner of the simplex, the mean of so many pixels nearest to it; 0 returns the pixel at the corner.
    outside : float, optional
        For SISAL: the share of barycentric coordinates of the pixels that may be below 0, for each pixel; default is 0.3.

    Returns
    -------
    Endmembers
        With a matrix (L, p), float64, and the line and sample of each, and the scene where there are several.
    passes : int
        How many times the files were read.

    Raises
    ------
    MethodError
        If the algorithm is unknown, the count or seed is invalid, or the count is larger than the number of bands or valid pixels.
    CubeError
        If no pixel is valid, there are too few distinct spectra, there is no room for scratch files, or scenes are in different units.
    """
    refuse_extraction(extract, refine, smooth, seed, outside)
    scene_moments = signal_of_all(scenes, budget, threads)
    counts = Counts.of(scene_moments) if count == "auto" else None
    p = int(count) if counts is None else capped(named(scenes), counts)
    refuse_count(p, "smooth" if smooth else "extract" if extract == "sisal" else None, smooth, scene_moments)
    passes = Passes(scenes, budget, threads or cores())
    try:
        more = {"smooth": smooth} if smooth else {"outside": outside or OUTSIDE} if extract == "sisal" else {}
        found = EXTRACTORS[extract, refine](scene_moments, p, seed, passes.pixels, budget // 2, passes, **more)
    except OSError as error:
        raise CubeError(
            f"{named(scenes)}: no room for a scratch file: {error.strerror}; set TMPDIR to a larger disk, or raise `memory`"
        ) from None
    if isinstance(found, Enclosing):
        return enclosing_library(found, scenes, seed, counts), 1 + passes.made
    simplex = found if isinstance(found, Simplex) else None
    places = found.places if isinstance(found, Simplex) else found
    if len(set(places)) < p:
        raise CubeError(
            f"{named(scenes)}: has only {len(set(places))} distinct spectra by {extract}, not {p}; lower `count`"
        )
    purest = simplex.purest if simplex is not None and smooth else [[n] for n in places]
    cube, bands, _ = scenes[0]
    source = f"{extract} (seed {seed})" if extract in SEEDED else extract
    source += f", means of the {smooth} purest pixels" if smooth else ""
    names = tuple(f"endmember {j + 1}" for j in range(p))
    matrix = np.ascontiguousarray(np.stack([mean_spectrum(passes, some) for some in purest], axis=1))
    library = Endmembers(
        names,
        matrix,
        None if cube.wavelengths is None else cube.wavelengths[bands.index],
        tuple(passes.position(place) for place in places),
        source,
        counted=None if counts is None else counts.all,
        simplex=None if simplex is None else simplex.to_dict() | purest_of(simplex, passes),
        quality=quality_of(matrix, None if simplex is None else simplex.use),
        scenes=None if len(scenes) == 1 else tuple(names_of(scenes)[passes.locate(place)[0]] for place in places),
    )
    return library, 1 + passes.made


def names_of(scenes: Sequence[Scene]) -> list[str]:
    """Return the names of scenes: their files' without ending where these differ, else their paths."""
    stems = [scene.cube.stem for scene in scenes]
    return stems if len(set(stems)) == len(stems) else [str(scene.cube.path) for scene in scenes]


def enclosing_library(found: Enclosing, scenes: Sequence[Scene], seed: int, counts: Counts | None) -> Endmembers:
    """Return the corners of a simplex around scenes as endmembers; warn where they are negative, as no reflectance is."""
    cube, bands, _ = scenes[0]
    names = tuple(f"endmember {j + 1}" for j in range(found.spectra.shape[1]))
    below = (found.spectra < 0).sum(axis=0)
    if below.any():
        j = int(found.spectra.min(axis=0).argmin())
        log.warning(
            f"{named(scenes)}: {names[j]} is negative in {below[j]} of {len(found.spectra)} bands, down to "
            f"{found.spectra[:, j].min():.3g}: no pixel is near it; a larger `outside`, or `extract` nfindr, keeps to the pixels"
        )
    waves = None if cube.wavelengths is None else cube.wavelengths[bands.index]
    source, counted = f"sisal (seed {seed})", None if counts is None else counts.all
    quality = quality_of(found.spectra, found.use)
    return Endmembers(
        names, found.spectra, waves, None, source, counted=counted, simplex=found.to_dict(), quality=quality
    )


def refuse_extraction(extract: str, refine: bool, smooth: int, seed: int, outside: float | None) -> None:
    """Raise `MethodError` where an extraction is not known, or its options contradict each other."""
    names_known = dict.fromkeys(name for name, _ in EXTRACTORS)
    if extract not in names_known:
        raise MethodError(f"unknown extraction '{extract}'; there are {', '.join(names_known)}")
    if (extract, refine) not in EXTRACTORS:
        raise MethodError(f"`refine`: {extract} always exchanges pixels; only vca can be left as it is")
    if smooth and (extract, refine) not in SMOOTHED:
        raise MethodError(
            "`smooth` is for the corners of the largest simplex; use `extract` nfindr, or vca with `refine`"
        )
    if outside is not None and extract != "sisal":
        raise MethodError("`outside` is for `extract` sisal")
    if outside is not None and not 0.001 <= outside <= 1:
        raise MethodError(f"`outside` {outside:g}: must be from 0.001 to 1")
    if not 0 <= smooth <= MOST_PUREST:
        raise MethodError(f"`smooth` {smooth}: must be from 0 to {MOST_PUREST} pixels")
    if not (isinstance(seed, int) and 0 <= seed < 2**63):
        raise MethodError(f"`seed` {seed}: must be a whole number from 0 to 2^63 - 1")


def refuse_count(p: int, needs_simplex: str | None, smooth: int, scene_moments: Moments) -> None:
    """Raise `MethodError` where there cannot be so many endmembers, or so many pixels for each, or an option needs a simplex."""
    L, pixels = len(scene_moments.mean), scene_moments.pixels
    if not 1 <= p <= min(L, pixels):
        raise MethodError(f"`count` {p}: must be from 1 to {min(L, pixels)} (bands and valid pixels in use)")
    if needs_simplex and p == 1:
        raise MethodError(f"`{needs_simplex}`: one endmember has no simplex")
    if p * smooth > pixels:
        raise MethodError(f"`smooth` {smooth}: {pixels} valid pixels are not so many for each of {p} endmembers")


def capped(name: str, counts: Counts) -> int:
    """Return the count of scenes, at most `MOST`, and log it; ``name`` is what the message begins with."""
    taken = min(counts.auto, MOST)
    if counts.auto > MOST:
        log.warning(
            f"{name}: {counts.auto} endmembers ({counts}), too many to be materials; {MOST} are used: set `count`"
        )
    elif not counts.is_clear:
        log.warning(
            f"{name}: how many endmembers there are is not clear ({counts}); {taken} are used: set `count` if you know"
        )
    else:
        log.info(f"{name}: {taken} endmembers ({counts})")
    return taken


def purest_of(simplex: Simplex, passes: Passes) -> dict[str, Any]:
    """Return for ``run.json`` line and sample in the whole scene of the pixels that each endmember is the mean of, if it is one."""
    places = [[list(passes.position(n)) for n in some] for some in simplex.purest]
    return {"purest": places} if places else {}


def mean_spectrum(passes: Passes, places: list[int]) -> np.ndarray:
    """Return the mean of the spectra of some pixels, (L,); they are read and added in the order of the files."""
    total, line_of = np.zeros(len(passes.scenes[0].bands.index)), (-1, -1)
    for place in sorted(places):
        number, line, sample = passes.locate(place)
        if (number, line) != line_of:
            of_line, line_of = passes.spectra(number, line), (number, line)
        total += of_line[sample]
    return total / len(places)


def pixel_spectrum(cube: Cube, bands: Bands, line: int, sample: int) -> np.ndarray:
    """Return the spectrum of one pixel, scaled; array (L,), float64."""
    return Passes([Scene(cube, bands, None)], 0, 1).spectra(0, line)[sample]
