"""Write a library as CSV or as an ENVI pair, all or nothing."""

import logging
from pathlib import Path

from ..errors import MethodError, UnmixError
from ..io.opening import read_plain
from ..library import Endmembers, load
from .atomic import named_together
from .names import Inputs, refuse_headers_of_others, refuse_inputs

log = logging.getLogger("unmix")
# The endings of a library's name, and those of its files.
ENDINGS = {".csv": (".csv",), ".sli": (".sli", ".hdr"), ".lib": (".lib", ".hdr"), ".hdr": (".sli", ".hdr")}


def is_own_table(path: Path) -> bool:
    """Return whether a file is a library in CSV by unmix: read and written again, it has the same bytes."""
    if path.suffix.lower() != ".csv":
        return False
    try:
        return load(path).as_csv().encode() == read_plain(path)
    except (OSError, UnmixError):
        return False


def files_of(out: Path) -> list[Path]:
    """Return the files of a library of that name; `MethodError` where it has another ending."""
    if out.suffix.lower() not in ENDINGS:
        raise MethodError(f"{out}: libraries are written as .csv, .sli, .lib or .hdr; use one of these endings")
    return [out.with_suffix(ending) for ending in ENDINGS[out.suffix.lower()]]


def write_library(endmembers: Endmembers, out: Path, overwrite: bool, inputs: Inputs) -> list[Path]:
    """Write a library as CSV or as an ENVI pair, by the ending of ``out``, all or nothing; return the paths."""
    finals = files_of(out)
    refuse_inputs(finals, inputs)
    refuse_headers_of_others(finals)
    if endmembers.fwhm is not None and out.suffix.lower() == ".csv":
        log.warning(
            f"{out}: CSV holds no FWHM, so resampling this library will give other spectra; write .sli to keep the FWHM"
        )
    with named_together(finals, overwrite, "another name", is_own_table) as parts:
        if len(parts) == 1:
            endmembers.write(parts[0], None, None)
        else:
            endmembers.write(None, *parts)
    return finals
