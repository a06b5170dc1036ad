"""The page of a folder of runs: a table of all of them, what failed first."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..errors import OutputError, UnmixError
from ..outputs.names import PAGE, RECORD
from ..runs.files.finished import FinishedRun, State, runs_below, seconds_of, state_of
from .parts import document, embedded, percent, text
from .scene_page import picture_of

# The most runs that are shown with a picture, and its longest side.
MOST_PICTURES, PICTURE = 200, 96
COLUMNS = (
    "", "scene", "state", "method", "endmembers", "pixels", "certified", "median RMSE", "worst κ", "seconds", "warnings",
)  # fmt: skip


def row_of(state: State, beside: Path, folder: Path, with_picture: bool) -> tuple[int, str]:
    """Return the rank of a run, 0 if it is not all right, and its row, for a page in the folder ``beside``."""
    try:
        cells = cells_of(state.report) if state.report else [("", "")] * 8
        run = FinishedRun(state.stem, state.report)
        picture = picture_of(run, PICTURE) if with_picture and state.report and state.name != "damaged" else None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, UnmixError) as error:
        state = State(state.stem, "damaged", f"{type(error).__name__}: {error}", {})
        cells, picture = [("", "")] * 8, None
    says = ": ".join(filter(None, (state.name, state.detail)))
    page = state.stem.with_name(state.stem.name + PAGE)
    name = text(state.stem.relative_to(folder))
    image = "" if picture is None else f'<img src="{embedded(picture)}" alt="">'
    link = f'<a href="{quote(os.fsencode(os.path.relpath(page, beside)))}">{name}</a>' if page.exists() else name
    status = f'<span class="{"" if state.name == "done" else "poor"}">{text(says)}</span>'
    row = "".join(
        f'<td{" class=number" * (k > 3)} data-value="{text(value)}">{cell}</td>'
        for k, (value, cell) in enumerate([("", image), (name, link), (says, status), *cells])
    )
    return int(state.name == "done"), f"<tr>{row}</tr>"


def cells_of(report: dict[str, Any]) -> list[tuple[Any, str]]:
    """Return the cells of a finished run's row: for each the key to sort by, and the text."""
    pixels = {name: int(count) for name, count in report["pixels"].items()}
    solved, certified = pixels["solved"], pixels.get("certified")
    share = None if certified is None or not solved else certified / solved
    median = report.get("fit", {}).get("relative_rmse", {}).get("median")
    kappa = report.get("worst_kappa")
    cells: list[tuple[Any, str]] = [(report["method"], text(report["method"]))]
    cells += [(count, str(count)) for count in (len(report["endmembers"]["names"]), solved)]
    cells.append(("", "") if share is None else (share, "all" if share == 1 else percent(share)))
    cells.append(("", "") if median is None else (float(median), percent(float(median))))
    cells.append(("", "") if kappa is None else (float(kappa), f"{float(kappa):.1e}"))
    cells.append((seconds_of(report), f"{seconds_of(report):.2f}"))
    warnings = len(report.get("warnings", []))
    return [*cells, (warnings, str(warnings or ""))]


def folder_page(folder: Path, beside: Path) -> str:
    """Return the page of all runs below a folder, for a file in the folder ``beside``; `OutputError` where no run is found."""
    runs = [state_of(stem) for stem in runs_below(folder)]
    if not runs:
        raise OutputError(f"{folder}: holds no run, whose record ends in {RECORD}")
    with_pictures = len(runs) <= MOST_PICTURES
    rows = sorted((row_of(state, beside, folder, with_pictures) for state in runs), key=lambda row: row[0])
    failed = sum(rank == 0 for rank, _ in rows)
    head = "".join(
        f'<th scope="col"{" class=number" * (k > 3)}>'
        + (f'<button type="button">{word}</button>' if word else "")
        + "</th>"
        for k, word in enumerate(COLUMNS)
    )
    says = f"<strong>{len(rows) - failed} of {len(rows)} runs are finished, with no pixel open</strong>"
    title = text(folder.resolve().name)
    body = (
        f'<h1>{title}</h1><div class="verdict{" poor" * (failed > 0)}"><p>{says}</p></div>'
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(row for _, row in rows)}</tbody></table></div>'
    )
    return document(f"{title} – unmix", body, "table.js")
