"""Write the pages of runs."""

import os
from collections.abc import Callable
from pathlib import Path

from ..errors import MethodError, OutputError
from ..io.formats.written_by import says_unmix
from ..outputs.atomic import write_whole
from ..outputs.names import PAGE, Inputs, inputs_of_run, refuse_inputs
from ..outputs.ours import nobody
from ..runs.files.finished import FinishedRun, is_folder_of_runs
from .folder_page import folder_page
from .scene_page import scene_page

# The page of a folder.
FOLDER = "report.html"


def report(
    path: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, *, overwrite: bool = False,
    cube: str | os.PathLike[str] | None = None,
) -> Path:  # fmt: skip
    """Write one HTML file about a finished run, or about all runs below a folder; it needs no other file and no network.

    Parameters
    ----------
    path : path-like
        A folder, or a run: the beginning of its outputs' names, one of them, or its cube.
    out : path-like, optional
        The file to write; default is ``STEM_report.html`` beside the maps, or ``FOLDER/report.html``.
    overwrite : bool
        Replace the file ``out`` though it is not such a page; pages are replaced anyway.
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
    return write_page(target, lambda: page, overwrite, inputs, is_named=out is not None)


def refuse_other_than_html(target: Path) -> None:
    """Raise `MethodError` where the name of a page is not that of a page."""
    if target.suffix.lower() not in (".html", ".htm"):
        raise MethodError(f"{target}: a page is HTML; use a name that ends in .html")


def write_page(
    target: Path, make: Callable[[], str], overwrite: bool, inputs: Inputs = (), is_named: bool = True
) -> Path:
    """Write the page that ``make`` returns; replace only a page of ours, or with ``overwrite`` the file that the user named.

    None of the ``inputs`` is replaced; ``is_named`` says whether the user named the file. `MethodError` where the name does not end in
    .html, or an input has it; `OutputError` where the file exists and is no page of ours, or cannot be written.
    """
    refuse_other_than_html(target)
    refuse_inputs([target], inputs)
    content = make().encode(errors="replace")
    recognise = Path.is_file if is_named else nobody
    return write_whole({target: content}, overwrite or says_unmix(target), "another name", recognise)[0]


def page_of(run: FinishedRun) -> str:
    """Return the page of a run; `OutputError` where its record or one of its maps is damaged."""
    with run.believing():
        faults = run.faults()
        if not faults:
            return scene_page(run)
    raise OutputError(f"{run.stem}: {faults[0]}")
