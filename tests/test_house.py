"""The house stays a house: who may import whom, what is packaged, what is heavy, what is documented."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "unmix"
# Room: what it may import of this package (by room) and of others. The rooms above may use the rooms below.
MAY_IMPORT = {
    "errors": set(),
    "_version": set(),
    "files": {"errors"},
    "blocks": {"errors"},
    "methods": {"errors"},
    "pipeline": set(),
    "solvers": {"solvers", "certificate", "summary", "errors", "numpy", "numba", "llvmlite", "cuda", "scipy"},
    "certificate": {"solvers.jit", "solvers.lanes", "numpy"},
    "summary": {"certificate", "solvers.jit", "numpy"},
    "io": {"io", "blocks", "errors", "numpy", "spectral", "h5py", "scipy", "rasterio"},
    "identity": {"io", "errors", "numpy"},
    "library": {"library", "io", "errors", "files", "numpy", "scipy"},
    "scene": {"io", "errors", "library", "numpy"},
    "problem": {"io", "errors", "library", "methods", "solvers", "numpy", "scipy"},
    "endmembers": {"endmembers", "solvers", "blocks", "io", "errors", "library", "numpy"},
    "devices": {"devices", "solvers", "blocks", "errors", "files", "problem", "numpy"},
    "rescue": {"solvers", "devices", "problem", "certificate", "numpy"},
    "arrays": {
        "arrays", "blocks", "certificate", "devices", "errors", "io", "library", "methods", "pipeline", "problem", "rescue", "solvers",
        "numpy", "scipy",
    },
    "options": {"blocks", "certificate", "errors", "io", "library", "methods", "scene"},
    "outputs": {
        "_version", "outputs", "blocks", "certificate", "errors", "files", "identity", "io", "library", "options", "pipeline",
        "problem", "scene", "summary", "numpy",
    },
    "jobs": {
        "_version", "jobs", "arrays", "blocks", "certificate", "devices", "endmembers", "errors", "files", "identity", "io", "library",
        "methods", "options", "outputs", "pipeline", "problem", "rescue", "scene", "solvers", "summary", "numpy", "scipy", "h5py",
        "matplotlib", "dask", "distributed",
    },
    "__init__": {"_version", "errors", "arrays", "jobs", "io", "library", "options", "scene"},
}  # fmt: skip
STANDARD = sys.stdlib_module_names


def imports_of(path):
    """The rooms and outside packages that a file imports, wherever in it."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    package = parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                yield node.module.split(".")[0]
                continue
            base = package[: len(package) - node.level + 1]
            target = (*base, *(node.module or "").split(".")) if node.module else base
            if target:
                yield ".".join(target)
            else:
                for alias in node.names:
                    yield alias.name if (PACKAGE / f"{alias.name}.py").exists() else "__init__"


def test_imports_run_downhill():
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        allowed = MAY_IMPORT[parts[0]]
        for name in imports_of(path):
            if name in STANDARD:
                continue
            assert name in allowed or name.split(".")[0] in allowed, f"{path.name} may not import {name}"


def test_every_room_is_in_the_table():
    rooms = {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    assert rooms == set(MAY_IMPORT)


def test_solvers_and_certificate_share_nothing():
    """Only the tile calls both; the certificate takes from the solvers how to compile, and the words for vectors."""
    for name in ("update", "pixel", "sweep"):
        assert "certificate" not in set(imports_of(PACKAGE / f"solvers/{name}.py"))
    from_solvers = {name for name in imports_of(PACKAGE / "certificate.py") if name.startswith("solvers")}
    assert from_solvers == {"solvers.jit", "solvers.lanes"}


def test_click_is_for_the_command_line():
    for path in PACKAGE.rglob("*.py"):
        assert "click" not in set(imports_of(path))


def test_the_naive_readings_are_numpy_alone():
    tree = ast.parse((ROOT / "tests/naive.py").read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert names == {"itertools", "numpy"}
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]


def test_every_folder_is_packaged():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in PACKAGE.rglob("__init__.py")}
    assert set(settings["packages"]) == folders | {"unmix_cli"}
    assert settings["package-dir"] == {"unmix_cli": "cli"}


def test_nothing_heavy_before_a_command_runs():
    script = "import sys, unmix_cli.main, unmix; print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.split())
    assert not loaded & {"numpy", "numba", "scipy", "h5py", "rich", "spectral"}


def public_things():
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] == "cuda":
            continue
        module = importlib.import_module(".".join(part for part in parts if part != "__init__"))
        yield module.__name__, module
        for name, thing in vars(module).items():
            thing = inspect.unwrap(getattr(thing, "py_func", thing))
            own = getattr(thing, "__module__", None) == module.__name__
            if own and not name.startswith("_") and (inspect.isclass(thing) or inspect.isfunction(thing)):
                yield f"{module.__name__}.{name}", thing


@pytest.mark.parametrize(
    "name",
    ["unmix.arrays.pixels.solve", "unmix.jobs.run.run", "unmix.options.Options", "unmix.certificate.certify_function"],
)
def test_the_main_functions_are_documented_in_full(name):
    thing = dict(public_things())[name]
    for parameter in inspect.signature(thing).parameters:
        assert parameter in thing.__doc__, parameter
    assert "Parameters\n" in thing.__doc__ or "Attributes\n" in thing.__doc__


def test_public_things_have_docstrings():
    short = {"Results", "new_work", "new_tile", "stored_of"}
    missing = [name for name, thing in public_things() if not thing.__doc__ and name.split(".")[-1] not in short]
    assert missing == []


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name
)
def test_links_of_the_documents_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    assert [link for link in links if link and not (page.parent / link).exists()] == []
    if page.name == "security.md":
        assert links


def test_files_stay_readable():
    for path in [*PACKAGE.rglob("*.py"), *(ROOT / "cli").rglob("*.py")]:
        assert len(path.read_text().splitlines()) <= 460, f"{path} is crowded; split it"
