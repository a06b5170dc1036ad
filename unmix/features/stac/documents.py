"""Read STAC's documents: the scene that an item names, and the items of a search or a collection.

A cube whose bands are files of their own, on one grid.
"""

import contextlib
import functools
import json
import logging
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

import numpy as np

from ...blocks import once_a_process
from ...errors import CubeError, MethodError, UnmixError, brief, say_once
from ...io import (
    Cube,
    RemotePath,
    absolute,
    by_pixel,
    content_of,
    document_of,
    fetched,
    is_remote,
    located,
    open_plain,
    read_lines,
    state_of,
)
from ...io.remote.store import whole_object
from ...scene import COMPANIONS, ENDINGS
from .described import bands_described, describe, said_by_item, wavelength_of

# Files that are opened or read at a time: a server answers each after a while.
AT_ONCE = 8


@once_a_process
def files() -> ThreadPoolExecutor:
    """Return the pool of threads that open and read the files of a scene, one for the process."""
    return ThreadPoolExecutor(AT_ONCE, "band")


def identity_of_file(path: Path) -> dict[str, Any]:
    """Return the identity of one of a scene's files."""
    if isinstance(path, RemotePath) and path.version.etag is not None:
        return {"bytes": path.version.size, **path.version.identity()}
    return content_of(path)


@dataclass(eq=False)
class Stack(Cube):
    """A cube of ``parts``, of one band each."""

    parts: list[Cube]

    @classmethod
    def of(cls, name: str, parts: list[Cube]) -> "Stack":
        """Return the stack of single-band cubes by rising wavelength; `CubeError` where these differ."""
        if all(one.wavelengths is not None for one in parts):
            parts = sorted(parts, key=lambda one: float(one.wavelengths[0]))  # type: ignore[index]
        first = parts[0]
        for one in parts:
            if one.bands != 1:
                raise CubeError(f"{name}: {one.path} has {one.bands} bands; files with one band each are put together")
            if any(getattr(one, key) != getattr(first, key) for key in ("lines", "samples", "dtype", "nodata")) or (
                one.fields.get("map info") != first.fields.get("map info")
            ):
                raise CubeError(
                    f"{name}: {one.path} and {first.path} differ in grid, type or nodata; name files of one grid"
                )
            if one.mask is not None:
                raise CubeError(f"{name}: {one.path} has a mask of its own; bands with masks are not put together")
        stack = cls(
            first.path,
            first.stem,
            first.format,
            first.lines,
            first.samples,
            len(parts),
            first.dtype,
            "bsq",
            parts,
            lines_together=max(one.lines_together for one in parts),
            nodata=first.nodata,
            fields={**first.fields},
        )
        for key, usual in (("wavelengths", None), ("fwhm", None), ("gain", 1.0), ("offset", 0.0)):
            values = [getattr(one, key) for one in parts]
            if any(one is not None for one in values) and (usual is not None or all(one is not None for one in values)):
                setattr(stack, key, np.array([usual if one is None else one[0] for one in values], float))
        stack.fields["band names"] = ", ".join(one.fields.get("band names", one.path.stem) for one in parts)
        stack.beside = [path for one in parts for path in (one.path, *one.beside) if path != first.path]
        stack.problems = list(dict.fromkeys(problem for one in parts for problem in one.problems))
        return stack

    def fill(self, lines: slice, filled: np.ndarray) -> None:
        """Fill an array (bands, n, samples) with whole lines as stored."""

        def read(place: np.ndarray, one: Cube) -> None:
            place[:] = by_pixel(read_lines(one, lines), one.interleave)[:, :, 0]

        list(files().map(read, filled, self.parts))

    @functools.cached_property
    def contents(self) -> list[dict[str, Any]]:
        """The identities of all files but the first; where a server gives an ETag, that is enough."""
        return list(files().map(identity_of_file, [one.path for one in self.parts[1:]]))

    def storage(self) -> dict[str, Any]:
        """Return how the files store the cube; see `unmix.io.cube.Cube.storage`."""
        return {"files": [one.storage() for one in self.parts], "contents": self.contents}


log = logging.getLogger("unmix")
# Bytes of the longest document: a search with a thousand items has some 20 MiB.
LONGEST_DOCUMENT = 64 * 2**20
# Most catalogues within each other.
DEEPEST = 8
# Media types of scenes, by a word of theirs.
TYPES = ("tiff", "hdf", "netcdf", "zarr")
# Most names that an error shows.
MOST_SHOWN = 12


class Item(NamedTuple):
    """An item: where its document lies, how it is named there, and what it holds."""

    document: Path
    name: str
    content: dict[str, Any]

    @property
    def stem(self) -> str:
        """The beginning of the names of outputs: its id, without what names of files may not have; or empty."""
        name = unicodedata.normalize("NFC", str(self.content.get("id", "")))
        return re.sub(r"[^\w.+-]+", "_", name).strip("._")[:120]

    @property
    def assets(self) -> dict[str, dict[str, Any]]:
        """Its assets that are described as they should be, by key."""
        assets = self.content.get("assets")
        pairs = assets.items() if isinstance(assets, dict) else ()
        return {key: one for key, one in pairs if isinstance(one, dict) and isinstance(one.get("href"), str)}


def opened(document: Path, part: str, open_file: Callable[[Path], Cube]) -> Cube | None:
    """Return an item's scene, None where it is no STAC; ``part`` is asset keys with commas, after ID# in a search."""
    found = item_in(document, part)
    if found is None:
        return None
    item, wanted = found
    cubes = chosen(item, wanted, open_file)
    cube = (
        next(iter(cubes.values()))
        if len(cubes) == 1
        else Stack.of(f"{item.name}: {', '.join(cubes)}", [*cubes.values()])
    )
    cube.stem = stem_of_item(item, wanted, cube.stem)
    cube.named = "#".join(filter(None, (absolute(document), part)))
    cube.beside = [*cube.beside, document]
    say_once(f"{item.name}: the scene is {', '.join(cubes)}: {cube.path if len(cubes) == 1 else f'{len(cubes)} files'}")
    return cube


def about(document: Path, part: str) -> dict[str, Any] | None:
    """Return the stem of an item's scene, and what `described.FIELDS` are; None where a document is no STAC."""
    found = item_in(document, part)
    if found is None:
        return None
    item, wanted = found
    return {"stem": stem_of_item(item, wanted, ""), **said_by_item(item.content)}


def stem_of_item(item: Item, wanted: str, other: str) -> str:
    """Return the stem of some assets of an item, which begins with ``other`` where that has no id."""
    return "_".join(filter(None, (item.stem or other, re.sub(r"[^\w+-]+", "_", wanted))))


def listed(path: Path, content: bytes) -> list[str] | None:
    """Return the names of a list's items, those that its collections and catalogues link, too; None for no STAC."""
    found = parsed(path, content)
    return [*items_below(path, found, DEEPEST)] if is_stac(found) else None


def items_below(path: Path, found: dict[str, Any], depth: int) -> dict[str, dict[str, Any] | None]:
    """Return the items of a document by name, with their content where it has that."""
    given = found.get("links")
    links = [
        one
        for one in (given if isinstance(given, list) else ())
        if isinstance(one, dict) and isinstance(one.get("href"), str)
    ]
    if found.get("type") == "Feature":
        return {str(path): found}
    if found.get("type") == "FeatureCollection":
        if any(one.get("rel") == "next" for one in links):
            log.warning(
                f"{path}: is a page of a search that has more; only its {len(found['features'])} items are read"
            )
        return {f"{absolute(path)}#{name}": one for name, one in items_by_id(path, found["features"]).items()}
    items: dict[str, dict[str, Any] | None] = {
        str(place_of_band(path, one["href"], path)): None for one in links if one.get("rel") == "item"
    }
    for child in [place_of_band(path, one["href"], path) for one in links if one.get("rel") == "child"]:
        if not depth:
            raise CubeError(f"{path}: has collections within more than {DEEPEST} others; name one: {child}")
        items |= items_below(child, parsed(child, bytes_of(child)), depth - 1)
    return items


@functools.lru_cache(2)
def parsed_once(document: Path, state: Sequence[Any] | None) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return a document and its items, parsed once for all scenes of a search; ``state`` is a local file's state."""
    content = parsed(document, bytes_of(document))
    is_search = is_stac(content) and content.get("type") == "FeatureCollection"
    return content, items_by_id(document, content["features"]) if is_search else {}


def bytes_of(document: Path) -> bytes:
    """Return the bytes of a document; `CubeError` where it cannot be read, or is too long."""
    try:
        if isinstance(document, RemotePath):
            return whole_object(document, LONGEST_DOCUMENT)
        with open_plain(document) as file:
            content = file.read(LONGEST_DOCUMENT + 1)
    except OSError as error:
        is_unsized = "Content-Length" in str(error.strerror)
        said = "its server does not say how long it is; save it in a file first" if is_unsized else error.strerror
        raise CubeError(f"{document}: cannot be read: {said}") from None
    if len(content) > LONGEST_DOCUMENT:
        raise CubeError(f"{document}: has more than {LONGEST_DOCUMENT >> 20} MiB")
    return content


def parsed(document: Path, content: bytes) -> dict[str, Any]:
    """Return a document; `CubeError` where it is no JSON object."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CubeError(f"{document}: cannot be read as JSON: {brief(error)}") from None
    if not isinstance(found, dict):
        raise CubeError(f"{document}: is JSON, but no item of a catalogue")
    return found


def is_stac(content: dict[str, Any]) -> bool:
    """Return whether a document is STAC's; of a search only its items say so."""
    if content.get("type") == "FeatureCollection":
        features = content.get("features")
        are_items = (isinstance(one, dict) and {"assets", "stac_version"} & set(one) for one in features or ())
        return isinstance(features, list) and (not features or any(are_items))
    return "stac_version" in content or (content.get("type") == "Feature" and "assets" in content)


def items_by_id(document: Path, features: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Return the items of a search by their ids; `MethodError` where two that differ have one id."""
    items: dict[str, dict[str, Any]] = {}
    for one in features:
        if isinstance(one, dict) and items.setdefault(str(one.get("id")), one) != one:
            raise MethodError(f"{document}: has two items with the id '{brief(str(one.get('id')))}'; give each its own")
    return items


def item_in(document: Path, part: str) -> tuple[Item, str] | None:
    """Return the item that a name means, and the keys of assets after it; None where a document is no STAC."""
    state = None if isinstance(document, RemotePath) else state_of(document)
    content, items = parsed_once(document, state)
    if not is_stac(content):
        return None
    kind = content.get("type")
    if kind == "Feature":
        return Item(document, str(document), content), part
    if kind != "FeatureCollection":
        raise CubeError(f"{document}: is a {str(kind)[:20]}, no item; name it with `list`")
    name, _, keys = part.partition("#")
    if name not in items:
        which = f"has no item '{name}'" if name else f"has {len(items)} items; `list` takes all"
        raise CubeError(f"{document}: {which}; name one, as {document}#ID: {shown(items)}")
    return Item(document, f"{document}#{name}", items[name]), keys


def shown(names: Any) -> str:
    """Return some names as text."""
    words = list(names)
    return ", ".join(map(str, words[:MOST_SHOWN])) + (", …" if len(words) > MOST_SHOWN else "")


def place_of_band(document: Path, href: str, name: object) -> Path:
    """Return the path of a file that a document names; `CubeError` where the document may not name it."""
    try:
        urlsplit(href)
    except ValueError:
        raise CubeError(f"{name}: names {brief(href)}, which is no address") from None
    # A document on a server names files on servers alone; one on this machine also files in its own folder, links
    # followed: else its author would choose which private file of the reader's becomes a map.
    if isinstance(document, RemotePath):
        scheme, _, rest = str(document).partition(":")
        url = href if is_remote(href) else urljoin("https:" + rest, href).replace("https:", scheme + ":", 1)
        if href.lower().startswith("file:") or not is_remote(url):
            raise CubeError(f"{name}: names {brief(href)}, a file of this machine; a document on a server may not")
        return located(url)
    if is_remote(href) and not href.lower().startswith("file:"):
        return located(href)
    text = urlsplit(href).path if href.lower().startswith("file:") else href
    try:
        plain = document.parent / text
        path = Path(os.path.realpath(plain if os.path.lexists(plain) else document.parent / unquote(text)))
    except ValueError:  # a zero byte
        raise CubeError(f"{name}: names {brief(repr(href))}, which is no file") from None
    refuse_beyond_folder(document, path, f"{name}: names {brief(href)}")
    return path


def refuse_beyond_folder(document: Path, path: Path, said: str) -> None:
    """Raise `CubeError` for a file of this machine outside the folder of the document that names it, links followed."""
    folder = os.path.realpath(document.parent)
    if not (isinstance(path, RemotePath) or Path(os.path.realpath(path)).is_relative_to(folder)):
        raise CubeError(f"{said}, outside the folder of {document.name}; name that file itself to read it")


def is_scene(asset: dict[str, Any]) -> bool:
    """Return whether an asset may be a scene, by its name and type."""
    name = re.split("[?#]", asset["href"])[0].rstrip("/").lower()
    kind = str(asset.get("type", "")).lower()
    return name.endswith((*ENDINGS, ".nc4", ".zip")) or any(word in kind for word in TYPES)


def candidates_in(item: Item) -> dict[str, dict[str, Any]]:
    """Return the assets that may be the scene: with the role "data" or, where none has it, without a role."""
    scenes = {key: one for key, one in item.assets.items() if is_scene(one)}
    roles = {key: one.get("roles") for key, one in scenes.items()}
    has_data = {key for key, given in roles.items() if isinstance(given, list) and "data" in given}
    data = {key: one for key, one in scenes.items() if (key in has_data if has_data else not roles[key])}
    names = {key: one["href"].rpartition("/")[2] for key, one in data.items()}
    # What a server has by s3 and by https is read by https, as the login is.
    by_s3 = {key for key, one in data.items() if one["href"].startswith("s3:")}
    others = {name for key, name in names.items() if key not in by_s3}
    return {key: one for key, one in data.items() if key not in by_s3 or names[key] not in others}


def chosen(item: Item, wanted: str, open_file: Callable[[Path], Cube]) -> dict[str, Cube]:
    """Return the opened assets that are the scene, by key: one, or several with a band each, on one grid."""

    def place(key: str) -> Path:
        return place_of_band(item.document, item.assets[key]["href"], f"{item.name}: asset '{key}'")

    def opened_one(key: str, path: Path) -> Cube:
        if document_of(path) is not None:
            raise CubeError(f"{item.name}: asset '{key}' is no scene")
        cube = open_file(path)
        for file in (cube.path, *cube.beside, *cube.sidecars):
            refuse_beyond_folder(item.document, file, f"{item.name}: asset '{key}' is read from {file}")
        describe(cube, item.assets[key], item.content, item.name)
        return cube

    def opened_all(keys: Iterable[str]) -> dict[str, Cube]:
        places = {key: place(key) for key in keys}
        if len(places) > 1:
            list(files().map(fetch_beginning, places.values()))
        return {key: opened_one(key, path) for key, path in places.items()}

    if wanted:
        keys = next(
            (one for one in ([wanted], [unquote(wanted)], wanted.split(",")) if set(one) <= set(item.assets)), []
        )
        if not keys:
            raise CubeError(f"{item.name}: has no asset '{wanted}'; it has {shown(item.assets)}")
        return opened_all(keys)
    scenes = candidates_in(item)
    several = [key for key, one in scenes.items() if len(bands_described(one, item.content)) > 1]
    single = [
        key
        for key, one in scenes.items()
        if len(bands := bands_described(one, item.content)) == 1 and wavelength_of(bands[0])
    ]
    if len(scenes) == 1 or len(several) == 1:
        key = (several or [*scenes])[0]
        return opened_all([key])
    if len(single) > 1 and not several:
        return parts_on_one_grid(item, opened_all(single))
    cubes = {} if several else opened_all(scenes)
    cubes = {key: one for key, one in cubes.items() if one.format not in COMPANIONS}
    if len(cubes) != 1:
        which = f"has {len(scenes)} assets with data" if scenes else "has no asset with data that is read"
        raise CubeError(f"{item.name}: {which}; name one, as {item.name}#KEY: {shown(scenes or item.assets)}")
    return cubes


def fetch_beginning(path: Path) -> None:
    """Fetch the beginning of a file on a server, so that many are fetched at once."""
    # GDAL opens and closes files in one thread only.
    if not (isinstance(path, RemotePath) and path.objects):  # else a folder
        with contextlib.suppress(OSError, UnmixError), fetched(path, lambda: [(0, 1)]):  # opening it says what is wrong
            pass


def parts_on_one_grid(item: Item, cubes: dict[str, Cube]) -> dict[str, Cube]:
    """Return those of some bands that share a grid, as many as can be, and log that."""
    grids: dict[tuple[Any, ...], dict[str, Cube]] = {}
    for key, cube in cubes.items():
        grids.setdefault((cube.lines, cube.samples, cube.fields.get("map info"), cube.dtype.str, cube.nodata), {})[
            key
        ] = cube
    most = max(grids.values(), key=lambda one: (len(one), next(iter(one.values())).lines))
    if len(grids) > 1:
        others = ", ".join(key for key in cubes if key not in most)
        say_once(f"{item.name}: {others} are on other grids; they are read as {item.name}#KEY,KEY")
    return most
