"""δ against exact arithmetic, the three states of a pixel, and what a run says of its model."""

import json
import zlib
from dataclasses import replace

import numpy as np
import pytest
from conftest import mix, write_csv, write_cube
from exact import FAMILIES, Reference, distance, rational
from scipy.optimize import nnls
from test_certificate import certificates, plan
from test_cli import unmix as command

import unmix
from unmix.certificate import CERTIFIED, FARTHEST, MOST_DELTA
from unmix.commands.verify import verify
from unmix.devices import Line, simulated
from unmix.endmembers import counts as counting
from unmix.methods import METHODS
from unmix.options import Options
from unmix.outputs.digests import record_digest
from unmix.rescue import rescue
from unmix.runs.record.fit import in_percent
from unmix.runs.record.judgement import Seen, judge
from unmix.runs.stream import look_again
from unmix.solvers.pixels.cpu import Plan, Results, Stored, range_solver, runs_in
from unmix.summary import Summary, count_block

# Where abundances were off by 7.8e-7 and 0.045, and κ and δ were 0.
FOUND_WRONG = [
    (
        [
            [0.153, 0.1530045],
            [0.9349999999999999, 0.9349949999999999],
            [1.0010000000000001, 1.0010071],
            [0.624, 0.6240045],
            [0.403, 0.40299440000000003],
            [0.816, 0.8159974999999999],
        ],
        [
            -0.11871778665931995,
            1.945038830773779,
            0.6531447637890451,
            0.795591854206354,
            -0.9584849871330294,
            0.6775131603215744,
        ],
    ),
    (
        [
            [1.047, 1.047000063],
            [0.9349999999999999, 0.9349999959999999],
            [0.858, 0.857999985],
            [0.621, 0.620999972],
            [0.774, 0.774000114],
            [0.44999999999999996, 0.45000004799999993],
        ],
        [
            -9.130720294911326,
            5.507564505922157,
            -3.0540373202209685,
            7.779710574756368,
            8.305889476431052,
            -0.7455297004373505,
        ],
    ),
]


def exact_errors(E, Y, found, method):
    """How far each answer is from the optimum."""
    row = METHODS[method]
    A = found.abundances
    if row.constraint.has_shade:  # δ bounds the distance of all abundances, that of shade included
        E, A = np.column_stack([E, np.zeros(len(E))]), np.column_stack([A, np.maximum(1 - A.sum(axis=1), 0)])
    reference = Reference(E, Y, *row.constraint.flags)
    return np.array([distance(found.abundances[n], reference.optimum(n, a)) for n, a in enumerate(A)])


@pytest.mark.sim
@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize(("E", "y"), FOUND_WRONG)
def test_what_was_certified_and_wrong(device, E, y, method):
    E, Y = np.array(E), np.array([y])
    found = unmix.solve(Y, E, method=method, device=device)
    assert exact_errors(E, Y, found, method)[0] <= found.delta[0] <= 1e-6
    assert found.kappa[0] <= CERTIFIED


# Of the twelve pairs of method and solver, how many may refuse a singular family, which not every solver can work with;
# no other is.
MOST_REFUSED = {"shade": 9, "more_than_bands": 9, "duplicates": 9}


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.parametrize("name", list(FAMILIES))
def test_no_answer_is_further_than_delta(device, name):
    """A thousand of the 200 000 that `tests/bench/proof.py` draws."""
    pairs = [(method, solver) for method in METHODS for solver in METHODS[method].solvers]
    refused = 0
    for turn, (method, solver) in enumerate(pairs):
        random = np.random.default_rng([turn, len(name)])
        p, N = (3, 2) if simulated() else (int(random.choice([2, 3, 5, 9])), 12)
        E, Y = FAMILIES[name](random, p + 5, p, N)
        try:
            found = unmix.solve(Y, E, method=method, solver=solver, device=device)
        except unmix.LibraryError as error:
            assert any(word in str(error) for word in ("collinear", "zero", "bands"))
            refused += 1
            continue
        errors = np.where(np.isfinite(found.delta), exact_errors(E, Y, found, method), 0)
        assert np.all(errors <= found.delta), (method, solver)
        assert not np.any((found.kappa <= CERTIFIED) & (found.delta <= MOST_DELTA) & (errors > MOST_DELTA))
    assert refused <= MOST_REFUSED.get(name, 0)


@pytest.mark.parametrize("method", ["nnls", "fcls"])
@pytest.mark.parametrize("condition", [1e5, 1e6, 1e7])
def test_two_minerals_alike_are_certified(method, condition):
    """Noisy mixtures with a pair that is nearly one: all of them, and right."""
    random = np.random.default_rng(3)
    E = random.random((60, 9)) + 0.1
    E[:, 1] = E[:, 0] + random.standard_normal(60) / condition
    Y = random.dirichlet(np.full(9, 0.4), 400) @ E.T + 0.02 * random.standard_normal((400, 60))
    found = unmix.solve(Y, E, method=method)
    assert found.kappa.max() <= CERTIFIED and found.delta.max() <= FARTHEST
    assert np.mean(found.delta <= 1e-10) >= 0.8
    assert np.all(exact_errors(E, Y[:60], unmix.solve(Y[:60], E, method=method), method) <= found.delta[:60])


@pytest.mark.sim
@pytest.mark.parametrize("method", ["pcls", "nnls", "ucls"])
def test_a_pixel_of_zeros_is_verified(tmp_path, device, method):
    """Its abundances are some 1e-16, of spectra in ten thousands: not nothing, and nothing wrong."""
    random = np.random.default_rng(101)
    E = (random.random((8, 3)) + 0.1) * 10000
    values = random.dirichlet(np.full(3, 0.4), (4, 5)) @ E.T + 200 * random.standard_normal((4, 5, 8))
    values[3] = 0
    path = write_cube(tmp_path / "x.hdr", values.clip(-30000, 30000).astype(np.int16))
    library = write_csv(tmp_path / "e.csv", E)
    unmix.run(path, endmembers=library, method=method, out_dir=tmp_path / "o", browse=False, device=device)
    assert verify(tmp_path / "o/x", everything=True).faults == []


@pytest.mark.sim
@pytest.mark.parametrize("method", ["fcls", "scls"])
def test_a_common_shift_changes_nothing(device, method):
    random = np.random.default_rng(0)
    N = 3 if simulated() else 100
    E = np.round(random.random((12, 5)) * 2**12) / 2**12
    Y = np.round((random.dirichlet(np.ones(5), N) @ E.T + 0.05 * random.standard_normal((N, 12))) * 2**12) / 2**12
    plain = unmix.solve(Y, E, method=method, device=device)
    moved = unmix.solve(Y + 1024.0, E + 1024.0, method=method, device=device)
    np.testing.assert_allclose(moved.abundances, plain.abundances, atol=1e-11)
    np.testing.assert_allclose(moved.delta, plain.delta, rtol=0.5)  # but for the rounding that it measures
    assert moved.kappa.max() <= 1e-13 and plain.kappa.max() <= 1e-13


def excess_of_fit(E, y, a, reference, n):
    """By how much ½ |y − E a|² of abundances is above the least, a rational, for pixel n of a reference with all its spectra."""
    exact = reference.optimum(n, a)
    y, columns = ([rational(value) for value in one] for one in (y, E.ravel()))
    p = E.shape[1]

    def cost(values):
        left = [y[b] - sum((columns[b * p + j] * values[j] for j in range(p)), rational(0.0)) for b in range(len(y))]
        return sum((one * one for one in left), rational(0.0)) / 2

    return cost([rational(value) for value in a]) - cost(exact)


def test_kappa_pays_for_the_error_of_the_sum():
    """docs/methods.md: the sum of squares is within κ s²/100 of the least, but for the rounding of Σa; it was 202 times that."""
    worst, tried = 0.0, 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        L, p = 5, 4
        E = random.uniform(0.1, 1, (L, 3)).round(3)
        E = np.c_[E, E[:, 0] + 10.0 ** -random.integers(5, 9) * random.integers(-9, 10, L)]
        Y = (random.dirichlet(np.ones(4), 12) @ E.T + 0.1 * random.standard_normal((12, L))).round(3)
        found, reference = unmix.solve(Y, E, method="fcls"), Reference(E, Y, True, True)
        mean = E.mean(axis=1)
        longest = np.linalg.norm(E - mean[:, None], axis=0).max()
        for n in np.flatnonzero(found.kappa <= CERTIFIED):
            a, y, s = found.abundances[n], Y[n], max(np.linalg.norm(Y[n] - mean), longest)
            over = excess_of_fit(E, y, a, reference, int(n))
            of_rounding = 2 * p * 2.0**-53 * np.linalg.norm(y - E @ a) * np.linalg.norm(mean)
            worst = max(worst, float(int(over.p) / int(over.q)) / (found.kappa[n] * s**2 / 200 + of_rounding))
            tried += 1
    assert worst <= 1.0 and tried > 400


def test_what_the_error_of_the_sum_is_worth_is_solved_again():
    """Pixels that fit poorly, with spectra alike to 1e-7: some had a δ of 1e-11 and were called open, since their δ grew to 1e-10."""
    random = np.random.default_rng(240)
    E = random.random((260, 240))
    E[:, 1:8:2] = E[:, 0:8:2] * (1 + 1e-7 * random.standard_normal((260, 4)))
    A = np.zeros((300, 240))
    np.put_along_axis(A, random.integers(8, 240, (300, 4)), random.dirichlet(np.ones(4), 300), axis=1)
    A[:, :2] += 0.1
    found = unmix.solve(A @ E.T, E, method="fcls")
    assert found.rmse.min() > 0.01 and found.kappa.max() <= CERTIFIED and found.delta.max() < 1e-6


# Of numbers with few digits, so that none is rounded: these depend on each other exactly.
BACKGROUNDS = {
    "a pair": lambda b, c: [b, -b],
    "of ones": lambda b, c: [np.ones_like(b), -np.ones_like(b)],
    "of other sizes": lambda b, c: [b, -3 * b],
    "short": lambda b, c: [2e-6 * b, -1e-6 * b],
    "two pairs": lambda b, c: [b, -b, c, -c],
    "three in a plane": lambda b, c: [b, c, -b - c],
    "twice": lambda b, c: [b, -b, b],
}


@pytest.mark.sim
@pytest.mark.parametrize("kind", list(BACKGROUNDS))
def test_backgrounds_of_either_sign_are_certified_in_their_fit(device, kind):
    """Some mixture of the spectra is zero, so that no vector has a positive product with all; fits are those of scipy."""
    random = np.random.default_rng(0)
    L, N = (12, 3) if simulated() else (60, 50)
    x = np.linspace(-1, 1, L)
    E = np.column_stack(
        [np.abs(random.standard_normal((L, 4))), *BACKGROUNDS[kind](*np.round(64 * np.array([x, np.cos(3 * x)])) / 64)]
    )
    Y = np.abs(random.standard_normal((N, 4))) @ E[:, :4].T + random.standard_normal((N, 1)) * x
    Y += 0.01 * random.standard_normal((N, L))
    found = unmix.solve(Y, E, method="nnls", device=device)
    assert found.kappa.max() <= CERTIFIED and np.isinf(found.delta).all()
    for y, a in zip(Y, found.abundances):
        assert np.linalg.norm(y - E @ a) <= nnls(E, y)[1] * (1 + 1e-9)


def test_a_background_of_either_sign_proves_no_wrong_fit():
    """κ of abundances a little off, by the code under test: at least 100 times what is lost by them."""
    random = np.random.default_rng(1)
    x = np.linspace(-1, 1, 20)
    E = np.column_stack([np.abs(random.standard_normal((20, 3))), x, -x])
    Y = np.abs(random.standard_normal((30, 5))) @ E.T + 0.1 * random.standard_normal((30, 20))
    best = np.array([nnls(E, y)[0] for y in Y])
    A = np.abs(best + random.choice([1e-3, 1e-6, 1e-9], (30, 1)) * random.standard_normal(best.shape) * (best > 0))
    kappa = certificates(E, Y, A, "nnls")[:, 1]
    lost = (np.square(Y - A @ E.T).sum(axis=1) - np.square(Y - best @ E.T).sum(axis=1)) / np.square(Y).sum(axis=1)
    assert (kappa >= 100 * lost - 1e-12).all() and (kappa[lost > 1e-6] > CERTIFIED).all()


# Backgrounds whose sum is zero but for rounding or noise: in exact arithmetic they do not depend on each other.
NEARLY_ZERO = {
    "rounded": lambda b, c, noise: [b, -b / 3],
    "of other sizes": lambda b, c, noise: [b, -1.1 * b],
    "in 7 digits": lambda b, c, noise: [b, np.array([float(f"{-value:.7g}") for value in b])],
    "in float32": lambda b, c, noise: [b, -b.astype(np.float32).astype(float)],
    "a little longer": lambda b, c, noise: [b, -b * (1 + 1e-6)],
    "three": lambda b, c, noise: [b, c, -b - c],
    "1e-6": lambda b, c, noise: [b, 1e-6 * noise - b],
    "1e-8": lambda b, c, noise: [b, 1e-8 * noise - b],
    "1e-10": lambda b, c, noise: [b, 1e-10 * noise - b],
    "1e-12": lambda b, c, noise: [b, 1e-12 * noise - b],
}


@pytest.mark.parametrize("kind", list(NEARLY_ZERO))
def test_backgrounds_that_nearly_cancel_prove_no_wrong_fit(kind):
    """κ was 1e-12 where the exact optimum, with abundances of 1e16, fits by 8 % of |y|² better; and fits were 7.6 times the best."""
    random = np.random.default_rng(len(kind))
    L, wrong, certified = 6, [], 0
    for _ in range(3):
        x = np.linspace(-1, 1, L)
        columns = NEARLY_ZERO[kind](x, random.standard_normal(L), random.standard_normal(L))
        E = np.column_stack([random.uniform(0.1, 1, (L, 2)), *columns])
        Y = random.uniform(0, 1, (20, 2)) @ E[:, :2].T + 0.1 * random.standard_normal((20, L))
        found, reference = unmix.solve(Y, E, method="nnls"), Reference(E, Y, False, True)
        certified += np.count_nonzero(found.kappa <= CERTIFIED)
        for n in np.flatnonzero(found.kappa <= CERTIFIED):
            over = excess_of_fit(E, Y[n], found.abundances[n], reference, int(n))
            if int(over.p) / int(over.q) > (found.kappa[n] / 200 + 1e-15) * (Y[n] @ Y[n]):
                wrong.append(int(n))
        best = np.array([nnls(E, y)[1] for y in Y])
        assert np.all(found.rmse * np.sqrt(L) <= best * 1.01)
    assert wrong == [] and (certified == 0 or kind not in ("rounded", "of other sizes", "three"))


@pytest.mark.sim
@pytest.mark.parametrize("method", ["fcls", "scls"])
def test_a_zero_endmember_is_shade(device, method):
    random = np.random.default_rng(1)
    E = random.random((9, 4))
    E[:, 2] = 0
    A = random.dirichlet(np.ones(4), 3 if simulated() else 70)
    found = unmix.solve(A @ E.T, E, method=method, device=device)
    np.testing.assert_allclose(found.abundances, A, atol=1e-12)
    assert found.kappa.max() <= CERTIFIED and found.delta.max() <= 1e-9
    with pytest.raises(unmix.LibraryError, match="endmember 3 is zero"):
        unmix.solve(A @ E.T, E, method="nnls", device=device)


@pytest.mark.sim
def test_endmembers_of_very_different_lengths(device):
    """No false alarm: κ of the short one was divided by its length, and had the rounding of the long one."""
    for scale in (1.0, 1e6):
        E = np.array([[0.0, 0.001], [1.9e-10, 0.001], [scale, 0.3]])
        found = unmix.solve(np.array([[0.0, 0.001, 0.3]]), E, method="fcls", device=device)
        assert found.kappa[0] <= CERTIFIED and found.delta[0] <= 1e-9
    Y = 1e6 * np.array([[3.0, 1, 2]])
    assert unmix.solve(Y, np.eye(3), method="scls", device=device).kappa[0] <= CERTIFIED


def test_the_only_endmember(device):
    found = unmix.solve(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]), method="fcls", device=device)
    assert found.abundances[0, 0] == 1 and found.kappa[0] == 0 and found.delta[0] < 1e-15


@pytest.mark.parametrize("size", [1e-80, 1e-31, 1e31, 1e200])
def test_lengths_that_cannot_be_squared_twice_are_refused(size):
    with pytest.raises(unmix.LibraryError, match=r"endmember 1 has length .*; rescale it"):
        unmix.solve(np.ones(3) * size, np.eye(3) * size, method="nnls")


def test_pixels_that_underflow_have_a_bound():
    """v² of pixels of 1e-170 is 0 in float64; δ is not."""
    assert 0 < unmix.solve(np.full((1, 3), 1e-170), np.eye(3) + 0.1, method="nnls").delta[0] < 1e-100


@pytest.mark.parametrize("certificate", [False, True])
def test_lines_with_doubtful_pixels_are_counted_again(tmp_path, device, certificate):
    """A GPU adds up its lines itself, but for those of which float64 cannot prove a pixel: the record is that of the maps."""
    random = np.random.default_rng(5)
    E = random.random((24, 5)) + 0.1
    E[:, 4] = E[:, 3] * (1 + 1e-5 * random.standard_normal(24))
    A = random.dirichlet(np.ones(5), (30, 40))
    A[::3, :, 3:] = 0  # in these lines no pixel is in doubt for them
    Y = (A @ E.T + 0.01 * random.standard_normal((30, 40, 24))).astype(np.float32)
    path, library = write_cube(tmp_path / "x.hdr", Y), write_csv(tmp_path / "e.csv", E)
    report = unmix.run(path, endmembers=library, device=device, certificate=certificate, memory="200K")
    assert report["pixels"]["certified"] == 1200 and report["worst_delta"] < 1e-6
    assert verify(tmp_path / "x", everything=True).faults == []


def test_counts_of_a_gpu_are_mended_by_the_host():
    """Without one: what a GPU left of a block with doubtful pixels becomes what the host counts of it in the end."""
    counts_of = pytest.importorskip("unmix.solvers.pixels.cuda_totals.totals")
    random = np.random.default_rng(5)
    E = random.random((12, 3)) + 0.1
    E[:, 2] = E[:, 1] * (1 + 1e-5 * random.standard_normal(12))
    problem, n, samples = plan(E, "nnls"), 4, 20
    raw = random.dirichlet(np.full(3, 9.0), (n, samples)) @ E.T + 1e-9 * random.random(
        (n, samples, 12)
    )  # of both twins
    raw[1] = 1e-9 * E[:, 0]  # so dark that no pixel is in doubt here
    line = Line(samples, raw[0].nbytes)
    results = {name: np.empty(shape, kind) for name, (kind, shape) in line.results(n, problem).items()}
    stored, own = Stored(*problem.stored()), Plan(*problem.plan())
    range_solver("bip", "active_set", stored, own)(0, runs_in(n, samples), raw, Results(**results))
    counts = counts_of.CountsOnGpu(*(np.zeros(shape, kind) for kind, shape in counts_of.count_shapes(n, 3)))
    doubtful = (results["delta"] > 1e-6).sum(axis=1)
    assert doubtful[0] and not doubtful[1]
    counts.pixels[:, 3] = doubtful
    counts.rmse[:] = 7
    part = look_again(0, raw, results, {}, counts, problem, Options(method="nnls"))
    assert part.failures == [] and results["delta"].max() < 1e-12
    own = count_block(results)
    for name in ("pixels", "worst", "misfit", "sums", "most", "there", "outside"):
        np.testing.assert_array_equal(getattr(counts, name), getattr(own, name), name)
    assert counts.steps.sum() == n * samples
    assert [counts.rmse[i] for i in range(n)] == [7 if i == 1 else zlib.crc32(results["rmse"][i]) for i in range(n)]


@pytest.mark.parametrize("interleave", ["bil", "bsq"])
def test_a_rescue_finds_the_pixels_of_each_interleave(interleave):
    random = np.random.default_rng(6)
    E = random.random((12, 3)) + 0.1
    E[:, 2] = E[:, 1] * (1 + 1e-5 * random.standard_normal(12))
    raw = random.dirichlet(np.full(3, 9.0), (4, 20)) @ E.T + 1e-9 * random.random((4, 20, 12))
    axes = {"bip": (0, 1, 2), "bil": (0, 2, 1), "bsq": (2, 0, 1)}

    def rescued(interleave):
        problem, line = replace(plan(E, "nnls"), interleave=interleave), Line(20, raw[0].nbytes)
        results = {name: np.empty(shape, kind) for name, (kind, shape) in line.results(4, problem).items()}
        block = np.ascontiguousarray(raw.transpose(axes[interleave]))
        stored, own = Stored(*problem.stored()), Plan(*problem.plan())
        range_solver(interleave, "active_set", stored, own)(0, runs_in(4, 20), block, Results(**results))
        assert (results["delta"] > 1e-6).any()
        rescue(problem, block, results)
        return results

    expected, found = rescued("bip"), rescued(interleave)
    assert found["delta"].max() < 1e-12
    np.testing.assert_allclose(found["abundance"], expected["abundance"], rtol=1e-6)


@pytest.mark.parametrize("samples", [8, 9, 10, 11])
def test_the_largest_abundance_of_a_line_may_be_its_last(samples):
    problem, line = plan(np.eye(3), "nnls"), Line(samples, 24 * samples)
    results = {name: np.zeros(shape, kind) for name, (kind, shape) in line.results(2, problem).items()}
    results["abundance"][0, 1, -1] = results["abundance"][1, 2, 0] = 5.0
    assert count_block(results).most.tolist() == [[0.0, 5.0, 0.0], [0.0, 0.0, 5.0]]


@pytest.mark.slow
def test_abundances_that_are_not_unique_are_certified_in_their_fit(tmp_path, caplog):
    """Five spectra of four bands; one of them a mixture of two others."""
    _, E, Y = mix(0, (6, 7), 4, 5, (0, 1))
    path = write_cube(tmp_path / "x.hdr", Y.astype(np.float32))
    report = unmix.run(path, method="nnls", endmembers=write_csv(tmp_path / "e.csv", E), device="cpu")
    assert report["pixels"]["fit_certified"] == 42 and report["pixels"]["certified"] == report["pixels"]["failed"] == 0
    assert report["certified"] and any("certified in their fit alone" in text for text in report["warnings"])
    opposed = np.column_stack(
        [np.eye(2), -np.eye(2)]
    )  # a mixture of them is zero: any answer has neighbours without end
    assert np.isinf(unmix.solve(np.ones((1, 2)), opposed, method="nnls").delta[0])


def test_the_limit_is_an_option(tmp_path):
    """δ of 1e-12 is not below 1e-15 wherever float64 is used; what is proved again in double-double is."""
    random = np.random.default_rng(1)
    E = random.random((9, 3)) + 0.1
    path = write_cube(tmp_path / "x.hdr", random.random((4, 5, 9)))
    options = {"endmembers": write_csv(tmp_path / "e.csv", E), "device": "cpu"}
    assert unmix.run(path, method="fcls", **options)["pixels"]["certified"] == 20
    strict = unmix.run(path, method="fcls", max_delta=1e-17, overwrite=True, **options)
    assert strict["certified"] and strict["pixels"]["fit_certified"] > 0 and strict["max_delta"] == 1e-17
    assert strict["worst_delta"] < 1e-15  # each was solved again
    with pytest.raises(unmix.MethodError, match="`max_delta`"):
        unmix.run(path, method="fcls", max_delta=0.0, **options)


@pytest.mark.slow
def test_an_inexact_solver_is_not_called_certified():
    """delete-only: the optimality conditions hold to 6e-15 and the abundances are wrong by 1, where endmembers are close."""
    E, y = np.array([[3.0, 3, 4], [0, 5, 7], [0, 2, 2], [4, 2, 0]]), np.array([4.0, 8, 8, 2])
    found = unmix.solve(y, E, solver="delete-only")
    error = np.linalg.norm(found.abundances - [0, 2 / 9, 7 / 9])
    assert error > 1 and found.delta >= error and found.kappa > CERTIFIED


RUNS = {
    "healthy": (lambda E: E, None),
    "poor": (lambda E: E[:, :2], "the fit is poor: relative RMSE"),
    "unused": (lambda E: np.column_stack([E, np.full(len(E), 9.0)]), "em 4 is nearly unused"),
    "alike": (lambda E: np.column_stack([E, E[:, 0] * (1 + 1e-7 * np.arange(len(E)))]), "nearly collinear endmembers"),
    "no shade": (lambda E: E * [1.5, 6, 6], "are em 1 alone and fitted poorly"),
}


@pytest.mark.parametrize("what", list(RUNS))
def test_a_run_says_how_good_its_model_is(tmp_path, what):
    change, said = RUNS[what]
    _, E, Y = mix(2, (20, 30), 20, 3, (0.05, 1.05), noise=0.005)
    path, library = write_cube(tmp_path / "x.hdr", Y), write_csv(tmp_path / "e.csv", change(E))
    out, told = command("run", path, "-e", library, "--method", "fcls", "--device", "cpu", "--json")
    report = json.loads(out)
    relative = report["fit"]["relative_rmse"]
    assert f"relative RMSE {100 * relative['median']:.2g} % (95 %" in told
    assert (said in told and any(said in text for text in report["warnings"])) if said else report["warnings"] == []
    a = np.fromfile(tmp_path / "x_abundance.img", "<f4").reshape(20, change(E).shape[1], 30).astype(float)
    left = np.linalg.norm(Y - a.transpose(0, 2, 1) @ change(E).T, axis=2) / np.linalg.norm(Y, axis=2)
    assert relative["median"] == pytest.approx(np.median(left), rel=0.05)
    assert relative["maximum"] == pytest.approx(left.max(), rel=1e-4)
    rmse = np.sqrt(np.square(Y - a.transpose(0, 2, 1) @ change(E).T).mean(axis=2)).mean()
    assert report["fit"]["mean_rmse"] == pytest.approx(rmse, rel=1e-4) and f", mean RMSE {rmse:.3g}, " in told
    for j, one in enumerate(report["abundances"]):
        assert one["mean"] == pytest.approx(a[:, j].mean()) and one["maximum"] == pytest.approx(a[:, j].max())
        assert one["share_above_1_percent"] == np.mean(a[:, j] > 0.01)
    found = unmix.check(path, library, method="fcls")
    judged = [
        one for one in found["findings"] if one["about"] in ("fit", "endmembers") and one["severity"] == "warning"
    ]
    assert any(said in one["message"] or "cond(E)" in one["message"] for one in judged) if said else not judged


@pytest.mark.parametrize(
    ("poor", "said"),
    [
        (70, "5 % of the pixels have a relative RMSE above 40 %"),
        (
            30,
            "3 % of pixels are fitted poorly (relative RMSE above 10 %): clouds, shadow, or an endmember may be "
            "missing",
        ),
        (15, None),
    ],
)
def test_a_part_of_a_scene_that_is_fitted_poorly_is_told(poor, said):
    n = 1000
    results = {
        "state": np.zeros((1, n), np.uint8),
        "kappa": np.zeros((1, n)),
        "delta": np.zeros((1, n)),
        "steps": np.ones((1, n), np.int32),
        "abundance": np.full((1, 2, n), 0.5, np.float32),
        "rmse": np.ones((1, n), np.float32),
        "relative": np.where(np.arange(n) < poor, 0.4, 0.02).astype(np.float32)[None],
    }
    summary = Summary()
    summary.add(0, results)
    found = judge(Seen(summary, ["a", "b"], METHODS["fcls"], 1e-4))
    assert found[0].startswith(said) if said else not found


def test_shade_in_a_library_file(tmp_path):
    """A zero spectrum in a CSV takes the darkness under fcls; under nnls it could do nothing, and is refused."""
    random = np.random.default_rng(4)
    E = np.column_stack([random.random((9, 3)) + 0.1, np.zeros(9)])
    Y = random.dirichlet(np.ones(4), (5, 6)) @ E.T
    path, library = write_cube(tmp_path / "x.hdr", Y), write_csv(tmp_path / "e.csv", E)
    report = unmix.run(path, method="fcls", endmembers=library, device="cpu")
    assert report["pixels"]["certified"] == 30 and report["fit"]["relative_rmse"]["maximum"] < 1e-6
    assert verify(tmp_path / "x", everything=True).faults == [] and unmix.check(path, library, method="fcls")["sound"]
    with pytest.raises(unmix.LibraryError, match="em 4 is zero"):
        unmix.run(path, endmembers=library, method="nnls", device="cpu", overwrite=True)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int64", "uint64", "longdouble"])
def test_digits_that_float64_would_lose_are_refused(dtype):
    if dtype == "longdouble" and np.finfo("longdouble").nmant <= 52:
        pytest.skip("the same as float64 here")
    large = np.array([[2**60 + 129, 2**59 + 65]]).astype(dtype)
    with pytest.raises(unmix.CubeError, match="float64 would round"):
        unmix.solve(large, np.eye(2), method="nnls")
    assert unmix.solve(large // 2**56, np.eye(2), method="nnls").kappa[0] <= CERTIFIED


@pytest.mark.parametrize("size", [1.0, 1e7, 1e12])
def test_scls_of_pixels_far_brighter_than_endmembers(size):
    """λ from large abundances of both signs magnified the rounding of the duals: right answers were called open."""
    random = np.random.default_rng(0)
    E, Y = random.random((6, 3)), size * random.random((100, 6))
    found = unmix.solve(Y, E, method="scls")
    assert found.kappa.max() <= CERTIFIED
    assert np.all(exact_errors(E, Y, found, "scls") <= found.delta)
    assert np.all(found.delta <= 1e-7 * size)


def test_values_beyond_float32_are_said(tmp_path):
    """The maps are float32: an abundance of 1e45 is infinite there, which used to be certified without a word."""
    random = np.random.default_rng(0)
    E = random.random((6, 3)) + 0.1
    Y = 1e45 * random.dirichlet(np.ones(3), (4, 5)) @ E.T
    path, library = write_cube(tmp_path / "x.hdr", Y), write_csv(tmp_path / "e.csv", E)
    report = unmix.run(path, endmembers=library, method="nnls", scale=1.0, device="cpu")
    assert any("too large for float32" in text for text in report["warnings"])


def test_percentages_are_written_as_people_do():
    assert [in_percent(x) for x in (0.00123, 0.0123, 0.123, 0.996, 7.5, np.inf)] == [
        "0.12 %",
        "1.2 %",
        "12 %",
        "99.6 %",
        "750 %",
        "infinite",
    ]


def test_a_count_that_was_capped_is_in_the_record(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    E = random.random((30, 14))
    A = np.kron(random.dirichlet(np.full(14, 0.1), (12, 12)), np.ones((5, 5, 1)))
    Y = A @ E.T + 1e-4 * random.standard_normal((60, 60, 30))
    monkeypatch.setattr(counting, "MOST_ENDMEMBERS_COUNTED", 10)
    monkeypatch.setattr(counting, "count_edges", lambda *_: None)  # which says fewer, as does a plane
    monkeypatch.setattr("unmix.endmembers.plane.Plane.count", lambda *_: None)
    report = unmix.run(write_cube(tmp_path / "x.hdr", Y), method="fcls", device="cpu")
    assert report["endmembers"]["counted"]["auto"] > 10 and len(report["endmembers"]["names"]) == 10
    assert any("too many to be materials; 10 are used" in text for text in report["warnings"])


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("pixels", "certified"), 3),
        (("worst_delta",), 1e-3),
        (("fit", "maximum_rmse"), 7.0),
        (("fit", "mean_rmse"), 7.0),
        (("certified",), False),
    ],
)
def test_verify_compares_the_record_with_the_maps(tmp_path, scene, where, value):
    """A record that was changed is found by its digest; one whose digest was made again, by all lines."""
    unmix.run(scene, count=4, extract="vca", device="cpu", certificate=True)
    record = tmp_path / "scene_run.json"
    report = json.loads(record.read_text())
    assert verify(tmp_path / "scene").faults == []
    inner = report
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    record.write_text(json.dumps(report))
    assert any("is not what the run wrote" in fault for fault in verify(tmp_path / "scene").faults)
    record.write_text(json.dumps(report | {"digest": record_digest(report)}))
    faults = verify(tmp_path / "scene", everything=True).faults
    assert any(where[0] in fault and "but unmixed again" in fault for fault in faults), faults
