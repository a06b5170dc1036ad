"""What lies beside a cube's values, or is named instead of it: alpha bands, headers beside TIFFs, other endings, other formats."""

import logging

import numpy as np
import pytest
import rasterio
import rasterio.control
import rasterio.shutil
from conftest import refused, write_cube
from rasterio.enums import ColorInterp

import unmix
from unmix import CubeError
from unmix.commands.verify import verify
from unmix.io import open_cube
from unmix.io.cube import read_lines
from unmix.scene import ReadOptions, open_scene

LINES, SAMPLES, WAVES = 40, 10, np.arange(420.0, 2451.0, 290.0)
BANDS = len(WAVES)
VALUES = np.random.default_rng(3).integers(1, 9000, (LINES, SAMPLES, BANDS)).astype(np.uint16)
IN_BRACES = "{" + ", ".join(map(str, WAVES)) + "}"


def tif(path, values=VALUES, alphas=(), names=(), tags=(), **how):
    lines, samples, bands = values.shape
    how = {"height": lines, "width": samples, "count": bands, "dtype": values.dtype.name} | how
    with rasterio.open(path, "w", **how) as file:
        if alphas:
            file.colorinterp = [ColorInterp.alpha if b in alphas else ColorInterp.undefined for b in range(bands)]
        file.write(values.transpose(2, 0, 1))
        for b, name in enumerate(names, 1):
            file.set_band_description(b, name)
        for b, tag in enumerate(tags, 1):
            file.update_tags(b, wavelength=tag, wavelength_units="nm")
    return path


def as_read(path, **how):
    scene = open_scene(path, ReadOptions(**({"bands": "all"} | how)))
    raw = read_lines(scene.cube, slice(0, scene.cube.lines))
    shape = scene.cube.lines, scene.cube.samples
    return scene.spectra(raw).reshape(*shape, -1), scene.missing(raw).reshape(shape)


@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
@pytest.mark.parametrize("place", [0, 3, BANDS], ids=["first", "between", "last"])
@pytest.mark.parametrize(
    "how", [{}, {"interleave": "band"}, {"tiled": True, "blockxsize": 16, "blockysize": 16, "compress": "deflate"}]
)
@pytest.mark.parametrize("inflated", [False, True])
@pytest.mark.parametrize("by_name", [False, True])
def test_an_alpha_band_is_no_spectrum_but_a_mask(tmp_path, monkeypatch, place, how, inflated, by_name):
    if inflated:
        monkeypatch.setattr("unmix.io.formats.geotiff.MOST_TOGETHER", 0)
    alpha = np.full((LINES, SAMPLES), 65535, np.uint16)
    alpha[:3] = 0
    alpha[20, 4], alpha[39, 9], alpha[30, 1] = 0, 0, 7  # what is nearly transparent has values
    names = ["Alpha" if b == place else "" for b in range(BANDS + 1)] if by_name else ()
    values = np.insert(VALUES, place, alpha, axis=2)
    path = tif(tmp_path / "a.tif", values, () if by_name else {place}, names, **how)
    cube = open_cube(path)
    assert cube.bands == BANDS and f"band {place + 1} is called alpha" in cube.problems[0]
    Y, masked = as_read(path)
    np.testing.assert_array_equal(masked, alpha == 0)
    np.testing.assert_array_equal(Y[~masked], VALUES[alpha != 0])
    Y, masked = as_read(path, lines="18:39", samples="2:9", nodata=0)
    np.testing.assert_array_equal(masked, (alpha == 0)[18:39, 2:9])


@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
def test_a_run_of_a_scene_with_an_alpha_band(tmp_path):
    alpha = np.full((LINES, SAMPLES), 65535, np.uint16)
    alpha[:3] = 0
    path = tif(tmp_path / "a.tif", np.dstack([VALUES, alpha]), {BANDS})
    library = unmix.Endmembers(("a", "b"), np.stack([VALUES[0, 0], VALUES[5, 5]], axis=1).astype(float), None)
    report = unmix.run(path, endmembers=library, method="nnls", device="cpu", out_dir=tmp_path / "o", overwrite=True)
    assert report["pixels"]["masked"] == 30
    found = np.fromfile(tmp_path / "o/a_abundance.img", "<f4").reshape(LINES, 2, SAMPLES)
    np.testing.assert_array_equal((found == -9999).any(axis=1), alpha == 0)
    assert verify(tmp_path / "o/a").faults == []


@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
def test_a_mask_of_its_own_is_used(tmp_path):
    path, keep = tif(tmp_path / "a.tif"), np.ones((LINES, SAMPLES), bool)
    keep[5:9, 3] = False
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(path, "r+") as file:
        file.write_mask(keep)
    Y, masked = as_read(path)
    np.testing.assert_array_equal(masked, ~keep)
    np.testing.assert_array_equal(Y[keep], VALUES[keep])


@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
@pytest.mark.parametrize("why", ["wavelengths", "header", "all"])
def test_what_is_called_alpha_and_is_a_band(tmp_path, why):
    """GDAL calls the fourth of four bands of bytes so, unasked: near infrared, often."""
    values = VALUES[..., :4].astype(np.uint8)
    tags = map(str, WAVES[:4]) if why == "wavelengths" else ()
    path = tif(tmp_path / "a.tif", values, {0, 1, 2, 3} if why == "all" else (), tags=tags)
    with rasterio.open(path) as file:
        assert file.colorinterp[3] == ColorInterp.alpha
    if why == "header":
        (tmp_path / "a.hdr").write_text(
            f"ENVI\nlines = {LINES}\nsamples = {SAMPLES}\nbands = 4\ndata type = 1\ninterleave = bsq\n"
        )
    assert open_cube(path).bands == 4
    np.testing.assert_array_equal(as_read(path)[0], values)


def header_of(path, bands=BANDS, more=""):
    path.write_text(
        f"ENVI\nsamples = {SAMPLES}\nlines = {LINES}\nbands = {bands}\ndata type = 12\ninterleave = bsq\nbyte order = "
        f"0\n{more}"
    )


@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
@pytest.mark.parametrize("named", ["a.tif", "a.hdr"])
@pytest.mark.parametrize("ending", [".hdr", ".tif.hdr"])
def test_wavelengths_of_a_tiff_in_a_header_beside_it(tmp_path, caplog, named, ending):
    caplog.set_level(logging.INFO)
    tif(tmp_path / "a.tif")
    header_of(tmp_path / f"a{ending}", more=f"wavelength = {IN_BRACES}\nbbl = {{0, {', '.join('1' * (BANDS - 1))}}}\n")
    path = tmp_path / (named if named == "a.tif" else f"a{ending}")
    cube = open_cube(path)
    np.testing.assert_array_equal(cube.wavelengths, WAVES)
    assert cube.good_bands.tolist() == [False, *[True] * (BANDS - 1)]
    assert f"wavelengths are taken from a{ending}" in caplog.text and tmp_path / f"a{ending}" in cube.beside


@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
@pytest.mark.parametrize("why", ["other size", "own wavelengths", "no numbers", "no sizes"])
def test_a_header_that_is_not_the_tiff_s_says_nothing(tmp_path, why):
    tif(tmp_path / "a.tif", tags=map(str, WAVES + 1) if why == "own wavelengths" else ())
    header_of(
        tmp_path / "a.hdr",
        BANDS + (why == "other size"),
        f"wavelength = {IN_BRACES.replace('420', 'x') if why == 'no numbers' else IN_BRACES}\n",
    )
    if why == "no sizes":
        (tmp_path / "a.hdr").write_text(f"ENVI\nwavelength = {IN_BRACES}\n")
    cube = open_cube(tmp_path / "a.tif")
    assert (cube.wavelengths is None) == (why != "own wavelengths") and cube.problems == []
    assert why != "own wavelengths" or cube.wavelengths[0] == 421


@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
@pytest.mark.parametrize(
    "form", ["Band {b} (Band {b}) ({nm:.6f} Nanometers)", "{um:.4f} um", "reflectance; {nm:g} nm", "B{b} {nm:.1f}nm"]
)
def test_wavelengths_of_a_tiff_in_the_descriptions_of_its_bands(tmp_path, form):
    path = tif(tmp_path / "a.tif", names=[form.format(b=b, nm=w, um=w / 1000) for b, w in enumerate(WAVES, 1)])
    np.testing.assert_allclose(open_cube(path).wavelengths, WAVES, atol=0.1)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("wavelengths", "wavelength"),
        ("wavelength unit", "wavelength units"),
        ("fwhms", "fwhm"),
        ("data_ignore_value", "data ignore value"),
        ("data ignore values", "data ignore value"),
        ("map_info", "map info"),
        ("reflectance scale factors", "reflectance scale factor"),
        ("data gain value", "data gain values"),
    ],
)
def test_keys_that_are_mistyped_are_said(tmp_path, key, meant):
    path = tmp_path / "a.hdr"
    write_cube(path, VALUES)
    path.write_text(path.read_text() + f"{key} = {IN_BRACES}\n")
    assert open_cube(path).problems == [f"{path}: '{key}' is not read; the key is '{meant}'"]


@pytest.mark.parametrize(
    "key", ["wavelength range", "sensor type", "default bands", "z plot titles", "bands", "spectra names", "bbl mask"]
)
def test_other_keys_are_not_called_mistyped(tmp_path, key):
    path = tmp_path / "a.hdr"
    write_cube(path, VALUES)
    path.write_text(path.read_text() + f"{key} = {{1, 2, 3}}\n" * (key != "bands"))
    assert open_cube(path).problems == []


@pytest.mark.parametrize("ending", [".envi", ".rfl", ".cube", ".L1R", ".data", ".001"])
@pytest.mark.parametrize("named", ["data", "header"])
def test_data_with_any_ending_that_has_the_promised_size(tmp_path, ending, named):
    write_cube(tmp_path / "a.hdr", VALUES)
    (tmp_path / "a.img").rename(tmp_path / f"a{ending}")
    (tmp_path / "a.txt").write_text("notes")
    cube = open_cube(tmp_path / (f"a{ending}" if named == "data" else "a.hdr"))
    assert cube.stem == "a"
    np.testing.assert_array_equal(np.sort(read_lines(cube, slice(0, LINES)), axis=None), np.sort(VALUES, axis=None))


def test_data_with_another_ending_and_another_size_is_named(tmp_path):
    write_cube(tmp_path / "a.hdr", VALUES)
    (tmp_path / "a.img").rename(tmp_path / "a.cube")
    with (tmp_path / "a.cube").open("ab") as file:
        file.write(b"\0")
    refused(CubeError, r"a\.cube has 6401 bytes, but a\.hdr promises 6400", open_cube, tmp_path / "a.hdr")
    refused(CubeError, "is the header of another file", open_cube, tmp_path / "a.cube")


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (b"\x0e\x03\x13\x01", "is HDF4, and not read; convert it with gdal_translate"),
        (b"CDF\x01", "is NetCDF-3, .*nccopy"),
        (b"CDF\x02", "is NetCDF-3"),
        (b"NITF02.10", "is NITF, .*gdal_translate a.L1R a.tif"),
    ],
)
def test_formats_that_are_not_read_are_named(tmp_path, head, says):
    write_cube(tmp_path / "a.hdr", VALUES)
    (tmp_path / "a.L1R").write_bytes(head + bytes(5000))
    refused(CubeError, says, open_cube, tmp_path / "a.L1R")


@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
def test_a_vrt_is_named(tmp_path):
    rasterio.shutil.copy(tif(tmp_path / "a.tif"), tmp_path / "a.vrt", driver="VRT")
    with pytest.raises(
        CubeError, match=r"is VRT, which names other files, and not read; .*gdal_translate a\.vrt a\.tif"
    ):
        open_cube(tmp_path / "a.vrt")


def test_a_folder_names_the_cube_in_it(tmp_path):
    for name in ("ENMAP01-QL_QUALITY_CLOUD.TIF", "ENMAP01-SPECTRAL_IMAGE.TIF", "ENMAP01-METADATA.XML"):
        (tmp_path / name).touch()
    refused(CubeError, r"is a folder; .* in it, such as ENMAP01-SPECTRAL_IMAGE\.TIF$", open_cube, tmp_path)


POINTS = "1.0, 1.0, 45.0, 7.0, 10.0, 1.0, 45.0, 7.1, 1.0, 40.0, 44.9, 7.0, 10.0, 40.0, 44.9, 7.1"


def test_geo_points_are_kept_and_moved(tmp_path, caplog):
    """As GDAL reads them: column and row from 1, latitude, longitude."""
    path = write_cube(tmp_path / "a.hdr", VALUES, "bsq", geo_points="{" + POINTS + "}", rpc_info="{1, 2}")
    library = unmix.Endmembers(("a", "b"), np.stack([VALUES[0, 0], VALUES[5, 5]], axis=1).astype(float), None)
    unmix.run(path, endmembers=library, method="nnls", device="cpu", out_dir=tmp_path / "o")
    assert f"geo points = {{{POINTS}}}" in (tmp_path / "o/a_abundance.hdr").read_text()
    part = open_scene(path, ReadOptions(lines="5:20", samples="2:8", bands="all")).cube
    assert "'rpc info' is not moved to a part of it" in caplog.text and "geo points" not in caplog.text
    moved = np.array(part.fields["geo points"].split(","), float).reshape(4, 4)
    np.testing.assert_allclose(np.array(POINTS.split(","), float).reshape(4, 4) - moved, [[2, 5, 0, 0]] * 4)
    with rasterio.open(tmp_path / "a.img") as whole:
        here = {(one.x, one.y): (one.col - 2, one.row - 5) for one in whole.gcps[0]}
    assert {(lon, lat): (x - 1, y - 1) for x, y, lat, lon in moved.tolist()} == here


@pytest.mark.parametrize(("points", "says"), [("1, 2, 3", True), ("a, b, c, d", True), ("", False)])
def test_geo_points_that_are_not_understood(tmp_path, caplog, points, says):
    path = write_cube(tmp_path / "a.hdr", VALUES, geo_points="{" + points + "}")
    part = open_scene(path, ReadOptions(lines="5:20", bands="all")).cube
    assert "geo points" not in part.fields and ("'geo points' is not moved" in caplog.text) == says


@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
@pytest.mark.parametrize("form", ["geotiff", "cog", "hdf5", "zarr"])
def test_geo_points_in_other_formats(tmp_path, form):
    path = write_cube(tmp_path / "a.hdr", VALUES, geo_points="{" + POINTS + "}")
    library = unmix.Endmembers(("a", "b"), np.stack([VALUES[0, 0], VALUES[5, 5]], axis=1).astype(float), None)
    unmix.run(path, endmembers=library, method="nnls", device="cpu", out_dir=tmp_path / "o", format=form)
    (made,) = [one for one in (tmp_path / "o").iterdir() if one.name.startswith("a_abundance")]
    found = open_cube(made).fields["geo points"]
    np.testing.assert_allclose(np.array(found.split(","), float), np.array(POINTS.split(","), float))


@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
@pytest.mark.parametrize("count", [3, 4, 9])
def test_control_points_of_a_tiff(tmp_path, count):
    points = [
        rasterio.control.GroundControlPoint(row=k // 3, col=k % 3, x=7 + k % 3, y=45 - k // 3) for k in range(count)
    ]
    cube = open_cube(tif(tmp_path / "a.tif", gcps=points, crs="EPSG:4326"))
    assert ("geo points" in cube.fields) == (count == 4)
    assert count == 4 or f"by {count} control points" in cube.problems[0]
