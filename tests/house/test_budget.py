"""The budget of statements by room, docstrings aside: who adds pays in the same room; who takes away lowers the number."""

from collections import Counter
from pathlib import Path

import pytest
from sources import statements

ROOT = Path(__file__).parents[2]
# The most statements of each room of the product; `core` are the files beside the rooms.
ROOMS = {
    "features": 9113,
    "solvers": 4686,
    "io": 5367,
    "endmembers": 3500,
    "runs and outputs": 3521,
    "commands and cli": 4285,
    "arrays": 1619,
    "library": 1461,
    "compiled": 1083,
    "pages": 872,
    "scene": 1103,
    "devices": 609,
    "maps": 442,
    "problem": 333,
    "settings": 261,
    "options": 250,
    "methods": 196,
    "core": 1085,
}
TESTS = 30_114
TOGETHER = {"runs": "runs and outputs", "outputs": "runs and outputs", "commands": "commands and cli"}


def counted():
    """The statements of each room."""
    rooms = Counter()
    for path in (ROOT / "unmix").rglob("*.py"):
        room, *inside = path.relative_to(ROOT / "unmix").parts
        rooms[TOGETHER.get(room, room) if inside else "core"] += statements(path)
    rooms["commands and cli"] += sum(map(statements, (ROOT / "cli").rglob("*.py")))
    return rooms


def test_every_room_has_a_budget():
    assert counted().keys() == ROOMS.keys()


@pytest.mark.parametrize("room", list(ROOMS))
def test_a_room_keeps_its_budget(room):
    assert counted()[room] <= ROOMS[room]


def test_tests_keep_theirs():
    assert sum(map(statements, (ROOT / "tests").rglob("*.py"))) <= TESTS
