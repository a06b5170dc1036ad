"""A web server of a folder for the tests: it serves byte ranges, and can be told to fail in the ways of real ones."""

import contextlib
import email.utils
import functools
import gzip
import hashlib
import itertools
import socket
import struct
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class ObjectServer:
    """A folder served at ``url``.

    Attributes
    ----------
    folder : Path
    failing : dict of str to int
        Every how many GETs each kind of failure happens: "drop" ends the connection half way through the body, "refuse"
        before the answer, "short" sends fewer bytes than were asked for, and says so, "busy" answers 503, "stall" never
        goes on, "less" and "more" send fewer or more bytes than their own Content-Range says, "misplaced" says another
        place, "multipart" and "gzip" wrap the bytes, "redirect" names another place for the same.
    validators : tuple of str
        Of ETag, Last-Modified and a weak ETag ("weak"), those that are sent.
    bare_parts : bool
        Whether parts of a file come without any of these, which HEAD has.
    conditions : bool
        Whether If-Match and If-Unmodified-Since are honoured.
    before : callable, optional
        Called with the number of each GET before it is answered.
    heads : bool
        Whether HEAD is answered; else 405.
    ranges : bool
        Whether byte ranges are served; else every answer is the whole file.
    absent : int
        The answer for what is not there: 404, or 403 of stores that do not let us list what there is.
    outage : (int, float)
        After so many GETs the server answers 503 for so many seconds.
    latency : float
        Seconds before each answer.
    rate : float
        Bytes a second, of all connections together; 0 is as fast as can be.
    login : str
        The header Authorization that requests need; others are answered 401, with what they sent.
    elsewhere : str
        The URL of another server, to which all requests but those for JSON are sent.
    requests : list of (str, str, str)
        The method, the path and the range of each request.
    logins : list of (str or None)
        The header Authorization of each request.
    """

    folder: Path
    failing: dict[str, int] = field(default_factory=dict)
    validators: tuple[str, ...] = ("ETag", "Last-Modified")
    bare_parts: bool = False
    conditions: bool = True
    before: Callable[[int], None] | None = None
    heads: bool = True
    ranges: bool = True
    absent: int = 404
    outage: tuple[int, float] = (0, 0.0)
    latency: float = 0.0
    rate: float = 0.0
    login: str = ""
    elsewhere: str = ""
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    logins: list[str | None] = field(default_factory=list)
    url: str = ""

    def __post_init__(self) -> None:
        self.count, self.lock, self.released = itertools.count(1), threading.Lock(), threading.Event()
        self.free_at = self.back_at = 0.0

    def is_out(self, number: int) -> bool:
        """Return whether the outage is on at a GET."""
        after, seconds = self.outage
        if seconds and number >= after and not self.back_at:
            self.back_at = time.monotonic() + seconds
        return time.monotonic() < self.back_at

    def wait_for_the_wire(self, size: int) -> None:
        """Wait until so many bytes may be sent, where the rate is limited."""
        if self.rate:
            with self.lock:
                self.free_at = max(self.free_at, time.monotonic()) + size / self.rate
                end = self.free_at
            self.released.wait(max(0.0, end - time.monotonic()))


def handler_of(server: ObjectServer) -> type[BaseHTTPRequestHandler]:
    """Return the class that answers the requests of a server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            if server.heads:
                return self.answer(body=False)
            server.requests.append((self.command, self.path, ""))
            return self.empty(405)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            with server.lock:
                wanted = self.headers.get("Range", "")
                server.requests.append((self.command, self.path, wanted))
                server.logins.append(self.headers.get("Authorization"))
                number = next(server.count) if body else 0
                if server.before is not None and body:
                    server.before(number)
            failure = next((kind for kind, every in server.failing.items() if number and number % every == 0), "")
            if server.latency:
                server.released.wait(server.latency)
            if server.login and self.headers.get("Authorization") != server.login:
                return self.empty(401, said=f"no right by {self.headers.get('Authorization')}")
            if server.elsewhere and not self.path.endswith(".json"):
                return self.empty(302, f"{server.elsewhere}{self.path}?signature=hush")
            if failure == "refuse":
                return self.hang_up()
            if failure == "busy" or server.is_out(number):
                return self.empty(503)
            if failure == "redirect" and "moved" not in self.path:
                return self.empty(307, self.path + "?moved")
            path = server.folder / urllib.parse.unquote(self.path.lstrip("/").partition("?")[0])
            if not path.is_file():
                return self.empty(server.absent)
            size, tag = path.stat().st_size, tag_of(path)
            modified = email.utils.formatdate(path.stat().st_mtime, usegmt=True)
            matches = (
                self.headers.get("If-Match", tag) == tag
                if "ETag" in server.validators
                else "If-Match" not in self.headers
            )
            if server.conditions and not matches:
                return self.empty(412)
            since = self.headers.get("If-Unmodified-Since")
            if (
                server.conditions
                and since is not None
                and email.utils.parsedate_to_datetime(since).timestamp() < int(path.stat().st_mtime)
            ):
                return self.empty(412)
            first, last = 0, size - 1
            partial = bool(wanted) and server.ranges
            if partial:
                low, _, high = wanted.removeprefix("bytes=").partition("-")
                # Without a first byte it is the last so many.
                first, last = (int(low), min(int(high or last), last)) if low else (max(0, size - int(high)), last)
                if failure == "short":
                    last = first + (last - first) // 2
                if first >= size:
                    return self.empty(416)
            self.send_response(206 if partial else 200)
            length = max(0, last + 1 - first + {"less": -100, "more": 100}.get(failure, 0))
            content = None
            if failure == "gzip":
                self.send_header("Content-Encoding", "gzip")
                content = gzip.compress(path.read_bytes()[first : last + 1])
            elif failure == "multipart":
                self.send_header("Content-Type", "multipart/byteranges; boundary=x")
                said = f"\r\n--x\r\nContent-Range: bytes {first}-{last}/{size}\r\n\r\n".encode()
                content = said + path.read_bytes()[first : last + 1] + b"\r\n--x--\r\n"
            self.send_header("Content-Length", str(length if content is None else len(content)))
            if server.ranges:
                self.send_header("Accept-Ranges", "bytes")
            if partial and failure != "multipart":
                aside = int(failure == "misplaced")
                self.send_header("Content-Range", f"bytes {first + aside}-{last + aside}/{size}")
            for kind, name, value in (
                ("ETag", "ETag", tag),
                ("weak", "ETag", f"W/{tag}"),
                ("Last-Modified", "Last-Modified", modified),
            ):
                if kind in server.validators and not (partial and server.bare_parts):
                    self.send_header(name, value)
            self.end_headers()
            if content is not None:
                self.wfile.write(content)
            elif body:
                self.send(path, first, length, failure)

        def send(self, path: Path, first: int, length: int, failure: str) -> None:
            with open(path, "rb") as file, contextlib.suppress(OSError):
                file.seek(first)
                if failure in ("drop", "stall"):
                    self.wfile.write(file.read(length // 2))
                    if failure == "stall":
                        server.released.wait(600)
                    return self.hang_up()
                while length:
                    piece = file.read(min(length, 2**18)) or bytes(length)
                    server.wait_for_the_wire(len(piece))
                    self.wfile.write(piece)
                    length -= len(piece)

        def empty(self, status: int, location: str = "", said: str = "") -> None:
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(said.encode())

        def hang_up(self) -> None:
            """End the connection with a reset, as a proxy does that dies."""
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()

    return Handler


def tag_of(path: Path) -> str:
    """Return an ETag of a file's content."""
    return digest_of(path, path.stat().st_mtime_ns)


@functools.lru_cache
def digest_of(path: Path, modified: int) -> str:
    """Return the digest of a file that was modified then."""
    with open(path, "rb") as file:
        return '"' + hashlib.file_digest(file, "sha256").hexdigest() + '"'


class Threads(ThreadingHTTPServer):
    """Answers each connection on its own thread, and says nothing of those that end early."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *words: object) -> None:
        super().__init__(*words)  # type: ignore[arg-type]
        self.open = set[socket.socket]()

    def process_request(self, request: socket.socket, address: object) -> None:  # type: ignore[override]
        self.open.add(request)
        super().process_request(request, address)

    def hang_up(self) -> None:
        """Close the connections that clients keep: a thread waits at each, and a hundred of them met in one process."""
        for request in self.open:
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving(folder: Path, **how: object) -> Iterator[ObjectServer]:
    """Serve a folder while the block runs."""
    server = ObjectServer(folder, **how)  # type: ignore[arg-type]
    with Threads(("127.0.0.1", 0), handler_of(server)) as web:
        server.url = f"http://127.0.0.1:{web.server_port}"
        thread = threading.Thread(target=web.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            web.shutdown()
            web.hang_up()
            thread.join()
