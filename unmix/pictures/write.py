"""Write the pages of runs."""

import os
from pathlib import Path

from ..errors import OutputError
from ..outputs.atomic import write_whole
from ..outputs.finished import FinishedRun
from .folder_page import folder_page
from .scene_page import scene_page

# The page of a scene and of a folder.
SCENE, FOLDER = "_report.html", "report.html"
# What a page of ours has near its beginning.
MARK = b'<meta name="generator" content="unmix">'


def report(path: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, *, overwrite: bool = False) -> Path:
    """Write one HTML file about a finished run, or about all runs below a folder; it needs no other file and no network.

    Parameters
    ----------
    path : path-like
        A folder, or a run: the beginning of its outputs' names, one of them, or its cube.
    out : path-like, optional
        The file to write; default is ``STEM_report.html`` beside the maps, or ``FOLDER/report.html``.
    overwrite : bool
        Replace a file that is not such a page; pages are replaced anyway.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    OutputError
        Where there is no finished run, a map is damaged, or the file cannot be written.
    CubeError
        Where a map cannot be read.
    """
    path = Path(path)
    is_folder = path.is_dir() and not path.with_name(path.name + "_run.json").exists()
    if is_folder:
        page, default = folder_page(path)[0], path / FOLDER
    else:
        run = FinishedRun.of(path)
        try:
            page, default = scene_page(run), run.stem.with_name(run.stem.name + SCENE)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise OutputError(f"{run.stem}_run.json: is damaged: {type(error).__name__}: {error}") from None
    target = Path(out) if out is not None else default
    return write_whole({target: page.encode(errors="replace")}, overwrite or is_ours(target))[0]


def is_ours(path: Path) -> bool:
    """Return whether a file is a page that this module wrote."""
    try:
        with open(path, "rb") as file:
            return MARK in file.read(1024)
    except OSError:
        return False
