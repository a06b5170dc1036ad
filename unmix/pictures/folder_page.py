"""The page of a folder of runs: a table of all of them, what failed first."""

import os
from pathlib import Path

from ..errors import OutputError
from ..outputs.finished import FinishedRun, State, runs_below, state_of
from ..outputs.names import RECORD
from .scene_page import document, embedded, percent, text

# The most browse images that are part of the page; beyond it shows none.
MOST_PICTURES, LARGEST_PICTURE = 200, 60_000
COLUMNS = (
    "",
    "scene",
    "state",
    "method",
    "endmembers",
    "pixels",
    "certified",
    "median RMSE",
    "worst κ",
    "seconds",
    "warnings",
)


def row_of(state: State, folder: Path, with_picture: bool) -> tuple[int, str]:
    """Return the rank of a run, 0 if it is not all right, and its row."""
    stem, report = state.stem, state.report
    browse = FinishedRun(stem, report).browse() if report else None
    pixels = report.get("pixels", {})
    solved, certified = pixels.get("solved"), pixels.get("certified")
    share = certified / solved if solved and certified is not None else None
    is_good, says = state.name == "done", ": ".join(filter(None, (state.name, state.detail)))
    shown = browse is not None and with_picture and len(browse) <= LARGEST_PICTURE
    picture = f'<img src="{embedded(browse)}" alt="">' if shown and browse is not None else ""
    kappa, median = report.get("worst_kappa"), report.get("fit", {}).get("relative_rmse", {}).get("median")
    page = stem.with_name(stem.name + "_report.html")
    name = text(stem.relative_to(folder))
    link = f'<a href="{address(page, folder)}">{name}</a>' if page.exists() else name
    cells = [
        ("", picture), (None, link), (None, f'<span class="{"" if is_good else "poor"}">{text(says)}</span>'),
        (None, text(report.get("method", ""))), (None, str(len(report.get("endmembers", {}).get("names", [])) or "")),
        (None, str(solved or "")), (share, "" if share is None else "all" if share == 1 else percent(share)),
        (median, "" if median is None else percent(median)), (None, "" if kappa is None else f"{kappa:.1e}"),
        (None, f"{report.get('seconds', {}).get('total', 0):.2f}" if report else ""),
        (None, str(len(report.get("warnings", [])) or "")),
    ]  # fmt: skip
    row = "".join(
        f"<td{' class=number' * (k > 3)}" + ("" if value is None else f' data-value="{value}"') + f">{cell}</td>"
        for k, (value, cell) in enumerate(cells)
    )
    return int(is_good), f"<tr>{row}</tr>"


def address(page: Path, folder: Path) -> str:
    """Return the relative address of a page, as a link."""
    from urllib.parse import quote

    return quote(os.fsencode(page.relative_to(folder)))


def folder_page(folder: Path) -> tuple[str, int]:
    """Return the page of all runs below a folder, and their number.

    Raises
    ------
    OutputError
        Where there is none.
    """
    runs = [state_of(stem) for stem in runs_below(folder)]
    if not runs:
        raise OutputError(f"{folder}: holds no run, whose record ends in {RECORD}")
    with_pictures = len(runs) <= MOST_PICTURES
    rows = sorted((row_of(state, folder, with_pictures) for state in runs), key=lambda row: row[0])
    failed = sum(rank == 0 for rank, _ in rows)
    head = "".join(
        f'<th scope="col"{" class=number" * (k > 3)}>'
        + (f'<button type="button">{word}</button>' if word else "")
        + "</th>"
        for k, word in enumerate(COLUMNS)
    )
    says = f"<strong>{len(rows) - failed} of {len(rows)} runs are finished, with no pixel open</strong>"
    body = (
        f'<h1>{text(folder.resolve().name)}</h1><div class="verdict{" poor" * (failed > 0)}"><p>{says}</p></div>'
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(row for _, row in rows)}</tbody></table></div>'
    )
    return document(f"{text(folder.resolve().name)} – unmix", body, "table.js"), len(rows)
