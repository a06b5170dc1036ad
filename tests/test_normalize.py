"""Fractions that do not depend on brightness (`normalize`): what is written, what is proved of it, and what goes with it."""

import numpy as np
import pytest
from conftest import falsify
from exact import FAMILIES, Reference
from flint import fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

import unmix
from unmix.jobs.verify import verify
from unmix.methods import free_of_brightness

KINDS, METHODS = ("sum", "length"), ("nnls", "pcls")


def fractions(A, E, kind):
    """Fractions and scale of abundances (N, p), by numpy."""
    w = np.linalg.norm(E, axis=0) if kind == "length" else np.ones(E.shape[1])
    scale = A @ w
    return np.divide(A * w, scale[:, None], out=np.zeros(A.shape), where=scale[:, None] > 0), scale


def scene(folder, Y, E):
    """Write pixels (lines, samples, L) and a library; return the keywords of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    Y.astype("<f8").tofile(folder / "x.img")
    lines, samples, bands = Y.shape
    (folder / "x.hdr").write_text(
        f"ENVI\nsamples = {samples}\nlines = {lines}\nbands = {bands}\ndata type = 5\ninterleave = bip\nbyte order = 0\n"
    )
    names = [f"m{j}" for j in range(E.shape[1])]
    rows = [",".join(["name", *map(str, range(1, bands + 1)), "class"])]
    rows += [",".join([name, *map(repr, e), f"c{j % 2}"]) for j, (name, e) in enumerate(zip(names, E.T.tolist()))]
    (folder / "e.csv").write_text("\n".join(rows) + "\n")
    return {"endmembers": folder / "e.csv", "out_dir": folder / "o", "device": "cpu", "scale": 1.0, "overwrite": True}


def read(stem, name):
    """A map as (lines, samples, bands)."""
    cube = unmix.open_cube(stem.with_name(f"{stem.name}_{name}.hdr"))
    raw = np.fromfile(stem.with_name(f"{stem.name}_{name}.img"), "<f4")
    return raw.reshape(cube.lines, cube.bands, cube.samples).transpose(0, 2, 1)


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
    words = scene(tmp_path, Y, E)
    unmix.run(tmp_path / "x.hdr", method=method, normalize=kind, certificate=True, **words)
    stem = tmp_path / "o/x"
    plain = unmix.solve(Y, E, method=method)
    expected, scale = fractions(plain.abundances.reshape(-1, 4), E, kind)
    good = plain.valid.ravel()
    written = read(stem, "abundance").reshape(54, -1)
    np.testing.assert_allclose(written[good][:, :4], expected[good], atol=1e-7)
    assert (written[good][:, 4:] == 0).all() and (written[~good] == -9999).all()
    np.testing.assert_allclose(read(stem, "scale").reshape(-1)[good], scale[good], rtol=1e-6)
    assert read(stem, "scale").reshape(-1)[~good] == -9999
    own = unmix.solve(Y, E, method=method, normalize=kind)
    np.testing.assert_allclose(read(stem, "certificate")[..., 1].ravel()[good], own.delta.ravel()[good], rtol=0.02)
    assert verify(stem, everything=True).faults == []


FURTHER = (
    {"uncertainty": True},
    {"by": "class", "uncertainty": True, "class_map": True},
    {"by": "class", "monte_carlo": 4},
    {"top": 2},
    {"quantize": 1e-4, "residual": True},
    {"weights": True},
)


@pytest.mark.parametrize("options", FURTHER, ids=lambda options: " ".join(options))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_other_maps_are_verified(tmp_path, method, kind, options):
    Y, E = drawn()
    words = scene(tmp_path, Y, E)
    if "weights" in options:
        (tmp_path / "w.txt").write_text("\n".join(str(1 + b % 3) for b in range(len(E))))
        options = {"weights": tmp_path / "w.txt"}
    unmix.run(tmp_path / "x.hdr", method=method, normalize=kind, **options, **words)
    assert verify(tmp_path / "o/x", everything=True).faults == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_fraction_is_beyond_its_delta(family, method, kind):
    random = np.random.default_rng(3)
    for p, L in ((1, 3), (3, 8), (6, 12)):
        E, Y = FAMILIES[family](random, L, p, 24)
        try:
            got = unmix.solve(Y, E, method=method, normalize=kind)
        except unmix.LibraryError:
            continue
        assert beyond(E, Y, got, method, kind) == 0


def beyond(E, Y, got, method, kind):
    """How many fractions are further than δ from those of the optimum in rational numbers (lengths: to 60 digits)."""
    shade = np.zeros((len(E), int(method == "pcls")))
    reference = Reference(np.hstack([E, shade]), Y, method == "pcls", True)
    plain, count = unmix.solve(Y, E, method=method), 0
    w = [1] * E.shape[1] if kind == "sum" else [root(sum(exact(v) ** 2 for v in e)) for e in E.T.tolist()]
    for n in np.flatnonzero(np.isfinite(got.delta)):
        a = plain.abundances[n]
        optimum = reference.optimum(n, np.append(a, 1 - a.sum()) if method == "pcls" else a)[: len(a)]
        parts = [u * x for u, x in zip(w, optimum)]
        s = sum(parts, fmpq(0))
        square = sum(((x / s if s else fmpq(0)) - exact(f)) ** 2 for x, f in zip(parts, got.abundances[n].tolist()))
        count += bool(square > exact(float(got.delta[n])) ** 2)
    return count


def exact(value):
    """A float as a rational number."""
    return fmpq(*float(value).as_integer_ratio())


def root(square):
    """The square root of a rational number, as one, to 60 digits."""
    from flint import fmpz

    if not square:
        return fmpq(0)
    bits = 2 * max(0, 210 - (int(square.p).bit_length() - int(square.q).bit_length()) // 2)
    return fmpq(fmpz(int(square.p) * 2**bits // int(square.q)).isqrt(), 2 ** (bits // 2))


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-3, 1e3), st.integers(0, 1000), st.sampled_from(KINDS))
def test_brightness_changes_no_fraction(factor, seed, kind):
    random = np.random.default_rng(seed)
    E = random.random((12, 4)) + 0.05
    Y = random.dirichlet(np.ones(4), 16) @ E.T + 0.01 * random.standard_normal((16, 12))
    one, other = (unmix.solve(Y * by, E, method="nnls", normalize=kind) for by in (1.0, factor))
    np.testing.assert_allclose(one.abundances, other.abundances, atol=1e-9)
    np.testing.assert_allclose(one.scale * factor, other.scale, rtol=1e-9)


def test_the_default_is_free_of_the_brightness_of_spectra_too():
    Y, E = drawn()
    options = free_of_brightness()
    one, other = (unmix.solve(Y[1:], E * by, **options).abundances for by in (1.0, np.array([2.0, 0.3, 1.0, 7.0])))
    np.testing.assert_allclose(one, other, atol=1e-9)


@pytest.mark.parametrize("name", ["abundance", "scale"])
def test_verify_finds_other_fractions(tmp_path, name):
    Y, E = drawn()
    unmix.run(tmp_path / "x.hdr", method="nnls", normalize="length", **scene(tmp_path, Y, E))
    falsify(tmp_path / "o/x", name, 6, lambda values: np.add.at(values, 3, 1e-2))
    assert verify(tmp_path / "o/x", everything=True).faults


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
    np.testing.assert_allclose(read(tmp_path / "o/x", "sigma")[0, :, :5], expected, rtol=1e-4)


def test_a_dark_pixel_has_no_fractions():
    E = np.array([[0.2, 0.9], [0.5, 0.1], [0.7, 0.3]])
    got = unmix.solve(np.array([np.zeros(3), -E[:, 0]]), E, method="nnls", normalize="sum")
    assert (got.abundances == 0).all() and (got.scale == 0).all() and (got.delta == 0).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"method": "fcls", "normalize": "sum"}, "sum to one as they are"),
        ({"method": "scls", "normalize": "sum"}, "sum to one as they are"),
        ({"method": "ucls", "normalize": "length"}, "may be negative"),
        ({"method": "mesma", "normalize": "sum", "endmembers": "e.csv"}, "`normalize` is for"),
        ({"method": "nnls", "normalize": "max"}, "there are none, sum, length"),
        (
            {"method": "nnls", "normalize": "sum", "endmembers": "e.csv", "by": "class", "shade_normalize": True},
            "leave one",
        ),
        ({"method": "nnls", "normalize": "sum", "endmembers": "e.csv", "l21": 1.0}, "does not go with `l21`"),
    ],
)
def test_contradictions(words, message):
    with pytest.raises(unmix.MethodError, match=message):
        unmix.Options(**words)


def test_a_normalized_run_is_another_request(tmp_path):
    Y, E = drawn()
    words = scene(tmp_path, Y, E) | {"overwrite": False, "skip_existing": True, "method": "nnls"}
    unmix.run(tmp_path / "x.hdr", **words)
    with pytest.raises(unmix.OutputError, match="normalize"):
        unmix.run(tmp_path / "x.hdr", normalize="sum", **words)


def test_compare_says_where_fractions_mean_something_else(tmp_path, caplog):
    Y, E = drawn()
    words = scene(tmp_path, Y, E) | {"method": "nnls"}
    for kind in ("none", "sum"):
        unmix.run(tmp_path / "x.hdr", normalize=kind, **words | {"out_dir": tmp_path / kind})
    unmix.compare(tmp_path / "none/x", tmp_path / "sum/x")
    assert "`normalize` is none in one and sum in the other" in caplog.text
