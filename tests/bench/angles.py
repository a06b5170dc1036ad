"""Endmembers and abundances beside the reference: ``python tests/bench/angles.py [DATA]``.

For Jasper Ridge, Samson, and the synthetic scene sim1 with noise of 30, 40 and 60 dB, no pixel of which is pure; with
as many endmembers as the reference has: the mean angle in radians, endmembers matched by assignment (no reference is
taken twice), and the RMSE of fcls abundances beside the reference's; medians and range over seeds 0 to 19 where there
is one. "plain" is our own reading of VCA's and of SISAL's paper (`tests/naive.py`): of VCA the pixels it picks, and its
own output, projected; of SISAL 80 rounds of 100 steps from N-FINDR's pixels. pysptools' N-FINDR, where it is installed,
begins from random pixels by each seed.
"""

import random
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.linalg
from common import matched, stored
from conftest import write_cube
from naive import sisal, vca
from scipy.io import loadmat

import unmix
from unmix.endmembers import extract_from
from unmix.io import Scene, open_cube
from unmix.library import load
from unmix.methods import Extraction
from unmix.scene.bands import choose_bands

DATA = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[3] / "shared/data")
SEEDS = range(20)
OURS = {
    "vca --no-refine": ("vca", False, SEEDS),
    "vca": ("vca", True, SEEDS),
    "spa": ("spa", True, (0,)),
    "nfindr": ("nfindr", True, (0,)),
    "sisal": ("sisal", True, (0,)),
    "vca --smooth 100": ("vca", True, SEEDS),
}


def compared(E: np.ndarray, truth: np.ndarray, Y: np.ndarray, abundances: np.ndarray) -> tuple[float, float]:
    """Return the mean angle to the reference, and the RMSE of the abundances beside its."""
    rows, columns, angles = matched(E, truth)
    found = unmix.solve(Y, E[:, columns], method="fcls").abundances
    return float(angles[rows, columns].mean()), float(np.sqrt(np.square(found - abundances).mean()))


def show(name: str, extractor: str, results: list[tuple[float, float]]) -> None:
    """Print a row of the table."""
    cells = []
    for values in np.array(results).T:
        spread = f" [{values.min():.3f}, {values.max():.3f}]" if len(values) > 1 else ""
        cells.append(f"{np.median(values):.3f}{spread}")
    print(f"| {name} | {extractor} | " + " | ".join(cells) + " |", flush=True)


def scenes(folder: Path) -> Iterator[tuple[str, Path, np.ndarray, np.ndarray]]:
    """Yield name, cube, true endmembers (L, p) and abundances (lines, samples, p) of each scene."""
    for name in ("jasper", "samson"):
        truth = load(DATA / name / f"{name}_truth_endmembers.csv").matrix
        yield name, DATA / name / f"{name}.hdr", truth, stored(DATA / name / f"{name}_truth_abundance.hdr")
    clean, truth, abundances = (loadmat(DATA / "sim1_synth" / f"{key}.mat")[key] for key in ("Y_clean", "E", "A_true"))
    for snr in (30, 40, 60):
        noise = np.sqrt(np.square(clean).mean() / 10 ** (snr / 10)) * np.random.default_rng(0).standard_normal(
            clean.shape
        )
        path = write_cube(folder / f"sim1_{snr}.hdr", clean + noise)
        yield f"sim1, {snr} dB", path, truth, abundances


def plain_sisal(Y: np.ndarray, start: np.ndarray, outside: float = 0.3) -> np.ndarray:
    """Return the corners (L, p) by the plain reading of SISAL's paper, from endmembers ``start`` (L, p)."""
    p, mean = start.shape[1], Y.mean(axis=0)
    values, vectors = np.linalg.eigh((Y - mean).T @ (Y - mean) / len(Y))
    U, deviations = vectors[:, ::-1][:, : p - 1], np.sqrt(values[::-1][: p - 1])
    H, M = (np.vstack([np.ones(len(some)), U.T @ (some - mean).T / deviations[:, None]]) for some in (Y, start.T))
    Q = sisal(H, np.linalg.inv(M), p * (p - 1) / (outside * len(Y)))
    return mean[:, None] + U @ (np.linalg.inv(Q)[1:] * deviations[:, None])


def pysptools_nfindr(cube: unmix.io.Cube, Y: np.ndarray, p: int) -> list[np.ndarray]:
    """Return the endmembers (L, p) by pysptools' N-FINDR, from random pixels by each seed; none where it is not installed."""
    try:
        from pysptools.eea import NFINDR
    except ImportError:
        return []
    # It calls a function that scipy 1.11 removed: a determinant in float32.
    scipy.linalg._flinalg = types.SimpleNamespace(sdet_c=lambda M: (np.linalg.det(M), 0))
    found = []
    for seed in SEEDS:
        random.seed(seed)
        np.random.seed(seed)
        image = Y.reshape(cube.lines, cube.samples, -1).copy()
        found.append(np.asarray(NFINDR().extract(image, p)).T.astype(float))
    return found


def main() -> None:
    print("| scene | endmembers by | mean angle | RMSE of abundances |\n| --- | --- | --- | --- |")
    folder = tempfile.TemporaryDirectory()
    for name, path, truth, abundances in scenes(Path(folder.name)):
        cube, Y, abundances = open_cube(path), *(one.reshape(-1, one.shape[2]) for one in (stored(path), abundances))
        bands, p = choose_bands(cube, "good", None), truth.shape[1]
        plain = [vca(Y, p, seed) for seed in SEEDS]
        show(name, "VCA, plain, projected", [compared(E, truth, Y, abundances) for _, E in plain])
        show(name, "VCA, plain, pixels", [compared(Y[places].T, truth, Y, abundances) for places, _ in plain])
        for title, (extractor, refine, seeds) in OURS.items():
            found = [
                extract_from(
                    [Scene(cube, bands, None)],
                    Extraction(p, extractor, refine, smooth=100 * ("smooth" in title), seed=seed),
                    2**30,
                )[0]
                for seed in seeds
            ]
            show(name, f"`{title}`", [compared(E.matrix, truth, Y, abundances) for E in found])
            if title == "nfindr" and (rivals := pysptools_nfindr(cube, Y, p)):
                show(name, "pysptools, N-FINDR", [compared(E, truth, Y, abundances) for E in rivals])
            if title == "nfindr":
                show(name, "SISAL, plain", [compared(plain_sisal(Y, found[0].matrix), truth, Y, abundances)])


if __name__ == "__main__":
    main()
