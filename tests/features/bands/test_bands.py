"""Choosing bands: against plain projections and least squares in numpy, on every device, and from files to files."""

import csv
import json

import numpy as np
import pytest
import scipy.io
import scipy.stats
from click.testing import CliRunner
from conftest import refused, rest_slow, write_csv, write_cube
from hypothesis import given, settings
from hypothesis import strategies as st
from unmix_cli.main import cli

import unmix
from unmix.devices import simulated
from unmix.errors import LibraryError
from unmix.features.bands.arrays import chain_engine, cut_folds, least_collinear, samples_of, select_bands
from unmix.features.bands.scene import bands_of, numeric_rows, read_target, rows_of


def spectra(N, K, seed=0, noise=1e-3):
    """Smooth ones, as of the near infrared: broad peaks and a little noise."""
    random = np.random.default_rng(seed)
    axis = np.linspace(0, 1, K)
    peaks = np.array(
        [np.exp(-0.5 * ((axis - c) / w) ** 2) for c, w in zip(random.random(20), random.uniform(0.01, 0.15, 20))]
    )
    return random.random((N, 20)) @ peaks + noise * random.standard_normal((N, K))


def plain_chain(X, start, most):
    """Successive projections as they are told: a column is chosen, and all are projected beside it."""
    left, order = X.copy(), [start]
    while len(order) < most:
        q = left[:, order[-1]] / np.linalg.norm(left[:, order[-1]])
        left = left - np.outer(q, q @ left)
        size = np.square(left).sum(axis=0)
        size[order] = -1
        order.append(int(np.argmax(size)))
    return order


@pytest.mark.sim
def test_chains_are_successive_projections(device):
    N, K, most = (9, 6, 4) if simulated() else (60, 45, 25)
    X = spectra(N, K)
    X -= X.mean(axis=0)
    with chain_engine(device, 2) as (engine, _):
        orders, counts = engine.chains(X.T @ X, most)
    assert np.all(counts == most)
    for start in range(K):
        assert orders[start].tolist() == plain_chain(X, start, most)


@pytest.mark.sim
def test_a_chain_ends_where_the_rest_is_dependent(device):
    random = np.random.default_rng(0)
    X = random.standard_normal((30, 3)) @ random.standard_normal((3, 8))
    X[:, 5] = 1.0  # constant: nothing once it is centred
    X -= X.mean(axis=0)
    with chain_engine(device, 2) as (engine, _):
        orders, counts = engine.chains(X.T @ X, 6)
    assert counts.tolist() == [3, 3, 3, 3, 3, 0, 3, 3]
    assert all(len(set(order[:3])) == 3 and 5 not in order[:3] for i, order in enumerate(orders) if i != 5)


@pytest.mark.sim
def test_every_prefix_predicts_as_least_squares(device):
    """To 1e-8 where the Gram matrix's condition is below 1e8."""
    N, K, most = (12, 5, 3) if simulated() else (90, 40, 30)
    X = spectra(N, K, noise=1e-2)
    y = X[:, 2] - 0.5 * X[:, 4] + 0.01 * np.random.default_rng(1).standard_normal(N)
    calibration, validation = cut_folds(N, 0.3, None, 0)[0]
    samples = samples_of(X, y, calibration, validation)
    with chain_engine(device, 2) as (engine, _):
        orders, counts = engine.chains(samples.gram, most)
        squares = np.zeros((K, most))
        engine.regress(samples, orders, counts, squares)
    compared = 0
    mean, level = X[calibration].mean(axis=0), y[calibration].mean()
    for start in range(0, K, 1 if simulated() else 7):
        for m in range(1, counts[start] + 1):
            P = orders[start, :m]
            own = X[calibration][:, P] - mean[P]
            if np.linalg.cond(own) ** 2 < 1e8:
                slopes = np.linalg.lstsq(own, y[calibration] - level, rcond=None)[0]
                expected = np.square(y[validation] - level - (X[validation][:, P] - mean[P]) @ slopes).sum()
                assert np.sqrt(squares[start, m - 1]) == pytest.approx(np.sqrt(expected), rel=1e-8)
                compared += 1
    assert compared > most


@pytest.mark.parametrize("how", [{"validation": 0.3}, {"folds": 5}])
def test_the_fewest_bands_that_an_f_test_allows(how):
    """By relevance, of the best prefix; those with one band less have an error significantly above the least."""
    X = spectra(80, 20, noise=1e-2)
    y = X[:, [3, 9, 15]] @ [1.0, 0.5, 0.2] + 0.02 * np.random.default_rng(0).standard_normal(80)
    whole, found = (select_bands(X, y, alpha=alpha, **how) for alpha in (0, 0.25))
    predicted = 80 if "folds" in how else len(cut_folds(80, 0.3, None, 0)[0][1])
    order = [band for _, band in sorted(zip(-whole.relevance, whole.bands))]

    def error(bands):
        total = 0.0
        for calibration, validation in cut_folds(80, how.get("validation"), how.get("folds"), 0):
            design = np.column_stack([np.ones(80), X[:, bands]])
            slopes = np.linalg.lstsq(design[calibration], y[calibration], rcond=None)[0]
            total += np.square(y[validation] - design[validation] @ slopes).sum()
        return total

    errors = np.array([error(order[:m]) for m in range(1, len(order) + 1)])
    most = errors.min() * scipy.stats.f.ppf(0.75, predicted, predicted)
    assert sorted(found.bands) == sorted(order[: 1 + int(np.flatnonzero(errors <= most)[0])]) and len(
        found.bands
    ) < len(order)


@pytest.mark.parametrize("how", [{"validation": 0.3}, {"folds": 5}])
def test_planted_bands_are_found(how):
    """A target of three bands whose neighbours are of another kind."""
    random = np.random.default_rng(3)
    X = spectra(150, 60, noise=1e-3)
    planted = [7, 25, 48]
    X[:, planted] += 0.3 * random.standard_normal((150, 3))
    y = X[:, planted] @ [1.0, -2.0, 0.7] + 3 + 1e-3 * random.standard_normal(150)
    found = select_bands(X, y, **how)
    assert set(found.bands) == set(planted) and found.rmsep < 2e-3
    assert found.rmsep <= 1.1 * found.least and len(found.chain) >= 3
    np.testing.assert_allclose(found.coefficients[np.argsort(found.bands)], [1, -2, 0.7], atol=5e-3)
    assert found.intercept == pytest.approx(3, abs=5e-3) and np.all(np.diff(found.relevance) <= 0)


def test_the_error_is_that_of_cross_validation():
    """Each sample predicted once from the other folds, by numpy."""
    X = spectra(50, 20, noise=1e-2)
    y = X[:, 3] + 0.1 * np.random.default_rng(0).standard_normal(50)
    found = select_bands(X, y, folds=5, most=8, alpha=0)
    total = 0.0
    for calibration, validation in cut_folds(50, None, 5, 0):
        design = np.column_stack([np.ones(len(calibration)), X[np.ix_(calibration, found.chain)]])
        slopes = np.linalg.lstsq(design, y[calibration], rcond=None)[0]
        total += np.square(y[validation] - slopes[0] - X[np.ix_(validation, found.chain)] @ slopes[1:]).sum()
    assert found.least == pytest.approx(np.sqrt(total / 50), rel=1e-9)
    assert plain_chain(X - X.mean(axis=0), found.chain[0], len(found.chain)) == list(found.chain)  # of all samples
    assert found.least == min(error for _, error, _ in found.curve) and set(found.bands) == set(found.chain)


@settings(max_examples=60)
@given(
    st.integers(3, 20),
    st.integers(1, 12),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["random", "integers", "copies", "constant"]),
)
def test_wild_tables(N, K, seed, family):
    """Either a clear error, or bands that are not mixtures of each other with a finite error."""
    random = np.random.default_rng(seed)
    X = random.integers(-2, 3, (N, K)) * 1.0 if family == "integers" else random.standard_normal((N, K))
    X = np.repeat(X[:, :1], K, axis=1) if family == "copies" else X * (0 if family == "constant" else 1)
    try:
        found = select_bands(X, random.standard_normal(N), folds=2)
    except (unmix.InputError, unmix.MethodError) as error:
        varies_little = family == "constant" or (family == "integers" and "constant in some fold" in str(error))
        assert "\n" not in str(error) and (varies_little or N == 3), error
        return
    assert np.isfinite(found.rmsep) and len(set(found.bands)) == len(found.bands) <= K
    assert np.linalg.matrix_rank(X[:, found.bands] - X[:, found.bands].mean(axis=0), tol=1e-9) == len(found.bands)


def test_the_least_collinear_without_a_target():
    """Of groups of copies one each; and no other chain spans more."""
    random = np.random.default_rng(5)
    X = np.repeat(random.standard_normal((200, 4)), 5, axis=1) + 0.01 * random.standard_normal((200, 20))
    found = least_collinear(np.cov(X, rowvar=False), 4)
    assert sorted(band // 5 for band in found.bands) == [0, 1, 2, 3]
    C = np.corrcoef(X, rowvar=False)
    own, *others = (
        np.linalg.det(C[np.ix_(bands, bands)])
        for bands in (found.bands, *(plain_chain(X - X.mean(axis=0), start, 4) for start in range(20)))
    )
    assert own >= max(others) * (1 - 1e-9)
    with pytest.raises(unmix.MethodError, match="only 3 bands are not mixtures"):
        least_collinear(np.cov(X[:, [0, 5, 10, 0, 5]], rowvar=False), 4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y": np.ones(30)}, "constant"),
        ({"y": np.arange(29.0)}, "shape"),
        ({"X": np.full((30, 4), np.nan)}, "first in row 1"),
        ({"folds": 1}, "`folds`"),
        ({"folds": 3, "validation": 0.2}, "contradict"),
        ({"validation": 1.5}, "`validation`"),
        ({"most": 40}, "`most` 40: must be from 1 to 4"),
        ({"alpha": 1.0}, "`alpha`"),
        ({"X": np.ones((30, 4))}, "every band is constant"),
    ],
)
def test_what_is_wrong_is_said(change, words):
    arguments = {"X": spectra(30, 4), "y": np.arange(30.0)} | change
    refused(unmix.UnmixError, words, select_bands, **arguments)


@pytest.mark.parametrize("kind", rest_slow(["csv", "plain", "npy"], "csv"))
def test_from_a_table_to_files(tmp_path, kind):
    X = spectra(60, 30, noise=1e-2)
    y = X[:, 11] - X[:, 22] + 1e-3 * np.random.default_rng(0).standard_normal(60)
    table = tmp_path / ("t.npy" if kind == "npy" else "t.csv")
    if kind == "npy":
        np.save(table, X)
    else:
        heading = [["name", *(400 + 10 * k for k in range(30))]] if kind == "csv" else []
        rows = [
            [f"s{i}", *map(repr, map(float, row))] if heading else [*map(repr, map(float, row))]
            for i, row in enumerate(X)
        ]
        table.write_text("\n".join(",".join(map(str, row)) for row in heading + rows) + "\n")
    (tmp_path / "y.csv").write_text("protein\n" + "\n".join(map(repr, map(float, y))) + "\n")
    words = ["bands", str(table), "--target", str(tmp_path / "y.csv"), "-o", str(tmp_path / "o"), "--device", "cpu"]
    words += ["-m", "12"]
    result = CliRunner().invoke(cli, [*words, "--alpha", "0.05"], catch_exceptions=False)
    chosen = [int(band) for band in result.stdout.split("\n")[0].split(",")]
    expected = select_bands(X, y, most=12, alpha=0.05)
    assert chosen == sorted(expected.bands + 1)
    report = json.loads((tmp_path / "o/t_bands.json").read_text())
    assert report["bands"] == (expected.bands + 1).tolist() and report["rmsep"] == pytest.approx(expected.rmsep)
    assert report["wavelengths"] == ([400.0 + 10 * b for b in expected.bands] if kind == "csv" else None)
    curve = list(csv.DictReader((tmp_path / "o/t_curve.csv").open()))
    assert [float(row["rmsep"]) for row in curve] == [error for _, error, _ in expected.curve]
    assert (tmp_path / "o/t_curve.png").read_bytes().startswith(b"\x89PNG")
    again = CliRunner().invoke(cli, words)
    assert isinstance(again.exception, unmix.OutputError) and "exists already" in str(again.exception)
    assert not list(tmp_path.rglob("*.part"))


def test_from_a_cube(tmp_path):
    random = np.random.default_rng(2)
    X = spectra(120, 25, noise=1e-2)
    wavelength = "{" + ", ".join(str(500 + 5 * k) for k in range(25)) + "}"
    header = write_cube(tmp_path / "c.hdr", X.reshape(10, 12, 25), "bil", wavelength=wavelength)
    chosen = CliRunner().invoke(
        cli, ["bands", str(header), "-m", "5", "-o", str(tmp_path / "o")], catch_exceptions=False
    )
    best = least_collinear(np.cov(X, rowvar=False), 5)
    assert chosen.stdout.split("\n")[0] == ",".join(str(b + 1) for b in sorted(best.bands))
    places = random.choice(120, 60, replace=False)
    y = X[places, 9] * 2 + 1e-3 * random.standard_normal(60)
    rows = [f"{n // 12},{n % 12},{value!r}" for n, value in zip(places, map(float, y))]
    (tmp_path / "y.csv").write_text("\n".join(["line,sample,biomass", *rows]))
    words = ["bands", str(header), "--target", str(tmp_path / "y.csv"), "-o", str(tmp_path / "p"), "--bands", "3-20"]
    words += ["--json", "-m", "10"]
    found = json.loads(CliRunner().invoke(cli, words, catch_exceptions=False).stdout.split("\n")[0])
    expected = select_bands(X[places][:, 2:20], y, most=10)
    assert found["bands"] == (expected.bands + 3).tolist() and found["samples"] == 60
    cases = [("11,0,1", "not in 10 x 12"), ("0,0", "is no value"), ("1.5,0,2", "is no line")]
    cases += [("0,0,nan", "is no value")]
    for bad, message in cases:
        (tmp_path / "bad.csv").write_text(f"line,sample,biomass\n{bad}\n")
        failed = CliRunner().invoke(cli, [*words[:3], str(tmp_path / "bad.csv"), *words[4:6], "--overwrite"])
        assert isinstance(failed.exception, unmix.InputError) and message in str(failed.exception), bad


def test_a_copy_of_a_bright_band_ends_no_chain():
    """Of two bands, a copy of each other but for noise, one is in; dim ones that are no mixture of them are, too."""
    random = np.random.default_rng(0)
    u, v, w = random.standard_normal((3, 60))
    X = np.column_stack([1e4 * u, 1e4 * u + 5e-3 * random.standard_normal(60), 1e-3 * v, 1e-3 * w])
    assert sorted(least_collinear(np.cov(X, rowvar=False), 3).bands)[1:] == [2, 3]
    y = X[:, 0] / 1e4 + 1e3 * X[:, 2] - 2e3 * X[:, 3]
    assert select_bands(X, y).rmsep < 1e-6


def test_a_band_that_is_constant_in_every_fold():
    refused(unmix.InputError, "constant in some fold", select_bands, np.eye(12), np.arange(12.0), folds=12)


def test_tables_that_are_wrong(tmp_path):
    import h5py

    X = spectra(9, 6)
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file["spec"] = X
    for name in ("t.h5:/spec", "t.h5:spec"):
        result = CliRunner().invoke(
            cli, ["bands", f"{tmp_path}/{name}", "-m", "2", "--bands", "2-5", "-o", str(tmp_path / "o"), "--overwrite"]
        )
        assert set(map(int, result.stdout.split("\n")[0].split(","))) <= {2, 3, 4, 5}
    X[4, 2] = np.nan
    for values, words in ((X, "spectrum 5 has a value at band 3"), (X[:1], "two at least")):
        np.save(tmp_path / "t.npy", values)
        failed = CliRunner().invoke(cli, ["bands", str(tmp_path / "t.npy"), "-m", "2", "-o", str(tmp_path / "p")])
        assert isinstance(failed.exception, unmix.InputError) and words in str(failed.exception)


def test_a_library_is_read_as_everywhere(tmp_path):
    """Wavelengths in any order, as of AVIRIS, whose spectrometers overlap; by header, without extension, MATLAB, a folder of text."""
    X = spectra(8, 20)
    axis = np.r_[400 + 10 * np.arange(12), 495 + 10 * np.arange(8)].astype(float)
    text = (
        "ENVI\nsamples = 20\nlines = 8\nbands = 1\ndata type = 5\nfile type = ENVI Spectral Library\nbyte order = 0\n"
    )
    (tmp_path / "lib").write_bytes(X.tobytes())
    (tmp_path / "lib.hdr").write_text(text + f"wavelength = {{{', '.join(map(str, axis))}}}\n")
    (tmp_path / "own.sli").write_bytes(X.tobytes())
    (tmp_path / "own.sli.hdr").write_text((tmp_path / "lib.hdr").read_text())
    write_csv(tmp_path / "t.csv", X.T, axis)
    scipy.io.savemat(tmp_path / "m.mat", {"A": X.T, "wavelengths": axis})
    (tmp_path / "folder").mkdir()
    for i, row in enumerate(X):
        lines = "".join(f"{w / 1000} {v}\n" for w, v in zip(axis, row))
        head = f"Name: s{i}\nX Units: Wavelength (micrometers)\nY Units: Reflectance\n"
        (tmp_path / "folder" / f"s{i}.spectrum.txt").write_text(head + lines)
    expected = least_collinear(np.cov(X, rowvar=False), 3).bands + 1
    cases = [("lib", "lib"), ("lib.hdr", "lib"), ("own.sli.hdr", "own"), ("t.csv", "t"), ("m.mat", "m")]
    cases += [("folder", "folder")]
    for name, stem in cases:
        words = ["bands", str(tmp_path / name), "-m", "3", "-o", str(tmp_path / "o"), "--overwrite", "--device", "cpu"]
        result = CliRunner().invoke(cli, words, catch_exceptions=False)
        if name != "folder":  # whose channels are put in order
            assert result.stdout.split("\n")[0] == ",".join(map(str, sorted(expected))), name
        report = json.loads((tmp_path / f"o/{stem}_bands.json").read_text())
        assert len(report["wavelengths"]) == 3 and set(report["wavelengths"]) <= set(axis)


def test_deleted_channels_that_no_spectrum_has_are_left_out(tmp_path):
    X = spectra(8, 20)
    X[:, 5] = -1.23e34
    write_csv(tmp_path / "t.csv", X.T, 400 + 10 * np.arange(20))
    words = ["bands", str(tmp_path / "t.csv"), "-m", "3", "-o", str(tmp_path / "o"), "--device", "cpu"]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert "6" not in result.stdout.split("\n")[0].split(",")
    X[2, 7] = np.nan
    write_csv(tmp_path / "t.csv", X.T, 400 + 10 * np.arange(20))
    failed = CliRunner().invoke(cli, words)
    assert isinstance(failed.exception, unmix.InputError) and "spectrum 3 ('em 3')" in str(failed.exception)
    assert CliRunner().invoke(cli, [*words, "--bands", "9-20", "--overwrite"]).exit_code == 0


def test_tables_and_targets_of_bands(tmp_path):
    (tmp_path / "t.csv").write_text("0,12;0,13\n0,5;1\n")
    assert numeric_rows(tmp_path / "t.csv") == [["0.12", "0.13"], ["0.5", "1"]]
    (tmp_path / "y.csv").write_text("name;value\na;0,35\nb;1,5\n")
    target = read_target(tmp_path / "y.csv")
    assert target["value"].tolist() == [0.35, 1.5] and target["name"] == ["a", "b"]
    for name, text in {"u": "0,35\n0,4\n", "v": "name,value\na,0,35\n", "x": "a,0,35\nb,0,41\n"}.items():
        (tmp_path / f"{name}.csv").write_text(text)
        refused(LibraryError, "decimal", read_target, tmp_path / f"{name}.csv")
    (tmp_path / "w.csv").write_text("0,1312,0,2\n0,1411,1,25\n")
    refused(LibraryError, "'0,1312' may be a number with a decimal comma", numeric_rows, tmp_path / "w.csv")
    assert len(rows_of(tmp_path / "w.csv")) == 2


@pytest.mark.parametrize("names", ["W-{}", "100{}", "{}", "{}.5"])
def test_rows_are_matched_by_names_of_any_kind(tmp_path, names, caplog):
    """In the laboratory's own order; where no name is known, in the order of rows, which is said."""
    random = np.random.default_rng(4)
    X, order = spectra(40, 12, noise=1e-2), random.permutation(40)
    y, waves = X[:, 7] + 1e-3 * random.standard_normal(40), range(400, 520, 10)
    said = [names.format(i + 1) for i in range(40)]
    rows = [",".join([name, *map(repr, row)]) for name, row in zip(said, X.tolist())]
    (tmp_path / "t.csv").write_text("\n".join([",".join(["name", *map(str, waves)]), *rows]) + "\n")
    for known in (True, False):
        some = [said[i] if known else str(900_000 + i) for i in (order if known else range(40))]
        lines = [f"{name},{value!r}" for name, value in zip(some, y[order if known else slice(None)].tolist())]
        (tmp_path / "y.csv").write_text("\n".join(["sample,protein", *lines]) + "\n")
        caplog.clear()
        caplog.set_level("INFO", "unmix")
        found = bands_of(tmp_path / "t.csv", target=tmp_path / "y.csv", most=5, out_dir=tmp_path / str(known))
        assert found["rmsep"] < 0.01 and ("by their order" in caplog.text) != known
