"""What a run does with outputs that it finds: one question, one answer."""

import logging
from dataclasses import dataclass
from typing import Any

from ..errors import OutputError
from ..io.read import brief
from .completed import CompletedRun
from .journal import ResumeState, check_lines, check_names, difference, read_resume_state
from .output_set import Outputs

log = logging.getLogger("unmix")


@dataclass(frozen=True)
class Skip:
    """All outputs of just that run exist: leave them alone."""


@dataclass(frozen=True)
class Publish:
    """A run of the same was cut off while its files took their names: let it end."""

    resume: ResumeState


@dataclass(frozen=True)
class Resume:
    """A run of the same was cut off: go on after its last recorded line."""

    resume: ResumeState


@dataclass(frozen=True)
class Fresh:
    """Begin with the first line; what exists may be replaced."""


Decision = Skip | Publish | Resume | Fresh


def decide(
    outputs: Outputs, identity: dict[str, Any], completed: CompletedRun, overwrite: bool, skip_existing: bool
) -> Decision:
    """Decide what to do with the outputs that exist, finished or not, while holding the scene's lock.

    Parameters
    ----------
    outputs : Outputs
        Its ``resume`` is set for `Publish` and `Resume`.
    identity : dict
        What an unfinished run must have been to be gone on with: version, request and input.
    completed : CompletedRun
        What a finished run must have been to be skipped.
    overwrite, skip_existing : bool
        What the user allows.

    Raises
    ------
    OutputError
        Where outputs exist, finished or not, and the user allows nothing, or they are of something else.
    """
    outputs.resume = read_sound_resume_state(outputs, identity, overwrite)
    if outputs.resume is None:
        if skip_existing and all_exist(outputs, completed):
            return Skip()
    elif outputs.resume.finishing is not None:
        return Publish(outputs.resume)
    outputs.refuse_existing(overwrite or skip_existing)
    return Fresh() if outputs.resume is None else Resume(outputs.resume)


def all_exist(outputs: Outputs, completed: CompletedRun) -> bool:
    """Return whether all outputs of a finished run of just that exist; `OutputError` where they are of something else."""
    if not outputs.existing():
        return False
    if completed.is_there(outputs.folder, outputs.stem):
        return True
    log.warning(f"{outputs.final('')}: not all of a run's outputs are here any more; they are made again")
    return False


def read_sound_resume_state(outputs: Outputs, identity: dict[str, Any], overwrite: bool) -> ResumeState | None:
    """Return what an unfinished run of the same left, checked; None where there is nothing, or nothing sound.

    Raises
    ------
    OutputError
        Where it was another run, and the user does not allow to throw it away.
    """
    path = outputs.journal.path
    try:
        resume = read_resume_state(path)
        if resume is None:
            return None
        changed = difference(resume.identity, identity)
        if changed and not overwrite:
            raise OutputError(
                f"{path}: an unfinished run differs in {', '.join(changed[:4])}; finish it with what it was begun with, or begin "
                "anew with `overwrite`"
            )
        if changed:
            log.info(f"{path}: an unfinished run differs in {', '.join(changed[:4])}; it begins anew")
        elif resume.finishing is not None:
            check_names(resume.finishing, outputs.folder)
            return resume
        elif resume.lines and resume.about is not None:
            check_lines(resume, outputs.folder, outputs.stem)
            outputs.journal.lines = resume.lines
            return resume
    except (ValueError, LookupError, TypeError, AttributeError, OSError) as error:
        log.warning(f"{path}: what an unfinished run left is damaged ({brief(error)}); it begins anew")
    outputs.refuse_unfinished(True)
    return None
