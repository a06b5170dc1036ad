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

from unmix.compiled.cache import cache_folder, kept, seconds_compiling, watch
from unmix.compiled.cache.folders import trusted, usable
from unmix.compiled.cache.sources import files_of
from unmix.devices import simulated
from unmix.jobs.synth import Scene, synthesise

pytestmark = pytest.mark.skipif(simulated(), reason="nothing is compiled in the simulator")
PACKAGE = Path(__file__).parents[1] / "unmix"
SCRIPT = """
import numpy as np, unmix
E = np.array([[3.0, 3, 4], [0, 5, 7], [0, 2, 2], [4, 2, 0]])
y = np.array([[4.0, 8, 8, 2]]).astype("{dtype}")
print(unmix.solve(y, E, method="fcls", solver="{solver}").abundances.round(3).tolist())
from unmix.solvers.pixels import cpu, tile
kernel = tile.answer_function("{solver}".replace("-", "_"), cpu.WIDE, True)
print(sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values()))
"""


OPTIMUM, DELETED = "[[0.0, 0.222, 0.778]]", "[[0.0, 1.0, 0.0]]"
# A package of the same `jit.py` whose kernel compiles in a tenth of a second, where that of `unmix` takes five: a closure over one of
# two functions of another file.
TOY = {
    "__init__.py": "",
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
@functools.cache
def solver_of(name):
    rule = getattr(rules, name)
    @compiled
    def solve(y, out):
        out[0] = rule(y[0])
    return solve
""",
}
TOY_SCRIPT = """
import numpy as np
from unmix.kernel import solver_of
kernel, out = solver_of("{solver}".replace("-", "_")), np.zeros(1)
kernel(np.array([4]).astype("{dtype}"), out)
print(out[0])
print(sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values()))
"""


class Package(NamedTuple):
    """A package folder, a script that solves with it, and what that prints for both solvers."""

    folder: Path
    script: str
    optimum: str
    deleted: str


def toy_in(folder):
    """Write the toy package."""
    package = folder / "unmix"
    package.mkdir(parents=True)
    for name, text in TOY.items():
        (package / name).write_text(text)
    shutil.copytree(PACKAGE / "compiled", package / "compiled", ignore=shutil.ignore_patterns("__pycache__"))
    return Package(package, TOY_SCRIPT, "8.0", "2.0")


@pytest.fixture(params=["toy", pytest.param("unmix", marks=pytest.mark.slow)])
def package(request, tmp_path):
    """The toy, and in the full tier the kernel of `unmix` itself, compiled from nothing."""
    return toy_in(tmp_path / "toy") if request.param == "toy" else Package(PACKAGE, SCRIPT, OPTIMUM, DELETED)


def run(environment, package, dtype="float64", solver="active-set", wait=True, first=""):
    """Solve in a process of its own; return what it printed, and its hits and misses of the cache."""
    script = first + package.script.format(dtype=dtype, solver=solver)
    base = {"PATH": os.environ["PATH"], "PYTHONPATH": str(package.folder.parent)}
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", script], env=base | environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, cwd="/",
    )  # fmt: skip
    return finish(process) if wait else process


def finish(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and "Traceback" not in err, err
    answer, counts = out.splitlines()
    return answer, tuple(map(int, counts.split()))


def test_compiled_once(tmp_path, package):
    environment = {"HOME": str(tmp_path)}
    assert run(environment, package) == (package.optimum, (0, 1))
    assert run(environment, package) == (package.optimum, (1, 0))
    # A closure over another solver, of the same type, is another function.
    assert run(environment, package, solver="delete-only") == (package.deleted, (0, 1))
    assert run(environment, package) == (package.optimum, (1, 0))
    assert (tmp_path / ".cache/unmix").is_dir()


@pytest.mark.slow
def test_an_edited_callee_recompiles_its_callers(tmp_path):
    """Numba's own cache would go on with the old code: the edited file is not the one that holds the kernel."""
    folder = tmp_path / "copy/unmix"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    edits(
        Package(folder, SCRIPT, OPTIMUM, DELETED),
        "solvers/pixels/scalar.py",
        "work.a[work.support[i]] = work.x[i]",
        "work.a[work.support[i]] = 0.125",
        "[[0.0, 0.125, 0.0]]",
        {"HOME": str(tmp_path)},
    )


def test_an_edited_callee_recompiles_its_callers_in_the_toy(tmp_path):
    toy = toy_in(tmp_path / "toy")
    edits(toy, "rules.py", "0.5 * y", "0.125 * y", "0.5", {"HOME": str(tmp_path)})


def edits(package, file, old, new, answer, environment):
    """Solve with ``delete-only``, edit a file that it calls, and solve again."""
    assert run(environment, package, solver="delete-only") == (package.deleted, (0, 1))
    source = package.folder / file
    assert source.read_text().count(old) == 1
    source.write_text(source.read_text().replace(old, new))
    assert run(environment, package, solver="delete-only") == (answer, (0, 1))


# A function of two fields that is handed them in a tuple of another file, which its own does not import.
HANDED = {
    "pair.py": """
from typing import NamedTuple
class Pair(NamedTuple):
    first: float
    second: float
""",
    "kernel.py": """
from .compiled.jit import compiled
def solver_of(name):
    @compiled
    def solve(pair, out):
        out[0] = pair.first
    return solve
""",
}
HANDED_SCRIPT = """
import numpy as np
from unmix.kernel import solver_of
from unmix.pair import Pair
kernel, out = solver_of(""), np.zeros(1)
kernel(Pair(first=1.0, second=2.0), out)
print(out[0])
print(sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values()))
"""


@pytest.mark.slow
def test_fields_that_change_places_are_told_apart(tmp_path):
    """Machine code holds their numbers, and the signature only the name of their class: it was loaded, and took the other field."""
    toy, environment = toy_in(tmp_path / "toy"), {"HOME": str(tmp_path)}
    for name, text in HANDED.items():
        (toy.folder / name).write_text(text)
    handed = toy._replace(script=HANDED_SCRIPT)
    assert run(environment, handed) == ("1.0", (0, 1)) and run(environment, handed) == ("1.0", (1, 0))
    pair = toy.folder / "pair.py"
    pair.write_text("from typing import NamedTuple\nclass Pair(NamedTuple):\n    second: float\n    first: float\n")
    assert run(environment, handed) == ("1.0", (0, 1))


def test_fields_at_any_depth():
    one, two = (NamedTuple("Pair", [(name, float) for name in names]) for names in ("xy", "yx"))

    def signature(pair):
        kind = numba.typeof(pair(1.0, 2.0))
        return numba.types.Tuple((numba.int64, numba.types.UniTuple(kind, 3))), numba.int64

    assert str(signature(one)) == str(signature(two))
    assert kept.fields_in(signature(one)) == {(one.__qualname__, "x", "y")} != kept.fields_in(signature(two))


# The package is updated after the process has imported it, and before it compiles. The new file has another size: Python takes its
# bytecode for that of a source with the same second and size.
UPDATED = """
import unmix.kernel, pathlib
rules = pathlib.Path(unmix.kernel.__file__).with_name("rules.py")
rules.write_text(rules.read_text().replace("2.0 * y", "{new} * y"))
"""


@pytest.mark.slow
def test_an_update_under_a_running_process(tmp_path):
    """It has the old code, and finds the new sources: what it compiled was kept as the code of these, for good."""
    toy, environment = toy_in(tmp_path / "toy"), {"HOME": str(tmp_path)}
    assert run(environment, toy, first=UPDATED.format(new="3.25")) == ("8.0", (0, 1))
    assert run(environment, toy) == ("13.0", (0, 1))


@pytest.mark.slow
def test_an_update_of_a_constant(tmp_path):
    """It is in another file, which is imported and whose functions are not called."""
    toy, environment = toy_in(tmp_path / "toy"), {"HOME": str(tmp_path)}
    (toy.folder / "numbers.py").write_text("FACTOR = 2.0\n")
    kernel = (
        TOY["kernel.py"]
        .replace("import rules", "import rules\nfrom .numbers import FACTOR")
        .replace("rule(y[0])", "FACTOR * y[0]")
    )
    (toy.folder / "kernel.py").write_text(kernel)
    update = UPDATED.replace("rules.py", "numbers.py").replace("2.0 * y", "2.0").replace("{new} * y", "3.25")
    assert run(environment, toy, first=update) == ("8.0", (0, 1))
    assert run(environment, toy) == ("13.0", (0, 1))


def test_why_an_updated_process_keeps_nothing(monkeypatch, caplog):
    found = watch.Watch()
    monkeypatch.setattr(kept, "WATCH", found)
    monkeypatch.setattr(kept, "changed_since_start", lambda files: True)
    cache = kept.cache_of(test_why_an_updated_process_keeps_nothing, kept.FunctionCache)
    assert cache.load_overload("(int64,)", None) is None and not found.lost
    cache.save_overload("(int64,)", None)
    assert len(found.lost) == 1 and "was updated while this process ran: what is compiled is not kept" in caplog.text


@pytest.mark.slow
def test_a_part_of_the_package_may_be_a_link(tmp_path):
    """To a folder beside it, and round to the package itself: the code is kept all the same."""
    toy, environment = toy_in(tmp_path / "toy"), {"HOME": str(tmp_path)}
    (toy.folder / "compiled").rename(tmp_path / "elsewhere")
    (toy.folder / "compiled").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/round").symlink_to(toy.folder)
    assert run(environment, toy) == ("8.0", (0, 1)) and run(environment, toy) == ("8.0", (1, 0))


@pytest.mark.slow
def test_an_installation_without_sources(tmp_path):
    """Its code has no name, so it is compiled each time."""
    toy, environment = toy_in(tmp_path / "toy"), {"HOME": str(tmp_path)}
    compileall.compile_dir(toy.folder, quiet=1, legacy=True)
    for source in toy.folder.rglob("*.py"):
        source.unlink()
    for _ in range(2):
        assert run(environment, toy) == ("8.0", (0, 1))


def test_folders_that_are_made_again_are_private(tmp_path):
    """A program that tidies up may have removed the whole cache, and the group may write to what is made by default."""
    before = os.umask(0o002)
    try:
        kept.Store(str(tmp_path / "unmix/key/f"), "f-1.py311", pickle.dumps).save("int64", "code")
    finally:
        os.umask(before)
    assert usable(tmp_path / "unmix/key/f") and (tmp_path / "unmix").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_sources_are_read_in_any_locale(tmp_path):
    """They hold letters that ASCII has not."""
    toy = toy_in(tmp_path / "toy")
    with (toy.folder / "kernel.py").open("a", encoding="utf-8") as file:
        file.write("# κ\n")
    plain = {"HOME": str(tmp_path), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert run(plain, toy) == ("8.0", (0, 1)) and run(plain, toy) == ("8.0", (1, 0))


@pytest.mark.slow
def test_numba_s_settings_are_told_apart(tmp_path):
    """Who looks for a fault with checks of bounds gets them, and the next run none."""
    toy, environment = toy_in(tmp_path / "toy"), {"HOME": str(tmp_path)}
    checked = environment | {"NUMBA_BOUNDSCHECK": "1"}
    for each, counts in ((environment, (0, 1)), (checked, (0, 1)), (environment, (1, 0)), (checked, (1, 0))):
        assert run(each, toy) == ("8.0", counts)


def age(folder, days):
    os.utime(folder, (time.time() - 86400 * days,) * 2)


@pytest.mark.slow
def test_code_of_versions_that_nobody_uses_is_removed(tmp_path):
    """After 90 days, when other code is compiled; not what is in use, and nothing that is not ours."""
    toy, environment = toy_in(tmp_path / "toy"), {"HOME": str(tmp_path)}
    cache = tmp_path / ".cache/unmix"
    assert run(environment, toy) == ("8.0", (0, 1))
    own = set(cache.iterdir())
    old, young, strange = (cache / (digit * 16) for digit in "0a1")
    for folder in (old, young, strange):
        (folder / "kernel_1").mkdir(parents=True)
        (folder / "kernel_1/f.nbc").write_bytes(b"code")
    (strange / "kernel_1/notes.txt").write_text("of somebody")
    (cache / "plain").mkdir()
    for folder in (*own, old, strange, cache / "plain"):
        age(folder, 91)
    age(young, 89)
    assert run(environment, toy) == ("8.0", (1, 0)) and old.exists()  # nothing was compiled
    assert run(environment, toy, dtype="int16") == ("8.0", (0, 1))
    assert not old.exists() and young.exists() and (strange / "kernel_1/notes.txt").exists()
    assert (cache / "plain").exists() and all(folder.exists() for folder in own)
    age(young, 91)
    given = environment | {"UNMIX_CACHE_DIR": str(cache)}
    assert run(given, toy, dtype="float32") == ("8.0", (0, 1)) and young.exists()  # may be for others


def test_what_a_file_s_code_depends_on():
    """All that it imports and no more: an edit in `nmf` leaves the code of `pixels` warm."""
    from unmix.compiled.cache.sources import key_of, sources_of

    pixels = {str(path.relative_to(PACKAGE)) for path in sources_of(PACKAGE / "solvers/pixels/cpu.py")}
    assert {"certificate.py", "compiled/jit.py", "solvers/nnls/lawson_hanson_qr.py"} <= pixels
    assert not [name for name in pixels if name.startswith(("solvers/nmf", "solvers/bands", "jobs", "io"))]
    own = {str(path.relative_to(PACKAGE)) for path in sources_of(PACKAGE / "endmembers/passes.py")}
    assert "endmembers/passes.py" in own and "compiled/jit.py" in own
    assert key_of(PACKAGE / "solvers/pixels/cpu.py") != key_of(PACKAGE / "endmembers/passes.py")
    assert PACKAGE / "jobs/run/scene_run.py" in sources_of(Path(__file__))


@pytest.mark.slow
def test_where_home_is_not_writable(tmp_path, package):
    """No HOME, and a HOME that is a file: cron's. The temporary folder takes its place."""
    home = tmp_path / "file"
    home.write_text("")
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    for environment in ({"HOME": str(home)}, {"HOME": str(home / "beneath")}):
        environment["TMPDIR"] = str(scratch)
        assert run(environment, package)[0] == package.optimum
    assert run({"HOME": str(home), "TMPDIR": str(scratch)}, package)[1] == (1, 0)
    assert list(scratch.glob("unmix-*"))


@pytest.mark.slow
def test_where_nothing_is_writable(tmp_path, package):
    refuse = "from unmix.compiled.cache import folders\nfolders.usable = lambda folder: False\n"
    assert run({"HOME": str(tmp_path)}, package, first=refuse) == (package.optimum, (0, 1))
    assert not (tmp_path / ".cache").exists()
    assert cache_folder() is not None


@pytest.mark.parametrize("value", ["", "relative"])
def test_empty_and_relative_variables_are_ignored(tmp_path, monkeypatch, value):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UNMIX_CACHE_DIR", raising=False)
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, value)
    folder = cache_folder.__wrapped__()
    assert folder is None or not Path(folder).is_relative_to(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_others_may_write_is_not_trusted(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    assert not usable(folder)
    folder.chmod(0o700)
    assert usable(folder)


def grant(path, mode, uid=None):
    """A folder, or a file where there is one, with this mode and owner."""
    if not path.exists():
        path.mkdir()
    path.chmod(mode)
    if uid is not None:
        os.chown(path, uid, uid)
    return path


def test_what_a_folder_on_the_way_may_be(tmp_path):
    """From / to the folder that holds the code: nobody else may write, or put another in its place."""
    assert usable(tmp_path / "new/newer") and (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    grant(tmp_path / "group", 0o770)
    assert not usable(tmp_path / "group/leaf")
    grant(tmp_path / "sticky", 0o1777)
    assert usable(tmp_path / "sticky/made by us/leaf")
    grant(tmp_path / "sticky/open", 0o755)
    assert usable(tmp_path / "sticky/open/leaf")  # others may look at it
    grant(tmp_path / "sticky/sticky", 0o1777)
    assert not usable(tmp_path / "sticky/sticky/leaf")
    assert not usable(tmp_path / "sticky") and usable(grant(tmp_path / "read by others", 0o755))
    (tmp_path / "file").write_text("")
    assert not usable(tmp_path / "file") and not usable(tmp_path / "file/leaf")


def test_two_that_make_the_folder_at_once(tmp_path, monkeypatch):
    """What another process makes or renames while one looks is no reason to keep the code elsewhere."""
    monkeypatch.setattr("unmix.compiled.cache.folders.os.path.lexists", lambda path: False)
    assert usable(tmp_path / "leaf")
    scan = os.scandir

    def with_one_that_goes(folder):
        (leaf := Path(folder) / "tmp1").write_text("")
        found = list(scan(folder))
        leaf.unlink()
        return found

    monkeypatch.setattr("unmix.compiled.cache.folders.os.scandir", with_one_that_goes)
    assert usable(tmp_path / "leaf") and trusted(grant(tmp_path / "leaf", 0o755))


def test_links_on_the_way(tmp_path):
    grant(tmp_path / "real", 0o700)
    (tmp_path / "link").symlink_to("../" + tmp_path.name + "/real")  # as /tmp is private/tmp on some systems
    (tmp_path / "whole").symlink_to(tmp_path / "link")
    assert usable(tmp_path / "link/leaf") and usable(tmp_path / "whole/leaf") and (tmp_path / "real/leaf").is_dir()
    grant(tmp_path / "shared", 0o1777)
    (tmp_path / "shared/link").symlink_to(tmp_path / "real")
    assert not usable(tmp_path / "shared/link/leaf")
    (tmp_path / "to shared").symlink_to(tmp_path / "shared")
    grant(tmp_path / "shared/open", 0o755)
    assert usable(tmp_path / "to shared/open/leaf") and usable(tmp_path / "to shared/own/leaf")
    (tmp_path / "round").symlink_to("round")
    assert not usable(tmp_path / "round/leaf")


def test_what_lies_in_the_folder_is_plain_files_of_ours(tmp_path):
    leaf = grant(tmp_path / "leaf", 0o700)
    (leaf / "solvers_1").mkdir()
    (leaf / "solvers_1/a.nbi").write_bytes(b"")
    assert usable(leaf)
    (leaf / "solvers_1/b.nbi").symlink_to(leaf / "solvers_1/a.nbi")
    assert not usable(leaf)


def test_where_others_may_read_nothing_may_be_theirs_to_write(tmp_path):
    """In a folder that is closed to others the modes of what is in it do not matter, and a umask of 002 makes them all 0664."""
    leaf = grant(tmp_path / "leaf", 0o700)
    (leaf / "a.nbi").write_bytes(b"")
    (leaf / "a.nbi").chmod(0o664)
    assert usable(leaf) and not trusted(leaf)
    leaf.chmod(0o755)
    assert not usable(leaf) and not trusted(leaf)
    (leaf / "a.nbi").chmod(0o644)
    assert usable(leaf) and trusted(leaf)
    (leaf / "inner").mkdir()
    (leaf / "inner").chmod(0o775)
    assert not usable(leaf) and not trusted(leaf)
    assert trusted(leaf, whole=False)  # what is of another version in it is not looked at


def test_what_a_folder_of_others_may_be(tmp_path):
    """It is only looked at, not made, and may lie in a sticky folder: nobody else can write to it or take it away."""
    assert not trusted(tmp_path / "none") and not (tmp_path / "none").exists()
    grant(tmp_path / "sticky", 0o1777)
    assert trusted(grant(tmp_path / "sticky/open", 0o755)) and not trusted(tmp_path / "sticky")
    grant(tmp_path / "group", 0o775)
    assert not trusted(grant(tmp_path / "group/leaf", 0o755))
    (tmp_path / "sticky/link").symlink_to(tmp_path / "sticky/open")
    assert not trusted(tmp_path / "sticky/link")
    (tmp_path / "link").symlink_to(tmp_path / "sticky/open")
    assert trusted(tmp_path / "link")
    (tmp_path / "sticky/open/b.nbi").symlink_to("/etc/passwd")
    assert not trusted(tmp_path / "link")


def test_a_file_that_was_cut_off_is_made_anew(tmp_path, package):
    """A power failure: the name was on the disk, what it stands for was not. Numba's own cache would end every run from then on."""
    environment = {"HOME": str(tmp_path)}
    assert run(environment, package) == (package.optimum, (0, 1))
    files = [path for path in (tmp_path / ".cache/unmix").rglob("*.*") if path.is_file()]
    assert files and all(path.suffix == ".nbc" for path in files)
    for file in files:
        file.write_bytes(file.read_bytes()[:1000])
    assert run(environment, package) == (package.optimum, (0, 1))
    assert run(environment, package) == (package.optimum, (1, 0))


FULL = """
import os
import unmix.compiled.cache.kept as kept
def refuse(*paths):
    raise OSError(28, "No space left on device")
kept.os.fsync = refuse
"""


@pytest.mark.slow
def test_on_a_full_disk_nothing_is_mixed_up(tmp_path):
    """Of three signatures one is damaged, and cannot be written anew: it is compiled each time, the others stay as they are."""
    package, environment = toy_in(tmp_path / "toy"), {"HOME": str(tmp_path)}
    kinds = ("float64", "int16", "float32")
    for kind in kinds:
        before = set(tmp_path.rglob("*.nbc"))
        assert run(environment, package, kind)[1] == (0, 1)
    (last,) = {path for path in set(tmp_path.rglob("*.nbc")) - before if path.name.startswith("kernel")}
    last.write_bytes(last.read_bytes()[:100])
    for _ in range(2):
        assert run(environment, package, "float32", first=FULL) == (package.optimum, (0, 1))
    for kind, counts in zip(kinds, ((1, 0), (1, 0), (0, 1))):
        assert run(environment, package, kind) == (package.optimum, counts)


def refuse(*_):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize(
    "damage", [lambda content: b"", lambda content: content[:-1], lambda content: bytes(len(content))]
)
def test_what_cannot_be_written_is_not_there(tmp_path, monkeypatch, call, damage):
    store = kept.Store(str(tmp_path), "f-1.py311", pickle.dumps)
    for key in ("int64", "int32"):
        store.save(key, f"code of {key}")
    file = store.path_of("int32")
    file.write_bytes(damage(file.read_bytes()))
    with monkeypatch.context() as full:
        full.setattr(kept.os, call, refuse)
        with pytest.raises(OSError, match="No space"):
            store.save("int32", "code of int32")
    assert store.load("int32") is None and store.load("int64") == "code of int64"
    assert len(list(tmp_path.iterdir())) == 2
    store.save("int32", "code of int32")
    assert store.load("int32") == "code of int32"


def test_ctrl_c_leaves_nothing_half_written(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(kept.os, "fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        kept.Store(str(tmp_path), "f-1.py311", pickle.dumps).save("int64", "code")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("change", ["others may write", "a link", "a pipe", "another owner"])
def test_files_that_others_may_have_put_there_are_not_run(tmp_path, change):
    """The folder was looked at before: since then it may have been removed, and made again by somebody else."""
    store = kept.Store(str(tmp_path), "f-1.py311", pickle.dumps)
    store.save("int64", "code")
    path = store.path_of("int64")
    assert store.load("int64") == "code"
    if change == "others may write":
        path.chmod(0o622)
    elif change == "a link":
        path.rename(tmp_path / "other")
        path.symlink_to(tmp_path / "other")
    elif change == "a pipe":
        path.unlink()
        os.mkfifo(path)
    elif os.geteuid() == 0:
        os.chown(path, VICTIM, VICTIM)
    else:
        pytest.skip("only root can be two users")
    assert store.load("int64") is None


def test_who_cannot_keep_code_is_warned_once(monkeypatch, caplog):
    dispatcher = pytest.importorskip("numba.cuda.dispatcher")
    found = watch.Watch()
    monkeypatch.setattr(kept, "WATCH", found)
    monkeypatch.setattr(kept.os, "fsync", refuse)
    codegen = types.SimpleNamespace(magic_tuple=lambda: ("12.9", (9, 0)))
    cache = kept.cache_of(test_who_cannot_keep_code_is_warned_once, dispatcher.CUDACache)
    for _ in range(2):
        cache.save_overload("(int64,)", types.SimpleNamespace(codegen=codegen, _reduce_states=dict))
    assert len(found.lost) == 2 and caplog.text.count("No space left on device: what is compiled is not kept") == 1


def test_a_file_holds_what_its_name_says(tmp_path):
    """One that was copied over another is not loaded."""
    store = kept.Store(str(tmp_path / "new"), "f-1.py311", pickle.dumps)
    store.save(("int64", 1), "code")
    assert store.load(("int64", 1)) == "code" and store.load(("int32", 1)) is None
    assert store.path_of(("int64", 1)).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    shutil.copy(store.path_of(("int64", 1)), store.path_of(("int32", 1)))
    assert store.load(("int32", 1)) is None


@pytest.mark.slow
def test_installations_share_their_code(tmp_path):
    """Of the same version, at other paths: each user's own environment loads what an administrator has compiled."""
    environment = {"HOME": str(tmp_path)}
    for name, counts in (("one", (0, 1)), ("two", (1, 0))):
        assert run(environment, toy_in(tmp_path / name)) == ("8.0", counts)


def test_kernels_are_those_of_one_version_of_numba_cuda(tmp_path, monkeypatch):
    """Their form in the file is its own, and Numba's version, which the index holds, does not tell it."""
    dispatcher = pytest.importorskip("numba.cuda.dispatcher")
    cache = kept.cache_of(test_kernels_are_those_of_one_version_of_numba_cuda, dispatcher.CUDACache)
    codegen = types.SimpleNamespace(magic_tuple=lambda: ("12.9", (9, 0)))
    keys = set()
    for version in ("0.30.4", "0.31.0", "0.30.4"):
        monkeypatch.setitem(sys.modules, "numba_cuda", types.SimpleNamespace(__version__=version))
        keys.add(cache._index_key("(int64,)", codegen))
    assert len(keys) == 2


def test_the_time_that_kernels_take_is_counted(tmp_path, monkeypatch):
    """Numba's events tell of functions for the CPU alone: between a miss and what is saved, whether that is kept or not."""
    dispatcher = pytest.importorskip("numba.cuda.dispatcher")
    codegen = types.SimpleNamespace(magic_tuple=lambda: ("12.9", (9, 0)))
    context = types.SimpleNamespace(codegen=lambda: codegen)
    compiled = types.SimpleNamespace(codegen=codegen, _reduce_states=dict)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("UNMIX_CACHE_DIR", raising=False)
    monkeypatch.setattr(kept, "cache_folder", cache_folder.__wrapped__)
    for cache in (
        kept.cache_of(test_the_time_that_kernels_take_is_counted, dispatcher.CUDACache),
        kept.Unkept(for_cpu=False),
    ):
        before = seconds_compiling()
        assert cache.load_overload("(int64,)", context) is None
        time.sleep(0.02)
        cache.save_overload("(int64,)", compiled)
        after = seconds_compiling()
        assert after - before >= 0.02
        cache.save_overload("(int64,)", compiled)
        assert seconds_compiling() == after
    assert len(list(tmp_path.rglob("*.nbc"))) == 1


def test_a_kernel_that_fails_to_compile_is_forgotten(monkeypatch):
    """Nothing tells that it failed: what is compiled later is counted all the same."""
    found = watch.Watch()
    monkeypatch.setattr(kept, "WATCH", found)
    kept.Unkept(for_cpu=False).load_overload("(int64,)", None)
    found.on_start(None)
    found.on_start(None)
    time.sleep(0.01)
    found.on_end(None)
    assert found.seconds == 0
    found.on_end(None)
    assert found.seconds >= 0.01 and found.timer is None
    kept.Unkept(for_cpu=False).save_overload("(int64,)", None)
    assert found.seconds < 1


@pytest.mark.parametrize("ours", [True, False])
def test_what_is_said_where_nothing_can_be_kept(monkeypatch, caplog, ours):
    caplog.set_level("INFO", "unmix")
    monkeypatch.setattr(watch, "cache_folder", lambda: None)
    monkeypatch.setattr(watch, "common_folder", lambda: None if ours else "/opt/code")
    watch.Watch().say()
    assert f"set {'UNMIX_CACHE_DIR' if ours else 'XDG_CACHE_HOME'} to one" in caplog.text


root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
STRANGER, VICTIM = 65534, 1234


@root
@pytest.mark.parametrize(("owner", "is_trusted"), [(VICTIM, True), (STRANGER, False)])
def test_who_owns_the_package_may_compile_for_all(tmp_path, monkeypatch, owner, is_trusted):
    """A site's account for software is as trusted as its program; nobody, whom many a user without a name is, is not."""
    package = grant(tmp_path / "package", 0o755, owner)
    leaf = grant(tmp_path / "leaf", 0o755, owner)
    assert not trusted(leaf)
    monkeypatch.setattr("unmix.compiled.cache.folders.PACKAGE", package)
    assert trusted(leaf) == is_trusted


# Python itself may lie where only root can read: whatever is imported late is imported as root.
AS_VICTIM = f"""
import os, numba
numba.njit(lambda x: x + 1)(1)
os.setgroups([]); os.setgid({VICTIM}); os.setuid({VICTIM})
"""


@root
def test_what_another_user_owns_on_the_way(tmp_path):
    grant(tmp_path / "theirs", 0o755, STRANGER)
    assert not usable(tmp_path / "theirs/leaf") and not usable(grant(tmp_path / "leaf", 0o700, STRANGER))
    grant(tmp_path / "their sticky", 0o1777, STRANGER)  # who owns a sticky folder may take away what is in it
    assert not usable(tmp_path / "their sticky/own/leaf")
    (tmp_path / "link").symlink_to(tmp_path)
    assert usable(tmp_path / "link/good")
    os.chown(tmp_path / "link", STRANGER, STRANGER, follow_symlinks=False)
    assert not usable(tmp_path / "link/good")
    (tmp_path / "good/a.nbi").write_bytes(b"")
    os.chown(tmp_path / "good/a.nbi", STRANGER, STRANGER)
    assert not usable(tmp_path / "good")


others_can_read = pytest.mark.skipif(
    not all(
        folder.stat().st_mode & stat.S_IXOTH for folder in (PACKAGE, *PACKAGE.parents, Path(sys.executable).parent)
    ),
    reason="other users of this machine cannot read this checkout",
)


@root
@others_can_read
@pytest.mark.slow
def test_code_that_root_compiled_for_all_is_loaded(package_for_all):
    """In a folder that the user cannot write to; what is not in it is compiled, and kept in a folder of the user's own."""
    package, folder = package_for_all
    cache = {"UNMIX_CACHE_DIR": str(folder / "cache")}
    assert run(cache, package) == (package.optimum, (0, 1))
    user = cache | {"HOME": "/nonexistent/home", "TMPDIR": str(folder / "tmp")}
    as_one_without_a_place = AS_VICTIM + "import tempfile\ntempfile.tempdir = '/nonexistent'\n"
    for first in (AS_VICTIM, as_one_without_a_place):
        assert run(user, package, first=first) == (package.optimum, (0, 1))  # root's folder is closed to others
    subprocess.run(["chmod", "-R", "a+rX", folder / "cache"], check=True)
    shutil.rmtree(folder / "tmp" / f"unmix-{VICTIM}")
    before = sorted((path, path.stat().st_mtime_ns) for path in (folder / "cache").rglob("*"))
    for first in (AS_VICTIM, as_one_without_a_place):
        assert run(user, package, first=first) == (package.optimum, (1, 0))
    assert run(user, package, first=AS_VICTIM, dtype="int16") == (package.optimum, (0, 1))
    assert run(user, package, first=AS_VICTIM, dtype="int16") == (package.optimum, (1, 0))
    assert sorted((path, path.stat().st_mtime_ns) for path in (folder / "cache").rglob("*")) == before
    assert run(cache, package, dtype="float32") == (package.optimum, (0, 1))  # root may go on compiling there
    for path in (folder / "cache").rglob("*.nbc"):
        os.chown(path, STRANGER, STRANGER)
    assert run(user, package, first=as_one_without_a_place) == (package.optimum, (0, 1))


@pytest.fixture
def package_for_all():
    """The toy in a folder that all may read, as an installation is, with a temporary folder that all may write to."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="unmix-test-") as name:
        folder = grant(Path(name), 0o755)
        grant(folder / "tmp", 0o1777)
        yield toy_in(folder / "toy"), folder


# The victim has no usable HOME, and a TMPDIR that all may write to. A stranger made `unmix-1234` there before, and puts another folder
# in the place of what the victim made in it, after it was looked at and before it is loaded from.
STOLEN = """
import os, pickle, sys
from pathlib import Path
import numba
numba.njit(lambda x: x + 1)(1)  # whatever is imported late is imported as root
from unmix.compiled import jit
from unmix.compiled.cache import cache_folder
from unmix.compiled.cache.sources import files_of
shared, victim, stranger = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
sys.path.insert(0, str(shared))
import kernel

class Evil:
    def __reduce__(self):
        return os.system, (f"id -u > {shared}/ran-as",)

def as_user(uid, act):
    pid = os.fork()
    if not pid:
        os.setgroups([]); os.setgid(uid); os.setuid(uid)
        try:
            act()
            os._exit(0)
        except BaseException as error:
            print(type(error).__name__, error, file=sys.stderr)
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0

def compile_it():
    assert jit.compiled(kernel.twice)(21) == 42

def prepare():
    (shared / f"unmix-{victim}").mkdir()
    (shared / f"unmix-{victim}").chmod(0o777)

def steal():
    parent = shared / f"unmix-{victim}"
    for leaf in list(parent.iterdir()):
        leaf.rename(leaf.with_name("old"))
        for name in names:
            (leaf / name).parent.mkdir(parents=True, exist_ok=True)
            (leaf / name).write_bytes(pickle.dumps(Evil()))
            for folder in (leaf, (leaf / name).parent):
                folder.chmod(0o777)

def be_robbed():
    cache_folder(*files_of(kernel.twice))  # looked at
    os.write(there[1], b".")
    os.read(go[0], 1)
    compile_it()

as_user(stranger, prepare)
as_user(victim, compile_it)
names = [path.relative_to(leaf) for leaf in (shared / f"unmix-{victim}").iterdir() for path in leaf.rglob("*.nb?")]
there, go = os.pipe(), os.pipe()
pid = os.fork()
if not pid:
    as_user(victim, be_robbed)
    os._exit(0)
os.read(there[0], 1)
as_user(stranger, steal)
os.write(go[1], b".")
assert os.waitpid(pid, 0)[1] == 0
print("kept", len(names), "ran", (shared / "ran-as").exists())
"""


@root
@others_can_read
def test_code_of_another_user_is_not_run():
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="unmix-test-") as name:
        shared = Path(name)
        shared.chmod(0o1777)
        (shared / "kernel.py").write_text("def twice(x):\n    return 2 * x\n")
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent/home",
            "TMPDIR": name,
            "PYTHONPATH": str(PACKAGE.parent),
        }
        words = [sys.executable, "-P", "-c", STOLEN, name, str(VICTIM), str(STRANGER)]
        done = subprocess.run(words, env=environment, cwd="/", capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "kept 0 ran False\n"


@pytest.mark.slow
def test_two_that_start_at_once(tmp_path, package):
    """Different signatures at the same moment: neither may end with the other's code."""
    environment = {"HOME": str(tmp_path)}
    cases = [
        ("float64", "active-set", package.optimum),
        ("int16", "active-set", package.optimum),
        ("float32", "delete-only", package.deleted),
    ]
    started = [run(environment, package, dtype, solver, wait=False) for dtype, solver, _ in cases]
    for process, (_, _, answer) in zip(started, cases):
        assert finish(process)[0] == answer
    for dtype, solver, answer in cases:
        assert run(environment, package, dtype, solver) == (answer, (1, 0))


@pytest.mark.slow
def test_code_of_several_processes_keeps_apart(tmp_path):
    """Each interleave and solver compiled by a process of its own, then all of them loaded into one."""
    script = """
import sys, numpy as np
sys.path.insert(0, {tests!r})
from pathlib import Path
from conftest import write_cube, write_csv
import unmix
random = np.random.default_rng(0)
E = random.random((20, 12))
cube = random.random((6, 70, 20))
here = Path(sys.argv[1])
here.mkdir(exist_ok=True)
library = write_csv(here / "e.csv", E)
for case in sys.argv[2:]:
    interleave, solver = case.split(":")
    path = write_cube(here / "c.hdr", cube, interleave)
    unmix.run(path, solver=solver, endmembers=library, device="cpu", out_dir=here / "o", overwrite=True)
    print(hash((here / "o/c_abundance.img").read_bytes()))
"""
    script = script.format(tests=str(Path(__file__).parent))
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONHASHSEED": "0"}

    def start(name, *cases):
        command = [sys.executable, "-c", script, str(tmp_path / name), *cases]
        return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE)

    cases = [
        f"{interleave}:{solver}" for interleave in ("bip", "bil", "bsq") for solver in ("active-set", "delete-only")
    ]
    apart = [start(str(i), case).communicate()[0].strip() for i, case in enumerate(cases)]
    together = start("all", *cases).communicate()[0].split()
    assert together == apart
    assert len(set(together)) == 2  # one for each solver, whatever the interleave


@pytest.mark.slow
def test_whatever_compiles_says_so_once_and_it_is_no_time_of_the_work(tmp_path):
    """`nmf`, which extracts, projects and descends: one line of it with an empty cache, none with a full one."""
    synthesise(tmp_path / "s.hdr", Scene(lines=8, samples=20, bands=12, count=3, seed=1))
    command = [
        sys.executable,
        "-m",
        "unmix_cli.main",
        "nmf",
        "s.hdr",
        "-n",
        "2",
        "--steps",
        "20",
        "--overwrite",
        "--device",
        "cpu",
    ]
    environment = os.environ | {"UNMIX_CACHE_DIR": str(tmp_path / "cache")}
    found = []
    for _ in range(2):
        done = subprocess.run([*command, "--json"], env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        seconds = json.loads(done.stdout)["seconds"]
        assert seconds["compiling"] + seconds["descending"] <= seconds["total"]
        found.append((done.stderr.count("compiling"), seconds))
    (first, slow), (second, quick) = found
    assert first == 1 and slow["compiling"] > 1 and slow["descending"] < slow["compiling"]
    assert second == 0 and quick["compiling"] == 0


def test_compiling_is_counted_from_the_outside(monkeypatch, caplog):
    import numba

    caplog.set_level("INFO", "unmix")
    monkeypatch.setattr(watch, "SECONDS_BEFORE_MESSAGE", 0.0)
    monkeypatch.setattr(watch.WATCH, "said", False)
    before = seconds_compiling()
    inner = numba.njit(lambda x: x + 1)
    began = time.perf_counter()
    assert numba.njit(lambda x: inner(x) * 2)(3) == 8
    taken = time.perf_counter() - began
    assert 0 < seconds_compiling() - before <= taken  # what is called is not counted twice
    assert caplog.text.count("compiling") == 1


@pytest.mark.slow
def test_functions_defined_by_threads_are_all_kept_in_the_folder(tmp_path):
    """The folder is a setting of Numba's for all threads: one that found it gone kept its code in the working directory."""
    script = (
        "import concurrent.futures, sys\n"
        "from unmix.compiled import jit\n"
        "sys.setswitchinterval(1e-6)\n"
        "def define(i):\n"
        "    def add(x):\n"
        "        return x + i\n"
        "    return jit.compiled(add)._cache.cache_path\n"
        "with concurrent.futures.ThreadPoolExecutor(8) as pool:\n"
        "    paths = set(pool.map(define, range(400)))\n"
        f"print(sorted(path for path in paths if not path.startswith({str(tmp_path / 'cache')!r})))\n"
    )
    (tmp_path / "defining.py").write_text(script)  # a cache is for code in files
    base = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE.parent), "UNMIX_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "defining.py"], env=base, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stdout[:300] + done.stderr


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="without compiled code there is nothing to keep")
def test_a_function_that_was_handed_over_counts_at_any_depth():
    """An edited `tally` was not seen by the loops that call it two functions further: they kept the code with the old one in it."""
    from unmix.compiled.simd import WIDE
    from unmix.solvers.pixels.mesma.loops import loops_function
    from unmix.solvers.pixels.mesma.rivals import tally

    files = {path.name for path in files_of(loops_function(WIDE, tally).py_func)}
    assert {"loops.py", "scan.py", "rivals.py"} <= files
