"""A disk that fails, at every write of every format: one line, nothing under a final name, and the right bytes when it works again."""

import errno
import itertools
import os
import resource
import subprocess
import sys

import numpy as np
import pytest
from conftest import refused, rest_slow

import unmix
from unmix.commands.synth import SyntheticScene, synthesise
from unmix.runs.files.endmembers import save_library
from unmix.runs.files.output_set import Outputs

# Maps without a place on the map, by rasterio.
pytestmark = pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
FORMATS = ("envi", "geotiff", "hdf5")
RECORDS = ("_run.json", ".journal.part", ".lock")


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A small scene with a library of its own."""
    folder = tmp_path_factory.mktemp("scene")
    synthesise(folder / "s.hdr", SyntheticScene(lines=24, samples=12, bands=10, count=3, seed=2))
    return folder


def run(scene, out, form):
    """In a few blocks, with an entry of the journal for each."""
    return unmix.run(
        scene / "s.hdr",
        endmembers=scene / "s_truth_endmembers.csv",
        out_dir=out,
        format=form,
        device="cpu",
        memory="12K",
        streams=1,
    )


def outputs(out):
    """Every output with its bytes, but for what has times in it."""
    return {path.name: path.read_bytes() for path in out.glob("*") if not path.name.endswith(RECORDS)}


@pytest.fixture(scope="module")
def whole(scene, tmp_path_factory):
    """The outputs of runs that nothing disturbs, by format."""
    found = {}
    for form in FORMATS:
        if form == "geotiff":
            pytest.importorskip("rasterio")
        out = tmp_path_factory.mktemp("whole") / form
        run(scene, out, form)
        found[form] = outputs(out)
    return found


class Fault:
    """Calls of the system that fail from the n-th on, or only then; ``met`` says whether it came to that."""

    def __init__(self, monkeypatch, names, number, after, once):
        self.number, self.after, self.once, self.left, self.met = number, after, once, after, False
        for name in names:
            monkeypatch.setattr(os, name, self.instead_of(getattr(os, name)))

    def instead_of(self, call):
        def failing(*words):
            self.left -= 1
            if self.left == -1 or (self.left < -1 and not self.once):
                self.met = True
                raise OSError(self.number, os.strerror(self.number))
            return call(*words)

        return failing


def survives(scene, out, form, whole, fault):
    """A run under a fault, and then one without it; returns whether the fault was met."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        met = fault(monkeypatch)
        try:
            run(scene, out, form)
        except unmix.OutputError as error:
            assert error.exit_code == 1 and "writing failed: " in str(error) and "\n" not in str(error)
            assert not [path for path in out.glob("*") if not path.name.endswith(".part")], str(error)
    if not (out / "s_run.json").exists():
        run(scene, out, form)
    assert outputs(out) == whole[form]
    return met()


@pytest.mark.parametrize("calls", [("pwrite",), ("fsync", "fdatasync")], ids=["writes", "flushes"])
@pytest.mark.parametrize(("form", "each"), rest_slow([("envi", 1), *((form, 3) for form in FORMATS)], ("envi", 3)))
def test_every_write_fails_once(tmp_path, scene, whole, monkeypatch, form, each, calls):
    """One by one, of other formats one in three, in turn by an error that passes and by a disk that is full from then on."""
    monkeypatch.setattr("unmix.runs.files.journal.FLUSH_BYTES", 1)
    for after in range(0, 1000, each):
        number, once = ((errno.EIO, True), (errno.ENOSPC, False))[after % 2]

        def fault(patch, after=after, number=number, once=once):
            made = Fault(patch, calls, number, after, once)
            return lambda: made.met

        if not survives(scene, tmp_path / str(after), form, whole, fault):
            assert after > 10
            return
    raise AssertionError("it never ended")


def test_a_file_that_cannot_be_closed_late_is_a_warning(tmp_path, scene, whole, monkeypatch, caplog):
    """As network file systems tell of errors: all files have been flushed and have their names by then."""
    publish = Outputs.publish

    def lose(outputs, *given):
        publish(outputs, *given)
        for raster in outputs.rasters.values():
            os.close(raster.file.fileno())

    monkeypatch.setattr(Outputs, "publish", lose)
    assert run(scene, tmp_path / "o", "envi")["certified"]
    assert outputs(tmp_path / "o") == whole["envi"] and "s_abundance.img.part: closing it failed" in caplog.text


def test_a_folder_that_has_the_name_of_the_lock_is_named(tmp_path, scene):
    (tmp_path / "o/s_run.lock/mine").mkdir(parents=True)
    refused(unmix.OutputError, r"o/s_run\.lock: cannot write here: Is a directory", run, scene, tmp_path / "o", "envi")
    assert (tmp_path / "o/s_run.lock/mine").exists()


def test_everything_is_on_the_disk_before_it_is_said_to_be(tmp_path, scene, monkeypatch):
    """Rasters before the entry of the journal that counts their lines, each entry at once, and the folder after the last name."""
    monkeypatch.setattr("unmix.runs.files.journal.FLUSH_BYTES", 1)
    seen = []

    def noted(call, what):
        def instead(descriptor, *words):
            seen.append((what, os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))))
            return call(descriptor, *words)

        return instead

    for name, what in (("fsync", "flush"), ("fdatasync", "flush"), ("pwrite", "write")):
        monkeypatch.setattr(os, name, noted(getattr(os, name), what))
    run(scene, tmp_path / "o", "envi")
    journal, rasters = "s_run.journal.part", {"s_abundance.img.part", "s_rmse.img.part"}
    entries = [i for i, one in enumerate(seen) if one == ("write", journal)]
    assert len(entries) > 3 and all(seen[i + 1] == ("flush", journal) for i in entries)
    for begin, end in itertools.pairwise(entries):
        written = {name for what, name in seen[begin:end] if what == "write"} & rasters
        assert written <= {name for what, name in seen[begin:end] if what == "flush"}
    assert ("flush", "o") in seen[entries[-1] :]


def limited(limit):
    """From when all lines are written, no file may be larger: headers, libraries, records, and what maps are converted to."""

    def fault(patch):
        finish, before = Outputs.finish, resource.getrlimit(resource.RLIMIT_FSIZE)

        def failing(self, report):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))  # Python ignores the signal: EFBIG
            try:
                finish(self, report)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)

        patch.setattr(Outputs, "finish", failing)
        return lambda: True

    return fault


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.slow
def test_every_size_is_too_large(tmp_path, scene, whole, form):
    largest = max(map(len, whole[form].values()))
    for limit in range(0, largest, max(1, largest // 12)):
        survives(scene, tmp_path / str(limit), form, whole, limited(limit))


@pytest.mark.parametrize("limit", [120, 600])
def test_a_library_is_whole_or_not_there(tmp_path, limit):
    """C's own buffers say nothing of a full disk when they are closed: an empty library would take its name."""
    E = unmix.Endmembers(("a", "b"), np.random.default_rng(0).random((60, 2)), None)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        refused(unmix.OutputError, "File too large", save_library, E, tmp_path, "s", False)
        refused(OSError, "File too large", E.write, None, tmp_path / "x.sli", tmp_path / "x.hdr")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.glob("s_*"))


# What once ended the process: the library has buffers to write when it is closed.
CRASH = """
import resource, sys, unmix
from unmix.runs.files.output_set import Outputs
convert, before = Outputs.convert, resource.getrlimit(resource.RLIMIT_FSIZE)
def failing(self, name):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), before[1]))
    try:
        return convert(self, name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
Outputs.convert = failing
try:
    unmix.run(sys.argv[1], count=3, out_dir=sys.argv[2], format="hdf5", device="cpu")
except unmix.OutputError as error:
    print(error)
"""


@pytest.mark.slow
def test_hdf5_does_not_end_the_process(tmp_path, scene):
    done = subprocess.run(
        [sys.executable, "-c", CRASH, str(scene / "s.hdr"), str(tmp_path), "2000"], capture_output=True, text=True
    )
    assert done.returncode == 0 and "s_abundance.h5: writing failed: File too large" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", rest_slow([errno.EIO, errno.ENOSPC]))
def test_answers_in_hdf5(tmp_path, monkeypatch, number):
    solve_files = pytest.importorskip("unmix.features.systems.files").solve_files
    np.save(tmp_path / "a.npy", np.random.default_rng(0).random((6, 4)))
    np.save(tmp_path / "b.npy", np.random.default_rng(1).random((50, 6)))
    out = tmp_path / "x.h5"
    for after in range(100):
        with pytest.MonkeyPatch.context() as patch:
            fault = Fault(patch, ("pwrite", "fsync"), number, after, False)
            try:
                solve_files(tmp_path / "a.npy", tmp_path / "b.npy", out, device="cpu", memory="1K")
            except unmix.OutputError as error:
                assert os.strerror(number) in str(error) and not out.exists() and not list(tmp_path.glob("*.part"))
        if not fault.met:
            return
    raise AssertionError("it never ended")


@pytest.mark.slow
def test_answers_on_a_full_disk(tmp_path):
    """A mapped file of holes would end the process with SIGBUS when it is written to: its room is taken first."""
    np.save(tmp_path / "a.npy", np.eye(4))
    np.save(tmp_path / "b.npy", np.ones((5000, 4)))
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("only root may mount a tmpfs")
    try:
        words = (
            f"from unmix.features.systems.files import *; solve_files('a.npy', 'b.npy', Path('small/x{'{}'}'), "
            "device='cpu')"
        )
        for ending in (".npy", ".h5"):
            done = subprocess.run(
                [sys.executable, "-c", words.format(ending)], cwd=tmp_path, capture_output=True, text=True
            )
            assert done.returncode == 1 and "OutputError" in done.stderr.splitlines()[-1] and "No space" in done.stderr
            assert not list(small.iterdir())
    finally:
        subprocess.run(["umount", str(small)], check=True)
