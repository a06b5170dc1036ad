"""A build says which code it is: commits of one version do not pass as each other."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import unmix
from unmix._version import VERSION, build

PACKAGE = Path(unmix.__file__).parent
ROOT = Path(__file__).parents[2]
ASK = "from unmix._version import build; print(build())"


def test_a_build_is_known_by_its_sources(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "unmix", ignore=shutil.ignore_patterns("__pycache__"))

    def asked():
        done = subprocess.run([sys.executable, "-c", ASK], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert asked() == build() and build().startswith(f"{VERSION}+") and unmix.__version__ == VERSION
    seen = {build()}
    with open(tmp_path / "unmix/rescue.py", "a") as file:
        file.write("# changed\n")
    seen.add(asked())
    (tmp_path / "unmix/rescue.py").rename(tmp_path / "unmix/rescued.py")
    seen.add(asked())
    assert len(seen) == 3


def test_it_is_said(scene):
    own = build()
    done = subprocess.run([sys.executable, "-m", "unmix_cli.main", "--version"], capture_output=True, text=True)
    assert done.stdout == f"unmix, version {own}\n" and done.returncode == 0
    assert unmix.run(scene, count=3, extract="vca", device="cpu")["unmix"] == own
    header = (scene.parent / "scene_abundance.hdr").read_text()
    assert f"by unmix {VERSION}," in header and own not in header


def test_a_run_of_another_build_is_not_gone_on_with(scene, monkeypatch):
    def stop(step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unmix.run(scene, count=3, extract="vca", device="cpu", progress=stop)
    monkeypatch.setattr("unmix.runs.scene_run.build", lambda: f"{VERSION}+0123456789ab")
    with pytest.raises(
        unmix.OutputError, match=rf"an unfinished run differs in unmix \({VERSION}\+.*, now {VERSION}\+0123456789ab\)"
    ):
        unmix.run(scene, count=3, extract="vca", device="cpu")


@pytest.mark.slow
@pytest.mark.night
def test_a_wheel_is_the_build_of_its_sources(tmp_path):
    """Packing drops and changes no source, so a worker that runs the wheel is the same build as the checkout it was made from."""
    tree = tmp_path / "tree"
    leave = shutil.ignore_patterns("__pycache__")
    for name in ("unmix", "cli"):
        shutil.copytree(ROOT / name, tree / name, ignore=leave)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path / "out")]
    words += [str(tree)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "out").glob(f"unmix-{VERSION}-*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    asked = subprocess.run(
        [sys.executable, "-c", ASK], cwd=tmp_path / "installed", capture_output=True, text=True, check=True
    )
    assert asked.stdout.strip() == build()
    typed_by_users(tmp_path)


def typed_by_users(tmp_path):
    """Check that a user's strict type-check sees the package's types, and a wrong one."""
    (tmp_path / "user.py").write_text(
        "import numpy as np, unmix\n"
        "found: unmix.Solution = unmix.solve(np.ones((1, 3)), np.eye(3), method='nnls')\n"
        "unmix.solve(found, method=7)\n"
    )
    assert (tmp_path / "installed/unmix/py.typed").exists()
    words = [sys.executable, "-m", "mypy", "--strict", "user.py"]
    checked = subprocess.run(
        words, cwd=tmp_path, env=os.environ | {"MYPYPATH": "installed"}, capture_output=True, text=True
    )
    faults = [line for line in checked.stdout.splitlines() if line.startswith("user.py")]
    assert faults and all(line.startswith("user.py:3:") for line in faults), checked.stdout + checked.stderr
