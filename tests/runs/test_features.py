"""Each feature of a run: the same bytes for any block and thread and after a cut-off, a finished run that is known again, and maps
that `verify` judges."""

import numpy as np
import pytest
from conftest import falsify, read_map, read_values, write_csv, write_cube

import unmix
import unmix.runs.files.journal as journal
from unmix.commands.verify import verify

LINES, SAMPLES, L, P = 16, 21, 16, 5
NNLS, SUMS = {"method": "nnls"}, {"method": "pcls", "by": "class"}
MESMA = {"method": "mesma", "levels": "2-4"}
DRAWS = SUMS | {"monte_carlo": 4, "draw_spectra": 4, "noise": "noise.txt"}
DEVIATIONS = {"uncertainty": True, "noise": "noise.txt"}
DIFFERS = "does not match the cube"
# What is asked for; the map that is then made wrong, and what `verify` says of that.
FEATURES = {
    "nnls": (NNLS | {"residual": True, "certificate": True}, "rmse", DIFFERS),
    "residual": (NNLS | {"residual": True}, "residual", DIFFERS),
    "sums by class": (SUMS, "fraction", "its sums by class do not match"),
    "classes": (SUMS | {"shade_normalize": True, "class_map": True}, "class", "its class has not the largest sum"),
    "deviations": (NNLS | DEVIATIONS, "sigma", "its standard deviations do not match"),
    "deviations of sums": (SUMS | DEVIATIONS | {"shade_normalize": True}, "sigma", "its standard deviations do not match"),
    "draws": (DRAWS, "montecarlo", "its means and deviations over draws do not match"),
    "fractions": (NNLS | {"normalize": "length"}, "abundance", DIFFERS),
    "scale": ({"method": "pcls", "normalize": "sum"}, "scale", DIFFERS),
    "l1": (NNLS | {"l1": 0.02}, "abundance", DIFFERS),
    "rows": (NNLS | {"rows": 3}, "abundance", DIFFERS),
    "at most": (NNLS | {"at_most": 2}, "abundance", DIFFERS),
    "weights": (NNLS | {"weights": "weights.txt"}, "unweighted", "its RMSE without weights does not match"),
    "steps": ({"method": "fcls", "quantize": 1e-4}, "abundance", DIFFERS),
    "the largest": ({"method": "fcls", "top": 2}, "index", DIFFERS),
    "models": (MESMA, "fraction", "is not the best model"),
    "spread": (MESMA | {"uncertainty": True}, "spread", "has another spread over the models"),
    "ranges": (NNLS | {"ranges": "class", "within": 0.01}, "range", "its ranges are not those of all mixtures that fit"),
    "ranges of models": (MESMA | {"ranges": "class", "within": 0.01}, "range", "its ranges are not those of all mixtures that fit"),
}  # fmt: skip


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a scene, one of whose pixels is masked and one dark, a library with classes, weights and noise of bands."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    E = random.random((L, P)) + 0.1
    A = random.dirichlet(np.full(P, 0.5), (LINES, SAMPLES)) * random.uniform(0.4, 1.1, (LINES, SAMPLES, 1))
    Y = A @ E.T + 0.005 * random.standard_normal((LINES, SAMPLES, L))
    Y[2, 3], Y[0, 0] = -7.0, 0.0
    write_cube(tmp_path / "x.hdr", Y.astype(np.float32), data_ignore_value=-7)
    write_csv(tmp_path / "e.csv", E, classes=[*"aabbc"])
    np.savetxt("noise.txt", random.uniform(0.002, 0.008, L))
    np.savetxt("weights.txt", random.uniform(0.5, 2.0, L))
    return tmp_path


def test_the_fit_that_is_said(here):
    """The largest relative RMSE is that of the map and the scene."""
    report = unmix.run(here / "x.hdr", endmembers=here / "e.csv", device="cpu", out_dir=here / "o", **NNLS)
    rmse, Y = read_map(here / "o/x", "rmse")[..., 0], read_values(here / "x.hdr")
    lengths = np.linalg.norm(Y, axis=2)
    good = (rmse != -9999) & (lengths > 0)
    expected = (rmse[good] * L**0.5 / lengths[good]).max()
    assert np.isclose(report["fit"]["relative_rmse"]["maximum"], expected, rtol=1e-5)


def stopping(step):
    """Cut a run off in the midst of its lines."""
    if step.done >= LINES // 2:
        raise StopIteration


# Each of these compiles a search of its own, for 15 to 25 s.
SLOW = ("at most", "models", "spread", "ranges", "ranges of models")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in FEATURES])
def test_bytes_records_and_faults(here, name, monkeypatch):
    words, wrong, says = FEATURES[name]
    words = words | {"endmembers": here / "e.csv", "device": "cpu", "browse": False, "scale": 1}
    for out, ways in (("a", {"memory": "64K", "threads": 1}), ("b", {"memory": "1G", "threads": 3, "streams": 2})):
        unmix.run(here / "x.hdr", out_dir=here / out, **ways, **words)
    words_of_cut = words | {"memory": "32K", "threads": 1, "streams": 1, "out_dir": here / "cut"}
    with monkeypatch.context() as patch, pytest.raises(StopIteration):
        patch.setattr(journal, "FLUSH_SECONDS", 0.0)
        unmix.run(here / "x.hdr", progress=stopping, **words_of_cut)
    assert 0 < unmix.run(here / "x.hdr", **words_of_cut)["resumed_from"] < LINES
    files = [path.name for path in (here / "a").iterdir() if path.name != "x_run.json"]
    for other in ("b", "cut"):
        assert [one for one in files if (here / "a" / one).read_bytes() != (here / other / one).read_bytes()] == []
    assert unmix.run(here / "x.hdr", out_dir=here / "a", skip_existing=True, **words)["skipped"]
    everything = "ranges" not in words  # scipy finds these again, and takes minutes for all
    assert verify(here / "a/x", everything=everything).faults == []
    kind = {"class": "u1", "abundance": "<u2" if "quantize" in words else "<f4"}.get(wrong, "<f4")

    def change(values):
        good = (values != -9999) & (values != 65535)
        values[good] = values[good] % 3 + 1 if wrong in ("class", "index") else (values[good] * 1.02).astype(kind)

    falsify(here / "a/x", wrong, LINES, change, kind)
    assert any(says in fault for fault in verify(here / "a/x", everything=everything).faults)
