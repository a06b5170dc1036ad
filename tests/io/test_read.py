"""Maps of a run, and libraries, in xarray: the same values and names as in the files."""

import numpy as np
import pytest
from conftest import LINES, SAMPLES, read_map, refused, write_cube

import unmix

xarray = pytest.importorskip("xarray")
MAP = "{UTM, 1.000, 1.000, 500000.0, 4000000.0, 30.0, 20.0, 11, North, WGS-84, units=Meters}"


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    """A folder with a scene of wavelengths and a place, one pixel masked, and a library with classes of finer wavelengths."""
    folder, random = tmp_path_factory.mktemp("read"), np.random.default_rng(0)
    waves, fine = np.linspace(400, 900, 12), np.linspace(390, 910, 60)
    E = 0.3 + 0.2 * np.sin(fine[:, None] / np.array([60.0, 90.0, 140.0, 33.0]))
    header = ",".join(["name", "class", *map(repr, fine.tolist())])
    rows = [f"s{j},{'ab'[j // 2]}," + ",".join(map(repr, E[:, j].tolist())) for j in range(4)]
    (folder / "library.csv").write_text("\n".join([header, *rows]))
    at_bands = np.stack([np.interp(waves, fine, E[:, j]) for j in range(4)], axis=1)
    Y = random.dirichlet(np.ones(4), (LINES, SAMPLES)) @ at_bands.T + 0.003 * random.standard_normal(
        (LINES, SAMPLES, 12)
    )
    Y[1, 2] = -9.0
    text = "{" + ", ".join(map(repr, waves.tolist())) + "}"
    how = {"wavelength": text, "wavelength_units": "Nanometers"}
    write_cube(folder / "x.hdr", Y.astype(np.float32), data_ignore_value=-9, map_info=MAP, **how)
    return folder


WORDS = {"method": "nnls", "by": "class", "ranges": "class", "within": 0.002, "uncertainty": True}
WORDS |= {"residual": True, "certificate": True}


@pytest.mark.slow
@pytest.mark.parametrize("words", [{}, {"quantize": 1e-4}, {"format": "hdf5"}, {"format": "netcdf"}])
def test_all_maps_of_a_run(setting, tmp_path, words):
    how = {"endmembers": setting / "library.csv"}
    report = unmix.run(setting / "x.hdr", device="cpu", class_map=True, out_dir=tmp_path, **how, **WORDS, **words)
    found = unmix.read(tmp_path / "x")
    assert found.attrs["method"] == "nnls" and found.attrs["source"] == report["input"]["path"]
    assert found.abundance.dims == ("y", "x", "endmember")
    assert found.endmember.values.tolist() == ["s0", "s1", "s2", "s3"]
    assert found.fraction.fraction_band.values.tolist() == ["a", "b", "brightness"]
    assert found["range_lower"].quantity.values.tolist() == ["a", "b"]
    assert found.rmse.dims == ("y", "x") and found["class"].dims == ("y", "x")
    assert found.spectra.dims == ("band", "endmember") and found.wavelength.values[0] == 400
    assert found.x.values[0] == 500015 and found.y.values[1] == 4000000 - 30
    for name in ("abundance", "rmse", "fraction", "sigma", "residual", "certificate"):
        values = read_map(tmp_path / "x", name).astype(float)
        expected = np.where(values == -9999, np.nan, values)
        np.testing.assert_array_equal(found[name].values.reshape(expected.shape), expected, err_msg=name)
        assert np.isnan(found[name].values[1, 2]).all()
        assert np.isfinite(found[name].values).sum() == expected.size - expected.shape[-1]
    ends = read_map(tmp_path / "x", "range").astype(float)
    for k, end in enumerate(("lower", "upper")):
        np.testing.assert_array_equal(found[f"range_{end}"].values, np.where(ends == -9999, np.nan, ends)[..., k::2])
    assert found.sigma.sel(sigma_band=found.sigma.sigma_band.values[0]).shape == (LINES, SAMPLES)


def test_other_runs(setting, tmp_path):
    """The largest alone, and what is no run."""
    how = {"endmembers": setting / "library.csv"}
    unmix.run(setting / "x.hdr", method="nnls", device="cpu", top=2, out_dir=tmp_path / "top", **how)
    found = unmix.read(tmp_path / "top/x_abundance.img")
    assert found.abundance.dims == ("y", "x", "rank") and found.index.dims == ("y", "x", "rank")
    assert found["rank"].values.tolist() == [1, 2] and found.spectra.sizes["endmember"] == 4
    refused(unmix.OutputError, "no finished run", unmix.read, tmp_path / "other")


@pytest.mark.slow
def test_models(setting, tmp_path):
    unmix.run(setting / "x.hdr", endmembers=setting / "library.csv", method="mesma", device="cpu", out_dir=tmp_path)
    found = unmix.read(tmp_path / "x")
    assert found.fraction.fraction_band.values.tolist() == ["a", "b", "shade", "brightness"]


def test_a_library_at_the_bands_of_a_dataset(setting, tmp_path):
    """The same as a run: resampled, with names; also of a dataset that another engine made, and without wavelengths."""
    unmix.run(setting / "x.hdr", endmembers=setting / "library.csv", method="fcls", device="cpu", out_dir=tmp_path)
    expected = unmix.read(tmp_path / "x")
    with xarray.open_dataset(setting / "x.hdr", engine="unmix") as scene:
        found = scene.unmix.solve(setting / "library.csv", method="fcls")
        assert found.endmember.values.tolist() == ["s0", "s1", "s2", "s3"]
        np.testing.assert_allclose(found.abundance.values, expected.abundance.values, atol=1e-6)
        library = unmix.load_library(setting / "library.csv")
        np.testing.assert_array_equal(scene.unmix.solve(library, method="fcls").abundance, found.abundance)
        own = xarray.Dataset({"spectra": scene.spectra.copy()}, {"wavelength": ("band", scene.wavelength.values)})
        np.testing.assert_array_equal(own.unmix.solve(library, method="fcls").abundance, found.abundance)
        refused(unmix.LibraryError, None, lambda: own.drop_vars("wavelength").unmix.solve(library))


def test_ranges_by_the_classes_of_a_library(setting):
    with xarray.open_dataset(setting / "x.hdr", engine="unmix") as scene:
        ends = scene.unmix.ranges(setting / "library.csv", within=0.002)
    assert ends.quantity.values.tolist() == ["a", "b"]


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [None, {"y": 2}])
def test_weights_of_each_pixel(setting, chunks):
    random = np.random.default_rng(1)
    with xarray.open_dataset(setting / "x.hdr", engine="unmix", chunks=chunks) as scene:
        weights = scene.spectra.copy(data=random.uniform(0.5, 2.0, scene.spectra.shape))
        found = scene.unmix.solve(setting / "library.csv", method="nnls", weights=weights.transpose("band", "y", "x"))
        E = scene.unmix.library(setting / "library.csv").matrix
        expected = unmix.solve(scene.spectra.values, E, method="nnls", weights=weights.values)
        np.testing.assert_allclose(
            found.abundance.values, np.where(expected.valid[..., None], expected.abundances, np.nan)
        )
        weights[1, 1, 3] = np.nan
        found = scene.unmix.solve(E, method="nnls", weights=weights)
        assert np.isnan(found.abundance.values[1, 1]).all() and np.isfinite(found.abundance.values[1, 0]).all()
        with pytest.raises(unmix.MethodError, match="without the dimension y"):
            scene.unmix.solve(E, method="nnls", weights=weights.isel(y=0))
