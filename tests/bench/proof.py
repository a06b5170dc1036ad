"""δ against exact arithmetic: ``python tests/bench/proof.py [ANSWERS] [DEVICE] [SEED]``.

Draws problems of fourteen families, p = 1 to 64, for every method and solver, and compares each answer with the optimum
in rational numbers. Prints a line for each family, and fails (exit code 1) where an error is above its δ, or a
certified answer is off by more than 1e-4.
"""

import logging
import sys
import time

import numpy as np
from common import say
from exact import FAMILIES, Reference, distance

import unmix
from unmix.certificate import CERTIFIED, MOST_DELTA
from unmix.methods import METHODS, SOLVERS

PAIRS = [(method, solver) for method in METHODS.values() for solver in method.solvers]
SIZES = (1, 2, 2, 3, 3, 4, 5, 6, 7, 9, 9, 12, 16, 25)
LARGE = (33, 48, 64)


def main(answers: int, device: str, seed: int) -> int:
    logging.getLogger("unmix").setLevel(logging.ERROR)
    random = np.random.default_rng(seed)
    found = {name: [] for name in FAMILIES}
    refused, done, turn, began = 0, 0, 0, time.perf_counter()
    while done < answers:
        name = list(FAMILIES)[turn % len(FAMILIES)]
        method, solver = PAIRS[(turn // len(FAMILIES)) % len(PAIRS)]
        turn += 1
        large = turn % 97 == 0
        p = int(random.choice(LARGE if large else SIZES))
        L, N = p + int(random.integers(0, 30)), 8 if large else 64
        E, Y = FAMILIES[name](random, L, p, N)
        try:
            got = unmix.solve(Y, E, method=method.name, solver=solver, device=device)
        except unmix.LibraryError:
            refused += 1
            continue
        shade = np.zeros(
            (len(E), int(method.constraint.has_shade))
        )  # pcls has one spectrum more, of which nothing is returned
        reference = Reference(np.hstack([E, shade]), Y, *method.constraint.flags)
        for n, a in enumerate(got.abundances):
            if not np.isfinite(got.delta[n]):
                error, delta = 0.0, np.inf  # nothing is said
            else:
                guess = np.append(a, 1 - a.sum()) if method.constraint.has_shade else a
                error, delta = distance(a, reference.optimum(n, guess)[: len(a)]), float(got.delta[n])
            certified = got.kappa[n] <= CERTIFIED and delta <= MOST_DELTA
            found[name].append((error, delta, certified, method.name, solver, p))
            if error > delta or (certified and error > MOST_DELTA):
                print("WRONG", name, method.name, solver, p, n, error, delta, flush=True)
                np.savez(f"/tmp/wrong-{turn}-{n}.npz", E=E, y=Y[n], a=a)
        done += N
    wrong = 0
    for name, rows in found.items():
        errors, deltas = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
        above = int(np.sum(errors > deltas))
        wrong += above
        known = np.isfinite(deltas)
        line = {
            "family": name,
            "answers": len(rows),
            "above_delta": above,
            "certified": share(rows, True),
            "certified_by_exact": share(rows, False),
            "worst_error_over_delta": float(np.max(errors[known] / np.maximum(deltas[known], 5e-324), initial=0)),
            "median_delta": float(np.median(deltas)),
            "worst_error_certified": float(max((row[0] for row in rows if row[2]), default=0)),
        }
        say(line)
    seconds = round(time.perf_counter() - began)
    say({"answers": done, "refused": refused, "device": device, "wrong": wrong, "seconds": seconds})
    return int(wrong > 0)


def share(rows, everyone):
    """How many are certified, of all or of those by exact solvers that have one answer."""
    some = [row[2] for row in rows if everyone or (SOLVERS[row[4]].exact and np.isfinite(row[1]))]
    return float(np.mean(some)) if some else None


if __name__ == "__main__":
    words = [*sys.argv[1:], *("20000", "cpu", "0")[len(sys.argv) - 1 :]]
    sys.exit(main(int(words[0]), words[1], int(words[2])))
