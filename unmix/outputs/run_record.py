"""Read the record of a run, ``STEM_run.json``, and refuse one that is not as ``run.schema.json`` says, for all who read it.

The schema is the one list of what a record holds; docs/run.schema.json is a copy of it. Of JSON Schema this reads the words that it
uses. A record of an older unmix, which has no number of its schema, may lack keys, and one of a newer unmix may have more.
"""

import contextlib
import functools
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import OutputError, brief
from ..io.opening import read_plain
from .json_text import plain_numbers

SCHEMA = Path(__file__).with_name("run.schema.json")
# Deepest nesting of lists and objects in a record; unmix's own have a depth of 6.
DEEPEST = 32
# Errors that a damaged record or journal causes where its values are used.
UNFIT = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
# Integers that a record may hold are below this: those of JSON have any number of digits.
INTEGER_BOUND = 2**63
TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None),
}  # fmt: skip


def parse_record(text: str | bytes) -> dict[str, Any]:
    """Return the content of a record.

    Raises
    ------
    ValueError
        Where it is no JSON, or not what a run writes: the message says where.
    """
    try:
        record = json.loads(text)
        fault = fault_of(record, schema_for(record)) or plain_fault_of(record)
    except RecursionError:
        raise ValueError("lists within lists without end") from None
    if fault:
        raise ValueError(fault)
    return record


def read_record(path: Path) -> dict[str, Any]:
    """Return the content of the record at a path.

    Raises
    ------
    OSError
        Where it cannot be read.
    OutputError
        Where it is damaged: no JSON, or not what a run writes.
    """
    if path.is_dir():
        raise OutputError(f"{path}: is no file")
    try:
        return parse_record(read_plain(path))
    except ValueError as error:
        raise OutputError(f"{path}: is damaged: {error}") from None


def normalize_of(report: dict[str, Any]) -> str:
    """Return how a run made fractions of abundances, "none" where it did not; older records have it with what was asked for."""
    return str(report.get("normalize", report.get("asked", {}).get("normalize", "none")))


@contextlib.contextmanager
def believing(path: Path, advice: str = "") -> Iterator[None]:
    """Turn errors that values of a record or journal lead to, which do not fit each other or its files, into `OutputError`.

    NumPy's own messages about sizes that such values make too large would not help users.
    """
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
    """Return whether a list, or a list of lists, has numbers alone, all as a rule for one of its items says; False where unsure."""
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
    """Return whether a value is of a type of JSON; True is no number, and 1.0 no integer, as which Python would not take it."""
    return isinstance(value, TYPES[kind]) and (not isinstance(value, bool) or kind == "boolean")


def plain_fault_of(value: Any, depth: int = 0, finite: bool = True) -> str | None:
    """Return the first fault anywhere in a record: values that JSON can hold, but that no run writes and no number or file name is.

    Numbers have to be ``finite`` in a record, not in a journal.
    """
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
