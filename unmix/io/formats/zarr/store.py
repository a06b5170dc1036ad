"""Open Zarr stores, and what is in them, by the library zarr."""

from pathlib import Path
from typing import Any

import zarr
from zarr.storage import LocalStore, ObjectStore, ZipStore

from ...remote import RemotePath


def opened(path: Path) -> Any:
    """Return the root of a store, or the group or array in a store that a path names: zarr's Group or Array."""
    if isinstance(path, RemotePath):
        from ...remote.store import client

        return zarr.open(ObjectStore(client(path), read_only=True), path=path.key, mode="r")
    if path.is_file():
        return zarr.open(ZipStore(path, read_only=True), mode="r")
    return zarr.open(LocalStore(path, read_only=True), mode="r")


def child(node: Any, name: str) -> Any:
    """Return the group or array of a name in a group, or the node itself for no name; None where there is none."""
    name = name.strip("/")
    if not name:
        return node
    if not isinstance(node, zarr.Group):
        return None
    try:
        return node[name]
    except (KeyError, ValueError):  # ValueError: .. or . in it
        return None


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
