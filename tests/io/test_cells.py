"""One cube in every format, with each of fill, scale, offset, unsigned numbers and orders of axes: the same spectra and
mask.

The files are written by h5py, xarray, zarr, rasterio and scipy, none of them by unmix.
"""

import functools
import itertools
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
import rasterio
import scipy.io
from conftest import write_cube

import unmix
from unmix.io.cube import read_lines
from unmix.scene import ReadOptions, open_scene

zarr, xarray = pytest.importorskip("zarr"), pytest.importorskip("xarray")
pytest.importorskip("h5netcdf")

LINES, SAMPLES, WAVES = 6, 5, np.linspace(420.0, 2400.0, 8)
E = np.stack([0.1 + 0.3 * WAVES / 2400, 0.4 + 0.2 * np.sin(WAVES / 300), 0.3 * np.exp(-WAVES / 500)], axis=1)
Y = np.random.default_rng(5).dirichlet(np.ones(3), (LINES, SAMPLES)) @ E.T
LOST = np.zeros((LINES, SAMPLES), bool)
LOST[1, 2] = LOST[-1, 0] = True
NAMES = {"y": "y", "x": "x", "b": "wavelength"}
ORDERS = ["".join(one) for one in itertools.permutations("yxb")]
# What is stored, the attributes that say how, and the spectra that are meant, by the circumstance.
SCALE, OFFSET = 1e-4, -0.2
PACKED = {
    "fill": (np.float32, {"_FillValue": -9999.0}, 1.0, 0.0),
    "scale": (np.int16, {"_FillValue": -9999, "scale_factor": SCALE}, SCALE, 0.0),
    "offset": (np.int16, {"_FillValue": -9999, "scale_factor": SCALE, "add_offset": OFFSET}, SCALE, OFFSET),
    "unsigned": (np.uint16, {"_FillValue": 65535}, 1e-5, 0.0),
    "order of axes": (np.float32, {"_FillValue": -9999.0}, 1.0, 0.0),
}


def packed(what: str) -> tuple[np.ndarray, dict, np.ndarray]:
    """Stored numbers (y, x, b), their attributes, and the spectra that they mean."""
    dtype, said, gain, offset = PACKED[what]
    stored = (Y - offset) / gain
    stored = (np.round(stored) if np.dtype(dtype).kind in "iu" else stored).astype(dtype)
    meant = stored.astype(float) * said.get("scale_factor", 1.0) + said.get("add_offset", 0.0)
    stored[LOST, 3] = said["_FillValue"]
    return stored, said, meant


def turned(values: np.ndarray, axes: str) -> np.ndarray:
    return np.ascontiguousarray(values.transpose(["yxb".index(axis) for axis in axes]))


def signed(stored: np.ndarray, said: dict) -> tuple[np.ndarray, dict]:
    """The same as NetCDF-3 had to write it: signed, and _Unsigned says what is meant."""
    if stored.dtype.kind != "u" or "_Unsigned" in said:
        return stored, dict(said)
    kind = np.dtype(f"i{stored.itemsize}")
    return stored.view(kind), said | {
        "_Unsigned": "true",
        "_FillValue": int(np.array(said["_FillValue"], stored.dtype).view(kind)),
    }


def typed(said: dict, dtype: np.dtype) -> dict:
    """Attributes as NetCDF has them: what is compared with stored numbers is of their type."""
    own = ("_FillValue", "missing_value", "valid_min", "valid_max", "valid_range")
    return {
        key: np.array(value, dtype) if key in own and (dtype.kind == "f" or not is_real(value)) else value
        for key, value in said.items()
    }


def is_real(value) -> bool:
    return np.asarray(value).dtype.kind == "f"


def envi(folder: Path, stored, said, axes):
    order = {"yxb": "bip", "ybx": "bil", "byx": "bsq"}.get(axes)
    if order is None:
        return None
    extra = {"data_ignore_value": said["_FillValue"], "wavelength": "{" + ", ".join(map(repr, WAVES.tolist())) + "}"}
    gain, offset = said.get("scale_factor"), said.get("add_offset")
    extra |= {} if gain is None else {"data_gain_values": "{" + ", ".join([repr(gain)] * len(WAVES)) + "}"}
    extra |= {} if offset is None else {"data_offset_values": "{" + ", ".join([repr(offset)] * len(WAVES)) + "}"}
    return write_cube(folder / "c.hdr", stored, order, **extra), {}


def geotiff(folder: Path, stored, said, axes):
    if axes not in ("yxb", "byx"):
        return None
    how = {"height": LINES, "width": SAMPLES, "count": len(WAVES), "dtype": stored.dtype.name}
    how |= {"nodata": said["_FillValue"]}
    with rasterio.open(folder / "c.tif", "w", interleave="pixel" if axes == "yxb" else "band", **how) as file:
        file.write(stored.transpose(2, 0, 1))
        file.scales, file.offsets = (
            [said.get(key, usual)] * len(WAVES) for key, usual in (("scale_factor", 1.0), ("add_offset", 0.0))
        )
        for b, wave in enumerate(WAVES, 1):
            file.update_tags(b, wavelength=repr(float(wave)), wavelength_units="nm")
    return folder / "c.tif", {}


def hdf5(folder: Path, stored, said, axes):
    stored, said = signed(stored, said)
    with h5py.File(folder / "c.h5", "w") as file:
        data = file.create_dataset("cube", data=turned(stored, axes), chunks=True, compression="gzip", shuffle=True)
        data.attrs.update(typed(said, stored.dtype))
        file["w"] = WAVES
    return folder / "c.h5", {"dataset": f"/cube:{axes}", "wavelengths": "/w"}


def in_xarray(stored, said, axes):
    coordinates = {
        "wavelength": ("wavelength", WAVES, {"units": "nm"}),
        "y": 90.0 - 30 * np.arange(LINES),
        "x": 30.0 * np.arange(SAMPLES),
    }
    return xarray.Dataset({"cube": ([NAMES[axis] for axis in axes], turned(stored, axes), said)}, coordinates)


def netcdf(folder: Path, stored, said, axes):
    stored, said = signed(stored, said)
    in_xarray(stored, typed(said, stored.dtype), axes).to_netcdf(folder / "c.nc", engine="h5netcdf")
    return folder / "c.nc", {}


def zarr_of(version):
    def write(folder: Path, stored, said, axes):
        stored, said = signed(stored, said)
        group = zarr.create_group(folder / "c.zarr", zarr_format=version)
        named = [NAMES[axis] for axis in axes]
        about = {} if version == 3 else {"_ARRAY_DIMENSIONS": named}
        how = {"dimension_names": named} if version == 3 else {}
        values = turned(stored, axes)
        array = group.create_array(
            "cube", shape=values.shape, dtype=values.dtype, chunks=(3, 4, 5), attributes=about | said, **how
        )
        array[...] = values
        how = {"dimension_names": ["wavelength"]} if version == 3 else {}
        waves = group.create_array("wavelength", shape=WAVES.shape, dtype="f8", attributes={"units": "nm"}, **how)
        waves[...] = WAVES
        return folder / "c.zarr", {}

    return write


def matlab(folder: Path, stored, said, axes, is_hdf5=False):
    """MATLAB has no attributes: real numbers that are missing are NaN, and the user says the rest."""
    if stored.dtype.kind == "f":
        stored = np.where(stored == np.float32(said["_FillValue"]), np.float32(np.nan), stored)
    if is_hdf5:
        with h5py.File(folder / "c.mat", "w", userblock_size=512) as file:
            file["data"], file["wavelength"] = turned(stored, axes[::-1]), WAVES[:, None]
        with (folder / "c.mat").open("r+b") as raw:
            raw.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM")
    else:
        scipy.io.savemat(folder / "c.mat", {"data": turned(stored, axes), "wavelength": WAVES})
    how = {} if stored.dtype.kind == "f" else {"nodata": said["_FillValue"]}
    return folder / "c.mat", {"dataset": f"data:{axes}", **how}


WRITERS = {
    "ENVI": envi,
    "GeoTIFF": geotiff,
    "HDF5": hdf5,
    "NetCDF": netcdf,
    "Zarr v2": zarr_of(2),
    "Zarr v3": zarr_of(3),
    "MATLAB v5": matlab,
    "MATLAB v7.3": functools.partial(matlab, is_hdf5=True),
}
# What a format cannot say, so that the user does.
CANNOT = {(f"MATLAB {version}", what) for version in ("v5", "v7.3") for what in ("scale", "offset")}
CF = ("HDF5", "NetCDF", "Zarr v2", "Zarr v3")


def as_read(path: Path, how: dict) -> tuple[np.ndarray, np.ndarray]:
    """Spectra (y, x, b), NaN where they are missing, and which pixels are masked, as a run reads them."""
    scene = open_scene(path, ReadOptions(**{"bands": "all"} | how))
    raw = read_lines(scene.cube, slice(0, scene.cube.lines))
    shape = scene.cube.lines, scene.cube.samples, -1
    np.testing.assert_allclose(scene.cube.wavelengths, WAVES)
    return scene.spectra(raw).reshape(shape), scene.missing(raw).reshape(shape[:2])


@pytest.mark.parametrize("what", PACKED)
@pytest.mark.parametrize("form", WRITERS)
def test_each_cell_is_read_alike(tmp_path, form, what):
    stored, said, meant = packed(what)
    if (form, what) in CANNOT:
        path, how = WRITERS[form](tmp_path, stored, said, "yxb")
        Z, lost = as_read(path, how)
        np.testing.assert_allclose(Z[~LOST], stored[~LOST], rtol=1e-12)  # as stored: nothing says more
        return
    read = 0
    for axes in ORDERS if what == "order of axes" else ["yxb"]:
        (folder := tmp_path / axes).mkdir()
        if (written := WRITERS[form](folder, stored, said, axes)) is None:
            continue
        Z, lost = as_read(*written)
        np.testing.assert_array_equal(lost, LOST)
        np.testing.assert_allclose(Z[~LOST], meant[~LOST], rtol=1e-12)
        read += 1
    assert read == {"ENVI": 3, "GeoTIFF": 2}.get(form, 6) if what == "order of axes" else read == 1


def test_the_table_of_the_manual_is_this_one():
    text = (Path(__file__).parents[2] / "docs/formats.md").read_text()
    rows = [re.split(r"\s*\|\s*", line.strip("| ")) for line in text.splitlines() if line.startswith("|")]
    start = next(k for k, row in enumerate(rows) if row[1:] == list(PACKED))
    cells = {row[0]: row[1:] for row in rows[start + 2 : start + 2 + len(WRITERS)]}
    assert set(cells) == set(WRITERS)
    refused = {
        (form, what) for form, row in cells.items() for what, cell in zip(PACKED, row) if cell.startswith("none")
    }
    assert refused == CANNOT and len(refused) <= 6


# Attributes of the conventions, the stored type, and which stored numbers are missing then, by plain Python.
ATTRIBUTES = {
    "missing_value": ("i2", {"missing_value": -9999}, lambda v: v == -9999),
    "both": ("i2", {"_FillValue": -9999, "missing_value": -8888}, lambda v: v in (-9999, -8888)),
    "several": ("i2", {"missing_value": [-9999, -8888]}, lambda v: v in (-9999, -8888)),
    "of real numbers": ("f4", {"missing_value": -1.23e34, "_FillValue": -9999.0}, lambda v: v < -9000),
    "valid_range": ("i2", {"valid_range": [0, 20000]}, lambda v: not 0 <= v <= 20000),
    "valid_min": ("i2", {"valid_min": -8888}, lambda v: v < -8888),
    "valid_max of real": ("f4", {"valid_max": 20000.0}, lambda v: v > 20000),
    "valid_range, scaled": ("i2", {"valid_range": [0.0, 2.0], "scale_factor": 1e-4}, lambda v: not 0 <= v <= 20000),
    "unsigned": ("i2", {"_Unsigned": "true", "_FillValue": -9999}, lambda v: v == -9999),
    "unsigned bytes": ("i1", {"_Unsigned": "true", "missing_value": -1}, lambda v: v == -1),
    "unsigned, in range": ("i2", {"_Unsigned": "true", "valid_range": [0, -8889]}, lambda v: v % 65536 > 65536 - 8889),
    "signed": ("u2", {"_Unsigned": "false", "_FillValue": 55537}, lambda v: v == 55537),
}


@pytest.mark.parametrize(
    ("name", "form"),
    [
        *((name, "NetCDF") for name in ATTRIBUTES),
        *((name, form) for form in CF if form != "NetCDF" for name in ("both", "unsigned, in range")),
    ],
)
@pytest.mark.filterwarnings("ignore:variable 'cube' has multiple fill values")
def test_attributes_of_the_conventions(tmp_path, name, form):
    dtype, said, is_lost = ATTRIBUTES[name]
    random = np.random.default_rng(1)
    stored = np.round(Y * (100 if dtype == "i1" else 10000)).astype(dtype)
    odd = {
        "i2": [-9999, -8888, -7, 30000],
        "f4": [-9999.0, -1.23e34, 30000.0, 5.0],
        "i1": [-1, -9, 100],
        "u2": [55537, 40000],
    }[dtype]
    stored.reshape(-1)[random.choice(stored.size, 2 * len(odd), replace=False)] = 2 * odd
    lost = np.array([is_lost(number.item()) for number in stored.ravel()]).reshape(stored.shape)
    values = stored.view({"true": "u", "false": "i"}[said["_Unsigned"]] + dtype[1]) if "_Unsigned" in said else stored
    path, how = WRITERS[form](tmp_path, stored, said, "yxb")
    Z, masked = as_read(path, how)
    np.testing.assert_array_equal(masked, lost.any(axis=2))
    assert masked.any() and not masked.all()
    np.testing.assert_allclose(Z[~masked], values[~masked] * said.get("scale_factor", 1.0), rtol=1e-12)
    # xarray applies no valid range, and turns no missing_value.
    if form == "NetCDF" and not any(key.startswith("valid") for key in said) and name != "unsigned bytes":
        with xarray.open_dataset(path, engine="h5netcdf") as found:
            theirs = found.cube.transpose("y", "x", "wavelength").values
        np.testing.assert_array_equal(np.isnan(theirs).any(axis=2), masked)
        np.testing.assert_allclose(Z[~masked], theirs[~masked], rtol=1e-6)


def test_nodata_of_the_user_replaces_all_others(tmp_path):
    stored = np.full((LINES, SAMPLES, len(WAVES)), 500, np.int16)
    stored[0, 0, 0], stored[0, 1, 0], stored[0, 2, 0] = -9999, -8888, 7
    path, _ = WRITERS["NetCDF"](tmp_path, stored, {"missing_value": [-9999, -8888], "valid_range": [0, 600]}, "yxb")
    Z, masked = as_read(path, {"nodata": 7})
    assert masked.sum() == 1 and masked[0, 2] and Z[0, 1, 0] == -8888


def nameless(path: Path, values: np.ndarray, name: str = "cube") -> Path:
    with h5py.File(path, "w") as file:
        file[name] = values
    return path


def test_a_dataset_without_names_of_axes_asks_for_them(tmp_path):
    path = nameless(tmp_path / "c.h5", np.zeros((8, LINES, SAMPLES)))
    with pytest.raises(unmix.CubeError, match=r"as /NAME:byx: /cube \(8, 6, 5\)"):
        unmix.open_cube(path)
    with pytest.raises(unmix.CubeError, match=r"say their order with `dataset` /cube:byx"):
        unmix.open_cube(path, "/cube")
    assert unmix.open_cube(path, "/cube:byx").bands == 8


@pytest.mark.parametrize("labelled", [True, False])
def test_axes_by_labels_and_by_scales(tmp_path, labelled):
    path = nameless(tmp_path / "c.h5", np.zeros((8, LINES, SAMPLES)), "deep/cube")
    with h5py.File(path, "a") as file:
        for k, (name, length) in enumerate(zip(("band", "y", "x"), (8, LINES, SAMPLES))):
            if labelled:
                file["deep/cube"].dims[k].label = name
            else:
                file[name] = np.arange(length, dtype=float)  # of a group above, as NetCDF's dimensions are
                file[name].make_scale(name)
                file["deep/cube"].dims[k].attach_scale(file[name])
    for how in ({}, {"dataset": "/deep/cube"}):
        cube = unmix.open_cube(path, **how)
        assert (cube.lines, cube.samples, cube.bands) == (LINES, SAMPLES, 8)


def test_several_datasets_with_names_are_listed(tmp_path):
    found = in_xarray(Y, {}, "yxb")
    found.assign(radiance=2 * found.cube).to_netcdf(tmp_path / "c.nc", engine="h5netcdf")
    with pytest.raises(unmix.CubeError, match=r"name its cube with `dataset`; there are: /cube \(6, 5, 8\), /radiance"):
        unmix.open_cube(tmp_path / "c.nc")
    assert unmix.open_cube(tmp_path / "c.nc", "/radiance").bands == 8


@pytest.mark.parametrize("form", ["nc", "zarr"])
def test_emit_that_was_orthorectified_and_saved(tmp_path, form):
    good = np.ones(8, np.float32)
    good[[3, 4]] = 0
    values = np.where(LOST[..., None], -9999, Y).astype(np.float32)
    coordinates = {
        "wavelengths": ("wavelengths", WAVES, {"units": "nm"}),
        "good_wavelengths": ("wavelengths", good),
        "latitude": 45 - 0.0005 * np.arange(LINES),
        "longitude": 7 + 0.0005 * np.arange(SAMPLES),
    }
    found = xarray.Dataset(
        {"reflectance": (("latitude", "longitude", "wavelengths"), values, {"_FillValue": np.float32(-9999)})},
        coordinates,
    )
    path = tmp_path / f"c.{form}"
    found.to_netcdf(path, engine="h5netcdf") if form == "nc" else found.to_zarr(path, consolidated=False)
    cube = unmix.open_cube(path)
    assert (cube.lines, cube.samples, cube.bands, cube.nodata) == (LINES, SAMPLES, 8, -9999)
    np.testing.assert_allclose(cube.wavelengths, WAVES)
    assert np.flatnonzero(~cube.good_bands).tolist() == [3, 4]
    name, _, _, west, north, across, down = (word.strip() for word in cube.fields["map info"].split(",")[:7])
    assert name == "Geographic Lat/Lon"
    np.testing.assert_allclose([float(one) for one in (west, north, across, down)], [6.99975, 45.00025, 0.0005, 0.0005])


@pytest.mark.parametrize("version", ["v5", "v7.3"])
def test_matlab_with_bands_first_is_told_by_its_wavelengths(tmp_path, version):
    stored, said, meant = packed("fill")
    path, _ = WRITERS[f"MATLAB {version}"](tmp_path, stored, said, "byx")
    Z, lost = as_read(path, {})
    np.testing.assert_array_equal(lost, LOST)
    np.testing.assert_allclose(Z[~LOST], meant[~LOST], rtol=1e-6)
    with pytest.raises(unmix.MethodError, match="the axes must be an order of y, x and b"):
        unmix.open_cube(path, "data:yyb")


@pytest.mark.parametrize("form", ["nc", "zarr"])
@pytest.mark.parametrize(
    "axes", [("time", "wavelength", "y", "x"), ("y", "x", "time", "wavelength"), ("x", "time", "y", "wavelength")]
)
@pytest.mark.parametrize("chunks", [None, 3])
def test_an_axis_of_one_time_is_passed_over(tmp_path, form, axes, chunks):
    found = in_xarray(Y, {}, "yxb").expand_dims("time").transpose(*axes)
    path, shape = tmp_path / f"c.{form}", tuple(min(chunks or 99, found.sizes[axis]) for axis in axes)
    if form == "nc":
        encoding = {} if chunks is None else {"cube": {"chunksizes": shape, "zlib": True}}
        found.to_netcdf(path, engine="h5netcdf", encoding=encoding)
    else:
        found.to_zarr(path, consolidated=False, encoding={} if chunks is None else {"cube": {"chunks": shape}})
    Z, lost = as_read(path, {})
    np.testing.assert_array_equal(Z, Y)
    assert not lost.any()


@pytest.mark.parametrize("form", ["nc", "zarr"])
def test_widths_have_a_unit_of_their_own(tmp_path, form):
    found = in_xarray(Y, {}, "yxb").assign_coords(fwhm=("wavelength", np.full(8, 9.5), {"units": "nm"}))
    found = found.assign_coords(wavelength=("wavelength", WAVES * 1e-9, {"units": "m"}))
    path = tmp_path / f"c.{form}"
    found.to_netcdf(path, engine="h5netcdf") if form == "nc" else found.to_zarr(path, consolidated=False)
    cube = unmix.open_cube(path)
    np.testing.assert_allclose(cube.wavelengths, WAVES)
    np.testing.assert_allclose(cube.fwhm, 9.5)
