"""One odd pixel among thousands changes neither the number of endmembers, nor the method, nor the fractions of others."""

import json
import logging

import numpy as np
import pytest
from conftest import write_cube

import unmix
from unmix.endmembers import count_endmembers
from unmix.scene import ReadOptions, open_scene
from unmix.scene.odd import OddPixels, is_odd

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
