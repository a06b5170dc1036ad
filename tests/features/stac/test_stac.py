"""STAC items: what pystac reads back, against rasterio's own idea of where a map is, and the files' digests."""

import datetime
import hashlib
import itertools
import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import refused, write_cube
from test_cli import unmix as command

import unmix
from unmix.features.stac.items import footprint, outline_of
from unmix.runs.files.finished import FinishedRun

pystac, rasterio = pytest.importorskip("pystac"), pytest.importorskip("rasterio")
MAP = "{UTM, 1, 1, 500000, 4000000, 30, 20, 11, North, WGS-84, units=Meters}"
TURNED = "{UTM, 1, 1, 500000, 4000000, 30, 20, 11, North, WGS-84, units=Meters, rotation=30}"


def run(tmp_path, form="envi", **fields):
    """A small run with a place and a time."""
    random = np.random.default_rng(1)
    E = random.uniform(0.1, 0.9, (6, 3))
    rows = [["name", *map(str, range(1, 7))], *([f"e{j}", *(repr(float(v)) for v in E[:, j])] for j in range(3))]
    (tmp_path / "l.csv").write_text("\n".join(",".join(row) for row in rows))
    fields = {"map_info": MAP, "acquisition_time": "2024-08-01T18:03:22.5Z"} | fields
    path = write_cube(
        tmp_path / "x.hdr", random.dirichlet(np.ones(3), (40, 50)) @ E.T, **{k: v for k, v in fields.items() if v}
    )
    unmix.run(path, endmembers=tmp_path / "l.csv", format=form)


@pytest.mark.parametrize("form", ["envi", "geotiff", "netcdf"])
@pytest.mark.parametrize("map_info", [MAP, TURNED])
def test_an_item_says_where_and_when_and_which_files(tmp_path, form, map_info):
    run(tmp_path, form, map_info=map_info)
    item = pystac.Item.from_file(str(unmix.stac(tmp_path / "x")))
    assert item.id == "x" and item.datetime == datetime.datetime(2024, 8, 1, 18, 3, 22, 500000, datetime.UTC)
    assert item.properties["proj:code"] == "EPSG:32611" and item.properties["proj:shape"] == [40, 50]
    ending = {"envi": ".img", "geotiff": ".tif", "netcdf": ".nc"}[form]
    if form != "netcdf":
        with rasterio.open(tmp_path / f"x_abundance{ending}") as map_:
            transform = map_.transform
            corners = rasterio.transform.xy(transform, [0, 40, 40, 0], [0, 0, 50, 50], offset="ul")
            expected = np.transpose(rasterio.warp.transform(map_.crs, "EPSG:4326", *corners))
        assert np.allclose(item.properties["proj:transform"], list(transform)[:6])
        outline = np.array(item.geometry["coordinates"][0])
        for corner in expected:
            assert np.abs(outline - corner[:2]).sum(axis=1).min() < 1e-6
        area = sum(a[0] * b[1] - b[0] * a[1] for a, b in itertools.pairwise(outline))
        assert area > 0 and np.allclose(outline[0], outline[-1])
    names = {asset.href.split("/")[-1] for asset in item.assets.values()}
    assert names == {path.name for path in tmp_path.glob("x_*")} - {"x_stac.json"}
    for asset in item.assets.values():
        content = (tmp_path / asset.href.split("/")[-1]).read_bytes()
        assert asset.extra_fields["file:size"] == len(content)
        assert asset.extra_fields["file:checksum"] == "1220" + hashlib.sha256(content).hexdigest()
    of_map = item.assets[f"abundance{ending}"]
    assert [band["name"] for band in of_map.extra_fields["bands"]] == ["e0", "e1", "e2"]
    if form != "netcdf":
        assert item.assets[f"rmse{ending}"].extra_fields["bands"] == [{"name": "rmse"}]
    assert of_map.extra_fields["nodata"] == -9999 and of_map.extra_fields["data_type"] == "float32"
    assert item.assets["browse.png"].roles == ["thumbnail"]


def test_the_command_and_what_it_cannot_say(tmp_path):
    run(tmp_path, acquisition_time=None)
    assert "no acquisition time; give one with --time" in command("stac", tmp_path / "x", code=2)[1]
    assert "is not ISO 8601" in command("stac", tmp_path / "x", "--time", "yesterday", code=2)[1]
    command("stac", tmp_path / "x", "--time", "2024-08-01T20:00:00+02:00")
    assert json.loads((tmp_path / "x_stac.json").read_text())["properties"]["datetime"] == "2024-08-01T18:00:00Z"
    assert "exists" in command("stac", tmp_path / "x", "--time", "2024-08-01", code=1)[1]
    command("stac", tmp_path / "x_stac.json", "--time", "2024-08-01", "--overwrite")
    (tmp_path / "x_rmse.img").unlink()
    assert "x_rmse.img: is missing" in command("stac", tmp_path / "x", "--time", "2024-08-01", "--overwrite", code=1)[1]


def test_a_scene_without_a_place(tmp_path):
    run(tmp_path, map_info=None)
    assert "has no place on a map" in command("stac", tmp_path / "x", code=1)[1]
    assert not (tmp_path / "x_stac.json").exists()


def test_a_swath_is_where_its_lookup_table_puts_it(tmp_path):
    random = np.random.default_rng(2)
    E = random.uniform(0.1, 0.9, (6, 3))
    with h5py.File(tmp_path / "e.nc", "w") as file:
        file["reflectance"] = (random.dirichlet(np.ones(3), (30, 20)) @ E.T).astype(np.float32)
        file["sensor_band_parameters/wavelengths"] = np.arange(6) * 100.0 + 400
        file["sensor_band_parameters/fwhm"] = np.full(6, 8.0)
        y, x = np.mgrid[1:26, 1:19]
        file["location/glt_x"], file["location/glt_y"] = x.astype(np.int32), y.astype(np.int32)
        file.attrs["geotransform"], file.attrs["spatial_ref"] = (
            [-120.0, 0.001, 0.0, 35.0, 0.0, -0.001],
            rasterio.crs.CRS.from_epsg(4326).to_wkt(),
        )
        file.attrs["time_coverage_start"] = "2023-08-11T19:04:49+0000"
    unmix.run(tmp_path / "e.nc", count=3, extract="vca", out_dir=tmp_path / "swath")
    refused(unmix.OutputError, "a swath has one with `ortho`", unmix.stac, tmp_path / "swath/e")
    unmix.run(tmp_path / "e.nc", count=3, extract="vca", ortho=True, format="cog", out_dir=tmp_path / "maps")
    item = pystac.Item.from_file(str(unmix.stac(tmp_path / "maps/e")))
    assert np.allclose(item.bbox, [-120, 34.975, -119.982, 35]) and item.properties["proj:shape"] == [25, 18]
    assert item.datetime.year == 2023 and item.properties["proj:code"] == "EPSG:4326"


def test_a_damaged_file_and_a_run_without_a_place_on_earth(tmp_path):
    run(tmp_path)
    with open(tmp_path / "x_abundance.img", "r+b") as file:
        file.seek(100)
        file.write(b"X")
    refused(unmix.OutputError, r"x_abundance\.img: is not what the run wrote", unmix.stac, tmp_path / "x")
    unmix.nmf_scene(tmp_path / "x.hdr", count=3, steps=10, out_dir=tmp_path / "nmf")
    assert (
        "x_abundance.img" in json.loads(unmix.stac(tmp_path / "nmf/x").read_text())["assets"]["abundance.img"]["href"]
    )
    (tmp_path / "other").mkdir()
    run(tmp_path / "other", map_info="{Arbitrary, 1, 1, 0, 0, 1, 1, 0, North}")
    refused(unmix.OutputError, "place on", unmix.stac, tmp_path / "other/x")


def outline(west, north, size, count=40, wkt="EPSG:4326"):
    """Geometry and bounding box of a map of square pixels."""
    system = rasterio.crs.CRS.from_string(wkt).to_wkt()
    return footprint(outline_of(FinishedRun(Path("x"), {}), (west, size, 0.0, north, 0.0, -size), system, count, count))


def test_longitudes_beyond_180_degrees():
    geometry, box = outline(240.0, 10.0, 0.01)
    assert geometry["type"] == "Polygon" and np.allclose(box, [-120, 9.6, -119.6, 10])
    geometry, box = outline(179.9, 10.0, 0.01)
    assert geometry["type"] == "MultiPolygon" and np.allclose(box, [179.9, 9.6, -179.7, 10])
    geometry, box = outline(300000.0, 8000000.0, 9000.0, wkt="EPSG:32660")
    assert geometry["type"] == "MultiPolygon" and 160 < box[0] < 180 and -180 < box[2] < -160
    for (ring,) in geometry["coordinates"]:
        east, north = np.array(ring).T
        assert ring[0] == ring[-1] and np.abs(np.diff(east)).max() < 90 and np.abs(east).max() <= 180
        assert np.sum(east[:-1] * north[1:] - east[1:] * north[:-1]) > 0
    refused(unmix.OutputError, "holds a pole", outline, -50000.0, 50000.0, 2500.0, wkt="EPSG:3413")
