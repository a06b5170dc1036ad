"""Give extraction algorithms access to scenes: passes over all pixels, each reading all files, and single spectra."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..blocks import cores
from ..errors import CubeError
from ..io import Scene
from .scan import Gpu, View, held_by, numbers, projections, scattered
from .scan.points import Points
from .scan.searches import normalise
from .statistics import Moments, merged, moments

log = logging.getLogger("unmix")

# Scenes whose pixels differ in size by more than this factor are in different units.
OTHER_UNIT = 50.0
# Threads from which work is done before it is known whether it will serve: noise of directions beside the sums, SISAL's
# rough simplex beside the most likely one, and one more number of endmembers for as many threads.
WORTH_A_GUESS = 4
Visit = Callable[[int, np.ndarray], None]


@dataclass
class Passes:
    """Scenes as extraction algorithms see them: all their pixels, one scene after the other, numbered from 0 on.

    Attributes
    ----------
    scenes : sequence of Scene
        On the same bands.
    budget : int
        Bytes of memory for blocks.
    threads : int
    made : int
        Number of passes over the files so far.
    sampled : Sampled, optional
        The sample of directions, once it was read (`unmix.endmembers.sampled`).
    """

    scenes: Sequence[Scene]
    budget: int
    threads: int
    made: int = 0
    sampled: Any = None
    gpu: Gpu | None = None

    @property
    def pixels(self) -> int:
        """Number of pixels of all scenes, masked ones too."""
        return sum(scene.pixels for scene in self.scenes)

    def begun(self) -> Iterator[tuple[int, Scene]]:
        """Yield each scene with the number of its first pixel."""
        first = 0
        for scene in self.scenes:
            yield first, scene
            first += scene.pixels

    def locate(self, place: int) -> tuple[int, int, int]:
        """Return scene, line and sample of a pixel, each from 0."""
        for number, (first, scene) in enumerate(self.begun()):
            if place < first + scene.pixels:
                return (number, *divmod(place - first, scene.cube.samples))
        raise IndexError(place)

    def positions(self, places: Sequence[int]) -> list[list[int]]:
        """Return line and sample of some pixels in their whole scene, also where only a part of that is read."""
        all_places = np.asarray(places, np.int64)
        found = np.empty((len(all_places), 2), np.int64)
        for first, scene in self.begun():
            here = (all_places >= first) & (all_places < first + scene.pixels)
            of_scene = np.divmod(all_places[here] - first, scene.cube.samples)
            found[here] = np.stack(of_scene, axis=1) + np.array(scene.cube.origin)
        listed: list[list[int]] = found.tolist()
        return listed

    def project(self, U: np.ndarray, mean: np.ndarray, visit: Visit) -> None:
        """Pass ``Uᵀ(y − mean)`` of all pixels to ``visit``, in blocks in the order of the files; see `projections`."""
        self.made += 1
        for first, scene in self.begun():
            projections(scene.less(mean), self.budget, self.threads, U, np.zeros(U.shape[1]), after(first, visit))

    @contextlib.contextmanager
    def points(self, views: Sequence[View], budget: int) -> Iterator[list[Points]]:
        """Yield all pixels in some views, NaN where masked, from one pass; ``budget`` is bytes for all; closes them."""
        self.made += 1
        found = held_by(self.gpu, self.scenes, self.budget, self.threads, views, budget)
        of_views = found or []
        try:
            if found is None:
                self.put_views(views, of_views, budget)
            yield of_views
        finally:
            for points in of_views:
                points.close()

    def put_views(self, views: Sequence[View], of_views: list[Points], budget: int) -> None:
        """Append all pixels in each of some views, the first ones in memory, as far as they fit."""
        for view in views:
            of_views.append(Points(self.pixels, view.U.shape[1], budget, self.threads))
            budget -= 0 if of_views[-1].held is None else of_views[-1].held.nbytes
        for begun, scene in self.begun():

            def fill(first: int, count: int, project: Callable[..., None], begun: int = begun) -> None:
                rooms = [points.room(begun + first, count) for points in of_views]
                project(*rooms)
                for view, points, rows in zip(views, of_views, rooms):
                    if view.centre is not None:
                        normalise(rows, view.centre)
                    if points.held is None:
                        points.put(begun + first, rows)

            scattered(scene, self.budget, self.threads, views, fill)

    def squares(self, mean: np.ndarray, visit: Visit) -> None:
        """Pass ``|y − mean|²`` of all pixels to ``visit``, block by block, NaN where masked."""
        self.along(mean, np.empty(0), visit)

    def along(self, mean: np.ndarray, direction: np.ndarray, visit: Visit) -> None:
        """Pass ``directionᵀ(y − mean)``, or |y − mean|² without direction, of all pixels to ``visit``, in blocks."""
        self.made += 1
        for first, scene in self.begun():
            numbers(scene, self.budget, self.threads, mean, direction, after(first, visit))

    def mean(self, places: Sequence[int]) -> np.ndarray:
        """Return the mean of the spectra of some pixels, (L,): read, and added, in the order of the files."""
        of_line: dict[tuple[int, int], list[int]] = {}
        for place in sorted(places):
            number, line, sample = self.locate(place)
            of_line.setdefault((number, line), []).append(sample)
        total = np.zeros(len(self.scenes[0].bands.index))
        for (number, line), samples in of_line.items():
            for y in self.scenes[number].read(line, samples)[0]:
                total += y
        return total / len(places)


def after(first: int, visit: Visit) -> Visit:
    """Return ``visit`` for a scene whose pixels are numbered from ``first`` on."""
    return lambda n, values: visit(first + n, values)


def signal_of(scene: Scene, budget: int, threads: int | None) -> Moments:
    """Return the moments of a scene; `CubeError` if its valid pixels have no signal to extract endmembers from."""
    return signal_of_all([scene], budget, threads)


def signal_of_all(scenes: Sequence[Scene], budget: int, threads: int | None, gpu: Gpu | None = None) -> Moments:
    """Return the moments of all pixels of scenes on the same bands; `CubeError` if there is no signal in them."""
    parts = []
    for scene in scenes:
        cube = scene.cube
        with np.errstate(over="ignore", invalid="ignore"):
            parts.append(moments(scene, budget, threads or cores(), gpu))
        path, part = cube.path, parts[-1]
        power = float(np.trace(part.second))
        if part.pixels == 0 and len(scenes) == 1:
            by = " or left out by `extract_mask`" if getattr(cube, "is_for_extraction", False) else ""
            raise CubeError(
                f"{path}: all {cube.lines * cube.samples} pixels are masked as nodata{by}; `bands` auto leaves dead bands out"
            )
        if part.pixels == 0:
            log.warning(f"{path}: all {cube.lines * cube.samples} pixels are masked as nodata; it adds nothing")
        elif not 1e-200 < power < 1e200:
            problem = "are all zero" if power == 0 else "are too large or small for float64"
            raise CubeError(f"{path}: its {part.pixels} valid pixels {problem}; there is nothing to extract")
    refuse_units(scenes, parts)
    together = merged(parts)
    if together.pixels <= len(together.mean):
        log.warning(
            f"{named(scenes)}: not more valid pixels ({together.pixels}) than bands; noise cannot be told from signal"
        )
    return together


def refuse_units(scenes: Sequence[Scene], parts: Sequence[Moments]) -> None:
    """Raise `CubeError` where scenes are in other units than the first that has pixels, or none has any."""
    sizes = [np.sqrt(float(np.trace(part.second))) if part.pixels else 0.0 for part in parts]
    first = next((k for k, size in enumerate(sizes) if size > 0), None)
    if first is None:
        raise CubeError(f"{named(scenes)}: all pixels are masked as nodata")
    for scene, size in zip(scenes, sizes):
        if size > 0 and not 1 / OTHER_UNIT < size / sizes[first] < OTHER_UNIT:
            raise CubeError(
                f"{scene.cube.path}: its pixels are {size / sizes[first]:.3g} times as large as those of "
                f"{scenes[first].cube.path}; "
                "scenes of one set must be in one unit"
            )


def named(scenes: Sequence[Scene]) -> str:
    """Return the beginning of messages about some scenes: their names."""
    return str(scenes[0].cube.path) if len(scenes) == 1 else f"{len(scenes)} scenes, {scenes[0].cube.path} first"


def names_of(scenes: Sequence[Scene]) -> list[str]:
    """Return the names of scenes: their files' without ending where these differ, else their paths."""
    stems = [scene.cube.stem for scene in scenes]
    return stems if len(set(stems)) == len(stems) else [str(scene.cube.path) for scene in scenes]
