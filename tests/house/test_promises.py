"""Each sentence of the pages that promise has a row in promises.csv: the tests that hold it, or a word that says why it needs none."""

import ast
import csv
import re
from functools import cache
from itertools import zip_longest
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("security", "reliability", "methods")
# Sentences that no test can hold: what a word means; what to do; what others do; where a number is measured; a step of
# a proof.
NEED_NONE = {"definition", "advice", "others", "measured", "proof"}
# Words of a sentence that a row repeats.
WORDS = 8


def sentences(page):
    """The first words of each sentence, item and row of a table of a page, in order; without headings and code."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / f"docs/{page}.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not re.match(r"#|\|[-| ]+$", line)]
    parts = [part for line in lines for part in re.split(r"(?<=[.!?])(?:\*\*)?\)?\s+(?=[A-Z`*(\[])", line)]
    return [" ".join(part.split()[:WORDS]) for part in parts]


@cache
def functions(path):
    """The names of a file's functions."""
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def rows(page):
    """The rows of a page: words, and what holds them."""
    with open(Path(__file__).with_name("promises.csv"), newline="") as file:
        return [row[1:] for row in csv.reader(file) if row[0] == page]


@pytest.mark.parametrize("page", PAGES)
def test_each_sentence_has_a_row(page):
    for sentence, row in zip_longest(sentences(page), rows(page)):
        assert row and sentence == row[0], f"docs/{page}.md has {sentence!r}, promises.csv {row}"


@pytest.mark.parametrize("page", PAGES)
def test_each_row_names_a_test(page):
    for words, *held in rows(page):
        assert held, words
        for test in held:
            path, _, name = test.partition("::")
            assert test in NEED_NONE or name in functions(f"tests/{path}"), f"{words}: {test}"
