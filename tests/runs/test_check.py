"""`unmix check`: what it calls unsound, a run refuses or masks; what it calls sound, a run does."""

import gzip
import json
import re

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import mix, refused, write_csv, write_cube
from test_cli import unmix as command
from unmix_cli.main import cli

import unmix
from unmix.runs.record.judgement import SumCost
from unmix.runs.sum_to_one import cost_of_sum

WAVES = np.linspace(450.0, 2300.0, 12)
E = np.stack([0.4 + 0.3 * np.sin(WAVES / 300 + k) for k in range(3)], axis=1)


def scene_of(folder, change=None, **fields):
    """A cube of 30 x 20 pixels of three endmembers, changed."""
    random = np.random.default_rng(0)
    Y = (random.dirichlet(np.ones(3), (30, 20)) @ E.T + 0.002 * random.standard_normal((30, 20, 12))).astype(np.float32)
    if change is not None:
        change(Y)
    axis = {"wavelength": "{" + ", ".join(map(repr, WAVES.tolist())) + "}", "wavelength_units": "nm"}
    return write_cube(folder / "c.hdr", Y, data_ignore_value=-9999, **axis | fields)


def dead(Y):
    Y[..., 3] = -9999


def constant(Y):
    Y[..., 3] = 0.25


def bright(Y):
    Y[..., 3] += 30


def all_masked(Y):
    Y[:] = -9999


def holes(Y):
    Y[:5, :, 7] = np.nan


def in_ten_thousands(Y):
    Y *= 10000


INVERSE, MIXED = {"solver": "inverse"}, np.column_stack([E, E[:, :2].mean(axis=1)])
# What is wrong, how the scene is changed, the library, other options; severity and subject of the finding; what a run
# says.
CASES = {
    "nothing": (None, E, {}, None, None),
    "a dead band": (dead, E, {}, ("error", "bands", "1 band in use is dead on the sample: 4"), "pixels are masked"),
    "without the dead band": (dead, E, {"bands": "auto"}, None, None),
    "a constant band": (constant, E, {}, ("warning", "bands", "constant on the sample: 4"), None),
    "a band too bright": (bright, E, {}, ("warning", "bands", "out of physical range on the sample: 4"), None),
    "all masked": (all_masked, E, {}, ("error", "nodata", "100.0 % of 600 pixels"), "pixels are masked"),
    "holes": (holes, E, {}, ("warning", "nodata", "16.7 % of the others miss a band in use"), None),
    "another scale": (
        in_ten_thousands,
        E,
        {},
        ("error", "scale", "times as large as the endmembers"),
        "times as large",
    ),
    "that scale": (in_ten_thousands, E, {"scale": 10000.0}, None, None),
    "too many": (
        None,
        np.tile(E, 5),
        INVERSE,
        ("error", "endmembers", "15 endmembers for 12 bands"),
        "15 endmembers for 1",
    ),
    "collinear": (None, MIXED, INVERSE, ("error", "endmembers", "nearly collinear"), "collinear"),
    "the same": (None, np.column_stack([E, E[:, 0]]), INVERSE, ("warning", "library", "em 1 = em 4"), "collinear"),
    "memory": (None, E, {"memory": 100}, ("error", "memory", "one line of this scene needs"), "too small"),
}


@pytest.mark.parametrize("what", list(CASES))
def test_what_is_found_is_what_a_run_meets(tmp_path, what):
    change, library, options, finding, said = CASES[what]
    path, csv = scene_of(tmp_path, change), write_csv(tmp_path / "e.csv", library, WAVES)
    found = unmix.check(path, csv, **options)
    errors = [one for one in found["findings"] if one["severity"] == "error"]
    if finding is None:
        assert found["sound"] and not any(one["severity"] == "warning" for one in found["findings"])
    else:
        listed = [one for one in found["findings"] if (one["severity"], one["about"]) == finding[:2]]
        assert any(finding[2] in one["message"] for one in listed), found["findings"]
    assert found["sound"] == (said is None) == (not errors)
    if said is None:
        report = unmix.run(path, endmembers=csv, device="cpu", **options)
        assert report["bands_used"] and report["pixels"]["solved"] > 0
        assert report["condition"] == found["condition"]
        assert found["bytes_to_read"] == 30 * 20 * 12 * 4 and found["seconds_to_solve"] > 0
    else:
        refused(unmix.UnmixError, said, unmix.run, path, endmembers=csv, device="cpu", **options)


def test_models_are_not_checked(tmp_path):
    with pytest.raises(unmix.MethodError, match="are chosen by `unmix mesma`"):
        unmix.check(scene_of(tmp_path), write_csv(tmp_path / "e.csv", E, WAVES), method="mesma")


def test_a_library_that_does_not_reach(tmp_path):
    path, csv = scene_of(tmp_path), write_csv(tmp_path / "e.csv", E, WAVES - 200)
    found = unmix.check(path, csv)
    assert (
        not found["sound"] and "covers 250 to 2100 nm, and not 2131.82 to 2300 nm" in found["findings"][-2]["message"]
    )
    assert unmix.check(path, csv, ignore_nm="2101-2500")["sound"]


def test_without_a_library_and_without_wavelengths(tmp_path):
    write_cube(tmp_path / "n.hdr", np.random.default_rng(0).random((4, 4, 5)))
    found = unmix.check(tmp_path / "n.hdr")
    assert found["sound"] and found["passes"] == 3
    assert {"wavelengths", "endmembers", "cost"} <= {one["about"] for one in found["findings"]}


def test_odd_units(tmp_path):
    found = unmix.check(scene_of(tmp_path, wavelength_units="Micrometers"))
    assert "units?" in " ".join(one["message"] for one in found["findings"] if one["severity"] == "warning")


def test_the_command(tmp_path):
    run = CliRunner().invoke
    path = str(scene_of(tmp_path))
    csv = str(write_csv(tmp_path / "e.csv", E, WAVES))
    good = run(cli, ["check", path, "-e", csv], standalone_mode=False)
    assert good.return_value == 0 and good.stdout.rstrip().endswith("sound") and "cond(E)" in good.stdout
    assert run(cli, ["check", path, "-e", csv, "-q"], standalone_mode=False).stdout == f"{path}: sound\n"
    scene_of(tmp_path, dead)
    bad = run(cli, ["check", path, "-e", csv, "--json"], standalone_mode=False)
    assert bad.return_value == 3 and json.loads(bad.stdout)["faulty_bands"]["dead"] == [4]
    assert not list(tmp_path.glob("*abundance*"))


@pytest.mark.real
def test_real_scenes(data):
    """Twenty bands of NaN; EnMAP's dead bands, which its bbl knows; Jasper with its own library."""
    salton = unmix.check(data / "salton_sea/salton_sea_roi.mat", bands="all")
    assert not salton["sound"] and len(salton["faulty_bands"]["dead"]) == 20
    assert unmix.check(data / "salton_sea/salton_sea_roi.mat")["sound"]
    tile = data / "enmap_tiles/enmap_potsdam_tile_128_0.tif"
    assert unmix.check(tile, bands="all")["faulty_bands"]["dead"] == [130, 131, 132, 133, 134, 135]
    assert unmix.check(tile, data / "libraries", select="asphalt*,lichen")["sound"]
    assert unmix.check(data / "jasper/jasper.hdr", data / "jasper/jasper_truth_endmembers.csv", scale=5000)["sound"]


def test_too_many_endmembers_for_the_bands_or_the_pixels(tmp_path):
    random, E, Y = mix(0, 70, 100, 70, (0.1, 1.1))
    cube = write_cube(tmp_path / "c.hdr", Y.reshape(7, 10, 100).astype(np.float32))
    found = unmix.check(cube, write_csv(tmp_path / "all.csv", E))
    assert any("70 endmembers for 70 pixels" in one["message"] for one in found["findings"])
    cube = write_cube(
        tmp_path / "d.hdr", (random.dirichlet(np.ones(5), 700) @ E[:6, :5].T).reshape(70, 10, 6).astype(np.float32)
    )
    found = unmix.check(cube, write_csv(tmp_path / "few.csv", E[:6, :5]))
    assert any("5 endmembers for 6 bands" in one["message"] for one in found["findings"])
    found = unmix.check(cube, write_csv(tmp_path / "three.csv", E[:6, :3]))
    assert not any("endmembers for" in one["message"] for one in found["findings"])


def bright_scene(folder, brightness, missing=False):
    """Mixtures of three spectra whose brightness varies by a factor, written with two or three of the spectra as the library."""
    random = np.random.default_rng(2)
    factors = random.uniform(1 - brightness, 1 + 2 * brightness, (30, 20, 1))
    Y = factors * (random.dirichlet(np.ones(3), (30, 20)) @ E.T) + 0.001 * random.standard_normal((30, 20, 12))
    write_csv(folder / "e.csv", E[:, : 3 - missing], WAVES)
    axis = {"wavelength": "{" + ", ".join(map(repr, WAVES.tolist())) + "}", "wavelength_units": "nm"}
    return write_cube(folder / "b.hdr", Y, **axis), Y.reshape(-1, 12)


@pytest.mark.parametrize(
    ("brightness", "missing", "hurts"), [(0.5, False, True), (0.05, True, False), (0.0, False, None)]
)
@pytest.mark.parametrize("method", ["fcls", "pcls"])
def test_what_the_sum_to_one_costs_is_tested(tmp_path, brightness, missing, hurts, method):
    """Named with both misfits and the method to type where it costs much; not offered where nothing would come of it."""
    path, Y = bright_scene(tmp_path, brightness, missing)
    used = E[:, : 3 - missing]
    report = unmix.run(path, endmembers=tmp_path / "e.csv", method=method, device="cpu", overwrite=True)
    findings = unmix.check(path, tmp_path / "e.csv", method=method)["findings"]
    size = np.linalg.norm(Y, axis=1)
    misfits = {
        name: np.linalg.norm(Y - unmix.solve(Y, used, method=name).abundances @ used.T, axis=1) / size
        for name in (method, "nnls")
    }
    for sentences in (report["warnings"], [one["message"] for one in findings if one["about"] == "fit"]):
        bound = "sum of at most one" if method == "pcls" else "sum to one"
        said = [text for text in sentences if f"the {bound} costs much of the fit" in text]
        assert len(said) == (hurts is True)
        assert ("nnls" in " ".join(sentences)) == (hurts is True)
        if said:
            what, *shares = re.search(r": (median misfit|poor pixels) (\S+) %, (\S+) % without", said[0]).groups()
            held, without = (float(part) / 100 for part in shares)
            count = np.median if what == "median misfit" else lambda misfit: np.mean(misfit > 0.1)
            assert without == pytest.approx(count(misfits["nnls"]), rel=0.3, abs=0.01)
            assert held == pytest.approx(
                count(misfits[method]), rel=0.4
            )  # of 400 of the pixels, whose misfits differ much
            assert without < 0.75 * held


def test_a_free_sum_that_fits_a_little_better_is_no_advice():
    """Mixtures that do sum to one, of six spectra of which three are known: their misfit falls from 4.5 % to 4.5 %."""
    assert not SumCost(336, 0.0452, 0.0449, 0.045, 0.030).hurts
    assert SumCost(384, 0.029, 0.025, 0.099, 0.031).hurts and SumCost(400, 0.11, 0.054, 0.55, 0.03).hurts


def test_both_misfits_are_those_of_the_solvers():
    """The heavy band gives the optimum with the sum to one to four digits; zero pixels and pixels beyond float64 say nothing."""
    random = np.random.default_rng(3)
    for scale in (1e-3, 1.0, 1e4):
        Y = scale * np.abs(random.dirichlet(np.ones(3), 300) @ E.T + 0.1 * random.standard_normal((300, 12)))
        found = cost_of_sum(Y, scale * E)
        misfits = [
            np.linalg.norm(Y - scale * unmix.solve(Y, scale * E, method=name).abundances @ E.T, axis=1)
            / np.linalg.norm(Y, axis=1)
            for name in ("fcls", "nnls")
        ]
        assert found.pixels == 300
        np.testing.assert_allclose([found.median, found.median_without], np.median(misfits, axis=1), rtol=1e-4)
        np.testing.assert_allclose([found.poor, found.poor_without], [np.mean(m > 0.1) for m in misfits], atol=0.004)
    assert cost_of_sum(np.ones((5, 12)), np.zeros((12, 2))) is None and cost_of_sum(np.full((5, 12), 1e200), E) is None
    with np.errstate(all="raise"):
        assert cost_of_sum(1e-160 * Y, 1e-160 * 1e4 * E).median == pytest.approx(found.median, rel=1e-6)
    assert cost_of_sum(np.zeros((5, 12)), E) is None and cost_of_sum(np.empty((0, 12)), E) is None


def test_the_memory_that_is_said(tmp_path, monkeypatch):
    """Inflating takes memory, too; a container's limit, and a TMPDIR that is none, are said."""
    scene, library = tmp_path / "x.hdr", tmp_path / "e.csv"
    E = np.random.default_rng(1).random((12, 3)) + 0.1
    write_cube(scene, np.random.default_rng(2).dirichlet(np.ones(3), (9, 9)) @ E.T)
    write_csv(library, E)
    packed = tmp_path / "p.hdr"
    packed.write_text(scene.read_text() + "file compression = 1\n")
    (tmp_path / "p.img").write_bytes(gzip.compress((tmp_path / "x.img").read_bytes()))
    for path, words in ((scene, {}), (scene, {"endmembers": library}), (packed, {"endmembers": library})):
        found = unmix.check(path, **words)
        (cost,) = [one["message"] for one in found["findings"] if one["about"] == "cost"]
        assert ("the search takes about" in cost) == bool(words) and "MiB of memory" in cost
        assert (found["memory_expected"] > 400 * 2**20) == ("is inflated to" in cost) == (path == packed)
    monkeypatch.setattr("unmix.runs.record.memory.group_limit", lambda: 300 * 2**20)
    for path in (scene, packed):
        said = command("check", path, "-e", library)[0], command("run", path, "-e", library, "--dry-run")[0]
        assert all(("more than the limit of 300 MiB" in one) == (path == packed) for one in said)
        assert ("lower --memory" in said[0]) == (path == packed)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    assert "none: is no folder that can be written" in command("run", packed, "-e", library)[1]


def test_what_a_mask_takes_away_is_no_missing_value(tmp_path):
    """Masked pixels, and pixels without a value, each by its own share; a scene with a warning is not called sound."""
    random, scene = np.random.default_rng(1), tmp_path / "x.hdr"
    E = random.random((12, 3)) + 0.1
    Y = random.dirichlet(np.ones(3), (10, 10)) @ E.T
    Y[0] = np.nan
    write_cube(scene, Y)
    write_csv(tmp_path / "e.csv", E)
    write_cube(tmp_path / "m.hdr", np.repeat((np.arange(10) >= 6).astype(np.uint8)[:, None, None], 10, axis=1))
    found = unmix.check(scene, tmp_path / "e.csv", mask=str(tmp_path / "m.hdr"))["findings"]
    said = {one["about"]: one["message"] for one in found}
    assert said["mask"].startswith("50.0 % of 100 pixels") and said["nodata"].startswith("10.0 % of 100 pixels")
    assert not any("mark what to leave out" in one["message"] for one in found)  # of a good fit
    words = ["check", str(scene), "-e", str(tmp_path / "e.csv")]
    out = CliRunner().invoke(cli, [*words, "--mask", str(tmp_path / "m.hdr")]).output
    assert re.search(r"x.hdr: a run would work; read the [12] warnings? first$", out.splitlines()[-1])
    out = CliRunner().invoke(cli, words).output
    assert "x.hdr: sound" not in out and "nnls, as of a run without --method" in out


def test_values_on_both_sides_of_zero_are_found_without_a_library(tmp_path):
    Y = np.random.default_rng(2).standard_normal((9, 9, 12))
    found = unmix.check(write_cube(tmp_path / "x.hdr", Y))["findings"]
    assert any("both sides of 0" in one["message"] for one in found)
    found = unmix.check(write_cube(tmp_path / "x.hdr", np.abs(Y)))["findings"]
    assert not any("both sides of 0" in one["message"] for one in found)


@pytest.mark.parametrize(
    ("method", "solver", "advice"),
    [
        ("ucls", None, "use fewer, or `method` nnls or fcls"),
        ("scls", None, "use fewer, or `method` nnls or fcls"),
        ("nnls", "inverse", "use fewer, or `solver` active-set"),
        ("fcls", "delete-only", "use fewer, or `solver` active-set"),
    ],
)
@pytest.mark.parametrize("alike", [False, True])
def test_advice_on_too_many_spectra_works(tmp_path, method, solver, advice, alike):
    """More spectra than bands, or two that are one: what the message says to use is not refused in its turn."""
    E = np.random.default_rng(1).random((4, 3 if alike else 6)) + 0.1
    E = np.column_stack([E[:, :2], E[:, 0] * (1 + 1e-12)]) if alike else E
    scene = write_cube(tmp_path / "x.hdr", np.random.default_rng(2).dirichlet(np.ones(E.shape[1]), (9, 9)) @ E.T)
    library = write_csv(tmp_path / "e.csv", E)
    error = refused(unmix.LibraryError, None, unmix.run, scene, endmembers=library, method=method, solver=solver)
    words = advice.replace("use fewer", "leave one of them out") if alike else advice
    assert words.split(", or ")[1] in str(error.value)
    if not alike:
        messages = [one["message"] for one in unmix.check(scene, library, method=method, solver=solver)["findings"]]
        assert any(advice in message for message in messages)
    kind, name = re.search(r"`(method|solver)` ([a-z-]+)", str(error.value)).groups()
    unmix.run(scene, endmembers=library, **({"method": method} | {kind: name}))


@pytest.mark.parametrize(
    ("factor", "is_black"), [(1e-6, True), (1e-4, True), (0.02, False), (30.0, False), (1.0, False)]
)
def test_a_nearly_black_spectrum_is_named(tmp_path, caplog, factor, is_black):
    """By run and check, with the share; spectra of unit length are no more alike for it, and the record does not call them so."""
    E = np.array(
        [
            [0.03, 0.06, 0.03, 0.4, 0.2, 0.09],
            [0.08, 0.12, 0.18, 0.28, 0.38, 0.34],
            [0.06, 0.05, 0.03, 0.01, 0.005, 0.003],
        ]
    ).T
    E = np.column_stack([E, factor * np.array([0.2, 0.2, 0.2, 0.2, 0.2, 0.2])])
    scene = write_cube(tmp_path / "x.hdr", np.random.default_rng(2).dirichlet(np.ones(3), (9, 9)) @ E[:, :3].T)
    library = write_csv(tmp_path / "e.csv", E, names=["tree", "soil", "water", "shade"])
    report = unmix.run(scene, endmembers=library, method="nnls")
    told = "\n".join(
        report["warnings"] + [one["message"] for one in unmix.check(scene, library, method="nnls")["findings"]]
    )
    assert told.count("times as bright") == 2 * is_black and ("leave it out, or use `method` pcls" in told) == is_black
    assert "collinear" not in told and report["nearly_collinear"] == []
    lengths = np.linalg.norm(E, axis=0)
    if is_black:
        assert f"{lengths[3] / np.median(lengths[:3]):.0e} times as bright" in told


def test_bands_that_are_marked_bad_are_named(tmp_path, caplog):
    """By `check` and by a run; of a cube without such a list neither says anything."""
    path = scene_of(tmp_path, bbl="{" + ", ".join("0" if b in (1, 2, 8) else "1" for b in range(12)) + "}")
    library = write_csv(tmp_path / "e.csv", E, WAVES)
    found = unmix.check(path, library)["findings"]
    assert [one["message"] for one in found if one["about"] == "bands"] == ["3 bands marked bad are left out: 2-3,9"]
    with caplog.at_level("INFO", "unmix"):
        unmix.run(path, endmembers=library, method="fcls", device="cpu")
        assert caplog.text.count("3 bands left out (marked bad): 2-3,9") == 1
        caplog.clear()
        unmix.run(path, endmembers=library, method="fcls", device="cpu", bands="all", overwrite=True)
    assert "marked bad" not in caplog.text
    assert not [one for one in unmix.check(path, library, bands="all")["findings"] if one["about"] == "bands"]


def test_fill_that_nothing_declares_is_no_sign(tmp_path):
    """Values of both signs are not said of a scene that a fill value makes negative."""
    path = scene_of(tmp_path, lambda Y: Y.__setitem__(slice(4), -999))
    said = [one["message"] for one in unmix.check(path)["findings"]]
    assert any("-999" in one for one in said) and not any("both sides of 0" in one for one in said)


def test_noisy_bands_are_named(tmp_path):
    """Noise that the other bands do not explain, beside that of most bands; neither of equal noise nor of a scene without any."""
    random, waves = np.random.default_rng(4), np.linspace(400, 2400, 40)
    E = np.stack([0.3 + 0.2 * np.sin(waves / 300 + k) for k in range(3)], axis=1)
    for number, (level, loud) in enumerate([(0.002, [5, 20, 21]), (0.002, []), (0.0, []), (0.05, [])]):
        Y = random.dirichlet(np.ones(3), (30, 30)) @ E.T
        Y += level * random.standard_normal(Y.shape)
        Y[..., loud] += 0.05 * random.standard_normal((30, 30, len(loud)))
        found = unmix.check(write_cube(tmp_path / f"{number}.hdr", Y.astype(np.float32)))["findings"]
        said = [one["message"] for one in found if "the noise of the median" in one["message"]]
        assert [text.partition(";")[0] for text in said] == (
            ["3 bands in use have over 5 times the noise of the median: 6,21-22"] if loud else []
        )


@pytest.mark.parametrize(("dark", "scale", "said"), [(200, None, True), (0, None, False), (200, 4096.0, False)])
def test_a_dark_level_of_counts_is_named(tmp_path, dark, scale, said):
    counts = np.random.default_rng(3).dirichlet(np.full(3, 0.3), (30, 20)) @ (E * (E > 0.2)).T * 3000 + dark
    path = write_cube(tmp_path / "c.hdr", counts.astype(np.uint16))
    found = unmix.check(path, **({} if scale is None else {"scale": scale}))
    assert any("dark level" in one["message"] for one in found["findings"]) == said


def test_what_reading_warns_of_is_found(tmp_path):
    """A run and a check read alike: bands of a broad sensor without FWHM, beside a finer library."""
    waves = np.linspace(450.0, 2300.0, 200)
    spectra = np.stack([0.4 + 0.3 * np.sin(waves / 300 + k) for k in range(3)], axis=1)
    library = write_csv(tmp_path / "e.csv", spectra, wavelengths=waves)
    out, _ = command("check", scene_of(tmp_path), "-e", library)
    assert re.search(r"warning  file .*its bands have no FWHM: their spacing, 168 nm", out)
    assert "a run would work; read the" in out
