"""Pictures and pages of runs: what a browser or another reader makes of them is what the maps hold."""

import numpy as np
import pytest
from conftest import write_cube
from matplotlib import image as reader

import unmix
from unmix.io import open_cube
from unmix.pictures.browse import bands_shown, of_shares, thinned
from unmix.pictures.colours import MAGMA, VIRIDIS, ramp
from unmix.pictures.png import png


@pytest.fixture
def scene(tmp_path):
    """A scene of four endmembers, with a masked pixel, and the endmembers."""
    random = np.random.default_rng(2)
    E = random.uniform(0.1, 0.9, (20, 4))
    A = random.dirichlet(np.ones(4), (30, 40))
    Y = np.round(1e4 * (A @ E.T + 0.002 * random.standard_normal((30, 40, 20)))).astype(np.int16)
    Y[3, 5] = -9999
    path = write_cube(tmp_path / "s.hdr", Y, data_ignore_value=-9999)
    names = ("soil", "tree", "road", "water")
    rows = [["name", *map(str, range(1, 21))], *([name, *map(str, E[:, j])] for j, name in enumerate(names))]
    (tmp_path / "e.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    return path


def decoded(path):
    """The image as matplotlib reads it: another decoder; (h, w, 4) from 0 to 255."""
    return np.round(255 * reader.imread(path)).astype(int)


def test_the_browse_image_shows_the_maps(tmp_path, scene):
    unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000, rgb="water,soil,road")
    image = decoded(tmp_path / "s_browse.png")
    maps = open_cube(tmp_path / "s_abundance.hdr")
    values = maps.read(slice(0, 30), np.empty(30 * 40 * 4 * 4, np.uint8))
    expected = np.round(255 * np.clip(values[:, [3, 0, 2]], 0, 1)).transpose(0, 2, 1)
    solved = np.ones((30, 40), bool)
    solved[3, 5] = False
    assert np.abs(image[..., :3] - expected)[solved].max() == 0 and (image[..., 3] == 255 * solved).all()


def test_the_same_run_gives_the_same_bytes(tmp_path, scene):
    images = []
    for folder, more in (("a", {}), ("b", {"threads": 1, "memory": "100k", "streams": 1})):
        unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000, out_dir=tmp_path / folder, **more)
        images.append((tmp_path / folder / "s_browse.png").read_bytes())
    assert images[0] == images[1]


@pytest.mark.parametrize("words", [{"top": 2}, {"format": "hdf5"}, {"method": "pcls"}, {"format": "geotiff"}])
def test_every_kind_of_run_has_one(tmp_path, scene, words):
    report = unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000, **words)
    image = decoded(tmp_path / "s_browse.png")
    assert image.shape == (30, 40, 4) and image[3, 5, 3] == 0 and image[..., :3].std() > 20
    assert "s_browse.png" in report["digests"]


def test_without_one(tmp_path, scene):
    unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000)
    report = unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000, browse=False, overwrite=True)
    assert not (tmp_path / "s_browse.png").exists() and "s_browse.png" not in report["digests"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"rgb": "soil,tree,sand"}, "there is no 'sand'; there are soil, tree, road, water"),
        ({"rgb": "soil,tree,road,water"}, "at most three"),
        ({"rgb": "soil", "browse": False}, "not to be written"),
        ({"rgb": "soil", "top": 2}, "its largest abundance"),
    ],
)
def test_colours_that_cannot_be(tmp_path, scene, words, text):
    with pytest.raises(unmix.MethodError, match=text):
        unmix.run(scene, endmembers=tmp_path / "e.csv", scale=10000, **words)
    assert not (tmp_path / "s_run.json").exists()


def test_images_of_large_scenes_are_thinned():
    for lines, samples in ((1, 1), (1024, 3), (1025, 3), (3, 5000), (7000, 7000)):
        rows, columns = (len(range(*part.indices(n))) for part, n in zip(thinned(lines, samples), (lines, samples)))
        assert max(rows, columns) <= 1024 and (max(lines, samples) <= 1024) == ((rows, columns) == (lines, samples))


def test_one_or_two_maps():
    shares = np.array([[[0.0, 0.5, 2.0, np.nan]]])
    masked = np.array([[False, False, False, True]])
    assert of_shares(shares, masked) != of_shares(np.vstack([shares, shares]), masked)
    assert bands_shown(["a", "b"], [1, 2]) == [1] and bands_shown(["a", "b", "c"], [1, 3, 2]) == [1, 2, 0]


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (40, 64)])
def test_png(tmp_path, shape):
    random = np.random.default_rng(0)
    image = random.integers(0, 256, (*shape, 4)).astype(np.uint8)
    (tmp_path / "x.png").write_bytes(png(image))
    np.testing.assert_array_equal(decoded(tmp_path / "x.png"), image)
    numbers, palette = image[..., 0], ramp(VIRIDIS)
    (tmp_path / "y.png").write_bytes(png(numbers, palette))
    np.testing.assert_array_equal(decoded(tmp_path / "y.png"), palette[numbers])


@pytest.mark.parametrize(("name", "ours"), [("viridis", VIRIDIS), ("magma", MAGMA)])
def test_colours_are_those_of_matplotlib(name, ours):
    import matplotlib

    theirs = 255 * matplotlib.colormaps[name](np.linspace(0, 1, 255))
    assert np.abs(ramp(ours)[:255] - theirs).max() <= 4
