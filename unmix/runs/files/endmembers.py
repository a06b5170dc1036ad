"""Write the endmembers of a scene without its maps."""

from collections.abc import Sequence
from pathlib import Path

from ...errors import OutputError
from ...io.identity import Watch
from ...library import Endmembers
from ...outputs import LIBRARY, RECORD, inputs_of, named_together, of_a_run, refuse_inputs, replaceable
from .output_set import Outputs


def refuse_to_save(folder: Path, stem: str, overwrite: bool) -> None:
    """Raise `OutputError` where `save_library` would, before all the work of extracting endmembers."""
    outputs = Outputs(folder, stem)
    try:
        refuse_existing_library(outputs, overwrite)
    finally:
        outputs.abandon()


def refuse_existing_library(outputs: Outputs, overwrite: bool) -> None:
    """Raise `OutputError` where files of endmembers exist and may not be replaced, or belong to a run."""
    first = outputs.final(LIBRARY[0])
    outputs.refuse_unfinished(False)
    if outputs.final(RECORD).exists():
        raise OutputError(f"{first}: belongs to a finished run and must stay as it is; choose another `out_dir`")
    replaceable([outputs.final(name) for name in LIBRARY], overwrite, "`out_dir`")


def save_library(
    endmembers: Endmembers, folder: Path, stem: str, overwrite: bool, watches: Sequence[Watch] = ()
) -> list[Path]:
    """Write ``STEM_endmembers`` .csv, .sli and .hdr, all or none, if no watched scene changed; return the paths."""
    refuse_inputs(of_a_run(folder, stem, LIBRARY), [entry for watch in watches for entry in inputs_of(watch.scene)])
    outputs = Outputs(folder, stem)
    finals = [outputs.final(name) for name in LIBRARY]
    try:
        refuse_existing_library(outputs, overwrite)
        with named_together(finals, overwrite, "`out_dir`") as parts:
            endmembers.write(*parts)
            for watch in watches:
                watch.check()
    finally:
        outputs.abandon()
    return finals
