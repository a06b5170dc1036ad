"""What a part of a run costs: ``python tests/bench/costs.py residual | fractions [--device D] [--pixels N] [--turns
N]``; UNMIX_DATA.

Runs of Salinas-A tiled, in memory, with p = 9 given endmembers, in pairs: with the residual of each band and without
(`BandResiduals.add` switched off), or with fractions (``normalize`` length) and with abundances. Prints the medians of
their seconds, and the median ratio of a pair.
"""

import argparse
import logging
import statistics
import tempfile
from pathlib import Path

from whole import DATA, write_cube

import unmix
from unmix.runs.stream import BandResiduals


def main(part: str, device: str, pixels: int, turns: int, method: str) -> None:
    logging.getLogger("unmix").setLevel(logging.ERROR)
    add = BandResiduals.add
    seconds: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        scene = write_cube(Path(folder), "bip", pixels)
        library = DATA / "paper_endmembers/salinas_09.csv"
        for turn in range(turns + 1):  # the first compiles
            for has_part in (True, False) if turn % 2 else (False, True):
                if part == "residual":
                    BandResiduals.add = add if has_part else lambda *_: None
                more = {"normalize": "length"} if part == "fractions" and has_part else {}
                how = {"endmembers": library, "out_dir": f"{folder}/out"}
                run = unmix.run(scene, overwrite=True, device=device, method=method, **how, **more)
                if turn:
                    seconds[has_part].append(run["seconds"]["total"])
    ratios = [with_part / without for with_part, without in zip(seconds[True], seconds[False])]
    print(
        f"{part}, {device}, {method}, {pixels} pixels, {turns} pairs: with {statistics.median(seconds[True]):.4f} s, "
        "without "
        f"{statistics.median(seconds[False]):.4f} s; median ratio of a pair {statistics.median(ratios):.4f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=("residual", "fractions"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pixels", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=11)
    parser.add_argument("--method", default="nnls")
    main(**vars(parser.parse_args()))
