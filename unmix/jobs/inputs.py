"""What a run reads beside its scene, and what does not go with it: library, shade, weights and noise."""

import os

import numpy as np

from ..errors import InputError, LibraryError, MethodError
from ..io import Bands, Cube
from ..library import Endmembers, load_for
from ..methods import ModelChoice
from ..options import Options
from .derived.noise import NoiseCube

# Reflectances are below this: snow and glint reach 1.2.
BRIGHTEST = 3.0
# The least weight of a band, as a share of the largest.
LIGHTEST = 1e-9


def library_of(options: Options, scene: Cube, used: Bands) -> Endmembers:
    """Return the spectra of the library that the options name, brought to the bands in use."""
    assert options.endmembers is not None
    return load_for(options.endmembers, scene, used.index, options.classes, options.library_scale, options.select)


def fit_shade(path: str | os.PathLike[str], options: Options, scene: Cube, used: Bands) -> Endmembers:
    """Return the one spectrum of a file, scaled and resampled to the bands in use; `LibraryError` where it holds more."""
    shade = load_for(path, scene, used.index, scale=options.library_scale)
    if len(shade.names) > 1:
        raise LibraryError(f"{path}: holds {len(shade.names)} spectra; `shade` is one")
    return shade


def refuse_weights(weights: np.ndarray, path: str | os.PathLike[str] | None) -> None:
    """Raise `InputError` where weights differ so much that the lightest bands would be rounding."""
    if not weights.min() > LIGHTEST * weights.max():
        raise InputError(
            f"{path}: the weights of two bands differ more than {1 / LIGHTEST:g} times; leave a band out with `bands` in place of a "
            "weight near 0"
        )


def refuse_each(noise: NoiseCube, options: Options) -> None:
    """Raise `MethodError` where options need one noise for all pixels, and each has its own."""
    of_all = {
        "monte_carlo": options.monte_carlo is not None,
        "weights": options.weights == "noise",
        "l1": isinstance(options.l1, str),
        "l21": isinstance(options.l21, str),
    }
    for name, is_set in of_all.items():
        if is_set:
            raise MethodError(f"`{name}`: {noise.path} has noise for each pixel; it takes a number for each band")


def refuse_units(choice: ModelChoice, library: Endmembers) -> None:
    """Raise `MethodError` where thresholds that are reflectance from 0 to 1 meet a library that is not."""
    largest, default = float(library.matrix.max()), ModelChoice()
    has_defaults = choice.fusion == default.fusion or (choice.limits == "viper" and choice.max_rmse is None)
    if largest > BRIGHTEST and has_defaults:
        raise MethodError(
            f"`fusion` {choice.fusion} and the other thresholds are in reflectance from 0 to 1, but {library.source} reaches "
            f"{largest:g}; divide with `scale` and `library_scale`, or set `fusion` and `max_rmse` in its unit"
        )
