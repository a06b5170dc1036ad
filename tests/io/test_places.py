"""What is laid over a scene lies where the scene does: masks, cubes of weights, noise and allowed endmembers, rasters of classes."""

import json
from dataclasses import replace

import numpy as np
import pytest
import rasterio
from conftest import read_map, refused, write_cube
from rasterio.transform import Affine, from_origin

import unmix
from unmix import CubeError
from unmix.commands.regions import regions_of_raster
from unmix.io import open_cube
from unmix.io.formats.header import geotransform
from unmix.io.ground import both_places
from unmix.maps.derived.noise import NoiseCube
from unmix.runs.record.report import masks_of
from unmix.scene import ReadOptions, open_scene
from unmix.scene.bands import values_of_masks
from unmix.settings.presets import PRESETS

LINES, SAMPLES, BANDS = 12, 10, 3
HERE = from_origin(500000, 5000000, 30, 30)


def tif(path, bands=1, transform=HERE, crs="EPSG:32632"):
    how = {"height": LINES, "width": SAMPLES, "count": bands, "dtype": "uint8"}
    with rasterio.open(path, "w", crs=crs, transform=transform, **how) as file:
        file.write(np.ones((bands, LINES, SAMPLES), np.uint8))
    return path


@pytest.fixture
def scene(tmp_path):
    return tif(tmp_path / "scene.tif", BANDS)


# Where the other raster lies, by transform and system, and whether that is where the scene does.
PLACES = {
    "300 m east": (from_origin(500300, 5000000, 30, 30), "EPSG:32632", False),
    "a line north": (from_origin(500000, 5000030, 30, 30), "EPSG:32632", False),
    "smaller pixels": (from_origin(500000, 5000000, 10, 10), "EPSG:32632", False),
    "another zone": (HERE, "EPSG:32633", False),
    "the other hemisphere": (HERE, "EPSG:32732", False),
    "degrees": (from_origin(9.0, 45.1, 3e-4, 3e-4), "EPSG:4326", False),
    "turned": (HERE @ Affine.rotation(20), "EPSG:32632", False),
    "half a pixel off": (from_origin(500015, 5000000, 30, 30), "EPSG:32632", True),
    "rounded": (from_origin(500000.004, 4999999.998, 30.00001, 30), "EPSG:32632", True),
    "no place": (Affine.identity(), None, True),
    "the same": (HERE, "EPSG:32632", True),
}


WHERE = [
    *(("mask", name) for name in PLACES),
    *(
        (option, name)
        for option in ("extract_mask", "mask_out")
        for name in ("a line north", "another zone", "the same")
    ),
]


@pytest.mark.parametrize(("option", "name"), WHERE)
@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
def test_masks(tmp_path, scene, option, name, caplog):
    caplog.set_level("INFO", "unmix")
    transform, crs, is_there = PLACES[name]
    mask = str(tif(tmp_path / "m.tif", 1, transform, crs))
    reading = ReadOptions(**{option: (mask,) if option == "mask_out" else mask}, bands="all")
    if is_there or name in ("a line north", "smaller pixels"):  # where it overlaps, it is read by its place
        found = open_scene(scene, reading, True).cube
        assert found.lines == LINES and (is_there or "on another grid" in caplog.text)
        return
    said = r"m\.tif: the mask lies elsewhere than the scene: it begins at .*, scene\.tif at 500000, 5000000"
    refused(CubeError, said, open_scene, scene, reading, True)


@pytest.mark.parametrize("name", ["300 m east", "another zone", "the same"])
@pytest.mark.parametrize("kind", [NoiseCube, regions_of_raster])
def test_other_rasters(tmp_path, scene, kind, name):
    transform, crs, is_there = PLACES[name]
    path = tif(tmp_path / "o.tif", 1 if kind is regions_of_raster else BANDS, transform, crs)
    whole = open_scene(scene, ReadOptions(bands="all"))

    def opened():
        if kind is regions_of_raster:
            return kind(path, whole.cube, "")
        return kind(path, whole, ReadOptions())

    if is_there:
        assert opened() is not None
        return
    refused(CubeError, r"o\.tif: the .* lies elsewhere than the scene", opened)


def test_a_mask_of_a_part_lies_where_the_part_does(tmp_path, scene):
    with rasterio.open(
        tmp_path / "m.tif",
        "w",
        driver="GTiff",
        height=4,
        width=5,
        count=1,
        dtype="uint8",
        crs="EPSG:32632",
        transform=from_origin(500000 + 2 * 30, 5000000 - 6 * 30, 30, 30),
    ) as file:
        file.write(np.ones((1, 4, 5), np.uint8))
    mask = str(tmp_path / "m.tif")
    assert open_scene(scene, ReadOptions(mask=mask, lines="6:10", samples="2:7", bands="all")).cube.lines == 4
    with pytest.raises(CubeError, match="lies elsewhere"):
        open_scene(scene, ReadOptions(mask=mask, lines="7:11", samples="2:7", bands="all"))


@pytest.mark.parametrize(("system", "is_place"), [("", False), ("{LOCAL_CS[]}", True)])
def test_arbitrary_places_count_where_a_system_is_named(tmp_path, system, is_place):
    """As those of NetCDF in a projection that ENVI has no word for; others count pixels."""
    cubes = []
    for name, west in (("a", 0.0), ("b", 900.0)):
        fields = {"map_info": f"{{Arbitrary, 1, 1, {west}, 0, 30, 30}}"} | (
            {"coordinate_system_string": system} if system else {}
        )
        cubes.append(open_cube(write_cube(tmp_path / f"{name}.hdr", np.ones((3, 4, 2), np.float32), **fields)))
    assert bool(both_places(*cubes)) == is_place


@pytest.mark.parametrize("size", [7.0, 30.0, 70.0])
@pytest.mark.parametrize("option", ["mask", "mask_out", "extract_mask"])
def test_a_mask_on_another_grid_is_read_at_the_centres_of_pixels(tmp_path, scene, caplog, monkeypatch, option, size):
    """Beyond it no pixel is kept; its values are counted; with lines and samples, too; another system is refused."""
    caplog.set_level("INFO", "unmix")
    monkeypatch.setattr("unmix.io.nearest.PIECE", 60)  # some lines of the mask at a time
    values = np.random.default_rng(5).integers(0, 3, (23, 11)).astype(np.uint8)
    west, north = 500000 - 41.0, 5000000 - 22.0
    where = {"driver": "GTiff", "height": 23, "width": 11, "count": 1, "dtype": "uint8", "nodata": 2}
    for name, crs in (("m", "EPSG:32632"), ("far", "EPSG:32633")):
        with rasterio.open(
            tmp_path / f"{name}.tif", "w", crs=crs, transform=from_origin(west, north, size, size), **where
        ) as file:
            file.write(values[None])
    own, far = str(tmp_path / "m.tif"), str(tmp_path / "far.tif")
    for lines, samples in ((slice(0, LINES), slice(0, SAMPLES)), (slice(2, 7), slice(1, 5))):
        part = {"lines": f"{lines.start}:{lines.stop}", "samples": f"{samples.start}:{samples.stop}"}
        kept, seen = np.zeros((LINES, SAMPLES), bool), np.full((LINES, SAMPLES), 0 if option != "mask_out" else 1)
        for line, sample in np.ndindex(LINES, SAMPLES):
            down = (north - (5000000 - 30.0 * (line + 0.5))) / size
            across = (500000 + 30.0 * (sample + 0.5) - west) / size
            if 0 <= down < 23 and 0 <= across < 11:
                seen[line, sample] = values[int(down), int(across)]
                kept[line, sample] = seen[line, sample] == (0 if option == "mask_out" else 1)
        given = {option: (own,) if option == "mask_out" else own}
        cube = open_scene(scene, ReadOptions(**given, **part, bands="all"), True).cube.for_extraction()
        assert np.array_equal(cube.kept(slice(0, cube.lines)), kept[lines, samples])
        assert np.array_equal(cube.kept(slice(1, 3)), kept[lines, samples][1:3]) and 0 < kept.sum() < kept.size
        numbers, counts = np.unique(seen[lines, samples], return_counts=True)
        assert values_of_masks(cube)[0]["values"] == {str(n): int(c) for n, c in zip(numbers, counts)}
    assert "is on another grid; pixels have its value at their centres" in caplog.text
    with pytest.raises(
        CubeError, match=r"has 23 lines of 11 samples, the scene .*, in \S+_33N, the scene in \S+_32N; bring it"
    ):
        open_scene(scene, ReadOptions(**{option: (far,) if option == "mask_out" else far}, bands="all"), True)


@pytest.mark.parametrize("off", [(-3, 2), (1, 0), (0, -4)])
def test_a_mask_of_the_same_size_is_read_by_its_place(tmp_path, scene, off):
    values = np.random.default_rng(6).integers(0, 2, (LINES, SAMPLES)).astype(np.uint8)
    where = {"driver": "GTiff", "height": LINES, "width": SAMPLES, "count": 1, "dtype": "uint8", "crs": "EPSG:32632"}
    corner = from_origin(500000 + 30 * off[1], 5000000 - 30 * off[0], 30, 30)
    with rasterio.open(tmp_path / "m.tif", "w", transform=corner, **where) as file:
        file.write(values[None])
    cube = open_scene(scene, ReadOptions(mask=str(tmp_path / "m.tif"), bands="all"), True).cube.for_extraction()
    expected = np.zeros((LINES, SAMPLES), bool)
    for line, sample in np.ndindex(LINES, SAMPLES):
        at = line - off[0], sample - off[1]
        expected[line, sample] = 0 <= at[0] < LINES and 0 <= at[1] < SAMPLES and values[at] == 1
    assert np.array_equal(cube.kept(slice(0, LINES)), expected)


@pytest.mark.parametrize("preset", [None, "neon", "emit"])
def test_values_of_a_users_masks_are_counted_with_a_preset_too(tmp_path, scene, preset):
    values = np.arange(LINES * SAMPLES).reshape(LINES, SAMPLES, 1) % 3
    mask = str(write_cube(tmp_path / "m.hdr", values.astype(np.uint8)))
    reading = ReadOptions(mask_out=(mask,), preset=preset, bands="all")
    cube = open_scene(scene, ReadOptions(mask_out=(mask,), bands="all"), True).cube
    assert masks_of(cube, reading)[0]["values"] == {"0": 40, "1": 40, "2": 40}
    own = replace(reading, mask_out=PRESETS["emit"]["mask_out"])
    assert bool(masks_of(cube, own)) == (preset != "emit")


@pytest.mark.parametrize("turn", ["", "0", "17.5", "-90", "90", "179.9", "180", "-180", "270"])
def test_a_turned_map_info_lies_where_gdal_has_it(tmp_path, turn):
    place = f"{{UTM, 1.5, 2, 500000, 5091000, 30, 20, 33, North, WGS-84{', rotation=' * bool(turn)}{turn}}}"
    path = write_cube(tmp_path / "x.hdr", np.ones((LINES, SAMPLES, BANDS), np.uint8))
    path.write_text(path.read_text() + f"map info = {place}\n")
    with rasterio.open(path.with_suffix(".img")) as file:
        np.testing.assert_allclose(
            geotransform(open_cube(path).fields["map info"]), file.transform.to_gdal(), atol=1e-6
        )


def test_a_scene_whose_lines_go_north_is_the_other_one_turned(tmp_path):
    """Polygons, boxes, masks and places of targets of a map with its first line in the south."""
    rng = np.random.default_rng(3)
    E, A = rng.random((8, 3)) + 0.1, rng.dirichlet(np.ones(3), (LINES, SAMPLES))
    Y, keep = A @ E.T, rng.random((LINES, SAMPLES)) > 0.3
    north = from_origin(500000, 5000000, 30, 20)
    south = north @ Affine.translation(0, LINES) @ Affine.scale(1, -1)
    for name, transform, turn in (("n", north, 1), ("s", south, -1)):
        how = {"height": LINES, "width": SAMPLES, "crs": "EPSG:32632", "transform": transform}
        with rasterio.open(tmp_path / f"{name}.tif", "w", count=8, dtype="float64", **how) as file:
            file.write(Y[::turn].transpose(2, 0, 1))
    with rasterio.open(tmp_path / "m.tif", "w", count=1, dtype="uint8", **(how | {"transform": north})) as file:
        file.write(keep[None].astype(np.uint8))
    spectra = "".join(f"e{k},{','.join(map(str, e))}\n" for k, e in enumerate(E.T))
    (tmp_path / "lib.csv").write_text(f"name,{','.join(map(str, range(400, 408)))}\n{spectra}")
    area = [[500061.0, 4999810.0], [500241.0, 4999810.0], [500241.0, 4999943.0], [500061.0, 4999810.0]]
    (tmp_path / "p.geojson").write_text(
        json.dumps(
            {
                "type": "FeatureCollection",
                "crs": {"type": "name", "properties": {"name": "EPSG:32632"}},
                "features": [
                    {
                        "type": "Feature",
                        "properties": {"id": "p"},
                        "geometry": {"type": "Polygon", "coordinates": [area]},
                    }
                ],
            }
        )
    )
    maps, boxes, means = [], [], []
    for name, turn in (("n", 1), ("s", -1)):
        how = {"endmembers": tmp_path / "lib.csv", "method": "fcls", "bands": "all", "out_dir": tmp_path / "o"}
        unmix.run(tmp_path / f"{name}.tif", mask=str(tmp_path / "m.tif"), **how)
        maps.append(read_map(tmp_path / f"o/{name}", "abundance")[::turn])
        means.append(unmix.zonal([tmp_path / f"o/{name}"], polygons=tmp_path / "p.geojson", column="id"))
        unmix.run(tmp_path / f"{name}.tif", bbox="500061,4999810,500241,4999943", **how, overwrite=True)
        boxes.append(read_map(tmp_path / f"o/{name}", "abundance")[::turn])
    np.testing.assert_allclose(maps[0][keep], A[keep], atol=1e-6)
    np.testing.assert_array_equal(maps[0], maps[1])
    np.testing.assert_array_equal(boxes[0], boxes[1])
    assert boxes[0].shape == (7, 6, 3)
    for one, other in zip(*means):
        assert one["mean"] == pytest.approx(other["mean"], rel=1e-9) and one["pixels"] == pytest.approx(other["pixels"])
