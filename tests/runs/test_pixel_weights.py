"""Pixels that their own noise weighs: each as in a run where all have the noise of that one."""

import numpy as np
import pytest
from conftest import LINES, SAMPLES, read_map, write_csv, write_cube

import unmix
from unmix.commands.verify import verify

# Their compiled search takes a quarter of a minute where nothing is compiled yet.
pytestmark = pytest.mark.slow
MAPS = ("abundance", "rmse", "residual", "unweighted")


def run(folder, Y, out, **words):
    """Run a noisy scene with weights of its noise; return its record and maps, each (lines, samples, bands)."""
    cube = write_cube(folder / "x.hdr", Y.astype(np.float32))
    words = {"method": "nnls", "device": "cpu", "weights": "noise", "residual": True} | words
    report = unmix.run(cube, endmembers=folder / "library.csv", out_dir=folder / out, overwrite=True, **words)
    return report, {path.stem[2:]: read_map(folder / out / "x", path.stem[2:]) for path in (folder / out).glob("*.img")}


@pytest.fixture
def noisy(setting, noise_cube):
    """A scene with the noise of `noise_cube`."""
    _, _, Y, _ = setting
    return Y + np.nan_to_num(noise_cube[1]) * np.random.default_rng(2).standard_normal(Y.shape)


@pytest.mark.parametrize(
    "words",
    [
        {"method": "nnls"},
        {"method": "fcls"},
        {"method": "pcls"},
        {"method": "nnls", "normalize": "sum", "by": "class"},
        {"method": "nnls", "ranges": "each", "confidence": 0.9},
    ],
)
def test_each_is_as_if_all_had_its_noise(setting, noise_cube, noisy, words):
    folder, *_ = setting
    path, noise = noise_cube
    report, found = run(folder, noisy, "each", noise=path, certificate=True, **words)
    known = np.isfinite(noise).all(axis=-1)
    assert report["certified"] and report["pixels"]["solved"] == known.sum()
    assert report["pixels"]["partly_nodata"] == (~known).sum()
    assert all((values[~known] == -9999).all() for values in found.values())
    assert (found["certificate"][known][:, 0] <= 1e-10).all()
    for line, sample in ((0, 0), (1, 2), (2, 1), (LINES - 1, SAMPLES - 1)):
        (folder / "one.csv").write_text("".join(f"{v!r}\n" for v in noise[line, sample].tolist()))
        _, expected = run(folder, noisy, "all", noise=folder / "one.csv", **words)
        for name in {*MAPS, *expected} - {"range"}:
            np.testing.assert_allclose(
                found[name][line, sample], expected[name][line, sample], rtol=2e-5, atol=2e-6, err_msg=name
            )
        if "range" in expected:
            np.testing.assert_allclose(found["range"][line, sample], expected["range"][line, sample], atol=2e-5)
    assert verify(folder / "each/x", everything=True).faults == []


def test_abundances_that_are_not_unique(setting, noise_cube, noisy):
    """Two equal spectra: what was written and scipy's answer may be other mixtures, as good."""
    folder, E, *_ = setting
    write_csv(folder / "twice.csv", np.column_stack([E, E[:, 0]]))
    cube = write_cube(folder / "x.hdr", noisy.astype(np.float32))
    how = {"endmembers": folder / "twice.csv"}
    unmix.run(cube, method="nnls", device="cpu", weights="noise", noise=noise_cube[0], out_dir=folder / "t", **how)
    assert verify(folder / "t/x", everything=True).faults == []
