"""Bundles: N-FINDR of a scene and of every M-th pixel of it, against the same by hand."""

import numpy as np
import pytest
from conftest import refused, write_cube
from scipy.optimize import linear_sum_assignment
from test_cli import unmix as command
from test_nfindr import coordinates, scene, volume

import unmix
from unmix.devices import simulated
from unmix.library import load

pytestmark = pytest.mark.skipif(simulated(), reason="nothing of it runs on a GPU")
M = 4


@pytest.fixture
def cube(tmp_path):
    Y = scene(2, 3, lines=20, samples=15, noise=0.01)
    Y[3, 2] = -1
    return write_cube(tmp_path / "s.hdr", Y, data_ignore_value=-1), Y


def angles(A, B):
    units = [E / np.linalg.norm(E, axis=0) for E in (A, B)]
    return np.arccos(np.clip(units[0].T @ units[1], -1, 1))


def test_each_part_has_its_largest_simplex(cube):
    """No pixel of a part in place of one of its corners enlarges its simplex, in the components of the whole scene."""
    path, Y = cube
    found = unmix.extract(path, count=3, subsets=M)
    whole = unmix.extract(path, count=3, extract="nfindr")
    flat = Y.reshape(-1, 12)
    valid = flat[:, 0] != -1
    H = np.full((len(flat), 3), np.nan)
    H[valid] = coordinates(flat[valid][None], 3)
    places = [line * 15 + sample for line, sample in found.pixels]
    assert len(set(places)) == len(places)
    np.testing.assert_array_equal(found.matrix, flat[places].T)
    corners = [places[found.names.index(f"endmember {k + 1}")] for k in range(3)]
    assert [divmod(place, 15) for place in corners] == list(whole.pixels)
    for part in range(M):
        own = [place for place in places if place % M == part]
        if len(own) < 3:
            continue  # it shares pixels with the whole scene
        some = [n for n in range(part, len(flat), M) if valid[n]]
        best = max((volume(H, triple), triple) for triple in triples(own))
        assert max(volume(H, [*best[1][:k], n, *best[1][k + 1 :]]) for k in range(3) for n in some) <= best[0] * (
            1 + 1e-8
        )


def triples(places):
    return [(a, b, c) for i, a in enumerate(places) for j, b in enumerate(places[:i]) for c in places[:j]]


def test_parts_are_grouped_by_assignment(cube):
    path, Y = cube
    found = unmix.extract(path, count=3, subsets=M)
    flat = Y.reshape(-1, 12)
    whole = found.matrix[:, [found.names.index(f"endmember {k + 1}") for k in range(3)]]
    apart = angles(whole, whole) + 10 * np.eye(3)
    for part in range(M):
        own = [
            (line * 15 + sample, kind)
            for (line, sample), kind in zip(found.pixels, found.classes)
            if (line * 15 + sample) % M == part
        ]
        if len(own) != 3:
            continue
        rows, columns = linear_sum_assignment(angles(whole, flat[[place for place, _ in own]].T))
        assert [own[j][1] for j in columns] == [f"endmember {k + 1}" for k in rows]
    for k, one in enumerate(found.quality["each"]):
        members = [j for j, kind in enumerate(found.classes) if kind == f"endmember {k + 1}"]
        assert found.names[members[0]] == f"endmember {k + 1}" and found.names[members[1]] == f"endmember {k + 1}.1"
        assert 0 <= one["found"] <= 1 and one["found"] * M == round(one["found"] * M)
        assert one["nearest"] == apart[k].argmin()


def test_memory_does_not_change_them(tmp_path, cube, monkeypatch):
    from unmix.endmembers.vca import Points

    path, _ = cube
    one = unmix.extract(path, count=3, subsets=M)
    monkeypatch.setattr(Points, "ROWS", 32)
    other = unmix.extract(path, count=3, subsets=M, memory="6k", threads=1)
    np.testing.assert_array_equal(one.matrix, other.matrix)
    assert one.quality == other.quality


def test_a_clear_scene_is_found_in_every_part(tmp_path):
    """Where every part holds the corners, consensus is 1 and the spread 0."""
    random = np.random.default_rng(0)
    E = random.uniform(0.1, 0.9, (10, 3))
    A = random.dirichlet(np.ones(3), (30, 20))
    A[::5] = np.repeat(np.eye(3)[[0, 1, 2, 0, 1, 2]], 20, axis=0).reshape(6, 20, 3)
    found = unmix.extract(write_cube(tmp_path / "s.hdr", A @ E.T), count=3, subsets=5)
    assert all(one["found"] == 1 and one["spread"] < 1e-6 for one in found.quality["each"])


@pytest.mark.slow
def test_classes_for_mesma(tmp_path, cube):
    path, _ = cube
    command("endmembers", path, "-n", "3", "--subsets", M, "-o", tmp_path / "o", tells="found in parts")
    library = load(tmp_path / "o/s_endmembers.csv")
    assert len(set(library.classes)) == 3 and len(library.names) > 6
    command("mesma", path, "-e", tmp_path / "o/s_endmembers.csv", "-o", tmp_path / "m")
    command("run", path, "-e", tmp_path / "o/s_endmembers.sli", "--by", "class", "-o", tmp_path / "m2")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"smooth": 3}, "`smooth` is not for `subsets`"),
        ({"extract": "spa"}, "`extract` is not for `subsets`"),
        ({"count": 1}, "one endmember has no simplex"),
        ({"subsets": 200}, "must be from 2 to 99"),
        ({"subsets": 1}, "must be from 2"),
    ],
)
def test_what_is_refused(cube, words, text):
    refused(unmix.MethodError, text, unmix.extract, cube[0], **{"count": 3, "subsets": M} | words)
