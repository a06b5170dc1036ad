"""The scripts of docs/cluster.md, run as far as one machine allows."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE

import unmix
from unmix.commands.synth import SyntheticScene, synthesise

pytest.importorskip("distributed")
DOCS = Path(__file__).parents[3] / "docs"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("NUMBA_ENABLE_CUDASIM") == "1", reason="workers are processes of their own"),
]
# What a cluster has and this machine has not: each stands for the machine itself.
STAND_IN = """
srun() { "$@"; }
ssh() { shift; "$@"; }
hostname() { echo 127.0.0.1; }
dask() { exec python -m "distributed.cli.dask_$1" "${@:2}" 2>/dev/null; }
"""


def script(page, heading):
    """The block of shell under a heading."""
    text = (DOCS / page).read_text()
    return re.search(r"```bash\n(.*?)```", text[text.index(f"# {heading}\n") :], re.DOTALL)[1]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def archive(tmp_path):
    """Six scenes, their list, and the maps that a run makes of them."""
    paths = [tmp_path / f"s{i}.hdr" for i in range(6)]
    for i, path in enumerate(paths):
        synthesise(path, SyntheticScene(40, 20, 30, 3, seed=i))
    (tmp_path / "scenes.txt").write_text("".join(f"{path}\n" for path in paths))
    (tmp_path / "hosts.txt").write_text("localhost\nlocalhost\n")
    for path in paths:
        unmix.run(path, count=9, device="cpu", out_dir=tmp_path / "whole")
    return tmp_path


def run(archive, heading, page="cluster.md", **variables):
    """A script in a job's environment."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = (
        os.environ | {"PATH": path, "CUDA_VISIBLE_DEVICES": ""} | {key: str(value) for key, value in variables.items()}
    )
    words = ["bash", "-c", STAND_IN + script(page, heading)]
    done = subprocess.run(words, cwd=archive, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr


def same(archive):
    names = sorted(path.name for path in (archive / "whole").glob("*_abundance.img"))
    assert names == sorted(path.name for path in (archive / "maps").glob("*_abundance.img"))
    return all((archive / "maps" / name).read_bytes() == (archive / "whole" / name).read_bytes() for name in names)


@pytest.mark.night
def test_array_jobs(archive):
    for i in range(1, 5):
        run(archive, "Array jobs", SLURM_ARRAY_TASK_ID=i, SLURM_ARRAY_TASK_COUNT=4)
    assert same(archive)
    assert [len((archive / f"done-{i}.jsonl").read_text().splitlines()) for i in range(1, 5)] == [2, 2, 1, 1]


@pytest.mark.night
def test_dask_in_one_job(archive):
    run(archive, "Dask in one SLURM job", SLURM_JOB_ID=7, SLURM_CPUS_PER_TASK=2)
    assert same(archive) and not (archive / "scheduler-7.json").exists()


@pytest.mark.night
@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")
def test_a_cluster_among_strangers(archive):
    run(archive, "A cluster among strangers", "security.md", PORT=free_port())
    assert same(archive) and (archive / "keys/key.pem").stat().st_mode & 0o077 == 0
