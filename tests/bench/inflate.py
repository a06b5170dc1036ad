"""Compressed HDF5 cubes: ``python tests/bench/inflate.py FOLDER [LINES [KIND [DEVICE]]]``.

A synthetic scene of LINES x 1000 pixels and 426 bands is written to FOLDER: ``bands``, int16 with a band a chunk (NEON's products from
2022 on), or ``tiles``, float32 and shuffled, in chunks of 64 x 125 pixels and 71 bands (as NetCDF libraries choose them). In turn: one
sequential decompression (h5py, in the order of the chunks), and a whole run with five given endmembers, maps to FOLDER. Prints a line
of JSON: medians of three, and the median of the ratios.
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


def write(folder: Path, lines: int, kind: str) -> tuple[Path, unmix.Endmembers]:
    """The cube, in NEON's structure, and its endmembers."""
    random = np.random.default_rng(0)
    waves = np.linspace(383.5, 2511.9, BANDS)
    E = np.stack([0.4 + 0.3 * np.sin(waves * (k + 1) / 700.0 + k) for k in range(P)], axis=1)
    A = random.dirichlet(np.full(P, 0.4), (lines, SAMPLES // 20)).repeat(20, axis=1)
    path = folder / "neon.h5"
    with h5py.File(path, "w") as file:
        site = file.create_group("SITE/Reflectance")
        shape = lines, SAMPLES, BANDS
        dtype, chunks = (np.int16, (lines, SAMPLES, 1)) if kind == "bands" else (np.float32, (64, 125, 71))
        data = site.create_dataset(
            "Reflectance_Data", shape, dtype, chunks=chunks, compression="gzip", shuffle=kind == "tiles"
        )
        data.attrs["Scale_Factor"], data.attrs["Data_Ignore_Value"] = 10000.0, -9999.0
        site["Metadata/Spectral_Data/Wavelength"] = waves
        for first in range(0, BANDS, chunks[2]):  # whole chunks
            part = slice(first, first + chunks[2])
            values = (A @ E[part].T + 0.004 * random.standard_normal((lines, SAMPLES, chunks[2]))) * 10000
            data[:, :, part] = values.astype(np.int16)
    return path, unmix.Endmembers(tuple(f"e{k}" for k in range(P)), E, waves, source="truth")


def main() -> None:
    folder, lines = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    folder.mkdir(parents=True, exist_ok=True)
    kind, device = (sys.argv[3:] + ["bands", "cpu"][len(sys.argv[3:]) :])[:2]
    path, library = write(folder, lines, kind)
    taken: dict[str, list[float]] = {"sequential": [], "run": []}
    for turn in range(4):
        began = time.perf_counter()
        with h5py.File(path) as file:
            data = file["SITE/Reflectance/Reflectance_Data"]
            if kind == "bands":
                for b in range(BANDS):
                    data[:, :, b]
            else:
                for y in range(0, lines, 64):
                    data[y : y + 64]
        middle = time.perf_counter()
        unmix.run(path, endmembers=library, out_dir=folder, overwrite=True, device=device)
        if turn > 0:  # the first compiles
            taken["sequential"].append(middle - began)
            taken["run"].append(time.perf_counter() - middle)
    ratio = statistics.median(run / one for run, one in zip(taken["run"], taken["sequential"]))
    about = {
        "pixels": lines * SAMPLES,
        "bands": BANDS,
        "kind": kind,
        "device": device,
        "file_bytes": path.stat().st_size,
    }
    medians = {name: round(statistics.median(values), 3) for name, values in taken.items()}
    print(json.dumps(about | {"ratio": round(ratio, 3)} | medians))


if __name__ == "__main__":
    main()
