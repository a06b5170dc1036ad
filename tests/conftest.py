"""Fixtures that all tests share: devices, real scenes, small scenes."""

import contextlib
import gc
import json
import logging
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from numba.core import event

import unmix
from unmix.commands.synth import SyntheticScene, synthesise
from unmix.commands.verify import verify
from unmix.devices import count_gpus, simulated
from unmix.io import bytes_per_line, open_cube
from unmix.io.cube import by_pixel
from unmix.outputs.digests import image_digest_within, record_digest
from unmix.runs.files.finished import FinishedRun

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take most of a GPU that tests share
# What the tests import makes half a million objects: to look through them for circles, as often as Python does, took a
# tenth of the time of all tests. Objects made between two looks at the youngest.
gc.set_threshold(50_000)
# A shell without job control lets what it starts in its background ignore SIGINT; what tests start and interrupt would
# inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
DATA = Path(
    os.environ.get("UNMIX_DATA", Path(__file__).parents[2] / "shared" / "data")
).resolve()  # a test may change the folder
# The quick tier draws the same few examples each time and keeps none; the full tier draws a hundred others, from the
# seed that make prints, and prints how to draw a failing one again.
settings.register_profile("quick", derandomize=True, database=None, max_examples=30, deadline=None)
settings.register_profile("full", print_blob=True, deadline=None)
settings.load_profile("quick")
# Seconds that a test waits for another process before it takes it for hung: shared machines are three times slower some
# days.
PATIENCE = 600


class Hangs(BaseException):
    """A call did not end within `PATIENCE`; no Exception, which a command would turn into its own."""


@contextlib.contextmanager
def patience(what):
    """Raise `Hangs` where a block of this thread does not end."""

    def hangs(*_):
        raise Hangs(what)

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def wait_until(is_so, process=None):
    """Wait until something is so; fail where a process ends before, or `PATIENCE` does."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert process is None or process.poll() is None, process.stderr.read()
        assert time.monotonic() < end, "it never was"
        time.sleep(0.005)


STRICT = os.environ.get("UNMIX_REQUIRE_DATA") == "1"

if simulated():
    import simulated_warps

    simulated_warps.install()


# The quick tier, and the most functions that two processes may compile for it from nothing, those that a function calls
# as well: 628 were counted. Each takes 0.15 s.
QUICK, MOST_COMPILED = "not slow and not real", 740


def rest_slow(values, *quick, mark=pytest.mark.slow):
    """The values of a parameter, or tuples of those of several, of which the quick tier takes these alone."""
    rows = {value: value if isinstance(value, tuple) else (value,) for value in values}
    return [value if value in quick else pytest.param(*row, marks=mark) for value, row in rows.items()]


def at_night(values, *kept):
    """The values of a parameter of a slow test, of which each CI takes these alone, and the night the others."""
    return rest_slow(values, *kept, mark=pytest.mark.night)


class Compiled(event.Listener):
    """Count the functions that are compiled in this process and in those of pytest-xdist."""

    count = 0

    def on_start(self, event):
        """Do nothing."""

    def on_end(self, event):
        """Count a function."""
        Compiled.count += 1


event.register("numba:compile", Compiled())


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """Add what a process of pytest-xdist has compiled."""
    Compiled.count += getattr(node, "workeroutput", {}).get("compiled", 0)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """Tell the first process what this one has compiled; the quick tier fails where that is too much."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["compiled"] = Compiled.count
    elif session.config.option.markexpr == QUICK and Compiled.count > MOST_COMPILED:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    """Say how much was compiled."""
    most = f", at most {MOST_COMPILED} are allowed" if config.option.markexpr == QUICK else ""
    terminalreporter.write_line(f"{Compiled.count} functions compiled{most}")


def pytest_configure(config):
    """Of a NaN in a pixel numpy warns where kernels run as plain Python; compiled they say nothing, and such pixels are masked."""
    if simulated():
        config.addinivalue_line(
            "filterwarnings", r"ignore:invalid value encountered in scalar:RuntimeWarning:unmix\.(compiled|solvers)\."
        )


def pytest_collection_modifyitems(items):
    """The simulator runs what is marked for it, on CUDA alone; without a GPU the CUDA cases are left to it."""
    for item in items:
        if simulated() and "sim" not in item.keywords:
            item.add_marker(pytest.mark.skip(reason="too slow for the CUDA simulator"))
        if "gpu" in item.keywords and (simulated() or not count_gpus()):
            item.add_marker(pytest.mark.skip(reason="no CUDA GPU here"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """File names that are no UTF-8 are part of what some tests print; a parallel run cannot pass them on."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    """Every kind of device; the same tests run on each."""
    if request.param == "cpu" and simulated():
        pytest.skip("the simulator is for CUDA")
    if request.param == "cuda" and not count_gpus():
        pytest.skip("no CUDA GPU here; `make test-sim` runs this in the simulator")
    return request.param


@pytest.fixture(autouse=True)
def quiet_log():
    """Handlers that a command set up must not outlive its test."""
    yield
    log = logging.getLogger("unmix")
    log.handlers = []
    log.setLevel(logging.NOTSET)


# Tests of files that may be damaged, which are opened in a child process first.
IN_CHILDREN = ("test_damage.py", "test_hdf5.py", "test_archive.py")


@pytest.fixture(autouse=True)
def opened_here(request, monkeypatch):
    """Open HDF5 files without the child, whose fork of so large a process takes 20 ms, where damage is not the subject."""
    if request.path.name not in IN_CHILDREN:
        for module in ("matlab", "products"):
            monkeypatch.setattr(f"unmix.io.formats.{module}.survives", lambda *_: None)


# Tests of what is on the disk, and when: there files are flushed as in runs.
FLUSHED = ("test_faults.py", "test_publish.py", "test_resume.py", "test_jit.py")


@pytest.fixture(autouse=True)
def not_flushed(request, monkeypatch):
    """Flush no file elsewhere: no test outlives a power failure, and each of the ten flushes of a run takes 4 ms."""
    if request.path.name not in FLUSHED:
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, lambda descriptor: None)


@pytest.fixture
def data():
    """The folder of real data; skips, or fails under `make test-real`, where it is absent."""
    if not DATA.is_dir():
        (pytest.fail if STRICT else pytest.skip)(f"no real data at {DATA}; set UNMIX_DATA")
    return DATA


@pytest.fixture
def scene(tmp_path):
    """A small noisy scene with truth: its header."""
    synthesise(tmp_path / "scene.hdr", SyntheticScene(lines=7, samples=70, bands=20, count=4, seed=3))
    return tmp_path / "scene.hdr"


def in_header(value):
    """A value as ENVI has it: numbers of an array in braces."""
    return "{" + ", ".join(map(str, value)) + "}" if isinstance(value, np.ndarray | list | tuple | range) else value


def write_cube(path, cube, interleave="bip", order="<", **fields):
    """Write a cube (lines, samples, bands) as ENVI; ``fields`` with underscores for spaces go into the header, lists as they are."""
    codes = {"uint8": 1, "int16": 2, "int32": 3, "float32": 4, "float64": 5, "uint16": 12, "uint32": 13}
    codes |= {"int64": 14, "uint64": 15}
    axes = {"bip": (0, 1, 2), "bil": (0, 2, 1), "bsq": (2, 0, 1)}[interleave]
    lines, samples, bands = cube.shape
    prefix = b"\xab" * int(fields.get("header_offset", 0))
    stored = np.ascontiguousarray(cube.transpose(axes)).astype(cube.dtype.newbyteorder(order))
    path.with_suffix(".img").write_bytes(prefix + stored.tobytes())
    header = {
        "samples": samples,
        "lines": lines,
        "bands": bands,
        "data type": codes[cube.dtype.name],
        "interleave": interleave,
        "byte order": int(order == ">"),
    } | {key.replace("_", " "): in_header(value) for key, value in fields.items()}
    path.write_text("ENVI\n" + "".join(f"{key} = {value}\n" for key, value in header.items()))
    return path


def write_csv(path, E, wavelengths=None, **columns):
    """Write endmembers (L, p) as CSV; ``names``, ``classes`` and further columns of text if they are given."""
    axis = wavelengths if wavelengths is not None else range(1, len(E) + 1)
    names = columns.pop("names", [f"em {j + 1}" for j in range(E.shape[1])])
    heads = ["class" if head == "classes" else head for head in columns]
    rows = [",".join(["name", *heads, *map(str, axis)])]
    rows += [",".join([*text, *map(repr, e)]) for *text, e in zip(names, *columns.values(), E.T.astype(float).tolist())]
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def cube_writer():
    return write_cube


def mix(seed, shape, bands, count, between=(0.1, 0.9), noise=0.0, alpha=1.0, dtype=float):
    """Draw spectra (bands, count) and mixtures of them (*shape, bands), with noise; return the generator, spectra and mixtures."""
    random = np.random.default_rng(seed)
    E = random.uniform(*between, (bands, count))
    Y = random.dirichlet(np.full(count, alpha), shape) @ E.T
    return random, E, (Y + noise * random.standard_normal(Y.shape) if noise else Y).astype(dtype)


# Of `setting`.
LINES, SAMPLES, L, P = 3, 6, 24, 5
KINDS = ("soil", "tree", "soil", "npv", "tree")


@pytest.fixture
def setting(tmp_path):
    """A scene without noise, endmembers, the noise of its bands, and a library with classes."""
    random = np.random.default_rng(0)
    E = random.random((L, P)) + 0.1
    A = random.dirichlet(np.full(P, 0.6), (LINES, SAMPLES)) * random.uniform(0.6, 0.95, (LINES, SAMPLES, 1))
    sigma = random.uniform(0.002, 0.008, L)
    write_csv(tmp_path / "library.csv", E, names=[f"e{j}" for j in range(P)], classes=KINDS)
    (tmp_path / "noise.csv").write_text("band,sigma\n" + "".join(f"{b},{v!r}\n" for b, v in enumerate(sigma.tolist())))
    return tmp_path, E, A @ E.T, sigma


def cut_off(scene, line, error=KeyboardInterrupt, **settings):
    """Run a scene, and cut the run off once so many lines are done."""

    def report(step):
        if step.done >= line:
            raise error

    with pytest.raises(error):
        unmix.run(scene, progress=report, **settings)


def refused(error, words, call, /, *arguments, **settings):
    """Expect that a call is refused with an error whose text matches ``words`` (any, where None); return what pytest says of it."""
    with pytest.raises(error, match=words) as found:
        call(*arguments, **settings)
    return found


def read_values(cube, lines=None):
    """The stored values of a cube, or of the file of one, (lines, samples, bands)."""
    cube = open_cube(cube) if isinstance(cube, Path) else cube
    lines = lines or slice(0, cube.lines)
    raw = cube.read(lines, np.empty((lines.stop - lines.start) * bytes_per_line(cube), np.uint8))
    return by_pixel(raw, cube.interleave).copy()


def read_map(stem, name):
    """The values of a map of a run, in any format, (lines, samples, bands)."""
    return read_values(FinishedRun.of(stem).open(name))


def falsify(stem, name, lines, change, kind="<f4"):
    """Let ``change`` alter the values of a map in place, and give the record the digest that it has then."""
    path = stem.with_name(f"{stem.name}_{name}.img")
    values = np.fromfile(path, kind)
    change(values)
    values.tofile(path)
    with path.open("rb") as file:
        digest = image_digest_within(file, lines)
    falsify_record(stem, lambda report: report["digests"].update({path.name: digest}))


def falsify_record(stem, change):
    """Let ``change`` alter a run's record in place, and give it the digest that it has then."""
    record = stem.with_name(f"{stem.name}_run.json")
    report = json.loads(record.read_text())
    change(report)
    report["digest"] = record_digest(report)
    record.write_text(json.dumps(report))


def verify_tells(stem, name, lines, change, kind="<f4", fault="does not match the cube"):
    """Expect that `verify` has nothing to say of a run, and tells of a map that was altered as by `falsify`."""
    assert verify(stem, everything=True).faults == []
    falsify(stem, name, lines, change, kind)
    faults = verify(stem, everything=True).faults
    assert any(fault in one for one in faults), faults


@pytest.fixture
def noise_cube(setting):
    """Noise of each pixel, as stored numbers with a scale, some missing; and as it is, (LINES, SAMPLES, L)."""
    folder, _, _, sigma = setting
    noise = sigma * np.random.default_rng(8).uniform(0.5, 2.0, (LINES, SAMPLES, L))
    stored = np.round(noise * 1e6).astype(np.int32)
    stored[1, 1, 3], stored[2, 0, 0], stored[0, 2] = -9999, 0, -9999
    path = write_cube(folder / "noise.hdr", stored, "bsq", data_ignore_value=-9999, reflectance_scale_factor=1e6)
    return path, np.where(stored > 0, stored * 1e-6, np.nan)
