"""Check whether a finished run is complete, and was made with the present request and input."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import OutputError
from ...io import RemotePath, exists, is_older, sizes_in_folder
from ...io.identity import SMALL_FILE
from ...options import WHEN_SET
from ...outputs import JOURNAL, RECORD, finite, is_ours, read_record
from .journal import difference_of_requests

log = logging.getLogger("unmix")


def journal_of(folder: Path, stem: str) -> Path:
    """Return the path of the journal that an unfinished run has."""
    return folder / (stem + JOURNAL)


@dataclass(frozen=True)
class CompletedRun:
    """The request and input that a finished run must have to be skipped.

    Attributes
    ----------
    request : dict
        See `unmix.options.Options.request`.
    identity : dict
        The identity of the input; see `unmix.io.identity.identity_of`.
    modified : str
        The time of the input's last change, as records have it.
    """

    request: dict[str, Any]
    identity: dict[str, Any]
    modified: str = ""

    def is_done(self, folder: Path, stem: str) -> bool:
        """Return whether the run has finished and no other has begun; it needs no lock, nor a writable folder."""
        begun = not isinstance(folder, RemotePath) and os.path.exists(journal_of(folder, stem))
        return exists(folder / (stem + RECORD)) and not begun and self.is_there(folder, stem)

    def is_there(self, folder: Path, stem: str) -> bool:
        """Return whether all outputs exist with their recorded sizes; `OutputError` if they are of another run."""
        path = folder / (stem + RECORD)
        try:
            report = read_record(path)
            # Older versions of unmix recorded less.
            recorded = report.get("asked") or {key: report.get(key) for key in ("method", "solver")}
            recorded_identity = report.get("identity") or {"data": {"bytes": report["input"]["bytes"]}}
            older = is_older(recorded_identity)
            sizes = report.get("sizes") or dict.fromkeys(report["digests"])
            if not all(is_ours(name, stem) for name in sizes):
                raise ValueError("it names files that are no outputs")
        except (OSError, OutputError, ValueError, KeyError, TypeError, AttributeError):
            raise OutputError(
                f"{path}: is missing or cannot be read, but outputs exist; use `out_dir` or `overwrite`"
            ) from None
        if older:
            raise OutputError(
                f"{path}: is of an older unmix, which knew its input by modification time, so that the inputs cannot "
                "be compared; "
                "use `overwrite` or `out_dir`"
            )
        request = finite(self.request)
        recorded = {key: None for key in WHEN_SET if key in request} | recorded
        # The device of the run does not matter.
        comparable = {key: recorded[key] if key == "device" else request.get(key) for key in recorded}
        changed = difference_of_requests(recorded, comparable)
        identity = finite(self.identity)
        if "header" not in recorded_identity:
            identity = narrowed_request(identity, recorded_identity)
        changed += difference_of_requests(recorded_identity, identity, "input ")
        if changed:
            raise OutputError(
                f"{path}: is of another run: {', '.join(changed[:4])} differ; use `overwrite` (without `skip_existing`) or `out_dir`"
            )
        found = sizes_in_folder(folder, sizes)
        own = report["input"]
        if self.modified > str(own.get("modified") or self.modified) and own["bytes"] > SMALL_FILE:
            log.warning(
                f"{own['path']}: was written after its run began, but the blocks that are compared are the same: if a "
                "part of it was corrected, `overwrite` unmixes it anew"
            )
        return all(name in found and size in (None, found[name]) for name, size in sizes.items())


def narrowed_request(identity: dict[str, Any], template: dict[str, Any]) -> dict[str, Any]:
    """Return an identity with only the keys of ``template``, at every level; None for keys that it lacks."""
    return {
        key: narrowed_request(identity.get(key) or {}, value) if isinstance(value, dict) else identity.get(key)
        for key, value in template.items()
    }
