"""What users of other tools reported of files: each case is built, and read as it was meant."""

import logging

import h5py
import numpy as np
import pytest
from conftest import refused, write_cube

import unmix
from unmix.errors import CubeError, LibraryError
from unmix.io.ground import is_one_system, system_named, system_of
from unmix.library.files import load

WAVES = np.arange(420.0, 1020, 100)
SPECTRA = np.array([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0.5, 0.4, 0.2, 0.1, 0.3, 0.2]])


def table(path, heading, rows=SPECTRA, first="name"):
    lines = [f"{first},{','.join(map(str, heading))}"]
    path.write_text("\n".join([*lines, *(f"s{k},{','.join(map(str, row))}" for k, row in enumerate(rows))]) + "\n")
    return path


@pytest.mark.parametrize(
    ("heading", "waves"),
    [
        ([f"X{w:g}" for w in WAVES], WAVES),
        ([f"{w:g}nm" for w in WAVES], WAVES),
        ([f"Wavelength_{w / 1000:g}um" for w in WAVES], WAVES),
        (range(6), None),
        (range(5, 11), None),
        (range(20, 14, -1), None),
        ([f"Band {k}" for k in range(1, 7)], None),
        (range(350, 356), np.arange(350, 356)),
    ],
)
def test_headings_of_channels(tmp_path, heading, waves):
    found = load(table(tmp_path / "l.csv", heading))
    np.testing.assert_array_equal(found.matrix, SPECTRA.T)
    assert (found.wavelengths is None) == (waves is None)
    if waves is not None:
        np.testing.assert_allclose(found.wavelengths, waves, rtol=1e-12)


def test_columns_that_are_no_channels_are_said(tmp_path, caplog):
    rows = np.column_stack([SPECTRA, [7, 8]])
    with caplog.at_level(logging.WARNING, "unmix"):
        assert len(load(table(tmp_path / "l.csv", [*(f"X{w:g}" for w in WAVES), "2016"], rows)).matrix) == 6
    assert "column '2016' holds numbers, but is no channel" in caplog.text
    refused(
        LibraryError,
        "only the heading '2016' is a wavelength",
        load,
        table(tmp_path / "l.csv", [*"abcdef", "2016"], rows),
    )
    refused(
        LibraryError,
        "as if some were in µm and others in nm",
        load,
        table(tmp_path / "l.csv", [0.4, 0.5, 0.6, 700, 800, 900]),
    )


def test_fill_in_a_library(tmp_path):
    for fill, unit in ((-9999, 1), (-9999, 10_000), (-999, 1), (-32768, 100)):
        rows = SPECTRA * unit
        rows[0, 2] = fill
        assert load(table(tmp_path / "l.csv", WAVES, rows)).valid.sum() == 11
    rows = SPECTRA - 0.3  # of both signs, as MNF
    assert load(table(tmp_path / "l.csv", WAVES, rows * 333)).valid.all()


def test_gains_of_an_envi_library(tmp_path):
    stored = (SPECTRA * 1000).astype("<i2")
    stored[0, 3] = 7
    stored.tofile(tmp_path / "l.sli")
    text = "ENVI\nsamples = 6\nlines = 2\nbands = 1\nfile type = ENVI Spectral Library\ndata type = 2\nbyte order = 0\n"
    gains = "data gain values = {.001, .002, .001, .001, .001, .001}\ndata offset values = {0, 0, 0, 0, 0, 0.5}\n"
    (tmp_path / "l.hdr").write_text(f"{text}{gains}bbl = {{1, 1, 1, 0, 1, 1}}\n")
    expected = SPECTRA * [1, 2, 1, np.nan, 1, 1] + [0, 0, 0, 0, 0, 0.5]
    np.testing.assert_allclose(load(tmp_path / "l.sli").matrix, expected.T, rtol=1e-12)


@pytest.mark.parametrize("name", ["no_data_value", "NoData", "nodata", "FillValue", "_fillvalue", "missing_data_value"])
def test_names_of_no_data(tmp_path, name):
    values = np.random.default_rng(0).random((2, 3, 6))
    values[1, 2, 3] = -9999
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["c"] = values
        file["c"].attrs[name] = -9999.0
    assert unmix.open_cube(tmp_path / "s.h5", dataset="c:yxb").nodata == -9999


def test_the_axis_of_its_own_dimension_and_the_fill_of_netcdf(tmp_path):
    with h5py.File(tmp_path / "s.nc", "w") as file:
        how = {"dtype": "i2", "fillvalue": -32767}
        cube = file.create_dataset("geophysical_data/Rrs", (2, 3, 6), **how)
        for k, (name, size) in enumerate((("lines", 2), ("samples", 3), ("wavelength_3d", 6))):
            file.create_dataset(name, (size,), "f4").make_scale("This is a netCDF dimension but not a netCDF variable.")
            cube.dims[k].attach_scale(file[name])
        file["wavelength"] = WAVES + 45  # another instrument's
        file["bands/wavelength_3d"] = WAVES
        file["bands/wavelength_3d"].dims[0].attach_scale(file["wavelength_3d"])
        for one in (file["wavelength"], file["bands/wavelength_3d"]):
            one.attrs["units"] = "nm"
    found = unmix.open_cube(tmp_path / "s.nc", dataset="/geophysical_data/Rrs")
    np.testing.assert_array_equal(found.wavelengths, WAVES)
    assert found.nodata == -32767


@pytest.mark.parametrize("text", ["-3.40282e+38", "-3.4028235e+38", "-3.402823466e+38"])
def test_the_least_float32_in_few_digits(tmp_path, text):
    path = write_cube(tmp_path / "s.hdr", np.ones((2, 3, 6), np.float32), data_ignore_value=text)
    assert unmix.open_cube(path).nodata == np.finfo(np.float32).min


def tiff(path, values, **how):
    rasterio = pytest.importorskip("rasterio")
    shape = dict(zip(("count", "height", "width"), values.shape)) | {"dtype": values.dtype.name}
    with rasterio.open(path, "w", **shape, **how) as file:
        file.write(values)
        yield file


@pytest.mark.filterwarnings("ignore")
def test_wavelengths_in_tags_and_names(tmp_path):
    values = np.ones((6, 2, 3), np.int16)
    for file in tiff(tmp_path / "w.tif", values):
        file.descriptions = [f"Band_{w:g}" for w in WAVES]
    for file in tiff(tmp_path / "t.tif", values):
        file.update_tags(wavelength=f"{{{', '.join(map(str, WAVES))}}}", wavelength_units="Nanometers")
    for file in tiff(tmp_path / "n.tif", values):
        file.descriptions = [f"Band_{k}" for k in range(400, 406)]
    for name in "wt":
        np.testing.assert_array_equal(unmix.open_cube(tmp_path / f"{name}.tif").wavelengths, WAVES)
    assert unmix.open_cube(tmp_path / "n.tif").wavelengths is None


@pytest.mark.filterwarnings("ignore")
def test_metadata_of_desis_and_of_one_spectrometer(tmp_path):
    of_desis = "".join(
        f"<band><bandNumber>{k}</bandNumber><wavelengthCenterOfBand>{w}</wavelengthCenterOfBand><wavelengthWidthOfBand>3"
        f"</wavelengthWidthOfBand><gainOfBand>.5</gainOfBand><offsetOfBand>{k}</offsetOfBand></band>"
        for k, w in enumerate(WAVES, 1)
    )
    of_enmap = "".join(
        f'<bandID number="{k}"><wavelengthCenterOfBand>{w}</wavelengthCenterOfBand><FWHMOfBand>3</FWHMOfBand><GainOfBand>.5'
        f"</GainOfBand><OffsetOfBand>{k}</OffsetOfBand></bandID>"
        for k, w in enumerate(WAVES, 1)
    )
    (tmp_path / "D-METADATA.xml").write_text(f"<a>{of_desis}</a>")
    (tmp_path / "E-METADATA.XML").write_text(f"<a>{of_enmap}</a>")
    parts = {
        "D-SPECTRAL_IMAGE.tif": slice(0, 6),
        "E-SPECTRAL_IMAGE_VNIR.TIF": slice(0, 4),
        "E-SPECTRAL_IMAGE_SWIR.TIF": slice(4, 6),
    }
    for name, part in parts.items():
        list(tiff(tmp_path / name, np.ones((len(WAVES[part]), 2, 3), np.int16)))
        cube = unmix.open_cube(tmp_path / name)
        np.testing.assert_array_equal(cube.wavelengths, WAVES[part])
        np.testing.assert_array_equal(cube.offset, np.arange(1, 7)[part])
    (tmp_path / "E-METADATA.XML").write_text("<a/>")
    refused(CubeError, "describes no bands", unmix.open_cube, tmp_path / "E-SPECTRAL_IMAGE_VNIR.TIF")


@pytest.mark.parametrize(
    ("one", "other", "same"), [(2154, 3034, False), (32632, 23032, False), (32632, 25832, True), (32632, 32632, True)]
)
def test_systems_are_one_where_places_stay(tmp_path, one, other, same):
    rasterio = pytest.importorskip("rasterio")
    place = rasterio.transform.from_origin(500000, 5000000, 30, 30)
    cubes = []
    for code in (one, other):
        list(tiff(tmp_path / f"{code}.tif", np.ones((1, 2, 3), np.int16), crs=f"EPSG:{code}", transform=place))
        cubes.append(unmix.open_cube(tmp_path / f"{code}.tif"))
    assert is_one_system(*cubes) is same


def test_a_grid_mapping_by_its_parameters(tmp_path):
    pytest.importorskip("pyproj"), pytest.importorskip("rasterio")
    with h5py.File(tmp_path / "s.nc", "w") as file:
        file["r"] = np.ones((6, 2, 3))
        axes = {"band": WAVES, "y": [5e6, 5e6 - 30], "x": [5e5, 5e5 + 30, 5e5 + 60]}
        for k, (name, values) in enumerate(axes.items()):
            file[name] = values
            file[name].make_scale(name)
            file["r"].dims[k].attach_scale(file[name])
        file["crs"], file["r"].attrs["grid_mapping"] = 0, "crs"
        how = {"latitude_of_projection_origin": 52.0, "longitude_of_projection_origin": 10.0}
        how |= {"false_easting": 4321000.0, "false_northing": 3210000.0, "semi_major_axis": 6378137.0}
        file["crs"].attrs.update(
            {"grid_mapping_name": "lambert_azimuthal_equal_area", "inverse_flattening": 298.257222101} | how
        )
    cube = unmix.open_cube(tmp_path / "s.nc")
    assert "Lambert_Azimuthal_Equal_Area" in cube.fields["coordinate system string"] and not cube.problems
    assert system_named(system_of(cube.fields)).to_dict()["proj"] == "laea"
