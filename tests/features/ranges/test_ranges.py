"""Proved ranges: no mixture that fits lies outside, and mixtures are found that reach the ends."""

import numpy as np
import pytest
from conftest import mix, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import unmix
from unmix.features.ranges import mixtures

# Their compiled search takes half a minute where nothing is compiled yet.
pytestmark = pytest.mark.slow

METHODS = ("nnls", "fcls", "pcls")


def problem(random, method, L=12, p=5, n=4, noise=0.01):
    """Return pixels (n, L), near mixtures of three of p spectra, and the spectra (L, p)."""
    E = random.uniform(0.05, 1, (L, p))
    A = np.zeros((n, p))
    for a in A:
        a[random.choice(p, min(3, p), replace=False)] = random.dirichlet(np.ones(min(3, p)))
    A *= {"nnls": random.uniform(0.5, 2, (n, 1)), "fcls": 1.0, "pcls": 0.7}[method]
    return A @ E.T + noise * random.standard_normal((n, L)), E


def conditions(method):
    """Return the constraint on the sum as scipy takes it."""
    kind = {"fcls": "eq", "pcls": "ineq"}.get(method)
    return [{"type": kind, "fun": lambda a: 1.0 - a.sum()}] if kind else []


def largest(y, E, c, most, method, starts, w=None):
    """Return the largest ``cᵀa``, or ``cᵀa / wᵀa``, by scipy, over mixtures with ``|y − E a|²`` up to ``most``."""

    def value(a):
        return c @ a / (1.0 if w is None else w @ a)

    fits = {"type": "ineq", "fun": lambda a: (most - np.square(y - E @ a).sum()) / most}
    values = []
    for start in starts:
        found = minimize(
            lambda a: -value(a),
            start,
            jac=(lambda a: -c) if w is None else None,
            bounds=[(0, None)] * len(c),
            method="SLSQP",
            constraints=[fits, *conditions(method)],
            options={"ftol": 1e-12, "maxiter": 500},
        )
        a = np.maximum(found.x, 0)
        if np.square(y - E @ a).sum() <= most * (1 + 1e-7):
            values.append(value(a))
    return max(values, default=-np.inf)


AGAINST_SCIPY = [
    *((method, {"within": 0.01}) for method in METHODS),
    *((method, {"confidence": 0.95, "noise": 0.01}) for method in METHODS),
    ("nnls", {"within": 0.02, "normalize": "sum"}),
    ("nnls", {"within": 0.02, "normalize": "length"}),
    ("pcls", {"within": 0.02, "normalize": "sum"}),
]


@pytest.mark.parametrize(("method", "words"), AGAINST_SCIPY, ids=str)
def test_scipy_finds_nothing_outside_and_the_same_ends(method, words):
    """Of sums of abundances, and of fractions."""
    random = np.random.default_rng(7 if "normalize" in words else [METHODS.index(method), len(words)])
    Y, E = problem(random, method, **({"L": 14, "n": 5} if "normalize" in words else {}))
    kinds = ["a", "b", "a", "c", "c"]
    found = unmix.ranges(Y, E, kinds, method=method, **words)
    best = unmix.solve(Y, E, method=method).abundances
    w = {None: None, "sum": np.ones(5), "length": np.linalg.norm(E, axis=0)}[words.get("normalize")]
    for n, y in enumerate(Y):
        most = np.square(found.limit[n] * words.get("noise", 1.0)) * len(E)
        starts = [best[n], np.full(5, 0.2)] if w is None else [best[n], best[n] + 0.01, np.full(5, best[n].sum() / 5)]
        for q, name in enumerate(found.names):
            c = (1.0 if w is None else w) * np.array([kind == name for kind in kinds], float)
            ends = (1, found.upper, found.upper_reached), (-1, found.lower, found.lower_reached)
            for sign, proved, reached in ends:
                end = sign * largest(y, E, sign * c, most, method, starts, w)
                assert sign * end <= sign * proved[n, q] + 1e-6
                assert end == pytest.approx(
                    proved[n, q] if w is None else reached[n, q], abs=2e-4 if w is None else 5e-4
                )
                assert 0 <= sign * (proved[n, q] - reached[n, q]) <= 1e-6
    if w is not None:
        dark = unmix.ranges(np.zeros((1, 14)), E, method=method, **words)
        assert np.isnan(dark.lower).all() and np.isnan(dark.upper).all()


@settings(max_examples=60, derandomize=True)
@given(st.integers(0, 10_000), st.sampled_from(METHODS), st.integers(1, 9), st.floats(1e-4, 0.2), st.integers(-6, 6))
def test_no_mixture_that_fits_lies_outside(seed, method, p, within, size):
    """Random mixtures around the best one, at any unit; for nnls also with more spectra than bands, and with duplicates."""
    random = np.random.default_rng(seed)
    L = 6 if method == "nnls" else 14
    Y, E = problem(random, method, L, p, 3, 0.02)
    if method == "nnls" and p > 2:
        E[:, 2] = E[:, 1]
    unit = 10.0**size
    found = unmix.ranges(Y * unit, E * unit, method=method, within=within * unit)
    assert found.limit.shape == (3,) and found.lower.shape == (3, p)
    best = unmix.solve(Y, E, method=method).abundances
    for n, y in enumerate(Y):
        others = random.dirichlet(np.full(p, 0.4), 2000) * (1 if method == "fcls" else random.uniform(0, 1, (2000, 1)))
        share = random.uniform(0, 1, (2000, 1)) ** 3
        mixed = (1 - share) * best[n] + share * others
        fits = mixed[np.sqrt(np.square(y - mixed @ E.T).mean(axis=1)) * unit <= found.limit[n]]
        assert len(fits) and np.all(fits >= found.lower[n] - 1e-12) and np.all(fits <= found.upper[n] + 1e-12)
    assert np.all(found.lower <= found.lower_reached) and np.all(found.upper_reached <= found.upper)
    assert np.all(found.lower_reached <= found.upper_reached + 1e-12)
    assert np.mean(found.upper - found.upper_reached <= 1e-6 * np.maximum(found.upper - found.lower, 1e-9)) >= 0.9


@pytest.mark.parametrize(("method", "brightness"), [("pcls", 0.8), ("pcls", 1.0), ("pcls", 1.3), ("nnls", 1.0)])
def test_fractions_of_bright_pixels_and_of_lost_paths(method, brightness, monkeypatch):
    """On the face where shade is 0 the brightness cannot change until shade enters; where a path is lost two sums bound a fraction."""
    random = np.random.default_rng(4)
    E = random.uniform(0.1, 1, (30, 5))
    Y = brightness * random.dirichlet(np.ones(5), 200) @ E.T + 0.005 * random.standard_normal((200, 30))
    words = {"method": method, "within": 0.002, "normalize": "sum"}
    found = unmix.ranges(Y, E, **words)
    gap = np.maximum(found.upper - found.upper_reached, found.lower_reached - found.lower)
    assert (gap <= 1e-6).mean() >= 0.999 and gap.max() < 0.5
    monkeypatch.setattr(mixtures, "bound", lost)
    loose = unmix.ranges(Y, E, **words)
    assert (loose.lower <= found.lower + 1e-9).all() and (loose.upper >= found.upper - 1e-9).all()
    assert np.median(loose.upper - loose.lower) < 3 * np.median(found.upper - found.lower)


def test_fractions_where_a_dark_mixture_fits():
    E = np.random.default_rng(1).uniform(0.2, 1, (8, 3))
    found = unmix.ranges(1e-3 * E[:, 0], E, within=0.01, normalize="sum")
    assert (found.lower == 0).all() and (found.upper == 1).all()


def lost(given, shared, pixels, quantities, weights, most, scratch, found):
    """Fill in what is known where all searches are lost: nothing is proved, and the best mixture is reached."""
    start = pixels.best @ quantities.T
    if len(weights):
        start = pixels.best @ (quantities * weights).T / (pixels.best @ weights)[:, None]
        found[0, 0], found[0, 1] = 1.0, 0.0
    else:
        found[0, 0], found[0, 1] = most, 0.0
    found[1, 0], found[1, 1] = start, -start


@pytest.mark.parametrize("method", METHODS)
def test_the_search_for_paths_that_are_lost_finds_the_same(method, monkeypatch):
    """And hardly any path is lost."""
    Mixtures = mixtures.Mixtures
    Y, E = problem(np.random.default_rng(8), method, L=30, p=9, n=300)
    searched = []
    whole = Mixtures.searched
    monkeypatch.setattr(
        Mixtures, "searched", lambda self, Y, *rest: (searched.append(len(Y)), whole(self, Y, *rest))[1]
    )
    found = unmix.ranges(Y, E, method=method, within=0.01)
    assert sum(searched) <= 0.002 * found.lower.size * 2
    monkeypatch.setattr(mixtures, "bound", lost)
    again = unmix.ranges(Y, E, method=method, within=0.01)
    for name in ("lower", "upper", "lower_reached", "upper_reached"):
        np.testing.assert_allclose(getattr(again, name), getattr(found, name), atol=2e-6)


def test_fewer_mixtures_have_narrower_ranges():
    Y, E = problem(np.random.default_rng(1), "fcls", n=20)
    fcls, pcls, nnls = (unmix.ranges(Y, E, method=method, within=0.02) for method in ("fcls", "pcls", "nnls"))
    some = unmix.ranges(Y, E, within=0.01)
    assert np.all(some.upper <= nnls.upper + 1e-9) and np.all(some.lower >= nnls.lower - 1e-9)
    # of the same library the best mixture of nnls is nearer, so its limit is smaller: compare where the limits allow it
    narrower = pcls.limit <= nnls.limit
    assert np.all(pcls.upper[narrower] <= nnls.upper[narrower] + 1e-9)
    assert np.all(fcls.upper <= 1.0) and np.all(pcls.upper <= 1.0)


def test_pixels_without_a_value_dark_ones_and_spectra_of_the_library():
    Y, E = problem(np.random.default_rng(2), "nnls", n=4)
    Y[1, 3], Y[2], Y[3] = np.nan, 0.0, E[:, 1]
    found = unmix.ranges(Y.reshape(2, 2, -1), E, within=0.01)
    assert found.upper.shape == (2, 2, 5) and found.limit.shape == (2, 2)
    lower, upper = found.lower.reshape(4, 5), found.upper.reshape(4, 5)
    assert np.isnan(upper[1]).all() and np.isnan(lower[1]).all() and np.isnan(found.limit[0, 1])
    assert np.all(lower[2] == 0) and np.all((upper[2] > 0) & (upper[2] < 0.1))
    assert lower[3, 1] < 1 < upper[3, 1]


@pytest.mark.parametrize(("confidence", "least"), [(0.95, 0.92), (0.68, 0.64)])
def test_how_often_the_truth_is_inside(confidence, least):
    """Where noise is normal and known, and the library is right; one at a time, intervals of what is present hold some 2 % less."""
    random = np.random.default_rng(3)
    E = random.uniform(0.1, 1, (60, 8))
    A = np.zeros((600, 8))
    for a in A:
        a[random.choice(8, 3, replace=False)] = random.dirichlet(np.ones(3))
    Y = A @ E.T + 0.01 * random.standard_normal((600, 60))
    found = unmix.ranges(Y, E, confidence=confidence, noise=0.01)
    inside = (found.lower <= A) & (found.upper >= A)
    assert inside[A > 0].mean() >= least and inside.mean() >= least


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({}, "one of `within`"),
        ({"within": 0.1, "confidence": 0.9}, "one of `within`"),
        ({"within": 0.0}, "above 0"),
        ({"within": np.nan}, "above 0"),
        ({"within": 1e200}, "below 1e.140"),
        ({"within": np.inf}, "`within` all: ranges need an RMSE"),
        ({"confidence": 1.0, "noise": 0.1}, "above 0, and below 1"),
        ({"confidence": 1 - 1e-16, "noise": 0.1}, "below 1 by at least"),
        ({"confidence": 0.9}, "needs `noise`"),
        ({"confidence": 0.9, "noise": [0.0] * 12}, "above 0 and finite"),
        (
            {"confidence": 0.9, "noise": [0.1] * 7},
            r"`noise` has the shape \(7,\): it is one number, or one for each of 12 bands",
        ),
        ({"within": 0.1, "method": "ucls"}, "there are those of nnls, fcls, pcls"),
        ({"within": 0.1, "classes": ["a"]}, "names 1 classes"),
        ({"within": 0.1, "method": "fcls", "normalize": "sum"}, "normalize"),
    ],
)
def test_what_cannot_be(words, text):
    Y, E = problem(np.random.default_rng(4), "nnls")
    refused(unmix.MethodError, text, unmix.ranges, Y, E, **words)


def test_a_dark_spectrum_has_no_bound():
    Y, E = problem(np.random.default_rng(4), "nnls")
    E[:, 1] = 0.0
    with pytest.raises(unmix.LibraryError, match="spectrum 2 is 0 in every band: its abundance has no bound"):
        unmix.ranges(Y, E, within=0.1)


def test_spectra_that_depend_on_each_other():
    """Under a sum, where no μ can be searched for: what is found is right, and no error; nnls of opposite spectra has no bound."""
    random = np.random.default_rng(5)
    Y, E = problem(random, "fcls", n=20)
    E[:, 4] = 0.5 * (E[:, 0] + E[:, 1])
    found = unmix.ranges(Y, E, method="fcls", within=0.1)
    assert np.isfinite(found.upper).all() and (found.upper_reached <= found.upper).all()
    for n, y in enumerate(Y):
        mixed = random.dirichlet(np.full(5, 0.5), 4000)
        fits = mixed[np.sqrt(np.square(y - mixed @ E.T).mean(axis=1)) <= found.limit[n]]
        assert len(fits) and (fits >= found.lower[n]).all() and (fits <= found.upper[n]).all()
    E[:, 4] = -E[:, 0]
    refused(unmix.LibraryError, "may have no bound", unmix.ranges, Y, E, within=0.1)


@pytest.mark.parametrize("method", ["fcls", "pcls"])
def test_what_is_reached_is_a_mixture(method):
    """Of nearly equal spectra the inverse has few digits: what it leaves of the sum to one is no abundance."""
    random = np.random.default_rng(6)
    E = random.random((12, 4))
    E = np.column_stack([E, E[:, :2] + 1e-7 * random.standard_normal((12, 2))])
    Y = random.dirichlet(np.ones(6), 100) @ E.T + 1e-3 * random.standard_normal((100, 12))
    for within in (1e-6, 1e-4, 1e-2):
        found = unmix.ranges(Y, E, method=method, within=within)
        assert (found.lower <= found.lower_reached).all() and (found.upper_reached <= found.upper).all()
        assert (found.lower_reached <= found.upper_reached + 1e-12).all()


def test_what_needs_no_path():
    """A class of all spectra is all of the light; where a dark mixture fits, any fraction is reached; noiseless pixels have a limit."""
    _, E, Y = mix(9, 6, 10, 4, (0.1, 1))
    whole = unmix.ranges(Y, E, ["a"] * 4, within=0.1, normalize="sum")
    assert all((getattr(whole, end) == 1).all() for end in ("lower", "upper", "lower_reached", "upper_reached"))
    dark = unmix.ranges(Y, E, within=10.0, normalize="length")
    assert (dark.lower_reached == dark.lower).all() and (dark.upper_reached == dark.upper).all()
    assert (dark.upper == 1).all()
    exact = unmix.ranges(Y, E, within=1e-15)
    np.testing.assert_allclose(exact.limit, 1e-8 * np.sqrt(np.square(Y).mean(axis=1)), rtol=1e-3)
