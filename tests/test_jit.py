"""The cache of compiled code: kept between runs, and safe where Numba's own is not."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unmix.devices import simulated
from unmix.jobs.synth import Scene, synthesise

pytestmark = pytest.mark.skipif(simulated(), reason="nothing is compiled in the simulator")
PACKAGE = Path(__file__).parents[1] / "unmix"
SCRIPT = """
import numpy as np, unmix
E = np.array([[3.0, 3, 4], [0, 5, 7], [0, 2, 2], [4, 2, 0]])
y = np.array([[4.0, 8, 8, 2]]).astype("{dtype}")
print(unmix.solve(y, E, method="fcls", solver="{solver}").abundances.round(3).tolist())
from unmix.solvers import cpu
kernel = cpu.tiles_solver("bip", "{solver}".replace("-", "_"))
print(sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values()))
"""


def run(environment, package=PACKAGE, dtype="float64", solver="active-set", wait=True):
    script = SCRIPT.format(dtype=dtype, solver=solver)
    base = {"PATH": os.environ["PATH"], "PYTHONPATH": str(package.parent)}
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", script], env=base | environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, cwd="/",
    )  # fmt: skip
    return finish(process) if wait else process


def finish(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    answer, counts = out.splitlines()
    return answer, tuple(map(int, counts.split()))


OPTIMUM, DELETED = "[[0.0, 0.222, 0.778]]", "[[0.0, 1.0, 0.0]]"


def test_compiled_once(tmp_path):
    environment = {"HOME": str(tmp_path)}
    assert run(environment) == (OPTIMUM, (0, 1))
    assert run(environment) == (OPTIMUM, (1, 0))
    # A closure over another solver, of the same type, is another function.
    assert run(environment, solver="delete-only") == (DELETED, (0, 1))
    assert run(environment) == (OPTIMUM, (1, 0))
    assert (tmp_path / ".cache/unmix").is_dir()


def test_an_edited_callee_recompiles_its_callers(tmp_path):
    """Numba's own cache would go on with the old code: the edited file is not the one that holds the kernel."""
    package = tmp_path / "copy/unmix"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {"HOME": str(tmp_path)}
    assert run(environment, package, solver="delete-only") == (DELETED, (0, 1))
    pixel = package / "solvers/pixel.py"
    pixel.write_text(
        pixel.read_text().replace("work.a[work.support[i]] = work.x[i]", "work.a[work.support[i]] = 0.125")
    )
    assert run(environment, package, solver="delete-only") == ("[[0.0, 0.125, 0.0]]", (0, 1))


def test_where_home_is_not_writable(tmp_path):
    """No HOME, and a HOME that is a file: cron's. The temporary folder takes its place."""
    home = tmp_path / "file"
    home.write_text("")
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    for environment in ({"HOME": str(home)}, {"HOME": str(home / "beneath")}):
        environment["TMPDIR"] = str(scratch)
        assert run(environment)[0] == OPTIMUM
    assert run({"HOME": str(home), "TMPDIR": str(scratch)})[1] == (1, 0)
    assert list(scratch.glob("unmix-*"))


def test_where_nothing_is_writable(tmp_path):
    from unmix.solvers import jit

    script = "import unmix.solvers.jit as jit\njit._usable = lambda folder: False\n" + SCRIPT.format(
        dtype="float64", solver="active-set"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines() == [OPTIMUM, "0 1"], done.stderr
    assert jit.cache_folder() is not None


def test_a_folder_that_others_may_write_is_not_trusted(tmp_path):
    from unmix.solvers.jit import _usable

    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    assert not _usable(folder)
    folder.chmod(0o700)
    assert _usable(folder)


def test_two_that_start_at_once(tmp_path):
    """Different signatures at the same moment: neither may end with the other's code."""
    environment = {"HOME": str(tmp_path)}
    cases = [("float64", "active-set", OPTIMUM), ("int16", "active-set", OPTIMUM), ("float32", "delete-only", DELETED)]
    started = [run(environment, dtype=dtype, solver=solver, wait=False) for dtype, solver, _ in cases]
    for process, (_, _, answer) in zip(started, cases):
        assert finish(process)[0] == answer
    for dtype, solver, answer in cases:
        assert run(environment, dtype=dtype, solver=solver) == (answer, (1, 0))


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

    from unmix.solvers import jit

    caplog.set_level("INFO", "unmix")
    monkeypatch.setattr(jit, "PATIENCE", 0.0)
    monkeypatch.setattr(jit.WATCH, "said", False)
    before = jit.seconds_compiling()
    inner = numba.njit(lambda x: x + 1)
    began = time.perf_counter()
    assert numba.njit(lambda x: inner(x) * 2)(3) == 8
    taken = time.perf_counter() - began
    assert 0 < jit.seconds_compiling() - before <= taken  # what is called is not counted twice
    assert caplog.text.count("compiling") == 1


def test_functions_defined_by_threads_are_all_kept_in_the_folder(tmp_path):
    """The folder is a setting of Numba's for all threads: one that found it gone kept its code in the working directory."""
    script = (
        "import concurrent.futures, sys\n"
        "from unmix.solvers import jit\n"
        "sys.setswitchinterval(1e-6)\n"
        "def define(i):\n"
        "    def add(x):\n"
        "        return x + i\n"
        "    return jit.compiled(add)._cache.cache_path\n"
        "with concurrent.futures.ThreadPoolExecutor(8) as pool:\n"
        "    paths = set(pool.map(define, range(400)))\n"
        "print(sorted(path for path in paths if not path.startswith(jit.cache_folder())))\n"
    )
    (tmp_path / "defining.py").write_text(script)  # a cache is for code in files
    base = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE.parent), "UNMIX_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "defining.py"], env=base, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stdout[:300] + done.stderr
