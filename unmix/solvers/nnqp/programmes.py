"""Make multiplicative steps for batches of ``min ½ xᵀQx + hᵀx``, x ≥ 0, by groups of threads of a CPU or a GPU."""

import functools
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from ...compiled.jit import Team
from ...compiled.thread_groups import CpuGroups, CudaGroups
from .updates import Dense, Sparse, updates_function

# Threads of a block, registers of a thread, blocks per multiprocessor. A block works on one system, and a step waits
# for its slowest thread: the more threads the better, up to the largest block, whose threads may have 64 registers
# each.
THREADS, REGISTERS, BLOCKS_AT_ONCE = 1024, 64, 2


class Programmes(NamedTuple):
    """A batch of N systems; M of them are to make more steps."""

    Q: Any
    H: Any  # (N, n)
    X: Any  # (N, n)
    todo: Any  # (M,) int64: the systems that make steps
    alive: Any  # (N, n) int64: the indices where x > 0
    counts: Any  # (N,) int64: their number
    costs: Any  # (M,) before the last step
    steps: int


def matrix_of(Q: Any) -> Dense | Sparse:
    """Return a matrix as `Sparse` or `Dense`, as compiled code takes it."""
    if scipy.sparse.issparse(Q):
        return Sparse(Q.indptr.astype(np.int64), Q.indices.astype(np.int64), Q.data)
    return Dense(np.ascontiguousarray(Q, np.float64))


@functools.cache
def dense_body(team: Team) -> Any:
    """Return the body that makes steps of each system with a dense Q; scratch: Q⁺x and Q⁻x, (n,) each."""
    return steps_body(team, "dense")


@functools.cache
def sparse_body(team: Team) -> Any:
    """Return the body that makes steps of each system with a sparse Q; scratch as for `dense_body`."""
    return steps_body(team, "sparse")


def steps_body(team: Team, kind: str) -> Any:
    """Return the body for a ``kind`` of matrix, a key of `unmix.solvers.nnqp.updates.PARTS`; see `dense_body`."""
    update, rank = updates_function(team, kind), team.rank

    @team.compile
    def make_steps(start, stop, step, group, arguments, scratch, reduction_buffer):
        plus, minus = scratch[0][group], scratch[1][group]
        for s in range(start, stop, step):
            i = arguments.todo[s]
            cost = update(
                arguments.Q,
                arguments.H[i],
                arguments.X[i],
                arguments.alive[i],
                arguments.counts[i],
                plus,
                minus,
                arguments.steps,
                reduction_buffer,
            )
            if rank() == 0:
                arguments.costs[s] = cost

    return make_steps


class StepEngine:
    """Makes steps of a batch.

    Parameters
    ----------
    groups : CpuGroups or CudaGroups
    Q : array (n, n) or scipy.sparse CSR, float64
        Symmetric.
    H : array (N, n), float64
    """

    def __init__(self, groups: CpuGroups | CudaGroups, Q: Any, H: np.ndarray) -> None:
        matrix = matrix_of(Q)
        self.groups = groups
        self.body = dense_body if isinstance(matrix, Dense) else sparse_body
        self.Q, self.H = groups.put(matrix), groups.put(H)

    def advance(self, X: np.ndarray, todo: np.ndarray, count: int) -> np.ndarray:
        """Make ``count`` steps of the systems ``todo`` on X (N, n) in place; return costs before the last."""
        alive, counts = np.zeros(X.shape, np.int64), np.zeros(len(X), np.int64)
        for i in todo:
            support = np.flatnonzero(X[i] > 0.0)
            alive[i, : len(support)], counts[i] = support, len(support)
        costs = np.empty(len(todo))
        arrays = (X, np.asarray(todo, np.int64), alive, counts, costs)
        batch = Programmes(self.Q, self.H, *map(self.groups.put, arrays), count)
        n = X.shape[1]
        self.groups.run(self.body, len(todo), batch, (((None, n), float), ((None, n), float)), each=True)
        self.groups.get(batch.X, X)
        self.groups.get(batch.costs, costs)
        return costs

    def close(self) -> None:
        """Release threads or memory."""
        self.groups.close()
