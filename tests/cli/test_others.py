"""The examples of docs/others.md: napari and openEO, where they are installed."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import unmix

ROOT = Path(__file__).parents[2]


def example(name):
    """Run a file of the page; return its names."""
    names = {}
    exec((ROOT / f"docs/{name}.py").read_text(encoding="utf-8"), names)
    return names


def test_napari(tmp_path, capsys):
    pytest.importorskip("xarray")
    components = pytest.importorskip("napari.components")
    how = {"endmembers": ROOT / "data/demo_truth_endmembers.csv"}
    unmix.run(ROOT / "data/demo.hdr", method="fcls", device="cpu", out_dir=tmp_path, **how)
    viewer = components.ViewerModel()
    spectrum = example("napari_maps")["show"](viewer, tmp_path / "demo")
    maps = unmix.read(tmp_path / "demo")
    assert [layer.name for layer in viewer.layers] == [*maps["endmember"].values, "rmse"]
    np.testing.assert_array_equal(viewer.layers[1].data, maps["abundance"][..., 1])
    modelled = spectrum(viewer, SimpleNamespace(position=(3.2, 4.0)))
    assert "line 3, sample 4" in capsys.readouterr().out and modelled.shape == (maps.sizes["band"],)


def test_openeo():
    udf = pytest.importorskip("openeo.udf")
    xarray = pytest.importorskip("xarray")
    random = np.random.default_rng(6)
    E = random.uniform(0.1, 0.9, (12, 3))
    A = random.dirichlet(np.ones(3), (2, 5, 4))
    values = np.moveaxis(A @ E.T, -1, 1)  # t, bands, y, x
    values[0, 3, 1, 1] = np.nan
    cube = udf.XarrayDataCube(xarray.DataArray(values, dims=("t", "bands", "y", "x"), coords={"t": [1, 2]}))
    context = {"spectra": dict(zip("abc", E.T.tolist()))}
    found = example("openeo_udf")["apply_datacube"](cube, context).get_array()
    assert found.dims == ("t", "bands", "y", "x") and found["bands"].values.tolist() == ["a", "b", "c"]
    assert np.isnan(found.values[0, :, 1, 1]).all() and np.isnan(found.values).sum() == 3
    np.testing.assert_allclose(
        np.nan_to_num(found.values), np.where(np.isnan(found.values), 0, np.moveaxis(A, -1, 1)), atol=1e-9
    )
