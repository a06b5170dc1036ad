"""The place of an object in a store, with the parts of `pathlib.Path` that reading a file needs."""

import contextlib
import hashlib
import io
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PosixPath
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote

from ...errors import MethodError

if TYPE_CHECKING:
    from .file import Pages

# Names of buckets and servers, for each kind of URL; a server may have a port.
SERVER = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
HOSTS = {"s3": re.compile("[A-Za-z0-9][A-Za-z0-9._-]+"), "https": SERVER, "http": SERVER}
# Names of `Version.identity` in a record.
VERSIONS = ("etag", "last_modified", "unversioned")
# Documents of a Zarr store, whose folder has at least one; a folder whose name, or a parent folder's name, ends
# in ZARR is one.
ZARR, ZARR_DOCUMENTS = ".zarr", ("zarr.json", ".zmetadata", ".zgroup", ".zarray")
# A document that may name a scene's files, by a suffix, or as catalogues' servers call one; ``#`` and a name in it may
# follow.
DOCUMENT = re.compile(r"(.+?\.(?:geo)?json|[a-z0-9]+:[^#]+/items/[^/#]+)(?:#(.+))?", re.IGNORECASE | re.DOTALL)
# Queries that give their bearer rights; other ? may be a part of a key.
SIGNED = re.compile(r"\?.*(signature|token|credential)=", re.IGNORECASE)


def is_port(host: str) -> bool:
    """Return whether the port after the name of a server, if any, is one."""
    return int(host.rpartition("]")[2].partition(":")[2] or 0) < 2**16


@dataclass(frozen=True)
class Version:
    """Version of an object, as its server reports it.

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
        """Return the mark of this version, for ``run.json``: the ETag, else when it was modified, else nothing."""
        if self.etag is not None:
            return {"etag": self.etag}
        return {"last_modified": self.modified} if self.modified is not None else {"unversioned": True}

    def is_as(self, other: "Version") -> bool:
        """Return whether two versions have the same size and, where both state them, the same ETag and time."""
        # Some servers send neither for a part of a file; an ETag may be weak in one answer and strong in another.
        tags = [None if one.etag is None else one.etag.removeprefix("W/") for one in (self, other)]
        marks = (tags, (self.modified, other.modified))
        return self.size == other.size and all(None in (a, b) or a == b for a, b in marks)

    def shares_mark(self, other: "Version") -> bool:
        """Return whether both have an ETag, or both a time, or this one has neither: nothing more can be compared."""
        marks = ((self.etag, other.etag), (self.modified, other.modified))
        return (self.etag is None and self.modified is None) or any(None not in pair for pair in marks)


class RemotePath(PosixPath):
    """A file at a URL: ``s3://bucket/key`` or ``https://host/path``.

    It has names, parents and siblings as every path. What reads a file asks the server (`unmix.io.remote.store`), and
    nothing writes through it. Its version is set by the first question, and whatever is read later is of that version
    or an error.
    """

    _version: Version | None
    _pages: "Pages | None"
    _objects: tuple[str, ...] | None

    @classmethod
    def of(cls, url: str) -> "RemotePath":
        """Return the path of a URL; see `unmix.io.remote.located`. Errors never repeat a password or a query."""
        scheme, _, rest = url.partition(":")
        scheme, rest = scheme.lower(), rest.removeprefix("/").removeprefix("/")
        host, _, key = rest.partition("/")
        if scheme not in HOSTS:
            raise MethodError(f"{scheme}://: is not read; s3://bucket/key, https://host/path and http://host/path are")
        if "@" in host:
            raise MethodError(
                "a URL with a password would be written into logs and records; use the server's credentials"
            )
        shown = f"{scheme}://{re.split('[?#]', rest)[0]}"
        if scheme != "s3" and "#" in rest.partition("?")[0] and not DOCUMENT.fullmatch(url):
            raise MethodError(
                f"{shown}: # follows it, which ends a name in a URL; write %23 where it is part of the name"
            )
        if SIGNED.search(key) or (scheme != "s3" and "?" in rest):
            raise MethodError(
                f"{shown}: has a query after it, as signed URLs have; unmix keeps URLs in its records, so give one "
                "without, or "
                "download the file first"
            )
        if not HOSTS[scheme].fullmatch(host) or (scheme != "s3" and not is_port(host)):
            raise MethodError(f"{shown}: '{host}' is no name of a {'bucket' if scheme == 's3' else 'server'}")
        if any(part in ("", ".", "..") for part in key.removesuffix("/").split("/")[: None if key else 0]):
            raise MethodError(f"{shown}: has an empty part, . or .. between its slashes, which unmix cannot name")
        return cls(f"{scheme}:/{rest}")

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    def __fspath__(self) -> str:
        return str(self)

    @property
    def key(self) -> str:
        """Return the name within the bucket or host; on a host %20 is decoded, since a request encodes it."""
        name = "/".join(self.parts[2:])
        return name if self.parts[0] == "s3:" else unquote(name)

    @property
    def version(self) -> Version:
        """Return the version of the object, asked for once; `OSError` where there is none, or no answer."""
        known: Version | None = getattr(self, "_version", None)
        if known is None:
            from .store import version_of_object

            known = self._version = self.version_of_objects() if self.objects else version_of_object(self)
        return known

    @property
    def objects(self) -> tuple[str, ...]:
        """Return the objects in this folder whose versions stand for it; empty where it is no Zarr store."""
        known = getattr(self, "_objects", None)
        is_store = any(part.endswith(ZARR) for part in self.parts[2:])
        return known if known is not None else ZARR_DOCUMENTS if is_store else ()

    @objects.setter
    def objects(self, names: Iterable[str]) -> None:
        self._objects, self._version = tuple(names), None

    def versions(self) -> list[tuple[str, Version]]:
        """Ask the server for the versions of `objects`, now; such as it does not have are left out."""
        from .store import there

        paths = []
        for name in self.objects:
            paths.append(self / name)
            paths[-1].objects = ()
        return [(str(path.relative_to(self)), path.version) for path in there(paths)]

    def version_of_objects(self) -> Version:
        """Return one version for all `objects`; `FileNotFoundError` where the server has none of them."""
        found = self.versions()
        if not found:
            raise FileNotFoundError(2, "no such Zarr store: it has neither zarr.json nor .zgroup", str(self))
        times = [one.modified for _, one in found if one.modified is not None]
        tags = hashlib.sha256(repr([(name, one.size, one.etag, one.modified) for name, one in found]).encode())
        return Version(sum(one.size for _, one in found), tags.hexdigest()[:16], max(times, default=None))

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return size and time; see `version` for errors."""
        version = self.version
        return os.stat_result((stat.S_IFREG | 0o444, 0, 0, 1, 0, 0, version.size, *(int(version.modified or 0),) * 3))

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether the server has it, and we may see it; other errors are raised."""
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

    def samefile(self, other_path: str | os.PathLike[str]) -> bool:
        """Return whether another path is this URL."""
        return str(self) == os.fspath(other_path)

    @property
    def pages(self) -> "Pages":
        """Return the pages of the object, which all files that are opened of it share."""
        from .file import Pages

        known: Pages | None = getattr(self, "_pages", None)
        if known is None:
            known = self._pages = Pages(self)
        return known

    def open(self, mode: str = "r", buffering: int = -1, **text: Any) -> IO[Any]:  # type: ignore[override]
        """Open the object for reading; see `version` for errors."""
        from .file import RemoteFile

        raw = RemoteFile(self.pages)
        if "b" in mode:
            return raw if buffering == 0 else io.BufferedReader(raw)  # type: ignore[return-value]
        return io.TextIOWrapper(io.BufferedReader(raw), **text | {"encoding": text.get("encoding") or "utf-8"})


def files_named(folder: Path, names: Iterable[str]) -> list[Path]:
    """Return the files of a folder with one of these names, in upper or lower case; sorted where it is local."""
    wanted = list(names)
    if not isinstance(folder, RemotePath):
        lower = {name.lower() for name in wanted}
        return [folder / name for name in sorted(os.listdir(folder)) if name.lower() in lower]
    from .store import there

    # A server may not list its files, so all spellings in lower and upper case are asked for at once.
    return list(there([folder / name for name in dict.fromkeys(wanted)]))


def sizes_in_folder(folder: Path, names: Iterable[str]) -> dict[str, int]:
    """Return the sizes in bytes of the named files that a folder has; a server is asked for all at once."""
    paths: list[Path] = [folder / name for name in names]
    if isinstance(folder, RemotePath):
        from .store import there

        return {
            path.name: path.version.size for path in there([path for path in paths if isinstance(path, RemotePath)])
        }
    sizes = {}
    for path in paths:
        with contextlib.suppress(OSError):
            files = (
                [path] if not path.is_dir() else [one for one in path.rglob("*") if one.is_file()]
            )  # of a map in Zarr
            sizes[path.name] = sum(one.stat().st_size for one in files)
    return sizes
