"""δ of fractions against exact arithmetic: ``python tests/bench/normalize.py [ANSWERS] [SEED]``.

Draws problems of the families of tests/exact.py for nnls and pcls, both normalizations, and compares each fraction with that of the
optimum in rational numbers. Prints a line for each family; exit code 1 where one is further off than its δ.
"""

import logging
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from exact import FAMILIES
from test_normalize import KINDS, METHODS, beyond

import unmix


def main(answers: int, seed: int) -> int:
    logging.getLogger("unmix").setLevel(logging.ERROR)
    random = np.random.default_rng(seed)
    done, wrong, turn, known = 0, 0, 0, 0
    while done < answers:
        name = list(FAMILIES)[turn % len(FAMILIES)]
        method, kind = METHODS[turn // len(FAMILIES) % 2], KINDS[turn // len(FAMILIES) // 2 % 2]
        turn += 1
        p = int(random.choice((1, 2, 3, 4, 6, 9, 12)))
        E, Y = FAMILIES[name](random, p + int(random.integers(0, 20)), p, 64)
        try:
            got = unmix.solve(Y, E, method=method, normalize=kind)
        except unmix.LibraryError:
            continue
        off = beyond(E, Y, got, method, kind)
        if off:
            print("WRONG", name, method, kind, p, off, flush=True)
        done, wrong, known = done + len(Y), wrong + off, known + int(np.isfinite(got.delta).sum())
    print({"answers": done, "with a finite δ": known, "beyond δ": wrong})
    return int(wrong > 0)


if __name__ == "__main__":
    words = [*sys.argv[1:], *("50000", "0")[len(sys.argv) - 1 :]]
    sys.exit(main(int(words[0]), int(words[1])))
