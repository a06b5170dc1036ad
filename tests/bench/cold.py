"""A run from a cold disk beside ``dd``: ``python tests/bench/cold.py FOLDER [PIXELS [DEVICE]]``.

An int16 cube of Salinas-A pixels, 224 bands, is written to FOLDER (on the disk that is to be measured) and put out of
the page cache before each turn. In pairs: ``dd`` to nowhere in pieces of 16 MiB, and `unmix.run` with nine given
endmembers, as `unmix bench` times it, with maps in memory (/dev/shm). Prints a line of JSON: medians, and the median of
the pairs' ratios.
"""

import os
import statistics
import subprocess
import sys
from pathlib import Path

from common import say, seconds_of
from whole import DATA, write_cube

import unmix


def forget(path: Path) -> None:
    """Out of the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    pixels = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000
    device = sys.argv[3] if len(sys.argv) > 3 else "auto"
    library, maps = DATA / "paper_endmembers/salinas_09.csv", Path("/dev/shm/unmix-cold")
    for interleave in ("bip", "bsq"):
        cube = write_cube(folder, interleave, pixels)
        image = folder / "cube.img"
        rates: dict[str, list[float]] = {"dd": [], "run": []}
        for turn in range(4):
            forget(image)
            seconds, _ = seconds_of(
                1, subprocess.run, ["dd", f"if={image}", "of=/dev/null", "bs=16M"], check=True, capture_output=True
            )
            dd = image.stat().st_size / seconds / 1e9
            forget(image)
            report = unmix.run(cube, endmembers=library, out_dir=maps, overwrite=True, device=device)
            run = image.stat().st_size / report["seconds"]["total"] / 1e9
            if turn > 0:  # the first compiles
                rates["dd"].append(dd)
                rates["run"].append(run)
        say(
            {
                "layout": interleave,
                "device": report["device"]["name"] if isinstance(report["device"], dict) else report["device"],
                "gigabytes": round(image.stat().st_size / 1e9, 2),
                "dd": round(statistics.median(rates["dd"]), 3),
                "run": round(statistics.median(rates["run"]), 3),
                "ratio": round(statistics.median(r / d for r, d in zip(rates["run"], rates["dd"])), 3),
            }
        )


if __name__ == "__main__":
    main()
