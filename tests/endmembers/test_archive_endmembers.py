"""One set of endmembers for many scenes, and what tells whether a set is good, against plain numpy."""

import json

import numpy as np
import pytest
from conftest import falsify_record, refused, write_cube
from test_cli import unmix as command
from test_nfindr import coordinates, scene

import unmix
from unmix.commands.verify import verify
from unmix.devices import simulated
from unmix.library import load

pytestmark = pytest.mark.skipif(simulated(), reason="nothing of it runs on a GPU")
WAVES = "{" + ", ".join(str(400 + 10 * b) for b in range(12)) + "}"
NM = {"wavelength": WAVES, "wavelength_units": "nanometers"}


@pytest.fixture
def crops(tmp_path):
    """A scene of 40 lines with a masked pixel, and the same in five files of other interleaves and types; their names."""
    Y = np.round(10000 * scene(5, 4, lines=40)).astype(np.int16)
    Y[7, 3] = -9999
    write_cube(tmp_path / "whole.hdr", Y, data_ignore_value=-9999, **NM)
    names = []
    for k, (a, b, interleave) in enumerate(
        [(0, 9, "bip"), (9, 10, "bil"), (10, 20, "bsq"), (20, 33, "bil"), (33, 40, "bip")]
    ):
        kind = np.int32 if k == 3 else np.int16
        names.append(
            write_cube(tmp_path / f"crop{k}.hdr", Y[a:b].astype(kind), interleave, data_ignore_value=-9999, **NM)
        )
    (tmp_path / "crops.txt").write_text("".join(f"{name}\n" for name in names))
    return names


FIRST = (0, 9, 10, 20, 33)  # lines of the scene


@pytest.mark.parametrize(
    "words", [{"extract": "vca"}, {"extract": "nfindr"}, {"extract": "spa"}, {"smooth": 4}, {"refine": False}]
)
def test_the_set_of_crops_is_that_of_the_scene(tmp_path, crops, words):
    one = unmix.extract(tmp_path / "whole.hdr", count=4, **words)
    all_of_them = unmix.extract(crops, count=4, **words, memory="100k")
    np.testing.assert_array_equal(all_of_them.matrix, one.matrix)
    lines = [line + FIRST[int(name[-1])] for name, (line, _) in zip(all_of_them.scenes, all_of_them.pixels)]
    assert [(line, sample) for line, (_, sample) in zip(lines, all_of_them.pixels)] == list(one.pixels)
    for name, value in (one.simplex or {}).items():
        if name == "purest":
            assert [[len(some) for some in value]] == [[len(some) for some in all_of_them.simplex["purest"]]]
        else:
            assert all_of_them.simplex[name] == pytest.approx(value, rel=1e-9)
    for own, other in zip(one.quality["each"], all_of_them.quality["each"]):
        assert other == pytest.approx(own, abs=1e-9)


def test_a_set_for_a_list_on_the_command_line(tmp_path, crops, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out, err = command("endmembers", "--list", tmp_path / "crops.txt", "-n", "4", "--extract", "vca")
    assert out.split() == ["crops_endmembers.csv", "crops_endmembers.sli", "crops_endmembers.hdr"]
    assert "best ratio of volumes 1.0000" in err and "leads in" in err
    for ending in ("csv", "sli"):
        library = load(tmp_path / f"crops_endmembers.{ending}")
        assert set(library.scenes) <= {name.stem for name in crops} and len(library.pixels) == 4
    command("run", "--list", tmp_path / "crops.txt", "-e", "crops_endmembers.csv", "-o", "maps")
    records = [json.loads((tmp_path / f"maps/crop{k}_run.json").read_text()) for k in range(5)]
    assert len({record["endmembers"]["names"][0] for record in records}) == 1 and all(r["certified"] for r in records)
    out, _ = command("endmembers", crops[0], crops[1], "-n", "3", "--name", "two", "-o", tmp_path / "o")
    assert (tmp_path / "o/two_endmembers.csv").exists()
    (tmp_path / "none.txt").write_text("")
    assert command("endmembers", "--list", tmp_path / "none.txt")[0] == ""


def test_the_count_of_crops(crops, tmp_path):
    assert unmix.extract(crops).counted == unmix.extract(tmp_path / "whole.hdr").counted


def test_scenes_that_do_not_go_together(tmp_path, crops, caplog):
    Y = scene(5, 4).astype(np.float32)
    shifted = NM | {"wavelength": WAVES.replace("450", "452")}
    for name, values, fields, text in (
        ("less", Y[..., :-1], {}, "11 bands in use"),
        ("moved", Y * 10000, shifted, "its band 6 is at 452 nm"),
        ("other", Y, NM, "times as large as those of"),
    ):
        other = write_cube(tmp_path / f"{name}.hdr", values, **fields)
        refused(unmix.CubeError, text, unmix.extract, [crops[0], other], count=3)
    near = write_cube(tmp_path / "near.hdr", Y * 10000, **(NM | {"wavelength": WAVES.replace("450", "450.5")}))
    assert len(unmix.extract([crops[0], near], count=3).names) == 3
    empty = write_cube(tmp_path / "empty.hdr", np.full((3, 13, 12), -9999, np.int16), data_ignore_value=-9999, **NM)
    np.testing.assert_array_equal(unmix.extract([empty, *crops], count=4).matrix, unmix.extract(crops, count=4).matrix)
    assert "it adds nothing" in caplog.text
    refused(unmix.CubeError, "all pixels are masked", unmix.extract, [empty, empty], count=2)
    with pytest.raises(unmix.MethodError, match="no name of a file"):
        unmix.commands.extract.extract_to(
            crops,
            out_dir=None,
            name="a/b",
            overwrite=False,
            memory="1G",
            threads=1,
            how={"count": 2, "extract": "spa", "seed": 0},
        )
    listed = tmp_path / "z_endmembers.csv"
    listed.write_text(f"{crops[0]}\n")
    _, err = command("endmembers", "--list", listed, "--name", "z", "-n", "2", "--overwrite", "-o", tmp_path, code=2)
    assert "a file of the list" in err and listed.read_text() == f"{crops[0]}\n"


@pytest.mark.parametrize("masked", [False, True])
def test_quality_against_numpy(tmp_path, masked):
    random = np.random.default_rng(3)
    A = np.repeat(random.dirichlet(np.full(4, 0.7), (30, 1)), 40, axis=1)  # neighbours in a line differ by noise alone
    Y = A @ random.random((12, 4)).T + 0.002 * random.standard_normal((30, 40, 12))
    if masked:
        Y[::7, ::5] = -1
    found = unmix.extract(write_cube(tmp_path / "s.hdr", Y, data_ignore_value=-1), count=4, extract="vca")
    valid = Y[..., 0] != -1
    pixels = Y[valid]
    H = coordinates(pixels[None], 4)
    E = found.matrix
    corners = [int(np.flatnonzero((pixels == E[:, k]).all(axis=1))[0]) for k in range(4)]
    B = H @ np.linalg.inv(H[corners])
    pairs = np.concatenate([(Y[:, 1:] - Y[:, :-1])[valid[:, 1:] & valid[:, :-1]]])
    D = pairs.T @ pairs / (2 * len(pairs))
    centred = pixels - pixels.mean(axis=0)
    V = np.linalg.svd(centred, full_matrices=False)[2][:3]
    quality, noise = found.quality, np.sqrt(np.trace(D) / 12)
    left = centred - centred @ V.T @ V
    assert quality["noise"] == pytest.approx(noise) and quality["unexplained"] == pytest.approx(
        np.sqrt(np.square(left).sum() / len(pixels) / 12) / noise
    )
    assert quality["condition"] == pytest.approx(np.linalg.cond(E))
    rows = np.linalg.inv(H[corners])[1:]
    limits = 3 * np.sqrt(np.diag(rows.T @ V @ D @ V.T @ rows))
    over = -B / limits
    assert quality["outside"] == (over.max(axis=1) > 1).mean() > 0
    for k, one in enumerate(quality["each"]):
        angles = [
            np.degrees(np.arccos(min(1.0, E[:, k] @ E[:, j] / np.linalg.norm(E[:, k]) / np.linalg.norm(E[:, j]))))
            for j in range(4)
        ]
        angles[k] = np.inf
        assert one["nearest"] == np.argmin(angles) and one["angle"] == pytest.approx(min(angles))
        assert one["leads"] == (B.argmax(axis=1) == k).mean()
        assert one["negative"] == (B[:, k] < -0.0005).mean()
        assert one["beyond"] == ((over.max(axis=1) > 1) & (over.argmax(axis=1) == k)).mean()
        assert one["largest"] == pytest.approx(np.quantile(B[:, k], 0.999, method="inverted_cdf"), abs=0.51e-3)


def test_quality_is_in_the_record_and_verified(tmp_path):
    cube = write_cube(tmp_path / "s.hdr", scene(3, 4, lines=30, samples=40))
    report = unmix.run(cube, method="fcls", count=4)
    assert report["endmembers"]["quality"] == unmix.extract(cube, count=4, extract="vca").quality
    assert verify(tmp_path / "s", everything=True).faults == []
    page = unmix.report(tmp_path / "s").read_text()
    assert "times the noise of neighbouring pixels" in page and "nearest other" in page
    falsify_record(tmp_path / "s", lambda record: record["endmembers"]["quality"]["each"][1].update(leads=0.9))
    assert "quality of the endmembers is not what is found again" in " ".join(
        verify(tmp_path / "s", everything=True).faults
    )
    assert unmix.extract(cube, count=1).quality == {"condition": 1.0, "each": [{"nearest": None, "angle": None}]}
