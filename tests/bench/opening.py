"""What it takes to prepare a GPU for a scene: ``python tests/bench/opening.py FOLDER [PIXELS [REPEATS]]``.

First, milliseconds for 256 MiB of page-locked memory, by the driver's own allocation and as unmix makes it (`unmix.devices.pinned`).
Then a cube of Salinas-A pixels, as `whole.py` makes it, is written to FOLDER (put it in memory, /dev/shm) and solved by fcls, in
turn with page-locked memory of either kind, in one process, each time with new outputs. UNMIX_DATA names the real scenes. Prints a
line of JSON for each: medians in seconds, of which ``opening`` passes before the first block is read, and ``whole`` is the call.
"""

import json
import shutil
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from numba import cuda
from whole import DATA, write_cube

import unmix
from unmix.devices.pinned import PinnedMemory, locked

SIZE = 256 * 2**20


def by_the_driver(self, shape, kind):
    """In place of `PinnedMemory.array`."""
    return cuda.pinned_array(shape, dtype=kind) if np.prod(shape) else np.empty(shape, kind)


def milliseconds(make):
    """The least time of five to make and drop page-locked memory."""
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        kept = make()
        taken.append(time.perf_counter() - began)
        del kept
        cuda.current_context().deallocations.clear()
    return round(1e3 * min(taken), 1)


def main():
    folder, pixels = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000
    repeats = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    folder.mkdir(parents=True, exist_ok=True)
    cuda.current_context()
    found = {
        "driver": milliseconds(lambda: cuda.pinned_array(SIZE, dtype=np.uint8)),
        "ours": milliseconds(lambda: locked(cuda, SIZE)),
    }
    print(json.dumps({"bytes": SIZE, "milliseconds": found}), flush=True)
    cube, ours = write_cube(folder, "bip", pixels), PinnedMemory.array
    for p in (9, 25):
        taken = {"driver": [], "ours": []}
        for turn in range(repeats + 1):
            for way, rows in taken.items():
                PinnedMemory.array = by_the_driver if way == "driver" else ours
                shutil.rmtree(folder / "maps", ignore_errors=True)
                library, began = DATA / f"paper_endmembers/salinas_{p:02d}.csv", time.perf_counter()
                report = unmix.run(
                    cube, endmembers=library, out_dir=folder / "maps", method="fcls", device="cuda", browse=False
                )
                whole, seconds = time.perf_counter() - began, report["seconds"]
                rows += [(seconds["compiling"], seconds["total"], whole)] if turn else []
        for way, rows in taken.items():
            medians = [round(statistics.median(values), 3) for values in zip(*rows)]
            row = dict(zip(("opening", "blocks", "whole"), medians))
            print(json.dumps({"pixels": pixels, "endmembers": p, "memory": way} | row), flush=True)


if __name__ == "__main__":
    main()
