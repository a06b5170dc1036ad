"""The page of a folder of runs: a table of all of them, what failed first."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import OutputError
from ..outputs.finished import FinishedRun
from ..outputs.names import JOURNAL, RECORD
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


def found_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the state and the stem of every run below a folder, in order of their paths; links to folders are not followed."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            for state, ending in (("finished", RECORD), ("unfinished", JOURNAL)):
                if name.endswith(ending) and name != ending:
                    yield state, Path(place) / name.removesuffix(ending)


def row_of(state: str, stem: Path, folder: Path, with_picture: bool) -> tuple[int, str]:
    """Return the rank of a run, 0 if it failed, and its row."""
    report: dict[str, Any] = {}
    browse = None
    if state == "finished":
        try:
            run = FinishedRun.of(stem)
            report, browse = run.report, run.browse()
        except OutputError as error:
            state = str(error).partition(": ")[2]
    pixels = report.get("pixels", {})
    solved, certified = pixels.get("solved"), pixels.get("certified")
    share = certified / solved if solved and certified is not None else None
    if state == "finished" and share is not None and share < 1:
        state = f"{solved - certified} pixels not certified"
    is_good = state == "finished"
    shown = browse is not None and with_picture and len(browse) <= LARGEST_PICTURE
    picture = f'<img src="{embedded(browse)}" alt="">' if shown and browse is not None else ""
    kappa, median = report.get("worst_kappa"), report.get("fit", {}).get("relative_rmse", {}).get("median")
    page = stem.with_name(stem.name + "_report.html")
    name = text(stem.relative_to(folder))
    link = f'<a href="{address(page, folder)}">{name}</a>' if page.exists() else name
    cells = [
        ("", picture), (None, link), (None, f'<span class="{"" if is_good else "poor"}">{text(state)}</span>'),
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
    runs = list(found_in(folder))
    if not runs:
        raise OutputError(f"{folder}: holds no finished run, whose record ends in {RECORD}")
    with_pictures = len(runs) <= MOST_PICTURES
    rows = sorted((row_of(state, stem, folder, with_pictures) for state, stem in runs), key=lambda row: row[0])
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
