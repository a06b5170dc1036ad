"""What the browse image costs a run: ``python tests/bench/browse.py [LINES] [SAMPLES] [ENDMEMBERS]``.

A run of a synthetic scene of 20 bands with its true endmembers, and the image alone, made again from the maps on disk. Prints a line
of JSON: seconds of the run (medians of five, with and without the image, in turn), of the image, and of the page of `unmix report`.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import unmix
from unmix.commands.synth import Scene, synthesise
from unmix.pages.browse import browse_of


def seconds_of(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main(lines: str = "3200", samples: str = "3125", count: str = "9") -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, n, m, p = Path(folder) / "x.hdr", int(lines), int(samples), int(count)
        synthesise(path, Scene(lines=n, samples=m, bands=20, count=p))
        library = path.with_name("x_truth_endmembers.csv")
        spent = {True: [], False: []}
        for browse in [True, False] * 6:
            start = time.perf_counter()
            unmix.run(path, endmembers=library, overwrite=True, browse=browse, device="cpu")
            spent[browse].append(time.perf_counter() - start)
        maps = {"rmse": np.memmap(path.with_name("x_rmse.img"), "<f4", "r", shape=(n, 1, m))}
        maps["abundance"] = np.memmap(path.with_name("x_abundance.img"), "<f4", "r", shape=(n, p, m))
        image = float(np.median([seconds_of(lambda: browse_of(maps, range(min(p, 3)))) for _ in range(5)]))
        page = seconds_of(lambda: unmix.report(path))
    with_image, without = (float(np.median(spent[browse][1:])) for browse in (True, False))
    print(json.dumps({
        "pixels": n * m, "run": round(with_image, 3), "without": round(without, 3), "image": round(image, 3), "page": round(page, 2),
    }))  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
