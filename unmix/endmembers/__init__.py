"""Finding endmembers in a scene: how many there are, and which pixels they are."""

import logging

import numpy as np

from ..blocks import cores
from ..errors import CubeError, MethodError
from ..io.cube import Bands, Cube
from ..library import Endmembers
from .hysime import hysime
from .passes import Passes
from .spa import spa
from .statistics import Moments, moments
from .vca import vca

log = logging.getLogger("unmix")

EXTRACTORS = {"vca": vca, "spa": spa}
SEEDED = ("vca",)
COUNTERS = {"hysime": hysime}
# Above this a count is capped for `run`: HySime's is often large, and abundances of so many mean little.
MOST = 30


def count_endmembers(
    cube: Cube, bands: Bands, nodata: float | None, budget: int, method: str = "hysime", threads: int | None = None
) -> int:
    """Estimate the number of endmembers in one pass over the scene.

    Parameters
    ----------
    cube : Cube
    bands : Bands
        In use.
    nodata : float or None
        As stored.
    budget : int
        Bytes.
    method : str
        A key of `COUNTERS`.
    threads : int, optional

    Raises
    ------
    MethodError
        Where the method is unknown.
    CubeError
        Where no pixel is valid.
    """
    if method not in COUNTERS:
        raise MethodError(f"unknown method '{method}'; there are {', '.join(COUNTERS)}")
    return COUNTERS[method](signal_of(cube, bands, nodata, budget, threads))


def signal_of(cube: Cube, bands: Bands, nodata: float | None, budget: int, threads: int | None) -> Moments:
    """The moments of a scene; `CubeError` where it has no signal that endmembers could be made of."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = moments(cube, bands, nodata, budget, threads or cores())
    power = float(np.trace(found.second))
    if not 1e-200 < power < 1e200:
        what = "are all zero" if power == 0 else "are too large or small for float64"
        raise CubeError(f"{cube.path}: its {found.pixels} valid pixels {what}; there is nothing to extract")
    if found.pixels <= len(bands.index):
        log.warning(f"{cube.path}: fewer valid pixels ({found.pixels}) than bands; noise cannot be told from signal")
    return found


def extract_endmembers(
    cube: Cube,
    bands: Bands,
    nodata: float | None,
    count: int | str,
    extract: str,
    seed: int,
    budget: int,
    threads: int | None = None,
) -> tuple[Endmembers, int]:
    """Extract endmembers: pixels of the scene, as they are stored and scaled.

    The algorithm's own output is the pixel projected to the signal's subspace; we keep the pixel itself, because it
    exists, and because its bytes depend on no eigensolver.

    Parameters
    ----------
    cube, bands, nodata, budget, threads
        As in `count_endmembers`.
    count : int or "auto"
        How many; "auto" by HySime, at most 30.
    extract : str
        A key of `EXTRACTORS`.
    seed : int

    Returns
    -------
    Endmembers
    passes : int
        How often the file was read.

    Raises
    ------
    MethodError
        Where the count or the algorithm is none, or more endmembers than bands or pixels are asked for.
    CubeError
        Where no pixel is valid.
    """
    if extract not in EXTRACTORS:
        raise MethodError(f"unknown extraction '{extract}'; there are {', '.join(EXTRACTORS)}")
    found = signal_of(cube, bands, nodata, budget, threads)
    counted = hysime(found) if count == "auto" else None
    p = int(count) if counted is None else capped(cube, counted)
    L = len(bands.index)
    if not 1 <= p <= min(L, found.pixels):
        raise MethodError(f"`count` {p}: must be from 1 to {min(L, found.pixels)} (bands and valid pixels in use)")

    if not (isinstance(seed, int) and 0 <= seed < 2**63):
        raise MethodError(f"`seed` {seed}: write a whole number from 0")
    scene = Passes(cube, bands, nodata, budget, threads or cores())
    try:
        places = EXTRACTORS[extract](found, p, seed, cube.lines * cube.samples, budget // 2, scene)
    except OSError as error:
        raise CubeError(f"{cube.path}: no room for scratch: {error.strerror}; set TMPDIR, or raise `memory`") from None
    if len(set(places)) < p:
        raise CubeError(
            f"{cube.path}: has only {len(set(places))} distinct spectra by {extract}, not {p}; lower `count`"
        )
    found_at = [(n // cube.samples, n % cube.samples) for n in places]
    matrix = np.stack([scene.spectrum(n) for n in places], axis=1)
    pixels = tuple((line + cube.origin[0], sample + cube.origin[1]) for line, sample in found_at)  # of the whole scene
    waves = None if cube.wavelengths is None else cube.wavelengths[bands.index]
    names = tuple(f"endmember {j + 1}" for j in range(p))
    source = f"{extract} (seed {seed})" if extract in SEEDED else extract
    return Endmembers(names, np.ascontiguousarray(matrix), waves, pixels, source, counted=counted), 1 + scene.made


def capped(cube: Cube, counted: int) -> int:
    """HySime's count, at most `MOST`; says so."""
    if counted > MOST:
        log.warning(
            f"{cube.path}: HySime counts {counted} endmembers, too many to mean materials; {MOST} are used: choose with -n"
        )
        return MOST
    log.info(f"{cube.path}: HySime counts {counted} endmembers")
    return counted


def pixel_spectrum(cube: Cube, bands: Bands, line: int, sample: int) -> np.ndarray:
    """One pixel, scaled; array (L,)."""
    return Passes(cube, bands, None, 0, 1).spectrum(line * cube.samples + sample)
