"""Scenes on servers, and maps in object stores: the same bytes as on a disk, whatever the server does."""

import contextlib
import gc
import json
import os
import pickle
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from conftest import cut_off, refused, rest_slow, write_csv, write_cube
from object_server import serving
from test_cli import unmix as command

import unmix
from unmix.errors import CubeError, MethodError, OutputError
from unmix.io.remote import RemotePath, is_remote, located
from unmix.io.remote import store as module
from unmix.io.remote.path import Version
from unmix.io.remote.store import store_of
from unmix.runs import scene_run
from unmix.runs import upload as uploading

obstore = pytest.importorskip("obstore")
boto3 = pytest.importorskip("boto3")

# How the runs of these tests extract their endmembers: the default would take ten times as long.
HOW = {"count": 4, "extract": "vca", "device": "cpu"}
FAST = ("-n", "4", "--extract", "vca")
FAILURES = {"drop": 10, "refuse": 10, "busy": 10, "short": 3}
WAVES = "{" + ", ".join(map(str, range(400, 2400, 170))) + "}"


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    """A folder with a scene of 60 lines."""
    rng = np.random.default_rng(3)
    spectra = rng.random((4, 12))
    values = rng.dirichlet(np.ones(4), (60, 20)) @ spectra
    folder = tmp_path / "archive"
    folder.mkdir()
    write_cube(folder / "scene.hdr", values.astype(np.float32), "bil", wavelength=WAVES)
    return folder


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """The URL of a simulated S3 with the bucket "maps"."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in credentials(f"http://{host}:{port}").items():
            patch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="maps")
        yield f"http://{host}:{port}"
    server.stop()
    gc.collect()  # clients that hold connections, and with them threads of the server


def credentials(endpoint: str) -> dict[str, str]:
    """Return an environment as the AWS tools read it."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


@pytest.fixture
def bucket(store: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[object]:
    """The bucket "maps", empty, and a work folder of this test's own."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    objects = boto3.resource("s3").Bucket("maps")
    objects.objects.all().delete()
    store_of.cache_clear()
    yield objects
    store_of.cache_clear()


def maps_in(folder: Path) -> dict[str, bytes]:
    """Return the outputs of a run but its record, by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if not path.name.endswith("_run.json")}


def maps_of(bucket) -> dict[str, bytes]:
    """Return the objects of a bucket but records, by their last names."""
    named = {one.key.rpartition("/")[2]: one for one in bucket.objects.all()}
    return {name: named[name].get()["Body"].read() for name in sorted(named) if not name.endswith("_run.json")}


def local_run(folder: Path, out: Path, **options: object) -> dict[str, bytes]:
    """Run the scene of a folder from the disk; return the maps."""
    unmix.run(folder / "scene.hdr", out_dir=out, **HOW, **options)
    return maps_in(out)


VALIDATORS = [("ETag", "Last-Modified"), ("ETag",), ("Last-Modified",), ("weak", "Last-Modified"), ("weak",)]


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A folder with a file of 10 MiB, three requests."""
    folder = tmp_path / "large"
    folder.mkdir()
    (folder / "x.bin").write_bytes(np.random.default_rng(5).bytes(10 * 2**20))
    return folder


def fetched_from(url: str) -> bytes:
    """Return the bytes of a file, by the requests of every reader."""
    path = located(f"{url}/x.bin")
    content = np.zeros(path.stat().st_size, np.uint8)
    module.fill(path, [(content, 0)])  # type: ignore[arg-type]
    return content.tobytes()


def changed(file: Path, later: float = 5.0) -> None:
    """Put another version in the place of a file, as servers do: at once."""
    new = file.with_name("new")
    new.write_bytes(file.read_bytes()[::-1])
    os.utime(new, (time.time() + later, time.time() + later))
    new.replace(file)


# Caches ignore conditions, or break off; some name a version with HEAD and none with a part of the file.
SERVERS = {
    "honoured": {},
    "ignored": {"conditions": False},
    "ignored and broken": {"conditions": False, "failing": {"drop": 1}},
    "bare parts": {"conditions": False, "bare_parts": True},
}
CHANGED = [(validators, server, at) for validators in VALIDATORS for server in SERVERS for at in (1, 3)]
QUICKLY = [
    *((one, server, 3) for one in VALIDATORS for server in ("ignored", "bare parts")),
    *((VALIDATORS[1], server, 3) for server in SERVERS),
    (VALIDATORS[0], "bare parts", 1),
]


@pytest.mark.parametrize(("validators", "server", "at"), rest_slow(CHANGED, *QUICKLY))
def test_two_versions_are_never_one_file(large: Path, validators: tuple[str, ...], server: str, at: int) -> None:
    """Each answer is compared with the opening, one that goes on after a lost connection too."""

    def before(number: int) -> None:
        if number == at:
            changed(large / "x.bin")

    said = "changed while it was read; this run leaves no"
    how = {"validators": validators, "before": before} | SERVERS[server]
    with serving(large, **how) as found, pytest.raises(CubeError, match=said):
        fetched_from(found.url)


@pytest.mark.parametrize("validators", [*VALIDATORS, ()], ids=str)
def test_parts_without_validators(large: Path, validators: tuple[str, ...]) -> None:
    """Servers that name a version with HEAD and none with a part of the file: what is absent is no change."""
    with serving(large, validators=validators, bare_parts=True) as server:
        assert fetched_from(server.url) == (large / "x.bin").read_bytes()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:{port}/x.hdr", "127.0.0.1:{port} does not answer: connection refused; "),
        ("http://nosuch.invalid/x.hdr", "nosuch.invalid does not answer: no such host; "),
    ],
)
def test_server_that_is_off(tmp_path: Path, url: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, with the name of the host."""
    monkeypatch.setattr("unmix.io.remote.store.FIRST_PERSEVERANCE", 0.2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    _, err = command("run", url.format(port=port), "-n", 3, "-o", tmp_path / "out", code=3)
    assert message.format(port=port) in err and len(err.strip().splitlines()) == 1, err


def test_versions_that_differ_in_size_alone(large: Path) -> None:
    """A server that names no versions: a size is all that it says."""

    def before(number: int) -> None:
        if number == 2:
            with open(large / "x.bin", "ab") as file:
                file.write(b"x")

    with (
        serving(large, validators=(), before=before) as server,
        pytest.raises(CubeError, match="changed while it was read"),
    ):
        fetched_from(server.url)


LOST = [(validators, kind) for validators in (*VALIDATORS, ()) for kind in ("drop", "less")]


@pytest.mark.parametrize(
    ("validators", "kind"), rest_slow(LOST, *((one, "drop") for one in (*VALIDATORS, ())), (VALIDATORS[0], "less"))
)
def test_lost_connections_go_on_where_they_ended(large: Path, validators: tuple[str, ...], kind: str) -> None:
    """Every second connection breaks off half way; what is left is asked for."""
    with serving(large, validators=validators, failing={kind: 2}) as server:
        assert fetched_from(server.url) == (large / "x.bin").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("validators", [("ETag",), pytest.param((), marks=pytest.mark.night)], ids=str)
def test_slow_line(large: Path, validators: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """A line on which no answer arrives within the time of one request: what arrived is kept."""
    monkeypatch.setattr(module, "REQUEST_SECONDS", 1)
    module.store_of.cache_clear()
    with serving(large, validators=validators, rate=2.5e6) as server:
        began = time.monotonic()
        assert fetched_from(server.url) == (large / "x.bin").read_bytes()
        assert time.monotonic() - began > 3
    module.store_of.cache_clear()


def test_line_that_is_silent(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that says nothing any more is given up, with what it did say."""
    monkeypatch.setattr(module, "PERSEVERANCE", 1)
    (large / "x.bin").write_bytes(bytes(1000))
    with serving(large, failing={"stall": 1}) as server:
        path = located(f"{server.url}/x.bin")
        path.stat()  # which a busy machine may take long to answer
        monkeypatch.setattr(module, "REQUEST_SECONDS", 0.3)
        monkeypatch.setattr(module, "client", lambda path: module.store_of(module.place_of(path), 1))
        module.store_of.cache_clear()
        # type: ignore[arg-type]
        refused(CubeError, r"reading failed at byte [0-9]+: ", module.fill, path, [(np.zeros(1000, np.uint8), 0)])
    module.store_of.cache_clear()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("misplaced", "reading failed at byte 0: Requested"),
        ("more", r"sends more than it is asked for|reading failed"),
        ("gzip", "as gzip"),
        ("multipart", "reading failed at byte 0"),
    ],
)
def test_answers_that_are_not_what_was_asked_for(large: Path, kind: str, message: str) -> None:
    with serving(large, failing={kind: 1}) as server, pytest.raises(CubeError, match=message) as error:
        fetched_from(server.url)
    assert "\n" not in str(error.value)


def test_redirects_are_followed(large: Path) -> None:
    with serving(large, failing={"redirect": 1}) as server:
        assert fetched_from(server.url) == (large / "x.bin").read_bytes()


# Ways of a server that cost time at most: it fails now and then, hides what it lacks as buckets do that may not be
# listed, or is away for some seconds.
WAYS = {
    "sound": {},
    "failing": {"failing": FAILURES},
    "hides": {"absent": 403},
    "away": {"outage": (5, 4.0)},
    "no HEAD": {"heads": False},  # as of addresses that are signed for GET alone
}


@pytest.mark.parametrize("way", WAYS)
def test_run_of_url_is_that_of_file(scene: Path, tmp_path: Path, way: str) -> None:
    expected = local_run(scene, tmp_path / "local")
    with serving(scene, **WAYS[way]) as server:
        url = f"{server.url}/scene.hdr"
        report = unmix.run(url, out_dir=tmp_path / "remote", **HOW, memory=20_000)
        assert report["input"]["path"] == f"{server.url}/scene.img"
        assert report["identity"]["data"]["etag"].startswith('"')
        assert maps_in(tmp_path / "remote") == expected
        if way in ("sound", "failing"):
            assert not command("verify", tmp_path / "remote" / "scene", "--all", "--cube", url)[1]
        if way == "hides":
            _, err = command("info", f"{server.url}/none.img", code=3)
            assert "none.img: no such file, or 127.0.0.1" in err and "wants a login" in err and "(403)" in err


def test_scene_in_store(scene: Path, bucket, tmp_path: Path) -> None:
    for path in scene.iterdir():
        bucket.upload_file(str(path), f"in/{path.name}")
    expected = local_run(scene, tmp_path / "local")
    out, _ = command("run", "s3://maps/in/scene.hdr", *FAST, "-o", "s3://maps/out", "--device", "cpu", "--json")
    record = json.loads(bucket.Object("out/scene_run.json").get()["Body"].read())
    assert json.loads(out)["digest"] == record["digest"]
    bucket.objects.filter(Prefix="in/").delete()
    assert maps_of(bucket) == expected
    assert not list((tmp_path / "tmp").rglob("*.img")), "nothing stays on the disk"


def emit_file(path: Path, values: np.ndarray, **how: object) -> None:
    """Write a cube (y, x, b) as EMIT's files have it."""
    with h5py.File(path, "w") as file:
        file.create_dataset("reflectance", data=values, **how)
        file["sensor_band_parameters/wavelengths"] = np.linspace(400, 2400, values.shape[2])
        file["sensor_band_parameters/fwhm"] = np.full(values.shape[2], 8.0)


def tiff_file(path: Path, values: np.ndarray, **how: object) -> None:
    """Write a cube (y, x, b) as GeoTIFF."""
    rasterio = pytest.importorskip("rasterio")
    shape = dict(zip(("height", "width", "count"), values.shape))
    with rasterio.open(path, "w", driver="GTiff", dtype="float32", **shape, **how) as file:
        file.write(values.transpose(2, 0, 1))


FILES = {
    "chunks.nc": lambda path, values: emit_file(path, values, chunks=(16, 16, 10), compression="gzip", shuffle=True),
    "contiguous.nc": emit_file,
    "tall.nc": lambda path, values: emit_file(path, values, chunks=(400, 40, 1), compression="gzip"),
    "tiles.tif": lambda path, values: tiff_file(
        path, values, tiled=True, blockxsize=32, blockysize=32, compress="deflate"
    ),
    "strips.tif": lambda path, values: tiff_file(path, values, interleave="pixel"),
}


@pytest.mark.parametrize(
    ("name", "failing"), [*((name, {}) for name in FILES), ("chunks.nc", FAILURES), ("tiles.tif", FAILURES)]
)
def test_other_formats(tmp_path: Path, name: str, failing: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """HDF5 and TIFF, read through pages that are fetched together; a tall chunk is inflated first."""
    monkeypatch.setattr("unmix.io.formats.hdf5.MOST_TOGETHER", 2**18)
    values = np.random.default_rng(1).random((400, 40, 30), np.float32)
    FILES[name](tmp_path / name, values)
    with serving(tmp_path, failing=failing) as server:
        here, there = unmix.open_cube(tmp_path / name), unmix.open_cube(f"{server.url}/{name}")
        buffers = [np.zeros(values.nbytes, np.uint8) for _ in range(2)]
        for first in range(0, 400, 70):
            lines = slice(first, min(first + 70, 400))
            np.testing.assert_array_equal(here.read(lines, buffers[0]), there.read(lines, buffers[1]))
        # Opening takes some requests, and the data few: pages that lie together are one request, chunks are never asked
        # for singly.
        assert len(server.requests) < 60


def test_resume_only_of_same_version(scene: Path, tmp_path: Path) -> None:
    expected = local_run(scene, tmp_path / "local")
    with serving(scene) as server:
        url = f"{server.url}/scene.hdr"
        cut_off(url, 20, out_dir=tmp_path / "out", memory=20_000, **HOW)
        assert unmix.run(url, out_dir=tmp_path / "out", **HOW)["resumed_from"] > 0
        assert maps_in(tmp_path / "out") == expected
        cut_off(url, 20, out_dir=tmp_path / "changed", memory=20_000, **HOW)
        data = bytearray((scene / "scene.img").read_bytes())
        data[-1:] = bytes([data[-1] ^ 1])
        (scene / "scene.img").write_bytes(data)
        refused(OutputError, "etag", unmix.run, url, out_dir=tmp_path / "changed", **HOW)


def test_resume_refused_without_version(scene: Path, tmp_path: Path) -> None:
    with serving(scene, validators=()) as server:
        url = f"{server.url}/scene.hdr"
        cut_off(url, 20, out_dir=tmp_path / "out", memory=20_000, **HOW)
        refused(OutputError, "neither ETag nor Last-Modified", unmix.run, url, out_dir=tmp_path / "out", **HOW)
        unmix.run(url, out_dir=tmp_path / "out", **HOW, overwrite=True)
    assert maps_in(tmp_path / "out") == local_run(scene, tmp_path / "local")


def test_upload_in_order(scene: Path, bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record goes last, and an upload that is cut off goes on; nothing is replaced that may not be."""
    expected = local_run(scene, tmp_path / "local")
    sent: list[str] = []
    failing = True

    def upload(file: Path, path: object) -> None:
        if failing and len(sent) == 3:
            raise OutputError("the store is full")
        sent.append(file.name)
        real(file, path)

    real = uploading.upload
    monkeypatch.setattr(uploading, "upload", upload)
    settings = {"out_dir": "s3://maps/x/y", **HOW}
    refused(OutputError, "full", unmix.run, scene / "scene.hdr", **settings)
    assert "x/y/scene_run.json" not in {one.key for one in bucket.objects.all()}
    failing = False
    sent.clear()
    unmix.run(scene / "scene.hdr", **settings)
    assert sent[-1] == "scene_run.json" and sent.count("scene_run.json") == 1
    assert maps_of(bucket) == expected
    refused(OutputError, "exists already", unmix.run, scene / "scene.hdr", **settings)
    assert unmix.run(scene / "scene.hdr", skip_existing=True, **settings)["skipped"]
    with pytest.raises(OutputError, match="of another run"):
        unmix.run(scene / "scene.hdr", skip_existing=True, method="nnls", **settings)


class Uploads:
    """Uploads of a run that can be made to fail after a number of files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.real, solve = uploading.upload, scene_run.fill
        self.allowed, self.solved = 10**6, 0

        def fill(*words: object) -> object:
            self.solved += 1
            return solve(*words)

        monkeypatch.setattr(uploading, "upload", self.upload)
        monkeypatch.setattr(scene_run, "fill", fill)

    def upload(self, file: Path, path: object) -> None:
        if self.allowed == 0:
            raise OutputError("cut off")
        self.allowed -= 1
        self.real(file, path)


def test_upload_of_another_run(scene: Path, bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps that wait in a work folder never replace a run that was finished in between, nor are they lost for other options."""
    upload = Uploads(monkeypatch)
    settings = {"out_dir": "s3://maps/other", **HOW, "work_dir": tmp_path / "work"}
    upload.allowed = 2
    refused(OutputError, "cut off", unmix.run, scene / "scene.hdr", **settings)
    upload.allowed = 100
    refused(OutputError, "wait in", unmix.run, scene / "scene.hdr", **settings, method="nnls", skip_existing=True)
    unmix.run(scene / "scene.hdr", **settings | {"work_dir": tmp_path / "elsewhere"}, method="nnls", overwrite=True)
    refused(OutputError, "exists already", unmix.run, scene / "scene.hdr", **settings)
    assert json.loads(bucket.Object("other/scene_run.json").get()["Body"].read())["method"] == "nnls"
    assert not list((tmp_path / "elsewhere").iterdir())


def test_upload_cut_off_under_overwrite(scene: Path, bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on with the maps that are finished, and leaves nothing of the run that it replaces."""
    upload = Uploads(monkeypatch)
    settings = {"out_dir": "s3://maps/again", **HOW, "work_dir": tmp_path / "work"}
    unmix.run(scene / "scene.hdr", **settings, residual=True)
    upload.allowed, upload.solved = 2, 0
    for allowed in (2, 3, 100):
        upload.allowed = allowed
        with contextlib.suppress(OutputError):
            unmix.run(scene / "scene.hdr", **settings, overwrite=True)
    assert upload.solved == 1
    record = json.loads(bucket.Object("again/scene_run.json").get()["Body"].read())
    assert set(maps_of(bucket)) == set(record["digests"]) and "scene_residual.img" not in record["digests"]
    assert not list((tmp_path / "work").iterdir()), "nothing stays on the disk"


def test_what_a_cut_leaves_is_cleared(scene: Path, bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps that were uploaded, but not deleted here any more, go with the next run, which is skipped."""
    settings = {"out_dir": "s3://maps/left", **HOW, "work_dir": tmp_path / "work"}
    with monkeypatch.context() as patch:
        patch.setattr(uploading, "remove", lambda *_: None)
        unmix.run(scene / "scene.hdr", **settings)
    assert list((tmp_path / "work").rglob("*.img"))
    assert unmix.run(scene / "scene.hdr", **settings, skip_existing=True)["skipped"]
    assert not list((tmp_path / "work").iterdir())


def test_store_that_cannot_be_written_to(scene: Path, bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found out before the work."""
    upload = Uploads(monkeypatch)
    with pytest.raises(OutputError, match="no such bucket"):
        unmix.run(scene / "scene.hdr", out_dir="s3://nobody/maps", **HOW, work_dir=tmp_path / "work")
    assert not upload.solved and not list((tmp_path / "work").iterdir())


def test_no_room_in_the_work_folder(scene: Path, bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the option that moves that folder: `--out-dir` is the store."""
    monkeypatch.setattr("unmix.runs.files.output_set.shutil.disk_usage", lambda _: SimpleNamespace(free=9))
    words = ("run", scene / "scene.hdr", *FAST, "-o", "s3://maps/full", "--work-dir", tmp_path / "work")
    _, err = command(*words, code=1)
    assert str(tmp_path / "work") in err and "use --work-dir" in err and "--out-dir" not in err
    assert not list(bucket.objects.all())


def test_plan_of_upload(scene: Path, bucket, tmp_path: Path) -> None:
    out, _ = command("run", scene / "scene.hdr", *FAST, "-o", "s3://maps/plan", "--dry-run", "--json")
    plan = json.loads(out)
    assert plan["outputs"][0] == "s3://maps/plan/scene_abundance.img" and not plan["outputs_that_exist"]
    assert not list(bucket.objects.all())


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["run", "{url}/none.hdr", "-o", "{out}"], 3, "none.hdr: no such file"),
        (["run", "{url}/scene.hdr"], 2, "name a folder with --out-dir"),
        (["run", "{url}/scene.hdr?X-Amz-Signature=secret", "-o", "{out}"], 2, "has a query"),
        (["run", "http://me:secret@127.0.0.1/scene.hdr", "-o", "{out}"], 2, "password"),
        (["run", "{scene}/scene.hdr", "-o", "{url}/maps"], 2, "not over HTTP"),
        (["ppi", "{scene}/scene.hdr", "-o", "s3://maps/x"], 2, "upload their maps"),
        (["run", "{scene}/scene.hdr", "--work-dir", "{out}"], 2, "--work-dir"),
        (["info", "{url}/cube.mat"], 3, "download it first"),
    ],
)
def test_refusals(scene: Path, tmp_path: Path, words: list[str], code: int, message: str) -> None:
    (scene / "cube.mat").write_bytes(b"MATLAB 5.0 MAT-file" + bytes(200))
    with serving(scene) as server:
        texts = [word.format(url=server.url, out=tmp_path / "out", scene=scene) for word in words]
        _, err = command(*texts, code=code)
    assert message in err and "secret" not in err and len(err.strip().splitlines()) == 1


def test_whole_files_only(scene: Path, tmp_path: Path) -> None:
    """Files of a server without byte ranges are refused."""
    with serving(scene, ranges=False) as server:
        _, err = command("run", f"{server.url}/scene.hdr", "-o", tmp_path / "o", code=3)
    assert "no byte ranges" in err and len(err.strip().splitlines()) == 1


def test_library_and_mask_of_server(scene: Path, tmp_path: Path) -> None:
    local_run(scene, tmp_path / "first")
    for path in (tmp_path / "first").glob("scene_endmembers.*"):
        (scene / path.name.replace("scene_endmembers", "library")).write_bytes(path.read_bytes())
    mask = np.ones((60, 20, 2), np.uint8)
    mask[:10] = 0
    write_cube(scene / "mask.hdr", mask, "bsq")
    unmix.run(scene / "scene.hdr", out_dir=tmp_path / "a", endmembers=scene / "library.sli", mask=f"{scene}/mask.hdr:2")
    with serving(scene) as server:
        names = {"endmembers": f"{server.url}/library.sli", "mask": "{dir}/mask.hdr:2"}
        report = unmix.run(f"{server.url}/scene.img", out_dir=tmp_path / "b", **names)
        assert report["pixels"]["masked"] == 200
        assert report["options"]["endmembers"] == f"{server.url}/library.sli"
    assert maps_in(tmp_path / "a") == maps_in(tmp_path / "b")


@pytest.mark.night
@pytest.mark.slow
def test_killed_at_any_moment(scene: Path, bucket, store: str, tmp_path: Path) -> None:
    """kill -9 at six moments of a run from a server to a store: the same command ends it, with a local run's maps."""
    rng = np.random.default_rng(8)
    values = rng.dirichlet(np.ones(4), (1500, 60)) @ rng.random((4, 12))
    write_cube(scene / "scene.hdr", values.astype(np.float32), "bil", wavelength=WAVES)
    expected = local_run(scene, tmp_path / "local")
    environment = os.environ | credentials(store) | {"TMPDIR": str(tmp_path / "tmp")}
    with serving(scene, failing=FAILURES, latency=0.002) as server:
        unmix_run = [sys.executable, "-m", "unmix", "run", "--device", "cpu", *FAST]
        words = [*unmix_run, f"{server.url}/scene.hdr", "-o", "s3://maps/killed"]
        began = time.monotonic()
        assert subprocess.run([*words, "--memory", "1M", "--dry-run"], env=environment).returncode == 0
        start = time.monotonic() - began
        ended = 0
        for moment in range(6):
            process = subprocess.Popen([*words, "--memory", "1M"], env=environment, stderr=subprocess.PIPE)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(start * 0.7 + random.Random(moment).random() * 1.5)
            process.send_signal(signal.SIGKILL)
            process.wait()
            ended += "killed/scene_run.json" in {one.key for one in bucket.objects.all()}
        last = subprocess.run([*words, "--memory", "1M", "--skip-existing"], env=environment)
        assert last.returncode == 0
    assert maps_of(bucket) == expected
    assert ended < 6


def test_names_of_urls() -> None:
    """A URL survives what is done to paths: siblings, pickling, one slash in place of two."""
    path = located("s3://bucket/a/b.hdr")
    assert isinstance(path, RemotePath)
    assert [str(path), str(path.with_suffix(".img")), str(path.parent / "c"), path.key] == [
        "s3://bucket/a/b.hdr",
        "s3://bucket/a/b.img",
        "s3://bucket/a/c",
        "a/b.hdr",
    ]
    assert (
        pickle.loads(pickle.dumps(path))
        == path
        == located("s3:/bucket/a/b.hdr")
        == located(Path("s3://bucket/a/b.hdr"))
    )
    assert not is_remote("s3") and not is_remote("/s3://x") and not is_remote("folder/https:/x")
    refused(MethodError, "query", located, "https://host/file.nc?signature=1")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://", "no name of a bucket"),
        ("s3:///maps/x", "no name of a bucket"),
        ("s3://bad bucket/x", "no name of a bucket"),
        ("gs://bucket/x", "is not read"),
        ("s3://maps/a//b", "empty part"),
        ("s3://maps/../b", "empty part, . or .."),
        ("https://h:99999/x", "no name of a server"),
        ("http://[::1/x", "no name of a server"),
        ("https://host/x?sig=secret", "query"),
        ("https://host/x#secret", "%23"),
        ("s3://maps/x?X-Amz-Signature=secret", "query"),
        ("https://me:secret@host/x", "password"),
    ],
)
def test_bad_urls(tmp_path: Path, url: str, message: str) -> None:
    """One line, no secret in it, and no folder of that name; in every command that takes one."""
    others = ["run x.hdr -o URL", "match x.hdr -e URL", "library info URL", "run --list URL", "verify URL"]
    for words in ("info URL", *(others if "password" in message else ())):
        _, err = command(*[word.replace("URL", url) for word in words.split()], code=2, cwd=tmp_path)
        assert message in err and "secret" not in err and len(err.strip().splitlines()) == 1
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words", [["report"], ["export", "-o", "x"], ["compare", "a"], ["stac"], ["status"], ["verify"]], ids=" ".join
)
def test_finished_runs_are_read_on_disk(words: list[str]) -> None:
    command(*words, "s3://maps/x", code=2, tells="after they have been downloaded")


@pytest.mark.parametrize("endpoint", ["", "127.0.0.1:9000"])
def test_endpoint_that_is_no_url(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    command("info", "s3://elsewhere/x.hdr", code=2, tells="AWS_ENDPOINT_URL")


def test_bucket_that_is_not_there(bucket, tmp_path: Path) -> None:
    _, err = command("run", "s3://other/x.hdr", "-n", 3, "-o", tmp_path / "out", code=3)
    assert "s3://other/x.hdr: no such file or bucket" in err


def test_names_in_urls_are_encoded(scene: Path) -> None:
    for ending in (".hdr", ".img"):
        (scene / f"scene{ending}").rename(scene / f"é b#{ending}")
    with serving(scene) as server:
        assert unmix.open_cube(f"{server.url}/%C3%A9%20b%23.hdr").lines == 60


@pytest.mark.slow
def test_every_file_may_be_remote(scene: Path, tmp_path: Path) -> None:
    """Noise, weights, classes, wavelengths, lists and libraries, in every command that reads them."""
    rng = np.random.default_rng(4)
    waves = np.arange(400, 2400, 170)
    local_run(scene, tmp_path / "first")
    names = [f"em {k + 1}" for k in range(4)]
    write_csv(scene / "library.csv", rng.random((12, 4)), waves)
    (scene / "classes.csv").write_text(
        "name,kind\n" + "".join(f"{name},{'ab'[k % 2]}\n" for k, name in enumerate(names))
    )
    (scene / "noise.txt").write_text("0.01\n" * 12)
    (scene / "weights.txt").write_text("1\n" * 11 + "2\n")
    write_cube(scene / "noise.hdr", np.full((60, 20, 12), 0.01, np.float32), "bil", wavelength=WAVES)
    (scene / "axis.txt").write_text("".join(f"{wave}\n" for wave in waves))
    with h5py.File(scene / "plain.h5", "w") as file:
        file["cube"] = rng.random((10, 8, 12))
    (scene / "list.txt").write_text("")
    trial = ["--device", "cpu", "--overwrite"]
    commands = [
        ["run", "B/scene.hdr", "-e", "B/library.csv", "--classes", "B/classes.csv:kind", "--by", "class", *trial],
        ["run", "B/scene.hdr", "-e", "B/library.csv", "--uncertainty", "--noise", "B/noise.txt", *trial],
        ["run", "B/scene.hdr", "-e", "B/library.csv", "--uncertainty", "--noise", "B/noise.hdr", *trial],
        ["run", "B/scene.hdr", "-e", "B/library.csv", "--weights", "B/weights.txt", *trial],
        ["match", "B/scene.hdr", "-e", "B/library.csv", "--overwrite"],
    ]
    with serving(scene) as server:
        for words in commands:
            written = {}
            for base in (str(scene), server.url):
                out = tmp_path / f"out{len(base)}"
                command(*[word.replace("B/", f"{base}/") for word in words], "-o", out)
                written[base] = maps_in(out)
            assert written[str(scene)] == written[server.url], words
        (scene / "list.txt").write_text(f"{server.url}/scene.hdr\n")
        command("run", "--list", f"{server.url}/list.txt", *FAST, "--device", "cpu", "-o", tmp_path / "listed")
        for words in (
            ["check", "B/scene.hdr", "-e", "B/library.csv"],
            ["library", "info", "B/library.csv"],
            ["info", "B/plain.h5", "--dataset", "/cube:yxb", "--wavelengths", "B/axis.txt"],
            ["bands", "B/library.csv", "-m", "2", "-o", str(tmp_path / "bands"), "--overwrite"],
        ):
            texts = {
                base: command(*[word.replace("B/", f"{base}/") for word in words])[0]
                for base in (str(scene), server.url)
            }
            assert (
                texts[str(scene)].replace(str(scene), "") == texts[server.url].replace(server.url, "")
                or words[0] == "check"
            )


# Options that name a file, and the name of an output that the file has; the place of the file stands for X.
ROLES = {
    "library": ("s_endmembers.csv", ["-e", "X"]),
    "data of a library": ("s_endmembers.sli", ["-e", "X"]),
    "header of a library": ("s_endmembers.hdr", ["-e", "X"]),
    "shade": ("s_endmembers.csv", ["-e", "B/e.csv", "--method", "pcls", "--shade", "X"]),
    "classes": ("s_run.json", ["-e", "B/e.csv", "--classes", "X:kind", "--by", "class"]),
    "noise": ("s_run.json", ["-e", "B/e.csv", "--uncertainty", "--noise", "X"]),
    "noise of pixels": ("s_rmse.hdr", ["-e", "B/e.csv", "--uncertainty", "--noise", "X"]),
    "weights": ("s_run.json", ["-e", "B/e.csv", "--weights", "X"]),
    "wavelengths": ("s_run.json", ["-e", "B/e.csv", "--wavelengths", "X"]),
    "data whose header has wavelengths": ("s_endmembers.sli", ["-e", "B/e.csv", "--wavelengths", "X"]),
    "header with wavelengths": ("s_endmembers.hdr", ["-e", "B/e.csv", "--wavelengths", "X"]),
    "mask": ("s_rmse.hdr", ["-e", "B/e.csv", "--mask", "X"]),
    "mask of pixels that are left out": ("s_rmse.hdr", ["-e", "B/e.csv", "--mask-out", "X"]),
    "mask of extraction": ("s_rmse.hdr", ["-n", "3", "--extract-mask", "X"]),
    "list": ("s_run.json", ["-e", "B/e.csv", "--list", "X"]),
}


# A file of each kind in a store; a store asks for ten times the time of a disk.
STORED = ("library", "data of a library", "noise of pixels", "wavelengths", "list")
PLACES = [*((role, "disk", "--skip-existing") for role in ROLES), *((role, "store", "--overwrite") for role in ROLES)]


@pytest.mark.parametrize(
    ("role", "at", "allowed"),
    rest_slow(PLACES, *(place for place in PLACES if place[1] == "disk" or place[0] in STORED)),
)
def test_no_input_is_replaced(bucket, tmp_path: Path, role: str, at: str, allowed: str) -> None:
    """Whatever names a file: where an output would take its name nothing is written, on the disk and in a store alike."""
    name, words = ROLES[role]
    folder = tmp_path / "in"
    folder.mkdir()
    rng, waves = np.random.default_rng(5), np.arange(400, 2400, 170)
    write_cube(folder / "s.hdr", rng.random((6, 5, 12)).astype(np.float32), "bil", wavelength=WAVES)
    library = write_csv(folder / "e.csv", rng.random((12, 3)), waves)
    content = {
        "shade": "wavelength,dark\n" + "".join(f"{wave},0.01\n" for wave in waves),
        "classes": "name,kind\nem 1,a\nem 2,b\nem 3,a\n",
        "wavelengths": "".join(f"{wave}\n" for wave in waves),
        "list": "B/s.hdr\n",
    }
    base = str(folder) if at == "disk" else "s3://maps/in"
    if role == "library":
        library.rename(folder / name)
    elif name.startswith("s_endmembers.") and role != "shade":
        unmix.load_library(library).write(None, folder / "s_endmembers.sli", folder / "s_endmembers.hdr")
    elif name.endswith(".hdr"):
        bands = 12 if role == "noise of pixels" else 1
        values = np.ones((6, 5, bands), np.float32 if bands > 1 else np.uint8)
        write_cube(folder / name, values, "bil", **({"wavelength": WAVES} if bands > 1 else {}))
    else:
        (folder / name).write_text(content.get(role, "1\n" * 12).replace("B/", f"{base}/"))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    if at == "store":
        for file, data in before.items():
            bucket.put_object(Key=f"in/{file}", Body=data)
    given = [word.replace("B/", f"{base}/").replace("X", f"{base}/{name}") for word in words]
    scenes = [] if role == "list" else [f"{base}/s.hdr"]
    _, error = command("run", *scenes, *given, "-o", base, "--device", "cpu", allowed, code=2)
    assert "would replace" in error and Path(name).stem in error
    after = (
        {path.name: path.read_bytes() for path in folder.iterdir()}
        if at == "disk"
        else {one.key.rpartition("/")[2]: one.get()["Body"].read() for one in bucket.objects.all()}
    )
    assert after == before


def test_little_is_fetched(tmp_path: Path) -> None:
    """Opening a TIFF, and reading some lines, does not download it."""
    values = np.random.default_rng(1).random((400, 64, 60), np.float32)
    tiff_file(tmp_path / "t.tif", values, tiled=True, blockxsize=32, blockysize=32, interleave="pixel")
    with serving(tmp_path) as server:
        unmix.open_cube(f"{server.url}/t.tif").read(slice(96, 128), np.zeros(32 * 64 * 60 * 4, np.uint8))
        ends = [one[2].removeprefix("bytes=").partition("-") for one in server.requests if one[0] == "GET"]
    assert sum(int(last) - int(first) for first, _, last in ends) < values.nbytes / 5


def test_outputs_in_lists_are_left_out(scene: Path, tmp_path: Path) -> None:
    local_run(scene, scene)
    with serving(scene) as server:
        urls = [f"{server.url}/scene.hdr", f"{server.url}/scene_abundance.img"]
        command("run", *urls, *FAST, "--device", "cpu", "-o", tmp_path / "out")
    assert not list((tmp_path / "out").glob("scene_abundance_*"))


def test_copies_are_one_scene(scene: Path, tmp_path: Path) -> None:
    """Whoever downloads scene and maps can verify them; where the scene is not on a server any more, that is said."""
    with serving(scene) as server:
        unmix.run(f"{server.url}/scene.hdr", out_dir=tmp_path / "out", **HOW)
        command("verify", tmp_path / "out/scene", "--cube", f"{server.url}/scene.hdr")
        for words in (["bands"], ["ppi"], ["mnf"]):
            command(*words, f"{server.url}/scene.hdr", code=2, tells="cannot be written beside it")
    command("verify", tmp_path / "out/scene", "--cube", scene / "scene.hdr")
    data = scene / "scene.img"
    data.write_bytes(data.read_bytes()[::-1])
    command("verify", tmp_path / "out/scene", "--cube", scene / "scene.hdr", code=1, tells="is not what the run read")


@pytest.mark.parametrize(("at_once", "ends_well"), [(2**20, True), (4096, True), (7, False), (0, False)])
def test_older_obstore_hands_out_short_answers(monkeypatch: pytest.MonkeyPatch, at_once: int, ends_well: bool) -> None:
    """What arrived is kept and the rest asked for; whoever sends next to nothing is given up."""
    content = bytes(range(256)) * 128
    path = located("https://host/key")
    path._version = Version(len(content), None, None)  # type: ignore[attr-defined]

    class Answer:
        meta = {"size": len(content), "e_tag": None, "last_modified": datetime.fromtimestamp(0, UTC)}  # noqa: RUF012
        attributes: dict[str, str] = {}  # noqa: RUF012

        def __init__(self, first: int, last: int) -> None:
            self.part = content[first : min(last, first + at_once)]

        def stream(self, _: int) -> list[bytes]:
            return [self.part] if self.part else []

    monkeypatch.setattr(obstore, "get", lambda _, key, options: Answer(*options["range"]))
    part = np.zeros(len(content), np.uint8)
    if ends_well:
        module.fill_part(path, part, 0)
        assert part.tobytes() == content
    else:
        refused(CubeError, "sends less than it is asked for", module.fill_part, path, part, 0)
