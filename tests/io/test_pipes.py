"""A pipe, a device, a socket or a folder in place of every file that any command takes: one line, and never a wait.

The options are those that click knows, so a new command or option is tried as soon as it is there.
"""

import json
import os
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from conftest import patience, rest_slow
from unmix_cli.main import cli

import unmix
from unmix.commands.synth import SyntheticScene, synthesise
from unmix.errors import UnmixError

LIBRARY = ["-e", "{lib}", "-q"]
RUN = ["{cube}", *LIBRARY, "--device", "cpu", "-o", "{out}"]
# What each command does without a pipe: its arguments, in their order, and what it needs besides.
GOOD = {
    "run": RUN,
    "mesma": [*RUN, "--classes", "name"],
    "batch": [*RUN, "--scheduler", "tcp://127.0.0.1:1"],
    "info": ["{cube}"],
    "check": ["{cube}", *LIBRARY],
    "count": ["{cube}", "-q"],
    "path": ["{cube}", *LIBRARY],
    "library build": ["{cube}", "{out}/l.csv", "--pixels", "{pixels}", "-q"],
    "library convert": ["{lib}", "{out}/l.csv"],
    "library info": ["{lib}"],
    "library match": ["{lib}", "{lib}"],
    "library merge": ["{lib}", "{lib}", "{out}/l.csv"],
    "library prune": ["{lib}", "{out}/l.csv", "--rule", "ear", "--classes", "name", "-q"],
    "library resample": ["{lib}", "{cube}", "{out}/l.csv", "-q"],
    "endmembers": ["{cube}", "-n", "2", "-o", "{out}", "-q"],
    "export": ["{run}", "-o", "{out}", "-f", "hdf5"],
    "report": ["{run}", "-o", "{out}/r.html"],
    "compare": ["{run}", "{run}"],
    "status": ["{folder}"],
    "verify": ["{run}"],
    "warm": ["--device", "cpu"],
    "synth": ["{out}/s.hdr", "--lines", "3", "--samples", "3"],
    "rows": ["{cube}", *LIBRARY, "-o", "{out}"],
    "match": ["{cube}", *LIBRARY, "-o", "{out}"],
    "detect": ["{cube}", *LIBRARY, "-o", "{out}"],
    "features": ["{cube}", "--feature", "x=500-600", "-o", "{out}", "-q"],
    "mnf": ["{cube}", "-o", "{out}", "-q"],
    "ppi": ["{cube}", "-o", "{out}", "-q"],
    "nmf": ["{cube}", "-n", "2", "--steps", "1", "--device", "cpu", "-o", "{out}", "-q"],
    "bands": ["{cube}", "-m", "2", "-o", "{out}", "-q"],
    "solve": ["{A}", "{b}", "-o", "{out}/x.npy", "--device", "cpu"],
    "product emit-frcov": ["{cube}", *LIBRARY[:-1], "--classes", "name", "-o", "{out}"],
    "stac": ["{run}"],
    "plot": ["{cube}", "--at", "1,1", "-o", "{out}/p.png"],
    "view": ["{run}"],
    "zonal": ["{run}", "--polygons", "{polygons}", "-o", "{out}/z.csv"],
    "series": ["{run}", "{run}", "-o", "{out}/series.csv"],
    "validate": ["{run}", "{plots}"],
}
# What an option needs beside it to be read, and how its value names the file where it is more than that.
NEEDS = {
    "--noise": ["--uncertainty"],
    "--shade": ["--method", "pcls"],
    "--background": ["--likelihood", "poisson"],
    "--tls-ca": ["--tls-cert", "{lib}", "--tls-key", "{lib}"],
    "--tls-cert": ["--tls-ca", "{lib}", "--tls-key", "{lib}"],
    "--tls-key": ["--tls-ca", "{lib}", "--tls-cert", "{lib}"],
}
AS = {"--classes": "{odd}:class", "--target": "{odd}.csv"}
# What takes the place of other words of a command.
INSTEAD = {
    ("run", "--extract-mask"): ("-e", ["-n", "2"]),
    ("library build", "--raster"): ("--pixels", []),
    ("library build", "--polygons"): ("--pixels", []),
    ("nmf", "--endmembers"): ("-n", []),
    ("mesma", "--shade"): ("", []),
    ("batch", "--scheduler-file"): ("--scheduler", []),
}
# Where no file of that name is read: the pages of a run do without its scene, and new files stand beside the pipe.
UNREAD = {("report", "--cube"), ("synth", "out")}
# Words that stand for a file in what help calls a value.
WORDS = {"FILE", "CUBE", "TABLE", "LIBRARY", "SOURCE", "STEM", "Y.csv"}


def commands(command=cli, path=()):
    """Every command, by its name."""
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        yield from commands(command.get_command(context, name), (*path, name))


def names_a_file(parameter):
    words = {word.strip("[]:.") for word in (parameter.metavar or "").replace("|", "[").replace(":", "[").split("[")}
    is_path = isinstance(parameter.type, click.Path) and parameter.type.name != "directory"
    return is_path or (isinstance(parameter.type, type(click.STRING)) and bool(words & WORDS))


COMMANDS = dict(commands())
# `batch` asks its scheduler before it reads what `run` reads, too; and `view` serves a run whose scene it cannot read.
TRIED = {"batch": ("scheduler", "tls"), "view": ("paths",)}
PLACES = [
    (name, one.opts[-1])
    for name, command in COMMANDS.items()
    for one in command.params
    if names_a_file(one) and any(word in one.opts[-1] for word in TRIED.get(name, ("",)))
]
# The first command that has each option, which the quick tier tries.
FIRST = {place: name for name, place in reversed(PLACES)}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with a file of every kind that commands take, and a finished run."""
    folder = tmp_path_factory.mktemp("pipes")
    synthesise(folder / "s.hdr", SyntheticScene(6, 7, 12, 3, seed=1))
    np.save(folder / "A.npy", np.eye(3))
    np.save(folder / "b.npy", np.ones((4, 3)))
    unmix.run(folder / "s.hdr", endmembers=folder / "s_truth_endmembers.csv", device="cpu", out_dir=folder / "runs")
    (folder / "pixels.csv").write_text("class,line,sample\na,1,1\nb,2,2\n")
    (folder / "plots.csv").write_text("line,sample,material 1\n1,1,0.5\n2,2,0.4\n")
    square = {"type": "Polygon", "coordinates": [[[0, 0], [3, 0], [3, 3], [0, 0]]]}
    features = [{"type": "Feature", "properties": {"name": "a"}, "geometry": square}]
    (folder / "p.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return folder


def places_in(folder, out):
    return {
        "cube": folder / "s.hdr",
        "lib": folder / "s_truth_endmembers.csv",
        "out": out,
        "pixels": folder / "pixels.csv",
        "run": folder / "runs/s",
        "folder": folder / "runs",
        "A": folder / "A.npy",
        "b": folder / "b.npy",
        "polygons": folder / "p.geojson",
        "plots": folder / "plots.csv",
    }


def words_with(name, place, odd, world, out):
    """The command line of a command whose argument or option is the odd file."""
    words, parameters = list(GOOD[name]), COMMANDS[name].params
    parameter = next(one for one in parameters if one.opts[-1] == place)
    where = places_in(world, out)
    if isinstance(parameter, click.Argument):
        at = [one for one in parameters if isinstance(one, click.Argument)].index(parameter)
        words[at] = ended(odd, words[at], where)
    else:
        leaves, more = INSTEAD.get((name, place), ("", NEEDS.get(place, [])))
        for each in (*parameter.opts, leaves):
            if each and each in words:
                at = words.index(each)
                odd = ended(odd, words[at + 1], where)
                words[at : at + 2] = []
        words += [*more, place, AS.get(place, "{odd}")]
    return [*name.split(), *(word.format(**where, odd=odd) for word in words)]


def ended(odd, word, where):
    """The name of the odd file with the ending of what it stands for."""
    named = odd.with_name(odd.name + Path(word.format(**where)).suffix)
    if named != odd:
        named.symlink_to(odd.name)
    return str(named)


def make(kind, path):
    """Make a file that is none."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        os.mkfifo(path.with_name("pipe"))
        path.symlink_to("pipe")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/" + kind)
    return path


def ended_by(words):
    """Run a command, which has to end without a wait: well, or by an error in one line; return that error."""
    with patience(words):
        error = CliRunner().invoke(cli, words, standalone_mode=False).exception
    assert error is None or isinstance(error, UnmixError | click.ClickException | OSError | SystemExit), (
        words,
        repr(error),
    )
    said = error.format_message() if isinstance(error, click.ClickException) else str(error or "")
    assert "\n" not in said, words
    return error


@pytest.mark.parametrize("kind", rest_slow(["pipe", "link", "folder", "zero", "full"], "pipe"))
@pytest.mark.parametrize(("name", "place"), rest_slow(PLACES, *((name, place) for place, name in FIRST.items())))
def test_what_is_no_file_is_refused_at_once(name, place, kind, world, tmp_path):
    odd, out = make(kind, tmp_path / "odd"), tmp_path / "out"
    out.mkdir()
    error = ended_by(words_with(name, place, odd, world, out))
    # Elsewhere an option may not be read; folders may be stores or archives, a log may go to a device, and `check` says
    # what is wrong.
    if FIRST[place] == name and (name, place) not in UNREAD and kind in ("pipe", "link"):
        assert error is not None and str(error)


def test_a_pipe_that_the_shell_hands_over_is_a_list(world, tmp_path):
    ours, its = os.pipe()
    with os.fdopen(its, "w") as file:
        file.write(f"{world / 's.hdr'}\n")
    words = [
        "run",
        "--list",
        f"/dev/fd/{ours}",
        "-e",
        str(world / "s_truth_endmembers.csv"),
        "--device",
        "cpu",
        "-o",
        str(tmp_path),
    ]
    error = CliRunner().invoke(cli, [*words, "-q"], standalone_mode=False).exception
    os.close(ours)
    assert error is None and (tmp_path / "s_run.json").exists()
