"""The place of an object in a store, with the parts of `pathlib.Path` that reading a file needs."""

import io
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PosixPath
from typing import IO, TYPE_CHECKING, Any

from ...errors import MethodError

if TYPE_CHECKING:
    from .file import RemoteFile


@dataclass(frozen=True)
class Version:
    """What a server says of an object: which version of it there is.

    Attributes
    ----------
    size : int
        In bytes.
    etag : str or None
    modified : float or None
        Seconds since 1970, UTC.
    """

    size: int
    etag: str | None
    modified: float | None

    def identity(self) -> dict[str, Any]:
        """Return what tells this version from others, for ``run.json``: the ETag, else when it was modified, else nothing."""
        if self.etag is not None:
            return {"etag": self.etag}
        return {"last_modified": self.modified} if self.modified is not None else {"unversioned": True}


class RemotePath(PosixPath):
    """A file at a URL: ``s3://bucket/key`` or ``https://host/path``.

    It has names, parents and siblings as every path. What reads a file asks the server (`unmix.io.remote.store`), and nothing writes
    through it. Its version is that of the first question, and whatever is read later is of that version or an error.
    """

    _version: Version | None
    _file: "RemoteFile | None"

    @classmethod
    def of(cls, url: str) -> "RemotePath":
        """Return the path of a URL; `MethodError` where it has a query or a password."""
        scheme, _, rest = url.partition(":")
        if "?" in rest and scheme.lower() != "s3":
            raise MethodError(
                f"{url.partition('?')[0]}: has a query after it, as signed URLs have; unmix keeps URLs in its records, so give one "
                "without, or download the file first"
            )
        if "@" in rest.lstrip("/").partition("/")[0]:
            raise MethodError(
                "a URL with a password would be written into logs and records; use the server's credentials"
            )
        return cls(f"{scheme.lower()}:/{rest.lstrip('/')}")

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    def __fspath__(self) -> str:
        return str(self)

    @property
    def key(self) -> str:
        """Return the name within the bucket, or the host."""
        return "/".join(self.parts[2:])

    @property
    def version(self) -> Version:
        """Return the version of the object, which is asked for once.

        Raises
        ------
        FileNotFoundError, OSError
            Where there is none, or the server does not answer.
        """
        known: Version | None = getattr(self, "_version", None)
        if known is None:
            from .store import version_of

            known = self._version = version_of(self)
        return known

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return size and time; see `version` for errors."""
        version = self.version
        return os.stat_result((stat.S_IFREG | 0o444, 0, 0, 1, 0, 0, version.size, *(int(version.modified or 0),) * 3))

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether the server has it; errors but its absence are raised."""
        try:
            return self.version.size >= 0
        except FileNotFoundError:
            return False

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether the server has it."""
        return self.exists()

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return False: folders cannot be read from a server."""
        return False

    def is_absolute(self) -> bool:
        """Return True."""
        return True

    def absolute(self) -> "RemotePath":
        """Return the path itself."""
        return self

    def resolve(self, strict: bool = False) -> "RemotePath":
        """Return the path itself."""
        return self

    @property
    def file(self) -> "RemoteFile":
        """Return the object as a file, the same each time, for a library that reads it piece by piece."""
        from .file import RemoteFile

        known: RemoteFile | None = getattr(self, "_file", None)
        if known is None:
            known = self._file = RemoteFile(self)
        return known

    def open(self, mode: str = "rb", buffering: int = -1, *_: Any, **how: Any) -> IO[Any]:  # type: ignore[override]
        """Open the object for reading; see `version` for errors."""
        from .file import RemoteFile

        raw = RemoteFile(self)
        if "b" in mode:
            return raw if buffering == 0 else io.BufferedReader(raw)  # type: ignore[return-value]
        return io.TextIOWrapper(io.BufferedReader(raw), encoding=how.get("encoding") or "utf-8")


def first_of(folder: Path, names: Iterable[str]) -> list[Path]:
    """Return the files of a folder with one of these names, in upper or lower case; sorted.

    A server may not list what it has, so all spellings in lower and upper case are asked for, at once.
    """
    wanted = list(names)
    if not isinstance(folder, RemotePath):
        lower = {name.lower() for name in wanted}
        return [entry for entry in sorted(folder.iterdir()) if entry.name.lower() in lower]
    from .store import there

    return there([folder / name for name in dict.fromkeys(wanted)])
