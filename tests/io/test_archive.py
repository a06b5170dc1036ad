"""Every file of the real data against a table written by hand: what it is, or why it is refused; GDAL is the second witness."""

import json
import os
import shutil
import subprocess

import numpy as np
import pytest
from click.testing import CliRunner
from unmix_cli.main import cli

import unmix
from unmix.io import open_cube
from unmix.io.formats.header import geotransform
from unmix.library import load_parts

pytestmark = pytest.mark.real
UTM33, UTM32, DEGREES = "UTM zone 33N", "UTM zone 32N", "WGS 84"
ENVI33, ENVI32 = "UTM_Zone_33N", "UTM_Zone_32_Northern_Hemisphere"
BERLIN, HYSU = "berlin/", "hysu/HySpex/"
ANG = "aviris_ng/ang20140912t192359_corr_v1c_img_400-410_10-20.img"
HYSPEX, ROIS = (417.4, 902.79), ("bitumen", "blueFabric", "greenFabric", "redFabric", "redMetal", "targetsSizeROI")
# Lines, samples, bands, type; first and last wavelength (nm), nodata, what stored values are multiplied by; GDAL's name
# of the coordinate system, where the file has one; bands that are not good.
CUBES = {
    ANG: (10, 10, 432, "float32", (346.3, 2505.04), None, 1, "unnamed", 59),
    BERLIN + "EnMAP01_Berlin_Urban_Gradient_2009.bsq": (30, 20, 111, "float32", (455.4, 2446.5), None, 1, ENVI33, 0),
    BERLIN + "EnMAP02_Berlin_Urban_Gradient_2009.bsq": (30, 20, 244, "float32", (424, 2446), None, 1, ENVI33, 0),
    BERLIN + "EnMAP_BerlinUrbanGradient.bsq": (80, 60, 177, "int16", (460, 2409), -99, 1, ENVI33, 0),
    BERLIN + "LandCov_Class_Berlin_Urban_Gradient_2009.bsq": (30, 20, 1, "int32", None, None, 1, UTM33, 0),
    BERLIN + "LandCov_Layer_Level1_Berlin_Urban_Gradient_2009.bsq": (30, 20, 4, "float32", None, None, 1, UTM33, 0),
    BERLIN + "LandCov_Layer_Level2_Berlin_Urban_Gradient_2009.bsq": (30, 20, 6, "float32", None, None, 1, UTM33, 0),
    "emit_unmix/data/emit20250324t221005_jpl_unmix_ex": (10, 10, 285, "float32", (381.01, 2492.92), -9999, 1, None, 41),
    "enmap_tiles/enmap_potsdam_tile_128_0.tif": (32, 32, 224, "float32", (418.24, 2445.53), -32768, 1e-4, UTM33, 6),
    "enmap_tiles/enmap_potsdam_tile_128_128.tif": (32, 32, 224, "float32", (418.24, 2445.53), -32768, 1e-4, UTM33, 6),
    "enmap_tiles/enmap_potsdam_tile_128_32.tif": (32, 32, 224, "float32", (418.24, 2445.53), -32768, 1e-4, UTM33, 6),
    "gdal_envi/aea.dat": (3, 434, 1, "uint8", None, None, 1, "unnamed", 0),
    "gdal_envi/aea_compressed.dat": (3, 434, 1, "uint8", None, None, 1, "unnamed", 0),
    "gdal_envi/envi_rgbsmall_bil.img": (49, 50, 3, "uint8", None, None, 1, DEGREES, 0),
    "gdal_envi/envi_rgbsmall_bip.img": (49, 50, 3, "uint8", None, None, 1, DEGREES, 0),
    "gdal_envi/envi_rgbsmall_bsq.img": (49, 50, 3, "uint8", None, None, 1, DEGREES, 0),
    "gdal_envi/envirpc.img": (1, 1, 1, "uint8", None, None, 1, None, 0),
    "gdal_envi/envistat": (2, 2, 6, "uint8", None, None, 1, None, 0),
    "gdal_envi/rotation.img": (1, 1, 1, "uint8", None, None, 1, "unnamed", 0),
    "gdal_envi/testenviclasses": (1, 1, 1, "uint8", None, None, 1, None, 0),
    "gdal_envi/uint16_envi_bigendian.dat": (20, 20, 1, "uint16", None, None, 1, "NAD27 / UTM zone 11N", 0),
    HYSU + "all_targets/DLR_HySU_HS_all_targets.tif": (42, 24, 135, "int16", HYSPEX, 15000, 1e-4, UTM32, 0),
    HYSU + "full/DLR_HySU_HS_full.tif": (86, 123, 135, "int16", HYSPEX, 15000, 1e-4, UTM32, 0),
    HYSU + "large_targets/DLR_HySU_HS_large_targets.tif": (13, 16, 135, "int16", HYSPEX, 15000, 1e-4, UTM32, 0),
    HYSU + "small_targets/DLR_HySU_HS_small_targets.tif": (12, 12, 135, "int16", HYSPEX, 15000, 1e-4, UTM32, 0),
    **dict.fromkeys(
        (f"{HYSU}all_targets/TargetsROIs/ENVI/{name}" for name in ROIS), (86, 123, 1, "uint8", None, None, 1, ENVI32, 0)
    ),
    HYSU + "all_targets/TargetsROIs/Matlab/masks.mat": (86, 123, 5, "float64", None, None, 1, None, 0),
    "hysu/all_targets.mat": (42, 24, 135, "float64", HYSPEX, None, 1, None, 0),
    "hysu/large_targets.mat": (13, 16, 135, "float64", HYSPEX, None, 1, None, 0),
    "jasper/jasper.img": (100, 100, 198, "uint16", (429.41, 2490.29), None, 2e-4, None, 0),
    "jasper/jasper_truth_abundance.img": (100, 100, 4, "float32", None, None, 1, None, 0),
    "moffett/moffett.img": (50, 50, 184, "float32", None, None, 1, None, 0),
    "moffett/moffett_truth_abundance.img": (50, 50, 3, "float32", None, None, 1, None, 0),
    "neon_aop/neonhs_ex.h5": (30, 30, 426, "int32", (383.53, 2511.89), -9999, 1e-4, None, 0),
    "salinas_a/salinas_a.img": (83, 86, 224, "int16", None, None, 1, None, 0),
    "salton_sea/salton_sea_roi.mat": (51, 56, 224, "float64", (365.91, 2496.22), None, 1, None, 20),
    "samson/samson.img": (95, 95, 156, "float32", None, None, 1, None, 0),
    "samson/samson_truth_abundance.img": (95, 95, 3, "float32", None, None, 1, None, 0),
    "sim1_synth/A_true.mat": (105, 105, 6, "float64", None, None, 1, None, 0),
    "sim1_synth/Y_clean.mat": (105, 105, 224, "float64", None, None, 1, None, 0),
    "carbs/carbs.img": (1, 21, 1401, "float32", (1600, 200), None, 1, None, 0),
    "eels/eels.img": (64, 64, 200, "float32", (380, 778), None, 1, None, 0),
    "shen33/shen33.img": (1, 33, 600, "float32", None, None, 1, None, 0),
    "simdata/simdata.img": (1, 100, 141, "float32", (210, 350), None, 1, None, 0),
    "swiss/swiss.img": (100, 100, 10, "float32", (492.4, 2202.4), None, 1, None, 0),
    "toy/toy.img": (40, 40, 200, "float32", None, None, 1, None, 0),
    "toy/toy_truth_abundance.img": (40, 40, 6, "float32", None, None, 1, None, 0),
}
# Spectra, channels, first and last wavelength (nm), values that are missing.
LIBRARIES = {
    BERLIN + "SpecLib_Berlin_Urban_Gradient_2009.sli": (75, 111, (455.4, 2446.5), 0),
    BERLIN + "SpecLib_Berlin_Urban_Gradient_2009_244bands.sli": (75, 244, (424, 2446), 0),
    BERLIN + "SpecLib_SynthMix.sli": (1031, 177, None, 0),
    "emit_unmix/data/basic_endmember_library.csv": (5, 224, (365.93, 2495.34), 0),
    "hysu/all_targets.mat": (6, 135, (417.4, 902.79), 0),
    "hysu/large_targets.mat": (6, 135, (417.4, 902.79), 0),
    "hysu/spectral_libraries/HySpex_library/DLR_HySU_HS_library.lib": (6, 135, (417.4, 902.79), 0),
    "hysu/spectral_libraries/HySpex_library/DLR_HySU_HS_library_ASCII.txt": (7, 135, (417.4, 902.79), 0),
    "hysu/spectral_libraries/SVC_data/DLR_HySU_SVC.lib": (6, 135, (417.4, 902.79), 0),
    "hysu/spectral_libraries/SVC_data/DLR_HySU_SVC_ASCII.txt": (6, 135, (417.4, 902.79), 0),
    "jasper/jasper_truth_endmembers.csv": (4, 198, (429.41, 2490.29), 0),
    "libraries/EnMAP.sli": (218, 2051, (400, 2450), 0),
    "libraries/USGS_1995_Library.mat": (498, 224, (383.15, 2508.2), 0),
    "libraries/ammonium_chloride_gds77.27373.asc": (1, 480, (205.1, 2976), 1),
    "libraries/asphalt_gds366.27407.asc": (1, 2151, (350, 2500), 0),
    "libraries/asphalt_gds367.27430.asc": (1, 2151, (350, 2500), 0),
    "libraries/asphalt_gds368.27454.asc": (1, 2151, (350, 2500), 0),
    "libraries/b.spectrum.txt": (1, 2151, (350, 2500), 0),
    "libraries/black_ldpe_plastic_gds405.28787.asc": (1, 2151, (350, 2500), 66),
    "libraries/black_old_asphaltroof_gds376.27384.asc": (1, 2151, (350, 2500), 0),
    "libraries/library_berlin.sli": (75, 177, (460, 2409), 0),
    "libraries/s06av95a_envi.sli": (1365, 224, (383.15, 2508.2), 50067),
    "libraries/spectral_library_jasperRidge.mat": (529, 198, None, 0),
    "libraries/spectral_library_samson.mat": (105, 156, None, 0),
    "libraries/usgs.perknic.rock.igneous.felsic.solid.rhy149.spectrum.txt": (1, 2530, (405, 14051), 0),
    "libraries/vegSpec.sli": (2, 2151, (350, 2500), 144),
    "moffett/moffett_truth_endmembers.csv": (3, 184, None, 0),
    **{f"paper_endmembers/ksc_{p:02d}.csv": (p, 176, None, 0) for p in (*range(3, 31, 3), 32)},
    **{f"paper_endmembers/salinas_{p:02d}.csv": (p, 224, None, 0) for p in (*range(3, 16), 20, 25)},
    "samson/samson_truth_endmembers.csv": (3, 156, None, 0),
    "sim1_synth/E.mat": (6, 224, None, 0),
    "swiss/swiss_lib.csv": (264, 10, (492.4, 2202.4), 0),
    "toy/toy_truth_endmembers.csv": (6, 200, None, 0),
}
# Neither: what `unmix info` says of them.
REFUSED = {
    "dc/dc1.npz": "without a Zarr store in it",
    **{
        f"{name}/{name}_truth.npz": "without a Zarr store in it"
        for name in ("carbs", "eels", "shen33", "simdata", "swiss")
    },
    "ehdr_not_envi/ort_glt": "ESRI header",
    "ehdr_not_envi/ort_img": "ESRI header",
    "ehdr_not_envi/ort_glt.prj": "header of another file",
    "ehdr_not_envi/ort_img.prj": "header of another file",
    "emit_unmix/examples/fake_refl.hdr": "no data file beside it",
    "hysu/spectral_libraries/SVC_data/DLR_HySU_SVC.h5": "of no product that is known",
    "gdal_envi/envistat.sta": "header of another file",
    BERLIN + "SpecLib_SynthMix.csv": "header of another file",
}
OTHERS = (".md", ".txt", ".rda", ".png")


def files(data):
    """Every file that is no header of another, by its path below the folder."""
    for path in sorted(data.rglob("*")):
        name = path.relative_to(data).as_posix()
        if path.is_file() and (path.suffix != ".hdr" or name in REFUSED):
            yield name


def test_every_file_is_in_a_table(data):
    for name in files(data):
        assert name in CUBES or name in LIBRARIES or name in REFUSED or name.endswith(OTHERS), name
    for name in [*CUBES, *LIBRARIES, *REFUSED]:
        assert (data / name).is_file(), name


@pytest.mark.parametrize("name", list(CUBES))
def test_a_cube_is_what_the_table_says(data, name):
    """By the data file and by the header; and by what GDAL says of it."""
    lines, samples, bands, dtype, ends, nodata, factor, system, bad = CUBES[name]
    path = data / name
    headers = [h for h in (path.with_suffix(".hdr"), path.with_name(path.name + ".hdr")) if h.exists()][:1]
    for named in [path, *headers]:
        cube = open_cube(named)
        assert (cube.lines, cube.samples, cube.bands, cube.dtype.name) == (lines, samples, bands, dtype)
        assert cube.nodata == nodata
        assert (cube.wavelengths is None) == (ends is None)
        if ends is not None:
            np.testing.assert_allclose(cube.wavelengths[[0, -1]], ends, atol=0.005)
        np.testing.assert_allclose(1.0 if cube.gain is None else cube.gain, factor)
        assert (0 if cube.good_bands is None else int((~cube.good_bands).sum())) == bad
        transform = geotransform(cube.fields.get("map info", ""))
        assert (transform is None) == (system is None and not name.startswith("neon"))
    if path.suffix not in (".mat", ".h5"):
        second_witness(path, cube, system, transform)


def second_witness(path, cube, system, transform):
    """`gdalinfo`, of Debian's own GDAL."""
    if shutil.which("gdalinfo") is None:
        return
    quiet = os.environ | {"CPL_VSIL_GZIP_WRITE_PROPERTIES": "NO"}  # or it leaves a file beside a compressed one
    words = subprocess.run(["gdalinfo", "-json", str(path)], capture_output=True, text=True, check=True, env=quiet)
    found = json.loads(words.stdout)
    types = {"Byte": "uint8", "Int16": "int16", "UInt16": "uint16", "Int32": "int32", "Float32": "float32"}
    first = found["bands"][0]
    assert found["size"] == [cube.samples, cube.lines] and len(found["bands"]) == cube.bands
    assert types[first["type"]] == cube.dtype.name
    assert first.get("noDataValue") == cube.nodata
    crs = found.get("coordinateSystem", {}).get("wkt", "")
    assert (system is None and not crs) or system in crs.split("\n")[0]
    if transform is not None:
        np.testing.assert_allclose(found["geoTransform"], transform, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", list(LIBRARIES))
def test_a_library_is_what_the_table_says(data, name):
    """By its file and by its header."""
    spectra, channels, ends, missing = LIBRARIES[name]
    path = data / name
    headers = [
        h
        for h in (path.with_suffix(".hdr"), path.with_name(path.name + ".hdr"))
        if h.exists() and path.suffix != ".mat"
    ]
    for named in [path, *headers]:
        (library,) = load_parts(named)
        assert library.matrix.shape == (channels, spectra)
        assert len(set(library.names)) == spectra and all(library.names)
        assert (library.wavelengths is None) == (ends is None)
        if ends is not None:
            np.testing.assert_allclose([library.wavelengths.min(), library.wavelengths.max()], ends, atol=0.1)
        assert int((~library.valid).sum()) == missing


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_is_refused_is_refused_in_a_line(data, name):
    """As a cube and as a library; exit code 3."""
    for words in (["info"], ["library", "info"]):
        result = CliRunner().invoke(cli, [*words, str(data / name)])
        assert isinstance(result.exception, unmix.UnmixError), name
        assert result.exception.exit_code == 3 and "\n" not in str(result.exception)
    with pytest.raises(unmix.CubeError, match=REFUSED[name]):
        open_cube(data / name)


def test_everything_else_is_refused_in_a_line_too(data):
    """Cubes as libraries, libraries as cubes, and what is neither."""
    for name in files(data):
        for known, read in ((CUBES, open_cube), (LIBRARIES, load_parts)):
            if name not in known:
                with pytest.raises((unmix.CubeError, unmix.LibraryError)) as error:
                    pytest.fail(f"{name} was read as {read(data / name)}")
                assert "\n" not in str(error.value) and len(str(error.value)) < 600
                assert error.value.exit_code == 3
                assert "truth value" not in str(error.value)
