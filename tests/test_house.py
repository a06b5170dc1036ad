"""The house stays a house: who may import whom, what is packaged, what is heavy, what is documented."""

import ast
import graphlib
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
# Room, from the lowest up: which rooms below it may import, and what of others.
HOUSE = {
    "compiled": ((), {"numpy", "numba", "llvmlite", "cuda"}),
    "errors": ((), set()),
    "_version": ((), set()),
    "pipeline": ((), set()),
    "wake": ((), set()),
    "blocks": (("errors",), set()),
    "methods": (("errors",), set()),
    "certificate": (("compiled",), {"numpy"}),
    "summary": (("certificate", "compiled"), {"numpy"}),
    "steps": (("certificate", "compiled"), {"numpy"}),
    "solvers/nnls": (("compiled", "certificate"), {"numpy", "numba"}),
    "solvers/nnqp": (("compiled",), {"numpy", "numba", "scipy"}),
    "solvers/nmf": (("compiled", "errors"), {"numpy", "numba"}),
    "solvers/bands": (("compiled",), {"numpy", "numba"}),
    "solvers/pixels": (("compiled", "certificate", "summary", "steps", "solvers/nnls", "solvers/nnqp"), {"numpy", "numba"}),
    "io": (("errors", "blocks"), {"numpy", "h5py", "scipy", "rasterio", "obstore", "isal"}),
    "library": (("io", "errors"), {"numpy", "scipy"}),
    "scene": (("io", "library", "errors"), {"numpy"}),
    "options": (("scene", "methods", "io", "library", "errors", "blocks", "certificate"), set()),
    "problem": (("io", "library", "methods", "errors", "solvers/pixels"), {"numpy", "scipy"}),
    "endmembers": (
        ("scene", "io", "library", "methods", "errors", "compiled", "solvers/pixels", "solvers/nnls", "blocks"), {"numpy", "scipy"},
    ),
    "devices": (("compiled", "solvers/pixels", "summary", "problem", "io", "blocks", "errors"), {"numpy"}),
    "exact_mixtures": (("devices", "problem", "solvers/pixels", "certificate", "compiled"), {"numpy"}),
    "rescue": (("exact_mixtures", "devices", "problem", "solvers/pixels", "certificate", "compiled"), {"numpy"}),
    "outputs": (("io", "library", "errors"), {"numpy"}),
    "outputs/maps": (("outputs", "options", "problem", "io", "steps", "errors", "_version"), {"numpy"}),
    "outputs/run_files": (
        ("outputs/maps", "outputs", "options", "summary", "io", "library", "errors"), {"numpy"},
    ),
    "outputs/record": (
        ("outputs/run_files", "outputs/maps", "outputs", "options", "summary", "certificate", "scene", "problem", "methods", "io",
         "library", "pipeline", "blocks", "_version"),
        {"numpy"},
    ),
    "pictures": (("outputs", "outputs/run_files", "io", "errors"), {"numpy"}),
    "arrays": (
        ("rescue", "devices", "problem", "pipeline", "certificate", "compiled", "methods", "io", "library", "blocks", "errors",
         "solvers/pixels", "solvers/nnls", "solvers/nnqp", "solvers/nmf", "solvers/bands"),
        {"numpy", "scipy"},
    ),
    "xarray_engine": (("arrays", "io", "scene"), {"numpy", "xarray"}),
    "jobs": (
        ("arrays", "outputs", "outputs/maps", "outputs/run_files", "outputs/record", "pictures",
         "endmembers", "rescue", "devices", "problem", "options", "scene", "library", "io", "summary",
         "certificate", "solvers/pixels", "compiled", "pipeline", "methods", "blocks", "errors", "_version"),
        {"numpy", "scipy", "h5py", "matplotlib", "dask", "distributed", "pystac", "rasterio", "skimage"},
    ),
    "__main__": ((), {"unmix_cli"}),
    "__init__": (("jobs", "arrays", "pictures", "options", "scene", "library", "io", "errors", "_version"), set()),
}  # fmt: skip
# Modules of the solvers that use the certificate, and for what; every search that is not among them knows nothing of it.
CALL_BOTH = {
    "pixels/tile.py",  # calls a search, then the proof
    "pixels/cpu.py",  # makes the scratch of both
    "pixels/active_set_extended.py",  # the rescue: proves each answer in double-double
    "pixels/mesma/search.py", "pixels/rows.py",  # bounds of rounding
    "pixels/cuda_fast/driver.py", "pixels/cuda_fast/judge.py",  # κ and δ on a GPU
    "pixels/cuda_totals/totals.py",  # counts by what was certified
    "nnls/systems.py",  # one system: solved, then proved
}  # fmt: skip
STANDARD = sys.stdlib_module_names
MOST_MODULES, MOST_LINES, LONGEST_FUNCTION = 13, 460, 80
# Functions with more lines (docstrings not counted), and why they are one.
LONG = {
    "verdict_function": "κ and δ are one calculation; in pieces every vector would be stored and loaded between them",
    "verdict": "κ and δ are one calculation; in pieces every vector would be stored and loaded between them",
    "spectra_functions": "two functions of a GPU that share what they are compiled for",
    "search_function": "one function of a GPU whose tableau lies in registers, which a call would spill",
    "search": "the same",
    "warp_functions": "eight short functions of a warp that share what they are compiled for",
    "nnls_function": "eleven short functions that are compiled for one team",
    "nmf_scene": "to be cut: a scene's way of its own",
}


def room_of(parts):
    """The room of a module of ours, from the parts of its name."""
    below = "/".join(parts[:2])
    return below if below in HOUSE else parts[0]


def imports_of(path):
    """The rooms and outside packages that a file imports, wherever in it."""
    package = path.relative_to(PACKAGE).with_suffix("").parts[:-1]
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
                yield room_of(target)
            else:
                for alias in node.names:
                    yield alias.name if (PACKAGE / f"{alias.name}.py").exists() else "__init__"


def test_the_table_has_no_circle_and_no_arrow_up():
    rooms = list(HOUSE)
    list(graphlib.TopologicalSorter({room: own for room, (own, _) in HOUSE.items()}).static_order())
    up = [(room, below) for room, (own, _) in HOUSE.items() for below in own if rooms.index(below) >= rooms.index(room)]
    assert up == []


def test_imports_run_downhill():
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        room = room_of(path.relative_to(PACKAGE).with_suffix("").parts)
        if room in ("solvers",):
            continue  # a docstring
        own, others = HOUSE[room]
        names = set(imports_of(path)) - STANDARD - {room}
        wrong += [(str(path), name) for name in names if name not in own and name not in others]
    assert wrong == []


def test_nothing_in_the_table_is_unused():
    """An arrow that nobody takes any more is an invitation."""
    taken = {room: set() for room in HOUSE}
    for path in PACKAGE.rglob("*.py"):
        room = room_of(path.relative_to(PACKAGE).with_suffix("").parts)
        taken.setdefault(room, set()).update(imports_of(path))
    assert {room: set(own) - taken[room] for room, (own, _) in HOUSE.items() if set(own) - taken[room]} == {}


def test_every_room_is_in_the_table():
    rooms = {
        path.stem if path.is_file() else path.name
        for path in PACKAGE.iterdir()
        if path.name not in ("__pycache__", "py.typed")
    }
    for name in ("solvers", "outputs"):
        rooms |= {f"{name}/{path.name}" for path in (PACKAGE / name).iterdir() if (path / "__init__.py").exists()}
    assert rooms - {"solvers"} == set(HOUSE)


def test_no_folder_is_crowded():
    folders = [PACKAGE, *(path.parent for path in PACKAGE.rglob("__init__.py"))]
    crowded = {
        str(folder): n
        for folder in folders
        if (n := len([path for path in folder.glob("*.py") if path.stem != "__init__"])) > MOST_MODULES
    }
    assert crowded == {}


def test_files_and_functions_stay_readable():
    long = {}
    for path in [*PACKAGE.rglob("*.py"), *(ROOT / "cli").rglob("*.py")]:
        text = path.read_text()
        assert len(text.splitlines()) <= MOST_LINES, f"{path} is crowded; split it"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                said = ast.get_docstring(node, clean=False) or ""
                lines = node.end_lineno - node.lineno + 1 - len(said.splitlines())
                if lines > LONGEST_FUNCTION:
                    long[node.name] = (str(path), lines)
    assert set(long) == set(LONG), long


def test_solvers_and_certificate_share_nothing():
    """Only these call both; every other search knows no proof, and the certificate takes from elsewhere how to compile."""
    drivers = {path.relative_to(PACKAGE / "solvers").as_posix() for path in (PACKAGE / "solvers").rglob("*.py")
               if "certificate" in set(imports_of(path))}  # fmt: skip
    assert drivers == CALL_BOTH
    assert set(imports_of(PACKAGE / "certificate.py")) - STANDARD == {"compiled", "numpy"}


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
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    assert {"unmix", "unmix_cli.main", "click"} <= loaded
    assert not loaded & {"numpy", "numba", "scipy", "h5py", "rich", "spectral"}


def test_a_run_imports_no_more_than_it_uses(tmp_path):
    """Half a second of a process was imports of what loads compiled code, resamples or extracts, where nothing of it was needed."""
    script = (
        "import sys, unmix; "
        "unmix.run(sys.argv[1], endmembers=sys.argv[2], out_dir=sys.argv[3], overwrite=True, browse=False, device='cpu'); "
        "print(*sys.modules)"
    )
    files = ROOT / "data/demo.hdr", ROOT / "data/demo_truth_endmembers.csv", tmp_path
    for _ in range(2):  # the first may compile
        ran = subprocess.run(
            [sys.executable, "-c", script, *map(str, files)], capture_output=True, text=True, check=True
        )
    loaded = set(ran.stdout.split())
    assert not loaded & {
        "scipy.special",
        "scipy.linalg",
        "h5py",
        "numba.np.linalg",
        "unmix.endmembers",
        "matplotlib",
        "rasterio",
    }


def public_things():
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1].startswith("cuda") or "cuda_fast" in parts:
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


def messages():
    """Every text of the package that is no docstring, with its file."""
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        blocks = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
        docs = {id(node.body[0].value) for node in blocks if node.body and isinstance(node.body[0], ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                yield path.name, node.value


def test_the_package_speaks_of_parameters_and_the_command_line_of_options():
    """`` `max_delta` `` in a message of the package, ``--max-delta`` where the command line shows it: each is one of its options."""
    from unmix_cli.main import COMMANDS, cli

    commands = [cli.get_command(None, name) for name in COMMANDS]
    commands += [sub for command in commands for sub in getattr(command, "commands", {}).values()]
    options = {option for command in commands for parameter in command.params for option in parameter.opts}
    flag, parameter = re.compile(r"(?<![\w`-])--[a-z][a-z-]+"), re.compile(r"`([a-z][a-z_]*)`")
    texts = [(name, text) for name, text in messages() if name != "_version.py"]
    assert [(name, text) for name, text in texts if flag.search(text)] == []
    in_files = {
        "__init__.py",
        "products.py",
        "matlab.py",
        "geotiff.py",
        "hdf5.py",
        "fields.py",
        "header.py",
        "envi.py",
    }  # tables of formats name what stands in a file
    words = {word for name, text in texts if name not in in_files for word in parameter.findall(text)}
    assert {word for word in words if "--" + word.replace("_", "-") not in options} == set()
