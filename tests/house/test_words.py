"""The documents stay short enough to be read, and name files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Words of all pages together, of README's lines, and of a line of CHANGELOG: what a stranger reads in an afternoon.
MOST_WORDS, MOST_LINES, MOST_WORDS_OF_A_CHANGE = 28_000, 100, 20
# Made by the program, or a list that grows.
NO_PAGES = ("CHANGELOG.md", "docs/cli.md")


def pages():
    """The pages of the repository that people write, hidden folders such as .github included, virtual environments not."""
    for path in sorted(ROOT.rglob("*.md")):
        inside = path.relative_to(ROOT)
        is_ours = not any((folder / "pyvenv.cfg").exists() for folder in path.parents if folder.is_relative_to(ROOT))
        if is_ours and inside.as_posix() not in NO_PAGES and not {".git", ".pytest_cache"} & set(inside.parts):
            yield path


def test_pages_have_not_too_many_words():
    """Counted as `wc -w` does."""
    words = {path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").split()) for path in pages()}
    assert "README.md" in words and "docs/methods.md" in words and ".github/pull_request_template.md" in words
    assert sum(words.values()) <= MOST_WORDS, sorted(words.items(), key=lambda one: -one[1])[:5]


def test_readme_is_one_screen_of_each_thing():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_a_change_is_one_short_line():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    changes = [line for line in text.splitlines() if line and not line.startswith(("#", "Newest", "The first version"))]
    assert len(changes) > 100
    assert [
        line for line in changes if not line.startswith("- ") or len(line.split()) - 1 > MOST_WORDS_OF_A_CHANGE
    ] == []


@pytest.mark.parametrize("name", ["docs/design.md", "CONTRIBUTING.md"])
def test_files_that_a_page_names_exist(name):
    named = set(
        re.findall(r"`((?:unmix|cli|tests|docs|data|\.ci)/[\w./-]*)`", (ROOT / name).read_text(encoding="utf-8"))
    )
    assert len(named) > 20
    assert [path for path in sorted(named) if "NAME" not in path and not (ROOT / path).exists()] == []


def test_sentences_have_nouns():
    """Pronouns that stand for a noun of another sentence are read twice: at most one in a thousand lines."""
    texts = [path.read_text(encoding="utf-8") for room in ("unmix", "cli") for path in (ROOT / room).rglob("*.py")]
    found = re.findall("of which|those that|that of|of those", "".join(texts), re.IGNORECASE)
    assert len(found) <= sum(text.count("\n") for text in texts) / 1000
