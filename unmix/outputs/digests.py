"""Compute the digests of outputs: of files, of images by their lines, of a run's record."""

import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from .json_text import finite


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
    """Return the digest of a finished image, read line by line; that of no lines where it cannot have ``lines``."""
    size = path.stat().st_size
    if not 0 < lines <= size:
        return digest_of(np.zeros(0, np.uint32))
    checks = np.zeros(lines, np.uint32)
    line = size // lines
    with open(path, "rb") as file:
        for i in range(lines):
            checks[i] = zlib.crc32(file.read(line))
        if file.read(1):
            checks[-1] ^= 1
    return digest_of(checks)
