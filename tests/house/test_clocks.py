"""No test fails because a machine is slow: whoever waits waits for conftest's PATIENCE, and no speed is asserted."""

import ast
import functools
import re
from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).parents[1]
# Scripts that are run by hand, and measure.
SCRIPTS = {"fuzz_grammar.py", "lattices.py", "together.py"}
CLOCKS = ("monotonic()", "perf_counter()", "time.time()", "process_time()", "ru_utime", "['seconds']")
WAITS = ("timeout", "timeout_s", "patience")
# What a file without such a clock does not hold: parsing all of them takes two seconds.
WORDS = re.compile(rf"({'|'.join(WAITS)})=|alarm|setitimer|{'|'.join(map(re.escape, CLOCKS))}|seconds")
# Waits that are meant to end without an answer: what is tested is that nobody answers, or what is said then.
SILENCE = {
    ("features/cluster/test_access.py", "timeout=1.5"): "whether a port speaks HTTP: one that does answers at once",
    ("features/cluster/test_batch.py", "patience=0.3"): "what is said when no scheduler has answered",
}


def clocks_of(text):
    """Each wait or comparison with a time of its own, as source."""
    for node in ast.walk(ast.parse(text)):
        waits = isinstance(node, ast.keyword) and node.arg in WAITS and is_number(node.value)
        alarms = isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("alarm", "setitimer")
        compares = isinstance(node, ast.Compare) and is_upper_bound(node)
        words = ast.unparse(node) if waits or alarms or compares else ""
        if "PATIENCE" not in words and (waits or alarms or any(clock in words for clock in CLOCKS)):
            yield words


def is_number(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def is_upper_bound(node):
    """Whether a time that has passed has to be less than a number."""
    less = isinstance(node.ops[-1], ast.Lt | ast.LtE) and any(map(is_number, ast.walk(node.comparators[-1])))
    return less or (isinstance(node.ops[0], ast.Gt | ast.GtE) and is_number(node.left))


@functools.cache
def of_tests():
    found = set()
    for path in sorted(TESTS.rglob("*.py")):
        file = path.relative_to(TESTS).as_posix()
        if not file.startswith("bench/") and file not in SCRIPTS and path != Path(__file__):
            text = path.read_text()
            found |= {(file, words) for words in clocks_of(text)} if WORDS.search(text) else set()
    return found


ALLOWED = {("conftest.py", "signal.alarm(0)")}


def test_no_test_has_a_clock_of_its_own():
    assert sorted(of_tests() - set(SILENCE) - ALLOWED) == []


def test_every_exception_is_used():
    assert set(SILENCE) <= of_tests()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("signal.alarm(120)", 1),
        ("signal.alarm(PATIENCE)", 0),
        ("run(words, timeout=20)", 1),
        ("run(words, timeout=PATIENCE)", 0),
        ("assert time.monotonic() - began < 8", 1),
        ("assert time.perf_counter() - began < PATIENCE", 0),
        ("assert time.monotonic() - began > 3", 0),
        ("assert after.ru_utime - before.ru_utime < 0.25", 1),
        ("assert before['seconds'] > 0.5", 0),
        ("assert 0.5 > 0.2 > after['seconds']", 1),
    ],
)
def test_the_rule_sees_clocks(text, found):
    assert len(list(clocks_of(text))) == found


def test_examples_of_hypothesis_have_no_deadline():
    profiles = ("quick", "full")
    assert [settings.get_profile(name).deadline for name in profiles] == [None, None]
