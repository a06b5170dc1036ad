"""Numbers of bands from text files, and cubes with the noise of each pixel."""

import functools
import os
from typing import Any

import numpy as np

from ...errors import CubeError, InputError
from ...io import (
    Bands,
    Cube,
    Scene,
    Window,
    absolute,
    as_stored,
    begin_within,
    decoded,
    input_id,
    list_rows,
    located,
    open_cube,
    open_plain,
    parted,
    read_lines,
    read_small,
)
from ...io.formats.zarr import is_store
from ...scene import ReadOptions, choose_bands

# Bytes of a file of numbers.
LONGEST_FILE = 2**20
# Numbers of bands whose squares, and those of their inverses, are numbers in float64, too.
SIZES = (1e-100, 1e100)
# Bytes at the beginning of a file by which it is told whether it is text.
HEAD = 2**16
# Lines of a cube of noise from which that of bands is taken.
LOOKED_AT = 50
# By how many nm the bands of scene and noise may differ: EMIT's files agree, and no sensor's bands are so near.
FARTHEST = 1.0


# The least factor of a band that is not 0, as a share of the largest.
LIGHTEST = 1e-9


class NoiseCube:
    """The standard deviation of each band of each pixel, as in EMIT's `RFLUNCERT` files.

    Parameters
    ----------
    path : path-like
        A cube of the scene's size, or of the size of the part that is read; ``FILE:DATASET`` of an HDF5 file or a Zarr
        store.
    scene : Scene
        With L bands in use.
    reading : ReadOptions
        Its scale and nodata value are for the noise, too, in place of the file's own.

    Raises
    ------
    CubeError
        Where it cannot be read, has another size, other wavelengths or bands, or is the scene.
    """

    def __init__(self, path: str | os.PathLike[str], scene: Scene, reading: ReadOptions) -> None:
        given = scene.cube
        self.path, self.reading = absolute(path), reading
        self.lost = list[int]()
        cube = self.opened()
        whole = given.cube if isinstance(given, Window) else given
        if cube.path.samefile(whole.path) and ":" not in os.path.basename(path):
            raise CubeError(
                f"{path}: is the scene, not its noise; name a dataset of it, FILE:DATASET, if it holds both"
            )
        self.index = self.bands_of_scene(cube, scene)
        self.weights = np.ones(len(self.index))
        begin = begin_within(cube, given, "noise")
        self.lines, self.samples = (slice(at, at + size) for at, size in zip(begin, (given.lines, given.samples)))
        self.identity = input_id(cube)

    def bands_of_scene(self, cube: Cube, scene: Scene) -> np.ndarray:
        """Return the numbers of the scene's bands in use; `CubeError` where the cube has others."""
        given, bands, _ = scene
        if cube.bands != given.bands:
            raise CubeError(f"{self.path}: the noise has {cube.bands} bands, the scene {given.bands}")
        if cube.wavelengths is not None and given.wavelengths is not None:
            off = np.abs(cube.wavelengths - given.wavelengths)[bands.index]
            if off.max() > FARTHEST:
                b = int(bands.index[off.argmax()])
                raise CubeError(
                    f"{self.path}: band {b + 1} of the noise is at {cube.wavelengths[b]:g} nm, of the scene at "
                    f"{given.wavelengths[b]:g} nm"
                )
        return bands.index

    def opened(self) -> Cube:
        """Return the cube."""
        path, dataset = parted(self.path)
        try:
            return open_cube(path, dataset or None)
        except CubeError as error:
            raise CubeError(
                f"{error} (the noise is a cube, of HDF5 as FILE:/NAME:byx, or a text file with a number a line)"
            ) from None

    @functools.cached_property
    def part(self) -> Scene:
        """The part of the cube that the scene is; the bands in use are scaled and weighted."""
        cube = self.opened()
        given = self.reading.nodata
        nodata = cube.nodata if given is None else as_stored(given, cube.dtype, cube.path, [])
        part = Window(cube, self.lines, self.samples, nodata)
        bands = choose_bands(part, "all", self.reading.scale).only(self.index)
        return Scene(part, Bands(self.index, bands.gain * self.weights, bands.offset * self.weights), nodata)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the open file out: another process opens it again."""
        return {name: value for name, value in vars(self).items() if name != "part"}

    def __mul__(self, weights: np.ndarray) -> "NoiseCube":
        """Return the noise of bands that are multiplied with weights (L,)."""
        other = object.__new__(type(self))
        vars(other).update(self.__getstate__() | {"weights": self.weights * weights})
        return other

    def read(self, first: int, count: int) -> np.ndarray:
        """Return the noise of some lines of the scene, (count × samples, L); NaN where it is missing or not above 0."""
        raw = read_lines(self.part.cube, slice(first, first + count))
        noise = self.part.spectra(raw)
        noise[self.part.missing(raw, each=True) | ~(noise > 0)] = np.nan
        return noise

    def typical(self) -> np.ndarray:
        """Return the median noise of each band, (L,), over lines from all of the scene."""
        lines = np.unique(np.linspace(0, self.lines.stop - self.lines.start - 1, LOOKED_AT).astype(int))
        found = np.concatenate([self.read(int(line), 1) for line in lines])
        found = found[np.isfinite(found).all(axis=1)]
        if not len(found):
            raise CubeError(f"{self.path}: has no pixel with noise above 0 in all bands, among {len(lines)} lines")
        return np.asarray(np.median(found, axis=0))


def noise_of(path: str | os.PathLike[str], scene: Scene, reading: ReadOptions) -> np.ndarray | NoiseCube:
    """Return the noise of the bands in use (L,) from a text file (`read_bands`), or a cube of it (`NoiseCube`)."""
    if is_text(path):
        return read_bands(path, scene, "noise")
    return NoiseCube(path, scene, reading)


def is_text(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is text, and no header of ENVI; a file that is not there is taken for one with numbers."""
    if is_store(located(path)):
        return False
    try:
        with open_plain(located(path)) as file:
            head = file.read(HEAD)
    except FileNotFoundError:
        return ":" not in os.path.basename(path)
    except OSError:
        return True
    whole = head if len(head) < HEAD else head[: head.rfind(b"\n") + 1]  # a character may be cut at the end
    text = decoded(whole or head)
    is_header = text.split("\n", 1)[0].strip() == "ENVI"
    # Bytes of an image may all be letters of Latin-1; texts have a few such letters, as the µ of a heading.
    is_latin = 10 * sum("\x7f" < letter < "\u0100" for letter in text) > len(text)
    return not (is_header or is_latin) and all(letter.isprintable() or letter.isspace() for letter in text)


# The column of noise that other bands do not explain, in tables of `unmix.mnf`.
BY_BANDS = "by_bands"


def read_numbers(path: str | os.PathLike[str], what: str, of: str) -> list[float]:
    """Return the last number of each line of a text or CSV file, whose first line may have none.

    Of the table that `unmix.mnf` writes it is the noise that other bands do not explain.
    """
    try:
        text = decoded(read_small(located(path), LONGEST_FILE))
    except InputError as error:
        raise InputError(f"cannot read the {what}: {error}") from None
    values, place = [], -1
    for number, (_, cells) in enumerate(list_rows(text, path, InputError)):
        place = cells.index(BY_BANDS) if BY_BANDS in cells else place
        cell = cells[place] if place < len(cells) else ""
        try:
            values.append(float(cell))
        except ValueError:
            if number:  # the first line may be a heading
                raise InputError(f"{path}: '{cell[:20]}' is no number; write the {what} of {of} on each line") from None
    return values


def read_bands(path: str | os.PathLike[str], scene: Scene, what: str, has_zero: bool = False) -> np.ndarray:
    """Return a number > 0 (or 0 if ``has_zero``) for each band in use, the last of each line of a text or CSV file."""
    values, count, bands = read_numbers(path, what, "a band"), scene.cube.bands, scene.bands
    if len(values) not in (count, len(bands.index)):
        raise InputError(
            f"{path}: {len(values)} lines of {what}, but the cube has {count} bands, {len(bands.index)} in use"
        )
    numbers = np.array(values)[bands.index] if len(values) == count else np.array(values)
    least, most = SIZES
    if not np.all(((numbers > least) & (numbers < most)) | (has_zero & (numbers == 0))):
        raise InputError(
            f"{path}: the {what} of every band must be {'0 or ' * has_zero}above 0, from {least:g} to {most:g}"
        )
    return numbers
