"""Each feature of a run: the same bytes and record for any block and thread and after a cut-off, the same values of a
part, a finished run that is known again, and maps that `verify` judges."""

import json

import numpy as np
import pytest
from conftest import cut_off, falsify, read_map, read_values, write_csv, write_cube

import unmix
import unmix.runs.files.journal as journal
from unmix.commands.verify import verify

LINES, SAMPLES, L, P = 16, 13, 16, 6
NNLS, SUMS = {"method": "nnls"}, {"method": "pcls", "by": "class"}
MESMA = {"method": "mesma", "levels": "2-4"}
DRAWS = SUMS | {"average": "plain", "draws": 4, "draw_spectra": 4, "noise": "noise.txt"}
DEVIATIONS = {"uncertainty": True, "noise": "noise.txt"}
ALL_MAPS = {"class_map": True, "uncertainty": True, "certificate": True, "weights": "weights.txt"}
# What is asked for; the map that is then made wrong.
FEATURES = {
    "nnls": (NNLS | {"residual": True, "certificate": True}, "rmse"),
    "residual": (NNLS | {"residual": True}, "residual"),
    "sums by class": (SUMS, "fraction"),
    "classes": (SUMS | {"shade_normalize": True, "class_map": True}, "class"),
    "deviations": (NNLS | DEVIATIONS, "sigma"),
    "deviations of sums": (SUMS | DEVIATIONS | {"shade_normalize": True}, "sigma"),
    "draws": (DRAWS, "average"),
    "fractions": (NNLS | {"normalize": "length"}, "abundance"),
    "scale": ({"method": "pcls", "normalize": "sum"}, "scale"),
    "l1": (NNLS | {"l1": 0.02}, "abundance"),
    "rows": (NNLS | {"rows": 3}, "abundance"),
    "at most": (NNLS | {"at_most": 2}, "abundance"),
    "weights": (NNLS | {"weights": "weights.txt"}, "unweighted"),
    "all in steps": (DRAWS | ALL_MAPS | {"quantize": 1e-4}, "unweighted"),
    "noise of pixels": (NNLS | {"uncertainty": True, "noise": "noise.hdr", "weights": "weights.txt"}, "sigma"),
    "weights by a cube": (NNLS | {"weights": "noise", "noise": "noise.hdr"}, "unweighted"),
    "counts": (NNLS | {"likelihood": "poisson"}, "abundance"),
    "tied": (NNLS | {"tie": "500-800"}, "abundance"),
    "steps": ({"method": "fcls", "quantize": 1e-4}, "abundance"),
    "the largest": ({"method": "fcls", "top": 2}, "index"),
    "models": (MESMA, "fraction"),
    "average of models": (MESMA | {"average": "likelihood"}, "average"),
    "ranges": (NNLS | {"ranges": "class", "within": 0.01}, "range"),
}


# What a record says of how a run went, and not of what came of it.
OF_THE_WAY = [
    "blocks",
    "command",
    "device",
    "computed_by",
    "hidden",
    "ended",
    "passes",
    "pixels_per_second",
    "resumed_from",
    "seconds",
    "digest",
]
CHOSEN_BY_THE_SCENE = ("rows", "average of models", "weights by a cube")
# Each of these compiles a search of its own, for 15 to 25 s; and draws are among what is in steps.
SLOW = {"draws", "at most", "models", "ranges", "weights by a cube", "counts"}
# Their maps are among those of "nnls" (rmse), "all in steps" (weights, steps) and "deviations of sums" (sums, classes).
SLOW |= {"residual", "deviations", "weights", "steps", "sums by class", "classes"}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a scene, one of whose pixels is masked and one dark, a library with classes, weights, and noise."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    E = random.random((L, P)) + 0.1
    E[:, -1] = E[:, :2].mean(axis=1) * 1.01 + 0.01  # so that pixels without noise pass with several supports
    A = random.dirichlet(np.full(P - 1, 0.5), (LINES, SAMPLES)) * random.uniform(0.4, 1.1, (LINES, SAMPLES, 1))
    noise = 0.005 * random.standard_normal((LINES, SAMPLES, L)) * (np.arange(LINES) % 4 > 0)[:, None, None]
    Y = A @ E[:, :-1].T + noise
    Y[2, 3], Y[0, 0] = -7.0, 0.0
    waves = np.linspace(400, 1000, L)
    write_cube(tmp_path / "x.hdr", Y.astype(np.float32), data_ignore_value=-7, wavelength=waves)
    write_csv(tmp_path / "e.csv", E, waves, classes=[*"aabbca"])
    np.savetxt("noise.txt", random.uniform(0.002, 0.008, L))
    np.savetxt("weights.txt", random.uniform(0.5, 2.0, L))
    write_cube(tmp_path / "noise.hdr", random.uniform(0.002, 0.008, Y.shape).astype(np.float32))
    return tmp_path


def test_the_fit_that_is_said(here):
    """The largest relative RMSE is that of the map and the scene."""
    report = unmix.run(here / "x.hdr", endmembers=here / "e.csv", device="cpu", out_dir=here / "o", **NNLS)
    rmse, Y = read_map(here / "o/x", "rmse")[..., 0], read_values(here / "x.hdr")
    lengths = np.linalg.norm(Y, axis=2)
    good = (rmse != -9999) & (lengths > 0)
    expected = (rmse[good] * L**0.5 / lengths[good]).max()
    assert np.isclose(report["fit"]["relative_rmse"]["maximum"], expected, rtol=1e-5)


def outcome(report):
    """Return what a record says of the maps, sums to nine digits."""
    text = json.dumps({key: value for key, value in report.items() if key not in OF_THE_WAY})
    return json.loads(text, parse_float=lambda number: float(f"{float(number):.9g}"))


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in FEATURES])
def test_bytes_records_and_faults(here, name, monkeypatch):
    words, wrong = FEATURES[name]
    words = words | {"endmembers": here / "e.csv", "device": "cpu", "scale": 1}
    ways = {"a": {"memory": "40K", "threads": 1}, "b": {"memory": "1G", "threads": 3, "streams": 2}}
    reports = {out: unmix.run(here / "x.hdr", out_dir=here / out, **way, **words) for out, way in ways.items()}
    words_of_cut = words | {"memory": "20K", "threads": 1, "streams": 1, "out_dir": here / "cut"}
    with monkeypatch.context() as patch:
        patch.setattr(journal, "FLUSH_SECONDS", 0.0)
        cut_off(here / "x.hdr", LINES // 2, StopIteration, **words_of_cut)
    reports["cut"] = unmix.run(here / "x.hdr", **words_of_cut)
    assert 0 < reports["cut"]["resumed_from"] < LINES
    files = [path.name for path in (here / "a").iterdir() if path.name != "x_run.json"]
    for other in ("b", "cut"):
        differ = [one for one in files if (here / "a" / one).read_bytes() != (here / other / one).read_bytes()]
        assert differ == []
        assert outcome(reports[other]) == outcome(reports["a"])
    assert unmix.run(here / "x.hdr", out_dir=here / "a", skip_existing=True, **words)["skipped"]
    if name not in CHOSEN_BY_THE_SCENE:
        unmix.run(here / "x.hdr", out_dir=here / "part", lines="3:13", samples="2:", **words)
        for path in (here / "part").glob("*.img"):
            part, whole = read_values(path.with_suffix(".hdr")), read_values(here / "a" / f"{path.stem}.hdr")[3:13, 2:]
            # The steps of a certificate are counted from the neighbour's support.
            bands = slice(2 if "certificate" in path.stem else None)
            near = 1e-12 if name == "counts" else 0.0
            np.testing.assert_allclose(part[..., bands], whole[..., bands], rtol=0, atol=near, err_msg=path.stem)
    assert verify(here / "a/x", everything=True).faults == []
    kind = {"class": "u1", "abundance": "<u2" if "quantize" in words else "<f4"}.get(wrong, "<f4")

    def change(values):
        good = (values != -9999) & (values != 65535)
        values[good] = values[good] % 3 + 1 if wrong in ("class", "index") else (values[good] * 1.02).astype(kind)

    falsify(here / "a/x", wrong, LINES, change, kind)
    assert verify(here / "a/x", everything=True).faults
