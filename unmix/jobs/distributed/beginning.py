"""How the scheduler and the workers of a cluster on this machine begin; Dask imports this and calls `dask_setup` in each."""

import signal
from typing import Any

from distributed import Worker


def dask_setup(node: Any) -> None:
    """Let a scheduler or worker listen for nothing but TLS, and a worker not hear Ctrl-C.

    A terminal sends Ctrl-C to all of us, and a worker ends when we say so; so do those that follow one that died.
    """
    node.http_server.stop()  # its pages would be open to every user of this machine
    node.services.pop("dashboard", None)
    if isinstance(node, Worker):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
