"""Habits of the command line: options from files and variables, states of runs, the module as a command, facts for a bug report."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time

import click
import numpy as np
import pytest
from conftest import cut_off, mix, refused, write_csv, write_cube
from test_cli import unmix as command
from unmix_cli import warm
from unmix_cli.main import cli

import unmix
from unmix.commands.synth import SyntheticScene, synthesise
from unmix.commands.warm import WARMED
from unmix.compiled import cache
from unmix.library import load
from unmix.runs.files.finished import runs_below, state_of_run


@pytest.fixture
def scene(tmp_path):
    """A small scene, and a library for it."""
    _, E, Y = mix(1, (8, 9), 12, 3, noise=0.01)
    write_csv(tmp_path / "e.csv", E)
    return write_cube(tmp_path / "s.hdr", Y.astype(np.float32))


def record(folder):
    return json.loads((folder / "s_run.json").read_text())


def test_options_from_a_file(tmp_path, scene, monkeypatch):
    """The command line comes first, then the environment, then the file, then defaults; a command's table before the rest."""
    config = tmp_path / "run.toml"
    config.write_text(
        'method = "scls"\nmax-delta = 1e-3\nendmembers = "%s"\n[run]\nmethod = "nnls"\nbrowse = false\n'
        % (tmp_path / "e.csv")
    )
    command("run", scene, "--config", config, "-o", tmp_path / "a")
    report = record(tmp_path / "a")
    assert (report["method"], report["max_delta"]) == ("nnls", 1e-3) and not (tmp_path / "a/s_browse.png").exists()
    monkeypatch.setenv("UNMIX_RUN_METHOD", "ucls")
    command("run", scene, "--config", config, "-o", tmp_path / "b")
    assert record(tmp_path / "b")["method"] == "ucls"
    command("run", scene, "--config", config, "-o", tmp_path / "c", "--method", "pcls", "--max-delta", "1e-5")
    assert (record(tmp_path / "c")["method"], record(tmp_path / "c")["max_delta"]) == ("pcls", 1e-5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("methods = 1", "methods is no option of unmix run; did you mean method?"),
        ("method = [1, {a = 1}]", "method: write text or a number"),
        ("method", "neither TOML nor a run.json"),
        ('{"method": "nnls"}', "has no options that could be repeated"),
        ('method = "best"', "best"),
        ("memory = true", "memory: write text or a number"),
        ("memory = 'many'", "not a size"),
        ("certificate = 0", "write true or false"),
        ("max-delta = 1e-3\nmax_delta = 1e-3", "is given twice"),
        ("[rn]\nmethod = 'nnls'", "[rn] is no command"),
        ('endmembers = "a\\u0000b"', "write text or a number"),
        ('{"options": {"method": "mesma"}}', "is the record of unmix mesma"),
    ],
)
def test_files_that_hold_no_options(tmp_path, scene, text, says):
    (tmp_path / "c.toml").write_text(text)
    _, err = command("run", scene, "--config", tmp_path / "c.toml", code=2)
    assert says in err and len(err.splitlines()) == 1 and not (tmp_path / "s_run.json").exists()
    assert "cannot be read" in command("run", scene, "--config", tmp_path / "none.toml", code=1)[1]


def test_a_record_sets_what_a_run_records_and_nothing_else(tmp_path, scene):
    """docs/security.md: a stranger's run.json chooses no place of the reader's: a log of his words once was a new
    ~/.bash_profile.

    Each other option of `unmix run` in each spelling, and TOML in a file with a record's name.
    """
    from unmix_cli.config_file import RECORDED
    from unmix_cli.main import cli as commands

    context = click.Context(commands)
    every = [one for one in commands.get_command(context, "run").params if isinstance(one, click.Option) and one.name]
    others = [one for one in every if one.name not in RECORDED]
    assert {"log_file", "out_dir", "work_dir", "listed", "failed", "overwrite", "jobs"} <= {one.name for one in others}
    assert {"method", "endmembers", "mask", "lines", "noise", "tag"} <= RECORDED
    config = tmp_path / "s_run.json"
    for one in others:
        for word in {one.name, one.opts[-1].lstrip("-"), one.opts[-1].lstrip("-").upper()}:
            config.write_text(json.dumps({"options": {"method": "nnls", word: str(tmp_path / "new")}}))
            _, err = command("run", scene, "--config", config, "-e", tmp_path / "e.csv", code=2)
            assert "which no run records" in err, word
    for name in ("s_run.json", "S.JSON"):
        (tmp_path / name).write_text(f'log_file = "{tmp_path / "new"}"\n')
        assert "neither TOML nor a run.json" in command("run", scene, "--config", tmp_path / name, code=2)[1]
    assert not (tmp_path / "new").exists()


def test_the_options_that_a_record_sets_are_shown(tmp_path, scene):
    """Also the files that it names: a stranger chooses which of them become maps."""
    (tmp_path / "s_run.json").write_text(
        json.dumps({"options": {"method": "nnls", "endmembers": str(tmp_path / "e.csv")}})
    )
    _, err = command("run", scene, "--config", tmp_path / "s_run.json", "-o", tmp_path / "o")
    assert f"--endmembers {tmp_path / 'e.csv'}" in err and "--method nnls" in err


def test_a_record_repeats_its_run(tmp_path, scene, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--method", "pcls", "-e", "e.csv", "--lines", "1:7", "--certificate", "--mask-out", "m.hdr"]
    options += ["--ignore-nm", "3-4"]
    flags = np.zeros((8, 9, 1), np.uint8)
    flags[2, 2] = 1
    write_cube(tmp_path / "m.hdr", flags)
    waves = "{" + ", ".join(map(str, range(1, 13))) + "}"
    write_cube(
        tmp_path / "s.hdr",
        np.fromfile("s.img", np.float32).reshape(8, 9, 12),
        wavelength=waves,
        wavelength_units="Nanometers",
    )
    command("run", "s.hdr", *options, "-o", "one", "--threads", "1")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    command("run", "../s.hdr", "--config", "../one/s_run.json", "-o", "two")
    one, two = record(tmp_path / "one"), record(tmp_path / "elsewhere/two")
    assert one["digests"] == two["digests"] and one["options"] == two["options"] and one["asked"] == two["asked"]
    assert set(one["options"]) == {"method", "endmembers", "lines", "certificate", "mask_out", "ignore_nm"}
    assert unmix.run("../s.hdr", **one["options"], out_dir="three")["digests"] == one["digests"]


@pytest.mark.parametrize(
    ("method", "words"),
    [("fcls", ["--classes", "kinds.csv:kind"]), ("pcls", ["--classes", "name"]), ("pcls", ["--shade", "dark.csv"])]
    + [("mesma", ["--classes", "kinds.csv:kind"]), ("mesma", ["--classes", "name", "--shade", "dark.csv"])],
)
def test_a_record_finds_the_copy_of_its_library(tmp_path, scene, method, words):
    """Spectra that were chosen, divided and in classes by another file are in the copy as they were used; shade is no spectrum."""
    E = np.tile(load(tmp_path / "e.csv").matrix, 2)
    write_csv(tmp_path / "gone.csv", E if "--shade" in words else 100 * E, names=[*"abcdef"])
    write_csv(tmp_path / "dark.csv", 0.01 * E[:, :1] ** 2)
    (tmp_path / "kinds.csv").write_text("name,kind\n" + "".join(f"{name},{name < 'b'}\n" for name in "abcdef"))
    words = ["-e", "gone.csv", "--select", "a,b,c", *words, *([] if "--shade" in words else ["--library-scale", "100"])]
    made_by, words = ("mesma", words) if method == "mesma" else ("run", [*words, "--method", method])
    command(made_by, "s.hdr", *words, "-o", "one", cwd=tmp_path)
    (tmp_path / "gone.csv").rename(tmp_path / "here.csv")
    again = [made_by, "s.hdr", "--config", "one/s_run.json", "-o"]
    command(*again, "two", cwd=tmp_path, tells="gone.csv is gone; one/s_endmembers.csv has its spectra")
    _, err = command(*again, "three", "-e", "here.csv", cwd=tmp_path)
    one, two, three = (record(tmp_path / name)["digests"] for name in ("one", "two", "three"))
    assert one == two == three and "is gone" not in err and "was written after" not in err
    shutil.copy(tmp_path / "here.csv", tmp_path / "gone.csv")
    os.utime(tmp_path / "gone.csv", (1, 1))
    assert "holds other values" not in command(*again, "older", cwd=tmp_path)[1]
    (tmp_path / "gone.csv").write_text((tmp_path / "gone.csv").read_text().replace("a,", "a,1", 1))
    os.utime(tmp_path / "gone.csv", (1, 1))  # as of a backup: by its time nothing changed
    assert "--endmembers holds other values than in that run" in command(*again, "other", cwd=tmp_path)[1]
    assert "holds other values" not in command(*again, "named", "-e", "gone.csv", cwd=tmp_path)[1]
    shutil.copy(tmp_path / "here.csv", tmp_path / "gone.csv")
    os.utime(tmp_path / "gone.csv", (2**32, 2**32))
    command(*again, "four", cwd=tmp_path, tells="gone.csv was written after that run; the spectra that it used are in")


def test_names_in_a_file_are_those_of_the_options(tmp_path, scene, monkeypatch):
    """Also with a mark at the head of the file, as editors on Windows write; variables that mean something else do nothing."""
    monkeypatch.setenv("UNMIX_VERSION", "1.2.3")
    text = '\ufeffjson = true\nno-browse = true\nmask-out = "m.hdr"\nEndmembers = "e.csv"\n'
    (tmp_path / "c.toml").write_text(text, encoding="utf-8")
    write_cube(tmp_path / "m.hdr", np.zeros((8, 9, 1), np.uint8))
    monkeypatch.chdir(tmp_path)
    out, _ = command("run", scene, "--config", "c.toml")
    assert json.loads(out)["options"]["mask_out"] == [f"{tmp_path}/m.hdr:1"]
    assert not (tmp_path / "s_browse.png").exists()


@pytest.mark.slow
def test_records_of_other_kinds(tmp_path, scene):
    """Of MESMA; of nodata that is no number; of a library that was in memory."""
    lines = (tmp_path / "e.csv").read_text().splitlines()
    kinds = ("class", "x", "y", "x")
    (tmp_path / "k.csv").write_text("\n".join(f"{line},{kind}" for line, kind in zip(lines, kinds)) + "\n")
    command("mesma", scene, "-e", tmp_path / "k.csv", "--levels", "2-3", "--nodata", "nan", "-o", tmp_path / "a")
    command("mesma", scene, "--config", tmp_path / "a/s_run.json", "-o", tmp_path / "b")
    one = record(tmp_path / "a")
    assert one["digests"] == record(tmp_path / "b")["digests"]
    assert unmix.run(scene, **one["options"], out_dir=tmp_path / "c")["digests"] == one["digests"]
    unmix.run(scene, endmembers=load(tmp_path / "e.csv"), out_dir=tmp_path / "d")
    repeat = ["run", scene, "--config", tmp_path / "d/s_run.json", "-o", tmp_path / "f"]
    assert "in memory" in command(*repeat, code=3)[1]
    command(*repeat, "-e", tmp_path / "e.csv")
    assert record(tmp_path / "d")["digests"] == record(tmp_path / "f")["digests"]


def test_states_of_odd_files(tmp_path):
    (tmp_path / "m").mkdir()
    os.mkfifo(tmp_path / "m/a_run.journal.part")
    os.mkfifo(tmp_path / "m/b_run.lock")
    for name, pid in (("c", 0), ("d", 2**22 + 1), ("e", 1)):
        (tmp_path / f"m/{name}_run.lock").write_text(json.dumps({"host": socket.gethostname(), "pid": pid}))
    os.utime(tmp_path / "m/e_run.lock", (time.time() + 1e6,) * 2)
    assert [state_of_run(stem).name for stem in runs_below(tmp_path / "m")] == ["damaged", *["interrupted"] * 4]
    assert "no finished run" in command("status", tmp_path / "nothing", code=1)[1]


def test_states_of_runs(tmp_path, scene):
    unmix.run(scene, endmembers=tmp_path / "e.csv", out_dir=tmp_path / "m/good")
    unmix.run(scene, endmembers=tmp_path / "e.csv", out_dir=tmp_path / "m/bad")
    lines = command("status", tmp_path / "m")[0].splitlines()
    places = [tmp_path / "m/bad/s", tmp_path / "m/good/s"]
    assert [line.split(": ")[0].split() for line in lines] == [["done", str(place)] for place in places]
    assert all(": relative RMSE " in line and ", of one pixel in twenty above " in line for line in lines)
    (tmp_path / "m/bad/s_run.json").write_text("{")
    (tmp_path / "m/x_run.journal.part").write_bytes(b"")
    (tmp_path / "m/y_run.journal.part").write_bytes(b"00000000 {}\n")
    (tmp_path / "m/z_run.lock").write_text(json.dumps({"host": "elsewhere", "pid": 7}))
    found = {
        stem.name if stem.name != "s" else stem.parent.name: state_of_run(stem) for stem in runs_below(tmp_path / "m")
    }
    assert {name: state.name for name, state in found.items()} == {
        "good": "done",
        "bad": "damaged",
        "x": "interrupted",
        "y": "damaged",
        "z": "running",
    }
    assert "process 7 on elsewhere" in found["z"].detail
    out, _ = command("status", tmp_path / "m", "--json", code=1)
    assert [json.loads(line)["state"] for line in out.splitlines()].count("done") == 1
    assert {json.loads(line)["fit"] is None for line in out.splitlines()} == {True, False}
    assert command("status", tmp_path / "m/good/s_rmse.img")[0].startswith("done")
    out, err = command("status", tmp_path / "nothing", tmp_path / "m/good/s_rmse.img", code=4)
    assert out.startswith("done") and "nothing: no finished run" in err
    (tmp_path / "empty").mkdir()
    assert "holds no run" in command("status", tmp_path / "empty", code=1)[1]


def test_a_run_that_was_cut_off_says_where(tmp_path, scene):
    from unmix.errors import OutputError

    cut_off(scene, 4, endmembers=tmp_path / "e.csv", memory="2k", streams=1)
    state = state_of_run(tmp_path / "s")
    assert state.name == "interrupted" and "of 8 lines are done" in state.detail
    refused(OutputError, None, unmix.report, tmp_path / "s")


def test_a_plan_is_a_table(tmp_path, scene):
    out, _ = command("run", scene, "-e", tmp_path / "e.csv", "--dry-run", "--certificate")
    rows = {line[:14].strip(): line[14:] for line in out.splitlines()}
    assert rows["method"].startswith("nnls (active-set) on ") and rows["endmembers"] == "3: em 1, em 2, em 3"
    assert "8 lines of 9 samples, 12 bands in use" in rows["scene"] and "certificate (3 bands)" in rows["writes"]
    assert json.loads(command("run", scene, "-e", tmp_path / "e.csv", "--dry-run", "--json")[0])["lines"] == 8
    assert "extracted from the scene" in command("run", scene, "--dry-run")[0]


COMPILED = """
import sys
from numba.core import event
class Listener(event.Listener):
    def on_start(self, event):
        print(event.data["dispatcher"])
    def on_end(self, event):
        pass
event.register("numba:compile", Listener())
from unmix_cli.main import main
main()
"""


@pytest.mark.slow
@pytest.mark.night
def test_what_is_warm_is_not_compiled_again(tmp_path, monkeypatch):
    """In processes of their own, with an empty folder for compiled code: neither by the same command nor by the main job."""
    monkeypatch.setenv("UNMIX_CACHE_DIR", str(tmp_path / "code"))

    def unmix(*words):
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True, cwd=tmp_path)
        return done.stdout.splitlines()

    kind = ("--method", "nnls", "--dtype", "float32", "--interleave", "bsq", "--device", "cpu")
    first, second = ([json.loads(line) for line in unmix("-m", "unmix", "warm", "--json", *kind)] for _ in range(2))
    assert [(case["method"], case["interleave"]) for case in first] == [("nnls", "bsq"), ("extract", "bsq")]
    assert all(before["seconds"] > after["seconds"] for before, after in zip(first, second))
    for interleave in ("bsq", "bip"):
        synthesise(
            tmp_path / f"{interleave}.hdr", SyntheticScene(30, 20, 50, 4, dtype="float32", interleave=interleave)
        )
        compiled = unmix("-c", COMPILED, "run", f"{interleave}.hdr", "--method", "nnls", "--device", "cpu")
        assert bool(compiled) == (interleave == "bip")
    stored = np.fromfile(tmp_path / "bsq.img", np.float32).reshape(50, 30, 20).transpose(1, 2, 0)
    random = np.random.default_rng(0)
    write_cube(tmp_path / "varies.hdr", stored * random.uniform(0.4, 1.0, (30, 20, 1)).astype(np.float32), "bsq")
    for scene in ("bsq", "varies"):  # by defaults: corners of a simplex, edges of a cone
        lines = unmix("-c", COMPILED, "endmembers", f"{scene}.hdr", "-o", "found")
        assert all(line.startswith("found") for line in lines)
    E = random.uniform(0.1, 0.9, (50, 12))
    abundances = random.dirichlet(
        np.full(12, 0.3), 600
    )  # pixels that have no supports in common are left to another search
    write_cube(tmp_path / "apart.hdr", (abundances @ E.T).reshape(30, 20, 50).astype(np.float32), "bsq")
    write_csv(tmp_path / "apart.csv", E)
    assert not unmix("-c", COMPILED, "run", "apart.hdr", "-e", "apart.csv", "--method", "nnls", "--device", "cpu")


def test_warm_has_a_run_for_each_method():
    (methods,) = (option for option in warm.command.params if option.name == "methods")
    assert list(methods.type.choices) == list(WARMED)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["pcls", "mesma", "nmf"])
def test_each_method_can_be_warmed(method):
    kind = ("--method", method, "--dtype", "float32", "--interleave", "bip", "--device", "cpu")
    out, _ = command("warm", *kind)
    assert [line.split()[0] for line in out.splitlines()] == [method, "extract"]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("solve", "2 pieces of compiled code are not kept"),
        ("why_not_used", "so the code would be kept in"),
        ("common_folder", "this user cannot write there, so what was compiled is kept in"),
    ],
)
def test_warm_fails_where_it_is_in_vain(monkeypatch, fault, message):
    """On a full disk, and where the folder that it is to fill is not used, or not filled."""
    why = "/code: No space left on device"
    monkeypatch.setattr(cache.WATCH, "lost", [])
    lose = lambda *_, **__: cache.WATCH.lost.extend([why] * 2)  # noqa: E731
    monkeypatch.setattr(f"unmix.commands.warm.{fault}", lose if fault == "solve" else lambda: why)
    monkeypatch.setattr("unmix.commands.warm.WAS_THERE", -1.0)
    kind = ("--method", "fcls", "--dtype", "float32", "--interleave", "bip", "--device", "cpu")
    command("warm", *kind, code=1, tells=(why, message))


def test_the_module_is_a_command():
    done = subprocess.run([sys.executable, "-m", "unmix", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("unmix, version")


def test_facts_for_a_bug_report():
    facts = json.loads(command("env", "--json")[0])
    assert facts["numpy"] == np.__version__ and facts["cores"] >= 1
    assert {"unmix", "python", "GPUs", "compiled code"} <= set(facts)
    assert "numba " in command("env")[0]


@pytest.mark.parametrize(
    ("mode", "inner", "named"),
    [(0o755, 0o755, "also loaded from"), (0o777, 0o755, "not used"), (0o755, 0o777, "not used")],
)
def test_whether_code_compiled_for_all_is_loaded(tmp_path, monkeypatch, mode, inner, named):
    """A user who cannot write to the folder sees whether it serves, and where code of the user's own goes."""
    given = tmp_path / "given"
    monkeypatch.setenv("UNMIX_CACHE_DIR", str(given))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    for name in ("cache_folder", "common_folder"):
        monkeypatch.setattr(cache, name, getattr(cache, name).__wrapped__)
    ours = json.loads(command("env", "--json")[0])
    assert ours["compiled code"].startswith(str(given)) and not {"also loaded from", "not used"} & set(ours)
    given.chmod(mode)
    (given / "of this version").mkdir()
    (given / "of this version").chmod(inner)
    safe_folder = cache.safe_folder
    monkeypatch.setattr(
        cache, "safe_folder", lambda folder, make=False: None if make and folder == given else safe_folder(folder, make)
    )
    facts = json.loads(command("env", "--json")[0])
    assert facts["compiled code"].startswith(str(tmp_path / "own")) and str(given) in facts[named]


@pytest.mark.parametrize(
    ("words", "expected"),
    [("unmix run --ext", "--extract"), ("unmix library ", "match"), ("unmix count --criterion h", "hysime")],
)
def test_words_are_completed(words, expected, monkeypatch):
    """By the shell function that the line in docs/howto.md defines."""
    given = {"_UNMIX_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert f"plain,{expected}" in command()[0].splitlines()


def test_files_of_numbers_and_records_may_begin_with_a_mark(tmp_path):
    """A byte order mark, as Windows' editors write: the first number counted as a heading, and a record as no JSON."""
    from unmix_cli.config_file import read

    from unmix.maps.derived.noise import read_numbers

    (tmp_path / "n.txt").write_text("\ufeff0.5\n0.25\n", encoding="utf-8")
    assert read_numbers(tmp_path / "n.txt", "weight", "a band") == [0.5, 0.25]
    (tmp_path / "run.json").write_text('\ufeff{"options": {"method": "nnls"}}', encoding="utf-8")
    assert read(tmp_path / "run.json", "run") == {"method": "nnls"}


@pytest.mark.parametrize("name", ["match", "detect", "mesma"])
def test_a_library_that_is_needed_and_not_given(tmp_path, name):
    """One line, and the code of a wrong command line."""
    _, err = command(name, write_cube(tmp_path / "s.hdr", np.ones((2, 3, 4), np.float32)), code=2)
    assert "endmembers" in err and len(err.splitlines()) == 1 and "should not happen" not in err


def test_choices_of_an_option_that_is_needed(tmp_path):
    _, err = command("library", "prune", tmp_path / "e.csv", tmp_path / "o.csv", code=2)
    assert "Missing option '--rule'. Choose from: ear, masa" in err


def options_of(group, path=()):
    """Yield the options of all commands, with the names of their commands."""
    context = click.Context(group)
    for name in group.list_commands(context):
        one = group.get_command(context, name)
        if isinstance(one, click.Group):
            yield from options_of(one, (*path, name))
        else:
            yield from (((*path, name), option) for option in one.params if isinstance(option, click.Option))


def test_a_letter_stands_for_one_name():
    """A number of things is `-n, --count`, a bound on it `--most`, everywhere; so with all letters."""
    letters, numbers = {}, set()
    for where, option in options_of(cli):
        short, long = ([word for word in option.opts if word.startswith("--") is is_long] for is_long in (False, True))
        for one in short:
            letters.setdefault(one, set()).update(long)
        if "--count" in long:
            numbers.add(tuple(short))
        assert not {"--keep", "--points", "-k"} & set(option.opts), where
    assert numbers == {("-n",)}
    assert letters.pop("-o") == {"--out", "--out-dir"} and all(len(names) == 1 for names in letters.values()), letters


def test_an_option_that_is_given_twice_is_said(tmp_path):
    """The last value counts, as ever; equal ones, flags and options that may be repeated are no matter."""
    path = write_cube(tmp_path / "s.hdr", np.random.default_rng(1).random((4, 5, 6)))
    words = ("run", path, "-n", 2, "--dry-run", "--mask-out", path, "--mask-out", path, "-q", "-q")
    _, err = command(*words, "--method", "fcls", "--method=fcls", "-n", 3)
    assert err.splitlines() == ["unmix: warning: --count is given 2 times: the last counts, 3"]
