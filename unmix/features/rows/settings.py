"""The options of `rows`, and what they do not go with."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...settings import setting

_of_model = partial(setting, group="Model")
# The methods that it goes with.
METHODS_WITH_ROWS = ("nnls", "fcls", "pcls")


@dataclass(frozen=True, kw_only=True)  # the order of the other options stays what it is
class RowsSettings:
    """The options of `rows`."""

    rows: int | str | None = _of_model(
        None, "values",
        "For nnls, fcls and pcls: solve all pixels with the few spectra of the library that the scene needs: K, or as many as are "
        "each worth more than the noise (auto). No exchange of one of them for another fits a sample of the pixels better.",
        "K", kind="whole", choices=("auto",), least=1, is_of_library="chooses spectra of",
    )  # fmt: skip
    seconds: float | None = _of_model(
        None, "values",
        "For `rows`: search so long for a proof that no other subset of the library fits better; how much better one may be is said.",
        "S", kind="number",
    )  # fmt: skip


def faults(options: Any) -> Iterator[str]:
    """Yield a message if `rows` is invalid, or combined with an option that ignores it."""
    if options.seconds is not None and options.rows is None:
        yield "`seconds` is the time for the proof of `rows`; add that"
    if options.seconds is not None and not 0 < options.seconds < float("inf"):
        yield f"`seconds` {options.seconds:g}: must be above 0"
    if options.rows is None:
        return
    if isinstance(options.rows, str) and options.rows != "auto":
        yield f"`rows` '{options.rows}': must be a whole number, or auto"
    if not isinstance(options.rows, str) and not (isinstance(options.rows, int) and options.rows >= 1):
        yield f"`rows` {options.rows}: must be a whole number from 1 on, or auto"
    if options.method not in METHODS_WITH_ROWS or options.solver_spec.name != "active-set":
        asked = f"{options.method} {options.solver or ''}".rstrip()
        yield f"`rows` is for `method` {', '.join(METHODS_WITH_ROWS)}, without `solver`, not {asked}"
    for name in ("l1", "allowed", "at_most"):
        if getattr(options, name) is not None:
            yield f"`rows` does not go with `{name}`; leave one of them out"
    if options.likelihood != "gaussian":
        yield f"`rows` does not go with `likelihood` {options.likelihood}; leave one of them out"
