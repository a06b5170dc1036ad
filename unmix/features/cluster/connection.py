"""Connect to a Dask cluster: one started on this machine that nobody else can connect to, or one that a site runs.

Whoever can connect to a Dask scheduler or worker can run programs there, because all its messages are pickles. So a
cluster that we start uses TLS with keys that nobody else has, and listens on the loopback interface alone.
"""

import contextlib
import json
import logging
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future as ThreadFuture
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import dask
from distributed import Client, LocalCluster, Security

from ...blocks import cores
from ...devices import count_gpus
from ...errors import DeviceError, MethodError, brief
from ...io import read_plain
from ...outputs.atomic import signals_held
from . import WORKER_SECONDS

log = logging.getLogger("unmix")
# Seconds that a scheduler may take to answer the first time, and between two looks at it.
CONNECTING, LOOK = 30.0, 0.5
Value = TypeVar("Value")
LOOPBACKS = (LOOPBACK := "127.0.0.1", "::1", "localhost")
# Dask imports this module by its name in the scheduler and the workers of a cluster on this machine. It is not given as
# the text of a script, which Dask writes to a temporary file that it closes, removes and makes again: other users could
# replace it.
PRELOAD = "unmix.features.cluster.beginning"
SECURE = ("tls", "wss")
TLS_OPTIONS = "`tls_ca`, `tls_cert` and `tls_key`"


@dataclass(frozen=True)
class Access:
    """Which cluster to use, and how to connect to it.

    Attributes
    ----------
    scheduler, scheduler_file : str or None
        The address of a scheduler, or the file that it wrote; with neither, workers are started on this machine.
    workers : int or None
        How many workers to start on this machine.
    dashboard : int or None
        The port of their dashboard, on the loopback interface; 0 is any free one, None no dashboard.
    tls_ca, tls_cert, tls_key : path-like or None
        Files in PEM for a scheduler at a ``tls://`` address: the authority that signed its certificate, and our own
        certificate and key. With None, the files that Dask's own configuration names.
    patience : float
        Seconds to wait for a scheduler's file, and for its answer (`CONNECTING` at most).
    """

    scheduler: str | None = None
    scheduler_file: str | None = None
    workers: int | None = None
    dashboard: int | None = None
    tls_ca: Any = None
    tls_cert: Any = None
    tls_key: Any = None
    patience: float = WORKER_SECONDS

    @property
    def is_own(self) -> bool:
        """Return whether we start the cluster ourselves, on this machine."""
        return self.scheduler is None and self.scheduler_file is None

    @property
    def tls_files(self) -> dict[str, Path]:
        """Return the files of the TLS options that were given, by option."""
        given = {"`tls_ca`": self.tls_ca, "`tls_cert`": self.tls_cert, "`tls_key`": self.tls_key}
        return {option: Path(file) for option, file in given.items() if file is not None}

    def check(self) -> None:
        """Raise `MethodError` where options contradict each other."""
        for is_wrong, message in (
            (
                self.scheduler and self.scheduler_file,
                "`scheduler` and `scheduler_file` name two clusters; give one of them",
            ),
            (self.workers and not self.is_own, "`workers` is for workers on this machine; a cluster has its own"),
            (
                self.dashboard is not None and not self.is_own,
                "`dashboard` is for workers on this machine; a cluster has its own",
            ),
            (
                self.tls_files and self.is_own,
                f"{TLS_OPTIONS} are for `scheduler`; workers on this machine have their own",
            ),
            (len(self.tls_files) in (1, 2), f"{TLS_OPTIONS} go together; give all three"),
        ):
            if is_wrong:
                raise MethodError(message)


@contextlib.contextmanager
def connected(access: Access) -> Iterator[Client]:
    """Yield a client of the scheduler, or of a cluster that is started on this machine and stopped at the end."""
    access.check()
    with contextlib.ExitStack() as stack:
        if access.is_own:
            client = Client(start_local_cluster(access, stack))
        else:
            address = access.scheduler
            if address is None:
                address = wait_for_address(Path(str(access.scheduler_file)), access.patience)
            address, security = resolve_security(address, access)
            seconds = min(CONNECTING, max(access.patience, LOOK))
            try:
                client = in_time(seconds + LOOK, lambda: Client(address, timeout=seconds, security=security))
            except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
                why = brief(error) if str(error) else f"not within {seconds:g} s"
                raise DeviceError(f"{address or repr(address)}: no scheduler answers: {why}") from None
            warn_without_tls(address)
        yield stack.enter_context(client)


def in_time(seconds: float, call: Callable[[], Value]) -> Value:
    """Return the result of a call in a thread of its own; raise `TimeoutError` after ``seconds``."""
    future: ThreadFuture[Value] = ThreadFuture()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    # Dask waits for ever for a server that accepts a connection and never answers.
    threading.Thread(target=work, name="ask Dask", daemon=True).start()
    return future.result(timeout=seconds)


def start_local_cluster(access: Access, stack: contextlib.ExitStack) -> LocalCluster:
    """Start a scheduler and workers on this machine, with TLS and keys of their own; ``stack`` stops them."""
    try:
        security = Security.temporary()
    except ImportError:
        raise MethodError(
            "batch without `scheduler` makes keys for its workers, which needs cryptography: pip install 'unmix[dask]'"
        ) from None
    count = access.workers or count_gpus() or 1
    # Workers keep files here: the folder that Dask would use is shared by all users.
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="unmix-batch-", ignore_cleanup_errors=True))
    scheduler_options: dict[str, Any] = {"dashboard_address": f"{LOOPBACK}:{access.dashboard or 0}"}
    # Only the dashboard is without TLS, on the loopback interface. Without it nothing listens for HTTP or takes
    # profiles: before Python 3.11.9 a thread that ends while one is taken may stop the worker for ever.
    if access.dashboard is None:
        scheduler_options |= {"dashboard": False, "preload": [PRELOAD]}
    # Processes that start meanwhile, and their replacements, are children of threads that begin here and have this
    # thread's mask: one that dies of Ctrl-C while it starts prints pages of tracebacks.
    held = signals_held(signal.SIGINT)
    with held, dask.config.set({"distributed.worker.profile.enabled": access.dashboard is not None}):
        local = LocalCluster(
            n_workers=count,
            threads_per_worker=max(1, cores() // count),
            memory_limit=0,
            local_directory=folder,
            silence_logs=logging.CRITICAL,
            security=security,
            protocol="tls://",
            host=LOOPBACK,
            dashboard_address=scheduler_options["dashboard_address"],
            scheduler_kwargs=scheduler_options,
            preload=[PRELOAD],
        )
    return stack.enter_context(local)


def resolve_security(address: str, access: Access) -> tuple[str, Security]:
    """Return the address with its protocol, and its certificates: from our options, else from Dask's configuration."""
    files = access.tls_files
    if "://" not in address:
        address = f"{'tls' if files else dask.config.get('distributed.comm.default-scheme')}://{address}"
    secure = address.partition("://")[0] in SECURE
    if files and not secure:
        raise MethodError(f"{address}: takes no certificates; {TLS_OPTIONS} are for tls:// addresses")
    for option, file in files.items():
        check_tls_file(option, file)
    tls_settings = dict(zip(("tls_ca_file", "tls_client_cert", "tls_client_key"), map(str, files.values())))
    try:
        security = Security(**tls_settings)
        context = security.get_connection_args("client")["ssl_context"]
    except (OSError, ValueError) as error:
        source = ", ".join(map(str, files.values())) or "Dask's configuration (distributed.comm.tls)"
        raise MethodError(f"{source}: cannot be used for TLS: {brief(error)}") from None
    if secure and context is None:
        raise MethodError(
            f"{address}: needs certificates; give {TLS_OPTIONS}, or name them in Dask's configuration "
            "(distributed.comm.tls)"
        )
    return address, security


def check_tls_file(option: str, file: Path) -> None:
    """Raise `MethodError` where a file of certificates cannot be read or is encrypted."""
    try:
        content = read_plain(file)
    except OSError as error:
        raise MethodError(f"{option} {file}: cannot be read: {error.strerror}") from None
    # OpenSSL would ask for the pass phrase, without a terminal.
    if b"ENCRYPTED" in content:
        raise MethodError(
            f"{option} {file}: has a pass phrase, which unmix does not ask for; write the key without one"
        )


def warn_without_tls(address: str) -> None:
    """Log a warning where a scheduler without TLS can be reached from other machines."""
    if address.partition("://")[0] not in SECURE and urlsplit(address).hostname not in LOOPBACKS:
        log.warning(
            f"{address}: anyone who can reach this scheduler can run programs as you, on its workers and here; unless "
            "you trust "
            f"everybody on this network, start it with TLS, and give its tls:// address and {TLS_OPTIONS}"
        )


def wait_for_address(file: Path, patience: float) -> str:
    """Return the address that a scheduler writes to a file; raise `DeviceError` after ``patience`` seconds."""
    # Our job may start before the scheduler's.
    deadline = time.monotonic() + patience
    while True:
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            return str(json.loads(read_plain(file))["address"])
        if time.monotonic() > deadline:
            raise DeviceError(f"{file}: no scheduler wrote its address there within {patience:.0f} s")
        time.sleep(LOOK)
