"""`batch`: many scenes over many machines."""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Protocol

from ...blocks import parse_size
from ...errors import MethodError, UnmixError
from ...options import Options
from ..executor import Progress
from ..run import unmix_scene
from .scheduling import PATIENCE, ClusterLost, Stopping


class Watch(Protocol):
    """Who wants to know how far each scene is."""

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
    patience: float = PATIENCE,
    watch: Watch | None = None,
    command: Sequence[str] | None = None,
    **options: Any,
) -> Iterator[tuple[Path, dict[str, Any] | UnmixError | MemoryError]]:
    """Unmix scenes over the workers of a Dask cluster; the same bytes as `unmix.run`, and resumed like it.

    Parameters
    ----------
    cubes : iterable of path-like
        Scenes, on a file system that all workers see; so must the outputs' be.
    scheduler, scheduler_file : str, optional
        The scheduler's address, ``tls://host:8786`` or ``tcp://host:8786``, or the file that it wrote. With neither, workers are
        started on this machine, which nobody else can talk to.
    tls_ca, tls_cert, tls_key : path-like, optional
        For a scheduler with TLS, in PEM: who signed its certificate, and the certificate and key of ours. Default is what
        Dask's own configuration names.
    workers : int, optional
        How many workers to start on this machine; default is one a GPU, or one.
    dashboard : int, optional
        Show Dask's dashboard of these at this port of 127.0.0.1, 0 for any; every user of this machine can look at it.
    unit : str or int
        About so many bytes of a scene go to a worker at a time, such as "1G". A worker that dies costs no more.
    patience : float
        Seconds to wait for a scheduler's file, for its answer (30 at most), and for a worker when there is none.
    watch : object, optional
        Its ``scene(path)`` gives the ``progress`` of that scene; called from threads.
    command : sequence of str, optional
        The command line, for ``run.json``.
    **options
        As for `unmix.run`; memory, threads and streams are each worker's.

    Yields
    ------
    cube : Path
    result : dict or UnmixError
        What `unmix.run` returns, or why the scene failed; in the order in which they end.

    Raises
    ------
    DeviceError
        Where there is no scheduler or worker, or none any more; what is done is kept, and the same call goes on.
    MethodError
        Where options do not go together, or the files of TLS do not serve.
    """
    try:
        from .connection import Access, connected
        from .executor import MOST_SCENES, ClusterExecutor
    except ImportError:
        raise MethodError("batch needs Dask's scheduler: pip install 'unmix[dask]'") from None
    chosen = Options.of(**options)
    if chosen.dry_run:
        raise MethodError("dry_run is for `unmix.run`")
    size = parse_size(str(unit))
    access = Access(scheduler, scheduler_file, workers, dashboard, tls_ca, tls_cert, tls_key, patience)
    paths = [Path(cube) for cube in cubes]
    todo = iter(paths)
    if not paths:
        return
    with connected(access) as client:
        cluster = ClusterExecutor(client, chosen, size, patience)
        running: dict[Future[dict[str, Any]], Path] = {}
        with ThreadPoolExecutor(MOST_SCENES, "scene") as pool:
            try:
                while True:
                    while len(running) < cluster.scenes_at_once and (cube := next(todo, None)) is not None:
                        progress = None if watch is None else watch.scene(cube)
                        running[pool.submit(unmix_scene, cube, chosen, cluster, progress, command)] = cube
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
                cluster.pool.stop()  # who is under way keeps what is done, and is waited for
                pool.shutdown(cancel_futures=True)
