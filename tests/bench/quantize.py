"""Maps of 16-bit integers beside float32 maps: ``python tests/bench/quantize.py FOLDER [PIXELS [REPEATS [DEVICE]]]``.

A cube of Salinas-A pixels, as `whole.py` makes it, is written to FOLDER (put it in memory, /dev/shm) and solved with and without
``--quantize 1e-4``, in turn, after one run of each to warm up; a tenth of it also with residuals. UNMIX_DATA names the real scenes.
Prints a line of JSON for each: medians of the seconds that runs report, and the median ratio of a pair.
"""

import json
import statistics
import sys
from pathlib import Path

from whole import DATA, write_cube

import unmix


def compare(cube, library, folder, repeats, **how):
    """Runs in turn, float32 first; the first pair is not counted."""
    taken = {None: [], 1e-4: []}
    for turn in range(repeats + 1):
        for step, seconds in taken.items():
            options = {"out_dir": folder / "maps", "overwrite": True, "browse": False, "quantize": step} | how
            report = unmix.run(cube, endmembers=library, **options)
            seconds += [report["seconds"]] if turn else []
    stages = [
        {stage: round(statistics.median(each[stage] for each in seconds), 3) for stage in seconds[0]}
        for seconds in taken.values()
    ]
    ratios = [wide["total"] / narrow["total"] for wide, narrow in zip(*taken.values())]
    return {"float32": stages[0], "integers": stages[1], "times_float32": round(statistics.median(ratios), 3)}


def main():
    folder, pixels = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000
    repeats, device = int(sys.argv[3]) if len(sys.argv) > 3 else 5, sys.argv[4] if len(sys.argv) > 4 else "cuda"
    folder.mkdir(parents=True, exist_ok=True)
    cube, tenth = write_cube(folder, "bip", pixels), f"0:{pixels // 10_000}"
    for p in (9, 25):
        for how in ({}, {"residual": True, "lines": tenth}):
            found = compare(cube, DATA / f"paper_endmembers/salinas_{p:02d}.csv", folder, repeats, device=device, **how)
            print(json.dumps({"pixels": pixels // (10 if how else 1), "endmembers": p, **how, **found}), flush=True)


if __name__ == "__main__":
    main()
