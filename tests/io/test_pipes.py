"""A pipe, a device, a socket or a folder in place of every file that any command takes: one line, and never a wait.

The options are those that click knows, so a new command or option is tried as soon as it is there.
"""

import click
import numpy as np
import pytest
from unmix_cli.main import cli

import unmix
from unmix.commands.synth import SyntheticScene, synthesise

LIBRARY = ["-e", "{lib}", "-q"]
RUN = ["{cube}", *LIBRARY, "--device", "cpu", "-o", "{out}"]
# What each command does without a pipe: its arguments, in their order, and what it needs besides.
GOOD = {
    "run": RUN, "mesma": [*RUN, "--classes", "name"], "batch": [*RUN, "--scheduler", "tcp://127.0.0.1:1"],
    "info": ["{cube}"], "check": ["{cube}", *LIBRARY], "count": ["{cube}", "-q"], "path": ["{cube}", *LIBRARY],
    "library build": ["{cube}", "{out}/l.csv", "--pixels", "{pixels}", "-q"], "library convert": ["{lib}", "{out}/l.csv"],
    "library info": ["{lib}"], "library match": ["{lib}", "{lib}"], "library merge": ["{lib}", "{lib}", "{out}/l.csv"],
    "library prune": ["{lib}", "{out}/l.csv", "--classes", "name", "-q"], "library rename": ["{lib}", "{names}", "{out}/l.csv"],
    "library resample": ["{lib}", "{cube}", "{out}/l.csv", "-q"], "library table": ["{lib}", "{out}/t.csv"],
    "endmembers": ["{cube}", "-n", "2", "-o", "{out}", "-q"], "export": ["{run}", "-o", "{out}", "-f", "hdf5"],
    "report": ["{run}", "-o", "{out}/r.html"], "compare": ["{run}", "{run}"], "status": ["{folder}"], "verify": ["{run}"],
    "bench": [*RUN[:-2], "--lines", "0:1"], "warm": ["--device", "cpu"], "synth": ["{out}/s.hdr", "--lines", "3", "--samples", "3"],
    "rows": ["{cube}", *LIBRARY, "-o", "{out}"], "match": ["{cube}", *LIBRARY, "-o", "{out}"],
    "detect": ["{cube}", *LIBRARY, "-o", "{out}"], "features": ["{cube}", "--feature", "x=500-600", "-o", "{out}", "-q"],
    "mnf": ["{cube}", "-o", "{out}", "-q"], "ppi": ["{cube}", "-o", "{out}", "-q"], "superpixels": ["{cube}", "-o", "{out}", "-q"],
    "nmf": ["{cube}", "-n", "2", "--steps", "1", "--device", "cpu", "-o", "{out}", "-q"],
    "bands": ["{cube}", "-m", "2", "-o", "{out}", "-q"], "solve": ["{A}", "{b}", "-o", "{out}/x.npy", "--device", "cpu"],
    "product emit-frcov": ["{cube}", *LIBRARY[:-1], "--classes", "name", "-o", "{out}"], "stac": ["{run}"],
    "plot": ["{cube}", "-o", "{out}/p.png"], "view": ["{cube}", "--no-browser"],
    "zonal": ["{run}", "--polygons", "{polygons}", "-o", "{out}/z.csv"], "series": ["{run}", "{run}", "-o", "{out}/series.csv"],
    "validate": ["{run}", "{plots}"],
}  # fmt: skip
# What an option needs to be read at all, and what it stands in place of.
NEEDS = {
    "--l1-weights": ["--method", "nnls", "--l1", "0.1"], "--noise": ["--uncertainty"], "--background": ["--method", "fcls"],
    "--grains": ["--mass"], "--list": [], "--legend": [],
}  # fmt: skip
# Options that name no file, though they are texts.
WORDS = {"FILE", "CUBE", "TABLE", "LIBRARY", "SOURCE", "STEM", "A", "B", "Y.csv"}


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
PLACES = [
    (name, parameter.opts[-1]) for name, one in COMMANDS.items() for parameter in one.params if names_a_file(parameter)
]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with a file of every kind that commands take, and a finished run."""
    folder = tmp_path_factory.mktemp("pipes")
    synthesise(folder / "s.hdr", SyntheticScene(6, 7, 12, 3, seed=1))
    np.save(folder / "A.npy", np.eye(3))
    np.save(folder / "b.npy", np.ones((4, 3)))
    unmix.run(folder / "s.hdr", endmembers=folder / "s_truth_endmembers.csv", device="cpu", out_dir=folder / "runs")
    (folder / "pixels.csv").write_text("name,line,sample\na,1,1\nb,2,2\n")
    (folder / "names.csv").write_text("name,new\nmaterial 1,x\n")
    (folder / "plots.csv").write_text("line,sample,material 1\n1,1,0.5\n2,2,0.4\n")
    (folder / "p.geojson").write_text('{"type":"FeatureCollection","features":[]}')
    return folder


def places_in(folder, out):
    return {
        "cube": folder / "s.hdr", "lib": folder / "s_truth_endmembers.csv", "out": out, "pixels": folder / "pixels.csv",
        "names": folder / "names.csv", "run": folder / "runs/s", "folder": folder / "runs", "A": folder / "A.npy",
        "b": folder / "b.npy", "polygons": folder / "p.geojson", "plots": folder / "plots.csv",
    }  # fmt: skip


def words_with(name, place, odd, world, out):
    """The command line of a command whose argument or option is the odd file."""
    words, parameter = list(GOOD[name]), next(one for one in COMMANDS[name].params if one.opts[-1] == place)
    if isinstance(parameter, click.Argument):
        arguments = [one for one in COMMANDS[name].params if isinstance(one, click.Argument)]
        words[arguments.index(parameter)] = odd
    else:
        shorter = [each for each in parameter.opts if each in words]
        if shorter:
            at = words.index(shorter[0])
            words[at : at + 2] = []
        words += [*NEEDS.get(place, []), place, odd]
    return [*name.split(), *(word.format(**places_in(world, out)) for word in words)]
