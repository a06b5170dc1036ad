"""Write maps that no run wrote, line by line, with what else belongs to them, all or none, in any format."""

import contextlib
import csv
import io
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from .._version import VERSION
from ..errors import CubeError
from ..io import MAP_FIELDS, NODATA, Cube, Watch, acquisition_of, code_of, open_new, write_new
from ..io.export import FORMATS, OutputFormat, errors_of, require, work_map
from ..io.formats.header import image_header
from ..io.formats.written_by import STORE, says_unmix
from ..outputs import (
    PAGE,
    RECORD,
    discard,
    folder_for,
    identity_of_status,
    inputs_of,
    is_by_unmix,
    named_together,
    recorded_size,
    refuse_headers_of_others,
    refuse_inputs,
    replaceable,
)
from ..settings.maps import images

# The files of a map before it is converted.
WORK = (".img", ".hdr")


def put_lines(scene: Cube, file: IO[bytes], rows: np.ndarray) -> None:
    """Write whole lines of pixels (pixels, bands), float64, to an image as float32 BIL, `NODATA` for NaN."""
    lines = rows.reshape(-1, scene.samples, rows.shape[1]).transpose(0, 2, 1)
    file.write(np.where(np.isnan(lines), NODATA, lines).astype("<f4").tobytes())


def header_of_map(scene: Cube, description: str, kind: str, bands: int, fields: Mapping[str, Any]) -> str:
    """Return the header of an image in the place of a scene, BIL of the type ``kind``."""
    place = {key: scene.fields[key] for key in MAP_FIELDS if key in scene.fields}
    others = {**fields, **place, **acquisition_of(scene.fields)}
    return image_header(
        scene.lines, scene.samples, bands, code_of(np.dtype(kind)), f"{description} by unmix {VERSION}", others
    )


def refuse_masked(scene: Cube, known: int) -> None:
    """Raise `CubeError` where no pixel of a scene has values; ``known`` is how many have."""
    if not known:
        pixels = f"all {scene.lines * scene.samples} pixels"
        raise CubeError(f"{scene.path}: {pixels} are masked as nodata; `bands` auto leaves dead bands out")


def table_text(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()


@dataclass(frozen=True)
class NewMaps:
    """Maps and tables of a scene that are being written.

    Attributes
    ----------
    scene : Cube
    parts : dict of str to Path
        Where to write them, by the ends of their names: ``_NAME.img`` and ``_NAME.hdr`` of each map, which is converted
        when all are there.
    files : list of str
        The final names.
    """

    scene: Cube
    parts: dict[str, Path]
    files: list[str]

    def open(self, name: str) -> IO[bytes]:
        """Open the values of a map, which are written in BIL."""
        return open_new(self.parts[f"_{name}.img"])

    def describe(self, name: str, description: str, kind: str, bands: int, fields: Mapping[str, Any]) -> None:
        """Write the header of a map; parameters as of `header_of_map`."""
        write_new(self.parts[f"_{name}.hdr"], header_of_map(self.scene, description, kind, bands, fields))

    def write(self, ending: str, text: str) -> None:
        """Write a table."""
        write_new(self.parts[ending], text)


@contextlib.contextmanager
def new_maps(
    scene: Cube,
    out_dir: str | os.PathLike[str] | None,
    format: str,
    overwrite: bool,
    maps: Sequence[str],
    tables: Sequence[str] = (),
    others: Sequence[tuple[str, Path]] = (),
    unasked: Sequence[str] = (),
) -> Iterator[NewMaps]:
    """Yield where to write maps and tables of a scene; at the end all get their names, or none does."""
    form, folder = require(format), folder_for(out_dir, scene.path)
    form.refuse_name(folder, scene.stem)
    files = {name: [folder / f"{scene.stem}_{name}{ending}" for ending in form.endings] for name in maps}
    finals = [*itertools.chain(*files.values()), *(folder / (scene.stem + ending) for ending in tables)]
    endings = {ending for one in FORMATS.values() for ending in one.endings}
    of_set = [f"_{name}{ending}" for name in (*maps, *unasked) if name in images() for ending in sorted(endings)]
    of_set += [one for one in unasked if one not in images()]
    # Maps of these names in another format, and files that are not asked for now, would contradict the new ones.
    stale = [
        path for path in (folder / (scene.stem + one) for one in of_set) if path not in finals and is_of_a_command(path)
    ]
    refuse_inputs([*finals, *stale], [*inputs_of(scene), *others])
    refuse_headers_of_others(finals)
    watch = Watch(scene)
    known = replaceable(stale, overwrite, "`out_dir`", Path.exists)

    def is_table_of_ours(path: Path) -> bool:
        """Recognise a table that came with maps of another format."""
        ours = (folder / f"{scene.stem}_{name}{form.endings[-1]}" for name in maps for form in FORMATS.values())
        return path.suffix in (".csv", ".txt") and path.is_file() and any(map(says_unmix, ours))

    with named_together(finals, overwrite, "`out_dir`", is_table_of_ours) as parts:
        part_of = dict(zip(finals, parts))
        work = {
            f"_{name}{ending}": parts[0].with_name(f"{scene.stem}_{name}{ending}") for name in maps for ending in WORK
        }
        yield NewMaps(
            scene, work | {ending: part_of[folder / (scene.stem + ending)] for ending in tables}, [*map(str, finals)]
        )
        for name in maps if form.convert is not None else ():
            convert_map(form, work, name, part_of[files[name][0]])
        watch.check()
    for path, identity in known.items():
        with contextlib.suppress(FileNotFoundError):
            if identity_of_status(os.lstat(path)) == identity:
                discard(path)


def is_of_a_command(path: Path) -> bool:
    """Return whether unmix wrote a file, and not as an output or the page of a run."""
    is_page_of_run = path.name.endswith(PAGE) and path.with_name(path.name.removesuffix(PAGE) + RECORD).exists()
    is_plain = (path.is_file() or path.suffix == STORE) and not path.is_symlink()
    return is_plain and recorded_size(path) is None and not is_page_of_run and is_by_unmix(path)


def convert_map(form: OutputFormat, work: Mapping[str, Path], name: str, out: Path) -> None:
    """Convert the work file of a map, and remove it."""
    assert form.convert is not None
    image, header = (work[f"_{name}{ending}"] for ending in WORK)
    with errors_of(out), work_map(name, image, header) as made:
        form.convert(made, out)
    for file in (image, header):
        file.unlink()
