"""`Endmembers`, a set of named spectra: select from it, compare its spectra, write it to files."""

import csv
import difflib
import fnmatch
import hashlib
import io
import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import LibraryError
from ..io.formats.header import axis_fields, clean, fault_of_unit, format_header, guessed
from ..io.opening import write_new

log = logging.getLogger("unmix")
# Values below this are deleted channels (USGS: -1.23e34).
DELETED = -1e30
# Numbers that stand for no value where a file does not say so: if they are this many times as low as the lowest other
# value of their spectrum, and larger than this share of its highest, below which noise of counts may reach.
FILL = -9999.0, -999.0, -9999.9, -99999.0, -32768.0, -32767.0, -99.0
FAR_BELOW, SHARE_OF_LARGEST = 10.0, 0.05
# The same above, if they are so many times as large as the highest other value.
FILL_ABOVE, FAR_ABOVE = (65535.0, 32767.0, 1e20, 9.969209968386869e36), 5.0
# Spectra whose angle (rad) is below this count as the same.
LARGEST_ANGLE_OF_EQUAL = 1e-4
# Spectra in a library beyond which `duplicates` compares none.
MOST_COMPARED = 3000
# Colours by name, as CSS has them.
COLOURS = {
    "black": "#000000",
    "grey": "#808080",
    "gray": "#808080",
    "white": "#ffffff",
    "red": "#ff0000",
    "green": "#008000",
    "blue": "#0000ff",
    "yellow": "#ffff00",
    "orange": "#ffa500",
    "brown": "#a52a2a",
    "cyan": "#00ffff",
    "purple": "#800080",
    "pink": "#ffc0cb",
    "olive": "#808000",
}
# The name of the endmember that `with_shade` adds.
SHADE = "shade"
# Characters of a word of `select`; no name is longer.
LONGEST_WORD = 200


@dataclass(frozen=True, repr=False)
class Endmembers:
    """A set of spectra on one wavelength axis.

    Attributes
    ----------
    names : tuple of str
    matrix : array (L, p), float64
        One endmember in each column, in the cube's scaled units once fitted to it; NaN and values below -1e30 are
        deleted.
    wavelengths : array (L,) or None
        In nanometres, in the order of the file.
    pixels : tuple of (line, sample) or None
        The pixel of the cube that each was taken from, if any.
    scenes : tuple of str or None
        The scene of each, where they were taken from several: its name without ending.
    source : str
        The file or the algorithm that they come from.
    classes : tuple of str or None
        The material class of each.
    fwhm : array (L,) or None
        In nanometres.
    counted : dict of str to int or None
        The number of endmembers in the scene by each criterion and, as "auto", the default's, if it was estimated; the
        set may have been capped below it.
    simplex : dict, optional
        Of extracted endmembers, how large their simplex is (`unmix.endmembers.nfindr.Simplex.to_dict`).
    quality : dict, optional
        Of extracted endmembers, how good they are (`unmix.endmembers.quality.quality_of`).
    has_shade : bool
        Whether the last one is shade (`with_shade`).
    across_gaps : bool
        Whether bands in gaps of the channels are resampled by straight lines across these
        (`unmix.library.to_bands.crossed`).
    colors : tuple of str or None
        The colour of each in pictures and class maps, as ``#rrggbb``, or empty.
    divisor : float
        By which the values of the file were divided (`library_scale`).
    """

    names: tuple[str, ...]
    matrix: np.ndarray
    wavelengths: np.ndarray | None
    pixels: tuple[tuple[int, int], ...] | None = None
    source: str = ""
    classes: tuple[str, ...] | None = None
    fwhm: np.ndarray | None = None
    counted: dict[str, Any] | None = None
    simplex: dict[str, Any] | None = None
    has_shade: bool = False
    scenes: tuple[str, ...] | None = None
    quality: dict[str, Any] | None = None
    across_gaps: bool = False
    colors: tuple[str, ...] | None = None
    divisor: float = 1.0

    def __repr__(self) -> str:
        bands, count = self.matrix.shape
        return f"Endmembers: {count} spectra of {bands} bands from {self.source}: {', '.join(self.names)[:200]}"

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as a dictionary for JSON, without loss of precision."""
        return {
            "names": list(self.names),
            "matrix": [[value.hex() for value in row] for row in self.matrix.tolist()],
            "wavelengths": None if self.wavelengths is None else self.wavelengths.tolist(),
            "pixels": None if self.pixels is None else [list(pixel) for pixel in self.pixels],
            "source": self.source,
            "classes": None if self.classes is None else list(self.classes),
            "fwhm": None if self.fwhm is None else self.fwhm.tolist(),
            "counted": self.counted,
            "simplex": self.simplex,
            "quality": self.quality,
        } | {key: list(values) for key in ("scenes", "colors") if (values := getattr(self, key)) is not None}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "Endmembers":
        """Return the endmembers that `to_dict` wrote."""
        matrix = np.array([[float.fromhex(value) for value in row] for row in fields["matrix"]])
        axes = {key: None if fields[key] is None else np.array(fields[key]) for key in ("wavelengths", "fwhm")}
        of_each = {key: fields.get(key) and tuple(fields[key]) for key in ("names", "classes", "scenes", "colors")}
        pixels = None if fields["pixels"] is None else tuple((line, sample) for line, sample in fields["pixels"])
        others = of_each | {key: fields.get(key) for key in ("counted", "simplex", "quality")}
        return cls(matrix=matrix, pixels=pixels, source=fields["source"], **axes, **others)  # type: ignore[arg-type]

    def digest(self) -> str:
        """Return 16 hexadecimal digits of a SHA-256 digest of names and values."""
        return hashlib.sha256(json.dumps([list(self.names), self.matrix.tolist()]).encode()).hexdigest()[:16]

    @property
    def valid(self) -> np.ndarray:
        """The mask of values that are not deleted; bool array (L, p)."""
        return np.isfinite(self.matrix) & (self.matrix > DELETED)

    def take(self, which: Sequence[int]) -> "Endmembers":
        """Return the spectra with the given column numbers, in that order."""
        of_each = {name: getattr(self, name) for name in ("names", "pixels", "classes", "scenes", "colors")}
        picked: dict[str, Any] = {name: values and tuple(values[j] for j in which) for name, values in of_each.items()}
        matrix = np.ascontiguousarray(self.matrix[:, which])
        return replace(self, matrix=matrix, has_shade=False, **picked)

    def with_shade(self, spectrum: np.ndarray | None = None) -> "Endmembers":
        """Return the endmembers and, as the last one, shade, whose share is what the others lack to a sum of one.

        Parameters
        ----------
        spectrum : array (L,), optional
            The spectrum of shade, in the unit of the endmembers; default is zero (photometric shade).
        """
        if self.has_shade:
            return self
        zeros = np.zeros(len(self.matrix)) if spectrum is None else spectrum
        return replace(
            self,
            names=each_once([*self.names, SHADE]),
            matrix=np.column_stack([self.matrix, zeros]),
            pixels=None if self.pixels is None else (*self.pixels, (-1, -1)),
            classes=None if self.classes is None else (*self.classes, SHADE),
            scenes=None if self.scenes is None else (*self.scenes, ""),
            colors=None if self.colors is None else (*self.colors, ""),
            has_shade=True,
        )

    def write(self, csv_path: Path | None, sli_path: Path | None, header_path: Path | None) -> None:
        """Write the spectra as CSV and as an ENVI library, float64 without loss.

        A file whose path is None is not written.
        """
        waves = self.wavelengths
        if csv_path is not None:
            write_new(csv_path, self.as_csv())
        if sli_path is None or header_path is None:
            return
        write_new(sli_path, self.matrix.T.astype("<f8").tobytes())
        fields: dict[str, Any] = {
            "description": "endmembers by unmix",
            "samples": self.matrix.shape[0],
            "lines": self.matrix.shape[1],
            "bands": 1,
            "header offset": 0,
            "file type": "ENVI Spectral Library",
            "data type": 5,
            "interleave": "bsq",
            "byte order": 0,
            "spectra names": list(each_once(self.names)),
        }
        pixels = [f"{line} {sample}" for line, sample in self.pixels or ()]
        of_spectra = {"spectra classes": self.classes, "spectra pixels": pixels, "spectra scenes": self.scenes}
        of_spectra["spectra colors"] = self.colors
        fields |= {key: list(values) for key, values in of_spectra.items() if values}
        write_new(header_path, format_header(fields | axis_fields(waves, self.fwhm)))

    def as_csv(self) -> str:
        """Return a table with one row for each spectrum.

        Its columns are name, class and pixel where they are known, then the values.
        """
        waves, text = self.wavelengths, io.StringIO(newline="")
        axis = [repr(float(w)) for w in waves] if waves is not None else [str(b + 1) for b in range(len(self.matrix))]
        if waves is not None and (fault_of_unit(waves, "") or guessed(waves) != "nm"):
            axis = [f"{word}nm" for word in axis]  # a reader would take the numbers for another unit
        columns: dict[str, Sequence[Any] | None] = {"class": self.classes, "color": self.colors, "scene": self.scenes}
        for k, title in enumerate(("line", "sample")):
            columns[title] = self.pixels and [pixel[k] for pixel in self.pixels]
        kept = {title: values for title, values in columns.items() if values}
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["name", *kept, *axis])
        for j, name in enumerate(each_once(self.names)):  # as they are read again, so that the table is known as ours
            values = (repr(float(v)) for v in self.matrix[:, j])
            writer.writerow([name, *(cells[j] for cells in kept.values()), *values])
        return text.getvalue()


def without_fill(matrix: np.ndarray, path: Path) -> np.ndarray:
    """Return spectra (L, p) with NaN for values of `FILL` that stand alone, far from the rest of their spectrum."""
    finite = np.isfinite(matrix)
    largest = np.where(finite, matrix, 0.0).max(axis=0)
    # Farther below 0 than all of the spectrum is above: no noise of reflectance is.
    found = np.isin(matrix, FILL) | ((matrix < -largest) & (largest > 0))
    high = np.isin(matrix, FILL_ABOVE)
    if not (found | high).any():
        return matrix
    rest = np.where(found | high | ~finite, 0.0, matrix)
    below = np.maximum(-rest.min(axis=0), rest.max(axis=0) * (SHARE_OF_LARGEST / FAR_BELOW))
    alone = (found & (-matrix / FAR_BELOW > below)) | (high & (matrix / FAR_ABOVE > rest.max(axis=0)))
    if alone.any():
        log.warning(
            f"{path}: {alone.sum()} values such as {matrix[alone][0]:g} stand far from the rest of their spectra: no "
            "values"
        )
    return np.where(alone, np.nan, matrix)


def make(
    names: Sequence[str],
    matrix: np.ndarray,
    waves: np.ndarray | None,
    path: Path,
    pixels: tuple[tuple[int, int], ...] | None = None,
    classes: Sequence[str] | None = None,
    fwhm: np.ndarray | None = None,
    scenes: Sequence[str] | None = None,
    colors: Sequence[str] | None = None,
) -> Endmembers:
    """Return endmembers with unique names that ENVI headers can hold; `LibraryError` if a wavelength is not finite."""
    if waves is not None and not np.all(np.isfinite(waves)):
        raise LibraryError(f"{path}: a wavelength is not finite")
    if fwhm is not None and not np.all(np.isfinite(fwhm) & (fwhm > 0)):
        log.warning(f"{path}: an fwhm is missing, or not above 0; all are ignored")
        fwhm = None
    matrix = without_fill(np.array(matrix, float), path)
    changed = [name for name in names if clean(name) != " ".join(name.split())]
    if changed:
        log.info(
            f"{path}: names in headers hold no commas, braces or control characters: '{changed[0]}' is written "
            f"'{clean(changed[0])}'" + (f", and {len(changed) - 1} more likewise" if len(changed) > 1 else "")
        )
    once = each_once(names)
    numbered = [name for name, given in zip(once, names) if name != (clean(given) or "endmember")]
    if numbered:
        log.info(f"{path}: names repeat: {len(numbered)} have a number now, such as '{numbered[0]}'")
    kinds = None if classes is None else tuple(clean(name) or "none" for name in classes)
    of = None if scenes is None else tuple(map(clean, scenes))
    tints = colours_in_words(colors, path)
    return Endmembers(
        once, np.ascontiguousarray(matrix), waves, pixels, path.name, kinds, fwhm, scenes=of, colors=tints
    )


def colours_of_all(parts: Sequence[Endmembers]) -> tuple[str, ...] | None:
    """Return the colours of the spectra of several libraries; None where none has any."""
    found = tuple(colour for part in parts for colour in part.colors or ("",) * len(part.names))
    return found if any(found) else None


def colours_in_words(words: Sequence[str] | None, path: Path) -> tuple[str, ...] | None:
    """Return colours as ``#rrggbb``, "" for an empty word; None if all are empty, `LibraryError` for an unknown one."""
    found = [COLOURS.get(word, word) for word in (word.strip().lower() for word in words or ())]
    for word in found:
        if word and not re.fullmatch("#[0-9a-f]{6}", word):
            raise LibraryError(f"{path}: color '{word[:20]}': write #rrggbb, or {', '.join(COLOURS)}")
    return tuple(found) if any(found) else None


def each_once(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names cleaned for lists in ENVI headers, with a number added to repeated ones."""
    counts: dict[str, int] = {}
    unique: dict[str, None] = {}
    for name in (clean(name) or "endmember" for name in names):
        candidate = name
        while candidate in unique:
            counts[name] = counts.get(name, 1) + 1
            candidate = f"{name} {counts[name]}"
        unique[candidate] = None
    return tuple(unique)


def unknown_word(word: str, parts: Sequence[Endmembers]) -> str:
    """Return the message about a word that is no name or class, with the names that are most similar."""
    kinds = sorted({kind for part in parts for kind in part.classes or ()})
    available = [
        *kinds,
        *sorted({name for part in parts for name in part.names} - set(kinds)),
    ]  # classes are fewer, and say more
    lowered = {name.lower(): name for name in available}
    similar = [lowered[key] for key in difflib.get_close_matches(word, lowered, 3, 0.5)]
    similar += [name for name in available if word in name.lower() and name not in similar][:3]
    return f"no name or class is '{word}'; there is {', '.join((similar or available)[:5])}"


def select(parts: Sequence[Endmembers], wanted: str) -> list[Endmembers]:
    """Select spectra by names or classes, any case, from ``A,B*,!C``: wildcards * and ?; ``!`` removes spectra."""
    listed = [word.strip().lower() for word in wanted.split(",") if word.strip()]
    without = [word[1:].strip() for word in listed if word.startswith("!")]
    words = [word for word in listed if not word.startswith("!")] or (["*"] if without else [])
    if max(map(len, words + without), default=0) > LONGEST_WORD:
        raise LibraryError(f"`select`: a word of it has more than {LONGEST_WORD} characters")
    if not words:
        raise LibraryError(f"`select` '{wanted}' names no spectrum; write names or classes such as A,B*")
    used: set[str] = set()
    chosen: list[Endmembers] = []
    whole = set(words + without)
    patterns = [word for word in whole if re.search(r"[*?[]", word)]
    for part in parts:
        kinds = part.classes or ("",) * len(part.names)
        which = []
        for j, (name, kind) in enumerate(zip(part.names, kinds)):
            keys = [key for key in (name.lower(), kind.lower()) if key]
            matching = whole.intersection(keys)
            matching |= {word for word in patterns if any(fnmatch.fnmatchcase(key, word) for key in keys)}
            used |= matching
            which += [j] if matching.intersection(words) and not matching.intersection(without) else []
        if which:
            chosen.append(part.take(which))
    for word in words + without:
        if word not in used:
            raise LibraryError(f"{parts[0].source}: {unknown_word(word, parts)}; * stands for anything")
    if not chosen:
        raise LibraryError(f"{parts[0].source}: `select` '{wanted}' leaves no spectrum")
    return chosen


def scaled(library: Endmembers, scale: float) -> Endmembers:
    """Return a library with values divided by ``scale``, which must be above 0; deleted values are NaN."""
    if not 0 < scale < float("inf"):
        raise LibraryError(f"`library_scale` {scale:g}: must be above 0")
    return replace(library, matrix=np.where(library.valid, library.matrix / scale, np.nan), divisor=scale)


def duplicates(library: Endmembers) -> list[tuple[str, str]]:
    """Return pairs of spectra equal up to scale: less than 1e-4 rad apart, both valid in half of the channels."""
    if library.matrix.shape[1] > MOST_COMPARED:
        return []
    valid = library.valid
    values = np.where(valid, library.matrix, 0.0)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        both = (values * values).T @ valid  # |e_i|² over the channels in which e_j is valid, too
        cosine = (values.T @ values) / np.sqrt(both * both.T)
    common = valid.T.astype(float) @ valid
    near = np.argwhere(np.triu((cosine > 1 - LARGEST_ANGLE_OF_EQUAL**2 / 2) & (2 * common >= len(values)), 1))
    return [(library.names[i], library.names[j]) for i, j in near]


def angles_between(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return the angles (p, q) between the columns of two matrices, in radians; zero columns are at 60° of others."""
    left, right = (E / np.maximum(np.sqrt(np.square(E).sum(axis=0)), np.finfo(float).tiny) for E in (A, B))
    # Half the chord is the sine of half the angle: it keeps the digits of a small angle, which a cosine loses.
    halves = np.stack([np.sqrt(np.square(right - unit[:, None]).sum(axis=0)) / 2 for unit in left.T])
    return np.asarray(2 * np.arcsin(np.minimum(1.0, halves)))
