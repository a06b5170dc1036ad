"""Standard deviations against a thousand noisy copies of each pixel, and against their definition."""

import json
import logging
from dataclasses import replace

import h5py
import numpy as np
import oracle
import pytest
from conftest import (
    KINDS,
    LINES,
    SAMPLES,
    L,
    P,
    mix,
    read_map,
    read_values,
    refused,
    rest_slow,
    verify_tells,
    write_csv,
    write_cube,
)
from reference.abundances import scls, ucls
from reference.uncertainty import covariance, pooled_by_definition, without_unsure
from test_cli import unmix as command

import unmix
from unmix.commands.verify import verify
from unmix.features.uncertainty.deviations import SupportScratch, Uncertainty, prepare_support
from unmix.library import ClassSums, Endmembers
from unmix.methods import METHODS, choose
from unmix.problem import plan_problem
from unmix.runs.record.fit import in_percent


def run(folder, Y, **words):
    """Run a scene; return the map of standard deviations, (lines, samples, bands)."""
    path = write_cube(folder / "x.hdr", Y.astype(np.float64), data_ignore_value=-7)
    unmix.run(path, endmembers=folder / "library.csv", uncertainty=True, device="cpu", overwrite=True, **words)
    assert verify(folder / "x", everything=True).faults == []
    if str(words.get("noise")).endswith(("csv", "txt", "None", "auto")):
        oracle.Solved(folder / "x", Y, oracle.noise_in(words.get("noise"))).check_deviations()
    bands = (folder / "x_sigma.hdr").read_text().split("band names = {")[1].split("}")[0].split(", ")
    return read_map(folder / "x", "sigma"), bands


# Each method alone; sums by class as they are and as shares, with and without shade, negative and not.
BY = [
    *((method, None) for method in METHODS),
    ("pcls", "class"),
    ("pcls", "normalized"),
    ("ucls", "normalized"),
    ("nnls", "normalized"),
]


@pytest.mark.parametrize(
    ("method", "by"), rest_slow(BY, ("nnls", None), ("fcls", None), ("pcls", "class"), ("nnls", "normalized"))
)
def test_against_noisy_copies(setting, method, by):
    folder, E, Y, sigma = setting
    words = {"by": "class"} if by else {}
    words |= {"noise": folder / "noise.csv", "shade_normalize": by == "normalized"}
    found, bands = run(folder, Y, method=method, **words)
    random = np.random.default_rng(1)
    copies = Y[..., None, :] + sigma * random.standard_normal((LINES, SAMPLES, 1500, L))
    drawn = unmix.solve(copies, E, method=method).abundances
    total = drawn.sum(axis=-1, keepdims=True)
    if by:
        members = [[kind == name for kind in KINDS] for name in ("soil", "tree", "npv")]
        drawn = np.stack([drawn[..., inside].sum(axis=-1) for inside in members], axis=-1)
        drawn = drawn / total if by == "normalized" else drawn
    drawn = np.concatenate([drawn, *([1 - total] if method == "pcls" else []), *([total] if by else [])], axis=-1)
    spread = drawn.std(axis=-2)
    nonnegative = method not in ("ucls", "scls")
    assert bands[-1] == ("validity" if nonnegative else bands[-1]) and len(bands) == drawn.shape[-1] + nonnegative
    trusted = found[..., -1] > 4 if nonnegative else np.ones((LINES, SAMPLES), bool)
    assert trusted.sum() >= (3 if nonnegative else LINES * SAMPLES)
    ratio = found[trusted][:, : drawn.shape[-1]] / np.maximum(spread[trusted], 1e-12)
    compared = spread[trusted] > 1e-9  # a sum held at one does not vary, and what is not there shows no spread
    assert np.all(np.abs(ratio[compared] - 1) < 0.1)


@pytest.mark.parametrize("method", ["nnls", "fcls"])
def test_noise_of_the_residual_and_validity(setting, method):
    """The noise by the residual; validity is how many deviations the nearest other support is away."""
    folder, E, Y, _ = setting
    Y = Y + 0.01 * np.random.default_rng(3).standard_normal(Y.shape)
    found, _ = run(folder, Y, method=method)
    A, held = unmix.solve(Y, E, method=method).abundances, method == "fcls"
    squares, own = np.square(Y - A @ E.T).sum(axis=2), L - np.count_nonzero(A, axis=2) + held
    noise = pooled_by_definition(squares.ravel(), own.ravel())
    for place in np.ndindex(LINES, SAMPLES):
        a, y, sigma = A[place], Y[place], found[place][:P].copy()
        F, C, alone = covariance(E, y, a, None, held, True)
        alone[F] = np.sqrt(np.diag(C))
        scale = noise(squares[place], own[place]) / np.sqrt(squares[place] / own[place])
        alone, sure = alone * scale, without_unsure(a[F], C * scale**2)
        by_noise = alone.copy()
        alone[F] = np.hypot(alone[F], np.where(sure == 0, 0.0, sure - a[F]))
        np.testing.assert_allclose(sigma, alone, rtol=1e-5, atol=1e-7)
        sigma = by_noise
        nearest = min(a[F] / sigma[F]) if not (held and len(F) == 1) else np.inf
        for j in np.setdiff1d(np.arange(P), F):  # the abundance that an endmember would have, if it were free
            nearest = min(nearest, -(scls if held else ucls)(E[:, [*F, j]], y)[-1] / sigma[j])
        assert found[place][-1] == pytest.approx(nearest, rel=1e-4)


@pytest.mark.parametrize("method", ["nnls", "ucls"])
def test_fractions_of_nothing_have_no_deviation(setting, method):
    folder, _, Y, _ = setting
    Y[1, 3] = -0.1
    found, bands = run(folder, Y, method=method, noise=folder / "noise.csv", by="class", shade_normalize=True)
    assert np.all(found[1, 3, :3] == -9999) and (found[1, 3, bands.index("brightness")] > 0) == (method == "ucls")
    assert np.all(found[0, 0, :3] > 0)


@pytest.mark.parametrize("method", ["nnls", "pcls"])
@pytest.mark.parametrize("noise", rest_slow(["noise.csv", "auto"], "noise.csv"))
def test_a_class_that_is_not_there_in_a_dark_pixel(setting, method, noise):
    """Its fraction is its sum over the brightness, to first order; verify says so too, by itself."""
    folder, E, _, _ = setting
    A = np.random.default_rng(0).uniform(0.1, 0.3, (LINES, SAMPLES, P))
    A[..., [2, 3]] = 0.0  # npv is nowhere; soil has one spectrum of two
    A[1, :, 0] = 0.0  # and is not there in one line
    Y = 0.3 * A @ E.T + 1e-4 * np.random.default_rng(1).standard_normal((LINES, SAMPLES, L))
    words = {"method": method, "noise": None if noise == "auto" else folder / noise, "by": "class"}
    plain, bands = run(folder, Y, **words)
    found, _ = run(folder, Y, shade_normalize=True, **words)
    sums = read_map(folder / "x", "fraction")
    brightness = sums[..., -1]
    absent = sums[..., :3] == 0
    assert absent.sum() > 9 and brightness.max() < 0.4
    expected = plain[..., :3] / brightness[..., None]
    np.testing.assert_allclose(found[..., :3][absent], expected[absent], rtol=1e-5)
    one = np.argwhere(absent)[0]
    at = np.ravel_multi_index((one[0], one[2], one[1]), (LINES, len(bands), SAMPLES))
    wrong = brightness[tuple(one[:2])]
    verify_tells(
        folder / "x",
        "sigma",
        LINES,
        lambda values: values.__setitem__(at, values[at] * wrong),
        fault="its sigma does not match",
    )


@pytest.mark.parametrize("by", [None, "class"])
def test_spectra_that_the_support_spans(tmp_path, by):
    """More spectra than bands, and pixels that they fit: what cannot be told from the support has no end, and is no NaN."""
    _, E, Y = mix(0, (3, 6), 4, 9, (0.1, 1.1))
    write_csv(tmp_path / "library.csv", E, classes=[*"abcabcabc"])
    cube = write_cube(tmp_path / "x.hdr", Y)
    (tmp_path / "noise.txt").write_text("0.01\n" * 4)
    how = {"noise": tmp_path / "noise.txt", "uncertainty": True, "by": by}
    unmix.run(cube, endmembers=tmp_path / "library.csv", method="nnls", device="cpu", **how)
    found = np.fromfile(tmp_path / "x_sigma.img", "<f4")
    assert not np.isnan(found).any() and np.isinf(found).any()
    assert verify(tmp_path / "x", everything=True).faults == []


@pytest.mark.parametrize("method", ["nnls", "fcls"])
def test_the_part_that_a_support_leaves(setting, method):
    """Of each other spectrum, from products and from itself, also where next to nothing is left."""
    _, E, _, sigma = setting
    random = np.random.default_rng(6)
    others = [E[:, 0] + 10.0**power * random.standard_normal(L) for power in (-2, -4, -6, -9)]
    spectra = np.column_stack([E, *others, E[:, 1] + 1e-3])
    names = tuple(f"e{j}" for j in range(spectra.shape[1]))
    problem = plan_problem(Endmembers(names, spectra, None), *choose(method, None), warns=False)
    found = Uncertainty(replace(problem, noise=sigma), None)
    inside = np.arange(len(names)) < 4
    scratch = SupportScratch.of(len(names), L, 4, 0, 1)
    scratch.support[:4], scratch.inside[:4] = range(4), True
    assert prepare_support(found.given, 4, np.empty((0, L)), scratch)
    F, rest = spectra[:, inside], spectra[:, ~inside]
    base = F[:, [0]] if method == "fcls" else 0.0
    Q = np.linalg.qr((F - base)[:, 1:] if method == "fcls" else F)[0]
    D = (rest - base) - Q @ (Q.T @ (rest - base))
    D -= Q @ (Q.T @ D)
    expected = np.sqrt(np.square(D * sigma[:, None]).sum(axis=0))
    np.testing.assert_allclose(scratch.scale[~inside], expected, rtol=1e-5)
    np.testing.assert_allclose(scratch.sigma[~inside], expected / np.square(D).sum(axis=0), rtol=1e-5)


def test_nearly_equal_spectra_are_no_fault(setting):
    folder, E, Y, _ = setting
    copy = E[:, 0] * (1 + 1e-7 * np.random.default_rng(0).standard_normal(L))
    write_csv(folder / "library.csv", np.column_stack([E, copy]), classes=[*KINDS, "soil"])
    run(folder, Y + 0.01 * np.random.default_rng(1).standard_normal(Y.shape), method="ucls", noise=folder / "noise.csv")


def test_a_dark_pixel_and_a_pure_one(setting):
    """No spectrum, or a single one under a sum held at one: nothing varies, and the rest has its one-sided deviation."""
    folder, E, Y, _ = setting
    Y[0, 0], Y[0, 1] = 0.0, E[:, 2] + 1e-4
    for method in ("nnls", "fcls"):
        found, _ = run(folder, Y, method=method, noise=folder / "noise.csv")
        assert np.isfinite(found[0, :2, :P]).all() and found[0, 0].shape == (P + 1,)
    assert found[0, 1, 2] == 0 and np.all(np.delete(found[0, 1, :P], 2) > 0)


@pytest.mark.parametrize(
    ("method", "by"),
    rest_slow(
        [("nnls", None), ("fcls", None), ("pcls", "class"), ("pcls", "normalized"), ("ucls", "class")],
        ("fcls", None),
        ("pcls", "normalized"),
    ),
)
def test_noise_of_each_pixel_is_that_of_its_bands(setting, noise_cube, method, by):
    """As a run in which all pixels have the noise of that one."""
    folder, _, Y, _ = setting
    words = {"method": method, "by": "class" if by else None, "shade_normalize": by == "normalized"}
    Y = Y + 0.003 * np.random.default_rng(2).standard_normal(Y.shape)
    path, noise = noise_cube
    found, bands = run(folder, Y, noise=path, **words)
    for line, sample in ((0, 0), (1, 1), (1, 2), (2, 0), (LINES - 1, SAMPLES - 1)):
        if np.isnan(noise[line, sample]).any():
            assert np.all(found[line, sample] == -9999)
            continue
        (folder / "one.csv").write_text("".join(f"{v!r}\n" for v in noise[line, sample].tolist()))
        expected, names = run(folder, Y, noise=folder / "one.csv", **words)
        np.testing.assert_allclose(found[line, sample], expected[line, sample], rtol=1e-5, atol=1e-12)
        assert names == bands


def test_a_cube_of_noise_that_changed_or_does_not_fit(setting, noise_cube, tmp_path):
    folder, _, Y, _ = setting
    path, _ = noise_cube
    run(folder, Y, method="nnls", noise=path)
    stored = np.fromfile(path.with_suffix(".img"), np.int32)
    stored[0] += 1
    stored.tofile(path.with_suffix(".img"))
    refused(unmix.CubeError, "is not the cube of noise that the run read", verify, folder / "x")
    words = {"endmembers": folder / "library.csv", "uncertainty": True, "overwrite": True, "method": "nnls"}
    for lines, bands, text in ((LINES - 1, L, "lines of"), (LINES, L - 1, "bands, the scene")):
        other = write_cube(folder / "other.hdr", np.ones((lines, SAMPLES, bands)))
        refused(unmix.CubeError, text, unmix.run, folder / "x.hdr", noise=other, **words)
    more = {"average": "plain", "draws": 5, "by": "class"}
    with pytest.raises(unmix.MethodError, match=r"`average`.*noise for each pixel"):
        unmix.run(folder / "x.hdr", noise=path, **words, **more)


def test_a_file_of_noise_is_not_replaced_and_may_not_change(setting, noise_cube, monkeypatch):
    """An output may not have the name of either of its files; a file that changes while it is read leaves no results."""
    folder, _, Y, _ = setting
    path, _ = noise_cube
    words = {"endmembers": folder / "library.csv", "uncertainty": True, "overwrite": True, "method": "nnls"}
    cube = write_cube(folder / "x.hdr", Y.astype(np.float64))
    (folder / "x_sigma.dat").write_bytes(path.with_suffix(".img").read_bytes())
    (folder / "x_sigma.hdr").write_bytes(path.read_bytes())
    refused(unmix.MethodError, "would replace", unmix.run, cube, noise=folder / "x_sigma.dat", **words)
    (folder / "x_sigma.dat").unlink()
    (folder / "x_sigma.hdr").unlink()
    original = unmix.maps.derived.noise.NoiseCube.read

    def changing(self, first, count):
        with path.with_suffix(".img").open("r+b") as data:  # in place: another thread reads the file meanwhile
            data.write(bytes(16))
        return original(self, first, count)

    monkeypatch.setattr(unmix.maps.derived.noise.NoiseCube, "read", changing)
    refused(unmix.CubeError, "changed while it was read", unmix.run, cube, noise=path, **words)
    assert not (folder / "x_run.json").exists()


def test_noise_that_is_of_something_else(setting, noise_cube, capsys):
    folder, _, Y, _ = setting
    words = {"endmembers": folder / "library.csv", "uncertainty": True, "overwrite": True, "method": "nnls"}
    wave = {"wavelength": "{" + ", ".join(str(400 + 10 * b) for b in range(L)) + "}", "wavelength_units": "nanometers"}
    write_csv(folder / "library.csv", setting[1], range(400, 400 + 10 * L, 10))
    cube = write_cube(folder / "x.hdr", Y.astype(np.float64), **wave)
    refused(unmix.CubeError, "is the scene, not its noise", unmix.run, cube, noise=cube, **words)
    wave["wavelength"] = "{" + ", ".join(str(405 + 10 * b) for b in range(L)) + "}"
    other = write_cube(folder / "n.hdr", np.full((LINES, SAMPLES, L), 0.01, np.float32), **wave)
    with pytest.raises(unmix.CubeError, match="band 1 of the noise is at 405 nm, of the scene at 400 nm"):
        unmix.run(cube, noise=other.with_suffix(".img"), **words)  # whose bytes are no text, though none is 0
    write_cube(folder / "y.hdr", Y.astype(np.float64))
    given = ("-e", folder / "library.csv", "--uncertainty", "--noise", noise_cube[0])
    assert "holds numbers for each pixel of one scene" in command("run", cube, folder / "y.hdr", *given, code=2)[1]


@pytest.mark.slow
def test_noise_with_the_nodata_value_and_scale_that_were_given(setting, caplog):
    folder, _, Y, sigma = setting
    noise = np.round(np.broadcast_to(sigma, (LINES, SAMPLES, L)) * 1e5).astype(np.uint16)
    noise[1, 1, 4] = 65535
    path = write_cube(folder / "n.hdr", noise)
    cube = write_cube(folder / "x.hdr", np.round(Y * 1e5).astype(np.uint32))
    words = {"endmembers": folder / "library.csv", "uncertainty": True, "method": "nnls", "scale": 1e5}
    unmix.run(cube, noise=path, nodata=65535, **words)
    found = np.fromfile(folder / "x_sigma.img", "<f4").reshape(LINES, P + 1, SAMPLES)
    assert np.all(found[1, :, 1] == -9999) and (found == -9999).sum() == P + 1
    assert "1 pixels have no noise in some band" in caplog.text
    (folder / "bom.csv").write_bytes(b"\xef\xbb\xbfENVIRONMENT\n" + b"".join(b"%.5f\n" % v for v in sigma))
    unmix.run(cube, noise=folder / "bom.csv", overwrite=True, **words)
    again = np.fromfile(folder / "x_sigma.img", "<f4").reshape(LINES, P + 1, SAMPLES)
    np.testing.assert_allclose(again[0], found[0], rtol=2e-3)


def test_noise_in_a_dataset_of_an_hdf5_file_read_by_several_threads(setting, noise_cube):
    folder, _, Y, _ = setting
    _, noise = noise_cube
    with h5py.File(folder / "n.nc", "w") as file:
        file["reflectance_uncertainty"] = np.nan_to_num(noise, nan=-9999).astype(np.float32)
        file["sensor_band_parameters/wavelengths"] = np.arange(L) * 10.0 + 400
        file["sensor_band_parameters/fwhm"] = np.full(L, 10.0)
        file["other"] = np.nan_to_num(noise, nan=-9999)
    results = set()
    for path in (folder / "n.nc", f"{folder / 'n.nc'}:/other:yxb"):
        found, _ = run(folder, Y, method="nnls", noise=path, memory="64K", threads=2)
        results.add(found.round(6).tobytes())
    assert len(results) == 1 and (found == -9999).any()


def test_a_mask_and_noise_for_each_scene_of_a_list(setting, capsys):
    """Names with the scene's own in them: the same bytes as one by one, with files named in full."""
    folder, _, Y, _ = setting
    random = np.random.default_rng(7)
    for scene in ("A_RFL_1", "A_RFL_2"):
        cube, noise, mask = (folder / f"{scene.replace('RFL', kind)}.hdr" for kind in ("RFL", "UNC", "MASK"))
        write_cube(cube, Y.astype(np.float64) * (1 + int(scene[-1]) / 10))
        write_cube(noise, random.uniform(0.01, 0.02, Y.shape).astype(np.float32))
        write_cube(mask, (random.random((*Y.shape[:2], 1)) < 0.1).astype(np.uint8))
        how = {"endmembers": folder / "library.csv", "uncertainty": True, "out_dir": folder / "one", "method": "nnls"}
        unmix.run(cube, noise=noise.with_suffix(".img"), mask_out=str(mask), **how)
    words = ("-e", folder / "library.csv", "--uncertainty", "--method", "nnls", "--noise", "{dir}/{stem:RFL=UNC}.img")
    scenes = (folder / "A_RFL_1.hdr", folder / "A_RFL_2.hdr")
    command("run", *scenes, *words, "--mask-out", "{dir}/{stem:RFL=MASK}.hdr", "-o", folder / "all")
    for scene in ("A_RFL_1", "A_RFL_2"):
        for name in ("abundance", "sigma"):
            image = f"{scene}_{name}.img"
            assert (folder / "all" / image).read_bytes() == (folder / "one" / image).read_bytes()
        assert unmix.commands.verify.verify(folder / "all" / scene).faults == []
    record = json.loads((folder / "all/A_RFL_2_run.json").read_text())
    assert record["options"]["noise"] == "{dir}/{stem:RFL=UNC}.img" and "A_MASK_2" in record["reading"]["mask_out"][0]
    command("run", scenes[1], "--config", folder / "all/A_RFL_1_run.json", "-o", folder / "again")  # with its own
    for name in ("abundance", "sigma"):
        image = f"A_RFL_2_{name}.img"
        assert (folder / "again" / image).read_bytes() == (folder / "one" / image).read_bytes()
    assert "stands for nothing" in command("run", scenes[0], *words[:-1], "{foo}.img", "-o", folder / "none", code=2)[1]
    _, err = command("run", *scenes, *words[:-1], "{dir}/{stem:rfl=UNC}.img", "-o", folder / "none", code=2)
    assert "there is no 'rfl' in A_RFL_1" in err


WAYS = [
    ({}, "envi"),
    ({"method": "nnls"}, "hdf5"),
    ({"method": "pcls", "by": "class"}, "geotiff"),
    ({"mask": True}, "envi"),
]


@pytest.mark.parametrize(("words", "form"), WAYS)
def test_how_far_deviations_can_be_trusted_is_said(setting, caplog, words, form):
    """Record and log have the shares of pixels with a validity below 1 and above 3; the page shows both and the map."""
    folder, _, Y, sigma = setting
    noisy = Y + 4 * sigma * np.random.default_rng(5).standard_normal(Y.shape)
    path = write_cube(folder / "s.hdr", noisy)
    if words.get("mask"):
        keep = np.ones((*Y.shape[:2], 1), np.uint8)
        keep[0] = 0
        words = {"mask": str(write_cube(folder / "m.hdr", keep))}
    with caplog.at_level(logging.INFO, "unmix"):
        how = {"endmembers": folder / "library.csv", "uncertainty": True, "device": "cpu", "overwrite": True}
        report = unmix.run(path, format=form, **how | words)
    validity = read_map(folder / "s", "sigma")[..., -1]
    known = validity[validity != -9999]
    assert known.size == report["pixels"]["solved"]
    trust = report["uncertainty"]
    assert trust["below_1"] == np.mean(known < 1) > 0.1 and trust["above_3"] == np.mean(known > 3)
    said = trust["said"]
    first, second = said.split("; ")
    assert f"deviations are exact in {in_percent(np.mean(known > 3))} of the pixels" in first
    assert second.startswith(f"in {in_percent(np.mean(known < 1))} of the pixels a fraction is within noise of 0")
    levels = {record.getMessage(): record.levelname for record in caplog.records}
    assert levels[f"s: {first}"] == levels[f"s: {second}"] == "INFO"
    text = unmix.report(folder / "s", overwrite=True).read_text()
    assert "<h2>Uncertainty</h2>" in text and 'alt="map of validity"' in text and "σ of " in text


def test_no_trust_where_there_is_no_validity(setting):
    folder, _, Y, _ = setting
    path, how = write_cube(folder / "s.hdr", Y), {"endmembers": folder / "library.csv", "overwrite": True}
    for words in ({"method": "ucls", "uncertainty": True}, {"method": "fcls"}):
        assert "uncertainty" not in unmix.run(path, device="cpu", **how, **words)


FEW = np.array([[0.05, 0.08, 0.05, 0.4], [0.1, 0.12, 0.2, 0.3], [0.3, 0.33, 0.36, 0.38], [0.02, 0.03, 0.01, 0.01]]).T


@pytest.fixture
def few_bands(tmp_path):
    """Four spectra of four bands, whose pixels have all four or three of them: a library, and its noisy scene."""
    A = np.random.default_rng(3).dirichlet(np.full(4, 2.0), (5, 8))
    A[3:, :, 0] = 0.0
    A /= A.sum(axis=2, keepdims=True)
    Y = A @ FEW.T + 0.002 * np.random.default_rng(4).standard_normal((5, 8, 4))
    write_csv(tmp_path / "library.csv", FEW, classes=[*"abab"])
    return write_cube(tmp_path / "x.hdr", Y), tmp_path


@pytest.mark.parametrize("method", ["nnls", "ucls", "fcls"])
def test_no_deviation_where_no_residual_shows_noise(few_bands, method, caplog):
    """Of pixels with as many free abundances as bands, whatever the noise: no number, a warning, and verify agrees."""
    path, folder = few_bands
    E = FEW
    if method == "fcls":
        E = np.column_stack([FEW, [0.2, 0.05, 0.3, 0.1]])
        write_csv(folder / "library.csv", E, classes=[*"ababa"])
    report = unmix.run(path, endmembers=folder / "library.csv", method=method, device="cpu", uncertainty=True)
    A, sigma, Y = read_map(folder / "x", "abundance"), read_map(folder / "x", "sigma"), read_values(path)
    held = int(method == "fcls")
    free = (np.full(A.shape[:2], 4) if method == "ucls" else np.count_nonzero(A, axis=2)) - held
    squares = np.square(Y - A @ E.T).sum(axis=2)
    noise = pooled_by_definition(squares.ravel(), 4 - free.ravel())
    none = free >= 4
    assert none.any() and np.all(sigma[none] == -9999) and (none.all() == (method == "ucls"))
    for place in np.argwhere(~none):
        a, y = A[tuple(place)].astype(float), Y[tuple(place)].astype(float)
        F, C, _ = covariance(E, y, a, None, bool(held), True)
        C = (
            C
            * noise(squares[tuple(place)], 4 - free[tuple(place)]) ** 2
            * (4 - free[tuple(place)])
            / squares[tuple(place)]
        )
        sure = without_unsure(a[F], C)
        expected = np.hypot(np.sqrt(np.diag(C)), np.where(sure == 0, 0.0, sure - a[F]))
        np.testing.assert_allclose(sigma[tuple(place)][F], expected, rtol=2e-3)
    warned = [text for text in report["warnings"] if "no standard deviations" in text]
    assert len(warned) == 1 and warned[0].startswith(f"x: {none.mean() * 100:.0f} % of the pixels")
    assert "`noise`" in warned[0]
    if method != "ucls":
        assert report["uncertainty"]["without"] == pytest.approx(none.mean())
        assert warned[0][3:] in report["uncertainty"]["said"]
        assert warned[0][3:] in unmix.report(folder / "x").read_text()
    line, sample = np.argwhere(none)[0]
    at = np.ravel_multi_index((line, 0, sample), (5, sigma.shape[2], 8))
    verify_tells(
        folder / "x", "sigma", 5, lambda values: values.__setitem__(at, 1e-13), fault="its sigma does not match"
    )


def test_given_noise_gives_deviations_though_nothing_is_left_over(few_bands):
    path, folder = few_bands
    (folder / "noise.txt").write_text("0.002\n" * 4)
    how = {"endmembers": folder / "library.csv", "uncertainty": True, "noise": folder / "noise.txt"}
    report = unmix.run(path, method="ucls", device="cpu", **how)
    sigma, expected = read_map(folder / "x", "sigma"), 0.002 * np.sqrt(np.diag(np.linalg.inv(FEW.T @ FEW)))
    np.testing.assert_allclose(sigma, np.broadcast_to(expected, sigma.shape), rtol=1e-6)
    assert not any("no standard deviations" in text for text in report["warnings"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param("range", {"ranges": "each", "confidence": 0.95}, marks=pytest.mark.slow),
        ("average", {"by": "class", "average": "plain", "draws": 20}),
    ],
)
def test_no_range_and_no_draw_where_no_residual_shows_noise(few_bands, name, words):
    path, folder = few_bands
    report = unmix.run(path, endmembers=folder / "library.csv", method="nnls", device="cpu", **words)
    none = np.count_nonzero(read_map(folder / "x", "abundance"), axis=2) >= 4
    found = read_map(folder / "x", name)
    assert 5 < none.sum() < 35 and np.all(found[none] == -9999) and np.all(found[~none] != -9999)
    (warned,) = [text for text in report["warnings"] if "`noise`" in text]
    assert warned.startswith(f"x: {none.mean() * 100:.0f} % of the pixels have no ")
    assert verify(folder / "x", everything=True).faults == []


def test_more_spectra_than_bands_have_other_mixtures(tmp_path):
    """Deviations are of one of many mixtures that fit as well: a warning in place of what they hold."""
    E = np.random.default_rng(2).random((6, 20)) + 0.1
    Y = np.random.default_rng(3).dirichlet(np.full(20, 0.2), (6, 8)) @ E.T
    write_csv(tmp_path / "library.csv", E)
    (tmp_path / "noise.csv").write_text("0.001\n" * 6)
    how = {"endmembers": tmp_path / "library.csv", "method": "nnls", "noise": str(tmp_path / "noise.csv")}
    report = unmix.run(write_cube(tmp_path / "x.hdr", Y), uncertainty=True, **how)
    said = report["uncertainty"]["said"]
    assert said.startswith("20 spectra for 6 bands: pixels are fitted as well by other mixtures")
    assert "two thirds" not in said and any(said.split(";")[0] in one for one in report["warnings"])


def test_a_library_of_one_spectrum(tmp_path):
    """Its deviation is that of a mean: noise over the spectrum's length."""
    random = np.random.default_rng(1)
    e = random.uniform(0.2, 0.8, (L, 1))
    path = write_cube(tmp_path / "s.hdr", random.uniform(0.5, 1, (4, 5, 1)) @ e.T)
    (tmp_path / "n.txt").write_text("0.02\n" * L)
    how = {"endmembers": write_csv(tmp_path / "e.csv", e), "noise": tmp_path / "n.txt", "uncertainty": True}
    for method in ("ucls", "nnls"):
        unmix.run(path, method=method, device="cpu", out_dir=tmp_path / method, **how)
        found = np.fromfile(tmp_path / method / "s_sigma.img", "<f4").reshape(4, -1, 5)[:, 0]
        np.testing.assert_allclose(found, 0.02 / np.linalg.norm(e), rtol=1e-6)


def test_a_class_of_alike_spectra_has_the_deviation_of_their_sum(setting):
    """Which is that of one of them, where their own deviations are a million times as large."""
    _, E, *_ = setting
    near, found = E[:, 0] + 1e-6 * np.random.default_rng(5).standard_normal(L), {}
    for name, spectra, kinds in (
        ("one", E, list(KINDS)),
        ("two", np.column_stack([E, near]), [*KINDS, KINDS[0]]),
    ):
        names = tuple(f"e{j}" for j in range(spectra.shape[1]))
        endmembers = Endmembers(names, spectra, None, classes=tuple(kinds))
        problem = replace(plan_problem(endmembers, *choose("ucls", None), warns=False), noise=np.full(L, 0.01))
        made = Uncertainty(problem, ClassSums.of(endmembers, False))
        A = np.ones((1, len(names)))
        found[name] = made.of_pixels(np.zeros((1, L)), A, np.empty((0, L)))[0]
    np.testing.assert_allclose(found["two"], found["one"], rtol=0.15)


@pytest.mark.parametrize("bright", [0.1, 0.5, 2.0])
def test_a_spectrum_of_shade_is_as_one_of_the_endmembers(tmp_path, bright):
    """Deviations by the scene's own noise, of pcls with a shade of any brightness, are those of fcls with it as a spectrum."""
    random = np.random.default_rng(3)
    names, E = ("a", "b", "c", "dark"), random.uniform(0.2, 1.0, (L, 4)) * [1, 1, 1, bright]
    Y = random.dirichlet([4] * 4, (20, 20)) @ E.T + 0.003 * random.standard_normal((20, 20, L))
    path = write_cube(tmp_path / "x.hdr", Y)
    write_csv(tmp_path / "all.csv", E, names=names)
    write_csv(tmp_path / "few.csv", E[:, :3], names=names[:3])
    write_csv(tmp_path / "dark.csv", E[:, 3:], names=names[3:])
    words = {"uncertainty": True, "device": "cpu", "browse": False}
    unmix.run(path, endmembers=tmp_path / "all.csv", method="fcls", out_dir=tmp_path / "fcls", **words)
    how = {"method": "pcls", "shade": tmp_path / "dark.csv"}
    unmix.run(path, endmembers=tmp_path / "few.csv", out_dir=tmp_path / "pcls", **how, **words)
    one, other = (read_map(tmp_path / name / "x", "sigma")[..., :4] for name in ("fcls", "pcls"))
    np.testing.assert_allclose(other, one, rtol=1e-3)
