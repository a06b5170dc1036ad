"""Scenes in xarray: the same values and places as read otherwise, lazily, and the same abundances."""

import numpy as np
import pytest
from conftest import read_map, write_csv, write_cube

import unmix

xarray = pytest.importorskip("xarray")
MAP = "{UTM, 1.000, 1.000, 500000.0, 4000000.0, 30.0, 20.0, 11, North, WGS-84, units=Meters}"


@pytest.fixture(params=["bip", "bil", "bsq"])
def scene(request, tmp_path):
    """A scaled scene with a masked pixel, a band that is nodata in one pixel, a map and wavelengths."""
    random = np.random.default_rng(0)
    cube = random.integers(1, 9000, (17, 9, 6)).astype(np.int16)
    cube[3, 4], cube[5, 6, 2] = -9999, -9999
    waves = "{" + ", ".join(str(400 + 100 * b) for b in range(6)) + "}"
    path = write_cube(
        tmp_path / "s.hdr", cube, request.param, data_ignore_value=-9999, reflectance_scale_factor=10000, wavelength=waves,
        wavelength_units="Nanometers", map_info=MAP, bbl="{1, 1, 0, 1, 1, 1}",
    )  # fmt: skip
    return path, np.where(cube == -9999, np.nan, cube / 10000)


def test_values_places_and_names(scene):
    path, expected = scene
    with xarray.open_dataset(path, engine="unmix") as found:
        assert found.spectra.dims == ("y", "x", "band") and found.spectra.dtype == np.float64
        np.testing.assert_allclose(found.spectra.values, expected, rtol=1e-15)
        assert found.wavelength.values.tolist() == [400, 500, 600, 700, 800, 900] and found.band.values.tolist() == [
            1,
            2,
            3,
            4,
            5,
            6,
        ]
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
    import unmix.xarray_engine as engine

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
    library = write_csv(tmp_path / "e.csv", E)
    unmix.run(cube, endmembers=library, method="nnls", device="cpu", browse=False)
    written = read_map(tmp_path / "s", "abundance")
    with xarray.open_dataset(cube, engine="unmix", chunks=chunks) as found:
        abundances = found.unmix.solve(E, method="nnls").abundance.values
    np.testing.assert_array_equal(abundances.astype(np.float32), written)


def test_files_that_are_no_scene(tmp_path):
    (tmp_path / "x.hdr").write_text("ENVI")
    with pytest.raises(unmix.CubeError):
        xarray.open_dataset(tmp_path / "x.hdr", engine="unmix")
