"""Read what a Zarr store says of a cube, as `unmix.io.formats.cf` has it for every format, and count the chunks that it has."""

import base64
import contextlib
import math
import struct
from collections.abc import Mapping
from typing import Any

import zarr

from ....errors import CubeError
from ...read import brief
from ...remote import RemotePath
from ..cf import Beside, Variable, numbers_in
from ..cf_place import describe
from .bounded import LARGEST_BESIDE
from .cube import ZarrCube
from .store import Store, dimensions_of

# Most chunks of an array of which those that are missing are counted.
MOST_COUNTED = 100_000


def describe_cube(cube: ZarrCube, store: Store, wavelengths: str | None) -> None:
    """Add to a cube all that a store says of it; ``wavelengths`` is the array of them, where it is named.

    Raises
    ------
    CubeError
        Where there is no such array, or a number is invalid.
    """
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
            f"{cube.path}: is an array by its own path, so that nothing beside it is read, such as wavelengths; name the store, and "
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
    """Warn where a store on this machine lacks chunks, and the value that they are read as is not that of no data."""
    if isinstance(cube.path, RemotePath):
        return
    for slab, name in zip(cube.slabs, cube.names):
        blank, every = slab.array.fill_value, math.prod(slab.grid)
        is_missing = blank is not None and (blank != blank or blank == cube.nodata)
        if is_missing or every > MOST_COUNTED or (there := store.count(name)) >= every:
            continue
        cube.problems.append(
            f"{cube.path}: {every - there} of {every} chunks of /{name} are not there, and count as {blank or 0}; if that is no data, "
            f"say so with `nodata` {blank or 0}"
        )
