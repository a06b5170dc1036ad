"""Types of maps' stored values, float32 or integers with a step and an offset, and images written line by line."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..errors import StepError
from ..io import NODATA, Cube, by_pixel, mapped, open_new, open_there, place_for, read_lines, write_all
from ..options import Options
from ..outputs.digests import digest_of, line_checks
from ..outputs.sealed import Sealed, sealed_by
from ..problem import Problem
from ..settings.maps import map_named
from ..steps import BLANK, MOST_STEPS, to_integers

FLOAT32, UINT16 = np.dtype("<f4"), np.dtype("<u2")


@dataclass(frozen=True)
class MapType:
    """How the values of a map are stored.

    Attributes
    ----------
    dtype : dtype
    blank : float
        Stored value of no data.
    step, offset : float
        A value is ``offset + step · stored``; a step of 0 means that values are stored as they are.
    """

    dtype: np.dtype[Any] = FLOAT32
    blank: float = NODATA
    step: float = 0.0
    offset: float = 0.0

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest value that can be stored."""
        return self.offset, self.offset + self.step * MOST_STEPS

    def decode(self, stored: np.ndarray) -> np.ndarray:
        """Return the values of stored integers; see `values_of_steps`."""
        return values_of_steps(stored, self.step, self.offset, self.blank)

    def header(self, bands: int) -> dict[str, str | list[str]]:
        """Return the fields of a header that say how its map is stored."""
        scaling: dict[str, str | list[str]] = {}
        if self.step:
            scaling = {"data gain values": [repr(self.step)] * bands, "data offset values": [repr(self.offset)] * bands}
        return {"data ignore value": f"{self.blank:g}", **scaling}


def values_of_steps(stored: np.ndarray, gain: Any, offset: Any, blank: float | None) -> np.ndarray:
    """Return ``offset + gain · stored`` as float32, `NODATA` where ``blank``; gain, offset: numbers, or (bands,)."""
    values = (stored * gain + offset).astype(np.float32)
    if blank is not None:
        values[stored == blank] = NODATA
    return values


def type_of(name: str, quantize: float | None = None, signed: bool = False) -> MapType:
    """Return how a map is stored, by its name, the run's step if any, and the sign that abundances may have."""
    what = map_named(name)
    if what.is_of_classes:
        return MapType(np.dtype("u1"), 0)
    if quantize is None or not what.can_be_quantized:
        return MapType()
    lowest = -quantize * (MOST_STEPS // 2) if signed or what.may_be_negative else 0.0
    return MapType(UINT16, BLANK, quantize, lowest)


def map_type(name: str, options: Options, problem: Problem) -> MapType:
    """Return how a run stores a map."""
    signed = not options.method_spec.constraint.has_bounds
    step = options.quantize
    # The step is for reflectance from 0 to 1, and residuals are in the scene's unit: a power of ten brings the largest
    # value of the endmembers to above 0.2 and at most 2.
    if step is not None and map_named(name).has_unit:
        largest = float(np.abs(problem.plain[1].matrix).max())
        step = float(f"{step * 10.0 ** math.ceil(math.log10(largest / 2.0)):.12g}") if largest > 0.0 else step
    return type_of(name, step, signed)


def blank_of(name: str) -> float:
    """Return the nodata value of a map as it is read."""
    return type_of(name).blank


class Values:
    """The values of a map that is being written, (lines, bands, samples), decoded when indexed."""

    def __init__(self, stored: np.ndarray, map_type: MapType) -> None:
        self.stored, self.map_type, self.shape = stored, map_type, stored.shape

    def __getitem__(self, part: Any) -> np.ndarray:
        return self.map_type.decode(self.stored[part]) if self.map_type.step else self.stored[part]


class Decoded:
    """A map with the float32 values that its header's gains and offsets make: a cube, like the file in all else."""

    def __init__(self, cube: Cube) -> None:
        self.cube = cube
        self.dtype, self.nodata, self.gain, self.offset = np.dtype(np.float32), NODATA, None, None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cube, name)

    def read(self, lines: slice, out: np.ndarray) -> np.ndarray:
        """Read whole lines; see `unmix.io.cube.Cube.read`."""
        cube, filled = self.cube, place_for(self, lines, out)  # type: ignore[arg-type]
        stored = by_pixel(read_lines(cube, lines), cube.interleave)
        gain, offset = 1.0 if cube.gain is None else cube.gain, 0.0 if cube.offset is None else cube.offset
        by_pixel(filled, cube.interleave)[...] = values_of_steps(stored, gain, offset, cube.nodata)
        return filled


def decoded_values(cube: Cube) -> Cube:
    """Return a map as it is, or where its header has gains and offsets, with the values that they make."""
    return cube if cube.gain is None and cube.offset is None else Decoded(cube)  # type: ignore[return-value]


AS_IT_IS = MapType()


def encoded(values: np.ndarray, map_type: MapType, name: Callable[[], str]) -> np.ndarray:
    """Return values as a map stores them; `StepError`, which begins with ``name()``, where a value does not fit."""
    if not map_type.step:
        return np.ascontiguousarray(values, map_type.dtype)
    values = np.ascontiguousarray(values)
    stored = np.empty(values.shape, map_type.dtype)
    flat = values.reshape(-1)
    misfit = to_integers(flat, stored.reshape(-1), map_type.step, map_type.offset)
    if misfit >= 0:
        low, high = map_type.ends
        raise StepError(
            f"{name()}: {flat[misfit]:.6g} does not fit steps of {map_type.step:g}, which hold {low:.6g} to "
            f"{high:.6g}; use a larger "
            "`quantize`, or none"
        )
    return stored


class Raster:
    """A BIL image that is being written; lines may come in any order, each once.

    Every line has a CRC-32, and the digest of the image is the SHA-256 of these: it does not depend on the blocks, can
    be computed by many threads, and takes less time than the writing. ``file`` is an image whose lines were
    checked: writing continues in it, whichever file has its name.
    """

    def __init__(
        self,
        path: Path,
        lines: int,
        samples: int,
        bands: int,
        checks: np.ndarray | None = None,
        map_type: MapType = AS_IT_IS,
        file: IO[bytes] | None = None,
    ) -> None:
        self.path, self.lines, self.samples, self.bands, self.map_type = path, lines, samples, bands, map_type
        self.checks = np.zeros(lines, np.uint32)
        if checks is not None:  # CRCs of the lines that an earlier run wrote
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
        """Write a block (n, bands, samples) from any thread; ``checks`` (n,) are CRC-32 of its lines as float32."""
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
        """Flush to disk and return the open file's seal; `OutputError` if its name leads to another file by now."""
        os.fsync(self.file.fileno())
        sealed = sealed_by(self.file, digest_of(self.checks))
        sealed.check(self.path)
        return sealed
