"""The text of an answer in shells and notebooks: a line for each array, however large it is."""

import html
from dataclasses import fields
from typing import Any

import numpy as np


class Shown:
    """Answers whose text has the shape, type and range of each array, in place of its values."""

    def __repr__(self) -> str:
        values = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        lines = (f"  {name:<14}{line_of_value(value)}" for name, value in values.items() if value is not None)
        return "\n".join([type(self).__name__, *lines])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def line_of_value(value: Any) -> str:
    """Return the words for a value: of a NumPy array least, median and largest, or how many are true."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None:
        return repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]} …"
    words = f"{tuple(shape)} {dtype}"
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        return words
    if value.dtype == bool:
        return f"{words}, {np.count_nonzero(value)} of {value.size} true"
    known = value[np.isfinite(value)]
    with np.errstate(over="ignore", invalid="ignore"):
        least, middle, most = np.percentile(known, (0, 50, 100)) if known.size else (np.nan,) * 3
    without = f", {value.size - known.size} not finite" if known.size < value.size else ""
    return f"{words}, from {least:.3g} by {middle:.3g} to {most:.3g}{without}"
