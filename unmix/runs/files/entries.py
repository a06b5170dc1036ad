"""Schema of a journal's entries, in the words of JSON Schema that `unmix.outputs.run_record.fault_of` reads."""

import functools
import json
from typing import Any

from ...outputs.run_record import fault_of, plain_fault_of
from ...summary import ADDED, ARRAYS, HISTOGRAMS, MOST_FAILURES, WORST

# As `float.hex` writes finite numbers.
HEXADECIMAL = r"^-?0x[01]\.[0-9a-f]{1,13}p[+-][0-9]{1,4}$"
COUNT: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 2**53}
TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}
SIZE: dict[str, Any] = {"type": "number", "minimum": 0}


def array(rule: dict[str, Any], least: int = 0, most: int = 10**9) -> dict[str, Any]:
    """Return the rule of a list."""
    return {"type": "array", "items": rule, "minItems": least, "maxItems": most}


def record(fields: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the rule of an object with these fields and no others."""
    required = [name for name in fields if name not in optional]
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": False}


def or_null(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule that takes null as well."""
    return rule | {"type": [rule["type"], "null"]}


def counts(digits: int) -> dict[str, Any]:
    """Return the rule of a histogram: counts by the numbers of their bins."""
    return {"type": "object", "propertyNames": {"pattern": f"^[0-9]{{1,{digits}}}$"}, "additionalProperties": COUNT}


@functools.cache
def schema_of_entries() -> dict[str, Any]:
    """Return the rule of an entry after the first."""
    endmembers = record(
        {
            "names": array(TEXT, 1), "matrix": array(array({"type": "string", "pattern": HEXADECIMAL}), 1),
            "wavelengths": or_null(array(NUMBER)), "fwhm": or_null(array(NUMBER)), "pixels": or_null(array(array(COUNT, 2, 2))),
            "source": TEXT, "classes": or_null(array(TEXT)), "scenes": array(TEXT),
            **{name: or_null({"type": "object"}) for name in ("counted", "simplex", "quality")},
        },
        ("scenes",),
    )  # fmt: skip
    chosen_by = record({"rule": TEXT, "noise": SIZE, "median_count": SIZE}, ("rule", "noise", "median_count"))
    smoothed = record({"objective": SIZE, "gap": SIZE, "steps": COUNT, "proved": {"type": "boolean"}})
    kept = record({"begin": COUNT, "line_bytes": COUNT, "digest": TEXT})
    about = record(
        {
            "endmembers": or_null(endmembers), "passes": COUNT, "warnings": array(TEXT), "modified": {},
            "rasters": {"type": "object", "additionalProperties": array(COUNT, 3, 3)},
            "l1": or_null(record({"l1": SIZE, "chosen_by": chosen_by})),
            "features": {"type": "object", "additionalProperties": {"type": "object"}},
            "spatial": or_null(record({"weight": SIZE, "chosen_by": chosen_by, "found": smoothed, "kept": kept})),
        }
    )  # fmt: skip
    summary = record(
        {
            **dict.fromkeys(ADDED, COUNT), **dict.fromkeys(WORST, SIZE), **{name: or_null(array(NUMBER)) for name in ARRAYS},
            **{name: or_null(array(COUNT)) for name in ("there", "outside")}, "residuals": or_null(array(array(NUMBER), 3, 3)),
            **{name: counts(3) for name in HISTOGRAMS}, "steps": counts(6), "failures": array(array(COUNT, 2, 2), 0, MOST_FAILURES),
        }
    )  # fmt: skip
    fields = {"about": about, "lines": COUNT, "summary": summary, "checks": {"type": "object", "additionalProperties": TEXT},
              "finishing": array(TEXT), "replaced": array(TEXT)}  # fmt: skip
    return record(fields, tuple(fields))


def parse_entry(text: str | bytes) -> Any:
    """Return an entry of a journal; `ValueError` where it is no JSON, or holds numbers or lists that no run writes."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("lists within lists without end") from None
    except ValueError as error:
        if isinstance(error, UnicodeDecodeError | json.JSONDecodeError):
            raise
        raise ValueError("it holds a number that is too large") from None  # of more digits than Python reads


def check_entries(entries: list[Any]) -> None:
    """Raise `ValueError` if the entries of a journal of this version are not what a run writes: the message says where."""
    first = record({"identity": record({"unmix": TEXT, "asked": {"type": "object"}, "input": {"type": "object"}})})
    rules = [first, *[schema_of_entries()] * (len(entries) - 1)]
    faults = (fault_of(entry, rule) or plain_fault_of(entry, finite=False) for entry, rule in zip(entries, rules))
    try:
        fault = next(filter(None, faults), None)
    except RecursionError:
        fault = "lists within lists without end"
    fault = fault or next(filter(None, (fault_of_endmembers(entry.get("about")) for entry in entries)), None)
    if fault:
        raise ValueError(fault)


def fault_of_endmembers(about: dict[str, Any] | None) -> str | None:
    """Return the fault of the lengths of the endmembers' fields, whose types are right; None without a fault."""
    found = None if about is None else about["endmembers"]
    if found is None:
        return None
    matrix, p = found["matrix"], len(found["names"])
    of_each = [found.get(name) for name in ("pixels", "classes", "scenes")]
    of_bands = [found[name] for name in ("wavelengths", "fwhm")]
    right = all(len(row) == p for row in matrix) and all(one is None or len(one) == p for one in of_each)
    return (
        None
        if right and all(one is None or len(one) == len(matrix) for one in of_bands)
        else "endmembers do not fit each other"
    )
