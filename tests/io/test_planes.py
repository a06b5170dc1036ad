"""Bands that are datasets (y, x) of HDF5 and NetCDF files: values, wavelengths and missing values as they are stored."""

import h5py
import numpy as np
import pytest
from conftest import read_values, refused

import unmix
from unmix.io import open_cube
from unmix.scene import ReadOptions, open_scene

WAVES = [1050.0, 443.0, 492.5, 560.0, 665.0]


def write(path, name="rhos_{:g}", group="", attribute="wavelength", dtype="f4", seed=0, **how):
    """Write five bands (12, 9) in an odd order; return their values in the order of wavelengths."""
    Y = np.random.default_rng(seed).integers(1, 9000, (5, 12, 9))
    with h5py.File(path, "a") as file:
        for wave, plane in zip(WAVES, Y):
            data = file.create_dataset(f"{group}/{name.format(wave)}", data=plane.astype(dtype), **how)
            if attribute:
                data.attrs[attribute] = wave
    return Y[np.argsort(WAVES)].astype(dtype).transpose(1, 2, 0)


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"name": "Rrs_{:g}", "attribute": ""},
        {"name": "Rrs{:g}nm", "group": "geophysical_data", "attribute": ""},
        {"name": "band_{:.0f}", "attribute": "Wavelength"},
        {"dtype": "i2", "chunks": (5, 4), "compression": "gzip"},
        {"dtype": "f8", "chunks": (12, 9), "compression": "gzip", "shuffle": True},
        {"dtype": ">u2", "name": "rhot_{:g}"},
        {"dtype": "f4", "chunks": (12, 9), "group": "a/b"},
    ],
)
@pytest.mark.parametrize("most", [2**26, 64])
def test_bands_are_read_in_the_order_of_wavelengths(tmp_path, monkeypatch, words, most):
    monkeypatch.setattr("unmix.io.formats.planes.MOST_TOGETHER", most)
    Y = write(tmp_path / "x.nc", **words)
    with h5py.File(tmp_path / "x.nc", "a") as file:
        file["lat"], file["flags"] = np.zeros((12, 9), "f4"), np.zeros((12, 9), "i4")
    cube = open_cube(tmp_path / "x.nc")
    np.testing.assert_array_equal(read_values(cube), Y)
    np.testing.assert_array_equal(read_values(cube, slice(3, 8)), Y[3:8])
    if words.get("name") != "band_{:.0f}":
        np.testing.assert_allclose(cube.wavelengths, np.sort(WAVES))


def test_each_band_has_its_own_scale_and_missing_value(tmp_path):
    Y = write(tmp_path / "x.nc", dtype="i2").astype(float)
    with h5py.File(tmp_path / "x.nc", "a") as file:
        for k, wave in enumerate(sorted(WAVES)):
            data = file[f"rhos_{wave:g}"]
            data.attrs.update(scale_factor=0.001 * (k + 1), add_offset=0.1 * k, _FillValue=np.int16(-9))
            data[2, 3] = -9
    scene = open_scene(tmp_path / "x.nc", ReadOptions())
    found, masked = scene.read(2)
    assert masked.tolist() == [s == 3 for s in range(9)]
    np.testing.assert_allclose(found[0], Y[2, 0] * 0.001 * np.arange(1, 6) + 0.1 * np.arange(5), rtol=1e-12)


def test_one_of_several_sets_is_named(tmp_path):
    write(tmp_path / "x.nc")
    Y = write(tmp_path / "x.nc", name="rhot_{:g}", seed=1)
    refused(unmix.CubeError, r"/rhos_\* \(5 bands\), /rhot_\* \(5 bands\)", open_cube, tmp_path / "x.nc")
    np.testing.assert_array_equal(read_values(open_cube(tmp_path / "x.nc", "rhot_*")), Y)
    np.testing.assert_array_equal(read_values(open_cube(tmp_path / "x.nc", "/rhot_*")), Y)
    refused(unmix.CubeError, "no dataset 'Rrs_", open_cube, tmp_path / "x.nc", "Rrs_*")


@pytest.mark.parametrize("change", ["two", "shapes", "types"])
def test_what_is_no_set_of_bands_is_no_cube(tmp_path, change):
    with h5py.File(tmp_path / "x.nc", "w") as file:
        for k, wave in enumerate(WAVES[: 2 if change == "two" else 3]):
            file[f"b_{wave:g}"] = np.zeros(
                (4 + k * (change == "shapes"), 3), ("f4", "f8", "i2")[k * (change == "types")]
            )
    refused(unmix.CubeError, "no product that is known", open_cube, tmp_path / "x.nc")
