"""`unmix view`: serve the viewer to browsers of this machine."""

import asyncio
import itertools
import logging
import os
import secrets
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...errors import MethodError, brief
from ...io.remote import located
from ...outputs.library import files_of
from ...scene import ReadOptions
from .source import Source

log = logging.getLogger("unmix")
# The only address that is listened on.
LOOPBACK = "127.0.0.1"
# Signals that end it, as is usual: nothing is lost.
ENDS = signal.SIGINT, signal.SIGTERM
# Bytes of the secret in the address.
SECRET_BYTES = 24
# Bytes of a request's body, which none of the viewer's has, and of a message of a page: the corners of a region, at
# most.
LARGEST_BODY, LARGEST_MESSAGE = 2**10, 2**20


class OneLine(logging.Handler):
    """Says in one line of our own log, without a traceback, what the libraries that serve the page warn of."""

    def emit(self, record: logging.LogRecord) -> None:
        error = f": {brief(record.exc_info[1])}" if record.exc_info and record.exc_info[1] else ""
        log.warning(f"a browser sent what was refused: {record.getMessage().splitlines()[0]}{error}")


def free_name() -> Path:
    """Return the name of a library of regions that does not exist in the folder in which the command runs."""
    names = itertools.chain(["regions.csv"], (f"regions-{k}.csv" for k in itertools.count(2)))
    return next(path for path in map(Path, names) if not path.exists())


def view(
    paths: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    *,
    port: int = 0,
    library: str | os.PathLike[str] | None = None,
    cube: str | os.PathLike[str] | None = None,
    ready: Callable[[str, Any], None] | None = None,
    **reading: Any,
) -> None:
    """Show one or two scenes or finished runs to browsers of this machine, until the process is stopped.

    Only this machine is answered (127.0.0.1), and only addresses that begin with a secret, which is made anew each
    time. From another machine, tunnel to the same port: ``ssh -L PORT:127.0.0.1:PORT host``.

    Parameters
    ----------
    paths : path-like, or a sequence of one or two
        Cubes, or the beginnings of runs' outputs' names.
    port : int
        The port; 0 takes one that is free.
    library : path-like
        Where the means of regions are kept, .csv or .sli; it must not exist yet. Default is regions.csv, or
        regions-2.csv and so on.
    cube : path-like, optional
        The scene of a run, if it is no longer where the run found it, or on a server.
    ready : callable, optional
        Called with the address and the Bokeh server when it can be opened, in place of a line in the log.
    **reading
        How cubes are read; see `unmix.ReadOptions`. Of a run it is as the run read it.

    Raises
    ------
    MethodError
        Where Bokeh is missing, this is not the main thread of a program, or a loop of events runs in it, as in a
        notebook; there are more than two sources or they are of other sizes, the library exists, or the port is taken.
    CubeError, OutputError
        Where a source cannot be opened.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not 1 <= len(given) <= 2:
        raise MethodError(f"these are {len(given)} scenes or runs; one is shown, or two beside each other")
    kept = free_name() if library is None else Path(library)
    files_of(kept)  # which refuses other endings
    if kept.exists():
        raise MethodError(f"{kept}: exists already, and means of regions are kept there; name another `library`")
    sources = [Source(located(path), ReadOptions(**reading), cube) for path in given]
    sizes = [(source.lines, source.samples) for source in sources]
    if sizes[0] != sizes[-1]:
        raise MethodError(
            f"{given[0]} has {sizes[0][0]} lines of {sizes[0][1]} samples, {given[1]} {sizes[1][0]} of {sizes[1][1]}"
        )
    try:
        from bokeh.application import Application
        from bokeh.application.handlers.function import FunctionHandler
        from bokeh.server.server import BaseServer
        from bokeh.server.tornado import BokehTornado
        from bokeh.server.util import bind_sockets
        from tornado.httpserver import HTTPServer
        from tornado.ioloop import IOLoop
    except ImportError:
        raise MethodError("the viewer needs Bokeh: pip install 'unmix[view]'") from None
    from .page import KeptSpectra, build_page

    if threading.current_thread() is not threading.main_thread() or asyncio._get_running_loop() is not None:
        raise MethodError("the viewer needs a process of its own; in a notebook start `unmix view` in a terminal")

    # which warns of figures that nothing is drawn in yet
    logging.getLogger("bokeh.core.validation").setLevel(logging.ERROR)
    told = OneLine(logging.WARNING)
    for name in ("bokeh", "tornado"):
        logging.getLogger(name).handlers = [told]
    logging.getLogger("tornado.access").setLevel(logging.ERROR)  # else one for each address that is not there
    secret = secrets.token_urlsafe(SECRET_BYTES)
    regions = KeptSpectra(sources[0], kept)
    application = Application(FunctionHandler(lambda document: build_page(document, sources, regions)))
    try:
        sockets, port = bind_sockets(LOOPBACK, port)
    except OSError as error:
        raise MethodError(f"`port` {port}: cannot be listened on: {error.strerror}") from None
    # A browser looks for localhost at ::1, too, where another user may listen: it is not printed, and its pages open no
    # web sockets.
    place = f"{LOOPBACK}:{port}"
    served = BokehTornado(
        {"/": application},
        prefix=secret,
        use_index=False,
        extra_websocket_origins=[place],
        absolute_url=f"http://{place}",
        websocket_max_message_size_bytes=LARGEST_MESSAGE,
    )
    listener = HTTPServer(served, max_body_size=LARGEST_BODY)
    listener.add_sockets(sockets)
    server = BaseServer(IOLoop.current(), served, listener)
    address = f"http://{place}/{secret}/"
    server.start()
    if ready is None:
        log.warning(f"open {address} in a browser; Ctrl-C ends")
    else:
        ready(address, server)
    before = {
        number: signal.signal(number, lambda *_: server.io_loop.add_callback_from_signal(server.io_loop.stop))
        for number in ENDS
    }
    try:
        server.io_loop.start()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        server.stop()
