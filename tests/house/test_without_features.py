"""The core stands without any feature, and without each: copies of the tree with folders left out still unmix the same."""

import hashlib
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = importlib.import_module("unmix.features").FOLDERS


def without(gone, place):
    """Copy the tree without the folders of some features, their tests, and their lines in the table."""
    for name in ("unmix", "cli", "tests"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    (place / "unmix_cli").symlink_to("cli")
    shutil.copy(ROOT / "pyproject.toml", place)
    table = place / "unmix/features/__init__.py"
    text = table.read_text()
    for name in gone:
        shutil.rmtree(place / "unmix/features" / name)
        shutil.rmtree(place / "tests/features" / name, ignore_errors=True)
        text, lines = re.subn(rf'^    "{name}",\n', "", text, flags=re.MULTILINE)
        assert lines == 1
    table.write_text(text)
    return place


def called(place, *words):
    """Run Python in a copy; return what it printed."""
    environment = os.environ | {"PYTHONPATH": str(place)}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, cwd=place)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def maps_of(place, out):
    """The digests of all maps of the demo's scene, unmixed by a copy."""
    called(place, "-m", "unmix", "run", ROOT / "data/demo.hdr", "-n", "3", "-o", out, "--device", "cpu")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.glob("*.img"))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The digests of a copy with all features."""
    folder = tmp_path_factory.mktemp("whole")
    return maps_of(without((), folder / "copy"), folder / "maps")


# Each alone at night: that features use nothing of each other is a rule of test_house.py, too.
EACH = [(name,) for name in FOLDERS] if "UNMIX_WITHOUT_FEATURES" in os.environ else []


@pytest.mark.night
@pytest.mark.slow
@pytest.mark.parametrize("gone", [FOLDERS, *EACH], ids=lambda gone: gone[0] if len(gone) == 1 else "all")
def test_the_core_stands_without(gone, tmp_path, whole):
    place = without(gone, tmp_path / "copy")
    said = called(place, "-c", "import unmix, unmix_cli; print(unmix.__file__, unmix_cli.__file__)")
    assert said.count(str(place)) == 2
    assert "run " in called(place, "-m", "unmix", "--help")
    assert maps_of(place, tmp_path / "maps") == whole != {}
    if gone == FOLDERS:
        collected = called(
            place, "-m", "pytest", "-q", "--collect-only", "tests", "--ignore=tests/house", "--ignore=tests/features"
        )
        assert "error" not in collected.splitlines()[-1]
