"""Means and deviations over draws: the generator against published values, draws against scipy, noise against noisy copies."""

import numpy as np
import oracle
import pytest
from conftest import KINDS, LINES, SAMPLES, L, at_night, read_map, refused, verify_tells, write_csv, write_cube
from reference import draws as definition

import unmix
from unmix.commands.verify import verify
from unmix.features.average.draws import class_even, noise_factor, normals_of_pixels, plan_draws
from unmix.features.average.settings import DrawChoice
from unmix.library import ClassSums, load
from unmix.methods import choose
from unmix.problem import plan_problem

CLASSES = ("soil", "tree", "npv")


def test_normal_numbers():
    lines, samples = np.divmod(np.arange(20_000), 100)
    drawn = normals_of_pixels(5, 3, lines, samples, 7)
    assert abs(drawn.mean()) < 0.01 and abs(drawn.var() - 1) < 0.015 and abs((drawn**4).mean() - 3) < 0.1
    np.testing.assert_allclose(np.corrcoef(drawn.T), np.eye(7), atol=0.03)
    some = np.array([102, 101, 19_999, 7])
    np.testing.assert_array_equal(normals_of_pixels(5, 3, lines[some], samples[some], 7), drawn[some])
    others = [normals_of_pixels(seed, draw, lines[some], samples[some], 7) for seed, draw in ((5, 4), (6, 3))]
    assert not np.any(np.array(others) == drawn[some])
    np.testing.assert_array_equal(definition.normals_by_definition(5, 3, lines[some], samples[some], 7), drawn[some])


def test_draws_are_even_over_classes():
    sums = ClassSums(("a", "b", "c"), ((0, 1, 2, 3, 4, 5), (6,), (7, 8, 9)), False, False)
    random = np.random.default_rng(0)
    seen = np.zeros(10)
    for _ in range(300):
        chosen = class_even(sums, 6, random)
        assert len(set(chosen)) == 6 and list(chosen) == sorted(chosen)
        counts = [np.isin(members, chosen).sum() for members in sums.members]
        assert counts[1] == 1 and {counts[0], counts[2]} <= {2, 3}
        seen[chosen] += 1
    assert np.all(seen[:6] > 80) and np.all(seen[7:] > 200)


def run(folder, Y, *, name="x", checked=True, **words):
    """Run a scene; return its map of draws, (lines, samples, bands), and the names of the bands."""
    if Y is not None:
        write_cube(folder / "x.hdr", Y.astype(np.float64), data_ignore_value=-7)
    words = {"method": "nnls", "by": "class", "device": "cpu", "overwrite": True} | words
    unmix.run(folder / "x.hdr", endmembers=folder / "library.csv", out_dir=folder / name, **words)
    if checked:
        assert verify(folder / name / "x", everything=True).faults == []
        noise = oracle.noise_in(words.get("noise"))
        scene = np.fromfile(folder / "x.img").reshape(LINES, SAMPLES, L)
        oracle.Solved(folder / name / "x", scene, noise).check_draws()
    header = (folder / name / "x_average.hdr").read_text()
    bands = header.split("band names = {")[1].split("}")[0].split(", ")
    return read_map(folder / name / "x", "average"), bands


def sums_by_class(A):
    return np.stack([A[..., [kind == name for kind in KINDS]].sum(axis=-1) for name in CLASSES], axis=-1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "normalized"), at_night([("nnls", True), ("pcls", False), ("fcls", False)], ("nnls", True))
)
def test_noise_alone_against_noisy_copies(setting, method, normalized):
    folder, E, Y, sigma = setting
    found, bands = run(
        folder,
        Y,
        checked=False,
        method=method,
        average="plain",
        draws=800,
        noise=folder / "noise.csv",
        shade_normalize=normalized,
    )
    copies = Y[..., None, :] + sigma * np.random.default_rng(1).standard_normal((LINES, SAMPLES, 800, L))
    drawn = unmix.solve(copies, E, method=method).abundances
    total = drawn.sum(axis=-1, keepdims=True)
    sums = sums_by_class(drawn) / (total if normalized else 1)
    drawn = np.concatenate([sums, *([1 - total] if method == "pcls" else []), total], axis=-1)
    assert bands[0] == "mean of soil" and bands[-1] == "deviation of brightness" and len(bands) == 2 * drawn.shape[-1]
    mean, deviation = np.split(found, 2, axis=-1)
    spread = np.maximum(drawn.std(axis=-2), 1e-9)
    assert np.all(np.abs(mean - drawn.mean(axis=-2)) < 5 * spread * np.sqrt(2 / 800) + 1e-6)
    fourth = ((drawn - drawn.mean(axis=-2, keepdims=True)) ** 4).mean(
        axis=-2
    ) / spread**4  # large where a class is seldom seen
    assert np.all(np.abs(deviation - spread) < 5 * spread * np.sqrt(np.maximum(fourth - 1, 1) / 1600) + 1e-6)


@pytest.mark.slow
def test_noise_of_the_residual(setting):
    """Without a file the noise is white, of the size that a pixel's residual shows."""
    folder, E, Y, _ = setting
    Y = Y + 0.01 * np.random.default_rng(3).standard_normal(Y.shape)
    found, _ = run(folder, Y, average="plain", draws=200)
    solved = unmix.solve(Y, E, method="nnls")
    noise = solved.rmse * np.sqrt(L / (L - (solved.abundances > 0).sum(axis=-1)))
    copies = Y[..., None, :] + noise[..., None, None] * np.random.default_rng(1).standard_normal(
        (LINES, SAMPLES, 600, L)
    )
    deviation = sums_by_class(unmix.solve(copies, E, method="nnls").abundances).std(axis=-2)
    np.testing.assert_allclose(found[..., 4:7], deviation, atol=6 * deviation.max() * np.sqrt(1 / 400 + 1 / 1200))


@pytest.mark.slow
@pytest.mark.night
def test_precision(setting):
    """The error of a mean falls as 1/√N, that of a deviation as 1/√(2 (N − 1))."""
    folder, _, Y, _ = setting
    words = {"noise": folder / "noise.csv", "checked": False}
    best, _ = run(folder, Y, average="plain", draws=800, seed=99, **words)
    mean, deviation = best[..., :3], best[..., 4:7]
    clear = (mean > 5 * deviation) & (deviation > 1e-5)
    for count in (10, 80):
        found = [run(folder, None, average="plain", draws=count, seed=seed, **words)[0] for seed in range(3)]
        of_mean = np.concatenate([((one[..., :3] - mean) / deviation)[clear] for one in found])
        of_deviation = np.concatenate([(one[..., 4:7] / deviation - 1)[clear] for one in found])
        assert np.sqrt(np.square(of_mean).mean()) == pytest.approx(1 / np.sqrt(count), rel=0.3)
        assert np.sqrt(np.square(of_deviation).mean()) == pytest.approx(1 / np.sqrt(2 * (count - 1)), rel=0.3)


def test_masked_and_dark_pixels(setting):
    """A fraction of nothing is unknown; the brightness is 0, and counts in every draw."""
    folder, _, Y, _ = setting
    Y[0, 0], Y[1, 1], Y[1, 3] = -7, -0.5, 1e-4  # nodata; nothing of any spectrum; lit in some draws
    words = {"average": "plain", "draws": 12, "noise": folder / "noise.csv"}
    found, bands = run(folder, Y, shade_normalize=True, **words)
    assert np.all(found[0, 0] == -9999)
    assert np.all(found[1, 1, :3] == -9999) and found[1, 1, 3] == 0 and np.all(found[1, 1, 4:7] == -9999)
    assert found[1, 1, 7] == 0 and np.all(found[1, 2] != -9999)
    plain, _ = run(folder, Y, name="plain", **words)
    assert bands[3] == "mean of brightness"
    np.testing.assert_allclose(found[..., [3, 7]], plain[..., [3, 7]], rtol=1e-6)
    verify_tells(
        folder / "x/x", "average", LINES, lambda values: values.put(0, 1.0), fault="its average does not match"
    )


@pytest.mark.slow
def test_noise_of_any_size(setting):
    """A band that is switched off by its noise, and noise whose square's square is no number."""
    folder, E, Y, sigma = setting
    for change in (lambda s: np.where(np.arange(L) == 3, 1e8, s), lambda s: s * 1e-90):
        (folder / "wide.csv").write_text("\n".join(map(repr, change(sigma).tolist())))
        found, _ = run(folder, Y, average="plain", draws=50, noise=folder / "wide.csv")
        assert np.all(np.isfinite(found))
    assert np.all(found[..., 4:] < 1e-12)
    factor = noise_factor(E, np.where(np.arange(L) == 3, 1e8, sigma), True)
    Q = np.linalg.qr(E)[0]
    weighted = Q * np.where(np.arange(L) == 3, 1e8, sigma)[:, None]
    np.testing.assert_allclose(Q.T @ factor @ factor.T @ Q, weighted.T @ weighted, rtol=1e-8, atol=1e-4)


def test_dependent_spectra_add_no_noise(setting):
    """The rounding of a spectrum that is a mixture of others would be a direction of its own, and another on another computer."""
    _, E, _, sigma = setting
    with_copies = np.column_stack([E[:, :2], 1.3 * E[:, 0], E[:, 0] + E[:, 1], np.zeros(L), E[:, 2:]])
    np.testing.assert_allclose(noise_factor(with_copies, sigma, True), noise_factor(E, sigma, True), atol=1e-12)
    factor = noise_factor(np.random.default_rng(0).random((6, 11)), sigma[:6], True)
    np.testing.assert_allclose(factor @ factor.T, np.diag(sigma[:6] ** 2), atol=1e-15)


@pytest.mark.parametrize(
    ("case", "method"),
    [
        ("twins of two classes", "nnls"),
        ("more spectra than bands", "nnls"),
        ("twins of two classes", "fcls"),
        ("twins of two classes", "pcls"),
    ],
)
def test_verify_passes_over_draws_without_a_unique_answer(tmp_path, method, case):
    random = np.random.default_rng(3)
    bands, spectra = (40, 8) if case.startswith("twins") else (10, 30)
    E = random.random((bands, spectra)) + 0.1
    if case.startswith("twins"):
        E[:, 1] = E[:, 0]
    write_csv(tmp_path / "library.csv", E, classes=["ab"[j % 2] for j in range(spectra)])
    Y = random.dirichlet(np.ones(spectra - 2), (3, 6)) @ E[:, 2:].T
    write_cube(tmp_path / "x.hdr", Y)
    words = {"endmembers": tmp_path / "library.csv", "method": method, "by": "class", "device": "cpu"}
    unmix.run(tmp_path / "x.hdr", out_dir=tmp_path / "o", average="plain", draws=6, draw_spectra=spectra - 2, **words)
    assert verify(tmp_path / "o/x", everything=True).faults == []


def test_many_draws_share_what_they_can(setting):
    folder, _, Y, _ = setting
    refused(
        unmix.MethodError, "raise `memory`", run, folder, Y, average="plain", draws=10_000, draw_spectra=4, memory="1M"
    )
    sums = ClassSums.of(load(folder / "library.csv"), False)
    problem = plan_problem(load(folder / "library.csv"), *choose("nnls", None))
    draws = plan_draws(problem, sums, DrawChoice(500, 4, 0, True), 10**9)
    assert len(draws) == 500 and len(set(map(id, draws))) == 4  # npv always, and all but one of the others
    assert len(set(map(id, plan_draws(problem, sums, DrawChoice(500, None, 0, True), 10**9)))) == 1
