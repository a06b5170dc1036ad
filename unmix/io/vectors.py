"""Read polygons and points by GDAL from a checked copy, in which nothing leads to other files or servers."""

import contextlib
import io
import logging
import os
import re
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import CubeError, brief
from .formats.geotiff import OFFLINE
from .formats.header import read_small
from .remote import files_named
from .systems import self_contained

log = logging.getLogger("unmix")
# Of each kind of file, by its first bytes: the ending of its copy, the drivers that may read that, and endings of files
# beside it.
KINDS = {
    b"\x00\x00\x27\x0a": (".shp", ("ESRI Shapefile",), (".dbf", ".shx", ".prj", ".cpg")),
    b"SQLite format 3\x00": (".gpkg", ("GPKG",), (".gpkg-wal",)),
    b"fgb\x03": (".fgb", ("FlatGeobuf",), ()),
}
# By this GDAL takes any file, whatever its first bytes, for a description of another source.
VRT = b"<OGRVRTDataSource"
ZIP = b"PK\x03\x04"
# Endings of files of a ZIP that are read, and the bytes of all of them.
PACKED = (".shp", ".dbf", ".shx", ".prj", ".cpg", ".gpkg", ".fgb")
LARGEST_UNPACKED = 512 * 2**20
# How statements of SQLite begin that make tables, and R-tree indexes of them.
PLAIN = re.compile(r"CREATE\s+(TABLE\b|VIRTUAL\s+TABLE\s+(\"[^\"]*\"|\w+)\s+USING\s+rtree(_i32)?\s*\()", re.IGNORECASE)
# How `table_xinfo` of SQLite marks columns that are computed as they are read.
GENERATED = (2, 3)


def start_of(raw: bytes) -> bytes | None:
    """Return the first bytes, in `KINDS` or `ZIP`, that identify a file; None for GeoJSON and unknown files."""
    return next((first for first in (ZIP, *KINDS) if raw.startswith(first)), None)


def features_by_gdal(path: Path, raw: bytes, layer: str, longest: int) -> tuple[list[tuple[Any, dict[str, Any]]], str]:
    """Return (geometry, properties) of each feature of a layer, and the coordinate system of the file."""
    try:
        import pyogrio
        import shapely
        from pyogrio import raw as ogr
    except ImportError as error:
        raise CubeError(
            f"{path}: needs {error.name}, pip install 'unmix[geo]', or conversion: ogr2ogr -f GeoJSON polygons.geojson "
            f"{path}"
        ) from None
    kept = {name: pyogrio.get_gdal_config_option(name) for name in OFFLINE}
    with tempfile.TemporaryDirectory(prefix="unmix-") as folder, warnings_in_log(path):
        try:
            pyogrio.set_gdal_config_options(OFFLINE)
            layers = dict(layers_of(path, Path(folder), packed(path, raw, longest)))
            if not layers:
                raise CubeError(f"{path}: has no features of a shapefile, a GeoPackage or FlatGeobuf")
            if layer not in layers and (layer or len(layers) > 1):
                fault = f"has no layer '{layer}'" if layer else f"has {len(layers)} layers"
                raise CubeError(f"{path}: {fault}; name one as {path}:LAYER: {', '.join([*layers][:12])}")
            name = layer or next(iter(layers))
            about, _, shapes, values = ogr.read(layers[name], layer=name, force_2d=True, datetime_as_string=True)
            system = self_contained(str(about["crs"]))
            if not system:
                raise CubeError(
                    f"{path}: does not say its coordinate system (a shapefile's is in a .prj file beside it)"
                )
            rows = zip(*(column.tolist() for column in values)) if len(values) else ((),) * len(shapes)
            own = [{key: cell for key, cell in zip(about["fields"], row) if cell == cell} for row in rows]
            return list(zip(shapely.from_wkb(shapes, on_invalid="fix"), own)), system
        except CubeError:
            raise
        except Exception as error:  # whatever GDAL, GEOS and pyogrio raise for damaged files
            said = str(error).replace(folder, os.path.dirname(path) or ".")  # GDAL had a copy
            raise CubeError(f"{path}: cannot be read: {brief(said)}") from None
        finally:
            pyogrio.set_gdal_config_options(kept)


@contextlib.contextmanager
def warnings_in_log(path: Path) -> Iterator[None]:
    """Log GDAL's warnings, each once and on one line about the file; Python would show a line of pyogrio's code."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield
    for text in dict.fromkeys(brief(str(one.message)) for one in said):
        log.warning(f"{path}: GDAL: {text}")


def layers_of(path: Path, folder: Path, files: dict[str, bytes]) -> Iterator[tuple[str, Path]]:
    """Yield each layer's name and file, copied to ``folder``; `CubeError` where a file leads elsewhere."""
    import pyogrio

    mains = {}
    for name, raw in files.items():
        ending = Path(name).suffix.lower()
        first = start_of(raw) if ending in (kind[0] for kind in KINDS.values()) else None
        if first is not None and VRT in raw:
            raise CubeError(f"{path}: holds a description of a source elsewhere; save its polygons in the file itself")
        elif ending == ".prj" and not self_contained(raw.decode(errors="replace")):
            raise CubeError(f"{path}: its coordinate system (.prj) is not known, or leads to a file")
        copy = folder / (Path(name).stem + (KINDS[first][0] if first in KINDS else ending))
        copy.write_bytes(raw)
        if first in KINDS:
            mains[copy] = KINDS[first]
    for copy, (ending, drivers, _) in mains.items():
        if ending == ".gpkg":
            refuse_what_leads_elsewhere(path, copy)
        for name in map(str, pyogrio.list_layers(copy)[:, 0]):
            about = pyogrio.read_info(copy, layer=name)
            if about["driver"] not in drivers:
                raise CubeError(f"{path}: is no {drivers[0]}, though it begins as one")
            if about["features"]:
                yield name, copy


def packed(path: Path, raw: bytes, longest: int) -> dict[str, bytes]:
    """Return the files in a ZIP, or a file and its companions, by name; `CubeError` where they are too large."""
    first, found = start_of(raw) or ZIP, dict[str, bytes]()
    if first == ZIP:
        with zipfile.ZipFile(io.BytesIO(raw)) as opened:
            some = [one for one in opened.infolist() if Path(one.filename).suffix.lower() in PACKED]
            if sum(one.file_size for one in some) > LARGEST_UNPACKED:
                raise CubeError(f"{path}: holds more than {LARGEST_UNPACKED >> 20} MiB; unpack it, and name one file")
            names = [Path(one.filename).name for one in some]
            if len({Path(name.lower()).stem + Path(name).suffix for name in names}) < len(names):
                raise CubeError(f"{path}: holds two files of one name in its folders; unpack it, and name one file")
            found = {name: opened.read(one) for name, one in zip(names, some)}
        return found
    ending, _, others = KINDS[first]
    for beside in files_named(path.parent, [path.stem + other for other in others]) if others else ():
        if Path(os.path.realpath(beside)).parent != Path(os.path.realpath(path)).parent:
            raise CubeError(f"{beside}: is a link to another folder than that of {path.name}; copy it there")
        found[path.stem + beside.suffix.lower()] = read_small(beside, longest)
    return {path.stem + ending: raw} | found


def refuse_what_leads_elsewhere(path: Path, copy: Path) -> None:
    """Raise `CubeError` for a GeoPackage with views, virtual tables or columns that call functions of GDAL."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(copy)) as opened:
        made = opened.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master").fetchall()
        tables = {name for kind, name, sql in made if kind == "table" and is_plain(sql)}
        generated = [
            name
            for name in tables
            if any(column[-1] in GENERATED for column in opened.execute("SELECT * FROM pragma_table_xinfo(?)", (name,)))
        ]
        odd = [name for kind, name, sql in made if kind == "view" or (kind == "table" and not is_plain(sql))]
        odd += generated
    if odd or "gpkg_contents" not in tables:
        why = f"has views or tables that are made of others ({', '.join(odd[:5])})" if odd else "is no GeoPackage"
        raise CubeError(f"{path}: {why}; save its polygons as a plain layer: ogr2ogr out.gpkg {path.name} LAYER")


def is_plain(sql: str) -> bool:
    """Return whether a statement makes an ordinary table of SQLite, or a virtual one that is an R-tree index."""
    return PLAIN.match(sql) is not None
