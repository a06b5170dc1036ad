"""Every step of every command that writes, in a folder whose owner replaces names by links and pipes before it."""

import os
import shutil
import stat

import numpy as np
import pytest
from attacker import ATTACKER, TRICKS
from click.testing import CliRunner
from conftest import at_night, read_values
from unmix_cli.main import cli

from unmix.commands.synth import SyntheticScene, synthesise
from unmix.errors import UnmixError
from unmix.io import open_cube
from unmix.io.export import FORMATS

# The private file: a number that no map has, again and again, in more bytes than any file of these commands.
MARK = np.full(2**18, 1234.5, "<f4").tobytes()
RUN = ["run", "{cube}", "-e", "{lib}", "--method", "fcls", "--device", "cpu", "-o", "{out}", "-q"]
COMMANDS = {
    "run": [*RUN, "--residual", "--certificate"],
    "geotiff": [*RUN, "-f", "geotiff"],
    "cog": [*RUN, "-f", "cog"],
    "hdf5": [*RUN, "-f", "hdf5"],
    "zarr": [*RUN, "-f", "zarr"],
    "overwrite": [*RUN, "--overwrite"],
    "skip": [*RUN, "--skip-existing"],
    "tv": [*RUN, "--tv", "0.01"],
    "nmf": ["nmf", "{cube}", "-n", "3", "--steps", "2", "--every", "1", "--device", "cpu", "-o", "{out}", "-q"],
    "match": ["match", "{cube}", "-e", "{lib}", "-o", "{out}", "--class-map", "-q"],
    "mnf": ["mnf", "{cube}", "-o", "{out}", "-q"],
    "endmembers": ["endmembers", "{cube}", "-n", "3", "-o", "{out}", "-q"],
    "rows": ["rows", "{cube}", "-e", "{lib}", "-o", "{out}", "-q"],
    "bands": ["bands", "{cube}", "-m", "3", "-o", "{out}", "-q"],
    "synth": ["synth", "{out}/t.hdr", "--lines", "5", "--samples", "5", "--bands", "20", "-n", "3"],
    "convert": ["library", "convert", "{lib}", "{out}/s.sli"],
    "npy": ["solve", "{folder}/A.npy", "{folder}/b.npy", "-o", "{out}/x.npy", "--device", "cpu"],
    "h5": ["solve", "{folder}/A.npy", "{folder}/b.npy", "-o", "{out}/x.h5", "--device", "cpu"],
    "report": ["report", "{out}/s"],
    "export": ["export", "{out}/s", "-f", "geotiff", "-o", "{out}/x"],
    "stac": ["stac", "{out}/s"],
    "compare": ["compare", "{out}/s", "{out}/s", "-o", "{out}/c.html"],
    "verify": ["verify", "{out}/s", "--cube", "{cube}"],
    "status": ["status", "{out}"],
}
# Steps of a kind with a name that are tried: a report opens each map for each of its pictures. UNMIX_EVERY_STEP=1 tries
# all, and every trick on every command, which all go through one door.
EVERY = bool(os.environ.get("UNMIX_EVERY_STEP"))
REPEATED = 1000 if EVERY else 2
WITH_EVERY_TRICK = COMMANDS if EVERY else ("run", "hdf5", "nmf", "npy", "report")
# Formats that go through the same doors as those which are tried on every change.
AT_NIGHT = ("geotiff", "cog", "hdf5", "tv", "zarr", "overwrite", "nmf")
# Commands on a finished run.
ON_A_RUN = {"overwrite", "skip", "report", "export", "stac", "compare", "verify", "status"}
# Commands that are tried in a folder that another user owns, too, and the number of that user.
OF_ANOTHER, STRANGER = ("run", "overwrite", "nmf", "report", "synth"), 12345


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scene")
    synthesise(folder / "s.hdr", SyntheticScene(6, 7, 12, 3, seed=1))
    np.save(folder / "A.npy", np.eye(3))
    np.save(folder / "b.npy", np.ones((4, 3)))
    (folder / "secret").write_bytes(MARK)
    return folder


def invoke(name, scene, out):
    places = {"cube": scene / "s.hdr", "lib": scene / "s_truth_endmembers.csv"}
    places |= {"folder": scene, "out": out}
    words = [word.format(**places) for word in COMMANDS[name]]
    error = CliRunner().invoke(cli, words, standalone_mode=False).exception
    assert error is None or isinstance(error, UnmixError | OSError | SystemExit), (words, repr(error))


def fresh(name, scene, out):
    """An empty folder, or one with a finished run."""
    shutil.rmtree(out, ignore_errors=True)
    if name not in ON_A_RUN:
        return out.mkdir()
    finished = scene / "finished"
    if not finished.exists():
        invoke("run", scene, finished)
    shutil.copytree(finished, out)


def leaks(out):
    """Files of the folder, or below it, that hold the private number."""
    for place, _, names in os.walk(out):
        for name in names:
            path = os.path.join(place, name)
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and holds_mark(path):
                yield name


def holds_mark(path):
    with open(path, "rb") as file:
        if MARK[:64] in file.read():
            return True
    stem, dot, ending = os.path.basename(path).partition(".")
    for form in FORMATS.values():
        if dot + ending == form.endings[0] and form.convert is not None and stem.startswith("s_"):
            cube = open_cube(path, form.dataset and form.dataset.format(stem.partition("_")[2]))
            return bool((read_values(cube) == np.float32(1234.5)).any())
    return False


def attack_every_step(out, scene, name, trick, owner=None):
    """Run a command as often as it has steps, the trick played before each; nothing private is read or written, nothing waits."""
    secret = scene / "secret"
    fresh(name, scene, out)
    with ATTACKER.at(out, owner=owner) as watched:
        invoke(name, scene, out)
    steps = watched.steps
    assert steps and watched.waited == []
    for step, what in enumerate(steps):
        if steps[:step].count(what) >= REPEATED:
            continue
        for one in (True, False):
            fresh(name, scene, out)
            with ATTACKER.at(out, secret, step, trick, one, owner) as attack:
                invoke(name, scene, out)
            where = f"step {step} of {len(steps)}, {what}, {'its name' if one else 'all names'}"
            assert attack.waited == [], where
            assert secret.read_bytes() == MARK, where
            assert list(leaks(out)) == [], where


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "trick"),
    [
        pytest.param(name, trick, marks=[pytest.mark.night] * (name in AT_NIGHT or trick != "symlink"))
        for name in COMMANDS
        for trick in TRICKS
        if trick == "symlink" or name in WITH_EVERY_TRICK
    ],
)
def test_no_step_reads_or_writes_what_a_name_was_made_to_lead_to(tmp_path, scene, name, trick):
    for package, names in {"rasterio": ("geotiff", "cog", "export"), "zarr": ("zarr",), "pystac": ("stac",)}.items():
        if name in names:
            pytest.importorskip(package)
    attack_every_step(tmp_path / "o", scene, name, trick)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
@pytest.mark.parametrize("name", at_night(OF_ANOTHER, "run", "report"))
def test_nor_in_a_folder_of_another_user(tmp_path, scene, name):
    attack_every_step(tmp_path / "o", scene, name, "symlink", owner=STRANGER)
