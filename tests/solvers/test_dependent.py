"""Libraries whose spectra depend on each other but for the rounding of scaling, weighting or resampling: nothing is unique there."""

import numpy as np
import pytest
from conftest import write_csv, write_cube
from scipy.optimize import nnls

import unmix
from unmix.certificate import CERTIFIED, MOST_DELTA

# The third spectrum is the mean of the others.
E = np.array([[1000.0, 3000.0, 2000.0], [7000.0, 5000.0, 6000.0], [2000.0, 6000.0, 4000.0], [3000.0, 4000.0, 3500.0]])
CHANGES = {
    "stored": lambda Y: Y,
    "scaled": lambda Y: Y / 10000,
    "multiplied": lambda Y: (Y * 0.1) * 1.1,
    "weighted": lambda Y: Y / 3 * np.array([0.3, 1.1, 0.7, 1.7]),
    "resampled": lambda Y: Y @ np.array([[0.1, 0.7, 0.2, 0.0], [0.0, 0.3, 0.6, 0.1], [0.3, 0.2, 0.1, 0.4]]).T,
}


def pixels(count=200):
    """Mixtures with noise, whole numbers; some on either side of both ends of what the spectra can do."""
    random = np.random.default_rng(1)
    mixed = random.dirichlet([0.7, 0.7, 0.4], count) @ E.T
    return np.round(mixed + random.choice([100.0, 1500.0], (count, 1)) * random.standard_normal((count, 4)))


def is_unique(Y, F, method):
    """Whether there is one optimum: the third spectrum adds nothing to what the others can do, so none of both may be in it."""
    F, unique = F[:, :2], []
    for y in Y:
        if method == "nnls":
            a = nnls(F, y)[0]
        else:  # shade is a spectrum of zeros; a tall row holds the sum
            shade = np.zeros((len(F), int(method == "pcls")))
            tall = 1e6 * np.abs(F).max()
            with_sum = np.vstack([np.hstack([F, shade]), np.full((1, 2 + shade.shape[1]), tall)])
            a = nnls(with_sum, np.append(y, tall))[0]
        unique.append(not min(a[:2]) > 0)
    return np.array(unique)


@pytest.mark.parametrize(
    ("method", "change"),
    [
        *(("nnls", change) for change in CHANGES),
        *((method, change) for method in ("fcls", "pcls") for change in list(CHANGES)[:2]),
    ],
)
def test_rounding_does_not_choose_among_dependent_spectra(method, change):
    Y, F = CHANGES[change](pixels()), CHANGES[change](E.T).T
    found, unique = unmix.solve(Y, F, method=method), is_unique(Y, F, method)
    certified = (found.kappa <= CERTIFIED) & (found.delta <= MOST_DELTA)
    assert 10 < unique.sum() < 190
    np.testing.assert_array_equal(certified, unique)
    own = unmix.solve(Y, F, method=method, weights=np.ones((len(Y), len(F))))
    assert not ((own.kappa <= CERTIFIED) & (own.delta <= MOST_DELTA) & ~unique).any()


@pytest.mark.parametrize("spread", [1e-4, 1e-6, 1e-7])
def test_spectra_that_are_only_alike_are_told_apart(spread):
    random = np.random.default_rng(0)
    F = random.random((60, 5))
    F[:, 1] = F[:, 0] + spread * random.standard_normal(60)
    Y = random.dirichlet(np.full(5, 0.4), 200) @ F.T + 0.02 * random.standard_normal((200, 60))
    found = unmix.solve(Y, F, method="nnls")
    assert ((found.kappa <= CERTIFIED) & (found.delta <= MOST_DELTA)).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["nnls", "fcls"])
def test_a_run_that_scales_or_weights(tmp_path, method):
    Y = pixels().astype(np.int16)
    path, library = write_cube(tmp_path / "x.hdr", Y.reshape(10, 20, 4)), write_csv(tmp_path / "e.csv", E)
    (tmp_path / "weights.txt").write_text("0.3\n1.1\n0.7\n1.7\n")
    scales, weights = {"scale": 10000.0, "library_scale": 10000.0}, np.array([0.3, 1.1, 0.7, 1.7])
    for words, w in ((scales, 1), ({"weights": tmp_path / "weights.txt"}, weights)):
        words = {"method": method, "device": "cpu", "overwrite": True} | words
        report = unmix.run(path, endmembers=library, out_dir=tmp_path / "o", **words)
        assert report["pixels"]["certified"] == is_unique(Y * w, E * np.reshape(w, (-1, 1)), method).sum()


@pytest.mark.parametrize("method", ["nnls", "fcls", "pcls", "scls", "ucls"])
@pytest.mark.parametrize("tiny", [1e-160, 1e-300, 5e-324])
def test_a_condition_whose_square_is_no_number(method, tiny):
    """It is solved, or refused in words."""
    E = np.array([[1.0, 2.0], [0.0, tiny], [0.0, 0.0]])
    y = np.array([1.5, 0.0, 0.0])
    try:
        a = unmix.solve(y, E, method=method).abundances
    except unmix.UnmixError as error:
        assert "cond(E)" in str(error)
    else:
        assert abs(E @ a - y).max() < 1e-14 and a.min() >= 0
    assert unmix.mesma(y, E, ["a", "b"]).abundances.shape == (2,)
