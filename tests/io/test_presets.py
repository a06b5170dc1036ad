"""Presets of sensors: each opens a file like that sensor's, with its bands, scale and nodata."""

import h5py
import numpy as np
import pytest
from conftest import write_cube

import unmix
from unmix.scene import ReadOptions, open_scene
from unmix.settings.presets import PRESETS

# First and last wavelength (nm), number of bands, and the stored value of a reflectance of 0.5.
SENSORS = {
    "aviris": (365, 2496, 224, 5000), "aviris-ng": (377, 2501, 425, 0.5), "aviris-3": (390, 2493, 284, 0.5),
    "aviris-5": (378, 2493, 285, 0.5), "desis": (401, 999, 235, 5000), "enmap": (418, 2445, 224, 0.5),
    "hymap": (437, 2485, 126, 5000), "neon": (384, 2512, 426, 0.5), "prisma": (402, 2497, 234, 0.5),
    "tanager": (376, 2500, 426, 0.5), "wyvern": (445, 869, 31, 0.5),
}  # fmt: skip


@pytest.mark.parametrize("name", SENSORS)
def test_of_each_sensor(tmp_path, name):
    first, last, bands, half = SENSORS[name]
    waves = np.linspace(first, last, bands)
    dtype = np.int16 if half > 1 else np.float32
    Y = np.full((3, 4, bands), half, dtype)
    fill = PRESETS[name].get("nodata", -9999)
    Y[0, 0] = fill
    declared = {} if "nodata" in PRESETS[name] else {"data_ignore_value": fill}
    path = write_cube(
        tmp_path / "s.hdr", Y, wavelength="{" + ", ".join(f"{wave:.2f}" for wave in waves) + "}", **declared
    )
    scene = open_scene(path, ReadOptions(preset=name))
    raw = scene.cube.read(slice(0, 1), np.empty(Y[:1].nbytes, np.uint8))
    missing = scene.missing(raw)
    assert missing.tolist() == [True, False, False, False]
    np.testing.assert_allclose(scene.spectra(raw)[~missing], 0.5)
    water = ((waves >= 1310) & (waves <= 1490)) | ((waves >= 1770) & (waves <= 2050))
    np.testing.assert_array_equal(np.setdiff1d(np.arange(bands), scene.bands.index), np.flatnonzero(water))


def test_emit(tmp_path):
    """The mask beside the granule is named after it."""
    assert set(PRESETS) == {*SENSORS, "emit", "pace-oci"}
    unmix_options = ReadOptions(preset="emit").for_scene(tmp_path / "EMIT_L2A_RFL_001_x.nc")
    assert unmix_options.mask_out == tuple(
        f"{tmp_path}/EMIT_L2A_MASK_001_x.nc:{flag} flag" for flag in ("Cloud", "Cirrus")
    )


def test_pace(tmp_path):
    values = np.full((3, 4, 6), 0.25, np.float32)
    with h5py.File(tmp_path / "p.nc", "w") as file:
        file["geophysical_data/rhos"] = values
        file["geophysical_data/rhos"].attrs["_FillValue"] = np.float32(-32767)
        file["sensor_band_parameters/wavelength_3d"] = np.linspace(400, 2200, 6).astype(np.float32)
    scene = open_scene(tmp_path / "p.nc", ReadOptions(preset="pace-oci"))
    np.testing.assert_allclose(scene.wavelengths, np.linspace(400, 2200, 6))


def test_what_is_given_comes_first():
    assert ReadOptions(preset="hymap", scale=1.0).scale == 1.0
    assert (
        ReadOptions(preset="hymap").ignore_nm
        == "water"
        == ReadOptions(**ReadOptions(preset="hymap").to_dict()).ignore_nm
    )
    with pytest.raises(unmix.MethodError, match="is none of aviris"):
        ReadOptions(preset="aviris-4")
