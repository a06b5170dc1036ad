"""MESMA beside VIPER's own (the package ``mesma``, if it can be imported): ``python tests/bench/models.py [SPECTRA]
[PIXELS] [DATA]``.

Jasper Ridge with SPECTRA of each of three classes of its library, levels 2 to 4, VIPER's limits and rule of fusion.
Prints a line of JSON: seconds of each (medians of three of ours, one run of theirs on fewer pixels, as seconds per
pixel), how many pixels have the same model, and of the others how many are within float32's rounding of theirs, or
where ours has a smaller RMSE.

``python tests/bench/models.py SPECTRA PIXELS DATA cuda`` compares a GPU with the CPU instead, on all pixels, and times
250 000 of them that are resident on the GPU.
"""

import sys
from pathlib import Path

import numpy as np
from common import say, seconds_of, stored

import unmix
from unmix.library import load

LIMITS = {"levels": "2-4", "limits": "viper", "fusion_rule": "preceding"}
CLASSES = ("Tree", "Dirt", "Road")


def scene(data: Path, spectra: int, pixels: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return reflectance (N, L), a library (L, p) and its classes."""
    library = load(data / "libraries/spectral_library_jasperRidge.mat")
    assert library.classes is not None
    chosen = [j for name in CLASSES for j in [j for j, kind in enumerate(library.classes) if kind == name][:spectra]]
    L = len(library.matrix)
    Y = stored(data / "jasper/jasper.hdr").reshape(-1, L)
    some = np.random.default_rng(0).permutation(len(Y))[:pixels]
    return np.minimum(Y[some], 1.0), library.matrix[:, chosen], [library.classes[j] for j in chosen]


def theirs(Y: np.ndarray, E: np.ndarray, kinds: list[str]) -> tuple[float, np.ndarray, np.ndarray]:
    """Return seconds, spectra by class (N, classes; −1 for none) and RMSE (N,) of the package ``mesma``."""
    from mesma.core.mesma import MesmaCore, MesmaModels

    models = MesmaModels()
    models.setup(np.array(kinds))
    models.select_level(True, 4)
    for c in range(len(CLASSES)):
        models.select_class(True, c, 4)
    image = np.ascontiguousarray(Y.T.astype(np.float32))[:, None, :]
    seconds, (best, _, rmse, *_) = seconds_of(
        1,
        MesmaCore(n_cores=2).execute,
        image,
        E.astype(np.float32),
        models.return_look_up_table(),
        models.em_per_class,
        log=lambda *_, **__: None,
    )
    return seconds, best.reshape(len(models.em_per_class), -1).T, rmse.ravel()


def on_gpu(Y: np.ndarray, E: np.ndarray, kinds: list[str]) -> None:
    """Print how a GPU's choices differ from the CPU's, and its own time."""
    import kernels

    from unmix.library import Endmembers
    from unmix.methods import ModelChoice

    counts = np.round(Y * 1e4).astype(np.int16)
    cpu, gpu = (unmix.mesma(counts * 1e-4, E, kinds, device=name, **LIMITS) for name in ("cpu", "cuda"))
    same = ((cpu.abundances != 0) == (gpu.abundances != 0)).all(axis=1)
    names = tuple(map(str, range(len(kinds))))
    library = Endmembers(names, E, None, source="library", classes=tuple(kinds))
    say(
        kernels.ready(counts, library, "mesma", None, 250_000, "Jasper Ridge", ModelChoice(**LIMITS), 1e-4)()
        | {
            "compared": len(Y),
            "other_model": int((~same).sum()),
            "largest_difference_of_the_same": float(np.abs(cpu.abundances - gpu.abundances)[same].max()),
        }
    )


def main(spectra: str = "20", pixels: str = "10000", data: str = "", device: str = "cpu") -> None:
    folder = Path(data) if data else Path(__file__).parents[3] / "shared/data"
    Y, E, kinds = scene(folder, int(spectra), int(pixels))
    if device == "cuda":
        on_gpu(Y, E, kinds)
        return
    seconds, found = seconds_of(3, unmix.mesma, Y, E, kinds, **LIMITS)
    ours = seconds / len(Y)
    line = {"classes": len(CLASSES), "spectra": int(spectra), "pixels": len(Y), "us": round(ours * 1e6, 2)}
    try:
        few = Y[: min(len(Y), 1000)]
        taken, best, rmse = theirs(few, E, kinds)
    except ImportError:
        say(line | {"mesma": "not installed"})
        return
    names = sorted(set(kinds), key=str.lower)
    numbers = np.full((len(few), len(names)), -1)
    for c, name in enumerate(names):
        for j, kind in enumerate(kinds):
            if kind == name:
                numbers[found.abundances[: len(few), j] != 0, c] = j
    same = (numbers == best).all(axis=1)
    off = found.rmse[: len(few)] - rmse
    none = (best < 0).all(axis=1)
    say(
        line
        | {
            "mesma_us": round(taken / len(few) * 1e6, 1),
            "ratio": round(taken / len(few) / ours, 1),
            "compared": len(few),
            "same_model": int(same.sum()),
            "unmodelled_by_both": int((same & none).sum()),
            "other_model": int((~same).sum()),
            "of_these_ours_fits_better_or_as_well": int((~same & (off <= 1e-6)).sum()),
            "largest_rmse_difference_of_the_same": float(np.abs(off[same & ~none]).max(initial=0.0)),
        }
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
