"""Rows of scenes that failed: named as their runs, with the time and cloud cover of item or name, and the reason."""

import contextlib
import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import UnmixError
from ...io import document_of, is_remote, located
from ...runs.files.finished import FinishedRun, date_in, without_run
from ...scene import ENDINGS
from .. import of_documents


def rows_of_failed(
    titles: Sequence[str], failed: Mapping[str, str | None], runs: Sequence[FinishedRun], since: float = 0.0
) -> list[dict[str, Any]]:
    """Return a row, with all titles, for each scene that has no run from ``since`` on, s since 1970."""
    places = {folder_of_scene((run.report.get("input") or {}).get("path", "")): run.stem.parent for run in runs}
    rows = []
    for scene in without_run([*failed], [run.report for run in runs], since):
        about = about_item(scene)
        stem = about.get("stem") or stem_of_failed(scene)
        own = {"time": about.get("acquisition time") or date_in(stem), "cloud_cover": about.get("cloud cover")}
        name = str(folder_beside(folder_of_scene(scene), places) / stem)
        rows.append(dict.fromkeys(titles) | own | {"run": name, "reason": failed[scene]})
    return rows


def about_item(scene: str) -> dict[str, Any]:
    """Return what the document that names a scene says of it; empty without one, or where it cannot be read."""
    with contextlib.suppress(UnmixError):
        if (document := document_of(located(scene))) is not None:
            return of_documents("about", *document) or {}
    return {}


def parted_scene(scene: str) -> tuple[str, str]:
    """Split ``FILE#DATE`` into file and date, empty where a file has the whole name."""
    file, _, date = scene.rpartition("#") if "#" in scene and not os.path.lexists(scene) else (scene, "", "")
    return file, date


def stem_of_failed(scene: str) -> str:
    """Return the beginning of the names of a scene's outputs."""
    file, date = parted_scene(scene)
    path = Path(file)
    stem = path.stem if path.suffix.lower() in (*ENDINGS, ".json") else path.name
    return "_".join(filter(None, (stem, date)))


def folder_of_scene(scene: str) -> Path:
    """Return the folder of a scene, links followed."""
    file, _ = parted_scene(scene)
    return Path(file if is_remote(file) else os.path.realpath(file)).parent


def folder_beside(folder: Path, places: Mapping[Path, Path]) -> Path:
    """Return the folder of the outputs of a scene in ``folder``, from those of others; none where they do not tell."""
    for scenes, outputs in places.items() if folder not in places else ():
        pairs = zip(scenes.parts[:0:-1], outputs.parts[:0:-1])
        alike = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))  # of -o 'maps/{dir}'
        if alike and folder.is_relative_to(root := scenes.parents[alike - 1]):
            return outputs.parents[alike - 1] / folder.relative_to(root)
    only = set(places.values())
    return places.get(folder) or (only.pop() if len(only) == 1 else Path())
