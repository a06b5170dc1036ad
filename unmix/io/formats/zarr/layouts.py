"""Find the cube in a Zarr store: which arrays hold it, and what each of their axes is."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import zarr

from ....errors import CubeError, MethodError
from ...fields import DTYPES
from ...read import brief
from ...remote import RemotePath
from ..hdf5 import LAYOUTS
from .about import describe
from .cube import Slab, ZarrCube, cube_of
from .store import child

# Names of axes along lines and samples; any other axis is that of bands.
LINES = frozenset({
    "y", "lat", "latitude", "northing", "line", "lines", "row", "rows", "downtrack", "along_track", "height",
})  # fmt: skip
SAMPLES = frozenset({
    "x", "lon", "longitude", "easting", "sample", "samples", "column", "columns", "crosstrack", "across_track", "width",
})  # fmt: skip
# Arrays (y, x) that are no bands.
NO_BANDS = LINES | SAMPLES | {"spatial_ref", "mask", "elevation"}
# Most candidates that an error lists; most groups below one that are searched.
MOST_LISTED, MOST_SEARCHED = 5, 200


class Found(NamedTuple):
    """What may be a cube: its arrays, and the group that they are in."""

    slabs: list[Slab]
    group: Any

    def __str__(self) -> str:
        first = self.slabs[0]
        if len(self.slabs) == 1:
            return f"/{brief(first.array.path)} {first.array.shape}"
        return f"/{brief(self.group.path)} ({len(self.slabs)} arrays {first.array.shape})"


def cube_in(path: Path, root: Any, dataset: str | None, wavelengths: str | None) -> ZarrCube:
    """Return the cube in a store, or in the group or array ``dataset``, with all that the store says of it.

    Raises
    ------
    CubeError
        Where there is none, or there are several.
    MethodError
        Where the axes of ``dataset`` are not an order of y, x and b.
    """
    name, _, axes = (dataset or "").partition(":")
    if axes and axes not in LAYOUTS:
        raise MethodError(f"`dataset` {dataset}: the axes must be one of {', '.join(LAYOUTS)}, not '{axes}'")
    node = child(root, name)
    if node is None:
        raise CubeError(f"{path}: has no array or group '{name}'; there are: {listed(list(candidates(path, root)))}")
    if isinstance(node, zarr.Array):
        parent = child(root, node.path.removeprefix(root.path).rpartition("/")[0]) if node is not root else None
        found = Found([Slab(node, axes_of(path, node, axes))], parent)
    else:
        every = list(candidates(path, node))
        if len(every) != 1:
            raise CubeError(
                f"{path}: name its cube with `dataset`, such as /NAME or /NAME:byx; there are: {listed(every)}"
            )
        (found,) = every
    cube = cube_of(path, found.slabs)
    describe(cube, root, found.group, wavelengths)
    return cube


def listed(every: Sequence[Found]) -> str:
    """Return candidates as text."""
    more = [f"{len(every) - MOST_LISTED} more"] if len(every) > MOST_LISTED else []
    return ", ".join([*map(str, every[:MOST_LISTED]), *more]) or "none"


def candidates(path: Path, group: Any) -> Iterator[Found]:
    """Yield what may be a cube in a group; where there is nothing, in the groups below it; of several resolutions the finest."""
    if isinstance(group, zarr.Array):
        yield Found([Slab(group, axes_of(path, group, ""))], None)
        return
    level = [group]
    searched = 0
    while level:
        found = [one for each in level for one in within(path, each)]
        if found:
            yield from sorted(found, key=str)
            return
        searched += len(level)
        level = [] if searched > MOST_SEARCHED else [below for each in level for _, below in each.groups()]


def within(path: Path, group: Any) -> Iterator[Found]:
    """Yield what may be a cube in a group itself."""
    finest, axes = finest_of(group)
    if finest:
        node = child(group, finest)
        if isinstance(node, zarr.Array):
            yield Found([Slab(node, roles(node, axes) or axes_of(path, node, ""))], group)
        elif node is not None:
            yield from within(path, node)
        return
    every = {name: child(group, name) for name in names_in(path, group)}
    arrays = {name: one for name, one in every.items() if one.dtype.newbyteorder("=") in DTYPES.values()}
    cubes = [
        Found([Slab(one, order)], group)
        for one in arrays.values()
        if (order := roles(one, dimensions_of(one))) and "b" in order
    ]
    unnamed = [Found([Slab(one, "???")], group) for one in arrays.values() if one.ndim == 3 and not dimensions_of(one)]
    yield from cubes
    if not cubes:
        for one in unnamed:
            yield one._replace(slabs=[Slab(one.slabs[0].array, axes_of(path, one.slabs[0].array, ""))])
    if not cubes and not unnamed:
        yield from bands_in(group, arrays)


def bands_in(group: Any, arrays: dict[str, Any]) -> Iterator[Found]:
    """Yield the arrays (y, x) of one size and type in a group, of which there are at least two: each is a band."""
    alike: dict[Any, list[Slab]] = {}
    for name in sorted(arrays):
        one = arrays[name]
        axes = roles(one, dimensions_of(one))
        if axes and "b" not in axes and name.lower() not in NO_BANDS:
            alike.setdefault((one.shape, one.dtype), []).append(Slab(one, axes))
    yield from (Found(slabs, group) for slabs in alike.values() if len(slabs) > 1)


def names_in(path: Path, group: Any) -> list[str]:
    """Return the names of the arrays in a group; `CubeError` where a server does not list them."""
    try:
        return [name for name, _ in group.arrays()]
    except Exception as error:
        if not isinstance(path, RemotePath):
            raise
        raise CubeError(
            f"{path}: the server does not list what is in the store ({brief(error)}), and it has no consolidated metadata; name the "
            "array with `dataset`"
        ) from None


def finest_of(group: Any) -> tuple[str, list[str]]:
    """Return the finest level of an image in several resolutions, and the names of its axes where the group has them; else nothing.

    OME-Zarr has ``multiscales`` with ``datasets``, within ``ome`` from 0.5 on; GeoZarr has it with a ``layout``.
    """
    scales = group.attrs.get("multiscales", dict(group.attrs.get("ome") or {}).get("multiscales"))
    try:
        if isinstance(scales, dict):
            return str(scales["layout"][0]["asset"]), []
        one = scales[0]
        return str(one["datasets"][0]["path"]), [
            str(axis["name"] if isinstance(axis, dict) else axis) for axis in one["axes"]
        ]
    except (KeyError, IndexError, TypeError):
        return "", []


def dimensions_of(array: Any) -> list[str]:
    """Return the names of an array's axes, as Zarr v3 has them, or xarray writes them in v2; empty where one has none."""
    names = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS") or []
    names = names if isinstance(names, Sequence) and all(isinstance(name, str) and name for name in names) else []
    return list(names) if len(names) == array.ndim else []


def roles(array: Any, names: Sequence[str]) -> str:
    """Return what each axis is, see `Slab`, by its name; empty where there are no lines or samples, or too many other axes.

    ``spatial:dimensions`` of GeoZarr goes first.
    """
    if len(names) != array.ndim:
        return ""
    spatial = array.attrs.get("spatial:dimensions")
    named = (
        {str(name): axis for axis, name in zip("yx", spatial)}
        if isinstance(spatial, list) and len(spatial) == 2
        else {}
    )
    known = [
        named.get(name) or ("y" if name.lower() in LINES else "x" if name.lower() in SAMPLES else "") for name in names
    ]
    free = [k for k, axis in enumerate(known) if not axis]
    long = [k for k in free if array.shape[k] > 1] or free[:1]
    if known.count("y") != 1 or known.count("x") != 1 or len(long) > 1:
        return ""
    return "".join(axis or ("b" if k in long else "1") for k, axis in enumerate(known))


def axes_of(path: Path, array: Any, given: str) -> str:
    """Return what each axis of an array that is a cube is, as given, or by their names.

    Raises
    ------
    CubeError
        Where they have no names, or other ones, and none are given; or it has not three axes, or other ones of more than one place.
    """
    name = f"/{brief(array.path)}"
    if array.dtype.newbyteorder("=") not in DTYPES.values():
        raise CubeError(f"{path}: {name} is of type {array.dtype}; cubes are of whole or real numbers")
    known = roles(array, dimensions_of(array))
    if not given:
        if known and ("b" in known or array.ndim == 2):
            return known
        said = f"named {', '.join(dimensions_of(array))}" if dimensions_of(array) else "without names"
        raise CubeError(
            f"{path}: the axes of {name} {array.shape} are {said}; say their order with `dataset` {name}:byx"
        )
    long = [k for k, n in enumerate(array.shape) if n > 1]
    places = range(array.ndim) if array.ndim == 3 else long
    if len(places) != 3 or math.prod(array.shape) == 0:
        raise CubeError(f"{path}: {name} has the shape {array.shape}; a cube has three axes, none empty")
    order = dict(zip(places, given))
    return "".join(order.get(k, "1") for k in range(array.ndim))
