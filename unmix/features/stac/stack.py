"""A cube whose bands are files of their own, on one grid."""

import functools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...blocks import once_a_process
from ...errors import CubeError
from ...io.cube import FileCube, by_pixel, read_lines
from ...io.identity import content_of
from ...io.remote import RemotePath

# Files that are opened or read at a time: a server answers each after a while.
AT_ONCE = 8


@once_a_process
def files() -> ThreadPoolExecutor:
    """Return the pool of threads that open and read the files of a scene, one for the process."""
    return ThreadPoolExecutor(AT_ONCE, "band")


def identity_of_file(path: Path) -> dict[str, Any]:
    """Return the identity of one of a scene's files."""
    if isinstance(path, RemotePath) and path.version.etag is not None:
        return {"bytes": path.version.size, **path.version.identity()}
    return content_of(path)


@dataclass(eq=False)
class Stack(FileCube):
    """A cube of ``parts``, of one band each."""

    parts: list[FileCube]

    @classmethod
    def of(cls, name: str, parts: list[FileCube]) -> "Stack":
        """Return the stack of some cubes, from the shortest wavelength up; `CubeError` where they differ or are no single bands."""
        if all(one.wavelengths is not None for one in parts):
            parts = sorted(parts, key=lambda one: float(one.wavelengths[0]))  # type: ignore[index]
        first = parts[0]
        for one in parts:
            if one.bands != 1:
                raise CubeError(f"{name}: {one.path} has {one.bands} bands; files with one band each are put together")
            if any(getattr(one, key) != getattr(first, key) for key in ("lines", "samples", "dtype", "nodata")) or (
                one.fields.get("map info") != first.fields.get("map info")
            ):
                raise CubeError(
                    f"{name}: {one.path} and {first.path} differ in grid, type or nodata; name files of one grid"
                )
            if one.mask is not None:
                raise CubeError(f"{name}: {one.path} has a mask of its own; bands with masks are not put together")
        stack = cls(
            first.path, first.stem, first.format, first.lines, first.samples, len(parts), first.dtype, "bsq", parts,
            lines_together=max(one.lines_together for one in parts), nodata=first.nodata, fields={**first.fields},
        )  # fmt: skip
        for key, usual in (("wavelengths", None), ("fwhm", None), ("gain", 1.0), ("offset", 0.0)):
            values = [getattr(one, key) for one in parts]
            if any(one is not None for one in values) and (usual is not None or all(one is not None for one in values)):
                setattr(stack, key, np.array([usual if one is None else one[0] for one in values], float))
        stack.fields["band names"] = ", ".join(one.fields.get("band names", one.path.stem) for one in parts)
        stack.beside = [path for one in parts for path in (one.path, *one.beside) if path != first.path]
        stack.problems = list(dict.fromkeys(problem for one in parts for problem in one.problems))
        return stack

    def fill(self, lines: slice, filled: np.ndarray) -> None:
        """Fill an array (bands, n, samples) with whole lines as stored."""

        def read(place: np.ndarray, one: FileCube) -> None:
            place[:] = by_pixel(read_lines(one, lines), one.interleave)[:, :, 0]

        list(files().map(read, filled, self.parts))

    @functools.cached_property
    def contents(self) -> list[dict[str, Any]]:
        """The identities of all files but the first; where a server gives an ETag, that is enough."""
        return list(files().map(identity_of_file, [one.path for one in self.parts[1:]]))

    def storage(self) -> dict[str, Any]:
        """Return how the files store the cube; see `unmix.io.cube.Cube.storage`."""
        return {"files": [one.storage() for one in self.parts], "contents": self.contents}
