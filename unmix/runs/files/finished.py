"""Find runs, tell their progress, and open a finished run's record, its maps in any format, and its endmembers."""

import contextlib
import datetime
import difflib
import json
import logging
import os
import re
import socket
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import CubeError, MethodError, OutputError, printable
from ...io import (
    Bands,
    Cube,
    RemotePath,
    dated,
    exists,
    identity_of,
    is_remote,
    leads_elsewhere,
    located,
    open_cube,
    read_plain,
    sizes_in_folder,
)
from ...io.export import FORMATS, OutputFormat
from ...library import BRIGHTNESS, SCALE, SHADE, Endmembers, load
from ...maps.raster import decoded_values
from ...outputs import (
    ITEM,
    JOURNAL,
    LOCK,
    MAP_OF,
    PAGE,
    RECORD,
    SUFFIXES,
    UNFIT,
    believing,
    finite,
    normalize_of,
    read_record,
)
from ...outputs.lock import STALE
from ...scene import ReadOptions, file_of_spec, name_for
from ...settings.maps import ORTHO
from .journal import read_resume_state

log = logging.getLogger("unmix")
# Most warnings of finished runs that a command repeats.
MOST_REPEATED = 5
# A date in a scene's name, perhaps with a time behind it; or a year and a day of it, as MODIS and HLS have them.
DATE = re.compile(r"(?<![0-9])((?:19|20)[0-9]{2})([-_]?)([01][0-9])\2([0-3][0-9])(?:[0-9]{6})?(?![0-9])")
DAY_OF_YEAR = re.compile(r"(?:(?<=[._]A)|(?<=\.)(?=[0-9]{7}T[0-9]))((?:19|20)[0-9]{2})([0-3][0-9]{2})(?![0-9])")

# Most runs that a message names.
MOST_NAMED = 3
# Endings of files that each say that there is a run, finished or not.
SIGNS = (RECORD, JOURNAL, LOCK)


def stem_of_outputs(path: Path) -> Path:
    """Return the stem of a run's outputs from that stem, from one of the outputs, or from the cube beside them."""
    ends = [suffix for suffix in (*SUFFIXES, PAGE, ITEM) if path.name.endswith(suffix) and path.name != suffix]
    beside = (
        [path.with_suffix("")] if path.suffix and (path.exists() or path.suffix.lower() in (".hdr", ".img")) else []
    )
    candidates = [path, *(path.with_name(path.name.removesuffix(end)) for end in ends), *beside]
    finished = [stem for stem in candidates if stem.with_name(stem.name + RECORD).exists()]
    likely = candidates[1] if ends or path.suffix.lower() in (".hdr", ".img") else path
    return (finished or [likely])[0]


def record_of(stem: Path, given: Path | None = None) -> dict[str, Any]:
    """Return the content of ``STEM_run.json``; if it is missing, the `OutputError` lists the runs near ``given``."""
    record = stem.with_name(stem.name + RECORD)
    try:
        return read_record(record)
    except FileNotFoundError:
        raise OutputError(why_no_run(given or stem)) from None
    except OSError as error:
        raise OutputError(f"{record}: cannot be read: {error.strerror}") from None


def why_no_run(given: Path) -> str:
    """Return a message that no finished run has this name; it lists the runs there, those of similar names first."""
    record = stem_of_outputs(given).name + RECORD
    folder = given if given.is_dir() else given.parent
    if not folder.is_dir():
        return f"{given}: no finished run: there is no folder {folder}"
    names = sorted(path.name.removesuffix(RECORD) for path in folder.glob(f"?*{RECORD}"))
    near = dict.fromkeys([*difflib.get_close_matches(given.name, names, MOST_NAMED, 0.4), *names])
    some = ", ".join(str(folder / name) for name in list(near)[:MOST_NAMED]) + (", …" if len(near) > MOST_NAMED else "")
    there = f"name one of {some}" if near else f"{folder} holds none"
    if given.is_dir():
        inside = ", ".join(map(str, runs_below(given)[:MOST_NAMED]))
        return f"{given}: is a folder; " + (f"name a run in it: {inside}" if inside else "it holds no run")
    what = "is a file, and no output of a finished run" if given.exists() else f"no finished run: {record} is not there"
    return f"{given}: {what}; {there}"


def date_in(name: str) -> str | None:
    """Return the date in a scene's name; None without one."""
    with contextlib.suppress(ValueError):
        if found := DATE.search(name):
            return datetime.date(int(found[1]), int(found[3]), int(found[4])).isoformat()
        if found := DAY_OF_YEAR.search(name):
            day = datetime.datetime.strptime(found[1] + found[2], "%Y%j").date()
            return day.isoformat() if day.year == int(found[1]) else None
    return None


@dataclass(frozen=True)
class FinishedRun:
    """A finished run.

    Attributes
    ----------
    stem : Path
        The beginning of its outputs' names.
    report : dict
        The content of ``STEM_run.json``.
    cube : Path, optional
        The scene, where the user names it.
    named : str, optional
        The map whose file the user names; None where it is the run, or another of its outputs.
    """

    stem: Path
    report: dict[str, Any]
    cube: Path | None = None
    named: str | None = None

    @classmethod
    def of(cls, path: Path, cube: str | os.PathLike[str] | None = None) -> "FinishedRun":
        """Return the run of a stem, of one of its outputs, or of the cube beside them; `OutputError` without one."""
        stem = stem_of_outputs(path)
        named = MAP_OF.get(path.name.removeprefix(stem.name))
        return cls(stem, record_of(stem, path), None if cube is None else located(cube), named)

    @classmethod
    def of_source(cls, path: Path, cube: str | os.PathLike[str] | None = None) -> "FinishedRun | None":
        """Return a path's run, or None for a file without a finished run; raise if there is neither file nor run."""
        stem = stem_of_outputs(path)
        if not exists(path) and not has_run(stem):
            raise CubeError(f"{why_no_run(path)}; nor is there such a file")
        unfinished = not os.path.lexists(stem.with_name(stem.name + RECORD))
        return None if unfinished and (path.exists() or not has_run(stem)) else cls.of(path, cube)

    @property
    def time(self) -> str | None:
        """When the scene was taken: as its header has it, else the date in its name."""
        known = (self.report.get("acquisition") or {}).get("acquisition time")
        return date_in(self.stem.name) if known is None else str(known)

    def believing(self) -> AbstractContextManager[None]:
        """Return a context in which its record is used; see `unmix.outputs.names.believing`."""
        return believing(self.stem.with_name(self.stem.name + RECORD))

    @property
    def form(self) -> OutputFormat:
        """The format of its maps."""
        return FORMATS[self.report.get("format", "envi")]

    def asked(self, kind: str | None, known: Collection[str]) -> str | None:
        """Return ``kind``, else the map whose file was named, else None; `MethodError` if ``known`` lacks that map."""
        if kind is None and self.named is not None and self.named not in known:
            some = ", ".join(name for name in known if not name.endswith(ORTHO))
            raise MethodError(f"{self.stem}_{self.named}: is no map of {some}; name one of these, or the run")
        return kind or self.named

    def has(self, name: str) -> bool:
        """Return whether the run wrote a map of this name."""
        return self.file_of(name).name in self.report.get("digests", {})

    def file_of(self, name: str) -> Path:
        """Return the path of the file that holds a map's values."""
        return self.stem.with_name(f"{self.stem.name}_{name}{self.form.endings[0]}")

    def open(self, name: str) -> Cube:
        """Open a map with its stored values decoded; `CubeError` if it cannot be read."""
        return decoded_values(self.open_stored(name))

    def open_stored(self, name: str) -> Cube:
        """Open a map as it is stored; `CubeError` where it cannot be read."""
        dataset = self.form.dataset
        return open_cube(self.file_of(name), dataset and dataset.format(name))

    def bands(self) -> Bands:
        """Return the bands that the run used, with their gains and offsets."""
        index = np.array(self.report["bands_used"]) - 1
        # Copied: code for arrays that cannot be written to would be compiled once more.
        scale = (np.broadcast_to(np.asarray(self.report[key], float), len(index)).copy() for key in ("gain", "offset"))
        return Bands(index, *scale)

    # A record may be a stranger's: who wrote it would learn who reads it from the server that it names, or have a
    # request signed.
    def input(self) -> Path:
        """Return the scene's path: the user's, else the recorded one, else beside the outputs; else `CubeError`."""
        if self.cube is not None:
            return self.cube
        path, name = (str(self.report["input"][key]) for key in ("path", "name"))
        # A server that only the record names is not asked.
        is_elsewhere = leads_elsewhere(path)
        for place in ([] if is_elsewhere else [Path(path)]) + [self.stem.with_name(name)] * (not leads_elsewhere(name)):
            if os.path.exists(dated(place)[0]):
                return place
        lacks = (
            f"{where(path)}, which is not asked because of a record" if is_elsewhere else "the run's input is not there"
        )
        raise CubeError(f"{path}: {lacks}; name it with `cube`")

    def reading(self, cube: Path) -> ReadOptions:
        """Return how the run read its scene, now at ``cube``; `CubeError` if that names files on other servers."""
        reading = ReadOptions(**self.report["reading"])
        if reading.masks:  # else a preset would be looked for
            reading = reading.for_scene(cube)
        for name in (reading.wavelengths, *(mask for mask, _ in reading.masks)):
            refuse_server(name, cube)
        return reading

    def beside(self, option: str, cube: Path) -> str:
        """Return the name of the cube of ``option`` for the scene at ``cube``; `CubeError` if another server has it."""
        name = name_for(self.report["options"][option], cube)
        refuse_server(name, cube)
        return name

    def is_of(self, cube: Cube) -> bool:
        """Return whether a scene is as the run read it."""
        return bool(finite(identity_of(cube)) == self.report.get("identity"))

    def endmembers(self) -> Endmembers:
        """Return the endmembers; `LibraryError` where they cannot be read."""
        return load(self.stem.with_name(f"{self.stem.name}_endmembers.sli"))

    def band_names(self, name: str, count: int) -> list[str]:
        """Return the names of the ``count`` bands of a map of abundances or of sums by class."""
        names = [str(word) for word in self.report["endmembers"]["names"]]
        if name == "fraction":
            names = [str(one["name"]) for one in self.report["classes"]]
            last = BRIGHTNESS if normalize_of(self.report) == "none" else SCALE
            names += [SHADE] * (count == len(names) + 2) + [last]
        return names if len(names) == count else [f"band {b + 1}" for b in range(count)]

    def faults(self) -> list[str]:
        """Return a line for each file that is missing or has another size than the run wrote."""
        sizes = self.report.get("sizes") or {}
        found = sizes_in_folder(self.stem.parent, map(str, sizes))
        wrong = [name for name, size in sizes.items() if found.get(str(name)) != size]
        return [f"{name}: is missing, or has another size than the run wrote" for name in wrong]


def refuse_server(name: str | None, cube: Path) -> None:
    """Raise `CubeError` where a record names a file on a server, unless that serves the scene that the user names."""
    if name is None or not leads_elsewhere(name):
        return
    path, cube = located(name), file_of_spec(cube)
    if not isinstance(path, RemotePath) or not isinstance(cube, RemotePath) or path.parts[:2] != cube.parts[:2]:
        raise CubeError(
            f"{path}: {where(path)}, which is not asked because of a record, but only where `cube` names it"
        )


def where(path: str | Path) -> str:
    """Return where a file lies, or may lead to."""
    return "is on a server" if is_remote(path) else "may name a file on a server"


@dataclass(frozen=True)
class State:
    """How far the run of a scene is.

    Attributes
    ----------
    stem : Path
        The beginning of its outputs' names.
    name : {"done", "open pixels", "running", "interrupted", "damaged"}
        "open pixels" is a finished run some of whose pixels are not certified.
    detail : str
        Where it is running, the lines that are done, or what is damaged.
    report : dict
        The content of ``STEM_run.json``; empty where there is none.
    """

    stem: Path
    name: str
    detail: str
    report: dict[str, Any]

    @property
    def fit(self) -> str:
        """Return how well a finished run's model fits, in words; empty if it is unfinished or the record lacks it."""
        fit = (self.report.get("fit") or {}).get("relative_rmse") or {}
        warnings, parts = len(self.report.get("warnings") or []), []
        if fit.get("median") is not None and fit.get("percentile_95") is not None:
            median, high = (f"{100 * float(fit[name]):.3g} %" for name in ("median", "percentile_95"))
            parts.append(f"relative RMSE {median}, of one pixel in twenty above {high}")
        parts += [f"{warnings} warning{'s' * (warnings != 1)}"] if warnings else []
        return "; ".join(parts)


def runs_below(folder: Path) -> list[Path]:
    """Return the sorted stems of all runs below a folder, finished or not; links to folders are not followed."""
    stems = set()
    for place, _, names in os.walk(folder):
        for name in names:
            for ending in SIGNS:
                if name.endswith(ending) and name != ending:
                    stems.add(Path(place) / name.removesuffix(ending))
    return sorted(stems)


def is_folder_of_runs(path: Path) -> bool:
    """Return whether a path names a folder, and not a run of the same name beside it."""
    return path.is_dir() and not (path.name and path.with_name(path.name + RECORD).exists())


def has_run(stem: Path) -> bool:
    """Return whether a run has left or begun anything of that name."""
    return any(os.path.lexists(stem.with_name(stem.name + ending)) for ending in SIGNS)


def state_of_run(stem: Path) -> State:
    """Return the state of the run with these outputs."""
    lock, journal, record = (stem.with_name(stem.name + ending) for ending in (LOCK, JOURNAL, RECORD))
    holder = holder_of(lock)
    if holder is not None or journal.exists() or (not record.exists() and lock.exists()):
        try:
            if journal.exists() and not journal.is_file():  # reading a pipe would wait for ever
                raise ValueError("is no file")
            lines = lines_done(journal)
        except (*UNFIT, OutputError) as error:
            return State(stem, "damaged", f"{journal.name}: {error}", {})
        return State(stem, "interrupted" if holder is None else "running", ", ".join(filter(None, (holder, lines))), {})
    try:
        report = record_of(stem)
        faults = FinishedRun(stem, report).faults()
        if faults:
            return State(stem, "damaged", faults[0], report)
        pixels = report["pixels"]
        left = pixels["solved"] - pixels.get("certified", pixels["solved"])
    except KeyError as error:
        return State(stem, "damaged", f"{stem.name}{RECORD}: has no {error}", {})
    except (OutputError, TypeError, AttributeError, ValueError) as error:
        return State(stem, "damaged", str(error).removeprefix(f"{stem}{RECORD}: is damaged: "), {})
    return State(stem, "open pixels", f"{left} are not certified", report) if left else State(stem, "done", "", report)


def holder_of(lock: Path) -> str | None:
    """Return host and process that hold a lock; None where none does."""
    try:
        if abs(time.time() - lock.stat().st_mtime) > STALE:
            return None
        holder = json.loads(read_plain(lock))
        host, process = str(holder["host"]), int(holder["pid"])
        if process < 1:
            return None
        if host == socket.gethostname():
            os.kill(process, 0)  # which only asks whether there is such a process
    except PermissionError:  # there is, of another user
        pass
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
    return f"process {process} on {host}"


def lines_done(journal: Path) -> str:
    """Return how many lines a journal says are done, for people."""
    state = read_resume_state(journal)
    if state is None or state.about is None:
        return "no line is done"
    if state.finishing is not None:
        return "all lines are done; the files get their names"
    lines = max(int(shape[0]) for shape in state.about["rasters"].values())
    return f"{state.lines} of {lines} lines are done"


def repeat_warnings(reports: Iterable[dict[str, Any]]) -> None:
    """Log what records of finished runs warn of, each kind once: it is true of all that is made of their maps."""
    said = dict.fromkeys(printable(str(one)) for report in reports for one in report.get("warnings") or ())
    kinds: dict[str, list[str]] = {}
    for one in said:  # alike but for the scene before them and numbers in them
        kinds.setdefault(re.sub(r"^[^:]*: |[\d.,]+", "", one), []).append(one)
    for first, *others in [*kinds.values()][:MOST_REPEATED]:
        log.warning(f"{first} (and {len(others)} like it)" if others else first)
    if len(kinds) > MOST_REPEATED:
        log.warning(f"{len(kinds) - MOST_REPEATED} more kinds of warnings are in the records of these runs")


def without_run(scenes: Sequence[str], reports: Iterable[dict[str, Any]], since: float = 0.0) -> list[str]:
    """Return the scenes that no record is of; a header and its data are one scene, each date of a file is another."""
    # ``since``: s since 1970; of a scene that failed then, an older run is no news.
    begin = datetime.datetime.fromtimestamp(int(since), datetime.UTC).isoformat(timespec="seconds")

    def whole_name(scene: str) -> str:
        file, _, date = scene.rpartition("#") if "#" in scene and not os.path.lexists(scene) else (scene, "", "")
        return f"{os.path.splitext(os.path.realpath(file))[0]}#{date}"

    done = {
        whole_name((report.get("input") or {}).get("path", ""))
        for report in reports
        if str(report.get("ended", begin)) >= begin
    }
    return [scene for scene in scenes if whole_name(scene) not in done]


def finished_runs(path: Path) -> list[Path]:
    """Return the stem of a run, or those of all finished runs below a folder; `OutputError` where it holds none."""
    if not is_folder_of_runs(path):
        return [path]
    stems = runs_below(path)
    done = [stem for stem in stems if stem.with_name(stem.name + RECORD).exists()]
    for stem in stems:
        if stem not in done:
            log.warning(f"{stem}: is not finished, and left out")
    if not done:
        raise OutputError(f"{path}: holds no finished run, whose record ends in {RECORD}")
    return done
