"""The journal of a run: which lines are written *and flushed*, so that the same command can resume there.

A text file beside the outputs, ``STEM_run.journal.part``; each line is an entry with its CRC-32. The first entry holds
the options and the input, the second the endmembers and rasters; each later one the number of finished lines, their
summary, and the CRC-32 of every line since the last entry. An entry is written once its data are on disk, and only
every 256 MiB or 5 s, since a flush stops writing. A last entry that was cut short by a power loss is ignored.

Entries are checked by a schema, in the words of JSON Schema that `unmix.outputs.names.fault_of` reads.
"""

import base64
import contextlib
import functools
import json
import os
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from ...errors import OutputError, brief
from ...io import VERSIONS, close_late, open_new, open_there, read_plain, write_all
from ...maps.raster import type_of
from ...outputs import JOURNAL, PART, RECORD, fault_of, is_ours, parse_record, plain_fault_of
from ...outputs.sealed import Sealed, seal
from ...settings.maps import MAPS
from ...summary import ADDED, ARRAYS, HISTOGRAMS, MOST_FAILURES, REAL, WORST

# As `float.hex` writes finite numbers.
HEXADECIMAL = r"^-?0x[01]\.[0-9a-f]{1,13}p[+-][0-9]{1,4}$"
COUNT: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 2**53}
TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}
SIZE: dict[str, Any] = {"type": "number", "minimum": 0}


def array(rule: dict[str, Any], least: int = 0, most: int = 10**9) -> dict[str, Any]:
    """Return the rule of a list."""
    return {"type": "array", "items": rule, "minItems": least, "maxItems": most}


def record(fields: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the rule of an object with these fields and no others."""
    required = [name for name in fields if name not in optional]
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": False}


def or_null(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule that takes null as well."""
    return rule | {"type": [rule["type"], "null"]}


def counts(digits: int) -> dict[str, Any]:
    """Return the rule of a histogram: counts by the numbers of their bins."""
    return {"type": "object", "propertyNames": {"pattern": f"^[0-9]{{1,{digits}}}$"}, "additionalProperties": COUNT}


@functools.cache
def schema_of_entries() -> dict[str, Any]:
    """Return the rule of an entry after the first."""
    endmembers = record(
        {
            "names": array(TEXT, 1),
            "matrix": array(array({"type": "string", "pattern": HEXADECIMAL}), 1),
            "wavelengths": or_null(array(NUMBER)),
            "fwhm": or_null(array(NUMBER)),
            "pixels": or_null(array(array(COUNT, 2, 2))),
            "source": TEXT,
            "classes": or_null(array(TEXT)),
            "scenes": array(TEXT),
            **{name: or_null({"type": "object"}) for name in ("counted", "simplex", "quality")},
        },
        ("scenes",),
    )
    about = record(
        {
            "endmembers": or_null(endmembers),
            "passes": COUNT,
            "warnings": array(TEXT),
            "modified": {},
            "rasters": {"type": "object", "additionalProperties": array(COUNT, 3, 3)},
            "features": {"type": "object", "additionalProperties": {"type": "object"}},
            "spatial": {"type": "boolean"},
        }
    )
    summary = record(
        {
            **dict.fromkeys(ADDED, COUNT),
            **dict.fromkeys((*WORST, *REAL), SIZE),
            **{name: or_null(array(NUMBER)) for name in ARRAYS},
            **{name: or_null(array(COUNT)) for name in ("there", "outside")},
            "residuals": or_null(array(array(NUMBER), 3, 3)),
            **{name: counts(3) for name in HISTOGRAMS},
            "steps": counts(6),
            "failures": array(array(COUNT, 2, 2), 0, MOST_FAILURES),
        }
    )
    fields = {
        "about": about,
        "lines": COUNT,
        "summary": summary,
        "checks": {"type": "object", "additionalProperties": TEXT},
        "finishing": array(TEXT),
        "replaced": array(TEXT),
    }
    return record(fields, tuple(fields))


def parse_entry(text: str | bytes) -> Any:
    """Return an entry of a journal; `ValueError` where it is no JSON, or holds numbers or lists that no run writes."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("lists within lists without end") from None
    except ValueError as error:
        if isinstance(error, UnicodeDecodeError | json.JSONDecodeError):
            raise
        raise ValueError("it holds a number that is too large") from None  # of more digits than Python reads


def check_entries(entries: list[Any]) -> None:
    """Raise `ValueError`, which says where, if a journal's entries are not as a run of this version writes them."""
    first = record({"identity": record({"unmix": TEXT, "asked": {"type": "object"}, "input": {"type": "object"}})})
    rules = [first, *[schema_of_entries()] * (len(entries) - 1)]
    faults = (fault_of(entry, rule) or plain_fault_of(entry, finite=False) for entry, rule in zip(entries, rules))
    try:
        fault = next(filter(None, faults), None)
    except RecursionError:
        fault = "lists within lists without end"
    fault = fault or next(filter(None, (fault_of_endmembers(entry.get("about")) for entry in entries)), None)
    if fault:
        raise ValueError(fault)


def fault_of_endmembers(about: dict[str, Any] | None) -> str | None:
    """Return the fault of the lengths of the endmembers' fields, whose types are right; None without a fault."""
    found = None if about is None else about["endmembers"]
    if found is None:
        return None
    matrix, p = found["matrix"], len(found["names"])
    of_each = [found.get(name) for name in ("pixels", "classes", "scenes")]
    of_bands = [found[name] for name in ("wavelengths", "fwhm")]
    right = all(len(row) == p for row in matrix) and all(one is None or len(one) == p for one in of_each)
    return (
        None
        if right and all(one is None or len(one) == len(matrix) for one in of_bands)
        else "endmembers do not fit each other"
    )


FLUSH_BYTES, FLUSH_SECONDS = 256 * 2**20, 5.0


@dataclass(frozen=True)
class ResumeState:
    """State of an earlier, unfinished run, as its journal gives it.

    Attributes
    ----------
    identity : dict
        Options and input of the run.
    about : dict or None
        Its endmembers and rasters.
    lines : int
        Number of finished lines.
    summary : dict or None
        Their `unmix.summary.Summary.to_dict`.
    checks : dict of arrays (lines,), uint32
        CRC-32 of every finished line of each raster.
    finishing : list of str or None
        If it was renaming its files to their final names: those names.
    replaced : list of str
        In that case: the existing outputs that it replaces, also those whose names are among these.
    entries : list
        The journal itself; see `unmix.runs.files.journal.check_entries`.
    files : dict of open files
        The work files of the rasters, once their lines are checked (`check_lines`): the run goes on in these, not in
        what has their names by then.
    sealed : dict of Sealed
        The files that are to get their final names, once they are checked (`check_names`).
    """

    identity: dict[str, Any]
    about: dict[str, Any] | None
    lines: int
    summary: dict[str, Any] | None
    checks: dict[str, np.ndarray]
    finishing: list[str] | None
    replaced: list[str] = field(default_factory=list)
    entries: list[Any] = field(default_factory=list)
    files: dict[str, IO[bytes]] = field(default_factory=dict)
    sealed: dict[str, Sealed] = field(default_factory=dict)

    def close(self) -> None:
        """Close the files that the run does not go on in."""
        for file in self.files.values():
            close_late(file)


class Journal:
    """The journal of the present run.

    Parameters
    ----------
    path : Path
        Its file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: IO[bytes] | None = None
        self.lines = 0
        self.unflushed, self.last = 0, time.monotonic()

    def begin(self, identity: dict[str, Any]) -> None:
        """Start a new file: a run that lost the lock may still write to the old one."""
        self.file = open_new(self.path, buffering=0)
        self.lines = 0
        self.append({"identity": identity})

    def go_on(self, resume: ResumeState) -> None:
        """Continue the journal of an earlier run; a last entry that was cut short is removed."""
        self.file = open_there(self.path, "r+b", buffering=0)
        self.file.truncate(self.file.read().rfind(b"\n") + 1)
        self.file.seek(0, os.SEEK_END)
        self.lines = resume.lines

    def append(self, entry: dict[str, Any]) -> None:
        """Write an entry and flush it to disk."""
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
        """Return whether an entry is due after ``written`` more bytes, by bytes or by time."""
        self.unflushed += written
        return self.unflushed >= FLUSH_BYTES or time.monotonic() - self.last >= FLUSH_SECONDS

    def record(self, lines: int, summary: dict[str, Any], rasters: dict[str, Any]) -> None:
        """Flush the rasters, then record that all lines before ``lines`` are finished."""
        for raster in rasters.values():
            os.fdatasync(raster.file.fileno())
        checks = {
            name: base64.b64encode(raster.checks[self.lines : lines].astype("<u4").tobytes()).decode()
            for name, raster in rasters.items()
        }
        self.append({"lines": lines, "summary": summary, "checks": checks})
        self.lines, self.unflushed, self.last = lines, 0, time.monotonic()

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            close_late(self.file)
            self.file = None

    def remove(self) -> None:
        """Close and delete the file."""
        self.close()
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


def read_resume_state(path: Path) -> ResumeState | None:
    """Return the state in a journal; None if there is no journal or entry, `ValueError` if it is damaged."""
    try:
        raw = read_plain(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OutputError(f"{path}: cannot be read: {error.strerror}") from None
    entries = []
    for line in raw[: raw.rfind(b"\n") + 1].splitlines():
        check, _, text = line.partition(b" ")
        if check != b"%08x" % zlib.crc32(text):
            raise ValueError("the CRC-32 of an entry is wrong")
        entries.append(parse_entry(text))
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
        raise ValueError("entries are missing: the checksums are not as many as the finished lines")
    check_ours(finishing, replaced, about, path)
    return ResumeState(entries[0]["identity"], about, done, summary, checks, finishing, replaced, entries)


def check_ours(finishing: list[str] | None, replaced: list[str], about: dict[str, Any] | None, path: Path) -> None:
    """Raise `ValueError` if a journal at ``path`` names a file that is no output of its scene, or an unknown map."""
    stem = path.name.removesuffix(JOURNAL)
    foreign = [name for name in [*(finishing or ()), *replaced] if not is_ours(name, stem)]
    foreign += [name for name in (about or {}).get("rasters", ()) if name not in MAPS]
    if foreign:
        raise ValueError(f"it names '{brief(str(foreign[0]))}', which is no output of {stem}")
    if finishing is not None and finishing[-1:] != [stem + RECORD]:
        raise ValueError("the last name is not that of the record")


def difference_of_requests(resume: dict[str, Any], now: dict[str, Any], within: str = "") -> list[str]:
    """Return the differences between two identities as text, such as ``method (nnls, now fcls)``."""
    changes = []
    for key in sorted(resume.keys() | now.keys()):
        before, after = resume.get(key), now.get(key)
        # A file on a disk has no version from a server; the digests are enough then.
        if key in VERSIONS and (before is None or after is None):
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            changes += difference_of_requests(before, after, f"{within}{key} ")
        elif before != after:
            short = all(len(str(value)) < 40 for value in (before, after))
            changes.append(f"{within}{key}" + (f" ({before}, now {after})" if short else ""))
    return changes


def check_lines(resume: ResumeState, folder: Path, stem: str) -> None:
    """Open the rasters' work files to continue them; `ValueError` if a line's CRC-32 differs from the journal's."""
    assert resume.about is not None
    step = resume.identity.get("asked", {}).get("quantize")
    for name, (lines, samples, bands) in resume.about["rasters"].items():
        itemsize = type_of(name, step).dtype.itemsize
        path, line = folder / f"{stem}_{name}.img{PART}", itemsize * samples * bands
        if len(resume.checks[name]) > lines:
            raise ValueError(f"it counts more lines of {path.name} than the raster has")
        file = resume.files[name] = open_there(path, "r+b", buffering=0)
        for i, check in enumerate(resume.checks[name]):
            if zlib.crc32(read_whole(file, line)) != check:
                raise ValueError(f"line {i} of {path.name} was changed or damaged: its CRC-32 is wrong")


def read_whole(file: IO[bytes], size: int) -> bytes:
    """Return the next bytes of an unbuffered file; fewer at its end."""
    size = min(size, os.fstat(file.fileno()).st_size)  # read() allocates all that is asked for
    pieces = [file.read(size)]
    while pieces[-1] and (left := size - sum(map(len, pieces))):
        pieces.append(file.read(left))
    return b"".join(pieces)


def check_names(resume: ResumeState, folder: Path) -> None:
    """Seal the files that a run was about to rename; `ValueError` if one was changed, `OSError` if it is missing."""
    names = resume.finishing or []
    paths = {name: part_or_final(folder / (name + PART), folder / name) for name in names}
    resume.sealed[names[-1]] = seal(paths[names[-1]], with_content=True)
    report = parse_record(resume.sealed[names[-1]].content)
    for name in names[:-1]:
        is_image = name.endswith(".img")
        sealed = resume.sealed[name] = seal(
            paths[name], int(report["lines"]) if is_image and "_ortho." not in name else None
        )
        if sealed.digest != report["digests"][name] and not (is_image and "_ortho." in name):
            raise ValueError(f"{paths[name].name} was changed or damaged: its digest is wrong")


def part_or_final(part: Path, final: Path) -> Path:
    """Return a file's present name; if a process was killed between link and unlink, remove the ``part`` name."""
    if not os.path.lexists(part):
        return final
    if os.path.lexists(final) and os.path.samestat(os.lstat(part), os.lstat(final)):
        part.unlink()
        return final
    return part
