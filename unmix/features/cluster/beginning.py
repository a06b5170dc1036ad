"""Set up the scheduler and the workers of a cluster on this machine; Dask imports this module and calls `dask_setup` in each."""

import signal
from typing import Any

from distributed import Worker


def dask_setup(node: Any) -> None:
    """Stop the HTTP server of a scheduler or worker, so that it listens for TLS alone, and let a worker ignore Ctrl-C.

    A terminal sends Ctrl-C to every process of the command. Workers, and those that replace a dead one, end when the
    main process tells them to.
    """
    node.http_server.stop()  # every user of this machine could open its pages
    node.services.pop("dashboard", None)
    if isinstance(node, Worker):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
