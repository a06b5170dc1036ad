"""The cache of compiled code: kept between runs, and safe where Numba's own is not."""

import compileall
import json
import os
import pickle
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import NamedTuple

import numba
import pytest
from conftest import PATIENCE, refused

from unmix.commands.synth import SyntheticScene, synthesise
from unmix.compiled import cache, trust
from unmix.compiled.cache import files_of, key_of, safe_folder, sources_of
from unmix.devices import simulated

pytestmark = pytest.mark.skipif(simulated(), reason="nothing is compiled in the simulator")
PACKAGE = Path(__file__).parents[2] / "unmix"
STRANGER, VICTIM = 65534, 1234
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


# A package of the same `cache.py` whose kernel compiles in a tenth of a second, where that of `unmix` takes five: a
# closure over one of two functions of another file. It solves 8.0 with the first, 2.0 with the second.
TOY = {
    "__init__.py": "",
    "numbers.py": "FACTOR = 1.0\n",
    "pair.py": "from typing import NamedTuple\nclass Pair(NamedTuple):\n    first: float\n    second: float\n",
    "rules.py": """
from .compiled.jit import compiled
@compiled
def active_set(y):
    return 2.0 * y
@compiled
def delete_only(y):
    return 0.5 * y
""",
    "kernel.py": """
import functools
from . import rules
from .compiled.jit import compiled
from .numbers import FACTOR
@functools.cache
def solver_of(name):
    rule = getattr(rules, name)
    @compiled
    def solve(y, pair, out):
        out[0] = FACTOR * rule(y[0]) + pair.first
    return solve
""",
}
SCRIPT = """
import numpy as np
from unmix.kernel import solver_of
from unmix.pair import Pair
kernel, out = solver_of("{solver}".replace("-", "_")), np.zeros(1)
kernel(np.array([4]).astype("{dtype}"), Pair(first=0.0, second=1.0), out)
print(out[0])
print(sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values()))
"""


@pytest.fixture
def toy(tmp_path):
    return toy_in(tmp_path / "toy")


def toy_in(folder):
    """Write the toy package; return its folder."""
    package = folder / "unmix"
    package.mkdir(parents=True)
    for name, text in TOY.items():
        (package / name).write_text(text)
    shutil.copytree(PACKAGE / "compiled", package / "compiled", ignore=shutil.ignore_patterns("__pycache__"))
    return package


def start(environment, package, dtype="float64", solver="active-set", first=""):
    script = first + SCRIPT.format(dtype=dtype, solver=solver)
    base = {"PATH": os.environ["PATH"], "PYTHONPATH": str(package.parent)}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", script],
        env=base | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
    )


def finish(process, said=""):
    """Return what a process printed, and its hits and misses of the cache."""
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and "Traceback" not in err and err.count(said or "\0") == bool(said), err
    answer, counts = out.splitlines()
    return answer, tuple(map(int, counts.split()))


def run(*words, said="", **more):
    """Solve in a process of its own, which says something once."""
    return finish(start(*words, **more), said)


@pytest.mark.slow
def test_compiled_once(tmp_path, toy):
    environment = {"HOME": str(tmp_path)}
    assert run(environment, toy) == ("8.0", (0, 1)) and run(environment, toy) == ("8.0", (1, 0))
    # A closure over another solver, of the same type, is another function.
    assert run(environment, toy, solver="delete-only") == ("2.0", (0, 1))
    assert run(environment, toy) == ("8.0", (1, 0))
    assert (tmp_path / ".cache/unmix").is_dir()


def edit(file, old, new):
    assert file.read_text().count(old) == 1
    file.write_text(file.read_text().replace(old, new))
    later = file.stat().st_mtime + 2  # Python's own cache knows a file by its size and the second of its change
    os.utime(file, (later, later))


@pytest.mark.parametrize(
    ("file", "old", "new", "variable", "answer"),
    [
        # Numba's own cache would go on with the old code: the edited file is not the one that holds the kernel.
        ("rules.py", "2.0 * y", "0.125 * y", {}, "0.5"),
        pytest.param("numbers.py", "1.0", "3.25", {}, "26.0", marks=pytest.mark.slow),
        # Machine code holds the numbers of fields, and the signature only the name of their class, which the kernel
        # does not import.
        pytest.param(
            "pair.py",
            "first: float\n    second: float",
            "second: float\n    first: float",
            {},
            "8.0",
            marks=pytest.mark.slow,
        ),
        pytest.param(None, "", "", {"NUMBA_BOUNDSCHECK": "1"}, "8.0", marks=pytest.mark.slow),
        pytest.param(
            None, "", "", {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}, "8.0", marks=pytest.mark.slow
        ),
    ],
    ids=["callee", "constant", "fields", "settings", "processor"],
)
@pytest.mark.slow
def test_whatever_changes_is_compiled_again_beside_the_old(tmp_path, toy, file, old, new, variable, answer):
    plain = {"HOME": str(tmp_path)}
    assert run(plain, toy) == ("8.0", (0, 1))
    if file is not None:
        edit(toy / file, old, new)
    assert run(plain | variable, toy) == (answer, (0, 1)) and run(plain | variable, toy) == (answer, (1, 0))
    if file is not None:
        edit(toy / file, new, old)
    assert run(plain, toy) == ("8.0", (1, 0))


# The package is updated after the process has imported it, and before it compiles. The new file has another size:
# Python takes its bytecode for that of a source with the same second and size.
UPDATED = """
import unmix.kernel, pathlib
file = pathlib.Path(unmix.kernel.__file__).with_name("{file}")
file.{how}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "how", "answer"),
    [
        ("rules.py", "write_text(file.read_text().replace('2.0 * y', '3.25 * y'))", "13.0"),
        # None of its functions are called. Of another size: Python takes a .pyc of the same second and size for that of
        # the new source.
        ("numbers.py", "write_text('FACTOR = 3.2500')", "26.0"),
        ("rules.py", "unlink()", None),
    ],
)
def test_an_update_under_a_running_process(tmp_path, toy, file, how, answer):
    """It has the old code, and finds the new sources: what it compiled was kept as the code of these, for good."""
    environment, said = {"HOME": str(tmp_path)}, "was updated while this process ran: what is compiled is not kept"
    assert run(environment, toy, first=UPDATED.format(file=file, how=how), said=said) == ("8.0", (0, 1))
    if answer is not None:
        assert run(environment, toy) == (answer, (0, 1))


def with_links(toy, tmp_path):
    """A part of the package is a link to a folder beside it, and one leads round."""
    (toy / "compiled").rename(tmp_path / "elsewhere")
    (toy / "compiled").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/round").symlink_to(toy)
    (tmp_path / "elsewhere/again").symlink_to(toy)
    (toy / ".#rules.py").symlink_to("an editor's")


def without_sources(toy, tmp_path):
    """Its code has no name, so it is compiled each time."""
    compileall.compile_dir(toy, quiet=1, legacy=True)
    for source in toy.rglob("*.py"):
        source.unlink()


def with_letters(toy, tmp_path):
    """Sources hold letters that ASCII has not."""
    (toy / "numbers.py").write_text("FACTOR = 1.0  # κ\n", encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "counts"), [(with_links, (1, 0)), (without_sources, (0, 1)), (with_letters, (1, 0))]
)
def test_installations_that_are_unlike_others(tmp_path, toy, change, counts):
    change(toy, tmp_path)
    plain = {"HOME": str(tmp_path), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert run(plain, toy) == ("8.0", (0, 1)) and run(plain, toy) == ("8.0", counts)


@pytest.mark.slow
def test_installations_share_their_code(tmp_path):
    """Of the same version, at other paths: each user's own environment loads what an administrator has compiled."""
    for name, counts in (("one", (0, 1)), ("two", (1, 0))):
        assert run({"HOME": str(tmp_path)}, toy_in(tmp_path / name)) == ("8.0", counts)


def test_what_a_file_s_code_depends_on():
    """All that it imports and no more: an edit in `nmf` leaves the code of `pixels` warm."""
    pixels = {str(path.relative_to(PACKAGE)) for path in sources_of(PACKAGE / "solvers/pixels/cpu.py")}
    assert {"certificate.py", "compiled/jit.py", "solvers/pixels/inverse_update.py"} <= pixels
    assert not [name for name in pixels if name.startswith(("solvers/nmf", "solvers/bands", "jobs", "io"))]
    own = sources_of(PACKAGE / "endmembers/passes.py")
    assert {PACKAGE / "endmembers/passes.py", PACKAGE / "compiled/jit.py"} <= set(own)
    assert key_of(sources_of(PACKAGE / "solvers/pixels/cpu.py")) != key_of(own)
    assert PACKAGE / "runs/scene_run.py" in sources_of(Path(__file__))


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="without compiled code there is nothing to keep")
def test_a_function_that_was_handed_over_counts_at_any_depth():
    """An edited function was not seen by the loops that call it two functions further: they kept the code with the old one in it."""
    from unmix.compiled.jit import WIDE
    from unmix.solvers.pixels.mesma.search import models_function

    files = {path.name for path in files_of(models_function(WIDE).py_func)}
    assert {"optimum.py", "search.py"} <= files


def test_fields_at_any_depth():
    one, two = (NamedTuple("Pair", [(name, float) for name in names]) for names in ("xy", "yx"))

    def signature(pair):
        kind = numba.typeof(pair(1.0, 2.0))
        return numba.types.Tuple((numba.int64, numba.types.UniTuple(kind, 3))), numba.int64

    assert str(signature(one)) == str(signature(two))
    assert cache.fields_in(signature(one)) == {(one.__qualname__, "x", "y")} != cache.fields_in(signature(two))


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder for the code of this process, which looks for its folders anew, and counts anew."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("UNMIX_CACHE_DIR", raising=False)
    for name in ("cache_folder", "common_folder", "remove_unused"):
        monkeypatch.setattr(cache, name, getattr(cache, name).__wrapped__)
    monkeypatch.setattr(cache, "WATCH", cache.CompileWatch())
    return tmp_path / "home/unmix"


def store():
    return cache.CodeStore(store, pickle.dumps)


def refuse(*_):
    raise OSError(28, "No space left on device")


def stop(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize(("call", "fault"), [("fsync", refuse), ("replace", refuse), ("fsync", stop)])
@pytest.mark.parametrize(
    "damage", [lambda content: b"", lambda content: content[:-1], lambda content: bytes(len(content))]
)
def test_what_cannot_be_written_is_not_there(own, monkeypatch, caplog, call, fault, damage):
    """On a full disk, after a power failure or Ctrl-C: no half of a file, and the others stay; who keeps nothing is warned once."""
    for key in ("int64", "int32"):
        store().save(key, f"code of {key}")
    file = own / store().path_of("int32")[0]
    file.write_bytes(damage(file.read_bytes()))
    with monkeypatch.context() as full:
        full.setattr(os, call, fault)
        for _ in range(2):
            if fault is stop:
                refused(KeyboardInterrupt, None, lambda: store().save("int32", "code of int32"))
            else:
                store().save("int32", "code of int32")
    assert store().load("int32") is None and store().load("int64") == "code of int64"
    assert len(list(file.parent.iterdir())) == 2
    assert caplog.text.count("No space left on device: what is compiled is not kept") == (fault is refuse)
    assert len(cache.WATCH.lost) == 2 * (fault is refuse)
    store().save("int32", "code of int32")
    assert store().load("int32") == "code of int32"


def test_a_file_holds_what_its_name_says(own):
    """One that was copied over another is not loaded; what is made again, where a program tidied up, is private."""
    before = os.umask(0o002)
    try:
        store().save(("int64", 1), "code")
    finally:
        os.umask(before)
    file, other = (own / store().path_of((name, 1))[0] for name in ("int64", "int32"))
    assert store().load(("int64", 1)) == "code" and store().load(("int32", 1)) is None
    modes = [path.stat().st_mode & 0o777 for path in (file, file.parent, own, own.parent)]
    assert modes == [0o600, 0o700, 0o700, 0o700]
    shutil.copy(file, other)
    assert store().load(("int32", 1)) is None


class Evil:
    """Code that runs when it is loaded."""

    def __reduce__(self):
        return os.system, ('touch "$EVIL"',)


def chown(path):
    os.chown(path, VICTIM, VICTIM, follow_symlinks=False)


def to_link(path):
    path.rename(path.with_name("other"))
    path.symlink_to(path.with_name("other"))


def to_pipe(path):
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("change", "of_folder"),
    [
        (lambda path: path.chmod(0o622), False),
        (to_link, False),
        (to_pipe, False),
        pytest.param(chown, False, marks=root),
        (lambda path: path.chmod(0o770), True),
        (lambda path: path.chmod(0o1777), True),
        pytest.param(chown, True, marks=root),
    ],
)
def test_files_that_others_may_have_put_there_are_not_run(own, monkeypatch, change, of_folder):
    """The cache was looked at before: since then it may have been removed, and made again by somebody else."""
    kept = store()
    kept.save("int64", Evil())
    path, ran = own / kept.path_of("int64")[0], own / "ran"
    monkeypatch.setenv("EVIL", str(ran))
    assert kept.load("int64") == 0 and ran.exists()
    ran.unlink()
    change(path.parent if of_folder else path)
    assert kept.load("int64") is None and not ran.exists()
    if of_folder:
        kept.save("int64", "code")
        assert cache.WATCH.lost == [f"{path.parent}: others may write there"]


def grant(path, mode, uid=None):
    """A folder, or a file where there is one, with this mode and owner."""
    if not path.exists():
        path.mkdir()
    path.chmod(mode)
    if uid is not None:
        os.chown(path, uid, uid)
    return path


def link(path, target, uid=None):
    path.symlink_to(target)
    if uid is not None:
        os.chown(path, uid, uid, follow_symlinks=False)
    return path


@pytest.mark.parametrize(
    ("make", "safe"),
    [
        (lambda at: at / "new/newer", True),
        (lambda at: grant(at / "read by others", 0o755), True),
        (lambda at: grant(at / "group", 0o770), False),
        (lambda at: grant(at / "group", 0o770) / "leaf", False),
        (lambda at: grant(at / "all", 0o777), False),
        (lambda at: grant(at / "sticky", 0o1777), False),
        (lambda at: grant(at / "sticky", 0o1777) / "made by us/leaf", True),
        (lambda at: grant(grant(at / "sticky", 0o1777) / "open", 0o755) / "leaf", True),
        (lambda at: grant(grant(at / "sticky", 0o1777) / "sticky", 0o1777) / "leaf", False),
        (lambda at: link(at / "file", "/etc/passwd"), False),
        (lambda at: link(at / "round", "round") / "leaf", False),
        # As /tmp is private/tmp on some systems; what counts is where it leads to.
        (lambda at: link(at / "link", f"../{grant(at / 'real', 0o700).parent.name}/real") / "leaf", True),
        (lambda at: link(at / "to shared", grant(at / "all", 0o777)) / "leaf", False),
        pytest.param(lambda at: grant(at / "theirs", 0o755, STRANGER) / "leaf", False, marks=root),
        pytest.param(lambda at: grant(at / "leaf", 0o700, STRANGER), False, marks=root),
        pytest.param(lambda at: grant(at / "their sticky", 0o1777, STRANGER) / "own/leaf", False, marks=root),
        pytest.param(lambda at: link(at / "theirs", grant(at / "real", 0o700), STRANGER) / "leaf", False, marks=root),
    ],
)
def test_what_a_folder_on_the_way_may_be(tmp_path, monkeypatch, make, safe):
    """From / to the folder that holds the code: nobody else may write, or put another in its place."""
    folder = make(tmp_path)
    monkeypatch.setattr(os.path, "lexists", lambda path: False)  # what another process makes meanwhile is no error
    try:
        assert (safe_folder(folder, make=True) == Path(os.path.realpath(folder))) == safe
    except OSError:
        assert not safe
    assert folder.is_dir() and folder.stat().st_mode & 0o777 in (0o700, 0o755) if safe else True


@root
@pytest.mark.parametrize(("owner", "safe"), [(VICTIM, True), (STRANGER, False)])
def test_who_owns_the_package_may_compile_for_all(tmp_path, monkeypatch, owner, safe):
    """A site's account for software is as trusted as its program; nobody, whom many a user without a name is, is not."""
    leaf = grant(tmp_path / "leaf", 0o755, owner)
    assert safe_folder(leaf) is None
    monkeypatch.setattr(trust, "PACKAGE", grant(tmp_path / "package", 0o755, owner))
    assert (safe_folder(leaf) == leaf) == safe


def test_the_first_folder_that_is_given_serves(tmp_path, own, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(grant(tmp_path / "tmp", 0o1777)))
    folders = {"UNMIX_CACHE_DIR": "a", "XDG_CACHE_HOME": "b/unmix", "HOME": "c/.cache/unmix"}
    for name, folder in folders.items():
        monkeypatch.setenv(name, str(grant(tmp_path / folder[0], 0o700)))
    for name, folder in folders.items():
        assert cache.cache_folder() == tmp_path / folder
        monkeypatch.setenv(name, "" if name != "HOME" else "relative")
    assert cache.cache_folder() == tmp_path / f"tmp/unmix-{os.getuid()}"


@pytest.mark.parametrize("home", ["relative", "a file", "a file/beneath"])
def test_where_home_is_not_writable(tmp_path, own, monkeypatch, home):
    """As cron's. The temporary folder takes its place, not whatever folder the process was started in."""
    (tmp_path / "a file").write_text("")
    here, scratch = grant(tmp_path / "here", 0o700), grant(tmp_path / "tmp", 0o1777)
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setenv("HOME", str(tmp_path / home) if "file" in home else home)
    for name in ("XDG_CACHE_HOME", "UNMIX_CACHE_DIR"):
        monkeypatch.setenv(name, "")
    assert cache.cache_folder() == scratch / f"unmix-{os.getuid()}" and not list(here.iterdir())
    scratch.chmod(0o777)
    assert cache.cache_folder() is None


def test_code_of_versions_that_nobody_uses_is_removed(own, monkeypatch):
    """After 90 days, when other code is compiled; not what is in use, and nothing that is not ours."""
    store().save("int64", "code")
    (used,) = own.iterdir()
    folders = [own / (digit * 16) for digit in "0a1"]
    for folder in folders:  # as older versions made them
        (folder / "kernel_1").mkdir(parents=True)
        (folder / "kernel_1/f.nbc").write_bytes(b"code")
        (folder / "g.nbc").write_bytes(b"code")
    old, young, strange = folders
    (strange / "kernel_1/notes.txt").write_text("of somebody")
    (own / "plain").mkdir()
    for folder in (used, old, young, strange, own / "plain"):
        os.utime(folder, (time.time() - 86400 * (89 if folder == young else 91),) * 2)
    assert store().load("int64") == "code" and old.exists()  # nothing was compiled
    store().save("int32", "code")
    assert not old.exists() and young.exists() and (strange / "kernel_1/notes.txt").exists()
    assert (own / "plain").exists() and used.exists()
    os.utime(young, (0, 0))
    monkeypatch.setenv("UNMIX_CACHE_DIR", str(own))  # it may be for others
    store().save("int16", "code")
    assert young.exists()


class Kernels:
    """What a cache of kernels is asked with: their code in a GPU's form, and a GPU."""

    codegen = types.SimpleNamespace(magic_tuple=lambda: ("12.9", (9, 0)))
    context = types.SimpleNamespace(codegen=lambda: Kernels.codegen)
    kernel = types.SimpleNamespace(codegen=codegen, _reduce_states=dict)

    def __init__(self, function):
        self.cache = cache._kept(pytest.importorskip("numba.cuda.dispatcher").CUDACache)(function)

    def load(self):
        return self.cache.load_overload("(int64,)", self.context)

    def save(self):
        self.cache.save_overload("(int64,)", self.kernel)


def test_kernels_are_those_of_one_version_of_numba_cuda(monkeypatch):
    """Their form in the file is its own, and Numba's version does not tell it."""
    kernels, keys = Kernels(store), set()
    for version in ("0.30.4", "0.31.0", "0.30.4"):
        monkeypatch.setitem(sys.modules, "numba_cuda", types.SimpleNamespace(__version__=version))
        keys.add(kernels.cache._index_key("(int64,)", Kernels.codegen))
    assert len(keys) == 2


@pytest.mark.parametrize("kept", [True, False])
def test_the_time_that_kernels_take_is_counted(own, monkeypatch, kept):
    """Numba's events tell of functions for the CPU alone: between a miss and what is saved, whether that is kept or not."""
    if not kept:
        monkeypatch.setattr(cache, "cache_folder", lambda: None)
    kernels = Kernels(store)
    assert kernels.load() is None
    time.sleep(0.02)
    kernels.save()
    seconds = cache.WATCH.seconds
    assert seconds >= 0.02
    kernels.save()
    assert cache.WATCH.seconds == seconds and cache.WATCH.lost == []
    assert len(list(own.rglob("*.nbc"))) == kept


def test_a_kernel_that_fails_to_compile_is_forgotten(own):
    """Nothing tells that it failed: what is compiled later is counted all the same."""
    Kernels(store).load()
    watch = cache.WATCH
    watch.on_start(None)
    watch.on_start(None)
    time.sleep(0.01)
    watch.on_end(None)
    assert watch.seconds == 0
    watch.on_end(None)
    assert watch.seconds >= 0.01 and watch.timer.finished.is_set()
    Kernels(store).save()
    assert watch.seconds < 1


def test_compiling_is_counted_from_the_outside(monkeypatch, caplog):
    caplog.set_level("INFO", "unmix")
    monkeypatch.setattr(cache, "SECONDS_BEFORE_MESSAGE", 0.0)
    monkeypatch.setattr(cache.WATCH, "said", False)
    before = cache.WATCH.seconds
    inner = numba.njit(lambda x: x + 1)
    began = time.perf_counter()
    assert numba.njit(lambda x: inner(x) * 2)(3) == 8
    assert 0 < cache.WATCH.seconds - before <= time.perf_counter() - began  # what is called is not counted twice
    assert caplog.text.count("compiling") == 1


def test_how_far_compiling_is(caplog):
    """What is compiled is counted as long as it goes on."""
    caplog.set_level("INFO", "unmix")
    watch = cache.CompileWatch()
    watch.functions, watch.seconds = 4, 2.0
    watch.say()
    assert "up to some 100 functions; the code is kept" in caplog.text or "each run" in caplog.text
    watch.functions = 9
    watch.say()
    assert len(caplog.records) == 1
    watch.on_start(None)
    watch.say()
    watch.on_end(None)
    assert caplog.messages[1:] == ["9 functions are compiled after 2 s"] and watch.functions == 10
    assert watch.timer.finished.is_set()


@pytest.mark.parametrize("common", [None, "/opt/code"])
def test_what_is_said_where_nothing_can_be_kept(monkeypatch, caplog, common):
    caplog.set_level("INFO", "unmix")
    monkeypatch.setattr(cache, "cache_folder", lambda: None)
    monkeypatch.setattr(cache, "common_folder", lambda: common)
    cache.CompileWatch().say()
    assert f"set {'XDG_CACHE_HOME' if common else 'UNMIX_CACHE_DIR'} to one" in caplog.text


@pytest.mark.night
@pytest.mark.slow
def test_whatever_compiles_says_so_once_and_it_is_no_time_of_the_work(tmp_path):
    """`nmf`, which extracts, projects and descends: one line of it with an empty cache, none with a full one."""
    synthesise(tmp_path / "s.hdr", SyntheticScene(lines=8, samples=20, bands=12, count=3, seed=1))
    words = ["nmf", "s.hdr", "-n", "2", "--steps", "20", "--overwrite", "--device", "cpu", "--json"]
    environment = os.environ | {"UNMIX_CACHE_DIR": str(tmp_path / "cache")}
    for full in (False, True):
        done = subprocess.run(
            [sys.executable, "-m", "unmix_cli.main", *words], env=environment, cwd=tmp_path, capture_output=True
        )
        assert done.returncode == 0, done.stderr
        seconds = json.loads(done.stdout)["seconds"]
        assert seconds["compiling"] + seconds["descending"] <= seconds["total"]
        assert done.stderr.count(b"compiling") == (not full)
        assert seconds["compiling"] == 0 if full else seconds["compiling"] > 0


# Python itself may lie where only root can read: whatever is imported late is imported as root.
AS_VICTIM = f"""
import os, numba
numba.njit(lambda x: x + 1)(1)
os.setgroups([]); os.setgid({VICTIM}); os.setuid({VICTIM})
"""
WITHOUT_A_PLACE = AS_VICTIM + "import tempfile\ntempfile.tempdir = '/nonexistent'\n"
others_can_read = pytest.mark.skipif(
    not all(path.stat().st_mode & stat.S_IXOTH for path in (PACKAGE, *PACKAGE.parents, Path(sys.executable).parent)),
    reason="other users of this machine cannot read this checkout",
)


@root
@others_can_read
@pytest.mark.slow
def test_code_that_root_compiled_for_all_is_loaded():
    """In a folder that the user cannot write to; what is not in it is compiled, and kept in a folder of the user's own."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="unmix-test-") as name:
        folder = grant(Path(name), 0o755)
        package, code, scratch = toy_in(folder / "toy"), folder / "cache", grant(folder / "tmp", 0o1777)
        cached = {"UNMIX_CACHE_DIR": str(code)}
        user = cached | {"HOME": "/nonexistent/home", "TMPDIR": str(scratch)}
        assert run(cached, package) == ("8.0", (0, 1))
        for first in (AS_VICTIM, WITHOUT_A_PLACE):
            assert run(user, package, first=first) == ("8.0", (0, 1))  # root's folder is closed to others
        subprocess.run(["chmod", "-R", "a+rX", code], check=True)
        shutil.rmtree(scratch / f"unmix-{VICTIM}")
        before = sorted((path, path.stat().st_mtime_ns) for path in code.rglob("*"))
        for first in (AS_VICTIM, WITHOUT_A_PLACE):
            assert run(user, package, first=first) == ("8.0", (1, 0))
        for counts in ((0, 1), (1, 0)):
            assert run(user, package, first=AS_VICTIM, dtype="int16") == ("8.0", counts)
        assert sorted((path, path.stat().st_mtime_ns) for path in code.rglob("*")) == before
        assert run(cached, package, dtype="float32") == ("8.0", (0, 1))  # root may go on compiling there
        for path in code.rglob("*.nbc"):
            os.chown(path, STRANGER, STRANGER)
        assert run(user, package, first=WITHOUT_A_PLACE) == ("8.0", (0, 1))


@pytest.mark.slow
def test_two_that_start_at_once(tmp_path, toy):
    """Different signatures at the same moment: neither may end with the other's code."""
    environment = {"HOME": str(tmp_path)}
    cases = [("float64", "active-set"), ("int16", "active-set"), ("float32", "delete-only")]
    answers = ["8.0", "8.0", "2.0"]
    started = [start(environment, toy, *case) for case in cases]
    assert [finish(process)[0] for process in started] == answers
    assert [run(environment, toy, *case) for case in cases] == [(answer, (1, 0)) for answer in answers]
