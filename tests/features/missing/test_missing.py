"""What the endmembers of a scene lack, against plain least squares pixel by pixel, and where nothing may be said."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.ndimage
from conftest import refused, write_csv, write_cube
from scipy.optimize import nnls
from test_cli import unmix as command

import unmix
from unmix.features.missing.record import groups_of, largest_group, mostly_within
from unmix.features.missing.scene import common_direction, shared_direction, what_is_missing
from unmix.io import Scene, open_cube, spectra
from unmix.library import Endmembers
from unmix.options import Options
from unmix.runs.look import Look, Sample, usable
from unmix.scene.bands import choose_bands
from unmix.scene.sample import placed
from unmix.summary import Summary

LINES, SAMPLES, L, P, KNOWN = 40, 30, 50, 3, 30
WAVES = np.linspace(500, 2400, L)
RARE = slice(24, 28), slice(3, 9)  # 2 % of the pixels
NAMES = tuple(f"mineral {j}" for j in range(KNOWN))


def library(seed=0):
    """Thirty smooth spectra: continua with some absorptions."""
    random = np.random.default_rng(seed)
    x = np.linspace(0, 1, L)
    matrix = np.empty((L, KNOWN))
    for j in range(KNOWN):
        spectrum = random.uniform(0.3, 0.8) + random.uniform(-0.3, 0.3) * x
        for _ in range(3):
            spectrum *= 1 - random.uniform(0.2, 0.7) * np.exp(
                -(((x - random.random()) / random.uniform(0.03, 0.1)) ** 2)
            )
        matrix[:, j] = spectrum
    return Endmembers(NAMES, matrix, WAVES, source="minerals")


def made(folder, lacks=True, interleave="bip", seed=1):
    """Write a scene of the first three spectra that vary in brightness, and of the eighth in a few pixels; return its path."""
    random, E = np.random.default_rng(seed), library().matrix
    Y = random.dirichlet(np.ones(P), (LINES, SAMPLES)) @ E[:, :P].T
    if lacks:
        Y[RARE] = 0.3 * Y[RARE] + 0.7 * E[:, 7]
    tilt = 1 + 0.02 * random.standard_normal((LINES, SAMPLES, 1)) * np.linspace(-1, 1, L)
    Y *= random.uniform(0.7, 1.3, (LINES, SAMPLES, 1)) * tilt
    Y += 0.004 * random.standard_normal(Y.shape)
    Y[2, 3] = -9999
    waves = f"{{{','.join(map(str, WAVES))}}}"
    return write_cube(
        folder / "s.hdr", Y, interleave, wavelength=waves, wavelength_units="Nanometers", data_ignore_value=-9999
    )


def kept():
    return library().take(range(P))


def written(folder):
    library().write(folder / "minerals.csv", None, None)
    return folder / "minerals.csv"


OPTIONS = [
    {"method": "nnls"},
    {"method": "fcls"},
    {"method": "pcls"},
    {"method": "scls"},
    {"method": "nnls", "normalize": "length"},
    {"method": "nnls", "weights": "w.txt"},
    {"method": "fcls", "top": 2, "quantize": 1e-4},
    {"method": "nnls", "bands": "1-20,25-50"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_missing_spectrum_is_named_and_its_place(tmp_path, options, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savetxt("w.txt", np.linspace(0.5, 2, L))
    found = unmix.run(made(tmp_path), endmembers=kept(), names=library(), **options)["missing"]
    first = found["candidates"][0]
    assert first["name"] == "mineral 7" and first["share"] > 0.6 and first["misfit"] < 0.3 * found["misfit"]
    assert 20 <= found["pixels"] <= 28 and found["looked_at"] == LINES * SAMPLES - 1
    assert 24 <= found["lines"][0] <= found["lines"][1] <= 27 and 3 <= found["samples"][0] <= found["samples"][1] <= 8
    assert ": like mineral 7 (minerals); " in found["said"] and "mostly lines 24–27, samples 3–" in found["said"]
    assert sum(found["of_lines"]) == found["pixels"] <= sum(found["of_lines"][9:12]) + 4


@pytest.mark.parametrize("interleave", ["bip", "bil", "bsq"])
def test_places_are_those_of_the_pixels(tmp_path, interleave):
    scene = open_cube(made(tmp_path, interleave=interleave))
    shape, axes = {
        "bip": ((LINES, SAMPLES, L), (0, 1, 2)),
        "bil": ((LINES, L, SAMPLES), (0, 2, 1)),
        "bsq": ((L, LINES, SAMPLES), (1, 2, 0)),
    }[interleave]
    cube = np.fromfile(tmp_path / "s.img").reshape(shape).transpose(axes)
    bands = choose_bands(scene, "good", None)
    for most in (100, 10_000):
        for part, lines, samples in placed(scene, most):
            np.testing.assert_array_equal(spectra(part, interleave, bands), cube[lines, samples])
    sample = Sample.read(Scene(scene, bands, -9999))
    np.testing.assert_array_equal(sample.Y, cube[sample.lines, sample.samples])
    assert len(sample.Y) == LINES * SAMPLES - 1


def naive(Y, E, C):
    """Directions, counts and misfits by loops: of each pixel what plain least squares leaves, of the worst what nnls does."""
    unit = E / np.linalg.norm(E, axis=0)
    pixels = [y / np.linalg.norm(y) for y in Y]
    left = np.array([y - unit @ np.linalg.lstsq(unit, y)[0] for y in pixels])
    squares = [np.square(r * np.linalg.norm(y)).sum() / (len(E) - E.shape[1]) for r, y in zip(left, Y)]
    noise = [np.sqrt(np.percentile(squares, 5)) / np.linalg.norm(y) for y in Y]
    direction, order, count, _ = shared_direction(left, np.array(noise))
    usual = np.median([np.linalg.norm(r) for r in left]) / np.sqrt(len(E))
    sizes = [np.hypot(n, usual) for n in noise]
    beyond = [(r @ direction - 2 * n) / size for r, n, size in zip(left, noise, sizes)]
    other = [(-(r @ direction) - 2 * n) / size for r, n, size in zip(left, noise, sizes)]
    counts = [
        k
        for k in range(1, len(Y) + 1)
        if (limit := sorted(beyond, reverse=True)[k - 1]) > 0 and sum(b >= limit for b in other) <= 0.05 * k
    ]
    worst = [pixels[k] for k in order[:count]]
    misfits = [np.median([nnls(np.column_stack([unit, c / np.linalg.norm(c)]), y)[1] for y in worst]) for c in C.T]
    return max(counts, default=0), np.median([nnls(unit, y)[1] for y in worst]), misfits


def test_numbers_are_those_of_plain_least_squares(tmp_path):
    scene, E = open_cube(made(tmp_path)), kept().matrix
    sample = Sample.read(Scene(scene, choose_bands(scene, "good", None), -9999))
    look = Look.at(sample, E)
    found = what_is_missing(sample, look, (LINES, SAMPLES), lambda: [library()])
    count, misfit, misfits = naive(sample.Y, E, library().matrix)
    assert found.pixels == count
    np.testing.assert_allclose(found.misfit, misfit, rtol=1e-9)
    for one in found.candidates:
        np.testing.assert_allclose(one.misfit, misfits[NAMES.index(one.name)], rtol=1e-9)
    assert min(misfits) == pytest.approx(min(one.misfit for one in found.candidates), rel=1e-9)
    free = np.linalg.lstsq(E, sample.Y.T)[0].T
    np.testing.assert_allclose(look.negative, (free < 0).mean(axis=0))
    part = free * np.linalg.norm(E, axis=0) / np.linalg.norm(sample.Y, axis=1)[:, None]
    np.testing.assert_allclose(look.far_below, (part < -0.05).mean(axis=0))


def test_the_rest_of_a_library_is_searched(tmp_path):
    scene, path = made(tmp_path), written(tmp_path)
    (tmp_path / "kinds.csv").write_text("name,kind\nmineral 0,a\nmineral 1,a\nmineral 2,b\n")
    chosen = {"select": "mineral 0,mineral 1,mineral 2"}
    classed = chosen | {"classes": f"{tmp_path / 'kinds.csv'}:kind"}  # which has no rows of the rest
    for how in (chosen, {"select": "!mineral [3-9],!mineral ??"}, classed):
        found = unmix.run(scene, endmembers=path, overwrite=True, **how)["missing"]
        assert found["candidates"][0]["name"] == "mineral 7" and found["searched"] == KNOWN - P
        checked = unmix.check(scene, path, **how)
        assert checked["missing"]["candidates"][0]["name"] == "mineral 7"
        assert any(one["about"] == "missing" and one["severity"] == "warning" for one in checked["findings"])
        assert checked["missing"]["said"] == found["said"]
        assert checked["abundances"][0]["negative_if_free"] == pytest.approx(0.05, abs=0.05)


def test_without_a_library_the_pixels_are_said(tmp_path):
    found = unmix.run(made(tmp_path), endmembers=kept())["missing"]
    assert found["candidates"] == [] and found["searched"] == 0 and "`names`" in found["said"]
    true = library().matrix[:, 7]
    apart = np.array(found["unexplained"])
    E = kept().matrix
    of_true = true - E @ np.linalg.lstsq(E, true)[0]
    assert apart @ of_true > 0.95 * np.linalg.norm(apart) * np.linalg.norm(of_true)


@pytest.mark.parametrize("seed", range(6))
def test_a_whole_library_is_silent(tmp_path, seed):
    report = unmix.run(made(tmp_path, lacks=False, seed=seed), endmembers=kept(), names=library(), method="nnls")
    assert report["missing"] is None and len(report["abundances"]) == P
    assert "missing" not in " ".join(report["warnings"])


CLASSES = ("a", "b", "c")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (kept, {"method": "nnls", "l1": 0.01}),
        (library, {"method": "nnls", "bands": "1-20"}),
        pytest.param(lambda: replace(kept(), classes=CLASSES), {"method": "mesma"}, marks=pytest.mark.slow),
    ],
    ids=["l1", "bands", "mesma"],
)
def test_nothing_is_said_where_it_would_be_nonsense(tmp_path, given, words):
    report = unmix.run(made(tmp_path), endmembers=given(), **words)
    assert report["missing"] is None and "negative_if_free" not in report["abundances"][0]


def test_names_do_not_go_with_what_is_no_plain_mixture():
    classes, whole = replace(kept(), classes=CLASSES), library()
    for words in ({"method": "nnls", "l1": 0.01}, {"method": "nnls", "tv": 0.1}, {"method": "mesma"}):
        with pytest.raises(unmix.MethodError, match="since it is for mixtures without a penalty"):
            Options.of(**{"endmembers": classes, "names": whole} | words)


def test_few_pixels_dark_ones_and_large_numbers(tmp_path):
    E = kept().matrix
    random = np.random.default_rng(4)
    cases = [np.zeros((9, 9, L)), np.full((9, 9, L), 1e-200), random.random((3, 3, L))]
    cases += [1e120 * random.random((9, 9, L))]
    for cube in cases:
        sample = Sample(cube.reshape(-1, L), np.zeros(cube.size // L, int), np.zeros(cube.size // L, int))
        assert usable(sample, E) is None
    assert usable(Sample(random.random((99, L)), np.zeros(99, int), np.zeros(99, int)), np.zeros((L, 2))) is None
    flat = np.ones((99, L))
    sample = Sample(flat, np.arange(99), np.zeros(99, int))
    assert what_is_missing(sample, Look.at(sample, flat[:2].T), (99, 1), list) is None


def test_shade_that_is_zero_has_no_answer(tmp_path):
    report = unmix.run(made(tmp_path), endmembers=kept(), method="pcls")
    assert report["abundances"][-1]["negative_if_free"] is None
    assert all(isinstance(one["far_below_if_free"], float) for one in report["abundances"][:-1])


def test_a_run_without_its_pixels_reads_them(tmp_path):
    """A resumed run has those of its own lines alone."""
    from unmix.methods import choose
    from unmix.problem import plan_problem
    from unmix.runs.look import sample_of

    scene = open_cube(made(tmp_path))
    bands = choose_bands(scene, "good", None)
    problem = plan_problem(kept(), *choose("nnls"), Scene(scene, bands, -9999))
    whole = Sample.read(Scene(scene, bands, -9999))
    rows = np.arange(len(whole.Y))[::-1]
    seen = Summary(
        sampled=len(rows),
        kept=[(whole.Y[some], whole.lines[some], whole.samples[some]) for some in np.split(rows, [500])],
    )
    for summary in (Summary(sampled=len(rows)), replace(seen, kept=seen.kept[:1]), seen):
        found = sample_of(scene, problem, summary)
        np.testing.assert_array_equal(found.Y, whole.Y)
        np.testing.assert_array_equal(found.lines, whole.lines)


def looked_at(folder, change):
    """A scene with nothing missing, changed; the sample and the look at it."""
    scene = open_cube(made(folder, lacks=False))
    sample = Sample.read(Scene(scene, choose_bands(scene, "good", None), -9999))
    Y = change(np.random.default_rng(5), sample.Y.copy())
    sample = replace(sample, Y=Y)
    return sample, Look.at(sample, kept().matrix)


def test_of_two_that_fit_alike_the_less_extreme_is_named(tmp_path):
    """The missing spectrum is half of each of an extreme one and an endmember: mixtures with that fit as well."""
    E, true = library().matrix, library().matrix[:, 7]
    extreme = 2 * true / np.linalg.norm(true) - E[:, 0] / np.linalg.norm(E[:, 0])
    both = Endmembers(("extreme", "true"), np.column_stack([extreme, true]), WAVES, source="two")
    found = unmix.run(made(tmp_path), endmembers=kept(), names=both)["missing"]
    assert [one["name"] for one in found["candidates"]] == ["true", "extreme"]
    assert found["candidates"][1]["misfit"] < 1.1 * found["candidates"][0]["misfit"]


def test_a_spectrum_that_explains_too_little_is_not_named(tmp_path):
    others = library().take([j for j in range(KNOWN) if j != 7])
    found = unmix.run(made(tmp_path), endmembers=kept(), names=others.take([4, 9]))["missing"]
    assert found["candidates"] == [] and "no other of 2 spectra explains it" in found["said"]


@pytest.mark.parametrize("counts", [0.5, 3.0, 200.0])
def test_counts_lack_nothing_though_they_are_skewed(tmp_path, counts):
    """Noise has no mean along a direction; a spectrum that is missing has, below the noise of each pixel, too."""
    random = np.random.default_rng(8)
    x = np.linspace(0, 1, 60)
    E = 0.2 + 0.8 * np.exp(-0.5 * ((x[:, None] - random.uniform(0.1, 0.9, 4)) / random.uniform(0.05, 0.3, 4)) ** 2)
    Y = random.poisson(counts * random.dirichlet(np.ones(4), (40, 50)) @ E.T).astype(float)
    library = write_csv(tmp_path / "e.csv", E)
    assert unmix.run(write_cube(tmp_path / "s.hdr", Y), endmembers=library, method="nnls", scale=1)["missing"] is None


@pytest.mark.parametrize("height", [0.3, 0.5])
def test_a_spectrum_below_the_noise_is_missed_where_many_pixels_hold_it(tmp_path, height):
    """A run says what `check` does, and names it where it explains much of what noise does not."""
    random = np.random.default_rng(3)
    x = np.linspace(0, 1, 150)
    E = 0.3 + np.array([0.5, 0.5, 0.5, height]) * np.exp(
        -0.5 * ((x[:, None] - [0.2, 0.5, 0.8, 0.55]) / [0.2, 0.3, 0.2, 0.03]) ** 2
    )
    A = random.dirichlet(np.ones(4), (40, 50)) * (random.random((40, 50, 4)) < [1, 1, 1, 0.3])
    A /= A.sum(axis=2, keepdims=True)
    Y = A @ E.T + 0.06 * random.standard_normal((40, 50, 150))
    path, names = write_cube(tmp_path / "s.hdr", Y), ["a", "b", "c", "d"]
    library = write_csv(tmp_path / "e.csv", E, names=names)
    how = {"endmembers": library, "select": "!d", "method": "fcls"}
    found = unmix.run(path, **how)["missing"]
    assert [one["name"] for one in found["candidates"]] == ["d"] * (height == 0.5)
    assert "something" in str(unmix.check(path, library, select="!d", method="fcls")["findings"])
    assert unmix.run(path, endmembers=library, method="fcls", overwrite=True)["missing"] is None


def test_what_varies_to_both_sides_is_not_missing(tmp_path):
    true, sizes = library().matrix[:, 7], 0.2

    def to_both(random, Y):
        some = random.permutation(len(Y))[:120]
        Y[some] += sizes * np.where(np.arange(120) % 2, 1, -1)[:, None] * true
        return Y

    def to_one(random, Y):
        some = random.permutation(len(Y))[:60]
        Y[some] += sizes * true
        return Y

    sample, look = looked_at(tmp_path, to_both)
    assert what_is_missing(sample, look, (LINES, SAMPLES), lambda: [library()]) is None
    sample, look = looked_at(tmp_path, to_one)
    direction, _, count, clear = common_direction(look.left, look.noise)
    assert 55 <= count <= 66 and clear > 2 and abs(direction @ direction - 1) < 1e-12


def test_ranges():
    every = np.arange(100)
    assert mostly_within(np.array([5, 5, 6, 7, 90]), 100, every) == (5, 7)
    assert mostly_within(np.arange(0, 100, 3), 100, every) is None
    assert mostly_within(np.array([3]), 100, every) == (3, 3)
    # Midway to the next places that were looked at, beyond which nothing is known.
    assert mostly_within(np.array([20, 30, 30]), 100, np.arange(0, 100, 10)) == (15, 35)
    assert mostly_within(np.array([0, 0]), 100, np.arange(0, 100, 10)) == (0, 5)


@pytest.mark.parametrize("size", [(200, 24), (24, 200), (400, 150), (1200, 8)])
def test_a_layer_of_few_lines_is_seen_in_scenes_of_any_shape(tmp_path, size):
    random = np.random.default_rng(5)
    Y = random.dirichlet(np.ones(P), size) @ library().matrix[:, :P].T
    axis, first = int(size[0] < size[1]), max(size) // 3
    layer = tuple(slice(first, first + max(size) // 16) if k == axis else slice(None) for k in range(2))
    Y[layer] = 0.3 * Y[layer] + 0.7 * library().matrix[:, 7]
    Y += 0.004 * random.standard_normal(Y.shape)
    found = unmix.run(write_cube(tmp_path / "s.hdr", Y), endmembers=kept(), device="cpu", browse=False)["missing"]
    low, high = found["samples" if axis else "lines"]
    assert abs(low - first) <= max(size) / 40 and abs(high - layer[axis].stop) <= max(size) / 40
    assert found["pixels"] / found["looked_at"] == pytest.approx(1 / 16, abs=0.02)


def test_log_report_and_command(tmp_path):
    scene, path = made(tmp_path), written(tmp_path)
    kept().write(tmp_path / "three.csv", None, None)
    _, err = command("run", scene, "-e", tmp_path / "three.csv", "--names", path, "-o", tmp_path / "out")
    assert ": like mineral 7 (minerals.csv); misfit " in err
    assert err.count("like mineral") == 1
    page = unmix.report(tmp_path / "out/s").read_text()
    assert page.count("What is missing") == 1 and 'aria-label="spectrum that is missing"' in page
    assert "<td>mineral 7</td>" in page
    command("check", scene, "-e", tmp_path / "three.csv", "--names", path, says="like mineral 7 (minerals.csv)")
    unmix.run(made(tmp_path, lacks=False), endmembers=kept(), out_dir=tmp_path / "b")
    assert "What is missing" not in unmix.report(tmp_path / "b/s").read_text()


def test_names_that_are_not_searched_are_said(tmp_path, caplog):
    E = library().matrix
    path, named = (
        write_cube(tmp_path / "t.hdr", np.random.default_rng(0).dirichlet(np.ones(P), (4, 5)) @ E[:, :P].T),
        written(tmp_path),
    )
    unmix.run(path, endmembers=kept(), names=named, device="cpu", browse=False)
    kept().write(tmp_path / "three.csv", None, None)
    findings = unmix.check(path, tmp_path / "three.csv", names=named)["findings"]
    assert "t: `names` are not searched" in caplog.text and "are not searched" in str(findings)


def test_a_library_of_other_bands_is_an_error(tmp_path):
    scene, short = made(tmp_path), replace(library(), matrix=library().matrix[:20], wavelengths=WAVES[:20])
    refused(unmix.LibraryError, "covers 500 to", lambda: unmix.run(scene, endmembers=kept(), names=short))
    short.write(tmp_path / "short.csv", None, None)
    for endmembers in (None, written(tmp_path)):
        checked = unmix.check(
            scene, endmembers, select=None if endmembers is None else "mineral 1", names=tmp_path / "short.csv"
        )
        assert not checked["sound"] and "covers 500 to" in str(checked["findings"])
    with pytest.raises(unmix.UnmixError, match="s_endmembers"):  # an output would replace it
        (tmp_path / "s_endmembers.csv").write_bytes((tmp_path / "short.csv").read_bytes())
        unmix.run(scene, endmembers=kept(), names=tmp_path / "s_endmembers.csv", out_dir=tmp_path, overwrite=True)


def test_fcls_says_what_brightness_does_to_it(tmp_path):
    """The percentiles are those of numpy's least squares; where brightness does not vary, or noise alone does it, nothing is said."""
    random = np.random.default_rng(8)
    E = random.random((30, 3)) + 0.1
    F = random.dirichlet(np.ones(3), 900)
    light = random.uniform(0.6, 1.2, 900)
    noise = 1e-3 * random.standard_normal((900, 30))
    library = write_csv(tmp_path / "e.csv", E)
    for name, Y in (("even", F @ E.T + noise), ("varies", light[:, None] * F @ E.T + noise)):
        cube = write_cube(tmp_path / f"{name}.hdr", Y.reshape(30, 30, 30))
        for method in ("fcls", None):
            report = unmix.run(cube, endmembers=library, method=method, device="cpu", browse=False, overwrite=True)
            said = [text for text in report["warnings"] if "brightness varies" in text]
            assert len(said) == (name == "varies" and method == "fcls")
    sums = np.percentile(np.linalg.lstsq(E, Y.T, rcond=None)[0].sum(axis=0), (5, 95))
    look = Look.at(Sample(Y, *np.divmod(np.arange(900), 30)), E)
    assert look.sums is not None and np.allclose(look.sums, sums, rtol=1e-9)
    dark = np.full((900, 1), 1.0) * E[:, 0] + 0.5 * random.standard_normal((900, 30))
    assert Look.at(Sample(dark, *np.divmod(np.arange(900), 30)), E).sums is None


@pytest.mark.parametrize("between", [1, 3])
def test_the_place_is_that_of_the_largest_group(between):
    """Of three blocks and strays, in a sample of each fifth line whose columns begin elsewhere: the box of the largest block."""
    blocks = [(slice(12, 22), slice(48, 62)), (slice(40, 44), slice(36, 44)), (slice(55, 63), slice(8, 20))]
    has = np.zeros((80, 80), bool)
    for block in blocks:
        has[block] = True
    has[25, 44:46] = has[30, 70] = True  # cells of theirs touch the first block's
    places = [(line, sample) for line in range(0, 80, 5) for sample in range(line % between, 80, between)]
    lines, samples = np.array(places).T
    there = has[lines, samples]
    inside = there & (lines < 22) & (samples >= 48)
    found = largest_group((lines, samples), lines[there], samples[there])
    assert found == (*((part[inside].min(), part[inside].max()) for part in (lines, samples)), inside.sum())


@pytest.mark.parametrize("share", [0.0, 0.2, 0.4, 0.6, 1.0])
def test_groups_are_those_of_scipy(share):
    """The same pixels are together, whatever the numbers of the groups."""
    there = np.random.default_rng(4).random((37, 53)) < share
    found, (labels, count) = groups_of(there), scipy.ndimage.label(there, np.ones((3, 3)))
    assert len(np.unique(found[there])) == count == len(set(zip(found[there].tolist(), labels[there].tolist())))
    assert not found[~there].any()


def test_fill_of_one_value_is_not_missing(tmp_path):
    """A tenth of the pixels, of a value that no header declares, which the warning on fill names."""
    path = made(tmp_path, lacks=False)
    Y = np.fromfile(path.with_suffix(".img")).reshape(LINES, SAMPLES, L)
    Y[4:8] = 6.5535
    write_cube(path, Y, wavelength=WAVES, wavelength_units="Nanometers", data_ignore_value=-9999)
    kept().write(tmp_path / "e.csv", None, None)
    said = unmix.run(path, endmembers=tmp_path / "e.csv", out_dir=tmp_path / "o", device="cpu")["warnings"]
    assert any("6.5535" in one for one in said) and not any("is missing" in one for one in said)
