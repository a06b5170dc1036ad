"""Scenes on servers, and maps in object stores: the same bytes as on a disk, whatever the server does."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import write_cube
from object_server import serving
from test_cli import unmix as command

import unmix
from unmix.errors import CubeError, MethodError, OutputError

obstore = pytest.importorskip("obstore")
boto3 = pytest.importorskip("boto3")

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
    from unmix.io.remote.store import store_of

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
    unmix.run(folder / "scene.hdr", out_dir=out, count=4, device="cpu", **options)
    return maps_in(out)


@pytest.mark.parametrize("failing", [{}, FAILURES, {"short": 2}, {"drop": 3}], ids=str)
def test_run_of_url_is_that_of_file(scene: Path, tmp_path: Path, failing: dict[str, int]) -> None:
    """A server that fails now and then costs time only."""
    expected = local_run(scene, tmp_path / "local")
    with serving(scene, failing=failing) as server:
        report = unmix.run(f"{server.url}/scene.hdr", out_dir=tmp_path / "remote", count=4, device="cpu", memory=20_000)
        assert report["input"]["path"] == f"{server.url}/scene.img"
        assert report["identity"]["data"]["etag"].startswith('"')
        assert maps_in(tmp_path / "remote") == expected
        verdict = command("verify", tmp_path / "remote" / "scene", "--all")
        assert not verdict[1]


def test_scene_in_store(scene: Path, bucket, tmp_path: Path) -> None:
    for path in scene.iterdir():
        bucket.upload_file(str(path), f"in/{path.name}")
    expected = local_run(scene, tmp_path / "local")
    out, _ = command("run", "s3://maps/in/scene.hdr", "-n", 4, "-o", "s3://maps/out", "--device", "cpu", "--json")
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


@pytest.mark.parametrize("failing", [{}, FAILURES], ids=["sound", "failing"])
@pytest.mark.parametrize("name", FILES)
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
        # Opening takes some requests, and the data few: pages that lie together are one request, chunks are never asked for singly.
        assert len(server.requests) < 60


@pytest.mark.parametrize("validators", [("ETag",), ("Last-Modified",), ("weak", "Last-Modified")], ids=str)
def test_change_while_read(scene: Path, validators: tuple[str, ...]) -> None:
    """Every request is for the version that was opened."""
    with serving(scene, validators=validators) as server:
        cube = unmix.open_cube(f"{server.url}/scene.hdr")
        data = scene / "scene.img"
        data.write_bytes(bytes(reversed(data.read_bytes())))
        os.utime(data, (time.time() + 5, time.time() + 5))
        with pytest.raises(CubeError, match="changed while it was read"):
            cube.read(slice(0, 5), np.zeros(10**6, np.uint8))


class Cut(Exception):
    """Cuts a run off."""


def cut_off(url: str, out: Path | str, **options: object) -> None:
    """Run a scene until a third of its lines is done."""

    def stop(step: object) -> None:
        if step.done >= step.total // 3:  # type: ignore[attr-defined]
            raise Cut

    with pytest.raises(Cut):
        unmix.run(url, out_dir=out, count=4, device="cpu", memory=20_000, progress=stop, **options)


def test_resume_only_of_same_version(scene: Path, tmp_path: Path) -> None:
    expected = local_run(scene, tmp_path / "local")
    with serving(scene) as server:
        url = f"{server.url}/scene.hdr"
        cut_off(url, tmp_path / "out")
        report = unmix.run(url, out_dir=tmp_path / "out", count=4, device="cpu")
        assert report["resumed_from"] > 0
        assert maps_in(tmp_path / "out") == expected
        cut_off(url, tmp_path / "changed")
        data = bytearray((scene / "scene.img").read_bytes())
        data[-1:] = bytes([data[-1] ^ 1])
        (scene / "scene.img").write_bytes(data)
        with pytest.raises(OutputError, match="etag"):
            unmix.run(url, out_dir=tmp_path / "changed", count=4, device="cpu")


def test_resume_refused_without_version(scene: Path, tmp_path: Path) -> None:
    with serving(scene, validators=()) as server:
        url = f"{server.url}/scene.hdr"
        cut_off(url, tmp_path / "out")
        with pytest.raises(OutputError, match="neither ETag nor Last-Modified"):
            unmix.run(url, out_dir=tmp_path / "out", count=4, device="cpu")
        unmix.run(url, out_dir=tmp_path / "out", count=4, device="cpu", overwrite=True)
    assert maps_in(tmp_path / "out") == local_run(scene, tmp_path / "local")


def test_upload_in_order(scene: Path, bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record goes last, and an upload that is cut off goes on; nothing is replaced that may not be."""
    from unmix.jobs import stored

    expected = local_run(scene, tmp_path / "local")
    sent: list[str] = []
    failing = True

    def upload(file: Path, path: object) -> None:
        if failing and len(sent) == 3:
            raise OutputError("the store is full")
        sent.append(file.name)
        real(file, path)

    real = stored.upload
    monkeypatch.setattr(stored, "upload", upload)
    settings = {"out_dir": "s3://maps/x/y", "count": 4, "device": "cpu"}
    with pytest.raises(OutputError, match="full"):
        unmix.run(scene / "scene.hdr", **settings)
    assert "x/y/scene_run.json" not in {one.key for one in bucket.objects.all()}
    failing = False
    sent.clear()
    unmix.run(scene / "scene.hdr", **settings)
    assert sent[-1] == "scene_run.json" and sent.count("scene_run.json") == 1
    assert maps_of(bucket) == expected
    with pytest.raises(OutputError, match="exists already"):
        unmix.run(scene / "scene.hdr", **settings)
    assert unmix.run(scene / "scene.hdr", skip_existing=True, **settings)["skipped"]
    with pytest.raises(OutputError, match="of another run"):
        unmix.run(scene / "scene.hdr", skip_existing=True, method="nnls", **settings)
    unmix.run(scene / "scene.hdr", overwrite=True, residual=True, **settings)
    assert "scene_residual.img" in maps_of(bucket)
    unmix.run(scene / "scene.hdr", overwrite=True, **settings)
    assert maps_of(bucket) == expected, "outputs of the replaced run are gone"


def test_plan_of_upload(scene: Path, bucket, tmp_path: Path) -> None:
    out, _ = command("run", scene / "scene.hdr", "-n", 4, "-o", "s3://maps/plan", "--dry-run", "--json")
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
    with serving(scene, ranges=False) as server:
        _, err = command("run", f"{server.url}/scene.hdr", "-o", tmp_path / "out", code=3)
    assert "no byte ranges" in err


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


@pytest.mark.slow
def test_killed_at_any_moment(scene: Path, bucket, store: str, tmp_path: Path) -> None:
    """kill -9 at ten moments of a run from a server to a store: the same command ends it, with a local run's maps."""
    rng = np.random.default_rng(8)
    values = rng.dirichlet(np.ones(4), (1500, 60)) @ rng.random((4, 12))
    write_cube(scene / "scene.hdr", values.astype(np.float32), "bil", wavelength=WAVES)
    expected = local_run(scene, tmp_path / "local")
    environment = os.environ | credentials(store) | {"TMPDIR": str(tmp_path / "tmp")}
    with serving(scene, failing=FAILURES, latency=0.002) as server:
        unmix_run = [sys.executable, "-m", "unmix", "run", "--device", "cpu", "-n", "4"]
        words = [*unmix_run, f"{server.url}/scene.hdr", "-o", "s3://maps/killed"]
        began = time.monotonic()
        assert subprocess.run([*words, "--memory", "1M", "--dry-run"], env=environment).returncode == 0
        start = time.monotonic() - began
        ended = 0
        for moment in range(10):
            process = subprocess.Popen([*words, "--memory", "1M"], env=environment, stderr=subprocess.PIPE)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(start * 0.7 + random.Random(moment).random() * 1.5)
            process.send_signal(signal.SIGKILL)
            process.wait()
            ended += "killed/scene_run.json" in {one.key for one in bucket.objects.all()}
        last = subprocess.run([*words, "--memory", "1M", "--skip-existing"], env=environment)
        assert last.returncode == 0
    assert maps_of(bucket) == expected
    assert ended < 10


def test_names_of_urls() -> None:
    """A URL survives what is done to paths: siblings, pickling, one slash in place of two."""
    import pickle

    from unmix.io.remote import RemotePath, is_remote, located

    path = located("s3://bucket/a/b.hdr")
    assert isinstance(path, RemotePath)
    assert [str(path), str(path.with_suffix(".img")), str(path.parent / "c"), path.key] == [
        "s3://bucket/a/b.hdr", "s3://bucket/a/b.img", "s3://bucket/a/c", "a/b.hdr",
    ]  # fmt: skip
    assert (
        pickle.loads(pickle.dumps(path))
        == path
        == located("s3:/bucket/a/b.hdr")
        == located(Path("s3://bucket/a/b.hdr"))
    )
    assert not is_remote("s3") and not is_remote("/s3://x") and not is_remote("folder/https:/x")
    with pytest.raises(MethodError, match="query"):
        located("https://host/file.nc?signature=1")
