"""`export`: the maps of a finished run in another format, one file a band if wanted, with styles for QGIS."""

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import MethodError, OutputError
from ...io import read_small
from ...io.export import LISTED, OutputFormat, WorkMap, errors_of, require, work_map
from ...io.fields import NODATA, code_of
from ...io.formats.header import format_header, words
from ...io.opening import open_new, write_new
from ...outputs import Identity, folder_for, identity_of_status, named_together, refuse_headers_of_others, refuse_inputs
from ...pages.pictures import MAGMA, VIRIDIS, ramp
from ...pages.qml import HEAD as STYLE_HEAD
from ...pages.qml import of_classes, of_one, of_three
from ...runs.files.finished import FinishedRun
from ...scene import folder_of
from ...settings.maps import MAPS, ORTHO
from ..verify.outputs import check_digests
from ..verify.verdict import Verdict

log = logging.getLogger("unmix")

# Maps in per cent, as bytes: their nodata value, and fields of their header.
BLANK = 255
PER_CENT = {"data type": code_of(np.dtype("u1")), "data ignore value": BLANK}
# The ending of a style.
STYLE = ".qml"


class Piece(NamedTuple):
    """A file of an export: a whole map, or one band of it."""

    map: str  # as "abundance", "rmse_ortho"
    first: int  # of its bands, from 0
    bands: int  # how many of them
    name: str  # without ending


def export(
    path: str | os.PathLike[str],
    out_dir: str | os.PathLike[str],
    *,
    format: str = "cog",
    maps: Sequence[str] | None = None,
    split: bool = False,
    style: bool = False,
    percent: bool = False,
    overwrite: bool = False,
) -> list[Path]:
    """Write the maps of a finished run in another format.

    Parameters
    ----------
    path : path-like
        The beginning of its outputs' names, one of them, or its cube. The run's own maps have to be in ENVI, the
        default.
    out_dir : path-like
        The folder to write to; ``{stem}`` and ``{dir}`` in it are of ``path``, as for `unmix.run`.
    format : str
        One of `unmix.io.export.FORMATS`, or GDAL's name of its driver.
    maps : sequence of str, optional
        Which maps: ``["abundance", "rmse"]``; default is the one whose file is named, else all.
    split : bool
        Write one file for each band, named after the band.
    style : bool
        Write a style for QGIS beside each file of abundances, sums by class, classes or RMSE.
    percent : bool
        Write abundances and sums by class in whole per cent as bytes, 255 where there is no data, and no other maps.
    overwrite : bool
        Replace files of these names.

    Returns
    -------
    list of Path
        The files, in order.

    Raises
    ------
    MethodError
        For a format or map that is not known, a package that is missing, or where a file of the run would be replaced.
    OutputError
        Where there is no finished run, its maps are not in ENVI or not what the run wrote, a file exists or cannot be
        written, or a byte cannot hold a value in per cent.
    """
    run, form, folder = FinishedRun.of(Path(path)), require(format), folder_for(folder_of(out_dir, path))
    if maps is None and run.named is not None:
        maps = [run.named]
    with run.believing():
        return export_run(run, form, folder, maps, split, style, percent, overwrite)


def export_run(
    run: FinishedRun,
    form: OutputFormat,
    folder: Path,
    maps: Sequence[str] | None,
    split: bool,
    style: bool,
    percent: bool,
    overwrite: bool,
) -> list[Path]:
    """Write the maps of a run whose record is read; see `export`."""
    verdict = Verdict()
    known = check_digests(run.stem, run.report, verdict)
    if verdict.faults:
        raise OutputError(verdict.faults[0])
    if run.form.convert is not None:
        raise OutputError(
            f"{run.stem}: its maps are in {run.form.name}; export reads those in ENVI: run it without `format`"
        )
    pieces = list(pieces_of_map(run, maps, split, percent))
    form.refuse_name(folder, run.stem.name)
    styles = {piece: text for piece in pieces if style and (text := style_of(run, piece, percent)) is not None}
    files = {piece: [folder / (piece.name + ending) for ending in form.endings] for piece in pieces}
    finals = [file for piece in pieces for file in files[piece]]
    finals += [folder / (piece.name + STYLE) for piece in styles]
    refuse_inputs(finals, [("run", run.stem.with_name(name)) for name in run.report["digests"]])
    refuse_headers_of_others(finals)
    if not any("map info" in run.open(piece.map).fields for piece in pieces):
        log.warning(f"{run.stem}: its maps have no place on a map; those of a swath have one if the run had `ortho`")
    with named_together(finals, overwrite, "`out_dir`", is_style) as parts:
        part_of = dict(zip(finals, parts))
        for piece in pieces:
            write_piece(run, piece, form, [part_of[file] for file in files[piece]], known, percent)
        for piece, text in styles.items():
            write_new(part_of[folder / (piece.name + STYLE)], text.encode())
    return finals


def is_style(path: Path) -> bool:
    """Recognise a style that this command wrote; QGIS begins its own otherwise."""
    return path.suffix == STYLE and path.is_file() and read_small(path).startswith(STYLE_HEAD.encode())


def pieces_of_map(run: FinishedRun, wanted: Sequence[str] | None, split: bool, percent: bool) -> Iterator[Piece]:
    """Yield the pieces to write, with ``percent`` of maps of shares alone; `MethodError` for a map that the run has not."""
    held = [name + kind for name in MAPS for kind in ("", ORTHO) if run.has(name + kind)]
    if percent:
        if run.report.get("asked", {}).get("quantize"):
            raise MethodError(f"{run.stem}: its maps are quantized; `percent` is for those of a run without `quantize`")
        held = [name for name in held if MAPS[name.removesuffix(ORTHO)].is_share]
    for name in wanted or held:
        if name not in held:
            raise MethodError(f"{run.stem}: the run wrote no '{name}'; it has {', '.join(held)}")
    taken: set[str] = set()
    for name in dict.fromkeys(wanted or held):
        stem, count = f"{run.stem.name}_{name}", run.open(name).bands
        if not split or count == 1:
            yield Piece(name, 0, count, stem)
            continue
        for b, label in enumerate(words(run.open(name).fields, "band names") or [str(b + 1) for b in range(count)]):
            file_name = f"{stem}_{as_file_name(label) or b + 1}"
            while file_name.lower() in taken:  # some file systems do not tell A from a
                file_name += f"_{b + 1}"
            taken.add(file_name.lower())
            yield Piece(name, b, 1, file_name)


def as_file_name(label: str) -> str:
    """Return a band's name as a part of a file's name: letters, digits, points and hyphens of it, at most 80 bytes."""
    safe = "".join(char if char.isalnum() or char in ".-" else "_" for char in label)
    return safe.encode(errors="replace")[:80].decode(errors="ignore").replace("?", "_").strip("_.")


def write_piece(
    run: FinishedRun,
    piece: Piece,
    form: OutputFormat,
    outs: Sequence[Path],
    known: Mapping[str, Identity],
    percent: bool = False,
) -> None:
    """Write one file, and its header if it has one, under given names; ``known`` identifies the checked files."""
    image = run.file_of(piece.map)
    bands = slice(piece.first, piece.first + piece.bands)
    with contextlib.ExitStack() as opened:
        work = opened.enter_context(work_map(piece.map, image, image.with_suffix(".hdr")))
        if identity_of_status(os.fstat(work.file.fileno())) != known.get(image.name):
            raise OutputError(f"{image}: another file has this name by now; run again")
        fields = fields_of_bands(work.fields, bands) | (PER_CENT if percent else {})
        text = format_header(fields)
        if form.convert is None or percent or piece.bands != work.values.shape[1]:
            scratch = opened.enter_context(tempfile.TemporaryFile(prefix="unmix-"))
            file = scratch if form.convert is not None else opened.enter_context(open_new(outs[0]))
            for line in work.values:  # a line at a time: only one line is in memory
                file.write(
                    np.ascontiguousarray(in_per_cent(line[bands], run.stem) if percent else line[bands]).tobytes()
                )
            file.flush()
            if form.convert is not None:
                work = WorkMap.of(piece.map, file, text, image.with_suffix(".hdr"))
        if form.convert is None:
            write_new(outs[1], text.encode(errors="surrogateescape"))
        else:
            with errors_of(outs[0]):
                form.convert(work, outs[0])


def in_per_cent(shares: np.ndarray, stem: Path) -> np.ndarray:
    """Return shares in whole per cent, uint8, `BLANK` for `NODATA`; `OutputError` where a byte does not hold one."""
    known, found = shares != NODATA, np.rint(100.0 * shares.astype(float))
    if not (~known | ((found >= 0) & (found < BLANK))).all():
        worst = found[known][np.abs(found[known] - BLANK / 2).argmax()]
        raise OutputError(f"{stem}: a byte cannot hold {worst:g} %; `percent` is for shares from 0 to {BLANK - 1} %")
    return np.where(known, found, BLANK).astype(np.uint8)


def fields_of_bands(fields: dict[str, str], bands: slice) -> dict[str, Any]:
    """Return the fields of a header for some of its bands."""
    count = int(fields["bands"])
    if bands == slice(0, count):
        return dict(fields)
    kept: dict[str, Any] = {key: value for key, value in fields.items() if key != "default bands"}
    kept["bands"] = bands.stop - bands.start
    for key in LISTED:
        of_all = words(fields, key)
        if of_all is not None and len(of_all) == count:
            kept[key] = of_all[bands]
    return kept


def style_of(run: FinishedRun, piece: Piece, percent: bool = False) -> str | None:
    """Return the style of a file, None where QGIS needs none; with ``percent`` shares are 0 to 100."""
    kind, colours = piece.map.removesuffix(ORTHO), ramp(VIRIDIS)
    if kind == "rmse":
        high = float(run.report.get("fit", {}).get("maximum_rmse") or 0.0)
        return of_one(ramp(MAGMA), high if 0 < high < np.inf else 1.0)
    if MAPS[kind].is_of_classes:
        fields = run.open(piece.map).fields
        lookup = bytes(map(int, words(fields, "class lookup") or ()))
        return of_classes(
            words(fields, "class names") or (), [f"#{lookup[k : k + 3].hex()}" for k in range(0, len(lookup), 3)]
        )
    if not MAPS[kind].is_share or run.has("index"):
        return None
    names = words(run.open(piece.map).fields, "band names") or []
    shown = [names.index(name) + 1 for name in run.report.get("browse") or [] if name in names]
    if piece.bands > 1 and len(shown) == 3:
        return of_three(shown, 100.0 if percent else 1.0)
    return of_one(colours, 100.0 if percent else 1.0)
