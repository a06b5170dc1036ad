"""Pictures and pages of runs: what a browser or another reader makes of them is what the maps hold."""

import base64
import json
import os
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest
from conftest import mix, read_map, refused, rest_slow, write_csv, write_cube
from matplotlib import image as reader
from test_cli import unmix as command

import unmix
from unmix.commands.verify import verify
from unmix.io import open_cube
from unmix.pages.pictures import BINS, MAGMA, VIRIDIS, bands_shown, of_shares, png, ramp, thinned_lines, views_of


@pytest.fixture
def scene(tmp_path):
    """A scene of four endmembers, with a masked pixel, and the endmembers."""
    random = np.random.default_rng(2)
    E = random.uniform(0.1, 0.9, (20, 4))
    A = random.dirichlet(np.ones(4), (30, 40))
    Y = np.round(1e4 * (A @ E.T + 0.002 * random.standard_normal((30, 40, 20)))).astype(np.float32)
    Y[3, 5] = -9999
    path = write_cube(tmp_path / "s.hdr", Y, data_ignore_value=-9999)
    write_csv(tmp_path / "e.csv", E, names=("soil", "tree", "road", "water"))
    return path


def decoded(path):
    """The image as matplotlib reads it: another decoder; (h, w, 4) from 0 to 255."""
    return np.round(255 * reader.imread(path)).astype(int)


def test_the_browse_image_shows_the_maps(tmp_path, scene):
    unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000, rgb="water,soil,road")
    image = decoded(tmp_path / "s_browse.png")
    expected = np.round(255 * np.clip(read_map(tmp_path / "s", "abundance")[..., [3, 0, 2]], 0, 1))
    solved = np.ones((30, 40), bool)
    solved[3, 5] = False
    assert np.abs(image[..., :3] - expected)[solved].max() == 0 and (image[..., 3] == 255 * solved).all()


def test_without_one(tmp_path, scene):
    unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000)
    report = unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000, browse=False, overwrite=True)
    assert not (tmp_path / "s_browse.png").exists() and "s_browse.png" not in report["digests"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"rgb": "soil,tree,sand"}, "there is no 'sand'; there are soil, tree, road, water"),
        ({"rgb": "soil,tree,road,water"}, "at most three"),
        ({"rgb": "soil", "browse": False}, "not to be written"),
        ({"rgb": "soil", "top": 2}, "whose largest abundance"),
    ],
)
def test_colours_that_cannot_be(tmp_path, scene, words, text):
    for plan in (True, False):
        with pytest.raises(unmix.MethodError, match=text):
            unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000, dry_run=plan, **words)
    assert not (tmp_path / "s_run.json").exists()


def test_images_of_large_scenes_are_thinned():
    for lines, samples in ((1, 1), (1024, 3), (1025, 3), (3, 5000), (7000, 7000)):
        rows, columns = (
            len(range(*part.indices(n))) for part, n in zip(thinned_lines(lines, samples), (lines, samples))
        )
        assert max(rows, columns) <= 1024 and (max(lines, samples) <= 1024) == ((rows, columns) == (lines, samples))


def test_one_or_two_maps():
    shares = np.array([[[0.0, 0.5, 2.0, np.nan]]])
    masked = np.array([[False, False, False, True]])
    assert of_shares(shares, masked) != of_shares(np.vstack([shares, shares]), masked)
    assert bands_shown(["a", "b"], [1, 2]) == [1] and bands_shown(["a", "b", "c"], [1, 3, 2]) == [1, 2, 0]


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (40, 64)])
def test_png(tmp_path, shape):
    image = np.random.default_rng(0).integers(0, 256, (*shape, 4)).astype(np.uint8)
    (tmp_path / "x.png").write_bytes(png(image))
    np.testing.assert_array_equal(decoded(tmp_path / "x.png"), image)
    numbers, palette = image[..., 0], ramp(VIRIDIS)
    (tmp_path / "y.png").write_bytes(png(numbers, palette))
    np.testing.assert_array_equal(decoded(tmp_path / "y.png"), palette[numbers])


@pytest.mark.parametrize(("name", "ours"), [("viridis", VIRIDIS), ("magma", MAGMA)])
def test_colours_are_those_of_matplotlib(name, ours):
    import matplotlib

    theirs = 255 * matplotlib.colormaps[name](np.linspace(0, 1, 255))
    assert np.abs(ramp(ours)[:255] - theirs).max() <= 4


class Page(HTMLParser):
    """What a browser would show of a page, as far as the standard library reads it."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.words, self.addresses, self.styles = [], [], [], 0
        self.feed(path.read_text())
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data):
        if self.tags[-1:] not in (["style"], ["script"]):
            self.words.append(data)

    @property
    def images(self):
        inside = [address for address in self.addresses if address.startswith("data:")]
        return [base64.b64decode(address.partition(",")[2]) for address in inside]


def test_the_page_of_a_scene(tmp_path, scene):
    report = unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000, certificate=True, rgb="water,soil,road")
    path = unmix.report(tmp_path / "s")
    page = Page(path)
    assert path == tmp_path / "s_report.html" and path.stat().st_size < 2**21
    assert f"{report['pixels']['certified']} of 1199 pixels certified" in page.text and "1 masked" in page.text
    for words in ("soil", "tree", "road", "water", "red water, green soil, blue road", "run.json", "log₁₀ κ"):
        assert words in page.text, words
    (tmp_path / "page.png").write_bytes(page.images[0])
    np.testing.assert_array_equal(decoded(tmp_path / "page.png"), decoded(tmp_path / "s_browse.png"))
    assert len(page.images) == 7  # the scale of fractions is one
    assert all(address.startswith("data:image/png") for address in page.addresses)
    again = unmix.report(tmp_path / "s_abundance.hdr", tmp_path / "again.html")
    assert again.read_bytes() == path.read_bytes()
    assert verify(tmp_path / "s").faults == []


@pytest.mark.parametrize("placed", [True, False])
def test_the_page_says_how_much_of_each(tmp_path, scene, placed):
    """Per cent and hectares of all materials in one table, those of plain sums; the day of the run; where to trust it least."""
    if placed:
        header = scene.read_text() + "map info = {UTM, 1, 1, 500000, 4000000, 30, 20, 11, North, WGS-84}\n"
        scene.write_text(header)
    record = unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000, method="fcls")
    page = unmix.report(tmp_path / "s").read_text()
    table = page.partition("How much of each")[2].partition("</table>")[0]
    rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in table.split("<tr>")[2:]]
    A = read_map(tmp_path / "s", "abundance").astype(float)
    solved = (A != -9999).all(axis=2)
    means = {name: 100 * A[..., k][solved].mean() for k, name in enumerate(record["endmembers"]["names"])}
    assert [row[0] for row in rows] == sorted(means, key=means.get, reverse=True)
    for name, mean, *area in rows:
        assert float(mean) == pytest.approx(means[name], abs=0.006)
        assert [float(one) for one in area] == pytest.approx(
            [means[name] / 100 * solved.sum() * 0.06 / 0.9996**2] * placed,
            abs=0.006,  # on the central meridian
        )
    assert f", {record['ended'][:10]} " in page and "trust the fractions there least" in page


@pytest.mark.parametrize("block", [2**24, 7 * 40 * 4 * 4])
def test_pictures_and_histograms_are_of_the_maps(tmp_path, scene, monkeypatch, block):
    monkeypatch.setattr("unmix.pages.pictures.BLOCK_BYTES", block)
    unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000)
    cube = open_cube(tmp_path / "s_abundance.hdr")
    values = read_map(tmp_path / "s", "abundance").transpose(0, 2, 1)
    views = views_of(cube, [2, 0], ["road", "soil"], 15, summed=True)
    for view, expected in zip(views, (values[:, 2], values[:, 0], values.sum(axis=1, dtype=np.float32))):
        present = values[:, 0] != -9999
        counts = np.histogram(np.clip(expected[present], 0, 1), BINS, (0, 1))[0]
        assert np.abs(view.counts - counts).sum() <= 2  # a value on an edge
        assert view.solved == 1199 and view.mean == pytest.approx(expected[present].mean(dtype=float))
        np.testing.assert_array_equal(view.picture, np.where(present, expected, np.nan)[1::3, 1::3])


def lines_in(page):
    """The spectra in the sections of pixels, each as its caption and the heights of its dots and lines."""
    section = page.read_text().partition("<h2>Pixels</h2>")[2].partition("<h2>")[0]
    found = {}
    for part in section.split("<figure>")[1:]:
        caption = re.sub("<[^>]+>", "", part.partition("</figcaption>")[0])
        points = [[float(pair.split(",")[1]) for pair in one.split()] for one in re.findall('points="([^"]+)"', part)]
        found[caption] = [[float(height) for height in re.findall('cy="([^"]+)"', part)], *points]
    return found


@pytest.mark.parametrize(
    "words", [{"method": "nnls"}, {"method": "fcls"}, {"method": "pcls"}, {"method": "nnls", "normalize": "length"}]
)
def test_pixels_are_as_measured_and_as_modelled(tmp_path, scene, words):
    """The heights of the lines in the chart: measured minus modelled is the residual; the worst pixel is that of the RMSE map."""
    unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000, residual=True, **words)
    found = lines_in(unmix.report(tmp_path / "s"))
    rmse, left = (read_map(tmp_path / "s", name) for name in ("rmse", "residual"))
    worst = next(caption for caption in found if caption.startswith("Largest RMSE"))
    line, sample = map(int, re.search(r"line (\d+), sample (\d+)", worst).groups())
    assert rmse[line, sample, 0] == rmse.max()
    assert {"Largest RMSE", "Median RMSE"} <= {caption.partition(":")[0] for caption in found} and len(found) >= 4
    for caption, lines in found.items():
        line, sample = map(int, re.search(r"line (\d+), sample (\d+)", caption).groups())
        measured, modelled, residual = (np.array(lines[k]) for k in range(3))
        drawn = measured - modelled  # heights grow downwards
        expected = left[line, sample].astype(float)
        if np.ptp(expected) > 0:
            slope = np.polyfit(expected, -drawn, 1)
            np.testing.assert_allclose(-drawn, np.polyval(slope, expected), atol=0.25)  # tenths of a unit, twice
            assert slope[0] > 0 and abs(slope[1]) < 0.25
        np.testing.assert_allclose(residual - residual.mean(), drawn - drawn.mean(), atol=0.25)


def test_a_scene_that_is_not_there_or_another(tmp_path, scene):
    """The page is made all the same, and says why it shows no pixels."""
    unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000, out_dir=tmp_path / "o")
    image = tmp_path / "s.img"
    content = bytearray(image.read_bytes())
    content[1000] ^= 1
    image.write_bytes(content)
    assert "No spectra of pixels: the scene is not as the run read it" in Page(unmix.report(tmp_path / "o/s")).text
    image.unlink()
    (tmp_path / "s.hdr").unlink()
    assert "the run's input is not there; name it with" in Page(unmix.report(tmp_path / "o/s")).text


def test_maps_are_in_the_order_of_their_means_and_folded(tmp_path, scene):
    random = np.random.default_rng(5)
    cube = open_cube(scene)
    write_csv(tmp_path / "many.csv", random.random((cube.bands, 15)), names=[f"m{j}" for j in range(15)])
    report = unmix.run(scene, endmembers=tmp_path / "many.csv", scale=10000, method="nnls", out_dir=tmp_path / "o")
    text = unmix.report(tmp_path / "o/s").read_text()
    means = {one["name"]: one["mean"] for one in report["abundances"]}
    shown = re.findall(r"<figcaption><b>(m\d+)</b>", text)
    assert len(shown) == 15 and [means[name] for name in shown] == sorted(means.values(), reverse=True)
    assert "3 more</summary>" in text and text.index("3 more</summary>") > text.index(f"<b>{shown[11]}</b>")


HOSTILE = "<script>alert(1)</script>"


def hostile(tmp_path, scene):
    """A run whose names are markup."""
    text = (tmp_path / "e.csv").read_text()
    for name, other in (("soil", HOSTILE), ("tree", '"><img src=x onerror=alert(1)>'), ("road", "“ü”")):
        text = text.replace(name, other)
    (tmp_path / "e.csv").write_text(text.replace('"><img', '"""><img').replace("alert(1)>,", 'alert(1)>",'))
    for ending in (".hdr", ".img"):
        shutil.move(tmp_path / f"s{ending}", tmp_path / f"a&b 'c'{ending}")
    unmix.run(tmp_path / "a&b 'c'.hdr", endmembers=tmp_path / "e.csv", scale=10000)
    return unmix.report(tmp_path / "a&b 'c'")


def test_hostile_names_are_text(tmp_path, scene):
    page = Page(hostile(tmp_path, scene))
    assert page.tags.count("script") == 1  # that which says values under the pointer
    assert all(words in page.text for words in (HOSTILE, "onerror=alert(1)", "“ü”"))
    assert not any(address == "x" for address in page.addresses)
    folder = Page(unmix.report(tmp_path))
    assert folder.tags.count("script") == 1 and "a&b 'c'" in folder.text


KINDS = [{"top": 2}, {"format": "hdf5"}, {"format": "geotiff"}, {"method": "pcls"}, {"method": "ucls"}]


@pytest.mark.parametrize("words", [*KINDS, {"method": "nnls", "uncertainty": True}])
def test_every_kind_of_run_has_an_image_and_a_page(tmp_path, scene, words):
    """Of the same names in every format."""
    report = unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000, **words)
    image = decoded(tmp_path / "s_browse.png")
    assert image.shape == (30, 40, 4) and image[3, 5, 3] == 0 and image[..., :3].std() > 20
    assert "s_browse.png" in report["digests"]
    page = Page(unmix.report(tmp_path / "s"))
    assert "1199 of 1199 pixels certified" in page.text and len(page.images) >= 4
    assert "top" in words or all(f"{name} mean 0." in page.text for name in ("soil", "tree", "road", "water"))


@pytest.mark.slow
def test_models_and_factors_have_pages(tmp_path, scene):
    text = (tmp_path / "e.csv").read_text().splitlines()
    rows = [f"{line},{kind}" for line, kind in zip(text, ("class", "a", "b", "a", "b"))]
    (tmp_path / "e.csv").write_text("\n".join(rows) + "\n")
    unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000, method="mesma", class_map=True, out_dir=tmp_path / "m")
    assert "Sums by class" in Page(unmix.report(tmp_path / "m/s")).text
    unmix.nmf_scene(scene, count=2, out_dir=tmp_path / "n", steps=5)
    assert "1199 pixels solved" in Page(unmix.report(tmp_path / "n/s")).text
    assert (tmp_path / "n/s_browse.png").exists() and verify(tmp_path / "n/s").faults == []


def test_the_page_of_a_folder_shows_failures_first(tmp_path, scene):
    for name in ("good", "also", "damaged"):
        unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000, out_dir=tmp_path / "maps" / name)
    (tmp_path / "maps/damaged/s_run.json").write_text("{")
    (tmp_path / "maps/cut_run.journal.part").write_text("")
    out, _ = command("report", tmp_path / "maps", "-o", tmp_path / "all.html")
    page = Page(tmp_path / "all.html")
    assert out.strip() == str(tmp_path / "all.html") and "2 of 4 runs are finished, with no pixel open" in page.text
    places = [page.text.index(words) for words in ("damaged: ", "interrupted: ", "also/s", "good/s")]
    assert max(places[:2]) < min(places[2:])
    assert len(page.images) == 2


def test_pages_that_cannot_be(tmp_path, scene):
    (tmp_path / "empty").mkdir()
    assert "holds no run" in command("report", tmp_path / "empty", code=1)[1]
    assert "no finished run" in command("report", tmp_path / "nothing", code=1)[1]
    unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000)
    (tmp_path / "mine.html").write_text("mine")
    assert "exists already" in command("report", tmp_path / "s", "-o", tmp_path / "mine.html", code=1)[1]
    assert (tmp_path / "mine.html").read_text() == "mine"
    command("report", tmp_path / "s", tmp_path / "s", "-o", tmp_path / "x.html", code=2, tells="one run or folder")
    record = tmp_path / "s_run.json"
    record.write_text('{"digests": {"s_rmse.img": 3}, "pixels": 7}')
    assert "is damaged" in command("report", tmp_path / "s", code=1)[1] and not (tmp_path / "s_report.html").exists()
    record.write_text("[]")
    assert "is damaged" in command("report", tmp_path / "s", code=1)[1]


HUGE = int("9" * 400)
WRONG = [None, "<img src=x onerror=alert(1)>", [], {}, [1], {"a": {"b": 1}}, -1, 1e999, HUGE, True, "", "nan"]


KEYS = (
    "pixels",
    "fit",
    "endmembers",
    "worst_kappa",
    "seconds",
    "warnings",
    "lines",
    "steps",
    "browse",
    "abundances",
    "command",
    "method",
    "sizes",
    "digests",
    "format",
    "bands_used",
)


@pytest.mark.parametrize("name", rest_slow(KEYS, "pixels", "warnings"))
def test_a_record_with_anything_in_it(tmp_path, scene, name):
    """Whatever a record holds, the folder's page lists the run, the run's page is made or refused, and nothing in it is markup."""
    unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000, out_dir=tmp_path / "good")
    unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000, out_dir=tmp_path / "odd")
    record = tmp_path / "odd/s_run.json"
    good = json.loads(record.read_text())
    inner = list(good[name]) if isinstance(good.get(name), dict) else []
    for wrong in WRONG:
        deeper = inner if wrong in WRONG[:4] else inner[:1]
        for changed in ({name: wrong}, *({name: good[name] | {key: wrong}} for key in deeper)):
            record.write_text(json.dumps(good | changed))
            page = Page(unmix.report(tmp_path))
            assert "odd/s" in page.text and "good/s" in page.text
            assert "img" not in page.tags[page.tags.index("table") :][-3:]
            assert "x" not in page.addresses
            try:
                assert "x" not in Page(unmix.report(tmp_path / "odd/s", tmp_path / "x.html")).addresses
            except unmix.UnmixError as error:
                assert "\n" not in str(error)


def test_a_map_that_is_not_there(tmp_path, scene):
    unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000, out_dir=tmp_path / "m")
    for name in ("s_rmse.img", "s_abundance.hdr", "s_abundance.img"):
        good = (tmp_path / "m" / name).read_bytes()
        (tmp_path / "m" / name).write_bytes(good[:10])
        assert "0 of 1 runs" in Page(unmix.report(tmp_path / "m")).text
        assert "missing, or has another size" in command("status", tmp_path / "m", code=1)[0]
        refused(unmix.OutputError, "another size", unmix.report, tmp_path / "m/s")
        (tmp_path / "m" / name).write_bytes(good)
    assert "1 of 1 runs" in Page(unmix.report(tmp_path / "m")).text


def test_a_page_replaces_nothing_else(tmp_path, scene):
    unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000)
    for name in ("s.img", "s_rmse.img", "e.csv", "s_run.json"):
        before = (tmp_path / name).read_bytes()
        refused(unmix.MethodError, r"ends in \.html", unmix.report, tmp_path / "s", tmp_path / name, overwrite=True)
        assert (tmp_path / name).read_bytes() == before
    (tmp_path / "note.html").write_text('<!-- <meta name="generator" content="unmix"> --> mine')
    (tmp_path / "note.html.part").write_text("mine too")
    refused(unmix.OutputError, "exists already", unmix.report, tmp_path / "s", tmp_path / "note.html")
    assert (tmp_path / "note.html.part").read_text() == "mine too"
    refused(unmix.OutputError, "exists already", unmix.report, tmp_path / "s", tmp_path / "note.html", overwrite=True)
    assert (tmp_path / "note.html").read_text().endswith("mine")


def test_paths_of_pages(tmp_path, scene, monkeypatch):
    unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000, out_dir=tmp_path / "a/b")
    unmix.report(tmp_path / "a/b/s")
    assert unmix.report(tmp_path / "a/b/s_report.html").name == "s_report.html"
    (tmp_path / "other").mkdir()
    page = Page(unmix.report(tmp_path / "a", tmp_path / "other/all.html"))
    assert (tmp_path / "other" / page.addresses[-1]).resolve() == tmp_path / "a/b/s_report.html"
    monkeypatch.chdir(tmp_path / "a")
    assert os.fspath(unmix.report(".")) == "report.html"
    for wrong in ("b/s.v2", "b/s.doc", "x" * 300):
        refused(unmix.OutputError, None, unmix.report, wrong)
    os.mkfifo(tmp_path / "a/pipe_run.json")
    assert "1 of 2 runs" in Page(unmix.report(".")).text


@pytest.mark.slow
def test_the_largest_page(tmp_path):
    """White noise, which no compression makes smaller, with as many maps as are shown."""
    _, E, Y = mix(0, (500, 300), 80, 60, dtype=np.float32)
    write_csv(tmp_path / "e.csv", E)
    unmix.run(write_cube(tmp_path / "n.hdr", Y), endmembers=tmp_path / "e.csv", method="ucls")
    page = unmix.report(tmp_path / "n")
    assert page.stat().st_size < 2**21 and "the 48 of 60 with the largest means" in Page(page).text


def test_values_that_are_not_finite(tmp_path, scene):
    unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000)
    values = np.fromfile(tmp_path / "s_abundance.img", "<f4")
    values[[0, 7]] = np.nan, np.inf
    values.tofile(tmp_path / "s_abundance.img")
    text = Page(unmix.report(tmp_path / "s")).text
    assert "2 not finite" in text and "nan" not in text.partition("Record")[0]


def test_narrow_scenes_and_sums_of_nothing(tmp_path):
    """The middle of the pixels that stand for one is drawn; a pixel without brightness is clear."""
    Y = np.full((5000, 3, 4), 0.5, np.float32)
    Y[:, 0] = -9999
    Y[2500:, 2] = 0
    write_csv(tmp_path / "e.csv", np.array([[0.5, 0.1], [0.5, 0.2], [0.5, 0.6], [0.4, 0.1]]))
    rows = (tmp_path / "e.csv").read_text().splitlines()
    (tmp_path / "e.csv").write_text("\n".join(f"{row},{kind}" for row, kind in zip(rows, ("class", "a", "b"))) + "\n")
    path = write_cube(tmp_path / "s.hdr", Y, data_ignore_value=-9999)
    unmix.run(path, endmembers=tmp_path / "e.csv", method="nnls", by="class", shade_normalize=True)
    image = decoded(tmp_path / "s_browse.png")
    assert image.shape == (1000, 1, 4) and (image[..., 3] == 255).all()
    small = write_cube(tmp_path / "t.hdr", Y[2400:2600], data_ignore_value=-9999)
    unmix.run(small, endmembers=tmp_path / "e.csv", method="nnls", by="class", shade_normalize=True)
    opaque = decoded(tmp_path / "t_browse.png")[..., 3] == 255
    assert not opaque[:, 0].any() and opaque[:, 1].all()
    np.testing.assert_array_equal(opaque[:, 2], np.arange(200) < 100)


def test_outputs_that_are_newly_asked_for_are_not_skipped(tmp_path, scene):
    words = {"endmembers": tmp_path / "e.csv", "scale": 10000}
    unmix.run(scene, **words)
    assert unmix.run(scene, **words, skip_existing=True)["skipped"]
    for more in ({"rgb": "tree"}, {"browse": False}, {"uncertainty": True}, {"weights": "w.txt"}):
        if "weights" in more:
            (tmp_path / "w.txt").write_text("1\n" * 19 + "2\n")
            more = {"weights": tmp_path / "w.txt"}
        refused(unmix.OutputError, "of another run", unmix.run, scene, **words, **more, skip_existing=True)
    unmix.run(scene, **words, rgb="tree", overwrite=True)
    refused(unmix.OutputError, "rgb", unmix.run, scene, **words, skip_existing=True)


def test_a_quiet_run_records_its_warnings(tmp_path, scene):
    (tmp_path / "e.csv").write_text("\n".join((tmp_path / "e.csv").read_text().splitlines()[:3]) + "\n")
    _, err = command("run", scene, "-e", tmp_path / "e.csv", "--scale", "10000", "-q")
    assert err == "" and "the fit is poor" in Page(unmix.report(tmp_path / "s")).text


CHROMIUM = next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)


@pytest.mark.slow
@pytest.mark.parametrize(("wide", "scheme"), [(375, "dark"), (1280, "light")])
def test_in_a_browser(tmp_path, scene, wide, scheme):
    """No request leaves, nothing is wider than the window, every image is shown, the console stays empty, nothing is run."""
    browsers = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no browser")
    pages = [hostile(tmp_path, scene), unmix.report(tmp_path), tmp_path / "compare.html"]
    unmix.compare(tmp_path / "a&b 'c'", tmp_path / "a&b 'c'", out=pages[-1])
    with browsers.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_context(
            viewport={"width": wide, "height": 800}, color_scheme=scheme, offline=True
        ).new_page()
        said, asked = [], []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("request", lambda request: asked.append(request.url.partition(":")[0]))
        for path in pages:
            page.goto(f"file://{os.fspath(path)}".replace("&", "%26"))
            assert page.evaluate("document.documentElement.scrollWidth") == wide
            assert page.evaluate("[...document.images].every(one => one.complete && one.naturalWidth > 0)")
            if path.name == "report.html":
                page.click("th button >> nth=1")
        page.emulate_media(media="print")
        assert page.evaluate("document.body.innerText.length") > 50
        browser.close()
    assert said == [] and set(asked) <= {"file", "data"}
