"""CUDA graphs: work of a stream that is recorded once and then enqueued with one call.

A block takes six launches and a dozen copies, always the same for a slot. From Python these cost 1.4 ms with the GIL
held, and 10 million pixels are 77 blocks: the threads that read and write waited for it for 0.1 s of 0.27 s.
"""

from collections.abc import Callable
from typing import Any

from .cuda import cuda


class CudaGraph:
    """Record of what ``enqueue`` puts into a stream, not run; it must have run once before, so that it is compiled."""

    def __init__(self, stream: Any, enqueue: Callable[[], None]) -> None:
        from cuda.bindings import driver

        self.driver = driver
        handle = driver.CUstream(int(stream))
        # Python's garbage collector may meet arrays of an earlier run. `defer_cleanup` keeps it from freeing memory of
        # this GPU while recording; it cannot for other GPUs, whose frees are no error in relaxed mode.
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

    def replay(self, stream: Any = None) -> None:
        """Enqueue the recorded work, in the stream that it was recorded in, or in another one of the driver's."""
        self.done(self.driver.cuGraphLaunch(self.graph, self.stream if stream is None else stream))

    def close(self) -> None:
        """Release the graph, which must not be running."""
        self.done(self.driver.cuGraphExecDestroy(self.graph))

    def done(self, answer: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the results of a driver call without its status; RuntimeError where the call failed."""
        status, *values = answer
        if status != self.driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"the CUDA driver failed with {status.name}")
        return tuple(values)
