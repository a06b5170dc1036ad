"""Open Zarr stores, and what is in them, by the library zarr; nothing is decoded by a codec that is not known."""

import contextlib
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import zarr
from zarr.storage import ObjectStore

from ....errors import CubeError
from ...fields import DTYPES
from ...folder import files_below
from ...read import brief
from ...remote import RemotePath
from ...remote.path import ZARR_DOCUMENTS
from ..cf import type_of
from .bounded import NotPlain, PlainArchive, PlainFolder, bounded

# Codecs of arrays that are read. Some of numcodecs run what a chunk says, such as pickle, and old versions hold none of them back.
CODECS = frozenset({
    "bytes", "transpose", "sharding_indexed", "gzip", "zlib", "zstd", "blosc", "lz4", "bz2", "lzma", "shuffle", "delta",
    "crc32c", "crc32", "adler32", "fletcher32", "jenkins_lookup3", "fixedscaleoffset", "quantize", "bitround", "packbits", "astype",
    "vlen-utf8", "string",
})  # fmt: skip


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
        """Return the folder of a ZIP archive that has the store, empty for the archive itself; `CubeError` where there is none."""
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
        """Return the group or array of a name in a group, or the node itself for no name; None where there is none.

        Raises
        ------
        CubeError
            Where it is an array with a codec that is not in `CODECS`, or a file that is not plain.
        """
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
                    f"{self.path}: /{brief(self.name_of(found) or '.')} is coded by '{brief(codec)}', which unmix does not read"
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
        """Yield the groups and arrays in a group by name; those that cannot be read are left out.

        Raises
        ------
        CubeError
            Where the server does not list them.
        """
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
        """Return the names of what may be a group or an array in a group; see `members`."""
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
            f"{self.path}: the server does not list what is in the store, and it has no consolidated metadata; name the array with "
            "`dataset`"
        )


def codecs_of(array: Any) -> list[str]:
    """Return the names of the codecs of an array, those within shards among them."""
    about: dict[str, Any] = array.metadata.to_dict()
    named = [*(about.get("codecs") or ()), *(about.get("filters") or ()), about.get("compressor")]
    return names_of(named)


def names_of(codecs: Any) -> list[str]:
    """Return the names of codecs in metadata, and of those that they are made of."""
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
    """Return what a codec of the library says of itself."""
    return dict(codec.to_dict() if hasattr(codec, "to_dict") else codec.get_config())


def type_read(array: Any) -> np.dtype | None:
    """Return the type in which an array is read, in native byte order: that of its numbers, of bool uint8; None for any other."""
    kind = array.dtype
    if not isinstance(kind, np.dtype) or kind.kind not in "iufb":
        return None
    own = np.dtype(np.uint8) if kind.kind == "b" else type_of(kind, array.attrs)
    return own if own in DTYPES.values() else None


def dimensions_of(array: Any) -> list[str]:
    """Return the names of an array's axes, as Zarr v3 has them, or xarray writes them in v2; empty where one has none."""
    names = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS") or []
    is_named = isinstance(names, list | tuple) and all(isinstance(name, str) and name for name in names)
    return list(names) if is_named and len(names) == array.ndim else []
