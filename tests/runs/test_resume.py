"""Runs that are cut off go on from where they were, to the same bytes; what is unsound begins anew, and says so."""

import contextlib
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import PATIENCE, at_night, cut_off, refused, rest_slow, wait_until
from test_cli import unmix as command

import unmix
from unmix.commands.synth import SyntheticScene, synthesise
from unmix.outputs.atomic import give_name
from unmix.outputs.digests import image_digest_within
from unmix.outputs.lock import Lock
from unmix.runs.files.journal import read_resume_state

# A run that records every block, of a few lines each, and takes its time: `kill` finds it anywhere.
SLOW = """
import sys, time, unmix, unmix.runs.files.journal as journal
journal.FLUSH_BYTES, journal.FLUSH_SECONDS = 1, 0.0
due = journal.Journal.is_due
journal.Journal.is_due = lambda self, written: (time.sleep(float(sys.argv[3])), due(self, written))[1]
from unmix.io.formats.envi import EnviCube
read, taken = EnviCube.read, [0]
def counted(self, lines, out):
    taken[0] += lines.stop - lines.start
    return read(self, lines, out)
EnviCube.read = counted
report = unmix.run(sys.argv[1], out_dir=sys.argv[2], count=3, extract="vca", device="cpu", memory="200K", certificate=True)
print(report["resumed_from"], taken[0])
"""
# How the runs of these tests extract their endmembers: the default would take ten times as long.
HOW = {"count": 3, "extract": "vca", "device": "cpu", "memory": "200K"}
FAST = ("-n", "2", "--extract", "vca")
ENDINGS = ("abundance.img", "abundance.hdr", "rmse.img", "certificate.img", "endmembers.csv", "endmembers.sli")
NAMES = [f"s_{ending}" for ending in ENDINGS]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A scene, and its outputs of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    synthesise(folder / "s.hdr", SyntheticScene(400, 60, 40, 3, seed=1))
    report = unmix.run(folder / "s.hdr", out_dir=folder / "o", **HOW, certificate=True)
    return folder, {name: (folder / "o" / name).read_bytes() for name in NAMES}, report


def start(folder, out, pause=0.02, *words):
    """The slow run as a process."""
    return subprocess.Popen(
        [sys.executable, "-c", SLOW, str(folder / "s.hdr"), str(out), str(pause), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(out, lines, process):
    """Until the journal says that so many lines are done."""

    def are_done():
        with contextlib.suppress(ValueError):
            past = read_resume_state(out / "s_run.journal.part")
            return past is not None and past.lines >= lines

    wait_until(are_done, process)


def same(out, expected):
    """Whether the outputs are those of the undisturbed run, and nothing else is left."""
    assert [name for name, content in expected.items() if (out / name).read_bytes() != content] == []
    assert not list(out.glob("*.part")) and not list(out.glob("*.lock"))


@pytest.mark.slow
@pytest.mark.parametrize("number", at_night([signal.SIGKILL, signal.SIGTERM, signal.SIGINT], signal.SIGKILL))
def test_killed_at_random_moments(tmp_path, whole, number):
    """Killed thrice on the way; every time it goes on, reads what is left and a sample, and ends in the same bytes."""
    folder, expected, _ = whole
    random, out, least = np.random.default_rng(int(number)), tmp_path / "o", 1
    for _ in range(3):
        # 34 blocks of 7 lines are left at the latest: at 0.15 s each, a busy machine once let 22 end before the signal.
        process = start(folder, out, 0.4)
        wait_for(out, random.integers(least, least + 40), process)
        process.send_signal(number)
        said, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode != 0 and not (out / "s_run.json").exists(), said + errors
        past = read_resume_state(out / "s_run.journal.part")
        assert 0 < past.lines <= 400 and not list(out.glob("*.img"))
        least = min(past.lines + 1, 120)  # far enough from the end, however busy the machine is
    done = start(folder, out, 0.0)
    said, errors = done.communicate(timeout=PATIENCE)
    assert done.returncode == 0, errors
    resumed, read = map(int, said.split())
    # No line that was done, and none for endmembers; but a sample of 2048 pixels, 34 lines, for what the endmembers
    # lack.
    assert resumed == past.lines and 0 <= read - (400 - resumed) <= 34
    same(out, expected)
    assert json.loads((out / "s_run.json").read_text())["resumed_from"] == resumed


@pytest.fixture(scope="module")
def killed(tmp_path_factory, whole):
    """The folder of a run that ended after a hundred lines, each block of which is in its journal."""
    out = tmp_path_factory.mktemp("killed") / "o"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unmix.runs.files.journal.FLUSH_BYTES", 1)
        cut_off(whole[0] / "s.hdr", 100, out_dir=out, **HOW, certificate=True)
    return out


@pytest.fixture
def out(tmp_path, killed):
    """A copy of that folder."""
    return shutil.copytree(killed, tmp_path / "o")


def again(whole, out, **changed):
    """The same run, to its end."""
    settings = HOW | {"certificate": True} | changed
    return unmix.run(whole[0] / "s.hdr", out_dir=out, **settings)


def with_bytes(path, at, content):
    """Write over some bytes of a file."""
    raw = path.read_bytes()
    path.write_bytes(raw[:at] + content + raw[at + len(content) :])


# What is done to the maps and to the journal that a run left.
DAMAGE = {
    "part scribbled": lambda part, journal: with_bytes(part, 5000, b"\x00\x01\x02"),
    "part short": lambda part, journal: os.truncate(part, 4000),
    "part gone": lambda part, journal: part.unlink(),
    "journal scribbled": lambda part, journal: with_bytes(journal, journal.stat().st_size // 2, b"\xff"),
    "journal of nothing": lambda part, journal: journal.write_bytes(b"\xff" * 300 + b"\n"),
}


@pytest.mark.parametrize("damage", rest_slow(DAMAGE, "part scribbled", "journal scribbled"))
def test_what_is_damaged_begins_anew_and_says_so(out, whole, caplog, damage):
    DAMAGE[damage](out / "s_abundance.img.part", out / "s_run.journal.part")
    with caplog.at_level(logging.WARNING, "unmix"):
        report = again(whole, out)
    assert report["resumed_from"] == 0 and "damaged" in caplog.text and "begins anew" in caplog.text
    same(out, whole[1])


def test_an_entry_that_was_changed_is_damaged(out):
    """Where it still is one: a number of lines became another."""
    journal = out / "s_run.journal.part"
    raw = journal.read_bytes()
    changed = re.sub(rb'"lines": ?(\d)', lambda found: found[0][:-1] + b"%d" % (10 - int(found[1]) or 1), raw)
    assert changed != raw and len(changed) == len(raw)
    journal.write_bytes(changed)
    refused(ValueError, "CRC-32 of an entry", read_resume_state, journal)


@pytest.mark.parametrize("more", [b"x", b"\x00" * 3])
def test_bytes_behind_an_image_change_its_digest(tmp_path, more):
    (tmp_path / "x").write_bytes(bytes(range(40)))
    with open(tmp_path / "x", "r+b") as file:
        before = image_digest_within(file, 4)
        file.seek(0, os.SEEK_END)
        file.write(more)
        file.flush()
        assert image_digest_within(file, 4) != before


def test_a_last_entry_cut_short_does_not_count(out, whole):
    """Nor does the budget of memory."""
    journal = out / "s_run.journal.part"
    before = read_resume_state(journal)
    os.truncate(journal, journal.stat().st_size - 7)
    after = read_resume_state(journal)
    assert 0 < after.lines < before.lines
    assert again(whole, out, memory="1G")["resumed_from"] == after.lines
    same(out, whole[1])


def test_other_options_are_refused_until_overwritten(out, whole, caplog):
    for changed, words in (
        ({"seed": 1}, r"seed \(0, now 1\)"),
        ({"method": "nnls", "normalize": "length", "extract": "cone", "max_delta": 1e-5}, "max_delta"),
        ({"lines": "0:300"}, "reading"),
    ):
        refused(unmix.OutputError, f"an unfinished run differs in .*{words}", again, whole, out, **changed)
    with caplog.at_level(logging.INFO, "unmix"):
        assert again(whole, out, seed=1, overwrite=True)["resumed_from"] == 0
    assert "begins anew" in caplog.text and not list(out.glob("*.part"))


def test_a_file_system_that_is_really_full(tmp_path, whole, monkeypatch):
    """A neighbour fills a small tmpfs half-way; there is room again, and the same call ends it."""
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount a tmpfs")
    monkeypatch.setattr("unmix.runs.files.journal.FLUSH_BYTES", 1)
    try:

        def fill(step):
            if step.done >= 100 and not (small / "neighbour").exists():
                with contextlib.suppress(OSError), open(small / "neighbour", "wb", buffering=0) as file:
                    while True:
                        file.write(bytes(4096))

        refused(unmix.OutputError, "No space left", again, whole, small / "o", progress=fill)
        assert read_resume_state(small / "o" / "s_run.journal.part").lines >= 100
        assert not list((small / "o").glob("*.img"))
        (small / "neighbour").unlink()
        assert again(whole, small / "o")["resumed_from"] >= 100
        same(small / "o", whole[1])
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_what_is_done_is_skipped_where_nobody_may_write(tmp_path, whole, monkeypatch):
    """No lock is taken for it; but with other options, or beside an unfinished run, it is looked at more closely.
    Without the option it is refused, and the way to go on is named first."""
    out = tmp_path / "o"
    again(whole, out)
    refused(unmix.OutputError, "exists already; use `skip_existing`, `overwrite` or `out_dir`", again, whole, out)
    locks = []
    monkeypatch.setattr("unmix.runs.files.output_set.Lock", lambda path, call=Lock: locks.append(path) or call(path))
    assert again(whole, out, skip_existing=True)["skipped"] and not locks
    refused(unmix.OutputError, "is of another run", again, whole, out, skip_existing=True, residual=True)
    (out / "s_run.journal.part").write_bytes(b"")
    assert again(whole, out, skip_existing=True)["skipped"] and len(locks) == 1


@pytest.mark.parametrize("loss", ["gone", "short"])
def test_what_is_not_whole_is_made_again(tmp_path, whole, caplog, loss):
    """`--skip-existing` heals; but an input that has changed is another matter."""
    out = tmp_path / "o"
    again(whole, out)
    (out / "s_rmse.img").unlink() if loss == "gone" else os.truncate(out / "s_abundance.img", 1000)
    with caplog.at_level(logging.WARNING, "unmix"):
        assert again(whole, out, skip_existing=True)["certified"]
    assert "made again" in caplog.text
    same(out, whole[1])
    assert again(whole, out, skip_existing=True)["skipped"]


@pytest.mark.parametrize("report", [None, "{"])
def test_what_nothing_speaks_for_is_not_replaced(tmp_path, whole, report):
    """Files of the names of outputs, with no report, or one that cannot be read: `--skip-existing` leaves them alone."""
    out = tmp_path / "o"
    out.mkdir()
    (out / "s_rmse.img").write_text("mine")
    if report is not None:
        (out / "s_run.json").write_text(report)
    refused(unmix.OutputError, "use `out_dir`", again, whole, out, skip_existing=True)
    assert (out / "s_rmse.img").read_text() == "mine"


def test_names_that_no_system_takes_stop_nothing(odd):
    (odd / "loop").symlink_to(odd / "loop")
    names = ["x" * 300 + "_abundance.hdr", "y" * 243 + ".hdr", "loop/x.hdr", "a.hdr"]
    assert "1 done, 3 failed" in unmix_list(odd, names, *FAST, "--skip-existing", code=4)


@pytest.mark.slow
def test_who_watches_may_leave(odd):
    command = (
        f"{sys.executable} -m unmix_cli.main run {odd}/a.hdr -n 2 --extract vca --device cpu --progress json 2> "
        "/dev/full"
    )
    assert subprocess.run(["sh", "-c", command], timeout=PATIENCE).returncode == 0


def unmix_list(tmp_path, names, *words, code):
    """The command line over a list; what it said."""
    (tmp_path / "list").write_bytes(b"".join(os.fsencode(tmp_path / name) + b"\n" for name in names))
    return command("run", "--list", tmp_path / "list", "--device", "cpu", *words, code=code)[1]


@pytest.fixture
def odd(tmp_path):
    """Two sound scenes, one of a name that is no UTF-8; one of three bands; one whose data is a pipe."""
    for name, bands in (("a.hdr", 20), ("b\udce9.hdr", 20), ("few.hdr", 3), ("pipe.hdr", 20)):
        synthesise(tmp_path / name, SyntheticScene(10, 10, bands, 2, seed=1))
    (tmp_path / "pipe.img").unlink()
    os.mkfifo(tmp_path / "pipe.img")
    return tmp_path


def test_odd_scenes_stop_nothing(odd):
    """The first of the list, too; each is named, in the log as well, and the same command again does just the rest."""
    names = ["few.hdr", "a.hdr", "pipe.hdr", "b\udce9.hdr", "a.img"]
    words = ["-n", "4", "--extract", "vca", "--skip-existing", "--log-file", str(odd / "log")]
    said = unmix_list(odd, names, *words, code=4)
    assert "4 scenes: 2 done, 2 failed" in said
    log = (odd / "log").read_text()
    for text in (said, log):
        assert "few.hdr: --count 4" in text and "pipe.img: is no file" in text
    assert "b\\udce9" in log
    cubes = [path.name for path in sorted(odd.iterdir()) if path.suffix in (".hdr", ".img")]
    found = [name for name in cubes if "truth" not in name]
    said = unmix_list(odd, [*names, *found], *words, code=4)
    assert "outputs of unmix are left out" in said and "2 skipped, 3 failed" in said


@pytest.mark.slow
def test_a_full_stdout_stops_nothing(odd):
    command = (
        f"{sys.executable} -m unmix_cli.main run {odd}/a.hdr {odd}/few.hdr -n 2 --extract vca --device cpu --json > "
        "/dev/full"
    )
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1 and "lines of JSON are missing" in done.stderr and "2 done" in done.stderr


def test_a_full_log_stops_nothing(odd):
    assert unmix_list(odd, ["a.hdr", "few.hdr"], *FAST, "--log-file", "/dev/full", code=0).count("/dev/full") == 1


def test_cut_off_while_it_takes_names(tmp_path, whole, monkeypatch):
    """Some names are taken, and the process dies: the next takes the others, and computes nothing."""
    out, taken = tmp_path / "o", [0]

    def six_times(*words):
        taken[0] += 1
        if taken[0] > 6:
            raise KeyboardInterrupt
        give_name(*words)

    monkeypatch.setattr("unmix.runs.files.output_set.give_name", six_times)
    refused(KeyboardInterrupt, None, again, whole, out)
    assert not (out / "s_run.json").exists() and list(out.glob("*.img"))
    monkeypatch.setattr("unmix.runs.files.output_set.give_name", give_name)
    monkeypatch.setattr("unmix.runs.scene_run.fill", None)
    assert again(whole, out)["pixels"]["all"] == 24_000
    same(out, whole[1])


@pytest.mark.slow
def test_two_runs_at_once(tmp_path, whole):
    """One does it, the other leaves with a clear line; nothing is damaged."""
    out = tmp_path / "o"
    first = start(whole[0], out)
    wait_for(out, 20, first)
    refused(unmix.OutputError, rf"another run \(process {first.pid} on .*\) holds this scene", again, whole, out)
    first.communicate(timeout=PATIENCE)
    assert first.returncode == 0
    same(out, whole[1])


def test_locks_of_other_hosts(tmp_path):
    """One that beats is respected, one that has not for ten minutes is taken over; who lost it finds out."""
    path = tmp_path / "s_run.lock"
    path.write_text(json.dumps({"host": "elsewhere", "pid": 4}))
    refused(unmix.OutputError, "process 4 on elsewhere", Lock, path)
    os.utime(path, (time.time() - 700,) * 2)
    mine = Lock(path)
    os.utime(path, (time.time() - 700,) * 2)  # as if this one had stopped beating
    thief = Lock(path)
    refused(unmix.OutputError, "took this scene over", mine.check)
    mine.release()
    assert path.exists()
    thief.check()
    thief.release()
    assert not path.exists()
    path.write_text("no json")
    Lock(path).release()


@pytest.fixture
def archive(tmp_path):
    """Twelve scenes, of which four are broken in different ways; the list of them."""
    for i in range(12):
        synthesise(tmp_path / f"s{i:02}.hdr", SyntheticScene(6, 10, 12, 3, seed=i))
    os.truncate(tmp_path / "s01.img", 50)
    (tmp_path / "s04.hdr").write_text("ENVI\nsamples = x\n")
    (tmp_path / "s07.img").unlink()
    np.full((6, 10, 12), np.nan, "<f4").tofile(tmp_path / "s09.img")
    header = (tmp_path / "s09.hdr").read_text()
    (tmp_path / "s09.hdr").write_text(
        "\n".join("data type = 4" if line.startswith("data type") else line for line in header.splitlines())
    )
    return [tmp_path / f"s{i:02}.hdr" for i in range(12)]


@pytest.mark.parametrize("between", rest_slow(["\n", "\0"], "\0"))
def test_an_archive_from_a_list(tmp_path, archive, between):
    """What is broken is named and does not stop the others; the second time only that is tried again."""
    (tmp_path / "list").write_text(between.join(map(str, archive)) + between)
    words = ["run", *FAST, "--device", "cpu", "-o", tmp_path / "o", "--json", "--skip-existing"]
    out, said = command(*words, "--list", tmp_path / "list", code=4)
    lines = [json.loads(line) for line in out.splitlines()]
    broken = {str(archive[i]) for i in (1, 4, 7, 9)}
    assert len(lines) == 12
    assert {line["input"]["path"] for line in lines if "error" in line} == broken
    assert "12 scenes: 8 done, 4 failed" in said
    for name in broken:
        assert sum(name.removesuffix("hdr") in line for line in said.splitlines()) == 1
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "o").iterdir()}
    assert len(list((tmp_path / "o").glob("*_run.json"))) == 8 and not list((tmp_path / "o").glob("*.part"))
    _, said = command(*words, "--list", "-", input=(tmp_path / "list").read_text(), code=4)
    assert "12 scenes: 8 skipped, 4 failed" in said
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "o").iterdir()} == before


def test_a_list_that_is_none(tmp_path):
    for words, said in (([], "give at least one CUBE"), (["--list", str(tmp_path / "no")], "No such file")):
        assert said in command("run", *words, code=2)[1]


def test_data_that_was_touched_is_warned_of(tmp_path, whole, caplog):
    """The identity of a large file looks at blocks of it: where its time is another, a user is told what that may mean."""
    folder, expected, _ = whole
    copy = shutil.copytree(folder, tmp_path / "in")
    settings = HOW | {"certificate": True}
    cut_off(copy / "s.hdr", 100, out_dir=tmp_path / "o", **settings)
    os.utime(copy / "s.img", ns=(0, 0))
    report = unmix.run(copy / "s.hdr", out_dir=tmp_path / "o", **settings)
    assert report["resumed_from"] > 0 and "was written to, or copied, since" in caplog.text
    assert any("was written to" in text for text in report["warnings"])
    same(tmp_path / "o", expected)


@pytest.mark.parametrize("form", rest_slow(["geotiff", "hdf5"], "hdf5"))
def test_converting_fails_and_goes_on(tmp_path, whole, monkeypatch, form):
    """Nothing is lost where the second map does not become what it should."""
    if form == "geotiff":
        pytest.importorskip("rasterio")
    from unmix.runs.files.output_set import Outputs

    out, convert, made = tmp_path / "o", Outputs.convert, []

    def once(self, name):
        made.append(name)
        if len(made) == 2:
            raise OSError(28, "No space left on device")
        return convert(self, name)

    monkeypatch.setattr(Outputs, "convert", once)
    refused(unmix.OutputError, "No space left", again, whole, out, format=form)
    monkeypatch.setattr(Outputs, "convert", convert)
    monkeypatch.setattr("unmix.runs.scene_run.SceneRun.look", lambda *_: (None, False))  # solves a sample
    monkeypatch.setattr("unmix.devices.cpu.Cpu.submit", None)  # nothing is solved again
    report = again(whole, out, format=form)
    assert report["resumed_from"] == 400 and not list(out.glob("*.part")) and not list(out.glob("*.img"))
    assert sum(report["steps"].values()) == 24_000


def test_an_unfinished_run_is_not_run_over(tmp_path, whole):
    """By other commands; with --overwrite it is, and all of it goes."""
    from unmix.runs.files.endmembers import save_library

    folder, _, _ = whole
    cut_off(folder / "s.hdr", 100, out_dir=tmp_path / "o", **HOW, certificate=True)
    with pytest.raises(unmix.OutputError, match="an unfinished run would be lost"):
        unmix.nmf_scene(folder / "s.hdr", count=3, steps=2, out_dir=tmp_path / "o", device="cpu")
    with pytest.raises(unmix.OutputError, match="an unfinished run would be lost"):
        save_library(unmix.Endmembers(("a",), np.ones((40, 1)), None), tmp_path / "o", "s", True)
    unmix.nmf_scene(folder / "s.hdr", count=3, steps=2, out_dir=tmp_path / "o", device="cpu", overwrite=True)
    assert not list(tmp_path.rglob("*.part"))
    refused(unmix.OutputError, "is of another run", again, whole, tmp_path / "o", skip_existing=True)


def test_names_that_are_due_are_checked(tmp_path, whole, monkeypatch):
    """What somebody else wrote under a `.part` name meanwhile is not named."""
    out = tmp_path / "o"

    def never(*words):
        raise KeyboardInterrupt

    monkeypatch.setattr("unmix.runs.files.output_set.give_name", never)
    refused(KeyboardInterrupt, None, again, whole, out)
    monkeypatch.setattr("unmix.runs.files.output_set.give_name", give_name)
    (out / "s_rmse.img.part").write_bytes(b"")
    assert again(whole, out)["resumed_from"] == 0
    same(out, whole[1])


def test_who_lost_the_scene_touches_nothing(tmp_path, whole):
    """It stopped beating, another took over: it ends with a word, at the next block, and the other's files are as they were."""
    folder, out, theirs, steps = whole[0], tmp_path / "o", [], []

    def lose(step):
        steps.append(step)
        if not theirs:
            path = out / "s_run.lock"
            os.utime(path, (time.time() - 700,) * 2)
            theirs.append(Lock(path))
            (out / "s_abundance.img.part").unlink()
            (out / "s_abundance.img.part").write_bytes(b"theirs")

    refused(unmix.OutputError, "took this scene over", unmix.run, folder / "s.hdr", out_dir=out, **HOW, progress=lose)
    assert len(steps) == 1
    assert (out / "s_abundance.img.part").read_bytes() == b"theirs" and (out / "s_run.journal.part").exists()
    theirs[0].check()
    theirs[0].release()


def test_too_little_room_to_go_on_loses_nothing(tmp_path, whole, monkeypatch):
    folder, out = whole[0], tmp_path / "o"
    cut_off(folder / "s.hdr", 200, out_dir=out, **HOW, certificate=True)
    before = read_resume_state(out / "s_run.journal.part").lines
    usage = type("usage", (), {"free": 2**20})
    monkeypatch.setattr("unmix.runs.files.output_set.shutil.disk_usage", lambda _: usage)
    refused(unmix.OutputError, "are free", again, whole, out)
    assert read_resume_state(out / "s_run.journal.part").lines == before
    usage.free = 2**20 + 400 * 60 * 28 - before * 60 * 28 + 100_000  # room for the rest alone
    assert again(whole, out)["resumed_from"] == before
    same(out, whole[1])


def test_nodata_that_is_nan_is_the_same_nodata(tmp_path, whole):
    how = HOW | {"out_dir": tmp_path / "o", "nodata": float("nan")}
    cut_off(whole[0] / "s.hdr", 100, **how)
    assert unmix.run(whole[0] / "s.hdr", **how)["resumed_from"]


def test_an_input_that_shrinks_and_comes_back(tmp_path):
    """Half-way the file is cut short: one line, and what is done is kept; the same file again, and it ends."""
    synthesise(tmp_path / "s.hdr", SyntheticScene(300, 60, 40, 3, seed=1))
    settings = HOW
    unmix.run(tmp_path / "s.hdr", out_dir=tmp_path / "whole", **settings)
    image, out = tmp_path / "s.img", tmp_path / "o"
    content, stamps = image.read_bytes(), image.stat()

    def shrink(step):
        if step.done >= 100 and image.stat().st_size == len(content):
            os.truncate(image, len(content) * 2 // 3)

    refused(unmix.CubeError, r"s\.img", unmix.run, tmp_path / "s.hdr", out_dir=out, progress=shrink, **settings)
    # it is too short to be opened now, and nothing is lost by trying
    refused(unmix.CubeError, None, unmix.run, tmp_path / "s.hdr", out_dir=out, **settings)
    image.write_bytes(content)
    os.utime(image, ns=(stamps.st_atime_ns, stamps.st_mtime_ns))
    assert unmix.run(tmp_path / "s.hdr", out_dir=out, **settings)["resumed_from"] >= 100
    same(out, {name: (tmp_path / "whole" / name).read_bytes() for name in NAMES if "certificate" not in name})


def test_a_journal_of_enormous_lines_takes_no_memory(tmp_path):
    from unmix.runs.files.journal import read_whole

    (tmp_path / "x").write_bytes(b"abc")
    with (tmp_path / "x").open("rb", 0) as file:
        assert read_whole(file, 2**60) == b"abc"
