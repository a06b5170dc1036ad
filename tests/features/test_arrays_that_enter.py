"""What enters as an array: masks, libraries, names, bands without weight; the answers are those of the same problem written plainly."""

import numpy as np
import pytest
from scipy.optimize import nnls as scipy_nnls

import unmix
from unmix.arrays.others.kinds import filled
from unmix.errors import InputError, LibraryError, UnmixError
from unmix.features.systems.files import rows_of

E = np.array([[0.1, 0.5, 0.3], [0.2, 0.4, 0.35], [0.3, 0.1, 0.2], [0.6, 0.2, 0.1]])
random = np.random.default_rng(3)
Y = random.dirichlet(np.ones(3), 6) @ E.T + 0.01 * random.standard_normal((6, 4))
LOST = np.zeros((6, 4), bool)
LOST[1], LOST[4, 2] = True, True
MASKED = np.ma.masked_array(np.where(LOST, -9999.0, Y), mask=LOST)
PLAIN = np.where(LOST, np.nan, Y)
KEPT = [0, 2, 3, 5]


def same(found, expected):
    for one, other in zip(found, expected):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("method", ["nnls", "fcls", "pcls"])
def test_masked_pixels_are_not_solved(method):
    """As those with NaN; a mask of one band is enough."""
    found, expected = unmix.solve(MASKED, E, method=method), unmix.solve(PLAIN, E, method=method)
    assert found.valid.tolist() == [True, False, True, True, False, True]
    same((found.abundances, found.valid, found.kappa), (expected.abundances, expected.valid, expected.kappa))
    assert np.isnan(found.abundances[[1, 4]]).all() and found.steps[1] == -1


def test_an_answer_is_shown_in_a_few_lines():
    lines = repr(unmix.solve(MASKED, E)).splitlines()
    assert lines[0] == "Solution" and lines[-1].split(maxsplit=1) == ["valid", "(6,) bool, 4 of 6 true"]
    assert lines[1].split()[:4] == ["abundances", "(6,", "3)", "float64,"] and lines[1].endswith("6 not finite")
    library = unmix.Endmembers(("a", "b"), np.ones((3, 2)), None, source="e.csv")
    assert "2 spectra of 3 bands from e.csv: a, b" in repr(library)


@pytest.mark.parametrize("dtype", ["i2", "u1", "i4", "f4", "f8"])
def test_masked_types(dtype):
    stored = np.ma.masked_array((Y * 200).clip(0).astype(dtype), mask=LOST)
    values = filled(stored)
    assert np.isnan(values[LOST]).all() and np.array_equal(values[~LOST], stored.data[~LOST])
    assert values.dtype.kind == "f"
    assert filled([stored[0], stored[1]]).shape == (2, 4) and np.isnan(filled([stored[0], stored[1]])[1]).all()
    assert filled(np.ma.masked_array(stored.data)).dtype == dtype


def test_a_whole_number_that_float64_would_round_is_refused_though_others_are_masked():
    large = np.ma.masked_array([[2**53 + 1, 5, 7, 8]], mask=[[0, 1, 0, 0]])
    with pytest.raises(unmix.CubeError, match="that float64 would round"):
        unmix.solve(large, E)


def test_other_functions():
    """Each answers as for NaN, or refuses as for NaN."""
    found, whole = unmix.rows(MASKED, E, 2), unmix.rows(Y[KEPT], E, 2)
    same((found.rows, found.losses), (whole.rows, whole.losses))
    image = unmix.spatial(MASKED.reshape(2, 3, 4), E, tv=0.01).abundances
    same((image,), (unmix.spatial(PLAIN.reshape(2, 3, 4), E, tv=0.01).abundances,))
    assert np.isnan(image.reshape(6, 3)[[1, 4]]).all()
    same((unmix.nnls(E, MASKED).x,), (unmix.nnls(E, PLAIN).x,))
    y = np.ma.masked_array(Y[0], mask=[0, 1, 0, 0])
    for refused in (
        lambda: unmix.nnqp(np.eye(4), MASKED),
        lambda: unmix.poisson(abs(MASKED), E),
        lambda: unmix.nmf(abs(MASKED), E, steps=1),
        lambda: unmix.select_bands(MASKED, np.arange(6.0)),
        lambda: unmix.select_bands(Y, np.ma.masked_array(np.arange(6.0), mask=[0, 0, 1, 0, 0, 0])),
        lambda: unmix.solve(Y, np.ma.masked_array(E, mask=E > 0.55)),
        lambda: unmix.solve(Y, E, method="nnls", weights=y),
        lambda: unmix.ranges(Y, E, confidence=0.9, noise=y),
        lambda: unmix.spatial(Y.reshape(2, 3, 4), E, tv=0.1, edges=(np.ma.masked_all((2, 2)), np.ones((1, 3)))),
        lambda: unmix.solve(Y, E, method="nnls", allowed=np.ma.masked_array([True, True, False], mask=[0, 1, 0])),
    ):
        with pytest.raises(UnmixError, match=r"finite|above 0|NaN|smallest number|positive|must be"):
            refused()


@pytest.mark.slow
def test_masked_pixels_have_no_ranges_and_no_models():
    same((unmix.ranges(MASKED, E, within=0.01).lower,), (unmix.ranges(PLAIN, E, within=0.01).lower,))
    assert unmix.mesma(MASKED, E, [1, 1, 2]).valid.tolist() == [True, False, True, True, False, True]


def test_masked_weights_leave_a_pixel_out():
    """An unknown variance: the fill under the mask counted as a weight of 1e30."""
    weights = np.ma.masked_array(np.where(LOST, 1e30, 2.0), mask=LOST)
    found = unmix.solve(Y, E, method="nnls", weights=weights)
    assert found.valid.tolist() == [True, False, True, True, False, True]
    np.testing.assert_allclose(found.abundances[KEPT], unmix.solve(Y[KEPT], E, method="nnls").abundances, atol=1e-12)
    with pytest.raises(InputError, match="weights holds values that are not finite"):
        unmix.nnls(E, Y, weights=weights)


@pytest.mark.parametrize("method", ["nnls", "fcls", "pcls"])
def test_a_pixel_whose_weights_are_all_zero_has_no_answer(method):
    weights = np.ones((6, 4))
    weights[2] = 0
    found = unmix.solve(Y, E, method=method, weights=weights)
    assert found.valid.tolist() == [True, True, False, True, True, True]
    assert np.isnan([*found.abundances[2], found.rmse[2], found.kappa[2]]).all()
    assert not unmix.solve(Y, E, method=method, weights=np.zeros(4)).valid.any()
    assert not unmix.solve(Y[0], E, method=method, weights=np.zeros(4)).valid


def test_a_system_whose_weights_are_all_zero_has_no_answer():
    weights = np.ones((6, 4))
    weights[2] = 0
    found = unmix.nnls(E, Y, weights=weights)
    assert not found.failed.size and np.isnan([*found.x[2], found.rmse[2], found.kappa[2], found.delta[2]]).all()
    np.testing.assert_allclose(found.x[0], scipy_nnls(E, Y[0])[0], atol=1e-12)
    assert np.isnan(unmix.nnls(E, Y, weights=np.zeros(4)).x).all()


@pytest.mark.parametrize("method", ["nnls", "fcls", "pcls"])
@pytest.mark.parametrize("lost", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(4,), (6, 4)])
def test_a_band_without_weight_may_have_no_value(method, lost, shape):
    """The other bands decide, with shared weights and with weights of each pixel."""
    pixels, weights = Y.copy(), np.broadcast_to([1.0, 0.0, 3.0, 2.0], shape)
    pixels[1::2, 1] = lost
    found = unmix.solve(pixels, E, method=method, weights=weights)
    rest = [0, 2, 3]
    expected = unmix.solve(Y[:, rest], E[rest], method=method, weights=weights[..., rest])
    assert found.valid.all()
    np.testing.assert_allclose(found.abundances, expected.abundances, atol=1e-9)
    if method == "nnls":
        np.testing.assert_allclose(unmix.nnls(E, pixels, weights=weights).x, expected.abundances, atol=1e-9)
    pixels[3, 2] = lost  # a band with weight
    assert unmix.solve(pixels, E, method=method, weights=weights).valid.tolist() == [True] * 3 + [False] + [True] * 2
    assert np.isnan(unmix.nnls(E, pixels, weights=weights).x).all(axis=1).tolist() == [False] * 3 + [True] + [False] * 2


@pytest.mark.parametrize("classes", [[1, 1, 2], np.array([1, 1, 2]), (1.5, 1.5, 2.0), [True, True, False]])
def test_classes_may_be_numbers(classes, monkeypatch):
    """They are names all the same: the problem is planned with them as texts."""
    from unmix.arrays import pixels

    planned = {}
    monkeypatch.setattr(pixels, "solve_pixels", lambda Y, problem, *rest: planned.update(of=problem.endmembers.classes))
    unmix.mesma(Y, E, classes)
    assert planned["of"] == tuple(map(str, list(classes)))
    with pytest.raises(LibraryError, match="2 classes for 3 spectra"):
        unmix.mesma(Y, E, classes[:2])


def test_a_library_is_its_spectra():
    library = unmix.Endmembers(("a", "b", "c"), E, None, source="E")
    same((unmix.solve(Y, library, method="nnls").abundances,), (unmix.solve(Y, E, method="nnls").abundances,))
    deleted = unmix.Endmembers(("a", "b", "c"), np.where(E > 0.55, -1.23e34, E), None, source="E")
    with pytest.raises(LibraryError, match="of finite numbers"):
        unmix.solve(Y, deleted)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("lib.csv", "lib.csv: is a name, and no array; unmix.load_library"),
        ([["a", "b"]], "arrays of real numbers are taken"),
        ({"a": 1}, "a dict is no array of numbers"),
        (E * 1j, "an array is of complex128"),
        ([[1.0, 2], [3]], "a list is no array of numbers"),
    ],
)
def test_what_is_no_array(given, words):
    for call in (
        lambda: unmix.solve(Y, given),
        lambda: unmix.nnls(given, Y),
        lambda: unmix.ranges(Y, given, within=0.1),
    ):
        with pytest.raises(UnmixError, match=words):
            call()


@pytest.mark.parametrize("values", [[2, 0, 7], [0.5, 1, 0], [-1, 0, 1], [np.nan, 1, 0]])
def test_numbers_of_columns_are_not_allowed_columns(values):
    with pytest.raises(InputError, match=r"a.npy: allowed has a 0 or a 1 for each column, but holds"):
        rows_of(np.array(values), slice(0, 1), "allowed", "a.npy")
    assert rows_of(np.array([[1.0, 0.0, 1.0]]), slice(0, 1), "allowed", "a.npy").tolist() == [[True, False, True]]
    assert rows_of(np.array([2.0, 0.5]), slice(0, 1), "weights", "w.npy").tolist() == [2.0, 0.5]
