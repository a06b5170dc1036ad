"""Intimate mixtures of minerals by albedo and by reflectance: ``python tests/bench/intimate.py``; needs UNMIX_DATA.

Mixtures of four minerals of the USGS's library (1995) with random shares of the mass, densities and diameters of
grains, made by Hapke's formula as the tests have it (`reference.fractions`), with noise of 0.2 % of full scale: the sun
at 30 degrees, seen from the nadir.
Prints a line of JSON for each way: RMSE of the shares of the mass, and the largest error of 99 % of them.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
import scipy.io
from common import say
from conftest import read_values, write_csv, write_cube
from reference import fractions

import unmix

MINERALS = ("Alunite", "Kaolinite", "Olivine", "Hematite")
DENSITY, DIAMETER = np.array([2.7, 2.6, 3.3, 5.2]), np.array([60.0, 10.0, 90.0, 5.0])
COSINES = float(np.cos(np.radians(30.0))), 1.0
LINES, SAMPLES, NOISE = 60, 60, 0.002


def minerals(path: Path) -> np.ndarray:
    """Return one spectrum of each mineral, (L, 4): the first complete one of its name, as reflectance below 1."""
    found = scipy.io.loadmat(path)
    names = [bytes(row).decode().strip() for row in found["names"]][3:]
    data = found["datalib"][:, 3:]
    good = (data > 0).all(axis=0) & (data < 1).all(axis=0)
    return np.column_stack(
        [data[:, next(j for j, name in enumerate(names) if name.startswith(one) and good[j])] for one in MINERALS]
    )


def main() -> None:
    data = Path(os.environ.get("UNMIX_DATA", "../shared/data"))
    E = minerals(data / "libraries/USGS_1995_Library.mat")
    random = np.random.default_rng(0)
    W = np.vectorize(lambda value: fractions.albedo(value, *COSINES))(E)
    M = random.dirichlet(np.ones(4), LINES * SAMPLES)
    F = M / (DENSITY * DIAMETER)
    F /= F.sum(axis=1, keepdims=True)
    R = np.vectorize(lambda w: fractions.reflectance(w, *COSINES))(F @ W.T)
    Y = (R + NOISE * random.standard_normal(R.shape)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_cube(place / "s.hdr", Y.reshape(LINES, SAMPLES, -1))
        write_csv(place / "e.csv", E, names=MINERALS)
        grains = "".join(f"{name},{d},{s}\n" for name, d, s in zip(MINERALS, DENSITY, DIAMETER))
        (place / "g.csv").write_text("name,density,diameter\n" + grains)
        for name, words in (
            ("albedo", {"albedo": "30,0", "grains": place / "g.csv"}),
            ("reflectance", {}),
            ("reflectance, weighed by grains", {}),
        ):
            unmix.run(
                place / "s.hdr", endmembers=place / "e.csv", method="fcls", out_dir=place / name, device="cpu", **words
            )
            of = "mass" if words else "abundance"
            A = read_values(place / name / f"s_{of}.hdr").reshape(-1, 4).astype(float)
            if "weighed" in name:
                A *= DENSITY * DIAMETER
                A /= A.sum(axis=1, keepdims=True)
            off = np.abs(A - M)
            say(
                {
                    "by": name,
                    "rmse": float(np.sqrt(np.square(off).mean())),
                    "of 99 %": float(np.percentile(off, 99)),
                }
            )


if __name__ == "__main__":
    main()
