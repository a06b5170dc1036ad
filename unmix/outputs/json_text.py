"""Write JSON that is valid and easy to read."""

import itertools
import json
import math
from typing import Any


def plain_numbers(value: Any) -> list[float] | None:
    """Return the numbers of a list, or list of lists, that holds only finite numbers; else None."""
    # A look at each number by itself took half of the time of a record, which lists thousands of pixels.
    if not isinstance(value, list) or not value:
        return None
    numbers = list(itertools.chain.from_iterable(value)) if set(map(type, value)) == {list} else value
    try:
        return numbers if numbers and set(map(type, numbers)) <= {int, float} and math.isfinite(sum(numbers)) else None
    except OverflowError:  # of integers beyond all floats
        return None


def finite(value: Any) -> Any:
    """Return ``value`` with None in place of infinities and NaN, which JSON does not have, and keys as it has them."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else json.dumps(key): finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return value if plain_numbers(value) is not None else [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def readable(value: Any, indent: str = "") -> str:
    """Return JSON text that is easy to read: an entry per line, but lists of plain values on one line."""
    inner = indent + " "
    if isinstance(value, dict) and value:
        entries = [f"{json.dumps(key)}: {readable(item, inner)}" for key, item in value.items()]
        text = "{\n" + ",\n".join(inner + entry for entry in entries) + f"\n{indent}}}"
    elif isinstance(value, list) and value and isinstance(value[0], list) and plain_numbers(value) is not None:
        text = "[\n" + inner + json.dumps(value)[1:-1].replace("], [", f"],\n{inner}[") + f"\n{indent}]"
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        text = "[\n" + ",\n".join(inner + readable(item, inner) for item in value) + f"\n{indent}]"
    else:
        text = json.dumps(value)
    return text if indent else text + "\n"
