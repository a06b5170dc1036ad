"""The file of a search of a whole scene: the arrays of its field, which are mapped, and then the key of its request and input."""

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np

from ...arrays.spatial.passes import Field
from ...errors import OutputError
from ...io.opening import mapped, open_new, open_there
from ...outputs.digests import digest_of, line_checks

FLOAT_BYTES = 8


@dataclass
class SearchFile:
    """A file that was opened once: whatever has its name later, its arrays are those of the file that was made or checked.

    Attributes
    ----------
    path : Path
    key : bytes
        A digest of request and input, which ends the file.
    shape : tuple of int
        Lines, samples, endmembers, and how many of these have edges.
    checks : array (lines,) of uint32
        CRC-32 of the abundances of each line, once the search has ended.
    """

    path: Path
    key: bytes
    shape: tuple[int, int, int, int]
    checks: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint32))

    @property
    def layout(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the arrays, one after the other."""
        return Field.layout(*self.shape)

    @property
    def size(self) -> int:
        """Bytes of all arrays."""
        return FLOAT_BYTES * sum(int(np.prod(shape)) for shape in self.layout.values())

    def make(self) -> "SearchFile":
        """Make the file, of zeros; `OSError` where the disk has no room for it."""
        self.file = open_new(self.path, buffering=0)
        os.posix_fallocate(self.file.fileno(), 0, self.size + len(self.key))
        self.file.seek(self.size)
        self.file.write(self.key)
        return self

    @cached_property
    def file(self) -> IO[Any]:
        """The file, opened where another process made it; `OutputError` where it is a link."""
        return open_there(self.path, "r+b", buffering=0)

    def is_there(self) -> bool:
        """Return whether there is a file of this shape and key; it stays open."""
        if not os.path.lexists(self.path):
            return False
        if os.fstat(self.file.fileno()).st_size == self.size + len(self.key):
            self.file.seek(self.size)
            if self.file.read() == self.key:
                return True
        self.file.close()
        del self.file
        return False

    @cached_property
    def field(self) -> Field:
        """The field in the file; any state of it is one that a search can go on from."""
        arrays, begin = {}, 0
        for name, shape in self.layout.items():
            arrays[name] = mapped(self.file, np.float64, shape, begin, "r+")
            begin += arrays[name].nbytes
        return Field(arrays)

    def about(self) -> dict[str, Any]:
        """Flush the abundances, and return where they are in the file and their digest, for the journal (`check_search`)."""
        names = list(self.layout)
        before = (self.layout[name] for name in names[: names.index("a")])
        abundances = self.field.arrays["a"]
        abundances.flush()  # type: ignore[attr-defined]
        self.checks = line_checks(abundances)
        begin = FLOAT_BYTES * sum(int(np.prod(shape)) for shape in before)
        return {"begin": begin, "line_bytes": abundances[0].nbytes, "digest": digest_of(self.checks)}

    def lines(self, first: int, count: int) -> np.ndarray:
        """Return the abundances (count, p, samples) of some lines; `OutputError` where they are not those that the search found."""
        found = np.asarray(self.field.arrays["a"][first : first + count])
        if not np.array_equal(line_checks(found), self.checks[first : first + count]):
            raise OutputError(f"{self.path}: was changed or damaged after the search; begin anew with `overwrite`")
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the open file: another process opens its own, and compares its lines with the checks."""
        return {name: value for name, value in vars(self).items() if name not in ("file", "field")}
