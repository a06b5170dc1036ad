"""The house stays a house: who may import whom, what is packaged, what is heavy, what is documented."""

import ast
import collections
import functools
import graphlib
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from sources import nodes_of, tree_of

import unmix

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "unmix"
# Every folder of the package, and every module beside them, from the lowest up: which of those below it may import,
# wherever in a function, and what of others.
HOUSE = {
    "_version": ((), set()),
    "compiled": (("_version",), {"cuda", "llvmlite", "numba", "numpy"}),
    "errors": ((), set()),
    "pipeline": ((), set()),
    "wake": ((), set()),
    "blocks": (("errors",), set()),
    "later": ((), set()),
    "features": ((), set()),
    "settings": (("features", "errors"), set()),
    "methods": (("settings", "errors"), {"numpy"}),
    "certificate": (("compiled",), {"numpy"}),
    "quotients": (("certificate", "compiled"), {"numpy"}),
    "summary": (("certificate", "compiled"), {"numpy"}),
    "steps": (("certificate", "compiled"), {"numpy"}),
    "solvers": (("compiled",), set()),
    "solvers/nnls": (("certificate", "compiled"), {"numpy"}),
    "solvers/nnqp": (("compiled",), {"numpy", "scipy"}),
    "solvers/pixels/supports": (("compiled",), {"numpy"}),
    "solvers/pixels/mesma": (("certificate", "compiled"), {"numpy"}),
    "solvers/pixels": (
        ("solvers/pixels/mesma", "solvers/pixels/supports", "certificate", "settings", "features", "compiled"),
        {"numba", "numpy"},
    ),
    "solvers/pixels/cuda_fast": (("solvers/pixels", "certificate", "compiled"), {"numba", "numpy"}),
    "solvers/pixels/cuda_many": (("solvers/pixels/cuda_fast", "solvers/pixels", "compiled"), {"numba", "numpy"}),
    "solvers/pixels/cuda_totals": (
        ("solvers/pixels", "steps", "summary", "quotients", "certificate", "compiled"),
        {"numba", "numpy"},
    ),
    "io/remote": (("blocks", "errors"), {"numpy", "obstore"}),
    "io": (
        ("later", "features", "io/remote", "blocks", "errors"),
        {"numpy", "pyogrio", "pyproj", "rasterio", "shapely"},
    ),
    "io/formats": (
        ("io", "io/remote", "blocks", "errors"),
        {"h5py", "hdf5plugin", "isal", "numpy", "rasterio", "scipy"},
    ),
    "io/formats/zarr": (("io/formats", "io", "io/remote", "errors"), {"numpy", "zarr"}),
    "io/export": (("io/formats", "io", "settings", "later", "errors"), {"h5py", "numpy", "pyproj", "rasterio", "zarr"}),
    "library": (("later", "io/formats", "io", "quotients", "certificate", "errors"), {"numpy", "spectral"}),
    "settings/run": (("features", "library", "io/export", "methods", "settings"), set()),
    "scene": (("later", "library", "io/formats", "io", "settings", "errors"), {"numpy", "scipy"}),
    "options": (
        (
            "features",
            "scene",
            "settings/run",
            "library",
            "io/export",
            "io/remote",
            "methods",
            "settings",
            "blocks",
            "errors",
        ),
        set(),
    ),
    "problem": (
        (
            "settings/run",
            "library",
            "io",
            "solvers/pixels",
            "solvers/pixels/mesma",
            "methods",
            "settings",
            "certificate",
            "errors",
        ),
        {"numpy", "scipy"},
    ),
    "endmembers/scan": (
        ("io", "solvers/pixels", "pipeline", "blocks", "errors", "compiled"),
        {"llvmlite", "numba", "numpy"},
    ),
    "endmembers": (
        (
            "later",
            "endmembers/scan",
            "solvers/pixels",
            "scene",
            "library",
            "io",
            "methods",
            "blocks",
            "errors",
            "compiled",
        ),
        {"numpy", "scipy"},
    ),
    "endmembers/auto": (("endmembers", "errors", "compiled"), {"numpy", "scipy"}),
    "devices": (
        (
            "later",
            "problem",
            "library",
            "io",
            "solvers/pixels/cuda_totals",
            "solvers/pixels/cuda_many",
            "solvers/pixels/cuda_fast",
            "solvers/pixels",
            "summary",
            "certificate",
            "blocks",
            "errors",
            "compiled",
        ),
        {"numpy"},
    ),
    "exact_mixtures": (("devices", "problem", "solvers/pixels", "certificate", "compiled"), {"numpy"}),
    "rescue": (("exact_mixtures", "devices", "problem", "solvers/pixels", "certificate", "compiled"), {"numpy"}),
    "outputs": (("library", "io/export", "io/formats", "io", "settings", "errors"), {"numpy"}),
    "maps": (
        ("outputs", "problem", "options", "io/export", "io/formats", "io", "steps", "settings", "_version", "errors"),
        {"numpy"},
    ),
    "runs/files": (
        (
            "maps",
            "outputs",
            "options",
            "scene",
            "library",
            "io/export",
            "io/formats",
            "io",
            "summary",
            "settings",
            "errors",
        ),
        {"numpy"},
    ),
    "runs/record": (
        (
            "runs/files",
            "maps",
            "problem",
            "options",
            "scene",
            "settings/run",
            "library",
            "io/formats",
            "io",
            "summary",
            "certificate",
            "methods",
            "settings",
            "features",
            "blocks",
            "pipeline",
            "_version",
            "compiled",
        ),
        {"numpy"},
    ),
    "pages": (
        (
            "features",
            "runs/files",
            "runs/record",
            "outputs",
            "scene",
            "library",
            "io/export",
            "io/formats",
            "io",
            "errors",
        ),
        {"numpy"},
    ),
    "arrays/others": (
        ("devices", "problem", "io", "solvers/nnls", "certificate", "errors", "compiled"),
        {"cuda", "numba", "numpy"},
    ),
    "arrays": (
        (
            "arrays/others",
            "rescue",
            "devices",
            "problem",
            "library",
            "io",
            "solvers",
            "solvers/nnls",
            "certificate",
            "methods",
            "settings",
            "features",
            "blocks",
            "pipeline",
            "errors",
            "compiled",
        ),
        {"numpy", "scipy"},
    ),
    "arrays/counts": (("arrays", "arrays/others", "problem", "certificate", "errors"), {"numpy", "scipy"}),
    "maps/derived": (
        (
            "features",
            "pages",
            "problem",
            "options",
            "scene",
            "io/formats/zarr",
            "io",
            "settings",
            "blocks",
            "errors",
            "compiled",
        ),
        {"numpy"},
    ),
    "commands/synth": (
        ("outputs", "library", "io/formats", "io", "blocks", "errors"),
        {"h5py", "numpy"},
    ),
    "runs/penalties": (
        (
            "runs/record",
            "arrays",
            "devices",
            "certificate",
            "endmembers",
            "problem",
            "options",
            "scene",
            "io",
            "summary",
            "errors",
        ),
        {"numpy"},
    ),
    "runs": (
        (
            "features",
            "runs/penalties",
            "maps/derived",
            "arrays/counts",
            "arrays",
            "pages",
            "runs/record",
            "runs/files",
            "maps",
            "outputs",
            "rescue",
            "devices",
            "endmembers",
            "problem",
            "options",
            "scene",
            "library",
            "io",
            "io/remote",
            "summary",
            "quotients",
            "certificate",
            "methods",
            "settings",
            "blocks",
            "pipeline",
            "_version",
            "errors",
        ),
        {"numpy", "scipy"},
    ),
    "commands/verify": (
        (
            "runs",
            "runs/record",
            "features",
            "runs/files",
            "maps",
            "outputs",
            "options",
            "scene",
            "settings/run",
            "library",
            "io",
            "summary",
            "methods",
            "settings",
            "pipeline",
            "_version",
            "errors",
        ),
        {"numpy"},
    ),
    "commands/finished": (
        (
            "features",
            "commands/verify",
            "pages",
            "runs/files",
            "maps",
            "outputs",
            "scene",
            "library",
            "io/export",
            "io/formats/zarr",
            "io/formats",
            "io",
            "settings",
            "blocks",
            "_version",
            "errors",
        ),
        {"numpy", "scipy"},
    ),
    "commands": (
        (
            "runs",
            "features",
            "commands/synth",
            "arrays",
            "runs/record",
            "runs/files",
            "outputs",
            "devices",
            "endmembers",
            "problem",
            "options",
            "scene",
            "library",
            "io/formats",
            "io",
            "summary",
            "certificate",
            "methods",
            "settings",
            "blocks",
            "errors",
            "compiled",
        ),
        {"numpy", "shapely"},
    ),
    "__main__": ((), {"unmix_cli"}),
    "__init__": (
        (
            "commands",
            "runs",
            "commands/finished",
            "arrays/counts",
            "arrays",
            "pages",
            "options",
            "scene",
            "library",
            "io",
            "_version",
            "errors",
        ),
        set(),
    ),
}
# Of what others make each feature uses, beside NumPy, click, `unmix_cli` and the whole core: of other features it uses
# nothing.
FEATURES = {
    "rows": set(),
    "at_most": set(),
    "average": {"numba", "scipy"},
    "missing": set(),
    "uncertainty": set(),
    "ranges": {"scipy"},
    "grains": set(),
    "images": {"scipy"},
    "nmf": {"llvmlite", "numba"},
    "bands": {"matplotlib", "scipy"},
    "systems": {"h5py", "scipy"},
    "emit": set(),
    "stac": {"pystac", "rasterio"},
    "plot": {"matplotlib"},
    "viewer": {"bokeh", "tornado"},
    "cluster": {"dask", "distributed"},
    "xarray": {"xarray"},
    "zonal": {"exactextract", "shapely"},
    "series": {"scipy"},
    "plots": set(),
}
OF_EVERY_FEATURE = {"click", "numpy", "unmix", "unmix_cli"}
# Files that import what stands above them in the table: its folder, and why.
HEADERS = "headers are the form of ENVI, of maps and of work files; a folder has at most 13 modules"
UPWARD = {
    ("endmembers/extraction.py", "endmembers/auto"): "the table of all ways to extract",
    ("io/__init__.py", "io/formats"): "the table of all formats: opens a file with the one that knows it",
    ("io/__init__.py", "io/formats/zarr"): "the table of all formats: opens a store with its reader",
    ("io/polygons.py", "io/formats"): "where pixels lie and how rasterio is asked for are those of GeoTIFFs",
    ("io/vectors.py", "io/formats"): "small files are read, and GDAL is kept from servers, as for formats",
    ("io/scratch.py", "io/formats"): "inflates chunks and tiles into a file of its own",
    ("io/axis.py", "io/formats"): HEADERS,
    ("io/cube.py", "io/formats"): HEADERS,
    ("io/fields.py", "io/formats"): HEADERS,
    ("io/window.py", "io/formats"): HEADERS,
    ("io/ground.py", "io/formats"): HEADERS,
}
# Modules that import one which imports them, directly or not, and why.
CIRCLES = {
    (
        "io/remote/path.py",
        "io/remote/store.py",
    ): "a path asks its server, as any Path does its disk; a request is for a path",
    ("io/remote/path.py", "io/remote/file.py"): "a path opens as a file, as any Path does; the file is of a path",
    ("options/contradictions.py", "options/__init__.py"): "types alone",
}
# Modules of the solvers that use the certificate, and for what; every search that is not among them knows nothing of
# it.
CALL_BOTH = {
    "pixels/tile.py",  # calls a search, then the proof
    "pixels/cpu.py",  # makes the scratch of both
    "pixels/active_set_extended.py",  # the rescue: proves each answer in double-double
    "pixels/mesma/search.py",  # two bounds of rounding
    "pixels/cuda_fast/driver.py",
    "pixels/cuda_fast/verdict.py",
    "pixels/cuda_fast/judge.py",  # κ and δ on a GPU
    "pixels/cuda_totals/totals.py",  # counts by what was certified
    "nnls/systems.py",  # one system: solved, then proved
}
STANDARD = sys.stdlib_module_names
# Names of constants that do not say what they bound.
BARE = {
    "LARGEST",
    "MOST",
    "FEW",
    "FEWEST",
    "SMALLEST",
    "LEAST",
    "NOTHING",
    "ROUNDING",
    "TOLERANCE",
    "BLOCK",
    "DEPENDENT",
    "PATIENCE",
    "MANY",
    "ENOUGH",
    "EACH",
    "USUAL",
    "TRIES",
    "APART",
    "SAME",
    "EQUAL",
    "NEAR",
    "CLEAR",
    "RARE",
    "FALSE",
    "BEGIN",
    "QUIET",
    "SOFT",
    "THIN",
    "LONELY",
}
# Most lines of a file; most statements of a function, since the formatter gives each argument of a call a line.
MOST_LINES, MOST_STATEMENTS = 520, 75
# Most names that functions of several modules have; and the folder whose classes still share names with others.
MOST_SHARED, NOT_YET = 62, Path("unmix/endmembers")
# Functions with more statements, and why they are one.
LONG = {
    "verdict_function": "κ and δ are one calculation; in pieces every vector would be stored and loaded between them",
    "verdict": "κ and δ are one calculation; in pieces every vector would be stored and loaded between them",
    "spectra_functions": "two functions of a GPU that share what they are compiled for",
    "search_function": "one function of a GPU whose tableau lies in registers, which a call would spill",
    "search": "the same",
    "warp_functions": "eight short functions of a warp that share what they are compiled for",
    "nnls_function": "eleven short functions that are compiled for one team",
}


def room_of(path):
    """The row of HOUSE that a file of ours belongs to: its folder, or beside the folders itself."""
    within = path.relative_to(PACKAGE)
    return within.stem if within.parent == Path() else within.parent.as_posix()


def file_of(parts):
    """The file of a module, from the parts of its name in the package."""
    path = PACKAGE.joinpath(*parts)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@functools.cache
def modules_of(path):
    """The modules that a file imports, wherever in it: ours as their files, others as names of packages."""
    package, modules = path.relative_to(PACKAGE).parts[:-1], set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            modules |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            modules.add(node.module.split(".")[0])
        elif isinstance(node, ast.ImportFrom):
            base = (*package[: len(package) - node.level + 1], *(node.module.split(".") if node.module else ()))
            for alias in node.names:
                module = file_of((*base, alias.name))
                modules.add(module if module.exists() else file_of(base))
    return modules


def imports_of(path):
    """The rooms and outside packages that a file imports, wherever in it, without Python's own (`io` is one, and a room)."""
    return {room_of(module) if isinstance(module, Path) else module for module in modules_of(path) - STANDARD}


def arrows():
    """Each import of ours or of others that leaves its room, as (file, where from, where to)."""
    for path in PACKAGE.rglob("*.py"):
        for name in imports_of(path) - {room_of(path)}:
            yield path.relative_to(PACKAGE).as_posix(), room_of(path), name


def test_the_table_has_no_circle_and_no_arrow_up():
    rooms = list(HOUSE)
    list(graphlib.TopologicalSorter({room: own for room, (own, _) in HOUSE.items()}).static_order())
    up = [(room, below) for room, (own, _) in HOUSE.items() for below in own if rooms.index(below) >= rooms.index(room)]
    assert up == []


def feature_of(room):
    """The feature that a folder belongs to, or None."""
    return room.split("/")[1] if room.startswith("features/") else None


def test_imports_run_downhill():
    wrong = [
        (file, name)
        for file, room, name in arrows()
        if not (feature_of(room) or feature_of(name)) and name not in (*HOUSE[room][0], *HOUSE[room][1])
    ]
    assert set(wrong) == set(UPWARD)
    rooms = list(HOUSE)
    assert [(file, name) for file, name in UPWARD if rooms.index(name) < rooms.index(room_of(PACKAGE / file))] == []


def test_features_hang_on_the_core_alone():
    """The core imports none of them, but for the public names that type checkers see, and no feature another one."""
    for file, room, name in arrows():
        if feature_of(name):
            assert file == "__init__.py" or feature_of(room) == feature_of(name), file
        elif feature_of(room) and name not in HOUSE:
            assert name in FEATURES[feature_of(room)] | OF_EVERY_FEATURE, (file, name)


def test_no_module_imports_itself_by_way_of_others():
    """In a folder too, which the table says nothing of."""
    graph = {
        path: {module for module in modules_of(path) if isinstance(module, Path)} - {path}
        for path in PACKAGE.rglob("*.py")
    }
    for file, other in CIRCLES:
        graph[PACKAGE / file].remove(PACKAGE / other)  # KeyError: the circle is no more
    assert len(graph) > 200 and sum(map(len, graph.values())) > 1000
    list(graphlib.TopologicalSorter(graph).static_order())


def test_nothing_in_the_tables_is_unused():
    """An arrow that nobody takes any more is an invitation."""
    taken = {(room, name) for _, room, name in arrows()}
    assert [
        (room, name) for room, (own, others) in HOUSE.items() for name in (*own, *others) if (room, name) not in taken
    ] == []
    used = {(feature_of(room), name) for _, room, name in arrows() if feature_of(room)}
    assert [(one, name) for one, others in FEATURES.items() for name in others if (one, name) not in used] == []


def test_every_room_is_in_the_tables():
    rooms = {room_of(path) for path in PACKAGE.rglob("*.py")}
    assert {room for room in rooms if not feature_of(room)} == set(HOUSE)
    assert (
        {feature_of(room) for room in rooms} - {None}
        == set(FEATURES)
        == set(importlib.import_module("unmix.features").FOLDERS)
    )


def test_files_and_functions_stay_readable():
    long = {}
    for path in [*PACKAGE.rglob("*.py"), *(ROOT / "cli").rglob("*.py")]:
        assert len(path.read_text().splitlines()) <= MOST_LINES, f"{path} is crowded; split it"
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef):
                statements = sum(isinstance(inner, ast.stmt) for inner in ast.walk(node))
                if statements > MOST_STATEMENTS:
                    long[node.name] = (str(path), statements)
    assert set(long) == set(LONG), long


def shared_names(kind, nodes):
    """The names that several modules give to something of a kind, with these modules."""
    modules = collections.defaultdict(set)
    for path in [*PACKAGE.rglob("*.py"), *(ROOT / "cli").rglob("*.py")]:
        for node in nodes(path):
            if isinstance(node, kind):
                modules[node.name].add(path.relative_to(ROOT))
    return {name: files for name, files in modules.items() if len(files) > 1 and not name.startswith("__")}


def test_few_functions_and_no_classes_share_a_name():
    shared = shared_names(ast.FunctionDef, lambda path: tree_of(path).body)
    assert len(shared) <= MOST_SHARED, sorted(shared)
    classes = shared_names(ast.ClassDef, nodes_of)
    assert [name for name, files in classes.items() if sum(NOT_YET not in file.parents for file in files) > 1] == []


def bare_names(path):
    """The constants of a module, alone or in a tuple, whose names are bare adjectives."""
    for node in tree_of(path).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in getattr(node, "targets", None) or [node.target]:
                yield from BARE & {name.id for name in ast.walk(target) if isinstance(name, ast.Name)}


def test_a_constant_says_what_it_bounds():
    files = [*PACKAGE.rglob("*.py"), *(ROOT / "cli").rglob("*.py")]
    assert [(str(path), name) for path in files for name in bare_names(path)] == []


def test_solvers_and_certificate_share_nothing():
    """Only these call both; every other search knows no proof, and the certificate takes from elsewhere how to compile."""
    drivers = {
        path.relative_to(PACKAGE / "solvers").as_posix()
        for path in (PACKAGE / "solvers").rglob("*.py")
        if "certificate" in imports_of(path)
    }
    assert drivers == CALL_BOTH
    assert imports_of(PACKAGE / "certificate.py") == {"compiled", "numpy"}


def is_of_a_command(path):
    """Whether a file of a feature belongs to the command line."""
    return path.name.startswith("command")


def test_click_is_for_the_command_line():
    for path in PACKAGE.rglob("*.py"):
        assert is_of_a_command(path) or not {"click", "unmix_cli"} & imports_of(path) or path.name == "__main__.py"


def test_the_naive_readings_are_numpy_alone():
    tree = ast.parse((ROOT / "tests/naive.py").read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert names == {"numpy"}
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
        "unmix.run(sys.argv[1], endmembers=sys.argv[2], out_dir=sys.argv[3], overwrite=True, browse=False, "
        "device='cpu'); "
        "print(*sys.modules)"
    )
    files = ROOT / "data/demo.hdr", ROOT / "data/demo_truth_endmembers.csv", tmp_path
    unmix.run(
        files[0], endmembers=files[1], out_dir=tmp_path, browse=False, device="cpu"
    )  # which compiles what is not yet
    ran = subprocess.run([sys.executable, "-c", script, *map(str, files)], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    assert not loaded & {
        "scipy.special",
        "scipy.linalg",
        "h5py",
        "numba.np.linalg",
        "unmix.endmembers",
        "matplotlib",
        "rasterio",
        "pyproj",
        "shapely",
        "bokeh",
    }


@functools.cache
def public_things():
    return tuple(things())


def things():
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
    ["unmix.arrays.pixels.solve", "unmix.runs.run", "unmix.options.Options", "unmix.certificate.certify_function"],
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
    for path in (path for path in PACKAGE.rglob("*.py") if not is_of_a_command(path)):
        blocks = [node for node in nodes_of(path) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
        docs = {id(node.body[0].value) for node in blocks if node.body and isinstance(node.body[0], ast.Expr)}
        for node in nodes_of(path):
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
        "files.py",
        "matlab.py",
        "geotiff.py",
        "hdf5.py",
        "fields.py",
        "header.py",
        "envi.py",
    }  # tables of formats name what stands in a file
    words = {word for name, text in texts if name not in in_files for word in parameter.findall(text)}
    assert {word for word in words if "--" + word.replace("_", "-") not in options} == set()


def test_no_function_of_a_package_has_the_name_of_a_module_in_it():
    """Importing the module would put it in place of a function that is imported when it is called."""
    for init in PACKAGE.rglob("__init__.py"):
        names = {path.stem for path in init.parent.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
        calls = [node for node in ast.walk(ast.parse(init.read_text())) if isinstance(node, ast.Assign)]
        lazy = [node for node in calls if "later(" in ast.unparse(node.value)]
        bound = {name.id for node in lazy for name in ast.walk(node.targets[0]) if isinstance(name, ast.Name)}
        assert not bound & names, (init, bound & names)
