"""The cache of compiled code: kept between runs, and safe where Numba's own is not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from unmix.devices import simulated

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
