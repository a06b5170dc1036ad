"""Endmembers and where they come from: CSV and ENVI spectral libraries, brought to the bands of a cube."""

import csv
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from .errors import CubeError, LibraryError
from .io.cube import Cube
from .io.envi import DTYPES
from .io.header import clean, format_header, nanometres, number, numbers, read_header, read_small, whole, words

# Values below this are deleted channels (USGS: -1.23e34).
DELETED = -1e30


@dataclass(frozen=True)
class Endmembers:
    """A set of spectra.

    Attributes
    ----------
    names : tuple of str
    matrix : array (L, p), float64
        One endmember a column, in the cube's scaled units.
    wavelengths : array (L,) or None
        In nanometres.
    pixels : tuple of (line, sample) or None
        Where each was taken from, if from a cube.
    source : str
        The file or the algorithm.
    """

    names: tuple[str, ...]
    matrix: np.ndarray
    wavelengths: np.ndarray | None
    pixels: tuple[tuple[int, int], ...] | None = None
    source: str = ""

    def write(self, csv_path: Path, sli_path: Path, header_path: Path) -> None:
        """Write the spectra as CSV and as an ENVI library, float64 to the last digit."""
        waves = self.wavelengths
        axis = [repr(float(w)) for w in waves] if waves is not None else [str(b + 1) for b in range(len(self.matrix))]
        with open(csv_path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["name", *(["line", "sample"] if self.pixels else []), *axis])
            for j, name in enumerate(self.names):
                place = list(self.pixels[j]) if self.pixels else []
                writer.writerow([name, *place, *(repr(float(v)) for v in self.matrix[:, j])])
        np.ascontiguousarray(self.matrix.T).astype("<f8").tofile(sli_path)
        fields: dict[str, object] = {
            "description": "endmembers by unmix",
            "samples": self.matrix.shape[0],
            "lines": self.matrix.shape[1],
            "bands": 1,
            "header offset": 0,
            "file type": "ENVI Spectral Library",
            "data type": 5,
            "interleave": "bsq",
            "byte order": 0,
            "spectra names": list(self.names),
        }
        if self.pixels:
            fields["spectra pixels"] = [f"{line} {sample}" for line, sample in self.pixels]
        if waves is not None:
            fields |= {"wavelength units": "Nanometers", "wavelength": axis}
        header_path.write_text(format_header(fields), encoding="utf-8")  # type: ignore[arg-type]


def load(path: Path) -> Endmembers:
    """Load a library.

    Parameters
    ----------
    path : Path
        CSV (wavelengths in the header row, a spectrum a row, names first), or either file of an ENVI library.

    Raises
    ------
    LibraryError
        Where it cannot be read or holds no spectra.
    """
    try:
        if path.suffix.lower() in (".csv", ".txt"):
            return load_csv(path)
        return load_sli(path)
    except OSError as error:
        raise LibraryError(f"{path}: cannot read the library: {error.strerror or error}") from None
    except CubeError as error:  # from the header it shares with cubes
        raise LibraryError(str(error)) from None


def load_csv(path: Path) -> Endmembers:
    """A CSV library; columns whose heading is a number are bands, the first other one is the name."""
    raw = read_small(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    try:
        rows = [row for row in csv.reader(text.splitlines()) if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise LibraryError(f"{path}: is not a CSV table: {error}") from None
    if len(rows) < 2:
        raise LibraryError(f"{path}: no spectra; expected a header row with wavelengths and a row for each endmember")
    heading = [cell.strip() for cell in rows[0]]
    columns = [i for i, cell in enumerate(heading) if is_number(cell)]
    if not columns:
        raise LibraryError(f"{path}: its first row has no wavelengths; expected name, wavelength, wavelength, …")
    if len(columns) == len(heading):
        raise LibraryError(
            f"{path}: its first row is all numbers; expected a header row: name, wavelength, wavelength, …"
        )
    matrix = np.empty((len(columns), len(rows) - 1))
    for r, row in enumerate(rows[1:]):
        for b, i in enumerate(columns):
            cell = row[i].strip() if i < len(row) else ""
            if not is_number(cell):
                raise LibraryError(f"{path}: row {r + 2}, column {i + 1}: '{cell[:20]}' is not a number")
            matrix[b, r] = float(cell)
    named = next(i for i in range(len(heading)) if i not in columns)
    names = [row[named].strip() if named < len(row) else f"endmember {r + 1}" for r, row in enumerate(rows[1:])]
    axis = np.array([float(heading[i]) for i in columns])
    counted = np.array_equal(axis, np.arange(1, len(axis) + 1))
    pixels = None
    if {"line", "sample"} <= set(heading):
        at, across = heading.index("line"), heading.index("sample")
        pixels = places_of([f"{row[at]} {row[across]}" for row in rows[1:] if len(row) > max(at, across)], len(names))
    return make(names, matrix, None if counted else nanometres(axis, ""), path, pixels)


def load_sli(path: Path) -> Endmembers:
    """An ENVI spectral library: a spectrum a line."""
    if path.suffix.lower() == ".hdr":
        header = path
        stem = path.name[:-4]
        names_of_data = {(stem + ending).lower() for ending in ("", ".sli", ".lib")}
        beside = [p for p in sorted(path.parent.iterdir()) if p.name.lower() in names_of_data and p.is_file()]
        if len(beside) != 1:
            raise LibraryError(f"{path}: no single data file {stem}, {stem}.sli or {stem}.lib beside it")
        data = beside[0]
    else:
        data = path
        headers = [path.with_suffix(".hdr"), path.with_name(path.name + ".hdr")]
        found = [h for h in headers if h.exists()]
        if not path.exists():
            raise LibraryError(f"{path}: no such file")
        if not found:
            raise LibraryError(f"{path}: no header beside it; libraries are CSV, or .sli with .hdr")
        header = found[0]
    fields = read_header(header)
    if "library" not in fields.get("file type", "").lower():
        raise LibraryError(
            f"{header}: is not a spectral library (file type = {fields.get('file type', 'missing')[:40]})"
        )
    samples, lines = whole(fields, "samples", header), whole(fields, "lines", header)
    code = whole(fields, "data type", header)
    skip = whole(fields, "header offset", header, 0)
    factor = number(fields, "reflectance scale factor", header)
    factor = 1.0 if factor is None else factor
    if code not in DTYPES or min(samples, lines) < 1 or skip < 0 or not 0 < factor < np.inf:
        raise LibraryError(
            f"{header}: data type {code}, {lines} spectra of {samples} bands, offset {skip}, scale {factor}: wrong"
        )
    stored = DTYPES[code].newbyteorder(">" if whole(fields, "byte order", header, 0) == 1 else "<")
    wanted = skip + samples * lines * DTYPES[code].itemsize
    if data.stat().st_size < wanted:
        raise LibraryError(f"{data}: is truncated: {data.stat().st_size} bytes, but {header.name} promises {wanted}")
    values = np.fromfile(data, stored, samples * lines, offset=skip)
    names = words(fields, "spectra names") or [f"endmember {j + 1}" for j in range(lines)]
    if len(names) != lines:
        raise LibraryError(f"{header}: {len(names)} spectra names for {lines} spectra")
    places = words(fields, "spectra pixels")
    pixels = None if places is None else places_of(places, lines)
    waves = nanometres(numbers(fields, "wavelength", samples, header), fields.get("wavelength units", ""))
    matrix = values.reshape(lines, samples).T.astype(np.float64) / factor
    return make(names, matrix, waves, data, pixels)


def make(
    names: list[str],
    matrix: np.ndarray,
    waves: np.ndarray | None,
    path: Path,
    pixels: tuple[tuple[int, int], ...] | None,
) -> Endmembers:
    """Endmembers with names that outputs can carry, each once."""
    if waves is not None and not np.all(np.isfinite(waves)):
        raise LibraryError(f"{path}: a wavelength is not finite")
    unique: list[str] = []
    for name in (clean(name) or "endmember" for name in names):
        count, own = 1, name
        while own in unique:
            count += 1
            own = f"{name} {count}"
        unique.append(own)
    return Endmembers(tuple(unique), np.ascontiguousarray(matrix), waves, pixels, path.name)


def places_of(texts: list[str], count: int) -> tuple[tuple[int, int], ...] | None:
    """Pixels written as ``line sample``; None where they are not ``count`` pairs of whole numbers: they are a comment."""
    pairs = [tuple(int(word) for word in text.split() if word.isascii() and word.isdigit()) for text in texts]
    if len(pairs) != count or any(len(pair) != 2 for pair in pairs):
        return None
    return tuple((pair[0], pair[1]) for pair in pairs)


def is_number(text: str) -> bool:
    """Whether ``float`` takes it."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def tolerance(cube: Cube) -> np.ndarray:
    """How far a library's wavelength may be from each of the cube's: a tenth of the FWHM, or of the spacing; in nm."""
    assert cube.wavelengths is not None
    if cube.fwhm is not None:
        return cube.fwhm / 10
    if cube.bands == 1:
        return np.array([1.0])
    return np.abs(np.gradient(cube.wavelengths)) / 10


def fit(library: Endmembers, cube: Cube, used: np.ndarray) -> Endmembers:
    """Bring a library to the bands of a cube that are in use.

    Parameters
    ----------
    library : Endmembers
        As loaded.
    cube : Cube
        The scene.
    used : array (L,), int64
        The bands in use.

    Returns
    -------
    Endmembers
        With a matrix (L, p).

    Raises
    ------
    LibraryError
        Where the bands do not fit, or a value in use is deleted or not finite.
    """
    rows = matching_rows(library, cube, used)
    matrix = library.matrix[rows]
    bad = ~np.isfinite(matrix) | (matrix < DELETED)
    if bad.any():
        b, j = np.argwhere(bad)[0]
        raise LibraryError(
            f"{library.source}: '{library.names[j]}' has no value at band {used[b] + 1}; leave the spectrum or band out"
        )
    if not matrix.any(axis=0).all():
        name = library.names[int(np.argmin(matrix.any(axis=0)))]
        raise LibraryError(f"{library.source}: '{name}' is zero in all bands in use; leave it out")
    waves = None if cube.wavelengths is None else cube.wavelengths[used]
    return replace(library, matrix=np.ascontiguousarray(matrix), wavelengths=waves)


def matching_rows(library: Endmembers, cube: Cube, used: np.ndarray) -> np.ndarray:
    """For each band in use, the row of the library that belongs to it."""
    n = library.matrix.shape[0]
    if cube.wavelengths is None or library.wavelengths is None:
        if n == cube.bands:
            return used
        if n == len(used):
            return np.arange(n)
        raise LibraryError(
            f"{library.source}: {n} bands, but the cube has {cube.bands} ({len(used)} in use) and wavelengths are "
            f"missing in {'the cube' if cube.wavelengths is None else 'the library'}; give one with the same bands"
        )
    near = tolerance(cube)[used]
    wanted = cube.wavelengths[used]
    for rows in (used if n == cube.bands else None, np.arange(n) if n == len(used) else None):
        if rows is not None and np.all(np.abs(library.wavelengths[rows] - wanted) <= near):
            return rows
    gaps = np.abs(library.wavelengths[None, :] - wanted[:, None])
    rows = gaps.argmin(axis=1)
    off = ~(gaps[np.arange(len(wanted)), rows] <= near)
    if off.any():
        b = int(np.argmax(off))
        raise LibraryError(
            f"{library.source}: no band at {wanted[b]:g} nm (cube band {used[b] + 1}; {int(off.sum())} of "
            f"{len(wanted)} bands do not match, the library covers {library.wavelengths.min():g} to "
            f"{library.wavelengths.max():g} nm); resample it to the cube's bands"
        )
    return rows
