"""Open what a finished run left: its record, its maps in any format, its endmembers."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import OutputError
from ..io import Cube, open_cube
from ..io.export import FORMATS
from ..library import Endmembers, load
from .names import BROWSE, RECORD, SUFFIXES


def stem_of_outputs(path: Path) -> Path:
    """Return the beginning of the outputs' names, where the user gave it, one of the outputs, or the cube beside them."""
    ends = [suffix for suffix in SUFFIXES if path.name.endswith(suffix) and path.name != suffix]
    candidates = [path, *(path.with_name(path.name.removesuffix(end)) for end in ends), path.with_suffix("")]
    finished = [stem for stem in candidates if stem.with_name(stem.name + RECORD).exists()]
    likely = candidates[1] if ends or path.suffix.lower() in (".hdr", ".img") else path
    return (finished or [likely])[0]


def record_of(stem: Path) -> dict[str, Any]:
    """Return the content of ``STEM_run.json``.

    Raises
    ------
    OutputError
        Where there is none, or it cannot be read.
    """
    record = stem.with_name(stem.name + RECORD)
    try:
        report = json.loads(record.read_text())
    except OSError as error:
        raise OutputError(f"{record}: no finished run: {error.strerror}; STEM begins its outputs' names") from None
    except (ValueError, RecursionError) as error:
        raise OutputError(f"{record}: is damaged: {error}") from None
    if not isinstance(report, dict):
        raise OutputError(f"{record}: is damaged: no JSON object")
    return report


@dataclass(frozen=True)
class FinishedRun:
    """A finished run.

    Attributes
    ----------
    stem : Path
        The beginning of its outputs' names.
    report : dict
        The content of ``STEM_run.json``.
    """

    stem: Path
    report: dict[str, Any]

    @classmethod
    def of(cls, path: Path) -> "FinishedRun":
        """Return the run that a path belongs to: its stem, one of its outputs, or the cube beside them; `OutputError` if none does."""
        stem = stem_of_outputs(path)
        return cls(stem, record_of(stem))

    def has(self, name: str) -> bool:
        """Return whether the run wrote a map of this name."""
        return self.file_of(name).name in self.report.get("digests", {})

    def file_of(self, name: str) -> Path:
        """Return the path of the file that holds a map's values."""
        form = FORMATS.get(self.report.get("format", "envi"), FORMATS["envi"])
        return self.stem.with_name(f"{self.stem.name}_{name}{form.endings[0]}")

    def open(self, name: str) -> Cube:
        """Open a map; `CubeError` where it cannot be read."""
        dataset = FORMATS[self.report.get("format", "envi")].dataset
        return open_cube(self.file_of(name), dataset and dataset.format(name))

    def endmembers(self) -> Endmembers:
        """Return the endmembers; `LibraryError` where they cannot be read."""
        return load(self.stem.with_name(f"{self.stem.name}_endmembers.sli"))

    def browse(self) -> bytes | None:
        """Return the browse image, if there is one."""
        try:
            return self.stem.with_name(self.stem.name + BROWSE).read_bytes()
        except OSError:
            return None
