"""Set up the scheduler and workers of a cluster on this machine; Dask calls `dask_setup` in each of them."""

import signal
from typing import Any

from distributed import Worker


def dask_setup(node: Any) -> None:
    """Stop the HTTP server of a scheduler or worker, so that it listens for TLS alone; let a worker ignore Ctrl-C."""
    node.http_server.stop()  # every user of this machine could open its pages
    node.services.pop("dashboard", None)
    # A terminal sends Ctrl-C to every process of the command; the main process tells workers when to end.
    if isinstance(node, Worker):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
