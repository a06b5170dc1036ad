"""The outputs of a run, whole or not there: `.part` names until all is written and flushed, then every name at once."""

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import OutputError
from ..io.export import FORMATS, OutputFormat
from ..io.formats.header import format_header
from ..io.identity import Watch
from ..io.opening import make_new, write_new
from ..io.read import brief
from ..library import Endmembers
from ..summary import Summary
from .atomic import file_digest, finite, flush, readable, record_digest, signals_held
from .completed import journal_of
from .journal import Journal, ResumeState, read_resume_state
from .lock import Lock
from .names import LIBRARY, LOCK, ORTHO, PART, RECORD, inputs_of, listed, of_a_run, parts_of, refuse_inputs
from .raster import Raster

log = logging.getLogger("unmix")


def save_library(
    endmembers: Endmembers, folder: Path, stem: str, overwrite: bool, watch: Watch | None = None
) -> list[Path]:
    """Write ``STEM_endmembers.csv``, ``.sli`` and ``.hdr``, all or none; returns the paths.

    ``watch`` is over the scene that they are from.

    Raises
    ------
    MethodError
        Where it would replace the scene that they are from, or its mask.
    CubeError
        Where that changed while it was read.
    OutputError
        Where one exists and may not be replaced, belongs to a finished run, or cannot be written.
    """
    if watch is not None:
        refuse_inputs(of_a_run(folder, stem, LIBRARY), inputs_of(watch.scene))
    outputs = Outputs(folder, stem)
    finals = [outputs.final(name) for name in LIBRARY]
    try:
        outputs.refuse_unfinished(False)
        if outputs.final(RECORD).exists():
            raise OutputError(
                f"{finals[0]}: belongs to a finished run, which it would falsify; choose another `out_dir`"
            )
        for final in finals:
            if final.exists() and not overwrite:
                raise OutputError(f"{final}: exists already; use `overwrite` or `out_dir`")
        parts = [outputs.part(name) for name in LIBRARY]
        endmembers.write(*parts)
        if watch is not None:
            watch.check()
        with signals_held():
            for part, final in zip(parts, finals):
                os.replace(part, final)
    except OSError as error:
        raise OutputError(f"{error.filename or folder}: writing failed: {error.strerror or brief(error)}") from None
    finally:
        outputs.abandon()
    return finals


class Outputs:
    """The output files of one scene.

    Parameters
    ----------
    folder : Path
        Where they go; made where it is missing.
    stem : str
        The scene's name.
    form : OutputFormat
        What the maps become when they are finished.
    suffixes : sequence of str
        Of the outputs that are to be written (`unmix.outputs.names.suffixes_of`): these are refused or replaced where they exist, and
        of other files only what the run that is replaced says it wrote.
    watch : Watch, optional
        Over the scene: where its files change, nothing takes a name.

    Raises
    ------
    OutputError
        Where the folder cannot be written, or another run holds the scene.
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
        self.may_replace = False
        self.rasters: dict[str, Raster] = {}
        self.parts: list[Path] = []
        self.made = not folder.exists()
        self.journal = Journal(journal_of(folder, stem))
        self.resume: ResumeState | None = None
        self.latest: tuple[int, dict[str, Any]] = (0, {})
        self.naming = self.finished = False
        self.dropped: list[Path] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.lock = Lock(folder / (stem + LOCK))
        except OSError as error:
            raise OutputError(
                f"{folder}: cannot write here: {error.strerror}; choose another place with `out_dir`"
            ) from None

    def __enter__(self) -> "Outputs":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """What was not finished is taken away, or kept to go on from; what the system says of it becomes an `OutputError`."""
        if self.lock.ours:
            self.keep() if self.worth_keeping() else self.abandon()
        else:
            self.let_go()
        if isinstance(error, OSError):
            what = error.strerror or brief(error)
            raise OutputError(f"{error.filename or self.folder}: writing failed: {what}") from None

    def final(self, suffix: str) -> Path:
        return self.folder / (self.stem + suffix)

    def part(self, suffix: str) -> Path:
        path = self.folder / (self.stem + suffix + ".part")
        if path not in self.parts:
            self.parts.append(path)
        return path

    def existing(self) -> list[Path]:
        """Outputs that are to be written and are there already, whoever wrote them."""
        return [self.final(suffix) for suffix in self.suffixes if os.path.lexists(self.final(suffix))]

    def refuse_existing(self, may_replace: bool, can_skip: bool = True) -> None:
        """`OutputError` where outputs exist that nobody said may be replaced."""
        self.may_replace = may_replace
        existing = self.existing()
        if existing and not may_replace:
            raise OutputError(
                f"{existing[0]}: exists already; use `overwrite`{', `skip_existing`' * can_skip} or `out_dir`"
            )

    def unfinished(self) -> list[Path]:
        """What an unfinished run left here, but for its journal: of the maps of this run, and of those that the journal speaks of."""
        about: dict[str, Any] = {}
        with contextlib.suppress(
            ValueError, KeyError, TypeError, AttributeError, OutputError
        ):  # damaged: then of this run alone
            resume = read_resume_state(self.journal.path)
            about = (resume.about if resume is not None else None) or {}
        names = (
            self.folder / (self.stem + suffix + PART) for suffix in parts_of(self.suffixes, about.get("rasters", ()))
        )
        return [path for path in names if path.exists()]

    def refuse_unfinished(self, overwrite: bool) -> None:
        """For what is no `run`: `OutputError` where an unfinished one would be lost; with ``overwrite`` it is thrown away."""
        if not self.journal.path.exists():
            return
        if not overwrite:
            raise OutputError(
                f"{self.journal.path}: an unfinished run would be lost; finish it, or use `overwrite` or `out_dir`"
            )
        left = self.unfinished()
        self.journal.remove()
        for path in left:
            path.unlink(missing_ok=True)

    def check_space(self, wanted: int) -> None:
        """Raise `OutputError` where the disk has less room than ``wanted`` bytes."""
        there = [path.stat().st_blocks * 512 for path in self.unfinished() if path.suffixes[-2:] == [".img", ".part"]]
        wanted -= sum(there) if self.resume is not None else 0
        free = shutil.disk_usage(self.folder).free
        if free < wanted:
            raise OutputError(
                f"{self.folder}: the outputs of {self.stem} need {wanted} bytes, 1 MiB of them to spare, but {free} are free; make "
                "room or use `out_dir`"
            )

    def raster(self, name: str, lines: int, samples: int, bands: int) -> Raster:
        """Begin ``STEM_name.img``, or go on with it."""
        checks = None if self.resume is None else self.resume.checks.get(name)
        self.rasters[name] = Raster(self.part(f"_{name}.img"), lines, samples, bands, checks)
        return self.rasters[name]

    def begin(self, identity: dict[str, Any], about: dict[str, Any]) -> None:
        """Begin the journal, or go on with it."""
        if self.resume is not None:
            self.journal.go_on(self.resume)
            return
        self.journal.begin(identity)
        self.journal.append({"about": about})

    def summary(self) -> Summary:
        """What the lines add up to that an earlier run left; of none, where there was none."""
        resume = self.resume
        found = Summary() if resume is None or resume.summary is None else Summary.from_dict(resume.summary)
        self.latest = (0 if resume is None else resume.lines, found.to_dict())
        return found

    def done(self, lines: slice, summary: dict[str, Any]) -> None:
        """These lines, and all before them, are written, and add up to ``summary``; recorded when that is due."""
        self.lock.check()
        if self.watch is not None:
            self.watch.check()  # so what is recorded was read before anything changed
        self.latest = (lines.stop, summary)
        line = sum(4 * raster.samples * raster.bands for raster in self.recorded().values())
        if self.journal.file is not None and self.journal.is_due((lines.stop - lines.start) * line):
            self.record()

    def record(self) -> None:
        """Let the journal say what is done."""
        self.journal.record(*self.latest, self.recorded())

    def recorded(self) -> dict[str, Raster]:
        """The rasters that the journal speaks of; what was placed is made from them."""
        return {name: raster for name, raster in self.rasters.items() if not name.endswith(ORTHO)}

    def worth_keeping(self) -> bool:
        """Whether something is left to go on from; what is finished but not recorded yet is recorded, if that can be."""
        if not self.naming and self.watch is not None and self.watch.is_hidden():
            # A run that went on would mix two scenes, and not know it.
            log.info(f"{self.final('')}: what was done is not kept, since the input changed")
            self.journal.remove()
            return False
        if self.naming or (self.resume is not None and self.journal.file is None and self.journal.path.exists()):
            return not self.finished
        if self.journal.file is None:
            return False
        self.record_all()
        return self.journal.lines > 0

    def record_all(self) -> None:
        """Record what is done but not recorded yet, if that can be."""
        if self.journal.file is None or any(raster.file.closed for raster in self.rasters.values()):
            return
        with signals_held(), contextlib.suppress(OSError):
            if self.latest[0] > self.journal.lines:
                self.record()

    def let_go(self) -> None:
        """Touch nothing: what stands here is another's."""
        for raster in self.rasters.values():
            raster.file.close()
        self.journal.close()
        self.lock.release()

    def keep(self) -> None:
        """Let go of everything, but leave what a journal speaks of."""
        with signals_held():
            kept = set(self.parts) if self.naming else {raster.path for raster in self.recorded().values()}
            for raster in self.rasters.values():
                raster.file.close()
            for path in self.parts:
                if path not in kept:
                    with contextlib.suppress(OSError):
                        path.unlink(missing_ok=True)
            if not self.naming:
                for path in self.dropped:
                    if path not in kept:
                        path.unlink(missing_ok=True)
            self.parts = []
            self.journal.close()
            self.lock.release()
        log.info(f"{self.final('')}: {self.journal.lines} lines are done and kept; the same command goes on from there")

    def write_header(self, name: str, fields: Mapping[str, str | int | Sequence[str]]) -> None:
        """Write ``STEM_name.hdr``, beside a raster of that name."""
        raster = self.rasters[name]
        own: dict[str, str | int | Sequence[str]] = {
            "description": fields["description"],
            "samples": raster.samples,
            "lines": raster.lines,
            "bands": raster.bands,
            "header offset": 0,
            "file type": "ENVI Standard",
            "data type": 4,
            "interleave": "bil",
            "byte order": 0,
        }
        write_new(self.part(f"_{name}.hdr"), format_header(own | dict(fields)))

    def finish(self, report: dict[str, Any]) -> None:
        """Flush everything, add digests to ``report``, and let the `.part` names fall, `run.json` last."""
        if self.watch is not None:
            self.watch.check()
        self.record_all()
        digests = {}
        for name, raster in self.rasters.items():
            digests[f"{self.stem}_{name}.img"] = raster.finish()
            if self.form.convert is not None:
                digests[f"{self.stem}_{name}{self.form.endings[0]}"] = self.convert(name)
                del digests[f"{self.stem}_{name}.img"]
        for path in self.parts:
            if path.suffixes[-2:] in ([".hdr", ".part"], [".csv", ".part"], [".sli", ".part"]):
                digests[path.name[: -len(".part")]] = file_digest(path)
                flush(path)
        report["digests"] = digests
        report["sizes"] = {name: (self.folder / f"{name}.part").stat().st_size for name in digests}
        last = self.part(RECORD)
        report["digest"] = record_digest(report)
        write_new(last, readable(finite(report)))
        flush(last)
        self.lock.check()
        names = [path.name.removesuffix(PART) for path in sorted(self.parts, key=lambda path: path == last)]
        self.refuse_newcomers(names)
        replaced = [name for name in listed(self.folder, self.stem) if name not in names]
        with signals_held():
            if self.journal.file is not None:
                self.journal.append({"finishing": names, "replaced": replaced})
                self.naming = True
            for path in self.dropped:
                path.unlink(missing_ok=True)
            self.publish(names, replaced)

    def refuse_newcomers(self, names: list[str]) -> None:
        """`OutputError` where somebody made a file of such a name while the run was under way, and nothing may be replaced."""
        for name in names:
            if not self.may_replace and os.path.lexists(self.folder / name):
                raise OutputError(
                    f"{self.folder / name}: exists by now, but did not when the run began; move it away, and run again"
                )

    def publish(self, names: list[str], replaced: list[str]) -> dict[str, Any]:
        """Let the `.part` of these files fall, ``run.json`` last; those that did before, in a run that was cut off here, have.

        ``replaced`` are the other outputs of the run that this one replaces: they would not belong to it, and go.

        Returns what ``run.json`` holds.
        """
        last = self.folder / names[-1]
        if (self.folder / (names[-1] + ".part")).exists():
            last.unlink(missing_ok=True)  # from here on an older run is not finished any more
        for name in replaced:
            (self.folder / name).unlink(missing_ok=True)
        for name in names:
            part = self.folder / (name + ".part")
            if part.exists():
                os.replace(part, self.folder / name)
        for path in self.unfinished():  # of a process that died here: what it had made its maps from
            path.unlink(missing_ok=True)
        self.parts, self.finished = [], True
        try:
            flush(self.folder)
        except OSError as error:  # all is written and named; some file systems of a network flush no folder
            log.warning(f"{self.folder}: cannot be flushed ({error.strerror}): after a power loss names may be missing")
        self.journal.remove()
        self.lock.release()
        report: dict[str, Any] = json.loads(last.read_text())
        return report

    def convert(self, name: str) -> str:
        """Make a finished map what its format wants in place of the work file; returns its digest."""
        assert self.form.convert is not None
        image, header, out = (self.part(f"_{name}{ending}") for ending in (".img", ".hdr", self.form.endings[0]))
        try:
            make_new(out)
            self.form.convert(image, header, out, name)
        except (OSError, OutputError):
            raise
        except Exception as error:  # of the library that writes it
            raise OutputError(f"{out}: cannot be written: {brief(error)}") from None
        for path in (image, header):  # until all are made there is something to go on from
            self.dropped.append(path)
            self.parts.remove(path)
        flush(out)
        return file_digest(out)

    def abandon(self) -> None:
        """Take every `.part` file away; what was finished before stays."""
        with signals_held():
            for raster in self.rasters.values():
                raster.file.close()
            for path in self.parts:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
            self.parts = []
            if self.journal.file is not None:  # or it is another's, whose run may go on
                self.journal.remove()
            self.lock.release()
            if self.made:
                with contextlib.suppress(OSError):
                    self.folder.rmdir()
