"""`zonal`: a table of the maps of finished runs by polygon."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...certificate import CERTIFIED
from ...commands.regions import shapes_of
from ...errors import MethodError, OutputError
from ...io import Cube
from ...io.cube import by_pixel, cut, read_lines
from ...io.fields import NODATA
from ...io.remote import located
from ...io.text import csv_of
from ...outputs.atomic import write_whole
from ...outputs.names import inputs_of, inputs_of_run, refuse_inputs
from ...outputs.run_record import normalize_of
from ...runs.files.finished import FinishedRun
from .shares import Shares, areas_of_lines, shares_of

log = logging.getLogger("unmix")
COLUMNS = (
    "run", "time", "zone", "map", "band", "share_of", "mean", "deviation", "sigma", "pixels", "area_m2", "nodata", "outside",
    "unproved", "rmse",
)  # fmt: skip
# What a fraction is a share of, by `normalize`; without it abundances are what the method makes them.
SHARE_OF = {"none": "abundance", "sum": "area", "length": "length", "max": "maximum"}
# Maps that can be tabulated.
MAPS = ("abundance", "fraction", "mass")
SHAPES = ("Polygon", "MultiPolygon")


def zonal(
    runs: Sequence[str | os.PathLike[str]] | str | os.PathLike[str], polygons: str | os.PathLike[str], column: str, *,
    out: str | os.PathLike[str] | None = None, kind: str | None = None, overwrite: bool = False,
) -> list[dict[str, Any]]:  # fmt: skip
    """Tabulate the maps of finished runs by polygon.

    A pixel counts by the share of its area that a polygon covers. Polygons of one name are one zone.

    Parameters
    ----------
    runs : path-like, or a sequence of them
        Runs: the beginnings of their outputs' names, or one of these outputs each.
    polygons : path-like
        GeoJSON, or a file of GDAL (``FILE:LAYER``) with polygons; in any coordinate system that it names.
    column : str
        The property with the polygons' names.
    out : path-like, optional
        A CSV table to write.
    kind : {"abundance", "fraction", "mass"}, optional
        The map; default is sums by class where the run has them, else abundances.
    overwrite : bool
        Replace the table if it exists.

    Returns
    -------
    list of dict
        A row for each run, zone and band, with the table's columns: ``run``; ``time`` of acquisition, as the scene's header has it;
        ``zone``; ``map``; ``band``; ``share_of``, the meaning of a fraction; ``mean`` and ``deviation`` of the band over the zone;
        ``sigma``, the standard deviation of the mean by the noise of its pixels, taken to be independent; ``pixels`` with values,
        counted by their shares, and ``area_m2``, their area; ``nodata``, ``outside`` and ``unproved``: the shares of the zone
        without values, outside of the scene, and of its pixels those whose optimum is not proved; ``rmse``, the mean RMSE.
        What is not known is None.

    Raises
    ------
    OutputError
        Where there is no such run, it has no such map, or the table exists or cannot be written.
    LibraryError, CubeError
        Where the polygons cannot be read or placed, or none is in a scene.
    MethodError
        Where exactextract is not installed, or a map cannot be tabulated.
    """
    stems = [runs] if isinstance(runs, str | os.PathLike) else list(runs)
    if kind is not None and kind not in MAPS:
        raise MethodError(f"map {kind}: has to be {', '.join(MAPS)}")
    shapes, system = shapes_of(located(polygons), column, SHAPES)
    names = list(dict.fromkeys(name for _, name in shapes))
    numbered = [(shape, names.index(name)) for shape, name in shapes]
    rows, inputs = [], inputs_of(polygons=polygons)
    for stem in stems:
        run = FinishedRun.of(Path(stem))
        inputs += inputs_of_run(run.stem)
        with run.believing():
            rows += rows_of(run, kind, names, numbered, system)
    if out is not None:
        refuse_inputs([Path(out)], inputs)
        write_whole({Path(out): csv_of(COLUMNS, rows).encode()}, overwrite, "another name", Path.is_file)
    return rows


def rows_of(
    run: FinishedRun, kind: str | None, names: list[str], numbered: list[tuple[dict[str, Any], int]], system: str
) -> list[dict[str, Any]]:
    """Return the rows of one run."""
    name = kind or ("fraction" if run.has("fraction") else "abundance")
    if not run.has(name):
        raise OutputError(f"{run.stem}: the run wrote no {name}")
    if run.has("index"):
        raise MethodError(f"{run.stem}: has the largest abundances of each pixel only (`top`), which have no means")
    maps = {name: run.open(name)} | {other: run.open(other) for other in ("rmse", "certificate") if run.has(other)}
    if run.has("sigma") and name != "mass" and run.has("fraction") == (name == "fraction"):
        maps["sigma"] = run.open("sigma")
    cube = maps[name]
    shares = shares_of(numbered, len(names), system, cube)
    sums = summed(maps, name, shares, float(run.report.get("max_delta", 0.0)))
    pixels = run.report["pixels"]
    all_proved = pixels.get("certified") == pixels["solved"]
    bands, rows = run.band_names(name, cube.bands), []
    about = {
        "run": str(run.stem),
        "time": (run.report.get("acquisition") or {}).get("acquisition time"),
        "map": name,
        "share_of": "mass" if name == "mass" else SHARE_OF[normalize_of(run.report)],
    }
    for z, zone in enumerate(names):
        inside, whole = sums["inside"][z], shares.total[z]
        for b, band in enumerate(bands):
            w = sums["weight"][z, b]
            mean = float(sums["first"][z, b] / w) if w else None
            spread = None if mean is None else float(np.sqrt(max(0.0, sums["second"][z, b] / w - mean**2)))
            known = "sigma" in maps and b < maps["sigma"].bands and w > 0 and sums["without_sigma"][z, b] == 0
            rows.append(about | {
                "zone": zone, "band": band, "mean": mean, "deviation": spread,
                "sigma": float(np.sqrt(sums["noise"][z, b]) / w) if known else None,
                "pixels": float(w), "area_m2": None if sums["area"] is None else float(sums["area"][z, b]),
                "nodata": float(1 - w / inside) if inside else None,
                "outside": float(max(0.0, 1 - inside / whole)) if whole else None,
                "unproved": 0.0 if all_proved else float(sums["unproved"][z, b] / w) if "certificate" in maps and w else None,
                "rmse": float(sums["rmse"][z, b] / w) if "rmse" in maps and w else None,
            })  # fmt: skip
    return rows


def summed(maps: dict[str, Cube], name: str, shares: Shares, max_delta: float) -> dict[str, Any]:
    """Return sums over the zones (zones, bands): weights, values and their squares, noise, areas and so on; read block by block."""
    cube, zones = maps[name], len(shares.total)
    areas = areas_of_lines(cube)
    keys = "weight", "first", "second", "noise", "without_sigma", "area", "unproved", "rmse"
    sums: dict[str, Any] = {key: np.zeros((zones, cube.bands)) for key in keys}
    sums["inside"] = np.bincount(shares.zone, shares.share, zones)
    for lines in cut(cube):
        some = slice(*np.searchsorted(shares.pixel, (lines.start * cube.samples, lines.stop * cube.samples)))
        if some.start == some.stop:
            continue
        place, zone = shares.pixel[some] - lines.start * cube.samples, shares.zone[some]
        values = {key: by_pixel(read_lines(one, lines), one.interleave).reshape(-1, one.bands)[place].astype(float)
                  for key, one in maps.items()}  # fmt: skip

        def add(key: str, band: int, weights: np.ndarray, zone: np.ndarray = zone) -> None:
            sums[key][:, band] += np.bincount(zone, weights, zones)

        for b, value in enumerate(values[name].T):
            w = np.where(np.isfinite(value) & (value != NODATA), shares.share[some], 0.0)
            value = np.where(w > 0, value, 0.0)
            for key, weights in (("weight", w), ("first", w * value), ("second", w * value**2)):
                add(key, b, weights)
            if areas is not None:
                add("area", b, w * areas[lines.start + place // cube.samples])
            if "rmse" in maps:
                add("rmse", b, w * np.where(w > 0, values["rmse"][:, 0], 0.0))
            if "sigma" in maps and b < maps["sigma"].bands:
                sigma = values["sigma"][:, b]
                lacks = ~np.isfinite(sigma) | (sigma == NODATA)
                add("noise", b, np.where(lacks, 0.0, w * sigma) ** 2)
                add("without_sigma", b, w * lacks)
            if "certificate" in maps:
                kappa, delta = values["certificate"].T[:2]
                add("unproved", b, w * ~((kappa <= CERTIFIED) & (delta <= max_delta)))
    sums["area"] = None if areas is None else sums["area"]
    return sums
