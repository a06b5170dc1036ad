"""The most likely simplex: its density from the definition, its slope by differences, and its corners beside known ones."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import falsify_record, rest_slow, write_cube
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls
from scipy.special import factorial, log_ndtr, logsumexp, ndtr
from test_cli import unmix as command
from test_cone import matched, shaded

import unmix
from unmix.devices import simulated
from unmix.endmembers.auto.density import PIECE, Pixels, Shares
from unmix.endmembers.auto.likely import first_shares, most_likely

pytestmark = pytest.mark.skipif(simulated(), reason="nothing of it runs on a GPU")


def simplex(seed, p, n=40, sharp=1.0):
    """Return mixtures (n, p − 1) with noise, corners (p − 1, p), the variance of the noise, and shares."""
    random = np.random.default_rng(seed)
    C = random.standard_normal((p - 1, p)) * np.append(np.ones(p - 2), sharp)[:, None]
    noise = random.uniform(0.001, 0.3)
    Z = random.dirichlet(np.full(p, 0.5), n) @ C.T + np.sqrt(noise) * random.standard_normal((n, p - 1))
    return Z, C, noise, Shares(random.dirichlet(np.ones(p + 1))[:p], random.uniform(0.01, 0.9, p))


def bell(t):
    """The density of a normal number; scipy.stats has it, too, and takes half a second to import."""
    return np.exp(-0.5 * np.square(t)) / np.sqrt(2 * np.pi)


def naive(Z, C, noise, shares):
    """The mean of −log of the density, pixel by pixel."""
    d, p = C.shape
    Q = np.linalg.inv(np.vstack([np.ones(p), C]))
    s = np.sqrt(noise * np.square(Q[:, 1:]).sum(axis=1))
    around = C - C.mean(axis=1, keepdims=True)
    spread = around @ around.T / (p * (p + 1)) + noise * np.eye(d)
    volume = np.sqrt(np.linalg.det(spread * p * (p + 1)) * p) / factorial(d)
    values = []
    for z in Z:
        pure = sum(w * np.prod(bell((z - c) / noise**0.5)) / noise ** (d / 2) for w, c in zip(shares.pure, C.T))
        t = (Q @ np.append(1.0, z)) / s
        facets = np.prod((1 - shares.absent) * ndtr(t) + shares.absent * bell(t) / (d * s))
        distance = nnls(np.vstack([C, np.full(p, 1e5)]), np.append(z, 1e5))[1] ** 2 / noise
        extra = max(0.0, distance - np.square(np.minimum(t, 0)).sum())
        values.append(-np.log(pure + (1 - shares.pure.sum()) / volume * facets * np.exp(-extra / 2)))
    return np.mean(values)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(2, 5), st.sampled_from([1.0, 0.2]))
def test_density_and_slope_are_their_definitions(seed, p, sharp):
    Z, C, noise, shares = simplex(seed, p, sharp=sharp)
    found = Pixels(Z).density(C, noise, shares)
    assert found.value == pytest.approx(naive(Z, C, noise, shares), rel=1e-6, abs=1e-6)
    for k in range(C.size):
        step = np.zeros(C.size)
        step[k] = 1e-6
        ends = [Pixels(Z).density(C + sign * step.reshape(C.shape), noise, shares).value for sign in (1, -1)]
        assert found.slope.flat[k] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize(("C", "step"), [([[0.0, 1.0]], 0.005), ([[0.0, 1.0, 0.3], [0.0, 0.1, 0.8]], 0.02)])
def test_the_density_of_all_pixels_is_one(C, step):
    """Integrated over a grid, where noise is thin beside the simplex; facets meet at corners, which counts a little twice."""
    C = np.array(C)
    d, p = C.shape
    shares = Shares(np.full(p, 0.3 / p), np.full(p, 0.2))
    grid = np.stack(np.meshgrid(*[np.arange(-0.2, 1.2, step)] * d), axis=-1).reshape(-1, d)
    values = [np.exp(-Pixels(z[None]).density(C, 4e-4, shares).value) for z in grid]
    assert step**d * sum(values) == pytest.approx(1.0, abs=0.1)


@settings(max_examples=10)
@given(st.integers(0, 10**6))
def test_shares_are_more_likely_with_each_step(seed):
    Z, C, noise, shares = simplex(seed, 4, 200)
    values = []
    for _ in range(6):
        found = Pixels(Z).density(C, noise, shares)
        values.append(found.value)
        shares = found.shares
    assert max(np.diff(values)) < 1e-2 and values[-1] < values[0] + 1e-9


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 12.0, 40.0])
def test_facets_far_away_and_near_are_those_of_scipy(size):
    """Φ and φ over forty deviations on either side of a facet: one pixel of a simplex of one dimension, without pure pixels."""
    for t in (-size, size):
        noise, shares = 1e-4, Shares(np.full(2, 1e-300), np.array([0.3, 0.4]))
        z = np.array([[t * 0.01]])  # corners at 0 and 1: the other facet is 100 deviations away
        found = Pixels(z).density(np.array([[0.0, 1.0]]), noise, shares)
        present = [
            logsumexp([np.log(1 - w) + log_ndtr(x), np.log(w / 0.01) - 0.5 * (x**2 + np.log(2 * np.pi))])
            for w, x in ((0.4, t), (0.3, 100 - t))
        ]
        volume = np.log(np.sqrt((0.5 + 6e-4) * 2))
        assert -found.value == pytest.approx(sum(present) - volume, rel=1e-9, abs=1e-9)


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.integers(2, 6))
def test_threads_and_pieces_change_no_bit(seed, p):
    Z, C, noise, shares = simplex(seed, p, 2 * PIECE + 37)
    with ThreadPoolExecutor(3) as pool:
        one, other = (Pixels(Z, mapped).density(C, noise, shares) for mapped in (map, pool.map))
    assert one.value == other.value and np.array_equal(one.slope, other.slope)
    parts = [Pixels(Z[k : k + PIECE]).density(C, noise, shares) for k in range(0, len(Z), PIECE)]
    weights = [min(PIECE, len(Z) - k) / len(Z) for k in range(0, len(Z), PIECE)]
    assert one.value == pytest.approx(np.dot(weights, [part.value for part in parts]), rel=1e-9)


def scene(kind, random):
    """Return a scene of 60 x 70 pixels whose brightness does not vary, its spectra and fractions."""
    E = shaded(7, 4)[1] * [0.7, 1.0, 1.4, 0.9]
    if kind == "pure":
        F = random.dirichlet(np.full(4, 0.1), 4200)
        F[::3] = np.eye(4)[random.integers(0, 4, 1400)]
    elif kind == "at most 70 %":
        F = random.dirichlet(np.ones(4), 20_000)
        F = F[F.max(axis=1) < 0.7][:4200]
    else:  # pairs: each pixel a mixture of two, none pure
        F = np.zeros((4200, 4))
        for row, x in zip(F, random.uniform(0.2, 0.8, 4200)):
            row[random.choice(4, 2, replace=False)] = x, 1 - x
    return (F @ E.T + 0.004 * random.standard_normal((4200, 30))).reshape(60, 70, 30), E, F


@pytest.mark.parametrize("kind", rest_slow(["pure", "at most 70 %", "pairs"]))
def test_corners_are_those_of_the_scene(tmp_path, kind):
    """Fractions are nearly as good as by the true spectra, and better than by N-FINDR's or SISAL's; verified."""
    Y, E, F = scene(kind, np.random.default_rng(3))
    path = write_cube(tmp_path / "s.hdr", Y)
    assert unmix.run(path, count=4, device="cpu", browse=False)["endmembers"]["simplex"]["by"] == "likely"
    errors = {}
    for name in ("true", "auto", "sisal", "nfindr"):
        found = E if name == "true" else matched(unmix.extract(path, count=4, extract=name).matrix, E)[0]
        A = unmix.solve(Y.reshape(-1, 30), found, method="fcls").abundances
        errors[name] = np.sqrt(np.square(A - F).mean())
    assert errors["auto"] < 1.1 * errors["true"] and errors["auto"] < min(errors["sisal"], errors["nfindr"])
    command("verify", tmp_path / "s", "--all")


@pytest.mark.slow
def test_a_record_that_was_changed_is_not_verified(tmp_path):
    path = write_cube(tmp_path / "s.hdr", scene("pure", np.random.default_rng(3))[0])
    unmix.run(path, count=4, device="cpu", browse=False)
    entry = json.loads((tmp_path / "s_run.json").read_text())["endmembers"]["simplex"]
    changes = {"likelihood": entry["likelihood"] - 0.1, "absent": [0.5] * 4}
    for key, value in changes.items():
        falsify_record(tmp_path / "s", lambda report: report["endmembers"]["simplex"].update({key: value}))  # noqa: B023
        assert "is not what is found again" in command("verify", tmp_path / "s", "--all", code=1)[1]


def test_a_blurred_simplex_without_pure_pixels_is_sisals(tmp_path):
    random = np.random.default_rng(5)
    E = shaded(1, 3)[1]
    F = random.dirichlet(np.full(3, 3.0), 4200)
    Y = (F @ E.T + 0.05 * random.standard_normal((4200, 30))).reshape(60, 70, 30)
    simplex = unmix.extract(write_cube(tmp_path / "s.hdr", Y), count=3).simplex
    assert simplex["by"] == "sisal" and simplex["sets"]["likely"]["blur"] > 0.035 and simplex["close"]


def test_without_noise_and_with_equal_starts():
    """Noise of rounding alone still has a simplex; starts of which two corners are one are left out."""
    random = np.random.default_rng(0)
    C = random.standard_normal((2, 3))
    F = random.dirichlet(np.full(3, 0.3), 3000)
    F[::5] = np.eye(3)[random.integers(0, 3, 600)]
    same = C[:, [0, 0, 1]]
    found = most_likely(Pixels(F @ C.T), [same, 0.9 * C], 1e-9)
    assert found is not None and np.abs(found[0] - C).max() < 1e-3
    assert most_likely(Pixels(F @ C.T), [same], 1e-9) is None


def test_fractions_are_in_the_order_of_the_pixels():
    """Though a density sorts these."""
    random = np.random.default_rng(4)
    C = random.standard_normal((3, 4))
    Z = random.dirichlet(np.full(4, 0.5), 5000) @ C.T + 0.02 * random.standard_normal((5000, 3))
    pixels = Pixels(Z)
    before = pixels.within(C)
    pixels.density(C, 4e-4, first_shares(4))
    np.testing.assert_allclose(pixels.within(C), before, atol=1e-9)
    assert np.abs(before @ C.T - Z).mean() < 0.02
