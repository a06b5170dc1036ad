"""Find the cube in a Zarr store: which arrays hold it, and what each of their axes is."""

import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import zarr

from ....errors import CubeError, MethodError
from ...read import brief
from ..cf import roles
from ..hdf5 import LAYOUTS
from .about import describe_cube
from .cube import Slab, ZarrCube, cube_of
from .store import Store, dimensions_of, type_read

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
    """Return the cube in a store, or in the group or array ``dataset``, with all that the store says of it.

    Raises
    ------
    CubeError
        Where there is none, or there are several.
    MethodError
        Where the axes of ``dataset`` are not an order of y, x and b, or are given for a group.
    """
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
    """Return what may be a cube in a group and the groups below it; of several resolutions of an image the finest.

    Arrays (y, x) count only where there is nothing else; without names of axes any array of three counts.
    """
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
    """Return the finest level of an image in several resolutions; None where a group has none.

    OME-Zarr has ``multiscales`` with ``datasets``, within ``ome`` from 0.5 on; GeoZarr has it with a ``layout``.
    """
    levels: list[Found] = []
    with contextlib.suppress(KeyError, IndexError, TypeError, AttributeError):
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
    """Return what each axis of an array that is a cube is, as given, or by their names.

    Raises
    ------
    CubeError
        Where they have no names, or other ones, and none are given; or it has not three axes, or other ones of more than one place.
    """
    name = f"/{brief(store.name_of(array)) if store.name_of(array) else ''}"
    if type_read(array) is None:
        raise CubeError(f"{store.path}: {name} is of type {array.dtype}; cubes are of whole or real numbers")
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
        raise CubeError(f"{store.path}: {name} has the shape {array.shape}; a cube has three axes, none empty")
    order = dict(zip(places, given))
    return "".join(order.get(k, "1") for k in range(array.ndim))
