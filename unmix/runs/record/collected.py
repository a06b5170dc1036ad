"""Hear what is logged: for a run's record, for the findings of a check, for a command whose scenes other processes unmix."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def heard(hear: Callable[[logging.LogRecord], bool | None]) -> Iterator[None]:
    """Call ``hear`` with each record that is logged meanwhile; it goes on to the handlers of the log where that returns True."""
    log = logging.getLogger("unmix")
    log.addFilter(hear)  # type: ignore[arg-type]
    try:
        yield
    finally:
        log.removeFilter(hear)  # type: ignore[arg-type]


@contextlib.contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Yield a list to which the warnings that this thread logs are appended, each text once."""
    own, messages = threading.get_ident(), list[str]()

    def keep(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if record.levelno >= logging.WARNING and record.thread == own and text not in messages:
            messages.append(text)
        return True

    with heard(keep):
        yield messages
