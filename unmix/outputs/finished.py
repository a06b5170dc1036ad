"""A finished run, as an archive meets it again: is it all there, and is it what is asked for?"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import OutputError
from .journal import difference
from .whole import finite


def journal_of(folder: Path, stem: str) -> Path:
    """The journal of a run under way."""
    return folder / f"{stem}_run.journal.part"


@dataclass(frozen=True)
class Finished:
    """What a finished run should have been.

    Attributes
    ----------
    asked : dict
        See `unmix.options.Options.asked`.
    input : dict
        See `unmix.outputs.report.input_of`.
    """

    asked: dict[str, Any]
    input: dict[str, Any]

    def is_done(self, folder: Path, stem: str) -> bool:
        """Whether it has ended here, and no other has begun: found without a lock, even where nobody may write."""
        return not journal_of(folder, stem).exists() and self.is_there(folder, stem)

    def is_there(self, folder: Path, stem: str) -> bool:
        """Whether all of its outputs are here, as large as they were, on whatever device they were made.

        Raises
        ------
        OutputError
            Where they are of other options, or the input has changed since.
        """
        path = folder / f"{stem}_run.json"
        try:
            report = json.loads(path.read_text())
            # An older version of unmix said less.
            before = report.get("asked") or {key: report.get(key) for key in ("method", "solver")}
            source = {key: report["input"][key] for key in ("bytes", "modified")}
            sizes = report.get("sizes") or dict.fromkeys(report["digests"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False
        asked = finite(self.asked)
        changed = difference(before, {key: before[key] if key == "device" else asked.get(key) for key in before})
        changed += ["the input, since then"] if source != {key: self.input[key] for key in source} else []
        if changed:
            raise OutputError(f"{path}: is of another run: {', '.join(changed[:4])} differ; use --overwrite or -o")
        return all(
            size_of(folder / name) == size if size is not None else (folder / name).exists()
            for name, size in sizes.items()
        )


def size_of(path: Path) -> int | None:
    """Bytes of a file; None where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return None
