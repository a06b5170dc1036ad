"""A finished run, as an archive meets it again: is it all there, and is it what is asked for?"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import OutputError
from ..io.identity import is_older
from .atomic import finite
from .journal import difference
from .names import JOURNAL, RECORD, is_ours


def journal_of(folder: Path, stem: str) -> Path:
    """The journal of a run under way."""
    return folder / (stem + JOURNAL)


@dataclass(frozen=True)
class CompletedRun:
    """What a finished run should have been.

    Attributes
    ----------
    asked : dict
        See `unmix.options.Options.request`.
    identity : dict
        By what its input is known again; see `unmix.io.identity.identity_of`.
    """

    request: dict[str, Any]
    identity: dict[str, Any]

    def is_done(self, folder: Path, stem: str) -> bool:
        """Whether it has ended here, and no other has begun: found without a lock, even where nobody may write."""
        report = folder / (stem + RECORD)
        return os.path.exists(report) and not os.path.exists(journal_of(folder, stem)) and self.is_there(folder, stem)

    def is_there(self, folder: Path, stem: str) -> bool:
        """Whether all of its outputs are here, as large as they were, on whatever device they were made.

        Raises
        ------
        OutputError
            Where nothing says of what they are, or they are of other options, or of another input than this one is now.
        """
        path = folder / (stem + RECORD)
        try:
            report = json.loads(path.read_text())
            # An older version of unmix said less.
            before = report.get("asked") or {key: report.get(key) for key in ("method", "solver")}
            source = report.get("identity") or {"data": {"bytes": report["input"]["bytes"]}}
            older = is_older(source)
            sizes = report.get("sizes") or dict.fromkeys(report["digests"])
            if not all(is_ours(name, stem) for name in sizes):
                raise ValueError("it names files that are no outputs")
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise OutputError(
                f"{path}: is not there, or cannot be read, but outputs are; use `overwrite` or `out_dir`"
            ) from None
        if older:
            raise OutputError(
                f"{path}: is of an older unmix, which knew its input by its time; whether it is the same cannot be told; use "
                "`overwrite` or `out_dir`"
            )
        request = finite(self.request)
        changed = difference(before, {key: before[key] if key == "device" else request.get(key) for key in before})
        now = finite(self.identity)
        changed += difference(source, now if "header" in source else narrowed(now, source), "input ")
        if changed:
            raise OutputError(
                f"{path}: is of another run: {', '.join(changed[:4])} differ; use `overwrite` or `out_dir`"
            )
        return all(
            size_of(folder / name) == size if size is not None else (folder / name).exists()
            for name, size in sizes.items()
        )


def narrowed(now: dict[str, Any], to: dict[str, Any]) -> dict[str, Any]:
    """Only what another one says, too."""
    return {
        key: narrowed(now.get(key) or {}, value) if isinstance(value, dict) else now.get(key)
        for key, value in to.items()
    }


def size_of(path: Path) -> int | None:
    """Bytes of a file; None where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return None
