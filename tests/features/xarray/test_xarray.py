"""Scenes in xarray: the same values and places as read otherwise, lazily, and the same abundances."""

import importlib
import subprocess
import sys

import numpy as np
import pytest
from conftest import read_map, refused, rest_slow, write_csv, write_cube

import unmix

xarray = pytest.importorskip("xarray")
MAP = "{UTM, 1.000, 1.000, 500000.0, 4000000.0, 30.0, 20.0, 11, North, WGS-84, units=Meters}"


@pytest.fixture(params=["bip", "bil", "bsq"])
def scene(request, tmp_path):
    """A scaled scene with a masked pixel, a band that is nodata in one pixel, a map and wavelengths."""
    cube = np.random.default_rng(0).integers(1, 9000, (17, 9, 6)).astype(np.int16)
    cube[3, 4], cube[5, 6, 2] = -9999, -9999
    waves = "{" + ", ".join(str(400 + 100 * b) for b in range(6)) + "}"
    path = write_cube(
        tmp_path / "s.hdr",
        cube,
        request.param,
        data_ignore_value=-9999,
        reflectance_scale_factor=10000,
        wavelength=waves,
        wavelength_units="Nanometers",
        map_info=MAP,
        bbl="{1, 1, 0, 1, 1, 1}",
    )
    return path, np.where(cube == -9999, np.nan, cube / 10000)


AGAIN = "importlib.reload(importlib.import_module('unmix.features.xarray')).importlib.util.find_spec('xarray')"


@pytest.mark.parametrize("order", ["xarray, unmix", "unmix, xarray", f"unmix, importlib; {AGAIN}; import xarray"])
def test_the_accessor_is_there_whatever_is_imported_first(order):
    subprocess.run([sys.executable, "-c", f"import {order}; xarray.Dataset.unmix"], check=True)


def test_values_places_and_names(scene):
    path, expected = scene
    with xarray.open_dataset(path, engine="unmix") as found:
        assert found.spectra.dims == ("y", "x", "band") and found.spectra.dtype == np.float64
        np.testing.assert_allclose(found.spectra.values, expected, rtol=1e-15)
        assert found.wavelength.values.tolist() == [400, 500, 600, 700, 800, 900]
        assert found.band.values.tolist() == [1, 2, 3, 4, 5, 6]
        assert found.good.values.tolist() == [1, 1, 0, 1, 1, 1]
        assert found.x.values[0] == 500015 and found.y.values[1] == 4000000 - 30
    with xarray.open_dataset(path, engine="unmix", bands="good", lines="2:9", scale=1) as part:
        assert part.spectra.dtype == np.float32
        np.testing.assert_allclose(part.spectra.values, 10000 * expected[2:9][..., [0, 1, 3, 4, 5]], rtol=1e-6)
        assert part.y.values[0] == 4000000 - 20 * 2.5


@pytest.mark.parametrize(
    "key",
    [
        (3, 4, 2),
        (slice(2, 15, 3), slice(None), [0, 5]),
        (slice(None, None, -2), slice(8, 1, -3), -1),
        ([4, 1], 0, slice(3, 3)),
        (slice(0, 0),),
    ],
)
def test_any_part_is_read(scene, key):
    path, expected = scene
    with xarray.open_dataset(path, engine="unmix") as found:
        part = found.spectra[key]
        assert (
            not hasattr(part.variable._data, "shape") or "Lazily" in repr(type(part.variable._data)) or part.size >= 0
        )
        wanted = xarray.DataArray(expected.astype(np.float32), dims=("y", "x", "band"))[key]
        np.testing.assert_allclose(part.values, wanted.values, rtol=1e-6)


def test_only_what_is_asked_for_is_read(scene, monkeypatch):
    """Opening reads no pixel; a line reads a line."""
    engine = importlib.import_module("unmix.features.xarray.engine")

    path, expected = scene
    asked = []
    read = engine.SceneArray.read
    monkeypatch.setattr(engine.SceneArray, "read", lambda self, key: asked.append(key) or read(self, key))
    with xarray.open_dataset(path, engine="unmix") as found:
        assert asked == []
        np.testing.assert_allclose(found.spectra[5].values, expected[5], rtol=1e-6)
    assert len(asked) == 1 and asked[0][0] == 5


# Chunks of lines other than those that one read takes: xarray says so.
@pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks")
@pytest.mark.parametrize("chunks", [None, {"y": 4, "band": 2}])
@pytest.mark.parametrize("method", ["fcls", "nnls"])
def test_the_same_abundances(scene, chunks, method):
    path, expected = scene
    E = np.random.default_rng(1).uniform(0.1, 0.9, (6, 3))
    with xarray.open_dataset(path, engine="unmix", chunks=chunks) as found:
        answer = found.unmix.solve(E, names=["soil", "tree", "road"], method=method)
        assert (answer.abundance.chunks is not None) == (chunks is not None)
        answer = answer.compute()
        stored = found.spectra.values
    plain = unmix.solve(stored.astype(float), E, method=method)
    solved = np.isfinite(expected).all(axis=2)
    np.testing.assert_allclose(answer.abundance.values[solved], plain.abundances[solved], atol=1e-12)
    np.testing.assert_allclose(answer.rmse.values[solved], plain.rmse[solved], rtol=1e-9)
    assert np.isnan(answer.abundance.values[~solved]).all() and (answer.kappa.values[solved] <= 1e-10).all()
    assert answer.endmember.values.tolist() == ["soil", "tree", "road"]
    np.testing.assert_array_equal(answer.x.values, 500015 + 30.0 * np.arange(9))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks")
@pytest.mark.parametrize("chunks", [None, {"y": 4, "band": 2}])
def test_the_same_ranges(scene, chunks):
    path, expected = scene
    E = np.random.default_rng(1).uniform(0.1, 0.9, (6, 3))
    with xarray.open_dataset(path, engine="unmix", chunks=chunks) as found:
        answer = found.unmix.ranges(E, ["soil", "tree", "soil"], within=0.05)
        assert (answer.lower.chunks is not None) == (chunks is not None)
        answer, stored = answer.compute(), found.spectra.values
    plain = unmix.ranges(stored, E, ["soil", "tree", "soil"], within=0.05)
    for name in ("lower", "upper", "lower_reached", "upper_reached", "limit"):
        np.testing.assert_allclose(answer[name].values, getattr(plain, name), atol=1e-9)
    assert np.isnan(answer.limit.values[~np.isfinite(expected).all(axis=2)]).all()
    assert answer.quantity.values.tolist() == ["soil", "tree"] and answer.lower.dims[-1] == "quantity"


@pytest.mark.parametrize(
    "kind", [np.int16, np.float32, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (np.uint16, np.int32))]
)
@pytest.mark.parametrize("chunks", [None, {}])
def test_the_same_maps_as_a_run(tmp_path, kind, chunks):
    """To the last bit, also with two spectra that are alike and a scale factor that no binary number is."""
    random = np.random.default_rng(0)
    E = random.uniform(0.1, 0.9, (12, 3))
    E[:, 2] = E[:, 1] + 1e-3 * random.standard_normal(12)
    Y = np.round(10000 * (random.dirichlet(np.ones(3), (9, 7)) @ E.T + 0.01 * random.standard_normal((9, 7, 12)))).clip(
        0
    )
    cube = write_cube(tmp_path / "s.hdr", Y.astype(kind), reflectance_scale_factor=10000)
    unmix.run(cube, endmembers=write_csv(tmp_path / "e.csv", E), method="nnls", device="cpu", browse=False)
    written = read_map(tmp_path / "s", "abundance")
    with xarray.open_dataset(cube, engine="unmix", chunks=chunks) as found:
        abundances = found.unmix.solve(E, method="nnls").abundance.values
    np.testing.assert_array_equal(abundances.astype(np.float32), written)


def plain(values, **attributes):
    """A dataset that this package did not open, with its bands first, as rioxarray has them."""
    return xarray.Dataset({"spectra": (("band", "y", "x"), np.moveaxis(values, -1, 0), attributes)})


MIXED = np.random.default_rng(4).dirichlet(np.ones(3), (5, 4))
SPECTRA = np.random.default_rng(5).uniform(0.1, 0.9, (6, 3))


@pytest.mark.parametrize("first", rest_slow(["unmix", "xarray"], "xarray"))
def test_datasets_have_it_once_both_are_imported(first):
    """Whichever comes first, before any file is opened; the package imports nothing heavy for it."""
    second = {"unmix": "xarray", "xarray": "unmix"}[first]
    code = (
        f"import sys, {first}, {second}; light = 'numba' not in sys.modules; unmix.Endmembers; import xarray as x;"
        "print(light, type(x.Dataset().unmix).__name__)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "Unmixing"]


def test_a_library_in_another_unit_is_refused(tmp_path):
    """As by the command line; an array is taken as it is, a library after it was divided."""
    library = write_csv(tmp_path / "e.csv", SPECTRA)
    scene = plain((MIXED @ SPECTRA.T * 10000).round().astype(np.int16))
    with pytest.raises(
        unmix.CubeError, match=r"its pixels are .*e\+0\d times as large as the spectra of e.csv: divide"
    ):
        scene.unmix.solve(library)
    refused(unmix.CubeError, r"scale=0.0001", lambda: scene.chunk(y=2).unmix.ranges(library, within=0.1))
    whole = scene.unmix.library(library, scale=1e-4)
    np.testing.assert_allclose(scene.unmix.solve(whole, method="fcls").abundance, MIXED, atol=1e-3)
    assert scene.unmix.solve(SPECTRA, method="fcls").abundance.shape == (5, 4, 3)
    np.testing.assert_allclose((scene / 10000).unmix.solve(library, method="fcls").abundance, MIXED, atol=1e-3)


def test_without_a_method_it_is_that_of_a_run(tmp_path):
    """Fractions that do not depend on brightness, with their scale."""
    library = write_csv(tmp_path / "e.csv", SPECTRA)
    bright = np.random.default_rng(6).uniform(0.3, 1.2, (5, 4, 1))
    cube = write_cube(tmp_path / "s.hdr", (bright * MIXED @ SPECTRA.T).astype(np.float32))
    unmix.run(cube, endmembers=library, out_dir=tmp_path / "o", device="cpu", browse=False)
    with xarray.open_dataset(cube, engine="unmix") as scene:
        found = scene.unmix.solve(library)
        assert "scale" not in scene.unmix.solve(library, method="nnls")
        of_unit = scene.unmix.solve(library, normalize="length").abundance
    np.testing.assert_array_equal(found.abundance.values.astype(np.float32), read_map(tmp_path / "o/s", "abundance"))
    np.testing.assert_allclose(found.abundance, MIXED, atol=1e-5)
    np.testing.assert_allclose(found.scale, bright[..., 0], rtol=1e-5)
    assert abs(of_unit.values - found.abundance.values).max() > 0.01


@pytest.mark.parametrize("kind", [np.int16, np.float32, np.float64])
@pytest.mark.parametrize("name", ["_FillValue", "missing_value"])
def test_fill_that_was_not_decoded(kind, name):
    """`mask_and_scale=False` and rioxarray leave the fill in the attributes, and its values in the pixels."""
    scale = 10000 if kind is np.int16 else 1
    values = (MIXED @ SPECTRA.T * scale).astype(kind)
    fill = -9999 if kind is np.int16 else -1.23e34
    values[2, 1], values[3, 3, 4] = fill, fill
    attributes = {name: fill if kind is not np.float32 else np.float32(fill)}
    found = plain(values, **attributes).unmix.solve(SPECTRA * scale, method="nnls").abundance.values
    lost = np.zeros((5, 4), bool)
    lost[2, 1] = lost[3, 3] = True
    assert np.isnan(found[lost]).all()
    np.testing.assert_allclose(found[~lost], MIXED[~lost], atol=1e-3)


def test_a_dataset_without_spectra_is_named():
    other = xarray.Dataset({"reflectance": (("y", "x", "wavelength"), np.ones((2, 2, 6)))})
    for call in (other.unmix.solve, other.unmix.ranges, other.unmix.library):
        with pytest.raises(
            unmix.CubeError,
            match=r"no variable 'spectra' with the dimension 'band'; rename .*reflectance \(y, x, wav",
        ):
            call("e.csv")


def test_files_that_are_no_scene(tmp_path):
    (tmp_path / "x.hdr").write_text("ENVI")
    refused(unmix.CubeError, None, xarray.open_dataset, tmp_path / "x.hdr", engine="unmix")


def test_a_band_coordinate_in_nm_is_the_axis(tmp_path):
    """As where wavelengths name the bands; maps name their coordinate system."""
    waves, random = np.linspace(420, 900, 9), np.random.default_rng(0)
    E, A = random.random((9, 2)) + 0.1, random.dirichlet([1, 1], 6)
    write_csv(tmp_path / "e.csv", E[::-1], waves[::-1])
    table = xarray.Dataset({"spectra": (("sample", "band"), A @ E.T)}, {"band": ("band", waves, {"units": "nm"})})
    np.testing.assert_allclose(table.unmix.solve(tmp_path / "e.csv", method="fcls")["abundance"], A, atol=1e-9)
    placed = xarray.Dataset({"spectra": (("y", "x", "band"), (A @ E.T)[None])}).assign_coords(spatial_ref=0)
    assert placed.unmix.solve(E, method="nnls")["rmse"].attrs["grid_mapping"] == "spatial_ref"
