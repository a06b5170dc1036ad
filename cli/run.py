"""`unmix run`: unmix scenes: endmembers, then certified abundances."""

import contextlib
import os
import sys
import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import click

from unmix._version import build
from unmix.errors import UnmixError
from unmix.pipeline import JobProgress
from unmix.wake import wake

from . import archive, config, options, unmixing
from .help import Grouped
from .outcomes import Outcomes
from .progress import Board, Report

# Share of a scene's lines after which the next scene is prefetched, and the bytes of it that are.
PREFETCH_AT, PREFETCH_BYTES = 0.8, 256 * 2**20
# Bytes of a scene from which `device` auto may take a GPU (`unmix.devices`), whose context is then made while Python
# imports.
LARGE = 256 * 2**20


@click.command("run", cls=Grouped)
@archive.scenes
@unmixing.every
@config.option
@options.option("dry_run")
@archive.jobs
@archive.reporting
@options.log_options
def command(**given: Any) -> int:
    """Unmix scenes: endmembers (extracted, or -e FILE), then abundances, RMSE and a certificate for every pixel.

    Outputs are written beside the cube: STEM_abundance, STEM_rmse, STEM_endmembers and, when all is done,
    STEM_run.json. Library and cube must have the same unit: the header's scale factor and gains are applied, or
    --scale.

    Exit code 0 means that every pixel of an exact solver is certified. An interrupted run (Ctrl-C, kill -9, a full
    disk, a power loss) continues when the same command is given again; of several scenes with --skip-existing. A cube
    that fails does not stop the others (exit code 4): find archive -name '*.hdr' -print0 | unmix run --list -
    --skip-existing -o 'maps/{dir}' --failed failed.csv
    """
    return unmix_scenes(**given)


def unmix_scenes(
    cubes: tuple[Path, ...],
    listed: Path | None,
    shard: str | None,
    as_json: bool,
    uncertified: str,
    failed: Path | None,
    progress_kind: str,
    jobs: int,
    verbose: bool,
    quiet: bool,
    log_file: str | None,
    **settings: Any,
) -> int:
    """Unmix scenes with some of the options of `unmix.run`, ``jobs`` at a time; return the exit code."""
    if jobs == 1 and not settings.get("dry_run"):  # else this process unmixes nothing
        threading.Thread(target=build, daemon=True).start()  # reads 450 files, while Python imports
        uses_gpu = settings.get("device") != "auto" or any(map(is_large, cubes))
        wake(settings.get("device", "cpu"), uses_gpu and not settings.get("skip_existing"))
    from unmix import Options
    from unmix.devices import expect_scenes, kind_of

    options.set_up_log(verbose, quiet, log_file)
    config.take_copy_of_library(settings)
    Options.of(**settings)  # options that are wrong for every scene are reported before the first
    kind_of(settings.get("device", "cpu"))
    cubes = archive.chosen_scenes(cubes, listed, shard, settings)
    expect_scenes(len(cubes))
    table = None if settings.get("dry_run") else failed  # a plan writes nothing
    outcomes = Outcomes(len(cubes), as_json, settings["out_dir"], uncertified, table)
    with Board(progress_kind, len(cubes)) as board:
        if jobs > 1 and len(cubes) > 1 and not settings.get("dry_run"):
            from .jobs import side_by_side  # 20 ms

            results = side_by_side(cubes, jobs, settings, sys.argv, board)
        else:
            results = one_by_one(cubes, settings, board)
        with contextlib.closing(results):
            for cube, result in results:
                if isinstance(result, dict):
                    config.compare_with_record(result)
                    outcomes.finished(cube, result)
                else:
                    outcomes.failed(cube, result)
                board.end(cube)
    return outcomes.summary()


def one_by_one(
    cubes: Sequence[Path], settings: dict[str, Any], board: Board
) -> Generator[tuple[Path, dict[str, Any] | UnmixError | MemoryError]]:
    """Yield each scene with its report or its error; this process unmixes one after the other."""
    from unmix import run

    for cube, following in zip(cubes, (*cubes[1:], None)):
        report = with_prefetch(board.scene(cube), following)
        try:
            result: dict[str, Any] | UnmixError | MemoryError = run(cube, progress=report, command=sys.argv, **settings)
        except (UnmixError, MemoryError) as error:
            result = error
        yield cube, result


def with_prefetch(report: Report | None, following: Path | None) -> Report:
    """Return a report function that also prefetches the next scene while the end of this one is written."""
    prefetched = False

    def report_and_prefetch(step: JobProgress) -> None:
        nonlocal prefetched
        if following is not None and not prefetched and step.done >= PREFETCH_AT * step.total:
            prefetched = True
            prefetch(following)
        if report is not None:
            report(step)

    return report_and_prefetch


def files_of(cube: Path) -> list[Path]:
    """Return the files that may hold a cube's data."""
    return [cube, *(cube.with_suffix(ending) for ending in (".img", ".dat", "") if cube.suffix.lower() == ".hdr")]


def is_large(cube: Path) -> bool:
    """Return whether one of a cube's files has at least `LARGE` bytes."""
    with contextlib.suppress(OSError, ValueError):
        return any(os.path.getsize(path) >= LARGE for path in files_of(cube) if os.path.exists(path))
    return False


def prefetch(cube: Path) -> None:
    """Ask the operating system to read the beginning of a cube's data ahead."""
    if not hasattr(os, "posix_fadvise"):  # macOS
        return
    for path in files_of(cube):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe of that name would block
            os.posix_fadvise(descriptor, 0, PREFETCH_BYTES, os.POSIX_FADV_WILLNEED)
            os.close(descriptor)
