"""`batch`: unmix many scenes on many machines."""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Protocol

from ...blocks import parse_size
from ...errors import MethodError, UnmixError
from ...io.remote import located
from ...options import Options
from ...runs import unmix_scene
from ...runs.executor import Progress
from .scheduling import WORKER_SECONDS, ClusterLost, Stopping


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
    unit: str | int = "1G",
    patience: float = WORKER_SECONDS,
    watch: ProgressWatcher | None = None,
    command: Sequence[str] | None = None,
    **options: Any,
) -> Iterator[tuple[Path, dict[str, Any] | UnmixError | MemoryError]]:
    """Unmix scenes on the workers of a Dask cluster; outputs are the same bytes as those of `unmix.run`, and resumed like them.

    Parameters
    ----------
    cubes : iterable of path-like
        Scenes, on a file system that all workers see; the outputs must be on one, too.
    scheduler, scheduler_file : str, optional
        The scheduler's address, ``tls://host:8786`` or ``tcp://host:8786``, or the file that it wrote. With neither, workers are
        started on this machine, and nobody else can connect to them.
    tls_ca, tls_cert, tls_key : path-like, optional
        For a scheduler with TLS, in PEM: the authority that signed its certificate, and our own certificate and key. Default
        is Dask's own configuration.
    workers : int, optional
        How many workers to start on this machine; default is one for each GPU, or one.
    dashboard : int, optional
        Show Dask's dashboard of these workers at this port of 127.0.0.1, 0 for any; every user of this machine can open it.
    unit : str or int
        About how many bytes of a scene go to a worker at a time, such as "1G". If a worker dies, no more than that is repeated.
    patience : float
        Seconds to wait for the scheduler's file, for its answer (30 at most), and for a worker when there is none.
    watch : object, optional
        Its ``scene(path)`` returns the ``progress`` callable of that scene, which is called from threads.
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
        Where there is no scheduler or worker, or none is left; finished lines are kept, and the same call continues after them.
    MethodError
        Where options contradict each other, or the TLS files cannot be used.
    """
    try:
        from .connection import Access, connected
        from .executor import MOST_SCENES, ClusterExecutor
    except ImportError:
        raise MethodError("batch needs Dask's scheduler: pip install 'unmix[dask]'") from None
    parsed_options = Options.of(**options)
    if parsed_options.dry_run:
        raise MethodError("dry_run is for `unmix.run`")
    unit_bytes = parse_size(str(unit))
    access = Access(scheduler, scheduler_file, workers, dashboard, tls_ca, tls_cert, tls_key, patience)
    paths = [located(cube) for cube in cubes]
    remaining = iter(paths)
    if not paths:
        return
    with connected(access) as client:
        cluster = ClusterExecutor(client, parsed_options, unit_bytes, patience)
        running: dict[Future[dict[str, Any]], Path] = {}
        with ThreadPoolExecutor(MOST_SCENES, "scene") as pool:
            try:
                while True:
                    while len(running) < cluster.scenes_at_once and (cube := next(remaining, None)) is not None:
                        progress = None if watch is None else watch.scene(cube)
                        running[pool.submit(unmix_scene, cube, parsed_options, cluster, progress, command)] = cube
                    if not running:
                        return
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        cube, error = running.pop(future), future.exception()
                        if isinstance(error, ClusterLost | Stopping):
                            raise error
                        if error is not None and not isinstance(error, UnmixError | MemoryError):
                            raise error
                        yield cube, future.result() if error is None else error
            finally:
                cluster.pool.stop()  # a scene in progress keeps its finished lines, and its thread is waited for
                pool.shutdown(cancel_futures=True)
