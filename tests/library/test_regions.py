"""Libraries built from pixels, rasters and polygons: against plain indexing of the cube."""

import json
import sys

import h5py
import numpy as np
import pytest
import scipy.io
from conftest import refused, write_cube
from test_cli import unmix as command

import unmix
from unmix.commands.regions import build_library
from unmix.io import open_cube
from unmix.io.cube import read_lines
from unmix.library import load
from unmix.scene import ReadOptions, open_scene

LINES, SAMPLES, L = 9, 7, 5
WAVES = [450.0, 550.0, 650.0, 850.0, 1650.0]
MAP = "{UTM, 1, 1, 500000, 4200000, 30, 30, 11, North, WGS-84, units=Meters}"
NUMBERS = np.zeros((LINES, SAMPLES), np.uint8)
NUMBERS[1:4, 1:4], NUMBERS[5:9, 3:7] = 2, 5


@pytest.fixture
def scene(tmp_path):
    """A cube in integers with a scale factor, a masked pixel in a region, and its values as reflectance."""
    stored = np.random.default_rng(0).integers(100, 9000, (LINES, SAMPLES, L)).astype(np.int16)
    stored[2, 2, 3] = -1
    path = write_cube(
        tmp_path / "x.hdr",
        stored,
        data_ignore_value=-1,
        reflectance_scale_factor=10000,
        map_info=MAP,
        wavelength=WAVES,
        wavelength_units="nm",
    )
    return path, stored / 10000


def table(folder, numbers, column="class"):
    places = [(line, sample) for line, sample in np.argwhere(numbers)]
    rows = [f"{line},{sample},{'ab'[int(numbers[line, sample] == 5)]},x" for line, sample in places]
    (folder / "pixels.csv").write_text("\n".join([f"line,Sample,{column},note", *rows]))
    return folder / "pixels.csv"


def raster(folder, numbers, **fields):
    return write_cube(folder / "classes.hdr", numbers[..., None], **fields)


def polygons(folder, crs=True, name="kind"):
    """The rectangles of `NUMBERS`, a hair smaller, in UTM, or in longitude and latitude."""
    from rasterio.warp import transform

    features = []
    for number, kind in ((2, "a"), (5, "b")):
        lines, samples = np.nonzero(number == NUMBERS)
        west, east = 500000.0 + 30 * int(samples.min()) + 1, 500000.0 + 30 * (int(samples.max()) + 1) - 1
        north, south = 4200000.0 - 30 * int(lines.min()) - 1, 4200000.0 - 30 * (int(lines.max()) + 1) + 1
        xs, ys = [west, east, east, west, west], [north, north, south, south, north]
        if not crs:
            xs, ys = transform("EPSG:32611", "OGC:CRS84", xs, ys)
        geometry = {"type": "Polygon", "coordinates": [list(map(list, zip(xs, ys)))]}
        features.append({"type": "Feature", "properties": {name: kind}, "geometry": geometry})
    document = {"type": "FeatureCollection", "features": features}
    document |= {"crs": {"type": "name", "properties": {"name": "EPSG:32611"}}} if crs else {}
    (folder / "polygons.geojson").write_text(json.dumps(document))
    return folder / "polygons.geojson"


def expected(values, number):
    places = [tuple(place) for place in np.argwhere(number == NUMBERS) if tuple(place) != (2, 2)]
    return places, np.array([values[place] for place in places])


def built(path, kind, file, reading=None, **words):
    return build_library(open_scene(path, ReadOptions(**(reading or {}))), kind, file, **words)[0][0]


@pytest.mark.parametrize("kind", ["pixels", "raster", "polygons", "longitude"])
def test_pixels_of_classes(tmp_path, scene, kind):
    path, values = scene
    if kind in ("polygons", "longitude"):
        pytest.importorskip("rasterio")
        file = polygons(tmp_path, crs=kind == "polygons")
    else:
        file = {"pixels": table, "raster": raster}[kind](tmp_path, NUMBERS)
    kind = "polygons" if kind == "longitude" else kind
    library = built(path, kind, file, column="kind" if kind == "polygons" else "class")
    for number, name in ((2, "a"), (5, "b")):
        name = f"class {number}" if kind == "raster" else name
        members = [j for j, one in enumerate(library.classes) if one == name]
        places, Y = expected(values, number)
        assert [library.pixels[j] for j in members] == places
        np.testing.assert_allclose(library.matrix[:, members], Y.T, rtol=1e-15)
        assert library.names[members[0]] == f"{name} {places[0][0]}_{places[0][1]}"
    assert library.wavelengths.tolist() == WAVES and len(set(library.names)) == len(library.names) == 24
    mean = built(path, kind, file, column="kind" if kind == "polygons" else "class", mean=True)
    np.testing.assert_allclose(mean.matrix[:, 1], expected(values, 5)[1].mean(axis=0), rtol=1e-14)
    assert mean.names == mean.classes and mean.pixels is None
    spread = built(path, kind, file, column="kind" if kind == "polygons" else "class", deviation=True)
    np.testing.assert_allclose(spread.matrix[:, 1], expected(values, 5)[1].std(axis=0, ddof=1), rtol=1e-9)
    assert spread.names == mean.names
    few = built(path, kind, file, column="kind" if kind == "polygons" else "class", most=3)
    assert [few.classes.count(name) for name in dict.fromkeys(few.classes)] == [3, 3]  # of those that have values
    assert set(few.names) < set(library.names)


def test_names_of_a_classification_and_parts_of_a_scene(tmp_path, scene):
    path, _ = scene
    how = {"file_type": "ENVI Classification"}
    file = raster(tmp_path, NUMBERS, classes=6, class_names="{none, w, soil, x, y, tree}", bands=1, **how)
    library = built(path, "raster", file, {"lines": "2:8", "samples": "1:6", "bands": "1-3"})
    places = [
        tuple(place) for place in np.argwhere(NUMBERS == 2).tolist() if place[0] >= 2
    ]  # none is masked in these bands
    assert list(library.classes[: len(places)]) == ["soil"] * len(places)
    assert list(library.pixels[: len(places)]) == places and library.matrix.shape[0] == 3
    of_part = raster(tmp_path, NUMBERS[2:8, 1:6])
    again = built(path, "raster", of_part, {"lines": "2:8", "samples": "1:6", "bands": "1-3"})
    np.testing.assert_array_equal(again.matrix, library.matrix)


@pytest.mark.slow
def test_from_the_command_line_to_models(tmp_path, scene):
    path, _ = scene
    out = tmp_path / "library.sli"
    command("library", "build", path, out, "--pixels", table(tmp_path, NUMBERS), "--most", 4, says="a: 4, b: 4")
    library = load(out)
    assert library.classes.count("b") == 4 and library.pixels is not None
    unmix.run(path, endmembers=out, method="mesma", out_dir=tmp_path / "o")
    rmse = np.fromfile(tmp_path / "o/x_rmse.img", "<f4").reshape(LINES, SAMPLES)
    assert all(rmse[place] < 1e-7 for place in library.pixels)  # each is its own model


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("line,sample\n1,1\n", "has no column 'class'"),
        ("line,sample,class\n1,-1,a\n", "row 2: line and sample are whole numbers"),
        ("line,sample,class\n1,1,a\n9,0,a\n", "row 3: line 9, sample 0 is outside"),
        ("line,sample,class\n2,2,a\n", "names no pixel"),
        ("line,sample,class\n3,3,a\n3,3,b\n", "row 3: line 3, sample 3 has another class"),
        ("line,sample,class\n", "names no pixel"),
        ("", "has no column 'line'"),
    ],
)
def test_bad_tables(tmp_path, scene, text, message):
    (tmp_path / "t.csv").write_text(text)
    refused(unmix.LibraryError, message, built, scene[0], "pixels", tmp_path / "t.csv")
    refused(unmix.LibraryError, "no such file", built, scene[0], "pixels", tmp_path / "none.csv")


def test_classes_without_pixels_are_named(tmp_path, scene, caplog):
    (tmp_path / "t.csv").write_text("line,sample,class\n2,2,masked\n1,1,a\n1,2,a\n")
    assert built(scene[0], "pixels", tmp_path / "t.csv", most=1).classes == ("a",)
    assert "no pixel with values is of masked" in caplog.text and "1 pixel without a value" in caplog.text


def test_means_say_their_pixels_and_what_was_never_drawn(tmp_path, scene):
    """One pixel of the class a has no value; most=3 takes fewer of each."""
    names = "{Unclassified, x, a, y, z, b, snow}"
    path = raster(tmp_path, NUMBERS, file_type="ENVI Classification", classes=7, class_names=names)
    words = ("library", "build", scene[0], tmp_path / "m.csv", "--raster", path, "--mean", "--overwrite")
    out, err = command(*words)
    inside = [np.count_nonzero(number == NUMBERS) for number in (2, 5)]
    assert f"pixels of each class: a: {inside[0] - 1}, b: {inside[1]}" in out
    assert all(name in err for name in ("x", "y", "z", "snow")) and "no pixel with values is of" in err
    assert load(tmp_path / "m.csv").names == ("a", "b")
    assert "a: 3, b: 3" in command(*words, "--most", 3)[0]
    out, err = command(*words, "--deviation")
    assert "m_deviation.csv" in out and err.count("no pixel with values") == 1
    spread = load(tmp_path / "m_deviation.csv")
    np.testing.assert_allclose(spread.matrix, built(scene[0], "raster", path, deviation=True).matrix)
    command(*words[:-1], "--deviation", code=1)


@pytest.mark.parametrize("version", ["5", "7.3"])
def test_labels_of_a_benchmark(tmp_path, scene, version):
    """A variable of two axes, of bytes, as Pavia's; a table of other numbers beside sizes stays a cube of pixels."""
    if version == "5":
        scipy.io.savemat(tmp_path / "gt.mat", {"x_gt": NUMBERS}, do_compression=True)
    else:
        with h5py.File(tmp_path / "gt.mat", "w", userblock_size=512) as file:
            file["x_gt"] = NUMBERS.T
        content = (tmp_path / "gt.mat").read_bytes()
        (tmp_path / "gt.mat").write_bytes(b"MATLAB 7.3 MAT-file".ljust(512) + content[512:])
    labels = open_cube(tmp_path / "gt.mat")
    np.testing.assert_array_equal(read_lines(labels, slice(0, LINES))[0], NUMBERS)
    found, expected = (
        built(scene[0], "raster", path, mean=True) for path in (tmp_path / "gt.mat", raster(tmp_path, NUMBERS))
    )
    np.testing.assert_array_equal(found.matrix, expected.matrix)
    scipy.io.savemat(tmp_path / "t.mat", {"A": np.ones((5, 12))})
    refused(unmix.CubeError, "no variable has three axes", open_cube, tmp_path / "t.mat")


def test_bad_rasters(tmp_path, scene):
    with pytest.raises(unmix.CubeError, match="has 4 lines of 7 samples, the scene 9 of 7"):
        built(scene[0], "raster", raster(tmp_path, NUMBERS[:4]))
    with pytest.raises(unmix.CubeError, match="whole numbers"):
        built(scene[0], "raster", raster(tmp_path, (NUMBERS / 2).astype(np.float32)))


def feature(properties, coordinates):
    geometry = {"type": "Polygon", "coordinates": coordinates}
    return json.dumps({"type": "Feature", "properties": properties, "geometry": geometry})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "is no GeoJSON"),
        ("[]", "is no GeoJSON"),
        ('{"type": "FeatureCollection", "features": []}', "has no polygons"),
        (feature([1], []), "is no GeoJSON"),
        (feature("abc", []), "is no GeoJSON"),
        ('{"type": "FeatureCollection", "crs": "EPSG:32611", "features": []}', "has no polygons"),
        ('{"type": "FeatureCollection", "crs": {"properties": "x"}, "features": []}', "names its coordinate system"),
        (feature({}, [[[0, 0], [1, 0], [1, 1], [0, 0]]]), "has no property"),
        (feature({"class": "a"}, [[[0, 0]]]), r"is no GeoJSON of features: .*\(feature 1\)"),
        (feature({"class": "a"}, "x"), "is no GeoJSON"),
        (feature({"class": "a"}, [[[0, 0], [1, 0], [1, 1], [0, 0]]]), "names no pixel"),
    ],
)
def test_bad_polygons(tmp_path, scene, text, message):
    pytest.importorskip("rasterio")
    (tmp_path / "p.geojson").write_text(text)
    refused(unmix.UnmixError, message, built, scene[0], "polygons", tmp_path / "p.geojson")


def test_too_many_and_no_place(tmp_path, scene, monkeypatch):
    monkeypatch.setattr("unmix.commands.regions.MOST_SPECTRA", 5)
    file = table(tmp_path, NUMBERS)
    refused(unmix.MethodError, "use `mean` or `most`", built, scene[0], "pixels", file)
    assert len(built(scene[0], "pixels", file, mean=True).names) == 2
    bare = write_cube(tmp_path / "bare.hdr", np.ones((LINES, SAMPLES, L), np.float32))
    refused(unmix.CubeError, "no map info", lambda: built(bare, "polygons", polygons(tmp_path), column="kind"))
    odd = write_cube(
        tmp_path / "odd.hdr", np.ones((LINES, SAMPLES, L), np.float32), map_info=MAP.replace("4200000", "NaN")
    )
    with pytest.raises(unmix.CubeError, match="no map info that gives it a place"):
        built(odd, "polygons", polygons(tmp_path), column="kind")
    command("library", "build", scene[0], tmp_path / "o.csv", code=2, tells="one of --pixels")
    command("library", "build", scene[0], file, "--pixels", file, "--overwrite", code=2)
    assert file.read_text().startswith("line,Sample")


@pytest.mark.parametrize("ending", ["shp", "gpkg", "fgb"])
def test_polygons_of_other_formats(tmp_path, scene, ending):
    """They are what the same polygons in GeoJSON are."""
    pytest.importorskip("rasterio")
    raw = pytest.importorskip("pyogrio").raw
    file = polygons(tmp_path)
    about, _, shapes, values = raw.read(file)
    other = tmp_path / f"fields.{ending}"
    fields = list(about["fields"])
    driver = {"shp": "ESRI Shapefile", "gpkg": "GPKG", "fgb": "FlatGeobuf"}[ending]
    raw.write(other, shapes, values, fields, geometry_type="Polygon", crs=about["crs"], driver=driver)
    one, same = (
        built(scene[0], "polygons", path, column=column) for path, column in ((file, "kind"), (other, fields[0]))
    )
    pixels = [sorted(zip(each.classes, each.pixels)) for each in (one, same)]  # FlatGeobuf has an order of its own
    assert pixels[0] == pixels[1]
    command("library", "build", scene[0], tmp_path / "o.csv", "--polygons", other, "--column", fields[0])


def test_polygons_that_cannot_be_read(tmp_path, scene, monkeypatch):
    pytest.importorskip("pyogrio")
    (tmp_path / "fields.shp").write_bytes(b"\x00\x00\x27\x0a" + bytes(100))
    words = ("library", "build", scene[0], tmp_path / "o.csv", "--polygons", tmp_path / "fields.shp")
    _, err = command(*words, code=3)
    assert "fields.shp: cannot be read" in err and len(err.splitlines()) == 1
    assert "unmix-" not in err  # GDAL read a copy
    monkeypatch.setitem(sys.modules, "pyogrio", None)
    command(*words, code=3, tells="needs pyogrio, pip install 'unmix[geo]', or conversion: ogr2ogr -f GeoJSON")


def test_polygons_without_rasterio(tmp_path, scene, monkeypatch):
    file = polygons(tmp_path)
    monkeypatch.setitem(sys.modules, "rasterio", None)
    _, err = command("library", "build", scene[0], tmp_path / "o.csv", "--polygons", file, "--column", "kind", code=3)
    assert "polygons need rasterio: pip install 'unmix[geo]'" in err


def test_polygons_in_a_system_without_a_code(tmp_path, scene):
    """The system of the file counts, not that of GeoJSON; without one the file is refused."""
    rasterio = pytest.importorskip("rasterio")
    raw = pytest.importorskip("pyogrio").raw
    file = polygons(tmp_path)
    about, _, shapes, values = raw.read(file)
    own = rasterio.crs.CRS.from_epsg(32611).to_wkt().replace('AUTHORITY["EPSG","32611"]', 'AUTHORITY["OWN","1"]')
    raw.write(
        tmp_path / "f.shp", shapes, values, about["fields"], geometry_type="Polygon", crs=own, driver="ESRI Shapefile"
    )
    one, same = (built(scene[0], "polygons", path, column="kind") for path in (file, tmp_path / "f.shp"))
    assert same.pixels == one.pixels
    (tmp_path / "f.prj").unlink()
    with pytest.raises(unmix.CubeError, match="does not say its coordinate system"):
        built(scene[0], "polygons", tmp_path / "f.shp", column="kind")
