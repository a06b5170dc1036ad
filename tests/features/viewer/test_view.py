"""The viewer: what it reads against numpy, who is answered, and the page in a browser where there is one."""

import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import PATIENCE, mix, read_values, write_csv, write_cube

import unmix
from unmix.features.viewer import serve
from unmix.features.viewer import source as pictures
from unmix.features.viewer.source import Source, inside_polygon
from unmix.scene import ReadOptions

HOSTILE = "<img src=x onerror=document.title='broken'>$$x$$"


@pytest.fixture
def scene(tmp_path):
    """A scene of two materials and a masked pixel, one of whose names is markup."""
    _, E, Y = mix(4, (23, 31), 12, 2, dtype=np.float32)
    Y[3, 5] = -9999
    waves = "{" + ", ".join(str(450 + 40 * b) for b in range(12)) + "}"
    write_csv(tmp_path / "e.csv", E)
    (tmp_path / "e.csv").write_text((tmp_path / "e.csv").read_text().replace("em 1", HOSTILE))
    return write_cube(tmp_path / "s.hdr", Y, wavelength=waves, data_ignore_value=-9999), Y


def opened(path):
    return Source(Path(path), ReadOptions())


@pytest.mark.parametrize("side", [5, 700])
def test_pictures(monkeypatch, scene, side):
    """Every k-th line and sample of a part, as many as are shown."""
    monkeypatch.setattr(pictures, "LONGEST_SIDE", side)
    path, Y = scene
    source = opened(path)
    assert source.layers[0].bands == (5, 2, 0)  # 650, 550 (530 is the first of two as near), 470 (450)
    for part in (pictures.whole_scene(source.scene.cube), pictures.PictureArea(2, 9, 4, 30)):
        steps = (max(1, -(-(part.bottom - part.top) // side)), max(1, -(-(part.right - part.left) // side)))
        expected = Y[part.top : part.bottom : steps[0], part.left : part.right : steps[1]][..., [5, 2, 0]].copy()
        expected[expected == -9999] = np.nan
        np.testing.assert_array_equal(pictures.values_of_layer(source.layers[0], part), expected)
        assert max(expected.shape[:2]) <= side
    image = pictures.coloured_picture(np.array([[[0.0, 0.5, 1.0], [np.nan, 0, 0]]]), np.array([[0.0] * 3, [1.0] * 3]))
    assert image.view(np.uint8).reshape(2, 4).tolist() == [[0, 127, 254, 255], [0, 0, 0, 0]]


def test_chunks_are_read_once(tmp_path):
    """Lines that are stored together are read together."""
    import h5py

    Y = np.random.default_rng(1).random((40, 6, 5)).astype(np.float32)
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file.create_dataset("cube", data=Y, chunks=(10, 6, 5))
    source = Source(tmp_path / "s.h5", ReadOptions(dataset="cube:yxb"))
    picture = pictures.values_of_layer(source.layers[-1], pictures.PictureArea(3, 33, 1, 5))
    np.testing.assert_array_equal(picture[..., 0], Y[3:33, 1:5, 4])


def test_pixels_and_regions(tmp_path, scene):
    path, Y = scene
    unmix.run(
        path, endmembers=tmp_path / "e.csv", method="nnls", out_dir=tmp_path / "r", certificate=True, uncertainty=True
    )
    source = opened(tmp_path / "r/s")
    assert source.model is not None and not source.said
    facts = source.facts(7, 8)
    A = read_values(tmp_path / "r/s_abundance.hdr")[7, 8]
    shown = dict(facts.rows)
    names = unmix.load_library(tmp_path / "e.csv").names
    assert [shown[name] for name in names] == [f"{a:.4g}" for a in A]
    assert "certificate kappa" in shown and f"sigma {names[1]}" in shown and "rmse" in shown
    np.testing.assert_allclose(facts.spectra["measured"], Y[7, 8])
    np.testing.assert_allclose(facts.spectra["residual"], facts.spectra["measured"] - facts.spectra["modelled"])
    assert np.isnan(source.facts(3, 5).spectra["measured"]).all() and "no result" in source.facts(3, 5).said
    across, down = np.array([1.0, 20.0, 9.5]), np.array([1.0, 4.5, 20.0])
    mean, count = source.mean_of(across, down)
    inside = by_path(across, down, 31, 23)
    inside[3, 5] = False
    assert count == inside.sum() > 50
    np.testing.assert_allclose(mean, Y[inside].mean(axis=0), rtol=1e-5)
    assert source.mean_of(across + 100, down)[1] == 0
    path.unlink()
    gone = opened(tmp_path / "r/s")
    assert "no models of pixels" in gone.said and gone.facts(7, 8).spectra == {}
    assert dict(gone.facts(7, 8).rows) == shown


def by_path(across, down, samples, lines):
    """Return the same by matplotlib."""
    from matplotlib.path import Path as Outline

    centres = np.stack(np.meshgrid(np.arange(samples) + 0.5, np.arange(lines) + 0.5), axis=-1).reshape(-1, 2)
    return Outline(np.column_stack([across, down])).contains_points(centres).reshape(lines, samples)


def test_polygons():
    random = np.random.default_rng(0)
    for _ in range(50):
        across, down = random.uniform(-3, 23, (2, 7))
        inside = inside_polygon(np.arange(20) + 0.5, np.arange(15) + 0.5, across, down)
        # A star that crosses itself: even and odd, as an image program draws it.
        turns = sum(by_path(across[[0, k, k + 1]], down[[0, k, k + 1]], 20, 15).astype(int) for k in range(1, 6))
        np.testing.assert_array_equal(inside, turns % 2 == 1)


def test_the_page_without_a_browser(tmp_path, scene):
    """Clicks and regions, as Bokeh hands them over; the mean of a region goes to a library."""
    pytest.importorskip("bokeh")
    from unmix.features.viewer.page import REGION, KeptSpectra, Page

    path, Y = scene
    unmix.run(path, endmembers=tmp_path / "e.csv", method="nnls", out_dir=tmp_path / "r")
    sources = [opened(tmp_path / "r/s"), opened(path)]
    page = Page(sources, KeptSpectra(sources[0], tmp_path / "kept.csv"))
    page.tapped(SimpleNamespace(x=8.7, y=7.2))
    assert "Line 7, sample 8" in page.facts.text and "<img" not in page.facts.text and "&lt;img" in page.facts.text
    assert sorted(page.lines) == ["A modelled", "A residual", "measured"]
    assert page.spectra.yaxis[0].axis_label == "value"
    page.line("B residual", *[np.arange(3.0)] * 2)
    dashes = {item.label.value: item.renderers[0].glyph.line_dash for item in page.spectra.legend[0].items}
    assert dashes["A residual"] != dashes["B residual"]
    page.tapped(SimpleNamespace(x=80.0, y=7.2))
    assert "Line 7, sample 8" in page.facts.text
    page.selected(SimpleNamespace(final=True, geometry={"type": "rect", "x0": 2.0, "x1": 6.0, "y0": 8.0, "y1": 10.0}))
    np.testing.assert_allclose(page.lines[REGION].data["y"], Y[8:10, 2:6].mean(axis=(0, 1)), rtol=1e-5)
    page.name.value = "roof"
    page.told(page.keep_mean)
    page.told(page.keep_mean)
    assert "already" in page.said.text
    page.name.value = ""
    page.selected(SimpleNamespace(final=True, geometry={"type": "poly", "x": [0, 9, 0], "y": [0, 0, 9]}))
    page.told(page.keep_mean)
    kept = unmix.load_library(tmp_path / "kept.csv")
    assert kept.names == ("roof", "region 2") and kept.wavelengths[1] == 490
    np.testing.assert_allclose(kept.matrix[:, 0], Y[8:10, 2:6].mean(axis=(0, 1)), rtol=1e-5)
    (picture, _) = page.pictures
    picture.moved(SimpleNamespace(x0=4.2, x1=9.9, y0=12.0, y1=-3.0))
    assert picture.part == pictures.PictureArea(0, 12, 4, 10) and picture.data.data["image"][0].shape == (12, 6)
    picture.choice.value = picture.choice.options[1]
    assert picture.layer.name.startswith("abundance: ") and picture.data.data["dw"] == [6]


NO_PLACES = (float("nan"), float("inf"), -1e300, None, "7", [3.0, 4.0], {"x": 1}, 10**400)


def test_events_that_no_page_sends(tmp_path, scene):
    """Each is refused in one line; nothing is kept, and the page goes on."""
    pytest.importorskip("bokeh")
    from unmix.features.viewer.page import KeptSpectra, Page

    path, Y = scene
    page = Page([opened(path)], KeptSpectra(opened(path), tmp_path / "kept.csv"))
    (picture,) = page.pictures
    part, facts, tried = picture.part, page.facts.text, 0

    def refused(do, *event):
        nonlocal tried
        tried += 1
        page.said.text = ""
        page.told(do, *event)
        assert page.said.text and "\n" not in page.said.text, (do, event)
        assert picture.part == part and page.facts.text == facts and not (tmp_path / "kept.csv").exists()

    refused(page.keep_mean)  # without a region
    corner = {"type": "rect", "x0": 2.0, "x1": 6.0, "y0": 8.0, "y1": 10.0}
    for wrong in NO_PLACES:
        if wrong != "7":  # which is a number to numpy, and to us
            refused(page.tapped, SimpleNamespace(x=wrong, y=2.0))
            refused(page.tapped, SimpleNamespace(x=2.0, y=wrong))
            for name in ("x0", "y1"):
                refused(picture.moved, SimpleNamespace(**{"x0": 1.0, "x1": 2.0, "y0": 1.0, "y1": 3.0} | {name: wrong}))
                refused(page.selected, SimpleNamespace(final=True, geometry=corner | {name: wrong}))
            refused(
                page.selected,
                SimpleNamespace(final=True, geometry={"type": "poly", "x": [0, 9, wrong], "y": [0, 0, 9]}),
            )
        refused(page.selected, SimpleNamespace(final=True, geometry=wrong))
        refused(page.keep_mean)
    cases = [{}, {"type": "rect"}, {"type": "poly", "x": [], "y": []}, {"type": "poly", "x": [1.0], "y": [1.0, 2.0]}]
    for shape in cases:
        refused(page.selected, SimpleNamespace(final=True, geometry=shape))
    refused(
        page.selected, SimpleNamespace(final=True, geometry={"type": "poly", "x": [0.0] * 10**5, "y": [0.0] * 10**5})
    )
    assert tried > 60
    page.selected(SimpleNamespace(final=True, geometry=corner | {"x0": -9.0, "x1": -5.0}))  # outside
    refused(page.keep_mean)
    page.selected(
        SimpleNamespace(final=True, geometry={"type": "rect", "x0": 5.0, "x1": 6.0, "y0": 3.0, "y1": 4.0})
    )  # masked
    refused(page.keep_mean)
    picture.choice.value = "no such layer"
    assert "no such layer" in page.said.text and picture.layer.name == "scene"
    page.told(page.tapped, SimpleNamespace(x=8.7, y=7.2))
    assert "Line 7, sample 8" in page.facts.text
    for name in ("roof, red", 'a "b"', "two\nlines", "nul\0"):
        page.name.value = name
        page.told(page.selected, SimpleNamespace(final=True, geometry=corner))
        page.told(page.keep_mean)
    assert unmix.load_library(tmp_path / "kept.csv").names == ("roof; red", 'a "b"', "two lines", "nul")
    np.testing.assert_allclose(
        unmix.load_library(tmp_path / "kept.csv").matrix[:, 0], Y[8:10, 2:6].mean(axis=(0, 1)), rtol=1e-5
    )


def test_what_is_refused(tmp_path, scene):
    path, _ = scene
    small = write_cube(tmp_path / "small.hdr", np.ones((4, 4, 3), np.float32))
    (tmp_path / "regions.csv").write_text("name,1\n")
    for paths, words, text in (
        ((path, small), {}, "lines of 31 samples, .* 4 of 4"),
        ((path,) * 3, {}, "these are 3"),
        ((path,), {"library": tmp_path / "regions.csv"}, "exists already"),
    ):
        with pytest.raises(unmix.MethodError, match=text):
            unmix.view(paths, **({"library": tmp_path / "new.csv"} | words))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(unmix.MethodError, match="cannot be listened on"):
            unmix.view(path, port=taken.getsockname()[1], library=tmp_path / "new.csv")


@contextlib.contextmanager
def viewing(*words):
    """Run the command, and give its address."""
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen([sys.executable, "-m", "unmix", "view", *map(str, words)], text=True, **how)
    try:
        line = process.stdout.readline()
        found = re.search(r"http://127.0.0.1:(\d+)/([\w-]+)/", line)
        assert found, line
        yield found[0], int(found[1]), found[2]
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.slow
def test_it_ends_as_if_nothing_were_lost(tmp_path, scene):
    pytest.importorskip("bokeh")
    for number in (signal.SIGINT, signal.SIGTERM):
        words = [sys.executable, "-m", "unmix", "view", str(scene[0]), "--library", str(tmp_path / "k.csv")]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert "open http" in process.stdout.readline()
        time.sleep(0.5)
        process.send_signal(number)
        _, told = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0 and not told


def answer(url, **how):
    """Return the status of an address; ``how`` it is asked for."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, **how), timeout=PATIENCE) as got:
            return got.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.slow
def test_who_is_answered(tmp_path, scene):
    """Addresses with the secret, of this machine, by pages of its own."""
    pytest.importorskip("bokeh")
    with viewing(scene[0], "--library", tmp_path / "k.csv") as (url, port, secret):
        root = url.removesuffix(secret + "/")
        assert answer(url) == 200 and answer(url + "static/js/bokeh.min.js") == 200
        cases = [root, root + "static/js/bokeh.min.js", root + "ws", root + "x" * len(secret) + "/"]
        cases += [root + secret[:-1] + "/"]
        for wrong in cases:
            assert answer(wrong) == 404, wrong
        assert answer(root + "x", data=b"") == 404
        # A body is refused by the length that it says; where it says none, as soon as it is longer. Whoever still
        # sends when the answer comes may lose it to the reset that follows: the first case sends nothing.
        for head, body in (
            ("Content-Length: 104857600", b""),
            ("Transfer-Encoding: chunked", b"10000\r\n" + b"x" * 2**16),
        ):
            with socket.create_connection(("127.0.0.1", port)) as asked, contextlib.suppress(ConnectionError):
                asked.sendall(f"POST /{secret}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{head}\r\n\r\n".encode() + body)
                said = asked.recv(1000)[:12]
                assert said == b"HTTP/1.1 400" or (body and not said)
                assert asked.recv(1) == b""
        for origin, status in (
            ("http://elsewhere.example", 403),
            (f"http://localhost:{port}", 403),
            (f"http://127.0.0.1:{port}", 101),
        ):
            lines = (
                f"GET /{secret}/ws HTTP/1.1",
                f"Host: 127.0.0.1:{port}",
                f"Origin: {origin}",
                "Connection: Upgrade",
                "Upgrade: websocket",
                "Sec-WebSocket-Version: 13",
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
                "\r\n",
            )
            with socket.create_connection(("127.0.0.1", port)) as asked:
                asked.sendall("\r\n".join(lines).encode())
                said = asked.recv(100).decode()
                assert said.split()[1] == str(status), said
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            with contextlib.suppress(OSError):
                probe.connect(("192.0.2.1", 9))
            outside = probe.getsockname()[0]
        if not outside.startswith(("127.", "0.")):
            with pytest.raises(OSError), socket.create_connection((outside, port), timeout=PATIENCE):
                pass


@pytest.mark.slow
def test_in_a_browser(tmp_path, scene):
    """At two widths, without errors, nothing asked from elsewhere, and names are text."""
    pytest.importorskip("bokeh")
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium")
    path, _ = scene
    unmix.run(path, endmembers=tmp_path / "e.csv", method="nnls", out_dir=tmp_path / "r")
    with (
        viewing(tmp_path / "r/s", path, "--library", tmp_path / "k.csv") as (url, port, _),
        playwright.sync_playwright() as start,
    ):
        browser = start.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for width in (375, 1280):
            page = browser.new_page(viewport={"width": width, "height": 900})
            errors, asked = [], set()
            page.on("pageerror", lambda error, errors=errors: errors.append(str(error)))
            page.on("request", lambda request, asked=asked: asked.add(request.url.split("/")[2]))
            page.goto(url)
            page.wait_for_function("() => window.Bokeh && Bokeh.documents.length && Bokeh.documents[0].is_idle")
            box = page.locator(".parts > div").first.bounding_box()
            page.mouse.click(box["x"] + 0.55 * box["width"], box["y"] + 0.6 * box["height"])
            page.get_by_text(re.compile(r"Line \d+, sample \d+")).first.wait_for()
            page.locator("td").get_by_text("<img src=x").first.wait_for()
            assert not errors and asked == {f"127.0.0.1:{port}"} and page.title() == "s and s.hdr"
            page.set_viewport_size({"width": width, "height": 850})  # all is laid out again, at leisure
            page.wait_for_function(f"() => document.documentElement.scrollWidth === {width}")
        browser.close()
    assert serve.LOOPBACK == "127.0.0.1" and json.loads((tmp_path / "r/s_run.json").read_text())
