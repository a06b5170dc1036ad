"""Every error that a user can cause or meet: one line that says what, where and what to do."""


class UnmixError(Exception):
    """Base of all errors raised on purpose; ``exit_code`` is what the command line returns."""

    exit_code = 1


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
