"""The examples in docstrings do what they show."""

import doctest
import importlib
import re
from pathlib import Path

import pytest
from conftest import rest_slow

from unmix.commands.synth import SyntheticScene, synthesise
from unmix.devices import simulated

ROOT = Path(__file__).parents[2]
# These examples compile a search of their own, which takes 5 to 20 s.
COMPILING = re.compile(r">>> .*unmix\.(mesma|ranges|spatial|poisson|path|nmf|collaborative)\(")
FILES = [path for path in sorted((ROOT / "unmix").rglob("*.py")) if ">>> " in path.read_text()]


def test_there_are_examples():
    assert ROOT / "unmix/__init__.py" in FILES and len(FILES) > 3


@pytest.mark.skipif(simulated(), reason="too slow for the CUDA simulator")
@pytest.mark.parametrize(
    "path",
    rest_slow(FILES, *(path for path in FILES if not COMPILING.search(path.read_text()))),
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_examples(tmp_path, monkeypatch, path):
    """In a folder with a scene named cube.hdr."""
    synthesise(tmp_path / "cube.hdr", SyntheticScene(lines=6, samples=20, bands=12, count=3, seed=0))
    monkeypatch.chdir(tmp_path)
    parts = path.relative_to(ROOT).with_suffix("").parts
    module = importlib.import_module(".".join(part for part in parts if part != "__init__"))
    outcome = doctest.testmod(module)
    assert outcome.failed == 0 and outcome.attempted > 0
