"""Which lines go together, from a memory budget: pure arithmetic; and how many cores there are."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .errors import MethodError

# A larger block gains nothing on disk or bus and costs its share of the overlap. (10 million pixels through an H100: 0.22 s
# with blocks of 64 MiB, 0.18 with 128.)
LARGEST_BLOCK = 128 * 2**20
# A smaller one costs more to begin than it hides: 1.5 ms of Python for a block on a GPU.
SMALLEST_BLOCK = 32 * 2**20
# Of a BSQ cube a block is a piece of every band, and is taller than that where its pieces would be smaller.
SMALLEST_PIECE = 2**20
UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@dataclass(frozen=True)
class BlockPlan:
    """How a scene is cut: ``lines_per_block`` lines in each of ``slots`` buffers that are in flight at once, from ``first`` on."""

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
    """The shape of a block as stored, by interleave."""
    return {"bip": (lines, samples, bands), "bil": (lines, bands, samples), "bsq": (bands, lines, samples)}[interleave]


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parse_size(text: str) -> int:
    """Bytes in a size such as 256M, 1G, 1.5GiB or 4096; `MethodError` where it is none."""
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
    """Cut ``lines`` so that all slots together stay within ``budget``.

    Fewer slots before less than a line each: the budget wins over the overlap.

    Parameters
    ----------
    lines : int
        Of the scene.
    bytes_per_line : int
        Everything that a line holds in memory in one slot.
    budget : int
        Bytes.
    slots : int
        Buffers wanted in flight.
    option : str
        Named in the message.
    piece : int, optional
        Bytes of a line that lie together in the file; default is all.
    chunk : int
        Lines that are decompressed together: blocks are whole chunks, as far as the budget allows.

    Raises
    ------
    MethodError
        Where not even one line fits; says the least that does.
    """
    if budget < bytes_per_line:
        raise MethodError(f"{option} {budget} bytes is too small: one line of this scene needs {bytes_per_line}")
    slots = max(1, min(slots, budget // bytes_per_line, lines))
    fitting = budget // slots // bytes_per_line
    liked = max(1, LARGEST_BLOCK // bytes_per_line, SMALLEST_PIECE // piece if piece else 0)
    spread = max(-(-lines // slots), SMALLEST_BLOCK // bytes_per_line)
    together = max(1, min(fitting, max(liked, chunk), max(spread, chunk), lines))
    if together > chunk:
        together -= together % chunk
    return BlockPlan(lines, together, min(slots, -(-lines // together)))
