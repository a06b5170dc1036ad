"""Write maps that no run wrote: an ENVI image and its header, line by line, with what else belongs to them, all or none."""

import contextlib
import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from .._version import VERSION
from ..io import Cube
from ..io.fields import MAP_FIELDS, NODATA, acquisition_of, code_of
from ..io.formats.header import image_header
from ..io.identity import Watch
from ..outputs.atomic import named_together
from ..outputs.names import inputs_of, refuse_headers_of_others, refuse_inputs


def put_lines(scene: Cube, file: IO[bytes], rows: np.ndarray) -> None:
    """Write whole lines of pixels of an image in the place of a scene, (pixels, bands) float64, as float32 BIL; `NODATA` for NaN."""
    lines = rows.reshape(-1, scene.samples, rows.shape[1]).transpose(0, 2, 1)
    file.write(np.where(np.isnan(lines), NODATA, lines).astype("<f4").tobytes())


def header_of(scene: Cube, description: str, kind: str, bands: int, fields: Mapping[str, Any]) -> str:
    """Return the header of an image in the place of a scene, BIL of the type ``kind``."""
    place = {key: scene.fields[key] for key in MAP_FIELDS if key in scene.fields}
    others = {**fields, **place, **acquisition_of(scene.fields)}
    return image_header(
        scene.lines, scene.samples, bands, code_of(np.dtype(kind)), f"{description} by unmix {VERSION}", others
    )


def table_text(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()


@contextlib.contextmanager
def new_files(
    scene: Cube, folder: Path, names: list[str], overwrite: bool, others: Sequence[tuple[str, Path]] = ()
) -> Iterator[dict[str, Path]]:
    """Yield where to write the files STEM + name of a scene; at the end they get their names, all or none.

    ``others`` are more files that are read, each with its role.

    Raises
    ------
    MethodError
        Where one would replace a file of the scene, or the header of other data.
    CubeError
        Where the scene changed meanwhile.
    OutputError
        Where one exists and may not be replaced, or cannot be written.
    """
    finals = [folder / (scene.stem + name) for name in names]
    refuse_inputs(finals, [*inputs_of(scene), *others])
    refuse_headers_of_others(finals)
    watch = Watch(scene)
    with named_together(finals, overwrite, "`out_dir`") as parts:
        yield dict(zip(names, parts))
        watch.check()
