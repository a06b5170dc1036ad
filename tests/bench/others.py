"""Arrays that stay on a GPU: ``python tests/bench/others.py`` with torch.

Prints a line of JSON for each size of a batch, in µs. ``call`` is the time of a call of `unmix.solve` or `unmix.nnls`
with tensors, of many in a row, after the last of which the GPU is waited for; ``kernels`` that of the recorded kernels
alone, by events, or, for a large batch, of those of a block (tests/bench/kernels.py); ``cpu`` that of the CPU. The
least of several.
"""

import sys
import time

import numpy as np
import torch
from common import say
from kernels import ready as block

import unmix
from unmix.arrays.others.held import SHELF
from unmix.arrays.pixels import numbered
from unmix.compiled.cuda import cuda


def of_call(call, repeats):
    """Return the µs of a call, of several in a row."""
    call()
    least = np.inf
    for _ in range(3):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(repeats):
            call()
        torch.cuda.synchronize()
        least = min(least, time.perf_counter() - began)
    return 1e6 * least / repeats


def of_kernels():
    """Return the least of ten times, in µs, of the recorded kernels that were used last; None where none are recorded."""
    solver = next(reversed(SHELF.values()))
    if solver.graph is None:
        return None
    start, stop, least = cuda.event(), cuda.event(), np.inf
    for _ in range(10):
        start.record(solver.stream)
        solver.graph.replay(solver.handle)
        stop.record(solver.stream)
        stop.synchronize()
        least = min(least, cuda.event_elapsed_time(start, stop))
    return round(1e3 * least, 1)


def show(**values):
    """Print a line."""
    say({name: round(one, 1) if isinstance(one, float) else one for name, one in values.items()})


def main(most: str = "4000000") -> None:
    random = np.random.default_rng(0)
    for L, p, method, kind in ((224, 9, "fcls", np.int16), (224, 9, "nnls", np.float32), (224, 64, "nnls", np.float32)):
        smooth = np.cumsum(random.standard_normal((L, p)), axis=0)
        E = 2000 + 3000 * (smooth - smooth.min(axis=0)) / np.ptp(smooth, axis=0)
        for N in (1000, 30_000, int(most)):
            if N > 100_000 and p > 32:
                N = 200_000
            A = random.dirichlet(np.full(p, 0.3), min(N, 50_000))
            Y = (A @ E.T + 10 * random.standard_normal((len(A), L))).astype(kind)
            Y = np.resize(Y, (N, L))
            there = torch.from_numpy(Y).cuda()
            call = of_call(lambda: unmix.solve(there, E, method=method), 10_000 if N == 1000 and p == 9 else 20)  # noqa: B023
            own = (
                of_kernels()
                if N < 10**6 or kind != np.int16
                else 1e3 * block(Y, numbered(E), method, "active-set", N, "as drawn")()["ms"]
            )
            show(L=L, p=p, method=method, type=np.dtype(kind).name, pixels=N, call=call, kernels=own)
    for m, n in ((60, 20), (10, 10)):
        for N in (1000, 65_536):
            A, B = random.random((m, n)), random.random((N, m))
            weights, allowed = 10.0 ** random.uniform(-1, 1, (N, m)), random.random((N, n)) < 0.7
            here = {"weights": weights, "allowed": allowed}
            for own in ({}, here):
                there = {name: torch.from_numpy(values).cuda() for name, values in own.items()}
                right = torch.from_numpy(B).cuda()
                call = of_call(lambda: unmix.nnls(A, right, **there), 1000 if N == 1000 else 20)  # noqa: B023
                own_kernels, cpu = of_kernels(), of_call(lambda: unmix.nnls(A, B, **own), 2)  # noqa: B023
                show(m=m, n=n, systems=N, own=sorted(own), call=call, kernels=own_kernels, cpu=cpu)


if __name__ == "__main__":
    main(*sys.argv[1:])
