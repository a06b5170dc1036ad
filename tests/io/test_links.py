"""Names that were planted where we write: links lead nobody to overwrite what they lead to."""

import json
import os

import pytest
from click.testing import CliRunner
from conftest import refused
from test_cli import unmix as command
from together import COMMANDS
from unmix_cli.main import cli

import unmix
from unmix import devices
from unmix.commands.synth import SyntheticScene, synthesise
from unmix.errors import OutputError
from unmix.outputs.lock import Lock
from unmix.runs.files.journal import read_resume_state

SECRET = b"worth more than any map\n"


# How the runs of these tests extract their endmembers: the default would take ten times as long.
HOW = {"count": 3, "extract": "vca", "device": "cpu"}


@pytest.fixture
def cube(tmp_path):
    synthesise(tmp_path / "s.hdr", SyntheticScene(12, 20, 30, 3, seed=1))
    return tmp_path / "s.hdr"


def invoke(*words):
    """A command's error, or None, as the command line would end with it."""
    return CliRunner().invoke(cli, [str(word) for word in words], standalone_mode=False).exception


VCA = ["--extract", "vca"]


@pytest.mark.parametrize("name", ["s_run.journal.part", "s_run.lock", "s_run.json"])
def test_a_pipe_does_not_make_a_run_wait(tmp_path, cube, name):
    (tmp_path / "o").mkdir()
    os.mkfifo(tmp_path / "o" / name)
    for words in ([], ["--overwrite"], ["--skip-existing"]):
        error = invoke("run", cube, *VCA, "-n", "3", "--device", "cpu", "-o", tmp_path / "o", *words)
        assert isinstance(error, OutputError) and name in str(error), (words, error)
        assert [path.name for path in (tmp_path / "o").iterdir()] == [name]


@pytest.mark.parametrize("plant", [os.symlink, os.link], ids=["symlink", "hardlink"])
def test_a_journal_is_begun_in_a_file_of_its_own(tmp_path, cube, plant):
    victim, out = tmp_path / "victim", tmp_path / "o"
    out.mkdir()
    for content in (SECRET, b""):
        victim.write_bytes(content)
        plant(victim, out / "s_run.journal.part")
        unmix.run(cube, **HOW, out_dir=out, overwrite=True)
        assert victim.read_bytes() == content


@pytest.mark.parametrize("plant", [os.symlink, os.link], ids=["symlink", "hardlink"])
@pytest.mark.parametrize("name", ["run", "nmf", "endmembers"])
def test_a_lock_is_no_link(tmp_path, cube, plant, name):
    victim, out = tmp_path / "victim", tmp_path / "o"
    out.mkdir()
    victim.write_bytes(SECRET)
    plant(victim, out / "s_run.lock")
    if os.geteuid() == 0 and plant is os.symlink:  # another user's link, where all may make some
        out.chmod(0o1777)
        os.chown(out / "s_run.lock", 65534, 65534, follow_symlinks=False)
    error = invoke(*COMMANDS[name][0].format(i=tmp_path, o=out, v=" ".join(VCA)).split())
    assert isinstance(error, OutputError) and error.exit_code == 1 and "s_run.lock: is " in str(error)
    assert victim.read_bytes() == SECRET and [path.name for path in out.iterdir()] == ["s_run.lock"]


def test_nor_is_the_turn_to_take_one_over(tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "s_run.lock"
    victim.write_bytes(SECRET)
    first = Lock(path)
    (tmp_path / "s_run.lock.turn").symlink_to(tmp_path / "new")
    os.utime(path, (0, 0))  # nobody renews it
    refused(OutputError, "turn: is a link", Lock, path)
    first.release()
    assert not (tmp_path / "new").exists()


def test_a_journal_and_maps_to_go_on_from_are_no_links(tmp_path, monkeypatch, cube):
    """Somebody's unfinished run, which another folder's names lead to, is not gone on with from there."""

    def stop(step):
        raise KeyboardInterrupt

    monkeypatch.setattr("unmix.runs.files.journal.FLUSH_BYTES", 0)
    how = HOW
    refused(KeyboardInterrupt, None, unmix.run, cube, out_dir=tmp_path / "theirs", progress=stop, **how)
    assert read_resume_state(tmp_path / "theirs/s_run.journal.part") is not None
    before = {path.name: path.read_bytes() for path in (tmp_path / "theirs").iterdir()}
    assert "s_run.journal.part" in before and "s_abundance.img.part" in before
    for linked in ("s_run.journal.part", "s_abundance.img.part"):
        out = tmp_path / linked
        out.mkdir()
        for name in before:
            (out / name).write_bytes(before[name])
        (out / linked).unlink()
        (out / linked).symlink_to(tmp_path / "theirs" / linked)
        refused(OutputError, "is a link", unmix.run, cube, out_dir=out, **how)
    assert {path.name: path.read_bytes() for path in (tmp_path / "theirs").iterdir()} == before


def test_a_claim_that_another_planted_is_passed_over(tmp_path, monkeypatch):
    """Two GPUs: the name of the first one's claim is a link; the second one is taken, and the link's target not made."""

    monkeypatch.setattr(devices, "uuid_of", str)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(devices, "HELD", [])
    (tmp_path / f"unmix-{os.getuid()}-0.claim").symlink_to(tmp_path / "new")
    assert devices.claim_gpu.__wrapped__(2) == 1
    assert not (tmp_path / "new").exists()
    (tmp_path / f"unmix-{os.getuid()}-0.claim").unlink()
    assert devices.claim_gpu.__wrapped__(2) == 0  # the other one is held
    for file in devices.HELD:
        file.close()


root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


@root
def test_a_claim_that_another_made_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "uuid_of", str)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(devices, "HELD", [])
    path = tmp_path / f"unmix-{os.getuid()}-0.claim"
    path.write_text("")
    os.chown(path, 65534, 65534)
    assert devices.claim_gpu.__wrapped__(2) == 1
    devices.HELD[0].close()


@root
def test_a_log_file_is_no_link_of_another_s(tmp_path, cube):
    """A link of one's own is followed: today.log leads to the log of the day."""
    victim, ours, theirs = tmp_path / "victim", tmp_path / "ours.log", tmp_path / "theirs.log"
    victim.write_bytes(b"")
    for link in (ours, theirs):
        link.symlink_to(victim)
    os.chown(theirs, 65534, 65534, follow_symlinks=False)
    error = invoke("count", cube, "--log-file", theirs)
    assert isinstance(error, OutputError) and "another user made" in str(error) and victim.read_bytes() == b""
    assert invoke("count", cube, "-v", "--log-file", ours) is None


@root
def test_no_output_is_written_into_a_file_of_another_s(tmp_path, cube):
    """Who made a work file beforehand would own what becomes of it, and could change it afterwards."""
    clean, out = tmp_path / "clean", tmp_path / "o"
    unmix.run(cube, **HOW, out_dir=clean)
    out.mkdir()
    out.chmod(0o1777)
    for name in os.listdir(clean):
        (out / f"{name}.part").write_bytes(b"")
        (out / f"{name}.part").chmod(0o666)
        os.chown(out / f"{name}.part", 65534, 65534)
    unmix.run(cube, **HOW, out_dir=out)
    assert {path.name for path in out.iterdir()} == set(os.listdir(clean))
    assert {path.stat().st_uid for path in out.iterdir()} == {0}


def test_a_folder_that_strangers_may_write_to(tmp_path, cube):
    """What another user left there under a name of ours, where it cannot be removed: one line, exit 1, nothing half-written."""
    out = tmp_path / "o"
    out.mkdir()
    theirs = out / "s_run.json.part"
    theirs.mkdir()  # what cannot be unlinked, for root too
    words = ["run", cube, "-n", "3", *VCA, "--device", "cpu", "-q", "-o", out]
    _, told = command(*words, code=1)
    assert len(told.splitlines()) == 1 and "s_run.json.part" in told
    assert not (out / "s_run.json").exists() and not (out / "s_abundance.img").exists()
    theirs.rmdir()
    assert json.loads(command(*words, "--json")[0])["certified"]
