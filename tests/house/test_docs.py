"""The commands and the Python of the tutorials do what the page says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from unmix_cli.docs import command_line_page, commands
from unmix_cli.main import cli

import unmix
from unmix.devices import simulated

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted((ROOT / "docs").glob("tutorial*.md")),
    ROOT / "docs/nnls.md",
    ROOT / "docs/recipes.md",
    ROOT / "docs/right.md",
    ROOT / "docs/lab.md",
]
# Pages that take half a minute each, of commands that other tests run.
LONG = ("tutorial-emit", "tutorial-endmembers", "recipes")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(simulated(), reason="nothing of it is about kernels")


def blocks(page):
    """(language, text) of each block of a page, in order."""
    return BLOCK.findall(page.read_text())


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.night] * (page.stem in LONG), id=page.stem) for page in PAGES]
)
def test_a_tutorial(tmp_path, monkeypatch, page):
    shutil.copytree(ROOT / "data", tmp_path / "data")
    here = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "NO_COLOR": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    said, names = "", {}
    monkeypatch.chdir(tmp_path)
    for language, text in blocks(page):
        if language == "sh":
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], env=here, capture_output=True, text=True)
            assert done.returncode == 0, f"{text}\n{done.stderr}"
            said += done.stdout + done.stderr
        elif language == "python":
            exec(compile(text, page.name, "exec"), names)
        else:
            assert language == "text"
            for line in text.splitlines():  # seconds and the last digits of κ are the machine's
                pattern = re.sub(r"\d+\\\.\d+\\ s|\d\\\.\de\\\-\d+", ".*", re.escape(line))
                assert re.search(pattern, said), f"{page.name} shows\n{line}\nbut what came was\n{said[-2000:]}"


@pytest.mark.slow
@pytest.mark.night
def test_the_site_is_built_without_a_warning(tmp_path):
    """A link to nowhere, a heading that is gone or a docstring that cannot be read is a warning."""
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", ROOT / "docs"]
    command += [tmp_path / "site"]
    done = subprocess.run([*command, "-d", tmp_path / "trees"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "certificate" in (tmp_path / "site/api.html").read_text()
    notebook = (tmp_path / "site/notebook.html").read_text()
    assert "RMSE 0.00" in notebook and "_images/" in notebook


def test_the_page_about_python_has_all_of_it():
    page = (ROOT / "docs/api.md").read_text()
    names = {name for name in unmix.__all__ if not name.startswith("__") and not name.endswith("Error")}
    assert names == set(re.findall(r"^\.\. auto(?:function|class):: unmix\.(\w+)", page, re.MULTILINE))


def test_every_option_is_named_under_its_command_and_explained_once():
    """A command has the options of its own block, and of each group that it links to all, some, or all but some."""
    page = command_line_page()
    sections = dict(re.findall(r"^##+ ([^\n]+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    explained = "".join(page.split())
    for context in commands(cli, click.Context(cli, info_name="unmix")):
        said, shown = sections[context.command_path], set()
        named = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", said, re.MULTILINE))
        for group, but, some in re.findall(r"^- \[(.+)\]\(#\S+\)(?:: (all but )?(.*))?$", said, re.MULTILINE):
            of_group = set(re.findall(r"^(?:-\w, )?(--[\w-]+)", sections[group], re.MULTILINE))
            listed = set(re.findall(r"`(--[\w-]+)`", some))
            assert listed <= of_group
            named |= of_group - listed if but or not some else listed
        for parameter in context.command.get_params(context):
            record = parameter.get_help_record(context)
            if isinstance(parameter, click.Option) and record and "--help" not in parameter.opts:
                longest = max(parameter.opts, key=len)
                assert explained.count("".join("".join(record).split())) == 1, f"{context.command_path} {longest}"
                shown.add(longest)
        assert {name for name in shown if name.startswith("--")} == named, context.command_path


def test_every_page_is_on_the_site():
    listed = set(re.findall(r"^([\w-]+)$", (ROOT / "docs/index.md").read_text(), re.MULTILINE))
    assert listed == {path.stem for path in (ROOT / "docs").iterdir() if path.suffix in (".md", ".ipynb")} - {"index"}


@pytest.mark.skipif(not shutil.which("make"), reason="no make")
def test_make_help_lists_every_target():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    own = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }  # `make test` runs this
    told = subprocess.run(["make", "help"], cwd=ROOT, env=own, capture_output=True, text=True, check=True).stdout
    assert [line.split()[1] for line in told.splitlines()] == targets
    assert set(targets) == set(re.search(r"^.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split())
