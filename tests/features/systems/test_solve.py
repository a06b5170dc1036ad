"""`unmix solve`: from files to files."""

import json

import h5py
import numpy as np
import pytest
import scipy.io
from click.testing import CliRunner
from conftest import refused
from scipy.optimize import nnls as scipy_nnls
from test_cli import unmix as command
from unmix_cli.main import cli

import unmix
from unmix.arrays.nnls import toeplitz
from unmix.features.systems.files import LEAST_SQUARES, answer_files, open_array, solve_files


@pytest.fixture
def arrays():
    random = np.random.default_rng(0)
    return random.random((20, 12)), random.random((7, 20))


def expected(A, B):
    return np.array([scipy_nnls(A, b)[0] for b in B])


@pytest.mark.parametrize("kind", ["npy", "h5", "mat"])
@pytest.mark.parametrize("out", ["x.npy", "x.h5"])
def test_every_kind_of_file_and_any_memory(tmp_path, arrays, kind, out):
    A, B = arrays
    if kind == "npy":
        np.save(tmp_path / "a.npy", A)
        np.save(tmp_path / "b.npy", B.astype(np.float32).astype(float))
        a, b = tmp_path / "a.npy", tmp_path / "b.npy"
        B = np.load(b)
    elif kind == "h5":
        with h5py.File(tmp_path / "s.h5", "w") as file:
            file["g/A"], file["B"] = A, B
        a, b = f"{tmp_path}/s.h5:/g/A", f"{tmp_path}/s.h5:B"
    else:
        scipy.io.savemat(tmp_path / "s.mat", {"A": A, "B": B})
        a, b = f"{tmp_path}/s.mat:A", f"{tmp_path}/s.mat:B"
    for memory in ("1G", 8 * (2 * 20 + 3 * 12 + 8) * 2):  # two systems at a time
        found = solve_files(a, b, tmp_path / out, device="cpu", memory=memory, overwrite=True)
        assert found["certified"] == 7 and found["failed"] == 0 and found["worst_kappa"] < 1e-14
        if out == "x.npy":
            x, left = np.load(tmp_path / "x.npy"), np.load(tmp_path / "x_residual.npy")
            assert np.load(tmp_path / "x_steps.npy").sum() == found["steps"]
        else:
            with h5py.File(tmp_path / out) as file:
                x, left = file["x"][()], file["residual"][()]
                assert set(file) == {"x", "residual", "kappa", "delta", "steps"}
        np.testing.assert_allclose(x, expected(A, B), atol=1e-12)
        np.testing.assert_allclose(left, np.linalg.norm(B - x @ A.T, axis=1))
    assert not list(tmp_path.glob("*.part"))


def test_one_matrix_each_and_one_right_hand_side(tmp_path, arrays):
    A, B = arrays
    np.save(tmp_path / "a.npy", np.stack([A * (i + 1) for i in range(7)]))
    np.save(tmp_path / "b.npy", B)
    solve_files(tmp_path / "a.npy", tmp_path / "b.npy", tmp_path / "x.npy", device="cpu", memory=9000)
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), expected(A, B) / np.arange(1, 8)[:, None], atol=1e-12)
    np.save(tmp_path / "a1.npy", A)
    np.save(tmp_path / "b1.npy", B[0])
    solve_files(tmp_path / "a1.npy", tmp_path / "b1.npy", tmp_path / "y.npy", device="cpu")
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected(A, B[:1]), atol=1e-12)


@pytest.mark.parametrize("many", [False, True])
def test_a_convolution_undone_with_one_command(tmp_path, many):
    random = np.random.default_rng(0)
    pulses = np.exp(-0.5 * ((np.arange(9) - 4) / 1.2) ** 2) * (1 + np.arange(5)[:, None] * 0.1)
    truth = (random.random((5, 60)) < 0.08) * random.random((5, 60))
    A = toeplitz(pulses, 60)
    B = np.einsum("imn,in->im", A if many else A[:1].repeat(5, 0), truth)
    np.save(tmp_path / "p.npy", pulses if many else pulses[0])
    np.save(tmp_path / "b.npy", B)
    words = ["solve", str(tmp_path / "p.npy"), str(tmp_path / "b.npy"), "--toeplitz", "-o", str(tmp_path / "x.npy")]
    words += ["--device", "cpu"]
    result = CliRunner().invoke(cli, [*words, "--json"], standalone_mode=False)
    found = json.loads(result.stdout)
    assert result.return_value == 0 and found["certified"] + found["without_delta"] == 5
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), truth, atol=1e-9)
    again = CliRunner().invoke(cli, words)
    assert isinstance(again.exception, unmix.OutputError) and "exists already" in str(again.exception)


@pytest.mark.real
def test_real_waveforms(tmp_path, data):
    """NEON's, where the package that reads them is installed; every one certified."""
    rdata = pytest.importorskip("rdata")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        received, sent = (
            np.asarray(rdata.read_rda(data / f"lidar_waveformlidar/{name}.rda")[name], float)
            for name in ("return", "outg")
        )
    np.save(tmp_path / "b.npy", received[:40] - received[:40].min(axis=1, keepdims=True))
    np.save(tmp_path / "p.npy", (sent[:40] - sent[:40].min(axis=1, keepdims=True))[:, 10:60])
    found = solve_files(tmp_path / "p.npy", tmp_path / "b.npy", tmp_path / "x.npy", toeplitz_pulse=True, device="cpu")
    assert found["certified"] == 40


FAULTS = {
    "a missing file": ("no.npy", "b.npy", "no such file"),
    "shapes": ("b.npy", "a.npy", "right-hand sides are 12 long, but .* has 20 columns|right-hand sides are 12 long"),
    "transposed": ("a.npy", "bt.npy", "transpose it"),
    "text": ("t.npy", "b.npy", "cannot be read|numbers"),
    "not an array": ("x.csv", "b.npy", "arrays are read from"),
    "which": ("two.h5", "b.npy", "name one of its datasets"),
    "objects": ("o.npy", "b.npy", "cannot be read"),
    "not finite": ("n2.npy", "b.npy", "A holds values that are not finite|not finite"),
}


@pytest.mark.parametrize("what", list(FAULTS))
def test_faults_are_one_line_and_leave_nothing(tmp_path, arrays, what):
    A, B = arrays
    np.save(tmp_path / "a.npy", A)
    np.save(tmp_path / "b.npy", B)
    np.save(tmp_path / "bt.npy", B.T)
    np.save(tmp_path / "t.npy", np.array(["a", "b"]))
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    np.save(tmp_path / "n2.npy", np.where(np.arange(len(A))[:, None] == 2, np.nan, A))
    (tmp_path / "x.csv").write_text("1,2\n")
    with h5py.File(tmp_path / "two.h5", "w") as file:
        file["A"], file["C"] = A, A
    a, b, text = FAULTS[what]
    refused(unmix.InputError, text, solve_files, tmp_path / a, tmp_path / b, tmp_path / "out.npy", device="cpu")
    assert not list(tmp_path.glob("out*"))


def test_arrays_by_name(tmp_path, arrays):
    with h5py.File(tmp_path / "one.h5", "w") as file:
        file["only"] = arrays[0]
    assert open_array(tmp_path / "one.h5").shape == (20, 12)
    refused(unmix.MethodError, r"written to \.npy or \.h5", answer_files, tmp_path / "x.txt", LEAST_SQUARES)


@pytest.mark.parametrize("ending", [".npy", ".h5"])
@pytest.mark.parametrize("memory", ["1G", "8K"])
def test_systems_with_weights_columns_and_a_dictionary(tmp_path, ending, memory):
    """As `unmix.nnls` has them, whole or in parts."""
    random = np.random.default_rng(3)
    N, m, n, K = 50, 8, 5, 3
    arrays = {
        "A": random.random((K, m, n)),
        "B": random.random((N, m)),
        "weights": 10.0 ** random.uniform(-1, 1, (N, m)),
        "allowed": random.random((N, n)) < 0.8,
        "start": random.random((N, n)),
        "dictionary": random.integers(0, K, N),
    }
    names = {}
    for name, values in arrays.items():
        names[name] = tmp_path / f"{name}{ending}"
        if ending == ".npy":
            np.save(names[name], values)
        else:
            with h5py.File(names[name], "w") as file:
                file["x"] = values
    words = [word for name in ("weights", "allowed", "start", "dictionary") for word in (f"--{name}", names[name])]
    command("solve", names["A"], names["B"], *words, "-o", tmp_path / "x.npy", "--device", "cpu", "--memory", memory)
    expected = unmix.nnls(arrays["A"], arrays["B"], **{name: arrays[name] for name in list(arrays)[2:]})
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), expected.x, atol=1e-12)
    assert (np.load(tmp_path / "x.npy")[~arrays["allowed"]] == 0).all()
    np.save(tmp_path / "wrong.npy", arrays["weights"][:, 1:])
    err = command(
        "solve",
        names["A"],
        names["B"],
        "--dictionary",
        names["dictionary"],
        "--weights",
        tmp_path / "wrong.npy",
        "-o",
        tmp_path / "y.npy",
        code=3,
    )[1]
    assert "weights must be (8,) or (50, 8), but has shape (50, 7)" in err and not (tmp_path / "y.npy").exists()
    err = command(
        "solve", names["B"], names["B"], "--quadratic", "--weights", names["weights"], "-o", tmp_path / "y.npy", code=2
    )[1]
    assert "not for --quadratic" in err


def test_systems_without_data_have_none_in_their_answers(tmp_path, arrays):
    A, B = arrays
    weights = np.ones(B.shape)
    B[2, 3], B[4, 0], weights[4, 0], weights[5] = np.nan, np.inf, 0.0, 0.0
    for name, values in (("a", A), ("b", B), ("w", weights)):
        np.save(tmp_path / f"{name}.npy", values)
    files = [tmp_path / f"{name}.npy" for name in "abx"]
    found = solve_files(*files, weights=tmp_path / "w.npy", device="cpu")
    assert (found["without_data"], found["failed"], found["certified"]) == (2, 0, len(B) - 2)
    x = np.load(files[2])
    assert np.isnan(x[[2, 5]]).all() and np.isfinite(np.delete(x, [2, 5], axis=0)).all()
    masked = unmix.nnls(A, np.ma.masked_invalid(B))
    assert np.flatnonzero(np.isnan(masked.x).all(axis=1)).tolist() == [2, 4] and len(masked.failed) == 0
