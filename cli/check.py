"""`unmix check`: find faults of cube, library and options before a run."""

import logging
from pathlib import Path
from typing import Any

import click

from unmix.errors import CubeError

from . import archive, options, unmixing


@click.command("check")
@options.cube
@unmixing.library
@unmixing.of_all_runs
@options.method_left_open
@options.budget
@options.reading
@options.declared("tie", "albedo", "free")
@options.as_json
@options.log_options
def command(
    cube: Path,
    endmembers: Path | None,
    as_json: bool,
    verbose: bool,
    quiet: bool,
    log_file: str | None,
    **settings: Any,
) -> int:
    """Check whether a run of CUBE would be sound; reads headers and a sample of pixels only.

    Checks units, scale, wavelengths and condition of the library, masks, and bands that are dead, constant or out of
    physical range; says what a run will read, and the memory it will take. Exit code 3 means that a run would be
    unsound.
    """
    from unmix import check
    from unmix.runs.record.collected import collected_warnings

    log = options.set_up_log(verbose, quiet, log_file)
    # Findings are printed on stdout: the log has errors, and that code is compiled, which takes long the first time.
    log.handlers[0].addFilter(lambda one: one.levelno >= logging.ERROR or (one.module == "cache" and not quiet))
    name, ((cube, *_), dates) = cube.name, archive.scenes_in(cube, settings["dataset"])
    with collected_warnings() as logged:
        report = check(cube, endmembers, **settings)
    findings = report["findings"]
    known = [finding["message"] for finding in findings]
    findings += [{"severity": "warning", "about": "file", "message": one} for one in logged if one not in known]
    if dates:
        said = (
            f"has {len(dates)} dates, of which the first is looked at, {dates[0]}; name another as {name}#{dates[-1]}"
        )
        findings.insert(0, {"severity": "info", "about": "file", "message": said})
    for finding in findings:
        level = logging.INFO if finding["severity"] == "info" else logging.WARNING
        log.log(level, f"{cube}: {finding['severity']}: {finding['about']}: {finding['message']}")
    width = max(len(finding["about"]) for finding in findings)
    lines = [
        f"{finding['severity']:8} {finding['about']:{width}}  {finding['message']}"
        for finding in findings
        if not (quiet and finding["severity"] == "info")
    ]
    warnings = sum(finding["severity"] == "warning" for finding in findings)
    verdict = f"a run would work; read the {warnings} warning{'s' * (warnings > 1)} first" if warnings else "sound"
    verdict = verdict if report["sound"] else "a run would be unsound"
    options.show(report, as_json, [*lines, f"{cube}: {verdict}"])
    return 0 if report["sound"] else CubeError.exit_code
