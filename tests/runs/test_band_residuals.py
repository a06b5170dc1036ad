"""What a run says of the residual of each band, against the map of residuals."""

import numpy as np
import pytest
from conftest import cut_off, mix, write_csv, write_cube

import unmix
from unmix.library import load
from unmix.runs import stream
from unmix.runs.files import journal

LINES, SAMPLES, L, P = 9, 11, 20, 4
ORDERS = {"bip": (0, 1, 2), "bil": (0, 2, 1), "bsq": (2, 0, 1)}


def made(folder, interleave="bip", water=False, bad=None, lines=LINES):
    """Write a scene of mixtures with noise and a pixel without data, and its library; return their paths."""
    random, E, Y = mix(3, (lines, SAMPLES), L, P)
    Y = Y + random.normal(0, 0.02, (lines, SAMPLES, L))
    waves = np.linspace(1000, 2200, L)
    if water:
        Y[:, :, (waves >= 1310) & (waves <= 1490)] = random.uniform(-3, 3, (lines, SAMPLES, 3))
    if bad is not None:
        Y[:, :, bad] += random.normal(0, 1, (lines, SAMPLES))
    Y[2, 3] = -9999
    path = folder / "s.hdr"
    Y.transpose(ORDERS[interleave]).astype("<f4").tofile(folder / "s.img")
    path.write_text(
        f"ENVI\nsamples = {SAMPLES}\nlines = {lines}\nbands = {L}\ndata type = 4\ninterleave = {interleave}\nbyte "
        "order = 0\n"
        f"data ignore value = -9999\nwavelength units = Nanometers\nwavelength = {{{', '.join(map(str, waves))}}}\n"
    )
    write_csv(folder / "e.csv", E, waves)
    return path, folder / "e.csv"


def residuals(out):
    """Return the map of residuals, (pixels, L), of the pixels that are solved."""
    path = next(path for path in out.glob("s_residual*") if path.suffix != ".hdr")
    R = np.fromfile(path, "<f4").reshape(LINES, -1, SAMPLES).transpose(0, 2, 1).reshape(LINES * SAMPLES, -1)
    return R[(R != -9999).all(axis=1)].astype(float)


OPTIONS = [
    {"method": "nnls"},
    {"method": "fcls"},
    {"method": "pcls"},
    {"method": "nnls", "l1": 0.01},
    {"method": "fcls", "top": 2},
    {"method": "fcls", "bands": "2-9,12"},
    {"method": "fcls", "weights": "w.txt"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_the_map(tmp_path, options, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savetxt("w.txt", np.linspace(0.5, 2, L))
    scene, library = made(tmp_path)
    report = unmix.run(scene, endmembers=library, out_dir=tmp_path / "out", residual=True, **options)
    found, R = report["residual_by_band"], residuals(tmp_path / "out")
    assert found["pixels"] == len(R) == LINES * SAMPLES - 1
    np.testing.assert_allclose(found["rms"], np.sqrt(np.square(R).mean(axis=0)), rtol=1e-4)
    np.testing.assert_allclose(found["mean"], R.mean(axis=0), atol=1e-5)


def by_hand(folder, tie=None, name="abundance", interleave="bip", step=None):
    """Return RMS and mean of y − E a, and RMS of y, of each band, from the scene and the written endmembers and abundances alone."""
    E = load(folder / "out/s_endmembers.csv").matrix
    A = np.fromfile(folder / f"out/s_{name}.img", "<f4" if step is None else "<u2").reshape(LINES, -1, SAMPLES)
    A = A.transpose(0, 2, 1)[..., : E.shape[1]].astype(float) * (step or 1.0)
    order = ORDERS[interleave]
    stored = np.fromfile(folder / "s.img", "<f4").reshape([(LINES, SAMPLES, L)[axis] for axis in order])
    Y = stored.transpose(np.argsort(order)).astype(float)
    solved = Y[..., 0] != -9999
    if tie is not None:  # the bands of a window less its first one, which is gone
        E = np.vstack([E[: tie.start], E[tie][1:] - E[tie][0], E[tie.stop :]])
        Y = np.concatenate(
            [Y[..., : tie.start], Y[..., tie][..., 1:] - Y[..., tie][..., :1], Y[..., tie.stop :]], axis=-1
        )
    R = (Y - A @ E.T)[solved]
    return np.sqrt(np.square(R).mean(axis=0)), R.mean(axis=0), np.sqrt(np.square(Y[solved]).mean(axis=0))


def mean_of_rmse(folder):
    """Return the mean of the map of RMSE."""
    rmse = np.fromfile(folder / "out/s_rmse.img", "<f4").astype(float)
    return rmse[rmse != -9999].mean()


def compare(found, expected):
    """The record's residuals of bands are these."""
    assert found["pixels"] == LINES * SAMPLES - 1
    for name, values, near in zip(
        ("rms", "mean", "rms_of_scene"), expected, ({"rtol": 1e-4}, {"atol": 1e-5}, {"rtol": 1e-4})
    ):
        np.testing.assert_allclose(found[name], values, **near)


WAYS = {
    "mesma": {"method": "mesma", "classes": "name"},
    "mesma with limits": {"method": "mesma", "classes": "name", "limits": "viper", "levels": "2", "max_rmse": 1.0},
    "tie": {"method": "nnls", "tie": "1100-1500"},
    "rows": {"method": "nnls", "rows": 2},
    "fractions": {"method": "fcls", "by": "class", "classes": "name", "uncertainty": True},
}


@pytest.mark.parametrize("way", [pytest.param(way, marks=[pytest.mark.slow] * ("mesma" in way)) for way in WAYS])
def test_equals_scene_less_maps_times_endmembers(tmp_path, way):
    scene, library = made(tmp_path)
    report = unmix.run(scene, endmembers=library, out_dir=tmp_path / "out", **WAYS[way])
    assert report["fit"]["mean_rmse"] == pytest.approx(mean_of_rmse(tmp_path), rel=1e-5)
    name = "fraction" if "mesma" in way else "abundance"
    compare(report["residual_by_band"], by_hand(tmp_path, slice(2, 8) if way == "tie" else None, name))


@pytest.mark.sim
@pytest.mark.parametrize(
    ("interleave", "options"),
    [
        ("bip", {"method": "nnls"}),
        ("bil", {"method": "fcls", "quantize": 1e-4}),
        ("bsq", {"method": "nnls", "l1": 0.01}),
    ],
    ids=str,
)
def test_equals_the_maps_of_every_device(tmp_path, device, interleave, options):
    """Of the fast path of a GPU, and with integers that it makes."""
    scene, library = made(tmp_path, interleave)
    report = unmix.run(scene, endmembers=library, out_dir=tmp_path / "out", device=device, **options)
    assert report["fit"]["mean_rmse"] == pytest.approx(mean_of_rmse(tmp_path), rel=1e-5)
    compare(report["residual_by_band"], by_hand(tmp_path, interleave=interleave, step=options.get("quantize")))


def test_a_run_that_was_cut_off_has_those_of_the_whole(tmp_path, monkeypatch):
    """The scene is larger than what is looked at as a whole, and is cut off twice, within the lines that are looked at."""
    scene, library = made(tmp_path, lines=500)
    how = {"endmembers": library, "method": "nnls", "memory": "150K", "threads": 1}
    whole = unmix.run(scene, out_dir=tmp_path / "whole", **how)
    monkeypatch.setattr(journal, "FLUSH_SECONDS", 0.0)
    for line in (100, 300):
        cut_off(scene, line, StopIteration, out_dir=tmp_path / "cut", **how)
    report = unmix.run(scene, out_dir=tmp_path / "cut", **how)
    assert 300 <= report["resumed_from"] < 500
    assert report["residual_by_band"] == whole["residual_by_band"]
    assert 0 < whole["residual_by_band"]["pixels"] < 500 * SAMPLES


def test_nmf_says_nothing_of_bands(tmp_path):
    """Its record has no residuals of bands: their squares are what it minimises, and its page draws none."""
    scene, _ = made(tmp_path)
    assert "residual_by_band" not in unmix.nmf_scene(scene, count=3, out_dir=tmp_path / "out", steps=20)


def test_steps_of_abundances_change_little(tmp_path):
    scene, library = made(tmp_path)
    plain = unmix.run(scene, method="fcls", endmembers=library, out_dir=tmp_path / "a")["residual_by_band"]
    steps = unmix.run(scene, method="fcls", endmembers=library, out_dir=tmp_path / "b", quantize=1e-3)[
        "residual_by_band"
    ]
    assert plain != steps
    np.testing.assert_allclose(plain["rms"], steps["rms"], rtol=2e-2)


def test_the_report_draws_them(tmp_path):
    scene, library = made(tmp_path)
    unmix.run(scene, endmembers=library, out_dir=tmp_path / "out")
    page = unmix.report(tmp_path / "out/s").read_text()
    assert page.count("Residual of each band") == 1 and 'aria-label="residual of each band"' in page


def test_fractions_leave_the_residuals_as_they_are(tmp_path):
    scene, library = made(tmp_path)
    plain, fractions = (
        unmix.run(scene, endmembers=library, out_dir=tmp_path / how, method="nnls", normalize=how)["residual_by_band"]
        for how in ("none", "length")
    )
    assert plain == fractions


def test_a_sample_depends_on_no_thread(tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "MOST_WHOLE", 30)
    monkeypatch.setattr(stream, "FEWEST_LINES", 5)
    monkeypatch.setattr(stream, "MOST_OF_LINE", 6)
    scene, library = made(tmp_path)
    found = [
        unmix.run(scene, endmembers=library, out_dir=tmp_path / str(threads), threads=threads)["residual_by_band"]
        for threads in (1, 2)
    ]
    assert found[0] == found[1] and 20 <= found[0]["pixels"] <= 30
    for lines, samples in ((100, 100), (1000, 614), (7, 1)):
        between_lines, between = stream.strides_of(lines, samples)
        assert 1 <= between_lines <= lines and 1 <= between <= samples


def test_water_is_named(tmp_path):
    for water in (True, False):
        scene, library = made(tmp_path, water=water)
        report = unmix.run(scene, endmembers=library, out_dir=tmp_path / "out", overwrite=True)
        assert any("`ignore_nm` water" in text for text in report["warnings"]) == water
        said = [finding["message"] for finding in unmix.check(scene, library)["findings"]]
        assert any("`ignore_nm` water" in text for text in said) == water


@pytest.mark.real
@pytest.mark.parametrize(("name", "is_wet"), [("neon_aop/neonhs_ex.h5", True), ("jasper/jasper.hdr", False)])
def test_water_of_real_scenes(data, tmp_path, name, is_wet):
    warnings = unmix.run(data / name, out_dir=tmp_path, count=4)["warnings"]
    assert any("`ignore_nm` water" in text for text in warnings) == is_wet
    assert not any("its neighbours'" in text for text in warnings)


def test_a_band_that_stands_out_is_named(tmp_path):
    scene, library = made(tmp_path, bad=4)
    warnings = unmix.run(scene, endmembers=library, out_dir=tmp_path / "out")["warnings"]
    flag = next(text for text in warnings if "its neighbours'" in text).split("`ignore_nm` ")[1]
    assert flag == "1252.622-1252.642"
    assert (
        unmix.run(scene, endmembers=library, out_dir=tmp_path / "b", ignore_nm=flag)["residual_by_band"]["pixels"] == 98
    )


@pytest.mark.parametrize(("snr", "missing", "is_noise"), [(15, 0, True), (15, 2, False), (60, 2, False)])
@pytest.mark.parametrize(
    "words",
    [{"method": "nnls"}, {"method": "fcls"}, pytest.param({"method": "fcls", "tv": 0.001}, marks=pytest.mark.slow)],
    ids=str,
)
def test_what_is_noise_is_called_noise(tmp_path, snr, missing, is_noise, words):
    """Of a scene of smooth spectra, with all of its endmembers or without the brightest; noise alone is no reason for others."""
    random = np.random.default_rng(7)
    x = np.linspace(0, 1, 60)[:, None]
    E = 0.1 + 0.4 * np.abs(np.sin((2 + 3 * np.arange(5)) * x + np.arange(5))) + 0.5 * (np.arange(5) == 4) * (x > 0.5)
    Y = random.dirichlet(np.ones(5), (40, 40)) @ E.T
    Y += np.sqrt(np.square(Y).mean() / 10 ** (snr / 10)) * random.standard_normal(Y.shape)
    report = unmix.run(
        write_cube(tmp_path / "x.hdr", Y.astype(np.float32)),
        endmembers=write_csv(tmp_path / "e.csv", E[:, : 5 - missing]),
        device="cpu",
        browse=False,
        **words,
    )
    words = "fitted poorly", "the fit is poor", ": noise, which neighbours do not share"
    (said,) = [one for one in report["warnings"] if any(word in one for word in words)]
    assert (words[-1] in said) is is_noise
