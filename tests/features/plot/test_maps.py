"""Maps of a run as a picture: its size, panels, scale, and pixels without a value."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from conftest import refused, rest_slow, write_csv, write_cube
from test_cli import unmix as command

import unmix
from unmix.errors import MethodError
from unmix.features.plot.maps import INCH, layout_of, place_of_map, round_length, usual_scale
from unmix.io import open_cube
from unmix.pages.pictures import LUMINANCE, VIRIDIS, ramp

pytest.importorskip("matplotlib")
Image = pytest.importorskip("PIL.Image")
SVG = "{http://www.w3.org/2000/svg}"
LINES, SAMPLES = 12, 20
NAMES = ("soil", "_tree", "$road$")
MAP_INFO = "{UTM, 1, 1, 500000, 5000000, 10, 10, 33, North, WGS-84, units=Meters}"


def write_scene(folder, **fields):
    """A scene whose left third is soil, the middle trees and the rest road, its last lines without data; and its library."""
    E = np.random.default_rng(5).uniform(0.1, 0.9, (30, 3))
    a = np.zeros((LINES, SAMPLES, 3))
    for j in range(3):
        a[:, j * SAMPLES // 3 : (j + 1) * SAMPLES // 3, j] = 1
    Y = a @ E.T
    Y[-4:] = -1
    path = write_cube(folder / "s.hdr", Y.astype(np.float32), data_ignore_value="-1", **fields)
    write_csv(folder / "e.csv", E, names=NAMES)
    unmix.run(path, endmembers=folder / "e.csv", method="fcls", device="cpu", out_dir=folder / "o")
    return folder / "o/s"


@pytest.fixture
def run(tmp_path):
    return write_scene(tmp_path, map_info=MAP_INFO)


def grey_of(path):
    return np.asarray(Image.open(path).convert("L"), float)


@pytest.mark.parametrize(("width", "dpi"), rest_slow([(170, 300), (85, 599), (30, 50)], (85, 599)))
def test_size_in_dots(run, tmp_path, width, dpi):
    command("plot", run, "--maps", "soil", "-o", tmp_path / "m.png", "--width", width, "--dpi", dpi)
    picture = Image.open(tmp_path / "m.png")
    assert picture.width == int(np.ceil(width / INCH * dpi))
    assert picture.info["dpi"] == pytest.approx((dpi, dpi), abs=0.1)
    command("plot", run, "--maps", "soil", "-o", tmp_path / "m.tif", "--width", width, "--dpi", dpi)
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "m.tif")), np.asarray(picture))


def test_panels_titles_and_what_is_below(run, tmp_path):
    unmix.plot(run, tmp_path / "m.svg", maps=" $road$, soil,_tree")
    root = ElementTree.parse(tmp_path / "m.svg").getroot()
    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert [text for text in texts if text in NAMES] == ["$road$", "soil", "_tree"]
    assert {"abundance", "50 m", "N", "no data", "0.0", "1.0"} <= set(texts)
    # Three panels, the colour bar, the line below and its key.
    assert len([one for one in root.iter(f"{SVG}g") if re.fullmatch(r"axes_\d+", one.get("id", ""))]) == 6
    again = (tmp_path / "m.svg").read_bytes()
    unmix.plot(run, tmp_path / "m.svg", maps=["$road$", "soil", "_tree"], overwrite=True)
    assert (tmp_path / "m.svg").read_bytes() == again
    unmix.plot(run, tmp_path / "m.pdf", maps="soil")
    assert (tmp_path / "m.pdf").read_bytes().startswith(b"%PDF")


def test_zero_one_and_no_data_differ_in_grey(run, tmp_path):
    width, dpi = 100, 254  # ten dots a millimetre
    unmix.plot(run, tmp_path / "m.png", maps="soil,_tree", width=width, dpi=dpi)
    grey, laid = grey_of(tmp_path / "m.png"), layout_of(2, LINES / SAMPLES, width)

    def pixels(panel, line, sample):
        """The dots of a pixel of a map, without their edges."""
        left, bottom = laid.corners[panel]
        x, y = left + (sample + np.array([0.2, 0.8])) * laid.panel[0] / SAMPLES, laid.height - bottom - laid.panel[1]
        y = y + (line + np.array([0.2, 0.8])) * laid.panel[1] / LINES
        (x0, x1), (y0, y1) = np.round(10 * x).astype(int), np.round(10 * y).astype(int)
        return grey[y0:y1, x0:x1]

    dark, bright = (float(np.dot([0.299, 0.587, 0.114], ramp(VIRIDIS)[i, :3])) for i in (0, 254))
    for panel, sample, value in ((0, 2, bright), (0, 10, dark), (1, 2, dark), (1, 10, bright)):
        assert np.abs(pixels(panel, 3, sample) - value).max() <= 2
    gaps = np.concatenate([pixels(panel, LINES - 2, sample).ravel() for panel in (0, 1) for sample in range(1, 19)])
    assert gaps.max() == 255 and gaps.min() < 200 and np.mean(gaps > 240) > 0.5  # white with strokes


def test_colours_grow_lighter_with_the_value():
    share = ramp(VIRIDIS)[:255, :3] / 255.0
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    luminance, grey = (
        linear @ LUMINANCE,
        np.round(255 * share @ [0.299, 0.587, 0.114]),
    )  # as eyes and as programs see it
    # Colours are rounded to 1/255, by which one may be as light as the next.
    assert (luminance[2:] > luminance[:-2]).all() and (np.diff(grey) >= 0).all() and grey[-1] - grey[0] > 150


def test_a_scene_without_a_place_or_gaps(tmp_path):
    Y = np.random.default_rng(1).uniform(0.2, 0.8, (4, 50, 8))
    write_csv(tmp_path / "e.csv", Y[0, :3].T, names=("a b", "c", "d" * 90))
    path = write_cube(tmp_path / "s.hdr", Y.astype(np.float32))
    unmix.run(path, endmembers=tmp_path / "e.csv", method="nnls", device="cpu", out_dir=tmp_path / "o")
    unmix.plot(tmp_path / "o/s_abundance.img", tmp_path / "m.svg", maps="a b")
    texts = [one.text for one in ElementTree.parse(tmp_path / "m.svg").getroot().iter(f"{SVG}text")]
    assert "a b" in texts and not {"N", "no data"} & set(texts)
    unmix.plot(tmp_path / "o/s", tmp_path / "m.png", maps=["c", "d" * 90] * 5, stretch=(-1, 2))


def test_classes(tmp_path, run):
    (tmp_path / "c.csv").write_text("name,class\nsoil,ground\n_tree,green\n$road$,ground\n")
    how = {"classes": f"{tmp_path / 'c.csv'}:class", "by": "class", "method": "fcls", "device": "cpu"}
    how |= {"out_dir": tmp_path / "p"}
    unmix.run(tmp_path / "s.hdr", endmembers=tmp_path / "e.csv", **how)
    unmix.plot(tmp_path / "p/s", tmp_path / "m.svg", maps="ground,green")
    assert {"fraction", "ground"} <= {
        one.text for one in ElementTree.parse(tmp_path / "m.svg").getroot().iter(f"{SVG}text")
    }


@pytest.mark.parametrize(
    ("info", "aspect", "north"),
    [
        (MAP_INFO, 1.0, 0.0),
        (MAP_INFO.replace("10, 10", "10, 20"), 2.0, 0.0),
        (MAP_INFO[:-1] + ", rotation=30}", 1.0, 30.0),
    ],
)
def test_place_on_the_ground(tmp_path, info, aspect, north):
    pytest.importorskip("rasterio")
    place = place_of_map(open_cube(write_cube(tmp_path / "s.hdr", np.ones((3, 4, 2), np.float32), map_info=info)))
    assert place.metres == pytest.approx(10) and place.aspect == pytest.approx(aspect)
    assert abs(np.degrees(place.north)) == pytest.approx(north)


def test_lengths_of_scale_bars():
    assert [round_length(most) for most in (1, 1.9, 2, 4.99, 7, 99, 1234, 0.03)] == [1, 1, 2, 2, 5, 50, 1000, 0.02]


@pytest.mark.parametrize("shape", [0.001, 0.5, 1, 9, 1000])
@pytest.mark.parametrize("count", [1, 3, 5, 24])
def test_panels_are_inside_and_apart(shape, count):
    try:
        laid = layout_of(count, shape, 170)
    except MethodError as error:
        assert shape > 8 and "mm wide" in str(error)
        return
    (w, h), corners = laid.panel, np.array(laid.corners)
    assert (corners >= 0).all() and (corners + [w, h] <= [laid.width, laid.height]).all() and laid.height < 400
    for i, one in enumerate(corners):
        assert all((np.abs(one - other) > np.array([w, h])).any() for other in corners[i + 1 :])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--maps", "soil,grass"], "there are soil, _tree, $road$"),
        (["--maps", ""], "there are soil"),
        (["--maps", "soil", "--at", "1,1"], "of one run"),
        (["--stretch", "0,1"], "is of --maps"),
        (["--maps", "soil", "--stretch", "1,0"], "LOW,HIGH"),
        (["--maps", "soil", "--stretch", "0,nan"], "LOW,HIGH"),
        (["--maps", "soil", "--width", "2"], "from 30 to 600 mm"),
        (["--maps", "soil", "--width", "0"], "from 30 to 600 mm"),
        (["--maps", "soil", "--dpi", "9999"], "from 50 to 1200"),
    ],
)
def test_faults(run, tmp_path, options, said):
    assert said in command("plot", run, "-o", tmp_path / "m.png", *options, code=2)[1]
    assert not (tmp_path / "m.png").exists()


def test_ranks_have_no_names(run, tmp_path):
    unmix.run(
        tmp_path / "s.hdr", endmembers=tmp_path / "e.csv", method="fcls", device="cpu", top=3, out_dir=tmp_path / "t"
    )
    refused(MethodError, "there are none", unmix.plot, tmp_path / "t/s", tmp_path / "m.png", maps="soil")


@pytest.mark.parametrize("system", ["", 'PROJCS["unknown to all",]'])
def test_a_report_has_hectares_where_pixels_have_an_area(tmp_path, system):
    pytest.importorskip("rasterio")
    fields = {"coordinate_system_string": "{" + system + "}"} if system else {}
    page = unmix.report(write_scene(tmp_path, map_info=MAP_INFO, **fields)).read_text()
    inside = (LINES - 4) * 7 * 100 / 1e4 / 0.9996**2  # of the seven columns of 10 m pixels, on the central meridian
    assert (f"; {inside:.4g} ha" in page) == (not system)
    unmix.plot(tmp_path / "o/s", tmp_path / "m.svg", maps="soil")
    assert (">N<" in (tmp_path / "m.svg").read_text()) == (not system)


def test_maps_that_no_run_wrote(run, tmp_path):
    """A map of changes is drawn on a scale about 0, white where nothing changed; scores from the least to the largest."""
    values = np.zeros((6, 8, 2), np.float32)
    values[:, :4, 0], values[:, 4:, 1] = -0.2, 0.1
    names = {"band_names": "{soil a year, tree a year}", "data_ignore_value": "-9999"}
    path = write_cube(tmp_path / "trend.hdr", values, **names)
    command("plot", path, "--maps", "soil a year", "-o", tmp_path / "m.png")
    command("plot", path, "--maps", "all", "-o", tmp_path / "m.svg")
    root = ElementTree.parse(tmp_path / "m.svg").getroot()
    words = ["".join(one.itertext()) for one in root.iter(SVG + "text")]
    assert {"soil a year", "tree a year"} <= set(words) and {"−0.2", "0.20"} <= {word[:4] for word in words}
    scores = write_cube(tmp_path / "x_detect.hdr", np.abs(values) * 10, **names)
    assert usual_scale(np.ma.masked_array(np.array([0.0, 2.0]))) == pytest.approx((0.01, 1.99))
    assert usual_scale(np.ma.masked_array(np.array([-3.0, 1.0])))[1] == pytest.approx(2.98)
    command("plot", scores, "--maps", "tree a year", "--stretch", "0,2", "-o", tmp_path / "n.png")
    assert "there are soil a year, tree" in command("plot", scores, "--maps", "x", "-o", tmp_path / "o.png", code=2)[1]
    unmix.plot(run, tmp_path / "all.svg", maps="all")
    assert all(name in (tmp_path / "all.svg").read_text() for name in NAMES)
    assert "no finished run" in command("plot", tmp_path / "none", "--maps", "x", "-o", tmp_path / "o.png", code=1)[1]


def test_the_map_that_is_named(run, tmp_path):
    """A run's RMSE, named by either of its files, is drawn and compared; other commands say which maps they take."""
    named = run.with_name("s_rmse.hdr")
    unmix.plot(named, tmp_path / "m.svg", maps="all")
    words = ["".join(one.itertext()) for one in ElementTree.parse(tmp_path / "m.svg").getroot().iter(SVG + "text")]
    assert "rmse" in words and not {*NAMES} & {*words}
    assert "draw it with" in command("plot", named, "-o", tmp_path / "n.png", code=2)[1]
    unmix.run(
        tmp_path / "s.hdr",
        endmembers=tmp_path / "e.csv",
        method="fcls",
        device="cpu",
        out_dir=tmp_path / "p",
        certificate=True,
    )
    for pair in ((named, tmp_path / "p/s"), (tmp_path / "p/s", run.with_name("s_rmse.img"))):
        (row,) = unmix.compare(*pair, out=tmp_path / "c.hdr", overwrite=True)["pairs"]
        assert row["a"] == row["b"] == "rmse" and row["rmse"] == 0
    values = open_cube(tmp_path / "c.hdr")
    assert values.bands == 1 and values.lines == LINES
    for words, said in (
        (("compare", named, run.with_name("s_abundance.hdr")), "rmse and shares are not compared"),
        (("compare", named, run, "-o", tmp_path / "c.html"), "a page is of shares"),
        (("compare", tmp_path / "p/s_certificate.hdr", run), "s_certificate: is no map of abundance"),
        (("zonal", named), "s_rmse: is no map of abundance, fraction, mass"),
    ):
        assert said in command(*words, code=2)[1]
    assert [file.name for file in unmix.export(named, tmp_path / "x", format="envi")] == ["s_rmse.img", "s_rmse.hdr"]
