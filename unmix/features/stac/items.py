"""`stac`: describe a finished run as a STAC item, so that catalogues of imagery find its maps."""

import contextlib
import datetime
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from ...commands.verify.outputs import check_digests
from ...commands.verify.verdict import Verdict
from ...errors import MethodError, OutputError, brief
from ...io import document_of, is_folder, is_remote, status_of
from ...io.formats.header import geotransform, words
from ...io.ground import system_of
from ...outputs import ITEM, RECORD, file_digest, write_whole
from ...runs.files.finished import FinishedRun
from ...settings.maps import ORTHO

# Points of each side of a map whose longitudes and latitudes make its outline: a straight line on a map is none on the
# globe.
SIDE = 8
# Media types by the ends of names, and what the files are for.
KINDS = {
    ".tif": ("image/tiff; application=geotiff", "data"),
    ".h5": ("application/x-hdf5", "data"),
    ".nc": ("application/netcdf", "data"),
    ".img": ("application/octet-stream", "data"),
    ".hdr": ("text/plain", "metadata"),
    ".csv": ("text/csv", "metadata"),
    ".sli": ("application/octet-stream", "metadata"),
    ".png": ("image/png", "thumbnail"),
    ".json": ("application/json", "metadata"),
    ".zip": ("application/zip", "data"),
    ".zarr": ("application/vnd.zarr; version=3", "data"),
}
# The maps that place an item, the first of them that a run has; those on the map first.
MAIN = ("abundance", "fraction", "rmse")
PROJECTION = "https://stac-extensions.github.io/projection/v2.0.0/schema.json"
FILE = "https://stac-extensions.github.io/file/v2.1.0/schema.json"
RASTER = "https://stac-extensions.github.io/raster/v2.0.0/schema.json"
EO = "https://stac-extensions.github.io/eo/v2.0.0/schema.json"
PROCESSING = "https://stac-extensions.github.io/processing/v1.2.0/schema.json"


def stac(path: str | os.PathLike[str], *, time: str | None = None, overwrite: bool = False) -> Path:
    """Write ``STEM_stac.json``, a STAC item about a finished run: its place, its time, and its files with digests.

    Parameters
    ----------
    path : path-like
        The beginning of its outputs' names, one of them, or its cube.
    time : str, optional
        When the scene was acquired, in ISO 8601; UTC unless it says otherwise. Default is what the header of the scene
        says.
    overwrite : bool
        Replace a file of that name.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    MethodError
        Where pystac or rasterio is not installed, or no time is known.
    OutputError
        Where there is no finished run, it has no place on a map, or the file cannot be written.
    """
    try:
        import pystac
        from rasterio.crs import CRS
    except ImportError:
        raise MethodError("STAC items need pystac and rasterio: pip install 'unmix[stac]'") from None
    run = FinishedRun.of(Path(path))
    with run.believing():
        verdict = Verdict()
        check_digests(run.stem, run.report, verdict)
        if verdict.faults:
            raise OutputError(verdict.faults[0])
        main = next((name + kind for kind in (ORTHO, "") for name in MAIN if run.has(name + kind)), None)
        if main is None:
            raise OutputError(f"{run.stem}: the run's record lists no maps")
        cube = run.open(main)
        when = time_of(time or run.report.get("acquisition", {}).get("acquisition time"), run)
        transform, wkt = place_of(run, cube.fields)
        geometry, bbox = footprint(outline_of(run, transform, wkt, cube.lines, cube.samples))
        source = run.report["input"]["path"]
        is_item = document_of(source) is not None  # whose outputs have its name
        item = pystac.Item(
            f"{run.stem.name}_{main}" if is_item else run.stem.name,
            geometry,
            bbox,
            when,
            properties_of(run),
            stac_extensions=[PROJECTION, FILE, PROCESSING],
        )
        item.properties |= {
            "proj:code": code_of_system(wkt),
            "proj:wkt2": CRS.from_wkt(wkt).to_wkt(version="WKT2_2019"),
            "proj:shape": [cube.lines, cube.samples],
            "proj:transform": [transform[i] for i in (1, 2, 0, 4, 5, 3)],
        }
        if is_item:
            item.add_link(pystac.Link("derived_from", place_from(run.stem.parent, source), "application/geo+json"))
        with contextlib.suppress(KeyError, ValueError):
            item.properties["eo:cloud_cover"] = float(run.report["acquisition"]["cloud cover"])
            item.stac_extensions.append(EO)
        for name in [*run.report["digests"], run.stem.name + RECORD]:
            item.add_asset(name.removeprefix(f"{run.stem.name}_"), asset_of(run, name))
        if any("raster:scale" in asset.extra_fields for asset in item.assets.values()):
            item.stac_extensions.append(RASTER)
    target = run.stem.with_name(run.stem.name + ITEM)
    text = json.dumps(item.to_dict(include_self_link=False), indent=1, ensure_ascii=False)
    try:
        return write_whole({target: text.encode()}, overwrite, "a copy of the maps in another folder")[0]
    except UnicodeEncodeError:
        raise OutputError(f"{run.stem}: its name is not UTF-8, as those in a STAC item must be; rename it") from None


def place_from(folder: Path, source: str) -> str:
    """Return the address of the item that a run was of: as on a server, else relative to the new item's folder."""
    document = source.partition("#")[0]
    return document if is_remote(document) else quote(os.path.relpath(document, folder))


def time_of(text: str | None, run: FinishedRun) -> datetime.datetime:
    """Return a time in UTC; `MethodError` where there is none, or it is not ISO 8601."""
    if not text:
        raise MethodError(f"{run.stem}: its header has no acquisition time; give one with `time`")
    try:
        found = datetime.datetime.fromisoformat(text.strip())
        return found.astimezone(datetime.UTC) if found.tzinfo else found.replace(tzinfo=datetime.UTC)
    except (ValueError, OverflowError):
        raise MethodError(
            f"{run.stem}: acquisition time '{text.strip()[:40]}' is not ISO 8601; give one with `time`"
        ) from None


def place_of(run: FinishedRun, fields: dict[str, str]) -> tuple[tuple[float, ...], str]:
    """Return geotransform and coordinate system of a map; `OutputError` where it has none."""
    transform = geotransform(fields.get("map info", ""))
    wkt = system_of(fields)
    if transform is None or not wkt:
        raise OutputError(f"{run.stem}: has no place on a map, as STAC items must; a swath has one with `ortho`")
    return transform, wkt


def outline_of(
    run: FinishedRun, transform: tuple[float, ...], wkt: str, lines: int, samples: int
) -> list[tuple[float, float]]:
    """Return longitudes and latitudes around a map, counterclockwise, with `SIDE` points a side."""
    from rasterio.crs import CRS
    from rasterio.errors import RasterioError
    from rasterio.warp import transform as warp

    corners = [(0, 0), (lines, 0), (lines, samples), (0, samples)]
    places = [
        (a[0] + (b[0] - a[0]) * k / SIDE, a[1] + (b[1] - a[1]) * k / SIDE)
        for a, b in zip(corners, [*corners[1:], corners[0]])
        for k in range(SIDE)
    ]
    x0, x_column, x_row, y0, y_column, y_row = transform
    x = [x0 + x_column * column + x_row * row for row, column in places]
    y = [y0 + y_column * column + y_row * row for row, column in places]
    try:
        longitudes, latitudes = warp(CRS.from_wkt(wkt), CRS.from_epsg(4326), x, y)
    except (RasterioError, ValueError):
        raise OutputError(f"{run.stem}: its coordinate system has no place on Earth, as STAC items must") from None
    except Exception as error:  # GDAL's own errors are of no common class
        raise OutputError(f"{run.stem}: its place on Earth is not known: {brief(error)}") from None
    turned = np.unwrap(np.array([*longitudes, longitudes[0]]), period=360.0)
    if abs(turned[-1] - turned[0]) > 1.0:
        raise OutputError(f"{run.stem}: holds a pole, around which STAC items are not offered")
    # Longitudes go on beyond 180 degrees where the map does.
    east = turned[:-1] - 360.0 * np.floor((turned[:-1].min() + 180.0) / 360.0)
    outline = [(round(float(a), 9), round(float(b), 9)) for a, b in zip(east, latitudes)]
    area = sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(outline, [*outline[1:], outline[0]]))
    return outline if area > 0 else outline[::-1]


def footprint(outline: list[tuple[float, float]]) -> tuple[dict[str, Any], list[float]]:
    """Return an outline's geometry and bounding box, cut at 180 degrees (RFC 7946, 3.1.9 and 5.2)."""
    longitudes, latitudes = zip(*outline)
    south, north = min(latitudes), max(latitudes)
    if max(longitudes) <= 180.0:
        return {"type": "Polygon", "coordinates": [closed(outline)]}, [min(longitudes), south, max(longitudes), north]
    western, eastern = (clipped(outline, side) for side in (1, -1))
    parts = [closed(western), closed([(east - 360.0, north) for east, north in eastern])]
    box = [min(longitudes), south, max(longitudes) - 360.0, north]
    return {"type": "MultiPolygon", "coordinates": [[part] for part in parts]}, box


def clipped(outline: list[tuple[float, float]], side: int) -> list[tuple[float, float]]:
    """Return the part of an outline that lies west (1) or east (-1) of 180 degrees (Sutherland and Hodgman 1974)."""
    part: list[tuple[float, float]] = []
    for a, b in zip(outline, [*outline[1:], outline[0]]):
        if side * (180.0 - a[0]) >= 0:
            part.append(a)
        if (180.0 - a[0]) * (180.0 - b[0]) < 0:
            share = (180.0 - a[0]) / (b[0] - a[0])
            part.append((180.0, round(a[1] + share * (b[1] - a[1]), 9)))
    return part


def closed(outline: list[tuple[float, float]]) -> list[list[float]]:
    """Return an outline as GeoJSON has it, with the first point again at the end."""
    return [list(point) for point in [*outline, outline[0]]]


def code_of_system(wkt: str) -> str | None:
    """Return the code of a coordinate system, such as EPSG:32611; None where it has none."""
    from rasterio.crs import CRS

    authority = CRS.from_wkt(wkt).to_authority()
    return None if authority is None else ":".join(authority)


def properties_of(run: FinishedRun) -> dict[str, Any]:
    """Return the properties of the item: facts of the run."""
    report = run.report
    return {
        "processing:software": {"unmix": str(report["unmix"]).split("+")[0]},
        "processing:lineage": f"{report['method']} of {report['input']['name']}",
        "unmix:method": report["method"],
        "unmix:endmembers": report["endmembers"]["names"],
        "unmix:pixels": report.get("pixels", {}),
    }


def asset_of(run: FinishedRun, name: str) -> Any:
    """Return one file of a run: its kind, its bands if it holds a map, its size and its SHA-256."""
    import pystac

    path = run.stem.with_name(name)
    kind, role = KINDS.get(path.suffix, ("application/octet-stream", "data"))
    kind += "; profile=cloud-optimized" * (run.report.get("format") == "cog" and path.suffix == ".tif")
    # A multihash: 0x12 is SHA-256, 0x20 its length in bytes.
    about: dict[str, Any] = {"file:size": status_of(path).size}
    if not is_folder(path):
        about["file:checksum"] = f"1220{file_digest(path)}"
    of_map = name.removeprefix(f"{run.stem.name}_").partition(".")[0]
    title = of_map.replace("_", " ")
    if role == "data":
        cube = run.open_stored(of_map)
        names = words(cube.fields, "band names") or []
        if of_map in ("abundance", "fraction") and not names:  # NetCDF and HDF5 have them elsewhere
            names = run.band_names(title, cube.bands)
        about |= {"data_type": cube.dtype.name, "nodata": cube.nodata}
        if cube.gain is not None:
            lowest = 0.0 if cube.offset is None else float(cube.offset[0])
            about |= {"raster:scale": float(cube.gain[0]), "raster:offset": lowest}
        about |= {"bands": [{"name": one} for one in names]} if len(names) == cube.bands else {}
    return pystac.Asset(f"./{quote(name)}", title, None, kind, [role], about)
