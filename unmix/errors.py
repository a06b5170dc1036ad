"""Every error that a user can cause or meet: one line that says what, where and what to do."""


def printable(text: str) -> str:
    """Return the same text as one line that shows what is in it: ``\\x1b`` where an escape stands.

    Headers, libraries and names of files may hold anything: line breaks, control characters that a terminal obeys, marks that turn
    the direction of writing, halves of characters that cannot be encoded.
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


class UnmixError(Exception):
    """Base of all errors raised on purpose, of one line; ``exit_code`` is what the command line returns."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class OutputError(UnmixError):
    """An output exists already, cannot be written, or the disk is too small (exit 1)."""


class MethodError(UnmixError):
    """Options that are unknown, unfit, or do not go together (exit 2)."""

    exit_code = 2


class InputError(UnmixError):
    """An input file or array cannot be used (exit 3)."""

    exit_code = 3


class CubeError(InputError):
    """The cube is unreadable, truncated, mismatched or unusable (exit 3)."""


class LibraryError(InputError):
    """The endmembers are unreadable, do not fit the cube, or are collinear (exit 3)."""


class DeviceError(UnmixError):
    """The device asked for is not there, or failed (exit 5)."""

    exit_code = 5
