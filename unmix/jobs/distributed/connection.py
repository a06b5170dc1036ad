"""The way to a Dask cluster: one on this machine that nobody else can enter, or one that a site runs.

Whoever may talk to a Dask scheduler or worker may run programs there: all that goes over its connections are pickles. So a cluster
of our own has TLS with keys that nobody else has, and listens on the loopback interface alone.
"""

import contextlib
import ipaddress
import json
import logging
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future as Answer
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dask
from distributed import Client, LocalCluster, Security

from ...blocks import cores
from ...devices import count_gpus
from ...errors import DeviceError, MethodError
from ...io.read import brief
from .scheduling import LOOK, PATIENCE

log = logging.getLogger("unmix")
CONNECTING = 30.0  # how long a scheduler may take to answer the first time, in seconds
LOOPBACK = "127.0.0.1"
# Imported by Dask in the scheduler and the workers of a cluster on this machine, by its name: the text of a script would go through
# a file in the temporary folder that is closed, removed and made again, which others may use.
BEGINNING = "unmix.jobs.distributed.beginning"
SECURE = ("tls", "wss")
TLS_OPTIONS = "`tls_ca`, `tls_cert` and `tls_key`"


@dataclass(frozen=True)
class Access:
    """Which cluster, and how to come to it.

    Attributes
    ----------
    scheduler, scheduler_file : str or None
        The address of a scheduler, or the file that it wrote; with neither, workers are started on this machine.
    workers : int or None
        How many of these.
    dashboard : int or None
        The port of their dashboard, on the loopback interface; 0 is any free one, None no dashboard.
    tls_ca, tls_cert, tls_key : path-like or None
        Files in PEM for a scheduler at a ``tls://`` address: who signed its certificate, and our own certificate and key.
        With None, what Dask's own configuration says.
    patience : float
        Seconds to wait for a scheduler's file.
    """

    scheduler: str | None = None
    scheduler_file: str | None = None
    workers: int | None = None
    dashboard: int | None = None
    tls_ca: Any = None
    tls_cert: Any = None
    tls_key: Any = None
    patience: float = PATIENCE

    @property
    def is_own(self) -> bool:
        """Whether the cluster is started by us, on this machine."""
        return self.scheduler is None and self.scheduler_file is None

    @property
    def tls_files(self) -> dict[str, Path]:
        """The files of the TLS options that were given, by option."""
        given = {"`tls_ca`": self.tls_ca, "`tls_cert`": self.tls_cert, "`tls_key`": self.tls_key}
        return {option: Path(file) for option, file in given.items() if file is not None}

    def check(self) -> None:
        """Raise `MethodError` where options do not go together."""
        for wrong, message in (
            (self.scheduler and self.scheduler_file, "`scheduler` and `scheduler_file` name two clusters"),
            (self.workers and not self.is_own, "`workers` is for workers on this machine; a cluster has its own"),
            (
                self.dashboard is not None and not self.is_own,
                "`dashboard` is for workers on this machine; a cluster has its own",
            ),
            (self.tls_files and self.is_own, f"{TLS_OPTIONS} are for `scheduler`; workers on this machine have their own"),
            (len(self.tls_files) in (1, 2), f"{TLS_OPTIONS} go together; give all three"),
        ):  # fmt: skip
            if wrong:
                raise MethodError(message)


@contextlib.contextmanager
def connected(access: Access) -> Iterator[Client]:
    """A client of a scheduler, or of a cluster on this machine, a worker a GPU, which ends with it.

    Raises
    ------
    DeviceError
        Where the scheduler does not answer.
    MethodError
        Where options do not go together, or the files of TLS are missing or do not serve.
    """
    access.check()
    with contextlib.ExitStack() as stack:
        if access.is_own:
            client = Client(own_cluster(access, stack))
        else:
            address = access.scheduler
            if address is None:
                address = address_in(Path(str(access.scheduler_file)), access.patience)
            address, security = secured(address, access)
            client = client_of(address, security, min(CONNECTING, max(access.patience, LOOK)))
            warn_of_plain(address)
        stack.callback(quietly, client.close)
        yield client


def client_of(address: str, security: Security, seconds: float) -> Client:
    """Connect to a scheduler, in a thread of its own: Dask waits for ever for one that takes the call and never says a word.

    Raises
    ------
    DeviceError
        Where none answers within so many seconds.
    """
    found: Answer[Client] = Answer()

    def connect() -> None:
        try:
            found.set_result(Client(address, timeout=seconds, security=security))
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=connect, name="connect", daemon=True).start()
    try:
        return found.result(timeout=seconds + LOOK)
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        why = brief(error) if str(error) else f"not within {seconds:g} s"
        raise DeviceError(f"{address or repr(address)}: no scheduler answers: {why}") from None


def own_cluster(access: Access, stack: contextlib.ExitStack) -> LocalCluster:
    """Start a scheduler and workers on this machine, with TLS and keys of their own; ``stack`` ends them.

    Only the dashboard is no TLS: it listens on the loopback interface, and where it was not asked for nothing listens for HTTP.
    """
    try:
        security = Security.temporary()
    except ImportError:
        raise MethodError(
            "batch without `scheduler` makes keys for its workers, which needs cryptography: pip install 'unmix[dask]'"
        ) from None
    count = access.workers or count_gpus() or 1
    # Workers keep files here: the folder that Dask would take is shared by all users.
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="unmix-batch-", ignore_cleanup_errors=True))
    own: dict[str, Any] = {"dashboard_address": f"{LOOPBACK}:{access.dashboard or 0}"}
    if access.dashboard is None:
        own |= {"dashboard": False, "preload": [BEGINNING]}
    with deaf():
        local = LocalCluster(
            n_workers=count, threads_per_worker=max(1, cores() // count), memory_limit=0, local_directory=folder,
            silence_logs=logging.CRITICAL, security=security, protocol="tls://", host=LOOPBACK,
            dashboard_address=own["dashboard_address"], scheduler_kwargs=own, preload=[BEGINNING],
        )  # fmt: skip
    stack.callback(quietly, local.close)
    return local


def secured(address: str, access: Access) -> tuple[str, Security]:
    """The address with its protocol, and the certificates for it: of our options, else of Dask's configuration.

    Raises
    ------
    MethodError
        Where the address wants certificates and there are none, or it takes none, or they do not serve.
    """
    files = access.tls_files
    if "://" not in address:
        address = f"{'tls' if files else dask.config.get('distributed.comm.default-scheme')}://{address}"
    secure = address.partition("://")[0] in SECURE
    if files and not secure:
        raise MethodError(f"{address}: takes no certificates; {TLS_OPTIONS} are for tls:// addresses")
    for option, file in files.items():
        check_tls_file(option, file)
    own = dict(zip(("tls_ca_file", "tls_client_cert", "tls_client_key"), map(str, files.values())))
    try:
        security = Security(**own)
        context = security.get_connection_args("client")["ssl_context"]
    except (OSError, ValueError) as error:
        where = ", ".join(map(str, files.values())) or "Dask's configuration (distributed.comm.tls)"
        raise MethodError(f"{where}: do not serve for TLS: {brief(error)}") from None
    if secure and context is None:
        raise MethodError(
            f"{address}: wants certificates; give {TLS_OPTIONS}, or name them in Dask's configuration (distributed.comm.tls)"
        )
    return address, security


def check_tls_file(option: str, file: Path) -> None:
    """Raise `MethodError` where a file cannot be read, or would be asked a pass phrase for, on a terminal that is not there."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise MethodError(f"{option} {file}: cannot be read: {error.strerror}") from None
    if b"ENCRYPTED" in content:
        raise MethodError(
            f"{option} {file}: has a pass phrase, which nobody could be asked for; write the key without one"
        )


def warn_of_plain(address: str) -> None:
    """Say that a scheduler without TLS serves whoever reaches it, unless only this machine does."""
    if address.partition("://")[0] not in SECURE and not is_on_loopback(address):
        log.warning(
            f"{address}: who reaches this scheduler can run programs as you, on its workers and here; start it with TLS, and give "
            f"tls:// and {TLS_OPTIONS}, where not everybody on this network is trusted"
        )


def is_on_loopback(address: str) -> bool:
    """Whether a host's address can be reached from that host alone."""
    try:
        found = socket.getaddrinfo(urlsplit(address).hostname, None)
        return all(ipaddress.ip_address(str(one[4][0]).partition("%")[0]).is_loopback for one in found)
    except (OSError, ValueError):
        return False


def dashboard_of(client: Client) -> str:
    """The address of the dashboard; empty where there is none."""
    try:
        return client.dashboard_link or ""
    except (KeyError, ValueError):  # its scheduler names none
        return ""


@contextlib.contextmanager
def deaf() -> Iterator[None]:
    """Ctrl-C is not heard, nor by processes that begin meanwhile: one that dies as it begins leaves pages of tracebacks."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def address_in(file: Path, patience: float) -> str:
    """The address that a scheduler wrote to a file; a job's may be there before it is."""
    until = time.monotonic() + patience
    while True:
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            return str(json.loads(file.read_text())["address"])
        if time.monotonic() > until:
            raise DeviceError(f"{file}: no scheduler wrote its address there within {patience:.0f} s")
        time.sleep(LOOK)


def quietly(call: Callable[[], Any]) -> None:
    """What goes wrong at the end is nobody's business."""
    with contextlib.suppress(Exception):
        call()
