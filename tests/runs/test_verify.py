"""`verify`: every value of every map that somebody changes is found, digests made anew; optima by their conditions alone."""

import json
import shutil

import numpy as np
import pytest
from conftest import falsify_record, write_csv, write_cube
from hypothesis import given
from hypothesis import strategies as st
from reference.abundances import METHODS, l1, of_pixels, poisson_of_pixel
from test_cli import unmix as command

import unmix
from unmix.commands.verify import verify
from unmix.commands.verify.conditions import breaks_conditions, slopes_of_cost
from unmix.methods import METHODS as TABLE
from unmix.outputs.digests import image_digest_within

LINES, SAMPLES, L = 12, 9, 20
CASES = {
    "fcls": {
        "method": "fcls",
        "certificate": True,
        "residual": True,
        "uncertainty": True,
        "by": "class",
        "class_map": True,
    },
    "quantized": {"method": "nnls", "normalize": "length", "quantize": 0.001},
    "top": {"method": "nnls", "top": 2},
    "at most": {"method": "nnls", "at_most": 2},
    "draws": {"method": "pcls", "average": "plain", "draws": 5, "by": "class"},
    "l1": {"method": "nnls", "l1": 0.01},
    "weights": {"method": "scls", "weights": "noise", "noise": "noise.txt"},
    "models": {"method": "mesma", "average": "likelihood"},
    "ranges": {"method": "fcls", "ranges": "class", "within": 0.01},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Finished runs, a folder for each case, of a scene beside them."""
    folder, random = tmp_path_factory.mktemp("verify"), np.random.default_rng(4)
    E = random.uniform(0.1, 0.9, (L, 5))
    write_csv(folder / "library.csv", E, classes=["soil", "tree", "soil", "npv", "tree"])
    Y = random.dirichlet(np.full(5, 0.7), (LINES, SAMPLES)) @ E.T + 0.005 * random.standard_normal((LINES, SAMPLES, L))
    Y[3, 4] = -7
    write_cube(folder / "x.hdr", Y, data_ignore_value=-7)
    (folder / "noise.txt").write_text("".join(f"{0.004 + 0.0001 * b}\n" for b in range(L)))
    for name, words in CASES.items():
        words = words | ({"noise": folder / "noise.txt"} if "noise" in words else {})
        unmix.run(folder / "x.hdr", endmembers=folder / "library.csv", out_dir=folder / name, device="cpu", **words)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_any_value_of_any_map_that_is_changed(runs, tmp_path, case):
    """A value at random, made a little larger, 0, or no data; the digests are those of the changed map."""
    found = verify(runs / case / "x", everything=True)
    assert found.faults == [] and found.same_bytes and found.lines == LINES
    assert found.pixels == (LINES * SAMPLES - 1) * (case != "models")
    random = np.random.default_rng(len(case))
    for grows in (True, False):
        shutil.rmtree(tmp_path / "o", ignore_errors=True)
        shutil.copytree(runs / case, tmp_path / "o")
        maps = {path.stem.removeprefix("x_"): path for path in (tmp_path / "o").glob("x_*.img")}
        for path in maps.values():
            number = path.with_suffix(".hdr").read_text().split("data type = ")[1].split()[0]
            values = np.fromfile(path, {"4": "<f4", "12": "<u2", "1": "u1"}[number])
            at = random.integers(len(values))
            one = values[at]
            larger = np.nextafter(one, np.inf, dtype=values.dtype) if number == "4" else one + 1
            values[at] = larger if grows else one == 0
            values.tofile(path)
            reseal(path)
        faults = " ".join(verify(tmp_path / "o/x", runs / "x.hdr", everything=True).faults)
        assert [name for name in maps if f"its {name} does not match the cube, unmixed again" not in faults] == []


def reseal(path):
    """Give the record the digest that a map has now."""
    with path.open("rb") as file:
        digest = image_digest_within(file, LINES)
    falsify_record(path.with_name("x"), lambda report: report["digests"].update({path.name: digest}))


@pytest.mark.slow
def test_numbers_of_the_record_and_what_is_not_of_this_code(runs, tmp_path):
    """Of all lines the record's counts are compared. A run of other code is held to rounding, and a value far off is found."""
    for change in (lambda r: r["pixels"].update(rescued=1), lambda r: r.update(worst_delta=r["worst_delta"] / 2)):
        shutil.copytree(runs / "fcls", tmp_path / "o", dirs_exist_ok=True)
        falsify_record(tmp_path / "o/x", change)
        assert "unmixed again" in verify(tmp_path / "o/x", everything=True).faults[0]
    shutil.copytree(runs / "fcls", tmp_path / "o", dirs_exist_ok=True)
    falsify_record(tmp_path / "o/x", lambda report: report.update(computed_by="an abacus"))
    found = verify(tmp_path / "o/x", runs / "x.hdr", everything=True)
    assert found.faults == [] and not found.same_bytes and found.largest_difference == 0.0
    values = np.fromfile(tmp_path / "o/x_sigma.img", "<f4")
    values[7] *= 1.2
    values.tofile(tmp_path / "o/x_sigma.img")
    reseal(tmp_path / "o/x_sigma.img")
    (fault,) = verify(tmp_path / "o/x", runs / "x.hdr", everything=True).faults
    assert "its sigma does not match the cube, unmixed again" in fault


@given(st.integers(0, 2**31), st.sampled_from(sorted(METHODS)), st.sampled_from((0.0, 1e-3)), st.floats(-3, 3))
def test_conditions_of_an_optimum(seed, method, blur, scale):
    """Optima by scipy hold them, and none that has one abundance changed by a hundredth of the largest."""
    random = np.random.default_rng(seed)
    p = int(random.integers(2, 7))
    E, Y = 10**scale * random.uniform(0.1, 1, (12, p)), 10**scale * random.uniform(0, 1, (8, 12))
    constraint = TABLE["fcls" if method == "pcls" else method].constraint
    E = np.column_stack([E, np.zeros(12)]) if method == "pcls" else E
    A = of_pixels(METHODS["fcls" if method == "pcls" else method], Y, E)
    error = 2e-6 * np.maximum(1, np.abs(A)) + blur
    noise = np.clip(random.uniform(-1, 1, A.shape), -1, 1) * error * 0.9
    noise = np.where(A > 0, np.maximum(A + noise, 0) - A, 0) if constraint.has_bounds else noise
    for one, is_wrong in ((A, False), (A + noise, False)):
        found = breaks_conditions(
            one, error, *slopes_of_cost(Y, E, one, error, np.zeros(E.shape[1]), None), constraint, False
        )
        assert not found.any() or is_wrong
    if blur == 0:
        moved = A.copy()
        moved[:, 0] += 0.01 * np.abs(A).max(axis=1)
        if constraint.sum_to_one:  # that a sum is not one is told apart
            moved /= moved.sum(axis=1, keepdims=True)
        if np.linalg.cond(E[:, :p]) < 100:
            told = breaks_conditions(
                moved, error, *slopes_of_cost(Y, E, moved, error, np.zeros(E.shape[1]), None), constraint, False
            )
            assert (told | (np.abs(moved - A).max(axis=1) < 1e-3)).all()


@given(st.integers(0, 2**31))
def test_conditions_of_counts_and_of_a_penalty(seed):
    random = np.random.default_rng(seed)
    E, b = random.uniform(1, 9, (15, 3)), np.full(15, 0.5)
    Y = random.poisson(random.uniform(0, 5, (6, 3)) @ E.T + b).astype(float)
    nonnegative = TABLE["nnls"].constraint
    A, no_penalty = np.array([poisson_of_pixel(E, y, b) for y in Y]), np.zeros(3)
    error = 2e-6 * np.maximum(1, A)
    assert not breaks_conditions(A, error, *slopes_of_cost(Y, E, A, error, no_penalty, b), nonnegative, False).any()
    far = A * 1.01 + 0.01
    assert breaks_conditions(far, error, *slopes_of_cost(Y, E, far, error, no_penalty, b), nonnegative, False).all()
    cost = np.full(3, 0.05 * (Y @ E).max())
    A = np.array([l1(E, y, cost) for y in Y])
    error = 2e-6 * np.maximum(1, A)
    assert not breaks_conditions(A, error, *slopes_of_cost(Y, E, A, error, cost, None), nonnegative, False).any()
    some = Y.any(axis=1)
    assert breaks_conditions(A, error, *slopes_of_cost(Y, E, A, error, no_penalty, None), nonnegative, False)[
        some
    ].all()


def test_a_verdict_as_json(runs):
    said = json.loads(command("verify", runs / "top/x", "--json")[0])
    assert said["faults"] == [] and said["same_bytes"] is True and said["pixels"] == LINES * SAMPLES - 1
