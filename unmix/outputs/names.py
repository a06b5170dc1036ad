"""List the files that a command reads and may write, refuse a file that is both, and read the record of a run.

A record, ``STEM_run.json``, is refused where it is not as ``run.schema.json`` says, the one list of its contents (docs
has a copy). This reads the words of JSON Schema that the list uses. A record of an older unmix, which has no number of
its schema, may lack keys, and one of a newer unmix may have more.
"""

import contextlib
import functools
import json
import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import MethodError, OutputError, brief
from ..io import Cube, RemotePath, Window, files_of, is_folder, is_remote, located, parted, read_plain
from ..io.export import FORMATS, OutputFormat
from ..io.formats.envi import EXTENSIONS, TIFF_EXTENSIONS
from ..library import files_of as library_files
from ..settings.maps import MAPS, ORTHO
from .json_text import plain_numbers

SCHEMA = Path(__file__).with_name("run.schema.json")
# Deepest nesting of lists and objects in a record; unmix's own have a depth of 6.
DEEPEST = 32
# Errors that a damaged record or journal causes where its values are used.
UNFIT = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
# Integers that a record may hold are below this: those of JSON have any number of digits.
INTEGER_BOUND = 2**63
TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def parse_record(text: str | bytes) -> dict[str, Any]:
    """Return the content of a record; `ValueError`, which says where, if it is not as a run writes it."""
    try:
        record = json.loads(text)
        fault = fault_of(record, schema_for(record)) or plain_fault_of(record)
    except RecursionError:
        raise ValueError("lists within lists without end") from None
    if fault:
        raise ValueError(fault)
    return record


def read_record(path: Path) -> dict[str, Any]:
    """Return the content of the record at a path; `OutputError` if it is damaged, `OSError` if it cannot be read."""
    if path.is_dir():
        raise OutputError(f"{path}: is no file")
    try:
        return parse_record(read_plain(path))
    except ValueError as error:
        raise OutputError(f"{path}: is damaged: {error}") from None


def normalize_of(report: dict[str, Any]) -> str:
    """Return how a run made fractions of abundances, "none" if not; older records have it in ``asked``."""
    return str(report.get("normalize", report.get("asked", {}).get("normalize", "none")))


@contextlib.contextmanager
def believing(path: Path, advice: str = "") -> Iterator[None]:
    """Turn errors by values of a record or journal that fit neither each other nor its files into `OutputError`."""
    # NumPy's own messages about sizes that such values make too large would not help users.
    import numpy as np  # which `--config` does without

    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            yield
    except UNFIT as error:
        raise OutputError(f"{path}: is damaged: {type(error).__name__}: {brief(error)}{advice}") from None


@functools.cache
def schema() -> dict[str, Any]:
    """Return the schema of records."""
    return dict(json.loads(SCHEMA.read_text(encoding="utf-8")))


def schema_for(record: Any) -> dict[str, Any]:
    """Return the schema for one record, which may be of another version."""
    older = isinstance(record, dict) and "schema" not in record
    return schema() | {"additionalProperties": True} | ({"required": []} if older else {})


def fault_of(value: Any, rule: dict[str, Any], where: str = "") -> str | None:
    """Return the fault of a value by a rule of JSON Schema, with its place; None without a fault."""
    kinds = rule.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    name = where or "the record"
    if kinds and not any(is_of(value, kind) for kind in kinds):
        return f"{name} is {repr(value)[:40]}, and no {' or '.join(kinds)}"
    allowed = [rule["const"]] if "const" in rule else rule.get("enum")
    if allowed is not None and not any(
        value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed
    ):
        return f"{name} is {repr(value)[:40]}, which unmix does not write"
    low, high = rule.get("minimum"), rule.get("maximum")
    if isinstance(value, int | float) and not ((low is None or low <= value) and (high is None or value <= high)):
        return f"{name} is {repr(value)[:40]}, which is out of its range"
    if isinstance(value, str) and not re.search(rule.get("pattern", ""), value):
        return f"{name} is {repr(value)[:40]}, which unmix does not write"
    if isinstance(value, list):
        if not rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", math.inf):
            return f"{name} has {len(value)} values"
        if are_numbers(value, rule.get("items", {})):
            return None
        faults = (fault_of(one, rule.get("items", {}), f"{name}[{place}]") for place, one in enumerate(value))
        return next(filter(None, faults), None)
    return fault_within(value, rule, where) if isinstance(value, dict) else None


def fault_within(value: dict[str, Any], rule: dict[str, Any], where: str) -> str | None:
    """Return the fault of the keys of an object or of their values; see `fault_of`."""
    own, others, names = (
        rule.get("properties", {}),
        rule.get("additionalProperties", True),
        rule.get("propertyNames", {}),
    )
    for key in rule.get("required", []):
        if key not in value:
            return f"{where or 'the record'} has no {key}"
    for key, one in value.items():
        place = f"{where}.{key[:40]}".lstrip(".")
        if key not in own and others is False:
            return f"{place} is nothing that unmix writes"
        inner = own.get(key, others if isinstance(others, dict) else {})
        fault = fault_of(key, names, f"a name in {where}") or fault_of(one, inner, place)
        if fault:
            return fault
    return None


def are_numbers(value: list[Any], rule: dict[str, Any]) -> bool:
    """Return whether a list, or list of lists, holds only numbers that its items' rule allows; False if unsure."""
    numbers = plain_numbers(value)
    if numbers is None:
        return False
    if isinstance(value[0], list):
        low, high = rule.get("minItems", 0), rule.get("maxItems", math.inf)
        if rule.get("type", "array") != "array" or not all(low <= size <= high for size in set(map(len, value))):
            return False
        rule = rule.get("items", {})
    kinds = rule.get("type", "number")  # one, or a list of them
    return (
        ("number" in kinds or ("integer" in kinds and set(map(type, numbers)) == {int}))
        and not rule.keys() - {"type", "minimum", "maximum", "description"}
        and rule.get("minimum", -math.inf) <= min(numbers)
        and max(numbers) <= rule.get("maximum", math.inf)
    )


def is_of(value: Any, kind: str) -> bool:
    """Return whether a value is of a JSON type; True is no number, and 1.0 no integer, as Python requires."""
    return isinstance(value, TYPES[kind]) and (not isinstance(value, bool) or kind == "boolean")


def plain_fault_of(value: Any, depth: int = 0, finite: bool = True) -> str | None:
    """Return a message on the first value in a record that JSON can hold but no run writes; None without one."""
    # Numbers have to be ``finite`` in a record, not in a journal.
    if depth > DEEPEST:
        return "lists within lists without end"
    if finite and isinstance(value, float) and not math.isfinite(value):
        return "it holds a number that is not finite"
    if isinstance(value, int) and not -INTEGER_BOUND < value < INTEGER_BOUND:
        return "it holds a number that is too large"
    if isinstance(value, str):
        try:
            value.encode("utf-8", "surrogateescape")  # names of files may be any bytes
        except UnicodeEncodeError:
            return "it holds text that is not valid Unicode"
    numbers = plain_numbers(value)
    if numbers is not None and depth < DEEPEST - 1:
        whole = [one for one in numbers if isinstance(one, int)]
        return "it holds a number that is too large" if whole and max(map(abs, whole)) >= INTEGER_BOUND else None
    inside = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next(filter(None, (plain_fault_of(one, depth + 1, finite) for one in inside)), None)


LIBRARY = ("_endmembers.csv", "_endmembers.sli", "_endmembers.hdr")
BROWSE, PAGE, ITEM = "_browse.png", "_report.html", "_stac.json"
RECORD, LOCK, JOURNAL, PART = "_run.json", "_run.lock", "_run.journal.part", ".part"


def suffixes_of(maps: Iterable[str], form: OutputFormat, ortho: bool = False, browse: bool = False) -> tuple[str, ...]:
    """Return the suffixes of a run's outputs: of maps in this format, endmembers, picture and, last, the record."""
    kinds, picture = ("", ORTHO) if ortho else ("",), (BROWSE,) if browse else ()
    files = (f"_{name}{kind}{ending}" for name in maps for kind in kinds for ending in form.endings)
    return (*files, *LIBRARY, *picture, RECORD)


# The suffixes of the outputs of all possible runs.
SUFFIXES = tuple(dict.fromkeys(suffix for form in FORMATS.values() for suffix in suffixes_of(MAPS, form, True, True)))

# The map that each of these belongs to, placed or not, where it is one.
MAP_OF = {
    f"_{name}{kind}{end}": name + kind
    for form in FORMATS.values()
    for name in MAPS
    for kind in ("", ORTHO)
    for end in form.endings
}


def is_ours(name: Any, stem: str) -> bool:
    """Return whether ``name`` is the stem and one of `SUFFIXES`, so that it is never a path to another folder."""
    return isinstance(name, str) and name.startswith(stem) and name[len(stem) :] in SUFFIXES


def listed(folder: Path, stem: str) -> list[str]:
    """Return the outputs that the record of a finished run lists, and the record; none where it cannot be read."""
    try:
        names = list(read_record(folder / (stem + RECORD))["digests"])
    except (OSError, OutputError, KeyError):
        return []
    return [name for name in (*names, stem + RECORD) if is_ours(name, stem)]


def parts_of(suffixes: Sequence[str], maps: Iterable[str] = ()) -> list[str]:
    """Return the suffixes, before ``.part``, of a run's work files with these outputs and further ``maps``."""
    # All suffixes of each map: maps of every format are first written as ENVI files.
    wanted = {map_of(suffix) for suffix in suffixes} | set(maps)
    return [suffix for suffix in SUFFIXES if map_of(suffix) in wanted or suffix in (*LIBRARY, BROWSE, RECORD)]


@functools.cache
def map_of(suffix: str) -> str:
    """Return the map that a suffix belongs to: ``rmse`` for ``_rmse_ortho.tif``."""
    return re.split("[_.]", suffix)[1]


def of_a_run(folder: Path, stem: str, suffixes: Sequence[str]) -> list[Path]:
    """Return all paths that a run may write or delete: its outputs, those of the run it replaces, and work files."""
    names = [stem + suffix for suffix in suffixes] + listed(folder, stem)
    parts = [stem + suffix + PART for suffix in parts_of(suffixes)]
    return [
        folder / name
        for name in dict.fromkeys((*names, *parts, *(stem + one for one in (JOURNAL, LOCK, LOCK + ".turn"))))
    ]


Inputs = Sequence[tuple[str, Path]]


def inputs_of(scene: Cube | None = None, **others: str | os.PathLike[str] | None) -> list[tuple[str, Path]]:
    """Return the files that a command reads, each with its role: a cube and its masks, and ``others`` by role."""
    inputs: list[tuple[str, Path]] = []
    if isinstance(scene, Window):
        inputs += [("cube", path) for path in files_of(scene.cube)]
        inputs += [(mask.option, path) for mask in scene.masks for path in files_of(mask.cube)]
    elif scene is not None:
        inputs += [("cube", path) for path in files_of(scene)]
    for role, spec in others.items():
        if spec is not None:
            path = file_of(spec)
            inputs += [(role, file) for file in (library_files(path) if role == "library" else [path])]
    return inputs


def file_of(spec: str | os.PathLike[str]) -> Path:
    """Return the file of ``FILE`` or ``FILE:NAME``."""
    return parted(spec)[0]


def inputs_of_run(stem: Path) -> list[tuple[str, Path]]:
    """Return the files of a finished run, as inputs of what is made of them."""
    return [("run", stem.with_name(name)) for name in listed(stem.parent, stem.name)]


def refuse_inputs(outputs: Iterable[Path], inputs: Inputs) -> None:
    """Raise `MethodError` if an output or a log file of this process is also read under any name or link."""
    read = {identity: (role, path) for role, path in inputs if (identity := inode(path)) is not None}
    folders = [(role, path.absolute()) for role, path in inputs if is_folder(path) and role != "library"]
    logs = [
        Path(handler.baseFilename)
        for handler in logging.getLogger("unmix").handlers
        if isinstance(handler, logging.FileHandler)
    ]
    for path in (*outputs, *logs):
        role, source = read.get(inode(path) or (-1, -1), ("", path))
        inside = next((one for one in folders if one[1] in path.absolute().parents), None)
        if inside is not None:
            raise MethodError(f"{path}: lies in {inside[1]}, the {inside[0]} that is read; use `out_dir`")
        if role:
            raise MethodError(
                f"{path}: an output would replace {source}, a file of the {role} that is read; use `out_dir`, or "
                "another name"
            )


def refuse_headers_of_others(outputs: Iterable[Path]) -> None:
    """Raise `MethodError` if a header to be written already belongs to other data than what is written with it."""
    outputs = list(outputs)
    written = {inode(path) for path in outputs} - {None}
    for header in outputs:
        if header.suffix.lower() != ".hdr" or not header.exists():
            continue
        for ending in (*EXTENSIONS, *TIFF_EXTENSIONS):
            data = header.with_name(header.name[:-4] + ending)
            if data.is_file() and data not in outputs and inode(data) not in written:
                raise MethodError(f"{header}: is the header of {data.name} and would be overwritten; use another name")


def folder_for(out_dir: str | os.PathLike[str] | None, beside: Path | None = None) -> Path:
    """Return the folder for outputs: ``out_dir``, or the folder of ``beside``; `MethodError` if it is on a server."""
    if out_dir is not None and is_remote(out_dir):
        raise MethodError(
            f"`out_dir` {located(out_dir)}: only `unmix run` and its like upload their maps; name a folder"
        )
    if out_dir is None and isinstance(beside, RemotePath):
        raise MethodError(f"{beside}: outputs cannot be written beside it; name a folder with `out_dir`")
    return Path(out_dir) if out_dir is not None else Path() if beside is None else beside.parent


def inode(path: Path) -> tuple[int | str, ...] | None:
    """Return device and inode of a file, the same for all its names, or its URL; None where it does not exist."""
    if isinstance(path, RemotePath):
        return (str(path),)
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino
