"""Requests to object stores and web servers, through obstore (extra `remote`), many at a time.

obstore repeats what fails for a while (a lost connection goes on where it ended, 5xx and 429 wait). What it takes for an error is a
server that sends fewer bytes than were asked for and says so, as some proxies do: then smaller pieces are asked for.
"""

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...errors import CubeError, OutputError
from .path import RemotePath, Version

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import HTTPStore, S3Store

# Bytes of a request, and requests at a time: a store answers each after some 50 ms and then sends some 50 MB/s.
PIECE, AT_ONCE = 4 * 2**20, 24
# A server that sends less than it was asked for is asked for halves, down to this, and unmix gives up after so many times in a row.
SMALLEST_PIECE, MOST_SHORT = 512, 12
# Seconds for one request to end, and for one that fails to be repeated in.
PATIENCE, PERSEVERANCE = 60, 180
Answer = TypeVar("Answer")


@functools.cache
def requests() -> ThreadPoolExecutor:
    """Return the pool of threads that wait for servers, one for the process."""
    return ThreadPoolExecutor(AT_ONCE, "request")


def together(calls: Sequence[Callable[[], Answer]]) -> list[Answer]:
    """Make several requests at once and return their answers; no request is under way any more when an error is raised."""
    if len(calls) == 1:
        return [calls[0]()]
    under_way = [requests().submit(call) for call in calls]
    errors = [error for future in under_way if (error := future.exception()) is not None]
    if errors:
        raise errors[0]
    return [future.result() for future in under_way]


@functools.cache
def store_of(place: str) -> "S3Store | HTTPStore":
    """Return the client of ``s3://bucket`` or ``https://host``, which takes credentials from the environment as the AWS tools do."""
    try:
        from obstore.store import HTTPStore, S3Store
    except ImportError:
        raise CubeError(f"{place}: URLs need obstore: pip install 'unmix[remote]'") from None
    scheme, _, host = place.partition("://")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    plain = scheme == "http" or (scheme == "s3" and endpoint.startswith("http:"))
    how: dict[str, Any] = {
        "client_options": {"allow_http": plain, "timeout": timedelta(seconds=PATIENCE)},
        "retry_config": {
            "max_retries": 10,
            "retry_timeout": timedelta(seconds=PERSEVERANCE),
            "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=10), "base": 2},
        },
    }
    if scheme == "s3":
        return S3Store(host, config={"endpoint": endpoint} if endpoint else None, **how)
    return HTTPStore.from_url(place, **how)


def client(path: RemotePath) -> "S3Store | HTTPStore":
    """Return the client of the server that has an object."""
    return store_of("://".join((path.parts[0].rstrip(":"), path.parts[1] if len(path.parts) > 1 else "")))


def version_of(path: RemotePath) -> Version:
    """Ask a server for the version of an object.

    Raises
    ------
    FileNotFoundError
        Where it has none.
    OSError
        Where it does not answer, or refuses to.
    """
    import obstore

    store = client(path)
    try:
        meta = obstore.head(store, path.key)
    except FileNotFoundError:
        raise FileNotFoundError(2, "no such object", str(path)) from None
    except Exception as error:  # obstore has a class for each kind of failure
        raise OSError(5, reason(error), str(path)) from None
    modified = meta["last_modified"].timestamp()  # 0 where the server does not say
    return Version(int(meta["size"]), meta["e_tag"], modified or None)


def there(paths: Sequence[RemotePath]) -> list[Path]:
    """Return the objects that a server has, in the order given; one that it hides from us (403) counts as absent."""

    def has(path: RemotePath) -> bool:
        try:
            return path.exists()
        except PermissionError:
            return False

    return [path for path, found in zip(paths, together([functools.partial(has, path) for path in paths])) if found]


def reason(error: BaseException) -> str:
    """Return why a request failed, on one line: the first of obstore's paragraphs."""
    words = " ".join(str(error).partition("\n\n")[0].split())
    return words if len(words) <= 200 else words[:200] + " …"


def fill(path: RemotePath, parts: Sequence[tuple[np.ndarray, int]]) -> None:
    """Fill arrays of bytes from offsets of an object, many requests at a time.

    Raises
    ------
    CubeError
        Where the object is of another version by now, ends too early, or the server fails for `PERSEVERANCE` seconds.
    """
    together(
        [
            functools.partial(fill_part, path, part[first : first + PIECE], offset + first)
            for part, offset in parts
            for first in range(0, len(part), PIECE)
        ]
    )


def fill_part(path: RemotePath, part: np.ndarray, offset: int, short: int = 0) -> None:
    """Fill one array; ask again, for halves, where the server sends less than it was asked for. Errors as of `fill`."""
    import obstore
    from obstore.exceptions import GenericError, NotSupportedError, PreconditionError

    if len(part) == 0:
        return
    try:
        options: GetOptions = {"range": (offset, offset + len(part)), **same(path)}  # type: ignore[typeddict-item]
        got = memoryview(obstore.get(client(path), path.key, options=options).bytes())
    except PreconditionError:
        raise CubeError(f"{path}: changed while it was read; this run leaves no results: run it again") from None
    except NotSupportedError:
        raise CubeError(f"{path}: its server sends whole files only, no byte ranges; download it first") from None
    except GenericError as error:
        if "Requested" not in str(error) or short >= MOST_SHORT:
            raise CubeError(f"{path}: reading failed at byte {offset}: {reason(error)}") from None
        half = len(part) // 2 if len(part) > SMALLEST_PIECE else len(part)
        fill_part(path, part[:half], offset, short + 1)
        fill_part(path, part[half:], offset + half)
        return
    except Exception as error:
        raise CubeError(f"{path}: reading failed at byte {offset}: {reason(error)}") from None
    if len(got) != len(part):
        raise CubeError(f"{path}: ends at byte {offset + len(got)}; it was longer when it was opened")
    part[:] = np.frombuffer(got, np.uint8)


def same(path: RemotePath) -> dict[str, Any]:
    """Return the conditions under which a request is of the version that was opened."""
    version = path.version
    if version.etag is not None and not version.etag.startswith("W/"):  # a weak one never matches (RFC 9110, 13.1.1)
        return {"if_match": version.etag}
    if version.modified is not None:
        return {"if_unmodified_since": datetime.fromtimestamp(version.modified, UTC)}
    return {}


def upload(file: Path, path: RemotePath) -> None:
    """Upload a file, whole or not at all.

    Raises
    ------
    OutputError
        Where the store refuses, fails for `PERSEVERANCE` seconds, or has another size of it afterwards.
    """
    import obstore

    try:
        obstore.put(client(path), path.key, file)
        size = obstore.head(client(path), path.key)["size"]
    except Exception as error:
        raise OutputError(f"{path}: uploading failed: {reason(error)}") from None
    if size != file.stat().st_size:
        raise OutputError(f"{path}: {size} bytes arrived of {file.stat().st_size}; the same command uploads them again")


def delete(path: RemotePath) -> None:
    """Delete an object, if it is there; `OutputError` where the store refuses."""
    import obstore

    try:
        obstore.delete(client(path), path.key)
    except FileNotFoundError:
        pass
    except Exception as error:
        raise OutputError(f"{path}: cannot be deleted: {reason(error)}") from None
