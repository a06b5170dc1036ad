"""Write the outputs of a run all or none: as `.part` files until all are written and flushed, then renamed."""

import contextlib
import logging
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import OutputError, StepError, brief
from ...io import Watch, close_late, code_of, write_new
from ...io.export import FORMATS, OutputFormat, WorkMap, errors_of
from ...io.formats.header import image_header
from ...maps.raster import MapType, Raster, Values, type_of
from ...outputs import (
    BROWSE,
    LOCK,
    PART,
    RECORD,
    UNFIT,
    Identity,
    believing,
    discard,
    finite,
    flush,
    give_name,
    identity_of_status,
    listed,
    parts_of,
    readable,
    record_digest,
    replaceable,
    signals_held,
    tidy,
    workplace,
)
from ...outputs.lock import Lock
from ...outputs.sealed import Sealed, seal
from ...settings.maps import ORTHO
from ...summary import Summary
from .completed import journal_of
from .journal import Journal, ResumeState, read_resume_state

log = logging.getLogger("unmix")
BEGIN_ANEW = "; begin anew with `overwrite`"  # the advice where a journal does not fit the run


class Outputs:
    """The output files of one scene.

    Parameters
    ----------
    folder : Path
        Where they are written; created if it is missing.
    stem : str
        The scene's name.
    form : OutputFormat
        The format that finished maps are converted to.
    suffixes : sequence of str
        The suffixes of the outputs to write (`unmix.outputs.names.suffixes_of`). If such files exist they are refused
        or replaced; of other files, only those are removed that the replaced run lists as its own.
    watch : Watch, optional
        Watches the scene: if its files change, no output gets its final name.

    Raises
    ------
    OutputError
        If the folder cannot be written, or another run holds the scene's lock.
    """

    def __init__(
        self,
        folder: Path,
        stem: str,
        form: OutputFormat = FORMATS["envi"],
        suffixes: Sequence[str] = (),
        watch: Watch | None = None,
    ) -> None:
        form.refuse_name(folder, stem)
        self.folder, self.stem, self.form, self.suffixes, self.watch = folder, stem, form, suffixes, watch
        self.old: dict[Path, Identity] = {}  # outputs that were there at the beginning and may be replaced
        self.rasters: dict[str, Raster] = {}
        self.parts: list[Path] = []
        self.folder_is_new = not folder.exists()
        self.journal = Journal(journal_of(folder, stem))
        self.resume: ResumeState | None = None
        self.latest: tuple[int, dict[str, Any]] = (0, {})
        self.begins_anew = (
            False  # whether a later run cannot go on from the lines of this one, whose pixels are searched together
        )
        self.naming = self.finished = False  # whether outputs are being renamed, and whether all of them are
        self.converted: list[Path] = []  # work files of maps that another file has replaced
        self.headers: dict[str, str] = {}  # of the rasters
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.lock = Lock(folder / (stem + LOCK))
            tidy(folder.absolute())
        except OSError as error:
            where = error.filename if isinstance(error, IsADirectoryError) else folder
            raise OutputError(
                f"{where}: cannot write here: {error.strerror}; choose another place with `out_dir`"
            ) from None

    def __enter__(self) -> "Outputs":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Remove unfinished files, or keep them if a later run can resume; turn an `OSError` into an `OutputError`."""
        if self.lock.ours:
            can_resume = not isinstance(error, StepError) and self.prepare_resume()
            self.keep_for_resume() if can_resume else self.abandon()
        else:
            self.close_rasters()  # and remove none: another run holds the lock, and they may be its own
            self.journal.close()
            self.lock.release()
        if isinstance(error, OSError):
            reason = error.strerror or brief(error)
            raise OutputError(f"{error.filename or self.folder}: writing failed: {reason}") from None

    def final(self, suffix: str) -> Path:
        """Return the final path of an output."""
        return self.folder / (self.stem + suffix)

    def part(self, suffix: str) -> Path:
        """Return the `.part` path of an output, and note that this run writes it."""
        path = self.folder / (self.stem + suffix + ".part")
        if path not in self.parts:
            self.parts.append(path)
        return path

    def existing(self) -> list[Path]:
        """Return the outputs to write that exist already, whoever wrote them."""
        return [self.final(suffix) for suffix in self.suffixes if os.path.lexists(self.final(suffix))]

    def refuse_existing(self, may_replace: bool, can_skip: bool = True) -> None:
        """Raise `OutputError` if outputs exist and are not ours, or the user does not allow replacing them."""
        allowing = f"{'`skip_existing`, ' * can_skip}`overwrite`"
        self.old = replaceable(
            [self.final(suffix) for suffix in self.suffixes], may_replace, "`out_dir`", allowing=allowing
        )

    def unfinished(self) -> list[Path]:
        """Return the `.part` files of an unfinished run: of these outputs, and of the maps that its journal lists."""
        about: dict[str, Any] = {}
        with contextlib.suppress(*UNFIT, OutputError):  # a damaged journal: only this run's outputs are known
            resume = read_resume_state(self.journal.path)
            about = (resume.about if resume is not None else None) or {}
        return self.parts_left(about.get("rasters", ()))

    def parts_left(self, maps: Iterable[str]) -> list[Path]:
        """Return the `.part` files that are there of this run's outputs and of some maps."""
        names = [self.stem + suffix + PART for suffix in parts_of(self.suffixes, maps)]
        return [self.folder / name for name in names if os.path.exists(os.path.join(self.folder, name))]

    def refuse_unfinished(self, overwrite: bool) -> None:
        """Raise `OutputError` if an unfinished run would be lost; with ``overwrite``, delete it."""
        if not self.journal.path.exists():
            return
        if not overwrite:
            raise OutputError(
                f"{self.journal.path}: an unfinished run would be lost; finish it, or use `overwrite` or `out_dir`"
            )
        left = self.unfinished()
        self.journal.remove()
        for path in left:
            discard(path)

    def check_space(self, wanted: int) -> None:
        """Raise `OutputError` if the disk has less room than ``wanted`` bytes, less those already written."""
        begun = self.unfinished() if self.resume is not None else []
        wanted -= sum(path.stat().st_blocks * 512 for path in begun if path.suffixes[-2:] == [".img", ".part"])
        free = shutil.disk_usage(self.folder).free
        if free < wanted:
            raise OutputError(
                f"{self.folder}: the outputs of {self.stem} need {wanted} bytes, 1 MiB of them to spare, but {free} "
                "are free; make "
                "room or use `out_dir`"
            )

    def raster(self, name: str, lines: int, samples: int, bands: int, map_type: MapType | None = None) -> Raster:
        """Open ``STEM_name.img`` to write, from its beginning or after the lines of the run to resume."""
        resume = self.resume
        begun = (None, None) if resume is None else (resume.checks.get(name), resume.files.get(name))
        path, kind = self.part(f"_{name}.img"), map_type or type_of(name)
        self.rasters[name] = Raster(path, lines, samples, bands, begun[0], kind, begun[1])
        return self.rasters[name]

    def begin(self, identity: dict[str, Any], about: dict[str, Any]) -> None:
        """Begin the journal, or continue the journal of a run to resume; `OutputError` where that began other maps."""
        if self.resume is not None:
            with believing(self.journal.path, BEGIN_ANEW):
                if (self.resume.about or {})["rasters"] != about["rasters"]:
                    raise ValueError("it is of other maps")
            self.journal.go_on(self.resume)
            return
        self.journal.begin(identity)
        self.journal.append({"about": about})
        self.begins_anew = bool(about["spatial"])

    def summary(self, endmembers: int, bands: int) -> Summary:
        """Return the summary of the lines that the run to resume has done, or an empty one; `OutputError` if unfit."""
        resume, summary = self.resume, Summary()
        if resume is not None and resume.summary is not None:
            with believing(self.journal.path, BEGIN_ANEW):
                summary = Summary.from_dict(resume.summary)
                summary.refuse_other(endmembers, bands)
        self.latest = (0 if resume is None else resume.lines, summary.to_dict())
        return summary

    def done(self, lines: slice, summary: dict[str, Any]) -> None:
        """Note that ``lines`` and all before are written, with totals ``summary``; write to the journal when due."""
        self.lock.check()
        if self.watch is not None:
            self.watch.check()  # so that all recorded lines were read before anything changed
        self.latest = (lines.stop, summary)
        line_bytes = sum(raster.line_bytes for raster in self.recorded().values())
        if self.journal.file is not None and self.journal.is_due((lines.stop - lines.start) * line_bytes):
            self.record()

    def record(self) -> None:
        """Record in the journal what is done."""
        self.journal.record(*self.latest, self.recorded())

    def recorded(self) -> dict[str, Raster]:
        """Return the rasters that the journal covers: all but the orthorectified ones, which are made from them."""
        return {name: raster for name, raster in self.rasters.items() if not name.endswith(ORTHO)}

    def prepare_resume(self) -> bool:
        """Record finished lines in the journal if possible; return whether a later run can resume from it."""
        if not self.naming and self.watch is not None and self.watch.is_hidden():
            # A resumed run would mix two scenes without noticing.
            log.info(f"{self.final('')}: the finished lines are not kept, since the input changed")
            self.journal.remove()
            return False
        if self.naming or (self.resume is not None and self.journal.file is None and self.journal.path.exists()):
            return not self.finished
        if self.journal.file is None or self.begins_anew:
            return False
        self.record_all()
        return self.journal.lines > 0

    def record_all(self) -> None:
        """Record finished lines that the journal does not have yet, if possible."""
        if self.journal.file is None or any(raster.file.closed for raster in self.rasters.values()):
            return
        with signals_held(), contextlib.suppress(OSError):
            if self.latest[0] > self.journal.lines:
                self.record()

    def close_rasters(self, removed: Iterable[Path] = ()) -> None:
        """Close the rasters, and remove files."""
        for raster in self.rasters.values():
            close_late(raster.file)
        if self.resume is not None:
            self.resume.close()
        for path in removed:
            with contextlib.suppress(OSError):
                discard(path)
        self.parts = []

    def keep_for_resume(self) -> None:
        """Close all files, release the lock, and keep only the `.part` files that a resumed run needs."""
        with signals_held():
            kept = set(self.parts) if self.naming else {raster.path for raster in self.recorded().values()}
            self.close_rasters({*self.parts, *(() if self.naming else self.converted)} - kept)
            self.journal.close()
            self.lock.release()
        log.info(
            f"{self.final('')}: {self.journal.lines} lines are done and kept; the same command continues after them"
        )

    def write_header(self, name: str, fields: Mapping[str, str | int | Sequence[str]]) -> None:
        """Write ``STEM_name.hdr``, beside a raster of that name."""
        raster = self.rasters[name]
        code = code_of(raster.map_type.dtype)
        text = image_header(raster.lines, raster.samples, raster.bands, code, str(fields["description"]), fields)
        self.headers[name] = text
        write_new(self.part(f"_{name}.hdr"), text)

    def values(self) -> dict[str, Values]:
        """Return the values that are written of each map."""
        return {name: Values(raster.stored(), raster.map_type) for name, raster in self.rasters.items()}

    def write_browse(self, image: bytes) -> None:
        """Write ``STEM_browse.png``."""
        write_new(self.part(BROWSE), image)

    def finish(self, report: dict[str, Any]) -> None:
        """Flush all files, add digests and sizes to ``report``, and rename all `.part` files, `run.json` last."""
        self.lock.check()
        if self.watch is not None:
            self.watch.check()
        self.record_all()
        sealed = {}
        for name, raster in self.rasters.items():
            of_work_file = raster.finish()
            is_converted = self.form.convert is not None
            sealed[f"{self.stem}_{name}{self.form.endings[0]}"] = self.convert(name) if is_converted else of_work_file
        for path in self.parts:
            name = path.name.removesuffix(PART)
            if name.endswith((".hdr", ".csv", ".sli", ".png")):
                sealed[name] = seal(path)
        report["digests"] = {name: one.digest for name, one in sealed.items()}
        report["sizes"] = {name: one.size for name, one in sealed.items()}
        record = self.part(RECORD)
        content = finite(report)
        report["digest"] = content["digest"] = record_digest(content)
        write_new(record, readable(content))
        sealed[self.stem + RECORD] = seal(record)
        self.lock.check()
        names = [path.name.removesuffix(PART) for path in self.parts if path != record]
        names = [*sorted(names, key=lambda name: not name.endswith(".hdr")), self.stem + RECORD]
        self.refuse_new_files(names)
        replaced = [name for name in reversed(names) if self.folder / name in self.old]  # the record first
        replaced += [name for name in listed(self.folder, self.stem) if name not in names]
        with signals_held():
            if self.journal.file is not None:
                self.journal.append({"finishing": names, "replaced": replaced})
                self.naming = True
            for path in self.converted:
                path.unlink(missing_ok=True)
            self.publish(names, replaced, sealed)

    def refuse_new_files(self, names: list[str]) -> None:
        """Raise `OutputError` if a file with one of these names was made during the run."""
        for path in (self.folder / name for name in names):
            if os.path.lexists(path) and identity_of_status(os.lstat(path)) != self.old.get(path):
                raise OutputError(f"{path}: exists by now, but did not when the run began; move it away and run again")

    def publish(self, names: list[str], replaced: list[str], sealed: Mapping[str, Sealed]) -> None:
        """Rename the `.part` files of an ended run, ``run.json`` last; `OutputError` if another file has a name."""
        parts = {name: self.folder / (name + PART) for name in names}
        # Outputs of the replaced run go first, so that none lies beside one of the new run. A name without a part
        # was given to a file of the new run by an earlier process.
        for name in replaced:
            if name not in names or os.path.lexists(parts[name]):
                discard(self.folder / name)
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name, part in parts.items():
                if os.path.lexists(part):
                    give_name(part.name, self.folder / name, folder)
                    part.unlink(missing_ok=True)
                sealed[name].check(self.folder / name)
        finally:
            with contextlib.suppress(OSError):  # the folder is flushed below
                os.close(folder)
        # Work files of converted maps, if an earlier process died before it removed them.
        for path in self.parts_left(self.rasters):
            discard(path)
        self.parts, self.finished = [], True
        try:
            flush(self.folder)
        except OSError as error:  # all files are written and renamed; some network file systems cannot flush a folder
            log.warning(
                f"{self.folder}: cannot be flushed ({error.strerror}): a power loss may undo the renaming of outputs"
            )
        self.journal.remove()
        self.lock.release()

    def convert(self, name: str) -> Sealed:
        """Convert a finished map from its open ENVI work file to the output format; return the new file's seal."""
        assert self.form.convert is not None
        image, header, out = (self.part(f"_{name}{ending}") for ending in (".img", ".hdr", self.form.endings[0]))
        work = WorkMap.of(name, self.rasters[name].file, self.headers[name], header)
        with errors_of(out), workplace(self.folder) as place:
            made = place.path / out.name.removesuffix(PART)
            self.form.convert(work, made)
            sealed = seal(made)
            discard(out)
            os.rename(made, out)
        sealed.check(out)
        for path in (image, header):  # deleted only after all maps are converted, so that the run can resume until then
            self.converted.append(path)
            self.parts.remove(path)
        return sealed

    def abandon(self) -> None:
        """Remove every `.part` file of this run, and its journal; outputs of finished runs stay."""
        with signals_held():
            self.close_rasters(self.parts)
            if self.journal.file is not None:  # else the journal belongs to another run, which may resume
                self.journal.remove()
            self.lock.release()
            if self.folder_is_new:
                with contextlib.suppress(OSError):
                    self.folder.rmdir()
