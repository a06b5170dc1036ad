"""The journal of a run: which lines are written *and flushed*, so that the same command goes on from there.

A text file beside the outputs, ``STEM_run.journal.part``, a line an entry with its CRC-32. The first says what was asked and of
what; the second where endmembers are from; each other one how many lines are done, what they add up to, and the CRC-32 of every
line that came since. An entry is written when all that it speaks of is on the disk, at most one each 256 MiB or 5 s, since a flush
stops the writing. The last line may be cut short by a power loss, and does not count then.
"""

import base64
import contextlib
import json
import os
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..errors import OutputError
from ..io.opening import open_new, open_there
from ..io.read import brief
from ..io.write import write_all
from .atomic import file_digest, image_digest
from .names import JOURNAL, MAPS, RECORD, is_ours

FLUSH_BYTES, FLUSH_SECONDS = 256 * 2**20, 5.0


@dataclass(frozen=True)
class ResumeState:
    """What an earlier run left.

    Attributes
    ----------
    identity : dict
        What was asked, and of what.
    about : dict or None
        What it said of its endmembers.
    lines : int
        That are done.
    summary : dict or None
        What they add up to.
    checks : dict of arrays (lines,), uint32
        CRC-32 of every line of each raster.
    finishing : list of str or None
        Where it was giving names: those that are due.
    replaced : list of str
        Then: outputs of the run that it replaces, which are not among them.
    """

    identity: dict[str, Any]
    about: dict[str, Any] | None
    lines: int
    summary: dict[str, Any] | None
    checks: dict[str, np.ndarray]
    finishing: list[str] | None
    replaced: list[str] = field(default_factory=list)


class Journal:
    """The journal under way.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: IO[bytes] | None = None
        self.lines = 0
        self.unflushed, self.last = 0, time.monotonic()

    def begin(self, identity: dict[str, Any]) -> None:
        """Start anew, in a file of its own: who lost the scene may still write to the old one."""
        self.file = open_new(self.path, buffering=0)
        self.lines = 0
        self.append({"identity": identity})

    def go_on(self, resume: ResumeState) -> None:
        """Add to what is there; a last line that was cut short is cut off."""
        whole = self.path.read_bytes()
        self.file = open_there(self.path, "r+b", buffering=0)
        self.file.truncate(whole.rfind(b"\n") + 1)
        self.file.seek(0, os.SEEK_END)
        self.lines = resume.lines

    def append(self, entry: dict[str, Any]) -> None:
        """Write an entry and flush it."""
        assert self.file is not None
        text = json.dumps(entry)
        end = self.file.tell()
        try:
            write_all(
                self.file.fileno(), np.frombuffer(f"{zlib.crc32(text.encode()):08x} {text}\n".encode(), np.uint8), end
            )
            self.file.seek(0, os.SEEK_END)
            os.fsync(self.file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                self.file.truncate(end)
                self.file.seek(end)
            raise

    def is_due(self, written: int) -> bool:
        """Whether so many bytes more, or the time, make an entry due."""
        self.unflushed += written
        return self.unflushed >= FLUSH_BYTES or time.monotonic() - self.last >= FLUSH_SECONDS

    def record(self, lines: int, summary: dict[str, Any], rasters: dict[str, Any]) -> None:
        """Flush the rasters, then say that all lines before ``lines`` are done."""
        for raster in rasters.values():
            os.fdatasync(raster.file.fileno())
        checks = {
            name: base64.b64encode(raster.checks[self.lines : lines].astype("<u4").tobytes()).decode()
            for name, raster in rasters.items()
        }
        self.append({"lines": lines, "summary": summary, "checks": checks})
        self.lines, self.unflushed, self.last = lines, 0, time.monotonic()

    def close(self) -> None:
        """Let go of the file."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def remove(self) -> None:
        """It is not wanted any more."""
        self.close()
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


def read_resume_state(path: Path) -> ResumeState | None:
    """What a journal says; None where there is none.

    Raises
    ------
    ValueError
        Where it is damaged.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OutputError(f"{path}: cannot be read: {error.strerror}") from None
    entries = []
    for line in raw[: raw.rfind(b"\n") + 1].splitlines():
        check, _, text = line.partition(b" ")
        if check != b"%08x" % zlib.crc32(text):
            raise ValueError("an entry is not what was written")
        entries.append(json.loads(text))
    if not entries:
        return None
    parts: dict[str, list[np.ndarray]] = {}
    done, summary, finishing, about = 0, None, None, None
    replaced: list[str] = []
    for entry in entries[1:]:
        about = entry.get("about", about)
        finishing, replaced = entry.get("finishing", finishing), entry.get("replaced", replaced)
        if "lines" in entry:
            done, summary = entry["lines"], entry["summary"]
            for name, text in entry["checks"].items():
                parts.setdefault(name, []).append(np.frombuffer(base64.b64decode(text), "<u4"))
    checks = {name: np.concatenate(values).astype(np.uint32) for name, values in parts.items()}
    if any(len(values) != done for values in checks.values()):
        raise ValueError("its entries do not follow on each other")
    check_ours(finishing, replaced, about, path)
    return ResumeState(entries[0]["identity"], about, done, summary, checks, finishing, replaced)


def check_ours(finishing: list[str] | None, replaced: list[str], about: dict[str, Any] | None, path: Path) -> None:
    """`ValueError` where a journal at ``path`` names a file that is no output of its scene, or a map that there is none of."""
    stem = path.name.removesuffix(JOURNAL)
    foreign = [name for name in [*(finishing or ()), *replaced] if not is_ours(name, stem)]
    foreign += [name for name in (about or {}).get("rasters", ()) if name not in MAPS]
    if foreign:
        raise ValueError(f"it names '{brief(str(foreign[0]))}', which is no output of {stem}")
    if finishing is not None and finishing[-1:] != [stem + RECORD]:
        raise ValueError("the last of the names that are due is not that of the record")


def difference(resume: dict[str, Any], now: dict[str, Any], within: str = "") -> list[str]:
    """What differs between two identities, as words: ``method (nnls, now fcls)``."""
    found = []
    for key in sorted(resume.keys() | now.keys()):
        before, after = resume.get(key), now.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found += difference(before, after, f"{within}{key} ")
        elif before != after:
            short = all(len(str(value)) < 40 for value in (before, after))
            found.append(f"{within}{key}" + (f" ({before}, now {after})" if short else ""))
    return found


def check_lines(resume: ResumeState, folder: Path, stem: str) -> None:
    """`ValueError` where a raster's lines are not what the journal says."""
    assert resume.about is not None
    for name, (lines, samples, bands) in resume.about["rasters"].items():
        path, line = folder / f"{stem}_{name}.img.part", 4 * samples * bands
        if len(resume.checks[name]) > lines:
            raise ValueError("more lines than there are")
        with open(path, "rb") as file:
            for i, check in enumerate(resume.checks[name]):
                if zlib.crc32(file.read(line)) != check:
                    raise ValueError(f"line {i} of {path.name} is not what was written")


def check_names(names: list[str], folder: Path) -> None:
    """`ValueError` where what a run was about to name is not there, or not what it wrote."""
    there = {name: folder / f"{name}.part" for name in names}
    there = {name: path if path.exists() else folder / name for name, path in there.items()}
    report = json.loads(there[names[-1]].read_text())
    for name in names[:-1]:
        path = there[name]
        if name.endswith(".img"):
            right = "_ortho." in name or image_digest(path, int(report["lines"])) == report["digests"][name]
        else:
            right = file_digest(path) == report["digests"][name]
        if not right:
            raise ValueError(f"{path.name} is not what was written")
