"""Write maps as Zarr v3, in a ZIP archive: one file, which is whole or not there, as all maps are."""

import base64
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ..opening import open_new
from .cf import AXES, described
from .work import TILE, WorkMap, check_read_back, pieces_of

# The time of all members of an archive, so that maps of equal values are equal files.
NO_TIME = (1980, 1, 1, 0, 0, 0)


def to_zarr(work: WorkMap, out: Path) -> None:
    """Write an array (band, y, x), in chunks of a band and `TILE` lines and samples, and coordinates by the CF conventions.

    Raises
    ------
    OutputError
        Where the values read back differ from those written.
    """
    import zarr
    from zarr.codecs import ZstdCodec
    from zarr.storage import MemoryStore, ZipStore

    values, fields, name = work.values, work.fields, work.name
    lines, bands, samples = values.shape
    of_file, of_map, variables = described(values, fields, name, work.header)
    blank = of_map.pop("_FillValue")[0]
    members: dict[str, Any] = {}
    group = zarr.create_group(MemoryStore(members), attributes=of_file, zarr_format=3)
    data = group.create_array(
        name, shape=(bands, lines, samples), dtype=values.dtype, chunks=(1, min(TILE, lines), min(TILE, samples)),
        fill_value=blank, compressors=ZstdCodec(level=3), dimension_names=AXES,
        attributes={"_FillValue": fill_value(blank), **plain(of_map)}, config={"write_empty_chunks": True},
    )  # fmt: skip
    for key, (dimensions, own, attributes) in variables.items():
        own = np.asarray(own)
        beside = group.create_array(
            key, shape=own.shape, dtype=str if own.dtype.kind == "U" else own.dtype, chunks=own.shape or "auto",
            dimension_names=dimensions, attributes=dict(attributes), compressors=None,
        )  # fmt: skip
        beside[...] = own
    with open_new(out) as file, zipfile.ZipFile(file, "w") as archive:
        for b, rows, piece in pieces_of(values):
            data[b, rows] = piece
            for key in [key for key in members if key.startswith(f"{name}/c/")]:
                add(archive, key, members.pop(key))
        for key in sorted(members):
            add(archive, key, members[key])
    with ZipStore(out, read_only=True) as store:
        written: Any = zarr.open_group(store, mode="r")[name]
        check_read_back(out, values, lambda b, rows: written[b, rows])


def add(archive: zipfile.ZipFile, key: str, content: Any) -> None:
    """Add a chunk or a document, as it is."""
    archive.writestr(zipfile.ZipInfo(key, NO_TIME), content.to_bytes())


def fill_value(value: np.generic) -> int | str:
    """Return a fill value as xarray writes it in attributes of Zarr v3: of reals the base64 text of a float64."""
    return base64.standard_b64encode(struct.pack("<d", value)).decode() if value.dtype.kind == "f" else int(value)


def plain(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return attributes as JSON has them."""
    return {key: one.tolist() if isinstance(one, np.ndarray) else one for key, one in attributes.items()}
