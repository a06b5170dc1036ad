"""The main job with the lowest versions of all packages that pyproject.toml allows, and with the newest, in new environments."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTRAS = ("geo", "stac", "plot", "view", "xarray", "remote", "hdf5")
COMMANDS = [
    ["run", "DATA/demo.hdr", "-o", "OUT/envi", "--uncertainty", "--certificate"],
    ["verify", "OUT/envi/demo", "--all"],
    ["run", "DATA/demo.hdr", "-n", "4", "-f", "cog", "--quantize", "1e-4", "-o", "OUT/cog"],
    ["verify", "OUT/cog/demo", "--all"],
    [
        "run",
        "DATA/demo.hdr",
        "-e",
        "OUT/envi/demo_endmembers.csv",
        "--method",
        "nnls",
        "--l1",
        "0.1",
        "-f",
        "netcdf",
        "-o",
        "OUT/nc",
    ],
    ["verify", "OUT/nc/demo", "--all"],
    ["count", "DATA/demo.hdr"],
    ["report", "OUT/envi/demo"],
    ["run", "URL/demo.hdr", "-n", "4", "-o", "OUT/remote"],
]
LIBRARY_USE = """
import h5py, numpy as np, unmix, xarray
from unmix.io.formats.chunks import Decoder, deflate
from unmix.features.xarray.engine import SceneEngine
scene = xarray.open_dataset("DATA/demo.hdr", engine=SceneEngine, chunks=None)
assert np.isfinite(unmix.solve(scene["spectra"].values[:2, :3], np.eye(scene.sizes["band"], 4)).abundances).all()
values = np.arange(2**17, dtype=np.int32).reshape(64, 64, 32)
with h5py.File("OUT/packed.h5", "w") as file:
    decoder = Decoder.of(file.create_dataset("x", data=values, chunks=values.shape, compression="gzip", shuffle=True))
    found = np.empty_like(values)
    decoder.fill([slice(0, length) for length in values.shape], found)
assert "isal" in deflate.__name__ and (found == values).all()
"""


def lowest(requirement: str) -> str:
    """Return a requirement of the lowest version that it allows: ``numpy==1.26`` for ``numpy>=1.26``."""
    found = re.match(r"([\w.\[\]-]+)>=([\w.]+)", requirement)
    assert found is not None, f"{requirement} has no lowest version"
    return f"{found[1]}=={found[2]}"


@pytest.mark.slow
@pytest.mark.night
@pytest.mark.parametrize("which", ["lowest", "newest"])
def test_main_job(which: str, tmp_path: Path) -> None:
    from object_server import serving

    if which == "lowest" and sys.version_info >= (3, 13):
        pytest.skip("the lowest versions have no wheels for this Python")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + [each for extra in EXTRAS for each in project["optional-dependencies"][extra]]
    packages = [lowest(each) if which == "lowest" else each for each in dict.fromkeys(wanted)]
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *packages], check=True)
    (tmp_path / "path").mkdir()
    (tmp_path / "path/unmix").symlink_to(ROOT / "unmix")
    (tmp_path / "path/unmix_cli").symlink_to(ROOT / "cli")
    (tmp_path / "cache").mkdir(mode=0o700)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment |= {"PYTHONPATH": str(tmp_path / "path"), "UNMIX_CACHE_DIR": str(tmp_path / "cache")}
    with serving(ROOT / "data") as server:

        def given(text: str) -> str:
            return text.replace("DATA", str(ROOT / "data")).replace("OUT", str(tmp_path)).replace("URL", server.url)

        for words in COMMANDS:
            done = subprocess.run(
                [python, "-m", "unmix_cli.main", *map(given, words)], env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, (words, done.stderr)
        subprocess.run(
            [python, "-W", "error::DeprecationWarning", "-c", given(LIBRARY_USE)], env=environment, check=True
        )


def test_conda_recipe_is_of_this_project() -> None:
    """Its version and its packages are those of the wheel; `make release-check` lints it."""
    import yaml

    from unmix._version import VERSION

    recipe = yaml.safe_load((ROOT / ".ci/conda/recipe.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert recipe["context"]["version"] == VERSION
    assert recipe["context"]["python_min"] == project["requires-python"].removeprefix(">=")
    assert [each.replace(" ", "") for each in recipe["requirements"]["run"][1:]] == project["dependencies"]
    extras = {each for one in project["optional-dependencies"].values() for each in one}
    assert {each.replace(" ", "") for each in recipe["requirements"]["run_constraints"]} <= extras
    assert recipe["build"]["python"]["entry_points"] == [f"unmix = {project['scripts']['unmix']}"]


def test_lock_allows_what_the_project_asks() -> None:
    """Every required package, and those of the extras it covers, is in the lock file in a version that is high enough."""
    version = pytest.importorskip("packaging.version").Version
    text = (ROOT / ".ci/requirements.lock").read_text()
    locked: dict[str, list[str]] = {}
    for name, number in re.findall(r"^([\w.-]+)==([^\s;\\]+)", text, re.MULTILINE):
        locked.setdefault(name, []).append(number)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in project["dependencies"] + [
        each for extra in (*EXTRAS, "dask") for each in project["optional-dependencies"][extra]
    ]:
        name, _, least = lowest(requirement).partition("==")
        assert name in locked and all(version(number) >= version(least) for number in locked[name]), requirement


def test_every_extra_is_in_all_and_in_the_docs() -> None:
    """And whatever a message tells to install is an extra."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (whole,) = extras["all"]
    users = set(extras) - {"all", "bench", "test", "dev", "cuda12", "cuda13"}
    assert set(re.search(r"\[(.*)\]", whole)[1].split(",")) == users  # type: ignore[index]
    readme = (ROOT / "README.md").read_text()
    assert users <= set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/packaging.md").read_text(), re.MULTILINE))
    assert readme.index("'.[all]'") < readme.index("pip install . ")
    sources = "".join(path.read_text() for folder in ("unmix", "cli") for path in (ROOT / folder).rglob("*.py"))
    named = {name for group in re.findall(r"'unmix\[([\w,]+)\]'", sources) for name in group.split(",")}
    assert {"geo", "dask", "stac"} <= named <= set(extras)


def test_workflow_tests_every_python_that_the_project_names() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    named = [
        one.rsplit(" ", 1)[1] for one in classifiers if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", one)
    ]
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    assert re.findall(r'"([\d.]+)"', re.search(r"python: \[(.*)\]", workflow)[1]) == named  # type: ignore[index]
