"""Open Zarr stores, and what is in them, by the library zarr; nothing is decoded by a codec that is not known.

A cube in a Zarr store: one array, or an array for each band.
"""

import contextlib
import math
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import zarr
from zarr.buffer.cpu import NDBuffer
from zarr.storage import ObjectStore

from ....errors import CubeError, brief
from ...cube import Cube
from ...fields import DTYPES
from ...identity import files_below
from ...read import MOST_TOGETHER, ScratchFile
from ...remote import RemotePath
from ...remote.path import ZARR_DOCUMENTS
from ...scratch import LARGEST_CHUNK, from_pieces, joined_chunks
from ..cf import type_of_attribute
from ..header import MOST_BANDS
from .bounded import NotPlain, PlainArchive, PlainFolder, bounded

# Codecs of arrays that are read. Some of numcodecs run what a chunk says, such as pickle, and old versions hold none of
# them back.
CODECS = frozenset(
    {
        "bytes",
        "transpose",
        "sharding_indexed",
        "gzip",
        "zlib",
        "zstd",
        "blosc",
        "lz4",
        "bz2",
        "lzma",
        "shuffle",
        "delta",
        "crc32c",
        "crc32",
        "adler32",
        "fletcher32",
        "jenkins_lookup3",
        "fixedscaleoffset",
        "quantize",
        "bitround",
        "packbits",
        "astype",
        "vlen-utf8",
        "string",
    }
)


class Store:
    """A Zarr store, or the group or array in one that a path names.

    Parameters
    ----------
    path : Path
        A folder here or on a server, or a ZIP archive here.

    Attributes
    ----------
    root : zarr.Group or zarr.Array

    Raises
    ------
    CubeError
        Where there is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.archive: list[str] | None = None
        if isinstance(path, RemotePath):
            if not path.objects:
                raise CubeError(
                    f"{path}: is a ZIP archive on a server; download it, or name a folder that ends in .zarr"
                )
            from ...remote.store import client

            documents = [name for name, _ in path.versions()]
            form: Literal[2, 3] = 3 if "zarr.json" in documents else 2
            self.root = zarr.open(ObjectStore(client(path), read_only=True), path=path.key, mode="r", zarr_format=form)
        elif path.is_file():
            self.root = zarr.open(PlainArchive(path, read_only=True), path=self.folder_in_archive(), mode="r")
        else:
            self.root = zarr.open(PlainFolder(path, read_only=True), mode="r")

    def folder_in_archive(self) -> str:
        """Return the folder of a ZIP archive with the store, "" for its root; `CubeError` where there is none."""
        with zipfile.ZipFile(self.path) as archive:
            self.archive = names = archive.namelist()
        places = [name.rpartition("/")[0] for name in names if name.rpartition("/")[2] in ZARR_DOCUMENTS]
        if not places:
            raise CubeError(f"{self.path}: is a ZIP archive without a Zarr store in it")
        return min(places, key=len)

    def name_of(self, node: Any) -> str:
        """Return the name of a group or an array within the store; empty for its root."""
        return str(node.path)[len(self.root.path) :].strip("/")

    def child(self, node: Any, name: str) -> Any:
        """Return a group's member ``name``, the node itself for ""; None without one, `CubeError` for its codec."""
        name = name.strip("/")
        if name and not isinstance(node, zarr.Group):
            return None
        try:
            found = node[name] if name else node
        except (KeyError, ValueError):  # ValueError: .. or . in it
            return None
        for codec in codecs_of(found) if isinstance(found, zarr.Array) else ():
            if codec not in CODECS:
                raise CubeError(
                    f"{self.path}: /{brief(self.name_of(found) or '.')} is coded by '{brief(codec)}', which unmix does "
                    "not read"
                )
        return bounded(found) if isinstance(found, zarr.Array) else found

    def above(self, node: Any) -> list[Any]:
        """Return the groups that a group or an array is in, from the root down."""
        groups, parts = [], self.name_of(node).split("/")
        for k in range(len(parts)):
            group = self.child(self.root, "/".join(parts[:k]))
            groups += [group] if isinstance(group, zarr.Group) else []
        return groups

    def members(self, group: Any) -> Iterator[tuple[str, Any]]:
        """Yield the readable groups and arrays in a group by name."""
        for name in sorted(self.names_in(group)):
            node = None
            try:
                node = self.child(group, name)
            except NotPlain:
                raise
            except Exception:  # a damaged or unknown neighbour is no fault of the cube's
                continue
            if node is not None:
                yield name, node

    def count(self, name: str) -> int:
        """Return how many chunks, or shards, an array has in a folder or an archive on this machine."""
        if self.archive is None:
            names = files_below(self.path / name)
        else:
            start = "".join(f"{part}/" for part in (str(self.root.path), name) if part)
            names = [one for one in self.archive if one.startswith(start)]
        return sum(one.rpartition("/")[2] not in (*ZARR_DOCUMENTS, ".zattrs", "") for one in names)

    def names_in(self, group: Any) -> set[str]:
        """Return the names in a group that may be of groups or arrays; see `members`."""
        known = group.metadata.consolidated_metadata
        if known is not None:
            return {name.partition("/")[0] for name in known.metadata}
        own = self.name_of(group)
        if self.archive is not None:
            start = f"{group.path}/" if group.path else ""
            return {name[len(start) :].partition("/")[0] for name in self.archive if name.startswith(start)} - {""}
        if not isinstance(self.path, RemotePath):
            with os.scandir(self.path / own) as entries:  # without links, which may lead in a circle
                return {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
        if self.path.parts[0] == "s3:":
            with contextlib.suppress(Exception):
                return {name for name, _ in group.members()}
        raise CubeError(
            f"{self.path}: the server does not list what is in the store, and it has no consolidated metadata; name "
            "the array with "
            "`dataset`"
        )


def codecs_of(array: Any) -> list[str]:
    """Return the names of the codecs of an array, those within shards among them."""
    about: dict[str, Any] = array.metadata.to_dict()
    named = [*(about.get("codecs") or ()), *(about.get("filters") or ()), about.get("compressor")]
    return names_of(named)


def names_of(codecs: Any) -> list[str]:
    """Return the names of codecs in metadata, and of the codecs within them."""
    names: list[str] = []
    for codec in codecs:
        if codec is None:
            continue
        about: dict[str, Any] = (
            codec if isinstance(codec, dict) else {"name": codec} if isinstance(codec, str) else config_of(codec)
        )
        names.append(str(about.get("name", about.get("id"))).removeprefix("numcodecs."))
        inner = about.get("configuration") or {}
        names += names_of([*(inner.get("codecs") or ()), *(inner.get("index_codecs") or ())])
    return names


def config_of(codec: Any) -> dict[str, Any]:
    """Return the configuration of a codec."""
    return dict(codec.to_dict() if hasattr(codec, "to_dict") else codec.get_config())


def type_read(array: Any) -> np.dtype | None:
    """Return the type that an array is read in, native byte order, uint8 for bool; None for an unsupported one."""
    kind = array.dtype
    if not isinstance(kind, np.dtype) or kind.kind not in "iufb":
        return None
    own = np.dtype(np.uint8) if kind.kind == "b" else type_of_attribute(kind, array.attrs)
    return own if own in DTYPES.values() else None


def dimensions_of(array: Any) -> list[str]:
    """Return the names of an array's axes, as in Zarr v3 or xarray's v2; empty where one has no name."""
    names = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS") or []
    is_named = isinstance(names, list | tuple) and all(isinstance(name, str) and name for name in names)
    return list(names) if is_named and len(names) == array.ndim else []


# Most chunks that one line may lie in: each is a file of its own, or a part of one.
MOST_CHUNKS = 20_000


@dataclass
class Slab:
    """An array that holds bands of a cube, all or one.

    Attributes
    ----------
    array : zarr.Array
    axes : str
        The meaning of each axis: y, x, b, or 1 for any other axis of length 1.
    """

    array: Any
    axes: str

    def read(self, lines: slice, samples: slice = slice(None), bands: slice = slice(None)) -> np.ndarray:
        """Return a part of the array as (bands, lines, samples), a view with the axes turned."""
        wanted = {"y": lines, "x": samples, "b": bands, "1": 0}
        values = np.asarray(self.array[tuple(wanted[axis] for axis in self.axes)])
        left = [axis for axis in self.axes if axis != "1"]
        if "b" not in left:
            values, left = values[None], ["b", *left]
        return values.transpose([left.index(axis) for axis in "byx"])

    @property
    def grid(self) -> list[int]:
        """The numbers of shards, or else of chunks, along its axes: each is a file, or a member of an archive."""
        return [-(-n // step) for n, step in zip(self.array.shape, self.array.shards or self.array.chunks)]

    def length(self, axis: str) -> int:
        """Return the array's length along y, x or b."""
        return int(self.array.shape[self.axes.index(axis)]) if axis in self.axes else 1

    def chunk(self, axis: str) -> int:
        """Return the length of a chunk along y, x or b: of the inner chunks of shards."""
        return int(self.array.chunks[self.axes.index(axis)]) if axis in self.axes else 1


@dataclass(eq=False)
class ZarrCube(Cube):
    """A cube in a Zarr store; see `unmix.io.cube.Cube` for the attributes.

    ``slabs`` are the arrays that hold its bands, in order, and ``names`` those of the arrays within the store.
    """

    slabs: list[Slab]
    names: list[str]

    def fill(self, lines: slice, filled: np.ndarray) -> None:
        """Fill an array with whole lines as stored."""
        (one, *others), order = self.slabs, {"bip": "yxb", "bil": "ybx", "bsq": "byx"}[self.interleave]
        if not others and one.axes == order and one.array.dtype == filled.dtype:
            wanted = tuple(lines if axis == "y" else slice(None) for axis in order)
            one.array.get_basic_selection(wanted, out=NDBuffer.from_numpy_array(filled))  # straight into its place
            return
        place = {"bip": (2, 0, 1), "bil": (1, 0, 2), "bsq": (0, 1, 2)}[self.interleave]
        out = filled.transpose(place)
        first = 0
        for slab in self.slabs:
            out[first : first + slab.length("b")] = slab.read(lines)
            first += slab.length("b")

    def storage(self) -> dict[str, Any]:
        """Return how the store holds the cube; see `unmix.io.cube.Cube.storage`."""
        arrays = [slab.array for slab in self.slabs]
        return {
            "datasets": [f"/{name}" for name in self.names],
            "zarr": arrays[0].metadata.zarr_format,
            "chunks": [list(array.chunks) for array in arrays],
            "shards": [None if array.shards is None else list(array.shards) for array in arrays],
            "codecs": [codecs_of(array) for array in arrays],
        }

    def keys(self) -> list[str]:
        """Return the names of some chunks within the store, spread evenly over each array."""
        names = []
        for slab, name in zip(self.slabs, self.names):
            array = slab.array
            prefix = f"{name}/" if name else ""
            grid, count = slab.grid, math.prod(slab.grid)
            for k in range(min(count, 64)):
                place = np.unravel_index(k * (count - 1) // max(1, min(count, 64) - 1), grid)
                names.append(prefix + array.metadata.encode_chunk_key(tuple(map(int, place))))
        return names


def cube_of(store: Store, slabs: list[Slab]) -> ZarrCube:
    """Return the cube of arrays of one size and type; it is inflated to a file where chunks hold many lines."""
    path, first, bands = store.path, slabs[0], sum(slab.length("b") for slab in slabs)
    lines, samples, dtype = first.length("y"), first.length("x"), type_read(first.array)
    names = [store.name_of(slab.array) for slab in slabs]
    name = f"/{brief(names[0]) if names[0] else ''}"
    assert dtype is not None
    if 0 in (lines, samples, bands):
        raise CubeError(f"{path}: {name} has the shape {first.array.shape}; a cube has three axes, none empty")
    if bands > MOST_BANDS:
        raise CubeError(f"{path}: {name} has {bands} bands as {first.axes}; is the order of its axes another?")
    chunk = max(math.prod(slab.array.chunks) * dtype.itemsize for slab in slabs)
    if chunk > LARGEST_CHUNK:
        raise CubeError(
            f"{path}: {name} has chunks of {chunk} bytes, more than {LARGEST_CHUNK >> 20} MiB; chunk it anew"
        )
    across = sum(-(-slab.length("b") // slab.chunk("b")) * -(-samples // slab.chunk("x")) for slab in slabs)
    if across > MOST_CHUNKS:
        raise CubeError(f"{path}: {name} has {across} chunks for a line; too many to be read: chunk it anew")
    order = "".join(axis for axis in first.axes if axis != "1")
    interleave = {"yxb": "bip", "ybx": "bil"}.get(order, "bsq")
    together = max(slab.chunk("y") for slab in slabs)
    cube = ZarrCube(
        path, "", "Zarr", lines, samples, bands, dtype, interleave, slabs, names, lines_together=min(together, lines)
    )
    if cube.lines_together * samples * bands * dtype.itemsize > MOST_TOGETHER and cube.lines_together > 1:
        shape = [bands, lines, samples]
        cube.scratch = ScratchFile(lambda: from_pieces(path, shape, dtype, pieces_of_array(path, slabs, dtype)))
        cube.interleave, cube.lines_together = "bsq", 1
    return cube


def pieces_of_array(path: Path, slabs: list[Slab], dtype: np.dtype) -> Iterator[tuple[list[int], np.ndarray]]:
    """Yield [band, line, sample] and values of whole chunks (bands, lines, samples), up to `MOST_OF_A_STRIP` bytes."""
    first = 0
    for slab in slabs:
        lengths, steps = ([part(axis) for axis in "byx"] for part in (slab.length, slab.chunk))
        for b, y, x in joined_chunks(lengths, steps, dtype.itemsize):
            try:
                values = slab.read(y, x, b)
            except CubeError:
                raise
            except Exception as error:  # zarr raises many kinds of errors for a damaged chunk
                raise CubeError(f"{path}: /{brief(slab.array.path)} cannot be inflated: {brief(error)}") from None
            yield [first + b.start, y.start, x.start], np.ascontiguousarray(values, dtype)
        first += slab.length("b")
