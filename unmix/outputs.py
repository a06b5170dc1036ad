"""Outputs that are whole or not there: `.part` names until all is written and flushed, then every name at once."""

import contextlib
import fcntl
import json
import logging
import os
import shutil
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from .errors import OutputError
from .io.export import FORMATS, OutputFormat
from .io.header import format_header
from .io.read import brief
from .io.write import write_all
from .library import Endmembers
from .whole import digest_of, file_digest, finite, flush, signals_held

log = logging.getLogger("unmix")

MAPS = ("abundance", "rmse", "residual", "certificate", "index")
ORTHO = "_ortho"  # behind the name of a map that was placed
SUFFIXES = (
    *(f"_{name}{which}{ending}" for name in MAPS for which in ("", ORTHO) for one in FORMATS.values() for ending in one.endings),
    "_endmembers.sli", "_endmembers.hdr", "_endmembers.csv", "_run.json",
)  # fmt: skip


class Raster:
    """One float32 BIL image under way; lines may come in any order, each once.

    Every line has a CRC-32, and the digest of the image is the SHA-256 of these: it does not depend on the blocks, can
    be made by many threads, and costs less than the writing.
    """

    def __init__(self, path: Path, lines: int, samples: int, bands: int) -> None:
        self.path, self.lines, self.samples, self.bands = path, lines, samples, bands
        self.checks = np.zeros(lines, np.uint32)
        self.file = open(path, "wb", buffering=0)  # noqa: SIM115 - lives as long as the run

    def write(self, lines: slice, values: np.ndarray, checks: np.ndarray | None = None) -> None:
        """Write a block, float32 (n, bands, samples); any number of threads may. ``checks`` are its lines' CRC-32, if known."""
        values = np.ascontiguousarray(values, np.dtype("<f4"))
        block, line = values.reshape(-1).view(np.uint8), 4 * self.bands * self.samples
        if checks is None:
            rows = block.reshape(-1, line)
            checks = np.array([zlib.crc32(row.data) for row in rows], np.uint32)
        self.checks[lines] = checks
        write_all(self.file.fileno(), values, lines.start * line)

    def finish(self) -> str:
        """Flush to disk and close; returns the digest."""
        os.fsync(self.file.fileno())
        self.file.close()
        return digest_of(self.checks)


def save_library(endmembers: Endmembers, folder: Path, stem: str, overwrite: bool) -> list[Path]:
    """Write ``STEM_endmembers.csv``, ``.sli`` and ``.hdr``, all or none; returns the paths.

    Raises
    ------
    OutputError
        Where one exists and may not be replaced, belongs to a finished run, or cannot be written.
    """
    outputs = Outputs(folder, stem)
    names = ("_endmembers.csv", "_endmembers.sli", "_endmembers.hdr")
    finals = [outputs.final(name) for name in names]
    try:
        if outputs.final("_run.json").exists():
            raise OutputError(f"{finals[0]}: belongs to a finished run, which it would falsify; choose another -o")
        for final in finals:
            if final.exists() and not overwrite:
                raise OutputError(f"{final}: exists already; use --overwrite or -o")
        parts = [outputs.part(name) for name in names]
        endmembers.write(*parts)
        with signals_held():
            for part, final in zip(parts, finals):
                os.replace(part, final)
    except OSError as error:
        raise OutputError(f"{error.filename or folder}: writing failed: {error.strerror}") from None
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

    Raises
    ------
    OutputError
        Where the folder cannot be written, or another run holds the scene.
    """

    def __init__(self, folder: Path, stem: str, form: OutputFormat = FORMATS["envi"]) -> None:
        self.folder, self.stem, self.form = folder, stem, form
        self.rasters: dict[str, Raster] = {}
        self.parts: list[Path] = []
        self.made = not folder.exists()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.lock = self.hold(self.part("_run.json"))
        except BlockingIOError:
            raise OutputError(f"{self.final('_run.json')}: another run holds this scene; wait for it") from None
        except OSError as error:
            raise OutputError(f"{folder}: cannot write here: {error.strerror}; choose another place with -o") from None

    @staticmethod
    def hold(path: Path) -> IO[str]:
        """Open and lock a file; `BlockingIOError` where another process has it."""
        while True:
            file = open(path, "a")  # noqa: SIM115 - held until the names are taken
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                    return file
            except FileNotFoundError:
                pass
            except OSError:
                file.close()
                raise
            file.close()  # its holder took the name away between our opening and our locking

    def __enter__(self) -> "Outputs":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Whatever was not finished is taken away; what the system says of it becomes an `OutputError`."""
        self.abandon()
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
        """Finished outputs that are there already."""
        return [self.final(suffix) for suffix in SUFFIXES if self.final(suffix).exists()]

    def are_there(self, overwrite: bool, skip: bool) -> bool:
        """Whether a finished run is to be left alone; `OutputError` where outputs exist and nobody said what to do."""
        existing = self.existing()
        if existing and skip and self.final("_run.json") in existing:
            return True
        if existing and not overwrite:
            raise OutputError(f"{existing[0]}: exists already; use --overwrite, --skip-existing or -o")
        return False

    def check_space(self, wanted: int) -> None:
        """Raise `OutputError` where the disk has less room than ``wanted`` bytes."""
        free = shutil.disk_usage(self.folder).free
        if free < wanted:
            raise OutputError(f"{self.folder}: {wanted} bytes of output, but {free} are free; make room or use -o")

    def raster(self, name: str, lines: int, samples: int, bands: int) -> Raster:
        """Begin ``STEM_name.img``."""
        self.rasters[name] = Raster(self.part(f"_{name}.img"), lines, samples, bands)
        return self.rasters[name]

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
        self.part(f"_{name}.hdr").write_text(format_header(own | dict(fields)), encoding="utf-8")

    def finish(self, report: dict[str, Any]) -> None:
        """Flush everything, add digests to ``report``, and let the `.part` names fall, `run.json` last."""
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
        last = self.part("_run.json")
        last.write_text(json.dumps(finite(report), indent=1) + "\n", encoding="utf-8")
        flush(last)
        with signals_held():
            self.final("_run.json").unlink(missing_ok=True)  # from here on an older run is not finished any more
            for old in self.existing():
                if self.folder / (old.name + ".part") not in self.parts:
                    old.unlink()  # of an earlier run with more outputs: it would not belong to this one
            for path in sorted(self.parts, key=lambda path: path == last):
                os.replace(path, path.with_name(path.name[: -len(".part")]))
            self.parts = []
        flush(self.folder)
        self.lock.close()

    def convert(self, name: str) -> str:
        """Make a finished map what its format wants in place of the work file; returns its digest."""
        assert self.form.convert is not None
        image, header, out = (self.part(f"_{name}{ending}") for ending in (".img", ".hdr", self.form.endings[0]))
        try:
            self.form.convert(image, header, out, name)
        except (OSError, OutputError):
            raise
        except Exception as error:  # of the library that writes it
            raise OutputError(f"{out}: cannot be written: {brief(error)}") from None
        for path in (image, header):
            path.unlink()
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
            self.lock.close()
            if self.made:
                with contextlib.suppress(OSError):
                    self.folder.rmdir()
