"""A warp of a GPU as the vector, and the team, of one pixel: its lanes run the same code, and agree on every number that is no vector.

A lane loads its part of a vector itself; other lanes may read that part after a `sync_warp`.
"""

import math

from numba import float64, int32, uint32

from .cuda import ALL_LANES, SIMULATED, block_team, called_on_gpu, cuda, on_gpu
from .cuda import WARP as LANES
from .jit import Team, Width


@on_gpu
def fetch_none(*_):
    """Stored values are not fetched by warps."""
    return 0.0


@on_gpu
def load_of_warp(X, i):
    """See `Width`."""
    return X[uint32(i), uint32(cuda.laneid)]


@on_gpu
def store(X, i, value):
    """See `Width`."""
    X[uint32(i), uint32(cuda.laneid)] = value


@on_gpu
def fma(a, b, c):
    """See `Width`."""
    return cuda.fma(a, b, c)


@on_gpu
def select_of_warp(mask, a, b):
    """See `Width`."""
    return a if mask else b


@on_gpu
def any_lane(mask):
    """See `Width`."""
    return cuda.any_sync(ALL_LANES, mask)


@on_gpu
def lanes_of(mask):
    """See `Width`."""
    return uint32(cuda.ballot_sync(ALL_LANES, mask))


@on_gpu
def first_in_warp(lanes):
    """See `Width`."""
    return int32(cuda.ffs(lanes)) - 1


@on_gpu
def largest_in_warp(a):
    """See `Width`."""
    for step in (16, 8, 4, 2, 1):
        other = cuda.shfl_xor_sync(ALL_LANES, a, step)
        a = other if other > a else a
    return a


@on_gpu
def broadcast(value):
    """See `Width`."""
    return float64(value)


@on_gpu
def root_in_warp(a):
    """See `Width`."""
    return math.sqrt(a)


@on_gpu
def total(a, *_):
    """Return the sum of all lanes, the same in each: two lanes that add each other's numbers get the same sum."""
    for step in (16, 8, 4, 2, 1):
        a += cuda.shfl_xor_sync(ALL_LANES, a, step)
    return a


@on_gpu
def rank_in_team():
    """See `Team`."""
    return int32(cuda.laneid)


@on_gpu
def size():
    """See `Team`."""
    return int32(LANES)


@on_gpu
def sync_warp():
    """See `Team`."""
    cuda.syncwarp()


@on_gpu
def best(value, index, _):
    """See `Team`."""
    for step in (16, 8, 4, 2, 1):
        other, at = cuda.shfl_xor_sync(ALL_LANES, value, step), cuda.shfl_xor_sync(ALL_LANES, index, step)
        if at >= 0 and (index < 0 or other > value or (other == value and at < index)):
            value, index = other, at
    return index


@on_gpu
def counted_in_warp(holds, *_):
    """Return for how many lanes before this one it holds, and for how many in all."""
    voted = uint32(cuda.ballot_sync(ALL_LANES, holds))
    before = uint32((1 << int32(cuda.laneid)) - 1)
    return int32(cuda.popc(uint32(voted & before))), int32(cuda.popc(voted))


WARP = Width(
    LANES, 1, fetch_none, fetch_none, load_of_warp, store, fma, select_of_warp, any_lane, lanes_of, first_in_warp, largest_in_warp,
    broadcast, root_in_warp, total, called_on_gpu,
)  # fmt: skip
TEAM = Team("warp", called_on_gpu, rank_in_team, size, sync_warp, total, best, counted_in_warp)


def team_of(threads: int) -> Team:
    """Return the team of a block of ``threads``: that of a warp if they are one, which has less to wait for."""
    return TEAM if threads == LANES and not SIMULATED else block_team(threads)
