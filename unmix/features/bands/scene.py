"""`bands`: choose bands of a cube or of a table of spectra, from files to files."""

import importlib.util
import io
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..._version import build
from ...blocks import parse_size
from ...endmembers import signal_of
from ...errors import CubeError, InputError, LibraryError, MethodError
from ...io import Row, Watch, counted, decimal_commas, in_ranges, is_whole, located, read_small, refuse_pairs
from ...io.formats.array_files import open_array
from ...io.formats.header import nanometres
from ...io.formats.written_by import says_unmix
from ...library import Endmembers, is_library, load
from ...library.table import is_number, read_rows
from ...maps.plain_map import table_text
from ...outputs import Inputs, file_of, finite, folder_for, inputs_of, readable, refuse_inputs, write_whole
from ...scene import ReadOptions, open_scene, parse_bands
from .arrays import Selection, least_collinear, select_bands

log = logging.getLogger("unmix")

# Bytes of the longest table that is read.
LONGEST_TABLE = 2**28
TABLES = (".csv", ".txt", ".sli", ".lib", ".npy")
# Endings of the files that may be written.
SUFFIXES = ("_bands.csv", "_bands.json", "_curve.csv", "_curve.png")
# Bands chosen by default without a target.
DEFAULT_COUNT = 10


@dataclass(frozen=True)
class Spectra:
    """The spectra to choose bands by: samples of a regression, or the covariance of a cube.

    Attributes
    ----------
    X : array (N, K), or None without a target, for a cube
    covariance : array (K, K), where there is no X
    bands : array (K,) of int
        Numbers of the bands in the file, from 1.
    wavelengths : array (K,) or None
        Wavelengths of the bands, nm.
    stem : Path
        The beginning of the outputs' names.
    names : tuple of str or None
        Names of the samples.
    inputs : list
        The files that the spectra come from (`unmix.outputs.names.inputs_of`).
    watch : Watch or None
        Detects whether a cube changes while it is read.
    """

    X: np.ndarray | None
    covariance: np.ndarray | None
    bands: np.ndarray
    wavelengths: np.ndarray | None
    stem: Path
    names: tuple[str, ...] | None = None
    inputs: Inputs = field(default_factory=list)
    watch: Watch | None = None


def bands_of(
    source: str | os.PathLike[str],
    *,
    target: str | os.PathLike[str] | None = None,
    most: int | None = None,
    out_dir: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    memory: str | int = "1G",
    device: str = "auto",
    threads: int | None = None,
    reading: dict[str, Any] | None = None,
    command: Sequence[str] | None = None,
    **how: Any,
) -> dict[str, Any]:
    """Choose bands by successive projections (`unmix.select_bands`), and write the bands and the error curve.

    Parameters
    ----------
    source : path-like
        A cube, or a table with one spectrum in each row: CSV, any library that `unmix.run` takes, or an array (.npy,
        FILE.h5:/NAME, FILE.mat:NAME).
    target : path-like, optional
        CSV: the last column is the target. For a table, one row for each spectrum, in its order; for a cube, with
        columns ``line`` and ``sample``. Without a target, the ``most`` (default 10) least collinear bands are chosen.
    most, device, threads
        See `unmix.select_bands`.
    out_dir : path-like, optional
        Where ``STEM_bands.csv``, ``STEM_bands.json``, ``STEM_curve.csv`` and, with matplotlib, ``STEM_curve.png`` go;
        default is beside the source.
    overwrite : bool
    memory : str or int
        Bytes that the blocks of a cube may take.
    reading : dict, optional
        How to read a cube: the fields of `unmix.ReadOptions`.
    command : sequence of str, optional
    **how
        ``validation``, ``folds``, ``alpha`` and ``seed`` of `unmix.select_bands`.

    Returns
    -------
    dict
        The contents of ``STEM_bands.json``, and ``files``, the paths that were written.

    Raises
    ------
    UnmixError
        See `unmix.errors`; no output has its final name then.
    """
    spectra, y = read(source, target, parse_size(str(memory)), threads, reading or {})
    folder = folder_for(out_dir, spectra.stem)
    stem = folder / spectra.stem.name
    refuse_inputs((Path(f"{stem}{suffix}") for suffix in SUFFIXES), [*spectra.inputs, *inputs_of(target=target)])
    if y is None:
        given = {key for key, value in how.items() if value is not None}
        if given - {"seed", "alpha"}:
            raise MethodError(f"`{min(given - {'seed', 'alpha'})}` needs a `target`")
        covariance = spectra.covariance
        if covariance is None:
            assert spectra.X is not None
            covariance = np.cov(spectra.X, rowvar=False, bias=True)
        selection = least_collinear(np.atleast_2d(covariance), DEFAULT_COUNT if most is None else most, device, threads)
    else:
        assert spectra.X is not None
        try:
            selection = select_bands(spectra.X, y, most=most, device=device, threads=threads, **how)
        except InputError as error:
            raise LibraryError(f"{source}, {target}: {error}") from None
    report = report_of_bands(spectra, selection, y, how, command)
    files = {
        f"{stem}_bands.csv": table_of_bands(spectra, selection),
        f"{stem}_bands.json": readable(finite(report)).encode(),
    }
    if y is not None:
        files[f"{stem}_curve.csv"] = table_of_curve(spectra, selection)
        picture = picture_of_curve(selection)
        if picture is None:
            log.info("no picture of the curve: matplotlib is not installed (pip install 'unmix[plot]')")
        else:
            files[f"{stem}_curve.png"] = picture
    if spectra.watch is not None:
        spectra.watch.check()
    has_ours = says_unmix(Path(f"{stem}_bands.json"))  # if unmix wrote this file, it wrote the curve too
    written = write_whole(
        {Path(name): content for name, content in files.items()}, overwrite, recognise=lambda _: has_ours
    )
    return finite(report) | {"files": [str(path) for path in written]}


def read(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None,
    budget: int,
    threads: int | None,
    reading: dict[str, Any],
) -> tuple[Spectra, np.ndarray | None]:
    """Read the spectra and the target, None if there is none; see `bands_of`."""
    path = located(source)
    is_array = not path.exists() and ":" in str(source)
    is_table = is_array or path.suffix.lower() in TABLES or is_library(path, reading.get("dataset"))
    values = None if target is None else read_target(located(target))
    if is_table:
        if any(value not in (None, ()) for key, value in reading.items() if key != "bands"):
            raise MethodError(
                "options for reading a cube are not for a table: delete the columns (bands) that you do not want"
            )
        spectra = read_table(source, reading.get("bands") or "good")
        y = None if values is None else values["value"]
        if y is not None and "line" in values:
            raise LibraryError(f"{target}: has columns line and sample, but {source} is a table, not a cube")
        if values is not None and spectra.names is not None and "name" in values:
            if not set(spectra.names).isdisjoint(values["name"]) or not all(map(is_number, values["name"])):
                y = by_name(spectra.names, values, source, target)
            else:
                log.info(f"{target}: its first column holds no names of {source}: rows are matched by their order")
        if y is not None and len(y) != len(spectra.X):  # type: ignore[arg-type]
            raise LibraryError(
                f"{target}: has {len(y)} values for {len(spectra.X)} spectra of {source}"  # type: ignore[arg-type]
            )
        return spectra, y
    how_read = ReadOptions(**reading)
    if how_read.tie is not None:
        raise MethodError("`tie`: bands are chosen as they are")
    given = open_scene(path, how_read)
    scene, waves, bands = given.cube, given.wavelengths, given.bands.index + 1
    inputs, watch, stem = inputs_of(scene), Watch(scene), scene.path.parent / scene.stem
    if values is None:
        covariance = signal_of(given, budget, threads).covariance
        return Spectra(None, covariance, bands, waves, stem, None, inputs, watch), None
    if "line" not in values:
        raise LibraryError(f"{target}: for a cube, the target needs columns line and sample (from 0), then the value")
    X = np.empty((len(values["value"]), len(bands)))
    for i, (line, sample, row) in enumerate(
        zip(values["line"].astype(int), values["sample"].astype(int), values["row"])
    ):
        if not (0 <= line < scene.lines and 0 <= sample < scene.samples):
            raise LibraryError(
                f"{target}: row {row}: line {line}, sample {sample} is not in {scene.lines} x {scene.samples}"
            )
        of_pixel, masked = given.read(line, [sample])
        X[i] = of_pixel[0]
        if masked[0]:
            raise LibraryError(f"{target}: row {row}: line {line}, sample {sample} is masked in {scene.path}")
    return Spectra(X, None, bands, waves, stem, None, inputs, watch), values["value"]


def read_table(source: str | os.PathLike[str], which: str) -> Spectra:
    """Read a table of spectra, one in each row, at the bands that ``which`` names; see `bands_of_table`."""
    path = located(source)
    waves, names = None, None
    is_csv = path.suffix.lower() in (".csv", ".txt") and path.is_file()
    if is_csv and all(map(is_number, next((row for _, row in rows_of(path)), [""]))):
        rows = numeric_rows(path)
        axis = np.array([float(cell) for cell in rows[0]])
        if len(axis) > 2 and axis[0] > 0 and np.all(np.diff(axis) > 0):  # hardly any spectrum rises at every band
            log.info(f"{path}: its first row is read as wavelengths")
            waves, rows = nanometres(axis, ""), rows[1:]
        X = np.array([[float(cell) for cell in row] for row in rows]).reshape(len(rows), len(axis))
    elif path.suffix.lower() == ".npy" or not path.exists():
        X = np.asarray(open_array(str(source)), np.float64)
        path = file_of(source)
    else:
        library = load_ordered(path)
        X, waves, names = np.where(library.valid, library.matrix, np.nan).T, library.wavelengths, library.names
    if X.ndim != 2 or len(X) < 2:
        raise LibraryError(f"{source}: has shape {X.shape}; one spectrum in each row is wanted, and two at least")
    bands = bands_of_table(source, X, which)
    X = X[:, bands]
    if not np.all(np.isfinite(X)):
        row, column = (int(n) for n in np.argwhere(~np.isfinite(X))[0])
        name = "" if names is None else f" ('{names[row]}')"
        raise LibraryError(
            f"{source}: spectrum {row + 1}{name} has a value at band {bands[column] + 1} that is deleted or not "
            "finite; leave "
            "bands out with `bands`"
        )
    waves = None if waves is None else waves[bands]
    X = np.ascontiguousarray(X, np.float64)
    return Spectra(X, None, bands + 1, waves, stem_of_table(path), names, inputs_of(library=file_of(source)))


def stem_of_table(path: Path) -> Path:
    """Return the path stem of a table's outputs: ``x`` for x.csv, x.sli and x.sli.hdr; a folder's whole name."""
    if path.is_dir():
        return path.absolute()
    path = path.with_suffix("") if path.suffix.lower() == ".hdr" else path
    return path.with_suffix("") if path.suffix.lower() not in ("", ".hdr") else path


def bands_of_table(source: str | os.PathLike[str], X: np.ndarray, which: str) -> np.ndarray:
    """Return the columns of the bands to choose from; ``good`` means those in which some spectrum has a value."""
    if which == "auto":
        raise MethodError("`bands` auto is for cubes")
    if which not in ("good", "all"):
        return parse_bands(which, X.shape[1])
    empty = np.flatnonzero(np.isnan(X).all(axis=0)) if which == "good" else np.empty(0, int)
    if len(empty):
        log.info(
            f"{source}: {counted(len(empty), 'band')} left out in which no spectrum has a value: "
            f"{in_ranges(empty.tolist())}"
        )
    return np.setdiff1d(np.arange(X.shape[1]), empty)


def load_ordered(path: Path) -> Endmembers:
    """Load a library; log a hint where a CSV file's wavelengths do not ascend, as its header row may be missing."""
    library = load(path)
    waves = library.wavelengths
    if path.suffix.lower() in (".csv", ".txt") and waves is not None and np.any(np.diff(waves) <= 0):
        log.info(f"{path}: its wavelengths do not ascend throughout; is the header row there?")
    return library


def by_name(names: tuple[str, ...], values: dict[str, Any], source: Any, target: Any) -> np.ndarray:
    """Return the target in the order of the samples; raise `LibraryError` where the names differ."""
    row_of = {name: i for i, name in enumerate(values["name"])}
    if len(row_of) != len(values["name"]) or set(row_of) != set(names) or len(names) != len(row_of):
        unmatched = sorted(set(row_of) ^ set(names))
        fault = f"'{unmatched[0]}' is in one of them only" if unmatched else "one comes twice"
        raise LibraryError(f"{target}: its names differ from those of {source}: {fault}; take that sample out of both")
    return np.array([values["value"][row_of[name]] for name in names])


def rows_of(path: Path) -> list[Row]:
    """Return the rows of a CSV file that are not empty; `LibraryError` where it cannot be read."""
    try:
        return read_rows(path, read_small(path, LONGEST_TABLE))
    except CubeError as error:
        raise LibraryError(str(error)) from None


def numeric_rows(path: Path) -> list[list[str]]:
    """Return the rows of a CSV file; raise `LibraryError` where a cell is not a number or a row has another length."""
    rows = [row for _, row in rows_of(path)]
    for i, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise LibraryError(f"{path}: row {i + 1} has {len(row)} columns, the first {len(rows[0])}")
        for j, cell in enumerate(row):
            if not is_number(cell):
                raise LibraryError(f"{path}: row {i + 1}, column {j + 1}: '{cell[:20]}' is not a number")
    firsts, rest = ([cell for row in rows for cell in row[k::2]] for k in (0, 1))
    if len(rows[0]) % 2 == 0 and set(firsts) <= {"0", "1"} and all(map(is_whole, rest)) and not set(rest) <= {"0", "1"}:
        raise decimal_commas(path, ",".join(rows[0][:2]), LibraryError, "row 1: ")
    return rows


def read_target(path: Path) -> dict[str, Any]:
    """Return the columns ``value`` and ``row``, and ``line`` and ``sample``, or ``name``, where the file has them."""
    if path.suffix.lower() not in (".csv", ".txt"):
        raise LibraryError(f"{path}: a target is read from CSV")
    rows = rows_of(path)
    heading = [cell.lower() for cell in rows[0][1]] if rows and not is_number(rows[0][1][-1]) else None
    rows = rows[1:] if heading else rows
    if not rows:
        raise LibraryError(f"{path}: holds no values")
    if heading is None:
        refuse_pairs([Row(n, cells[-2:]) for n, cells in rows], path, LibraryError)
    columns = {"value": len(heading or rows[0][1]) - 1}
    if heading and {"line", "sample"} <= set(heading):
        columns |= {"line": heading.index("line"), "sample": heading.index("sample")}
    if columns["value"] in (columns.get("line"), columns.get("sample")):
        raise LibraryError(f"{path}: the target is the last column, which is '{heading[-1] if heading else ''}'")
    table: dict[str, Any] = {name: np.empty(len(rows)) for name in columns}
    for i, (n, row) in enumerate(rows):
        for name, column in columns.items():
            cell = row[column] if column < len(row) else ""
            is_valid = name == "value" or (cell.isascii() and cell.isdigit() and len(cell) < 10)
            if not (is_number(cell) and np.isfinite(float(cell)) and is_valid):
                raise LibraryError(f"{path}: row {n}, column {column + 1}: '{cell[:20]}' is no {name}")
            table[name][i] = float(cell)
    table["row"] = [n for n, _ in rows]
    if len(rows[0][1]) > 1 and "line" not in columns:
        table["name"] = [row[0] for _, row in rows]
    if heading and len(heading) > 2 + 2 * ("line" in columns):
        log.info(f"{path}: the target is its last column, '{heading[-1]}'")
    return table


def report_of_bands(
    spectra: Spectra, selection: Selection, y: np.ndarray | None, how: dict[str, Any], command: Sequence[str] | None
) -> dict[str, Any]:
    """Return the contents of ``STEM_bands.json``."""
    waves = None if spectra.wavelengths is None else [float(w) for w in spectra.wavelengths[selection.bands]]
    report = {
        "unmix": build(),
        "command": list(command) if command is not None else None,
        "device": selection.device,
        "bands": [int(b) for b in spectra.bands[selection.bands]],
        "wavelengths": waves,
    }
    if y is None:
        return report
    assert selection.coefficients is not None
    return report | {
        "samples": len(y),
        "rmsep": selection.rmsep,
        "least_rmsep": selection.least,
        "intercept": selection.intercept,
        "coefficients": [float(c) for c in selection.coefficients],
        "before_elimination": [int(b) for b in spectra.bands[selection.chain]],
        **{key: value for key, value in how.items() if value is not None},
    }


def table_of_bands(spectra: Spectra, selection: Selection) -> bytes:
    """Return the chosen bands as CSV."""
    waves = None if spectra.wavelengths is None else spectra.wavelengths[selection.bands]
    columns = {"wavelength_nm": waves, "coefficient": selection.coefficients, "relevance": selection.relevance}
    known = {name: map(repr, values.tolist()) for name, values in columns.items() if values is not None}
    rows = zip(spectra.bands[selection.bands].tolist(), *known.values())
    return table_text(("band", *known), rows).encode()


def table_of_curve(spectra: Spectra, selection: Selection) -> bytes:
    """Return the smallest RMSEP for every number of bands as CSV."""
    rows = [f"{count},{error!r},{int(spectra.bands[start])}\n" for count, error, start in selection.curve]
    return "".join(["bands,rmsep,first_band\n", *rows]).encode()


def picture_of_curve(selection: Selection) -> bytes | None:
    """Return the curve of `table_of_curve` as PNG, or None without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        return None
    from matplotlib.figure import Figure

    assert selection.least is not None and selection.rmsep is not None
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    counts, errors = [count for count, _, _ in selection.curve], [error for _, error, _ in selection.curve]
    axes.semilogy(counts, errors, color="tab:blue")
    for count, error, mark, colour, word in (
        (len(selection.chain), selection.least, "o", "tab:blue", "least"),
        (len(selection.bands), selection.rmsep, "s", "tab:red", "chosen"),
    ):
        axes.plot(count, error, mark, color=colour, label=f"{word}: {count} bands, {error:.4g}")
    axes.set(xlabel="bands", ylabel="RMSEP")
    axes.legend()
    axes.grid(alpha=0.3)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=120, metadata={"Software": None})
    return out.getvalue()
