"""Angles of VCA's endmembers to the reference ones, ours beside a plain reading: ``python tests/bench/angles.py [DATA]``.

For Jasper Ridge and Samson, seeds 0 to 9: for each reference endmember the angle in radians to the nearest extracted one,
the median over seeds. "projected" is the algorithm's own output, "pixel" the pixel that it came from (what unmix writes).
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
import naive

from unmix.endmembers import extract_endmembers
from unmix.io import bytes_per_line, open_cube, spectra
from unmix.library import load
from unmix.scene import choose_bands

DATA = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[3] / "shared/data")


def main() -> None:
    print(
        "| scene | material | unmix | plain reading, pixel | plain reading, projected |\n| --- | --- | --- | --- | --- |"
    )
    for name in ("jasper", "samson"):
        cube = open_cube(DATA / name / f"{name}.hdr")
        bands = choose_bands(cube, "good", None)
        raw = cube.read(slice(0, cube.lines), np.empty(bytes_per_line(cube) * cube.lines, np.uint8))
        Y = spectra(raw, cube.interleave, bands)
        truth = load(DATA / name / f"{name}_truth_endmembers.csv")
        p = len(truth.names)
        found = {"unmix": [], "pixel": [], "projected": []}
        for seed in range(10):
            found["unmix"].append(extract_endmembers(cube, bands, None, p, "vca", seed, 2**30)[0].matrix)
            places, projected = naive.vca(Y, p, seed)
            found["pixel"].append(Y[places].T)
            found["projected"].append(projected)
        for j, material in enumerate(truth.names):
            row = [np.median([nearest(truth.matrix[:, j], E) for E in matrices]) for matrices in found.values()]
            print(f"| {name} | {material} | " + " | ".join(f"{angle:.3f}" for angle in row) + " |")


def nearest(spectrum, E):
    """The smallest angle to any column."""
    return min(naive.angle(spectrum, e) for e in E.T)


if __name__ == "__main__":
    main()
