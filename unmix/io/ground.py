"""Where maps lie on the ground: coordinate systems, the ENVI header fields that hold them, how far two are apart."""

import contextlib
import functools
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CubeError
from ..later import later
from .cube import Cube
from .fields import MAP_FIELDS
from .formats.header import format_header, geotransform, read_header

# How far corners of what is laid over a scene may be off, in pixels: centre and corner of a pixel are often mistaken
# for each other.
FARTHEST_OFF = 0.5 + 1e-3
# How far a place may move, in pixels, where a header holds its system: 1 mm of 10 m.
LARGEST_MOVE = 1e-4
self_contained = later(__package__, "systems:self_contained")
gdal, settings = later(__package__, "formats.geotiff:gdal"), later(__package__, "formats.geotiff:settings")


@functools.cache
def system_named(text: str) -> Any:
    """Return rasterio's coordinate system of a text that alone defines it; None for any other, and without rasterio."""
    with contextlib.suppress(Exception):  # whatever GDAL raises for text that is no system
        crs = gdal().crs.CRS
        with settings():
            return crs.from_user_input(self_contained(text)) if self_contained(text) else None
    return None


def text_of_cf(mapping: Mapping[str, Any]) -> str:
    """Return the WKT of a CF grid mapping by its parameters; empty where it has none, or pyproj cannot read them."""
    if "grid_mapping_name" not in mapping:
        return ""
    with contextlib.suppress(Exception):  # pyproj's errors, and its absence
        from pyproj import CRS

        values = {
            key: np.ravel(value).tolist() for key, value in mapping.items() if key not in ("crs_wkt", "spatial_ref")
        }
        plain = {key: value[0] if len(value) == 1 else value for key, value in values.items()}
        return str(CRS.from_cf(plain).to_wkt())
    return ""


def map_fields(system: Any, transform: Sequence[float], path: Path, problems: list[str]) -> dict[str, str]:
    """Return a map as ENVI header fields, as GDAL writes them and reads them back; ``problems`` gets what is lost.

    ``system`` is rasterio's, or None; ``transform`` (a, b, c, d, e, f) as rasterio's: x = a sample + b line + c.
    """
    rasterio = gdal()
    affine = rasterio.Affine(*transform[:6])
    with settings(), tempfile.TemporaryDirectory(prefix="unmix-") as folder:
        image = Path(folder) / "map.img"
        header = image.with_suffix(".hdr")
        shape = {"height": 1, "width": 1, "count": 1, "dtype": "uint8"}
        with rasterio.open(image, "w", driver="ENVI", crs=system, transform=affine, **shape):
            pass
        text, wkt = header.read_text("utf-8"), "" if system is None else system.to_wkt()
        if wkt and "survey" in system.linear_units.lower():
            # GDAL writes "Feet", and reads that as the international foot, 2e-6 shorter.
            text = text.replace("units=Feet", "units=US Survey Feet")
        if "TOWGS84" in wkt:  # which the WKT of ESRI lacks
            text = re.sub("(?<=coordinate system string = ).*", lambda _: f"{{{wkt}}}", text)
        header.write_text(text, "utf-8")
        with rasterio.open(image, driver="ENVI") as source:
            back, same = source.crs, source.transform.almost_equals(affine, 1e-9 * max(map(abs, affine[:6])))
        fields = {key: value for key, value in read_header(header).items() if key in MAP_FIELDS}
    if not same:
        problems.append(
            f"{path}: its map is sheared or mirrored, which an ENVI header cannot hold; outputs have no map"
        )
        return {}
    place = np.array([[affine.c], [affine.f]])
    step = float(min(np.hypot(affine.a, affine.d), np.hypot(affine.b, affine.e)))
    if system is not None and moved_between(place, system, back) > LARGEST_MOVE * step:
        problems.append(
            f"{path}: an ENVI header cannot hold its coordinate system, '{str(system)[:40]}'; outputs have no map"
        )
        return {}
    return fields


def moved_between(places: np.ndarray, one: Any, other: Any) -> float:
    """Return how far places (2, n) lie from where the same numbers lie in another system, in units of the first."""
    if one == other:
        return 0.0
    with contextlib.suppress(Exception):  # without a way between them
        return float(np.hypot(*(transformed(places, other, one) - places)).max())
    return np.inf


def transformed(places: np.ndarray, from_: Any, to: Any) -> np.ndarray:
    """Return places (2, n) of one coordinate system of rasterio in another; NaN where they have none."""
    from rasterio.warp import transform

    with settings():
        found = np.array(transform(from_, to, *places), float)
    return np.where(np.isfinite(found), found, np.nan)


def placed(cube: Cube) -> tuple[float, ...] | None:
    """Return GDAL's geotransform of a map; None where it has no place on the ground."""
    info = cube.fields.get("map info", "")
    is_named = bool(cube.fields.get("coordinate system string", "").strip("{} \n"))
    return None if info.strip("{ ").lower().startswith("arbitrary") and not is_named else geotransform(info)


def system_in_words(cube: Cube) -> str:
    """Return the projection of a map info in words, with the zone of UTM: as ``UTM 11 North``."""
    words = [word.strip(" {}\n") for word in cube.fields.get("map info", "").split(",")]
    return " ".join([words[0], *words[7:9]] if words[0].upper() == "UTM" else words[:1])


def name_of_system(cube: Cube) -> str:
    """Return the name of a map's coordinate system for people: its WKT's, else its map info's."""
    own = cube.fields.get("coordinate system string", "").split('"')
    return own[1] if len(own) > 2 else system_in_words(cube)


def system_of(fields: Mapping[str, str]) -> str:
    """Return the WKT of a header, else the WKT that GDAL derives from its map info; empty where neither is usable."""
    info, projection, own = (fields.get(key, "") for key in MAP_FIELDS[:3])
    own = " ".join(own.strip("{} \n").split())
    if own and not self_contained(own):  # it may name a file, and is not shown to GDAL
        return ""
    # An axis that runs south or west is in WKT 2 alone; GDAL knows its system by name.
    by_gdal = wkt_by_gdal(info, projection, own and f"{{{own}}}", version="WKT2_2019")
    if re.search(r"AXIS\[[^]]*,(south|west)\b", by_gdal):
        return by_gdal
    return self_contained(own) if own else wkt_by_gdal(info, projection)


@functools.cache
def wkt_by_gdal(*texts: str, version: str = "WKT1_GDAL") -> str:
    """Return the WKT that GDAL derives from header fields `MAP_FIELDS`; empty without a system or without rasterio."""
    minimal: dict[str, Any] = {"samples": 1, "lines": 1, "bands": 1, "data type": 1, "interleave": "bsq"}
    given = {key: text for key, text in zip(MAP_FIELDS, texts) if text}
    with tempfile.TemporaryDirectory(prefix="unmix-") as folder, contextlib.suppress(Exception):
        image = Path(folder) / "map.img"
        image.write_bytes(bytes(2))  # GDAL does not recognise a file of one byte
        image.with_suffix(".hdr").write_text(format_header(minimal | given), encoding="utf-8")
        with gdal().open(image, driver="ENVI") as source:
            return source.crs.to_wkt(version=version) if source.crs else ""
    return ""


def corners_of_map(cube: Cube, transform: Sequence[float]) -> np.ndarray:
    """Return the coordinates of a map's four corners, (2, 4), by GDAL's geotransform."""
    sample, line = np.array([[0, cube.samples, 0, cube.samples], [0, 0, cube.lines, cube.lines]])
    return np.stack([transform[k] + transform[k + 1] * sample + transform[k + 2] * line for k in (0, 3)])


def is_one_system(one: Cube, other: Cube) -> bool:
    """Return whether two maps are in one coordinate system, as far as both are known: corners stay where they are."""
    texts = []
    for cube in (one, other):
        info, *others = (" ".join(cube.fields.get(key, "").strip("{} \n").split()) for key in MAP_FIELDS[:3])
        texts.append([info.split(",")[0], *info.split(",")[7:], *others])
    if texts[0] == texts[1]:
        return True
    words = [system_in_words(cube).casefold() for cube in (one, other)]
    systems = [system_named(system_of(cube.fields)) for cube in (one, other)]
    at = placed(one)
    if None in systems or at is None:
        return words[0] == words[1] or bool({"", "arbitrary"} & set(words))
    step = float(min(np.hypot(at[1], at[4]), np.hypot(at[2], at[5])))
    return moved_between(corners_of_map(one, at), *systems) <= FARTHEST_OFF * step


def apart(one: Cube, other: Cube) -> float:
    """Return how far the corners of two maps of one size are apart, in pixels; 0 where either has no place."""
    a, b = placed(one), placed(other)
    if a is None or b is None:
        return 0.0
    off = float(np.hypot(*(corners_of_map(one, a) - corners_of_map(one, b))).max())
    return off / float(min(np.hypot(a[1], a[4]), np.hypot(a[2], a[5])))


def in_words(cube: Cube) -> str:
    """Return the place of a map: its corner, the size of its pixels, its system."""
    at = placed(cube)
    assert at is not None
    return (
        f"{at[0]:.10g}, {at[3]:.10g} with pixels of {np.hypot(at[1], at[4]):.6g} x {np.hypot(at[2], at[5]):.6g} "
        f"({name_of_system(cube)})"
    )


def both_places(one: Cube, other: Cube) -> str:
    """Return where two maps of one size lie, if that is in two places; empty where it is not, or not known."""
    if placed(one) is None or placed(other) is None:
        return off_in_numbers(one, other)
    is_one = apart(other, one) <= FARTHEST_OFF and is_one_system(one, other)
    return "" if is_one else f"begins at {in_words(one)}, {other.path.name} at {in_words(other)}"


def off_in_numbers(one: Cube, other: Cube) -> str:
    """Return where two maps lie, one without a system, if their numbers differ; "" where one just counts pixels."""
    at = [geotransform(cube.fields.get("map info", "")) for cube in (one, other)]
    if (placed(one) is None and placed(other) is None) or None in at or any(a and a[0] == 0 == a[3] for a in at):
        return ""
    corners = [corners_of_map(cube, a) for cube, a in zip((one, other), at) if a is not None]
    step = min(abs(a[1]) + abs(a[2]) for a in at if a is not None)
    if float(np.abs(corners[0] - corners[1]).max()) <= FARTHEST_OFF * step:
        return ""
    begins = [f"{a[0]:.10g}, {a[3]:.10g}" for a in at if a is not None]
    return f"names no coordinate system, or begins in another, at {begins[0]}, {other.path.name} at {begins[1]}"


def why_not_laid(raster: Cube, scene: Cube) -> str:
    """Return why a raster of another size cannot be laid over a scene."""
    at, to = placed(raster), placed(scene)
    if at is None or to is None:
        return f"and {'it' if at is None else 'the scene'} has no place on a map"
    if not is_one_system(scene, raster):
        return f"in {name_of_system(raster)}, the scene in {name_of_system(scene)}"
    return "and one is turned against the other" if any((at[2], at[4], to[2], to[4])) else "and both share no ground"


def refuse_elsewhere(one: Cube, scene: Cube, what: str) -> None:
    """Raise `CubeError` where a raster that is laid over a scene lies elsewhere."""
    places = both_places(one, scene)
    if places:
        raise CubeError(
            f"{one.path}: the {what} lies elsewhere than the scene: it {places}; bring it to the scene's grid"
        )
