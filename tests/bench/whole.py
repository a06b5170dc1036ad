"""Whole runs beside the copy that bounds them: ``python tests/bench/whole.py FOLDER [PIXELS [DEVICE...]]``.

An int16 cube of Salinas-A pixels (in scene order, repeated), 224 bands, is written to FOLDER (put it in memory,
/dev/shm) in each interleave, and solved by `timed.bench` at p = 9 and 25; maps go to FOLDER too. UNMIX_DATA names the
real scenes. Prints a line of JSON each, and at last the wall time of the process `unmix run` for the same.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from common import say
from timed import bench

DATA = Path(os.environ.get("UNMIX_DATA", "../shared/data"))
SAMPLES = 1000


def write_cube(folder: Path, interleave: str, pixels: int) -> Path:
    """The cube, a slab of lines or a band at a time."""
    scene = np.fromfile(DATA / "salinas_a/salinas_a.img", np.int16).reshape(-1, 224)
    lines = pixels // SAMPLES
    with open(folder / "cube.img", "wb") as file:
        if interleave == "bsq":
            for band in range(224):
                np.resize(scene[:, band], lines * SAMPLES).tofile(file)
        else:
            for first in range(0, lines, 100):
                n = min(100, lines - first)
                slab = scene[np.arange(first * SAMPLES, (first + n) * SAMPLES) % len(scene)].reshape(n, SAMPLES, 224)
                np.ascontiguousarray(slab if interleave == "bip" else slab.transpose(0, 2, 1)).tofile(file)
    (folder / "cube.hdr").write_text(
        f"ENVI\nsamples = {SAMPLES}\nlines = {lines}\nbands = 224\ndata type = 2\ninterleave = {interleave}\n"
        "byte order = 0\nheader offset = 0\n"
    )
    return folder / "cube.hdr"


def main() -> None:
    folder = Path(sys.argv[1])
    pixels = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000
    devices = sys.argv[3:] or ["cuda:0"]
    for interleave in ("bip", "bil", "bsq"):
        cube = write_cube(folder, interleave, pixels)
        for p in (9, 25):
            library = DATA / f"paper_endmembers/salinas_{p:02d}.csv"
            streams = [1, 2, 4, 8] if interleave == "bip" and p == 9 else [4]
            for row in bench(cube, library, devices=devices, streams=streams, out_dir=folder, repeats=5):
                say(row)
            for device in devices:
                began = time.perf_counter()
                command = [sys.executable, "-m", "unmix_cli.main", "run", str(cube), "-e", str(library)]
                command += ["-o", str(folder)]
                subprocess.run([*command, "--overwrite", "-q", "--device", device], check=True)
                say(
                    {
                        "layout": interleave,
                        "endmembers": p,
                        "device": device,
                        "process_seconds": round(time.perf_counter() - began, 3),
                    }
                )


if __name__ == "__main__":
    main()
