"""Compressed cubes: ``python tests/bench/inflate.py FOLDER [LINES [KIND [DEVICE]]]``.

A synthetic scene of LINES x 1000 pixels is written to FOLDER: ``bands``, HDF5, 426 bands of int16, one a chunk (NEON's
products from 2022 on); ``tiles``, HDF5, 426 bands of float32, shuffled, in chunks of 64 x 125 pixels and 71 bands (as
NetCDF libraries choose them); or ``tiff``, 224 bands of int16 in deflated tiles of 512 x 512 pixels with all bands (as
GDAL's COG). In turn: one sequential decompression by the library, in the order of the chunks (h5py; GDAL, by one
thread), and a whole run with five given endmembers, maps to FOLDER. Prints a line of JSON: medians of three, and the
median of the ratios.
"""

import statistics
import sys
from pathlib import Path

import h5py
import numpy as np
from common import say, seconds_of

import unmix

SAMPLES, P = 1000, 5
BANDS = {"bands": 426, "tiles": 426, "tiff": 224}
CHUNKS = {"bands": lambda lines: (lines, SAMPLES, 1), "tiles": lambda lines: (64, 125, 71)}


def write(folder: Path, lines: int, kind: str) -> tuple[Path, unmix.Endmembers]:
    """The cube, HDF5 in NEON's structure, and its endmembers."""
    random = np.random.default_rng(0)
    count = BANDS[kind]
    waves = np.linspace(383.5, 2511.9, count)
    E = np.stack([0.4 + 0.3 * np.sin(waves * (k + 1) / 700.0 + k) for k in range(P)], axis=1)
    A = random.dirichlet(np.full(P, 0.4), (lines, SAMPLES // 20)).repeat(20, axis=1)
    library = unmix.Endmembers(tuple(f"e{k}" for k in range(P)), E, waves, source="truth")

    def values(part: slice) -> np.ndarray:
        noise = 0.004 * random.standard_normal((lines, SAMPLES, part.stop - part.start))
        return ((A @ E[part].T + noise) * 10000).astype(np.int16)

    if kind == "tiff":
        import rasterio

        path, how = folder / "cube.tif", {"compress": "deflate", "interleave": "pixel", "NUM_THREADS": "ALL_CPUS"}
        with rasterio.open(
            path,
            "w",
            driver="GTiff",
            height=lines,
            width=SAMPLES,
            count=count,
            dtype="int16",
            tiled=True,
            blockxsize=512,
            blockysize=512,
            **how,
        ) as file:
            file.write(np.moveaxis(values(slice(0, count)), 2, 0))
        header = (
            f"samples = {SAMPLES}\nlines = {lines}\nbands = {count}\ndata type = 2\ninterleave = tif\nfile type = "
            "TIFF\n"
        )
        axis = ", ".join(map(str, waves.tolist()))
        path.with_suffix(".hdr").write_text(
            f"ENVI\n{header}reflectance scale factor = 10000\nwavelength = {{{axis}}}\n"
        )
        return path, library
    path, chunks = folder / "neon.h5", CHUNKS[kind](lines)
    with h5py.File(path, "w") as file:
        site = file.create_group("SITE/Reflectance")
        dtype, shape = (np.int16 if kind == "bands" else np.float32), (lines, SAMPLES, count)
        data = site.create_dataset(
            "Reflectance_Data", shape, dtype, chunks=chunks, compression="gzip", shuffle=kind == "tiles"
        )
        data.attrs["Scale_Factor"], data.attrs["Data_Ignore_Value"] = 10000.0, -9999.0
        site["Metadata/Spectral_Data/Wavelength"] = waves
        for first in range(0, count, chunks[2]):  # whole chunks
            part = slice(first, first + chunks[2])
            data[:, :, part] = values(part)
    return path, library


def decompress(path: Path, kind: str) -> None:
    """Decompress the cube once, by its library, in the order of its chunks."""
    if kind == "tiff":
        import rasterio

        with rasterio.open(path) as file:
            for _, window in file.block_windows(1):
                file.read(window=window)
        return
    with h5py.File(path) as file:
        data = file["SITE/Reflectance/Reflectance_Data"]
        across, down = (data.shape[2], 1) if kind == "bands" else (data.shape[0], 64)
        for first in range(0, across, down):
            data[:, :, first] if kind == "bands" else data[first : first + down]


def main() -> None:
    folder, lines = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    folder.mkdir(parents=True, exist_ok=True)
    kind, device = (sys.argv[3:] + ["bands", "cpu"][len(sys.argv[3:]) :])[:2]
    path, library = write(folder, lines, kind)
    taken: dict[str, list[float]] = {"sequential": [], "run": []}
    for turn in range(4):
        once = {"sequential": seconds_of(1, decompress, path, kind)[0]}
        once["run"], _ = seconds_of(
            1, unmix.run, path, endmembers=library, out_dir=folder, overwrite=True, device=device
        )
        for what, seconds in once.items() if turn > 0 else ():  # the first compiles
            taken[what].append(seconds)
    ratio = statistics.median(run / one for run, one in zip(taken["run"], taken["sequential"]))
    about = {"pixels": lines * SAMPLES, "bands": BANDS[kind], "kind": kind, "device": device}
    about |= {"file_bytes": path.stat().st_size}
    medians = {name: round(statistics.median(values), 3) for name, values in taken.items()}
    say(about | {"ratio": round(ratio, 3)} | medians)


if __name__ == "__main__":
    main()
