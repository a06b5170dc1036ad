"""Write maps as HDF5 that NetCDF-4 reads, too."""

from pathlib import Path
from typing import Any

import numpy as np

from .cf import AXES, described
from .work import TILE, WorkMap, check_read_back, pieces_of

# Attributes with fields of an ENVI header.
OWN_TEXTS = ("map_info", "coordinate_system_string")
# The name by which NetCDF-4 knows a dimension without coordinates, before its length in ten places.
NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable."


def to_hdf5(work: WorkMap, out: Path) -> None:
    """Write HDF5 that follows the CF conventions for NetCDF-4: one variable (band, y, x), gzip, with band names and map information.

    Raises
    ------
    OutputError
        Where the values read back differ from those written.
    """
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
    """Write attributes, texts as bytes, which every reader of NetCDF takes, but for those that are for unmix alone."""
    for key, value in attributes.items():
        thing.attrs[key] = np.bytes_(value.encode()) if isinstance(value, str) and key not in OWN_TEXTS else value
