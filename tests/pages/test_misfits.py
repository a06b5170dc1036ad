"""Sections of the report: groups of misfits, and draws."""

import numpy as np
from conftest import write_csv, write_cube

import unmix
from unmix.runs.files.finished import FinishedRun


def test_groups_of_misfits(tmp_path):
    """Two materials that the library lacks, in some pixels each, leave two shapes of residuals; a pixel of each is shown."""
    from unmix.pages.pixels import Model, misfits

    random = np.random.default_rng(4)
    E = random.uniform(0.1, 0.9, (20, 5))
    A = random.dirichlet(np.ones(3), (20, 20)) @ np.eye(3, 5)
    A[2:4, :], A[10:12, :] = 0.4 * A[2:4] + 0.6 * np.eye(5)[3], 0.4 * A[10:12] + 0.6 * np.eye(5)[4]
    path = write_cube(tmp_path / "s.hdr", (A @ E.T + 0.001 * random.standard_normal((20, 20, 20))).astype(np.float32))
    write_csv(tmp_path / "e.csv", E[:, :3])
    unmix.run(path, endmembers=tmp_path / "e.csv", method="nnls", device="cpu")
    run = FinishedRun.of(tmp_path / "s")
    found = misfits(run, Model(run))
    assert 1 <= len(found) <= 3 and all(pixel.line in (2, 3, 10, 11) for pixel in found)
    assert "of the worst pixels" in unmix.report(tmp_path / "s").read_text()


def test_draws(tmp_path):
    random = np.random.default_rng(5)
    E = random.uniform(0.1, 0.9, (9, 4))
    path = write_cube(tmp_path / "s.hdr", (random.dirichlet(np.ones(4), (5, 6)) @ E.T).astype(np.float32))
    write_csv(tmp_path / "e.csv", E)
    (tmp_path / "k.csv").write_text("name,kind\n" + "".join(f"em {j},{'ab'[j % 2]}\n" for j in range(1, 5)))
    unmix.run(
        path, endmembers=tmp_path / "e.csv", classes=f"{tmp_path / 'k.csv'}:kind", by="class", method="nnls",
        monte_carlo=3, draw_spectra=2,
        noise="none", device="cpu",
    )  # fmt: skip
    page = unmix.report(tmp_path / "s").read_text()
    assert "<h2>Draws</h2>" in page and "deviation of a" in page
