"""Tell ENVI libraries from cubes, which have the same form, without the readers of libraries."""

from pathlib import Path

from ..errors import CubeError
from ..io import header_beside
from ..io.formats.header import read_header


def is_envi_library(path: Path) -> bool:
    """Return whether a path is one of the two files of an ENVI library."""
    try:
        header = path if path.suffix.lower() == ".hdr" else header_beside(path)
        return header is not None and "library" in read_header(header).get("file type", "").lower()
    except (OSError, CubeError):
        return False
