"""`zonal`: a table of the maps of finished runs, by polygon or of whole scenes."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...certificate import CERTIFIED
from ...commands.regions import shapes_of
from ...errors import MethodError, OutputError, say_once
from ...io import MAP_FIELDS, NODATA, Cube, by_pixel, csv_of, cut, located, read_lines
from ...io.export.areas import areas_of_pixels
from ...library import OF_LIGHT, SHADE
from ...methods import METHODS
from ...outputs import inputs_of, inputs_of_run, normalize_of, refuse_inputs, titled, write_whole
from ...problem import some_of
from ...runs.files.finished import FinishedRun, finished_runs, repeat_warnings
from .failed import rows_of_failed
from .shares import DIGITS_OF_SUM, WholeScene, ZoneShares, shares_of

log = logging.getLogger("unmix")
COLUMNS = (
    "run",
    "time",
    "cloud_cover",
    "zone",
    "map",
    "band",
    "share_of",
    "mean",
    "deviation",
    "sigma",
    "pixel_sigma",
    "pixels",
    "area_m2",
    "hectares",
    "nodata",
    "outside",
    "unproved",
    "rmse",
)
# Columns of a wide table before those of the bands, and for each band, after its mean, where any row has a value.
WIDE, OF_EACH = (
    ("run", "time", "cloud_cover", "zone", "map", "share_of", "pixels", "area_m2", "nodata", "outside", "rmse"),
    ("hectares", "sigma", "pixel_sigma"),
)
# The zone of a table without polygons.
WHOLE = "all"
# What a fraction is a share of, by `normalize`; without it abundances are what the method makes them.
SHARE_OF = {"none": "abundance", "sum": "area", "length": "length", "max": "maximum"}
# Maps that can be tabulated.
MAPS = ("abundance", "fraction", "mass")
SHAPES = ("Polygon", "MultiPolygon")
# The least area of a zone, in pixels, and the most zones that a warning names.
LEAST_AREA, MOST_SAID = 1e-9, 5
# A sum of means above which, or below one by which, hectares are no shares of the ground.
MOST_OF_GROUND = 1.1
# A mean below which noise may have made it.
SMALL = 0.05
# In place of a weight of 0, by which nothing is divided.
LEAST_WEIGHT = 1e-300
# The least share of the pixels of a zone with a standard deviation, with which that of the mean is told.
LEAST_WITH_SIGMA = 0.9
# Deviations up to which a fraction may be noise of 0.
UNSURE = 2.0
# The share of a zone that a run may lack more than another before that is said.
FEWER = 0.01
# The part of a zone without values from which on it is named.
MANY_WITHOUT = 0.1
# Bytes of a map that are read at a time.
BLOCK_BYTES = 16 * 2**20


def zonal(
    runs: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    polygons: str | os.PathLike[str] | None = None,
    column: str | Sequence[str] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    kind: str | None = None,
    wide: bool = False,
    centres: bool = False,
    failed: Sequence[str] | Mapping[str, str | None] = (),
    since: float = 0.0,
    overwrite: bool = False,
) -> list[dict[str, Any]]:
    """Tabulate the maps of finished runs, of whole scenes or by polygon.

    A pixel counts by the share of its area that a zone covers: the union of polygons of one name, each by even and odd.
    Areas are those on the ellipsoid (needs pyproj).

    Parameters
    ----------
    runs : path-like, or a sequence of them
        Runs: the beginnings of their outputs' names, or one of these outputs each; or folders; all their finished
        runs are taken.
    polygons : path-like, optional
        GeoJSON, GeoPackage, shapefile or FlatGeobuf (``FILE:LAYER``) with polygons; in any coordinate system
        that it names. Without it the one zone of a scene is all of it, and its name ``all``.
    column : str or sequence of str, optional
        The property with the polygons' names; further ones are columns, ``zone NAME`` each. Without it their only
        property, their only text, the only text that differs from one to the other, or numbers from 1.
    out : path-like, optional
        A CSV table to write.
    kind : {"abundance", "fraction", "mass"}, optional
        The map; default is the one whose file is named, else sums by class where the run has them, else abundances.
    wide : bool
        One row for each run and zone: the mean of each band has the band's name, and its hectares and sigma that with
        ``hectares`` or ``sigma`` after it.
    centres : bool
        Take the pixels whose centres are in a polygon, whole, instead of shares by area.
    failed : sequence of str, or mapping of str to str
        Scenes that failed, or why each did, which is a column ``reason``: each that no run is of has a row without values,
        at the end.
    since : float
        When they failed, s since 1970: runs of them that ended before have the reason, too.
    overwrite : bool
        Replace the table if it exists.

    Returns
    -------
    list of dict
        A row for each run, zone and band, with the table's columns: ``run``; ``time`` of acquisition, as the scene's
        header has it, else the date in its name; ``cloud_cover`` in per cent, as its catalogue has it; ``zone``;
        ``map``; ``band``; ``share_of``, what a fraction is a share of; ``mean`` and ``deviation`` of the band over the
        zone; ``sigma``, the standard deviation of the mean by the noise of its pixels, taken to be independent, and by
        a ≥ 0, which adds up to 0.4 of a pixel's deviation where a fraction is near 0, and does not average out;
        ``pixel_sigma``, the mean of the pixels' standard deviations; ``pixels`` with values, counted by their shares,
        and ``area_m2``, their area; ``hectares``, that times the mean; ``outside``, the share of the zone outside of the
        scene; ``nodata`` and ``unproved``, the shares of its pixels in the scene without values and without a proof;
        ``rmse``, the mean RMSE. What is not known is None.

    Raises
    ------
    OutputError
        Where there is no such run, it has no such map, or the table exists or cannot be written.
    LibraryError, CubeError
        Where the polygons cannot be read or placed, or none is in a scene.
    MethodError
        Where exactextract is not installed, a column is given without polygons, or a map cannot be tabulated.
    """
    given = [runs] if isinstance(runs, str | os.PathLike) else list(runs)
    columns: list[str | None] = [column] if column is None or isinstance(column, str) else list(column) or [None]
    if polygons is None and columns != [None]:
        raise MethodError("`column` is the property with the names of `polygons`; give these, too")
    if kind is not None and kind not in MAPS:
        raise MethodError(f"map {kind}: has to be {', '.join(MAPS)}")
    zones = None
    if polygons is not None:
        shapes, system = shapes_of(located(polygons), columns, SHAPES)
        numbers = dict[tuple[str, ...], int]()
        numbered = [(shape, numbers.setdefault(name, len(numbers))) for shape, name in shapes]
        zones = Zones(list(numbers), [f"zone {column}" for column in columns[1:]], numbered, system, {})
    rows, done, inputs = list[dict[str, Any]](), list[FinishedRun](), inputs_of(polygons=polygons)
    for stem in (one for path in map(Path, given) for one in finished_runs(path)):
        run = FinishedRun.of(Path(stem))
        inputs += inputs_of_run(run.stem)
        with run.believing():
            rows += rows_of(run, kind, zones, centres)
        done.append(run)
    repeat_warnings(run.report for run in done)
    say_of_other_pixels(rows)
    others = [] if zones is None else zones.others
    titles, rows = widened(rows, others) if wide else ([*COLUMNS, *others], rows)
    lacking = rows_of_failed(titles, failed if isinstance(failed, Mapping) else dict.fromkeys(failed), done, since)
    reasons = {row["run"]: row["reason"] for row in lacking}
    lacking = [row for row in lacking if row["run"] not in {one["run"] for one in rows}]
    if any(reasons.values()):
        titles, rows = [*titles, "reason"], [row | {"reason": reasons.get(row["run"])} for row in rows]
    rows += [row if "reason" in titles else {name: row[name] for name in titles} for row in lacking]
    if out is not None:
        refuse_inputs([Path(out)], inputs)
        write_whole({Path(out): csv_of(titles, rows).encode()}, overwrite, "another name", titled(COLUMNS, WIDE))
    return rows


class Zones(NamedTuple):
    """Zones: names with further properties, the properties' titles, polygons with zone numbers, and their system.

    ``known`` are their shares of the grids of runs so far.
    """

    names: list[tuple[str, ...]]
    others: list[str]
    shapes: list[tuple[Any, int]]
    system: str
    known: dict[tuple[Any, ...], ZoneShares]

    def shares(self, cube: Cube, centres: bool) -> ZoneShares:
        """Return their shares of a scene's pixels, see `shares_of`, found once for all that lie as it does."""
        grid = (cube.lines, cube.samples, *(cube.fields.get(key) for key in MAP_FIELDS))
        if grid not in self.known:
            self.known[grid] = shares_of(self, cube, centres)
        return self.known[grid]


def widened(rows: list[dict[str, Any]], others: list[str]) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the columns and rows of a table with one row for each run and zone, from one with a row for each band."""
    bands = list(dict.fromkeys(row["band"] for row in rows))
    used = [key for key in OF_EACH if any(row[key] is not None for row in rows)]
    alone = [*WIDE, *others]
    columns = [*alone, *bands, *(f"{band} {key}" for key in used for band in bands)]
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("run", "zone", *others))
        one = found.setdefault(key, dict.fromkeys(columns) | {key: row[key] for key in alone})
        one[row["band"]] = row["mean"]
        one |= {f"{row['band']} {key}": row[key] for key in used}
    return columns, list(found.values())


def rows_of(run: FinishedRun, kind: str | None, zones: Zones | None, centres: bool) -> list[dict[str, Any]]:
    """Return the rows of one run, of its whole scene where there are no zones."""
    name = run.asked(kind, MAPS) or ("fraction" if run.has("fraction") else "abundance")
    if not run.has(name):
        raise OutputError(f"{run.stem}: the run wrote no {name}")
    if run.has("index"):
        raise MethodError(f"{run.stem}: has the largest abundances of each pixel only (`top`), which have no means")
    maps = {name: run.open(name)} | {other: run.open(other) for other in ("rmse", "certificate") if run.has(other)}
    if run.has("sigma") and name != "mass" and run.has("fraction") == (name == "fraction"):
        maps["sigma"] = run.open("sigma")
    cube = maps[name]
    names, others = ([(WHOLE,)], list[str]()) if zones is None else (zones.names, zones.others)
    shares = WholeScene(cube) if zones is None else zones.shares(cube, centres)
    say_what_is_outside(run, [name for name, *_ in names], shares)
    method = run.report["method"]
    constraint = METHODS[method].constraint if method in METHODS else None
    has_bounds = constraint is None or constraint.has_bounds
    is_one = constraint is not None and constraint.sum_to_one and not constraint.has_shade
    share_of = "area" if is_one else SHARE_OF[normalize_of(run.report)]
    sums = summed(maps, name, shares, float(run.report.get("max_delta", 0.0)), has_bounds)
    pixels = run.report["pixels"]
    all_proved = pixels.get("certified") == pixels["solved"]
    bands, rows = run.band_names(name, cube.bands), []
    about: dict[str, Any] = {
        "run": str(run.stem),
        "time": run.time,
        "cloud_cover": (run.report.get("acquisition") or {}).get("cloud cover"),
        "map": name,
        "share_of": "mass" if name == "mass" else share_of,
    }
    for z, (zone, *further) in enumerate(names):
        inside, whole = sums["inside"][z], shares.total[z]
        for b, band in enumerate(bands):
            w, has_area = sums["weight"][z, b], sums["area"] is not None and band not in OF_LIGHT
            mean = float(sums["first"][z, b] / w) if w else None
            spread = None if mean is None else float(np.sqrt(sums["squares"][z, b] / w))
            has = w - sums["without_sigma"][z, b] if "sigma" in maps and b < maps["sigma"].bands else 0.0
            known = w > 0 and has >= LEAST_WITH_SIGMA * w
            noise = np.sqrt(sums["noise"][z, b] * w / max(has, LEAST_WEIGHT)), sums["added"][z, b]
            rows.append(
                about
                | dict(zip(others, further))
                | {
                    "zone": zone,
                    "band": band,
                    "mean": mean,
                    "deviation": spread,
                    "sigma": float(np.hypot(*noise) / w) if known else None,
                    "pixels": round(float(w), DIGITS_OF_SUM) or float(w),
                    "area_m2": None if sums["area"] is None else float(sums["area"][z, b]),
                    "pixel_sigma": float(sums["sigma"][z, b] / has) if known else None,
                    "hectares": float(sums["held"][z, b]) / 1e4 if has_area and mean is not None else None,
                    "nodata": float(1 - w / inside) if inside else None,
                    "outside": float(max(0.0, 1 - inside / whole)) * bool(shares.is_cut[z]) if whole else None,
                    "unproved": 0.0
                    if all_proved
                    else float(sums["unproved"][z, b] / w)
                    if "certificate" in maps and w
                    else None,
                    "rmse": float(sums["rmse"][z, b] / w) if "rmse" in maps and w else None,
                }
            )
    partly = dict.fromkeys(row["zone"] for row in rows if (row["nodata"] or 0.0) > MANY_WITHOUT)
    if partly and zones is not None:
        log.warning(
            f"{run.stem.name}: hectares and means are of the pixels with values: zones that lack them in over a tenth: "
            f"{some_of([*partly], MOST_SAID)}"
        )
    totals: dict[str, float] = {}
    known = [row for row in rows if row["hectares"] is not None and share_of == SHARE_OF["none"]]
    of_ground = [row for row in known if row["band"] != SHADE]
    for row in of_ground:
        totals[row["zone"]] = totals.get(row["zone"], 0.0) + row["mean"]
    whole = max(totals.values(), default=0.0)
    if whole > MOST_OF_GROUND:
        say_once(
            f"abundances sum to {whole:.2g}, and hectares to more than the ground: `normalize` sum of a run makes shares"
        )
    if totals and len(of_ground) < len(known) and min(totals.values()) < 1 / MOST_OF_GROUND:
        say_once(
            f"abundances beside shade sum to {min(totals.values()):.2g}, and hectares to less than the ground: "
            "`shade_normalize` of a run makes shares"
        )
    where = "{band}" if zones is None else "{band} in {zone}"
    small = max(SMALL, ((run.report.get("fit") or {}).get("relative_rmse") or {}).get("median") or 0.0)
    if has_bounds and "sigma" not in maps and any(0 < row["mean"] < small for row in rows if row["mean"] is not None):
        say_once(
            f"means below {small:.0%} may be too large, since noise only adds where a >= 0: `uncertainty` tells by how much"
        )
    traces = dict.fromkeys(where.format(**row) for row in rows if row["sigma"] and row["mean"] < UNSURE * row["sigma"])
    if traces and has_bounds:
        other = "scls" if constraint is not None and constraint.sum_to_one else "ucls"
        say_once(
            f"means of {some_of([*traces], MOST_SAID)} may be noise alone, which only adds where a >= 0"
            f"{', and is taken from the others' if is_one else ''}: `method` {other} has no such bias",
            logging.WARNING,
        )
    return rows


def say_of_other_pixels(rows: Sequence[dict[str, Any]]) -> None:
    """Warn where runs have values in fewer pixels of a zone than other runs, so that means are of other places."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows:
        lacks = row["nodata"]
        if lacks is not None and lacks < 1:
            size = round(row["pixels"] / (1 - lacks))
            found.setdefault((row["zone"], size), {}).setdefault(Path(row["run"]).name, lacks)
    each = ((min(one.values()), one) for one in found.values())
    fewer = dict.fromkeys(run for least, one in each for run, lacks in one.items() if lacks > least + FEWER)
    if fewer:
        log.warning(
            f"means are of fewer pixels than those of other runs, so of other places: {some_of(list(fewer), MOST_SAID)}"
        )


def say_what_is_outside(run: FinishedRun, names: Sequence[str], shares: ZoneShares | WholeScene) -> None:
    """Warn of zones that lie outside of a scene, in part or wholly, or in which no pixel counts."""
    share = shares.inside / np.maximum(shares.total, LEAST_AREA)
    for said, which in (
        ("have no pixel in the scene", (share <= 0) & ~shares.is_near),
        ("hold no pixel's centre", (share <= 0) & shares.is_near),
        ("lie beyond it in part", (share > 0) & shares.is_cut),
    ):
        some = [name for name, is_so in zip(names, which) if is_so]
        if some:
            more = f" and {len(some) - MOST_SAID} more" if len(some) > MOST_SAID else ""
            log.warning(f"{run.stem.name}: zones that {said}: {', '.join(some[:MOST_SAID])}{more}")


def add_moments(
    weight: np.ndarray, first: np.ndarray, squares: np.ndarray, zone: np.ndarray, w: np.ndarray, value: np.ndarray
) -> None:
    """Add weighted values (k,) to zones' sums (zones,): of weights, values, and squares about the zone's mean."""
    # Parts are put together by the distance of their means (Chan et al. 1983): the square of a large mean would swamp
    # the rest.
    own, total = (np.bincount(zone, each, len(weight)) for each in (w, w * value))
    mean = total / np.maximum(own, LEAST_WEIGHT)
    apart = mean - first / np.maximum(weight, LEAST_WEIGHT)
    squares += np.bincount(zone, w * np.square(value - mean[zone]), len(weight))
    squares += np.square(apart) * weight * own / np.maximum(weight + own, LEAST_WEIGHT)
    first += total
    weight += own


def added_by_bounds(A: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Return by how much a ≥ 0 may bias abundances (N, bands) with deviations ``sigma``, in size, (N, bands)."""
    # The mean of the positive part of noise, of fractions near 0; the rest have less by what these have more.
    each = np.where(sigma != NODATA, sigma / np.sqrt(2 * np.pi), 0.0)
    return np.asarray(np.minimum(each, np.where(UNSURE * sigma > A, each, 0.0).sum(axis=1, keepdims=True)))


def summed(
    maps: dict[str, Cube], name: str, shares: ZoneShares | WholeScene, max_delta: float, has_bounds: bool
) -> dict[str, Any]:
    """Return zones' sums (zones, bands), read by block: weights, values, squares about the mean, noise, areas."""
    cube, zones = maps[name], len(shares.total)
    areas = areas_of_pixels(cube)
    keys = "weight", "first", "squares", "noise", "sigma", "added", "without_sigma", "area", "held", "unproved", "rmse"
    sums: dict[str, Any] = {key: np.zeros((zones, cube.bands)) for key in keys}
    sums["inside"] = shares.inside
    for lines in cut(cube, BLOCK_BYTES):
        place, zone, share = shares.within(lines, cube.samples)
        if not len(place):
            continue
        ground = None if areas is None else areas(lines).ravel()[place]
        values = {
            key: by_pixel(read_lines(one, lines), one.interleave).reshape(-1, one.bands)[place].astype(float)
            for key, one in maps.items()
        }

        def add(key: str, band: int, weights: np.ndarray, zone: np.ndarray = zone) -> None:
            sums[key][:, band] += np.bincount(zone, weights, zones)

        if "sigma" in maps:
            count = min(cube.bands, maps["sigma"].bands)
            added = has_bounds * added_by_bounds(values[name][:, :count], values["sigma"][:, :count])
        for b, value in enumerate(values[name].T):
            w = np.where(np.isfinite(value) & (value != NODATA), share, 0.0)
            value = np.where(w > 0, value, 0.0)
            add_moments(sums["weight"][:, b], sums["first"][:, b], sums["squares"][:, b], zone, w, value)
            if ground is not None:
                each = w * ground
                add("area", b, each)
                add("held", b, each * value)
            if "rmse" in maps:
                add("rmse", b, w * np.where(w > 0, values["rmse"][:, 0], 0.0))
            if "sigma" in maps and b < maps["sigma"].bands:
                sigma = values["sigma"][:, b]
                lacks = ~np.isfinite(sigma) | (sigma == NODATA)
                sigma = np.where(lacks, 0.0, w * sigma)
                add("noise", b, sigma**2)
                add("sigma", b, sigma)
                add("added", b, np.where(lacks, 0.0, w * added[:, b]))
                add("without_sigma", b, w * lacks)
            if "certificate" in maps:
                kappa, delta = values["certificate"].T[:2]
                add("unproved", b, w * ~((kappa <= CERTIFIED) & (delta <= max_delta)))
    sums["area"] = None if areas is None else sums["area"]
    return sums
