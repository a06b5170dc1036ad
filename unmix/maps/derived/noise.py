"""Numbers of bands from text files, and cubes with numbers for each pixel: noise, weights, allowed endmembers."""

import functools
import os
from collections.abc import Sequence
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
    band_names,
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
# By how many nm the bands of scene and noise may differ: EMIT's files agree, and no sensor's bands are so near.
FARTHEST = 1.0


# The least factor of a band that is not 0, as a share of the largest.
LIGHTEST = 1e-9


class CubeBeside:
    """A cube with numbers for each pixel of a scene.

    Parameters
    ----------
    path : path-like
        A cube of the scene's size, or of the size of the part that is read; ``FILE:DATASET`` of an HDF5 file or a Zarr
        store.
    scene : Scene
        With L bands in use.
    reading : ReadOptions
        Its scale and nodata value are for a cube of noise too, in place of the file's own.
    names : sequence of str, optional
        Those of p numbers for each pixel, which its bands have in any order, or else the p bands are taken in order. By
        default there is one for each band of the scene.

    Raises
    ------
    CubeError
        Where it cannot be read, has another size, other wavelengths or bands, or is the scene.
    """

    what = "cube"
    # Whether scale and nodata value of the scene's options are for it, too.
    is_as_scene = False

    def __init__(
        self, path: str | os.PathLike[str], scene: Scene, reading: ReadOptions, names: Sequence[str] | None = None
    ) -> None:
        given = scene.cube
        self.path, self.reading = absolute(path), reading
        self.lost = list[int]()
        cube = self.opened()
        whole = given.cube if isinstance(given, Window) else given
        if cube.path.samefile(whole.path) and ":" not in os.path.basename(path):
            raise CubeError(
                f"{path}: is the scene, not its {self.what}; name a dataset of it, FILE:DATASET, if it holds both"
            )
        self.index = self.bands_of_scene(cube, scene) if names is None else self.bands_named(cube, names)
        self.weights = np.ones(len(self.index))
        begin = begin_within(cube, given, self.what)
        self.lines, self.samples = (slice(at, at + size) for at, size in zip(begin, (given.lines, given.samples)))
        self.identity = input_id(cube)

    def bands_of_scene(self, cube: Cube, scene: Scene) -> np.ndarray:
        """Return the numbers of the scene's bands in use; `CubeError` where the cube has others."""
        given, bands, _ = scene
        if cube.bands != given.bands:
            raise CubeError(f"{self.path}: the {self.what} has {cube.bands} bands, the scene {given.bands}")
        if cube.wavelengths is not None and given.wavelengths is not None:
            off = np.abs(cube.wavelengths - given.wavelengths)[bands.index]
            if off.max() > FARTHEST:
                b = int(bands.index[off.argmax()])
                raise CubeError(
                    f"{self.path}: band {b + 1} of the {self.what} is at {cube.wavelengths[b]:g} nm, of the scene at "
                    f"{given.wavelengths[b]:g} nm"
                )
        return bands.index

    def bands_named(self, cube: Cube, names: Sequence[str]) -> np.ndarray:
        """Return the numbers of the bands with these names, or of all in order; `CubeError` where there are others."""
        own = [name.casefold() for name in band_names(cube)]
        found = [own.index(name.casefold()) if name.casefold() in own else -1 for name in names]
        if min(found) >= 0:
            return np.array(found)
        if max(found) >= 0:
            lost = names[found.index(-1)]
            raise CubeError(f"{self.path}: the {self.what} has bands of some names of endmembers, but none of {lost}")
        if cube.bands != len(names):
            raise CubeError(
                f"{self.path}: the {self.what} has {cube.bands} bands, but there are {len(names)} endmembers; it needs "
                "a band for "
                "each, in order or with their names"
            )
        return np.arange(len(names))

    def opened(self) -> Cube:
        """Return the cube."""
        path, dataset = parted(self.path)
        try:
            return open_cube(path, dataset or None)
        except CubeError as error:
            raise CubeError(f"{error} (the {self.what} is a cube, or a text file with a number a line)") from None

    @functools.cached_property
    def part(self) -> Scene:
        """The part of the cube that the scene is; the bands in use are scaled and weighted."""
        cube = self.opened()
        given, nodata = (self.reading.nodata if self.is_as_scene else None), cube.nodata
        nodata = nodata if given is None else as_stored(given, cube.dtype, cube.path, [])
        part = Window(cube, self.lines, self.samples, nodata)
        bands = choose_bands(part, "all", self.reading.scale if self.is_as_scene else None).only(self.index)
        return Scene(part, Bands(self.index, bands.gain * self.weights, bands.offset * self.weights), nodata)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the open file out: another process opens it again."""
        return {name: value for name, value in vars(self).items() if name != "part"}

    def values(self, first: int, count: int) -> np.ndarray:
        """Return the numbers of some lines of the scene, (count × samples, bands); NaN where they are missing."""
        raw = read_lines(self.part.cube, slice(first, first + count))
        values = self.part.spectra(raw)
        values[self.part.missing(raw, each=True)] = np.nan
        return values


class NoiseCube(CubeBeside):
    """The standard deviation of each band of each pixel, as in EMIT's `RFLUNCERT` files; see `CubeBeside`."""

    what = "noise"
    is_as_scene = True

    def __mul__(self, weights: np.ndarray) -> "NoiseCube":
        """Return the noise of bands that are multiplied with weights (L,)."""
        other = object.__new__(type(self))
        vars(other).update(self.__getstate__() | {"weights": self.weights * weights})
        return other

    def read(self, first: int, count: int) -> np.ndarray:
        """Return the noise of some lines of the scene, (count × samples, L); NaN where it is missing or not above 0."""
        noise = self.values(first, count)
        noise[~(noise > 0)] = np.nan
        return noise

    def factors(self, first: int, count: int) -> np.ndarray:
        """Return factors of the bands of some lines' pixels, least noise over noise, (count × samples, L), or NaN."""
        noise = self.read(first, count)
        return clear_missing(
            np.where(np.isfinite(noise).all(axis=1, keepdims=True), noise.min(axis=1, keepdims=True) / noise, np.nan)
        )


class WeightsCube(CubeBeside):
    """The weight of each band of each pixel, such as an inverse variance; see `CubeBeside`."""

    what = "weights"

    def factors(self, first: int, count: int) -> np.ndarray:
        """See `NoiseCube.factors`: the square roots of weights that are at least 0, and not all 0."""
        weights = self.values(first, count)
        known = (np.isfinite(weights) & (weights >= 0)).all(axis=1, keepdims=True) & (weights > 0).any(
            axis=1, keepdims=True
        )
        return clear_missing(np.where(known, np.sqrt(np.where(known, weights, 1.0)), np.nan))


def clear_missing(factors: np.ndarray) -> np.ndarray:
    """Return factors (n, L) with NaN for pixels whose factors differ so much that the lightest would be rounding."""
    least = np.where(factors > 0, factors, np.inf).min(axis=1, keepdims=True)
    return np.where(least > LIGHTEST * factors.max(axis=1, keepdims=True), factors, np.nan)


class AllowedCube(CubeBeside):
    """Which endmembers each pixel may have: a band for each, not 0 where it may; see `CubeBeside`."""

    what = "allowed endmembers"

    def read(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the allowed endmembers of some lines' pixels, (count × samples, p), and where they are known."""
        raw = read_lines(self.part.cube, slice(first, first + count))
        stored = self.part._replace(bands=Bands.of(self.index)).spectra(raw)
        return stored != 0, ~self.part.missing(raw)


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


def read_numbers(path: str | os.PathLike[str], what: str, of: str) -> list[float]:
    """Return the last number of each line of a text or CSV file, whose first line may have none."""
    try:
        text = decoded(read_small(located(path), LONGEST_FILE))
    except InputError as error:
        raise InputError(f"cannot read the {what}: {error}") from None
    values = []
    for number, (_, cells) in enumerate(list_rows(text, path, InputError)):
        try:
            values.append(float(cells[-1]))
        except ValueError:
            if number:  # the first line may be a heading
                raise InputError(
                    f"{path}: '{cells[-1][:20]}' is no number; write the {what} of {of} on each line"
                ) from None
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
