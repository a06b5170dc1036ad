"""Intimate mixtures: albedo by Hapke's formula, abundances in it, and shares of the mass."""

import numpy as np
import pytest
from conftest import falsify, read_map, read_values, refused, write_csv, write_cube
from hypothesis import given
from hypothesis import strategies as st
from reference import fractions
from test_cli import unmix as command

import unmix
from unmix.scene import ReadOptions
from unmix.scene.albedo import Geometry, geometry_of

ANGLES = "30,10"
MASS = np.array([2.6 * 40.0, 3.3 * 120.0, 2.7 * 15.0])
TABLE = "diameter,name,density\n40,em 1,2.6\n120,em 2,3.3\n15,em 3,2.7\n"
cosines = st.floats(0.02, 1.0)


@given(st.floats(-5.0, 1.0), cosines, cosines)
def test_there_and_back(w, incidence, emission):
    geometry = Geometry(incidence, emission)
    value = geometry.reflectance(np.array([w]))
    assert value[0] == pytest.approx(fractions.reflectance(w, incidence, emission), rel=1e-13, abs=1e-15)
    assert abs(geometry.albedo(value)[0] - w) <= 1e-12 * max(1.0, abs(w)) * (1 + abs(w) / incidence / emission)


@given(st.floats(-0.05, 1.2), cosines, cosines)
def test_against_a_search_for_the_root(value, incidence, emission):
    found, expected = (
        Geometry(incidence, emission).albedo(np.array(value)),
        fractions.albedo(value, incidence, emission),
    )
    assert (np.isnan(found) and np.isnan(expected)) or abs(found - expected) <= 1e-12


def test_ends():
    geometry = geometry_of("30,0")
    assert geometry == (pytest.approx(np.sqrt(3) / 2), 1.0)
    np.testing.assert_allclose(geometry.albedo(np.array([0.0, 1.0])), [0.0, 1.0], atol=1e-15)
    assert np.isnan(geometry.albedo(np.array([1.0000001, np.nan, -3.0, np.inf]))).all()
    assert geometry.reflectance(np.array([1.5])) == 1.0  # sums of spectra may be brighter than white


@pytest.fixture
def scene(tmp_path):
    """Intimate mixtures of known shares of the mass, without noise; a masked pixel, and one that is brighter than white."""
    random = np.random.default_rng(7)
    geometry = geometry_of(ANGLES)
    W = np.clip(0.6 + 0.35 * np.sin(np.linspace(0, 3, 20)[:, None] * [1.0, 2.3, 3.1] + [0, 1, 4]), 0.05, 0.98)
    M = random.dirichlet(np.ones(3), (9, 8))
    F = M / MASS / (M / MASS).sum(axis=2, keepdims=True)
    R = geometry.reflectance(F @ W.T)
    R[1, 2], R[4, 5, 3] = -9999, 1.2
    write_csv(tmp_path / "e.csv", geometry.reflectance(W))
    (tmp_path / "grains.csv").write_text(TABLE)
    return write_cube(tmp_path / "s.hdr", R.astype(np.float32), data_ignore_value=-9999), M, F, geometry


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_shares_of_the_mass(tmp_path, scene, device):
    """What the linear model is far from, mixtures of albedo find; all is verified by the definitions."""
    path, M, F, _ = scene
    words = {"endmembers": tmp_path / "e.csv", "method": "fcls", "device": device}
    report = unmix.run(
        path, out_dir=tmp_path / "w", albedo=ANGLES, grains=tmp_path / "grains.csv", residual=True, **words
    )
    assert report["pixels"]["solved"] == 70 == report["pixels"]["certified"]
    A, mass, off = (read_values(tmp_path / f"w/s_{name}.hdr") for name in ("abundance", "mass", "reflectance"))
    present = A[..., 0] != -9999
    assert not present[1, 2] and not present[4, 5] and (mass[~present] == -9999).all()
    np.testing.assert_allclose(A[present], F[present], atol=2e-5)
    np.testing.assert_allclose(mass[present], M[present], atol=1e-4)
    assert off[present].max() < 1e-6
    np.testing.assert_allclose(
        unmix.load_library(tmp_path / "w/s_endmembers.sli").matrix,
        unmix.load_library(tmp_path / "e.csv").matrix,
        rtol=1e-12,
    )
    unmix.run(path, out_dir=tmp_path / "linear", **words)
    assert np.abs(read_values(tmp_path / "linear/s_abundance.hdr") - F)[present].max() > 0.05
    if device == "cpu":
        command("verify", tmp_path / "w/s", "--cube", path, "--all", says="lines unmixed again")
        assert unmix.compare(tmp_path / "w/s", truth_of(tmp_path, M), "mass")["rmse"] < 1e-4
        assert set(unmix.read(tmp_path / "w/s")) >= {"mass", "reflectance"}
        assert unmix.read(tmp_path / "w/s")["reflectance"].ndim == 2
        page = unmix.report(tmp_path / "w/s").read_text()
        assert "Largest RMSE" in page and "No spectra of pixels" not in page


def truth_of(folder, M):
    return write_cube(folder / "t.hdr", M.astype(np.float32), band_names="{em 1, em 2, em 3}")


def test_wrong_maps_are_found(tmp_path, scene):
    words = {"endmembers": tmp_path / "e.csv", "method": "nnls", "albedo": ANGLES, "grains": tmp_path / "grains.csv"}
    for name, change, text in (
        ("reflectance", lambda values: np.add.at(values, 3, 1e-3), "its reflectance does not match"),
        ("mass", lambda values: np.add.at(values, 3, 1e-3), "its mass does not match"),
    ):
        unmix.run(scene[0], out_dir=tmp_path / name, **words)
        falsify(tmp_path / name / "s", name, 9, change)
        command("verify", tmp_path / name / "s", "--cube", scene[0], "--all", code=1, tells=text)


def test_extracted_endmembers_are_reflectance(tmp_path, scene):
    path, _, _, _ = scene
    unmix.run(path, count=3, method="fcls", albedo=ANGLES, out_dir=tmp_path / "w")
    library = unmix.load_library(tmp_path / "w/s_endmembers.csv")
    R = read_values(path)
    np.testing.assert_allclose(library.matrix.T, [R[place] for place in library.pixels], rtol=1e-9)
    command("verify", tmp_path / "w/s", "--cube", path, "--all", says="lines unmixed again")


def test_with_shade(tmp_path, scene):
    path, M, _, _ = scene
    how = {"endmembers": tmp_path / "e.csv"}
    unmix.run(path, method="pcls", albedo=ANGLES, grains=tmp_path / "grains.csv", out_dir=tmp_path / "p", **how)
    mass = read_values(tmp_path / "p/s_mass.hdr")
    np.testing.assert_allclose(mass[0], M[0], atol=1e-4)
    assert mass.shape[2] == 3


def test_what_a_pixel_shows(tmp_path, scene):
    """The page and the viewer show reflectance, and the model's."""
    Source = pytest.importorskip("unmix.features.viewer.source").Source

    path, _, _, _ = scene
    unmix.run(path, endmembers=tmp_path / "e.csv", method="fcls", albedo=ANGLES, out_dir=tmp_path / "w")
    facts = Source(tmp_path / "w/s", ReadOptions()).facts(2, 3)
    np.testing.assert_allclose(facts.spectra["measured"], read_values(path)[2, 3], rtol=1e-6)
    np.testing.assert_allclose(facts.spectra["modelled"], read_values(path)[2, 3], rtol=1e-5)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"albedo": "30"}, "INCIDENCE,EMISSION"),
        ({"albedo": "30,x"}, "INCIDENCE,EMISSION"),
        ({"albedo": "30,90"}, "below 90"),
        ({"albedo": ANGLES, "tie": "400-500"}, "which changes the bands, too"),
        ({"albedo": ANGLES, "method": "mesma", "classes": "e.csv:name"}, "does not go with mesma"),
        ({"albedo": ANGLES, "uncertainty": True}, "which changes the noise of bands"),
        ({"grains": "grains.csv"}, "is for `albedo`"),
        ({"albedo": ANGLES, "grains": "short.csv"}, "no row for em 3"),
        ({"albedo": ANGLES, "grains": "wrong.csv"}, "row 2"),
        ({"albedo": ANGLES, "grains": "columns.csv"}, "no column 'diameter'"),
        ({"albedo": ANGLES, "library_scale": 0.3}, "above 1"),
        ({"albedo": ANGLES, "scale": 0.1}, "% of the values are above 1"),
    ],
)
def test_what_is_refused(tmp_path, scene, monkeypatch, words, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.csv").write_text("".join(TABLE.splitlines(keepends=True)[:3]))
    (tmp_path / "wrong.csv").write_text(TABLE.replace("2.6", "-1"))
    (tmp_path / "columns.csv").write_text(TABLE.replace("diameter", "size"))
    with pytest.raises(unmix.UnmixError, match=text):
        unmix.run(scene[0], **{"endmembers": "e.csv", "method": "nnls", "out_dir": "o"} | words)
    assert not (tmp_path / "o").exists() or not list((tmp_path / "o").iterdir())


def test_endmembers_of_some_pixels(tmp_path, scene):
    """Endmembers are extracted where `extract_mask` says, as without albedo."""
    path = scene[0]
    keep = np.zeros((9, 8, 1), np.uint8)
    keep[5:] = 1
    write_cube(tmp_path / "m.hdr", keep)
    for name, words in (("w", {"albedo": ANGLES}), ("r", {})):
        how = {"count": 3, "method": "fcls"}
        unmix.run(path, extract="vca", extract_mask=str(tmp_path / "m.hdr"), out_dir=tmp_path / name, **how, **words)
        assert all(line >= 5 for line, _ in unmix.load_library(tmp_path / name / "s_endmembers.csv").pixels)


@pytest.mark.parametrize(
    "words",
    [
        {"method": "nnls", "rows": 2},
        {"method": "nnls", "mask": "m.hdr"},
        pytest.param({"method": "nnls", "at_most": 2}, marks=pytest.mark.slow),
    ],
)
def test_verified_with_other_options(tmp_path, scene, monkeypatch, words):
    """A line without a pixel, rows that are chosen, and fewer endmembers than the library has."""
    monkeypatch.chdir(tmp_path)
    keep = np.ones((9, 8, 1), np.uint8)
    keep[3] = 0
    write_cube(tmp_path / "m.hdr", keep)
    unmix.run(scene[0], endmembers="e.csv", albedo=ANGLES, grains="grains.csv", out_dir="w", **words)
    command("verify", tmp_path / "w/s", "--cube", scene[0], "--all", says="lines unmixed again")


@pytest.mark.parametrize("extract", ["sisal", "cone"])
def test_endmembers_brighter_than_white(tmp_path, extract, caplog):
    """Corners beyond an albedo of 1 are taken to be 1 before pixels are solved, so that what is written is what was solved."""
    random = np.random.default_rng(9)
    geometry = geometry_of(ANGLES)
    W = np.clip(0.6 + 0.4 * np.sin(np.linspace(0, 3, 25)[:, None] * [1.0, 2.3, 3.1] + [0, 1, 4]), 0.05, 1.06)
    A = random.dirichlet(np.ones(3), (20, 20))
    A[A.max(axis=2) > 0.85] = 1 / 3
    R = geometry.reflectance(np.minimum(A @ W.T, 0.999)) + 1e-4 * random.standard_normal((20, 20, 25))
    path = write_cube(tmp_path / "s.hdr", np.minimum(R, 0.9999).astype(np.float32))
    unmix.run(path, count=3, method="fcls", extract=extract, albedo=ANGLES, out_dir=tmp_path / "w")
    assert (unmix.load_library(tmp_path / "w/s_endmembers.csv").matrix <= 1.0).all()
    if "albedo above 1" in caplog.text:  # then it is no longer the simplex that the record says; maps are verified
        out, _ = command("verify", tmp_path / "w/s", "--cube", path)
    else:
        out, _ = command("verify", tmp_path / "w/s", "--cube", path, "--all")
    assert "lines unmixed again" in out


def test_a_library_measured_under_other_angles(tmp_path):
    """Two more angles are the library's; what is written is in the library's geometry, so that it can be given again."""
    random = np.random.default_rng(4)
    W, A = random.uniform(0.1, 0.9, (20, 3)), random.dirichlet(np.ones(3), (8, 9))
    scene, laboratory = geometry_of("60,10"), geometry_of("30,0")
    path = write_cube(tmp_path / "s.hdr", scene.reflectance(A @ W.T) + 1e-5 * random.standard_normal((8, 9, 20)))
    write_csv(tmp_path / "e.csv", laboratory.reflectance(W))
    how = {"method": "fcls", "out_dir": tmp_path / "w"}
    unmix.run(path, endmembers=tmp_path / "e.csv", albedo="60,10,30,0", **how)
    np.testing.assert_allclose(read_map(tmp_path / "w/s", "abundance"), A, atol=1e-3)
    command("verify", tmp_path / "w/s", "--cube", path, "--all", says="lines unmixed again")
    again = how | {"out_dir": tmp_path / "v", "endmembers": tmp_path / "w/s_endmembers.csv"}
    unmix.run(path, albedo="60,10,30,0", **again)
    np.testing.assert_allclose(read_map(tmp_path / "v/s", "abundance"), A, atol=1e-3)
    refused(unmix.MethodError, "or four with the library's", unmix.run, path, albedo="60,10,30", **how)
