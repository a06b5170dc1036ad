"""What a GPU makes of its results: ``python tests/bench/quantize.py FOLDER [PIXELS [REPEATS [DEVICE]]]``.

A cube of Salinas-A pixels, as `whole.py` makes it, is written to FOLDER (put it in memory, /dev/shm) and solved in
turn: with totals and checksums by the host and by the GPU, and with ``--quantize 1e-4``, after one run of each to warm
up; a tenth of it also with residuals. So is a scene of a tenth of the pixels, mixtures of nine of 249 spectra of the
USGS library. UNMIX_DATA names the real data. Prints a line of JSON for each: medians of the seconds that runs report,
and the median ratios of runs in turn.
"""

import statistics
import sys
from pathlib import Path

import numpy as np
from common import say
from squares import SparseChoice, sparse_scene
from whole import DATA, write_cube

import unmix
from unmix.devices import cuda
from unmix.library import load

# What is compared: the step of integers, and whether a GPU adds up and encodes its results.
WAYS = {"by_host": (None, False), "float32": (None, True), "integers": (1e-4, True)}


def compare(cube, library, folder, repeats, **how):
    """Runs in turn; the first of each is not counted."""
    taken = {way: [] for way in WAYS}
    for turn in range(repeats + 1):
        for way, (step, by_gpu) in WAYS.items():
            cuda.counts_here = lambda by_gpu=by_gpu: by_gpu
            options = {"out_dir": folder / "maps", "overwrite": True, "browse": False, "quantize": step} | how
            report = unmix.run(cube, endmembers=library, **options)
            taken[way] += [report["seconds"]] if turn else []
    found = {
        way: {stage: round(statistics.median(each[stage] for each in seconds), 3) for stage in seconds[0]}
        for way, seconds in taken.items()
    }
    for way, than in (("float32", "by_host"), ("integers", "float32")):
        ratios = [slow["total"] / quick["total"] for slow, quick in zip(taken[than], taken[way])]
        found[f"{way}_times_{than}"] = round(statistics.median(ratios), 3)
    return found


def write_mixtures(folder, pixels):
    """A scene like DC2 of every other spectrum of the library, repeated, and its endmembers."""
    whole = load(DATA / "libraries/USGS_1995_Library.mat")
    library = whole.take(list(range(0, whole.matrix.shape[1], 2)))
    library.write(*(folder / f"library.{kind}" for kind in ("csv", "hdr", "sli")))
    values, _ = sparse_scene(library, SparseChoice("dc2", 30, 3))
    lines, samples, bands = values.shape
    repeats = max(1, pixels // (lines * samples))
    with (folder / "mixtures.img").open("wb") as file:
        for _ in range(repeats):
            np.ascontiguousarray(values.transpose(0, 2, 1), "<f4").tofile(file)
    (folder / "mixtures.hdr").write_text(
        f"ENVI\nsamples = {samples}\nlines = {lines * repeats}\nbands = {bands}\ndata type = 4\ninterleave = bil\n"
        "byte order = 0\nheader offset = 0\n"
    )
    return folder / "mixtures.hdr", folder / "library.csv", repeats * lines * samples


def main():
    folder, pixels = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000
    repeats, device = int(sys.argv[3]) if len(sys.argv) > 3 else 5, sys.argv[4] if len(sys.argv) > 4 else "cuda"
    folder.mkdir(parents=True, exist_ok=True)
    cube, tenth = write_cube(folder, "bip", pixels), f"0:{pixels // 10_000}"
    for p in (9, 25):
        for how in ({}, {"residual": True, "lines": tenth}):
            found = compare(cube, DATA / f"paper_endmembers/salinas_{p:02d}.csv", folder, repeats, device=device, **how)
            say({"pixels": pixels // (10 if how else 1), "endmembers": p, **how, **found})
    cube, library, count = write_mixtures(folder, pixels // 10)
    found = compare(cube, library, folder, repeats, device=device, method="nnls")
    say({"pixels": count, "endmembers": 249, **found})


if __name__ == "__main__":
    main()
