"""One odd pixel among thousands changes neither the number of endmembers, nor the method, nor the fractions of others."""

import json
import logging

import numpy as np
import pytest
from conftest import write_cube
from hypothesis import given, settings
from hypothesis import strategies as st

import unmix
from unmix.endmembers import count_endmembers
from unmix.scene import ReadOptions, open_scene
from unmix.scene.odd import OddPixels, is_odd
from unmix.scene.stripes import standing_out

LINES, SAMPLES, L, P = 40, 50, 30, 3
random = np.random.default_rng(3)
SPECTRA = np.cumsum(random.standard_normal((L, P)), axis=0)
SPECTRA = 0.1 + 0.8 * (SPECTRA - SPECTRA.min(axis=0)) / np.ptp(SPECTRA, axis=0)
F = random.dirichlet(np.full(P, 0.6), (LINES, SAMPLES))
Y = F @ SPECTRA.T + 0.003 * random.standard_normal((LINES, SAMPLES, L))
KINDS = {
    "-9999": lambda y: np.full_like(y, -9999),
    "65535": lambda y: np.full_like(y, 65535),
    "0": lambda y: 0 * y,
    "hot": lambda y: 25 * y,
    "negative": lambda y: np.full_like(y, -0.05),
    "1e30": lambda y: np.full_like(y, 1e30),
}


def found_in(path, **how):
    """Return the odd places of a scene, (line, sample)."""
    scene = open_scene(path, ReadOptions(**how))
    odd = OddPixels(scene)
    for lines in (slice(0, 7), slice(7, scene.cube.lines)):
        odd.look(scene.cube.read(lines, np.empty(2**24, np.uint8)), lines)
    return [divmod(int(place), scene.cube.samples) for place in odd.found(scene.pixels)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    return run(write_cube(folder / "s.hdr", Y.astype(np.float32)), folder)


def run(path, folder):
    unmix.run(path, out_dir=folder, overwrite=True, device="cpu")
    A = np.fromfile(folder / "s_abundance.img", "<f4").reshape(LINES, -1, SAMPLES)
    return json.loads((folder / "s_run.json").read_text()), A


@pytest.mark.parametrize("interleave", ["bip", "bil", "bsq"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_odd_pixel(tmp_path, plain, kind, interleave, caplog):
    Z = Y.astype(np.float32)
    Z[20, 33] = KINDS[kind](Z[20, 33])
    path = write_cube(tmp_path / "s.hdr", Z, interleave=interleave)
    assert found_in(path) == [(20, 33)]
    if interleave != "bip":
        return
    with caplog.at_level(logging.WARNING, "unmix"):
        record, A = run(path, tmp_path)
    assert record["method"] == plain[0]["method"] and A.shape == plain[1].shape
    rest = np.ones((LINES, 1, SAMPLES), bool)
    rest[20, 0, 33] = False
    assert np.abs(A - plain[1]).max(axis=1, keepdims=True)[rest].max() < 1e-3
    assert "1 odd pixel is left out where endmembers are counted and extracted: (line sample) 20 33" in caplog.text
    counted = count_endmembers(open_scene(path, ReadOptions()), 2**28)
    assert counted.all["auto"] == len(record["endmembers"]["names"])


def test_what_is_not_odd(tmp_path):
    things = Y.astype(np.float32)
    things[10:12, 10] *= 30  # two neighbours are a thing
    assert found_in(write_cube(tmp_path / "t.hdr", things)) == []
    many = Y.astype(np.float32)
    many[::8, ::10] *= 30
    assert found_in(write_cube(tmp_path / "m.hdr", many)) == []
    masked = Y.astype(np.float32)
    masked[5, 6], masked[7, 8], masked[9, 9] = -9999, np.nan, 50
    assert found_in(write_cube(tmp_path / "n.hdr", masked, data_ignore_value="-9999")) == [(9, 9)]
    assert found_in(write_cube(tmp_path / "p.hdr", random.poisson(2.0, (LINES, SAMPLES, L)).astype(np.uint16))) == []
    assert not is_odd(Y.reshape(-1, L)).any()


def test_odd_pixels_are_kept_where_asked(tmp_path):
    Z = Y.astype(np.float32)
    Z[20, 33] *= 25
    path = write_cube(tmp_path / "s.hdr", Z)
    kept = unmix.extract(path, count=P, extract="nfindr", outliers=0)
    left = unmix.extract(path, count=P, extract="nfindr")
    assert (20, 33) in kept.pixels and (20, 33) not in left.pixels
    assert left.quality["odd"] == {"pixels": 1, "places": [[20, 33]]}


@pytest.mark.parametrize("direction", ["column", "line"])
@pytest.mark.parametrize("kind", ["dark", "bright", "half the bands"])
def test_stripes_are_no_endmembers(tmp_path, kind, direction, caplog):
    turned = (lambda a: a) if direction == "column" else (lambda a: a.swapaxes(0, 1))
    W = np.tile(turned(Y), (2, 2, 1))  # 5 % of 80 lines: up to 4
    plain = unmix.extract(write_cube(tmp_path / "p.hdr", W.astype(np.float32)), count=P)
    Z = turned(W.copy())
    Z[:, [17, 30, 31], L // 2 if kind == "half the bands" else 0 :] += {"dark": -0.6}.get(kind, 0.8)
    path = write_cube(tmp_path / "s.hdr", turned(Z).astype(np.float32))
    with caplog.at_level(logging.WARNING, "unmix"):
        left = unmix.extract(path, count=P)
    names = [f"{direction} {n}" for n in (17, 30, 31)]
    assert left.quality["odd"]["stripes"] == names and f"stripes: {', '.join(names)}" in caplog.text
    apart = np.abs(np.linalg.lstsq(plain.matrix, left.matrix, rcond=None)[0])
    assert np.allclose(np.sort(apart.max(axis=0)), 1, atol=0.03)
    assert "odd" not in plain.quality and "odd" not in unmix.extract(path, count=P, outliers=0).quality


@pytest.mark.parametrize("interleave", ["bip", "bil", "bsq"])
def test_the_edge_of_the_data_is_no_stripe(tmp_path, interleave):
    Z = (np.tile(Y, (2, 2, 1)) + np.linspace(0, 3, 2 * SAMPLES)[:, None])[:, ::-1].astype(np.float32)
    Z[:, :20] = Z[:50, 60:] = -9999  # falling to one side: its first column is above both neighbours, one without data
    assert found_in(write_cube(tmp_path / "s.hdr", Z, interleave=interleave, data_ignore_value="-9999")) == []


def test_stripes_everywhere_are_said(tmp_path, caplog):
    Z = Y + 0.3 * np.arange(SAMPLES)[:, None] % 0.6
    with caplog.at_level(logging.WARNING, "unmix"):
        left = unmix.extract(write_cube(tmp_path / "s.hdr", Z.astype(np.float32)), count=P)
    assert "of 50 columns are above, or below, both neighbours" in caplog.text and "odd" not in left.quality


@settings(max_examples=20)  # each counts in plain Python
@given(draw=st.randoms(use_true_random=False), m=st.integers(3, 60), n=st.integers(24, 48))
def test_stripes_as_by_counting(draw, m, n):
    rng = np.random.default_rng(draw.randrange(2**32))
    values = rng.standard_normal((4, n, m)) + np.where(rng.random(m) < 0.1, 3.0, 0.0)
    values[rng.random(values.shape) < 0.1] = np.nan
    found = np.zeros(m, bool)
    for c in range(m):
        for a, b in ((1, 1), (1, 2), (2, 1)):
            if c < a or c + b >= m:
                continue
            for sign in (1, -1):
                three = [[sign * values[k, line, [c - a, c, c + b]] for line in range(n)] for k in range(4)]
                three = [[one for one in band if np.isfinite(one).all()] for band in three]
                out = [
                    sum(y[1] > max(y[0], y[2]) for y in band) > 0.75 * len(band) and len(band) >= 24 for band in three
                ]
                found[c] |= sum(out) >= 2
    assert np.array_equal(standing_out(values), found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unmix.scene.stripes.TOGETHER", 7)
        assert np.array_equal(standing_out(np.nan_to_num(values, nan=-9999.0), -9999.0), found)
