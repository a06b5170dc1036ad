"""Divide a scene into blocks of lines within a memory budget; count CPU cores, and keep pools of threads."""

import functools
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from .errors import MethodError

# Most bytes of a block: a larger one gains nothing on disk or bus, and reduces the overlap of reading and solving. (10
# million pixels through an H100: 0.22 s with blocks of 64 MiB, 0.18 with 128.)
LARGEST_BLOCK = 128 * 2**20
# Fewest bytes of a block: a smaller one costs more to start than its overlap saves: 1.5 ms of Python for a block on a
# GPU.
SMALLEST_BLOCK = 32 * 2**20
# Fewest bytes of one band in a block of a BSQ cube, which gets more lines than `LARGEST_BLOCK` allows if these pieces
# would be smaller.
SMALLEST_PIECE = 2**20
# Pools of threads that are kept for the process.
POOLS: list[ThreadPoolExecutor] = []
UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@dataclass(frozen=True)
class BlockPlan:
    """A scene cut into blocks of ``lines_per_block`` lines, from line ``first``, with ``slots`` buffers in flight."""

    lines: int
    lines_per_block: int
    slots: int
    first: int = 0

    def __iter__(self) -> Iterator[slice]:
        for first in range(self.first, self.lines, self.lines_per_block):
            yield slice(first, min(first + self.lines_per_block, self.lines))

    def __len__(self) -> int:
        return -(-(self.lines - self.first) // self.lines_per_block)


def block_shape(interleave: str, lines: int, samples: int, bands: int) -> tuple[int, int, int]:
    """Return the shape of a block as stored, by interleave."""
    return {"bip": (lines, samples, bands), "bil": (lines, bands, samples), "bsq": (bands, lines, samples)}[interleave]


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers_for(threads: int | None) -> int:
    """Return how many threads to take, by default all cores; `MethodError` where ``threads`` is below 1."""
    if threads is not None and threads < 1:
        raise MethodError(f"`threads` {threads}: must be at least 1")
    return threads or cores()


def once_a_process(make: Callable[[], ThreadPoolExecutor]) -> Callable[[], ThreadPoolExecutor]:
    """Keep the thread pool of a function for the process; a forked child, without its threads, makes its own."""

    @functools.cache
    def kept() -> ThreadPoolExecutor:
        POOLS.append(make())
        return POOLS[-1]

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=kept.cache_clear)
    return kept


def end_pools() -> None:
    """End the threads of all pools of the process, which nobody needs any more."""
    for pool in POOLS:
        pool.shutdown(cancel_futures=True)


def parse_size(text: str) -> int:
    """Return the bytes in a size such as 256M, 1G, 1.5GiB or 4096; `MethodError` if it is malformed."""
    match = re.fullmatch(r"\s*([0-9]{0,15}\.?[0-9]{1,15})\s*([kmgt]?)(i?b)?\s*", text.lower(), re.ASCII)
    if not match or float(match[1]) <= 0:
        raise MethodError(f"'{text}' is not a size; write 256M or 2G")
    return int(float(match[1]) * UNITS[match[2]])


def plan_blocks(
    lines: int,
    bytes_per_line: int,
    budget: int,
    slots: int,
    option: str = "`memory`",
    piece: int | None = None,
    chunk: int = 1,
) -> BlockPlan:
    """Cut a scene into blocks so that all slots stay within the budget; `MethodError` if not one line fits."""
    # ``piece``: contiguous bytes of a line in the file, default all; ``chunk``: lines that are decompressed together.
    if budget < bytes_per_line:
        raise MethodError(f"{option} {budget} bytes is too small: one line of this scene needs {bytes_per_line}")
    # Fewer slots if not one line fits each: the budget matters more than the overlap.
    slots = max(1, min(slots, budget // bytes_per_line, lines))
    fitting = budget // slots // bytes_per_line
    preferred = max(1, LARGEST_BLOCK // bytes_per_line, SMALLEST_PIECE // piece if piece else 0)
    spread = max(-(-lines // slots), SMALLEST_BLOCK // bytes_per_line)
    lines_per_block = max(1, min(fitting, max(preferred, chunk), max(spread, chunk), lines))
    if lines_per_block > chunk:
        lines_per_block -= lines_per_block % chunk
    return BlockPlan(lines, lines_per_block, min(slots, -(-lines // lines_per_block)))
