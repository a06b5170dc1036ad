"""A warp of a GPU as a `Team`: its lanes agree on every number that is not theirs alone."""

from numba import int32, uint32

from .cuda import ALL_LANES, SIMULATED, block_team, called_on_gpu, cuda, on_gpu
from .cuda import WARP as LANES
from .jit import Team


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


TEAM = Team("warp", called_on_gpu, rank_in_team, size, sync_warp, total, best, counted_in_warp)


def team_of(threads: int) -> Team:
    """Return the team of a block of ``threads``: a warp's team if they are one warp, which has less to wait for."""
    return TEAM if threads == LANES and not SIMULATED else block_team(threads)
