"""Sections of the report: groups of misfits, and draws."""

import json

import numpy as np
import pytest
import scipy.ndimage
from conftest import mix, write_csv, write_cube
from test_cli import unmix as command

import unmix
from unmix.runs.files.finished import FinishedRun


def test_groups_of_misfits(tmp_path):
    """Two materials that the library lacks, in some pixels each, leave two shapes of residuals; a pixel of each is shown."""
    from unmix.pages.pixels import RunModel, misfits

    random = np.random.default_rng(4)
    E = random.uniform(0.1, 0.9, (20, 5))
    A = random.dirichlet(np.ones(3), (20, 20)) @ np.eye(3, 5)
    A[2:4, :], A[10:12, :] = 0.4 * A[2:4] + 0.6 * np.eye(5)[3], 0.4 * A[10:12] + 0.6 * np.eye(5)[4]
    path = write_cube(tmp_path / "s.hdr", (A @ E.T + 0.001 * random.standard_normal((20, 20, 20))).astype(np.float32))
    write_csv(tmp_path / "e.csv", E[:, :3])
    unmix.run(path, endmembers=tmp_path / "e.csv", method="nnls", device="cpu")
    run = FinishedRun.of(tmp_path / "s")
    found = misfits(run, RunModel(run))
    assert 1 <= len(found) <= 3 and all(pixel.line in (2, 3, 10, 11) for pixel in found)
    assert "of the worst pixels" in unmix.report(tmp_path / "s").read_text()


def test_draws(tmp_path):
    _, E, Y = mix(5, (5, 6), 9, 4)
    path = write_cube(tmp_path / "s.hdr", Y.astype(np.float32))
    write_csv(tmp_path / "e.csv", E)
    (tmp_path / "k.csv").write_text("name,kind\n" + "".join(f"em {j},{'ab'[j % 2]}\n" for j in range(1, 5)))
    unmix.run(
        path,
        endmembers=tmp_path / "e.csv",
        classes=f"{tmp_path / 'k.csv'}:kind",
        by="class",
        method="nnls",
        average="plain",
        draws=3,
        draw_spectra=2,
        noise="none",
        device="cpu",
    )
    page = unmix.report(tmp_path / "s").read_text()
    assert "<h2>Averages</h2>" in page and "deviation of a" in page


def test_words_of_a_run_by_command_line_are_options(tmp_path):
    """Record and page name what its user typed, and σ by its endmember, of a run without a method, too."""
    random, E, Y = mix(6, (9, 9), 12, 3)
    Y[5:] = random.dirichlet(np.ones(2), (4, 9)) @ E[:, :2].T
    Y = Y * random.uniform(0.5, 1.5, (9, 9, 1))
    path = write_cube(tmp_path / "s.hdr", (Y + 0.02 * random.standard_normal(Y.shape)).astype(np.float32))
    write_csv(tmp_path / "e.csv", E)
    write_csv(tmp_path / "few.csv", E[:, :2])
    cases = ("e", ("--method", "fcls"), "nnls with --normalize sum"), ("few", (), "try --names")
    for library, words, named in cases:
        command(
            "run", path, "-e", tmp_path / f"{library}.csv", "--uncertainty", "--device", "cpu", "--overwrite", *words
        )
        record, page = (tmp_path / "s_run.json").read_text(), unmix.report(tmp_path / "s").read_text()
        said = json.dumps([json.loads(record)[key] for key in ("warnings", "uncertainty")])
        assert named in said and "`" not in said and named in page and "`" not in page
        assert "σ of em 1" in page and "σ of band" not in page
    unmix.run(path, endmembers=tmp_path / "e.csv", method="fcls", device="cpu", overwrite=True)
    assert "nnls with `normalize` sum" in (tmp_path / "s_run.json").read_text()


@pytest.mark.parametrize("wide, said", [(0.0, False), (0.9, True), (2.0, True)])
def test_noise_that_bands_share_is_said_of_deviations(tmp_path, wide, said, caplog):
    random = np.random.default_rng(3)
    E = np.cumsum(random.random((60, 3)), axis=0) / 30
    noise = random.standard_normal((40, 40, 60))
    noise = scipy.ndimage.gaussian_filter1d(noise, wide, axis=2) if wide else noise
    Y = random.dirichlet(np.ones(3), (40, 40)) @ E.T + 0.005 * noise / noise.std()
    how = {"endmembers": write_csv(tmp_path / "e.csv", E), "out_dir": tmp_path / "o", "device": "cpu"}
    unmix.run(write_cube(tmp_path / "s.hdr", Y.astype(np.float32)), method="fcls", uncertainty=True, **how)
    assert ("neighbouring bands are correlated (" in caplog.text) == said


@pytest.mark.parametrize(("shape", "said"), [("even", False), ("roll-off", True), ("counts", True)])
def test_noise_that_differs_between_bands_is_said_of_deviations(tmp_path, shape, said, caplog):
    """Deviations take noise for even where `noise` is not given, and held a quarter of the truths of counts."""
    random = np.random.default_rng(5)
    E = np.full((60, 3), 0.02)
    E[8:12, 0] = E[24:28, 1] = E[50:54, 2] = 1.0
    A = random.dirichlet(np.full(3, 3.0), (30, 30))
    clean = A @ E.T
    noise = {"even": 0.01, "roll-off": np.where(np.arange(60) > 49, 0.1, 0.01), "counts": np.sqrt(clean / 1000)}[shape]
    Y = clean + noise * random.standard_normal(clean.shape)
    scene, library = write_cube(tmp_path / "s.hdr", Y.astype(np.float32)), write_csv(tmp_path / "e.csv", E)
    how = {"endmembers": library, "method": "nnls", "uncertainty": True, "device": "cpu"}
    unmix.run(scene, **how, out_dir=tmp_path / "o")
    assert ("noise differs between bands" in caplog.text) == said
    caplog.clear()
    by_band = np.broadcast_to(noise, clean.shape).mean(axis=(0, 1))
    (tmp_path / "n.txt").write_text("\n".join(map(str, by_band)))
    unmix.run(scene, **how, noise=str(tmp_path / "n.txt"), out_dir=tmp_path / "p")
    assert "noise differs between bands" not in caplog.text


def test_lines_that_repeat_tell_no_noise(tmp_path):
    """A scene made of copies of one: sampled lines are the same, and differ by nothing."""
    random = np.random.default_rng(6)
    E = random.random((30, 3)) + 0.2
    Y = random.dirichlet(np.ones(3), (8, 40)) @ E.T + 0.01 * random.standard_normal((8, 40, 30))
    scene = write_cube(tmp_path / "s.hdr", np.tile(Y, (200, 1, 1)).astype(np.float32))
    library = write_csv(tmp_path / "e.csv", E)
    report = unmix.run(scene, endmembers=library, method="fcls", device="cpu", browse=False)
    assert report.get("misfit_over_noise") is None or report["misfit_over_noise"]["over_noise"] < 2


def test_misfits_are_beside_noise_with_a_background_too(tmp_path):
    random = np.random.default_rng(7)
    E = random.random((30, 3)) * 50 + 10
    A = random.dirichlet(np.ones(3), (30, 30))
    scene = write_cube(tmp_path / "s.hdr", random.poisson(A @ E.T + 0.5).astype(np.float32))
    library = write_csv(tmp_path / "e.csv", E)
    (tmp_path / "b.txt").write_text("\n".join(["0.5"] * 30))
    how = {"endmembers": library, "method": "nnls", "likelihood": "poisson", "background": str(tmp_path / "b.txt")}
    report = unmix.run(scene, **how, device="cpu", browse=False)
    assert 0.9 < report["misfit_over_noise"]["over_noise"] < 1.15
    assert not any("endmember may be missing" in one for one in report["warnings"])
