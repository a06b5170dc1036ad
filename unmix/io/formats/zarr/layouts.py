"""Find the cube in a Zarr store: which arrays hold it, and what each of their axes is.

Read what a Zarr store says of a cube, as `unmix.io.formats.cf` has it for every format, and count the chunks that it
has.
"""

import base64
import contextlib
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import zarr

from ....errors import CubeError, MethodError, brief
from ...remote import RemotePath
from ..cf import Beside, Variable, numbers_in, roles
from ..cf_place import describe
from ..hdf5 import LAYOUTS
from .bounded import LARGEST_BESIDE
from .store import Slab, Store, ZarrCube, cube_of, dimensions_of, type_read

# Most chunks of an array whose missing chunks are counted.
MOST_COUNTED = 100_000


def describe_cube(cube: ZarrCube, store: Store, wavelengths: str | None) -> None:
    """Add to a cube what its store says about it; ``wavelengths`` is the path of their array, or None."""
    named = None
    if wavelengths is not None:
        node = store.child(store.root, wavelengths)
        if not isinstance(node, zarr.Array) or node.shape != (cube.bands,):
            raise CubeError(f"{cube.path}: has no array '{wavelengths}' of {cube.bands} wavelengths")
        named = variable_of(store, node)
    above = store.above(cube.slabs[0].array)

    def find(name: str) -> Variable | None:
        node = store.child(above[-1], name) if above else None
        return variable_of(store, node) if isinstance(node, zarr.Array) else None

    variables = [variable_of(store, slab.array) for slab in cube.slabs]
    beside = Beside(cube, variables, cube.slabs[0].axes, [dict(group.attrs) for group in above], find)
    describe(cube, beside, [slab.length("b") for slab in cube.slabs], named)
    warn_of_missing_chunks(cube, store)
    if isinstance(store.root, zarr.Array) and beside.axes:
        cube.problems.append(
            f"{cube.path}: is an array by its own path, so that nothing beside it is read, such as wavelengths; name "
            "the store, and "
            "the array with `dataset`"
        )


def variable_of(store: Store, array: Any) -> Variable:
    """Return an array as `unmix.io.formats.cf` reads it."""

    def load() -> Any:
        if math.prod(array.chunks) * getattr(array.dtype, "itemsize", 1) > LARGEST_BESIDE:
            raise CubeError(
                f"{store.path}: /{brief(store.name_of(array))} has chunks that are too large for coordinates"
            )
        return array[...]

    return Variable(store.name_of(array), array.shape, array.dtype, dimensions_of(array), attributes_of(array), load)


def attributes_of(array: Any) -> dict[str, Any]:
    """Return the attributes of an array, with EOPF's by their names in NetCDF, and ``_FillValue`` as a number."""
    own = dict(array.attrs)
    eopf = own.get("_eopf_attrs")
    if isinstance(eopf, Mapping):
        of_eopf = {"scale_factor": "scale_factor", "add_offset": "add_offset", "fill_value": "_FillValue"}
        own = {to: eopf[key] for key, to in of_eopf.items() if key in eopf} | own
    has_own = own.get("_FillValue") is not None or own.get("missing_value") is not None
    if not has_own and array.metadata.zarr_format == 2 and "_ARRAY_DIMENSIONS" in own and array.ndim > 1:
        own["_FillValue"] = array.fill_value  # xarray's way to say it in v2
    blank = own.get("_FillValue")
    if isinstance(blank, str) and numbers_in(blank) is None:  # xarray's way to say it in v3: base64 of a float64
        with contextlib.suppress(ValueError, struct.error):
            raw = base64.b64decode(blank, validate=True)
            own["_FillValue"] = struct.unpack("<d" if len(raw) == 8 else "<f", raw)[0]
    return own


def warn_of_missing_chunks(cube: ZarrCube, store: Store) -> None:
    """Warn where a store on this machine lacks chunks, and the value that they are read as does not mean no data."""
    if isinstance(cube.path, RemotePath):
        return
    for slab, name in zip(cube.slabs, cube.names):
        blank, every = slab.array.fill_value, math.prod(slab.grid)
        is_missing = blank is not None and (blank != blank or blank == cube.nodata)
        if is_missing or every > MOST_COUNTED or (there := store.count(name)) >= every:
            continue
        cube.problems.append(
            f"{cube.path}: {every - there} of {every} chunks of /{name} are not there, and count as {blank or 0}; if "
            "that is no data, "
            f"say so with `nodata` {blank or 0}"
        )


# Beginnings of the names of arrays (y, x) that are no bands.
NO_BANDS = ("lat", "lon", "x", "y", "spatial_ref", "mask", "elevation", "height", "qa", "scl")
# Fewest arrays that are bands of a cube; most candidates that an error lists; most groups that are searched.
FEWEST_BANDS, MOST_LISTED, MOST_SEARCHED = 3, 8, 500


class Found(NamedTuple):
    """What may be a cube: its arrays and, of one whose bands are arrays, the name of their group."""

    slabs: list[Slab]
    name: str

    def __str__(self) -> str:
        first = self.slabs[0]
        many = f"{len(self.slabs)} arrays " if len(self.slabs) > 1 else ""
        return f"/{brief(self.name) if self.name else ''} ({many}{first.array.dtype} {first.array.shape})"


def cube_in(store: Store, dataset: str | None, wavelengths: str | None) -> ZarrCube:
    """Return the described cube of a store, or of ``dataset``: a group, or an array with an optional ``:byx``."""
    name, _, axes = (dataset or "").partition(":")
    node = store.child(store.root, dataset or "") if axes and axes not in LAYOUTS else None
    if node is not None:  # a name with a colon in it
        name, axes = str(dataset), ""
    if axes and axes not in LAYOUTS:
        raise MethodError(f"`dataset` {dataset}: the axes must be one of {', '.join(LAYOUTS)}, not '{axes}'")
    node = store.child(store.root, name)
    if node is None:
        raise CubeError(
            f"{store.path}: has no array or group '{name}'; there are: {listed(candidates(store, store.root))}"
        )
    if isinstance(node, zarr.Array):
        found = Found([Slab(node, axes_of(store, node, axes))], store.name_of(node))
    else:
        if axes:
            raise MethodError(f"`dataset` {dataset}: {name or '/'} is a group; an order of axes is that of an array")
        every = candidates(store, node)
        if len(every) != 1:
            raise CubeError(
                f"{store.path}: name its cube with `dataset`, such as /NAME or /NAME:byx; there are: {listed(every)}"
            )
        (found,) = every
    cube = cube_of(store, found.slabs)
    describe_cube(cube, store, wavelengths)
    return cube


def listed(every: Sequence[Found]) -> str:
    """Return candidates as text."""
    more = [f"{len(every) - MOST_LISTED} more"] if len(every) > MOST_LISTED else []
    return ", ".join([*map(str, every[:MOST_LISTED]), *more]) or "none"


def candidates(store: Store, group: Any) -> list[Found]:
    """Return the possible cubes in a group and the groups below it, the finest of several resolutions."""
    if isinstance(group, zarr.Array):
        return [Found([Slab(group, axes_of(store, group, ""))], store.name_of(group))]
    found: dict[str, list[Found]] = {"cube": [], "unnamed": [], "plane": []}
    level, searched = [group], 0
    while level and searched <= MOST_SEARCHED:
        searched += len(level)
        below: list[Any] = []
        for each in level:
            finest = finest_of(store, each)
            if finest is not None:
                found["cube"].append(finest)
                continue
            members = list(store.members(each))
            for kind, one in within(store, each, members):
                found[kind].append(one)
            below += [node for _, node in members if isinstance(node, zarr.Group)]
        level = below
    if not found["cube"] and len(found["unnamed"]) == 1:
        (one,) = found["unnamed"]
        axes_of(store, one.slabs[0].array, "")  # which says that it has no names
    # Arrays (y, x) count only without cubes; without names of axes any array of three counts.
    return sorted(found["cube"] or found["unnamed"] or found["plane"], key=str)


def within(store: Store, group: Any, members: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Found]]:
    """Yield what may be a cube in a group itself: cubes, arrays of three axes without names, and single planes."""
    arrays = {name: node for name, node in members if isinstance(node, zarr.Array) and type_read(node) is not None}
    alike: dict[Any, list[Slab]] = {}
    for name, array in arrays.items():
        axes = roles(array.shape, dimensions_of(array), array.attrs)
        one = Found([Slab(array, axes)], store.name_of(array))
        if "b" in axes:
            yield "cube", one
        elif axes and not name.lower().startswith(NO_BANDS):
            alike.setdefault((array.shape, str(array.dtype)), []).append(one.slabs[0])
        elif axes:
            yield "plane", one
        elif array.ndim == 3 and not dimensions_of(array):
            yield "unnamed", one
    for slabs in alike.values():
        slabs.sort(key=lambda slab: natural(slab.array.path))
        if len(slabs) >= FEWEST_BANDS:
            yield "cube", Found(slabs, store.name_of(group))
        else:
            yield from (("plane", Found([slab], store.name_of(slab.array))) for slab in slabs)


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts names by the numbers in them: b2 before b10."""
    return [(1, 0, part) if not part.isdecimal() else (0, int(part), part) for part in re.split(r"(\d+)", name)]


def finest_of(store: Store, group: Any) -> Found | None:
    """Return the finest level of an image in several resolutions (OME-Zarr, GeoZarr); None where a group has none."""
    levels: list[Found] = []
    with contextlib.suppress(KeyError, IndexError, TypeError, AttributeError):
        # OME-Zarr has `multiscales` with `datasets`, within `ome` from 0.5 on; GeoZarr has it with a `layout`.
        scales = group.attrs.get("multiscales") or group.attrs["ome"]["multiscales"]
        if isinstance(scales, dict):
            names, axes = [one["asset"] for one in scales["layout"]], []
        else:
            names = [one["path"] for one in scales[0]["datasets"]]
            axes = [str(axis["name"] if isinstance(axis, dict) else axis) for axis in scales[0]["axes"]]
        for name in names:
            node = store.child(group, str(name))
            if isinstance(node, zarr.Array) and type_read(node) is not None:
                known = roles(node.shape, axes, node.attrs) or roles(node.shape, dimensions_of(node), node.attrs)
                levels += [Found([Slab(node, known)], store.name_of(node))] if "b" in known else []
            elif isinstance(node, zarr.Group) and node.path != group.path:
                levels += [one for kind, one in within(store, node, list(store.members(node))) if kind == "cube"]
    return max(levels, key=lambda one: one.slabs[0].length("y") * one.slabs[0].length("x"), default=None)


def axes_of(store: Store, array: Any, given: str) -> str:
    """Return the roles of an array's axes as ``given``, else by their names; `CubeError` where neither tells them."""
    name = f"/{brief(store.name_of(array)) if store.name_of(array) else ''}"
    if type_read(array) is None:
        raise CubeError(
            f"{store.path}: {name} is of type {array.dtype}; cubes are of whole numbers, or real ones of 32 or 64 bits"
        )
    if not given:
        known = roles(array.shape, dimensions_of(array), array.attrs)
        if known:
            return known
        said = f"named {', '.join(dimensions_of(array))}" if dimensions_of(array) else "without names"
        raise CubeError(
            f"{store.path}: the axes of {name} {array.shape} are {said}; say their order with `dataset` {name}:byx"
        )
    long = [k for k, n in enumerate(array.shape) if n > 1]
    places = range(array.ndim) if array.ndim == 3 else long
    if len(places) != 3 or math.prod(array.shape) == 0:
        raise CubeError(
            f"{store.path}: {name} has the shape {array.shape}; a cube has three axes, none empty: of several times or depths save one"
        )
    order = dict(zip(places, given))
    return "".join(order.get(k, "1") for k in range(array.ndim))
