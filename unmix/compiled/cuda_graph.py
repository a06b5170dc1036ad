"""Work of a GPU's stream that was enqueued once, and is enqueued again with one call: a CUDA graph.

A block takes six launches and a dozen copies, always the same for a slot. From Python these cost 1.4 ms, with its lock
held, and 10 million pixels are 77 blocks: the threads that read and write waited 0.1 s of 0.27 for it.
"""

from collections.abc import Callable
from typing import Any

from .cuda import cuda


class CudaGraph:
    """What ``enqueue`` puts into a stream, recorded without being done; it must have been run once before, to be compiled."""

    def __init__(self, stream: Any, enqueue: Callable[[], None]) -> None:
        from cuda.bindings import driver

        self.driver = driver
        handle = driver.CUstream(int(stream))
        # Python's garbage may hold what an earlier run had: of this GPU's memory nothing is freed meanwhile, and freeing that of
        # another, which cannot be put off from here, is no error.
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        with cuda.defer_cleanup():
            self.done(driver.cuStreamBeginCapture(handle, mode))
            try:
                enqueue()
            except BaseException:
                driver.cuStreamEndCapture(handle)
                raise
            (graph,) = self.done(driver.cuStreamEndCapture(handle))
        (self.graph,) = self.done(driver.cuGraphInstantiate(graph, 0))
        self.done(driver.cuGraphDestroy(graph))
        self.stream = handle

    def replay(self) -> None:
        """Enqueue it again."""
        self.done(self.driver.cuGraphLaunch(self.graph, self.stream))

    def close(self) -> None:
        """Let go of it; nothing of it may be under way."""
        self.done(self.driver.cuGraphExecDestroy(self.graph))

    def done(self, answer: tuple[Any, ...]) -> tuple[Any, ...]:
        """The answer of the driver, without its status.

        Raises
        ------
        RuntimeError
            Where it failed; with the driver's name for why.
        """
        status, *values = answer
        if status != self.driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"the CUDA driver says {status.name}")
        return tuple(values)
