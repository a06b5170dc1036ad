"""Logins: sent to the host that they are for, by a way that nobody hears, and written nowhere."""

import base64
import json
import logging
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import patience, refused, wait_until, write_cube
from object_server import ObjectServer, serving
from test_cli import unmix as command

import unmix
from unmix.errors import CubeError, MethodError
from unmix.io.remote import logins

pytest.importorskip("obstore")
SECRET = "eyJ0eXAiOiJKV1Qi.hush-hush_0123456789"
BEARER = f"Bearer {SECRET}"
HOW = {"count": 3, "extract": "vca", "method": "fcls", "device": "cpu"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No login of the machine's own, and no proxy."""
    for name in (logins.TOKEN, logins.TOKEN_FILE, logins.HOSTS, "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))


def host_of(server: ObjectServer) -> str:
    return server.url.partition("://")[2]


def give_token(monkeypatch: pytest.MonkeyPatch, *servers: ObjectServer) -> None:
    monkeypatch.setenv(logins.TOKEN, SECRET)
    monkeypatch.setenv(logins.HOSTS, ", ".join(map(host_of, servers)))


def values(lines: int = 40) -> np.ndarray:
    random = np.random.default_rng(3)
    return (random.dirichlet(np.ones(3), (lines, 20)) @ random.random((3, 9))).astype(np.float32)


def envi(folder: Path) -> str:
    write_cube(folder / "scene.hdr", values(), "bil")
    return "scene.hdr"


def hdf5(folder: Path) -> str:
    with h5py.File(folder / "scene.nc", "w") as file:
        file.create_dataset("reflectance", data=values(), chunks=(16, 16, 9), compression="gzip")
        file["sensor_band_parameters/wavelengths"] = np.linspace(400, 2400, 9)
        file["sensor_band_parameters/fwhm"] = np.full(9, 8.0)
    return "scene.nc"


def cog(folder: Path) -> str:
    rasterio = pytest.importorskip("rasterio")
    how = {"width": 20, "height": 40, "count": 9, "dtype": "float32", "tiled": True, "blockxsize": 16, "blockysize": 16}
    with rasterio.open(folder / "scene.tif", "w", driver="GTiff", compress="deflate", **how) as file:
        file.write(values().transpose(2, 0, 1))
    return "scene.tif"


def zarr(folder: Path) -> str:
    library = pytest.importorskip("zarr")
    names = {"dimension_names": ("y", "x", "band")}
    library.create_array(str(folder / "scene.zarr"), name="reflectance", data=values(), chunks=(16, 20, 9), **names)
    with warnings.catch_warnings(action="ignore"):
        library.consolidate_metadata(str(folder / "scene.zarr"))
    return "scene.zarr"


def stac(folder: Path) -> str:
    item = {"type": "Feature", "stac_version": "1.0.0", "id": "scene"}
    item |= {"assets": {"d": {"href": envi(folder), "roles": ["data"]}}}
    (folder / "scene.json").write_text(json.dumps(item))
    return "scene.json"


KINDS = {one.__name__: one for one in (envi, hdf5, cog, zarr, stac)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "there").mkdir()
    return tmp_path / "there"


def without_secrets(*places: Path) -> int:
    """Assert that no file below some folders has the token, plain or as a header; return how many there are."""
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    for path in files:
        content = path.read_bytes()
        assert SECRET.encode() not in content and b"hush" not in content, path
        assert base64.b64encode(SECRET.encode())[:20] not in content, path
    return len(files)


@pytest.mark.parametrize("kind", KINDS)
def test_every_reader_logs_in(folder: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the login one line says what to set; with it a run reads all, and no file, log or message has it."""
    name = KINDS[kind](folder)
    words = ("-n", "3", "--extract", "vca", "--method", "fcls", "--device", "cpu")
    with serving(folder, latency=0.03, login=BEARER) as server:
        said = command("run", f"{server.url}/{name}", *words, "-o", tmp_path / "out", code=3)[1]
        assert len(said.strip().splitlines()) == 1 and "UNMIX_TOKEN" in said and "netrc" in said and "401" in said
        give_token(monkeypatch, server)
        log = ("--log-file", tmp_path / "log", "--progress", "json", "-v", "--json")
        out, err = command("run", f"{server.url}/{name}", *words, "-o", tmp_path / "out", *log)
        assert set(server.logins) == {None, BEARER}
        assert SECRET not in out + err
        assert without_secrets(tmp_path / "out", tmp_path / "log", folder) > 5
        monkeypatch.setenv(logins.TOKEN, SECRET[::-1])
        said = command("run", f"{server.url}/{name}", *words, "-o", tmp_path / "other", code=3)[1]
        assert len(said.strip().splitlines()) == 1 and "refuses the login" in said and SECRET[::-1] not in said


@pytest.mark.parametrize("kind", KINDS)
def test_another_host_gets_no_login(folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a server sends on: to another port, which is another host."""
    name = KINDS[kind](folder)
    with serving(folder) as other, serving(folder, login=BEARER, elsewhere=other.url) as server:
        give_token(monkeypatch, server)
        cube = unmix.open_cube(f"{server.url}/{name}")
        np.testing.assert_array_equal(
            np.sort(cube.read(slice(0, 40), np.empty(10**6, np.uint8)), None), np.sort(values(), None)
        )
        assert set(server.logins) == {BEARER} and set(other.logins) == {None}


def test_an_item_s_asset_on_another_host_gets_no_login(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But its own, where it has one."""
    stac(folder)
    with serving(folder, login="Bearer other") as other, serving(folder, login=BEARER) as server:
        text = (folder / "scene.json").read_text().replace("scene.hdr", f"{other.url}/scene.hdr")
        (folder / "scene.json").write_text(text)
        give_token(monkeypatch, server)
        refused(CubeError, f"{host_of(other)} wants a login", unmix.open_cube, f"{server.url}/scene.json")
        assert set(other.logins) == {None}


@pytest.mark.slow
def test_killed_and_resumed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of an item that is killed goes on, with another token by then; no file had either."""
    name = stac(folder)
    write_cube(folder / "scene.hdr", values(600), "bil")
    unmix.run(folder / "scene.hdr", out_dir=tmp_path / "plain", memory=20_000, **HOW)
    with serving(folder, latency=0.03, login=BEARER) as server:
        give_token(monkeypatch, server)
        how = HOW | {"memory": 20_000, "out_dir": str(tmp_path / "out")}
        slow = "import time, unmix; from unmix.runs.files import journal; journal.FLUSH_SECONDS = 0.0"
        code = f"{slow}; unmix.run({server.url + '/' + name!r}, progress=lambda _: time.sleep(0.05), **{how!r})"
        words = [sys.executable, "-c", code]
        process = subprocess.Popen(words, stderr=subprocess.PIPE, env=os.environ | {"TMPDIR": str(tmp_path)})
        journal = tmp_path / "out/scene_run.journal.part"
        wait_until(lambda: journal.exists() and journal.read_bytes().count(b'"lines": ') > 2, process)
        process.send_signal(signal.SIGKILL)
        err = process.communicate()[1]
        assert SECRET.encode() not in err and without_secrets(tmp_path) > 4
        server.login = f"Bearer {SECRET}2"
        refused(CubeError, "refuses the login", unmix.run, f"{server.url}/{name}", **how)
        monkeypatch.setenv(logins.TOKEN, f"{SECRET}2")
        report = unmix.run(f"{server.url}/{name}", **how)
    assert report["resumed_from"] > 0 and without_secrets(tmp_path) > 8
    first, second = (tmp_path / one / "scene_abundance.img" for one in ("plain", "out"))
    assert first.read_bytes() == second.read_bytes()


def test_a_token_that_ends_while_a_scene_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    write_cube(folder / "scene.hdr", values(4000), "bil")
    with serving(folder, login=BEARER) as server:
        give_token(monkeypatch, server)
        cube = unmix.open_cube(f"{server.url}/scene.hdr")
        server.login = "Bearer next"
        with (
            caplog.at_level(logging.DEBUG),
            pytest.raises(CubeError, match="refuses the login that it was sent") as caught,
        ):
            cube.read(slice(3000, 3040), np.empty(10**6, np.uint8))
    assert SECRET not in str(caught.value) + caplog.text


def test_passwords_of_netrc(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the hosts that it names; a file that others may read is refused, and ``default`` is nobody's."""
    envi(folder)
    netrc = tmp_path / "netrc"
    monkeypatch.setenv("NETRC", str(netrc))
    with serving(folder, login="Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()) as server:
        netrc.write_text(f"machine elsewhere login a password b\ndefault login me password {SECRET}\n")
        netrc.chmod(0o600)
        refused(CubeError, "wants a login", unmix.open_cube, f"{server.url}/scene.hdr")
        netrc.write_text(f"machine {host_of(server)} login me password {SECRET}\n")
        logins.found.cache_clear()
        assert unmix.open_cube(f"{server.url}/scene.hdr").lines == 40
        wrong = f"machine {host_of(server)} passwort {SECRET}"
        for text, mode, message in ((netrc.read_text(), 0o644, "chmod 600"), (wrong, 0o600, "cannot be read")):
            netrc.write_text(text)
            netrc.chmod(mode)
            logins.found.cache_clear()
            caught = refused(MethodError, message, unmix.open_cube, f"{server.url}/scene.hdr")
            assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "place", "header"),
    [
        ({logins.TOKEN: SECRET, logins.HOSTS: "a.org"}, "https://a.org", BEARER),
        ({logins.TOKEN: SECRET, logins.HOSTS: "a.org"}, "https://A.org:443", BEARER),
        ({logins.TOKEN: SECRET, logins.HOSTS: "a.org"}, "https://a.org:8443", ""),
        ({logins.TOKEN: SECRET, logins.HOSTS: "a.org"}, "http://a.org", ""),
        ({logins.TOKEN: SECRET, logins.HOSTS: "a.org"}, "https://b.a.org", ""),
        ({logins.TOKEN: SECRET, logins.HOSTS: "a.org"}, "https://a.org.evil.org", ""),
        ({logins.TOKEN: SECRET, logins.HOSTS: "b.org .a.org"}, "https://x.a.org", BEARER),
        ({logins.TOKEN: SECRET, logins.HOSTS: ".a.org"}, "https://evila.org", ""),
        ({logins.TOKEN: SECRET, logins.HOSTS: "a.org"}, "s3://a.org", ""),
        ({logins.TOKEN: SECRET, logins.HOSTS: "127.0.0.1:80"}, "http://127.0.0.1", ""),
        ({logins.TOKEN: SECRET, logins.HOSTS: "127.0.0.1"}, "http://127.0.0.1:80", BEARER),
        ({logins.TOKEN: SECRET, logins.HOSTS: "[::1]:99"}, "http://[::1]:99", BEARER),
        ({logins.TOKEN: SECRET, logins.HOSTS: "10.0.0.1"}, "http://10.0.0.1", ""),
        ({logins.TOKEN: SECRET, logins.HOSTS: "127.0.0.1:9", "http_proxy": "http://p:1"}, "http://127.0.0.1:9", ""),
        (
            {logins.TOKEN: SECRET, logins.HOSTS: "127.0.0.1:9", "http_proxy": "http://p:1", "no_proxy": "127.0.0.1"},
            "http://127.0.0.1:9",
            BEARER,
        ),
    ],
)
def test_whom_a_login_is_sent_to(given: dict, place: str, header: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    logins.found.cache_clear()
    assert logins.login_for(place) == header


def test_files_of_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of mode 600; a pipe is not waited for, and no message has what is in a file."""
    file = tmp_path / "token"
    monkeypatch.setenv(logins.TOKEN_FILE, str(file))
    refused(MethodError, "UNMIX_TOKEN_HOST", logins.login_for, "https://a.org")
    monkeypatch.setenv(logins.HOSTS, "a.org")
    file.write_text(SECRET + "\n")
    for mode, message in ((0o640, "chmod 600"), (0o604, "chmod 600"), (0o600, "")):
        file.chmod(mode)
        if message:
            refused(MethodError, message, logins.login_for, "https://a.org")
    assert logins.login_for("https://a.org") == BEARER
    for content in ("two words", "line\nline", "é", ""):
        file.write_text(content)
        logins.found.cache_clear()
        caught = refused(MethodError, "holds no token", logins.login_for, "https://a.org")
        assert "two" not in str(caught.value)
    with monkeypatch.context() as both:  # the variable goes first, and is named
        both.setenv(logins.TOKEN, "two words")
        logins.found.cache_clear()
        refused(MethodError, f"^{logins.TOKEN}: holds no token", logins.login_for, "https://a.org")
    file.unlink()
    os.mkfifo(file, 0o600)
    logins.found.cache_clear()
    refused(MethodError, "chmod 600", logins.login_for, "https://a.org")


def test_a_page_to_log_in_at_is_no_scene(folder: Path) -> None:
    """Some servers answer 200 and a page where a login is missing."""
    (folder / "scene.hdr").write_text("\n<!DOCTYPE html><html>Sign in</html>")
    with serving(folder) as server:
        said = command("info", f"{server.url}/scene.hdr", code=3)[1]
    assert "is a web page" in said and "UNMIX_TOKEN" in said


def test_a_pipe_for_a_login_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "netrc")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with patience("netrc"):
        assert logins.password_for("example.org") == ""
