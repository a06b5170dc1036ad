"""Write endmembers and libraries as CSV and ENVI files, all or none."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import MethodError, OutputError
from ..io.identity import Watch
from ..io.read import brief
from ..library import Endmembers
from .atomic import named_together, signals_held
from .names import LIBRARY, RECORD, Inputs, inputs_of, of_a_run, refuse_headers_of_others, refuse_inputs, with_parts
from .run_files.output_set import Outputs

log = logging.getLogger("unmix")


def write_library(endmembers: Endmembers, out: Path, overwrite: bool, inputs: Inputs) -> list[Path]:
    """Write a library as CSV (``out`` ends in .csv) or as an ENVI pair (.sli, .lib or .hdr), all or nothing; return the paths.

    ``inputs`` are the files that it is made from.

    Raises
    ------
    MethodError
        Where ``out`` has another ending, or an input or the header of other data would be replaced.
    OutputError
        Where a file exists and may not be replaced, or cannot be written.
    """
    endings = {".csv": (".csv",), ".sli": (".sli", ".hdr"), ".lib": (".lib", ".hdr"), ".hdr": (".sli", ".hdr")}
    if out.suffix.lower() not in endings:
        raise MethodError(f"{out}: libraries are written as .csv, .sli, .lib or .hdr; use one of these endings")
    finals = [out.with_suffix(ending) for ending in endings[out.suffix.lower()]]
    refuse_inputs(with_parts(finals), inputs)
    refuse_headers_of_others(finals)
    if endmembers.fwhm is not None and out.suffix.lower() == ".csv":
        log.warning(
            f"{out}: CSV holds no FWHM, so resampling this library will give other spectra; write .sli to keep the FWHM"
        )
    with named_together(finals, overwrite, out, "`overwrite`") as parts:
        if len(parts) == 1:
            endmembers.write(parts[0], None, None)
        else:
            endmembers.write(None, *parts)
    return finals


def save_library(
    endmembers: Endmembers, folder: Path, stem: str, overwrite: bool, watches: Sequence[Watch] = ()
) -> list[Path]:
    """Write ``STEM_endmembers.csv``, ``.sli`` and ``.hdr``, all or none; return their paths.

    Parameters
    ----------
    endmembers : Endmembers
    folder : Path
    stem : str
        The scene's name.
    overwrite : bool
        Replace files that exist.
    watches : sequence of Watch
        They watch the scenes that the endmembers are from.

    Raises
    ------
    MethodError
        If a file would replace the scene that the endmembers are from, or its mask.
    CubeError
        If the scene changed while it was read.
    OutputError
        If a file exists and may not be replaced, belongs to a finished run, or cannot be written.
    """
    refuse_inputs(of_a_run(folder, stem, LIBRARY), [entry for watch in watches for entry in inputs_of(watch.scene)])
    outputs = Outputs(folder, stem)
    finals = [outputs.final(name) for name in LIBRARY]
    try:
        outputs.refuse_unfinished(False)
        if outputs.final(RECORD).exists():
            raise OutputError(
                f"{finals[0]}: belongs to a finished run and must stay as it is; choose another `out_dir`"
            )
        for final in finals:
            if final.exists() and not overwrite:
                raise OutputError(f"{final}: exists already; use `overwrite` or `out_dir`")
        parts = [outputs.part(name) for name in LIBRARY]
        endmembers.write(*parts)
        for watch in watches:
            watch.check()
        with signals_held():
            for part, final in zip(parts, finals):
                os.replace(part, final)
    except OSError as error:
        raise OutputError(f"{error.filename or folder}: writing failed: {error.strerror or brief(error)}") from None
    finally:
        outputs.abandon()
    return finals
