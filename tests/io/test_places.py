"""What is laid over a scene lies where the scene does: masks, cubes of weights, noise and allowed endmembers, rasters of classes."""

import numpy as np
import pytest
import rasterio
from conftest import write_cube
from rasterio.transform import Affine, from_origin

from unmix import CubeError
from unmix.commands.regions import regions_of_raster
from unmix.io import open_cube
from unmix.io.window import both_places
from unmix.maps.derived.noise import AllowedCube, NoiseCube, WeightsCube
from unmix.scene import ReadOptions, open_scene

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


WHERE = [*(("mask", name) for name in PLACES), *((option, name) for option in ("extract_mask", "mask_out")
                                                for name in ("a line north", "another zone", "the same"))]  # fmt: skip


@pytest.mark.parametrize(("option", "name"), WHERE)
@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
def test_masks(tmp_path, scene, option, name):
    transform, crs, is_there = PLACES[name]
    mask = str(tif(tmp_path / "m.tif", 1, transform, crs))
    reading = ReadOptions(**{option: (mask,) if option == "mask_out" else mask}, bands="all")
    if is_there:
        assert open_scene(scene, reading, True).cube.lines == LINES
        return
    said = r"m\.tif: the mask lies elsewhere than the scene: it begins at .*, scene\.tif at 500000, 5000000"
    with pytest.raises(CubeError, match=said):
        open_scene(scene, reading, True)


@pytest.mark.parametrize("name", ["300 m east", "another zone", "the same"])
@pytest.mark.parametrize("kind", [NoiseCube, WeightsCube, AllowedCube, regions_of_raster])
def test_other_rasters(tmp_path, scene, kind, name):
    transform, crs, is_there = PLACES[name]
    path = tif(tmp_path / "o.tif", 1 if kind is regions_of_raster else BANDS, transform, crs)
    whole = open_scene(scene, ReadOptions(bands="all"))

    def opened():
        if kind is regions_of_raster:
            return kind(path, whole.cube, "")
        return kind(path, whole, ReadOptions(), ["a", "b", "c"] if kind is AllowedCube else None)

    if is_there:
        assert opened() is not None
        return
    with pytest.raises(CubeError, match=r"o\.tif: the .* lies elsewhere than the scene"):
        opened()


def test_a_mask_of_a_part_lies_where_the_part_does(tmp_path, scene):
    with rasterio.open(tmp_path / "m.tif", "w", driver="GTiff", height=4, width=5, count=1, dtype="uint8", crs="EPSG:32632",
                       transform=from_origin(500000 + 2 * 30, 5000000 - 6 * 30, 30, 30)) as file:  # fmt: skip
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
