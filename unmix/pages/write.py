"""Write the pages of runs, and the page of a folder of them: a table of all runs, failed ones first."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..errors import MethodError, OutputError, UnmixError
from ..outputs import PAGE, RECORD, Inputs, inputs_of_run, refuse_inputs, write_whole
from ..runs.files.finished import FinishedRun, State, is_folder_of_runs, runs_below, state_of_run
from ..runs.record.fit import seconds_of
from .parts import document, embedded, percent, text
from .scene_page import picture_of, scene_page

# The page of a folder.
FOLDER = "report.html"


def report(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    overwrite: bool = False,
    cube: str | os.PathLike[str] | None = None,
) -> Path:
    """Write one HTML file about a finished run, or about all runs below a folder; it needs no other file and no
    network.

    Parameters
    ----------
    path : path-like
        A folder, or a run: the beginning of its outputs' names, one of them, or its cube.
    out : path-like, optional
        The file to write; default is ``STEM_report.html`` beside the maps, or ``FOLDER/report.html``.
    overwrite : bool
        Has no effect: a page of unmix is replaced anyway, and no other file is.
    cube : path-like, optional
        The scene of a run, if it is no longer where the run found it, or on a server.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    MethodError
        Where ``out`` does not end in .html.
    OutputError
        Where there is no finished run, a map is damaged, or the file cannot be written.
    CubeError
        Where a map cannot be read.
    """
    path, target = Path(path), None if out is None else Path(out)
    if target is not None:
        refuse_other_than_html(target)
    try:
        if is_folder_of_runs(path):
            target = target or path / FOLDER
            page, inputs = folder_page(path, target.parent), []
        else:
            run = FinishedRun.of(path, cube)
            target = target or run.stem.with_name(run.stem.name + PAGE)
            page, inputs = page_of(run), inputs_of_run(run.stem)
    except OSError as error:
        raise OutputError(f"{path}: cannot be read: {error.strerror}") from None
    return write_page(target, lambda: page, inputs)


def refuse_other_than_html(target: Path) -> None:
    """Raise `MethodError` where the name of a page does not end in .html or .htm."""
    if target.suffix.lower() not in (".html", ".htm"):
        raise MethodError(f"{target}: a page is HTML; use a name that ends in .html")


def write_page(target: Path, make: Callable[[], str], inputs: Inputs = ()) -> Path:
    """Write the page of ``make`` as a .html file; replace only a page of ours, and none of the ``inputs``."""
    refuse_other_than_html(target)
    refuse_inputs([target], inputs)
    content = make().encode(errors="replace")
    return write_whole({target: content}, True, "another name")[0]


def page_of(run: FinishedRun) -> str:
    """Return the page of a run; `OutputError` where its record or one of its maps is damaged."""
    with run.believing():
        faults = run.faults()
        if not faults:
            return scene_page(run)
    raise OutputError(f"{run.stem}: {faults[0]}")


# The most runs that are shown with a picture, and its longest side.
MOST_PICTURES, PICTURE = 200, 96
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


def row_of_run(state: State, beside: Path, folder: Path, with_picture: bool) -> tuple[int, str]:
    """Return the rank of a run, 0 if it is not all right, and its row, for a page in the folder ``beside``."""
    try:
        cells = cells_of_run(state.report) if state.report else [("", "")] * 8
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


def cells_of_run(report: dict[str, Any]) -> list[tuple[Any, str]]:
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
    """Return the page of all runs below a folder, for a file in ``beside``; `OutputError` if there is no run."""
    runs = [state_of_run(stem) for stem in runs_below(folder)]
    if not runs:
        raise OutputError(f"{folder}: holds no run, whose record ends in {RECORD}")
    with_pictures = len(runs) <= MOST_PICTURES
    rows = sorted((row_of_run(state, beside, folder, with_pictures) for state in runs), key=lambda row: row[0])
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
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(row for _, row in rows)}</tbody></table></div>"
    )
    return document(f"{title} – unmix", body, "table.js")
