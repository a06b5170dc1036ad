"""EMIT's fractional cover of a synthetic granule: names, values, QC and places, made again in numpy."""

import json

import numpy as np
import pytest
from conftest import read_values, refused, rest_slow, write_cube
from test_cli import unmix as command

import unmix
from unmix.features.emit.frcov import CLOUD_FLAGS

rasterio = pytest.importorskip("rasterio")
COVERS = {"PV": "pv", "NPV": "npv", "BARE": "soil"}
STEM = "EMIT_L2A_RFL_001_20230811T190449_2322313_004"
PRODUCT = "EMIT_L2B_FRCOV{}_001_20230811T190449_2322313_004.{}"


@pytest.fixture(scope="module")
def granule(tmp_path_factory):
    """A granule under the mission's names, with its mask, standard deviations, library and truth."""
    folder = tmp_path_factory.mktemp("emit")
    command("synth", folder / "emit.nc", "--like", "emit", "--lines", "40", "--samples", "30")
    for old, kind in (("emit.nc", "RFL"), ("emit_mask.nc", "MASK"), ("emit_uncertainty.nc", "RFLUNCERT")):
        (folder / old).rename(folder / f"{STEM.replace('RFL', kind)}.nc")
    return folder


def read(path):
    with rasterio.open(path) as source:
        assert source.nodata == -9999 and source.crs.to_epsg() == 4326
        assert source.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        return source.read(), source.descriptions


def values_of(path, dataset=None):
    cube = unmix.open_cube(path, dataset)
    return read_values(cube), cube


@pytest.mark.parametrize("ranges", rest_slow([True, False], False))
def test_the_product(tmp_path, granule, ranges):
    path = granule / f"{STEM}.nc"
    built = np.zeros((40, 30, 1), np.uint8)
    built[5, :6] = 1
    write_cube(tmp_path / "built.hdr", built)
    words = ["-e", granule / "emit_library.csv", "--draws", "4", "--draw-spectra", "24"]
    words += ["--urban", tmp_path / "built.hdr", *["--ranges"] * ranges]
    out, _ = command("product", "emit-frcov", path, *words, "-o", tmp_path)
    names = {PRODUCT.format(cover + kind, "tif") for cover in COVERS for kind in ("", "UNC", *["RANGE"] * ranges)}
    assert {one.name for one in tmp_path.glob("EMIT*")} == names | {
        PRODUCT.format("QC", "tif"),
        PRODUCT.format("", "png"),
        PRODUCT.format("", "json"),
    }
    flags, mask = values_of(granule / f"{STEM.replace('RFL', 'MASK')}.nc")
    labels = [label.lower() for label in mask.fields["band names"].strip("{}").split(", ")]
    Y, cube = values_of(path)
    a, b = (Y[..., np.abs(cube.wavelengths - wave).argmin()] for wave in (560, 1600))
    quality = np.where((a - b) / (a + b) > 0.4, 4, 0)
    quality[flags[..., labels.index("water flag")] == 1] = 3
    quality[built[..., 0] == 1] = 2
    for flag in CLOUD_FLAGS:
        quality[flags[..., labels.index(flag)] == 1] = 1
    place = cube.placement
    line, sample, has = place.look_up(slice(0, place.shape[0]), 40, 30)

    def placed(swath):
        return np.where(has, swath[line * has, sample * has], -9999)

    (qc,), said = read(tmp_path / PRODUCT.format("QC", "tif"))
    np.testing.assert_array_equal(qc, placed(quality))
    assert said == ("EMIT_L2B_FRCOVQC",) and (quality == 1).any() and (quality == 2).any()
    clear = qc == 0
    truth, _ = values_of(granule / "emit_truth_fraction.hdr")
    lit = np.maximum(1 - truth[..., 3], 1e-3)
    for k, (cover, name) in enumerate(zip(("BARE", "PV", "NPV"), ("soil", "pv", "npv"))):
        (mean,), said = read(tmp_path / PRODUCT.format(cover, "tif"))
        assert said == (f"EMIT_L2B_FRCOV{cover}",) and (mean[~clear] == -9999).all() and COVERS[cover] == name
        assert np.sqrt(np.square((mean - placed(truth[..., k] / lit))[clear]).mean()) < 0.02
        (deviation,), _ = read(tmp_path / PRODUCT.format(cover + "UNC", "tif"))
        assert (deviation[clear] >= 0).all() and (deviation[~clear] == -9999).all()
        if ranges:
            (low, high), _ = read(tmp_path / PRODUCT.format(cover + "RANGE", "tif"))
            inside = (low <= mean + 2e-3) & (mean <= high + 2e-3)
            assert (low[clear] <= high[clear]).all() and np.mean(inside, where=clear) > 0.9
    about = json.loads((tmp_path / PRODUCT.format("", "json")).read_text())
    assert about["qc"] == {str(value): int((qc == value).sum()) for value in range(5)} and about["draws"] == 4
    assert f"clear {clear.sum()}" in out
    command("product", "emit-frcov", path, *words, "-o", tmp_path, code=1, tells="exists already")
    command("product", "emit-frcov", path, *words, "-o", tmp_path, "--overwrite")


@pytest.mark.slow
def test_it_is_the_run_with_draws(tmp_path, granule):
    """Cover and deviation are a run's means and deviations over draws, with the medians of the standard deviations for noise."""
    path = granule / f"{STEM}.nc"
    found = unmix.emit_frcov(
        path, granule / "emit_library.csv", draws=3, draw_spectra=6, seed=2, normalize="length", out_dir=tmp_path
    )
    noise, cube = values_of(granule / f"{STEM.replace('RFL', 'RFLUNCERT')}.nc")
    assert found["seed"] == 2
    ignored = [(1300, 1500), (1800, 2000)]
    keep = np.array([not any(low <= wave <= high for low, high in ignored) for wave in cube.wavelengths])
    how = {"endmembers": granule / "emit_library.csv"}
    report = unmix.run(path, method="nnls", ignore_nm="1300-1500,1800-2000", out_dir=tmp_path / "b", **how)
    keep &= np.isin(np.arange(len(keep)) + 1, report["bands_used"])
    rows = noise[np.unique(np.linspace(0, 39, 64).astype(int))][..., keep].reshape(-1, keep.sum())
    (tmp_path / "noise.txt").write_text(
        "\n".join(map(str, np.median(rows[(rows > 0).all(axis=1)].astype(float), axis=0)))
    )
    unmix.run(
        path,
        endmembers=granule / "emit_library.csv",
        method="nnls",
        ignore_nm="1300-1500,1800-2000",
        by="class",
        normalize="length",
        average="plain",
        draws=3,
        draw_spectra=6,
        seed=2,
        noise=tmp_path / "noise.txt",
        device="cpu",
        ortho=True,
        out_dir=tmp_path / "r",
    )
    drawn = read_values(next((tmp_path / "r").glob("*_average_ortho.hdr")))
    with rasterio.open(tmp_path / PRODUCT.format("BARE", "tif")) as source:
        mean = source.read(1)
    clear = mean != -9999
    assert clear.sum() > 500
    np.testing.assert_allclose(mean[clear], drawn[clear][:, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"classes": "level_9"}, "level_9"),
        ({"mask": "none.nc"}, "none.nc"),
        ({"urban": "small.hdr"}, "has 3 lines"),
    ],
)
def test_what_is_refused(tmp_path, granule, monkeypatch, words, text):
    monkeypatch.chdir(tmp_path)
    write_cube(tmp_path / "small.hdr", np.ones((3, 3, 1), np.uint8))
    with pytest.raises((unmix.UnmixError, OSError), match=text):
        unmix.emit_frcov(granule / f"{STEM}.nc", granule / "emit_library.csv", out_dir=tmp_path / "o", **words)
    assert not (tmp_path / "o").exists()


def test_a_scene_without_a_lookup_table(tmp_path):
    scene = write_cube(tmp_path / "s.hdr", np.ones((3, 3, 5), np.float32), wavelength="{500, 600, 1100, 1600, 2200}")
    refused(unmix.CubeError, "no lookup table", unmix.emit_frcov, scene, tmp_path / "e.csv")


def test_clouds_everywhere(tmp_path, granule):
    """QC and empty covers, as of the mission."""
    write_cube(tmp_path / "all.hdr", np.ones((40, 30, 1), np.uint8))
    how = {"urban": str(tmp_path / "all.hdr"), "ranges": True}
    found = unmix.emit_frcov(granule / f"{STEM}.nc", granule / "emit_library.csv", out_dir=tmp_path, **how)
    (qc,), _ = read(tmp_path / PRODUCT.format("QC", "tif"))
    assert found["pixels"] == 0 and set(np.unique(qc)) <= {-9999, 1, 2}
    for kind in ("", "UNC", "RANGE"):
        values, _ = read(tmp_path / PRODUCT.format("PV" + kind, "tif"))
        assert (values == -9999).all()


def test_stopped(tmp_path, granule, monkeypatch, caplog):
    """Nothing is left, and nobody is told of lines that are kept in a folder which is gone."""

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("unmix.runs.files.output_set.Outputs.write_header", stop)
    with caplog.at_level("DEBUG"), pytest.raises(KeyboardInterrupt):
        unmix.emit_frcov(granule / f"{STEM}.nc", granule / "emit_library.csv", draws=2, out_dir=tmp_path / "o")
    assert "kept" not in caplog.text and not (tmp_path / "o").exists()
