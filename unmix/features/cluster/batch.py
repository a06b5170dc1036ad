"""`batch`: unmix many scenes on many machines."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from ...errors import MethodError, UnmixError
from ...io.remote import located
from ...options import Options
from ...runs.executor import Progress
from . import WORKER_SECONDS


class ProgressWatcher(Protocol):
    """Gives each scene the callable that is told of its progress, or None."""

    def scene(self, path: Path) -> Progress | None: ...


def batch(
    cubes: Iterable[str | os.PathLike[str]],
    *,
    scheduler: str | None = None,
    scheduler_file: str | None = None,
    tls_ca: str | os.PathLike[str] | None = None,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    dashboard: int | None = None,
    patience: float = WORKER_SECONDS,
    watch: ProgressWatcher | None = None,
    command: Sequence[str] | None = None,
    **options: Any,
) -> Iterator[tuple[Path, dict[str, Any] | UnmixError | MemoryError]]:
    """Unmix scenes on the workers of a Dask cluster; outputs are the same bytes as those of `unmix.run`.

    An interrupted batch is resumed as an interrupted run is.

    Parameters
    ----------
    cubes : iterable of path-like
        Scenes, on a file system that all workers see; the outputs must be on one, too.
    scheduler, scheduler_file : str, optional
        The scheduler's address, ``tls://host:8786`` or ``tcp://host:8786``, or the file that it wrote. With neither,
        workers are started on this machine, and nobody else can connect to them.
    tls_ca, tls_cert, tls_key : path-like, optional
        For a scheduler with TLS, in PEM: the authority that signed its certificate, and our own certificate and key.
        Default is Dask's own configuration.
    workers : int, optional
        How many workers to start on this machine; default is one for each GPU, or one.
    dashboard : int, optional
        Show Dask's dashboard of these workers at this port of 127.0.0.1, 0 for any; every user of this machine can open
        it.
    patience : float
        Seconds to wait for the scheduler's file, for its answer (30 at most), and for a worker when there is none.
    watch : object, optional
        Its ``scene(path)`` returns the ``progress`` callable of that scene, which is called from a thread.
    command : sequence of str, optional
        The command line, for ``run.json``.
    **options
        As for `unmix.run`; memory, threads and streams are each worker's.

    Yields
    ------
    cube : Path
    result : dict, UnmixError or MemoryError
        The result of `unmix.run`, or the error of a scene that failed; in the order in which the scenes end.

    Raises
    ------
    DeviceError
        Where there is no scheduler or worker, or none is left; finished lines are kept, and the same call continues
        after them.
    MethodError
        Where options contradict each other, or the TLS files cannot be used.
    """
    try:
        from .connection import Access, connected
        from .scheduling import spread_scenes
    except ImportError:
        raise MethodError("batch needs Dask's scheduler: pip install 'unmix[dask]'") from None
    chosen = Options.of(**options)
    if chosen.dry_run:
        raise MethodError("dry_run is for `unmix.run`")
    access = Access(scheduler, scheduler_file, workers, dashboard, tls_ca, tls_cert, tls_key, patience)
    paths = [located(cube) for cube in cubes]
    if paths:
        with connected(access) as client:
            yield from spread_scenes(client, paths, chosen, patience, watch, command)
