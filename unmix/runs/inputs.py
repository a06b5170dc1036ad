"""Read a run's inputs beside its scene: library, shade, noise and weights; refuse inputs that do not fit it.

Solve pixels whose noise comes from counts.
"""

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..certificate import PARTLY, SOLVED
from ..devices.slots import forget, put
from ..errors import InputError, LibraryError, MethodError
from ..features.runs import asked
from ..io import Scene, Watch, files_of, spectra
from ..library import Endmembers, load_for, table_of_classes
from ..maps.derived.noise import (
    LIGHTEST,
    NoiseCube,
    is_text,
    noise_of,
    read_bands,
)
from ..methods import ModelChoice
from ..options import Options
from ..options.contradictions import uses_of_noise
from ..outputs.names import inputs_of, refuse_inputs
from ..problem import LessBackground, LessShade, Problem, Step, Weights, of_mean_square_one
from ..settings import names_where


@dataclass
class CountedPixels:
    """Pixels of counts, whose noise is Poisson's.

    Attributes
    ----------
    background : array (L,)
        Counts that are there in any case.
    lost : dict
        How many pixels have no answer, by the reason.
    """

    background: np.ndarray
    lost: dict[str, list[int]] = field(default_factory=dict)

    def lose(self, state: np.ndarray, which: Any, reason: str) -> None:
        """Leave pixels out that would be solved, for a reason."""
        out = (state == SOLVED) & which.reshape(state.shape)
        state[out] = PARTLY
        self.lost.setdefault(reason, []).append(int(out.sum()))

    def messages(self) -> list[str]:
        """Return why pixels have no answer, one sentence a reason."""
        return [
            f"{sum(counts)} pixels {reason}; their results are -9999"
            for reason, counts in self.lost.items()
            if any(counts)
        ]

    def solve(
        self, problem: Problem, first: int, raw: np.ndarray, results: dict[str, np.ndarray], threads: int
    ) -> None:
        """Solve the pixels of n lines again in place, as counts."""
        # ``raw`` holds stored values in ``problem.interleave``. Counts come with their background, which the problem's
        # bands are without.
        state = results["state"]
        before, Y, E = state.copy(), spectra(raw, problem.interleave, problem.plain[0]), problem.endmembers.matrix
        is_dark = ~(E.any(axis=1) | (self.background > 0))
        self.lose(state, (Y < 0).any(axis=1), "have negative counts")
        self.lose(state, (Y[:, is_dark] > 0).any(axis=1), "have counts in a band in which no endmember has any")
        solved = state == SOLVED
        y = Y[solved.ravel()]
        answer, y = counted_noise(y, np.nonzero(solved)[0], E, self.background, threads), y - self.background
        put(results, solved, answer, y - answer["abundances"] @ E.T, np.sqrt(np.square(y).mean(axis=1)))
        forget(results, (before == SOLVED) & ~solved)


def counted_noise(
    Y: np.ndarray, line: np.ndarray, E: np.ndarray, background: np.ndarray, threads: int
) -> dict[str, Any]:
    """Return answers like `solve_each`'s for pixels of counts (n, L) in lines (n,), which ascend."""
    from ..arrays.counts import poisson  # which imports much of scipy

    def of_line(y: np.ndarray) -> dict[str, Any]:
        found = poisson(y, E, background=background, threads=threads)
        rmse = np.sqrt(np.square(y - background - found.x @ E.T).mean(axis=1))
        return {"abundances": found.x, "rmse": rmse, "kappa": found.kappa, "delta": found.delta, "steps": found.steps}

    # Each line alone: products of many pixels round by their number, and maps must not depend on blocks.
    parts = [of_line(some) for some in np.split(Y, np.flatnonzero(np.diff(line)) + 1)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


# Reflectances are below this: snow and glint reach 1.2.
BRIGHTEST = 3.0

log = logging.getLogger("unmix")


class Inputs:
    """Inputs of a run beside its scene, on the bands in use.

    Parameters
    ----------
    scene : Scene
    options : Options
    outputs : iterable of Path
        The files that the run will write.

    Attributes
    ----------
    watch : Watch
        Notices where an input changes during the run.
    library : Endmembers or None
        None where endmembers are extracted from the scene.
    classes : ClassSums or None
        Which of them are of one material, where sums by class are wanted.
    shade : Endmembers or None
        The one spectrum of shade.
    noise : array (L,), float64, NoiseCube or None
        The standard deviation of each band, or of each pixel in each band.
    weights : array (L,), float64, or None
        Of the bands; their mean square is 1.
    background : array (L,) or None
        Of counts, where the pixels are that.

    Raises
    ------
    UnmixError
        Where one cannot be read, does not fit the scene or the options, or would be replaced by an output.
    """

    def __init__(self, scene: Scene, options: Options, outputs: Iterable[Path]) -> None:
        self.scene, self.options, cube = scene, options, scene.cube
        library = None if isinstance(options.endmembers, Endmembers) else options.endmembers
        table = table_of_classes(options.classes)[0] or None if options.classes else None
        noise = None if options.noise in ("auto", "none") else options.noise
        weights = None if options.weights == "noise" else options.weights
        tables = {
            "classes": table,
            "noise": noise,
            "weights": weights,
            "background": options.background,
        }
        outputs = list(outputs)
        single = inputs_of(library=options.shade) + inputs_of(library=options.reading.free)
        refuse_inputs(outputs, inputs_of(cube, library=library, **tables) + single)
        for feature in asked(options).values():
            for name in names_where(feature.settings, is_path=True):
                path = getattr(options, name)
                refuse_inputs(outputs, inputs_of(**{name: None if isinstance(path, Endmembers) else path}))
        self.noise = None if noise is None else noise_of(noise, scene, options.reading)
        if isinstance(self.noise, NoiseCube):
            refuse_each(self.noise, options)
        self.library = None if options.endmembers is None else options.library_of(scene)
        self.classes = None if self.library is None else options.sums(self.library)
        cube_of_noise = files_of(self.noise.part.cube) if isinstance(self.noise, NoiseCube) else []
        files = [("noise", path) for path in dict.fromkeys(cube_of_noise)]
        refuse_inputs(outputs, files)
        self.watch = Watch(cube, [path for _, path in files])
        self.weights = self.read_weights(weights, noise)
        self.background = self.read_background()
        if options.mesma and self.library is not None:
            refuse_other_units(options.mesma, self.library)
        self.shade = None if options.shade is None else fit_shade(options.shade, options, scene)

    def read_background(self) -> np.ndarray | None:
        """Return the background of counts, (L,), zeros where none is given; None where pixels are no counts."""
        if self.options.likelihood != "poisson":
            return None
        _, bands, _ = self.scene
        if np.any(bands.gain != 1.0) or np.any(bands.offset != 0.0):
            raise InputError(
                f"{self.scene.cube.path}: its values are scaled, and counts are as they are stored; set `scale` 1 if "
                "they are counts"
            )
        if self.options.background is None:
            return np.zeros(len(bands.index))
        return read_bands(self.options.background, self.scene, "background", has_zero=True)

    def counted(self, endmembers: Endmembers) -> CountedPixels | None:
        """Return the pixels of counts, None of others; `InputError` where endmembers are no counts."""
        if self.background is None:
            return None
        for name, column in zip(endmembers.names, endmembers.matrix.T):
            if (column < 0).any() or not column.any():
                raise InputError(
                    f"{endmembers.source}: {name} is negative in a band, or 0 in all, and no spectrum of counts"
                )
        return CountedPixels(self.background)

    def read_weights(
        self, path: str | os.PathLike[str] | None, noise: str | os.PathLike[str] | None
    ) -> np.ndarray | None:
        """Return the bands' weights from a file or from the noise, with a mean square of 1; None without either."""
        if path is not None and not is_text(path):
            raise MethodError(f"`weights` {path}: is no table of bands; weights of each pixel are for unmix.solve")
        if path is not None:
            weights = read_bands(path, self.scene, "weights")
        elif self.options.weights == "noise" and self.noise is not None:
            deviations = self.noise.typical() if isinstance(self.noise, NoiseCube) else self.noise
            weights = deviations.min() / deviations
        else:
            return None
        refuse_weights(weights, path or noise)
        return of_mean_square_one(weights)

    def request(self) -> dict[str, Any]:
        """Return the inputs that abundances depend on beside the library and the options, for ``run.json``."""
        request: dict[str, Any] = {}
        if self.noise is not None:
            request["noise"] = self.noise.identity if isinstance(self.noise, NoiseCube) else self.noise.tolist()
        if self.weights is not None:
            request["weights"] = self.weights.tolist()
        if self.background is not None:
            request["background"] = self.background.tolist()
        if self.shade is not None:
            request["shade"] = self.shade.digest()
        if self.options.reading.free is not None:
            request["free"] = vars(self.scene.cube)["free"].digest()
        if self.classes is not None:
            request["classes"] = self.classes.to_list()
        return request

    def noise_of_problem(self) -> "np.ndarray | NoiseCube | None":
        """Return the noise of the bands as they are weighted."""
        return self.noise if self.noise is None or self.weights is None else self.noise * self.weights

    def with_shade(self, endmembers: Endmembers) -> tuple[Scene, Endmembers]:
        """Return scene and endmembers with shade among these or, for models, subtracted from all spectra."""
        if self.shade is None:
            return self.scene, endmembers
        shade = self.shade.matrix[:, 0]
        if not self.options.mesma:
            return self.scene, endmembers.with_shade(shade)
        used, given = LessShade(shade).apply(self.scene.bands, endmembers)
        same = [name for name, column in zip(given.names, given.matrix.T) if not column.any()]
        if same:
            raise LibraryError(f"{given.source}: {same[0]} is the spectrum of `shade`; leave it out (`select`)")
        return self.scene._replace(bands=used), given

    def possible(self, endmembers: Endmembers) -> Endmembers:
        """Return extracted endmembers with any albedo above 1, which no spectrum of reflectance has, set to 1."""
        above = endmembers.matrix > 1.0
        if self.options.reading.albedo is None or not above.any():
            return endmembers
        names = [name for name, bands in zip(endmembers.names, above.T) if bands.any()]
        log.warning(
            f"{self.scene.cube.path}: {names[0]} has an albedo above 1 in {int(above.any(axis=1).sum())} bands, which "
            "is taken to be 1"
        )
        return replace(endmembers, matrix=np.minimum(endmembers.matrix, 1.0))

    @property
    def steps(self) -> list[Step]:
        """The weights of the bands, where they have any, or the background that is taken off them."""
        if self.background is not None and self.background.any():
            return [LessBackground(self.background)]
        return [] if self.weights is None else [Weights(self.weights)]

    def as_given(self, endmembers: Endmembers, keep: Callable[[Endmembers], Endmembers]) -> Endmembers:
        """Return the endmembers as given or extracted, shade included, before any change to them."""
        scene, options, shade = self.scene.unchanged(), self.options, self.shade
        if options.reading.albedo is not None:
            of_library: Any = getattr(self.scene.cube, "of_library")  # noqa: B009 - of an `Albedo`, imported where used
            endmembers = replace(endmembers, matrix=of_library.reflectance(endmembers.matrix))
            shade = None if shade is None else replace(shade, matrix=of_library.reflectance(shade.matrix))
        # Windows of bands are tied (`tie`): ``keep`` returns the endmembers that a regression selected.
        elif scene is not self.scene:
            endmembers = keep(options.library_of(scene))
            shade = None if options.shade is None else fit_shade(options.shade, options, scene)
        if shade is None and not options.method_spec.constraint.has_shade:
            return endmembers
        return endmembers.with_shade(None if shade is None else shade.matrix[:, 0])


def fit_shade(path: str | os.PathLike[str], options: Options, scene: Scene) -> Endmembers:
    """Return a file's one spectrum, scaled and resampled to the bands in use; `LibraryError` if there are more."""
    shade = load_for(path, scene, scale=options.library_scale, across_gaps=options.across_gaps)
    if len(shade.names) > 1:
        raise LibraryError(f"{path}: holds {len(shade.names)} spectra; `shade` is one")
    return shade


def refuse_weights(weights: np.ndarray, path: str | os.PathLike[str] | None) -> None:
    """Raise `InputError` where weights differ so much that the lightest bands would be rounding."""
    if not weights.min() > LIGHTEST * weights.max():
        raise InputError(
            f"{path}: the weights of two bands differ more than {1 / LIGHTEST:g} times; leave a band out with `bands` "
            "in place of a "
            "weight near 0"
        )


def refuse_each(noise: NoiseCube, options: Options) -> None:
    """Raise `MethodError` where options need one noise for all pixels, and each pixel has its own."""
    for name in uses_of_noise(options, "of bands"):
        raise MethodError(f"`{name}`: {noise.path} has noise for each pixel; it takes a number for each band")


def refuse_other_units(choice: ModelChoice, library: Endmembers) -> None:
    """Raise `MethodError` where thresholds that are reflectance from 0 to 1 meet a library that is not."""
    largest = float(library.matrix.max())
    if largest > BRIGHTEST and choice.is_in_reflectance:
        raise MethodError(
            f"the thresholds of VIPER, such as `fusion` 0.007, are in reflectance from 0 to 1, but {library.source} "
            "reaches "
            f"{largest:g}; divide with `scale` and `library_scale`, or set `fusion` and `max_rmse` in its unit"
        )
