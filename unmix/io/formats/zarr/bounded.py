"""Bound reads of a Zarr store: only plain files within it, and chunks that inflate to what their metadata allow."""

import asyncio
import bz2
import functools
import gzip
import io
import lzma
import math
import os
import stat
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zarr.abc.codec import ArrayBytesCodec, BytesBytesCodec
from zarr.codecs import ShardingCodec, VLenUTF8Codec
from zarr.storage import LocalStore, ZipStore

from ....errors import CubeError, brief
from ...opening import LONGEST_HEADER
from ...remote.path import ZARR_DOCUMENTS

DOCUMENTS = (*ZARR_DOCUMENTS, ".zattrs")
# Bytes that checksums and the like add to a chunk.
MOST_ADDED = 1024
# Bytes of the largest file that is read where it is not known what it holds, and of the largest chunk of an array
# beside the cube.
LARGEST_FILE, LARGEST_BESIDE = 2**26, 2**26
# Bytes of an index of a shard, and of a name of a band.
LARGEST_INDEX, LONGEST_TEXT = 2**20, 2**12
# Bytes of a block of zstd, and times that a chunk without its size may have of them beyond its own: a block need not be
# full.
ZSTD_BLOCK, MOST_BLOCKS = 2**17, 4
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class NotPlain(CubeError):
    """A file of a store is a pipe, a device, a link out of the store, or too large."""


class Plain:
    """Refuses to read all but plain files within a store, and those above ``allowed``, bytes by path of an array."""

    @functools.cached_property
    def allowed(self) -> dict[str, int]:
        """The bytes of the largest file of each array that is known."""
        return {}

    def check(self, path: Path, key: str, size: int) -> None:
        """Raise `NotPlain` where a file is too large for what it is."""
        name = key.rpartition("/")[2]
        most = LONGEST_HEADER
        if name not in DOCUMENTS:
            folders = (key[:at] for at in range(len(key) - 1, 0, -1) if key[at] == "/")
            most = next((self.allowed[one] for one in (*folders, "") if one in self.allowed), LARGEST_FILE)
        if size > most:
            raise NotPlain(
                f"{path}: {brief(key)} has {size} bytes, more than its metadata allow ({most}); the store is damaged"
            )


class PlainFolder(Plain, LocalStore):
    """A store in a folder."""

    @functools.cached_property
    def place(self) -> Path:
        """Where it lies, without links."""
        return Path(self.root).resolve()

    def checked(self, key: str) -> None:
        """Refuse a key whose file is not plain; a file that is missing is none."""
        path = self.root / key
        try:
            status, real = path.stat(), Path(os.path.realpath(path))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise NotPlain(f"{self.root}: {brief(key)} cannot be read: {error.strerror}") from None
        if stat.S_ISDIR(status.st_mode):
            return
        if not real.is_relative_to(self.place):  # its folder may be a link, too
            raise NotPlain(f"{self.root}: {brief(key)} is a link out of the store; copy the file into it")
        if not stat.S_ISREG(status.st_mode):
            raise NotPlain(f"{self.root}: {brief(key)} is no regular file, but a pipe or a device; remove it")
        self.check(self.root, key, status.st_size)

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """Return the bytes of a file, as zarr asks for them."""
        self.checked(key)
        return await super().get(key, prototype, byte_range)

    async def get_partial_values(self, prototype: Any, key_ranges: Any) -> Any:
        """Return parts of files, as zarr asks for them."""
        wanted = list(key_ranges)
        for key, _ in wanted:
            self.checked(key)
        return await super().get_partial_values(prototype, wanted)


class PlainArchive(Plain, ZipStore):
    """A store in a ZIP archive, whose members inflate to the size that they are said to have, and no further."""

    def _get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Return the bytes of a member, as zarr asks for them."""
        if not self._is_open:
            self._sync_open()
        member = self._zf.NameToInfo.get(key)
        if member is not None:
            self.check(self.path, key, member.file_size)
        return super()._get(key, prototype, byte_range)


def bounded(array: Any) -> Any:
    """Make an array decode each chunk to no more bytes than its metadata allow, and return it."""
    inner, store = array.async_array, array.store
    if isinstance(store, Plain):  # what does not shrink takes a little more than it holds; of a shard, an index
        store.allowed[array.path] = 2 * math.prod(array.shards or array.chunks) * width_of_type(array) + LARGEST_INDEX
    pipeline = inner.codec_pipeline
    numbers = math.prod(array.chunks)
    codecs = [bounded_codec(codec, numbers, array) for codec in pipeline]
    object.__setattr__(inner, "codec_pipeline", type(pipeline).from_codecs(codecs))
    return array


def bounded_codec(codec: Any, numbers: int, array: Any) -> Any:
    """Return a codec that refuses to inflate more than ``numbers`` numbers, or a shard's chunk more than its own."""
    parts = codec, getattr(codec, "compressor", None), *(getattr(codec, "filters", None) or ())
    if any(isinstance(one, Bounded | InflaterV2) for one in parts):
        return codec  # of the array at a store's root, which is found again and again
    if isinstance(codec, ShardingCodec):
        numbers = math.prod(codec.chunk_shape)
        return ShardingCodec(
            chunk_shape=codec.chunk_shape,
            codecs=[bounded_codec(one, numbers, array) for one in codec.codecs],
            index_codecs=codec.index_codecs,
            index_location=codec.index_location,
        )
    most = numbers * width_of_type(array) + MOST_ADDED
    if isinstance(codec, BytesBytesCodec):
        return Inflater(codec, most)
    if isinstance(codec, VLenUTF8Codec):
        return Texts(codec, most)
    if hasattr(codec, "compressor"):  # the codec of Zarr v2, which has all in one
        filters = codec.filters and tuple(InflaterV2(one, most) for one in codec.filters)
        return replace(codec, compressor=codec.compressor and InflaterV2(codec.compressor, most), filters=filters)
    return codec


def width_of_type(array: Any) -> int:
    """Return the most bytes that an element of an array takes; filters may store numbers as types of up to 8."""
    if getattr(array.dtype, "kind", "O") not in "iufb":
        return max(LONGEST_TEXT, getattr(array.dtype, "itemsize", 0))
    return max(8, array.dtype.itemsize) if array.filters else int(array.dtype.itemsize)


@dataclass(frozen=True)
class Bounded:
    """A codec of Zarr v3 that decodes to at most ``most`` bytes."""

    own: Any
    most: int
    is_fixed_size = False

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        """Return the coded size of ``input_byte_length`` bytes, as the inner codec computes it."""
        return int(self.own.compute_encoded_size(input_byte_length, chunk_spec))


@dataclass(frozen=True)
class Inflater(Bounded, BytesBytesCodec):
    """A codec of Zarr v3 that inflates at most ``most`` bytes."""

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        about = self.own.to_dict()
        name, config = about["name"].removeprefix("numcodecs."), about.get("configuration") or {}
        packed = chunk_bytes.as_numpy_array().data
        raw = await asyncio.to_thread(inflated, name, config, packed, self.most)
        if raw is not None:
            return chunk_spec.prototype.buffer.from_bytes(raw)
        return await self.own._decode_single(chunk_bytes, chunk_spec)


@dataclass(frozen=True)
class Texts(Bounded, ArrayBytesCodec):
    """The codec of texts of Zarr v3, which makes a list of as many as a chunk says."""

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        inflated("vlen-utf8", {}, chunk_bytes.as_numpy_array().data, self.most)
        return await self.own._decode_single(chunk_bytes, chunk_spec)


@dataclass(frozen=True)
class InflaterV2:
    """A codec of Zarr v2 that inflates at most ``most`` bytes."""

    own: Any
    most: int

    def decode(self, packed: Any, out: Any = None) -> Any:
        """Return what a chunk holds."""
        about = self.own.get_config()
        raw = inflated(about["id"], about, memoryview(packed).cast("B") if about["id"] in HELD else packed, self.most)
        return self.own.decode(packed, out) if raw is None else raw


def inflated(name: str, config: dict[str, Any], packed: Any, most: int) -> bytes | None:
    """Return an inflated chunk, or None where its own codec may inflate it; ValueError for more than ``most`` bytes."""
    if name in STREAMS:
        raw = STREAMS[name](packed, config).read(most + 1)
    else:
        raw = None
    size = len(raw) if raw is not None else SIZES[name](bytes(packed[:64]), packed, most) if name in SIZES else 0
    if size > most:
        raise ValueError(
            f"a chunk inflates to more than the {most} bytes that its metadata allow; the store is damaged"
        )
    return raw


class ZlibStream:
    """A zlib stream that is read like a file."""

    def __init__(self, packed: Any) -> None:
        self.packed, self.inflater = packed, zlib.decompressobj()

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes; `ValueError` where the stream is cut short."""
        raw = self.inflater.decompress(self.packed, size)
        if len(raw) < size and not self.inflater.eof:
            raise ValueError("a chunk is cut short")
        return raw


# Codecs that tell no size are inflated here, as far as they may; they are the libraries that numcodecs calls, too.
STREAMS: dict[str, Any] = {
    "gzip": lambda packed, _: gzip.GzipFile(fileobj=io.BytesIO(packed)),
    "zlib": lambda packed, _: ZlibStream(packed),
    "bz2": lambda packed, _: bz2.BZ2File(io.BytesIO(packed)),
    "lzma": lambda packed, config: lzma.LZMAFile(  # noqa: SIM115 - of bytes in memory
        io.BytesIO(packed), format=config.get("format", lzma.FORMAT_XZ), filters=config.get("filters")
    ),
}
# The size that other codecs say, by the first bytes of a chunk; what else they inflate is an error of theirs.
SIZES: dict[str, Any] = {
    "blosc": lambda head, _, most: int.from_bytes(head[4:8], "little"),
    "lz4": lambda head, _, most: int.from_bytes(head[:4], "little"),
    "vlen-utf8": lambda head, _, most: LONGEST_TEXT * int.from_bytes(head[:4], "little"),
    "zstd": lambda head, packed, most: zstd_size(head, packed, most),
}
HELD = {*STREAMS, *SIZES}


def zstd_size(head: bytes, packed: Any, most: int) -> int:
    """Return the size that a zstd frame states, else 0, or the total of its blocks where that is too large."""
    if head[:4] != ZSTD_MAGIC:
        raise ValueError("a chunk does not begin like zstd")
    flags = head[4]
    is_single, width = flags >> 5 & 1, (0, 2, 4, 8)[flags >> 6]
    at = 5 + (not is_single) + (0, 1, 2, 4)[flags & 3]
    width = width or is_single
    if width:
        return int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0)
    total, is_last = 0, False
    while not is_last and at + 3 <= len(packed):
        block = int.from_bytes(bytes(packed[at : at + 3]), "little")
        is_last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
        total += size if kind < 2 else ZSTD_BLOCK
        at += 3 + (1 if kind == 1 else size)
    # Only a single frame may leave its size unstated.
    if at + 4 * (flags >> 2 & 1) < len(packed):
        raise ValueError("a chunk has several frames of zstd, whose sizes are not known")
    return total if total > MOST_BLOCKS * most + ZSTD_BLOCK else 0
