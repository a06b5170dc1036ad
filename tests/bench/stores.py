"""Reading of Zarr stores beside zarr-python's own: ``python tests/bench/stores.py [FOLDER]``.

Writes int16 stores of 800 lines, 1000 samples and 224 bands (358 MB, of which zstd leaves a part), in several chunks
and shards; prints a line of JSON for each: seconds of ``array[...]`` by zarr, and of reading the cube in blocks of 64
MiB by unmix, pair by pair, and the median of their ratios. "zarr" holds the whole array in memory, unmix a block.
"""

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import zarr
from common import say, seconds_of

from unmix.io import cut, open_cube, read_blocks

LINES, SAMPLES, BANDS = 800, 1000, 224
# Axes, chunks and shards.
LAYOUTS = {
    "a shard of all bands": ("byx", (32, 128, 128), (224, 512, 512)),
    "a shard of a row of tiles": ("byx", (224, 32, 32), (224, 64, 1024)),
    "chunks of all bands": ("byx", (224, 64, 64), None),
    "by pixel": ("yxb", (64, 64, 224), None),
    "a band in a chunk": ("byx", (1, 800, 1000), None),
}
PAIRS = 5


def by_zarr(path: Path) -> np.ndarray:
    return zarr.open(path, mode="r")[...]


def by_unmix(path: Path, dataset: str) -> None:
    cube = open_cube(path, dataset)
    for _ in read_blocks(cube, cut(cube, 2**26)):
        pass


def main(folder: str | None = None) -> None:
    random = np.random.default_rng(0)
    smooth = np.cumsum(random.standard_normal((BANDS, 6)), axis=0)
    A = random.dirichlet(np.ones(6), LINES * SAMPLES).astype(np.float32)
    values = (1000 + 100 * A @ smooth.T.astype(np.float32)).astype(np.int16).reshape(LINES, SAMPLES, BANDS)
    values += random.integers(0, 16, values.shape, np.int16)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        for name, (axes, chunks, shards) in LAYOUTS.items():
            path = Path(place) / "s.zarr"
            turned = values.transpose(["yxb".index(axis) for axis in axes])
            array = zarr.create_array(path, shape=turned.shape, dtype="int16", chunks=chunks, shards=shards)
            array[...] = turned
            pairs = [
                (seconds_of(1, by_zarr, path)[0], seconds_of(1, by_unmix, path, f"/:{axes}")[0]) for _ in range(PAIRS)
            ]
            own, ours = (statistics.median(times) for times in zip(*pairs))
            ratio = statistics.median(a / b for a, b in pairs)
            shown = {"layout": name, "zarr": round(own, 2), "unmix": round(ours, 2), "speed of zarr's": round(ratio, 2)}
            say(shown)
            shutil.rmtree(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
