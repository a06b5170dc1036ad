"""What else a pixel could be: MESMA's models that fit nearly as well, against all models one after the other."""

import numpy as np
import pytest
from conftest import read_map, write_csv, write_cube
from reference.models import EveryModel, gap_of, rms
from test_models import library, odd_scene, scene

import unmix
from unmix.commands.verify import verify
from unmix.methods import ModelChoice

# Its own compiled loops over all models take 25 s where nothing is compiled yet.
pytestmark = pytest.mark.slow


def expected(models, y, chosen, within):
    """The bands of the map for one pixel."""
    own, fits = rms(y - models.E @ chosen), models.all_fits(y, 0.0)
    count, numbers = models.numbers_of(fits, (own + within + 1e-12) ** 2)
    return [gap_of(fits, np.count_nonzero(np.abs(chosen) > 1e-6)), count, *numbers.ravel()]


@pytest.fixture
def cube(tmp_path):
    """See `odd_scene`."""
    return odd_scene(tmp_path)


@pytest.mark.parametrize("words", [{}, {"limits": "viper", "max_rmse": 0.1}])
@pytest.mark.parametrize("within", [None, 0.0, 0.015, "all"])
@pytest.mark.parametrize("normalized", [False, True])
def test_against_all_models(tmp_path, cube, words, within, normalized):
    path, E, kinds, Y = cube
    unmix.run(
        path,
        endmembers=tmp_path / "library.csv",
        method="mesma",
        levels="2-4",
        uncertainty=True,
        within=within,
        shade_normalize=normalized,
        **words,
    )
    choice = ModelChoice(levels="2-4", **words)
    models = EveryModel(E, kinds, choice, normalized)
    found = unmix.mesma(Y, E, kinds, levels="2-4", **words)
    bands = ["gap to the next model", "models"]
    bands += [
        f"{kind} {word}" for kind in ("c0", "c1", "c2", "shade") for word in ("mean", "deviation", "least", "largest")
    ]
    assert f"band names = {{{', '.join(bands)}}}" in (tmp_path / "x_spread.hdr").read_text()
    written = read_map(tmp_path / "x", "spread")
    reach = {None: 0.5 * choice.fusion, "all": np.inf}.get(within, within)
    for line, sample in np.ndindex(3, 7):
        chosen, row = found.abundances[line, sample], written[line, sample]
        if (line, sample) == (0, 1):
            assert (row == -9999).all()
        elif not chosen.any() and choice.limits == "viper":
            assert row[1] == 0 and (np.delete(row, 1) == -9999).all()
        else:
            np.testing.assert_allclose(row, expected(models, Y[line, sample], chosen, reach), atol=2e-5)
    assert verify(tmp_path / "x", everything=True).faults == []


def test_the_same_bytes_for_any_block(tmp_path):
    """With duplicates, of which rounding decides; a product of matrices rounds differently with the number of its rows."""
    random = np.random.default_rng(8)
    E, kinds = library(random, 150, (9, 8, 9))
    E[:, 4], E[:, 20] = E[:, 3], 0.5 * E[:, 19]
    Y = scene(random, E, kinds, 740).reshape(20, 37, 150).astype(np.float32)
    path = write_cube(tmp_path / "x.hdr", Y, "bil")
    words = {"endmembers": write_csv(tmp_path / "e.csv", E, classes=kinds), "method": "mesma", "uncertainty": True}
    words |= {"levels": "2-4"}
    maps = set()
    for turn, (memory, threads) in enumerate((("64K", 1), ("300K", 2), ("1G", 2))):
        unmix.run(path, memory=memory, threads=threads, out_dir=tmp_path / str(turn), **words)
        maps.add((tmp_path / f"{turn}/x_spread.img").read_bytes())
    assert len(maps) == 1


@pytest.mark.parametrize("limits", ["exact", "viper"])
@pytest.mark.parametrize("within", [None, "all"])
@pytest.mark.parametrize(
    "case", ["classes share a spectrum", "three dependent", "dark", "dark and normalized", "a class shade"]
)
def test_odd_libraries_and_pixels(tmp_path, limits, within, case):
    """Models that the search refuses as too alike are none in `verify` either; a fraction is small beside the others, not beside 1."""
    random = np.random.default_rng(11)
    E, kinds = library(random, 12, (3, 2, 3))
    Y = scene(random, E, kinds, 40)
    if case == "classes share a spectrum":
        E[:, 4], E[:, 7] = E[:, 0], 2.0 * E[:, 1]
    elif case == "three dependent":
        E[:, 6] = 0.4 * E[:, 1] + 0.6 * E[:, 3]
    elif case == "a class shade":
        kinds = ["shade" if kind == "c1" else kind for kind in kinds]
    else:
        Y *= 1e-5
    path = write_cube(tmp_path / "x.hdr", Y.reshape(4, 10, 12))
    unmix.run(
        path,
        endmembers=write_csv(tmp_path / "e.csv", E, classes=kinds),
        method="mesma",
        levels="2-4",
        limits=limits,
        uncertainty=True,
        fusion=0.0,
        within=within,
        shade_normalize=case == "dark and normalized",
        scale=1.0,
    )
    assert verify(tmp_path / "x", everything=True).faults == []
    bands = (tmp_path / "x_spread.hdr").read_text().partition("band names = {")[2].partition("}")[0].split(", ")
    assert len(set(bands)) == len(bands) == 18
    counts = np.fromfile(tmp_path / "x_spread.img", "<f4").reshape(4, 18, 10)[:, 1]
    assert limits == "viper" or counts.min() >= 1
