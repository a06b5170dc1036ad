"""Real scenes, every pixel, against references that are themselves checked."""

import json

import definitions
import numpy as np
import pytest
from conftest import at_night
from reference.abundances import METHODS, of_pixels

import unmix
from unmix.certificate import CERTIFIED
from unmix.commands.verify import verify
from unmix.devices import count_gpus
from unmix.io import bytes_per_line, open_cube, spectra
from unmix.library import load
from unmix.scene.bands import choose_bands

pytestmark = pytest.mark.real
CASES = [("jasper", None), ("samson", None), *(("salinas_a", p) for p in (3, 9, 15, 25))]
# SOLVERS' table: shares of Salinas-A pixels where Algorithm 3 of Li and Li misses the optimum.
MISSED = {("nnls", 3): 0, ("nnls", 9): 20, ("nnls", 15): 14, ("nnls", 25): 78}
MISSED |= {("fcls", 3): 0, ("fcls", 9): 11, ("fcls", 15): 50, ("fcls", 25): 83}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def scene_of(data, name, p):
    """(header, library, options): Jasper and Samson with their truth, Salinas-A with the paper's endmembers."""
    if p is not None:
        return data / name / f"{name}.hdr", data / "paper_endmembers" / f"salinas_{p:02d}.csv", {}
    # Jasper's 5000 is reflectance 1; Samson's truth is scaled to a maximum of 1, its cube is not, which a run allows.
    scale = {"jasper": {"scale": 5000.0}, "samson": {}}[name]
    return data / name / f"{name}.hdr", data / name / f"{name}_truth_endmembers.csv", scale


def pixels_of(path, scale=None):
    cube = open_cube(path)
    raw = cube.read(slice(0, cube.lines), np.empty(bytes_per_line(cube) * cube.lines, np.uint8))
    return spectra(raw, cube.interleave, choose_bands(cube, "good", scale))


def reference(E, Y, method):
    """The optimum of every pixel by scipy, each checked for κ."""
    answers = of_pixels(METHODS[method], Y, E)
    assert max(definitions.of_pixel(E, y, a, method == "fcls", True)[1] for y, a in zip(Y, answers)) <= 1e-9
    return answers


@pytest.fixture(scope="session")
def references():
    """References are costly; one for each case serves all devices."""
    return {}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", ["nnls", "fcls"])
@pytest.mark.parametrize(("name", "p"), at_night(CASES, *CASES[:2], CASES[3]))
def test_every_pixel_is_the_optimum(tmp_path, data, references, name, p, method, device):
    if device == "cuda" and not count_gpus():
        pytest.skip("no CUDA GPU here")
    path, library, options = scene_of(data, name, p)
    report = unmix.run(path, method=method, endmembers=library, out_dir=tmp_path, device=device, **options)
    E, Y = load(library).matrix, pixels_of(path, options.get("scale"))
    if (name, p, method) not in references:
        references[name, p, method] = reference(E, Y, method)
    best = references[name, p, method]
    cube = open_cube(path)
    shape = (cube.lines, E.shape[1], cube.samples)
    a = np.fromfile(tmp_path / f"{name}_abundance.img", "<f4").reshape(shape).transpose(0, 2, 1).reshape(best.shape)
    assert np.all(np.abs(a - best) <= 2e-6 * np.maximum(1, np.abs(best)))
    truth = np.sqrt(np.square(Y - best @ E.T).mean(axis=1))
    rmse = np.fromfile(tmp_path / f"{name}_rmse.img", "<f4").astype(float)
    limit = 1e-6 * truth + 2e-8 * np.linalg.norm(Y, axis=1) / np.sqrt(Y.shape[1])
    assert np.all(np.abs(rmse - truth) <= limit)
    assert report["pixels"]["certified"] == len(Y) and report["certified"]
    assert report["worst_kappa"] <= CERTIFIED
    assert report["pixels"]["rescued"] == 0  # the solver's own answers, not those of the safe path
    assert a.min() >= 0
    if method == "fcls":
        assert np.abs(a.sum(axis=1) - 1).max() <= 1e-6


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("method", "p"), list(MISSED))
def test_delete_only_misses_as_often_as_was_found(tmp_path, data, method, p, device):
    if device == "cuda" and not count_gpus():
        pytest.skip("no CUDA GPU here")
    path, library, _ = scene_of(data, "salinas_a", p)
    report = unmix.run(path, method=method, solver="delete-only", endmembers=library, out_dir=tmp_path, device=device)
    share = 100 * report["pixels"]["failed"] / report["pixels"]["solved"]
    assert round(share) == MISSED[method, p]


def test_verify_all_of_jasper(tmp_path, data):
    unmix.run(data / "jasper/jasper.hdr", out_dir=tmp_path, device="cpu", count=5)
    assert verify(tmp_path / "jasper", everything=True).faults == []
    report = json.loads((tmp_path / "jasper_run.json").read_text())
    assert report["passes"] == 3 and report["certified"]  # moments, the sample of the cone, the maps


@pytest.mark.parametrize("device", DEVICES)
def test_a_library_of_more_spectra_than_bands(tmp_path, data, device):
    """529 pixels of Jasper Ridge as endmembers of 198 bands; and with four endmembers the same answers by the inverse."""
    if device == "cuda" and not count_gpus():
        pytest.skip("no CUDA GPU here")
    scene = data / "jasper/jasper.hdr"
    options = {"method": "nnls", "device": device}
    truth = data / "jasper/jasper_truth_endmembers.csv"
    for solver in ("inverse", "active-set"):
        unmix.run(scene, endmembers=truth, solver=solver, out_dir=tmp_path / solver, **options)
    maps = [np.fromfile(tmp_path / solver / "jasper_abundance.img", "<f4") for solver in ("inverse", "active-set")]
    np.testing.assert_allclose(maps[0], maps[1], atol=2e-6)
    if (data / "libraries").is_dir():
        library = data / "libraries/spectral_library_jasperRidge.mat"
        for method in ("nnls", "fcls"):
            out = tmp_path / method
            report = unmix.run(scene, endmembers=library, out_dir=out, **options | {"method": method})
            pixels = report["pixels"]
            assert report["certified"] and report["worst_kappa"] <= CERTIFIED
            assert pixels["certified"] + pixels["fit_certified"] == 10000
            assert pixels["certified"] == 10000
            assert verify(out / "jasper", sample=50).faults == []
