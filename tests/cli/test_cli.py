"""The command line as users and cron jobs meet it: exit codes, stdout and stderr, and documents that are true."""

import io
import itertools
import json
import logging
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import write_csv, write_cube
from unmix_cli.docs import PAGES
from unmix_cli.main import COMMANDS, main

ROOT = Path(__file__).parents[2]


def process(*arguments, code=0):
    """Run the command line in a process of its own; returns (stdout, stderr)."""
    done = subprocess.run(
        [sys.executable, "-m", "unmix_cli.main", *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


def unmix(*arguments, code=0, cwd=".", input="", says=(), tells=()):
    """Run the command line in this process, which saves a second of imports each time; returns (stdout, stderr).

    stdout holds the words that it ``says``, stderr those that it ``tells``: a text or several.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace") for _ in range(2))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    logging.getLogger("unmix").handlers = []
    ended = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        patch.setattr("sys.argv", ["unmix", *map(str, arguments)])
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(input.encode())))
        patch.setattr("sys.stdout", out)
        patch.setattr("sys.stderr", err)
        try:
            main()
        except SystemExit as stop:
            ended = stop.code
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    said, told = (stream.buffer.getvalue().decode() for stream in (out, err))
    assert ended == code, told
    assert "Traceback" not in told
    for text, words in ((said, says), (told, tells)):
        assert all(word in text for word in ([words] if isinstance(words, str) else words)), text
    return said, told


@pytest.fixture
def truth(scene):
    return scene.with_name("scene_truth_endmembers.csv")


def test_help_is_whole():
    said, _ = unmix("--help")
    for name in COMMANDS:
        assert name in said
        assert "Usage" in unmix(name, "--help")[0]


@pytest.mark.parametrize("words", [[], ["library"], ["product"]])
def test_no_command_shows_the_help(words):
    """Whatever click does: from 8.2 on it raises an error whose text is the help."""
    with_help, _ = unmix(*words, "--help")
    said, err = unmix(*words)
    assert said == with_help and "Usage" in said and not err


@pytest.mark.parametrize("page", list(PAGES))
def test_docs_are_what_the_code_says(page):
    assert (ROOT / "docs" / page).read_text() == PAGES[page](), "run `make docs`"


def test_the_main_job(scene):
    out, err = process("run", scene, "-n", 4, "--device", "cpu")
    assert out == ""
    assert "490 of 490 pixels certified" in err
    out, _ = unmix("run", scene, "-n", 4, "--device", "cpu", "--overwrite", "--json", "-q")
    assert json.loads(out)["certified"] is True
    unmix("verify", scene.with_suffix(""), says="490 pixels hold the conditions")
    facts = json.loads(unmix("info", scene, "--json")[0])
    assert (facts["lines"], facts["samples"], facts["bands"], facts["data_type"]) == (7, 70, 20, "int16")
    assert "gain" in unmix("info", scene)[0]
    assert int(unmix("count", scene)[0]) in range(1, 8)
    files = unmix("endmembers", scene, "-n", 3, "-o", scene.parent / "e")[0].split()
    assert [Path(file).name for file in files] == [f"scene_endmembers.{x}" for x in ("csv", "sli", "hdr")]
    unmix("run", scene, "-e", files[0], "--device", "cpu", "--overwrite")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["run"], 2, "CUBE"),
        (["run", "{scene}", "--method", "magic"], 2, "magic"),
        (["run", "{scene}", "--method", "ucls", "--solver", "inverse"], 2, "direct"),
        (["run", "{scene}", "--device", "tpu"], 2, "cuda:K"),
        (["run", "{scene}", "--memory", "1k", "-e", "{truth}"], 2, "one line"),
        (["run", "{scene}", "--bands", "1-999"], 2, "bands 1 to 20"),
        (["run", "{scene}", "-n", "many"], 2, "--count"),
        (["run", "{scene}", "-n", "21"], 2, "from 1 to 20"),
        (["run", "nothing.hdr"], 3, "no such file"),
        (["run", "{scene}", "-e", "nothing.csv"], 3, "nothing.csv"),
        (["run", "{scene}", "-e", "{truth}", "--scale", "0.001"], 2, "--scale"),
        (["run", "{scene}", "-e", "{truth}", "--device", "cuda:9"], 5, "--device cpu"),
        (["info", "nothing.hdr"], 3, "no such file"),
        (["verify", "nothing"], 1, "no finished run"),
        (["synth", "{scene}"], 1, "exists already"),
        (["synth", "x.hdr", "--snr", "loud"], 2, "--snr"),
        (["magic"], 2, "magic"),
    ],
)
def test_exit_codes(scene, truth, arguments, code, text):
    if arguments[-1] == "0.001":
        arguments = [*arguments[:-1], "-1"]
    filled = [argument.format(scene=scene, truth=truth) for argument in arguments]
    out, err = unmix(*filled, code=code, cwd=scene.parent)
    assert out == "" and text in err
    if code != 2:
        assert len(err.strip().splitlines()) <= 2


@pytest.mark.slow
def test_uncertified_pixels_of_an_exact_solver_are_exit_1(tmp_path):
    """Endmembers as near to collinear as is let in: what float64 can certify is kept, and the rest is said."""
    random = np.random.default_rng(0)
    E = random.random((30, 6))
    path = write_cube(tmp_path / "x.hdr", random.random((5, 40, 30)))
    library = write_csv(tmp_path / "e.csv", E)
    script = (
        "import unmix.certificate as c, unmix_cli.main as m, sys\n"
        "c.CERTIFIED = -1.0\n"  # nothing is good enough
        "for further in ([], ['--overwrite', '--uncertified', 'ok']):\n"
        f"    sys.argv = ['unmix', 'run', {str(path)!r}, '-e', {str(library)!r}, '--device', 'cpu', *further]\n"
        "    try:\n"
        "        code = m.main()\n"
        "    except SystemExit as stop:\n"
        "        code = stop.code\n"
        "    print('code', code or 0)\n"
    )
    # In plain Python: compiled code with another constant would be kept, and loaded by other tests.
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert [line for line in done.stdout.splitlines() if line.startswith("code")] == ["code 1", "code 0"], done.stderr
    assert "200 of 200 pixels are not certified" in done.stderr
    report = json.loads((tmp_path / "x_run.json").read_text())
    assert report["certified"] is False and report["pixels"]["failed"] == 200 and len(report["failures"]) == 100
    assert (tmp_path / "x_abundance.img").exists()


def test_an_empty_list_is_no_error(tmp_path):
    (tmp_path / "list").write_text("\n")
    for command in ("run", "batch"):
        out, err = unmix(command, "--list", tmp_path / "list", "--json")
        assert out == "" and len(err.splitlines()) == 1 and "no scene is named" in err


def test_what_a_search_finds_beside_cubes_is_left_out(tmp_path, scene, truth):
    """Libraries, by whichever of their files, and outputs of ours: with each search, for ever."""
    unmix("run", scene, "-e", truth, "--device", "cpu", "-q")
    unmix("library", "convert", truth, tmp_path / "own.sli")
    found = "\n".join(
        map(str, sorted({*tmp_path.glob("*.hdr"), tmp_path / "own.sli"} - set(tmp_path.glob("*truth_ab*"))))
    )
    words = ["-e", truth, "--device", "cpu", "--overwrite"]
    _, err = unmix("run", "--list", "-", *words, input=found)
    assert "3 spectral libraries are left out" in err and "own.hdr" in err
    assert "outputs of unmix are left out" in err and "scenes:" not in err and "490 of 490" in err
    unmix("run", scene, tmp_path / "own.hdr", *words, tells="1 spectral library is left out")
    unmix("run", tmp_path / "own.hdr", *words, code=3, tells="is a spectral library")
    unmix("run", "--list", "-", *words, input=str(tmp_path / "own.hdr"), tells="no scene is named")


def test_progress(scene, truth):
    _, err = unmix("run", scene, "-e", truth, "--progress", "json", "--device", "cpu", "-q")
    said = json.loads(err.splitlines()[-1])
    assert said.pop("pixels_per_second") > 0 and said.pop("gigabytes_per_second") >= 0
    assert said == {"scene": "scene.hdr", "lines_done": 7, "lines": 7, "device": "cpu"}
    terminal, worker = pty.openpty()
    command = [sys.executable, "-m", "unmix_cli.main", "run", str(scene), "-e", str(truth), "--overwrite"]
    running = subprocess.Popen([*command, "--progress", "auto", "--device", "cpu"], stderr=worker)
    os.close(worker)
    shown = b""
    while True:
        try:
            shown += os.read(terminal, 4096)
        except OSError:
            break
    assert running.wait() == 0
    assert b"scene.hdr" in shown and b"\x1b[" in shown


def test_the_log_file(tmp_path, scene, truth):
    unmix("run", scene, "-e", truth, "-q", "--log-file", tmp_path / "log", "--device", "cpu")
    unmix("run", scene, "-e", truth, "--log-file", tmp_path / "log", "--device", "cpu", "--overwrite")
    assert "490 of 490 pixels certified" in (tmp_path / "log").read_text()
    unmix("run", scene, "--log-file", tmp_path / "none" / "log", code=2, tells="--log-file")


def test_two_inputs_of_one_stem_by_other_names(tmp_path):
    """The stem is that of the outputs, whatever the header is called: x.dat.hdr and x.hdr are one."""
    for folder, name in (("a", "x.hdr"), ("b", "x.dat.hdr")):
        (tmp_path / folder).mkdir()
        path = write_cube(tmp_path / folder / "x.hdr", np.ones((2, 2, 20), np.int16))
        if name != "x.hdr":
            path.with_suffix(".img").rename(tmp_path / folder / "x.dat")
            path.rename(tmp_path / folder / name)
    unmix("run", tmp_path / "a/x.hdr", tmp_path / "b/x.dat.hdr", "-o", tmp_path / "o", code=2, tells="one stem")
    assert not (tmp_path / "o").exists()


def test_a_log_goes_to_no_other_file(scene):
    before = scene.with_suffix(".img").read_bytes()
    unmix("run", scene, "--log-file", scene.with_suffix(".img"), "--dry-run", code=2, tells="no log of ours")
    assert scene.with_suffix(".img").read_bytes() == before


def test_errors_are_one_line_whatever_is_in_them(tmp_path):
    path = write_cube(tmp_path / "x\ny.hdr", np.ones((2, 2, 20), np.int16))
    path.write_text(path.read_text().replace("interleave = bip", "interleave = " + "z" * 9000))
    for arguments in (["info", path], ["run", path, "--memory", "0"], ["run", path, "-n", "²"]):
        _, err = unmix(*arguments, code=3 if arguments[0] == "info" else 2)
        assert len(err.splitlines()) == 1 and len(err) < 2100


@pytest.mark.slow
def test_runs_without_stderr(scene, truth):
    command = [sys.executable, "-m", "unmix_cli.main", "run", str(scene), "-e", str(truth), "--device", "cpu"]
    done = subprocess.run(["sh", "-c", 'exec "$@" 2>&-', "sh", *command], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == ""
    assert (scene.parent / "scene_run.json").exists()


def test_options_that_contradict_each_other(scene, truth):
    assert "--count" in unmix("run", scene, "-e", truth, "-n", 3, code=2)[1]
    assert "does not go with" in unmix("run", scene, "--overwrite", "--skip-existing", code=2)[1]


def test_the_package_lists_its_names():
    import unmix as package

    assert set(package.__all__) <= set(dir(package)) and "importlib" not in dir(package)


def test_case_of_choices_does_not_count(scene, truth):
    words = {"--method": "FCLS", "--solver": "Active-Set", "--device": "cpu", "--format": "ENVI"}
    unmix("run", scene, "-e", truth, *itertools.chain(*words.items()), "-q")
    report = json.loads(scene.with_name("scene_run.json").read_text())
    assert (report["method"], report["solver"], report["format"]) == ("fcls", "active-set", "envi")
    unmix("endmembers", scene, "-n", 2, "--extract", "SPA", "-o", scene.parent / "e")


@pytest.mark.parametrize(
    "words", [["run", "-e", "{truth}", "-o", "-"], ["endmembers", "-n", "2", "-o", "-"], ["run", "--log-file", "-"]]
)
def test_a_dash_is_no_folder(scene, truth, words):
    _, err = unmix(words[0], scene, *(word.format(truth=truth) for word in words[1:]), code=2, cwd=scene.parent)
    assert "-" in err and not (scene.parent / "-").exists()


def test_a_comma_in_a_name_is_said_once(scene, truth):
    E = np.loadtxt(truth, delimiter=",", skiprows=1, usecols=range(1, 21)).T
    rows = [f'"oak, dry {j}",{",".join(map(repr, map(float, e)))}' for j, e in enumerate(E.T)]
    library = scene.with_name("own.csv")
    library.write_text(truth.read_text().splitlines()[0] + "\n" + "\n".join(rows) + "\n")
    _, err = unmix("run", scene, "-e", library, "--device", "cpu")
    assert err.count("is written") == 1 and "'oak, dry 0' is written 'oak; dry 0', and 3 more" in err


def test_numbers_for_people_are_rounded_and_for_programs_not(tmp_path):
    waves = "{0.3756, 0.3854, 0.3951}"
    cube = write_cube(tmp_path / "c.hdr", np.ones((2, 2, 3), np.int16), wavelength=waves, wavelength_units="um")
    assert "375.6, 385.4" in unmix("info", cube)[0]
    assert json.loads(unmix("info", cube, "--json")[0])["wavelengths_nm"][0] == 375.59999999999997


def test_several_cubes_at_once(tmp_path):
    cubes = [write_cube(tmp_path / f"{name}.hdr", np.ones((2, 2, 3), np.int16)) for name in "ab"]
    out, _ = unmix("info", *cubes)
    assert out.count("samples") == 2
    out, err = unmix("info", cubes[0], tmp_path / "no.hdr", cubes[1], "--json", code=4)
    assert [Path(json.loads(line)["path"]).name for line in out.splitlines()] == ["a.img", "b.img"] and "no.hdr" in err
    unmix("info", tmp_path / "no.hdr", tmp_path / "neither.hdr", code=3)


def test_all_that_select_chooses_is_listed(tmp_path):
    write_csv(tmp_path / "l.csv", np.random.default_rng(0).random((3, 30)), [400, 500, 600])
    out, _ = unmix("library", "info", tmp_path / "l.csv", "--select", "em 1*")
    assert ", ".join(f"em {j}" for j in (1, *range(10, 20))) + " (11)" in out
    assert "em 17" not in unmix("library", "info", tmp_path / "l.csv")[0]


def test_verify_takes_any_of_a_run_s_files(scene, truth):
    unmix("run", scene, "-e", truth, "--device", "cpu", "-q")
    for name in ("_abundance.img", "_rmse.hdr", "_endmembers.csv", "_run.json", ".hdr", ".img", ""):
        unmix("verify", scene.parent / f"scene{name}")
    assert "nothing_run.json" in unmix("verify", scene.parent / "nothing_abundance.img", code=1)[1]


def shell(line, **names):
    """Run a line of bash with `unmix` in it; returns its exit code and stderr."""
    command = line.replace("unmix", f"{sys.executable} -m unmix_cli.main", 1).format(**names)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("unmix run {scene} -e {truth} --device cpu >&-", 0, "certified"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("unmix run {scene} -e {truth} --device cpu --json > /dev/full", 1, "stdout"),
                ("unmix info {scene} --json >&-", 1, "stdout"),
                ("unmix info {scene} --json > /dev/full", 1, "stdout"),
                ("unmix run {scene} -e {truth} --device cpu --json >&-", 1, "stdout"),
                ("unmix run {scene} -e {truth} --device cpu 2> /dev/full", 0, ""),
                ("unmix run {scene} -e nothing.csv --device cpu 2> /dev/full", 3, ""),
                ("unmix run --list - <&-", 2, "stdin is closed"),
            ]
        ),
    ],
)
def test_standard_streams_that_are_closed_or_full(scene, truth, line, code, words):
    """What was asked for and could not be said is a failure; what nobody hears is none."""
    found, err = shell(line, scene=scene, truth=truth)
    assert found == code and words in err


def test_lists_of_numbers_stay_on_a_line_of_run_json(scene, truth):
    unmix("run", scene, "-e", truth, "--method", "fcls", "--device", "cpu", "-q")
    text = scene.with_name("scene_run.json").read_text()
    assert f' "bands_used": [{", ".join(str(b + 1) for b in range(20))}],\n' in text and len(text.splitlines()) <= 212


def test_a_name_that_geotiff_cannot_take_is_refused_before_anything_is_solved(scene, truth):
    odd = scene.parent / os.fsdecode(b"caf\xe9.hdr")
    scene.with_suffix(".img").rename(odd.with_suffix(".img"))
    scene.rename(odd)
    _, err = unmix("run", odd, "-e", truth, "--device", "cpu", "--format", "geotiff", code=1)
    assert "UTF-8" in err and not list(odd.parent.glob("*_run*"))
    unmix("run", odd, "-e", truth, "--device", "cpu", "--format", "hdf5")


@pytest.mark.parametrize("name", ["run", "mesma", "batch"])
def test_help_shows_few_options_first_and_all_in_groups(name):
    brief, whole = unmix(name, "--help")[0], unmix(name, "--help-all")[0]
    flags = {
        text: set(re.findall(r"^  (-[^ ,]+)", re.split(r"\n(?=[A-Z][a-z, ]+:\n)", text, maxsplit=1)[1], re.MULTILINE))
        for text in (brief, whole)
    }
    assert 8 <= len(flags[brief]) <= 22 and flags[brief] < flags[whole] and len(flags[whole]) > 40
    hidden = int(re.search(r"There are (\d+) more options: --help-all", brief)[1])
    assert len(flags[whole]) - len(flags[brief]) == hidden
    for group in ("Endmembers:", "Model:", "Outputs:", "Reading:", "Machine:"):
        assert f"\n{group}\n" in whole and f"\n{group}\n" not in brief
