"""Every error that a user can cause or meet: one line that says what, where and what to do."""

# What would make two lines of one, by what is shown in its place: a damaged header may put it anywhere.
LINE_BREAKS = {ord(char): repr(char)[1:-1] for char in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"}


class UnmixError(Exception):
    """Base of all errors raised on purpose, of one line; ``exit_code`` is what the command line returns."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(message.translate(LINE_BREAKS))


class OutputError(UnmixError):
    """An output exists already, cannot be written, or the disk is too small (exit 1)."""


class MethodError(UnmixError):
    """Options that are unknown, unfit, or do not go together (exit 2)."""

    exit_code = 2


class CubeError(UnmixError):
    """The cube is unreadable, truncated, mismatched or unusable (exit 3)."""

    exit_code = 3


class LibraryError(UnmixError):
    """The endmembers are unreadable, do not fit the cube, or are collinear (exit 3)."""

    exit_code = 3


class DeviceError(UnmixError):
    """The device asked for is not there, or failed (exit 5)."""

    exit_code = 5
