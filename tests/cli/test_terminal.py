"""What headers, libraries and names of files hold never reaches a terminal as anything but text."""

import io
import json
import logging
import os
import shutil
import signal
from pathlib import Path

import pytest
from unmix_cli import options
from unmix_cli.main import main, print_err
from unmix_cli.progress import Board

from unmix.commands.synth import SyntheticScene, synthesise
from unmix.errors import UnmixError, printable
from unmix.pipeline import JobProgress

TITLE = "\x1b]0;gotcha\x07"  # sets the window's title
EVIL = f"{TITLE}\x1b[2J\x9b31m\x7f\x08\u202eevil\u2066"
# Names of files may be no text at all.
STEM = f"s{EVIL}[red]:smile:" + os.fsdecode(b"\xff")


@pytest.fixture
def evil(tmp_path):
    """A scene, its truth as libraries, in files with such names, and with such texts within."""
    synthesise(tmp_path / "plain.hdr", SyntheticScene(12, 20, 30, 3, seed=1))
    header = (tmp_path / "plain.hdr").read_text()
    texts = f"map info = {{UTM, 1, 1, 0, 0, 30, 30, 1, North, {EVIL}}}\ncoordinate system string = {{{EVIL}}}\n"
    (tmp_path / f"{STEM}.hdr").write_text(header + texts, encoding="utf-8")
    shutil.copy(tmp_path / "plain.img", tmp_path / f"{STEM}.img")
    library = (tmp_path / "plain_truth_endmembers.csv").read_text().replace("material 1", f"m1 {EVIL}")
    (tmp_path / f"{STEM}.csv").write_text(library, encoding="utf-8")
    return tmp_path


@pytest.fixture
def unmix(evil, monkeypatch, capsys):
    """The program, in the folder of the scene: its exit code and what it printed."""
    monkeypatch.chdir(evil)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def call(*words):
        monkeypatch.setattr("sys.argv", ["unmix", *(word.replace("STEM", STEM) for word in words)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    yield call
    for number, handler in before.items():
        signal.signal(number, handler)


def is_clean(text):
    return all(char.isprintable() or char == "\n" for char in text)


@pytest.mark.parametrize(
    "words, code",
    [
        (["info", "STEM.hdr"], 0),
        (["check", "STEM.hdr", "-e", "STEM.csv"], 0),
        (["library", "info", "STEM.csv"], 0),
        (["library", "convert", "STEM.csv", "STEM-copy.csv"], 0),
        (["endmembers", "STEM.hdr", "-n", "3", "-o", "STEM-o"], 0),
        (["synth", "STEM-new.hdr", "--lines", "5", "--samples", "5", "--bands", "20"], 0),
        (["count", "STEM.hdr", "-v"], 0),
        (["run", "STEM.hdr", "-n", "3", "--device", "cpu", "--dry-run"], 0),
        (["run", "STEM.hdr", "--lines", "STEM"], 2),
        (["run", "STEM.hdr", "-e", "plain.img", "-v"], 3),
        (["info", "STEM-none.hdr"], 3),
        (["verify", "STEM-none"], 1),
        (["bands", "STEM.hdr", "-m", "3", "-o", "STEM-b"], 0),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_no_command_prints_what_a_terminal_obeys(unmix, words, code):
    ended, out, error = unmix(*words)
    assert ended == code, error
    assert is_clean(out) and is_clean(error), (out, error)
    if words[0] in ("info", "library") and code == 0:
        assert "evil" in out


def test_a_run_and_what_verify_says_of_it(evil, unmix):
    words = ["run", "STEM.hdr", "-e", "STEM.csv", "--device", "cpu", "-o", "o", "--log-file", "log"]
    code, out, error = unmix(*words)
    assert code == 0 and is_clean(out + error + (evil / "log").read_text()) and "evil" in error
    code, out, error = unmix("verify", "o/STEM")
    assert code == 0 and is_clean(out + error) and "pixels hold the conditions" in out
    image = evil / "o" / f"{STEM}_abundance.img"
    image.write_bytes(image.read_bytes()[:-1] + b"?")
    code, out, error = unmix("verify", "o/STEM")
    assert code == 1 and is_clean(out + error) and error.startswith("unmix: error: ")


def test_json_says_it_all(unmix):
    assert EVIL in json.loads(unmix("info", "STEM.hdr", "--json")[1])["coordinate_system"]


def test_messages_are_one_line_of_text():
    assert str(UnmixError(f"a\n{EVIL}")) == (r"a\n\x1b]0;gotcha\x07\x1b[2J\x9b31m\x7f\x08\u202eevil\u2066")
    assert printable("Größe κ ≤ 1e-10, 植生") == "Größe κ ≤ 1e-10, 植生"
    assert printable("\ud800") == r"\ud800"


def test_bars_show_names_as_they_are():
    """No markup, no emoji, no escapes, in the name of a scene or in a line above the bars."""
    from rich.console import Console

    with Board("bar", 2) as board:
        board.shown.console.file = said = io.StringIO()
        name = f"[red]x{TITLE}:smile:"
        board.scene(Path(name))(JobProgress(1, 3, 10, 100, "[b]cpu[/]", 0))
        shown = io.StringIO()
        Console(file=shown, width=300).print(board.shown.get_renderable())
        print_err(f"{name}[/] is done")
    for text in (shown.getvalue(), said.getvalue()):
        assert r"[red]x\x1b]0;gotcha\x07:smile:" in text and "\x1b]" not in text
    assert "[b]cpu[/]" in shown.getvalue() and ":smile:[/] is done" in said.getvalue()


def test_the_log_handlers_write_text(tmp_path, capsys):
    options.set_up_log(False, False, str(tmp_path / "log")).warning(f"{EVIL}\nsecond")
    for text in (capsys.readouterr().err, (tmp_path / "log").read_text()):
        assert is_clean(text) and len(text.splitlines()) == 1 and "second" in text
    logging.getLogger("unmix").handlers[1].close()
