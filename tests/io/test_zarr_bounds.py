"""Hostile Zarr stores: pipes, devices and links in them, and chunks that inflate to more than their metadata allow, are refused."""

import os
import shutil
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from conftest import PATIENCE, refused, rest_slow

import unmix
from unmix.io.cube import read_lines

zarr = pytest.importorskip("zarr")
numcodecs = pytest.importorskip("numcodecs")

SHAPE, MIB = (4, 64, 64), 2**20
VALUES = np.random.default_rng(0).random(SHAPE).astype("f4")
# Opens stores and reads them; a line for each that is refused. In a process of its own, since a test must not wait for
# ever.
READ = """
import sys, unmix
from unmix.io.cube import read_lines
for path in sys.argv[1:]:
    try:
        cube = unmix.open_cube(path)
        read_lines(cube, slice(0, cube.lines))
        print("read")
    except unmix.CubeError as error:
        print(error)
"""


def store(path: Path, version: int = 3, **how) -> Path:
    group = zarr.create_group(path, zarr_format=version)
    names = ["band", "y", "x"]
    how |= {"dimension_names": names} if version == 3 else {"attributes": {"_ARRAY_DIMENSIONS": names}}
    array = group.create_array("refl", shape=SHAPE, dtype="f4", **({"chunks": SHAPE} | how))
    array[...] = VALUES
    return path


def values_of(path: Path) -> np.ndarray:
    cube = unmix.open_cube(path)
    assert cube.interleave == "bsq"
    return read_lines(cube, slice(0, cube.lines))


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def outside(path: Path) -> None:
    secret = next(folder for folder in path.parents if folder.suffix == ".zarr").with_name("secret")
    secret.write_bytes(VALUES.tobytes())
    path.symlink_to(secret)


FILES = {
    3: ("zarr.json", "refl/zarr.json", "refl/c/0/0/0"),
    2: (".zgroup", "refl/.zarray", "refl/.zattrs", "refl/0.0.0"),
}


@pytest.mark.parametrize("plant", rest_slow([pipe, device, outside], pipe))
def test_what_is_no_file_of_the_store_is_refused(tmp_path, plant):
    places = [(version, name) for version, names in FILES.items() for name in names]
    paths = [store(tmp_path / f"{k}/c.zarr", version) for k, (version, _) in enumerate(places)]
    for path, (_, name) in zip(paths, places):
        (path / name).unlink()
        plant(path / name)
    done = subprocess.run([sys.executable, "-c", READ, *paths], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == len(places)
    for line, (_, name) in zip(said, places):
        if "/" in name or (plant is outside and name == "zarr.json"):
            assert "is no regular file" in line or "is a link out of the store" in line
            assert name.rpartition("/")[2] in line
        else:
            assert line != "read"  # what has no document at its root is no store


@pytest.mark.parametrize("codec", ["none", "gzip", "zlib", "bz2", "lzma", "zstd", "blosc", "lz4", "shuffle", "shard"])
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", ["", "refl"])
def test_an_array_at_the_root_is_read_as_one_in_a_group(tmp_path, codec, version, name):
    """Found twice, at the root, it was bounded twice: no chunk that was packed could be read."""
    how = (
        {"dimension_names": ["band", "y", "x"]}
        if version == 3
        else {"attributes": {"_ARRAY_DIMENSIONS": ["band", "y", "x"]}}
    )
    if codec == "shard" or version == 3:
        pack = {
            "gzip": zarr.codecs.GzipCodec(),
            "zstd": zarr.codecs.ZstdCodec(),
            "blosc": zarr.codecs.BloscCodec(),
        }.get(codec)
        how |= {"compressors": pack} | ({"shards": SHAPE} if codec == "shard" and version == 3 else {})
    elif codec == "shuffle":
        how |= {"filters": [numcodecs.Shuffle(4)], "compressors": None}
    else:
        how |= {"compressors": None if codec == "none" else numcodecs.get_codec({"id": codec})}
    path = tmp_path / "s.zarr"
    zarr.create_array(path, name=name or None, shape=SHAPE, chunks=(2, 32, 32), dtype="f4", zarr_format=version, **how)[
        ...
    ] = VALUES
    cube = unmix.open_cube(path, dataset=f"/{name}:byx")
    np.testing.assert_array_equal(read_lines(cube, slice(0, cube.lines)), VALUES)


def test_links_within_the_store_are_followed(tmp_path):
    path = store(tmp_path / "c.zarr")
    (path / "refl/c/0/0/0").rename(path / "kept")
    (path / "refl/c/0/0/0").symlink_to(path / "kept")
    np.testing.assert_array_equal(values_of(path), VALUES)


def unsized(raw: bytes) -> bytes:
    """A frame of zstd that does not say its size: zeros, in blocks of one repeated byte."""
    blocks, left = b"", len(raw)
    while left:
        size = min(left, 2**17)
        left -= size
        blocks += (size << 3 | 1 << 1 | (left == 0)).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\x00\x58" + blocks


PACKERS = {
    "gzip": numcodecs.GZip().encode,
    "zlib": numcodecs.Zlib().encode,
    "bz2": numcodecs.BZ2().encode,
    "lzma": numcodecs.LZMA().encode,
    "zstd": numcodecs.Zstd().encode,
    "zstd without size": unsized,
    "blosc": numcodecs.Blosc().encode,
    "lz4": numcodecs.LZ4().encode,
    "zstd twice": lambda raw: unsized(bytes(8)) + unsized(raw),
}
V2 = {
    "gzip": numcodecs.GZip(),
    "zlib": numcodecs.Zlib(),
    "bz2": numcodecs.BZ2(),
    "lzma": numcodecs.LZMA(),
    "zstd": numcodecs.Zstd(),
    "blosc": numcodecs.Blosc(),
    "lz4": numcodecs.LZ4(),
}
V3 = {"gzip": zarr.codecs.GzipCodec(), "zstd": zarr.codecs.ZstdCodec(), "blosc": zarr.codecs.BloscCodec()}
KINDS = (
    [(2, name) for name in V2]
    + [(3, name) for name in V3]
    + [(k, f"zstd {how}") for k in (2, 3) for how in ("without size", "twice")]
)
BOMB = 24 * MIB


@pytest.fixture(scope="module")
def bombs() -> dict[str, bytes]:
    raw = bytes(BOMB)
    return {name: bytes(pack(raw)) for name, pack in PACKERS.items()}


@pytest.mark.parametrize(
    ("version", "name"),
    rest_slow(KINDS, (2, "gzip"), (2, "blosc"), (2, "zstd twice"), (3, "zstd"), (3, "zstd without size")),
)
def test_a_chunk_inflates_to_no_more_than_its_metadata_allow(tmp_path, bombs, version, name):
    path = store(tmp_path / "c.zarr", version, compressors=(V2 if version == 2 else V3)[name.split()[0]])
    np.testing.assert_array_equal(values_of(path), VALUES)
    (path / FILES[version][-1]).write_bytes(bombs[name])
    refused(unmix.CubeError, r"more than the .* bytes that its metadata allow|several frames", held, values_of, path)


@pytest.fixture(scope="module", autouse=True)
def traced():
    """Memory is traced until all threads have ended: to stop beside one that inflates crashes Python (gh-128679)."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


def held(function, *arguments):
    """Call a function, and check the memory that Python's allocator took meanwhile, of which NumPy's is a part."""
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    try:
        return function(*arguments)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        assert peak - before < 20 * MIB


@pytest.mark.parametrize("size", [1, 100, 2**17 + 5])
def test_zstd_that_does_not_say_its_size_is_read(tmp_path, size):
    """As streams of other writers are; numcodecs inflates it."""
    from unmix.io.formats.zarr.bounded import inflated

    assert numcodecs.Zstd().decode(unsized(bytes(size))) == bytes(size)
    assert inflated("zstd", {}, unsized(bytes(size)), size) is None


def test_a_chunk_in_a_shard(tmp_path, bombs):
    path = store(tmp_path / "c.zarr", chunks=(2, 32, 32), shards=(4, 64, 64), compressors=zarr.codecs.GzipCodec())
    np.testing.assert_array_equal(values_of(path), VALUES)
    shard, bomb = (path / "refl/c/0/0/0").read_bytes(), bombs["gzip"]
    index = np.frombuffer(shard[-16 * 8 - 4 : -4], "<u8").copy().reshape(8, 2)
    index[3] = len(shard), len(bomb)
    crc = bytes(numcodecs.registry.get_codec({"id": "crc32c", "location": "end"}).encode(index.tobytes()))
    (path / "refl/c/0/0/0").write_bytes(shard + bomb + crc)
    refused(unmix.CubeError, r"more than the .* bytes that its metadata allow", held, values_of, path)


def test_members_of_an_archive(tmp_path):
    folder = store(tmp_path / "c.zarr", compressors=None)
    with zipfile.ZipFile(tmp_path / "c.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*.json")):
            archive.write(file, file.relative_to(folder))
        archive.writestr("refl/c/0/0/0", bytes(100 * MIB))
    refused(unmix.CubeError, "more than its metadata allow", held, values_of, tmp_path / "c.zip")


@pytest.mark.parametrize("name", ["refl/c/0/0/0", "refl/zarr.json"])
def test_a_file_with_a_hole(tmp_path, name):
    path = store(tmp_path / "c.zarr", compressors=None)
    with (path / name).open("r+b") as file:
        file.truncate(2**36)
    refused(unmix.CubeError, "more than its metadata allow", held, values_of, path)


def test_a_neighbour_that_inflates_is_left_out(tmp_path, bombs):
    path = store(tmp_path / "c.zarr")
    group = zarr.open_group(path)
    waves = group.create_array(
        "wavelength", shape=(4,), dtype="f8", compressors=zarr.codecs.GzipCodec(), dimension_names=["band"]
    )
    waves[...] = [400, 500, 600, 700]
    assert unmix.open_cube(path).wavelengths.tolist() == [400, 500, 600, 700]
    (path / "wavelength/c/0").write_bytes(bombs["gzip"])
    assert held(unmix.open_cube, path).wavelengths is None
    shutil.rmtree(path / "wavelength")
    group.create_array("wavelength", shape=(4,), chunks=(2**33,), dtype="f8", dimension_names=["band"])
    assert held(unmix.open_cube, path).wavelengths is None


@pytest.mark.parametrize("version", [2, 3])
def test_more_names_than_bands(tmp_path, version):
    """A chunk of texts says how many there are, and numcodecs makes a list of as many."""
    path = store(tmp_path / "c.zarr", version)
    how = {"dimension_names": ["band"]} if version == 3 else {"attributes": {"_ARRAY_DIMENSIONS": ["band"]}}
    names = zarr.open_group(path).create_array("band", shape=(4,), dtype=str, compressors=None, **how)
    names[...] = np.array(["a", "b", "c", "d"], object)
    assert unmix.open_cube(path).fields["band names"] == "a, b, c, d"
    chunk = path / ("band/c/0" if version == 3 else "band/0")
    chunk.write_bytes((2**28).to_bytes(4, "little") + chunk.read_bytes()[4:])
    assert "band names" not in held(unmix.open_cube, path).fields
