"""Pixels that are mixtures without noise: what float64 proves of them, against rational arithmetic."""

import numpy as np
import pytest
from conftest import rest_slow, write_csv, write_cube
from exact import Reference, distance
from hypothesis import settings

import unmix
from unmix import rescue
from unmix.certificate import CERTIFIED
from unmix.commands.verify import verify
from unmix.devices import simulated

pytestmark = pytest.mark.skipif(simulated(), reason="done on the CPU for every device")


@pytest.fixture
def only_float64(monkeypatch):
    """Leave what float64 does not prove open."""
    monkeypatch.setattr(rescue, "prove_again", lambda *_: 0)


def mixtures(random, L, p, N, whole=False):
    """Spectra, more than bands, and mixtures of one to three of them in halves and quarters."""
    E = random.integers(0, 64, (L, p)).astype(float) if whole else random.random((L, p)) + 0.1
    E[0] += 1.0
    A = np.zeros((N, p))
    for row in A:
        some = random.choice(p, random.integers(1, 4), replace=False)
        row[some] = ((1.0,), (0.25, 0.75), (0.25, 0.25, 0.5))[len(some) - 1]
    return E, A, A @ E.T


@pytest.mark.parametrize("method", ["nnls", "fcls"])
@pytest.mark.parametrize("whole", rest_slow([True, False], False))
def test_the_bound_holds(only_float64, method, whole):
    """Also where another mixture is the same pixel: then nothing is said."""
    random = np.random.default_rng(0)
    proved, errors = [], []
    for _ in range(min(settings.default.max_examples, 60)):
        L = int(random.integers(3, 9))
        E, A, Y = mixtures(random, L, int(random.integers(L, 3 * L)), 8, whole)
        found = unmix.solve(Y, E, method=method)
        reference = Reference(E, Y, method == "fcls", True)
        for n, (a, delta) in enumerate(zip(found.abundances, found.delta)):
            proved.append(np.isfinite(delta))
            if np.isfinite(delta):
                errors.append(distance(a, reference.optimum(n, A[n] if whole else a)))
                assert errors[-1] <= delta
        assert np.all(found.kappa[np.isfinite(found.delta)] <= CERTIFIED)
    assert 0.3 < np.mean(proved) < 1 and max(errors) < 1e-10


@pytest.mark.parametrize("method", ["nnls", "fcls"])
def test_a_pixel_with_two_answers_is_not_proved(method):
    E = np.array([[1.0, 0, 0, 0.25], [0, 1, 0, 0.25], [0, 0, 1, 0.5]]) + 1
    E[:, 3] = E[:, :3] @ [0.25, 0.25, 0.5]
    more = np.hstack([E, [[9.0], [7], [8]]])
    assert np.isinf(unmix.solve(more[:, 3][None], more, method=method).delta[0])


def test_a_library_of_more_spectra_than_bands(tmp_path, monkeypatch):
    """All pixels proved, with the truth, and next to none by double-double, which took twenty times as long as pixels with noise."""
    random = np.random.default_rng(1)
    E = random.random((60, 80)) + 0.1
    A = np.zeros((400, 80))
    for row in A:
        some = random.choice(80, random.integers(1, 6), replace=False)
        row[some] = random.dirichlet(np.ones(len(some)))
    Y = A @ E.T
    slow, again = [], rescue.prove_again
    monkeypatch.setattr(rescue, "prove_again", lambda *words: slow.append(len(words[-1])) or again(*words))
    for method in ("nnls", "fcls", "pcls"):
        found = unmix.solve(Y, E, method=method)
        assert sum(slow) < 20
        assert np.mean((found.kappa <= CERTIFIED) & (found.delta <= 1e-4)) > 0.98
        known = found.delta <= 1e-6
        assert np.all(np.linalg.norm(found.abundances - A, axis=1)[known] < 1e-6)
    cube = write_cube(tmp_path / "x.hdr", Y.reshape(20, 20, 60))
    words = {"endmembers": write_csv(tmp_path / "e.csv", E), "method": "nnls", "device": "cpu", "residual": True}
    report = unmix.run(cube, **words)
    images = [(tmp_path / f"x_{name}.img").read_bytes() for name in ("abundance", "rmse", "residual")]
    unmix.run(cube, overwrite=True, memory="80K", threads=1, **words)  # a line at a time: the same bytes
    assert images == [(tmp_path / f"x_{name}.img").read_bytes() for name in ("abundance", "rmse", "residual")]
    assert report["pixels"]["certified"] > 390 and report["pixels"]["failed"] == 0
    assert verify(tmp_path / "x", everything=True).faults == []
