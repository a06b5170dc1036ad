"""Several GPUs beside one: ``python tests/bench/several.py FOLDER [PIXELS [REPEATS]]``.

A cube of Salinas-A pixels, as `whole.py` makes it, is written to FOLDER (put it in memory, /dev/shm) and solved on
``cuda:0`` and on ``cuda:all``, in turn, beside the bare copy over each; a tenth of it also by a solver that keeps a GPU
busy. Then the maps of both are compared, byte for byte. UNMIX_DATA names the real scenes. Prints a line of JSON for
each: medians in seconds, and the ratios of one GPU to all, and of the copy over all to the run on all.
"""

import statistics
import sys
from pathlib import Path

from common import say
from timed import bench
from whole import DATA, write_cube

import unmix


def compare(cube, library, folder, repeats, **how):
    """Runs and copies in turn on one GPU and on all."""
    taken = {(device, what): [] for device in ("cuda:0", "cuda:all") for what in ("run", "copy")}
    for _ in range(repeats):
        for device in ("cuda:0", "cuda:all"):
            row = bench(cube, library, devices=[device], out_dir=folder, repeats=1, gpu_memory="4G", **how)[0]
            for what in ("run", "copy"):
                taken[device, what].append(row[what]["total"])
    median = {key: statistics.median(values) for key, values in taken.items()}
    pairs = list(zip(taken["cuda:0", "run"], taken["cuda:all", "run"]))
    bound = list(zip(taken["cuda:all", "copy"], taken["cuda:all", "run"]))
    return {
        **{f"{device} {what}": round(value, 4) for (device, what), value in median.items()},
        "times_one": round(statistics.median(one / both for one, both in pairs), 3),
        "of_copy_bound": round(statistics.median(copy / run for copy, run in bound), 3),
    }


def main():
    folder, pixels = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000
    repeats = int(sys.argv[3]) if len(sys.argv) > 3 else 7
    cube = write_cube(folder, "bip", pixels)
    for p in (9, 25):
        library = DATA / f"paper_endmembers/salinas_{p:02d}.csv"
        say({"pixels": pixels, "endmembers": p, **compare(cube, library, folder, repeats)})
    library, part = DATA / "paper_endmembers/salinas_25.csv", f"0:{pixels // 10_000}"
    found = compare(cube, library, folder, 3, lines=part, method="nnls", solver="inverse")
    say({"pixels": pixels // 10, "endmembers": 25, "solver": "inverse", **found})
    for device in ("cuda:0", "cuda:all"):
        how = {"lines": part, "certificate": True, "residual": True, "memory": "256M"}
        unmix.run(cube, endmembers=library, device=device, out_dir=folder / device.replace(":", "-"), **how)
    names = [
        f"cube_{name}" for name in ("abundance.img", "rmse.img", "residual.img", "certificate.img", "abundance.hdr")
    ]
    same = [(folder / "cuda-0" / name).read_bytes() == (folder / "cuda-all" / name).read_bytes() for name in names]
    say({"maps_of_both_are_the_same_bytes": dict(zip(names, same))})


if __name__ == "__main__":
    main()
