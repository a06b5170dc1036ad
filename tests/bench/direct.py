"""Methods without and with a search: ``python tests/bench/direct.py [DATA]``.

400 000 Salinas-A pixels, int16, with the endmembers of Li and Li. Prints a line of JSON for each p: Mpixel/s of each
method, medians of five.
"""

import sys
from pathlib import Path

import numpy as np
from common import say, seconds_of

import unmix
from unmix.certificate import CERTIFIED
from unmix.library import load

DATA = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[3] / "shared/data")
PIXELS = 400_000


def main() -> None:
    scene = np.fromfile(DATA / "salinas_a/salinas_a.img", "<i2").reshape(-1, 224)
    scene = np.resize(scene, (PIXELS, 224))
    for p in (9, 25):
        E = load(DATA / f"paper_endmembers/salinas_{p:02d}.csv").matrix
        speed = {}
        for method in ("nnls", "ucls", "scls", "fcls"):
            seconds, found = seconds_of(5, unmix.solve, scene, E, method=method)
            assert found.kappa.max() <= CERTIFIED
            speed[method] = round(PIXELS / seconds / 1e6, 2)
        say({"p": p, **speed})


if __name__ == "__main__":
    main()
