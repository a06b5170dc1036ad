"""`features`: depth and centre of absorptions of every pixel, and its spectrum without the continuum."""

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ...blocks import parse_size, workers_for
from ...endmembers.statistics import walk
from ...errors import CubeError, MethodError
from ...io import NODATA, by_pixel, missing, spectra
from ...library.matching import without_continuum
from ...maps.plain_map import new_maps, put_lines, refuse_masked
from ...scene import ReadOptions, open_scene
from ...scene.sample import warn_of_sample

IMAGE, CONTINUUM = "features", "continuum"
# Absorptions that geologists and botanists look at: the wavelengths of their shoulders, nm (after Clark et al. 2003).
KNOWN = {
    "chlorophyll": (560.0, 760.0),
    "iron": (750.0, 1300.0),
    "al-oh": (2120.0, 2250.0),
    "mg-oh": (2260.0, 2370.0),
    "carbonate": (2250.0, 2400.0),
}
# Bands that a feature must have; and how many of their widest steps may lie between a shoulder and the nearest of them.
FEWEST_BANDS, CUT = 3, 1.0
log = logging.getLogger("unmix")


class Absorption(NamedTuple):
    """An absorption: its name, and the bands in use from one shoulder to the other, in the order of wavelengths."""

    name: str
    bands: np.ndarray


def features(
    cube: str | os.PathLike[str],
    *,
    feature: Sequence[str] = (),
    continuum: bool = False,
    out_dir: str | os.PathLike[str] | None = None,
    format: str = "envi",
    overwrite: bool = False,
    memory: str | int = "1G",
    threads: int | None = None,
    **reading: Any,
) -> dict[str, Any]:
    """Write for every pixel the depth and the centre of absorptions.

    The continuum of an absorption is the straight line between its shoulders; the depth is one less the least quotient
    of spectrum and continuum, the centre the wavelength of the minimum of the parabola through that band and its
    neighbours. Where the least quotient is at a shoulder there is no absorption: the depth is 0, and there is no
    centre.

    Parameters
    ----------
    cube : path-like
        With wavelengths.
    feature : sequence of str, optional
        Names of `KNOWN`, or ``NAME=A-B``, with the wavelengths of the shoulders in nm; default are all known ones that
        the bands in use cover.
    continuum : bool
        Also write STEM_continuum, all bands in use divided by their continuum, the upper convex hull.
    out_dir, format, overwrite, memory, threads, **reading
        See `unmix.mnf`.

    Returns
    -------
    dict
        ``files``; and ``features``: of each ``name``, ``from`` and ``to``, the wavelengths of its shoulders, nm.

    Raises
    ------
    MethodError
        Where a feature is malformed, unknown, or has fewer than three bands.
    CubeError, OutputError
        As in `unmix.mnf`; and where the scene has no wavelengths, or covers no feature.
    """
    given = open_scene(cube, ReadOptions(**reading))
    scene, bands, nodata = given
    waves = given.wavelengths
    if waves is None:
        raise CubeError(f"{scene.path}: has no wavelengths; name them with `wavelengths`")
    warn_of_sample(given)
    chosen = chosen_features(feature, waves)
    if not chosen:
        raise CubeError(
            f"{scene.path}: its bands in use, {waves.min():g} to {waves.max():g} nm, cover no known feature; name one"
        )
    images, unasked = [IMAGE, *[CONTINUUM] * continuum], [CONTINUUM] * (not continuum)

    def one_line(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        good = ~missing(pixels, "bip", bands, nodata).ravel()
        Y = spectra(pixels, "bip", bands)[good]
        rows = np.full((len(good), 2 * len(chosen)), np.nan)
        rows[good] = np.column_stack([depth_and_centre(waves[one.bands], Y[:, one.bands]) for one in chosen])
        if not continuum:
            return rows, None
        quotients = np.full((len(good), len(waves)), np.nan)
        quotients[good] = [without_continuum(waves, y) for y in Y] if len(Y) else np.empty((0, len(waves)))
        return rows, quotients

    with (
        new_maps(scene, out_dir, format, overwrite, images, unasked=unasked) as out,
        ThreadPoolExecutor(workers_for(threads)) as pool,
    ):
        files, known = {name: out.open(name) for name in images}, 0
        try:
            for _, raw in walk(scene, parse_size(str(memory)), 24 * scene.samples * len(waves)):
                pixels = by_pixel(raw, scene.interleave)
                for rows, quotients in pool.map(one_line, (pixels[k : k + 1] for k in range(len(pixels)))):
                    known += int((~np.isnan(rows[:, 0])).sum())
                    put_lines(scene, files[IMAGE], rows)
                    if quotients is not None:
                        put_lines(scene, files[CONTINUUM], quotients)
        finally:
            for file in files.values():
                file.close()
        refuse_masked(scene, known)
        names = [f"{what} of {one.name}" for one in chosen for what in ("depth", "centre")]
        fields: dict[str, Any] = {"band names": names, "data ignore value": f"{NODATA:g}"}
        out.describe(IMAGE, "depths and centres (nm) of absorptions", "f4", len(names), fields)
        if continuum:
            fields = {
                "data ignore value": f"{NODATA:g}",
                "wavelength units": "Nanometers",
                "wavelength": [f"{wave:.8g}" for wave in waves],
            }
            out.describe(CONTINUUM, "spectra divided by their continuum", "f4", len(waves), fields)
    found = [
        {"name": one.name, "from": float(waves[one.bands[0]]), "to": float(waves[one.bands[-1]])} for one in chosen
    ]
    return {"files": out.files, "features": found}


def chosen_features(given: Sequence[str], waves: np.ndarray) -> list[Absorption]:
    """Return the features that are asked for, or all known ones whose shoulders lie within wavelengths (L,), nm."""
    order = np.argsort(waves, kind="stable")
    if not given:
        within = {name: np.sum((waves >= low) & (waves <= high)) for name, (low, high) in KNOWN.items()}
        given = [
            one
            for one, (low, high) in KNOWN.items()
            if waves.min() <= low < high <= waves.max() and within[one] >= FEWEST_BANDS
        ]
    found = []
    for text in [given] if isinstance(given, str) else given:
        name, has_range, window = text.partition("=")
        first, _, last = window.partition("-")
        try:
            low, high = (float(first), float(last)) if has_range else KNOWN[name.strip().lower()]
        except (ValueError, KeyError):
            raise MethodError(f"`feature` {text}: write NAME=A-B, in nm, or one of {', '.join(KNOWN)}") from None
        bands = order[(waves[order] >= low) & (waves[order] <= high)]
        if len(bands) < FEWEST_BANDS:
            raise MethodError(
                f"`feature` {text}: {len(bands)} bands in use between {low:g} and {high:g} nm; it needs {FEWEST_BANDS}"
            )
        cut = max(waves[bands[0]] - low, high - waves[bands[-1]])
        if cut > CUT * np.diff(waves[bands]).max():
            log.warning(
                f"{name.strip()}: its shoulders are {low:g} and {high:g} nm, and the bands in use begin at "
                f"{waves[bands[0]]:g} and end at {waves[bands[-1]]:g}: it is less deep so, and its centre shifted"
            )
        found.append(Absorption(name.strip(), bands))
    return found


def depth_and_centre(waves: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Return depth and centre (n, 2) of an absorption in spectra (n, k) at its ascending wavelengths (k,), nm."""
    share = (waves - waves[0]) / (waves[-1] - waves[0])
    line = Y[:, :1] + (Y[:, -1:] - Y[:, :1]) * share
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.where((line > 0).all(axis=1, keepdims=True), Y / line, np.nan)
    # Both are NaN where the continuum is not above 0, the centre also where there is no absorption.
    is_known = np.isfinite(quotient).all(axis=1)
    at = np.where(is_known, np.argmin(np.where(np.isfinite(quotient), quotient, np.inf), axis=1), 0)
    least = np.take_along_axis(quotient, at[:, None], axis=1)[:, 0]
    has = is_known & (at > 0) & (at < len(waves) - 1) & (least < 1)
    b, rows = np.clip(at, 1, len(waves) - 2), np.arange(len(Y))
    left, here, right = (waves[b + k] for k in (-1, 0, 1))
    a, m, c = (quotient[rows, b + k] for k in (-1, 0, 1))
    # The vertex of the parabola through three points; where these lie on a line, the band itself.
    up, down = (here - left) * (m - c), (here - right) * (m - a)
    with np.errstate(divide="ignore", invalid="ignore"):
        vertex = here - 0.5 * ((here - left) * up - (here - right) * down) / (up - down)
    centre = np.where(np.isfinite(vertex), np.clip(vertex, left, right), here)
    return np.column_stack([np.where(is_known, np.where(has, 1 - least, 0.0), np.nan), np.where(has, centre, np.nan)])
