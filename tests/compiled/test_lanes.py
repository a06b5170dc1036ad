"""What stands side by side in vectors, against numpy: every stored type, layout, list of bands and width of a last tile."""

import numpy as np
import pytest
from conftest import mix, refused, rest_slow
from definitions import of_every_support
from hypothesis import given, settings
from hypothesis import strategies as st

import unmix
from unmix.compiled.jit import ONE, WIDE
from unmix.solvers.pixels.gather import Stored, gather_function, matrix_product_function

KINDS = ["uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]
AXES = {"bip": (0, 1, 2), "bil": (0, 2, 1), "bsq": (2, 0, 1)}
WIDTHS = {"one": ONE, "wide": WIDE}
# Each type, layout and width is other machine code; in the quick tier four stand for all.
TILES = [(width, kind, "bsq") for width in WIDTHS for kind in KINDS]
TILES += [(width, "int16", layout) for width in WIDTHS for layout in ("bip", "bil")]
QUICK = (("one", "int16", "bip"), ("one", "float32", "bsq"), ("wide", "int16", "bil"), ("wide", "int16", "bsq"))


@pytest.mark.parametrize(("width", "kind", "layout"), rest_slow(TILES, *QUICK))
def test_a_tile_is_the_scaled_pixels(width, kind, layout):
    for bands in (range(21), [0, 3, *range(5, 21)], [20], [*range(8), *range(9, 17)]):
        check_tile(kind, layout, bands, WIDTHS[width])


def check_tile(kind, layout, bands, ops):
    random = np.random.default_rng(3)
    samples, bands = 2 * WIDE.width + 5, np.array(bands)
    limits = np.iinfo(kind) if np.dtype(kind).kind in "iu" else np.finfo("float32")
    cube = (random.random((2, samples, 21)) * 0.9 * float(limits.max)).astype(kind)
    if np.dtype(kind).kind != "u":
        cube[:, ::3] *= -1
    cube[1, 4, bands[0]] = 7
    gain, offset = random.random(len(bands)) + 0.5, random.random(len(bands))
    stored = Stored(bands, gain, offset, 7.0)
    raw = np.ascontiguousarray(cube.transpose(AXES[layout]))
    gather = gather_function(layout, ops)
    Y = np.empty((len(bands), ops.width))
    missing, size = np.empty((1, ops.width)), np.empty((1, ops.width))
    for line in range(2):
        for first in range(0, samples, ops.width):
            count = min(ops.width, samples - first)
            gather(raw, line, first, count, stored, Y, missing, size, size)
            expected = cube[line, first : first + count][:, bands].astype(float) * gain + offset
            holes = (cube[line, first : first + count][:, bands] == 7).sum(axis=1)
            expected[holes > 0] = 0
            np.testing.assert_allclose(Y[:, :count], expected.T, rtol=1e-15)
            np.testing.assert_array_equal(missing[0, :count], holes)
            np.testing.assert_allclose(size[0, :count], np.linalg.norm(expected, axis=1), rtol=1e-14)
            assert not Y[:, count:].any() and not size[0, count:].any()


@pytest.mark.parametrize("p", [1, 2, 4, 7])
@pytest.mark.parametrize("ops", [ONE, WIDE], ids=["one", "wide"])
def test_the_product(p, ops):
    random = np.random.default_rng(p)
    M, Y, out = random.random((13, p)), random.random((13, ops.width)), np.empty((p, ops.width))
    matrix_product_function(ops)(M, Y, out)
    np.testing.assert_allclose(out, M.T @ Y, rtol=1e-14)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 40), st.sampled_from(["nnls", "fcls"]))
def test_a_pixel_knows_nothing_of_its_neighbours(seed, p, pixels, method):
    """The same bytes alone, in a full tile, and in a last one; and the optimum."""
    random, E, Y = mix(seed, pixels, 12, p, (0.1, 1.1), noise=0.1, alpha=0.4)
    together = unmix.solve(Y, E, method=method, device="cpu")
    i = int(random.integers(pixels))
    alone = unmix.solve(Y[i : i + 1], E, method=method, device="cpu")
    np.testing.assert_array_equal(together.abundances[i], alone.abundances[0])
    assert together.kappa[i] == alone.kappa[0] <= 1e-10
    expected = of_every_support(E, Y[i], method)
    np.testing.assert_allclose(together.abundances[i], expected, atol=1e-9 * np.linalg.cond(E) ** 2)


def test_rows_that_do_not_follow_each_other_are_refused():
    """Addresses are made of shapes: a view with gaps would give wrong values."""
    from numba.core.errors import TypingError

    if WIDE is ONE:
        pytest.skip("nothing is compiled")
    stored = Stored(np.arange(4), np.ones(4), np.zeros(4), float("nan"))
    raw = np.zeros((2, 4, 4 * WIDE.width))[:, :, ::2]
    tile = np.empty((4, WIDE.width)), *(np.empty((1, WIDE.width)) for _ in range(3))
    refused(TypingError, "C order", lambda: gather_function("bil", WIDE)(raw, 0, 0, WIDE.width, stored, *tile))


def test_a_pixel_too_large_to_square_is_named_and_not_made_worse():
    found = unmix.solve(np.array([[1e308, 1.0, 1.0], [0.2, 0.4, 0.3]]), np.eye(3), method="nnls", device="cpu")
    assert found.kappa[0] == np.inf and found.kappa[1] <= 1e-10
    assert np.isfinite(found.abundances[1]).all()
