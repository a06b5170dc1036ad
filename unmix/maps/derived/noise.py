"""The noise of bands: a number for each from a text file, or a cube with a number for each pixel and band."""

import functools
import os
from typing import Any

import numpy as np

from ...errors import CubeError, InputError
from ...io import Bands, Cube, Scene, as_stored, open_cube, read_lines
from ...io.identity import input_id
from ...io.opening import parted
from ...io.remote import absolute, located
from ...io.window import Window, origin_of
from ...scene import ReadOptions
from ...scene.bands import choose_bands

# Bytes of a file of numbers.
LONGEST_FILE = 2**20
# Bytes at the beginning of a file by which it is told whether it is text.
HEAD = 2**16
# By how many nm the bands of scene and noise may differ: EMIT's files agree, and no sensor's bands are so near.
FARTHEST = 1.0


class NoiseCube:
    """The standard deviation of each band of each pixel of a scene, as EMIT's `RFLUNCERT` files have it.

    Parameters
    ----------
    path : path-like
        A cube of the scene's size, or of the size of the part that is read, with the scene's bands; ``FILE:DATASET`` of an HDF5 file.
    scene : Scene
        With L bands in use.
    reading : ReadOptions
        Its scale and nodata value are for the noise too, in place of the file's own.

    Raises
    ------
    CubeError
        Where it cannot be read, has another size or other wavelengths, or is the scene.
    """

    def __init__(self, path: str | os.PathLike[str], scene: Scene, reading: ReadOptions) -> None:
        given, bands, _ = scene
        self.path, self.reading, self.index = absolute(path), reading, bands.index
        self.weights, self.lost = np.ones(len(bands.index)), list[int]()
        cube = self.opened()
        whole = given.cube if isinstance(given, Window) else given
        if cube.path.samefile(whole.path) and ":" not in os.path.basename(path):
            raise CubeError(
                f"{path}: is the scene, not its noise; name a dataset of it, FILE:DATASET, if it holds both"
            )
        if cube.bands != given.bands:
            raise CubeError(f"{path}: the noise has {cube.bands} bands, the scene {given.bands}")
        if cube.wavelengths is not None and given.wavelengths is not None:
            off = np.abs(cube.wavelengths - given.wavelengths)[bands.index]
            if off.max() > FARTHEST:
                b = int(bands.index[off.argmax()])
                raise CubeError(
                    f"{path}: band {b + 1} of the noise is at {cube.wavelengths[b]:g} nm, of the scene at {given.wavelengths[b]:g} nm"
                )
        begin = origin_of(given)
        if (cube.lines, cube.samples) == (given.lines, given.samples):
            begin = 0, 0
        elif (cube.lines, cube.samples) != (whole.lines, whole.samples):
            raise CubeError(
                f"{path}: the noise has {cube.lines} lines of {cube.samples} samples, the scene {whole.lines} of {whole.samples}"
            )
        self.lines, self.samples = (slice(at, at + size) for at, size in zip(begin, (given.lines, given.samples)))
        self.identity = input_id(cube)

    def opened(self) -> Cube:
        """Return the cube."""
        path, dataset = parted(self.path)
        try:
            return open_cube(path, dataset or None)
        except CubeError as error:
            raise CubeError(f"{error} (the noise is a cube, or a text file with a number a line)") from None

    @functools.cached_property
    def noise(self) -> Scene:
        """The part of the cube that the scene is; the bands in use are scaled and weighted."""
        cube = self.opened()
        given, nodata = self.reading.nodata, cube.nodata
        nodata = nodata if given is None else as_stored(given, cube.dtype, cube.path, [])
        part = Window(cube, self.lines, self.samples, nodata)
        bands = choose_bands(part, "all", self.reading.scale).only(self.index)
        return Scene(part, Bands(self.index, bands.gain * self.weights, bands.offset * self.weights), nodata)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the open file out: another process opens it again."""
        return {name: value for name, value in vars(self).items() if name != "noise"}

    def __mul__(self, weights: np.ndarray) -> "NoiseCube":
        """Return the noise of bands that are multiplied with weights (L,)."""
        other = object.__new__(NoiseCube)
        vars(other).update(self.__getstate__() | {"weights": self.weights * weights})
        return other

    def read(self, first: int, count: int) -> np.ndarray:
        """Return the noise of some lines of the scene, (count × samples, L); NaN where it is missing or not above 0."""
        raw = read_lines(self.noise.cube, slice(first, first + count))
        noise = self.noise.spectra(raw)
        noise[self.noise.missing(raw, each=True) | ~(noise > 0)] = np.nan
        return noise


def noise_of(path: str | os.PathLike[str], scene: Scene, reading: ReadOptions) -> np.ndarray | NoiseCube:
    """Return the noise of the bands in use (L,), or that of each pixel where the file is a cube; see `read_bands`, `NoiseCube`."""
    if is_text(path):
        return read_bands(path, scene, "noise")
    return NoiseCube(path, scene, reading)


def is_text(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is text, and no header of ENVI; a file that is not there is taken for one with numbers."""
    try:
        with located(path).open("rb") as file:
            head = file.read(HEAD)
    except FileNotFoundError:
        return ":" not in os.path.basename(path)
    except OSError:
        return True
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4 or len(head) < HEAD:  # a character may be cut at the end
            return False
        text = head[: error.start].decode("utf-8-sig")
    is_header = text.split("\n", 1)[0].strip() == "ENVI"
    return not is_header and all(letter.isprintable() or letter.isspace() for letter in text)


def read_numbers(path: str | os.PathLike[str], what: str, of: str) -> list[float]:
    """Return the last number of each line of a text or CSV file; `InputError` where there is none, but on the first line."""
    try:
        with located(path).open(encoding="utf-8-sig", errors="replace") as file:
            text = file.read(LONGEST_FILE)
    except OSError as error:
        raise InputError(
            f"{path}: cannot read the {what}: {error.strerror}; it is a file with a number a line"
        ) from None
    rows = [row for row in (line.replace(",", " ").split() for line in text.splitlines()) if row]
    values = []
    for number, row in enumerate(rows):
        try:
            values.append(float(row[-1]))
        except ValueError:
            if number:  # the first line may be a heading
                raise InputError(
                    f"{path}: '{row[-1][:20]}' is no number; write the {what} of {of} on each line"
                ) from None
    return values


def read_bands(path: str | os.PathLike[str], scene: Scene, what: str) -> np.ndarray:
    """Return a number for each band in use from a text or CSV file with a line for each band, of which the last number counts.

    Parameters
    ----------
    path : path-like
    scene : Scene
        The file has a line for each band of its cube, or for each in use.
    what : str
        Name of the numbers in messages.

    Raises
    ------
    InputError
        Where it cannot be read, has another number of lines, or a value is not above 0.
    """
    values, count, bands = read_numbers(path, what, "a band"), scene.cube.bands, scene.bands
    if len(values) not in (count, len(bands.index)):
        raise InputError(
            f"{path}: {len(values)} lines of {what}, but the cube has {count} bands, {len(bands.index)} in use"
        )
    noise = np.array(values)[bands.index] if len(values) == count else np.array(values)
    if not np.all((noise > 0) & np.isfinite(noise)):
        raise InputError(f"{path}: the {what} of every band must be above 0")
    return noise
