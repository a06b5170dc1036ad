"""Exports of finished runs: every file opens as the run's own map, whatever the format."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import mix, read_values, refused, rest_slow, write_csv, write_cube
from test_cli import unmix as command
from test_qgis import QGIS

import unmix
from unmix.io import open_cube
from unmix.io.formats.header import words

MAP = "{UTM, 1, 1, 500000, 4000000, 30, 20, 11, North, WGS-84, units=Meters}"
NAMES = ["bare soil/1", "Bare_Soil_1", "“tree”", "..", "road"]


@pytest.fixture
def finished(tmp_path):
    """A finished run with classes, whose endmembers have names that are no names of files."""
    _, E, Y = mix(4, (9, 11), 12, 5, noise=0.01)
    Y[2, 3] = -1
    write_csv(tmp_path / "e.csv", E)
    rows = (tmp_path / "e.csv").read_text().splitlines()
    rows[0] += ",class"
    kinds = ("soil", "soil", "tree", "tree", "road")
    rows[1:] = [f"{name}{row[row.index(',') :]},{kind}" for name, row, kind in zip(NAMES, rows[1:], kinds)]
    (tmp_path / "e.csv").write_text("\n".join(rows) + "\n")
    scene = write_cube(tmp_path / "s.hdr", Y, map_info=MAP, data_ignore_value=-1)
    how = {"method": "fcls", "endmembers": tmp_path / "e.csv"}
    unmix.run(scene, class_map=True, residual=True, by="class", out_dir=tmp_path / "m", **how)
    return tmp_path / "m/s"


def values_of(path, dataset=None):
    cube = open_cube(path, dataset)
    return cube, read_values(cube)


@pytest.mark.parametrize(
    ("form", "split"),
    rest_slow(
        [("envi", False), ("GTiff", True), ("netcdf", False), ("envi", True), ("cog", False), ("hdf5", True)],
        ("envi", False),
        ("GTiff", True),
        ("netcdf", False),
    ),
)
def test_files_are_the_maps(tmp_path, finished, form, split):
    if form in ("GTiff", "cog"):
        pytest.importorskip("rasterio")
    files = unmix.export(finished, tmp_path / "out", format=form, split=split)
    assert sorted(files) == sorted((tmp_path / "out").iterdir())
    own = {
        name: values_of(finished.with_name(f"s_{name}.img"))
        for name in ("abundance", "rmse", "residual", "class", "fraction")
    }
    data = [file for file in files if file.suffix != ".hdr"]
    assert len(data) == (5 + 1 + 12 + 1 + own["fraction"][0].bands if split else 5)
    seen = dict.fromkeys(own, 0)
    for file in data:
        name = file.stem.split("_")[1]
        cube, found = values_of(file, f"/{name}:byx" if form in ("netcdf", "hdf5") else None)
        first, expected = seen[name], own[name][1]
        np.testing.assert_array_equal(found, expected[..., first : first + found.shape[2]])
        labels, own_labels = words(cube.fields, "band names"), words(own[name][0].fields, "band names")
        assert labels in (None, own_labels[first : first + found.shape[2]]) and cube.nodata == own[name][0].nodata
        assert labels is not None or form in ("netcdf", "hdf5")
        assert cube.fields["map info"].split(",")[3:7] == own[name][0].fields["map info"].split(",")[3:7]
        seen[name] += found.shape[2]
    assert seen == {name: cube.bands for name, (cube, _) in own.items()}


def test_names_of_bands_become_names_of_files(tmp_path, finished):
    files = unmix.export(finished, tmp_path / "out", format="envi", split=True, maps=["abundance"])
    assert [file.name for file in files[::2]] == [
        "s_abundance_bare_soil_1.img",
        "s_abundance_Bare_Soil_1_2.img",
        "s_abundance_tree.img",
        "s_abundance_4.img",
        "s_abundance_road.img",
    ]


def test_no_two_bands_have_one_file(tmp_path):
    """Names that become one name, and then the name of another."""
    random = np.random.default_rng(4)
    E = random.uniform(0.1, 0.9, (12, 5))
    write_csv(tmp_path / "e.csv", E)
    rows = (tmp_path / "e.csv").read_text().splitlines()
    names = ["a_3", "a!", "a?", "ä", "Ä!"]
    (tmp_path / "e.csv").write_text(
        "\n".join([rows[0], *(name + row[row.index(",") :] for name, row in zip(names, rows[1:]))])
    )
    scene = write_cube(tmp_path / "s.hdr", random.dirichlet(np.ones(5), (3, 4)) @ E.T)
    unmix.run(scene, endmembers=tmp_path / "e.csv")
    files = unmix.export(tmp_path / "s", tmp_path / "o", format="envi", split=True, maps=["abundance"])
    assert [file.stem for file in files[::2]] == [f"s_abundance_{word}" for word in ("a_3", "a", "a_3_3", "ä", "Ä_5")]
    for k, file in enumerate(files[::2]):
        assert words(open_cube(file).fields, "band names") == [names[k]]
        np.testing.assert_array_equal(values_of(file)[1][..., 0], values_of(tmp_path / "s_abundance.img")[1][..., k])


def test_what_is_refused(tmp_path, finished):
    pytest.importorskip("rasterio")
    out = tmp_path / "out"
    unmix.export(finished, out, maps=["rmse"])
    before = (out / "s_rmse.tif").read_bytes()
    refused(unmix.OutputError, "exists already", unmix.export, finished, out, maps=["abundance", "rmse"])
    assert [file.name for file in out.iterdir()] == ["s_rmse.tif"] and (out / "s_rmse.tif").read_bytes() == before
    unmix.export(finished, out, maps=["rmse"], overwrite=True)
    assert (out / "s_rmse.tif").read_bytes() == before
    refused(unmix.MethodError, "'sigma'; it has abundance, rmse", unmix.export, finished, out, maps=["sigma"])
    refused(unmix.MethodError, "would replace", unmix.export, finished, finished.parent, format="envi", overwrite=True)
    refused(unmix.MethodError, "unknown format", unmix.export, finished, out, format="jpeg")
    unmix.run(tmp_path / "s.hdr", endmembers=tmp_path / "e.csv", format="hdf5", out_dir=tmp_path / "h")
    refused(
        unmix.OutputError, "in hdf5; export reads those in ENVI: run it without", unmix.export, tmp_path / "h/s", out
    )
    with open(finished.with_name("s_abundance.img"), "r+b") as file:
        file.write(b"\1")
    refused(unmix.OutputError, "is not what the run wrote", unmix.export, finished, out, maps=["rmse"], overwrite=True)


def test_on_the_command_line(tmp_path, finished):
    out, _ = command(
        "export", finished, "-o", tmp_path / "o", "-f", "netcdf", "--map", "abundance", "--map", "rmse", "--qml"
    )
    assert out.split() == [
        str(tmp_path / "o" / name) for name in ("s_abundance.nc", "s_rmse.nc", "s_abundance.qml", "s_rmse.qml")
    ]
    record = json.loads(finished.with_name("s_run.json").read_text())
    style = (tmp_path / "o/s_abundance.qml").read_text()
    assert ('type="multibandcolor"' in style) == all(name in NAMES for name in record["browse"])


LAYERS = """
import json, sys
from qgis.core import QgsApplication, QgsRasterLayer
application = QgsApplication([], False)
application.initQgis()
found = []
for path in sys.argv[1:]:
    layer = QgsRasterLayer(path, "map")
    renderer = layer.renderer()
    one = renderer.type() == "singlebandpseudocolor"
    found.append([renderer.type(), [renderer.classificationMin(), renderer.classificationMax()] if one else
                  [renderer.redBand(), renderer.greenBand(), renderer.blueBand()]])
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.skipif(QGIS is None, reason="no QGIS (Debian: qgis)")
def test_qgis_applies_the_styles(tmp_path, finished):
    pytest.importorskip("rasterio")
    python = "/usr/bin/python3"
    if subprocess.run([python, "-c", "import qgis.core"], capture_output=True).returncode:
        pytest.skip("no QGIS for the system's Python")
    unmix.run(tmp_path / "s.hdr", endmembers=tmp_path / "e.csv", out_dir=tmp_path / "n")
    unmix.export(tmp_path / "n/s", tmp_path / "out", format="geotiff", style=True)
    unmix.export(tmp_path / "n/s", tmp_path / "out", format="envi", style=True, maps=["abundance"], split=True)
    paths = [tmp_path / "out" / name for name in ("s_abundance.tif", "s_rmse.tif", "s_abundance_road.img")]
    done = subprocess.run(
        [python, "-c", LAYERS, *paths],
        capture_output=True,
        text=True,
        env={
            "QT_QPA_PLATFORM": "offscreen",
            "HOME": str(tmp_path),
            "XDG_RUNTIME_DIR": str(tmp_path),
            "PATH": "/usr/bin",
        },
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    record = json.loads((tmp_path / "n/s_run.json").read_text())
    assert found[0] == ["multibandcolor", [NAMES.index(name) + 1 for name in record["browse"]]]
    assert found[1][0] == "singlebandpseudocolor"
    assert found[1][1] == pytest.approx([0, record["fit"]["maximum_rmse"]], rel=1e-5)
    assert found[2] == ["singlebandpseudocolor", [0, 1]]


def test_without_rasterio_the_formats_that_do_without_are_named(tmp_path, scene, monkeypatch):
    """COG is the default of export; where it cannot be written the error says what can, and that works."""
    unmix.run(scene, count=3, extract="vca", device="cpu", out_dir=tmp_path / "o")
    monkeypatch.setitem(sys.modules, "rasterio", None)
    _, err = command("export", tmp_path / "o/scene", "-o", tmp_path / "x", code=2)
    assert "--format cog needs rasterio: pip install 'unmix[geo]'; --format netcdf and hdf5 do without" in err
    command("export", tmp_path / "o/scene", "-o", tmp_path / "x", "-f", "netcdf")


@pytest.mark.parametrize(
    "place", [{"map_info": MAP}, {}, {"map_info": MAP.replace("units=Meters", "units=Meters, rotation=30")}]
)
def test_xarray_reads_netcdf(tmp_path, place):
    """With a place on a map, without, and on a turned map, by h5netcdf, which the extra `xarray` brings."""
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    _, E, Y = mix(4, (9, 11), 12, 3)
    path = write_cube(tmp_path / "x.hdr", Y, **place)
    write_csv(tmp_path / "e.csv", E)
    unmix.run(path, endmembers=tmp_path / "e.csv", device="cpu", format="netcdf")
    unmix.run(path, endmembers=tmp_path / "e.csv", device="cpu", out_dir=tmp_path / "envi")
    plain = np.fromfile(tmp_path / "envi/x_abundance.img", "<f4").reshape(9, 3, 11).transpose(1, 0, 2)
    with xarray.open_dataset(tmp_path / "x_abundance.nc") as opened:
        assert opened["abundance"].dims == ("band", "y", "x")
        assert ("y" in opened.coords) == ("rotation" not in str(place) and bool(place))
        np.testing.assert_array_equal(opened["abundance"], plain)


@pytest.mark.parametrize(("form", "split"), [("envi", False), ("GTiff", True), ("cog", False)])
def test_per_cent_as_bytes(tmp_path, finished, form, split):
    """Rounded, 255 where there is no data, no scale; shares alone; what a byte cannot hold is refused."""
    if form != "envi":
        pytest.importorskip("rasterio")
    files = unmix.export(finished, tmp_path / "out", format=form, split=split, percent=True, style=True)
    styles = [path.read_text() for path in files if path.suffix == ".qml"]
    assert styles and all('classificationMax="100"' in one or "<maxValue>100</maxValue>" in one for one in styles)
    files = [path for path in files if path.suffix != ".qml"]
    maps = {path for path in files if path.suffix != ".hdr"}
    assert len(maps) == (9 if split else 2) and not any("rmse" in path.name or "class" in path.name for path in maps)
    for name in ("abundance", "fraction"):
        whole = read_values(open_cube(finished.with_name(f"s_{name}.hdr"))).astype(float)
        found = [values_of(path) for path in files if f"s_{name}" in path.name and path.suffix != ".img"]
        bytes_ = np.dstack([values for _, values in found])
        assert all(cube.dtype == np.uint8 and cube.nodata == 255 and cube.gain is None for cube, _ in found)
        wanted = np.where(whole == -9999, 255, np.floor(100 * whole + 0.5))
        assert (np.abs(bytes_.astype(int) - wanted) <= (np.abs(100 * whole % 1 - 0.5) < 1e-6)).all()
        assert (bytes_ == 255).sum() == whole.shape[2]
    with pytest.raises(unmix.MethodError, match="the run wrote no 'rmse'"):
        unmix.export(finished, tmp_path / "out", percent=True, maps=["rmse"], overwrite=True)
    scene = tmp_path / "s.hdr"
    for options, error, text in (
        ({"method": "ucls"}, unmix.OutputError, "a byte cannot hold -?[0-9]+ %"),
        ({"method": "fcls", "quantize": 0.001}, unmix.MethodError, "its maps are quantized"),
    ):
        unmix.run(scene, endmembers=tmp_path / "e.csv", out_dir=tmp_path / "o", lines="4:9", overwrite=True, **options)
        refused(error, text, unmix.export, tmp_path / "o/s", tmp_path / "bytes", format="envi", percent=True)
    assert not (tmp_path / "bytes").exists() or not list((tmp_path / "bytes").iterdir())


def test_runs_of_one_stem_do_not_replace_each_other(tmp_path, finished):
    shutil.copytree(finished.parent, tmp_path / "n")
    both = [finished, tmp_path / "n/s_rmse.img", "-o", tmp_path / "o", "-f", "netcdf", "--overwrite"]
    _, err = command("export", *both, code=2)
    assert "n/s have one stem" in err and not (tmp_path / "o").exists()
    command("export", *both[:2], "-o", tmp_path / "o/{dir}", "-f", "netcdf")
    assert len(list((tmp_path / "o").rglob("s_rmse.nc"))) == 2
    shutil.rmtree(tmp_path / "o")
    command("export", finished, finished.with_name("s_rmse.img"), *both[2:])
