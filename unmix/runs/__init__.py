"""`run`: unmix a cube on disk into certified abundance maps on disk."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..io.remote import is_remote
from ..options import Options
from ..scene import folder_of
from .executor import Executor, Progress
from .record.collected import collected_warnings
from .scene_run import SceneRun


def run(
    cube: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    command: Sequence[str] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Unmix a scene: write abundances, RMSE and endmembers beside it, and certify every pixel.

    Parameters
    ----------
    cube : path-like
        The scene (ENVI: header or data file).
    progress : callable, optional
        Called with an `unmix.pipeline.JobProgress` after every block of lines.
    command : sequence of str, optional
        The command line, for ``run.json``.
    **options
        The fields of `unmix.Options`, such as ``method="nnls"`` or ``endmembers="library.csv"``, and of
        `unmix.ReadOptions`, such as ``bands="1-50,60"`` or ``lines="100:200"``.

    Returns
    -------
    dict
        The contents of ``STEM_run.json``.

    Raises
    ------
    UnmixError
        See `unmix.errors`; no output has its final name then. Finished lines are kept, and the same call continues
        after them.
    """
    chosen = Options.of(**options)
    executor = Executor(chosen)
    try:
        return unmix_scene(cube, chosen, executor, progress, command)
    finally:
        executor.close()


def unmix_scene(
    cube: str | os.PathLike[str],
    options: Options,
    executor: Executor,
    progress: Progress | None = None,
    command: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Unmix a scene as `run` does, with the given executor."""
    if (folder := folder_of(options.out_dir, cube)) is not options.out_dir:  # a replaced field would be checked again
        options = replace(options, out_dir=folder)
    with collected_warnings() as warnings:

        def scene_run(options: Options, target: Path | None = None) -> SceneRun:
            return SceneRun(cube, options, executor, progress, command, warnings, target)

        if options.out_dir is None or not is_remote(options.out_dir):
            return scene_run(options).run()
        from .upload import unmix_and_upload

        return unmix_and_upload(scene_run, options)
