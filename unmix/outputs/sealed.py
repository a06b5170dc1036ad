"""Seal the files of a run before they get their final names: flushed, digested, identified, each opened once."""

import os
from pathlib import Path
from typing import IO, NamedTuple

from ..errors import OutputError
from ..io.opening import open_there
from .atomic import Identity, identity_of_status
from .digests import digest_within, flush_tree, image_digest_within, is_tree, tree_digest, tree_size


class Sealed(NamedTuple):
    """A file that is complete.

    Attributes
    ----------
    identity : tuple
        See `unmix.outputs.atomic.identity_of_status`.
    digest : str
    content : bytes
        Of a record; else empty.
    """

    identity: Identity
    digest: str
    content: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.identity[2]

    def check(self, path: Path) -> None:
        """Raise `OutputError` where a name leads to another file."""
        # Its time and size are not compared: file systems over a network may tell those of a while ago.
        if not os.path.lexists(path) or identity_of_status(os.lstat(path))[:2] != self.identity[:2]:
            raise OutputError(f"{path}: another file has this name by now; move it away and run again")


def seal(path: Path, lines: int | None = None, with_content: bool = False) -> Sealed:
    """Flush and digest a file or folder, an image of ``lines`` by its lines; `OutputError` if it is a link."""
    if is_tree(path):
        flush_tree(path)
        status = os.lstat(path)
        return Sealed((status.st_dev, status.st_ino, tree_size(path), 0), tree_digest(path))
    with open_there(path, "rb") as file:
        os.fsync(file.fileno())
        content = file.read() if with_content else b""
        digest = digest_within(file) if lines is None else image_digest_within(file, lines)
        return sealed_by(file, digest, content)


def sealed_by(file: IO[bytes], digest: str, content: bytes = b"") -> Sealed:
    """Return how an open file is known."""
    return Sealed(identity_of_status(os.fstat(file.fileno())), digest, content)
