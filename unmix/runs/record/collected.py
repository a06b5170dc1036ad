"""Collect the warnings of a run for its record."""

import contextlib
import logging
import threading
from collections.abc import Iterator


class Collector(logging.Handler):
    """A log handler that keeps the warnings of one thread, each text once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.thread, self.messages = threading.get_ident(), list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message of a warning."""
        if record.thread == self.thread and record.getMessage() not in self.messages:
            self.messages.append(record.getMessage())


@contextlib.contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Yield a list to which the warnings that this thread logs are appended."""
    log, collector = logging.getLogger("unmix"), Collector()
    log.addHandler(collector)
    try:
        yield collector.messages
    finally:
        log.removeHandler(collector)
