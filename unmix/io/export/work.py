"""Read the work file of a map, in pieces, and compare them with what a conversion wrote."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from ...errors import OutputError, brief
from ..fields import DTYPES
from ..formats.header import parse, words
from ..opening import mapped, open_plain, read_small

# Side of the tiles in which maps are written.
TILE = 256
# Fields of a header that have a word for each band.
LISTED = ("band names", "wavelength", "fwhm", "bbl", "data gain values", "data offset values")


@contextlib.contextmanager
def errors_of(out: Path) -> Iterator[None]:
    """Turn what a library that writes ``out`` raises into `OutputError`, but let an `OSError` pass."""
    try:
        yield
    except (OSError, OutputError):
        raise
    except Exception as error:
        raise OutputError(f"{out}: writing failed: {brief(error)}; is the disk full?") from None


@dataclass(frozen=True)
class WorkMap:
    """A complete map in raw BIL, to be converted: its values come from the open file, even if its path is replaced.

    Attributes
    ----------
    name : str
        One of `unmix.settings.maps`.
    values : memory map (lines, bands, samples)
    text : str
        The header.
    fields : dict of str
        The fields of the header.
    header : Path
        The path of the header, for messages.
    """

    name: str
    file: IO[bytes]
    values: np.ndarray
    text: str
    fields: dict[str, str]
    header: Path

    @classmethod
    def of(cls, name: str, file: IO[bytes], text: str, header: Path) -> "WorkMap":
        """Return a map whose type and shape its header gives."""
        fields = parse(text, header)
        shape = tuple(int(fields[key]) for key in ("lines", "bands", "samples"))
        kind = DTYPES[int(fields["data type"])].newbyteorder("<")
        return cls(name, file, mapped(file, kind, shape), text, fields, header)


@contextlib.contextmanager
def work_map(name: str, image: Path, header: Path) -> Iterator[WorkMap]:
    """Open a work file and read its header."""
    with open_plain(image) as file:
        yield WorkMap.of(name, file, read_small(header).decode(errors="surrogateescape"), header)


def pieces_of(values: np.ndarray) -> Iterator[tuple[int, slice, np.ndarray]]:
    """Yield values (lines, bands, samples) in pieces of `TILE` lines of a band: the band, the lines and the piece."""
    lines, bands, _ = values.shape
    for line in range(0, lines, TILE):
        rows = slice(line, min(line + TILE, lines))
        for b in range(bands):
            yield b, rows, values[rows, b]


def check_read_back(path: Path, values: np.ndarray, read: Callable[[int, slice], np.ndarray]) -> None:
    """Raise `OutputError` where a converted map differs from its work file; ``read`` takes a band and its lines."""
    for b, rows, piece in pieces_of(values):
        if not np.array_equal(read(b, rows), piece, equal_nan=True):
            raise OutputError(f"{path}: what was read back is not what was written; is the disk sound, and not full?")


def tags_of_bands(fields: dict[str, str], bands: int) -> list[dict[str, str]]:
    """Return for each band its name, and its wavelength, FWHM and good-band flag where the header has them."""
    tags = [{"name": name} for name in words(fields, "band names") or [""] * bands]
    for key in ("wavelength", "fwhm", "bbl"):
        for tag, word in zip(tags, words(fields, key) or []):
            tag[key] = word
            if key == "wavelength":
                tag["wavelength_units"] = fields.get("wavelength units", "")
    return tags
