"""Pixels with weights, noise, allowed endmembers or counts of their own: as `unmix.nnls`, scipy and `unmix.poisson` have them."""

import numpy as np
import pytest
from conftest import LINES, SAMPLES, read_map, refused, verify_tells, write_csv, write_cube
from scipy.optimize import nnls as lawson_hanson
from test_cli import unmix as command

import unmix
from unmix.commands.verify import verify

pytestmark = pytest.mark.slow


def run(folder, Y, out, **words):
    """Run a scene; return its record and maps, each (lines, samples, bands)."""
    cube = write_cube(folder / "x.hdr", Y)
    words = {"method": "nnls", "device": "cpu", "residual": True, "certificate": True} | words
    report = unmix.run(cube, endmembers=folder / "library.csv", out_dir=folder / out, overwrite=True, **words)
    return report, {path.stem[2:]: read_map(folder / out / "x", path.stem[2:]) for path in (folder / out).glob("*.img")}


@pytest.fixture
def weights(setting):
    """Weights of each pixel: one band of none, one pixel that is not known."""
    folder, _, Y, _ = setting
    values = 10.0 ** np.random.default_rng(4).uniform(-2, 2, Y.shape)
    values[..., 1] = 0.0
    values[1, 2, 3] = np.nan
    write_cube(folder / "w.hdr", values, "bil")
    return folder / "w.hdr", values


@pytest.mark.parametrize("method", ["nnls", "fcls", "pcls"])
def test_weights_of_a_cube(setting, weights, method):
    folder, E, Y, _ = setting
    path, values = weights
    noisy = (Y + 0.05 * np.random.default_rng(1).standard_normal(Y.shape)).astype(np.float32)
    report, found = run(folder, noisy, "o", weights=path, method=method)
    known = np.isfinite(values).all(axis=-1)
    assert report["certified"] and report["pixels"]["partly_nodata"] == 1
    assert all((one[~known] == -9999).all() for one in found.values())
    expected = unmix.solve(noisy[known].astype(float), E, method=method, weights=values[known]).abundances
    np.testing.assert_allclose(found["abundance"][known][:, : E.shape[1]], expected, atol=1e-6)
    if method == "nnls":
        for y, w, a in zip(noisy[known][:20], values[known][:20], found["abundance"][known][:20]):
            root = np.sqrt(w)
            np.testing.assert_allclose(a, lawson_hanson(E * root[:, None], y * root)[0], atol=1e-5)
    assert verify(folder / "o/x", everything=True).faults == []
    other = values.copy()
    other[0, 0, 0] *= 2
    write_cube(folder / "w.hdr", other, "bil")
    refused(unmix.CubeError, "is not the cube of weights that the run read", verify, folder / "o/x")


@pytest.mark.parametrize("method", ["nnls", "fcls", "pcls"])
@pytest.mark.parametrize("named", [False, True])
def test_allowed_endmembers(setting, method, named):
    folder, E, Y, _ = setting
    random, p = np.random.default_rng(2), E.shape[1]
    noisy = (Y + 0.05 * random.standard_normal(Y.shape)).astype(np.float32)
    may = random.random((LINES, SAMPLES, p)) < 0.6
    may[0, 0] = False
    stored = may.astype(np.uint8)
    stored[1, 1, 0] = 255
    fields = {"data_ignore_value": "255"}
    order = np.arange(p)
    if named:  # in another order, with a band more
        order = random.permutation(p)
        names = [f"e{j}" for j in order]
        stored = np.concatenate([stored[..., order], stored[..., :1]], axis=-1)
        stored[1, 1, -1] = 1
        fields["band_names"] = "{" + ", ".join([*names, "other"]) + "}"
    write_cube(folder / "may.hdr", stored, **fields)
    report, found = run(folder, noisy, "o", allowed=folder / "may.hdr", method=method)
    lost = np.zeros((LINES, SAMPLES), bool)
    lost[0, 0] = lost[1, 1] = True
    assert report["certified"] and report["pixels"]["partly_nodata"] == 2
    assert (found["abundance"][lost] == -9999).all() and (found["abundance"][~lost][:, :p][~may[~lost]] == 0).all()
    expected = unmix.solve(noisy[~lost].astype(float), E, method=method, allowed=may[~lost]).abundances
    np.testing.assert_allclose(found["abundance"][~lost][:, :p], expected, atol=1e-6)
    verify_tells(folder / "o/x", "abundance", LINES, lambda values: np.multiply(values, 1.001, out=values), fault="")


@pytest.fixture
def counts(setting):
    """Spectra of counts, a background and pixels: one negative, one with counts where nothing has any, one without any."""
    folder, E, *_ = setting
    random = np.random.default_rng(3)
    spectra = 40.0 * np.abs(E)
    spectra[2] = 0.0
    background = random.random(len(E)) * 20
    background[2] = 0.0
    X = random.random((LINES, SAMPLES, E.shape[1])) * (random.random((LINES, SAMPLES, E.shape[1])) < 0.7)
    values = random.poisson(X @ spectra.T + background).astype(np.int16)
    values[0, 0, 0] = -1
    values[0, 1, 2] = 3
    values[0, 2] = 0
    write_csv(folder / "library.csv", spectra)
    (folder / "b.txt").write_text("".join(f"{one!r}\n" for one in background.tolist()))
    return folder, spectra, background, values


def test_counts(counts):
    folder, E, background, values = counts
    report, found = run(folder, values, "o", likelihood="poisson", background=folder / "b.txt")
    assert report["certified"] and report["pixels"]["partly_nodata"] == 2
    good = np.ones((LINES, SAMPLES), bool)
    good[0, :2] = False
    assert (found["abundance"][~good] == -9999).all() and (found["abundance"][0, 2] == 0).all()
    answer = unmix.poisson(values[good], E, background=background)
    np.testing.assert_allclose(found["abundance"][good], answer.x, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        found["residual"][good], values[good] - background - answer.x @ E.T, rtol=1e-5, atol=1e-4
    )
    np.testing.assert_allclose(
        found["rmse"][good][:, 0],
        np.sqrt(np.square(values[good] - background - answer.x @ E.T).mean(axis=1)),
        rtol=1e-5,
    )
    assert (found["certificate"][good][:, 0] <= 1e-10).all() and (found["certificate"][good][:, 1] <= 1e-4).all()


def test_what_is_sampled_is_without_the_background(counts):
    """The residual of each band, and what a run says of its fit."""
    folder, E, background, _ = counts
    random = np.random.default_rng(7)
    X = random.random((40, 30, E.shape[1])) * 20
    peak = background + 2000.0 * (np.arange(len(E)) == 4)
    (folder / "b.txt").write_text("".join(f"{one!r}\n" for one in peak.tolist()))
    report, found = run(
        folder, random.poisson(X @ E.T + peak).astype(np.int32), "o", likelihood="poisson", background=folder / "b.txt"
    )
    left = found["residual"].reshape(-1, len(E)).astype(float)
    np.testing.assert_allclose(report["residual_by_band"]["mean"], left.mean(axis=0), atol=0.2 * left.std())
    assert not any("band" in text or "in common" in text for text in report["warnings"])


def test_zeros_of_the_scene_are_none_of_cubes_beside_it(setting):
    """`nodata` 0 of the scene does not make endmembers that are not allowed unknown."""
    folder, E, Y, _ = setting
    may = np.random.default_rng(2).random((LINES, SAMPLES, E.shape[1])) < 0.6
    may[..., 0] = True
    write_cube(folder / "may.hdr", may.astype(np.uint8))
    report, found = run(folder, Y.astype(np.float32), "o", allowed=folder / "may.hdr", nodata=0)
    assert report["pixels"]["solved"] == LINES * SAMPLES and (found["abundance"][~may] == 0).all()
    names = [f"e{j}" for j in range(E.shape[1])]
    write_cube(folder / "may.hdr", may.astype(np.uint8), band_names="{" + ", ".join(["E0", *names[1:]]) + "}")
    np.testing.assert_array_equal(
        run(folder, Y.astype(np.float32), "p", allowed=folder / "may.hdr")[1]["abundance"], found["abundance"]
    )
    write_cube(folder / "may.hdr", may.astype(np.uint8), band_names="{" + ", ".join(["x", *names[1:]]) + "}")
    with pytest.raises(unmix.CubeError, match="has bands of some names of endmembers, but none of e0"):
        run(folder, Y.astype(np.float32), "q", allowed=folder / "may.hdr")


def test_weights_that_differ_too_much_are_no_weights(setting):
    folder, _, Y, _ = setting
    values = np.ones(Y.shape)
    values[1, 1, 0], values[0, 0, 0] = 1e30, 1e16
    write_cube(folder / "w.hdr", values)
    report, found = run(folder, Y.astype(np.float32), "o", weights=folder / "w.hdr")
    assert report["pixels"]["partly_nodata"] == 1 and (found["abundance"][1, 1] == -9999).all()
    assert verify(folder / "o/x", everything=True).faults == []


def test_counts_beside_a_large_background(counts):
    """`verify` agrees where the curvature is small."""
    folder, E, _, _ = counts
    background = np.full(len(E), 1e7)
    (folder / "b.txt").write_text("".join(f"{one!r}\n" for one in background.tolist()))
    values = np.random.default_rng(1).poisson(
        np.random.default_rng(0).random((LINES, SAMPLES, E.shape[1])) * 50 @ E.T + background
    )
    run(folder, values.astype(np.int32), "o", likelihood="poisson", background=folder / "b.txt", scale=1)
    assert verify(folder / "o/x", everything=True).faults == []


def test_names_of_scenes(counts, weights):
    """{stem} in the name of a cube; one cube for two scenes is refused."""
    folder, _, _, values = counts
    for stem in ("a", "b"):
        write_cube(folder / f"{stem}.hdr", np.abs(values))
        write_cube(folder / f"{stem}_w.hdr", np.ones(values.shape, np.float32))
    common = ["run", folder / "a.hdr", folder / "b.hdr", "-e", folder / "library.csv", "--method", "nnls"]
    common += ["--device", "cpu"]
    command(*common, "--weights", f"{folder}/{{stem}}_w.hdr", "-o", folder / "o")
    assert "name one for each" in command(*common, "--weights", folder / "a_w.hdr", "-o", folder / "p", code=2)[1]


@pytest.fixture
def noisy(setting, noise_cube):
    """A scene with the noise of `noise_cube`."""
    _, _, Y, _ = setting
    return (Y + np.nan_to_num(noise_cube[1]) * np.random.default_rng(2).standard_normal(Y.shape)).astype(np.float32)


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
def test_each_is_weighed_as_if_all_had_its_noise(setting, noise_cube, noisy, words):
    folder, *_ = setting
    path, noise = noise_cube
    report, found = run(folder, noisy, "each", weights="noise", noise=path, **words)
    known = np.isfinite(noise).all(axis=-1)
    assert report["certified"] and report["pixels"]["solved"] == known.sum()
    assert report["pixels"]["partly_nodata"] == (~known).sum()
    assert all((values[~known] == -9999).all() for values in found.values())
    assert (found["certificate"][known][:, 0] <= 1e-10).all()
    for line, sample in ((0, 0), (1, 2), (2, 1), (LINES - 1, SAMPLES - 1)):
        (folder / "one.csv").write_text("".join(f"{v!r}\n" for v in noise[line, sample].tolist()))
        _, expected = run(folder, noisy, "all", weights="noise", noise=folder / "one.csv", **words)
        for name in {"abundance", "rmse", "residual", "unweighted", *expected} - {"range", "certificate"}:
            np.testing.assert_allclose(
                found[name][line, sample], expected[name][line, sample], rtol=2e-5, atol=2e-6, err_msg=name
            )
        if "range" in expected:
            # The limit is simulated for the mean noise of all pixels, which moves ends by parts of a width.
            ends = expected["range"][line, sample].reshape(-1, 2)
            off = np.abs(found["range"][line, sample].reshape(-1, 2) - ends)
            assert np.all(off <= 2e-5 + 0.005 * np.ptp(ends, axis=1, keepdims=True))
    assert verify(folder / "each/x", everything=True).faults == []


def test_weights_of_noise_where_abundances_are_not_unique(setting, noise_cube, noisy):
    """Two equal spectra: what was written and scipy's answer may be other mixtures, as good."""
    folder, E, *_ = setting
    write_csv(folder / "twice.csv", np.column_stack([E, E[:, 0]]))
    cube = write_cube(folder / "x.hdr", noisy)
    how = {"endmembers": folder / "twice.csv"}
    unmix.run(cube, method="nnls", device="cpu", weights="noise", noise=noise_cube[0], out_dir=folder / "t", **how)
    assert verify(folder / "t/x", everything=True).faults == []
