"""The errors that unmix raises on purpose, each message one line: the fault, the file, what to do; and text."""

import functools
import logging
import re
from collections.abc import Sequence

log = logging.getLogger("unmix")


@functools.cache
def say_once(said: str, level: int = logging.INFO) -> None:
    """Log a text once a process: the same may be true of thousands of scenes in an archive."""
    log.log(level, said)


def printable(text: str) -> str:
    r"""Return a text as one printable line, with unprintable characters as escapes such as ``\x1b``."""
    # Names may hold line breaks, control characters for terminals, marks that reverse the writing, and lone surrogates.
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def brief(error: BaseException | str) -> str:
    """Return an error's message, or a name, as one line of at most 160 characters."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= 160 else words[:160] + " …"


class UnmixError(Exception):
    """Base class of all errors raised on purpose; ``exit_code`` is what the command line returns."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class OutputError(UnmixError):
    """An output exists already or cannot be written, or the disk is too small (exit code 1)."""


class StepError(OutputError):
    """A value does not fit the steps in which its map is stored; no later line of the run can change that."""


class MethodError(UnmixError):
    """An option is unknown, has an invalid value, or contradicts another one (exit code 2)."""

    exit_code = 2


class InputError(UnmixError):
    """An input file or array cannot be used (exit code 3)."""

    exit_code = 3


class CubeError(InputError):
    """The cube is unreadable, truncated, mismatched or unusable."""


class LibraryError(InputError):
    """The endmembers are unreadable, do not fit the cube, or are collinear."""


class DeviceError(UnmixError):
    """The requested device is not available, or it failed (exit code 5)."""

    exit_code = 5


def aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Return the rows of a table as lines; the first ``left`` columns are flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(
            cell.ljust(width) if k < left else cell.rjust(width) for k, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


# A parameter as messages of the package name it.
PARAMETER = re.compile("`([a-z][a-z0-9_]*)`")


def as_options(text: str) -> str:
    """Replace parameters in messages of the package, such as `` `max_delta` ``, by their options, ``--max-delta``."""
    return PARAMETER.sub(lambda name: "--" + name[1].replace("_", "-"), text)
