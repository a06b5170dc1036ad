"""`unmix status`: show how far runs have come."""

from pathlib import Path

import click

from unmix.errors import OutputError

from . import archive, options
from .main import print_json, print_out
from .outcomes import scenes_that_failed


@click.command("status")
@options.maps
@options.value(
    "--failed",
    "Also show the scenes that failed, of which nothing is in MAPS: the table that run --failed FILE wrote.",
    type=options.Local(dir_okay=False),
    metavar="FILE",
)
@options.as_json
def command(maps: tuple[Path, ...], failed: Path | None, as_json: bool) -> int:
    """Show which runs are done, and how well they fit, running (and where), interrupted (and at which line), or
    damaged: without a file, or of another size (unmix verify reads them).

    MAPS is a folder, with all below it, the stem of a run's outputs (maps/cube), or one of them. Exit code 0 means that
    all that have begun are done, with every pixel of an exact solver certified, and that no scene of --failed is named.
    """
    missing = [] if failed is None else scenes_that_failed(failed)  # before the first line
    from unmix.runs.files.finished import (
        State,
        has_run,
        runs_below,
        state_of_run,
        stem_of_outputs,
        why_no_run,
        without_run,
    )

    states: list[State] = []

    def show(_: int, path: Path) -> None:
        stems = runs_below(path) if path.is_dir() else [stem for stem in [stem_of_outputs(path)] if has_run(stem)]
        if not stems and not (missing and path.is_dir()):  # all scenes may have failed
            raise OutputError(
                f"{path}: holds no run of unmix run, batch or mesma" if path.is_dir() else why_no_run(path)
            )
        for stem in stems:
            states.append(state := state_of_run(stem))
            if as_json:
                fit = (state.report.get("fit") or {}).get("relative_rmse")
                facts = {"stem": str(state.stem), "state": state.name, "detail": state.detail, "fit": fit}
                print_json(facts | {"warnings": state.report.get("warnings")})
            else:
                said = "; ".join(filter(None, (state.detail, state.fit)))
                print_out(f"{state.name:12} {state.stem}{': ' + said if said else ''}")

    code = archive.for_each(maps, show)
    since = failed.stat().st_mtime if failed is not None else 0.0
    left = without_run([scene for scene, _ in missing], [state.report for state in states], since)
    missing = [one for one in missing if one[0] in left]  # others are done since
    for scene, reason in missing:
        facts = {"stem": scene, "state": "failed", "detail": reason, "fit": None, "warnings": None}
        print_json(facts) if as_json else print_out(f"{'failed':12} {scene}: {reason}")
    return code or int(bool(missing) or any(state.name != "done" for state in states))
