"""Commands that write maps of scenes beside no run: any format, many scenes, and the page of `match`."""

import json
import re

import numpy as np
import pytest
from conftest import mix, read_values, refused, rest_slow, write_cube
from test_cli import unmix as command

import unmix
from unmix.commands.verify import verify
from unmix.errors import CubeError, MethodError, OutputError
from unmix.features.images import match as module
from unmix.io import open_cube
from unmix.io.export import FORMATS
from unmix.library import Endmembers
from unmix.library.matching import AMBIGUOUS
from unmix.settings.maps import MAPS, images

WAVES = np.linspace(500, 2400, 20)
NAMES = ("a <b>", "soil & 'dry'", "c", "wood")
PLACE = "{UTM, 1, 1, 500000, 4000000, 30, 30, 33, North, WGS-84, units=Meters}"
# Each command with its words, and the maps that it writes.
COMMANDS = {
    "match": ({"class_map": True, "report": True}, ["match", "match_class"]),
    "detect": ({}, ["detect"]),
    "features": ({"feature": ["x=1000-1400"], "continuum": True}, ["features", "continuum"]),
    "mnf": ({"count": 3}, ["mnf"]),
    "ppi": ({"skewers": 50}, ["ppi"]),
}


@pytest.fixture
def scene(tmp_path):
    """A scene on a map, with a hole, its pixels, and a library with hostile names and classes."""
    _, E, Y = mix(8, (22, 19), 20, 4, noise=0.01, alpha=0.4)
    Y[3, 4] = -1
    Y = Y.astype(np.float32)
    waves = "{" + ", ".join(map(str, WAVES)) + "}"
    fields = {"data_ignore_value": -1, "wavelength": waves, "wavelength_units": "Nanometers", "map_info": PLACE}
    path = write_cube(tmp_path / "s.hdr", Y, **fields)
    Endmembers(NAMES, E, WAVES, classes=("x", "x", "y", "<y>")).write(tmp_path / "l.csv", None, None)
    return path, Y, fields


def words_of(name, path, **more):
    library = {"endmembers": path.parent / "l.csv"} if name in ("match", "detect") else {}
    return COMMANDS[name][0] | library | more


def values_in(file, name, form):
    cube = open_cube(file, form.dataset and form.dataset.format(name))
    return cube, read_values(cube)


OTHERS = [name for name in FORMATS if name not in ("envi", "netcdf")]


@pytest.mark.parametrize(
    ("name", "format"),
    [*((name, "netcdf") for name in COMMANDS), *rest_slow([("match", form) for form in OTHERS], ("match", "geotiff"))],
)
def test_any_format_holds_what_envi_holds(tmp_path, scene, name, format):
    path, *_ = scene
    form = FORMATS[format]
    for package in filter(None, form.needs[:1]):
        pytest.importorskip(package)
    do = getattr(unmix, name)
    plain = do(path, **words_of(name, path, out_dir=tmp_path / "envi"))
    found = do(path, **words_of(name, path, out_dir=tmp_path / "o", format=format))
    written = sorted(file.name for file in (tmp_path / "o").iterdir())
    assert sorted(file.rpartition("/")[2] for file in found["files"]) == written
    assert {key: one for key, one in found.items() if key != "files"} == {
        key: one for key, one in plain.items() if key != "files"
    }
    for one in COMMANDS[name][1]:
        envi, expected = values_in(tmp_path / f"envi/s_{one}.hdr", one, FORMATS["envi"])
        cube, values = values_in(tmp_path / f"o/s_{one}{form.endings[0]}", one, form)
        np.testing.assert_array_equal(values, expected)
        plain, again = values_in(tmp_path / f"o/s_{one}{form.endings[0]}", one, FORMATS["envi"])  # no dataset is named
        np.testing.assert_array_equal(again, expected)
        assert (plain.wavelengths is None) == (envi.wavelengths is None) == (one not in ("means", "continuum"))
        assert cube.nodata == envi.nodata and "500000" in cube.fields["map info"].replace("5e+05", "500000")
    for file in (tmp_path / "o").glob("*.[cth][sxt][vtm]*"):  # tables and pages
        assert file.read_bytes() == (tmp_path / "envi" / file.name).read_bytes()


def test_classes_keep_their_colours(tmp_path, scene):
    """GeoTIFF has them as a palette; overviews of numbers are numbers of the map, not means."""
    rasterio = pytest.importorskip("rasterio")
    path, _, fields = scene
    random = np.random.default_rng(1)
    Y = np.tile(scene[1], (26, 28, 1))[:560, :530] + 0.01 * random.standard_normal((560, 530, 20))
    large = write_cube(tmp_path / "large.hdr", Y.astype(np.float32), **fields)
    unmix.match(large, path.parent / "l.csv", class_map=True, format="cog", out_dir=tmp_path / "o")
    with rasterio.open(tmp_path / "o/large_match_class.tif") as file:
        assert file.colormap(1)[1][:3] == (0, 120, 156) and file.nodata == 0
        assert file.tags(1)["CLASSES"].startswith("0 unclassified; 1 ")
    with rasterio.open(tmp_path / "o/large_match.tif") as file:
        assert file.overviews(1)
        assert set(np.unique(file.read(1, out_shape=(280, 265)))) <= {-9999, 0, 1, 2, 3, 4}


def test_files_of_another_format_and_of_others(tmp_path, scene):
    """A table that came with maps of another format is ours; a file of the user is not."""
    path, *_ = scene
    where = {"endmembers": path.parent / "l.csv", "out_dir": tmp_path / "o"}
    unmix.match(path, class_map=True, report=True, format="hdf5", **where)
    refused(OutputError, "exists already", unmix.match, path, **where)
    unmix.match(path, overwrite=True, **where)
    names = sorted(file.name for file in (tmp_path / "o").iterdir())
    assert names == ["s_match.csv", "s_match.hdr", "s_match.img"]  # nothing of the older ones
    for file in (tmp_path / "o").iterdir():
        file.unlink()
    (tmp_path / "o/s_match.csv").write_text("mine")
    refused(OutputError, "unmix did not write it", unmix.match, path, overwrite=True, format="netcdf", **where)
    assert [file.name for file in (tmp_path / "o").iterdir()] == ["s_match.csv"]


def test_what_contradicts_new_maps_goes_and_nothing_else(tmp_path, scene):
    """Maps of other formats, and those that are not asked for; of ours alone, never without `overwrite`, never a file that is read."""
    path, *_ = scene
    where = {"endmembers": path.parent / "l.csv", "out_dir": tmp_path / "o"}
    unmix.match(path, class_map=True, report=True, **where)
    with pytest.raises(MethodError, match="a file of the mask that is read"):
        unmix.match(path, mask=str(tmp_path / "o/s_match_class.hdr"), overwrite=True, **where)
    (tmp_path / "o/s_match.csv").unlink(), (tmp_path / "o/s_match.img").unlink(), (tmp_path / "o/s_match.hdr").unlink()
    refused(OutputError, r"s_match_class\.hdr: exists already; use", unmix.match, path, **where)
    assert len(list((tmp_path / "o").iterdir())) == 3
    (tmp_path / "o/s_match.nc").write_text("mine")
    (tmp_path / "o/s_match_class.tif").symlink_to(tmp_path / "l.csv")
    unmix.match(path, overwrite=True, format="hdf5", **where)
    names = sorted(file.name for file in (tmp_path / "o").iterdir())
    assert names == ["s_match.csv", "s_match.h5", "s_match.nc", "s_match_class.tif"]
    unmix.match(path, overwrite=True, **where)
    assert not (tmp_path / "o/s_match.h5").exists()
    # The page of a run of a scene with that name.
    for ending in (".hdr", ".img"):
        (tmp_path / f"s_match{ending}").write_bytes((tmp_path / f"s{ending}").read_bytes())
    unmix.run(tmp_path / "s_match.hdr", endmembers=tmp_path / "l.csv", device="cpu", out_dir=tmp_path / "r")
    page = unmix.report(tmp_path / "r/s_match")
    unmix.match(path, endmembers=tmp_path / "l.csv", out_dir=tmp_path / "r")
    assert page.exists() and verify(tmp_path / "r/s_match").faults == []


def test_scenes_that_are_outputs_of_others(tmp_path, scene):
    """None is replaced before it is read; names with dots are known as well."""
    path, Y, fields = scene
    command("mnf", path, "-n", "3")
    command("mnf", path, tmp_path / "s_mnf.hdr", "--overwrite", code=2, tells="s_mnf.hdr: has the name of an output of")
    dotted = write_cube(tmp_path / "f97.a.rfl.hdr", Y, **fields)
    command("match", dotted, "-e", tmp_path / "l.csv", "--class-map")
    _, err = command("match", *sorted(tmp_path.glob("f97*.hdr")), "-e", tmp_path / "l.csv", "--overwrite")
    assert "2 outputs of unmix are left out" in err
    _, err = command("match", path, dotted, "-e", tmp_path / "none.csv", code=3)
    assert f"{path}: {tmp_path}/none.csv" in err and f"{dotted}: {tmp_path}/none.csv" in err


def test_places_are_those_of_the_whole_scene(tmp_path, scene):
    path, *_ = scene
    whole = unmix.detect(path, tmp_path / "l.csv", detector="ace", out_dir=tmp_path / "a")
    part = unmix.detect(path, tmp_path / "l.csv", detector="ace", lines="5:22", samples="3:19", out_dir=tmp_path / "b")
    scores = values_in(tmp_path / "b/s_detect.hdr", "detect", FORMATS["envi"])[1]
    for j, one in enumerate(part["targets"]):
        assert scores[one["line"] - 5, one["sample"] - 3, j] == scores[..., j].max()
    assert {one["line"] for one in whole["targets"]} != set()


@pytest.mark.parametrize("name", COMMANDS)
def test_what_cannot_be(tmp_path, scene, name):
    path, Y, fields = scene
    do = getattr(unmix, name)
    refused(MethodError, "`threads` -1", lambda: do(path, **words_of(name, path, threads=-1)))
    refused(MethodError, "unknown format 'nope'", lambda: do(path, **words_of(name, path, format="nope")))
    masked = write_cube(tmp_path / "m.hdr", np.full_like(Y, -1), **fields)
    refused(CubeError, None, lambda: do(masked, **words_of(name, path, out_dir=tmp_path / "o")))
    assert not (tmp_path / "o").exists()


def test_a_format_that_fails_leaves_nothing(tmp_path, scene, monkeypatch):
    path, *_ = scene

    def fail(*_):
        raise RuntimeError("no\nspace")

    broken = FORMATS | {"netcdf": FORMATS["netcdf"].__class__("netcdf", "", (".nc",), fail)}
    monkeypatch.setattr("unmix.io.export.FORMATS", broken)
    with pytest.raises(OutputError, match=r"s_mnf.nc: writing failed: no space"):
        unmix.mnf(path, count=2, format="netcdf", out_dir=tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_many_scenes(tmp_path, scene):
    """Outputs and libraries among them are left out, one that fails is named, and the others are done."""
    path, Y, fields = scene
    write_cube(tmp_path / "t.hdr", Y[:5], **fields)
    (tmp_path / "u.hdr").write_text("hello\n")
    common = ("-e", tmp_path / "l.csv", "--class-map")
    out, err = command("match", path, tmp_path / "t.hdr", tmp_path / "u.hdr", *common, code=4)
    assert out.count("without a name") == 2 and f"{path}:" in out and "u.hdr: is not an ENVI header" in err
    listed = tmp_path / "list.txt"
    listed.write_text("\n".join(str(one) for one in sorted(tmp_path.glob("[st]*.hdr"))))
    out, err = command("match", "--list", listed, *common, "--overwrite", "--json")
    assert [json.loads(line)["cube"] for line in out.splitlines()] == [str(path), str(tmp_path / "t.hdr")]
    assert "4 outputs of unmix are left out" in err
    out, _ = command("match", "--list", listed, *common, "-f", "netcdf", "--shard", "2/2", "-o", tmp_path / "o")
    assert sorted(one.name for one in (tmp_path / "o").iterdir()) == ["t_match.csv", "t_match.nc", "t_match_class.nc"]
    assert "t_match.nc" in out and "s_match" not in out
    # A run does not take them for scenes either, but takes spectra.
    command("mnf", path, "-n", "3", "--inverse", "-o", tmp_path)
    names = sorted(tmp_path.glob("s*.hdr"))
    out, err = command("run", *names, "-e", tmp_path / "l.csv", "--device", "cpu", "-o", tmp_path / "r")
    assert "2 outputs of unmix are left out" in err
    assert {one.name for one in (tmp_path / "r").glob("*_run.json")} == {"s_run.json", "s_denoised_run.json"}


def test_names_of_maps_are_of_one_thing():
    """No map of a command has the name of a run's map."""
    assert not set(images()) & set(MAPS)


@pytest.mark.parametrize("continuum", [False, True])
def test_the_page_says_what_was_found(tmp_path, scene, monkeypatch, continuum):
    path, Y, _ = scene
    pages, make = [], module.match_page
    monkeypatch.setattr(module, "match_page", lambda found: pages.append(found) or make(found))
    words = {"max_distance": 12.0 if continuum else 8.0, "continuum": continuum, "class_map": True, "report": True}
    found = unmix.match(path, path.parent / "l.csv", out_dir=tmp_path / "o", memory="30k", **words)
    (page,) = pages
    _, image = values_in(tmp_path / "o/s_match.hdr", "match", FORMATS["envi"])
    number, least, following = np.moveaxis(image.astype(float), 2, 0)
    good = Y[..., 0] != -1
    for one in found["spectra"]:
        mine = good & (number == one["number"])
        assert one["pixels"] == mine.sum()
        if mine.any():
            np.testing.assert_allclose(page.means[one["number"]], Y[mine].astype(float).mean(axis=0), rtol=1e-12)
            np.testing.assert_allclose(one["mean_distance"], least[mine].mean(), rtol=1e-6)
    assert found["none"] == (good & (number == 0)).sum() > 0
    clear = good & (number > 0) & (following > AMBIGUOUS * least)
    assert abs(found["unclear"] - ((number > 0).sum() - clear.sum())) <= 1  # the map is float32
    text = (tmp_path / "o/s_match_report.html").read_text()
    assert "a &lt;b&gt;" in text and "&lt;y&gt;" in text and "<b>, " not in text.replace("</b>, ", "")
    named = sum(one["pixels"] for one in found["spectra"])
    assert f"{named} of {named + found['none']} pixels have a name" in text
    assert len(re.findall('<svg class="lines"', text)) == sum(one["pixels"] > 0 for one in found["spectra"])
    assert not re.search(r"(?:src|href)=\"(?!data:)", text)


def test_the_page_of_no_names_and_of_bands(tmp_path, scene):
    """Nothing is near enough; and a scene without wavelengths, of one band, has a page as well."""
    path, Y, _ = scene
    unmix.match(path, path.parent / "l.csv", out_dir=tmp_path / "o", report=True, max_distance=1e-9)
    assert "0 of 417 pixels have a name" in (tmp_path / "o/s_match_report.html").read_text()
    plain = write_cube(tmp_path / "p.hdr", Y[:, :1])
    Endmembers(("a", "b"), np.random.default_rng(0).random((20, 2)), None).write(tmp_path / "n.csv", None, None)
    unmix.match(plain, tmp_path / "n.csv", report=True, overwrite=True)
    assert ">band<" in (tmp_path / "p_match_report.html").read_text()
