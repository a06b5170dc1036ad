"""Fractions that do not depend on brightness (`normalize`): what is written, what is proved of it, and what goes with it."""

import numpy as np
import pytest
from conftest import mix, read_map, rest_slow, write_csv, write_cube
from exact import FAMILIES, Reference, rational
from flint import fmpq
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.fractions import fractions, weights_of

import unmix
from unmix.certificate import MASKED, NODATA, SOLVED
from unmix.commands.verify import verify
from unmix.devices import simulated
from unmix.library.fractions import Normalization
from unmix.methods import normalization_without_method
from unmix.quotients import divide_all

KINDS, METHODS = ("sum", "length", "max"), ("nnls", "pcls")


def scene(folder, Y, E):
    """Write pixels (lines, samples, L) and a library; return the keywords of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    write_cube(folder / "x.hdr", Y)
    write_csv(folder / "e.csv", E, classes=[f"c{j % 2}" for j in range(E.shape[1])])
    return {"endmembers": folder / "e.csv", "out_dir": folder / "o", "device": "cpu", "scale": 1.0, "overwrite": True}


def drawn(lines=6, samples=9, p=4, L=15):
    """A small scene with brightness that varies, one dark and one masked pixel."""
    random = np.random.default_rng(7)
    E = np.round(random.random((L, p)) + 0.1, 6)
    A = random.dirichlet(np.full(p, 0.4), (lines, samples)) * random.uniform(0.2, 0.9, (lines, samples, 1))
    Y = A @ E.T + 0.003 * random.standard_normal((lines, samples, L))
    Y[0, 0], Y[0, 1] = 0.0, np.nan
    return Y, E


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_a_run_writes_fractions_and_scale(tmp_path, method, kind):
    Y, E = drawn()
    unmix.run(tmp_path / "x.hdr", method=method, normalize=kind, certificate=True, **scene(tmp_path, Y, E))
    stem = tmp_path / "o/x"
    plain = unmix.solve(Y, E, method=method)
    expected, scale = fractions(plain.abundances.reshape(-1, 4), weights_of(E, kind))
    good = plain.valid.ravel()
    written = read_map(stem, "abundance").reshape(54, -1)
    np.testing.assert_allclose(written[good][:, :4], expected[good], atol=1e-7)
    assert (written[good][:, 4:] == 0).all() and (written[~good] == -9999).all()
    np.testing.assert_allclose(read_map(stem, "scale").reshape(-1)[good], scale[good], rtol=1e-6)
    assert read_map(stem, "scale").reshape(-1)[~good] == -9999
    own = unmix.solve(Y, E, method=method, normalize=kind)
    np.testing.assert_array_equal(own.rmse, plain.rmse)
    np.testing.assert_array_equal(own.kappa, plain.kappa)
    np.testing.assert_allclose(read_map(stem, "certificate")[..., 1].ravel()[good], own.delta.ravel()[good], rtol=0.02)
    assert verify(stem, everything=True).faults == []


FURTHER = (
    {"uncertainty": True},
    {"by": "class", "uncertainty": True, "class_map": True},
    {"by": "class", "average": "plain", "draws": 4},
    {"top": 2},
    {"quantize": 1e-4, "residual": True},
    {"weights": True},
)


@pytest.mark.parametrize(
    ("method", "kind", "options"),
    [*(("nnls", "length", options) for options in FURTHER), ("pcls", "max", FURTHER[1]), ("pcls", "sum", FURTHER[2])],
    ids=str,
)
def test_other_maps_are_verified(tmp_path, method, kind, options):
    Y, E = drawn()
    words = scene(tmp_path, Y, E)
    if "weights" in options:
        (tmp_path / "w.txt").write_text("\n".join(str(1 + b % 3) for b in range(len(E))))
        options = {"weights": tmp_path / "w.txt"}
    unmix.run(tmp_path / "x.hdr", method=method, normalize=kind, **options, **words)
    assert verify(tmp_path / "o/x", everything=True).faults == []


@pytest.mark.parametrize("kind", rest_slow(KINDS, "length"))
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_fraction_is_beyond_its_delta(family, method, kind):
    random, solved = np.random.default_rng(3), 0
    for p, L in ((1, 3), (3, 8), (6, 12)):
        E, Y = FAMILIES[family](random, L, p, 24)
        try:
            got = unmix.solve(Y, E, method=method, normalize=kind)
        except unmix.LibraryError:
            continue
        assert beyond(E, Y, got, method, kind) == 0
        solved += 1
    assert solved >= 1 or (family == "shade" and method != "fcls")  # a zero endmember is refused


def beyond(E, Y, got, method, kind):
    """How many fractions are further than δ from those of the optimum in rational numbers (lengths: to 60 digits)."""
    shade = np.zeros((len(E), int(method == "pcls")))
    reference = Reference(np.hstack([E, shade]), Y, method == "pcls", True)
    plain, count = unmix.solve(Y, E, method=method), 0
    sizes = {"sum": lambda _: 1, "length": lambda e: root(sum(v**2 for v in e)), "max": percentile}
    w = [sizes[kind]([rational(v) for v in e]) for e in E.T.tolist()]
    for n in np.flatnonzero(np.isfinite(got.delta)):
        a = plain.abundances[n]
        optimum = reference.optimum(n, np.append(a, 1 - a.sum()) if method == "pcls" else a)[: len(a)]
        parts = [u * x for u, x in zip(w, optimum)]
        s = sum(parts, fmpq(0))
        square = sum(((x / s if s else fmpq(0)) - rational(f)) ** 2 for x, f in zip(parts, got.abundances[n].tolist()))
        count += bool(square > rational(float(got.delta[n])) ** 2)
    return count


def percentile(values):
    """The 95th percentile of the absolute values of rational numbers, between two of them in proportion."""
    ordered = sorted(abs(v) for v in values)
    place = fmpq(19 * (len(ordered) - 1), 20)
    k = int(place.p // place.q)
    return ordered[k] + (place - k) * (ordered[min(k + 1, len(ordered) - 1)] - ordered[k])


def root(square):
    """The square root of a rational number, as one, to 60 digits."""
    from flint import fmpz

    if not square:
        return fmpq(0)
    bits = 2 * max(0, 210 - (int(square.p).bit_length() - int(square.q).bit_length()) // 2)
    return fmpq(fmpz(int(square.p) * 2**bits // int(square.q)).isqrt(), 2 ** (bits // 2))


@settings(max_examples=40)
@given(st.floats(1e-3, 1e3), st.integers(0, 1000), st.sampled_from(KINDS))
def test_brightness_changes_no_fraction(factor, seed, kind):
    _, E, Y = mix(seed, 16, 12, 4, (0.05, 1.05), noise=0.01)
    one, other = (unmix.solve(Y * by, E, method="nnls", normalize=kind) for by in (1.0, factor))
    np.testing.assert_allclose(one.abundances, other.abundances, atol=1e-9)
    np.testing.assert_allclose(one.scale * factor, other.scale, rtol=1e-9)
    half, fifth = (unmix.solve(Y * by, E, method="pcls", normalize=kind).abundances for by in (0.5, 0.2))
    np.testing.assert_allclose(half, fifth, atol=1e-9)  # shade takes up the rest
    unit, pixels = E / np.linalg.norm(E, axis=0), Y / np.linalg.norm(Y, axis=1, keepdims=True)
    divided = unmix.solve(pixels, unit, method="nnls").abundances
    of_length = unmix.solve(Y, E, method="nnls", normalize="length").abundances
    np.testing.assert_allclose(divided / divided.sum(axis=1, keepdims=True), of_length, atol=1e-9)


def test_the_default_is_free_of_the_brightness_of_spectra_too():
    Y, E = drawn()
    options = {"method": "nnls", "normalize": normalization_without_method(False)}
    one, other = (unmix.solve(Y[1:], E * by, **options).abundances for by in (1.0, np.array([2.0, 0.3, 1.0, 7.0])))
    np.testing.assert_allclose(one, other, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_deviations_are_those_of_finite_differences(tmp_path, kind):
    random, noise = np.random.default_rng(5), 1e-3
    E = np.round(random.random((15, 4)) + 0.1, 6)
    Y = random.dirichlet(np.full(4, 4.0), (1, 6)) @ E.T * 0.5
    words = scene(tmp_path, Y, E)
    (tmp_path / "n.txt").write_text(f"{noise}\n" * 15)
    unmix.run(tmp_path / "x.hdr", method="nnls", normalize=kind, uncertainty=True, noise=tmp_path / "n.txt", **words)
    step = 1e-6
    moved = Y[0][:, None] + step * np.vstack([np.eye(15), -np.eye(15)])
    got = unmix.solve(moved, E, method="nnls", normalize=kind)
    values = np.concatenate([got.abundances, got.scale[..., None]], axis=-1)
    slopes = (values[:, :15] - values[:, 15:]) / (2 * step)
    expected = noise * np.sqrt(np.square(slopes).sum(axis=1))
    np.testing.assert_allclose(read_map(tmp_path / "o/x", "sigma")[0, :, :5], expected, rtol=1e-4)


def test_a_dark_pixel_has_no_fractions():
    E = np.array([[0.2, 0.9], [0.5, 0.1], [0.7, 0.3]])
    got = unmix.solve(np.array([np.zeros(3), -E[:, 0]]), E, method="nnls", normalize="sum")
    assert (got.abundances == 0).all() and (got.scale == 0).all() and (got.delta == 0).all()


def test_compare_says_where_fractions_mean_something_else(tmp_path, caplog):
    Y, E = drawn()
    words = scene(tmp_path, Y, E) | {"method": "nnls"}
    for kind in ("none", "sum"):
        unmix.run(tmp_path / "x.hdr", normalize=kind, **words | {"out_dir": tmp_path / kind})
    unmix.compare(tmp_path / "none/x", tmp_path / "sum/x")
    assert "`normalize` is none in one and sum in the other" in caplog.text


def block_of(seed, n=3, p=4, samples=37):
    """Abundances of a block, their δ and states: zeros, masked pixels, tiny and huge scales."""
    random = np.random.default_rng(seed)
    A = random.random((n, p, samples)) * (random.random((n, p, samples)) < 0.7)
    A *= 10.0 ** random.choice([0, 0, 0, -3, 5, -200, 200], (n, 1, samples))
    delta = 10.0 ** random.uniform(-16, -3, (n, samples))
    delta[random.random((n, samples)) < 0.1] = random.choice([0.0, np.inf, 1e-120])
    return A, delta, np.where(random.random((n, samples)) < 0.2, MASKED, SOLVED).astype(np.uint8)


@pytest.mark.sim
@pytest.mark.parametrize("seed", range(4))
def test_compiled_fractions_are_those_of_numpy(seed):
    """On the CPU and in a kernel, against `Normalization`; also of pixels of shade alone, and where nothing is proved."""
    A, delta, state = block_of(seed)
    normalization = Normalization("length", np.array([0.7, 1.3, 2.0, 0.0]), has_shade=True)
    with np.errstate(over="ignore", under="ignore"):
        fractions, scale, far = normalization.replaced(A, delta, state == SOLVED, 1, NODATA)
        expected = fractions.astype(np.float32), scale.astype(np.float32), far
    made = np.empty(A.shape, np.float32), np.empty(delta.shape, np.float32), np.empty(delta.shape)
    if simulated():
        from unmix.solvers.pixels.cuda_totals.totals import divide_kernel

        with np.errstate(all="ignore"):
            divide_kernel()[delta.size // 64 + 1, 64](A, delta, state, *normalization.shares, *made)
    else:
        divide_all(A, delta, state, *normalization.shares, *made)
    for found, wanted in zip(made, expected):
        np.testing.assert_allclose(found, wanted, rtol=1e-6 if found.dtype == np.float32 else 1e-12)
    assert np.isinf(far).any() and (made[2][state != SOLVED] == NODATA).all()


def test_shade_comes_back_from_fractions():
    A = np.array([[0.2, 0.3, 0.5], [0.0, 0.0, 1.0]])
    normalization = Normalization("sum", np.array([1.0, 1.0, 0.0]), has_shade=True)
    np.testing.assert_allclose(normalization.back(*normalization.of_abundances(A, 1), 1), A, atol=1e-15)


def test_without_a_method_fractions_do_not_depend_on_brightness(tmp_path, caplog):
    """Of extracted spectra at unit length, of a library's by area; any option that is given is as it always was."""
    random = np.random.default_rng(3)
    E = random.random((20, 3)) + 0.1
    F = random.dirichlet(np.full(3, 0.4), 600)
    F[:60] = np.eye(3)[np.arange(60) % 3]
    Y = (F @ E.T * random.uniform(0.5, 1.5, (600, 1))).reshape(20, 30, 20)
    path, library = write_cube(tmp_path / "s.hdr", Y), write_csv(tmp_path / "e.csv", E)
    report = unmix.run(path, device="cpu", browse=False)
    assert (report["method"], report["normalize"], report["asked"]["method"]) == ("nnls", "length", "left open")
    assert report["options"] == {"browse": False}
    assert verify(tmp_path / "s", everything=True).faults == []
    asked = unmix.run(path, endmembers=library, device="cpu", browse=False, overwrite=True)["asked"]
    assert (asked["method"], asked["normalize"], asked["extract"]) == ("nnls", "sum", None)
    np.testing.assert_allclose(read_map(tmp_path / "s", "abundance").reshape(-1, 3), F, atol=1e-6)
    for options, expected in (
        ({"method": "fcls"}, ("fcls", "none", "vca")),
        ({"method": "nnls"}, ("nnls", "none", "vca")),
        ({"normalize": "sum"}, ("nnls", "sum", "auto")),
        ({"smooth": 9}, ("nnls", "length", "vca")),
        ({"refine": False}, ("nnls", "length", "vca")),
        ({"extract": "spa"}, ("nnls", "length", "spa")),
        ({"endmembers": library, "tv": "auto"}, ("nnls", "none", "vca")),
        ({"method": "pcls", "normalize": "length"}, ("pcls", "length", "vca")),
    ):
        chosen = unmix.Options(**options)
        assert (chosen.method, chosen.normalize, chosen.extract) == expected


def test_the_report_shows_fractions_and_their_scale(tmp_path):
    random, E, Y = mix(5, (8, 9), 12, 2, (0.1, 1.1))
    Y = Y * random.uniform(0.5, 2, (8, 9, 1))
    path, library = write_cube(tmp_path / "s.hdr", Y), write_csv(tmp_path / "e.csv", E)
    cases = [("length", "Fractions of spectra of unit length"), ("max", "Fractions of spectra whose maximum is 1")]
    cases += [("sum", "Fractions of the area"), ("none", "Abundances")]
    for normalize, says in cases:
        unmix.run(path, endmembers=library, method="nnls", normalize=normalize, device="cpu", overwrite=True)
        page = unmix.report(tmp_path / "s", overwrite=True).read_text()
        assert f"<h2>{says}</h2>" in page and ("<h2>Scale</h2>" in page) == (normalize != "none")
