"""Libraries put together, and matched in windows."""

import fnmatch

import numpy as np
import pytest
from conftest import write_csv
from test_cli import unmix as command

import unmix
from unmix.library import Endmembers, select

WAVES = [500.0, 1000.0, 1500.0, 2100.0, 2200.0, 2300.0]


@pytest.fixture
def two(tmp_path):
    E = np.random.default_rng(2).uniform(0.1, 0.9, (6, 3))
    write_csv(tmp_path / "a.csv", E, WAVES)
    write_csv(tmp_path / "b.csv", E[:, ::-1] ** 2, WAVES)
    return tmp_path, E


def test_together(two):
    folder, E = two
    command("library", "merge", folder / "a.csv", folder / "b.csv", folder / "c.csv")
    both = unmix.load_library(folder / "c.csv")
    np.testing.assert_array_equal(both.matrix, np.hstack([E, E[:, ::-1] ** 2]))
    assert both.names[:3] == ("em 1", "em 2", "em 3") and len(set(both.names)) == 6 and both.classes is None
    write_csv(folder / "d.csv", E, [wave + 1 for wave in WAVES])
    _, err = command("library", "merge", folder / "a.csv", folder / "d.csv", folder / "e.csv", code=3)
    assert "has other channels than" in err and not (folder / "e.csv").exists()
    command("library", "merge", folder / "a.csv", folder / "a.csv", code=2)


def test_many_names_are_found_in_linear_time(monkeypatch):
    names, tried = tuple(f"n{k}" for k in range(300)), []
    library = Endmembers(names, np.ones((2, len(names))), None, None, "l.csv")
    monkeypatch.setattr(fnmatch, "fnmatchcase", lambda name, word: tried.append(word) or name == "n77")
    (found,) = select([library], ",".join([*names[:100], "N7?", "!n5"]))
    assert found.names == names[:5] + names[6:100] and set(tried) == {"n7?"}


def test_matches_in_windows(two):
    """As if both had these channels alone."""
    folder, E = two
    write_csv(folder / "short.csv", E[3:], WAVES[3:])
    words = ("library", "match", folder / "a.csv", folder / "b.csv", "--json", "--only-nm", "2000-2450")
    out, _ = command(*words)
    same, _ = command("library", "match", folder / "short.csv", folder / "b.csv", "--json")
    assert out == same
    command(*words[:-1], "700-900", code=2, tells="has 0 channels in these ranges")
