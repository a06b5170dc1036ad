"""Decide what a run does with outputs that exist already: skip, publish, resume or begin anew."""

import logging
from pathlib import Path
from typing import Any, Literal

from ...errors import OutputError, brief
from ...outputs.names import UNFIT
from .completed import CompletedRun
from .journal import (
    ResumeState,
    check_entries,
    check_lines,
    check_names,
    difference_of_requests,
    read_resume_state,
)
from .output_set import Outputs

log = logging.getLogger("unmix")


# "skip": all outputs of a run with this request and input exist, and stay as they are. "publish": such a run was
# interrupted while it renamed its outputs; the others are to be renamed. "unmix": begin with the first line, or go on
# after the last one that it recorded.
Decision = Literal["skip", "publish", "unmix"]


def decide(
    outputs: Outputs, identity: dict[str, Any], completed: CompletedRun, overwrite: bool, skip_existing: bool
) -> Decision:
    """Decide what to do with existing outputs, under the scene's lock; set ``outputs.resume`` if a run continues."""
    # ``identity`` is what an unfinished run must match to be resumed, ``completed`` what a finished run must match.
    outputs.resume = read_sound_resume_state(outputs, identity, overwrite)
    if outputs.resume is None:
        if skip_existing and all_exist(outputs, completed):
            return "skip"
    else:
        outputs.journal.lines = outputs.resume.lines
        if outputs.resume.finishing is not None:
            return "publish"
    outputs.refuse_existing(overwrite or skip_existing)
    return "unmix"


def all_exist(outputs: Outputs, completed: CompletedRun) -> bool:
    """Return whether all outputs of a finished run exist; `OutputError` if they are of another request or input."""
    if not outputs.existing():
        return False
    if completed.is_there(outputs.folder, outputs.stem):
        return True
    log.warning(
        f"{outputs.final('')}: some outputs of the finished run are missing or have another size; all are made again"
    )
    return False


def refuse_unversioned(path: Path, identity: dict[str, Any], overwrite: bool) -> None:
    """Raise `OutputError` if the input's server gives no version of it, so that a run cannot be continued."""
    if identity["data"].get("unversioned") and not overwrite:
        raise OutputError(
            f"{path}: an unfinished run cannot be continued: the input's server gives neither ETag nor Last-Modified, "
            "so the input may "
            "have changed; begin anew with `overwrite`"
        )


def read_sound_resume_state(outputs: Outputs, identity: dict[str, Any], overwrite: bool) -> ResumeState | None:
    """Return an unfinished run's checked state; None if there is none, or it was unusable and has been deleted."""
    path, resume = outputs.journal.path, None
    try:
        resume = read_resume_state(path)
        if resume is None:
            return None
        refuse_unversioned(path, identity["input"], overwrite)
        changed = difference_of_requests(resume.identity, identity)
        if changed and not overwrite:
            raise OutputError(
                f"{path}: an unfinished run differs in {', '.join(changed[:4])}; finish it with the input, options and "
                "version that it was begun with, or begin anew with `overwrite`"
            )
        if changed:
            log.info(f"{path}: an unfinished run differs in {', '.join(changed[:4])}; the run begins anew")
        else:
            check_entries(resume.entries)  # of this version, as it does not differ
            if resume.finishing is not None:
                check_names(resume, outputs.folder)
                return resume
            if resume.lines and resume.about is not None and not resume.about["spatial"]:  # else it is searched anew
                check_lines(resume, outputs.folder, outputs.stem)
                return resume
    except (*UNFIT, OSError) as error:
        log.warning(f"{path}: the unfinished run is damaged ({brief(error)}); the run begins anew")
    if resume is not None:
        resume.close()
    outputs.refuse_unfinished(True)
    return None
