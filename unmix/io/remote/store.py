"""Requests to object stores and web servers, through obstore (extra `remote`), many at a time.

obstore repeats requests that fail for a while (5xx and 429 wait). A connection that ends within an answer goes on where
it ended, which obstore does only for objects with an ETag. Servers and caches may ignore the conditions of a request,
so each answer is compared with the version that was opened. Where a server sends fewer bytes than were asked for and
says so, as some proxies do, less is asked for.
"""

import functools
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...blocks import once_a_process
from ...errors import CubeError, MethodError, UnmixError
from .logins import less_secrets, login_for, wanted
from .path import RemotePath, Version

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import HTTPStore, S3Store

# Bytes of a request, and requests at a time: a store answers each after some 50 ms and then sends some 50 MB/s.
PIECE, AT_ONCE = 4 * 2**20, 24
# Smallest request, in bytes, of a server that sends less than asked for and is asked for halves; most such answers in a
# row.
SMALLEST_PIECE, MOST_SHORT = 512, 12
# Bytes after which what came of an answer is kept, should the connection end: 64 KiB come within `REQUEST_SECONDS` at
# 1.1 kB/s.
CHUNK = 64 * 2**10
# Seconds before a request is made again from where it ended; in which a failing one is repeated; and in which the first
# one to a server is, whose name may be wrong: shorter where nobody answers there than where an answer says that the
# server is busy.
REQUEST_SECONDS, PERSEVERANCE, FIRST_PERSEVERANCE, BUSY_PERSEVERANCE = 60, 180, 3, 10
# In an error of obstore: nobody answered; and the system's own word for why.
UNANSWERED, SYSTEM_WORDS = (
    "error sending request",
    re.compile(r'kind: \w+,\s+message: "([^"]+)"|(dns error)|(operation timed out)'),
)
# The address that a machine of Amazon's has for the credentials of its role.
ROLES = "169.254.169.254"
# Encodings that servers may apply to an object; suffixes of objects that are themselves so encoded.
ENCODINGS, ENCODED = (
    ("gzip", "x-gzip", "deflate", "br", "zstd", "compress", "x-compress"),
    (".gz", ".tgz", ".zst", ".br", ".z"),
)
CHANGED = "changed while it was read; this run leaves no results: run it again"
LESS = "its server sends less than it is asked for"
Answer = TypeVar("Answer")


@once_a_process
def requests() -> ThreadPoolExecutor:
    """Return the pool of threads that wait for servers, one for the process."""
    return ThreadPoolExecutor(AT_ONCE, "request")


def many_together(calls: Sequence[Callable[[], Answer]]) -> list[Answer]:
    """Make several requests at once and return their answers; raise the first error when none is under way."""
    if len(calls) == 1:
        return [calls[0]()]
    under_way = [requests().submit(call) for call in calls]
    errors = [error for future in under_way if (error := future.exception()) is not None]
    if errors:
        raise errors[0]
    return [future.result() for future in under_way]


@functools.cache
def store_of(place: str, perseverance: int = PERSEVERANCE, login: str = "") -> "S3Store | HTTPStore":
    """Return the client of ``s3://bucket``, with credentials from AWS's variables, or of ``https://host``."""
    try:
        from obstore.store import HTTPStore, S3Store
    except ImportError:
        raise CubeError(f"{place}: URLs need obstore: pip install 'unmix[remote]'") from None
    scheme, _, host = place.partition("://")
    endpoint = endpoint_of(place)
    plain = scheme == "http" or (scheme == "s3" and endpoint.startswith("http:"))
    how: dict[str, Any] = {
        "client_options": {"allow_http": plain, "timeout": timedelta(seconds=REQUEST_SECONDS)},
        "retry_config": {
            "max_retries": 1000,
            "retry_timeout": timedelta(seconds=perseverance),
            "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=10), "base": 2},
        },
    }
    if scheme == "s3":
        return S3Store(host, config={"endpoint": endpoint} if endpoint else None, **how)
    if login:  # the client leaves it out where the server sends it to another host
        how["client_options"]["default_headers"] = {"authorization": login}
    return HTTPStore.from_url(place, **how)


def endpoint_of(place: str) -> str:
    """Return the server that the environment names for ``s3://``, or nothing; `MethodError` where it is no URL."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL") if place.startswith("s3:") else ():
        endpoint = os.environ.get(name)
        if endpoint is not None and re.match("https?://[^/]", endpoint) is None:
            raise MethodError(
                f"{name} is '{endpoint}' in the environment, but has to be a URL, such as https://host:9000"
            )
        if endpoint is not None:
            return endpoint
    return ""


# Servers that have answered once.
ANSWERED: set[str] = set()
# Servers that answered a HEAD.
HEADED: set[str] = set()


def place_of(path: RemotePath) -> str:
    """Return the URL of the bucket or server that has an object."""
    return "://".join((path.parts[0].rstrip(":"), path.parts[1]))


def client(path: RemotePath) -> "S3Store | HTTPStore":
    """Return the client of the server that has an object."""
    place = place_of(path)
    return store_of(place, login=login_for(place))


def version_of_object(path: RemotePath) -> Version:
    """Ask a server for the version of an object; see `answer_to` for errors."""
    import obstore

    place = place_of(path)
    try:
        found = version_in(answer_to(obstore.head, path))
        HEADED.add(place)
        return found
    except FileNotFoundError:
        if path.parts[0] == "s3:" or place in HEADED:
            raise
    # Servers that take no HEAD answer 405, which obstore takes for 404.
    return version_in(answer_to(lambda store, key: obstore.get(store, key, options={"range": (0, 1)}), path).meta)


def whole_object(path: RemotePath, most: int) -> bytes:
    """Fetch an object of up to ``most`` bytes in one request, which servers answer that make it on demand."""
    import obstore

    answer, content = answer_to(obstore.get, path), bytearray()
    try:
        for piece in answer.stream(CHUNK):
            content += piece
            if len(content) > most:
                break
    except Exception as error:
        raise failure(path, len(content), reason(error)) from None
    if len(content) > most:
        raise CubeError(f"{path}: has more than {most >> 20} MiB")
    return bytes(content)


def answer_to(ask: Callable[["S3Store | HTTPStore", str], Any], path: RemotePath) -> Any:
    """Return the answer of `obstore.head` or `obstore.get` for an object; FileNotFoundError where absent or hidden."""
    place = place_of(path)
    if not path.key:
        raise FileNotFoundError(2, "names no file, only where files are", str(path))
    from obstore.exceptions import GenericError, PermissionDeniedError, UnauthenticatedError

    is_store = path.parts[0] == "s3:"
    try:
        answer = first_answer(ask, path, place)
    except GenericError as error:
        raise OSError(5, reason(error), str(path)) from None
    except (Unanswered, UnmixError):
        raise
    except (FileNotFoundError, PermissionDeniedError) as error:
        ANSWERED.add(place)
        # Stores answer 403 to a client that may read objects but not list them.
        absent = f"no such file{' or bucket' if is_store else ''}"
        right = "these credentials give no right to read it" if is_store else wanted(place)
        raise FileNotFoundError(
            2, absent if isinstance(error, OSError) else f"{absent}, or {right} (403)", str(path)
        ) from None
    except UnauthenticatedError as error:
        raise OSError(13, reason(error) if is_store else f"{wanted(place)} (401)", str(path)) from None
    except Exception as error:  # obstore has a class for each kind of failure
        raise OSError(5, reason(error), str(path)) from None
    ANSWERED.add(place)
    return answer


class Unanswered(OSError):
    """Nobody answers at a server's address."""


def first_answer(ask: Callable[["S3Store | HTTPStore", str], Any], path: RemotePath, place: str) -> Any:
    """Ask for an object; a server that has not answered yet has `FIRST_PERSEVERANCE` seconds. Errors are obstore's."""
    from obstore.exceptions import GenericError

    login = login_for(place)
    if place not in ANSWERED:
        try:
            return ask(store_of(place, FIRST_PERSEVERANCE, login), path.key)
        except GenericError as error:
            if UNANSWERED in str(error):
                raise Unanswered(5, unanswered(place, error), str(path)) from None
    return ask(store_of(place, PERSEVERANCE if place in ANSWERED else BUSY_PERSEVERANCE, login), path.key)


def unanswered(place: str, error: BaseException) -> str:
    """Return that nobody answers, with the name of the host and, where the system says it, the cause."""
    host = (endpoint_of(place) or place).partition("://")[2]
    found = SYSTEM_WORDS.search(str(error))
    cause = next((word for word in found.groups() if word), "") if found else ""
    cause = {"dns error": "no such host"}.get(cause, cause.lower())
    who = f"the store of bucket {host}" if place.startswith("s3:") and not endpoint_of(place) else host
    return f"{who} does not answer{f': {cause}' if cause else ''}; is the address right, and the server on?"


def version_in(meta: "ObjectMeta") -> Version:
    """Return the version that an answer speaks of."""
    modified = meta["last_modified"].timestamp()  # 0 where the server does not say
    return Version(int(meta["size"]), meta["e_tag"], modified or None)


def there(paths: Sequence[RemotePath]) -> list[RemotePath]:
    """Return the objects that a server has, in the order given."""
    return [path for path, found in zip(paths, many_together([path.exists for path in paths])) if found]


def reason(error: BaseException) -> str:
    """Return why a request failed, on one line: obstore's first paragraph without secrets, queries and markup."""
    text = str(error).partition("\n\n")[0]
    if ROLES in text:
        return (
            "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public "
            "bucket"
        )
    text = re.sub(
        r"^Generic \w+ error: |, max_retries: \d+, retry_timeout: \d+s|:?\s*<.*|\?[^\s)]*", "", text, flags=re.DOTALL
    )  # and queries of addresses that the server named, which may be signed
    words = less_secrets(" ".join(text.split()))
    return words if len(words) <= 300 else words[:300] + " …"


def fill(path: RemotePath, parts: Sequence[tuple[np.ndarray, int]]) -> None:
    """Fill byte arrays from offsets of an object, many requests at a time; `CubeError` where its version changed."""
    many_together(
        [
            functools.partial(fill_part, path, part[first : first + PIECE], offset + first)
            for part, offset in parts
            for first in range(0, len(part), PIECE)
        ]
    )


class ShortAnswer(Exception):
    """A server says that it sends less than it was asked for."""


class Broken(Exception):
    """A connection ended before its answer did."""


def fill_part(path: RemotePath, part: np.ndarray, offset: int) -> None:
    """Fill one array; go on after a broken connection, and ask for less where the server sends less."""
    # No clock runs for an answer as a whole, so a slow line only takes long; the time since the last bytes counts.
    done, most, futile, last = 0, len(part), 0, time.monotonic()
    while done < len(part):
        asked, came, trouble, has_broken = min(most, len(part) - done), 0, LESS, False
        try:
            for piece in answer_of(path, offset + done, asked):
                if came + len(piece) > asked:
                    raise failure(path, offset + done, "its server sends more than it is asked for")
                part[done + came : done + came + len(piece)] = np.frombuffer(piece, np.uint8)
                came += len(piece)
        except ShortAnswer as error:
            trouble, most = str(error), max(SMALLEST_PIECE, most // 2)
        except Broken as error:
            trouble, has_broken = str(error), True
        done += came
        if came >= min(asked, SMALLEST_PIECE):
            futile, last = 0, time.monotonic()
            continue
        futile += 1
        if time.monotonic() - last > PERSEVERANCE if has_broken else futile > MOST_SHORT:
            raise failure(path, offset + done, trouble)
        if has_broken:
            time.sleep(min(10.0, 0.05 * 2 ** min(futile, 10)))


def answer_of(path: RemotePath, first: int, size: int) -> Iterator[bytes]:
    """Yield some bytes of an object as they come; ShortAnswer or Broken where asking again can give more."""
    import obstore
    from obstore import exceptions

    try:
        options: GetOptions = {"range": (first, first + size), **same_version(path)}  # type: ignore[typeddict-item]
        answer = obstore.get(client(path), path.key, options=options)
    except exceptions.PreconditionError:
        raise CubeError(f"{path}: {CHANGED}") from None
    except exceptions.NotSupportedError:
        raise CubeError(f"{path}: its server sends whole files only, no byte ranges; download it first") from None
    except exceptions.GenericError as error:
        if "Requested" in str(error):
            raise ShortAnswer(reason(error)) from None
        raise failure(path, first, reason(error)) from None
    except Exception as error:
        is_refused = (
            isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
            and path.parts[0] != "s3:"
        )
        raise failure(path, first, wanted(place_of(path)) if is_refused else reason(error)) from None
    answered = refuse_other(path, answer)
    try:
        yield from answer.stream(CHUNK)
    except Exception as error:  # from the connection, or from obstore's own attempts to go on
        raise Broken(reason(error)) from None
    if not path.version.shares_mark(answered):
        refuse_changed(path, first)


def refuse_other(path: RemotePath, answer: Any) -> Version:
    """Return the version of an answer; `CubeError` where it is not that which was opened, or is encoded."""
    answered = version_in(answer.meta)
    if not answered.is_as(path.version):
        raise CubeError(f"{path}: {CHANGED}")
    encoding = str(answer.attributes.get("Content-Encoding", "")).lower()
    if encoding in ENCODINGS and path.suffix.lower() not in ENCODED:
        raise CubeError(f"{path}: its server sends it as {encoding}, of which no parts can be read; download it first")
    return answered


def refuse_changed(path: RemotePath, first: int) -> None:
    """Ask for the version anew, since an answer did not name its version; `CubeError` where it is another."""
    try:
        now = version_of_object(path)
    except OSError as error:
        raise failure(path, first, str(error.strerror)) from None
    if not now.is_as(path.version):
        raise CubeError(f"{path}: {CHANGED}")


def failure(path: RemotePath, place: int, why: str) -> CubeError:
    """Return the error of a reading that failed at a byte."""
    return CubeError(f"{path}: reading failed at byte {place}: {why}")


def same_version(path: RemotePath) -> dict[str, Any]:
    """Return the conditions under which a request is of the version that was opened."""
    version = path.version
    if version.etag is not None and not version.etag.startswith("W/"):  # a weak one never matches (RFC 9110, 13.1.1)
        return {"if_match": version.etag}
    if version.modified is not None:
        return {"if_unmodified_since": datetime.fromtimestamp(version.modified, UTC)}
    return {}
