"""Files in folders that others may write to are opened by `unmix.io.opening` alone; here is who else opens files, and why."""

import ast
import functools
import re
from pathlib import Path

from sources import nodes_of

ROOT = Path(__file__).parents[2]
PACKAGES = {"": ROOT / "unmix", "cli/": ROOT / "cli"}
# Calls that open a file by its name: functions, and methods of modules and of paths.
FUNCTIONS = {"open", "memmap", "open_memmap", "fromfile", "File", "ZipFile"}
NO_FILES = {
    "run",
    "self",
    "self.run",
    "state",
    "machine",
    "self.machine",
    "gpu",
    "out",
    "zarr",
}  # whose `open` opens no file by name
METHODS = {"read_bytes", "read_text", "write_bytes", "write_text", "tofile"}
OWN_CODE = "a file of the installed package"
PRIVATE = "in a folder of this process alone"
OF_CODE = "its folder is of this user alone, or of the installed package's owner"
GIVEN = "an open file, or a path that leads to one"
INPUT = (
    "an input that the user named, by the library that reads it; HDF5 and GDAL are asked in a child process or by "
    "signature first"
)
MAY_OPEN = {
    "_version.py": OWN_CODE,
    "compiled/cache.py": OF_CODE,
    "compiled/trust.py": OF_CODE,
    "pages/parts.py": OWN_CODE,
    "features/viewer/page.py": OWN_CODE,
    "outputs/names.py": OWN_CODE,
    "io/opening.py": "the door itself",
    "io/remote/logins.py": "a login of this user's, which the descriptor has to show is nobody else's",
    "outputs/digests.py": "to flush, by O_NOFOLLOW",
    "outputs/atomic.py": "folders and files in the workplace, by O_NOFOLLOW",
    "runs/files/output_set.py": "the folder of the outputs, to rename within it",
    "io/formats/hdf5_write.py": "made new, by O_EXCL and O_NOFOLLOW",
    "io/export/geotiff.py": PRIVATE,
    "io/export/hdf5.py": PRIVATE + ", or " + GIVEN,
    "io/ground.py": PRIVATE,
    "io/vectors.py": "copies of polygons, " + PRIVATE,
    "io/scratch.py": INPUT,
    "endmembers/spa.py": "a file without a name",
    "features/nmf/scene.py": "a file without a name",
    "features/emit/frcov.py": PRIVATE,
    "features/systems/files.py": "its arrays in the workplace, and inputs that the user named",
    "io/formats/array_files.py": INPUT,
    "features/images/match.py": "its image in the workplace",
    "io/formats/products.py": INPUT,
    "io/formats/matlab.py": INPUT,
    "io/formats/geotiff.py": INPUT,
    "io/formats/zarr/store.py": INPUT,
    "cli/main.py": "standard streams",
    "cli/env.py": "of the system",
    "cli/docs.py": OWN_CODE,
    "cli/help.py": "a page of help, which is no file",
    "cli/run.py": "to read ahead, without waiting for a pipe",
}


def name_of(function):
    """How a call names its function: the last word, with the module's before it where that matters."""
    if isinstance(function, ast.Name):
        return function.id
    if isinstance(function, ast.Attribute):
        return f"{ast.unparse(function.value)}.open" if function.attr == "open" else function.attr
    return ""


@functools.cache
def openings():
    """The calls that open a file by name, as (file, name of the function)."""
    found = set()
    named = re.compile(rf"\b({'|'.join(FUNCTIONS | METHODS)})\(")
    for before, path in [(before, path) for before, package in PACKAGES.items() for path in package.rglob("*.py")]:
        for node in nodes_of(path) if named.search(path.read_text()) else ():  # parsing all of them takes 3 s
            if isinstance(node, ast.Call):
                name = name_of(node.func)
                is_path = name.endswith(".open") and name.removesuffix(".open") not in NO_FILES
                if name in FUNCTIONS | METHODS or is_path:
                    found.add((before + path.relative_to(PACKAGES[before]).as_posix(), name))
    return found


def test_files_are_opened_by_the_door_alone():
    found = openings()
    assert len(found) > 20
    others = sorted((file, name) for file, name in found if file not in MAY_OPEN)
    assert others == [], "open these by unmix.io.opening, or say in MAY_OPEN why not"


def test_nobody_may_open_who_does_not():
    assert sorted(set(MAY_OPEN) - {file for file, _ in openings()}) == []
