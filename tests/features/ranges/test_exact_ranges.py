"""Ends of ranges against rational numbers: none inside of the exact end, and none trivial where that is not."""

import numpy as np
import pytest
from conftest import mix
from exact import Ends, limits_above, rational, root_down
from scipy.special import chdtri

import unmix
from unmix.features.ranges.limit import ALWAYS_FITS

# Their compiled search takes half a minute where nothing is compiled yet.
pytestmark = pytest.mark.slow

# The second spectrum is nearly a copy of the first; ends were inside by up to 1.4e-2, and the lower one was 3325, above
# the upper.
NEAR_COPY = [
    [0.3916015625, 0.3916015241541941, 0.603515625],
    [0.546875, 0.5468749902392495, 0.7314453125],
    [0.640625, 0.6406249504990505, 0.259765625],
    [0.56640625, 0.5664062339644812, 0.1494140625],
    [0.765625, 0.7656249902392495, 0.5615234375],
    [0.5595703125, 0.5595702741541941, 0.369140625],
    [0.16015625, 0.16015635457947064, 0.712890625],
]
FAR = [0.26318359375, -0.030029296875, -0.089111328125, -0.188720703125, 0.424560546875, 0.82470703125, -0.026611328125]
LIMITS = [{"within": 1e-6}, {"within": 1e-8}, {"within": 1e-10}, {"confidence": 0.95, "noise": 1e-7}]


def exact_ends(E, Y, method, within=None, confidence=None, noise=1.0):
    """Return the exact least and largest abundances (n, p), as rationals."""
    (L, p), shade, ends = E.shape, int(method == "pcls"), []
    reference = Ends(np.pad(E, ((0, 0), (0, shade))), np.full(L, noise), method != "nnls")
    for y in Y:
        least = reference.take(y)
        if confidence is None:
            most = least + 2 * rational(within) * root_down(least * L) + rational(within) ** 2 * L
        else:
            most = least + rational(limits_above(E, y[None], method, confidence, noise)[0])
        most = max(most, rational(ALWAYS_FITS) ** 2 * reference.bright)
        units = np.eye(p + shade, dtype=int)[:p]
        ends.append([(-reference.largest(-c, most), reference.largest(c, most)) for c in units])
    return ends


def hold(E, Y, method, limit, gap):
    """Hold that no end is inside of the exact one, or farther outside than ``gap``; return the lower and upper ends (n, p)."""
    found = unmix.ranges(Y, E, method=method, **limit)
    for n, of_pixel in enumerate(exact_ends(E, Y, method, **limit)):
        for j, (least, most) in enumerate(of_pixel):
            assert rational(found.lower[n, j]) <= least and rational(found.upper[n, j]) >= most
            assert float(int(least.p) / int(least.q)) - found.lower[n, j] <= gap
            assert found.upper[n, j] - float(int(most.p) / int(most.q)) <= gap
    return found.lower, found.upper


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("method", ["fcls", "pcls"])
def test_ends_pay_for_the_error_of_the_best_mixture(method, limit):
    lower, upper = hold(np.array(NEAR_COPY), np.array([FAR]), method, limit, 1e-3)
    assert (lower <= upper).all()


@pytest.mark.night
def test_ends_with_little_noise():
    """Near-copies, and pixels that no mixture is near to."""
    random = np.random.default_rng(5)
    for method in ("nnls", "fcls", "pcls"):
        for limit in LIMITS:
            E = random.uniform(0.1, 1, (6, 3))
            E[:, 2] = E[:, 0] + 10.0 ** random.uniform(-8, -6) * random.standard_normal(6)
            Y = random.dirichlet(np.ones(3), 4) @ E.T + random.choice([1e-7, 0.3], (4, 1)) * random.standard_normal(
                (4, 6)
            )
            hold(E, Y, method, limit, np.inf)


@pytest.mark.parametrize("method", ["nnls", "fcls", "pcls"])
@pytest.mark.parametrize("limit", [{"within": 0.01}, {"within": 1e-5}, {"confidence": 0.95, "noise": 1e-3}])
@pytest.mark.parametrize("shares", [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.25, 0.5]])
def test_copies_and_mixtures_of_others_have_ends(method, limit, shares):
    """Where a sum is given these were 0 and 1, without a word."""
    random = np.random.default_rng(2)
    E = np.round(random.uniform(0.1, 1, (5, 4)) * 256) / 256
    E[:, 3] = E[:, :3] @ shares
    Y = random.dirichlet(np.ones(4), 8) @ E.T * 0.9 + 1e-3 * random.standard_normal((8, 5))
    hold(E, Y, method, limit, 1e-6)
    twice = np.array([[0.625, 0.875, 0.625], [0.75, 0.625, 0.75], [0.5, 0.5, 0.5]])
    if method == "fcls" and limit == {"within": 0.01}:
        _, upper = hold(twice, np.array([[0.75, 0.6875, 0.5625]]), method, limit, 1e-6)
        np.testing.assert_allclose(upper[0, [0, 2]], 0.677631, atol=1e-6)


def test_a_limit_that_the_best_mixture_just_keeps():
    """All ranges together: the misfit of the best mixture is the limit, but for rounding."""
    _, E, Y = mix(4, 2, 9, 3, (0.1, 1), noise=0.2)
    from unmix.features.ranges.limit import FitLimit

    square = FitLimit(confidence=0.95, simultaneous=True).most(np.zeros(1), 9)[0]
    assert square == pytest.approx(chdtri(9, 0.05), rel=1e-12)
    for y in Y:
        least = Ends(E, np.ones(9), True).take(y)
        noise = float(np.sqrt(int(least.p) / int(least.q) / square))
        for share in (1 - 1e-15, 1.0, 1 + 1e-15, 1 + 1e-12):
            own = Ends(E, np.full(9, noise * share), True)
            found = unmix.ranges(y, E, method="fcls", confidence=0.95, simultaneous=True, noise=noise * share)
            if own.take(y) <= rational(square):
                assert np.isfinite(found.upper).all()
                assert rational(found.upper[0]) >= own.largest([1, 0, 0], rational(square))
