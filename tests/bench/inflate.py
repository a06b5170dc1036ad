"""A cube with a band a chunk, gzip (NEON's products from 2022 on): ``python tests/bench/inflate.py FOLDER [LINES]``.

A synthetic int16 scene of LINES x 1000 pixels and 426 bands is written to FOLDER. In turn: one sequential decompression (h5py,
band by band, which is the order of the chunks), and a whole run with five given endmembers, maps to FOLDER. Prints a line of
JSON: medians of three, and the median of the ratios.
"""

import json
import statistics
import sys
import time
from pathlib import Path

import h5py
import numpy as np

import unmix

BANDS, SAMPLES, P = 426, 1000, 5


def write(folder: Path, lines: int) -> tuple[Path, unmix.Endmembers]:
    """The cube, in NEON's layout, and its endmembers."""
    random = np.random.default_rng(0)
    waves = np.linspace(383.5, 2511.9, BANDS)
    E = np.stack([0.4 + 0.3 * np.sin(waves * (k + 1) / 700.0 + k) for k in range(P)], axis=1)
    A = random.dirichlet(np.full(P, 0.4), (lines, SAMPLES // 20)).repeat(20, axis=1)
    path = folder / "neon.h5"
    with h5py.File(path, "w") as file:
        site = file.create_group("SITE/Reflectance")
        shape = lines, SAMPLES, BANDS
        data = site.create_dataset("Reflectance_Data", shape, np.int16, chunks=(lines, SAMPLES, 1), compression="gzip")
        data.attrs["Scale_Factor"], data.attrs["Data_Ignore_Value"] = 10000.0, -9999.0
        site["Metadata/Spectral_Data/Wavelength"] = waves
        for b in range(BANDS):
            values = (A @ E[b] + 0.004 * random.standard_normal((lines, SAMPLES))) * 10000
            data[:, :, b] = values.astype(np.int16)
    return path, unmix.Endmembers(tuple(f"e{k}" for k in range(P)), E, waves, source="truth")


def main() -> None:
    folder, lines = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    folder.mkdir(parents=True, exist_ok=True)
    path, library = write(folder, lines)
    taken: dict[str, list[float]] = {"sequential": [], "run": []}
    for turn in range(4):
        began = time.perf_counter()
        with h5py.File(path) as file:
            data = file["SITE/Reflectance/Reflectance_Data"]
            for b in range(BANDS):
                data[:, :, b]
        middle = time.perf_counter()
        unmix.run(path, endmembers=library, out_dir=folder, overwrite=True, device="cpu")
        if turn > 0:  # the first compiles
            taken["sequential"].append(middle - began)
            taken["run"].append(time.perf_counter() - middle)
    ratio = statistics.median(run / one for run, one in zip(taken["run"], taken["sequential"]))
    print(json.dumps({"pixels": lines * SAMPLES, "bands": BANDS, "file_bytes": path.stat().st_size, "ratio": round(ratio, 3)}
                     | {name: round(statistics.median(values), 3) for name, values in taken.items()}))  # fmt: skip


if __name__ == "__main__":
    main()
