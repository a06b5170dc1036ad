"""Write maps as HDF5 that NetCDF-4 reads, too.

Write maps as Zarr v3: a folder that xarray and zarr open by its name.
"""

import base64
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..opening import write_new
from .cf import AXES, described
from .work import TILE, WorkMap, check_read_back, pieces_of

# Attributes with fields of an ENVI header.
OWN_TEXTS = ("map_info", "coordinate_system_string")
# The name by which NetCDF-4 knows a dimension without coordinates, before its length in ten places.
NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable."


def to_hdf5(work: WorkMap, out: Path) -> None:
    """Write HDF5 by the CF conventions for NetCDF-4: one gzip variable (band, y, x), band names and map information."""
    import h5py

    from ..formats.hdf5_write import new_hdf5

    values, fields, name = work.values, work.fields, work.name
    lines, bands, samples = values.shape
    of_file, of_map, variables = described(values, fields, name, work.header)
    tile, blank = (1, min(TILE, lines), min(TILE, samples)), float(of_map["_FillValue"][0])
    with new_hdf5(out, libver=("earliest", "v110")) as (file, target):
        describe(file, of_file)
        data = file.create_dataset(
            name, (bands, lines, samples), values.dtype, chunks=tile, compression="gzip", shuffle=True, fillvalue=blank
        )
        describe(data, of_map)
        for key, (_, own, attributes) in variables.items():
            file[key] = np.array(own, h5py.string_dtype()) if isinstance(own, list) else own
            describe(file[key], attributes)
        scales = {axis: file[axis] for axis in AXES if axis in variables}
        for axis, length in zip(AXES, data.shape):
            if axis not in scales:  # h5netcdf refuses a variable some of whose dimensions have no name
                scales[axis] = file.create_dataset(axis, (length,), ">f4")
                scales[axis].make_scale(f"{NO_VARIABLE}{length:10d}")
        for axis, scale in scales.items():
            if not scale.is_scale:
                scale.make_scale(axis)
            data.dims[AXES.index(axis)].attach_scale(scale)
        for key, (dimensions, _, _) in variables.items():
            if dimensions and key not in scales:
                file[key].dims[0].attach_scale(scales[dimensions[0]])
        for b, rows, piece in pieces_of(values):
            data[b, rows] = piece
            target.check()
    with h5py.File(out, "r") as file:
        check_read_back(out, values, lambda b, rows: file[name][b, rows])


def describe(thing: Any, attributes: dict[str, Any]) -> None:
    """Write attributes, texts as bytes, which every reader of NetCDF takes, except texts that are for unmix alone."""
    for key, value in attributes.items():
        thing.attrs[key] = np.bytes_(value.encode()) if isinstance(value, str) and key not in OWN_TEXTS else value


def to_zarr(work: WorkMap, out: Path) -> None:
    """Write a Zarr store as a folder, with consolidated metadata, which saves requests."""
    import zarr
    from zarr.storage import LocalStore, MemoryStore

    def put(key: str, content: Any) -> None:
        path = out / key
        path.parent.mkdir(parents=True, exist_ok=True)
        write_new(path, content.to_bytes())

    with warnings.catch_warnings():
        # Consolidated documents are an extension of Zarr v3, which older readers leave alone.
        warnings.simplefilter("ignore")
        members = chunks_and_documents(work, put)
        zarr.consolidate_metadata(MemoryStore(members), zarr_format=3)
    for key, content in members.items():
        put(key, content)
    with LocalStore(out, read_only=True) as store:
        written: Any = zarr.open_group(store, mode="r")[work.name]
        check_read_back(out, work.values, lambda b, rows: written[b, rows])


def chunks_and_documents(work: WorkMap, put: Callable[[str, Any], None]) -> dict[str, Any]:
    """Put the chunks of an array (band, y, x), each of one band; return the metadata documents and coordinates."""
    import zarr
    from zarr.codecs import ZstdCodec
    from zarr.storage import MemoryStore

    values, fields, name = work.values, work.fields, work.name
    lines, bands, samples = values.shape
    of_file, of_map, variables = described(values, fields, name, work.header)
    blank = of_map.pop("_FillValue")[0]
    members: dict[str, Any] = {}
    group = zarr.create_group(MemoryStore(members), attributes=of_file, zarr_format=3)
    data = group.create_array(
        name,
        shape=(bands, lines, samples),
        dtype=values.dtype,
        chunks=(1, min(TILE, lines), min(TILE, samples)),
        fill_value=blank,
        compressors=ZstdCodec(level=3),
        dimension_names=AXES,
        attributes={"_FillValue": fill_value(blank), **plain(of_map)},
        config={"write_empty_chunks": True},
    )
    for key, (dimensions, own, attributes) in variables.items():
        own = np.asarray(own)
        beside = group.create_array(
            key,
            shape=own.shape,
            dtype=str if own.dtype.kind == "U" else own.dtype,
            chunks=own.shape or "auto",
            dimension_names=dimensions,
            attributes=dict(attributes),
            compressors=None,
        )
        beside[...] = own
    for b, rows, piece in pieces_of(values):
        data[b, rows] = piece
        for key in [key for key in members if key.startswith(f"{name}/c/")]:
            put(key, members.pop(key))
    return members


def fill_value(value: np.generic) -> int | str:
    """Return a fill value as xarray writes it in attributes of Zarr v3: of reals the base64 text of a float64."""
    return base64.standard_b64encode(struct.pack("<d", value)).decode() if value.dtype.kind == "f" else int(value)


def plain(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return attributes as JSON has them."""
    return {key: one.tolist() if isinstance(one, np.ndarray) else one for key, one in attributes.items()}
