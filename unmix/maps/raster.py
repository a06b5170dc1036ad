"""Write an image, line by line."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np

from ..errors import StepError
from ..io import mapped, open_new, open_there, write_all
from ..outputs.digests import digest_of, line_checks
from ..outputs.sealed import Sealed, sealed_by
from ..steps import to_integers
from .map_type import MapType

AS_IT_IS = MapType()


def encoded(values: np.ndarray, map_type: MapType, name: Callable[[], str]) -> np.ndarray:
    """Return values, `NODATA` where there are none, as a map stores them; ``name`` says of what they are.

    Raises
    ------
    StepError
        Where a value does not fit.
    """
    if not map_type.step:
        return np.ascontiguousarray(values, map_type.dtype)
    values = np.ascontiguousarray(values)
    stored = np.empty(values.shape, map_type.dtype)
    flat = values.reshape(-1)
    misfit = to_integers(flat, stored.reshape(-1), map_type.step, map_type.offset)
    if misfit >= 0:
        low, high = map_type.ends
        raise StepError(
            f"{name()}: {flat[misfit]:.6g} does not fit steps of {map_type.step:g}, which hold {low:.6g} to {high:.6g}; use a larger "
            "`quantize`, or none"
        )
    return stored


class Raster:
    """A BIL image that is being written; lines may come in any order, each once.

    Every line has a CRC-32, and the digest of the image is the SHA-256 of these: it does not depend on the blocks, can
    be computed by many threads, and takes less time than the writing. ``file`` is an image whose lines were
    checked: it is gone on with, whatever has its name.
    """

    def __init__(
        self, path: Path, lines: int, samples: int, bands: int, checks: np.ndarray | None = None,
        map_type: MapType = AS_IT_IS, file: IO[bytes] | None = None,
    ) -> None:  # fmt: skip
        self.path, self.lines, self.samples, self.bands, self.map_type = path, lines, samples, bands, map_type
        self.checks = np.zeros(lines, np.uint32)
        if checks is not None:  # those of the lines that an earlier run wrote
            self.checks[: len(checks)] = checks
        # A run that lost the lock may still write to an old file of that name, so a new image gets a new file.
        reopened = open_there(path, "r+b", buffering=0) if file is None and checks is not None else file
        self.file = open_new(path, buffering=0) if reopened is None else reopened

    @property
    def line_bytes(self) -> int:
        """Bytes of a line."""
        return self.map_type.dtype.itemsize * self.bands * self.samples

    def stored(self) -> np.ndarray:
        """Return the stored values as a memory map (lines, bands, samples)."""
        return mapped(self.file, self.map_type.dtype, (self.lines, self.bands, self.samples))

    def write(self, lines: slice, values: np.ndarray, checks: np.ndarray | None = None) -> None:
        """Write a block (n, bands, samples) from any thread. ``checks`` (n,) uint32 are its lines' CRC-32 as float32, if known.

        Raises
        ------
        StepError
            Where a value does not fit the type of the map.
        """
        stored = encoded(
            values, self.map_type, lambda: f"{self.path.name.removesuffix('.part')}: lines from {lines.start}"
        )
        self.write_stored(lines, stored, None if self.map_type.step else checks)

    def write_stored(self, lines: slice, values: np.ndarray, checks: np.ndarray | None = None) -> None:
        """Write a block as it is stored; see `write`."""
        values = np.ascontiguousarray(values, self.map_type.dtype)
        block, line = values.reshape(-1).view(np.uint8), self.line_bytes
        if checks is None:
            checks = line_checks(block.reshape(-1, line))
        write_all(self.file.fileno(), values, lines.start * line)
        self.checks[lines] = checks

    def finish(self) -> Sealed:
        """Flush to disk and return how the file is known; it stays open. `OutputError` where its name leads to another file by now."""
        os.fsync(self.file.fileno())
        sealed = sealed_by(self.file, digest_of(self.checks))
        sealed.check(self.path)
        return sealed
