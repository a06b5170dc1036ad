"""Presets of sensors: each opens a file like that sensor's, with its bands, scale and nodata."""

import h5py
import numpy as np
import pytest
from conftest import refused, write_cube

import unmix
from unmix.commands.verify import verify
from unmix.io.formats.geotiff import ENMAP
from unmix.io.formats.products import PRODUCTS
from unmix.scene import ReadOptions, open_scene
from unmix.settings.presets import FILE_NAMES, OF_FORMATS, PRESETS, preset_of

# First and last wavelength (nm), number of bands, and the stored value of a reflectance of 0.5.
SENSORS = {
    "aviris": (365, 2496, 224, 5000),
    "aviris-ng": (377, 2501, 425, 0.5),
    "aviris-3": (390, 2493, 284, 0.5),
    "aviris-5": (378, 2493, 285, 0.5),
    "desis": (401, 999, 235, 5000),
    "enmap": (418, 2445, 224, 0.5),
    "hymap": (437, 2485, 126, 5000),
    "neon": (384, 2512, 426, 0.5),
    "prisma": (402, 2497, 234, 0.5),
    "tanager": (376, 2500, 426, 0.5),
    "wyvern": (445, 869, 31, 0.5),
}


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


# Presets with an offset, or its absence: scale and offset as their archives document them, (stored value) / scale +
# offset.
SHIFTED = {"landsat-c2": (1 / 2.75e-5, -0.2), "sentinel-2": (10000, -0.1), "sentinel-2-n03": (10000, 0)}


@pytest.mark.parametrize("name", SHIFTED)
def test_of_shifted_values(tmp_path, name):
    """0 is fill as stored, not the reflectance of 0."""
    scale, offset = SHIFTED[name]
    stored = np.arange(0, 60000, 500, np.uint16).reshape(5, 6, 4)
    stored[0, 0] = 0
    scene = open_scene(write_cube(tmp_path / "s.hdr", stored), ReadOptions(preset=name))
    raw = scene.cube.read(slice(0, 5), np.empty(stored.nbytes, np.uint8))
    np.testing.assert_allclose(scene.spectra(raw), stored.reshape(-1, 4) / scale + offset, atol=1e-12)
    assert scene.missing(raw).tolist() == [True] + [False] * 29


def test_a_scale_and_an_offset_go_together():
    """Another scale beside a preset's offset would be half of another formula."""
    assert ReadOptions(preset="sentinel-2", offset=0.0).offset == 0.0
    assert ReadOptions(preset="sentinel-2", scale=10000).offset == -0.1
    assert ReadOptions(preset="landsat-c2", scale=2.0, offset=1.0).scale == 2.0
    refused(unmix.MethodError, "`preset` landsat-c2 has `scale` 36363", ReadOptions, preset="landsat-c2", scale=36364)


def test_emit(tmp_path):
    """The mask beside the granule is named after it."""
    assert set(PRESETS) == {*SENSORS, "emit", "pace-oci", *SHIFTED}
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
    refused(unmix.MethodError, "is none of auto, aviris", ReadOptions, preset="aviris-4")


# A name as each archive gives it, and one that is like it.
ARCHIVED = {
    "aviris": ("f970619t01p02_r02_sc02.a.rfl", "f97.hdr"),
    "aviris-ng": ("ang20140912t192359_corr_v1c_img", "angle2014.hdr"),
    "aviris-3": ("AV320240925t183012_005_L2A_OE_RFL_ORT.nc", "av3.hdr"),
    "aviris-5": ("AV520250315t190120_000_L2A_RFL.nc", "av52.hdr"),
    "desis": ("DESIS-HSI-L2A-DT0864-SPECTRAL_IMAGE.tif", "desis.tif"),
    "emit": ("EMIT_L2A_RFL_001_20230729T192159_2321013_003.nc", "EMIT_L2A_MASK_001_x.nc"),
    "enmap": (
        "ENMAP01-____L2A-DT0000001049_20220612T105735Z-SPECTRAL_IMAGE.TIF",
        "EnMAP01_Berlin_Urban_Gradient_2009.hdr",
    ),
    "landsat-c2": ("LC08_L2SP_193027_20220614_20220617_02_T1_SR_B4.TIF", "LC08_L1TP_193027_20220614_02_T1_B4.TIF"),
    "hymap": ("2003_HyMap_cuprite.hdr", "hyperion.hdr"),
    "neon": ("NEON_D17_SJER_DP3_256000_4106000_reflectance.h5", "neonhs_ex.h5"),
    "pace-oci": ("PACE_OCI.20240705T172045.L2.SFREFL.V3_0.NRT.nc", "PACE_OCI.20240705T172045.L2.OC_AOP.nc"),
    "prisma": ("PRS_L2D_STD_20200321105023_20200321105028_0001.he5", "PRS_L1_STD_20200321.he5"),
    "sentinel-2": (
        "S2A_MSIL2A_20230612T101601_N0509_R065_T32TQM_20230612T161600.tif",
        "S2A_MSIL1C_20230612T101601_N0509.tif",
    ),
    "sentinel-2-n03": ("S2B_MSIL2A_20211230T101329_N0301_R022_T32TQM.tif", "S2.tif"),
    "tanager": ("20250513_123211_17_4001_ortho_sr_hdf5.h5", "20250513_123211_17_4001_basic_radiance_hdf5.h5"),
    "wyvern": ("wyvern_dragonette-001_20240808T172450_9a1b.tiff", "dragonette.tiff"),
}


@pytest.mark.parametrize("name", ARCHIVED)
def test_by_the_name_of_the_file(tmp_path, name):
    known, other = ARCHIVED[name]
    assert set(ARCHIVED) == set(FILE_NAMES) == set(PRESETS)
    assert preset_of(known) == name and preset_of(other) is None
    found = ReadOptions(preset="auto", ignore_nm="100-200").for_scene(tmp_path / known)
    expected = ReadOptions(preset=name, ignore_nm="100-200").for_scene(tmp_path / known)
    assert found == expected and found.preset == name and found.ignore_nm == "100-200"
    unknown = write_cube((tmp_path / other).with_suffix(".hdr"), np.ones((2, 2, 3)))
    with pytest.raises(unmix.MethodError, match="`preset` auto: name and format are like those of no sensor"):
        ReadOptions(preset="auto").for_scene(unknown)


def test_runs_by_the_name(tmp_path):
    """All commands that read a scene go by it; the record has the preset and what it set."""
    Y = np.random.default_rng(0).uniform(1000, 5000, (16, 17, 30)).astype(np.int16)
    waves = "{" + ", ".join(f"{wave:.2f}" for wave in np.linspace(400, 2400, 30)) + "}"
    path = write_cube(tmp_path / "f970619t01p02_r02_sc02.hdr", Y, wavelength=waves, data_ignore_value=-9999)
    report = unmix.run(path, preset="auto", count=3, extract="vca", out_dir=tmp_path / "o", device="cpu", browse=False)
    assert report["options"]["preset"] == "auto" and report["bands_used"][:3] == [1, 2, 3]
    assert len(report["bands_used"]) < 28
    how = {"preset": "auto", "count": 3, "extract": "vca"}
    again = unmix.run(path, out_dir=tmp_path / "o", device="cpu", browse=False, skip_existing=True, **how)
    assert again["skipped"] and verify(tmp_path / "o" / path.stem, everything=True).faults == []
    assert unmix.mnf(path, preset="auto", count=2)["count"] == 2
    said = [one["message"] for one in unmix.check(path, method="nnls")["findings"] if one["about"] == "preset"]
    assert said == ["it is of aviris: `preset` aviris sets --scale 10000 --ignore-nm water where these are not given"]
    assert not [one for one in unmix.check(path, preset="auto")["findings"] if one["about"] == "preset"]


def test_by_the_format_of_the_file(tmp_path):
    """A granule under a name of one's own; each format is one that a reader gives."""
    known = {kind.name for kind, _ in PRODUCTS} | {ENMAP.name}
    assert set(OF_FORMATS) <= known and set(OF_FORMATS.values()) <= set(PRESETS)
    with h5py.File(tmp_path / "mine.nc", "w") as file:
        file["reflectance"] = np.full((3, 4, 6), 0.25, np.float32)
        file["sensor_band_parameters/wavelengths"] = np.linspace(400, 2400, 6)
        file["sensor_band_parameters/fwhm"] = np.full(6, 10.0)
    assert unmix.open_cube(tmp_path / "mine.nc").format == "EMIT L2A"
    with pytest.raises(unmix.MethodError, match="`preset` emit names the masks so"):
        ReadOptions(preset="auto").for_scene(tmp_path / "mine.nc")
