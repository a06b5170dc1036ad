"""Write files under `.part` names and rename them once they are complete and flushed; compute their digests."""

import contextlib
import hashlib
import json
import logging
import math
import os
import signal
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import MethodError, OutputError
from ..io.opening import write_new
from ..library import Endmembers
from .names import Inputs, refuse_headers_of_others, refuse_inputs, with_parts

log = logging.getLogger("unmix")


def finite(value: Any) -> Any:
    """Return ``value`` with None in place of infinities and NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def readable(value: Any, indent: str = "") -> str:
    """Return JSON text that is easy to read: an entry per line, but lists of plain values on one line."""
    inner = indent + " "
    if isinstance(value, dict) and value:
        entries = [f"{json.dumps(key)}: {readable(item, inner)}" for key, item in value.items()]
        text = "{\n" + ",\n".join(inner + entry for entry in entries) + f"\n{indent}}}"
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        text = "[\n" + ",\n".join(inner + readable(item, inner) for item in value) + f"\n{indent}]"
    else:
        text = json.dumps(value)
    return text if indent else text + "\n"


def record_digest(report: dict[str, Any]) -> str:
    """Return the SHA-256 of a run's record without the digest itself; the same before it is written and after it is read."""
    content = json.loads(json.dumps(finite({key: value for key, value in report.items() if key != "digest"})))
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def digest_of(checks: np.ndarray) -> str:
    """Return the digest of an image from the CRC-32 of its lines, (lines,) uint32."""
    return hashlib.sha256(checks.astype("<u4").tobytes()).hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def image_digest(path: Path, lines: int) -> str:
    """Return the digest of a finished image, read line by line."""
    checks = np.zeros(lines, np.uint32)
    line = path.stat().st_size // lines
    with open(path, "rb") as file:
        for i in range(lines):
            checks[i] = zlib.crc32(file.read(line))
        if file.read(1):
            checks[-1] ^= 1
    return digest_of(checks)


@contextlib.contextmanager
def named_together(finals: list[Path], overwrite: bool, where: Path, help: str) -> Iterator[list[Path]]:
    """Yield `.part` paths to write to; at the end they are flushed and renamed together, or all deleted after an error.

    Raises
    ------
    OutputError
        Where a file exists and may not be replaced (``help`` names the parameter to use), or cannot be written. Where the system
        names no file, the message names ``where``.
    """
    assert len(set(finals)) == len(finals)
    parts = [final.with_name(final.name + ".part") for final in finals]
    for final in finals:
        if final.exists() and not overwrite:
            raise OutputError(f"{final}: exists already; use {help}")
    try:
        yield parts
        for part in parts:
            flush(part)
        with signals_held():
            for part, final in zip(parts, finals):
                os.replace(part, final)
    except OSError as error:
        raise OutputError(f"{error.filename or where}: writing failed: {error.strerror or error}") from None
    finally:
        for part in parts:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


def write_library(endmembers: Endmembers, out: Path, overwrite: bool, inputs: Inputs) -> list[Path]:
    """Write a library as CSV (``out`` ends in .csv) or as an ENVI pair (.sli, .lib or .hdr), all or nothing; return the paths.

    ``inputs`` are the files that it is made from.

    Raises
    ------
    MethodError
        Where ``out`` has another ending, or an input or the header of other data would be replaced.
    OutputError
        Where a file exists and may not be replaced, or cannot be written.
    """
    endings = {".csv": (".csv",), ".sli": (".sli", ".hdr"), ".lib": (".lib", ".hdr"), ".hdr": (".sli", ".hdr")}
    if out.suffix.lower() not in endings:
        raise MethodError(f"{out}: libraries are written as .csv, .sli, .lib or .hdr; use one of these endings")
    finals = [out.with_suffix(ending) for ending in endings[out.suffix.lower()]]
    refuse_inputs(with_parts(finals), inputs)
    refuse_headers_of_others(finals)
    if endmembers.fwhm is not None and out.suffix.lower() == ".csv":
        log.warning(
            f"{out}: CSV holds no FWHM, so resampling this library will give other spectra; write .sli to keep the FWHM"
        )
    with named_together(finals, overwrite, out, "`overwrite`") as parts:
        if len(parts) == 1:
            endmembers.write(parts[0], None, None)
        else:
            endmembers.write(None, *parts)
    return finals


def write_whole(files: dict[Path, bytes], overwrite: bool) -> list[Path]:
    """Write small files of one folder, all or none, and return the paths. The caller checks that none is an input.

    Raises
    ------
    OutputError
        Where a file exists and may not be replaced, or cannot be written.
    """
    folder = next(iter(files)).parent
    with named_together(list(files), overwrite, folder, "`overwrite` or `out_dir`") as parts:
        folder.mkdir(parents=True, exist_ok=True)
        for part, content in zip(parts, files.values()):
            write_new(part, content)
    return list(files)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM, so that a few renames are done together."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def flush(path: Path) -> None:
    """Flush a file or a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
