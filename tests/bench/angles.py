"""Endmembers and abundances beside the reference: ``python tests/bench/angles.py [DATA]``.

For Jasper Ridge and Samson, with as many endmembers as the reference has: the mean angle in radians, endmembers matched by assignment
(no reference is taken twice), and the RMSE of fcls abundances beside the reference's; medians and range over seeds 0 to 19 where there
is one. "plain" is our own plain reading of VCA's paper (`tests/naive.py`): the pixels it picks, and its own output, projected.
"""

import sys
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

sys.path.insert(0, str(Path(__file__).parents[1]))
import naive

import unmix
from unmix.endmembers import extract_endmembers
from unmix.io import bytes_per_line, open_cube, spectra
from unmix.library import load
from unmix.scene.bands import choose_bands

DATA = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[3] / "shared/data")
SEEDS = range(20)
OURS = {
    "vca --no-refine": ("vca", False, SEEDS),
    "vca": ("vca", True, SEEDS),
    "spa": ("spa", True, (0,)),
    "nfindr": ("nfindr", True, (0,)),
    "vca --smooth 100": ("vca", True, SEEDS),
}


def pixels_of(path: Path) -> tuple[unmix.io.Cube, np.ndarray]:
    """Return a cube and its spectra, (pixels, bands)."""
    cube = open_cube(path)
    raw = cube.read(slice(0, cube.lines), np.empty(bytes_per_line(cube) * cube.lines, np.uint8))
    return cube, spectra(raw, cube.interleave, choose_bands(cube, "good", None))


def compared(E: np.ndarray, truth: np.ndarray, Y: np.ndarray, abundances: np.ndarray) -> tuple[float, float]:
    """Return the mean angle to the reference, and the RMSE of the abundances beside its."""
    cosines = (truth / np.linalg.norm(truth, axis=0)).T @ (E / np.linalg.norm(E, axis=0))
    angles = np.arccos(np.clip(cosines, -1, 1))
    rows, columns = linear_sum_assignment(angles)
    found = unmix.solve(Y, E[:, columns], method="fcls").abundances
    return float(angles[rows, columns].mean()), float(np.sqrt(np.square(found - abundances).mean()))


def show(name: str, extractor: str, results: list[tuple[float, float]]) -> None:
    """Print a row of the table."""
    cells = []
    for values in np.array(results).T:
        spread = f" [{values.min():.3f}, {values.max():.3f}]" if len(values) > 1 else ""
        cells.append(f"{np.median(values):.3f}{spread}")
    print(f"| {name} | {extractor} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    print("| scene | endmembers by | mean angle | RMSE of abundances |\n| --- | --- | --- | --- |")
    for name in ("jasper", "samson"):
        cube, Y = pixels_of(DATA / name / f"{name}.hdr")
        bands = choose_bands(cube, "good", None)
        truth = load(DATA / name / f"{name}_truth_endmembers.csv").matrix
        abundances = pixels_of(DATA / name / f"{name}_truth_abundance.hdr")[1]
        p = truth.shape[1]
        plain = [naive.vca(Y, p, seed) for seed in SEEDS]
        show(name, "VCA, plain, projected", [compared(E, truth, Y, abundances) for _, E in plain])
        show(name, "VCA, plain, pixels", [compared(Y[places].T, truth, Y, abundances) for places, _ in plain])
        for title, (extractor, refine, seeds) in OURS.items():
            found = [
                extract_endmembers(
                    cube,
                    bands,
                    None,
                    p,
                    extract=extractor,
                    seed=seed,
                    budget=2**30,
                    refine=refine,
                    smooth=100 * ("smooth" in title),
                )[0]
                for seed in seeds
            ]
            show(name, f"`{title}`", [compared(E.matrix, truth, Y, abundances) for E in found])


if __name__ == "__main__":
    main()
